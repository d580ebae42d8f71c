//! Step 1: how far the resource's clock and the front-end's are apart.
//!
//! ```text
//! score(s) = sum of the five greatest correlations squared, of classes with the use s later
//! shift    = argmax over -300, -280 .. 300 ms, if score(shift) >= 1.15 score(0) and >= score(0) + 0.03
//! ```
//!
//! Inputs: use at each shift; time in progress and mass of the classes that were screened, without what is slow.
//! Failure case: clocks more than 300 ms apart are not found; work at one end of a long life is
//! taken for a shift, which does no harm since the fit then sees it where it is.
//! Source: measured with clocks up to 200 ms apart.

use super::series::{dot, normalized};
use super::usage::PART_NS;

/// Steps of 20 ms that are tried on each side.
pub(super) const SHIFT_MAX: i64 = 15;
/// Classes that a score is made of.
const TOP: usize = 5;
/// How much better than no shift it must be, as a ratio and as a difference.
const BETTER_RATIO: f64 = 1.15;
const BETTER_BY: f64 = 0.03;

/// The shift to use, in parts of 20 ms. `used(s)` is the use at a shift and `classes` are the
/// series to compare it with, two for each class.
pub(super) fn best_shift(used: impl Fn(i64) -> Vec<f32>, classes: &[[&[f32]; 2]]) -> i64 {
    let classes: Vec<_> = classes
        .iter()
        .map(|class| class.map(|series| (series, dot(series, series))))
        .collect();
    let none = score(&used(0), &classes);
    let mut best = (0, none);
    for shift in -SHIFT_MAX..=SHIFT_MAX {
        let found = score(&used(shift), &classes);
        if found > best.1 {
            best = (shift, found);
        }
    }
    match best.1 >= BETTER_RATIO * none && best.1 >= none + BETTER_BY {
        true => best.0,
        false => 0,
    }
}

/// Milliseconds of so many parts.
pub(super) fn milliseconds(shift: i64) -> i64 {
    shift * PART_NS / 1_000_000
}

/// `classes` are two series each, and each one's sum of squares.
fn score(used: &[f32], classes: &[[(&[f32], f64); 2]]) -> f64 {
    let mut top = [0.0f64; TOP];
    let all = dot(used, used);
    for class in classes {
        let best = class
            .iter()
            .map(|(series, own)| normalized(dot(series, used), *own, all));
        let mut squared = best.fold(0.0, f64::max).powi(2);
        for place in &mut top {
            if squared > *place {
                std::mem::swap(place, &mut squared);
            }
        }
    }
    top.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::super::tests::noise;
    use super::*;

    #[test]
    fn the_shift_at_which_they_meet_is_found() {
        let class = noise(1);
        let used = |shift: i64| {
            if shift == 7 {
                class.clone()
            } else {
                noise(100)
            }
        };
        assert_eq!(best_shift(used, &[[&class, &noise(2)]]), 7);
        assert_eq!(milliseconds(7), 140);
    }

    #[test]
    fn noise_shifts_nothing() {
        let (one, other) = (noise(3), noise(4));
        let same = |_: i64| noise(5);
        assert_eq!(best_shift(same, &[[&one, &other]]), 0);
    }
}
