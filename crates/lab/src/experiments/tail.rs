//! `tail`: p99 in an open loop at 0.9 and 1.27 of the knee, on unequal nodes with neighbours.
//!
//! The knee is found once, with round robin on the same nodes; so 1.27 of it is beyond what blind
//! balancing bears, and within what the nodes together can do. Several processes of every
//! front-end stand before the same nodes and do not know of each other, as in production: each
//! sees only its own part of the traffic. Latency counts from the intended start.
//!
//! Requests cost 2 ms CPU on average (log-normal, cv 1.5, fixed per file) and no node has a cache: a
//! 99th percentile wants many of them.
//!
//! The protocol (fraction of a calibrated knee, antagonists, CPU-limited nodes) is that of public
//! reproductions of Prequal.

use std::time::Duration;

use serde_json::json;
use tidegate_remote::clock;

use crate::antagonist::Antagonist;
use crate::cluster::{CachePlan, ClusterPlan};
use crate::front::{FrontKind, TidegateArm};
use crate::load::{Arrivals, Pacing, Stream};
use crate::results::{Axis, Report};

use super::arms::AUTO;
use super::judge::{Table, at_least, at_most, best, ratio, rounds};
use super::measured::{Measured, labelled};
use super::paper::{beside, own, peers, ranked};
use super::plan::{Arm, Calibration, Plan, Point, Stage};
use super::report::{ExperimentFindings, Sketch, auto_ahead, report};
use super::runner::{NoHook, Runner};
use super::{Experiment, ExperimentError, Lab, Scale, arms, workload};

/// See the module.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "tail",
    about: "p99 at 0.9 and 1.27 of the knee, unequal nodes with neighbours, several front-ends: all policies and peers",
    source: "design goals; protocol of public reproductions of Prequal",
    needs: "haproxy, nginx, apache2, envoy for their arms",
    estimate: |scale| plan(scale).estimate(),
    run,
    plan: Some(plan),
};

const METRIC: &str = "p99_ms";
const ALPHA: f64 = 0.5;
/// Unequal: the largest has twice the smallest. Together as in the other experiments.
const SHARES: [f64; 8] = [0.07, 0.14, 0.07, 0.11, 0.09, 0.12, 0.09, 0.11];
/// Fractions of the knee.
const LOADS: [f64; 2] = [0.9, 1.27];
/// Processes of each front-end: see the module.
const PROCESSES: u32 = workload::PROCESSES;

fn plan(scale: Scale) -> Plan {
    let (warm_up, length) = scale.pick((600, 2000), (1000, 3500));
    let all = match scale {
        Scale::Quick => quick_arms(),
        Scale::Full => full_arms(),
    };
    let point = |load: &f64| Point {
        antagonists: neighbours(),
        timeout: Duration::from_secs(5),
        ..Point::single(
            label(*load),
            requests(*load),
            Duration::from_millis(warm_up),
            Duration::from_millis(length),
        )
    };
    let calibration = Calibration {
        front: FrontKind::Tidegate(TidegateArm::blind("round_robin")),
        streams: vec![requests(1.0)],
        first: 90.0,
        length: Duration::from_millis(scale.pick(1200, 2000)),
        steps: 10,
    };
    Plan {
        stages: vec![Stage {
            calibration: Some(calibration),
            ..Stage::new(cluster(), LOADS.iter().map(point).collect())
        }],
        arms: all.into_iter().map(|arm| arm.times(PROCESSES)).collect(),
        rounds: 2,
    }
}

/// Unequal nodes to which all files cost the same everywhere.
fn cluster() -> ClusterPlan {
    let mut plan = workload::unequal(&SHARES, arms::PAPER_AGENTS);
    for node in &mut plan.nodes {
        node.cache = CachePlan::default();
    }
    plan
}

fn quick_arms() -> Vec<Arm> {
    let mut all = vec![arms::blind("round_robin"), arms::blind("least_request")];
    all.extend([arms::fresh("prequal_rif"), arms::auto()]);
    all.extend(arms::best_peers());
    all
}

