//! What a sound configuration means and perhaps does not want: sentences for `check` and the log, and how
//! often loads are read where nothing is said about it.

use std::time::Duration;

use tidegate_core::units::format_duration;

use super::file::{ConfigFile, PaceName};
use super::{FrontEnd, NodeRead, ReadPace};

/// Time between two reads of a node, if nothing else is said and there are not too many.
pub(super) const INTERVAL: Duration = Duration::from_millis(1);
/// CPU time of one read of an agent, seconds: `cargo bench -p tidegate-remote`.
const UDP_READ_SECONDS: f64 = 8e-6;
/// The same where the record is mapped.
const SHM_READ_SECONDS: f64 = 0.8e-6;
/// Share of a CPU that reading may take unasked.
const SHARE_MAX: f64 = 0.25;

/// CPU time that it takes to read all nodes once, seconds.
fn round_seconds(reads: &[NodeRead]) -> f64 {
    let seconds = reads.iter().map(|read| match read {
        // Others ask far less often.
        NodeRead::None | NodeRead::Reported(_) | NodeRead::Responses { .. } => 0.0,
        NodeRead::Udp { .. } => UDP_READ_SECONDS,
        NodeRead::Shm { .. } => SHM_READ_SECONDS,
    });
    seconds.sum()
}

/// The shortest time between two reads, in whole milliseconds, at which reading takes its share.
fn affordable(reads: &[NodeRead]) -> Duration {
    let millis = round_seconds(reads) / SHARE_MAX * 1e3;
    // A hundredth more is within the estimate's error.
    Duration::from_millis((millis - 0.01).ceil() as u64)
}

/// How often loads are read: as wanted, or as often as is affordable.
pub(super) fn interval(reads: &[NodeRead], wanted: Option<Duration>) -> Duration {
    wanted.unwrap_or_else(|| INTERVAL.max(affordable(reads)))
}

/// How often reads are needed: moves want each word at once, and what was asked for has no other bound.
pub(super) fn pace(file: &ConfigFile) -> ReadPace {
    let load = &file.load;
    let constant = load.pace.value == PaceName::Constant || file.reconfigure.enabled.value;
    let unasked = !constant && load.interval.value.is_none();
    ReadPace {
        constant,
        budget: unasked.then_some(load.budget.value),
    }
}

/// What may not be meant.
pub(super) fn notes(front_end: &FrontEnd, wanted: Option<Duration>) -> Vec<String> {
    let notes = [
        reading(front_end, wanted),
        unserved_hosts(front_end),
        unread_moves(front_end),
        lost_redirects(front_end),
    ];
    notes.into_iter().flatten().collect()
}

/// A redirect to https is of use where something speaks it.
fn lost_redirects(front_end: &FrontEnd) -> Option<String> {
    let listeners = &front_end.listeners;
    let mut redirecting = listeners
        .iter()
        .filter(|it| it.plan.redirects_to().is_some());
    if listeners.iter().any(|it| it.plan.tls.is_some()) {
        return None;
    }
    let address = redirecting.next()?.address;
    Some(format!(
        "{address} redirects to https, and no listener has `tls`: clients find nothing there, unless something else speaks it"
    ))
}

fn reading(front_end: &FrontEnd, wanted: Option<Duration>) -> Option<String> {
    let affordable = affordable(&front_end.reads);
    let read = |it: &&NodeRead| it.has_region();
    let nodes = front_end.reads.iter().filter(read).count();
    match wanted {
        Some(wanted) if wanted < affordable => {
            let share = round_seconds(&front_end.reads) / wanted.as_secs_f64();
            Some(format!(
                "reading the load of {nodes} nodes every {} takes about {:.0} % of a CPU{}; \
                 `interval = \"{}\"` in [load] takes {:.0} %",
                format_duration(wanted),
                share * 100.0,
                match share > 0.9 {
                    true => ", so loads will be older than that",
                    false => "",
                },
                format_duration(affordable),
                SHARE_MAX * 100.0,
            ))
        }
        None if INTERVAL < affordable => Some(format!(
            "the load of {nodes} nodes is read every {}, not every {}: more often would take more than a \
             quarter of a CPU; `interval` in [load] sets it",
            format_duration(affordable),
            format_duration(INTERVAL),
        )),
        Some(_) | None => None,
    }
}

