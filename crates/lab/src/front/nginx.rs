//! nginx's configuration, as its users write it.
//!
//! One worker. Connections to servers are kept (`keepalive`, HTTP/1.1), failures are seen in
//! passing and tried elsewhere (`max_fails` 1, `fail_timeout` 10 s and `proxy_next_upstream
//! error timeout`, all defaults). There is no active check without the commercial edition.

use super::layout::{IDLE, Layout, push};

/// How nginx balances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NginxBalance {
    /// In turn, its default.
    RoundRobin,
    /// Fewest connections: `least_conn`.
    LeastConn,
}

impl NginxBalance {
    /// The arm's name.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::RoundRobin => "nginx round robin",
            Self::LeastConn => "nginx least_conn",
        }
    }
}

/// The file; `user` is who the worker runs as, if the master is root.
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
    for site in &layout.sites {
        push(&mut text, format_args!("    upstream {} {{", site.name));
        if balance == NginxBalance::LeastConn {
            push(&mut text, format_args!("        least_conn;"));
        }
        for server in &site.servers {
            push(
                &mut text,
                format_args!("        server {};", server.address),
            );
        }
        push(&mut text, format_args!("        keepalive 128;"));
        push(
            &mut text,
            format_args!("        keepalive_requests 1000000000;\n    }}"),
        );
    }
    for (index, site) in layout.sites.iter().enumerate() {
        let name = &site.name;
        // Only the first server of an address may set it.
        let backlog = if index == 0 { " backlog=4096" } else { "" };
        push(
            &mut text,
            format_args!(
                "    server {{
        listen {}{backlog};
        server_name {name};
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
