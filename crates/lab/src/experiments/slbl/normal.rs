//! `slbl-normal`: five equal servers with nothing else to do (SLBL-ARPN §8 Scenario I, Figures 3 to 5).

use std::time::Duration;

use serde_json::json;
use tidegate_remote::clock;

use crate::experiments::arms::AUTO;
use crate::experiments::judge::{Table, at_least, best, ratio};
use crate::experiments::measured::labelled;
use crate::experiments::paper::{beside, own, peers, ranked};
use crate::experiments::plan::{Plan, Point, Stage};
use crate::experiments::report::{ExperimentFindings, Sketch, report};
use crate::experiments::runner::{NoHook, Runner};
use crate::experiments::{Experiment, ExperimentError, Lab, Scale};
use crate::results::{Axis, Report};

use super::{SERVERS, SHARE, SLBL, all_arms, arriving, cluster, notes};

/// See the module.
pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "slbl-normal",
    about: "throughput, response time and errors of five equal servers over the rate of requests",
    source: "SLBL-ARPN §8 Scenario I, Figures 3 to 5",
    needs: "namespaces (root); haproxy for its arms",
    estimate: |scale| plan(scale).estimate(),
    run,
    plan: Some(plan),
};

const RATE: &str = "throughput_rps";
/// Requests per second; five servers can do about 150.
const QUICK: &[u32] = &[60, 120];
const FULL: &[u32] = &[30, 60, 90, 120, 135];
/// As good as the best.
const LEVEL: f64 = 0.98;

fn plan(scale: Scale) -> Plan {
    let (warm_up, length) = scale.pick((500, 2000), (1000, 4000));
    let point = |rate: &u32| Point {
        settle: Duration::ZERO,
        ..Point::single(
            label(*rate),
            arriving((*rate).into()),
            Duration::from_millis(warm_up),
            Duration::from_millis(length),
        )
    };
    let points = scale.pick(QUICK, FULL).iter().map(point).collect();
    Plan {
        stages: vec![Stage::new(cluster(SERVERS, SHARE), points)],
        arms: all_arms(),
        rounds: 2,
    }
}

fn label(rate: u32) -> String {
    format!("rate={rate}")
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let plan = plan(lab.scale);
    let measured = Runner::run(lab, &plan, &mut NoHook)?;
    let findings = findings(&plan, lab.scale.pick(QUICK, FULL), &measured.table);
    let took = clock::now().since(started);
    Ok(report(&EXPERIMENT, lab, &plan, measured, findings, took))
}

fn findings(plan: &Plan, rates: &[u32], table: &Table) -> ExperimentFindings {
    let all = || plan.arms.iter().map(|arm| arm.name.as_str());
    let verdict = |rate: &u32, arm: &str| {
        let metric = labelled(RATE, &label(*rate));
        let other = best(table, all().filter(|it| *it != arm), &metric, true)?;
        let goal = format!("{metric}: {arm} over the best of the others, {other}");
        at_least(goal, ratio(table, arm, other, &metric), LEVEL)
    };
    let verdicts = rates
        .iter()
        .flat_map(|rate| [SLBL, AUTO].map(|arm| verdict(rate, arm)));
    let last = rates.last().copied().unwrap_or_default();
    let times = labelled("mean_ms", &label(last));
    ExperimentFindings {
        paper: [(
            "mean_ms".to_owned(),
            beside(
                json!("all alike; round robin answers a little sooner while servers are idle"),
                "SLBL-ARPN §8 Scenario I, Figures 3 to 5 (no numbers in the text)",
                ranked(table, &own(plan, table), &times, false),
                ranked(table, &peers(plan, table), &times, false),
            ),
        )]
        .into(),
        verdicts: verdicts.collect(),
        notes: notes(),
        plots: vec![
            sketch("Throughput of equal servers", RATE, "requests/s"),
            sketch("Response time of equal servers", "mean_ms", "mean, ms"),
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
