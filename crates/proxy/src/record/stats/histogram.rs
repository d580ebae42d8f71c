//! Log-linear histograms of durations: fixed buckets, one writer, any number of readers, and
//! histograms of several workers add up.
//!
//! A duration is taken in whole microseconds. Below 16 µs each microsecond has its bucket; above,
//! each power of two is cut into 16, so a bucket is at most 1/16 wide: a quantile read from it is
//! at most 6.25 % too high. The last bucket also holds whatever is longer than 19 hours.
//!
//! Of the 33 rows of 16 buckets a node's durations touch a few. The writer marks those that it has touched; readers and
//! snapshots know of no others, so that looking at a thousand nodes is cheap.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::counter::Counter;

const SUB_BITS: u32 = 4;
const SUBS: usize = 1 << SUB_BITS;
/// Powers of two that are cut up: 2^4 to 2^35 µs.
const POWERS: usize = 32;
const BUCKETS: usize = SUBS + POWERS * SUBS;
/// A snapshot has a bit for each row.
const _: () = assert!(BUCKETS.div_ceil(SUBS) <= u64::BITS as usize);

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
    /// A bit for each row of buckets that holds something.
    rows: AtomicU64,
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
            rows: AtomicU64::new(0),
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
        let rows = self.rows.load(Ordering::Relaxed);
        let row = 1 << (sample.bucket / SUBS);
        if rows & row == 0 {
            // There is one writer.
            self.rows.store(rows | row, Ordering::Relaxed);
        }
    }

    /// How many durations were counted.
    pub(crate) fn count(&self) -> u64 {
        let rows = self.rows.load(Ordering::Relaxed);
        let touched = rows_of(rows).flat_map(|row| self.row(row));
        touched.map(Counter::get).sum()
    }

    /// Begins anew.
    pub(crate) fn clear(&self) {
        self.buckets.iter().for_each(Counter::clear);
        self.rows.store(0, Ordering::Relaxed);
        self.sum_micros.clear();
    }

    /// Adds what was counted so far to `total`.
    pub(crate) fn add_to(&self, total: &mut HistogramSnapshot) {
        let rows = self.rows.load(Ordering::Relaxed);
        total.widen(rows);
        for row in rows_of(rows) {
            let totals = total.row_mut(row).iter_mut();
            for (total, bucket) in totals.zip(self.row(row)) {
                *total += bucket.get();
            }
        }
        total.sum_micros += self.sum_micros.get();
    }

    fn row(&self, row: usize) -> &[Counter] {
        &self.buckets[row * SUBS..][..SUBS]
    }
}

/// What a histogram held at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// A bit for each row that is here.
    rows: u64,
    /// The buckets of these rows, one row after the other.
    counts: Vec<u64>,
    sum_micros: u64,
}

/// The rows whose bits are set.
fn rows_of(mut rows: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let row = rows.trailing_zeros() as usize;
        rows &= rows.checked_sub(1)?;
        Some(row)
    })
}

impl HistogramSnapshot {
    /// Makes room for these rows too.
    fn widen(&mut self, rows: u64) {
        let all = self.rows | rows;
        if all == self.rows {
            return;
        }
        let mut counts = vec![0; all.count_ones() as usize * SUBS];
        for (place, row) in rows_of(all).enumerate() {
            if let Some(own) = self.row(row) {
                counts[place * SUBS..][..SUBS].copy_from_slice(own);
            }
        }
        self.rows = all;
        self.counts = counts;
    }

    /// Where a row begins, if it is here.
    fn begin(&self, row: usize) -> Option<usize> {
        let bit = 1 << row;
        let before = (self.rows & (bit - 1)).count_ones() as usize;
        (self.rows & bit != 0).then_some(before * SUBS)
    }

    fn row(&self, row: usize) -> Option<&[u64]> {
        Some(&self.counts[self.begin(row)?..][..SUBS])
    }

    /// A row that is here; nothing otherwise.
    fn row_mut(&mut self, row: usize) -> &mut [u64] {
        match self.begin(row) {
            Some(begin) => &mut self.counts[begin..][..SUBS],
            None => &mut [],
        }
    }

    /// Each bucket that is here, by its number, and its count.
    fn counted(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let buckets = rows_of(self.rows).flat_map(|row| row * SUBS..(row + 1) * SUBS);
        buckets.zip(self.counts.iter().copied())
    }

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
        self.widen(other.rows);
        for row in rows_of(other.rows) {
            let counts = other.row(row).into_iter().flatten();
            for (total, count) in self.row_mut(row).iter_mut().zip(counts) {
                *total += count;
            }
        }
        self.sum_micros += other.sum_micros;
    }

    /// What was counted since `earlier`, a former snapshot of the same.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        for row in rows_of(self.rows) {
            let then = earlier.row(row).into_iter().flatten();
            for (count, then) in since.row_mut(row).iter_mut().zip(then) {
                *count = count.saturating_sub(*then);
            }
        }
        since.sum_micros = self.sum_micros.saturating_sub(earlier.sum_micros);
        since
    }

    /// The duration that a share `quantile` of all does not exceed, in seconds; None if nothing
    /// was counted.
    pub fn quantile_seconds(&self, quantile: f64) -> Option<f64> {
        let count = self.count();
        let rank = ((quantile * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        for (index, bucket) in self.counted() {
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
        self.counted()
            .take_while(|(index, _)| upper(*index) <= micros)
            .map(|(_, count)| count)
            .sum()
    }

    /// Buckets that hold something: upper bound in seconds, and count.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let all = self.counted().filter(|(_, count)| *count > 0);
        all.map(|(index, count)| (upper(index) as f64 * 1e-6, count))
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

    #[test]
    fn rows_that_one_has_and_the_other_has_not_are_where_they_belong() {
        let (short, long) = (recorded([3, 1000]), recorded([40, u64::MAX]));
        let bounds = |of: &HistogramSnapshot| of.buckets().collect::<Vec<_>>();
        let both = bounds(&recorded([3, 1000, 40, u64::MAX]));
        for (one, other) in [(&short, &long), (&long, &short)] {
            let mut sum = one.clone();
            sum.merge(other);
            assert_eq!(bounds(&sum), both);
            assert_eq!(bounds(&sum.since(other)), bounds(one));
            assert_eq!(bounds(&one.since(&sum)), []);
        }
        let histogram = Histogram::default();
        histogram.record(7);
        histogram.clear();
        let mut total = short.clone();
        histogram.add_to(&mut total);
        assert_eq!((histogram.count(), total), (0, short));
    }
}
