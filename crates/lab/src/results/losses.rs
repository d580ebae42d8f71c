//! Losses: where a peer did better, listed so that they need no search.
//!
//! What is judged is the arm whose name has the word "auto" or that is called "adaptive", or without
//! one the best of ours in each metric. It loses a metric to another arm if that arm's whole range is better; where
//! ranges overlap, nothing was lost or won. Only metrics whose unit says which way is better are
//! judged.

use super::metric::{Better, Metric};
use super::range::Range;
use super::report::{ArmResult, Report};

/// One metric in which another arm did better.
#[derive(Clone, Debug, PartialEq)]
pub struct Loss {
    /// In what.
    pub metric: String,
    /// The arm that lost.
    pub ours: String,
    /// With how much.
    pub measured: Range,
    /// The arm that won.
    pub other: String,
    /// With how much.
    pub better: Range,
}

impl Loss {
    /// How far apart the medians are, as a share of the better one.
    pub fn apart(&self) -> f64 {
        (self.measured.median - self.better.median).abs()
            / self.better.median.abs().max(f64::MIN_POSITIVE)
    }
}

/// All losses of a report, by metric, the largest of each first.
pub fn losses(report: &Report) -> Vec<Loss> {
    let mut names: Vec<_> = report
        .arms
        .iter()
        .flat_map(|arm| arm.metrics.keys())
        .collect();
    names.sort();
    names.dedup();
    let mut losses = Vec::new();
    for name in names {
        let mut here = in_metric(report, name);
        here.sort_by(|one, other| other.apart().total_cmp(&one.apart()));
        losses.extend(here);
    }
    losses
}

fn in_metric(report: &Report, name: &str) -> Vec<Loss> {
    let better = Metric::of(name).better();
    let known = |arm: &ArmResult| report.metric(&arm.arm, name).cloned();
    let Some((ours, measured)) = judged(report, better, known) else {
        return Vec::new();
    };
    let others = report
        .arms
        .iter()
        .filter(|arm| arm.arm != ours && (arm.peer || is_auto(&ours)));
    let lost = others.filter_map(|arm| Some((arm.arm.clone(), known(arm)?)));
    let lost = lost.filter(|(_, range)| is_better(better, range, &measured));
    lost.map(|(other, range)| Loss {
        metric: name.to_owned(),
        ours: ours.clone(),
        measured: measured.clone(),
        other,
        better: range,
    })
    .collect()
}

/// Whose losses are looked for.
fn judged(
    report: &Report,
    better: Better,
    known: impl Fn(&ArmResult) -> Option<Range>,
) -> Option<(String, Range)> {
    let ours = || report.arms.iter().filter(|arm| !arm.peer);
    let with = |arm: &ArmResult| Some((arm.arm.clone(), known(arm)?));
    if let Some(auto) = ours().find(|arm| is_auto(&arm.arm)) {
        return with(auto);
    }
    let order =
        |one: &(String, Range), other: &(String, Range)| one.1.median.total_cmp(&other.1.median);
    match better {
        Better::More => ours().filter_map(with).max_by(order),
        Better::Less => ours().filter_map(with).min_by(order),
        Better::Neither => None,
    }
}

/// Whether one range is wholly better than the other.
fn is_better(better: Better, one: &Range, other: &Range) -> bool {
    match better {
        Better::More => one.min > other.max,
        Better::Less => one.max < other.min,
        Better::Neither => false,
    }
}

/// Whether this is the arm that the product stands or falls with: its default policy, or where
/// admission is compared its default admission.
pub(super) fn is_auto(arm: &str) -> bool {
    let mut words = arm.split(|it: char| !it.is_alphanumeric());
    arm == "adaptive" || words.any(|word| word == "auto")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::sample::report;

    #[test]
    fn losses_are_where_a_whole_range_is_better() {
        let losses = losses(&report());
        let found: Vec<_> = losses
            .iter()
            .map(|it| (it.metric.as_str(), it.other.as_str()))
            .collect();
        assert_eq!(found, [("throughput_rps[alpha=0.9]", "haproxy leastconn")]);
        assert_eq!(losses[0].ours, "tidegate auto");
        assert!(losses[0].apart() > 0.0 && losses[0].apart() < 0.1);
    }

    #[test]
    fn without_auto_the_best_of_ours_is_judged_against_the_peers() {
        let mut report = report();
        report.arms[0].arm = "tidegate klm".to_owned();
        assert_eq!(losses(&report).len(), 1);
        assert!(!is_auto("automatic") && is_auto("auto") && is_auto("auto (8 front-ends)"));
        assert!(is_auto("adaptive") && !is_auto("adaptive_tcp"));
    }
}
