//! nginx's configuration, as its users write it.
//!
//! One worker. Connections to servers are kept (`keepalive`, HTTP/1.1), failures are seen in
//! passing and tried elsewhere (`max_fails` 1, `fail_timeout` 10 s and `proxy_next_upstream
//! error timeout`, all defaults). There is no active check without the commercial edition.

use super::layout::{IDLE, Layout, Secure, Site, push};

/// How nginx balances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NginxBalance {
    /// In turn, its default.
    RoundRobin,
    /// Fewest connections: `least_conn`.
    LeastConn,
    /// The same, with few requests of the site at once (`limit_conn`) and 503 for the rest: there is
    /// no queue.
    LimitConn,
}

/// Requests at once for each server of a site, of all front-ends together where that is possible: as
/// HAProxy's.
const PER_SERVER: u32 = 2;

impl NginxBalance {
    /// The arm's name.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::RoundRobin => "nginx round robin",
            Self::LeastConn => "nginx least_conn",
            Self::LimitConn => "nginx limit_conn",
        }
    }
}

/// The file; `user` is what the worker runs as, if the master is root.
pub(super) fn config(layout: &Layout, balance: NginxBalance, user: Option<&str>) -> String {
    let folder = layout.folder.display();
    let idle = IDLE.as_secs();
    let mut text = String::new();
    if let Some(user) = user {
        push(&mut text, format_args!("user {user};"));
    }
    push(
        &mut text,
        format_args!(
            "worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    tcp_nodelay on;
    keepalive_timeout {idle}s;
    keepalive_requests 1000000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;"
        ),
    );
    limits(&mut text, layout, balance);
    for site in &layout.sites {
        upstream(&mut text, site, balance);
    }
    for (index, site) in layout.sites.iter().enumerate() {
        let name = &site.name;
        // Only the first server of an address may set it.
        let backlog = if index == 0 { " backlog=4096" } else { "" };
        let limit = limit(site, balance, layout.front_ends);
        let secure = layout.secure.as_ref().map(|it| secure(it, backlog));
        let secure = secure.unwrap_or_default();
        push(
            &mut text,
            format_args!(
                "    server {{
        listen {}{backlog};{secure}
        server_name {name};{limit}
        location / {{
            proxy_pass http://{name};
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_set_header Host $host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header X-Forwarded-Host $host;
        }}
    }}",
                layout.listen
            ),
        );
    }
    text.push_str("}\n");
    text
}

/// Limits of all sites together.
fn limits(text: &mut String, layout: &Layout, balance: NginxBalance) {
    if balance == NginxBalance::LimitConn {
        // Refusals by the thousand are no errors.
        push(
            text,
            format_args!(
                "    limit_conn_zone $server_name zone=sites:1m;\n    limit_conn_log_level info;"
            ),
        );
    }
    if let Some(rate) = layout.per_source {
        push(
            text,
            format_args!(
                "    limit_req_zone $binary_remote_addr zone=sources:10m rate={rate}r/s;\n    limit_req zone=sources burst={rate} nodelay;\n    \
                 limit_req_status 429;\n    limit_req_log_level info;"
            ),
        );
    }
}

/// A listener with TLS and HTTP/2.
fn secure(secure: &Secure, backlog: &str) -> String {
    format!(
        "
        listen {} ssl http2{backlog};
        ssl_protocols TLSv1.2 TLSv1.3;
        ssl_certificate {};
        ssl_certificate_key {};",
        secure.listen,
        secure.certificate.chain.display(),
        secure.certificate.key.display()
    )
}

fn upstream(text: &mut String, site: &Site, balance: NginxBalance) {
    push(text, format_args!("    upstream {} {{", site.name));
    if balance != NginxBalance::RoundRobin {
        push(text, format_args!("        least_conn;"));
    }
    for server in &site.servers {
        push(text, format_args!("        server {};", server.address));
    }
    push(text, format_args!("        keepalive 128;"));
    push(
        text,
        format_args!("        keepalive_requests 1000000000;\n    }}"),
    );
}

/// What a way to balance adds to a site.
fn limit(site: &Site, balance: NginxBalance, front_ends: u32) -> String {
    match balance {
        NginxBalance::RoundRobin | NginxBalance::LeastConn => String::new(),
        NginxBalance::LimitConn => {
            let all = PER_SERVER * site.servers.len() as u32;
            let own = all.div_ceil(front_ends.max(1));
            format!("\n        limit_conn sites {own};")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::sample;
    use super::*;

    #[test]
    fn one_site_by_least_connections() {
        assert_eq!(
            config(&sample::single(), NginxBalance::LeastConn, Some("root")),
            "user root;
worker_processes 1;
daemon off;
pid /run/lab/nginx.pid;
error_log /run/lab/error.log warn;
events { worker_connections 4096; }
http {
    access_log off;
    tcp_nodelay on;
    keepalive_timeout 60s;
    keepalive_requests 1000000000;
    client_body_temp_path /run/lab/body;
    proxy_temp_path /run/lab/proxy;
    fastcgi_temp_path /run/lab/fastcgi;
    uwsgi_temp_path /run/lab/uwsgi;
    scgi_temp_path /run/lab/scgi;
    upstream shop {
        least_conn;
        server 10.77.0.11:8000;
        server 10.77.0.12:8000;
        keepalive 128;
        keepalive_requests 1000000000;
    }
    server {
        listen 10.77.0.1:8080 backlog=4096;
        server_name shop;
        location / {
            proxy_pass http://shop;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_set_header Host $host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header X-Forwarded-Host $host;
        }
    }
}
"
        );
    }

    #[test]
    fn a_listener_with_tls_and_a_limit_of_each_source() {
        let text = config(&sample::secure(), NginxBalance::RoundRobin, None);
        for lines in [
            "    limit_req_zone $binary_remote_addr zone=sources:10m rate=200r/s;\n    limit_req zone=sources burst=200 nodelay;\n",
            "        listen 10.77.0.1:8443 ssl http2 backlog=4096;\n        ssl_protocols TLSv1.2 TLSv1.3;\n        ssl_certificate /run/lab/site.pem;\n",
        ] {
            assert!(text.contains(lines), "{text}");
        }
    }

    #[test]
    fn limits_are_those_of_all_servers_together() {
        let text = config(&sample::layout(), NginxBalance::LimitConn, None);
        for lines in [
            "    limit_conn_zone $server_name zone=sites:1m;\n    limit_conn_log_level info;\n",
            "    upstream shop {\n        least_conn;\n",
            "        server_name shop;\n        limit_conn sites 2;\n        location / {",
            "        server_name blog;\n        limit_conn sites 1;\n        location / {",
        ] {
            assert!(text.contains(lines), "{text}");
        }
    }

    #[test]
    fn round_robin_is_what_is_not_said() {
        let text = config(&sample::layout(), NginxBalance::RoundRobin, None);
        assert!(
            !text.contains("least_conn") && !text.contains("user "),
            "{text}"
        );
        assert_eq!(text.matches("upstream ").count(), 2);
        // Only the first may set the backlog.
        assert_eq!(text.matches("backlog=").count(), 1);
    }
}
