//! Routes that no request can be of, and what `retry_on` and other keys about requests need to have an effect: errors where it is
//! certain, notes where it may be meant.

use tidegate_core::units::format_duration;

use super::super::file::{ConfigFile, LimitsFile, SiteFile, defaults};
use super::super::problem::Problem;
use super::super::route::RouteFile;
use super::super::setting::At;
use super::super::tls::ProtocolName;
use super::Checker;

/// Methods whose requests may be repeated (RFC 9110 §9.2.2).
const IDEMPOTENT: [&str; 6] = ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"];

impl Checker<'_> {
    /// See the module.
    pub(super) fn unreached(&mut self, file: &ConfigFile) {
        for site in &file.site.value {
            self.routes_of(file, site);
            if let Some(why) = never_retries(file, site) {
                let name = &site.name.value;
                self.notes.push(format!(
                    "site `{name}`: `retry_on` has no effect, since {why}"
                ));
            }
        }
        self.unserved_certificates(file);
        let replay = &file.limits.replay_body;
        let mut sites = file.site.iter();
        let usual = defaults::<LimitsFile>().replay_body.value;
        let is_set = replay.value != usual && replay.value.bytes() > 0;
        if is_set && !sites.any(|it| it.node_protocol.value == ProtocolName::Http2) {
            self.notes.push(
                "[limits] `replay_body` has no effect: no site has `node_protocol = \"h2\"`".into(),
            );
        }
    }

    fn routes_of(&mut self, file: &ConfigFile, site: &SiteFile) {
        let routes = &site.route.value;
        if let Some(first) = routes.iter().position(|it| takes_all(it))
            && let (Some(all), Some(next)) = (routes.get(first), routes.get(first + 1))
        {
            let message = "no request is of this route: an earlier one takes them all";
            let problem = Problem::new(next.place(), message, "never reached");
            let problem = problem.context(all.place(), "this one has no condition");
            self.problems.push(
                problem.help("of several routes the first counts that fits: move this one up"),
            );
        }
        for route in routes {
            for host in route.hosts.iter().filter(|it| !has_host(site, it)) {
                let message = format!(
                    "no request for `{}` is of this route: it is no host of site `{}`",
                    host.value, site.name.value
                );
                self.problem(host.place(), message, "expected among `hosts` of the site");
            }
            let repeats = |it: &At<String>| IDEMPOTENT.contains(&it.value.as_str());
            let retries = (route.retry_on.value.as_ref()).is_some_and(|it| !it.is_empty());
            if retries && !route.methods.is_empty() && !route.methods.iter().any(repeats) {
                let message =
                    "no request of this route is sent again: none of its methods is idempotent";
                let label = "only with one of GET, HEAD, PUT, DELETE, OPTIONS, TRACE";
                self.problem(route.retry_on.place(), message, label);
            }
            let total = route.timeouts.total.value.or(file.timeouts.total.value);
            let head = route.timeouts.response_head.value;
            if let (Some(head), Some(total)) = (head, total)
                && head > total
            {
                self.notes.push(format!(
                    "a route of site `{}`: `response_head` is {}, and never reached: `total` is over after {}",
                    site.name.value,
                    format_duration(head),
                    format_duration(total)
                ));
            }
        }
    }

    /// Names that an authority is asked for, and that no request is answered for.
    fn unserved_certificates(&mut self, file: &ConfigFile) {
        let of_requests = file.listener.iter().filter(|it| !it.tcp_site.is_some());
        let tls = of_requests.filter_map(|it| it.tls.value.as_ref());
        for name in tls.flat_map(|it| it.acme.iter()) {
            if !file.site.iter().any(|site| is_host(site, name)) {
                self.notes.push(format!(
                    "`acme`: a certificate for `{}` is asked for, which is no site's host",
                    name.value
                ));
            }
        }
    }
}

/// Whether all requests are of a route.
fn takes_all(route: &RouteFile) -> bool {
    let path = route.path.value.as_deref();
    route.hosts.is_empty()
        && path.is_none_or(|it| it == "/*")
        && route.regex.value.is_none()
        && route.methods.is_empty()
        && route.headers.0.is_empty()
        && route.query.0.is_empty()
}

