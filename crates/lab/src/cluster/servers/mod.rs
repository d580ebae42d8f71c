//! The command that runs a node's server.
//!
//! nginx and Apache answer the same URLs as the test server as far as they can, and refuse the
//! rest with 400 and a sentence: nobody shall believe that work was done which was not.

mod apache;
mod nginx;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tidegate_core::units::format_duration;

use super::run::installed;
use super::{ClusterError, NodePlan, Place, ServerKind, lab};

/// Who servers run as that do not want to be root: `nobody` on all systems.
const NOBODY: u32 = 65_534;

/// A server of this kind at this address, in this place. Its files go into `folder`, which
/// everybody may read.
pub(super) fn command(
    plan: &NodePlan,
    address: SocketAddr,
    place: &Place,
    folder: &Path,
) -> Result<Command, ClusterError> {
    match plan.server {
        ServerKind::Test => test(plan, address, place),
        ServerKind::Nginx => nginx::command(address, place, folder),
        ServerKind::ApachePhp => apache::command(plan, address, place, folder),
    }
}

fn test(plan: &NodePlan, address: SocketAddr, place: &Place) -> Result<Command, ClusterError> {
    let mut command = place.command(lab()?);
    command
        .arg("serve")
        .arg("--listen")
        .arg(address.to_string());
    command.arg("--workers").arg(plan.workers.to_string());
    command
        .arg("--cache-files")
        .arg(plan.cache.files.to_string());
    let (hit, miss) = (plan.cache.hit, plan.cache.miss);
    command.arg("--cache-hit").arg(format_duration(hit));
    command.arg("--cache-miss").arg(format_duration(miss));
    Ok(command)
}

/// The first of these programs that is installed.
fn program(names: &[&str], package: &str) -> Result<PathBuf, ClusterError> {
    let mut found = names.iter().filter_map(|name| installed(name));
    found.next().ok_or_else(|| {
        ClusterError::Missing(format!("{} is not installed (Debian: {package})", names[0]))
    })
}

/// A folder that everybody may read.
fn make_folder(path: &Path) -> Result<(), ClusterError> {
    fs::create_dir_all(path).map_err(ClusterError::file("make", path))?;
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(path, mode).map_err(ClusterError::file("open to everybody", path))
}

/// A file that everybody may read.
fn write(path: &Path, text: &str) -> Result<(), ClusterError> {
    fs::write(path, text).map_err(ClusterError::file("write", path))
}
