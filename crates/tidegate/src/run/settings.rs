//! From the configuration to what the data plane and the reader start with.

use std::thread::available_parallelism;

use tidegate_proxy::{Limits, ListenerConfig, ProxyConfig, Timeouts};
use tidegate_remote::clock;
use tidegate_remote::reader::ReaderOptions;

use crate::config::FrontEnd;
use crate::config::file::{LimitsFile, TimeoutsFile};
use crate::config::values::Auto;

/// Room for events of requests, per worker: half a second of 16 000 requests a second.
const EVENTS: usize = 16_384;

pub(super) fn reader_options(front_end: &FrontEnd) -> ReaderOptions {
    ReaderOptions {
        interval: front_end.interval,
        timeout: front_end.timeout,
        realtime: front_end.realtime,
    }
}

pub(super) fn proxy_config(front_end: &FrontEnd) -> ProxyConfig {
    let mut limits = proxy_limits(&front_end.limits);
    if let Some(shares) = front_end.open_files {
        limits.connections = shares.connections;
        limits.lingering = shares.lingering;
    }
    ProxyConfig {
        listeners: front_end
            .listeners
            .iter()
            .map(|address| ListenerConfig { address: *address })
            .collect(),
        ports: front_end.ports,
        workers: workers(&front_end.limits),
        seed: front_end.seed.unwrap_or_else(seed),
        limits,
        timeouts: proxy_timeouts(&front_end.timeouts),
        sites: front_end.sites.clone(),
        forwarded: front_end.forwarded.clone(),
        log: front_end.log.clone(),
        node_header: front_end.node_header,
        events: front_end.culprits.as_ref().map_or(0, |_| EVENTS),
        clock: clock::now,
        thread_start: |_| Ok(()),
    }
}

/// How many workers a front-end has.
pub(crate) fn workers(limits: &LimitsFile) -> usize {
    match limits.workers.value {
        Auto::Auto => available_parallelism().map_or(1, usize::from),
        Auto::Set(workers) => workers as usize,
    }
}

/// Most requests that throttles hold. Each has a connection: half of them stay for all others, and of
/// those a delay experiment has half at most.
pub(super) fn held_max(config: &ProxyConfig) -> usize {
    config.limits.connections / 2
}

fn proxy_limits(limits: &LimitsFile) -> Limits {
    Limits {
        connections: limits.connections.value as usize,
        tunnels: limits.tunnels.value as usize,
        fields: limits.fields.value as usize,
        head_bytes: limits.head.bytes(),
        uri_bytes: limits.uri.bytes(),
        body_rate: limits.body_rate.value.0,
        throttled_rate: limits.throttled_rate.value.0,
        body_bytes: limits.body.value.map(|size| size.0),
        buffer_bytes: limits.buffer.bytes(),
        pool_per_node: limits.pool_per_node.value as usize,
        tries: limits.tries.value,
        ..Limits::default()
    }
}

fn proxy_timeouts(timeouts: &TimeoutsFile) -> Timeouts {
    Timeouts {
        client_head: timeouts.client_head.value,
        client_idle: timeouts.client_idle.value,
        connect: timeouts.connect.value,
        response_head: timeouts.response_head.value,
        body_idle: timeouts.body_idle.value,
        throttled_idle: timeouts.throttled_idle.value,
        request_body: timeouts.request_body.value,
        response_body: timeouts.response_body.value,
        tunnel_idle: timeouts.tunnel_idle.value,
        leaving: timeouts.drain.value,
        upstream_idle: timeouts.upstream_idle.value,
        keepalive: timeouts.tcp_keepalive.value,
        ..Timeouts::default()
    }
}

/// A number that differs between front-ends: the standard library keys its hashers from the
/// system's randomness.
fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tidegate_core::retry_budget::RetryConfig;
    use tidegate_proxy::{AnswerConfig, PriorityConfig};

    use super::*;
    use crate::config::Config;
    use crate::config::file::{ConfigFile, defaults};

    /// The file's defaults are the data plane's own: a change of one shows the other.
    #[test]
    fn defaults_are_those_of_the_data_plane() {
        let file: ConfigFile = defaults();
        assert_eq!(proxy_limits(&file.limits), Limits::default());
        assert_eq!(proxy_timeouts(&file.timeouts), Timeouts::default());
        let text = "[[listener]]\naddress = \"127.0.0.1:8080\"\n[[site]]\nname = \"a\"\n\
                    [[node]]\nname = \"n\"\naddress = \"10.0.0.1:80\"\nsite = \"a\"\n";
        let config = Config::parse(text, "test.toml", Path::new("")).unwrap();
        let site = &config.front_end.unwrap().sites[0];
        assert_eq!(site.answers, AnswerConfig::default());
        assert_eq!(site.priorities, PriorityConfig::default());
        assert_eq!(site.retry, RetryConfig::default());
        assert_eq!(site.sessions, None);
    }
}
