//! What the admin interface looks at: shared views of a running front-end, and the window of
//! the last seconds.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tidegate_core::load::Counters;
use tidegate_core::throttle::ClassPattern;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::NodeId;
use tidegate_culprits::names::ClassNames;
use tidegate_proxy::{Shared, Snapshot};

use super::history::Recorder;
use crate::acme::Certificates;
use crate::check::Checks;
use crate::discovery::book::SourceBook;
use crate::driver::{DriverStats, Overrides};
use crate::moves;
use crate::otlp::Exporter;
use crate::output::Output;
use crate::overrides_file::OverridesFile;
use crate::reads::Reads;
use crate::reload::{LiveCluster, Specs};
use crate::resources::Resources;
use crate::upgrade::Desk;
use tidegate_culprits::live::{Asks, Finding};

/// The window of the last seconds is one to two of these long.
pub(crate) const WINDOW: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub(crate) struct Plane {
    /// Exports traces.
    pub(crate) traces: Arc<Exporter>,
    /// The process's clock.
    pub(crate) clock: fn() -> Timestamp,
    /// When the front-end started.
    pub(crate) started: Timestamp,
    /// Where clients connect.
    pub(crate) listeners: Arc<ArcSwap<Vec<SocketAddr>>>,
    /// The sites as configured.
    pub(crate) sites: Specs,
    /// What changes the cluster; none if it stays as it is.
    pub(crate) cluster: Option<Arc<LiveCluster>>,
    /// What is known of sources of nodes.
    pub(crate) sources: Arc<SourceBook>,
    /// Certificates that come by themselves.
    pub(crate) certificates: Arc<Certificates>,
    /// Loads, topology and counters of the data plane.
    pub(crate) shared: Arc<Shared>,
    /// How loads are read.
    pub(crate) reads: Arc<Reads>,
    /// What became of checks.
    pub(crate) checks: Arc<Checks>,
    /// The classes that the configuration names.
    pub(crate) names: ClassNames,
    /// Where overrides of classes are kept.
    pub(crate) overrides_file: OverridesFile,
    /// Nodes that serve nothing, and their loads.
    pub(crate) resources: Arc<Resources>,
    /// What watches for culprits; none if that is switched off.
    pub(crate) culprits: Option<Asks>,
    /// The driver's ear.
    pub(crate) overrides: Overrides,
    /// The driver's counters.
    pub(crate) driver: Arc<DriverStats>,
    /// Asked to stop; requests in flight end by themselves.
    pub(crate) draining: AtomicBool,
    /// Where moves are asked for; none if no node moves.
    pub(crate) moves: Option<moves::Desk>,
    /// Where an upgrade is asked for.
    pub(crate) upgrades: Desk,
    /// Another process has taken over: to clients of this interface nothing changes but the connection.
    pub(crate) is_succeeded: AtomicBool,
    /// Where events go, and are kept.
    pub(crate) output: Output,
    /// Counters of some seconds ago.
    pub(crate) window: Mutex<Window>,
}

/// Two earlier moments: what happened since the older one is "the last seconds". And what happened before.
#[derive(Debug)]
pub(crate) struct Window {
    older: Moment,
    newer: Moment,
    pub(super) recorder: Recorder,
}

/// What had been counted at a moment.
#[derive(Clone, Debug)]
struct Moment {
    at: Timestamp,
    snapshot: Arc<Snapshot>,
    nodes: NodeCounters,
    resources: NodeCounters,
}

/// Counters of the nodes themselves, by their numbers; none of those whose load was not read.
pub(super) type NodeCounters = Arc<[Option<Counters>]>;

impl Window {
    /// A window that begins now.
    pub(crate) fn new(now: Timestamp, snapshot: Snapshot) -> Self {
        let began = Moment {
            at: now,
            snapshot: Arc::new(snapshot),
            nodes: Arc::default(),
            resources: Arc::default(),
        };
        Self {
            recorder: Recorder::new(Arc::clone(&began.snapshot)),
            older: began.clone(),
            newer: began,
        }
    }
}

/// The counters now, and those at the window's begin.
#[derive(Debug)]
pub(crate) struct Look {
    /// When.
    pub(crate) now: Timestamp,
    /// The counters.
    pub(crate) snapshot: Arc<Snapshot>,
    /// The counters at the begin of the window.
    pub(crate) earlier: Arc<Snapshot>,
    /// Counters of the nodes themselves at that time.
    pub(super) earlier_nodes: NodeCounters,
    /// The same of resources.
    pub(super) earlier_resources: NodeCounters,
    /// Length of the window in seconds.
    pub(crate) seconds: f64,
}

/// The use of a node's CPUs over the last seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecentCpu {
    /// Used share; none before the node was counted for that long.
    pub(super) used: Option<f32>,
    /// Whether the node counts it.
    pub(super) is_counted: bool,
}

impl RecentCpu {
    /// Of the node at this place, whose counters are these now.
    pub(super) fn since(then: &NodeCounters, place: usize, now: Option<Counters>) -> Self {
        let earlier = then.get(place).and_then(Option::as_ref);
        let used = now.zip(earlier).and_then(|(now, then)| now.cpu_since(then));
        Self {
            used,
            is_counted: now.is_some_and(|it| it.busy_ns.is_some()),
        }
    }
}

impl Plane {
    /// Whether a throttle of this pattern is for the class that discovery found.
    pub(crate) fn is_covered(&self, finding: &Finding, by: &ClassPattern) -> bool {
        let own = finding.pattern.as_deref();
        let own = own.and_then(|own| self.names.pattern(own).ok());
        own.is_some_and(|own| by.covers(&own))
    }

    /// Reads all counters.
    pub(crate) fn look(&self) -> Look {
        let snapshot = Arc::new(self.shared.stats.snapshot());
        let now = (self.clock)();
        let window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let older = &window.older;
        Look {
            now,
            snapshot,
            earlier: Arc::clone(&older.snapshot),
            earlier_nodes: Arc::clone(&older.nodes),
            earlier_resources: Arc::clone(&older.resources),
            seconds: now.since(older.at).as_secs_f64(),
        }
    }

    /// Counters of the nodes themselves, as they were read last.
    pub(super) fn node_counters(&self) -> NodeCounters {
        let table = &self.shared.table;
        let ids = (0..table.nodes()).map(|number| NodeId(number as u32));
        ids.map(|id| table.counters(id)).collect()
    }

    /// Used share of a node's CPUs since then; none where that was not counted.
    pub(super) fn cpu_since(&self, then: &NodeCounters, node: NodeId) -> Option<f32> {
        let now = self.shared.table.counters(node);
        RecentCpu::since(then, node.index(), now).used
    }

    /// Moves the window on; to be done every [`WINDOW`], or the last seconds grow long.
    pub(crate) fn turn_window(&self) {
        let newer = Moment {
            at: (self.clock)(),
            snapshot: Arc::new(self.shared.stats.snapshot()),
            nodes: self.node_counters(),
            resources: self.resources.counters_of_all(),
        };
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        window.older = std::mem::replace(&mut window.newer, newer);
    }

    /// Whether it is asked to stop.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Whether it takes requests that some node could serve.
    pub(crate) fn is_ready(&self) -> bool {
        let topology = self.shared.topology.load();
        let served = topology
            .sites
            .iter()
            .any(|site| !site.candidates.is_empty());
        served && !self.is_draining()
    }
}
