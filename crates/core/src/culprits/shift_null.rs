//! Step 7: would a class fit as well at another time?
//!
//! ```text
//! d      = e + s_c p_c                    what is left for the class to explain
//! r(m)   = correlation of d with p_c moved by m bins, in a circle
//! z      = (r(0) - median r) / (1.4826 MAD of r)        over all |m| > 20 bins
//! rm     = r(0) / max r
//! ```
//!
//! The series itself, at wrong times, is the null hypothesis: with its bursts, its gaps and its
//! heavy tails. A periodic job fits as well one period later, so rm is near one: that unmasks it.
//!
//! Inputs: a class's predicted series and what the others leave over, in time's order.
//! Failure case: a class with a few long requests has few ways to be shifted, and z is small.
//! Source: measured; without it three times as many false accusations.

use super::series::dot;
use crate::stats;

/// Bins next to the true time that are not counted as wrong times.
const NEAR: usize = 20;
/// Bins on each side of the true time in the picture: 10 s.
const SHOWN: usize = 100;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct ShiftNull {
    pub(super) z: f64,
    /// r(0) over the greatest r at a wrong time.
    pub(super) rm: f64,
    /// r(m) for m from -10 to 10 s, in bins; empty if the window is too short to tell.
    pub(super) curve: Vec<f32>,
}

/// Most that a ratio or a z is shown as: beyond it, it says nothing more.
const MOST: f64 = 1000.0;

pub(super) fn shift_null(left: &[f32], predicted: &[f32]) -> ShiftNull {
    let bins = left.len();
    let scale = (dot(left, left) * dot(predicted, predicted)).sqrt();
    if scale <= f64::MIN_POSITIVE || bins <= 4 * NEAR / 2 {
        return ShiftNull::default();
    }
    let r = |shift: usize| {
        let (end, start) = predicted.split_at(bins - shift);
        (dot(&left[..shift], start) + dot(&left[shift..], end)) / scale
    };
    let all: Vec<f64> = (0..bins).map(r).collect();
    let mut wrong = all[NEAR + 1..bins - NEAR].to_vec();
    if wrong.is_empty() {
        return ShiftNull::default();
    }
    let greatest = wrong.iter().copied().fold(0.0, f64::max);
    let median = stats::quantile(&mut wrong, 0.5).unwrap_or(0.0);
    wrong.iter_mut().for_each(|r| *r = (*r - median).abs());
    let spread = 1.4826 * stats::quantile(&mut wrong, 0.5).unwrap_or(0.0);
    let shown = SHOWN.min(bins / 2);
    let curve = (0..=2 * shown).map(|place| all[(bins + place - shown) % bins] as f32);
    ShiftNull {
        z: ((all[0] - median) / spread.max(1e-9)).min(MOST),
        rm: (all[0] / greatest.max(1e-9)).min(MOST),
        curve: curve.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::noise;
    use super::*;

    #[test]
    fn work_fits_at_its_own_time_only() {
        let predicted = noise(1);
        let left: Vec<f32> = predicted.iter().zip(noise(2)).map(|(p, e)| p + e).collect();
        let found = shift_null(&left, &predicted);
        assert!(found.z > 8.0 && found.rm > 2.5, "{} {}", found.z, found.rm);
        assert_eq!(found.curve.len(), 201);
        let peak = found.curve.iter().copied().fold(f32::MIN, f32::max);
        assert_eq!(found.curve[100], peak);
        assert!(shift_null(&noise(3), &predicted).z < 4.0);
    }

    #[test]
    fn what_comes_every_five_seconds_fits_at_each_of_them() {
        let predicted: Vec<f32> = (0..300)
            .map(|k| if k % 50 == 0 { 0.98 } else { -0.02 })
            .collect();
        let found = shift_null(&predicted, &predicted);
        assert!((found.rm - 1.0).abs() < 1e-6, "{}", found.rm);
    }

    #[test]
    fn nothing_and_too_little_tell_nothing() {
        assert_eq!(shift_null(&[0.0; 300], &[0.0; 300]).z, 0.0);
        assert!(shift_null(&[1.0; 30], &[1.0; 30]).curve.is_empty());
    }
}
