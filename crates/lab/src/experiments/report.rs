//! From what was measured to a report: the same for all experiments that are a plan.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::results::{ArmResult, Axis, GoalVerdict, Machine, Plot, Range, Report, widen};

use super::arms::AUTO;
use super::judge::{Table, at_least, at_most, best, ratio};
use super::measured::Measured;
use super::paper::{own, peers};
use super::plan::{Arm, Plan};
use super::{Experiment, Lab, Scale};

/// What an experiment adds to what was measured.
#[derive(Debug, Default)]
pub(super) struct ExperimentFindings {
    /// The paper's figures, with where they stand.
    pub(super) paper: BTreeMap<String, Value>,
    /// Goals and whether they were reached; those that could not be judged are left out.
    pub(super) verdicts: Vec<Option<GoalVerdict>>,
    /// What it is worth knowing.
    pub(super) notes: Vec<String>,
    /// Pictures.
    pub(super) plots: Vec<Sketch>,
}

/// The report of an experiment whose arms are those of a plan.
#[must_use]
pub(super) fn report(
    experiment: &Experiment,
    lab: &Lab,
    plan: &Plan,
    measured: Measured,
    findings: ExperimentFindings,
    took: Duration,
) -> Report {
    report_of(experiment, lab, &plan.arms, measured, findings, took)
}

/// The report of an experiment that measured these arms.
#[must_use]
pub(super) fn report_of(
    experiment: &Experiment,
    lab: &Lab,
    arms: &[Arm],
    measured: Measured,
    findings: ExperimentFindings,
    took: Duration,
) -> Report {
    let arms = arms.iter().filter_map(|arm| {
        let metrics = measured.table.get(&arm.name)?;
        Some(arm_result(&arm.name, arm.peer(), metrics))
    });
    let mut arms: Vec<_> = arms.collect();
    widen(&mut arms);
    let mut notes = findings.notes;
    notes.extend(measured.notes);
    Report {
        experiment: experiment.name.into(),
        about: format!("{} ({}).", experiment.about, experiment.source),
        mode: measured.mode,
        quick: lab.scale == Scale::Quick,
        machine: Machine::this(),
        seconds: took.as_secs_f64(),
        plots: findings
            .plots
            .iter()
            .map(|sketch| sketch.plot(&arms))
            .collect(),
        arms,
        paper: findings.paper,
        verdicts: findings.verdicts.into_iter().flatten().collect(),
        emulated: [measured.emulated, vec![lab.awake.said.clone()]].concat(),
        notes,
        raw: Value::Array(measured.raw),
    }
}

/// An arm of a report.
#[must_use]
pub(super) fn arm_result(arm: &str, peer: bool, metrics: &BTreeMap<String, Vec<f64>>) -> ArmResult {
    let range = |(name, rounds): (&String, &Vec<f64>)| (name.clone(), Range::of(rounds.clone()));
    ArmResult {
        arm: arm.into(),
        peer,
        metrics: metrics.iter().map(range).collect(),
    }
}

/// Whether `auto` is ahead of the paper's schemes and of the peers, by the best of each.
/// `greatest` says whether more of the metric is better.
#[must_use]
pub(super) fn auto_ahead(
    plan: &Plan,
    table: &Table,
    metric: &str,
    greatest: bool,
) -> Vec<Option<GoalVerdict>> {
    let mut own = own(plan, table);
    own.retain(|arm| *arm != AUTO);
    let others = [
        ("Tidegate's other arms", own),
        ("the peers", peers(plan, table)),
    ];
    let verdict = |(whose, arms): (&str, Vec<&str>)| {
        let other = best(table, arms, metric, greatest)?;
        let measured = ratio(table, AUTO, other, metric);
        let goal = format!("{metric}: auto over the best of {whose}, {other}");
        if greatest {
            at_least(goal, measured, 1.0)
        } else {
            at_most(goal, measured, 1.0)
        }
    };
    others.map(verdict).into()
}

/// A picture of all arms, before there are arms.
#[derive(Clone, Debug)]
pub(super) enum Sketch {
    /// Lines of a quantity over a parameter of its labels.
    Over {
        /// Above it.
        title: &'static str,
        /// `throughput_rps`.
        quantity: &'static str,
        /// `alpha`.
        parameter: &'static str,
        /// Across.
        x: Axis,
        /// Upwards.
        y: Axis,
    },
    /// Groups of bars: name and metric of each.
    Bars {
        /// Above it.
        title: String,
        /// See above.
        groups: Vec<(String, String)>,
        /// Upwards.
        y: Axis,
    },
    /// What happened over the time.
    Course(Plot),
}

impl Sketch {
    /// One bar per arm.
    #[must_use]
    pub(super) fn bar(title: &str, metric: &str, y: &str) -> Self {
        Self::Bars {
            title: title.into(),
            groups: vec![(String::new(), metric.into())],
            y: Axis::from_zero(y),
        }
    }

    /// The picture.
    #[must_use]
    pub(super) fn plot(&self, arms: &[ArmResult]) -> Plot {
        match self {
            Self::Over {
                title,
                quantity,
                parameter,
                x,
                y,
            } => Plot::over(title, arms, quantity, parameter, x.clone(), y.clone()),
            Self::Bars { title, groups, y } => {
                let groups: Vec<_> = groups
                    .iter()
                    .map(|(name, metric)| (name.as_str(), metric.as_str()))
                    .collect();
                Plot::groups(title, arms, &groups, y.clone())
            }
            Self::Course(plot) => plot.clone(),
        }
    }
}
