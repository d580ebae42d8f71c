//! Every policy in every scenario, and what one of them came to against each of the others.
//!
//! Pure: what runs the scenarios, on how many threads and how long it took is not known here.

use tidegate_core::policy::PolicyKind;

use super::score::{By, PairOutcome, PairVerdict, Score, geomean};
use crate::file::Half;

/// One scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Its family.
    pub family: String,
    /// The half that it is in.
    pub half: Half,
    /// What each policy came to, in the order of [`Comparison::policies`].
    pub scores: Vec<Score>,
    /// What the oracle came to.
    pub oracle: Option<Score>,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// The policies.
    pub policies: Vec<PolicyKind>,
    /// The scenarios.
    pub rows: Vec<Row>,
}

/// One policy against another, over all scenarios.
#[derive(Clone, Debug, PartialEq)]
pub struct PairTally {
    /// The other.
    pub against: PolicyKind,
    /// Scenarios in which the judged one did better.
    pub wins: u32,
    /// Scenarios without a difference.
    pub ties: u32,
    /// Scenarios in which the other did better.
    pub losses: u32,
    /// Geometric mean of own p99 over the other's, where neither missed more than the other.
    pub p99_ratio: Option<f64>,
}

/// A scenario in which another policy did better.
#[derive(Clone, Debug, PartialEq)]
pub struct Loss {
    /// The scenario.
    pub scenario: String,
    /// The half that it is in.
    pub half: Half,
    /// The better one.
    pub to: PolicyKind,
    /// By what.
    pub by: By,
    /// Own p99 over the oracle's: a loss beside an oracle that is level is no gap to close.
    pub to_oracle: Option<f64>,
}

impl Comparison {
    /// The scenarios of one half alone.
    pub fn of_half(&self, half: Half) -> Self {
        let rows = self.rows.iter().filter(|row| row.half == half);
        Self {
            policies: self.policies.clone(),
            rows: rows.cloned().collect(),
        }
    }

    fn column(&self, policy: PolicyKind) -> Option<usize> {
        self.policies.iter().position(|kind| *kind == policy)
    }

    /// What a policy came to in a scenario.
    pub fn score(&self, row: usize, policy: PolicyKind) -> Option<&Score> {
        self.rows.get(row)?.scores.get(self.column(policy)?)
    }

    fn verdicts(
        &self,
        judged: PolicyKind,
        against: PolicyKind,
    ) -> impl Iterator<Item = (&Row, PairVerdict)> {
        let columns = self.column(judged).zip(self.column(against));
        self.rows.iter().filter_map(move |row| {
            let (own, other) = columns?;
            let verdict = row.scores.get(own)?.against(row.scores.get(other)?);
            Some((row, verdict))
        })
    }

    /// The judged policy against each of the others.
    pub fn tallies(&self, judged: PolicyKind) -> Vec<PairTally> {
        let others = self.policies.iter().filter(|kind| **kind != judged);
        others.map(|other| self.tally(judged, *other)).collect()
    }

    fn tally(&self, judged: PolicyKind, against: PolicyKind) -> PairTally {
        let verdicts: Vec<_> = self.verdicts(judged, against).map(|(_, it)| it).collect();
        let count = |outcome| verdicts.iter().filter(|it| it.outcome == outcome).count() as u32;
        let ratios = verdicts.iter().filter_map(|verdict| match verdict.by {
            By::Ratio(ratio) => Some(ratio),
            By::Missed(_) => None,
        });
        PairTally {
            against,
            wins: count(PairOutcome::Win),
            ties: count(PairOutcome::Tie),
            losses: count(PairOutcome::Loss),
            p99_ratio: geomean(ratios),
        }
    }

