//! Apache's configuration (`mod_proxy_balancer`, `bybusyness`), as its users write it.
//!
//! One process with a thread per request in flight (the event MPM). Connections to servers are
//! kept. A server that fails is left alone for a minute (`retry=60`) and the request goes to
//! another member; both are defaults, there is no active check.

use std::path::Path;

use super::layout::{IDLE, Layout, push};

/// What the balancer needs, in the order in which it must be loaded.
pub(super) const MODULES: &[&str] = &[
    "mpm_event",
    "authz_core",
    "headers",
    "slotmem_shm",
    "proxy",
    "proxy_http",
    "proxy_balancer",
    // A balancer is first made with its default method.
    "lbmethod_byrequests",
    "lbmethod_bybusyness",
];

/// The file; `modules` is where Apache's modules are, `user` what it runs as if started by root.
pub(super) fn config(layout: &Layout, modules: &Path, user: Option<&str>) -> String {
    let folder = layout.folder.display();
    let idle = IDLE.as_secs();
    let mut text = String::new();
    for module in MODULES {
        let file = modules.join(format!("mod_{module}.so"));
        push(
            &mut text,
            format_args!("LoadModule {module}_module {}", file.display()),
        );
    }
    if let Some(user) = user {
        push(&mut text, format_args!("User {user}"));
    }
    push(
        &mut text,
        format_args!(
            "ServerRoot {folder}
DefaultRuntimeDir {folder}
PidFile {folder}/apache.pid
ErrorLog {folder}/error.log
LogLevel warn
ServerName lab
Listen {listen}
ListenBacklog 4096
ServerLimit 1
StartServers 1
ThreadLimit 512
ThreadsPerChild 512
MaxRequestWorkers 512
MaxConnectionsPerChild 0
KeepAlive On
KeepAliveTimeout {idle}
MaxKeepAliveRequests 0
ProxyPreserveHost On
RequestHeader set X-Forwarded-Proto http",
            listen = layout.listen
        ),
    );
    for site in &layout.sites {
        let name = &site.name;
        push(&mut text, format_args!("<Proxy balancer://{name}>"));
        for server in &site.servers {
            push(
                &mut text,
                format_args!("    BalancerMember http://{}", server.address),
            );
        }
        push(
            &mut text,
            format_args!("    ProxySet lbmethod=bybusyness\n</Proxy>"),
        );
    }
    for site in &layout.sites {
        let name = &site.name;
        push(
            &mut text,
            format_args!(
                "<VirtualHost {listen}>
    ServerName {name}
    ProxyPass / balancer://{name}/
    ProxyPassReverse / balancer://{name}/
</VirtualHost>",
                listen = layout.listen
            ),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::layout::sample;
    use super::*;

    #[test]
    fn one_site() {
        let text = config(&sample::single(), Path::new("/modules"), None);
        assert_eq!(
            text,
            "LoadModule mpm_event_module /modules/mod_mpm_event.so
LoadModule authz_core_module /modules/mod_authz_core.so
LoadModule headers_module /modules/mod_headers.so
LoadModule slotmem_shm_module /modules/mod_slotmem_shm.so
LoadModule proxy_module /modules/mod_proxy.so
LoadModule proxy_http_module /modules/mod_proxy_http.so
LoadModule proxy_balancer_module /modules/mod_proxy_balancer.so
LoadModule lbmethod_byrequests_module /modules/mod_lbmethod_byrequests.so
LoadModule lbmethod_bybusyness_module /modules/mod_lbmethod_bybusyness.so
ServerRoot /run/lab
DefaultRuntimeDir /run/lab
PidFile /run/lab/apache.pid
ErrorLog /run/lab/error.log
LogLevel warn
ServerName lab
Listen 10.77.0.1:8080
ListenBacklog 4096
ServerLimit 1
StartServers 1
ThreadLimit 512
ThreadsPerChild 512
MaxRequestWorkers 512
MaxConnectionsPerChild 0
KeepAlive On
KeepAliveTimeout 60
MaxKeepAliveRequests 0
ProxyPreserveHost On
RequestHeader set X-Forwarded-Proto http
<Proxy balancer://shop>
    BalancerMember http://10.77.0.11:8000
    BalancerMember http://10.77.0.12:8000
    ProxySet lbmethod=bybusyness
</Proxy>
<VirtualHost 10.77.0.1:8080>
    ServerName shop
    ProxyPass / balancer://shop/
    ProxyPassReverse / balancer://shop/
</VirtualHost>
"
        );
    }
}
