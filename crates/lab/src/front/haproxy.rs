//! HAProxy's configuration, as its users write it.
//!
//! One thread. Connections to servers are kept and shared (`http-reuse always`), a request whose
//! connection fails goes to another server (`option redispatch`), servers are checked each two
//! seconds by HTTP, three failures down and two successes up (the defaults of `check`). The
//! agent check asks each two seconds, its default, and the answer scales the server's weight.

use super::layout::{IDLE, Layout, Server, push};

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
    /// Fewest connections, at most two at a server, and a queue with a time-out before
    /// them: its manual's way to protect servers.
    Limited,
}

/// Requests at a server at once, where they are limited: two for each that it works on at once
/// where requests wait for nothing but a tenth of a CPU.
const MAXCONN: u32 = 2;
/// How long a request waits for its turn then, milliseconds.
const QUEUE_MS: u32 = 300;

impl HaproxyBalance {
    fn keyword(self) -> &'static str {
        match self {
            Self::RoundRobin | Self::AgentCheck => "roundrobin",
            Self::LeastConn | Self::Limited => "leastconn",
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
            Self::Limited => "haproxy maxconn",
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
        push(&mut text, format_args!("backend {}", site.name));
        push(&mut text, format_args!("    balance {}", balance.keyword()));
        push(&mut text, format_args!("    option httpchk GET /health"));
        if balance == HaproxyBalance::Limited {
            push(&mut text, format_args!("    timeout queue {QUEUE_MS}ms"));
        }
        for server in &site.servers {
            let agent = agent(server, balance);
            let limit = match balance == HaproxyBalance::Limited {
                true => format!(" maxconn {MAXCONN}"),
                false => String::new(),
            };
            let (name, address) = (&server.name, server.address);
            push(
                &mut text,
                format_args!("    server {name} {address} check{agent}{limit}"),
            );
        }
    }
    text
}

fn agent(server: &Server, balance: HaproxyBalance) -> String {
    match (balance, server.agent_check) {
        (HaproxyBalance::AgentCheck, Some(at)) => format!(
            " weight 100 agent-check agent-addr {} agent-port {}",
            at.ip(),
            at.port()
        ),
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
    fn an_agent_check_says_where_the_agent_is() {
        let text = config(&sample::single(), HaproxyBalance::AgentCheck);
        let line = "    server shop-n1 10.77.0.11:8000 check weight 100 agent-check agent-addr 10.77.0.11 agent-port 9902\n";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("    balance roundrobin\n"));
        assert!(!text.contains("use_backend"));
    }
}
