//! Pearson's correlation of completions per second with the use of a resource: the first view, and
//! an honest baseline for all that follows.
//!
//! ```text
//! r = sum (x - mean x)(y - mean y) / sqrt(sum (x - mean x)^2 sum (y - mean y)^2)
//! p = P(|T| >= |r| sqrt((n - 2) / (1 - r^2)))       T is Student's with n - 2 degrees of freedom
//! ```
//!
//! Inputs: two series of seconds. Failure case: whatever rises and falls with the site's traffic
//! correlates with its load; one request that lasts longer than its second does not.
//! Source: Porter and Katz, "Effective Web Service Loadbalancing through Statistical Monitoring", 2005.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// How a class's completions go with a resource's use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pearson {
    /// The coefficient, -1 to 1; zero if one of the two never changes.
    pub r: f64,
    /// Two-sided: how likely such a coefficient is by chance, if seconds were independent.
    pub p: f64,
}

impl Pearson {
    /// What is said of too few seconds.
    pub const UNKNOWN: Self = Self { r: 0.0, p: 1.0 };

    /// Of two series of one length.
    pub fn of(x: &[f64], y: &[f64]) -> Self {
        let n = x.len().min(y.len());
        if n < 3 {
            return Self::UNKNOWN;
        }
        let mean = |series: &[f64]| series[..n].iter().sum::<f64>() / n as f64;
        let (mean_x, mean_y) = (mean(x), mean(y));
        let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
        for (x, y) in x.iter().zip(y) {
            let (x, y) = (x - mean_x, y - mean_y);
            (xx, yy, xy) = (xx + x * x, yy + y * y, xy + x * y);
        }
        let scale = (xx * yy).sqrt();
        if scale <= 1e-12 * (1.0 + mean_x * mean_x) * (1.0 + mean_y * mean_y) {
            return Self::UNKNOWN;
        }
        let r = (xy / scale).clamp(-1.0, 1.0);
        let freedom = (n - 2) as f64;
        let t = r.abs() * (freedom / (1.0 - r * r).max(1e-300)).sqrt();
        Self {
            r,
            p: (2.0 * upper_tail(t, freedom)).min(1.0),
        }
    }
}

/// How likely Student's t is to be greater.
pub(super) fn upper_tail(t: f64, freedom: f64) -> f64 {
    match StudentsT::new(0.0, 1.0, freedom) {
        Ok(student) if t.is_finite() => student.sf(t),
        Ok(_) | Err(_) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_textbooks_have_it() {
        let x = [1.0, 2.0, 3.0, 4.0, 5.0];
        let found = Pearson::of(&x, &[2.0, 1.0, 4.0, 3.0, 5.0]);
        assert!((found.r - 0.8).abs() < 1e-12);
        // t = 2.309 with 3 degrees of freedom.
        assert!((found.p - 0.104).abs() < 1e-3, "{}", found.p);
        let down = Pearson::of(&x, &[5.0, 4.0, 3.0, 2.0, 1.0]);
        assert!((down.r + 1.0).abs() < 1e-12 && down.p < 1e-6);
    }

    #[test]
    fn what_never_changes_correlates_with_nothing() {
        let x = [1.0, 2.0, 3.0];
        assert_eq!(Pearson::of(&x, &[4.0; 3]), Pearson::UNKNOWN);
        assert_eq!(Pearson::of(&x[..2], &[1.0, 2.0]), Pearson::UNKNOWN);
    }
}
