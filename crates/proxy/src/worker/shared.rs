//! What the data plane shares with the control plane.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tidegate_core::load::LoadTable;
use tidegate_core::topology::Topology;
use tokio::sync::Notify;

use crate::base::WakeUp;
use crate::gate::delay::DelayExperiments;
use crate::gate::throttle::Throttling;
use crate::record::stats::Stats;
use crate::worker::load_reports::LoadReports;

/// See the module.
#[derive(Debug)]
pub struct Shared {
    /// What is known of the nodes' load.
    pub table: Arc<LoadTable>,
    /// Which nodes serve which sites. Workers take a new one over with their next request.
    pub topology: Arc<ArcSwap<Topology>>,
    /// To be notified when a request that waits may find room that another worker left. Requests of a worker are
    /// looked at in any case when another of its requests ends, and when their time is up.
    pub room_freed: Arc<Notify>,
    /// Wakes the control plane from its sleep when a request comes, waits or fails.
    pub wake_up: Arc<WakeUp>,
    /// To be notified when workers have something new to follow: one that rests does so at once.
    pub news: Arc<Notify>,
    /// Which classes of requests are slowed, and how.
    pub throttles: Arc<Throttling>,
    /// The test of a class that is suspected of a resource's load, if one runs.
    pub delay_experiments: Arc<DelayExperiments>,
    /// Loads that nodes report with their responses.
    pub load_reports: Arc<LoadReports>,
    /// What the workers count; made for as many workers as the configuration says.
    pub stats: Arc<Stats>,
}

impl Shared {
    /// Workers decide by this topology from their next request or tick on. What it names has room in all tables.
    pub fn publish(&self, topology: Arc<Topology>) {
        self.stats
            .reserve(topology.sites.len(), topology.nodes.len());
        self.topology.store(topology);
        self.news.notify_waiters();
    }
}
