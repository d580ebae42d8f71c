//! Envoy's configuration (`LEAST_REQUEST`: the fewer active requests of two random hosts, its
//! default), as its users write it.
//!
//! One worker (`--concurrency 1`). Connections to hosts are kept. Failed connections are tried
//! elsewhere, as service meshes configure it (`connect-failure,refused-stream`, two retries, not
//! the host that failed); hosts are checked each two seconds by HTTP, like HAProxy's.
//!
//! Its two filters against overload: `adaptive_concurrency` as in its manual's example, and
//! `admission_control` with its defaults, under which an answer above 499 is a failure. So it needs a
//! time-out of the route that makes failures of late answers.

use std::time::Duration;

use super::layout::{IDLE, Layout, Site, push};

/// What Envoy does against overload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvoyFilter {
    /// Nothing.
    None,
    /// Limits the requests in flight by the gradient of their latencies: `adaptive_concurrency`.
    AdaptiveConcurrency,
    /// Refuses at random by the share of failures of late: `admission_control`.
    AdmissionControl {
        /// Later answers are failures.
        timeout: Duration,
    },
}

impl EnvoyFilter {
    /// The arm's name.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::None => "envoy least_request",
            Self::AdaptiveConcurrency => "envoy adaptive_concurrency",
            Self::AdmissionControl { .. } => "envoy admission_control",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::None => "",
            Self::AdaptiveConcurrency => ADAPTIVE_CONCURRENCY,
            Self::AdmissionControl { .. } => ADMISSION_CONTROL,
        }
    }
}

const ADAPTIVE_CONCURRENCY: &str = "          - name: envoy.filters.http.adaptive_concurrency
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.adaptive_concurrency.v3.AdaptiveConcurrency
              gradient_controller_config:
                sample_aggregate_percentile: { value: 90 }
                concurrency_limit_params: { concurrency_update_interval: 0.1s }
                min_rtt_calc_params: { jitter: { value: 10 }, interval: 60s, request_count: 50 }
";
const ADMISSION_CONTROL: &str = "          - name: envoy.filters.http.admission_control
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.admission_control.v3.AdmissionControl
              success_criteria: {}
";

/// HTTP/2 towards hosts.
const HTTP2: &str = "    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        \"@type\": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: { http2_protocol_options: {} }
";

/// The file.
pub(super) fn config(layout: &Layout, filter: EnvoyFilter) -> String {
    let idle = IDLE.as_secs();
    let timeout = match filter {
        EnvoyFilter::AdmissionControl { timeout } => timeout,
        EnvoyFilter::None | EnvoyFilter::AdaptiveConcurrency => IDLE,
    };
    let mut text = format!(
        "static_resources:
  listeners:
  - name: in
    address: {{ socket_address: {{ address: {address}, port_value: {port} }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          common_http_protocol_options: {{ idle_timeout: {idle}s }}
          use_remote_address: true
          http_filters:
{filters}          - name: envoy.filters.http.router
            typed_config: {{ \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
          route_config:
            virtual_hosts:
",
        address = layout.listen.ip(),
        port = layout.listen.port(),
        filters = filter.text(),
    );
    for site in &layout.sites {
        let domain = if layout.single() { "*" } else { &site.name };
        push(
            &mut text,
            format_args!(
                "            - name: {name}
              domains: [\"{domain}\"]
              routes:
              - match: {{ prefix: \"/\" }}
                route:
                  cluster: {name}
                  timeout: {timeout}s
                  retry_policy:
                    retry_on: connect-failure,refused-stream
                    num_retries: 2
                    host_selection_retry_max_attempts: 5
                    retry_host_predicate:
                    - name: envoy.retry_host_predicates.previous_hosts
                      typed_config: {{ \"@type\": type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate }}",
                name = site.name,
                timeout = timeout.as_secs_f64(),
            ),
        );
    }
    text.push_str("  clusters:\n");
    for site in &layout.sites {
        cluster(&mut text, site, layout.servers_http2);
    }
    text
}

fn cluster(text: &mut String, site: &Site, http2: bool) {
    let (protocol, codec) = match http2 {
        true => (HTTP2, ", codec_client_type: HTTP2"),
        false => ("", ""),
    };
    push(
        text,
        format_args!(
            "  - name: {name}
    type: STATIC
    connect_timeout: 2s
    lb_policy: LEAST_REQUEST
    health_checks:
    - timeout: 2s
      interval: 2s
      unhealthy_threshold: 3
      healthy_threshold: 2
      http_health_check: {{ path: /health{codec} }}
{protocol}    load_assignment:
      cluster_name: {name}
      endpoints:
      - lb_endpoints:",
            name = site.name
        ),
    );
    for server in &site.servers {
        push(
            text,
            format_args!(
                "        - endpoint: {{ address: {{ socket_address: {{ address: {}, port_value: {} }} }} }}",
                server.address.ip(),
                server.address.port()
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::sample;
    use super::*;

    #[test]
    fn two_sites() {
        let text = config(&sample::layout(), EnvoyFilter::None);
        let clusters = text.split_once("  clusters:\n").map(|(_, rest)| rest);
        assert_eq!(
            clusters,
            Some(
                "  - name: shop
    type: STATIC
    connect_timeout: 2s
    lb_policy: LEAST_REQUEST
    health_checks:
    - timeout: 2s
      interval: 2s
      unhealthy_threshold: 3
      healthy_threshold: 2
      http_health_check: { path: /health }
    load_assignment:
      cluster_name: shop
      endpoints:
      - lb_endpoints:
        - endpoint: { address: { socket_address: { address: 10.77.0.11, port_value: 8000 } } }
        - endpoint: { address: { socket_address: { address: 10.77.0.12, port_value: 8000 } } }
  - name: blog
    type: STATIC
    connect_timeout: 2s
    lb_policy: LEAST_REQUEST
    health_checks:
    - timeout: 2s
      interval: 2s
      unhealthy_threshold: 3
      healthy_threshold: 2
      http_health_check: { path: /health }
    load_assignment:
      cluster_name: blog
      endpoints:
      - lb_endpoints:
        - endpoint: { address: { socket_address: { address: 10.77.0.11, port_value: 8000 } } }
"
            )
        );
        assert!(text.contains("domains: [\"shop\"]") && text.contains("domains: [\"blog\"]"));
        assert!(text.contains("                  timeout: 60s\n") && text.contains(ONLY_ROUTER));
        let single = config(&sample::single(), EnvoyFilter::None);
        assert!(single.contains("domains: [\"*\"]"));
    }

    #[test]
    fn hosts_may_speak_http2() {
        let text = config(&sample::secure(), EnvoyFilter::None);
        assert!(text.contains("http2_protocol_options: {} }\n    load_assignment:\n"));
    }

    const ONLY_ROUTER: &str =
        "          http_filters:\n          - name: envoy.filters.http.router\n";

    #[test]
    fn filters_stand_before_the_router() {
        let timeout = Duration::from_millis(500);
        for (filter, name) in [
            (
                EnvoyFilter::AdaptiveConcurrency,
                "envoy.filters.http.adaptive_concurrency",
            ),
            (
                EnvoyFilter::AdmissionControl { timeout },
                "envoy.filters.http.admission_control",
            ),
        ] {
            let text = config(&sample::single(), filter);
            let first = format!("          http_filters:\n          - name: {name}\n");
            assert!(text.contains(&first), "{text}");
            assert!(text.contains("\n          - name: envoy.filters.http.router\n"));
            let late = text.contains("                  timeout: 0.5s\n");
            assert_eq!(late, matches!(filter, EnvoyFilter::AdmissionControl { .. }));
        }
    }
}
