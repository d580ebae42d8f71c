//! What a request costs at one node when it need not wait for a CPU, from the traffic of all front-ends.
//!
//! ```text
//! base(window) = (integral of requests in flight - time waited for CPUs) / completions
//!                by the node's own counters over 100 ms or more (`load::Rates`)
//! mean         = sum(base * completions) / sum(completions)        sums decay with 10 s
//! variance     = B/(B-1) * sum((completions * (base - mean))^2) / sum(completions * mean)^2
//!                of ln(mean), over the B windows so far
//! ```
//!
//! A front-end among many sees few of a node's requests, and needs seconds to learn that its
//! disk is slow; the node's own counters tell within three windows. Waiting for CPUs is left
//! out: that is load, which passes, and the run queue tells it.
//!
//! The variance is that of window means (batch means): it is honest about heavy tails, where
//! one request makes a node look dear for a while, and about whatever comes and goes with the
//! load. It has a floor, since what records tell of waiting is itself only good to a tenth.
//!
//! Inputs: `base_time` and `completions` of load records. Failure case: records that come
//! seldom. Over a window longer than a quarter of a second load and waiting change together,
//! and their means no longer fit; such windows are left out. The counters are the node's word:
//! `learn` believes them as far as own responses allow.
//! Source: Little's law; batch means as in simulation practice.

use super::learn::Keep;
use crate::load::NodeLoad;
use crate::time::Timestamp;

/// Windows from records nearer together than this overlap, seconds.
const WINDOW_MIN: f64 = 0.1;
/// Windows longer than this mix load with cost, seconds.
const WINDOW_MAX: f64 = 0.25;
/// Fewer windows than this say nothing about their variance.
const WINDOWS_MIN: f64 = 3.0;
/// Variance of ln(mean) that no number of windows falls below.
const VARIANCE_MIN: f64 = 0.01;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct BaseTime {
    windows: f64,
    completed: f64,
    seconds: f64,
    squares: f64,
    observed_at: Timestamp,
}

/// A logarithm and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub(super) ln: f64,
    pub(super) variance: f64,
}

impl BaseTime {
    /// Lets time pass, and takes in a record's window if it is a new one.
    pub(super) fn on_tick(&mut self, load: Option<&NodeLoad>, keep: &Keep) {
        self.completed *= keep.learned;
        self.seconds *= keep.learned;
        self.squares *= keep.learned * keep.learned;
        let Some(load) = load else { return };
        let known = |value: f32| value.is_finite() && value > 0.0;
        if !(known(load.base_time) && known(load.completions)) {
            return;
        }
        let window = load.observed_at.seconds_since(self.observed_at);
        if window < WINDOW_MIN {
            return;
        }
        self.observed_at = load.observed_at;
        if window <= WINDOW_MAX {
            self.on_window(
                f64::from(load.base_time),
                f64::from(load.completions) * window,
            );
        }
    }

    /// Its sums, for the next process.
    pub(super) fn learned(&self) -> [f64; 4] {
        [self.windows, self.completed, self.seconds, self.squares]
    }

    /// Of what was known before.
    pub(super) fn recalled([windows, completed, seconds, squares]: [f64; 4]) -> Self {
        Self {
            windows,
            completed,
            seconds,
            squares,
            observed_at: Timestamp::ZERO,
        }
    }

    fn on_window(&mut self, base: f64, completed: f64) {
        self.windows += 1.0;
        self.completed += completed;
        self.seconds += base * completed;
        let off = completed * (base - self.seconds / self.completed);
        self.squares += off * off;
    }

    /// ln of the mean base time in seconds; nothing before there are enough windows.
    pub(super) fn estimate(&self) -> Option<Estimate> {
        let enough = self.windows >= WINDOWS_MIN && self.completed > 0.0 && self.seconds > 0.0;
        enough.then(|| {
            let spread = self.squares / (self.seconds * self.seconds);
            Estimate {
                ln: (self.seconds / self.completed).ln(),
                variance: VARIANCE_MIN + spread * self.windows / (self.windows - 1.0),
            }
        })
    }
}

