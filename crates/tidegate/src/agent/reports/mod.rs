//! What an agent tells programs other than front-ends: sockets around the pure functions of `tidegate_node::report`.
//!
//! All of it runs on the agent's main thread, at normal priority, beside the threads that sample and answer reads: a slow
//! reader here costs them nothing.

mod agent_check;
mod agentx;
mod door;
mod heartbeat;
mod metrics;
mod orca;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::director::SoftLimitWatch;
use tidegate_core::load::NodeLoad;
use tidegate_core::record::LoadRecord;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{Crossing, SoftLimits};
use tidegate_node::CpuLines;
use tidegate_node::report::OwnLoad;
use tidegate_remote::udp::Network;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::checks::ServiceStates;
use crate::config::Reports;
use crate::failure::Failure;
use crate::output::Output;
use agentx::Subagent;
use door::Door;
use heartbeat::Heartbeats;

/// Between two samples that are taken over.
pub(super) const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// Wait after a failed accept: mostly too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Balancers ask each two seconds or so: HAProxy's default. What is sent to the node now shows so late.
const ASKED_EVERY: Duration = Duration::from_secs(2);

/// The load, for all reports.
#[derive(Clone, Debug)]
pub(super) struct SharedLoad {
    load: Arc<Mutex<Load>>,
    /// How the node came over a soft limit, if it is over one.
    crossing: Arc<watch::Sender<Option<Crossing>>>,
}

#[derive(Debug, Default)]
struct Load {
    own: OwnLoad,
    cpus: CpuLines,
    limits: SoftLimits,
    watch: SoftLimitWatch,
    /// What service checks have shown.
    services: ServiceStates,
}

impl SharedLoad {
    pub(super) fn new(limits: SoftLimits) -> Self {
        let load = Load {
            limits,
            ..Load::default()
        };
        Self {
            load: Arc::new(Mutex::new(load)),
            crossing: Arc::new(watch::Sender::new(None)),
        }
    }

    /// Has the results of service checks reported as well.
    pub(super) fn set_services(&self, states: ServiceStates) {
        self.lock().services = states;
    }

    /// Takes a sample in; an event, if a soft limit was crossed or is crossed no more.
    pub(super) fn note(
        &self,
        (record, cpus): (LoadRecord, CpuLines),
    ) -> Option<(&'static str, String)> {
        let mut load = self.lock();
        load.own.note(&record);
        load.cpus = cpus;
        let now = Timestamp::from_nanos(record.t_ns);
        let own = NodeLoad {
            observed_at: now,
            ..load.own.load()
        };
        let limits = load.limits;
        load.watch.on_load(&limits, Some(&own), ASKED_EVERY, now);
        let crossing = load.watch.crossing();
        // Those that wait for a change are woken by one, and not by each sample.
        let changed = self.crossing.send_if_modified(|before| {
            let changed = before.is_some() != crossing.is_some();
            *before = crossing;
            changed
        });
        match crossing.filter(|_| changed) {
            Some(crossing) => Some(("soft_limit_crossed", crossing.to_string())),
            None if changed => {
                let text = "over no soft limit any more".to_owned();
                Some(("soft_limit_cleared", text))
            }
            None => None,
        }
    }

    /// Why balancers are to send less, in a few words: a service that fails, or a soft limit that is crossed.
    fn trouble(&self) -> Option<String> {
        let services = self.lock().services.clone();
        let crossing = || self.crossing.borrow().map(|it| it.to_string());
        services.failing().or_else(crossing)
    }

    fn lock(&self) -> MutexGuard<'_, Load> {
        self.load.lock().unwrap_or_else(PoisonError::into_inner)
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
        tokio::spawn(agent_check::serve(door, report, load.clone()));
    }
    if let Some(listen_at) = reports.metrics {
        let (listener, at) = listen("metrics", listen_at)?;
        said.push(format!("Metrics are at http://{at}/metrics."));
        let door = Door::new(listener, allow);
        tokio::spawn(metrics::serve(door, load.clone()));
    }
    if let Some(report) = reports.orca {
        let (listener, at) = listen("orca", report.listen)?;
        said.push(format!("ORCA reports are streamed at {at}."));
        let door = Door::new(listener, allow);
        tokio::spawn(orca::serve(door, report, load.clone()));
    }
    if let Some(report) = &reports.heartbeat {
        let to: Vec<_> = report.to.iter().map(ToString::to_string).collect();
        said.push(format!("Heartbeats go to {}.", to.join(", ")));
        let heartbeats = Heartbeats::new(report, load.clone())?;
        tokio::spawn(heartbeats.run(output));
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
