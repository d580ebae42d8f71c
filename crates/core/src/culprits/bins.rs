//! Where the requests of each class were, in bins of 100 ms.
//!
//! ```text
//! arrivals    one unit of mass per request, over the 100 ms after it was sent
//! ends        one unit of mass per request, over the 100 ms before it ended
//! progress    seconds in progress: the part of its life that lies in the bin
//! mass        one unit of mass per request, spread evenly over its life
//! completions requests that ended in the bin
//! ```
//!
//! Arrivals and ends are spread rather than counted, so that moving them by whole bins gives "the
//! 100 ms before the last" exactly, wherever in its bin a request ended.
//!
//! Inputs: requests, finished or not. A class costs 25 kB from its first request on; 200 classes 5 MB.
//! Failure case: what a request was longer ago than the ring is lost, with its mass.
//! Source: measured; 10 to 20 ms bins and 250 ms bins both find less, bins of a second half as much.

use std::ops::Range;

use crate::time::Timestamp;

/// Length of a bin, nanoseconds.
pub(super) const BIN_NS: i64 = 100_000_000;
/// Length of a bin, seconds.
pub(super) const BIN_SECONDS: f64 = 0.1;
/// Bins kept: the longest window of 120 s, and what is around it.
pub(super) const BINS: usize = 1280;
/// Bins before and after a window that its atoms reach into.
pub(super) const MARGIN: usize = 8;

const SERIES: usize = 5;
/// Shortest life that counts: a request sent and ended in one instant was still somewhere.
pub(super) const LIFE_MIN_NS: i64 = 100_000;

/// What a row consists of.
#[derive(Clone, Copy)]
enum Series {
    Arrivals,
    Ends,
    Progress,
    Mass,
    Completions,
}

/// A stretch of whole bins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// The first, counted from the clock's zero.
    pub(super) first: i64,
    /// How many.
    pub(super) bins: usize,
}

impl Window {
    /// So many bins that were over by `now`.
    pub(super) fn before(now: Timestamp, bins: usize) -> Self {
        let end = bin_of(now);
        Self {
            first: end - bins as i64,
            bins,
        }
    }

    pub(super) fn start_ns(self) -> i64 {
        self.first * BIN_NS
    }

    pub(super) fn end_ns(self) -> i64 {
        (self.first + self.bins as i64) * BIN_NS
    }

    pub(super) fn seconds(self) -> f64 {
        self.bins as f64 * BIN_SECONDS
    }
}

/// The bin that holds this moment.
pub(super) fn bin_of(at: Timestamp) -> i64 {
    signed(at) / BIN_NS
}

/// Nanoseconds since the clock's zero, as bins count them.
pub(super) fn signed(at: Timestamp) -> i64 {
    i64::try_from(at.nanos()).unwrap_or(i64::MAX / 4)
}

/// One class in a window and its margins.
#[derive(Clone, Debug, Default)]
pub(super) struct ClassSeries {
    pub(super) arrivals: Vec<f32>,
    pub(super) ends: Vec<f32>,
    pub(super) progress: Vec<f32>,
    pub(super) mass: Vec<f32>,
}

impl ClassSeries {
    /// What of the class was going on in the window itself.
    pub(super) fn progress_in(&self, window: Window) -> &[f32] {
        &self.progress[MARGIN..MARGIN + window.bins]
    }

    /// What of the class came in the window itself.
    pub(super) fn arrivals_in(&self, window: Window) -> &[f32] {
        &self.arrivals[MARGIN..MARGIN + window.bins]
    }

    /// What of the class's mass lies in the window itself.
    pub(super) fn mass_in(&self, window: Window) -> &[f32] {
        &self.mass[MARGIN..MARGIN + window.bins]
    }

    /// A request that has not ended; `life_ns` is how long it is thought to take, at least until now.
    pub(super) fn add_unfinished(&mut self, window: Window, sent: i64, now: i64, life_ns: i64) {
        let start = window.start_ns() - MARGIN as i64 * BIN_NS;
        let life = life_ns.max(LIFE_MIN_NS);
        spread(sent - start, sent + BIN_NS - start, 1.0, &mut self.arrivals);
        let seconds = (now - sent).max(0) as f64 * 1e-9;
        spread(sent - start, now - start, seconds, &mut self.progress);
        let part = (now - sent).max(0) as f64 / life as f64;
        spread(sent - start, now - start, part, &mut self.mass);
    }
}

