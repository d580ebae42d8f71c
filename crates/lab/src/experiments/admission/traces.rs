//! `admission-traces`: mean response time under Zipf requests and under the World Cup's traffic
//! (Admission-2008 §IV-B2, Figure 10).
//!
//! ```text
//! Zipf        closed loop, alpha 0.9: files of unequal cost, the popular ones in the nodes' caches
//! World Cup   open loop: the recorded course of an evening's arrivals pressed into the run: 0.7 of the
//!             knee on the average, 0.25 at first, up to 1.9 in its last third; 90 000 objects whose
//!             popularity, sizes and costs are modelled
//! ```
//!
//! In the paper closed-loop clients ask for the World Cup's files. Its arrivals are what is recorded, so
//! here they come as they came: the overload is the evening's own. Without the recorded trace that
//! part is SKIPPED.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_remote::clock;

use crate::experiments::judge::{Table, at_most};
use crate::experiments::measured::{Measured, labelled};
use crate::experiments::paper::{beside, ranked};
use crate::experiments::plan::{Plan, Point, Stage};
use crate::experiments::report::{ExperimentFindings, Sketch, report};
use crate::experiments::runner::Runner;
use crate::experiments::{Experiment, ExperimentError, Lab, Scale, workload};
use crate::load::{self, Arrivals, Pacing, Requests, Size, Spread, Stream};
use crate::results::{Axis, GoalVerdict, Report};

use super::{
    ADAPTIVE, InTime, KERNEL, LIGHT, OFF, OVER_TCP, SITE, SLO, TIMEOUT, best_of, by_clients,
    calibration, cluster, haproxy, measured_arms, open, over, paper_arms, point,
};

/// See the module.
pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "admission-traces",
    about: "mean response time under Zipf requests and the World Cup's traffic",
    source: "Admission-2008 §IV, Figure 10",
    needs: "the recorded trace for the World Cup; haproxy for its arm",
    estimate: |scale| plan(scale).estimate(),
    run,
    plan: Some(plan),
};

const METRIC: &str = "mean_ms";
const ALPHA: f64 = 0.9;
const QUICK: &[u32] = &[200];
const FULL: &[u32] = &[LIGHT, 100, 300];
const WORLD_CUP: &str = "trace=world_cup";
/// The evening's mean over the knee.
const MEAN: f64 = 0.7;
/// Enough for the nodes' caches to be as this load leaves them.
const SETTLE: Duration = Duration::from_secs(4);
/// What an object costs, microseconds of CPU time.
const COST: Size = Size {
    mean: 3000.0,
    spread: Spread::LogNormal { cv: 1.0 },
};

fn clients(scale: Scale) -> &'static [u32] {
    scale.pick(QUICK, FULL)
}

fn plan(scale: Scale) -> Plan {
    let length = scale.pick([1500, 2500], [2000, 4000]);
    let zipf = |clients: &u32| {
        let stream = workload::clients(SITE, *clients, ALPHA);
        Point {
            settle: SETTLE,
            ..point(by_clients(*clients), stream, length)
        }
    };
    let caches = workload::cluster(KERNEL);
    let mut arms = paper_arms();
    arms.push(haproxy(SLO));
    Plan {
        stages: vec![
            Stage::new(caches, clients(scale).iter().map(zipf).collect()),
            world_cup(scale),
        ],
        arms,
        rounds: 2,
    }
}

fn world_cup(scale: Scale) -> Stage {
    let arrivals = Arrivals::WorldCup;
    let evening = objects(Pacing::Open {
        rate: MEAN,
        arrivals,
    });
    let point = point(
        WORLD_CUP.into(),
        evening,
        scale.pick([300, 4000], [500, 12_000]),
    );
    Stage {
        calibration: Some(calibration(scale, objects(open(1.0)), 150.0)),
        ..Stage::new(cluster(KERNEL), vec![point])
    }
}

/// The World Cup's objects.
fn objects(pacing: Pacing) -> Stream {
    Stream {
        site: SITE.into(),
        pacing,
        requests: Requests::world_cup("/work?cpu={cpu}us&bytes={bytes}", COST),
        header: None,
    }
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let mut plan = plan(lab.scale);
    let recorded = load::recorded_world_cup();
    if recorded.is_err() {
        plan.stages.pop();
    }
    let mut measured = Runner::run(lab, &plan, &mut InTime)?;
    let skipped = recorded
        .err()
        .map(|why| format!("SKIPPED {WORLD_CUP}: {why}"));
    measured.notes.extend(skipped);
    let findings = findings(lab.scale, &plan, &measured);
    let took = clock::now().since(started);
    Ok(report(&EXPERIMENT, lab, &plan, measured, findings, took))
}

/// Of `adaptive` against no admission and against the best over TCP, with what the paper gained.
fn verdicts(table: &Table, label: &str, off: f64, tcp: f64) -> [Option<GoalVerdict>; 2] {
    let best = best_of(table, OVER_TCP, METRIC, label, false);
    [
        at_most(
            format!("adaptive's mean response time over that without admission, {label}"),
            over(table, (ADAPTIVE, OFF), METRIC, label),
            off,
        ),
        at_most(
            format!(
                "adaptive's mean response time over that of the best over TCP, {}, {label}",
                best.unwrap_or("none")
            ),
            best.and_then(|best| over(table, (ADAPTIVE, best), METRIC, label)),
            tcp,
        ),
    ]
}

fn findings(scale: Scale, plan: &Plan, measured: &Measured) -> ExperimentFindings {
    let table = &measured.table;
    let most = by_clients(clients(scale).last().copied().unwrap_or(LIGHT));
    let (names, _) = measured_arms(plan, table);
    let figure = |value: &str, source: &str, label: &str| {
        let order = ranked(table, &names, &labelled(METRIC, label), false);
        beside(json!(value), source, order, Value::Null)
    };
    let [zipf, evening] = [(&*most, 0.58, 0.77), (WORLD_CUP, 0.64, 0.83)]
        .map(|(label, off, tcp)| verdicts(table, label, off, tcp));
    ExperimentFindings {
        paper: [
            (
                "zipf".to_owned(),
                figure(
                    "RDMA -42 % against no admission, -23 % against TCP",
                    "Admission-2008 §IV-B2, Figure 10(a), at 520 clients",
                    &most,
                ),
            ),
            (
                "world_cup".to_owned(),
                figure(
                    "RDMA -36 % against no admission, -17 % against TCP",
                    "Admission-2008 §IV-B2, Figure 10(b), at 520 clients",
                    WORLD_CUP,
                ),
            ),
        ]
        .into(),
        verdicts: zipf.into_iter().chain(evening).collect(),
        notes: vec![format!(
            "Mean response times of answered requests. Under the World Cup's traffic a request without an answer within {TIMEOUT:?} has failed."
        )],
        plots: vec![
            Sketch::Over {
                title: "Mean response time under Zipf requests, by clients",
                quantity: METRIC,
                parameter: "clients",
                x: Axis::linear("clients"),
                y: Axis::from_zero("ms"),
            },
            Sketch::bar(
                "Mean response time under the World Cup's traffic",
                &labelled(METRIC, WORLD_CUP),
                "ms",
            ),
        ],
    }
}