    /// Every loss of the judged policy, in the order of the scenarios.
    pub fn losses(&self, judged: PolicyKind) -> Vec<Loss> {
        let mut losses = Vec::new();
        for (index, row) in self.rows.iter().enumerate() {
            let Some(own) = self.score(index, judged) else {
                continue;
            };
            for (policy, other) in self.policies.iter().zip(&row.scores) {
                let verdict = own.against(other);
                if *policy != judged && verdict.outcome == PairOutcome::Loss {
                    losses.push(Loss {
                        scenario: row.name.clone(),
                        half: row.half,
                        to: *policy,
                        by: verdict.by,
                        to_oracle: self.to_oracle(index, judged),
                    });
                }
            }
        }
        losses
    }

    /// A policy's p99 over the oracle's in one scenario.
    pub fn to_oracle(&self, row: usize, policy: PolicyKind) -> Option<f64> {
        let oracle = self.rows.get(row)?.oracle.as_ref()?;
        let own = self.score(row, policy)?;
        (oracle.p99_ms > 0.0).then(|| own.p99_ms / oracle.p99_ms)
    }

    /// Geometric mean of that over all scenarios, and over those of one family each.
    pub fn oracle_ratio(&self, policy: PolicyKind) -> Option<f64> {
        geomean((0..self.rows.len()).filter_map(|row| self.to_oracle(row, policy)))
    }

    /// The families in order of appearance, each with that mean over its scenarios.
    pub fn families(&self, policy: PolicyKind) -> Vec<(String, Option<f64>)> {
        let mut names: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !names.contains(&row.family.as_str()) {
                names.push(&row.family);
            }
        }
        let ratio = |family: &str| {
            let rows = self.rows.iter().enumerate();
            let rows = rows.filter(|(_, row)| row.family == family);
            geomean(rows.filter_map(|(index, _)| self.to_oracle(index, policy)))
        };
        let families = names.into_iter().map(|name| (name.to_owned(), ratio(name)));
        families.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(p99_ms: f64, failed: u64) -> Score {
        Score {
            p99_ms,
            failed,
            offered: 100,
            ..Score::default()
        }
    }

    fn row(name: &str, own: Score, other: Score) -> Row {
        Row {
            name: name.into(),
            family: name.split(' ').next().unwrap_or_default().into(),
            half: Half::Tune,
            scores: vec![other, own],
            oracle: Some(score(8.0, 0)),
        }
    }

    fn comparison() -> Comparison {
        Comparison {
            policies: vec![PolicyKind::Random, PolicyKind::Auto],
            rows: vec![
                row("load a", score(10.0, 0), score(20.0, 0)),
                row("load b", score(10.0, 0), score(5.0, 0)),
                row("dist a", score(10.0, 0), score(10.2, 0)),
                row("dist b", score(10.0, 9), score(20.0, 1)),
            ],
        }
    }

    #[test]
    fn scenarios_are_won_drawn_and_lost() {
        let tallies = comparison().tallies(PolicyKind::Auto);
        let [tally] = tallies.as_slice() else {
            panic!("one other policy, found {tallies:?}");
        };
        assert_eq!((tally.wins, tally.ties, tally.losses), (1, 1, 2));
        // The scenario with errors has no say in the mean of the latencies.
        let expected = (0.5f64 * 2.0 * (10.0 / 10.2)).cbrt();
        assert!((tally.p99_ratio.unwrap() - expected).abs() < 1e-12);
    }

    #[test]
    fn losses_are_listed_with_their_reason() {
        let losses = comparison().losses(PolicyKind::Auto);
        let listed: Vec<_> = losses
            .iter()
            .map(|it| (it.scenario.as_str(), it.by))
            .collect();
        assert_eq!(
            listed,
            [("load b", By::Ratio(2.0)), ("dist b", By::Missed(0.08))]
        );
        assert_eq!(losses[0].to_oracle, Some(1.25));
    }

    #[test]
    fn the_distance_to_the_oracle_is_told_by_family() {
        let comparison = comparison();
        let ratio = comparison.oracle_ratio(PolicyKind::Auto).unwrap();
        assert!((ratio - 1.25).abs() < 1e-12);
        let families = comparison.families(PolicyKind::Auto);
        let names: Vec<_> = families.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["load", "dist"]);
    }
}
