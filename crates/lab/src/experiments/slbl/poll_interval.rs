//! `slbl-poll-interval`: requests that fail while servers run out of file descriptors again and again, as load is read each
//! 100 ms to 10 s (SLBL-ARPN §8, Figure 2; 50 requests a second).
//!
//! The paper counts failures of connections. Counted here is every request without a whole answer in two seconds, or with a
//! server error.

use std::time::Duration;

use serde_json::json;
use tidegate_remote::clock;

use crate::experiments::arms::{self, AUTO, BESIDE};
use crate::experiments::judge::{Table, at_most, median};
use crate::experiments::measured::labelled;
use crate::experiments::paper::{beside, peers, ranked};
use crate::experiments::plan::{Arm, Plan, Point, Stage};
use crate::experiments::report::{ExperimentFindings, Sketch, report};
use crate::experiments::runner::{NoHook, Runner};
use crate::experiments::{Experiment, ExperimentError, Lab, Scale};
use crate::front::{FrontKind, HaproxyBalance, TidegateArm};
use crate::results::{Axis, Report};

use super::{PERIOD, SERVERS, SHARE, SLBL, SLBL_SNMP, arriving, cluster, notes, starved};

/// See the module.
pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "slbl-poll-interval",
    about: "failed requests while two of five servers run out of file descriptors, as load is read each 100 ms to 10 s",
    source: "SLBL-ARPN §8, Figure 2",
    needs: "namespaces (root); haproxy for its arm",
    estimate: |scale| plan(scale).estimate(),
    run,
    plan: Some(plan),
};

const FAILED: &str = "failed";
/// Requests per second, the paper's.
const OFFERED: f64 = 50.0;
/// Milliseconds.
const QUICK: &[u64] = &[500, 5000];
const FULL: &[u64] = &[100, 500, 1000, 5000, 10_000];
/// Up to here none is to fail.
const GOAL: u64 = 5000;
const BLIND: &str = "round_robin";
/// Arms that read at an interval.
const READING: [&str; 3] = [SLBL_SNMP, SLBL, AUTO];

fn plan(scale: Scale) -> Plan {
    let length = scale.pick(PERIOD, 3 * PERIOD);
    let first = scale.pick(QUICK, FULL)[0];
    let stage = |millis: &u64| {
        let interval = Duration::from_millis(*millis);
        let reads: Option<fn(&Arm) -> bool> = Some(|arm| READING.contains(&arm.name.as_str()));
        let point = Point {
            antagonists: starved(),
            timeout: Duration::from_secs(2),
            settle: Duration::ZERO,
            // What reads nothing does not depend on the interval.
            only: if *millis == first { None } else { reads },
            ..Point::single(
                label(*millis),
                arriving(OFFERED),
                Duration::from_secs(1),
                length,
            )
        };
        Stage {
            instead: reading(interval),
            ..Stage::new(cluster(SERVERS, SHARE), vec![point])
        }
    };
    let mut all = vec![
        arms::blind(BLIND),
        Arm::of(FrontKind::Haproxy(HaproxyBalance::RoundRobin)),
    ];
    all.extend(reading(Duration::from_millis(first)));
    Plan {
        stages: scale.pick(QUICK, FULL).iter().map(stage).collect(),
        arms: all,
        rounds: 2,
    }
}

/// The arms that read at an interval.
fn reading(interval: Duration) -> Vec<Arm> {
    let beside = |policy| TidegateArm::reading(policy, policy, BESIDE, interval);
    let arms = [
        TidegateArm::by_snmp(SLBL_SNMP, SLBL, interval),
        beside(SLBL),
        beside(AUTO),
    ];
    arms.map(|arm| Arm::of(FrontKind::Tidegate(arm))).into()
}

fn label(millis: u64) -> String {
    format!("interval_ms={millis}")
}

fn metric(millis: u64) -> String {
    labelled(FAILED, &label(millis))
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let plan = plan(lab.scale);
    let measured = Runner::run(lab, &plan, &mut NoHook)?;
    let findings = findings(&plan, lab.scale.pick(QUICK, FULL), &measured.table);
    let took = clock::now().since(started);
    Ok(report(&EXPERIMENT, lab, &plan, measured, findings, took))
}

fn findings(plan: &Plan, intervals: &[u64], table: &Table) -> ExperimentFindings {
    let failed = |arm: &str, millis: u64| {
        let goal = format!("failed requests of {arm}, read each {millis} ms");
        at_most(goal, median(table, arm, &metric(millis)), 0.0)
    };
    let within = intervals.iter().filter(|millis| **millis <= GOAL);
    let verdicts = within.flat_map(|millis| READING.map(|arm| failed(arm, *millis)));
    let first = metric(intervals[0]);
    let here = intervals.iter().map(|millis| {
        let order = ranked(
            table,
            &[SLBL_SNMP, SLBL, AUTO, BLIND],
            &metric(*millis),
            false,
        );
        json!({ "interval_ms": millis, "failed": order })
    });
    ExperimentFindings {
        paper: [(
            "failed".to_owned(),
            beside(
                json!("none at 100 and 500 ms, some at 1 s, more at 5 and 10 s; round robin most at any"),
                "SLBL-ARPN §8, Figure 2 (no numbers in the text)",
                here.collect(),
                ranked(table, &peers(plan, table), &first, false),
            ),
        )]
        .into(),
        verdicts: verdicts.collect(),
        notes: notes(),
        plots: vec![Sketch::Over {
            title: "Failed requests by interval of reading",
            quantity: FAILED,
            parameter: "interval_ms",
            x: Axis::log("interval, ms"),
            y: Axis::from_zero("failed requests"),
        }],
    }
}
