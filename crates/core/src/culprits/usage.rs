//! What was used of a resource, from a counter that is read now and then.
//!
//! ```text
//! used in [a, b) = busy(b) - busy(a)       spread evenly between two readings
//! ```
//!
//! Kept in parts of 20 ms, since clocks are aligned in such steps.
//!
//! Inputs: readings of a busy counter, 10 to 100 ms apart. Failure case: a counter that went back
//! (a restart) and a gap of more than a second leave a hole, which no window counts as idle.

use super::bins::{BINS, Window, signed};
use super::{UsagePoint, bins::BIN_NS};

/// Length of a part, nanoseconds.
pub(super) const PART_NS: i64 = 20_000_000;
/// Parts of a bin.
const PARTS: i64 = BIN_NS / PART_NS;
/// Parts kept.
const KEPT: i64 = BINS as i64 * PARTS;
/// Longest time between two readings that is taken for even.
const GAP_MAX_NS: i64 = 1_000_000_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Usage {
    cores: f64,
    last: Option<UsagePoint>,
    /// The first reading of all.
    since: Option<i64>,
    newest: i64,
    /// Busy seconds; not a number where nothing is known.
    parts: Box<[f32]>,
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            cores: 0.0,
            last: None,
            since: None,
            newest: 0,
            parts: vec![f32::NAN; KEPT as usize].into_boxed_slice(),
        }
    }
}

impl Usage {
    /// A reading. One that is not after the last, or says that there is nothing to use, is left out.
    pub(super) fn add(&mut self, point: UsagePoint) {
        let usable = point.cores.is_finite() && point.cores > 0.0;
        let Some(last) = self.last else {
            if usable {
                self.since = Some(signed(point.at));
                self.cores = point.cores;
                self.last = Some(point);
            }
            return;
        };
        if !usable || point.at <= last.at {
            return;
        }
        self.cores = point.cores;
        self.last = Some(point);
        let (from, to) = (signed(last.at), signed(point.at));
        self.advance((to - 1) / PART_NS);
        if to - from > GAP_MAX_NS || point.busy_ns < last.busy_ns {
            return;
        }
        let per_ns = (point.busy_ns - last.busy_ns) as f64 * 1e-9 / (to - from) as f64;
        for part in from / PART_NS..=(to - 1) / PART_NS {
            let (start, end) = (from.max(part * PART_NS), to.min((part + 1) * PART_NS));
            let used = ((end - start) as f64 * per_ns) as f32;
            let place = &mut self.parts[place(part)];
            *place = if place.is_nan() { used } else { *place + used };
        }
    }

    fn advance(&mut self, part: i64) {
        let from = (self.newest + 1).max(part - KEPT + 1);
        (from..=part).for_each(|part| self.parts[place(part)] = f32::NAN);
        self.newest = self.newest.max(part);
    }

    /// Capacity in cores, as the last reading said; zero before the first.
    pub(super) fn cores(&self) -> f64 {
        self.cores
    }

    /// When it was first read, nanoseconds since the clock's zero.
    pub(super) fn since(&self) -> Option<i64> {
        self.since
    }

    /// Busy seconds of a part; not a number where nothing is known, or not all yet.
    fn part(&self, part: i64) -> f32 {
        let over = self.last.map_or(0, |last| signed(last.at)) / PART_NS;
        match part > self.newest - KEPT && part < over {
            true => self.parts[place(part)],
            false => f32::NAN,
        }
    }

    /// Busy seconds in each bin of a window, `shift` parts later by the resource's clock. Not a
    /// number where a part of the bin is unknown.
    pub(super) fn read(&self, window: Window, shift: i64) -> Vec<f32> {
        let bins = window.first..window.first + window.bins as i64;
        bins.map(|bin| {
            let first = bin * PARTS + shift;
            (first..first + PARTS).map(|part| self.part(part)).sum()
        })
        .collect()
    }

    /// Busy seconds between two moments, nanoseconds since the clock's zero; none if not all of it is known.
    pub(super) fn between(&self, from: i64, to: i64) -> Option<f64> {
        let parts = from.div_euclid(PART_NS)..=(to - 1).div_euclid(PART_NS);
        let used: f64 = parts
            .map(|part| {
                let (start, end) = (from.max(part * PART_NS), to.min((part + 1) * PART_NS));
                f64::from(self.part(part)) * (end - start) as f64 / PART_NS as f64
            })
            .sum();
        used.is_finite().then_some(used)
    }
}

fn place(part: i64) -> usize {
    part.rem_euclid(KEPT) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    fn point(millis: u64, busy_ms: u64) -> UsagePoint {
        UsagePoint {
            at: Timestamp::from_millis(millis),
            busy_ns: busy_ms * 1_000_000,
            cores: 2.0,
        }
    }

    #[test]
    fn use_lies_between_its_readings() {
        let mut usage = Usage::default();
        [(1000, 0), (1050, 50), (1150, 60), (1250, 60), (1300, 160)]
            .iter()
            .for_each(|(at, busy)| usage.add(point(*at, *busy)));
        let window = Window { first: 10, bins: 4 };
        let used = usage.read(window, 0);
        assert!((used[0] - 0.055).abs() < 1e-6 && (used[1] - 0.005).abs() < 1e-6);
        assert!((used[2] - 0.1).abs() < 1e-6 && used[3].is_nan(), "{used:?}");
        let later = usage.read(window, 5);
        assert!((later[0] - 0.005).abs() < 1e-6);
        let between = usage.between(1_040_000_000, 1_060_000_000).unwrap();
        assert!((between - 0.011).abs() < 1e-3, "{between}");
        assert_eq!(usage.between(1_200_000_000, 1_400_000_000), None);
    }

    #[test]
    fn a_restart_and_a_gap_leave_holes() {
        let mut usage = Usage::default();
        usage.add(point(1000, 500));
        usage.add(point(1100, 520));
        usage.add(point(1200, 3));
        usage.add(point(1300, 13));
        usage.add(point(3400, 23));
        usage.add(point(3300, 99));
        let used = usage.read(Window { first: 10, bins: 4 }, 0);
        assert!(used[1].is_nan() && !used[0].is_nan() && !used[2].is_nan());
        assert!(used[3].is_nan());
    }

    #[test]
    fn no_capacity_is_no_reading() {
        let mut usage = Usage::default();
        usage.add(UsagePoint {
            cores: f64::NAN,
            ..point(1, 1)
        });
        assert_eq!(usage.since(), None);
        assert_eq!(usage.cores(), 0.0);
    }
}
