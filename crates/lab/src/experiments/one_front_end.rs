//! What experiments share that look at one front-end after the other, each before the same four nodes.

use tidegate_core::time::Timestamp;
use tidegate_remote::clock;

use crate::cluster::{AgentPlan, Cluster, Mode, Placed};
use crate::front;
use crate::results::Report;

use super::arms;
use super::judge::Table;
use super::measured::Measured;
use super::plan::Arm;
use super::report::{ExperimentFindings, report_of};
use super::{Experiment, ExperimentError, Lab, workload};

/// Nodes, which answer at once.
pub(super) const NODES: usize = 4;
/// CPU of the front-end, and its share of it where its cost is measured.
pub(super) const CPU: u32 = 0;
pub(super) const QUOTA: f64 = 0.4;

/// The usual nodes; an error where they cannot be on hosts of their own, which is wanted for this reason.
pub(super) fn cluster(lab: &Lab, reason: &str) -> Result<Cluster, ExperimentError> {
    cluster_of(NODES, lab, reason)
}

/// So many nodes; an error in the same case.
pub(super) fn cluster_of(
    nodes: usize,
    lab: &Lab,
    reason: &str,
) -> Result<Cluster, ExperimentError> {
    let shares = vec![0.96 / nodes as f64; nodes];
    // Where nodes are, as in truth: each sample of an agent on the front-end's CPU would interrupt its worker.
    let agent = AgentPlan {
        place: Placed::Unlimited,
        ..arms::beside_agent()
    };
    let mut plan = workload::unequal(&shares, &[agent]);
    plan.mode = lab.mode;
    let cluster = Cluster::start(&plan)?;
    match cluster.mode() {
        Mode::Loopback => Err(ExperimentError::Unfit(format!("{reason}: namespaces mode"))),
        Mode::Namespaces => Ok(cluster),
    }
}

/// Nothing measured yet, and the arms whose programs are there.
pub(super) fn begin(lab: &Lab, cluster: &Cluster, all: Vec<Arm>) -> (Measured, Vec<Arm>) {
    let mut measured = Measured {
        mode: cluster.mode().name().into(),
        emulated: cluster.emulated(),
        ..Measured::default()
    };
    let mut present = Vec::new();
    for arm in all.into_iter().filter(|it| lab.part.has_arm(&it.name)) {
        measured.notes.push(match front::available(&arm.kind) {
            Ok(version) => {
                present.push(arm);
                format!("Version: {version}.")
            }
            Err(why) => format!("SKIPPED {}: {why}", arm.name),
        });
    }
    (measured, present)
}

/// Each arm in each round, with the round's number. Another one begins each round.
pub(super) fn turns(arms: &[Arm], rounds: u32) -> impl Iterator<Item = (u32, &Arm)> {
    (0..rounds).flat_map(move |round| {
        let (before, from) = arms.split_at(round as usize % arms.len().max(1));
        from.iter().chain(before).map(move |arm| (round, arm))
    })
}

/// The report of what was measured since then; an error if that is nothing.
pub(super) fn end(
    experiment: &Experiment,
    lab: &Lab,
    arms: &[Arm],
    measured: Measured,
    findings: impl FnOnce(&Table) -> ExperimentFindings,
    since: Timestamp,
) -> Result<Report, ExperimentError> {
    if measured.table.is_empty() {
        return Err(ExperimentError::Nothing(measured.notes.join("; ")));
    }
    let findings = findings(&measured.table);
    let took = clock::now().since(since);
    Ok(report_of(experiment, lab, arms, measured, findings, took))
}

#[cfg(test)]
mod tests {
    use crate::front::{FrontKind, HaproxyBalance};

    use super::*;

    #[test]
    fn another_arm_begins_each_round() {
        let arm = |name: &str| Arm {
            name: name.into(),
            ..Arm::of(FrontKind::Haproxy(HaproxyBalance::RoundRobin))
        };
        let arms = ["a", "b", "c"].map(arm);
        let order: String = turns(&arms, 4)
            .map(|(round, arm)| format!("{}{round} ", arm.name))
            .collect();
        assert_eq!(order, "a0 b0 c0 b1 c1 a1 c2 a2 b2 a3 b3 c3 ");
        assert_eq!(turns(&[], 3).count(), 0);
    }
}
