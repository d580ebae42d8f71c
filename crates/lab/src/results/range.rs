//! A number with its range over the rounds, since no single number is a measurement.
//!
//! The median stands for it; the ends of the range say how much it can be trusted: least and
//! greatest, or wider if few rounds deserve no better (see `scatter.rs`). Two ranges agree if they
//! overlap. Numbers that are none (nothing was measured) are NaN here and null in JSON.

use serde::{Deserialize, Deserializer, Serialize};
use tidegate_core::stats;

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Range {
    /// The middle of the rounds; of an even number, the mean of the middle two.
    #[serde(deserialize_with = "or_nan")]
    pub median: f64,
    /// The lower end, not above the least of them.
    #[serde(deserialize_with = "or_nan")]
    pub min: f64,
    /// The upper end, not below the greatest of them.
    #[serde(deserialize_with = "or_nan")]
    pub max: f64,
    /// Each round's value in the order in which they were measured.
    #[serde(default, deserialize_with = "all_or_nan")]
    pub rounds: Vec<f64>,
}

impl Range {
    /// Of the rounds' values. Those that are no numbers are left out of the range.
    pub fn of(rounds: Vec<f64>) -> Self {
        let mut sorted: Vec<_> = rounds.iter().copied().filter(|it| it.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        Self {
            median: stats::median(&mut sorted).unwrap_or(f64::NAN),
            min: sorted.first().copied().unwrap_or(f64::NAN),
            max: sorted.last().copied().unwrap_or(f64::NAN),
            rounds,
        }
    }

    /// Whether anything was measured.
    pub fn is_known(&self) -> bool {
        self.median.is_finite()
    }

    /// Whether the two may be the same: their ranges touch.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.min <= other.max && other.min <= self.max
    }
}

/// Ranges are equal if they would be written alike: what was not measured equals itself.
impl PartialEq for Range {
    fn eq(&self, other: &Self) -> bool {
        let same = |one: f64, other: f64| one == other || (one.is_nan() && other.is_nan());
        same(self.median, other.median)
            && same(self.min, other.min)
            && same(self.max, other.max)
            && self.rounds.len() == other.rounds.len()
            && (self.rounds.iter().zip(&other.rounds)).all(|(one, other)| same(*one, *other))
    }
}

/// A number, or NaN for null, which is how NaN is written.
pub(super) fn or_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

fn all_or_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
    let all = Vec::<Option<f64>>::deserialize(deserializer)?;
    Ok(all.into_iter().map(|it| it.unwrap_or(f64::NAN)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_and_the_rest_is_the_range() {
        let odd = Range::of(vec![3.0, 1.0, 2.0]);
        assert_eq!((odd.median, odd.min, odd.max), (2.0, 1.0, 3.0));
        assert_eq!(odd.rounds, [3.0, 1.0, 2.0]);
        let even = Range::of(vec![4.0, 1.0]);
        assert_eq!((even.median, even.min, even.max), (2.5, 1.0, 4.0));
    }

    #[test]
    fn what_was_not_measured_is_no_number_and_survives_json() {
        for rounds in [vec![], vec![f64::NAN], vec![f64::INFINITY, 2.0]] {
            let range = Range::of(rounds);
            let text = serde_json::to_string(&range).unwrap();
            let back: Range = serde_json::from_str(&text).unwrap();
            assert_eq!(back.median.is_nan(), range.median.is_nan(), "{text}");
            assert_eq!(back.rounds.len(), range.rounds.len());
        }
        assert!(!Range::of(vec![]).is_known());
        assert_eq!(Range::of(vec![f64::NAN, 2.0]).median, 2.0);
    }

    #[test]
    fn ranges_agree_if_they_touch() {
        let range = |min, max| Range::of(vec![min, max]);
        assert!(range(1.0, 2.0).overlaps(&range(2.0, 3.0)));
        assert!(range(1.0, 4.0).overlaps(&range(2.0, 3.0)));
        assert!(!range(1.0, 2.0).overlaps(&range(2.1, 3.0)));
        assert!(!range(1.0, 2.0).overlaps(&Range::of(vec![])));
    }
}
