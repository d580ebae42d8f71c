//! What an agent tells programs other than front-ends: sockets around the pure functions of `tidegate_node::report`.
//!
//! All of it runs on the agent's main thread, at normal priority, beside the threads that sample and answer reads: a slow
//! reader here costs them nothing.

mod agent_check;
mod agentx;
mod door;
mod metrics;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::record::LoadRecord;
use tidegate_node::CpuLines;
use tidegate_node::report::OwnLoad;
use tidegate_remote::udp::Network;
use tokio::net::TcpListener;

use crate::config::Reports;
use crate::failure::Failure;
use crate::output::Output;
use agentx::Subagent;
use door::Door;

/// Between two samples that are taken over.
pub(super) const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// Wait after a failed accept: mostly too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The load, for all reports.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedLoad(Arc<Mutex<Load>>);

#[derive(Debug, Default)]
struct Load {
    own: OwnLoad,
    cpus: CpuLines,
}

impl SharedLoad {
    /// Takes a sample in.
    pub(super) fn note(&self, (record, cpus): (LoadRecord, CpuLines)) {
        let mut load = self.lock();
        load.own.note(&record);
        load.cpus = cpus;
    }

    fn lock(&self) -> MutexGuard<'_, Load> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Listens wherever that is configured, and answers until the runtime ends; gives what is said of it. Needs a runtime around it.
pub(super) fn start(
    reports: &Reports,
    allow: &[Network],
    node: &str,
    load: &SharedLoad,
    output: Output,
) -> Result<Vec<String>, Failure> {
    let mut said = Vec::new();
    if let Some(report) = reports.agent_check {
        let (listener, at) = listen("agent_check", report.listen)?;
        said.push(format!("Agent checks are answered at {at}."));
        let door = Door::new(listener, allow);
        tokio::spawn(agent_check::serve(door, report.weights, load.clone()));
    }
    if let Some(listen_at) = reports.metrics {
        let (listener, at) = listen("metrics", listen_at)?;
        said.push(format!("Metrics are at http://{at}/metrics."));
        let door = Door::new(listener, allow);
        tokio::spawn(metrics::serve(door, load.clone()));
    }
    if let Some(master) = &reports.agentx {
        said.push(format!(
            "Values of TIDEGATE-MIB are for the snmpd at {master}."
        ));
        let subagent = Subagent::new(master.clone(), node.to_owned(), load.clone());
        tokio::spawn(subagent.run(output));
    }
    Ok(said)
}

fn listen(name: &str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), Failure> {
    let failed = |error| {
        Failure::Failed(format!(
            "cannot listen on {address} ([agent.{name}]): {error}"
        ))
    };
    let socket = std::net::TcpListener::bind(address).map_err(failed)?;
    socket.set_nonblocking(true).map_err(failed)?;
    let listener = TcpListener::from_std(socket).map_err(failed)?;
    let at = listener.local_addr().map_err(failed)?;
    Ok((listener, at))
}
