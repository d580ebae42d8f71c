//! How often each source is read.
//!
//! Every source has its own period, so that an interval of a millisecond stays cheap, and none
//! may cost more than its share: a source that turns out to be slow on this machine (many CPUs,
//! many interrupts, many tasks) is read less often, by its own measured cost.

use std::time::Duration;

use tidegate_core::time::Timestamp;
use tidegate_remote::clock;

/// A source rests this many times as long as a read of it takes: at most 1 % of one CPU each.
const REST: u32 = 100;
/// A dearer read's weight in the running mean of the cost: 1/8. A cheaper one's is 1/2, because
/// interrupts and cold caches make a read dearer, and nothing makes it cheaper than it is.
const DEARER: u32 = 8;
const CHEAPER: u32 = 2;
/// A read counts for no more than this many times the mean, for the same reason.
const OUTLIER: u32 = 4;
/// Periods longer than this are not made even for the slowest source.
const PERIOD_MAX: Duration = Duration::from_secs(10);

/// A read that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BegunRead {
    now: Timestamp,
    used: Duration,
}

/// When a source is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    base: Duration,
    offset: Duration,
    cost: Duration,
    due_at: Timestamp,
}

impl Pace {
    /// A source that is due at once and then each `base`. Sources with different `phase`s
    /// (sixteenths of the period) do not fall due in the same sample for ever.
    pub(crate) fn new(base: Duration, phase: u32) -> Self {
        Self {
            base,
            offset: base * phase.min(16) / 16,
            cost: Duration::ZERO,
            due_at: Timestamp::ZERO,
        }
    }

    /// Another period from the next read on.
    pub(crate) fn set_base(&mut self, base: Duration) {
        self.base = base;
    }

    /// A turn, if it is time.
    pub(crate) fn begin(&self, now: Timestamp) -> Option<BegunRead> {
        self.due(now).then(|| BegunRead {
            now,
            used: clock::thread_time(),
        })
    }

    /// Ends a turn: its cost is the CPU time of the thread, not the time that passed, in which
    /// another task may have had the CPU.
    pub(crate) fn end(&mut self, turn: BegunRead) {
        self.done(turn.now, clock::thread_time().saturating_sub(turn.used));
    }

    fn due(&self, now: Timestamp) -> bool {
        now >= self.due_at
    }

    fn done(&mut self, now: Timestamp, cost: Duration) {
        let mean = self.cost;
        self.cost = if mean.is_zero() {
            cost
        } else if cost < mean {
            mean - (mean - cost) / CHEAPER
        } else {
            mean + (cost.min(mean * OUTLIER) - mean) / DEARER
        };
        self.due_at = now + self.period() + self.offset;
        self.offset = Duration::ZERO;
    }

    /// Time between two reads, as it stands.
    pub(crate) fn period(&self) -> Duration {
        self.base
            .max(self.cost.saturating_mul(REST).min(PERIOD_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(us: u64) -> Timestamp {
        Timestamp::from_nanos(us * 1000)
    }

    #[test]
    fn a_cheap_source_keeps_its_period() {
        let mut pace = Pace::new(Duration::from_millis(10), 0);
        assert!(pace.due(us(1)));
        pace.done(us(1000), Duration::from_micros(5));
        assert!(!pace.due(us(10_999)));
        assert!(pace.due(us(11_000)));
    }

    #[test]
    fn a_slow_source_is_read_less_often() {
        let mut pace = Pace::new(Duration::ZERO, 0);
        pace.done(us(0), Duration::from_micros(100));
        assert_eq!(pace.period(), Duration::from_millis(10));
        let mut endless = Pace::new(Duration::ZERO, 0);
        endless.done(us(0), Duration::from_secs(60));
        assert_eq!(endless.period(), PERIOD_MAX);
    }

    #[test]
    fn one_interrupted_read_does_not_make_a_source_slow() {
        let mut pace = Pace::new(Duration::ZERO, 0);
        for cost in [10, 10, 10_000, 10, 10] {
            pace.done(us(0), Duration::from_micros(cost));
        }
        assert!(pace.period() < Duration::from_millis(2), "{pace:?}");
        for _ in 0..40 {
            pace.done(us(0), Duration::from_micros(100));
        }
        assert!(pace.period() > Duration::from_millis(9), "{pace:?}");
    }

    #[test]
    fn phases_part_sources_of_one_period() {
        let mut first = Pace::new(Duration::from_millis(16), 0);
        let mut second = Pace::new(Duration::from_millis(16), 3);
        for pace in [&mut first, &mut second] {
            pace.done(us(0), Duration::from_micros(1));
        }
        assert!(first.due(us(16_000)) && !second.due(us(18_999)));
        assert!(second.due(us(19_000)));
        second.done(us(19_000), Duration::from_micros(1));
        assert!(second.due(us(35_000)));
    }
}
