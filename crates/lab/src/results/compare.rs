//! Whether an experiment repeats: two reports of it agree where their ranges overlap.
//!
//! `band` widens both ranges by a share of their medians for a reader that asks whether a difference
//! matters, not whether there is one. Quantities that are neither good nor bad tell the
//! circumstances of a run, such as what a hypervisor took meanwhile: they need not repeat.

use std::fmt;

use super::metric::{Better, Metric};
use super::number::show;
use super::range::Range;
use super::report::Report;

/// A metric in which two reports disagree.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Of which arm.
    pub arm: String,
    /// Which metric.
    pub metric: String,
    /// In the first report; none if it has no such metric.
    pub one: Option<Range>,
    /// In the second.
    pub other: Option<Range>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |range: &Option<Range>| {
            range.as_ref().map_or_else(
                || "nothing".to_owned(),
                |it| format!("{} ({}–{})", show(it.median), show(it.min), show(it.max)),
            )
        };
        let (one, other) = (shown(&self.one), shown(&self.other));
        write!(f, "{} {}: {one} against {other}", self.arm, self.metric)
    }
}

/// All metrics of two reports that do not agree, and how many do.
pub fn compare(one: &Report, other: &Report, band: f64) -> (Vec<Difference>, usize) {
    let mut names: Vec<_> = [one, other]
        .into_iter()
        .flat_map(|report| &report.arms)
        .flat_map(|arm| arm.metrics.keys().map(|metric| (&arm.arm, metric)))
        .collect();
    names.retain(|(_, metric)| Metric::of(metric).better() != Better::Neither);
    names.sort();
    names.dedup();
    let mut differences = Vec::new();
    let mut agree = 0;
    for (arm, metric) in names {
        let (first, second) = (one.metric(arm, metric), other.metric(arm, metric));
        let same = match (first, second) {
            (Some(first), Some(second)) => wide(first, band).overlaps(&wide(second, band)),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if same {
            agree += 1;
        } else {
            differences.push(Difference {
                arm: arm.clone(),
                metric: metric.clone(),
                one: first.cloned(),
                other: second.cloned(),
            });
        }
    }
    (differences, agree)
}

fn wide(range: &Range, band: f64) -> Range {
    let more = range.median.abs() * band;
    Range {
        min: range.min - more,
        max: range.max + more,
        ..range.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::sample::report;

    #[test]
    fn a_report_agrees_with_itself_and_not_with_one_that_moved() {
        let one = report();
        let all: usize = one.arms.iter().map(|arm| arm.metrics.len()).sum();
        assert_eq!(compare(&one, &one, 0.0), (vec![], all));
        let mut other = report();
        let metrics = &mut other.arms[0].metrics;
        metrics.insert("p99_ms[load=0.9]".to_owned(), Range::of(vec![60.0, 61.0]));
        metrics.remove("throughput_rps[alpha=0.1]");
        metrics.insert("stolen_cpu".to_owned(), Range::of(vec![0.1, 0.2]));
        let (differences, agree) = compare(&one, &other, 0.0);
        assert_eq!(agree, all - 2);
        let names: Vec<_> = differences.iter().map(|it| it.metric.as_str()).collect();
        assert_eq!(names, ["p99_ms[load=0.9]", "throughput_rps[alpha=0.1]"]);
        let told = differences[0].to_string();
        assert_eq!(
            told,
            "tidegate auto p99_ms[load=0.9]: 42.5 (41–44) against 60.5 (60–61)"
        );
        assert_eq!(compare(&one, &other, 0.5).0.len(), 1);
    }
}