/// Whether requests for a host may be the site's. One that has none gets copies, or connections.
fn has_host(site: &SiteFile, host: &str) -> bool {
    site.hosts.is_empty() || is_host(site, host)
}

fn is_host(site: &SiteFile, host: &str) -> bool {
    let plain = |text: &str| text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let host = plain(host);
    let mut hosts = site.hosts.iter().map(|it| plain(it));
    hosts.any(|it| match it.strip_prefix('*') {
        Some(suffix) => host.ends_with(suffix),
        None => it == host,
    })
}

/// Why no answer of the site is asked for again, if it is to be.
fn never_retries(file: &ConfigFile, site: &SiteFile) -> Option<&'static str> {
    let of_routes = site
        .route
        .iter()
        .filter_map(|it| it.retry_on.value.as_ref());
    let mut all = of_routes.chain([&site.retry_on.value]);
    all.any(|it| !it.is_empty()).then_some(())?;
    let budget = &site.retry_budget.value;
    let may_have_more = !file.discover.is_empty() || site.nodes.value.is_some();
    let nodes = file.node.iter().filter(|it| it.serves(&site.name.value));
    if file.limits.tries.value == 1 {
        Some("[limits] `tries` is 1")
    } else if budget.ratio.value == 0.0 && budget.min_per_second.value == 0.0 {
        Some("its `retry_budget` allows no retry")
    } else if nodes.count() == 1 && !may_have_more {
        Some("it has one node, and no other one can be asked")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::testing::key_folder;

    /// The notes about a site of so many nodes.
    fn notes(nodes: usize, site: &str, more: &str) -> Vec<String> {
        let mut text = format!(
            "{more}\n[[listener]]\naddress = \"0.0.0.0:80\"\n[[site]]\nname = \"shop\"\n{site}\n"
        );
        for node in 0..nodes {
            text.push_str(&format!(
                "[[node]]\nname = \"n{node}\"\nsite = \"shop\"\naddress = \"10.0.0.{}:80\"\n",
                node + 1
            ));
        }
        let config = Config::parse(&text, "test.toml", key_folder());
        config.map_err(|error| error.render(false)).unwrap().notes
    }

    #[test]
    fn answers_that_are_never_asked_for_again_are_noted() {
        let zero = "retry_on = [503]\nretry_budget = { ratio = 0.0, min_per_second = 0 }";
        let of_route = "[[site.route]]\npath = \"/a\"\nretry_on = [503]";
        for (nodes, site, more, why) in [
            (1, "retry_on = [503]", "", "it has one node"),
            (1, of_route, "", "it has one node"),
            (2, "retry_on = [503]", "[limits]\ntries = 1", "`tries` is 1"),
            (2, zero, "", "allows no retry"),
        ] {
            let noted = notes(nodes, site, more);
            assert!(noted.len() == 1 && noted[0].contains(why), "{noted:?}");
        }
        for (nodes, site) in [(2, "retry_on = [503]"), (1, "")] {
            assert_eq!(notes(nodes, site, ""), Vec::<String>::new());
        }
    }

    #[test]
    fn a_body_that_is_never_sent_again_is_noted() {
        let noted = notes(1, "", "[limits]\nreplay_body = \"64 KiB\"");
        assert!(noted[0].contains("`replay_body`"), "{noted:?}");
        let spoken = notes(
            1,
            "node_protocol = \"h2\"",
            "[limits]\nreplay_body = \"64 KiB\"",
        );
        assert_eq!(spoken, Vec::<String>::new());
    }

    #[test]
    fn a_time_of_a_route_that_is_never_reached_is_noted() {
        let of = |times: &str, more: &str| {
            let route = format!("[[site.route]]\npath = \"/a\"\ntimeouts = {{ {times} }}");
            notes(1, &route, more)
        };
        let total = "[timeouts]\ntotal = \"5s\"";
        for noted in [
            of("response_head = \"10s\"", total),
            of("response_head = \"10s\", total = \"5s\"", ""),
        ] {
            assert!(noted[0].contains("`total` is over after 5s"), "{noted:?}");
        }
        let longer = of("response_head = \"10s\", total = \"20s\"", total);
        assert_eq!(longer, Vec::<String>::new());
    }
}
