//! How soon the next record is wanted. Pure: times and counts come in.
//!
//! ```text
//! gap      = time between two reads, of those since the record before; or time since the last one, if that is longer
//! interval = gap / 2, not shorter than the set one and not longer than a rest
//! ```
//!
//! A front-end reads as often as its decisions can use it, so a record that is half as old as its reads are apart is young enough.
//! From [`WAKE_FROM`] on the next read ends the wait, so that the second read after a long silence finds a new record.
//!
//! Failure case: reads that the kernel answers are not among those that are counted; there the rest is as short as
//! before. Source: our own; decision 058 says what is known of it.

use std::time::Duration;

use tidegate_core::time::Timestamp;

/// Longest interval where no front-end reads.
pub(crate) const REST: Duration = Duration::from_millis(100);
/// An interval that a read ends early.
pub(crate) const WAKE_FROM: Duration = Duration::from_millis(10);

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demand {
    reads: u64,
    /// When the count was last seen to have grown.
    read_at: Timestamp,
    gap: Duration,
}

impl Demand {
    /// Takes in how many reads there were by now; how long the next record may be away.
    pub(crate) fn interval(
        &mut self,
        now: Timestamp,
        reads: u64,
        shortest: Duration,
        rest: Duration,
    ) -> Duration {
        let since = now.since(self.read_at);
        match reads.saturating_sub(self.reads) {
            0 => self.gap = self.gap.max(since),
            new => {
                self.gap = since / u32::try_from(new).unwrap_or(u32::MAX);
                self.read_at = now;
            }
        }
        self.reads = reads;
        (self.gap / 2).clamp(shortest, rest.max(shortest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    /// Records at the moments that come out, with a read each `gap` ms for `millis`: the intervals.
    fn records(demand: &mut Demand, from: u64, gap: u64, millis: u64) -> Vec<u64> {
        let mut intervals = Vec::new();
        let (mut now, before) = (from, demand.reads);
        while now < from + millis {
            let reads = match gap {
                0 => before,
                gap => before + (now - from) / gap + 1,
            };
            let at = Timestamp::from_millis(now);
            let interval = demand.interval(at, reads, MILLI, REST).as_millis() as u64;
            intervals.push(interval);
            now += interval;
        }
        intervals
    }

    #[test]
    fn records_are_half_as_far_apart_as_reads_are() {
        let mut demand = Demand::default();
        for (gap, expected) in [(1, 1), (2, 1), (20, 10), (100, 50)] {
            let from = demand.read_at.nanos() / 1_000_000 + 1000;
            let intervals = records(&mut demand, from, gap, 3000);
            let late = &intervals[intervals.len() / 2..];
            let mean = late.iter().sum::<u64>() / late.len() as u64;
            assert!(
                mean >= expected && mean <= expected + expected / 2,
                "{gap}: {late:?}"
            );
        }
    }

    #[test]
    fn without_reads_it_rests_and_the_second_read_ends_that() {
        let mut demand = Demand::default();
        records(&mut demand, 1000, 1, 100);
        let silent = records(&mut demand, 1100, 0, 2000);
        assert!(silent.is_sorted());
        assert_eq!(silent.last(), Some(&100));
        // By then it has made fewer records than in 30 ms before.
        assert!(silent.len() < 50, "{silent:?}");
        let reads = demand.reads;
        let mut read =
            |ms, count| demand.interval(Timestamp::from_millis(ms), reads + count, MILLI, REST);
        assert_eq!(read(5000, 1), REST);
        assert_eq!(read(5001, 2), MILLI);
    }

    #[test]
    fn neither_bound_is_left() {
        let mut demand = Demand::default();
        let slow = Duration::from_secs(1);
        let at = Timestamp::from_millis;
        assert_eq!(demand.interval(at(1), 1000, MILLI, REST), MILLI);
        assert_eq!(demand.interval(at(2), 5000, slow, REST), slow);
        // A count that begins anew is no read.
        assert_eq!(demand.interval(at(90_000), 0, MILLI, REST), REST);
    }
}
