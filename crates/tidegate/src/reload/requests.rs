//! What requests are served by, from the configuration: limits, time-outs, what nodes learn about clients, the
//! form of the access log.

use std::thread::available_parallelism;
use std::time::Duration;

use tidegate_core::source_limits::SourceRate;
use tidegate_proxy::{Limits, RequestConfig, SourceLimits, Timeouts};

use crate::config::FrontEnd;
use crate::config::file::{LimitsFile, PerSourceFile, TimeoutsFile};
use crate::config::values::Auto;
use crate::open_files;

/// What requests are served by: this changes while the front-end runs.
pub(crate) fn request_config(front_end: &FrontEnd) -> RequestConfig {
    let mut limits = proxy_limits(&front_end.limits);
    if let Some(shares) = front_end.open_files {
        limits.connections = shares.connections;
        limits.lingering = shares.lingering;
    }
    RequestConfig {
        limits,
        timeouts: proxy_timeouts(&front_end.timeouts),
        forwarded: front_end.forwarded.clone(),
        node_header: front_end.node_header,
        log: front_end.log.format,
        log_fields: front_end.log.fields.clone(),
        recent: front_end.log.recent,
        id_header: front_end.log.id_header,
        traces: front_end.traces.requests,
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
pub(crate) fn held_max(limits: &Limits) -> usize {
    limits.connections / 2
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
        replay_bytes: limits.replay_body.bytes(),
        per_source: (limits.per_source.value.as_ref())
            .map_or_else(SourceLimits::default, per_source),
        ..Limits::default()
    }
}

fn per_source(file: &PerSourceFile) -> SourceLimits {
    let rate = |per_second: f64| SourceRate {
        interval: Duration::from_secs_f64(1.0 / per_second),
        burst: file.burst.value.unwrap_or(per_second.ceil() as u32),
    };
    SourceLimits {
        connections: file.connections.value,
        rate: file.requests_per_second.value.map(rate),
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
        total: timeouts.total.value,
        tunnel_idle: timeouts.tunnel_idle.value,
        leaving: timeouts.drain.value,
        upstream_idle: timeouts.upstream_idle.value,
        keepalive: timeouts.tcp_keepalive.value,
        ..Timeouts::default()
    }
}

/// Asks the system for as many open files as may be, and gives clients no more of them than leave enough for
/// nodes and operators. What that comes to, if it is less than is configured.
pub(crate) fn share_open_files(front_end: &mut FrontEnd) -> Option<String> {
    let connections = front_end.limits.connections.value as usize;
    let limit = open_files::raise();
    let shares = open_files::shares(open_files::Wanted {
        limit,
        workers: workers(&front_end.limits),
        listeners: front_end.listeners.len(),
        nodes: front_end.cluster.nodes.len() + front_end.resources.len(),
        connections,
    });
    front_end.open_files = Some(shares);
    (limit < shares.enough).then(|| {
        format!(
            "the limit on open files is {limit}: at most {} client connections instead of {connections}; \
             {} would do (ulimit -n, LimitNOFILE=)",
            shares.connections, shares.enough
        )
    })
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
