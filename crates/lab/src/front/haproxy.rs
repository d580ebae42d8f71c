//! HAProxy's configuration, as its users write it.
//!
//! One thread. Connections to servers are kept and shared (`http-reuse always`), a request whose
//! connection fails goes to another server (`option redispatch`), servers are checked each two
//! seconds by HTTP, three failures down and two successes up (the defaults of `check`). The
//! agent check asks each two seconds, its default, and the answer scales the server's weight.

use std::net::SocketAddr;
use std::time::Duration;

use super::layout::{Discovered, IDLE, Layout, Server, Site, push};

/// How HAProxy balances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HaproxyBalance {
    /// In turn: `balance roundrobin`.
    RoundRobin,
    /// Fewest connections: `balance leastconn`.
    LeastConn,
    /// The less loaded of two random servers: `balance random(2)`.
    RandomTwo,
    /// In turn, by weights that an agent on each server gives: `agent-check`.
    AgentCheck,
    /// The same, by what `tidegate agent` says at this port, asked twice a second.
    OwnAgent {
        /// Of each server.
        port: u16,
    },
    /// Fewest connections, few at a server (`maxconn`), and a queue with a time-out before them, by
    /// class (`set-priority-class`): its manual's way to protect servers.
    Limited {
        /// How long a request waits for its turn.
        queue: Duration,
    },
}

/// Requests at a server at once, of all front-ends together where that is possible: a node has a part
/// of one CPU, so one request is served and the next one is at hand.
const MAXCONN: u32 = 2;

/// Servers of a site that a name server may name.
const FOUND_MAX: usize = 16;

impl HaproxyBalance {
    fn keyword(self) -> &'static str {
        match self {
            Self::RoundRobin | Self::AgentCheck | Self::OwnAgent { .. } => "roundrobin",
            Self::LeastConn | Self::Limited { .. } => "leastconn",
            Self::RandomTwo => "random(2)",
        }
    }

    /// The arm's name.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::RoundRobin => "haproxy roundrobin",
            Self::LeastConn => "haproxy leastconn",
            Self::RandomTwo => "haproxy random(2)",
            Self::AgentCheck => "haproxy agent-check",
            Self::OwnAgent { .. } => "haproxy tidegate-agent",
            Self::Limited { .. } => "haproxy maxconn",
        }
    }
}

/// The file.
pub(super) fn config(layout: &Layout, balance: HaproxyBalance) -> String {
    let idle = IDLE.as_secs();
    let mut text = format!(
        "global
    nbthread 1
    maxconn 4096
defaults
    mode http
    http-reuse always
    option forwardfor
    option redispatch
    timeout connect 2s
    timeout client {idle}s
    timeout server {idle}s
    timeout http-request 10s
    timeout http-keep-alive {idle}s
frontend in
    bind {}
    http-request set-header X-Forwarded-Proto http
    http-request set-header X-Forwarded-Host %[req.hdr(host)]
",
        layout.listen
    );
    if let Some(secure) = &layout.secure {
        let both = secure.certificate.both.display();
        let listen = secure.listen;
        push(
            &mut text,
            format_args!(
                "    bind {listen} ssl crt {both} alpn h2,http/1.1\n    http-request set-header X-Forwarded-Proto https if {{ ssl_fc }}"
            ),
        );
    }
    if let Some(rate) = layout.per_source {
        push(
            &mut text,
            format_args!(
                "    stick-table type ipv6 size 100k expire 30s store http_req_rate(1s)
    http-request track-sc0 src
    http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt {rate} }}"
            ),
        );
    }
    if let HaproxyBalance::Limited { .. } = balance {
        push(
            &mut text,
            format_args!("    http-request set-priority-class req.hdr(x-tidegate-priority)"),
        );
    }
    for site in layout.sites.iter().filter(|_| !layout.single()) {
        let name = &site.name;
        push(
            &mut text,
            format_args!("    use_backend {name} if {{ req.hdr(host) -i {name} }}"),
        );
    }
    if let Some(site) = layout.sites.first() {
        push(&mut text, format_args!("    default_backend {}", site.name));
    }
    for site in &layout.sites {
        backend(&mut text, site, balance, layout);
        if let Some(Discovered::Dns { server, .. }) = &site.discovered {
            resolvers(&mut text, *server);
        }
    }
    text
}

/// The name server, asked each second; what was answered holds as long as by default.
fn resolvers(text: &mut String, server: SocketAddr) {
    push(
        text,
        format_args!("resolvers lab\n    nameserver one {server}\n    timeout resolve 1s"),
    );
}

