//! Ranges that few rounds deserve: two rounds may agree by chance, all arms together do not.
//!
//! ```text
//! s      = sqrt( sum over arms and labels, rounds of ((value - mean) / mean)^2 / f )
//! f      = sum over arms and labels of (rounds - 1)         degrees of freedom
//! range  = least .. greatest, and at least  median -+ t(f) * s * |median| / sqrt(rounds)
//! ```
//!
//! s is how far one round scatters, relative to its mean, pooled over all that measured the same
//! quantity; t is Student's 97.5 % point, so the range covers what the mean of further rounds
//! would be in 95 of 100 runs. What it takes for granted: that arms scatter alike. Where one
//! scatters more, its own least and greatest stand. Quantities with fewer than [`FREEDOM_MIN`]
//! degrees of freedom keep least and greatest, and so do facts about the machine, which have no
//! scale to be relative to: only what is better when more or less is widened.
//!
//! Source: pooled variance and Student's t, as in any textbook of statistics.

use std::collections::BTreeMap;

use super::metric::{Better, Metric};
use super::range::Range;
use super::report::ArmResult;

/// Fewer say nothing of the scatter.
const FREEDOM_MIN: usize = 4;

/// Squares of relative deviations, and how many of them are independent.
#[derive(Clone, Copy, Debug, Default)]
struct Scatter {
    squares: f64,
    freedom: usize,
}

impl Scatter {
    fn add(&mut self, rounds: &[f64]) {
        let known: Vec<_> = rounds.iter().copied().filter(|it| it.is_finite()).collect();
        let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
        if known.len() < 2 || mean == 0.0 {
            return;
        }
        let squares = known.iter().map(|value| ((value - mean) / mean).powi(2));
        self.squares += squares.sum::<f64>();
        self.freedom += known.len() - 1;
    }

    /// Half of the interval of a mean of so many rounds, relative to it.
    fn half(&self, rounds: usize) -> Option<f64> {
        let freedom = self.freedom as f64;
        let one = (self.squares / freedom).sqrt();
        (self.freedom >= FREEDOM_MIN && rounds > 0)
            .then(|| student(freedom) * one / (rounds as f64).sqrt())
    }
}

/// Student's 97.5 % point, within 2 % from 4 degrees of freedom on.
fn student(freedom: f64) -> f64 {
    1.96 + 2.4 / freedom + 2.8 / freedom.powi(2)
}

/// Widens the ranges of all arms by the scatter of each quantity.
pub fn widen(arms: &mut [ArmResult]) {
    let mut scatters: BTreeMap<String, Scatter> = BTreeMap::new();
    let judged = |name: &str| Metric::of(name).better() != Better::Neither;
    for (name, range) in arms
        .iter()
        .flat_map(|arm| &arm.metrics)
        .filter(|it| judged(it.0))
    {
        let quantity = Metric::of(name).quantity.to_owned();
        scatters.entry(quantity).or_default().add(&range.rounds);
    }
    for (name, range) in arms.iter_mut().flat_map(|arm| &mut arm.metrics) {
        let rounds = range.rounds.iter().filter(|it| it.is_finite()).count();
        let scatter = scatters.get(Metric::of(name).quantity);
        if let Some(half) = scatter.and_then(|it| it.half(rounds)) {
            *range = wider(range, half * range.median.abs());
        }
    }
}

/// The range and whatever is within `half` of its median. What was never negative stays so.
fn wider(range: &Range, half: f64) -> Range {
    let floor = range.min.min(0.0);
    Range {
        min: range.min.min((range.median - half).max(floor)),
        max: range.max.max(range.median + half),
        ..range.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(values: &[[f64; 2]]) -> ArmResult {
        let metric = |(index, rounds): (usize, &[f64; 2])| {
            (format!("p99_ms[load={index}]"), Range::of(rounds.to_vec()))
        };
        ArmResult {
            arm: "a".to_owned(),
            peer: false,
            metrics: values.iter().enumerate().map(metric).collect(),
        }
    }

    #[test]
    fn rounds_that_agree_by_chance_get_the_scatter_of_the_others() {
        // Four pairs 10 % around their mean and one without any difference: f = 5.
        let mut arms = [arm(&[
            [90.0, 110.0],
            [9.0, 11.0],
            [90.0, 110.0],
            [0.9, 1.1],
            [50.0, 50.0],
        ])];
        widen(&mut arms);
        let lucky = &arms[0].metrics["p99_ms[load=4]"];
        let s = (4.0 * 2.0 * 0.01_f64 / 5.0).sqrt();
        let half = student(5.0) * s / 2.0_f64.sqrt();
        assert!((lucky.max / 50.0 - 1.0 - half).abs() < 1e-9);
        assert!((1.0 - lucky.min / 50.0 - half).abs() < 1e-9);
        assert_eq!((lucky.median, lucky.rounds.len()), (50.0, 2));
    }

    #[test]
    fn least_and_greatest_always_belong_to_the_range() {
        let mut arms = [arm(&[[10.0, 90.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]])];
        widen(&mut arms);
        let wild = &arms[0].metrics["p99_ms[load=0]"];
        assert!(wild.min <= 10.0 && wild.min >= 0.0 && wild.max >= 90.0);
    }

    #[test]
    fn too_few_rounds_or_nothing_at_all_stay_as_they_are() {
        let before = [arm(&[[90.0, 110.0], [0.0, 0.0], [f64::NAN, f64::NAN]])];
        let mut after = before.clone();
        widen(&mut after);
        assert_eq!(before, after);
    }

    #[test]
    fn students_t_is_near_the_tables() {
        for (freedom, table) in [(4.0, 2.776), (8.0, 2.306), (16.0, 2.120), (60.0, 2.000)] {
            assert!((student(freedom) / table - 1.0).abs() < 0.02, "{freedom}");
        }
    }
}
