//! From measurements to verdicts: gains, orderings, and the best of the peers.
//!
//! A gain is taken within each round, from arms that were measured minutes apart at most, and
//! its median over the rounds counts. What it does not know: what was measured.

use std::collections::BTreeMap;

use tidegate_core::stats;

use crate::results::GoalVerdict;

/// What each arm measured: arm, metric, value of each round.
pub type Table = BTreeMap<String, BTreeMap<String, Vec<f64>>>;

/// All values of one metric of one arm, in the order of rounds.
#[must_use]
pub fn rounds<'a>(table: &'a Table, arm: &str, metric: &str) -> &'a [f64] {
    let metrics = table.get(arm);
    metrics
        .and_then(|metrics| metrics.get(metric))
        .map_or(&[], Vec::as_slice)
}

/// The median over the rounds, if it was measured.
#[must_use]
pub fn median(table: &Table, arm: &str, metric: &str) -> Option<f64> {
    middle(rounds(table, arm, metric).to_vec())
}

/// The median of those that are finite.
#[must_use]
pub fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|value| value.is_finite());
    stats::median(&mut values)
}

/// One arm over another, round by round.
#[must_use]
pub fn ratio(table: &Table, arm: &str, base: &str, metric: &str) -> Option<f64> {
    let pairs = rounds(table, arm, metric)
        .iter()
        .zip(rounds(table, base, metric));
    middle(pairs.map(|(one, other)| one / other).collect())
}

/// Adds one metric that is the geometric mean of several, round by round, to each arm that has all of
/// them: what single points scatter too much to tell, all of them together may.
pub fn pool(table: &mut Table, metrics: &[String], name: &str) {
    for arm in table.values_mut() {
        let all: Option<Vec<_>> = metrics.iter().map(|metric| arm.get(metric)).collect();
        let Some(all) = all else { continue };
        let count = all.iter().map(|rounds| rounds.len()).min().unwrap_or(0);
        let mean = |round: usize| {
            let logs: f64 = all.iter().map(|rounds| rounds[round].ln()).sum();
            (logs / all.len() as f64).exp()
        };
        let means = (0..count).map(mean).collect();
        arm.insert(name.into(), means);
    }
}

/// One arm's improvement on another in percent.
#[must_use]
pub fn gain(table: &Table, arm: &str, base: &str, metric: &str) -> Option<f64> {
    ratio(table, arm, base, metric).map(|ratio| (ratio - 1.0) * 100.0)
}

/// The arm with the greatest (or least) median among some.
#[must_use]
pub fn best<'a>(
    table: &Table,
    arms: impl IntoIterator<Item = &'a str>,
    metric: &str,
    greatest: bool,
) -> Option<&'a str> {
    let known = |arm: &'a str| median(table, arm, metric).map(|value| (arm, value));
    let arms = arms.into_iter().filter_map(known);
    let order = |one: &(&str, f64), other: &(&str, f64)| one.1.total_cmp(&other.1);
    let found = if greatest {
        arms.max_by(order)
    } else {
        arms.min_by(order)
    };
    found.map(|(arm, _)| arm)
}

/// A verdict that wants at least so much; nothing measured, nothing judged.
#[must_use]
pub fn at_least(goal: String, measured: Option<f64>, wanted: f64) -> Option<GoalVerdict> {
    verdict(goal, measured, wanted, |measured| measured >= wanted)
}

/// A verdict that wants one arm ahead of another in something of which more is better.
#[must_use]
pub fn ahead(table: &Table, arm: &str, base: &str, metric: &str) -> Option<GoalVerdict> {
    let measured = ratio(table, arm, base, metric);
    at_least(format!("{metric}: {arm} over {base}"), measured, 1.0)
}

/// A verdict that wants at most so much.
#[must_use]
pub fn at_most(goal: String, measured: Option<f64>, wanted: f64) -> Option<GoalVerdict> {
    verdict(goal, measured, wanted, |measured| measured <= wanted)
}

fn verdict(
    goal: String,
    measured: Option<f64>,
    wanted: f64,
    reached: impl Fn(f64) -> bool,
) -> Option<GoalVerdict> {
    measured.map(|measured| GoalVerdict {
        goal,
        reached: reached(measured),
        measured,
        wanted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let metric = |values: &[f64]| BTreeMap::from([("rps".to_owned(), values.to_vec())]);
        BTreeMap::from([
            ("a".to_owned(), metric(&[100.0, 50.0])),
            ("b".to_owned(), metric(&[120.0, 62.0])),
        ])
    }

    #[test]
    fn gains_are_taken_within_rounds() {
        let gain = gain(&table(), "b", "a", "rps").unwrap();
        assert!((gain - 22.0).abs() < 1e-9, "{gain}");
        assert_eq!(ratio(&table(), "b", "a", "no such"), None);
        assert_eq!(ratio(&table(), "c", "a", "rps"), None);
    }

    #[test]
    fn the_best_is_of_those_that_were_measured() {
        assert_eq!(best(&table(), ["a", "b", "c"], "rps", true), Some("b"));
        assert_eq!(best(&table(), ["a", "b", "c"], "rps", false), Some("a"));
        assert_eq!(best(&table(), ["c"], "rps", true), None);
    }

    #[test]
    fn several_points_are_one_where_all_were_measured() {
        let mut table = table();
        let more = [("rps2".to_owned(), vec![400.0, 200.0, 1.0])];
        table.get_mut("a").unwrap().extend(more);
        pool(&mut table, &["rps".into(), "rps2".into()], "all");
        let all = rounds(&table, "a", "all");
        assert_eq!(all.len(), 2);
        assert!((all[0] - 200.0).abs() < 1e-9 && (all[1] - 100.0).abs() < 1e-9);
        assert!(rounds(&table, "b", "all").is_empty());
    }

    #[test]
    fn what_was_not_measured_is_not_judged() {
        assert_eq!(at_least("goal".into(), None, 1.0), None);
        assert!(at_least("goal".into(), Some(1.0), 1.0).unwrap().reached);
        assert!(!at_most("goal".into(), Some(1.1), 1.0).unwrap().reached);
    }
}
