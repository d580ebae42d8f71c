//! The line through the last used shares of a resource: how full it is, and how full it will be.
//!
//! ```text
//! slope       = sum((t - mean t) (u - mean u)) / sum((t - mean t)^2)     over the samples of the window
//! u in h      = u + slope h                                              u: the last sample
//! window      = max(1 s, 2.5 spacings)
//! spacing     = the longest time between two samples lately: one that is longer counts at once,
//!               and loses a tenth with each that is shorter
//! ```
//!
//! Inputs: used shares and when they were measured, as often as there are some. Of many, those are kept that are an
//! eighth of the window apart, and the last: eight numbers, however often the node is read. The line goes through the last
//! sample and not through their middle, so a step counts at once.
//!
//! A sample that is not newer than the last changes nothing. One from long before it, or from long after, begins anew: it is of
//! another time.
//!
//! Failure case: with two or three samples in a window, a step looks like a ramp until the next one. A ramp that begins
//! and ends between two samples is not seen at all.
//! Source: least squares; the window's length from what a ramp needs to be seen in three samples.

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::Timestamp;

/// Most samples that are kept.
const SAMPLES_MAX: usize = 8;
/// Least length of the window: file descriptors are counted each 100 ms, so shorter ones see steps.
const WINDOW_MIN: Duration = Duration::from_secs(1);
const WINDOW_SPACINGS: f64 = 2.5;
/// What samples must span to say anything of a slope: over less, a step is a steep ramp.
const SPAN_MIN: Duration = Duration::from_millis(500);
/// What a shorter time between two samples leaves of a longer one.
const SPACING_KEEP: f64 = 0.9;
/// A sample so much older, or so much younger, than the last one is of another time.
const OLDER_MAX: Duration = Duration::from_secs(1);
const YOUNGER_MAX: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Timestamp,
    used: f64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Trend {
    samples: VecDeque<Sample>,
    spacing: Duration,
}

impl Trend {
    /// Takes a sample in; false if it is none.
    pub(super) fn on_sample(&mut self, at: Timestamp, used: f32) -> bool {
        if !used.is_finite() {
            return false;
        }
        if let Some(last) = self.samples.back() {
            let gap = at.since(last.at);
            if last.at.since(at) > OLDER_MAX || gap > YOUNGER_MAX {
                *self = Self::default();
            } else if gap.is_zero() {
                return false;
            } else {
                self.spacing = gap.max(self.spacing.mul_f64(SPACING_KEEP));
            }
        }
        self.keep(Sample {
            at,
            used: used.into(),
        });
        true
    }

    fn keep(&mut self, sample: Sample) {
        let window = WINDOW_MIN.max(self.spacing.mul_f64(WINDOW_SPACINGS));
        let apart = window / SAMPLES_MAX as u32;
        let mut newest = self.samples.iter().rev();
        if let (Some(last), Some(before)) = (newest.next(), newest.next())
            && last.at.since(before.at) < apart
        {
            self.samples.pop_back();
        }
        self.samples.push_back(sample);
        let is_past = |first: &Sample| sample.at.since(first.at) > window;
        while self.samples.len() > SAMPLES_MAX || self.samples.front().is_some_and(is_past) {
            self.samples.pop_front();
        }
    }

    /// The last sample: when, and how full.
    pub(super) fn last(&self) -> Option<(Timestamp, f32)> {
        let last = self.samples.back()?;
        Some((last.at, last.used as f32))
    }

    /// Time between two samples.
    pub(super) fn spacing(&self) -> Duration {
        self.spacing
    }

    /// How full it will be in this time, at the pace of the line.
    pub(super) fn used_in(&self, time: Duration) -> f32 {
        let used = self.samples.back().map_or(0.0, |last| last.used);
        (used + self.slope() * time.as_secs_f64()) as f32
    }

    /// When nothing is left, at the pace of the line; none if it does not rise.
    pub(super) fn full_in(&self) -> Option<Duration> {
        let left = 1.0 - self.samples.back()?.used;
        let slope = self.slope();
        let seconds = (slope > 0.0).then(|| left / slope)?;
        Duration::try_from_secs_f64(seconds).ok()
    }

