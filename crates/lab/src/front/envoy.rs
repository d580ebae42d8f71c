//! Envoy's configuration (`LEAST_REQUEST`: the fewer active requests of two random hosts, its
//! default), as its users write it.
//!
//! One worker (`--concurrency 1`). Connections to hosts are kept. Failed connections are tried
//! elsewhere, as service meshes configure it (`connect-failure,refused-stream`, two retries, not
//! the host that failed); hosts are checked each two seconds by HTTP, like HAProxy's.

use super::layout::{IDLE, Layout, Site, push};

/// The file.
pub(super) fn config(layout: &Layout) -> String {
    let idle = IDLE.as_secs();
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
          - name: envoy.filters.http.router
            typed_config: {{ \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
          route_config:
            virtual_hosts:
",
        address = layout.listen.ip(),
        port = layout.listen.port(),
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
                  timeout: {idle}s
                  retry_policy:
                    retry_on: connect-failure,refused-stream
                    num_retries: 2
                    host_selection_retry_max_attempts: 5
                    retry_host_predicate:
                    - name: envoy.retry_host_predicates.previous_hosts
                      typed_config: {{ \"@type\": type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate }}",
                name = site.name
            ),
        );
    }
    text.push_str("  clusters:\n");
    for site in &layout.sites {
        cluster(&mut text, site);
    }
    text
}

fn cluster(text: &mut String, site: &Site) {
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
      http_health_check: {{ path: /health }}
    load_assignment:
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
        let text = config(&sample::layout());
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
        assert!(config(&sample::single()).contains("domains: [\"*\"]"));
    }
}