/// The mean of several, each counting by how sure it is; zero of none.
pub(super) fn mean_ln(estimates: impl Iterator<Item = Estimate>) -> f64 {
    let (mut sum, mut weights) = (0.0, 0.0);
    for estimate in estimates {
        sum += estimate.ln / estimate.variance;
        weights += 1.0 / estimate.variance;
    }
    if weights > 0.0 { sum / weights } else { 0.0 }
}

/// The upper median: of two nodes the dearer one is the measure of the other; zero of none.
pub(super) fn median_ln(estimates: impl Iterator<Item = Estimate>) -> f64 {
    let mut all: Vec<f64> = estimates.map(|estimate| estimate.ln).collect();
    if all.is_empty() {
        return 0.0;
    }
    let middle = all.len() / 2;
    *all.select_nth_unstable_by(middle, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Feeds windows of 100 ms with these base times, milliseconds, and ten requests each.
    fn fed(bases: impl IntoIterator<Item = f32>, step: Duration) -> BaseTime {
        let mut base_time = BaseTime::default();
        let mut now = Timestamp::from_millis(1000);
        for base in bases {
            now = now + step;
            let load = NodeLoad {
                observed_at: now,
                base_time: base * 1e-3,
                completions: 100.0,
                ..NodeLoad::UNKNOWN
            };
            base_time.on_tick(Some(&load), &Keep::of(step.as_secs_f64()));
        }
        base_time
    }

    const WINDOW: Duration = Duration::from_millis(100);

    #[test]
    fn steady_windows_are_soon_sure() {
        assert_eq!(
            fed([20.0; 3], WINDOW).estimate(),
            None,
            "two windows after the first record"
        );
        let estimate = fed([20.0; 10], WINDOW).estimate().unwrap();
        assert!((estimate.ln - 0.02f64.ln()).abs() < 1e-6);
        assert!((estimate.variance - VARIANCE_MIN).abs() < 1e-9);
    }

    #[test]
    fn one_dear_request_makes_it_unsure_and_not_dear() {
        let bases = (0..40).map(|window| if window == 20 { 400.0 } else { 10.0 });
        let estimate = fed(bases, WINDOW).estimate().unwrap();
        // Half of the time was that one request's: off by ln 2, and it says so.
        assert!(estimate.variance.sqrt() > 0.3, "{estimate:?}");
    }

    #[test]
    fn records_that_overlap_or_come_seldom_are_left_out() {
        let often = fed([20.0; 40], Duration::from_millis(10));
        assert_eq!(often.windows, 3.0);
        let seldom = fed([20.0; 40], Duration::from_millis(500));
        assert_eq!(seldom.estimate(), None);
    }

    #[test]
    fn what_is_not_known_changes_nothing() {
        assert_eq!(
            fed([f32::NAN, -1.0, f32::INFINITY, 0.0], WINDOW).windows,
            0.0
        );
    }

    #[test]
    fn of_two_the_dearer_is_the_median() {
        let median = |all: &[f64]| {
            median_ln(all.iter().map(|ln| Estimate {
                ln: *ln,
                variance: 1.0,
            }))
        };
        assert_eq!((median(&[]), median(&[2.0])), (0.0, 2.0));
        assert_eq!((median(&[3.0, 1.0]), median(&[9.0, 1.0, 2.0])), (3.0, 2.0));
    }

    #[test]
    fn the_surer_one_counts_more() {
        let estimate = |ln, variance| Estimate { ln, variance };
        let mean = mean_ln([estimate(0.0, 1.0), estimate(1.0, 0.01)].into_iter());
        assert!((mean - 100.0 / 101.0).abs() < 1e-9);
        assert_eq!(mean_ln(std::iter::empty()), 0.0);
    }
}