fn full_arms() -> Vec<Arm> {
    let blind = [
        "random",
        "round_robin",
        "least_request",
        "power_of_two",
        "peak_ewma",
    ];
    let mut all: Vec<_> = blind.map(arms::blind).into();
    all.extend(["prequal", "prequal_rif", "slbl"].map(arms::fresh));
    all.push(arms::scheme("ulm", arms::PAPER_INTERVAL));
    all.push(arms::scheme("klm", arms::FRESH));
    all.push(arms::auto());
    all.extend(arms::peers());
    all
}

/// Hogs that come and go on two nodes, one of them small.
fn neighbours() -> Vec<(usize, Antagonist)> {
    let bursty = |seed| Antagonist::Bursty {
        threads: 2,
        duty: 0.3,
        shortest: Duration::from_millis(100),
        longest: Duration::from_secs(2),
        seed,
    };
    vec![(2, bursty(1)), (5, bursty(2))]
}

fn requests(rate: f64) -> Stream {
    Stream {
        site: "site".into(),
        pacing: Pacing::Open {
            rate,
            arrivals: Arrivals::Poisson,
        },
        requests: workload::zipf(ALPHA),
        header: None,
    }
}

fn label(load: f64) -> String {
    format!("load={load}")
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let plan = plan(lab.scale);
    let measured = Runner::run(lab, &plan, &mut NoHook)?;
    let findings = findings(&plan, &measured);
    Ok(report(
        &EXPERIMENT,
        lab,
        &plan,
        measured,
        findings,
        clock::now().since(started),
    ))
}

fn findings(plan: &Plan, measured: &Measured) -> ExperimentFindings {
    let table = &measured.table;
    let mut verdicts = Vec::new();
    for load in LOADS {
        let metric = labelled(METRIC, &label(load));
        let round_robin = ratio(table, "round_robin", AUTO, &metric);
        let peer = best(table, peers(plan, table), &metric, false);
        let over_peer = peer.and_then(|peer| ratio(table, AUTO, peer, &metric));
        verdicts.extend([
            at_least(
                format!("round robin's p99 over auto's at {load} of the knee"),
                round_robin,
                2.5,
            ),
            at_most(
                format!(
                    "auto's p99 over that of the best peer, {}, at {load} of the knee",
                    peer.unwrap_or("none")
                ),
                over_peer,
                0.85,
            ),
            at_most(
                format!("auto's failed requests at {load} of the knee"),
                failed(table, load),
                0.0,
            ),
        ]);
        verdicts.extend(auto_ahead(plan, table, &metric, false));
    }
    let order = |arms: &[&str]| {
        let at = |load| ranked(table, arms, &labelled(METRIC, &label(load)), false);
        json!(LOADS.map(|load| format!("{load}: {}", at(load).as_str().unwrap_or("–"))))
    };
    let group = |load: f64| {
        (
            format!("{load} of the knee"),
            labelled(METRIC, &label(load)),
        )
    };
    ExperimentFindings {
        paper: [(
            "prequal_reproduction".to_owned(),
            beside(
                json!("0.9: prequal 93 < two random choices 130 < round robin 258; 1.27: prequal 215 < weighted round robin 678"),
                "p99 in ms of a public reproduction of Prequal with 4 replicas on 4 CPUs",
                order(&own(plan, table)),
                order(&peers(plan, table)),
            ),
        )]
        .into(),
        verdicts,
        notes: vec![
            format!("{PROCESSES} processes of each front-end, which do not know of each other."),
            "Policies that read load read an agent at real-time priority beside the node's quota (rung 5); ulm reads one inside each 50 ms.".into(),
        ],
        plots: vec![Sketch::Bars {
            title: "p99 from the intended start".into(),
            groups: LOADS.map(group).into(),
            y: Axis::log("p99, ms"),
        }],
    }
}

/// All failed requests of `auto`.
fn failed(table: &Table, load: f64) -> Option<f64> {
    let failed = rounds(table, AUTO, &labelled("failed", &label(load)));
    (!failed.is_empty()).then(|| failed.iter().sum())
}