/// Adds `mass`, spread evenly from one moment to another, nanoseconds from the first bin's start.
pub(super) fn spread(from: i64, to: i64, mass: f64, bins: &mut [f32]) {
    let end = bins.len() as i64 * BIN_NS;
    let (first, last) = (from.max(0), to.min(end));
    if first >= last {
        return;
    }
    let per_ns = mass / (to - from) as f64;
    for bin in first / BIN_NS..=(last - 1) / BIN_NS {
        let part = (last.min((bin + 1) * BIN_NS) - first.max(bin * BIN_NS)) as f64;
        bins[bin as usize] += (part * per_ns) as f32;
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Bins {
    /// The newest bin; those before it, as many as the ring holds, are known.
    newest: i64,
    rows: Vec<Option<Box<[f32]>>>,
}

impl Bins {
    /// For so many classes.
    pub(super) fn new(classes: usize) -> Self {
        Self {
            newest: 0,
            rows: vec![None; classes],
        }
    }

    /// A request has ended. False if it belongs to no class that there is room for.
    pub(super) fn add(&mut self, class: usize, sent: Timestamp, ended: Timestamp) -> bool {
        if class >= self.rows.len() {
            return false;
        }
        let (sent, ended) = (signed(sent), signed(ended));
        let ended = ended.max(sent.saturating_add(LIFE_MIN_NS));
        self.advance(ended.max(sent + BIN_NS) / BIN_NS);
        let newest = self.newest;
        let row =
            self.rows[class].get_or_insert_with(|| vec![0.0; SERIES * BINS].into_boxed_slice());
        let mut add = |series: Series, from: i64, to: i64, mass: f64| {
            add_to_ring(row, newest, series, from..to, mass);
        };
        add(Series::Arrivals, sent, sent + BIN_NS, 1.0);
        add(Series::Ends, ended - BIN_NS, ended, 1.0);
        add(Series::Progress, sent, ended, (ended - sent) as f64 * 1e-9);
        add(Series::Mass, sent, ended, 1.0);
        let bin = ended / BIN_NS;
        if bin > newest - BINS as i64 {
            row[place(Series::Completions, bin)] += 1.0;
        }
        true
    }

    /// Forgets what is older than the ring now holds.
    fn advance(&mut self, bin: i64) {
        if bin <= self.newest {
            return;
        }
        let from = (self.newest + 1).max(bin - BINS as i64 + 1);
        for row in self.rows.iter_mut().flatten() {
            for series in [
                Series::Arrivals,
                Series::Ends,
                Series::Progress,
                Series::Mass,
                Series::Completions,
            ] {
                (from..=bin).for_each(|bin| row[place(series, bin)] = 0.0);
            }
        }
        self.newest = bin;
    }

    /// Classes that were ever seen.
    pub(super) fn classes(&self) -> impl Iterator<Item = usize> {
        let rows = self.rows.iter().enumerate();
        rows.filter_map(|(class, row)| row.is_some().then_some(class))
    }

    /// A class in a window; zeros where nothing is known.
    pub(super) fn read(&self, class: usize, window: Window) -> ClassSeries {
        let around = Window {
            first: window.first - MARGIN as i64,
            bins: window.bins + 2 * MARGIN,
        };
        ClassSeries {
            arrivals: self.series(class, Series::Arrivals, around),
            ends: self.series(class, Series::Ends, around),
            progress: self.series(class, Series::Progress, around),
            mass: self.series(class, Series::Mass, around),
        }
    }

    /// Requests of a class that ended in each bin of the window.
    pub(super) fn completions(&self, class: usize, window: Window) -> Vec<f32> {
        self.series(class, Series::Completions, window)
    }

    fn series(&self, class: usize, series: Series, window: Window) -> Vec<f32> {
        let Some(row) = self.rows.get(class).and_then(Option::as_ref) else {
            return vec![0.0; window.bins];
        };
        let mut found = vec![0.0; window.bins];
        let oldest = (self.newest - BINS as i64 + 1).max(0);
        let end = (window.first + window.bins as i64).min(self.newest + 1);
        let mut bin = window.first.max(oldest);
        while bin < end {
            // To the end of the ring or of what is asked for.
            let from = place(series, bin);
            let ring_end = (series as usize + 1) * BINS;
            let many = (ring_end - from).min((end - bin) as usize);
            let to = (bin - window.first) as usize;
            found[to..to + many].copy_from_slice(&row[from..from + many]);
            bin += many as i64;
        }
        found
    }
}

fn place(series: Series, bin: i64) -> usize {
    series as usize * BINS + bin.rem_euclid(BINS as i64) as usize
}

/// Spreads a mass evenly over a time, nanoseconds.
fn add_to_ring(row: &mut [f32], newest: i64, series: Series, time: Range<i64>, mass: f64) {
    let per_ns = mass / (time.end - time.start).max(1) as f64;
    let oldest = (newest - BINS as i64 + 1).max(0) * BIN_NS;
    let (first, last) = (time.start.max(oldest), time.end.min((newest + 1) * BIN_NS));
    if first >= last {
        return;
    }
    for bin in first / BIN_NS..=(last - 1) / BIN_NS {
        let part = (last.min((bin + 1) * BIN_NS) - first.max(bin * BIN_NS)) as f64;
        row[place(series, bin)] += (part * per_ns) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn close(found: &[f32], expected: &[f32]) {
        let pairs = found.iter().zip(expected);
        let near = pairs.clone().all(|(one, other)| (one - other).abs() < 1e-5);
        assert!(near && found.len() == expected.len(), "{found:?}");
    }

    #[test]
    fn a_request_lies_where_it_was() {
        let mut bins = Bins::new(2);
        assert!(bins.add(1, at(1050), at(1250)));
        let window = Window { first: 10, bins: 4 };
        let series = bins.read(1, window);
        let of = |series: &[f32]| series[MARGIN..MARGIN + 4].to_vec();
        close(&of(&series.progress), &[0.05, 0.1, 0.05, 0.0]);
        close(&of(&series.mass), &[0.25, 0.5, 0.25, 0.0]);
        close(&of(&series.arrivals), &[0.5, 0.5, 0.0, 0.0]);
        close(&of(&series.ends), &[0.0, 0.5, 0.5, 0.0]);
        close(&bins.completions(1, window), &[0.0, 0.0, 1.0, 0.0]);
        assert_eq!(bins.classes().collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_class_beyond_the_limit_is_refused() {
        let mut bins = Bins::new(2);
        assert!(!bins.add(2, at(1), at(2)));
    }

    #[test]
    fn the_ring_forgets_and_comes_round() {
        let mut bins = Bins::new(1);
        bins.add(0, at(100), at(150));
        let early = Window { first: 0, bins: 3 };
        assert_eq!(bins.completions(0, early).iter().sum::<f32>(), 1.0);
        bins.add(0, at(200_000), at(200_050));
        assert_eq!(bins.completions(0, early), [0.0; 3]);
        let late = Window {
            first: 1999,
            bins: 3,
        };
        close(&bins.completions(0, late), &[0.0, 1.0, 0.0]);
        // What ends now and began before the ring keeps the mass that lies in it.
        bins.add(0, at(0), at(201_000));
        let all = Window::before(at(201_000), BINS - 1);
        let mass: f32 = bins.read(0, all).mass_in(all).iter().sum();
        assert!((mass - 1.0 - 127.9 / 201.0).abs() < 0.01, "{mass}");
    }

    #[test]
    fn an_unfinished_request_is_there_until_now() {
        let window = Window { first: 0, bins: 5 };
        let mut series = Bins::new(1).read(0, window);
        series.add_unfinished(window, 250_000_000, 500_000_000, 500_000_000);
        close(series.progress_in(window), &[0.0, 0.0, 0.05, 0.1, 0.1]);
        close(series.mass_in(window), &[0.0, 0.0, 0.1, 0.2, 0.2]);
    }
}
