//! Apache with PHP in its processes, as a node's server: the prefork server of the papers.
//!
//! `/work` is a script that burns CPU by `getrusage`, sleeps, holds memory and file descriptors
//! and answers with bytes. Its processes share no memory, so there is no cache and `file` is
//! refused with 400. What Apache and PHP themselves cost comes on top of `cpu`.
//!
//! Connections are not kept alive: with one process per connection, a front-end's idle
//! connections would hold all processes and all others would wait for a time-out.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{NOBODY, make_folder, program, write};
use crate::cluster::{ClusterError, NodePlan, Place};

/// Where distributions keep Apache's modules.
const MODULES: [&str; 3] = [
    "/usr/lib/apache2/modules",
    "/usr/lib64/httpd/modules",
    "/usr/lib/httpd/modules",
];
/// PHP's module: its file, and its name inside.
const PHP: [(&str, &str); 6] = [
    ("libphp8.2.so", "php_module"),
    ("libphp8.4.so", "php_module"),
    ("libphp8.3.so", "php_module"),
    ("libphp8.1.so", "php_module"),
    ("libphp.so", "php_module"),
    ("libphp7.4.so", "php7_module"),
];
/// Processes that wait for requests: those that came with a burst go again.
const SPARE: u32 = 2;

pub(super) fn command(
    plan: &NodePlan,
    address: SocketAddr,
    place: &Place,
    folder: &Path,
) -> Result<Command, ClusterError> {
    let apache = program(&["apache2", "httpd"], "libapache2-mod-php")?;
    let modules = modules()?;
    make_folder(folder)?;
    write(&folder.join("work.php"), include_str!("work.php"))?;
    write(&folder.join("health"), "fine\n")?;
    let path = folder.join("apache.conf");
    write(&path, &config(plan.workers, address, &modules, folder)?)?;
    let mut command = place.command(apache);
    command.arg("-DFOREGROUND").arg("-f").arg(path);
    Ok(command)
}

fn modules() -> Result<PathBuf, ClusterError> {
    let folders = MODULES.iter().map(PathBuf::from);
    let mut found = folders.filter(|folder| folder.join("mod_mpm_prefork.so").is_file());
    found.next().ok_or_else(|| {
        ClusterError::Missing(format!("no mod_mpm_prefork.so in {}", MODULES.join(", ")))
    })
}

fn config(
    workers: u32,
    address: SocketAddr,
    modules: &Path,
    folder: &Path,
) -> Result<String, ClusterError> {
    let mut found = PHP.iter().map(|(file, name)| (modules.join(file), name));
    let Some((php, php_name)) = found.find(|(file, _)| file.is_file()) else {
        return Err(ClusterError::Missing(format!(
            "no libphp*.so in {} (Debian: libapache2-mod-php)",
            modules.display()
        )));
    };
    let (modules, php, folder) = (modules.display(), php.display(), folder.display());
    Ok(format!(
        "LoadModule mpm_prefork_module {modules}/mod_mpm_prefork.so
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule alias_module {modules}/mod_alias.so
LoadModule {php_name} {php}
User #{NOBODY}
Group #{NOBODY}
ServerRoot {folder}
DefaultRuntimeDir {folder}
DocumentRoot {folder}
PidFile {folder}/apache.pid
ErrorLog {folder}/error.log
LogLevel warn
ServerName node
Listen {address}
ListenBacklog 4096
KeepAlive Off
ServerLimit {workers}
MaxRequestWorkers {workers}
StartServers {spare}
MinSpareServers {spare}
MaxSpareServers {spare}
MaxConnectionsPerChild 0
Alias /health {folder}/health
Alias /work {folder}/work.php
<Files work.php>
  SetHandler application/x-httpd-php
</Files>
",
        spare = SPARE.min(workers),
    ))
}
