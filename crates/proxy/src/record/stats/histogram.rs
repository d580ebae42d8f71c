//! Log-linear histograms of durations: fixed buckets, one writer, any number of readers, and
//! histograms of several workers add up.
//!
//! A duration is taken in whole microseconds. Below 16 µs each microsecond has its bucket; above,
//! each power of two is cut into 16, so a bucket is at most 1/16 wide: a quantile read from it is
//! at most 6.25 % too high. The last bucket also holds whatever is longer than 19 hours.

use std::time::Duration;

use super::counter::Counter;

const SUB_BITS: u32 = 4;
const SUBS: usize = 1 << SUB_BITS;
/// Powers of two that are cut up: 2^4 to 2^35 µs.
const POWERS: usize = 32;
const BUCKETS: usize = SUBS + POWERS * SUBS;

fn bucket(micros: u64) -> usize {
    if micros < SUBS as u64 {
        return micros as usize;
    }
    let power = 63 - micros.leading_zeros();
    let sub = (micros >> (power - SUB_BITS)) as usize & (SUBS - 1);
    let index = (power - SUB_BITS + 1) as usize * SUBS + sub;
    index.min(BUCKETS - 1)
}

/// The first microsecond behind the bucket.
fn upper(bucket: usize) -> u64 {
    let (row, sub) = (bucket / SUBS, bucket as u64 % SUBS as u64);
    match row {
        0 => sub + 1,
        row => (SUBS as u64 + sub + 1) << (row - 1),
    }
}

/// The writer's side.
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: Box<[Counter; BUCKETS]>,
    sum_micros: Counter,
}

/// A duration and its bucket, for histograms that count the same one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    micros: u64,
    bucket: usize,
}

impl Sample {
    pub(crate) fn of(micros: u64) -> Self {
        Self {
            micros,
            bucket: bucket(micros),
        }
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: Box::new([const { Counter::new() }; BUCKETS]),
            sum_micros: Counter::new(),
        }
    }
}

impl Histogram {
    /// Counts a duration.
    pub(crate) fn record(&self, micros: u64) {
        self.add(Sample::of(micros));
    }

    /// Counts a duration whose bucket is known.
    pub(crate) fn add(&self, sample: Sample) {
        self.buckets[sample.bucket].add(1);
        self.sum_micros.add(sample.micros);
    }

    /// How many durations were counted.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().map(Counter::get).sum()
    }

    /// Begins anew.
    pub(crate) fn clear(&self) {
        self.buckets.iter().for_each(Counter::clear);
        self.sum_micros.clear();
    }

    /// Adds what was counted so far to `total`.
    pub(crate) fn add_to(&self, total: &mut HistogramSnapshot) {
        for (total, bucket) in total.counts.iter_mut().zip(&*self.buckets) {
            *total += bucket.get();
        }
        total.sum_micros += self.sum_micros.get();
    }
}

/// What a histogram held at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramSnapshot {
    counts: Vec<u64>,
    sum_micros: u64,
}

impl Default for HistogramSnapshot {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            sum_micros: 0,
        }
    }
}

impl HistogramSnapshot {
    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum, in seconds.
    pub fn sum_seconds(&self) -> f64 {
        self.sum_micros as f64 * 1e-6
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &Self) {
        for (total, count) in self.counts.iter_mut().zip(&other.counts) {
            *total += count;
        }
        self.sum_micros += other.sum_micros;
    }

    /// What was counted since `earlier`, a former snapshot of the same.
    pub fn since(&self, earlier: &Self) -> Self {
        let pairs = self.counts.iter().zip(&earlier.counts);
        Self {
            counts: pairs.map(|(now, then)| now.saturating_sub(*then)).collect(),
            sum_micros: self.sum_micros.saturating_sub(earlier.sum_micros),
        }
    }

    /// The duration that a share `quantile` of all does not exceed, in seconds; None if nothing
    /// was counted.
    pub fn quantile_seconds(&self, quantile: f64) -> Option<f64> {
        let count = self.count();
        let rank = ((quantile * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        for (index, bucket) in self.counts.iter().enumerate() {
            seen += bucket;
            if seen >= rank {
                return Some(upper(index) as f64 * 1e-6);
            }
        }
        None
    }

    /// How many durations were below `bound`, to within a bucket's width.
    pub fn count_below(&self, bound: Duration) -> u64 {
        let micros = bound.as_nanos() as u64 / 1000;
        let whole = self.counts.iter().enumerate();
        whole
            .take_while(|(index, _)| upper(*index) <= micros)
            .map(|(_, count)| count)
            .sum()
    }

    /// Buckets that hold something: upper bound in seconds, and count.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let all = self.counts.iter().enumerate();
        all.filter(|(_, count)| **count > 0)
            .map(|(index, count)| (upper(index) as f64 * 1e-6, *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(micros: impl IntoIterator<Item = u64>) -> HistogramSnapshot {
        let histogram = Histogram::default();
        for micros in micros {
            histogram.record(micros);
        }
        let mut total = HistogramSnapshot::default();
        histogram.add_to(&mut total);
        total
    }

    #[test]
    fn buckets_meet_without_gap_or_overlap() {
        let mut previous = 0;
        for micros in (0..100_000).chain((17..36).map(|power| (1 << power) - 1)) {
            let index = bucket(micros);
            assert!(index >= previous, "{micros}");
            assert!(micros < upper(index), "{micros}");
            assert!(index == 0 || micros >= upper(index - 1), "{micros}");
            previous = index;
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_quantile_is_at_most_a_sixteenth_too_high() {
        let histogram = recorded(1..=10_000);
        for percent in [1, 10, 50, 90, 99, 100] {
            let exact = f64::from(percent) * 100.0 * 1e-6;
            let read = histogram
                .quantile_seconds(f64::from(percent) / 100.0)
                .unwrap();
            assert!(read >= exact && read <= exact * 1.0626 + 1e-6, "p{percent}");
        }
        assert_eq!(histogram.count(), 10_000);
        assert!((histogram.sum_seconds() - 50.005).abs() < 1e-9);
        assert_eq!(recorded([]).quantile_seconds(0.5), None);
    }

    #[test]
    fn snapshots_add_up_and_subtract() {
        let (first, second) = (recorded([1, 100, 10_000]), recorded([5, 100]));
        let mut both = first.clone();
        both.merge(&second);
        assert_eq!(both.count(), 5);
        assert_eq!(both.since(&second), first);
        assert_eq!(both.count_below(Duration::from_micros(128)), 4);
        assert_eq!(both.buckets().map(|(_, count)| count).sum::<u64>(), 5);
    }
}