/// Moves by load need loads.
fn unread_moves(front_end: &FrontEnd) -> Option<String> {
    front_end.reconfigure.as_ref()?;
    let unread = front_end.reads.iter().filter(|it| **it == NodeRead::None);
    let unread = unread.count();
    (unread > 0).then(|| {
        format!(
            "the load of {unread} nodes is not read, so [reconfigure] moves none of them by load: give them `load`"
        )
    })
}

/// Requests by address, which newcomers send first, belong to no site where none takes them.
fn unserved_hosts(front_end: &FrontEnd) -> Option<String> {
    let sites = &front_end.cluster.sites;
    let mut hosts = sites.iter().flat_map(|site| &site.hosts);
    if hosts.clone().any(|host| host == "*") {
        return None;
    }
    let example = hosts.next()?.replace("*.", "www.");
    let port = front_end.listeners.first()?.address.port();
    Some(format!(
        "no site has the host \"*\": requests by address or another name are answered 404 (no_site); \
         to try it: curl -H 'Host: {example}' http://127.0.0.1:{port}/"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::testing::key_folder;

    fn config(nodes: usize, more: &str, hosts: &str) -> Config {
        let mut text = format!(
            "{more}[[listener]]\naddress = \"0.0.0.0:80\"\n[[site]]\nname = \"shop\"\nhosts = [{hosts}]\n"
        );
        for node in 0..nodes {
            text.push_str(&format!(
                "[[node]]\nname = \"n{node}\"\nsite = \"shop\"\naddress = \"10.0.{}.{}:80\"\n",
                node / 250,
                node % 250 + 1
            ));
        }
        let config = Config::parse(&text, "test.toml", key_folder());
        config.map_err(|error| error.render(false)).unwrap()
    }

    fn interval_of(config: &Config) -> Duration {
        config.front_end.as_ref().unwrap().interval
    }

    const KEY: &str = "[load]\nkey_file = \"master.key\"\n";

    #[test]
    fn many_nodes_are_read_as_often_as_is_affordable() {
        for (nodes, millis) in [(3, 1), (31, 1), (64, 3), (300, 10)] {
            let config = config(nodes, KEY, "\"*\"");
            assert_eq!(interval_of(&config), Duration::from_millis(millis));
            assert_eq!(config.notes.len(), usize::from(millis > 1), "{nodes}");
        }
    }

    #[test]
    fn a_redirect_that_leads_nowhere_is_noted() {
        let redirect = "[[listener]]\naddress = \"0.0.0.0:81\"\nredirect_to_https = true\n";
        let noted = config(1, redirect, "\"*\"");
        let [note] = &noted.notes[..] else {
            panic!("{:?}", noted.notes);
        };
        assert!(note.starts_with("0.0.0.0:81 redirects to https"), "{note}");
    }

    #[test]
    fn an_interval_that_was_asked_for_stands_and_its_cost_is_said() {
        let dear = config(300, &format!("{KEY}interval = \"1ms\"\n"), "\"*\"");
        assert_eq!(interval_of(&dear), Duration::from_millis(1));
        let note = &dear.notes[0];
        assert!(
            note.contains("240 % of a CPU, so loads will be older"),
            "{note}"
        );
        assert!(note.contains("interval = \"10ms\""), "{note}");
        let cheap = config(300, &format!("{KEY}interval = \"50ms\"\n"), "\"*\"");
        assert_eq!(cheap.notes, Vec::<String>::new());
    }

    #[test]
    fn requests_by_address_are_spoken_of_where_no_site_takes_them() {
        let notes = config(1, "", "\"*.shop.example\", \"shop.example\"").notes;
        let curl = "curl -H 'Host: www.shop.example' http://127.0.0.1:80/";
        assert!(
            notes[0].contains("404") && notes[0].contains(curl),
            "{notes:?}"
        );
        assert_eq!(
            config(1, "", "\"a.example\", \"*\"").notes,
            Vec::<String>::new()
        );
    }
}
