//! The command that runs a node's server.
//!
//! nginx and Apache answer the same URLs as the test server as far as they can, and refuse the
//! rest with 400 and a sentence: no result shall claim work that was not done.

mod apache;
mod auction;
mod database;
mod nginx;

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use tidegate_core::units::format_duration;

use super::run::installed;
use super::{ClusterError, NodePlan, Place, Process, ServerKind, answer, lab};

/// The user that servers run as that do not want to be root: `nobody` on all systems.
const NOBODY: u32 = 65_534;

pub(super) use database::ask;

/// A server of this kind at this address, in this place. Its files go into `folder`, which
/// all users may read. `database` is the cluster's, if it has one.
pub(super) fn command(
    plan: &NodePlan,
    address: SocketAddr,
    database: Option<SocketAddr>,
    place: &Place,
    folder: &Path,
) -> Result<Command, ClusterError> {
    match plan.server {
        ServerKind::Test => test(plan, address, place),
        ServerKind::Nginx => nginx::command(address, place, folder),
        ServerKind::ApachePhp => apache::command(plan, address, place, folder),
        ServerKind::Database => database::command(plan, address, place, folder),
        ServerKind::Auction => {
            let database = database
                .ok_or_else(|| ClusterError::Plan(format!("{} has no database", plan.name)))?;
            auction::command(plan, address, database, place, folder)
        }
    }
}

/// Waits until it serves, asked from the front, with all that it shall have.
pub(super) fn ready(
    plan: &NodePlan,
    address: SocketAddr,
    (front, place): (&Place, &Place),
    folder: &Path,
    process: &mut Process,
) -> Result<(), ClusterError> {
    match plan.server {
        ServerKind::Database => {
            answer::until(front, address, process, || database::answers(address))?;
            database::fill(place, address, folder)
        }
        // Its health says nothing of what is behind it.
        ServerKind::Auction => answer::of_server(front, address, "/", process),
        ServerKind::Test | ServerKind::Nginx | ServerKind::ApachePhp => {
            answer::of_server(front, address, "/health", process)
        }
    }
}

fn test(plan: &NodePlan, address: SocketAddr, place: &Place) -> Result<Command, ClusterError> {
    let mut command = place.command(lab()?);
    command
        .arg("serve")
        .arg("--listen")
        .arg(address.to_string());
    command.arg("--workers").arg(plan.workers.to_string());
    let files = plan.files.map(|files| files.to_string());
    command.args(files.iter().flat_map(|files| ["--files", files]));
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

/// A folder that all users may read.
fn make_folder(path: &Path) -> Result<(), ClusterError> {
    fs::create_dir_all(path).map_err(ClusterError::file("make", path))?;
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(path, mode).map_err(ClusterError::file("open to everybody", path))
}

/// A file that all users may read.
fn write(path: &Path, text: &str) -> Result<(), ClusterError> {
    fs::write(path, text).map_err(ClusterError::file("write", path))
}

/// A program in this place that runs as `nobody`, and dies with the lab.
fn as_nobody(place: &Place, program: impl AsRef<OsStr>) -> Command {
    let nobody = nobody_options();
    let mut command = place.command(SETPRIV);
    command.args(nobody).arg(program);
    command
}

/// The same behind what a command begins with.
fn nobody(command: &mut Command) {
    command.arg(SETPRIV).args(nobody_options());
}

const SETPRIV: &str = "setpriv";

/// Another user loses the signal at the lab's death: it is asked for again.
fn nobody_options() -> [String; 6] {
    let ids = |kind| format!("--{kind}={NOBODY}");
    let words = ["--clear-groups", "--pdeathsig", "KILL", "--"];
    let [groups, signal, kill, end] = words.map(str::to_owned);
    [ids("reuid"), ids("regid"), groups, signal, kill, end]
}

/// Gives a folder to `nobody`.
fn own(path: &Path) -> Result<(), ClusterError> {
    let owner = Some(NOBODY);
    chown(path, owner, owner).map_err(ClusterError::file("give to nobody", path))
}
