//! What is to be set as `maxconn` of HAProxy's servers: pure, from what HAProxy counts and what the servers are at work on.
//!
//! The limit that a server has when it is first seen is taken for the configured one, and no other is ever above it. A server
//! with any limit but that one and the one that was set here last is left alone: it is an operator's order. Where nothing is
//! known of a server's work it has its configured limit. A HAProxy that was started anew is another process, and has what it is
//! configured with by then.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use tidegate_core::steer::{Connections, RecentMean, ServerWork, connection_limit};
use tidegate_core::time::Timestamp;

use super::book::NodeDemand;
use super::changes::{Change, Keeper, Key, MaxConn, Plan, Setting as _};
use super::servers::ServerState;

/// How `show stat` names the line of a backend.
const BACKEND: &str = "BACKEND";
/// The command for lines of backends and of servers alone.
pub(super) const SHOW_STAT: &str = "show stat -1 6 -1";

/// What HAProxy counts of a server, or of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerCount {
    key: Key,
    /// Requests that wait at HAProxy.
    queued: u32,
    /// In flight.
    in_flight: u32,
    /// `maxconn`; none if there is no limit.
    limit: Option<u32>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Limits(BTreeMap<Key, Held>);

#[derive(Debug)]
struct Held {
    configured: Option<u32>,
    /// What was set here last.
    set: Option<u32>,
    /// What that was rounded from.
    exact: Option<f64>,
    in_flight: RecentMean,
    left_alone: bool,
    /// HAProxy sets no limit of it.
    refused: bool,
}

impl Limits {
    /// Compares what HAProxy has with what its servers are at work on.
    pub(super) fn plan(
        &mut self,
        counts: &[ServerCount],
        servers: &[ServerState],
        nodes: &BTreeMap<SocketAddr, NodeDemand>,
        now: Timestamp,
    ) -> Plan<MaxConn> {
        let mut plan = Plan::default();
        let counts: BTreeMap<_, _> = counts.iter().map(|it| (&it.key, it)).collect();
        self.0.retain(|key, _| counts.contains_key(key));
        for server in servers {
            let key = server.key();
            let node = server.address.and_then(|it| nodes.get(&it));
            let (Some(count), Some(node)) = (counts.get(&key), node) else {
                continue;
            };
            let backend = (server.backend.clone(), BACKEND.to_owned());
            let waiting = counts.get(&backend).map_or(0, |it| it.queued);
            let held = self.0.entry(key).or_insert_with(|| Held::new(count));
            held.in_flight.on_sample(count.in_flight.into(), now);
            if held.is_ours(count, &mut plan) {
                let queued = count.queued > 0 || waiting > 0;
                let to = held.wanted(node.work.as_ref(), queued, count.limit);
                if to != count.limit {
                    plan.changes.push(count.change(to));
                }
            }
        }
        plan
    }

    /// What puts the configured limits back, of servers that still have what was set here.
    pub(super) fn restore(&self, counts: &[ServerCount]) -> Vec<Change<MaxConn>> {
        let back = |it: &ServerCount| {
            let held = self.0.get(&it.key)?;
            let set_here = held.set.is_some() && held.set == it.limit;
            (set_here && held.configured != it.limit).then(|| it.change(held.configured))
        };
        counts.iter().filter_map(back).collect()
    }

    /// HAProxy was started anew: it has the limits that it is configured with now.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}

impl Keeper<MaxConn> for Limits {
    fn on_set(&mut self, change: &Change<MaxConn>) {
        if let Some(held) = self.0.get_mut(&change.key) {
            held.set = change.to.0;
        }
    }

    /// The server is not tried again.
    fn on_refused(&mut self, change: &Change<MaxConn>) {
        if let Some(held) = self.0.get_mut(&change.key) {
            held.refused = true;
        }
    }
}

impl Held {
    fn new(count: &ServerCount) -> Self {
        Self {
            configured: count.limit,
            set: None,
            exact: None,
            in_flight: RecentMean::default(),
            left_alone: false,
            refused: false,
        }
    }

