//! `loaded-nodes`: throughput as more and more nodes run background work (KLM-2005 §5.3,
//! Figure 6: 16 processes that play ping-pong with 4 KB messages, Zipf alpha 0.9).
//!
//! The processes run in the node's own control group, so they take CPU time from its server.

use std::time::Duration;

use serde_json::json;
use tidegate_remote::clock;

use crate::antagonist::Antagonist;
use crate::results::{Axis, Report};

use super::arms::AUTO;
use super::judge::{at_least, gain, ratio};
use super::measured::{Measured, labelled};
use super::paper::{beside, own, peers, ranked};
use super::plan::{Arm, Plan, Point, Stage};
use super::report::{ExperimentFindings, Sketch, auto_ahead, report};
use super::runner::{NoHook, Runner};
use super::{Experiment, ExperimentError, Lab, Scale, arms, workload};

/// See the module.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "loaded-nodes",
    about: "throughput with 16 ping-pong processes on 0 to 8 of 8 nodes",
    source: "KLM-2005 §5.3, Figure 6",
    needs: "haproxy, nginx, apache2, envoy for their arms",
    estimate: |scale| plan(scale).estimate(),
    run,
    plan: Some(plan),
};

const METRIC: &str = "throughput_rps";
const ALPHA: f64 = 0.9;
/// What the paper runs on a loaded node.
const PROCESSES: u32 = 16;
const MESSAGE: usize = 4096;
/// Numbers of loaded nodes.
const QUICK: &[usize] = &[0, 4];
const FULL: &[usize] = &[0, 2, 4, 6, 8];

fn plan(scale: Scale) -> Plan {
    let mut all = arms::paper();
    all.push(arms::auto());
    all.extend(scale.pick(
        arms::best_peers().into_iter().take(2).collect(),
        arms::best_peers(),
    ));
    let (warm_up, length) = scale.pick((500, 1500), (600, 2500));
    let point = |loaded: &usize| Point {
        antagonists: (0..*loaded).map(|node| (node, ping_pong())).collect(),
        // Peers at none, half and all.
        only: (!loaded.is_multiple_of(4)).then_some(|arm: &Arm| !arm.peer()),
        ..Point::single(
            label(*loaded),
            workload::clients("site", workload::CLIENTS, ALPHA),
            Duration::from_millis(warm_up),
            Duration::from_millis(length),
        )
    };
    Plan {
        stages: vec![Stage::new(
            workload::cluster(arms::PAPER_AGENTS),
            scale.pick(QUICK, FULL).iter().map(point).collect(),
        )],
        arms: workload::processes(all),
        rounds: 2,
    }
}

fn ping_pong() -> Antagonist {
    Antagonist::PingPong {
        processes: PROCESSES,
        bytes: MESSAGE,
    }
}

fn label(loaded: usize) -> String {
    format!("loaded={loaded}")
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let plan = plan(lab.scale);
    let measured = Runner::run(lab, &plan, &mut NoHook)?;
    let findings = findings(lab.scale, &plan, &measured);
    Ok(report(
        &EXPERIMENT,
        lab,
        &plan,
        measured,
        findings,
        clock::now().since(started),
    ))
}

fn findings(scale: Scale, plan: &Plan, measured: &Measured) -> ExperimentFindings {
    let table = &measured.table;
    let loaded = scale.pick(QUICK, FULL);
    let half = labelled(METRIC, &label(4));
    let over = |arm| gain(table, arm, "round_robin", &half);
    let mut verdicts = vec![
        at_least(
            "ulm's gain on round robin with half of the nodes loaded, %".into(),
            over("ulm"),
            0.0,
        ),
        at_least(
            "klm's gain on round robin with half of the nodes loaded, %".into(),
            over("klm"),
            0.0,
        ),
        at_least(
            "klm over ulm with half of the nodes loaded".into(),
            ratio(table, "klm", "ulm", &half),
            1.0,
        ),
        at_least(
            "auto's gain on round robin with half of the nodes loaded, %".into(),
            over(AUTO),
            0.0,
        ),
    ];
    for loaded in loaded {
        verdicts.extend(auto_ahead(
            plan,
            table,
            &labelled(METRIC, &label(*loaded)),
            true,
        ));
    }
    ExperimentFindings {
        paper: [(
            "order".to_owned(),
            beside(
                json!("klm > ulm > round robin and random, more so with more loaded nodes"),
                "KLM-2005 §5.3, Figure 6 (no numbers in the text)",
                ranked(table, &own(plan, table), &half, true),
                ranked(table, &peers(plan, table), &half, true),
            ),
        )]
        .into(),
        verdicts,
        notes: vec![
            arms::RUNG.into(),
            "A loaded node still gives each request its share of the CPU. A front-end that sends there as much as elsewhere \
             takes that share from the neighbours, and its throughput profits; its slow requests show in p99. auto sends a \
             request where it expects it to be fastest, so it leaves the neighbours alone until the free nodes are as full: \
             its requests queue there meanwhile, which its median shows."
                .into(),
        ],
        plots: vec![Sketch::Over {
            title: "Throughput with loaded nodes",
            quantity: METRIC,
            parameter: "loaded",
            x: Axis::linear("loaded nodes"),
            y: Axis::from_zero("requests/s"),
        }],
    }
}
