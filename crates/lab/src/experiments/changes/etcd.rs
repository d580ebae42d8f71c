//! An etcd of one member, beside the front-ends, in which they keep the words of moves.
//!
//! Failure case: it is not installed, which the arm's program check says before.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use tidegate_remote::clock;

use crate::cluster::{Cluster, Process};
use crate::front;

use super::super::ExperimentError;

/// The program.
pub(super) const PROGRAM: &str = "etcd";
/// Longest time from start to its first answer.
const START_MAX: Duration = Duration::from_secs(10);
/// Between two attempts.
const LOOK: Duration = Duration::from_millis(50);

/// See the module. It ends, and what it kept is gone, when this is dropped.
#[derive(Debug)]
pub(super) struct Etcd {
    address: SocketAddr,
    folder: PathBuf,
    process: Process,
}

impl Etcd {
    /// Starts it in the front's place, with its data in the cluster's folder; it answers when this returns.
    pub(super) fn start(cluster: &Cluster) -> Result<Self, ExperimentError> {
        let place = cluster.front();
        let unfit = |why: String| ExperimentError::Unfit(format!("etcd: {why}"));
        let (file, _) = front::installed(PROGRAM).map_err(unfit)?;
        let ports = place.inside(free_ports)?;
        let [address, peers] = ports.map_err(|error| unfit(error.to_string()))?;
        let folder = cluster.folder().join(PROGRAM);
        let (own, between) = (format!("http://{address}"), format!("http://{peers}"));
        let mut command = place.command(file);
        command.arg("--data-dir").arg(&folder);
        command.args([
            "--listen-client-urls",
            &own,
            "--advertise-client-urls",
            &own,
        ]);
        command.args(["--listen-peer-urls", &between]);
        command.args(["--initial-advertise-peer-urls", &between]);
        command.args(["--initial-cluster", &format!("default={between}")]);
        let mut process = Process::start(PROGRAM, &mut command)?;
        let deadline = clock::now() + START_MAX;
        while !place.inside(|| front::answers(address, "/health"))? {
            if process.ended().is_some() || clock::now() > deadline {
                return Err(unfit(format!("it does not answer: {}", process.told())));
            }
            clock::sleep_until(clock::now() + LOOK);
        }
        Ok(Self {
            address,
            folder,
            process,
        })
    }

    /// Where it is, as `home` of `[reconfigure]` has it.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.process.kill();
        // The cluster's folder goes later, and with it what stays here.
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

/// Two ports without a listener.
fn free_ports() -> io::Result<[SocketAddr; 2]> {
    let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let held = [free()?, free()?];
    Ok([held[0].local_addr()?, held[1].local_addr()?])
}
