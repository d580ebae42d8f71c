//! `poll-interval`: throughput as the interval of monitoring grows (KLM-2005 §5.6, Figure 9,
//! 1 ms to 5 s).
//!
//! The front-end reads each node at the interval. The ULM agent also measures at it, as in the
//! paper, where too short an interval costs the node the CPU time of its own agent: so every
//! interval has a cluster of its own. All others measure each millisecond or when they are
//! read; what differs is how often they are. `random` stands beside.
//!
//! In the full form klm's scheme also reads every other rung: `klm_tc` and `klm_record` (a timer in
//! the kernel) beside its own, generic XDP, and `klm_native` on clusters of its own, since native
//! XDP excludes generic XDP at an interface; `auto` reads rung 5.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_remote::clock;

use crate::cluster::AgentPlan;
use crate::results::{Axis, Report};

use super::arms::{AUTO, BESIDE};
use super::judge::{Table, at_least, at_most, best, median, ratio};
use super::measured::{Measured, labelled};
use super::paper::{beside, ranked};
use super::plan::{Arm, Plan, Point, Stage};
use super::report::{ExperimentFindings, Sketch, report};
use super::runner::{NoHook, Runner};
use super::{Experiment, ExperimentError, Lab, Scale, arms, workload};
use crate::front::{FrontKind, TidegateArm};

/// See the module.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "poll-interval",
    about: "throughput of ULM, KLM and auto as load is read each 1 ms to 5 s",
    source: "KLM-2005 §5.6, Figure 9",
    needs: "namespaces (root) for an agent that takes from its node's CPU quota",
    estimate: |scale| plan(scale).estimate(),
    run,
    plan: Some(plan),
};

const METRIC: &str = "throughput_rps";
const ALPHA: f64 = 0.1;
/// Milliseconds.
const QUICK: &[u64] = &[1, 50, 1000];
const FULL: &[u64] = &[1, 5, 20, 50, 200, 1000, 5000];

/// Other rungs that the full form reads as klm's kernel is: what answers the name's arm.
const RUNGS: [(&str, &str); 2] = [("klm_tc", arms::TC), ("klm_record", arms::RECORD)];
/// The last one, on clusters of its own.
const NATIVE: &str = "klm_native";

fn plan(scale: Scale) -> Plan {
    let (warm_up, length) = scale.pick((1200, 2500), (1200, 3000));
    let stage = |millis: &u64| {
        let interval = Duration::from_millis(*millis);
        let mut agents = vec![
            arms::ulm_agent(interval),
            arms::klm_agent(),
            arms::beside_agent(),
        ];
        if scale == Scale::Full {
            agents.extend([arms::tc_agent(), arms::record_agent()]);
        }
        let measured = |agents: &[AgentPlan], arms: fn(&Arm) -> bool| {
            let clients = workload::clients("site", workload::CLIENTS, ALPHA);
            let [warm_up, length] = [warm_up, length].map(Duration::from_millis);
            let point = Point {
                only: Some(arms),
                ..Point::single(label(*millis), clients, warm_up, length)
            };
            Stage {
                instead: workload::processes(reading(scale, interval)),
                ..Stage::new(workload::cluster(agents), vec![point])
            }
        };
        let native = || measured(&[arms::native_agent()], |arm| arm.name == NATIVE);
        let native = (scale == Scale::Full).then(native);
        [measured(&agents, |arm| arm.name != NATIVE)]
            .into_iter()
            .chain(native)
    };
    let mut all = vec![arms::blind("random")];
    all.extend(reading(scale, arms::PAPER_INTERVAL));
    Plan {
        stages: scale.pick(QUICK, FULL).iter().flat_map(stage).collect(),
        arms: workload::processes(all),
        rounds: 2,
    }
}

/// The arms that read at an interval.
fn reading(scale: Scale, interval: Duration) -> Vec<Arm> {
    let auto = TidegateArm::reading(AUTO, AUTO, BESIDE, interval);
    let mut all = vec![arms::scheme("ulm", interval), arms::scheme("klm", interval)];
    if scale == Scale::Full {
        let others = RUNGS.into_iter().chain([(NATIVE, arms::NATIVE)]);
        all.extend(others.map(|(name, agent)| arms::scheme_of(name, "klm", agent, interval)));
    }
    all.push(Arm::of(FrontKind::Tidegate(auto)));
    all
}

fn label(millis: u64) -> String {
    format!("interval_ms={millis}")
}

fn metric(millis: u64) -> String {
    labelled(METRIC, &label(millis))
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let plan = plan(lab.scale);
    let measured = Runner::run(lab, &plan, &mut NoHook)?;
    let findings = findings(lab.scale, &measured);
    Ok(report(
        &EXPERIMENT,
        lab,
        &plan,
        measured,
        findings,
        clock::now().since(started),
    ))
}

/// How fast each arm was at each interval.
fn everywhere(table: &Table, intervals: &[u64]) -> Value {
    let mut arms = vec!["random", "ulm", "klm", AUTO];
    arms.extend(RUNGS.iter().map(|(name, _)| name));
    arms.push(NATIVE);
    let at = |interval: &u64| {
        let order = ranked(table, &arms, &metric(*interval), true);
        Some(format!("{interval} ms: {}", order.as_str()?))
    };
    json!(intervals.iter().filter_map(at).collect::<Vec<_>>())
}

fn findings(scale: Scale, measured: &Measured) -> ExperimentFindings {
    let table = &measured.table;
    let intervals = scale.pick(QUICK, FULL);
    let (shortest, longest) = (intervals[0], intervals[intervals.len() - 1]);
    let falls = |arm: &str| {
        let here = median(table, arm, &metric(longest))?;
        Some(here / median(table, arm, &metric(50))?)
    };
    let ulm = median(table, "ulm", &metric(shortest)).zip(median(table, "ulm", &metric(50)));
    let mut verdicts = vec![
        at_most(
            format!("klm at {longest} ms over klm at 50 ms"),
            falls("klm"),
            1.0,
        ),
        at_most(
            format!("ulm at {longest} ms over ulm at 50 ms"),
            falls("ulm"),
            1.0,
        ),
        at_most(
            format!("ulm at {shortest} ms over ulm at 50 ms"),
            ulm.map(|(short, usual)| short / usual),
            1.0,
        ),
    ];
    for interval in intervals {
        let metric = metric(*interval);
        let ratio = |other| ratio(table, AUTO, other, &metric);
        let baseline = best(table, ["random", "ulm", "klm"], &metric, true);
        let goal = format!(
            "auto over {} at {interval} ms",
            baseline.unwrap_or("nothing")
        );
        verdicts.push(at_least(goal, baseline.and_then(ratio), 1.0));
    }
    ExperimentFindings {
        paper: [(
            "shape".to_owned(),
            beside(
                json!("ulm and klm fall as the interval grows; ulm also falls at very short ones; random does not care"),
                "KLM-2005 §5.6, Figure 9 (no numbers in the text)",
                everywhere(table, intervals),
                Value::Null,
            ),
        )]
        .into(),
        verdicts,
        notes: vec![
            arms::RUNG.into(),
            "The ULM agent measures at the interval, inside its node's CPU quota; records older than their freshness \
             bound are unknown to Tidegate, which then chooses among those nodes at random."
                .into(),
        ],
        plots: vec![Sketch::Over {
            title: "Throughput by interval of monitoring",
            quantity: METRIC,
            parameter: "interval_ms",
            x: Axis::log("interval, ms"),
            y: Axis::from_zero("requests/s"),
        }],
    }
}
