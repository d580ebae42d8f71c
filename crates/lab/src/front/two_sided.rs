//! What an arm needs whose load is read over TCP: a daemon in each node's control group and quota,
//! at ordinary priority, and on the front the process that asks them all and publishes what they
//! answer in memory which the front-ends read.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_core::record::AGGREGATE_LINES;
use tidegate_remote::shm::ShmRegion;
use tidegate_remote::{Region, clock};

use super::FrontError;
use crate::cluster::{Cluster, ClusterError, Node, Process, lab};

/// Where the daemons listen.
const PORT: u16 = 9941;
/// Longest time until every node's first record is there.
const START_MAX: Duration = Duration::from_secs(10);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// The file in which a node's answers are published.
pub(super) fn region(folder: &Path, node: &Node) -> PathBuf {
    folder.join(format!("{}.tcp", node.name))
}

/// Starts all of it; every node's record is there when this returns.
pub(super) fn start(cluster: &Cluster, interval: Duration) -> Result<Vec<Process>, FrontError> {
    let lab = lab()?;
    let interval = format!("{}us", interval.as_micros());
    let daemon = |node: &Node| {
        let scope = node.place().scope();
        let scope = scope.ok_or(ClusterError::Loopback("a daemon in a node's quota"))?;
        let mut command = node.place().command(&lab);
        command.args(["gather", "--listen", &address(node).to_string()]);
        command.args(["--scope", &scope, "--interval", &interval]);
        Process::start(
            format!("the load gathering daemon of {}", node.name),
            &mut command,
        )
    };
    let daemons = cluster.nodes().iter().map(daemon);
    let mut processes = daemons.collect::<Result<Vec<_>, _>>()?;
    let mut command = cluster.front().command(&lab);
    command.args(["monitor", "--interval", &interval]);
    for node in cluster.nodes() {
        let file = region(cluster.folder(), node);
        command.arg("--node");
        command.arg(format!("{}={}", address(node), file.display()));
    }
    processes.push(Process::start("the load monitoring daemon", &mut command)?);
    ready(cluster, &mut processes)?;
    Ok(processes)
}

fn address(node: &Node) -> SocketAddr {
    (node.address.ip(), PORT).into()
}

/// Waits for a record of every node.
fn ready(cluster: &Cluster, processes: &mut [Process]) -> Result<(), FrontError> {
    let deadline = clock::now() + START_MAX;
    for node in cluster.nodes() {
        let mut region = ShmRegion::new(&region(cluster.folder(), node));
        while let Err(why) = region.read(AGGREGATE_LINES) {
            let told = |it: &mut Process| it.ended().map(|_| it.told());
            let ended = processes.iter_mut().find_map(told);
            if ended.is_some() || clock::now() > deadline {
                let told = ended.unwrap_or_default();
                return Err(FrontError::Silent {
                    name: "the load gathering daemon".into(),
                    address: address(node),
                    why: why.to_string(),
                    told,
                });
            }
            clock::sleep_until(clock::now() + LOOK);
        }
    }
    Ok(())
}
