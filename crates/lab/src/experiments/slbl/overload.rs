//! `slbl-overload`: two of five servers run out of file descriptors, or of CPU (SLBL-ARPN §8 Scenario II, Figures 6 to 8).
//!
//! The rate of requests rises until the three servers that are left are full. Service rate is what is answered per second,
//! at the rate at which most is.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_remote::clock;

use crate::antagonist::Antagonist;
use crate::experiments::arms::AUTO;
use crate::experiments::judge::{Table, at_least, median, ratio};
use crate::experiments::measured::labelled;
use crate::experiments::paper::{beside, own, peers, ranked};
use crate::experiments::plan::{Plan, Point, Stage};
use crate::experiments::report::{ExperimentFindings, Sketch, report};
use crate::experiments::runner::{NoHook, Runner};
use crate::experiments::{Experiment, ExperimentError, Lab, Scale};
use crate::results::{Axis, GoalVerdict, Report};

use super::{
    FED, LEAST, PERIOD, ROUND_ROBIN, SERVERS, SHARE, SLBL, SLBL_SNMP, STARVED, all_arms, arriving,
    cluster, notes, starved,
};

/// See the module.
pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "slbl-overload",
    about: "service rate, response time and errors while two of five servers have no file descriptors, or no CPU, to spare",
    source: "SLBL-ARPN §8 Scenario II, Figures 6 to 8",
    needs: "namespaces (root); haproxy for its arms",
    estimate: |scale| plan(scale).estimate(),
    run,
    plan: Some(plan),
};

const RATE: &str = "throughput_rps";
/// Requests per second; three servers can do about 90.
const QUICK: &[u32] = &[80];
const FULL: &[u32] = &[40, 80, 120];
/// Threads that want CPU on a starved server, and how long that is watched.
const HOGS: u32 = 8;
const HOGGED: Duration = Duration::from_secs(5);
/// The rate then.
const HOGGED_RATE: u32 = 80;
const WARM_UP: Duration = Duration::from_secs(1);

fn plan(scale: Scale) -> Plan {
    let rates = scale.pick(QUICK, FULL).iter();
    let files = rates.map(|rate| Point {
        antagonists: starved(),
        timeout: Duration::from_secs(2),
        settle: Duration::ZERO,
        ..Point::single(
            label(*rate),
            arriving((*rate).into()),
            WARM_UP,
            scale.pick(PERIOD, 2 * PERIOD),
        )
    });
    let hogs = |node| (node, Antagonist::Hogs { threads: HOGS });
    let cpu = Point {
        antagonists: (0..STARVED).map(hogs).collect(),
        settle: Duration::ZERO,
        ..Point::single(CPU.into(), arriving(HOGGED_RATE.into()), WARM_UP, HOGGED)
    };
    let cpu = scale.pick(None, Some(cpu));
    let mut arms = all_arms();
    if scale == Scale::Quick {
        arms.retain(|arm| arm.peer() || arm.name == SLBL || arm.name == AUTO);
    }
    Plan {
        stages: vec![Stage::new(
            cluster(SERVERS, SHARE),
            files.chain(cpu).collect(),
        )],
        arms,
        rounds: 2,
    }
}

const CPU: &str = "starved=cpu";

fn label(rate: u32) -> String {
    format!("rate={rate}")
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let plan = plan(lab.scale);
    let measured = Runner::run(lab, &plan, &mut NoHook)?;
    let findings = findings(&plan, scale_rates(lab.scale), &measured.table);
    let took = clock::now().since(started);
    Ok(report(&EXPERIMENT, lab, &plan, measured, findings, took))
}

fn scale_rates(scale: Scale) -> &'static [u32] {
    scale.pick(QUICK, FULL)
}

/// The highest rate at which an arm answered, among those offered.
fn most(table: &Table, arm: &str, rates: &[u32]) -> Option<f64> {
    let rates = rates.iter();
    let answered = rates.filter_map(|rate| median(table, arm, &labelled(RATE, &label(*rate))));
    answered.reduce(f64::max)
}

fn findings(plan: &Plan, rates: &[u32], table: &Table) -> ExperimentFindings {
    let times = |arm: &str, base: &str| Some(most(table, arm, rates)? / most(table, base, rates)?);
    let goal = |arm: &str, base: &str, wanted| {
        at_least(
            format!("service rate of {arm} over {base}"),
            times(arm, base),
            wanted,
        )
    };
    let mut verdicts: Vec<Option<GoalVerdict>> = vec![
        goal(SLBL, LEAST, 1.4),
        goal(SLBL, ROUND_ROBIN, 2.0),
        goal(SLBL_SNMP, LEAST, 1.4),
        goal(SLBL_SNMP, ROUND_ROBIN, 2.0),
        goal(AUTO, LEAST, 1.4),
        goal(AUTO, ROUND_ROBIN, 2.0),
        goal(FED, ROUND_ROBIN, 1.0),
    ];
    let cpu = labelled(RATE, CPU);
    for arm in [SLBL, AUTO] {
        let goal = format!("answered per second while two have no CPU: {arm} over {LEAST}");
        verdicts.push(at_least(goal, ratio(table, arm, LEAST, &cpu), 1.0));
    }
    let last = rates.last().copied().unwrap_or_default();
    let everywhere =
        |arms: &[&str]| -> Value { ranked(table, arms, &labelled(RATE, &label(last)), true) };
    ExperimentFindings {
        paper: [(
            "service_rate".to_owned(),
            beside(
                json!("SLBL 1.27 times LC and 1.93 times RR"),
                "SLBL-ARPN §8, conclusion",
                everywhere(&own(plan, table)),
                everywhere(&peers(plan, table)),
            ),
        )]
        .into(),
        verdicts,
        notes: notes(),
        plots: vec![
            sketch("Answered while two servers are starved", RATE, "requests/s"),
            sketch(
                "Response time while two servers are starved",
                "mean_ms",
                "mean, ms",
            ),
            sketch("Failed while two servers are starved", "failed", "requests"),
        ],
    }
}

fn sketch(title: &'static str, quantity: &'static str, y: &'static str) -> Sketch {
    Sketch::Over {
        title,
        quantity,
        parameter: "rate",
        x: Axis::linear("requests/s offered"),
        y: Axis::from_zero(y),
    }
}