    /// Whether the server's limit is for us to set, and what is to be said of that.
    fn is_ours(&mut self, count: &ServerCount, plan: &mut Plan<MaxConn>) -> bool {
        let left_alone =
            count.limit != self.configured && (self.set.is_none() || count.limit != self.set);
        if left_alone != std::mem::replace(&mut self.left_alone, left_alone) {
            let (backend, server) = &count.key;
            plan.events.push(match left_alone {
                true => {
                    let configured = MaxConn(self.configured).words();
                    let text = format!(
                        "{backend}/{server}: its maxconn is left alone, since it was set otherwise, until it is the \
                         configured one again ({configured})"
                    );
                    ("left_alone", text)
                }
                false => {
                    let text = format!("{backend}/{server}: its maxconn is set again");
                    ("steered_again", text)
                }
            });
        }
        if left_alone || count.limit == self.configured && self.set != self.configured {
            // An order, or a HAProxy that was started anew: what was set here is gone.
            (self.set, self.exact) = (None, None);
        }
        !left_alone && !self.refused
    }

    /// The limit that it is to have, where it has this one.
    fn wanted(&mut self, work: Option<&ServerWork>, queued: bool, has: Option<u32>) -> Option<u32> {
        let in_flight = self.in_flight.value().unwrap_or(0.0);
        let connections = Connections { in_flight, queued };
        let limit = work.and_then(|it| connection_limit(it, &connections, self.exact));
        let below = |limit: &f64| self.configured.is_none_or(|most| *limit < f64::from(most));
        self.exact = limit.filter(below);
        let Some(exact) = self.exact else {
            return self.configured;
        };
        let to = Some(exact.round() as u32);
        match MaxConn(to).is_near(MaxConn(has)) {
            true => has,
            false => to,
        }
    }
}

impl ServerCount {
    fn change(&self, to: Option<u32>) -> Change<MaxConn> {
        Change {
            key: self.key.clone(),
            from: MaxConn(self.limit),
            to: MaxConn(to),
        }
    }
}

const COLUMNS: [&str; 5] = ["pxname", "svname", "qcur", "scur", "slim"];

/// All of an answer to [`SHOW_STAT`], or what is not understood of it.
pub(super) fn parse(answer: &str) -> Result<Vec<ServerCount>, String> {
    let mut lines = answer.lines().filter(|it| !it.trim().is_empty());
    let head = lines.next().unwrap_or_default();
    let Some(names) = head.strip_prefix("# ") else {
        return Err(format!("expected the columns of `show stat`, got `{head}`"));
    };
    let names: Vec<_> = names.split(',').collect();
    let mut at = [0; COLUMNS.len()];
    for (column, at) in COLUMNS.iter().zip(&mut at) {
        let found = names.iter().position(|it| it == column);
        *at = found.ok_or_else(|| format!("`show stat` has no column {column}"))?;
    }
    lines.map(|line| row(line, at)).collect()
}

/// Texts with commas stand behind these columns.
fn row(line: &str, at: [usize; COLUMNS.len()]) -> Result<ServerCount, String> {
    let fields: Vec<_> = line.split(',').collect();
    let [backend, server, queued, in_flight, limit] =
        at.map(|at| fields.get(at).copied().unwrap_or_default());
    let wrong = || format!("a line of `show stat` is not understood: `{line}`");
    let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
    Ok(ServerCount {
        key: (backend.into(), server.into()),
        queued: number(queued)?,
        in_flight: number(in_flight)?,
        limit: match limit {
            "" | "0" => None,
            limit => Some(number(limit)?),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn address() -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], 80))
    }

    fn count(in_flight: u32, limit: Option<u32>) -> ServerCount {
        ServerCount {
            key: ("shop".into(), "n1".into()),
            queued: 0,
            in_flight,
            limit,
        }
    }

    fn nodes(work: Option<ServerWork>) -> BTreeMap<SocketAddr, NodeDemand> {
        let node = NodeDemand {
            work,
            ..NodeDemand::default()
        };
        [(address(), node)].into()
    }

