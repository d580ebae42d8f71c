//! nginx with PHP-FPM as a node's server: the auction site's pages.
//!
//! Both run as `nobody`, with settings of their own alone. PHP-FPM has a fixed number of workers, each of which keeps
//! its connection to the database; requests beyond them wait in its listen queue in the order in which they
//! came, as before any server with a limit of processes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{as_nobody, make_folder, own, program, write};
use crate::auction::files;
use crate::cluster::{ClusterError, NodePlan, Place};

/// PHP-FPM's names, by version.
const PHP_FPM: [&str; 6] = [
    "php-fpm8.2",
    "php-fpm8.4",
    "php-fpm8.3",
    "php-fpm8.1",
    "php-fpm7.4",
    "php-fpm",
];
/// Where Debian keeps PHP's extensions, in a folder per version of its interface.
const EXTENSIONS: &str = "/usr/lib/php";

pub(super) fn command(
    plan: &NodePlan,
    address: SocketAddr,
    database: SocketAddr,
    place: &Place,
    folder: &Path,
) -> Result<Command, ClusterError> {
    let nginx = program(&["nginx"], "nginx-light")?;
    let php_fpm = program(&PHP_FPM, "php-fpm")?;
    extension()?;
    make_folder(folder)?;
    own(folder)?;
    for (name, text) in files::PAGES {
        write(&folder.join(name), text)?;
    }
    let settings = [
        ("nginx.conf", files::nginx(folder, address)),
        (
            "php-fpm.conf",
            files::php_fpm(folder, plan.workers, database),
        ),
        ("start.sh", files::START.to_owned()),
    ];
    for (name, text) in settings {
        write(&folder.join(name), &text)?;
    }
    let mut command = as_nobody(place, "sh");
    command.arg(folder.join("start.sh")).arg(folder);
    command.arg(php_fpm).arg(nginx).current_dir(folder);
    Ok(command)
}

/// PHP's extension for PostgreSQL is a package of its own.
fn extension() -> Result<(), ClusterError> {
    let entries = std::fs::read_dir(EXTENSIONS)
        .into_iter()
        .flatten()
        .flatten();
    let mut files = entries.map(|entry| -> PathBuf { entry.path().join("pgsql.so") });
    match files.any(|file| file.is_file()) {
        true => Ok(()),
        false => Err(ClusterError::Missing(format!(
            "no pgsql.so in {EXTENSIONS} (Debian: php-pgsql)"
        ))),
    }
}
