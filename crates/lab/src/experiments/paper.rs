//! The papers' figures, with what the same is here for Tidegate's arms and for the peers.

use serde_json::{Value, json};

use crate::results::show;

use super::judge::{Table, best, gain, median};
use super::plan::Plan;

/// A figure of a paper with its source, and what was found here.
#[must_use]
pub(super) fn beside(value: Value, source: &str, here: Value, peers: Value) -> Value {
    json!({ "value": value, "source": source, "here": here, "peers": peers })
}

/// Names of the peers that were measured.
#[must_use]
pub(super) fn peers<'a>(plan: &'a Plan, table: &Table) -> Vec<&'a str> {
    names(plan, table, true)
}

/// Names of Tidegate's arms that were measured.
#[must_use]
pub(super) fn own<'a>(plan: &'a Plan, table: &Table) -> Vec<&'a str> {
    names(plan, table, false)
}

fn names<'a>(plan: &'a Plan, table: &Table, peers: bool) -> Vec<&'a str> {
    let arms = plan.arms.iter().filter(|arm| arm.peer() == peers);
    arms.filter(|arm| table.contains_key(&arm.name))
        .map(|arm| arm.name.as_str())
        .collect()
}

/// Arms by their medians, the best first: `auto 104.5 > klm 91.7`; null for none.
#[must_use]
pub(super) fn ranked(table: &Table, arms: &[&str], metric: &str, greatest: bool) -> Value {
    let arms = arms.iter().copied();
    let mut arms: Vec<_> = arms
        .filter_map(|arm| Some((arm, median(table, arm, metric)?)))
        .collect();
    arms.sort_by(|one, other| one.1.total_cmp(&other.1));
    if greatest {
        arms.reverse();
    }
    let order = if greatest { " > " } else { " < " };
    let told = arms
        .iter()
        .map(|(arm, value)| format!("{arm} {}", show(*value)));
    let told = told.collect::<Vec<_>>().join(order);
    if told.is_empty() {
        Value::Null
    } else {
        told.into()
    }
}

/// The best arm's gain on another in percent: `klm 19.5`; null for none.
#[must_use]
pub(super) fn best_gain(table: &Table, arms: &[&str], base: &str, metric: &str) -> Value {
    let found = best(table, arms.iter().copied(), metric, true);
    let gain = found.and_then(|arm| Some((arm, gain(table, arm, base, metric)?)));
    gain.map_or(Value::Null, |(arm, gain)| {
        format!("{arm} {}", show(gain)).into()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn table() -> Table {
        let metric = |value: f64| BTreeMap::from([("rps".to_owned(), vec![value, value])]);
        [("a", 100.0), ("b", 125.0)]
            .map(|(arm, value)| (arm.to_owned(), metric(value)))
            .into()
    }

    #[test]
    fn arms_are_ranked_by_what_is_better() {
        let ranked = |greatest| ranked(&table(), &["a", "b", "c"], "rps", greatest);
        assert_eq!(ranked(true), json!("b 125 > a 100"));
        assert_eq!(ranked(false), json!("a 100 < b 125"));
        assert_eq!(super::ranked(&table(), &["c"], "rps", true), Value::Null);
    }

    #[test]
    fn the_best_gain_names_its_arm() {
        assert_eq!(best_gain(&table(), &["a", "b"], "a", "rps"), json!("b 25"));
        assert_eq!(best_gain(&table(), &[], "a", "rps"), Value::Null);
    }
}