    /// The next turn's limit of a server whose requests compute, on four CPUs; it is set.
    fn turn(
        limits: &mut Limits,
        count: &ServerCount,
        now: u64,
    ) -> (Option<u32>, Vec<&'static str>) {
        let server = ServerState {
            backend: "shop".into(),
            server: "n1".into(),
            address: Some(address()),
            ..ServerState::running(100)
        };
        let run_queue = count.in_flight.into();
        let work = ServerWork {
            capacity: 4.0,
            run_queue,
            busy: run_queue.min(4.0),
            accept_queue: 0.0,
        };
        let now = Timestamp::ZERO + Duration::from_secs(now);
        let plan = limits.plan(
            std::slice::from_ref(count),
            &[server],
            &nodes(Some(work)),
            now,
        );
        plan.changes.iter().for_each(|it| limits.on_set(it));
        let to = plan.changes.first().map_or(count.limit, |it| it.to.0);
        (to, plan.events.iter().map(|it| it.0).collect())
    }

    #[test]
    fn a_server_is_held_to_what_it_can_use_and_has_its_own_limit_back() {
        let mut limits = Limits::default();
        let idle = count(3, Some(200));
        assert_eq!(turn(&mut limits, &idle, 1), (Some(200), vec![]));
        let full = count(100, Some(200));
        let (limit, _) = turn(&mut limits, &full, 100);
        assert_eq!(limit, Some(5));
        let held = count(5, limit);
        assert_eq!(
            limits.restore(std::slice::from_ref(&held)),
            [held.change(Some(200))]
        );
        // Nothing is known of it any more.
        let server = ServerState {
            backend: "shop".into(),
            server: "n1".into(),
            address: Some(address()),
            ..ServerState::running(100)
        };
        let later = Timestamp::ZERO + Duration::from_secs(200);
        let plan = limits.plan(&[held], &[server], &nodes(None), later);
        assert_eq!(plan.changes[0].to, MaxConn(Some(200)));
    }

    #[test]
    fn without_a_configured_limit_there_is_one_only_while_it_is_of_use() {
        let mut limits = Limits::default();
        let (limit, _) = turn(&mut limits, &count(100, None), 1);
        assert_eq!(limit, Some(5));
        let held = count(5, limit);
        assert_eq!(
            limits.restore(std::slice::from_ref(&held)),
            [held.change(None)]
        );
        assert_eq!(limits.restore(&[count(5, Some(6))]), []);
    }

    #[test]
    fn an_operators_limit_stands() {
        let mut limits = Limits::default();
        turn(&mut limits, &count(100, Some(200)), 1);
        let ordered = count(100, Some(50));
        assert_eq!(
            turn(&mut limits, &ordered, 2),
            (Some(50), vec!["left_alone"])
        );
        assert_eq!(turn(&mut limits, &ordered, 3), (Some(50), vec![]));
        assert_eq!(limits.restore(&[ordered]), []);
        let again = turn(&mut limits, &count(100, Some(200)), 4);
        assert_eq!(again, (Some(5), vec!["steered_again"]));
    }

    #[test]
    fn show_stat_is_understood() {
        let head = "# pxname,svname,qcur,qmax,scur,smax,slim,stot,last_chk,";
        let text = format!(
            "{head}\nb,n1,1,2,3,4,,6,\"a, b\",\nb,n2,0,2,3,4,50,6,,\nb,BACKEND,7,8,0,0,2,3,,\n\n"
        );
        let all = parse(&text).unwrap();
        let limits: Vec<_> = all.iter().map(|it| it.limit).collect();
        assert_eq!(limits, [None, Some(50), Some(2)]);
        assert_eq!((all[0].queued, all[0].in_flight), (1, 3));
        assert_eq!(all[2].queued, 7);
        let said = |text: &str| parse(text).unwrap_err();
        assert!(said("Unknown command").contains("got `Unknown command`"));
        assert!(said("# pxname,svname,qcur,scur\n").contains("no column slim"));
        assert!(said(&format!("{head}\nb,n1,x,2,3,4,,6\n")).contains("`b,n1,x"));
    }
}
