//! Keys that are set where they have no effect, though they were meant to: errors where nothing comes of them at all,
//! notes where they may be meant so.

use tidegate_core::admission::AdmissionKind;
use tidegate_core::units::format_duration;

use super::super::file::{
    ConfigFile, ListenerFile, LoadFile, PaceName, SiteFile, TimeoutsFile, TraceparentName, defaults,
};
use super::super::setting::At;
use super::super::tls::{OtherHostsName, ProtocolName};
use super::Checker;

/// Where requests are sent by `https` unless the listener says otherwise.
const HTTPS_PORT: u32 = 443;

/// Whether a listener passes connections on to the site.
pub(super) fn has_listener(file: &ConfigFile, site: &SiteFile) -> bool {
    let name = Some(&site.name.value);
    let mut listeners = file.listener.iter();
    listeners.any(|it| it.tcp_site.value.as_ref() == name)
}

impl Checker<'_> {
    /// See the module.
    pub(super) fn without_effect(&mut self, file: &ConfigFile) {
        let passing_on = file.listener.iter().filter(|it| it.tcp_site.is_some());
        for protocols in passing_on.map(|it| &it.protocols) {
            if protocols.len() != ProtocolName::both().len() {
                let message = "a listener with `tcp_site` speaks no protocol of its own";
                let label = "only where connections are HTTP";
                self.problem(protocols.place(), message, label);
            }
        }
        for listener in &file.listener.value {
            self.of_listener(listener);
        }
        for site in &file.site.value {
            if site.hosts.is_empty() && has_listener(file, site) {
                self.of_connections(site);
            }
        }
        let sampled = &file.forwarded.trace_sampled;
        if sampled.value > 0.0 && file.forwarded.traceparent.value == TraceparentName::Pass {
            let label = "only with `traceparent = \"make\"`";
            self.problem(sampled.place(), "no trace is begun here", label);
        }
        self.budget_of_reading(&file.load);
        self.times(&file.timeouts);
    }

    fn budget_of_reading(&mut self, load: &LoadFile) {
        let budget = &load.budget;
        let usual = defaults::<LoadFile>().budget.value;
        let unasked = load.interval.value.is_none() && load.pace.value == PaceName::Need;
        if budget.value.to_bits() != usual.to_bits() && !unasked {
            let message = "reading goes by `interval` and `pace`, and has no budget";
            let label = "only without `interval` and with `pace = \"need\"`";
            self.problem(budget.place(), message, label);
        }
    }

    fn of_listener(&mut self, listener: &ListenerFile) {
        // What is as without a word is no mistake: the effective configuration has all keys.
        if listener.https_port.value != HTTPS_PORT && !listener.redirect_to_https.value {
            let label = "only with `redirect_to_https = true`";
            self.problem(
                listener.https_port.place(),
                "nothing is redirected here",
                label,
            );
        }
        let Some(tls) = &listener.tls.value else {
            return;
        };
        if listener.tcp_site.is_some() {
            let refuses = tls.other_hosts.value != OtherHostsName::Serve;
            let keys = [
                ("hsts", tls.hsts.value.map(|_| tls.hsts.place())),
                ("other_hosts", refuses.then(|| tls.other_hosts.place())),
            ];
            for (key, at) in keys {
                let Some(at) = at else { continue };
                let message =
                    format!("`{key}` is about requests, and a listener with `tcp_site` has none");
                self.problem(at, message, "only where connections are HTTP");
            }
        }
    }

    /// A site that gets connections from listeners, and no request.
    fn of_connections(&mut self, site: &SiteFile) {
        let set = |is: bool, place| is.then_some(place);
        let sticky = site.sticky.value.as_ref();
        let cookie = sticky.and_then(|it| it.cookie.at.clone());
        let header = sticky.and_then(|it| it.header.at.clone());
        let keys = [
            ("paths", set(!site.paths.is_empty(), site.paths.place())),
            ("route", site.route.first().map(|_| site.route.place())),
            ("cookie", cookie),
            ("header", header),
            (
                "node_protocol",
                set(
                    site.node_protocol.value != ProtocolName::Http1,
                    site.node_protocol.place(),
                ),
            ),
            (
                "retry_on",
                set(!site.retry_on.is_empty(), site.retry_on.place()),
            ),
            (
                "load_header",
                set(site.load_header.value, site.load_header.place()),
            ),
        ];
        for (key, place) in keys {
            let Some(place) = place else { continue };
            let message =
                format!("`{key}` is about requests, and this site gets connections alone");
            self.problem(place, message, "no effect here");
        }
        let mode: &At<AdmissionKind> = &site.admission.mode;
        if !matches!(mode.value, AdmissionKind::Off | AdmissionKind::MaxConn) {
            self.notes.push(format!(
                "site `{}`: a connection's time is no response time, from which `mode = \"{}\"` of its admission learns; \
                 \"maxconn\" limits connections, \"off\" lets all of them in",
                site.name.value,
                mode.value.label()
            ));
        }
    }

    /// A time that is over before another one can be.
    fn times(&mut self, timeouts: &TimeoutsFile) {
        let (head, total) = (&timeouts.response_head, timeouts.total.value);
        if let Some(total) = total
            && head.value != defaults::<TimeoutsFile>().response_head.value
            && head.value > total
        {
            self.notes.push(format!(
                "[timeouts] `response_head` is {}, and never reached: `total` is over after {}",
                format_duration(head.value),
                format_duration(total)
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::testing::key_folder;

    fn notes(listener: &str, site: &str, more: &str) -> Vec<String> {
        let text = format!(
            "{more}\n[[listener]]\naddress = \"0.0.0.0:80\"\n{listener}\n[[site]]\nname = \"db\"\n{site}\n\
             [[node]]\nname = \"n\"\nsite = \"db\"\naddress = \"10.0.0.1:80\"\n"
        );
        let config = Config::parse(&text, "test.toml", key_folder());
        config.map_err(|error| error.render(false)).unwrap().notes
    }

    #[test]
    fn admission_that_learns_from_answers_is_noted_where_there_are_none() {
        let of =
            |admission: &str| notes("tcp_site = \"db\"", &format!("hosts = []\n{admission}"), "");
        let [note] = &of("")[..] else {
            panic!("one note");
        };
        assert!(
            note.starts_with("site `db`: ") && note.contains("\"adaptive\""),
            "{note}"
        );
        for quiet in ["mode = \"off\"", "mode = \"maxconn\", connections = 9"] {
            assert_eq!(
                of(&format!("admission = {{ {quiet} }}")),
                Vec::<String>::new()
            );
        }
        // It gets requests, too.
        let both = "[[listener]]\naddress = \"0.0.0.0:81\"\ntcp_site = \"db\"";
        assert_eq!(notes(both, "hosts = [\"*\"]", ""), Vec::<String>::new());
    }

    #[test]
    fn a_time_that_is_never_reached_is_noted() {
        let of = |times: &str| notes("", "", &format!("[timeouts]\n{times}"));
        let noted = of("response_head = \"10s\"\ntotal = \"5s\"");
        assert!(noted[0].contains("`total` is over after 5s"), "{noted:?}");
        for quiet in ["response_head = \"5s\"\ntotal = \"10s\"", "total = \"5s\""] {
            assert_eq!(of(quiet), Vec::<String>::new());
        }
    }
}