fn backend(text: &mut String, site: &Site, balance: HaproxyBalance, layout: &Layout) {
    let http2 = if layout.servers_http2 {
        " proto h2"
    } else {
        ""
    };
    push(text, format_args!("backend {}", site.name));
    push(text, format_args!("    balance {}", balance.keyword()));
    push(text, format_args!("    option httpchk GET /health"));
    if let HaproxyBalance::Limited { queue } = balance {
        let millis = queue.as_millis();
        push(text, format_args!("    timeout queue {millis}ms"));
    }
    for server in &site.servers {
        let more = more(server, balance, layout.front_ends);
        let (name, address) = (&server.name, server.address);
        push(
            text,
            format_args!("    server {name} {address} check{http2}{more}"),
        );
    }
    if let Some(Discovered::Dns { port, .. }) = site.discovered {
        let name = Discovered::NAME;
        push(
            text,
            format_args!(
                "    server-template found {FOUND_MAX} {name}:{port} check resolvers lab init-addr none"
            ),
        );
    }
}

/// What a way to balance adds to a server's line.
fn more(server: &Server, balance: HaproxyBalance, front_ends: u32) -> String {
    match (balance, server.agent_check) {
        (HaproxyBalance::AgentCheck, Some(at)) => format!(
            " weight 100 agent-check agent-addr {} agent-port {}",
            at.ip(),
            at.port()
        ),
        (HaproxyBalance::OwnAgent { port }, _) => {
            format!(" weight 100 agent-check agent-port {port} agent-inter 500ms")
        }
        (HaproxyBalance::Limited { .. }, _) => {
            format!(" maxconn {}", MAXCONN.div_ceil(front_ends.max(1)))
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::sample;
    use super::*;

    #[test]
    fn two_sites_by_least_connections() {
        assert_eq!(
            config(&sample::layout(), HaproxyBalance::LeastConn),
            "global
    nbthread 1
    maxconn 4096
defaults
    mode http
    http-reuse always
    option forwardfor
    option redispatch
    timeout connect 2s
    timeout client 60s
    timeout server 60s
    timeout http-request 10s
    timeout http-keep-alive 60s
frontend in
    bind 10.77.0.1:8080
    http-request set-header X-Forwarded-Proto http
    http-request set-header X-Forwarded-Host %[req.hdr(host)]
    use_backend shop if { req.hdr(host) -i shop }
    use_backend blog if { req.hdr(host) -i blog }
    default_backend shop
backend shop
    balance leastconn
    option httpchk GET /health
    server shop-n1 10.77.0.11:8000 check
    server shop-n2 10.77.0.12:8000 check
backend blog
    balance leastconn
    option httpchk GET /health
    server blog-n1 10.77.0.11:8000 check
"
        );
    }

    #[test]
    fn a_listener_with_tls_and_servers_that_speak_http2() {
        let text = config(&sample::secure(), HaproxyBalance::RoundRobin);
        for line in [
            "    bind 10.77.0.1:8443 ssl crt /run/lab/site.both.pem alpn h2,http/1.1\n",
            "    http-request set-header X-Forwarded-Proto https if { ssl_fc }\n    stick-table ",
            "deny_status 429 if { sc_http_req_rate(0) gt 200 }\n    default_backend shop\n",
            "    server shop-n1 10.77.0.11:8000 check proto h2\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn limits_are_shared_by_front_ends_and_a_queue_has_an_end() {
        let queue = Duration::from_millis(300);
        let limited = |front_ends| {
            let mut layout = sample::single();
            layout.front_ends = front_ends;
            config(&layout, HaproxyBalance::Limited { queue })
        };
        let text = limited(1);
        for line in [
            "    http-request set-priority-class req.hdr(x-tidegate-priority)\n    default_backend shop\n",
            "    balance leastconn\n    option httpchk GET /health\n    timeout queue 300ms\n",
            "    server shop-n1 10.77.0.11:8000 check maxconn 2\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(limited(16).contains("check maxconn 1\n"));
    }

    #[test]
    fn an_agent_check_says_where_the_agent_is() {
        let text = config(&sample::single(), HaproxyBalance::AgentCheck);
        let line = "    server shop-n1 10.77.0.11:8000 check weight 100 agent-check agent-addr 10.77.0.11 agent-port 9902\n";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("    balance roundrobin\n"));
        assert!(!text.contains("use_backend"));
        let text = config(&sample::single(), HaproxyBalance::OwnAgent { port: 9922 });
        let line = "    server shop-n1 10.77.0.11:8000 check weight 100 agent-check agent-port 9922 agent-inter 500ms\n";
        assert!(text.contains(line), "{text}");
    }
}
