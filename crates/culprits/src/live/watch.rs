//! The thread of discovery: what it is made from, and how it begins and ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use tidegate_core::classes::Pattern;
use tidegate_core::load::LoadTable;
use tidegate_core::throttle::AutoConfig;
use tidegate_core::topology::Topology;

use super::asks::{Ask, Asks};
use super::front_end::{
    Clocks, DelayExperiments, EventLog, KeptFile, RequestEvents, ResourceNodes, Throttles,
};
use super::handed_over::HandedOver;
use super::running::Running;

/// Most questions that wait.
const ASKS_MAX: usize = 16;

/// What the thread is made from.
#[derive(Debug)]
pub struct WatchParts {
    /// What workers say of requests.
    pub events: Box<dyn RequestEvents>,
    /// Sites and nodes, as they are at each moment.
    pub topology: Arc<ArcSwap<Topology>>,
    /// The nodes' loads.
    pub table: Arc<LoadTable>,
    /// Nodes that are resources alone.
    pub resources: Arc<dyn ResourceNodes>,
    /// What slows classes.
    pub throttles: Box<dyn Throttles>,
    /// What delays half of a class's requests for a while.
    pub delay_experiments: Box<dyn DelayExperiments>,
    /// What the operator wants.
    pub settings: Settings,
    /// Where what was learned is kept; none: nowhere.
    pub kept: Option<Box<dyn KeptFile>>,
    /// What the process that this one succeeds knew.
    pub handed_over: HandedOver,
    /// Where it is said what was done.
    pub log: Arc<dyn EventLog>,
    /// The process's clocks.
    pub clocks: Clocks,
}

/// What the operator wants.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Classes with names of their own.
    pub patterns: Vec<Pattern>,
    /// Admin addresses of the other front-ends, at first.
    pub peers: Vec<SocketAddr>,
    /// What it does by itself.
    pub actions: Actions,
}

/// What discovery does by itself, and when. This changes while it runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Actions {
    /// Whether delay experiments separate classes that nothing else does.
    pub delay_experiments: bool,
    /// What others' requests shall take at most.
    pub slo: Duration,
    /// The bounds of what it does by itself, be it that culprits go last where requests wait; none: nothing.
    pub automatic: Option<AutoConfig>,
}

impl Actions {
    /// It does nothing.
    #[cfg(any(test, feature = "testing"))]
    pub(super) const NONE: Self = Self {
        delay_experiments: false,
        slo: Duration::from_secs(1),
        automatic: None,
    };
}

/// The running thread; dropping it stops and joins.
#[derive(Debug)]
pub struct Watch {
    asks: Asks,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts the thread.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn spawn(mut parts: WatchParts) -> std::io::Result<Self> {
        let (sender, receiver) = sync_channel(ASKS_MAX);
        let findings = Arc::new(ArcSwap::default());
        let kept = parts.kept.take();
        let costs = parts.handed_over.costs.take();
        let actions = Arc::new(ArcSwap::from_pointee(parts.settings.actions));
        let peers = Arc::new(ArcSwap::from_pointee(parts.settings.peers.clone()));
        let asks = Asks {
            sender,
            findings,
            actions,
            peers,
        };
        let mut running = Running::new(parts, &asks);
        let thread = std::thread::Builder::new()
            .name("culprits".into())
            .spawn(move || {
                running.remember(kept, costs.as_deref());
                running.run(&receiver);
            })?;
        Ok(Self {
            asks,
            thread: Some(thread),
        })
    }

    /// A handle to ask it.
    pub fn asks(&self) -> Asks {
        self.asks.clone()
    }

    /// Has what was learned so far kept; from now on it gets worse, since the front-end drains.
    pub fn keep(&self) {
        // Without the thread nothing is known.
        self.asks.sender.send(Ask::Keep).ok();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // A full channel empties within a tick, a closed one has no thread to stop.
        self.asks.sender.send(Ask::Stop).ok();
        if let Some(thread) = self.thread.take() {
            // Its panic stands on standard error already.
            thread.join().ok();
        }
    }
}
