//! The node's own load over the last seconds, for protocols that ask seldom.
//!
//! ```text
//! cpu, network ...   means between the oldest and the newest sample of the last WINDOW
//! memory, files      of the newest sample
//! ```
//!
//! Inputs: records of the sampler, in order. Failure case: what happens within the window does not show; front-ends that
//! read the record itself see it. Samples older than the window count where there is no younger one to compare with, so an
//! agent that samples seldom still has a mean.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_core::load::{NodeLoad, Rates};
use tidegate_core::record::LoadRecord;
use tidegate_core::time::nanos;

/// What means look back on: HAProxy asks its agents each two seconds.
const WINDOW: Duration = Duration::from_secs(2);
/// Between two samples that are kept, at least.
const SPACING: Duration = Duration::from_millis(90);

/// See the module.
#[derive(Debug, Default)]
pub struct OwnLoad {
    /// Oldest first; the last one is the newest, however near to the one before it.
    samples: VecDeque<LoadRecord>,
}

impl OwnLoad {
    /// Takes a sample in. One of another generation, or that is not later, begins anew.
    pub fn note(&mut self, record: &LoadRecord) {
        if let Some(newest) = self.samples.back() {
            if record.t_ns == newest.t_ns && record.generation == newest.generation {
                return;
            }
            if record.generation != newest.generation || record.t_ns < newest.t_ns {
                self.samples.clear();
            }
        }
        let mut newest = self.samples.iter().rev();
        if let (Some(last), Some(before)) = (newest.next(), newest.next())
            && last.t_ns - before.t_ns < nanos(SPACING)
        {
            self.samples.pop_back();
        }
        self.samples.push_back(*record);
        let since = record.t_ns.saturating_sub(nanos(WINDOW));
        // The second one is old enough: the first is not needed.
        while self.samples.get(1).is_some_and(|it| it.t_ns <= since) {
            self.samples.pop_front();
        }
    }

    /// The newest sample.
    pub fn newest(&self) -> Option<&LoadRecord> {
        self.samples.back()
    }

    /// Means over the window; none before the second sample.
    pub fn rates(&self) -> Option<Rates> {
        Rates::between(self.samples.front()?, self.samples.back()?)
    }

    /// What is known of the load. What is not known is NaN.
    pub fn load(&self) -> NodeLoad {
        self.newest().map_or(NodeLoad::UNKNOWN, |newest| {
            NodeLoad::of_record(newest, |_| self.rates())
        })
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::record::Sources;

    use super::*;

    fn at(ms: u64, busy_ms: u64) -> LoadRecord {
        let sources = Sources::BUSY_ACCT
            .with(Sources::MEMORY)
            .with(Sources::FILES);
        LoadRecord {
            generation: 1,
            t_ns: ms * 1_000_000,
            busy_ns: busy_ms * 1_000_000,
            cores_milli: 2000,
            memory_total: 100,
            memory_available: 40,
            files_open: 10,
            files_max: 100,
            sources,
            ..LoadRecord::default()
        }
    }

    #[test]
    fn a_mean_is_over_the_last_two_seconds_and_the_rest_is_of_now() {
        let mut own = OwnLoad::default();
        assert!(own.load().utilization.is_nan());
        // Idle for three seconds, then one CPU of two.
        for tick in 0..=50_u64 {
            own.note(&at(tick * 100, tick.saturating_sub(30) * 100));
        }
        let load = own.load();
        assert!((load.utilization - 0.5).abs() < 1e-3, "{load:?}");
        assert_eq!((load.memory, load.files), (0.6, 0.1));
        assert_eq!(own.rates().unwrap().window, WINDOW);
    }

    #[test]
    fn samples_each_millisecond_take_no_more_room() {
        let mut own = OwnLoad::default();
        for ms in 0..5000 {
            own.note(&at(ms, ms));
        }
        assert!(own.samples.len() < 30, "{}", own.samples.len());
        assert_eq!(own.newest().unwrap().t_ns, 4999 * 1_000_000);
        assert!((own.load().utilization - 0.5).abs() < 1e-3);
    }

    #[test]
    fn samples_at_long_intervals_have_a_mean_too() {
        let mut own = OwnLoad::default();
        own.note(&at(0, 0));
        own.note(&at(10_000, 10_000));
        own.note(&at(20_000, 20_000));
        assert!((own.load().utilization - 0.5).abs() < 1e-3);
        assert_eq!(own.samples.len(), 2);
    }

    #[test]
    fn another_generation_and_a_clock_that_goes_back_begin_anew() {
        let mut own = OwnLoad::default();
        own.note(&at(1000, 1000));
        own.note(&at(900, 10));
        assert!(own.rates().is_none());
        let other = LoadRecord {
            generation: 2,
            ..at(2000, 0)
        };
        own.note(&other);
        assert!(own.rates().is_none() && own.newest() == Some(&other));
    }
}
