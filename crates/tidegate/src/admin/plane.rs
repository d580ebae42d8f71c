//! What the admin interface looks at: shared views of a running front-end, and the window of
//! the last seconds.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tidegate_core::load::LoadTable;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{SiteSpec, Topology};
use tidegate_proxy::{Snapshot, Stats};

use crate::driver::{DriverStats, Orders};
use crate::reads::Reads;

/// Age at which the window begins anew; it is one to two of these long.
pub(crate) const WINDOW: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub(crate) struct Plane {
    /// The process's clock.
    pub(crate) clock: fn() -> Timestamp,
    /// When the front-end started.
    pub(crate) started: Timestamp,
    /// Where clients connect.
    pub(crate) listeners: Vec<SocketAddr>,
    /// The sites as configured; the topology does not keep their hosts.
    pub(crate) sites: Vec<SiteSpec>,
    /// Loads and outcomes.
    pub(crate) table: Arc<LoadTable>,
    /// Who serves what.
    pub(crate) topology: Arc<ArcSwap<Topology>>,
    /// The data plane's counters.
    pub(crate) stats: Arc<Stats>,
    /// How loads are read.
    pub(crate) reads: Arc<Reads>,
    /// The driver's ear.
    pub(crate) orders: Orders,
    /// The driver's counters.
    pub(crate) driver: Arc<DriverStats>,
    /// Told to stop; requests in flight end by themselves.
    pub(crate) draining: AtomicBool,
    /// Counters of some seconds ago.
    pub(crate) window: Mutex<Window>,
}

/// Two earlier snapshots: what happened since the older one is "the last seconds".
#[derive(Debug)]
pub(crate) struct Window {
    older: (Timestamp, Arc<Snapshot>),
    newer: (Timestamp, Arc<Snapshot>),
}

impl Window {
    /// A window that begins now.
    pub(crate) fn new(now: Timestamp, snapshot: Snapshot) -> Self {
        let snapshot = Arc::new(snapshot);
        Self {
            older: (now, Arc::clone(&snapshot)),
            newer: (now, snapshot),
        }
    }

    /// Moves on, if it is time to.
    fn turn(&mut self, now: Timestamp, snapshot: &Arc<Snapshot>) {
        if now.since(self.newer.0) >= WINDOW {
            let newer = (now, Arc::clone(snapshot));
            self.older = std::mem::replace(&mut self.newer, newer);
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
    /// Length of the window in seconds.
    pub(crate) seconds: f64,
}

impl Plane {
    /// Reads all counters.
    pub(crate) fn look(&self) -> Look {
        let snapshot = Arc::new(self.stats.snapshot());
        let now = (self.clock)();
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let (begin, earlier) = (window.older.0, Arc::clone(&window.older.1));
        window.turn(now, &snapshot);
        Look {
            now,
            snapshot,
            earlier,
            seconds: now.since(begin).as_secs_f64(),
        }
    }

    /// Whether it is told to stop.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Whether it takes requests that some node could serve.
    pub(crate) fn is_ready(&self) -> bool {
        let topology = self.topology.load();
        let served = topology
            .sites
            .iter()
            .any(|site| !site.candidates.is_empty());
        served && !self.is_draining()
    }
}
