//! An antagonist that is at work, until its guard is dropped.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tidegate_remote::clock;

use super::{ClusterError, Place, Process, group, lab};
use crate::antagonist::{Antagonist, argument};
use tidegate_emulator::nodes::Neighbour;

/// How long it may take to become the program that it shall be.
const PATIENCE: Duration = Duration::from_secs(30);

/// See the module. It does not keep the cluster: whichever goes first takes it along.
#[derive(Debug)]
pub struct Guard {
    _at_work: AtWork,
}

#[derive(Debug)]
enum AtWork {
    Process { _process: Process },
    Emulated { _neighbour: Neighbour },
}

impl From<Neighbour> for Guard {
    fn from(neighbour: Neighbour) -> Self {
        Self {
            _at_work: AtWork::Emulated {
                _neighbour: neighbour,
            },
        }
    }
}

impl Guard {
    /// Starts the antagonist in this place; it is at work when this returns.
    pub(super) fn start(
        place: &Place,
        kind: &Antagonist,
        (node, server): (&str, Option<SocketAddr>),
    ) -> Result<Self, ClusterError> {
        let program = lab()?;
        let argument = argument(kind).map_err(|error| ClusterError::Plan(error.to_string()))?;
        let mut command = place.command(&program);
        command.args(["antagonist", &argument]);
        if let Some(server) = server {
            command.args(["--server", &server.to_string()]);
        }
        let mut process = Process::start(format!("an antagonist of {node}"), &mut command)?;
        await_program(&mut process, &program)?;
        Ok(Self {
            _at_work: AtWork::Process { _process: process },
        })
    }
}

/// Waits until the process runs the program: what stands before it has then done its part.
fn await_program(process: &mut Process, program: &Path) -> Result<(), ClusterError> {
    let wanted = program
        .canonicalize()
        .map_err(ClusterError::file("find", program))?;
    let deadline = clock::now() + PATIENCE;
    let link = format!("/proc/{}/exe", process.id());
    while std::fs::read_link(&link).ok().as_deref() != Some(&wanted) {
        if process.ended().is_some() || clock::now() > deadline {
            return Err(ClusterError::Missing(format!(
                "{} did not start: {}",
                process.name(),
                process.told()
            )));
        }
        group::look_again();
    }
    Ok(())
}
