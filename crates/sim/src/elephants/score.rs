//! How well culprits were named.
//!
//! ```text
//! precision   found / (found + false)            false: an innocent that is named
//! recall      found / culprits
//! cost error  |cost named / true cost - 1|       of those found
//! ```
//!
//! Classes that are named as one group ("ambiguous") are one accusation: right if one of them is a
//! culprit, and that one is then found. They are counted apart too.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::culprits::{ClassId, Verdict};
use tidegate_core::stats::{median, quantile};

use super::label::{Label, Truth};

/// A class that was named.
#[derive(Clone, Debug, Default)]
pub struct NamedClass {
    /// Classes that it cannot be separated from.
    pub with: Vec<usize>,
    /// What a request is said to cost.
    pub cost_seconds: f64,
}

/// What was named.
#[derive(Clone, Debug, Default)]
pub struct Named {
    /// By class.
    pub classes: BTreeMap<usize, NamedClass>,
}

impl Named {
    /// Of verdicts.
    pub fn of<'a>(verdicts: impl Iterator<Item = &'a Verdict>) -> Self {
        let index = |class: ClassId| usize::from(class.0);
        let classes = verdicts.map(|verdict| {
            let with = verdict.ambiguous_with.iter().map(|it| index(*it));
            let named = NamedClass {
                with: with.collect(),
                cost_seconds: verdict.cost_seconds,
            };
            (index(verdict.class), named)
        });
        Self {
            classes: classes.collect(),
        }
    }

    /// Of classes and their costs, without groups.
    pub fn plain(classes: impl IntoIterator<Item = (usize, f64)>) -> Self {
        let alone = |(class, cost_seconds)| {
            let named = NamedClass {
                with: Vec::new(),
                cost_seconds,
            };
            (class, named)
        };
        let classes = classes.into_iter().map(alone);
        Self {
            classes: classes.collect(),
        }
    }
}

/// Counts over scenarios.
#[derive(Clone, Debug, Default)]
pub struct Score {
    /// Scenarios, a resource each.
    pub runs: u32,
    /// Culprits that were named.
    pub found: u32,
    /// Culprits of these that were named in a group with others.
    pub in_group: u32,
    /// Culprits that were not.
    pub missed: u32,
    /// Innocents that were named.
    pub wrong: u32,
    /// Scenarios without an error.
    pub exact: u32,
    /// Of costs.
    pub cost_errors: Vec<f64>,
    /// Seconds from when culprits were there until they were named; infinite if they never were.
    pub delays: Vec<f64>,
}

impl Score {
    /// Adds a scenario.
    pub fn add(&mut self, truths: &[Truth], named: &Named) {
        let is = |class: usize, label: Label| truths.get(class).is_some_and(|it| it.label == label);
        let (mut missed, mut wrong) = (0, BTreeSet::new());
        for (class, truth) in truths.iter().enumerate() {
            if truth.label != Label::Culprit {
                continue;
            }
            match named.classes.get(&class) {
                None => missed += 1,
                Some(named) => {
                    self.found += 1;
                    self.in_group += u32::from(!named.with.is_empty());
                    let error = (named.cost_seconds / truth.cost_seconds.max(1e-12) - 1.0).abs();
                    self.cost_errors.push(error);
                }
            }
        }
        for (class, NamedClass { with, .. }) in &named.classes {
            let right = with.iter().any(|other| !is(*other, Label::Innocent));
            if is(*class, Label::Innocent) && !right {
                // A group of innocents is one false accusation.
                wrong.insert(with.iter().copied().chain([*class]).min());
            }
        }
        let wrong = wrong.len() as u32;
        self.runs += 1;
        self.missed += missed;
        self.wrong += wrong;
        self.exact += u32::from(missed == 0 && wrong == 0);
    }

    /// Adds the counts of another.
    pub fn merge(&mut self, other: &Self) {
        self.runs += other.runs;
        self.found += other.found;
        self.in_group += other.in_group;
        self.missed += other.missed;
        self.wrong += other.wrong;
        self.exact += other.exact;
        self.cost_errors.extend(&other.cost_errors);
        self.delays.extend(&other.delays);
    }

    /// Of those named, how many were right; none if none was named.
    pub fn precision(&self) -> Option<f64> {
        let named = self.found + self.wrong;
        (named > 0).then(|| f64::from(self.found) / f64::from(named))
    }

    /// Of the culprits, how many were named; none if there was none.
    pub fn recall(&self) -> Option<f64> {
        let all = self.found + self.missed;
        (all > 0).then(|| f64::from(self.found) / f64::from(all))
    }

    /// The middle one of the cost errors.
    pub fn cost_error(&self) -> Option<f64> {
        median(&mut self.cost_errors.clone())
    }

    /// Seconds until this part of the culprits was named; infinite if never.
    pub fn delay(&self, part: f64) -> Option<f64> {
        quantile(&mut self.delays.clone(), part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truth(label: Label) -> Truth {
        Truth {
            label,
            share: 0.1,
            cost_seconds: 0.2,
        }
    }

    #[test]
    fn groups_are_one_accusation() {
        let truths = [
            Label::Culprit,
            Label::Innocent,
            Label::Innocent,
            Label::Innocent,
            Label::Grey,
            Label::Culprit,
        ]
        .map(truth);
        let mut named = Named::plain([(4, 0.1)]);
        for (class, other, cost_seconds) in [(0, 1, 0.22), (1, 0, 0.2), (2, 3, 0.2), (3, 2, 0.2)] {
            let with = vec![other];
            let grouped = NamedClass { with, cost_seconds };
            named.classes.insert(class, grouped);
        }
        let mut score = Score::default();
        score.add(&truths, &named);
        assert_eq!(
            (score.found, score.missed, score.wrong, score.in_group),
            (1, 1, 1, 1)
        );
        assert_eq!((score.precision(), score.recall()), (Some(0.5), Some(0.5)));
        assert!((score.cost_error().unwrap() - 0.1).abs() < 1e-9);
        assert_eq!(score.delay(0.5), None);
    }
}