    /// Used share per second; zero as long as too little is known.
    fn slope(&self) -> f64 {
        let (Some(first), Some(last)) = (self.samples.front(), self.samples.back()) else {
            return 0.0;
        };
        if last.at.since(first.at) < SPAN_MIN {
            return 0.0;
        }
        let count = self.samples.len() as f64;
        let time = |sample: &Sample| sample.at.seconds_since(first.at);
        let mean_time = self.samples.iter().map(time).sum::<f64>() / count;
        let mean_used = self.samples.iter().map(|it| it.used).sum::<f64>() / count;
        let (mut both, mut square) = (0.0, 0.0);
        for sample in &self.samples {
            let away = time(sample) - mean_time;
            both += away * (sample.used - mean_used);
            square += away * away;
        }
        both / square
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples at times in milliseconds.
    fn trend(samples: &[(u64, f32)]) -> Trend {
        let mut trend = Trend::default();
        for (at, used) in samples {
            trend.on_sample(Timestamp::from_millis(*at), *used);
        }
        trend
    }

    /// A ramp from `from` on with so much per second, a sample each `spacing` milliseconds, for `count` of them.
    fn ramp(spacing: u64, count: u64, from: f32, slope: f32) -> Trend {
        let at = |index: u64| 1000 + index * spacing;
        let used = |index: u64| from + slope * (index * spacing) as f32 / 1000.0;
        let samples: Vec<_> = (0..count).map(|index| (at(index), used(index))).collect();
        trend(&samples)
    }

    #[test]
    fn a_ramp_is_known_at_any_spacing() {
        for (spacing, count) in [
            (1, 2000),
            (10, 200),
            (100, 20),
            (500, 4),
            (1000, 3),
            (5000, 3),
        ] {
            let trend = ramp(spacing, count, 0.1, 0.02);
            let last = 0.1 + 0.02 * ((count - 1) * spacing) as f32 / 1000.0;
            let in_two = trend.used_in(Duration::from_secs(2));
            assert!((in_two - (last + 0.04)).abs() < 1e-4, "{spacing}: {in_two}");
            let left = f64::from(1.0 - last) / 0.02;
            let full_in = trend.full_in().unwrap().as_secs_f64();
            assert!((full_in - left).abs() < 0.01 * left, "{spacing}: {full_in}");
            assert!(trend.samples.len() <= SAMPLES_MAX);
        }
    }

    #[test]
    fn what_is_flat_or_falls_is_never_full() {
        assert_eq!(ramp(500, 9, 0.5, 0.0).full_in(), None);
        let falls = ramp(500, 9, 0.9, -0.1);
        assert_eq!(falls.full_in(), None);
        assert!(falls.used_in(Duration::from_secs(1)) < falls.last().unwrap().1);
    }

    #[test]
    fn little_is_no_line() {
        assert_eq!(Trend::default().last(), None);
        assert_eq!(Trend::default().full_in(), None);
        assert_eq!(trend(&[(1000, 0.5)]).full_in(), None);
        assert_eq!(trend(&[(1000, 0.5), (1499, 0.9)]).full_in(), None);
        assert!(trend(&[(1000, 0.5), (1500, 0.9)]).full_in().is_some());
    }

    #[test]
    fn what_is_past_the_window_does_not_count() {
        // Flat for long, and then a ramp: the line is the ramp's after a window.
        let mut samples: Vec<_> = (0..600).map(|index| (1000 + index * 100, 0.5)).collect();
        samples.extend((0..12).map(|index: u64| (61_000 + index * 100, 0.5 + index as f32 * 0.01)));
        let slope = trend(&samples).slope();
        assert!((slope - 0.1).abs() < 0.01, "{slope}");
    }

    #[test]
    fn time_that_goes_back_or_stands_still_changes_nothing_or_begins_anew() {
        let mut trend = ramp(500, 3, 0.5, 0.1);
        let before = (trend.last(), trend.slope());
        assert!(!trend.on_sample(Timestamp::from_millis(2000), 1.0));
        assert!(!trend.on_sample(Timestamp::from_millis(1500), 1.0));
        assert!(!trend.on_sample(Timestamp::from_millis(3000), f32::NAN));
        assert_eq!((trend.last(), trend.slope()), before);
        assert!(trend.on_sample(Timestamp::from_millis(900), 0.7));
        assert_eq!(trend.last(), Some((Timestamp::from_millis(900), 0.7)));
        assert_eq!(trend.slope(), 0.0);
        assert!(trend.on_sample(Timestamp::from_millis(90_000), 0.9));
        assert_eq!(trend.slope(), 0.0, "a minute is no spacing");
    }

    #[test]
    fn the_longest_time_between_samples_is_forgotten_little_by_little() {
        let mut trend = trend(&[(1000, 0.5), (6000, 0.5)]);
        assert_eq!(trend.spacing(), Duration::from_secs(5));
        trend.on_sample(Timestamp::from_millis(6010), 0.5);
        assert_eq!(trend.spacing(), Duration::from_millis(4500));
        for index in 0..100 {
            trend.on_sample(Timestamp::from_millis(6020 + index * 10), 0.5);
        }
        assert_eq!(trend.spacing(), Duration::from_millis(10));
    }
}
