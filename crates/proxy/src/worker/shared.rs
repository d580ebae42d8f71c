//! What the data plane shares with the control plane.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use tidegate_core::load::LoadTable;
use tidegate_core::topology::Topology;
use tokio::sync::Notify;

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
    pub wake_up: WakeUp,
    /// Which classes of requests are slowed, and how.
    pub throttles: Arc<Throttling>,
    /// The test of a class that is suspected of a resource's load, if one runs.
    pub delay_experiments: Arc<DelayExperiments>,
    /// Loads that nodes report with their responses.
    pub load_reports: Arc<LoadReports>,
    /// What the workers count; made for as many workers as the configuration says.
    pub stats: Arc<Stats>,
}

/// What wakes a thread that rests until something happens. While it is awake this costs a look.
#[derive(Default)]
pub struct WakeUp {
    /// How deep it sleeps, as a [`Sleep`].
    sleep: AtomicU8,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// How deep a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Sleep {
    /// A request that waits or fails wakes it.
    Light = 1,
    /// Each request does.
    Deep = 2,
}

impl WakeUp {
    /// This wakes it from now on; the first one to say how is heard.
    pub fn set(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.wake.set(Box::new(wake)).ok();
    }

    /// The thread is about to sleep, and wants to be woken once.
    pub fn arm(&self, sleep: Sleep) {
        self.sleep.store(sleep as u8, Ordering::SeqCst);
    }

    /// A request waits, or has failed.
    pub(crate) fn on_trouble(&self) {
        self.wake_from(Sleep::Light);
    }

    /// A request has come.
    #[inline]
    pub(crate) fn on_request(&self) {
        self.wake_from(Sleep::Deep);
    }

    #[inline]
    fn wake_from(&self, least: Sleep) {
        if self.sleep.load(Ordering::Relaxed) >= least as u8 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        if self.sleep.swap(0, Ordering::SeqCst) > 0
            && let Some(wake) = self.wake.get()
        {
            wake();
        }
    }
}

impl fmt::Debug for WakeUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WakeUp").finish_non_exhaustive()
    }
}

impl Shared {
    /// Workers decide by this topology from their next request or tick on. What it names has room in all tables.
    pub fn publish(&self, topology: Arc<Topology>) {
        self.stats
            .reserve(topology.sites.len(), topology.nodes.len());
        self.topology.store(topology);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn a_thread_is_woken_once_by_what_its_sleep_lets_through() {
        let wake_up = WakeUp::default();
        // Nothing is woken before something says how.
        wake_up.arm(Sleep::Deep);
        wake_up.on_request();
        let woken = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&woken);
        wake_up.set(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let woken = || woken.load(Ordering::Relaxed);
        wake_up.on_trouble();
        assert_eq!(woken(), 0, "it is awake");
        wake_up.arm(Sleep::Light);
        wake_up.on_request();
        assert_eq!(woken(), 0, "a request alone does not wake it");
        wake_up.on_trouble();
        wake_up.on_trouble();
        assert_eq!(woken(), 1);
        wake_up.arm(Sleep::Deep);
        wake_up.on_request();
        wake_up.on_request();
        assert_eq!(woken(), 2);
        wake_up.arm(Sleep::Deep);
        wake_up.on_trouble();
        assert_eq!(woken(), 3);
    }
}
