//! What every part of a worker uses of it: its settings, the clock, what is known of the cluster, and where it
//! counts and logs. None of it knows of connections or requests.

mod clock;
mod cluster;
mod drain;
mod removal;
mod settings;
mod wake_up;

use std::rc::Rc;
use std::sync::Arc;

use tidegate_core::time::{Timestamp, nanos};
use tidegate_core::topology::SiteId;
use tokio::sync::Notify;

pub use clock::TICK;
pub(crate) use clock::{Clock, Ticks};
pub(crate) use cluster::Cluster;
pub(crate) use drain::Drain;
pub(crate) use removal::Removal;
pub(crate) use settings::Settings;
pub use wake_up::{Sleep, WakeUp};

use crate::config::requests::RequestConfig;
use crate::record::WorkerRecord;
use crate::record::stats::WorkerStats;
use crate::wire::inflow::Scratch;

/// See the module.
pub(crate) struct WorkerBase {
    /// What requests are served by from now on; those of a connection are its own.
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) cluster: Cluster,
    pub(crate) record: WorkerRecord,
    pub(crate) drain: Drain,
    pub(crate) scratch: Rc<Scratch>,
    /// A request rests that has held room at its node: others may have it.
    pub(crate) room_made: Notify,
}

impl WorkerBase {
    pub(crate) fn new(
        requests: Arc<RequestConfig>,
        clock: fn() -> Timestamp,
        cluster: Cluster,
        record: WorkerRecord,
    ) -> Self {
        Self {
            settings: Settings::new(requests),
            clock: Clock::new(clock),
            cluster,
            record,
            drain: Drain::default(),
            scratch: Rc::default(),
            room_made: Notify::new(),
        }
    }

    pub(crate) fn stats(&self) -> &Arc<WorkerStats> {
        self.record.stats()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The present tick.
    pub(crate) fn tick(&self) -> u64 {
        self.clock.tick()
    }

    /// The tick at which so many ticks have passed whole.
    pub(crate) fn due(&self, ticks: u64) -> u64 {
        self.clock.due(ticks)
    }

    /// Ticks after which a request of the site that has no answer is overdue.
    pub(crate) fn overdue(&self, site: SiteId) -> u64 {
        let after = self.cluster.picker.borrow().overdue_after(site);
        nanos(after).div_ceil(nanos(TICK))
    }
}
