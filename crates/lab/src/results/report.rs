//! What an experiment found, as data, and the short form of it that scripts read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::machine::Machine;
use super::plot::Plot;
use super::range::{Range, or_nan};

/// Everything that is known after an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Its name, as `tidegate-lab run` takes it.
    pub experiment: String,
    /// What was run, in a sentence or two.
    pub about: String,
    /// How nodes were kept apart: namespaces or loopback.
    pub mode: String,
    /// Whether it was the short form.
    pub quick: bool,
    /// Where it ran.
    pub machine: Machine,
    /// How long it took.
    pub seconds: f64,
    /// What was compared, in the order of the tables.
    pub arms: Vec<ArmResult>,
    /// The paper's figures by what they are: a value, or an object with `value`, `source` and
    /// what was found here: `here` (ours) and `peers`.
    pub paper: BTreeMap<String, Value>,
    /// Goals.
    pub verdicts: Vec<GoalVerdict>,
    /// What was emulated and how, as sentences.
    pub emulated: Vec<String>,
    /// What the reader should know, as sentences.
    pub notes: Vec<String>,
    /// Pictures.
    pub plots: Vec<Plot>,
    /// Every run. It is written to a file of its own, thinned to a bounded size.
    #[serde(skip)]
    pub raw: Value,
}

/// One of those that were compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ArmResult {
    /// Its name.
    pub arm: String,
    /// Whether it is another project's.
    pub peer: bool,
    /// By name with unit and parameter: `throughput_rps[alpha=0.5]`.
    pub metrics: BTreeMap<String, Range>,
}

/// A goal, and whether it was reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GoalVerdict {
    /// What was wanted, as a sentence.
    pub goal: String,
    /// Whether it is so.
    pub reached: bool,
    /// The number that was found.
    #[serde(deserialize_with = "or_nan")]
    pub measured: f64,
    /// The number that was wanted.
    #[serde(deserialize_with = "or_nan")]
    pub wanted: f64,
}

impl GoalVerdict {
    /// Wants at least so much. A number that is none reaches nothing.
    pub fn at_least(goal: impl Into<String>, measured: f64, wanted: f64) -> Self {
        Self {
            goal: goal.into(),
            reached: measured >= wanted,
            measured,
            wanted,
        }
    }

    /// Wants at most so much.
    pub fn at_most(goal: impl Into<String>, measured: f64, wanted: f64) -> Self {
        Self {
            goal: goal.into(),
            reached: measured <= wanted,
            measured,
            wanted,
        }
    }
}

impl Report {
    /// The one object that `tidegate-lab run NAME --json` ends with. Its form is a contract.
    pub fn summary(&self) -> Value {
        let metric =
            |range: &Range| json!({ "median": range.median, "min": range.min, "max": range.max });
        let arm = |arm: &ArmResult| {
            let metrics = arm
                .metrics
                .iter()
                .map(|(name, it)| (name.clone(), metric(it)));
            json!({
                "arm": arm.arm,
                "peer": arm.peer,
                "metrics": metrics.collect::<serde_json::Map<_, _>>(),
            })
        };
        json!({
            "experiment": self.experiment,
            "mode": self.mode,
            "arms": self.arms.iter().map(arm).collect::<Vec<_>>(),
            "paper": self.paper,
            "verdicts": self.verdicts,
        })
    }

    /// The command that repeats it.
    pub fn command(&self) -> String {
        let quick = if self.quick { " --quick" } else { "" };
        format!("tidegate-lab run {}{quick}", self.experiment)
    }

    /// An arm's metric, if it was measured.
    pub fn metric(&self, arm: &str, metric: &str) -> Option<&Range> {
        let arm = self.arms.iter().find(|it| it.arm == arm)?;
        arm.metrics.get(metric).filter(|range| range.is_known())
    }

    /// How many of the goals were reached.
    pub fn reached(&self) -> usize {
        self.verdicts.iter().filter(|it| it.reached).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::sample::report;

    #[test]
    fn the_summary_has_the_agreed_form() {
        let summary = report().summary();
        let keys: Vec<_> = summary.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["arms", "experiment", "mode", "paper", "verdicts"]);
        let arm = summary["arms"][0].as_object().unwrap();
        assert_eq!(arm.keys().collect::<Vec<_>>(), ["arm", "metrics", "peer"]);
        for metric in arm["metrics"].as_object().unwrap().values() {
            let keys: Vec<_> = metric.as_object().unwrap().keys().collect();
            assert_eq!(keys, ["max", "median", "min"]);
        }
        let verdict = summary["verdicts"][0].as_object().unwrap();
        let keys: Vec<_> = verdict.keys().collect();
        assert_eq!(keys, ["goal", "measured", "reached", "wanted"]);
    }

    #[test]
    fn a_report_without_its_runs_is_the_same_after_json() {
        let text = serde_json::to_string(&report()).unwrap();
        let expected = Report {
            raw: Value::Null,
            ..report()
        };
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), expected);
    }

    #[test]
    fn verdicts_compare_and_nothing_measured_is_not_reached() {
        assert!(GoalVerdict::at_least("", 1.0, 1.0).reached);
        assert!(!GoalVerdict::at_least("", 0.99, 1.0).reached);
        assert!(GoalVerdict::at_most("", 1.0, 1.0).reached);
        assert!(!GoalVerdict::at_most("", 1.01, 1.0).reached);
        assert!(!GoalVerdict::at_least("", f64::NAN, 1.0).reached);
        assert!(!GoalVerdict::at_most("", f64::NAN, 1.0).reached);
    }
}
