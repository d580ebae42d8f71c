//! The command that runs a node's server.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use tidegate_core::units::format_duration;

use super::{ClusterError, NodePlan, Place, ServerKind, lab};

/// A server of this kind at this address, in this place; its files go into the folder.
pub(super) fn command(
    plan: &NodePlan,
    address: SocketAddr,
    place: &Place,
    _folder: &Path,
) -> Result<Command, ClusterError> {
    match plan.server {
        ServerKind::Test => {
            let mut command = place.command(lab()?);
            command
                .arg("serve")
                .arg("--listen")
                .arg(address.to_string());
            command.arg("--workers").arg(plan.workers.to_string());
            command
                .arg("--cache-files")
                .arg(plan.cache.files.to_string());
            command
                .arg("--cache-hit")
                .arg(format_duration(plan.cache.hit));
            command
                .arg("--cache-miss")
                .arg(format_duration(plan.cache.miss));
            Ok(command)
        }
        ServerKind::Nginx | ServerKind::ApachePhp => {
            Err(ClusterError::Plan("this server is not there yet".into()))
        }
    }
}
