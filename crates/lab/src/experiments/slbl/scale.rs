//! `slbl-scale`: throughput of one to ten servers under as many clients as they can serve (SLBL-ARPN §8 C, Figure 9).

use std::time::Duration;

use serde_json::json;
use tidegate_remote::clock;

use crate::experiments::arms::AUTO;
use crate::experiments::judge::{Table, at_least, median, ratio};
use crate::experiments::measured::labelled;
use crate::experiments::paper::{beside, own, peers, ranked};
use crate::experiments::plan::{Plan, Point, Stage};
use crate::experiments::report::{ExperimentFindings, Sketch, report};
use crate::experiments::runner::{NoHook, Runner};
use crate::experiments::{Experiment, ExperimentError, Lab, Scale};
use crate::load::{Pacing, Stream};
use crate::results::{Axis, Report};

use super::{LEAST, SLBL, all_arms, arriving, cluster, notes};

/// See the module.
pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "slbl-scale",
    about: "throughput of one to ten equal servers under clients that ask as fast as they are answered",
    source: "SLBL-ARPN §8 C, Figure 9",
    needs: "namespaces (root); haproxy for its arms",
    estimate: |scale| plan(scale).estimate(),
    run,
    plan: Some(plan),
};

const RATE: &str = "throughput_rps";
/// Numbers of servers; ten of them share four fifths of a CPU.
const QUICK: &[usize] = &[1, 5];
const FULL: &[usize] = &[1, 2, 4, 6, 8, 10];
const SHARE: f64 = 0.08;
/// Clients of each server.
const CLIENTS: u32 = 6;

fn plan(scale: Scale) -> Plan {
    let (warm_up, length) = scale.pick((500, 2000), (500, 3000));
    let stage = |servers: &usize| {
        let clients = Stream {
            pacing: Pacing::Closed {
                clients: CLIENTS * *servers as u32,
                think: Duration::ZERO,
            },
            ..arriving(1.0)
        };
        let point = Point {
            settle: Duration::ZERO,
            ..Point::single(
                label(*servers),
                clients,
                Duration::from_millis(warm_up),
                Duration::from_millis(length),
            )
        };
        Stage::new(cluster(*servers, SHARE), vec![point])
    };
    Plan {
        stages: scale.pick(QUICK, FULL).iter().map(stage).collect(),
        arms: all_arms(),
        rounds: 2,
    }
}

fn label(servers: usize) -> String {
    format!("servers={servers}")
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let plan = plan(lab.scale);
    let measured = Runner::run(lab, &plan, &mut NoHook)?;
    let findings = findings(&plan, lab.scale.pick(QUICK, FULL), &measured.table);
    let took = clock::now().since(started);
    Ok(report(&EXPERIMENT, lab, &plan, measured, findings, took))
}

fn findings(plan: &Plan, servers: &[usize], table: &Table) -> ExperimentFindings {
    let most = servers.last().copied().unwrap_or(1);
    let at = |servers| labelled(RATE, &label(servers));
    let grows = |arm: &str| Some(median(table, arm, &at(most))? / median(table, arm, &at(1))?);
    let linear = |arm: &str| {
        let goal = format!("{arm}: throughput of {most} servers over that of one");
        at_least(goal, grows(arm), 0.95 * most as f64)
    };
    let over = |arm: &str| {
        let goal = format!("{arm} over {LEAST} at {most} servers");
        at_least(goal, ratio(table, arm, LEAST, &at(most)), 1.0)
    };
    ExperimentFindings {
        paper: [(
            "order".to_owned(),
            beside(
                json!("slbl and least connections grow linearly, round robin levels off"),
                "SLBL-ARPN §8 C, Figure 9 (no numbers in the text)",
                ranked(table, &own(plan, table), &at(most), true),
                ranked(table, &peers(plan, table), &at(most), true),
            ),
        )]
        .into(),
        verdicts: [SLBL, AUTO]
            .into_iter()
            .flat_map(|arm| [linear(arm), over(arm)])
            .collect(),
        notes: notes(),
        plots: vec![Sketch::Over {
            title: "Throughput over the number of servers",
            quantity: RATE,
            parameter: "servers",
            x: Axis::linear("servers"),
            y: Axis::from_zero("requests/s"),
        }],
    }
}
