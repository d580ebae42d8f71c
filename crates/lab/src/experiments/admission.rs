//! `admission`: what is let in stays fast (paper 003 §IV, Figures 5, 8 and 9), and is as much as the
//! nodes can do.
//!
//! ```text
//! request      4 ms of CPU, 16 KiB: each node does 25 a second, all eight 200
//! closed loop  N clients that ask as fast as they are answered; one that is refused rests 10 ms
//! open loop    Poisson at fractions of the knee
//! goodput      answered within the SLO of 500 ms, per second
//! ```
//!
//! Arms: Tidegate's `auto` without admission, with limits that are set as paper 003 does (CPU, on
//! records of a millisecond), and `adaptive`; HAProxy as its users set it up against overload
//! (`maxconn` for each server and a queue with a time-out); nginx and Envoy as they come. One
//! process each: a limit that is set holds for one.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_remote::clock;

use crate::front::{EnvoyFilter, FrontKind, HaproxyBalance, NginxBalance, TidegateArm};
use crate::load::{Arrivals, LoadResult, Pacing, Requests, Stream};
use crate::results::{Axis, Report, Verdict};

use super::arms::{AUTO, BESIDE, FRESH};
use super::judge::{Table, at_least, at_most, median};
use super::measured::{Measured, labelled};
use super::paper::{beside, ranked};
use super::plan::{Arm, Calibration, Plan, Point, Stage};
use super::report::{Findings, Sketch, report};
use super::runner::{Run, Runner, Watch};
use super::{Experiment, ExperimentError, Lab, Scale, arms, workload};
use crate::cluster::{CachePlan, Cluster, ClusterPlan};

/// See the module.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "admission",
    about: "response time, goodput and refusals in overload: no admission, limits that are set, adaptive; peers",
    source: "paper 003 §IV, Figures 5, 8 and 9",
    needs: "haproxy, nginx, envoy for their arms",
    estimate: |scale| plan(scale).estimate(),
    run,
    plan: Some(plan),
};

const OFF: &str = "no admission";
const STATIC: &str = "static";
const ADAPTIVE: &str = "adaptive";
const SLO: Duration = Duration::from_millis(500);
/// Paper 003's bound of a satisfied client.
const QOS: Duration = Duration::from_secs(1);
const CLIENTS_QUICK: &[u32] = &[24, 200];
const CLIENTS_FULL: &[u32] = &[24, 64, 200];
const LOADS_QUICK: &[f64] = &[0.9, 2.0];
const LOADS_FULL: &[f64] = &[0.9, 1.4, 2.0, 4.0];

fn plan(scale: Scale) -> Plan {
    let (warm_up, length) = scale.pick((1000, 2500), (1500, 3500));
    let point = |label: String, pacing: Pacing| {
        Point::single(
            label,
            stream(pacing),
            Duration::from_millis(warm_up),
            Duration::from_millis(length),
        )
    };
    let closed = |clients: &u32| {
        let pacing = Pacing::Closed {
            clients: *clients,
            think: Duration::ZERO,
        };
        point(by_clients(*clients), pacing)
    };
    let calibration = Calibration {
        front: FrontKind::Tidegate(TidegateArm::blind("least_request")),
        streams: vec![stream(open(1.0))],
        first: 120.0,
        length: Duration::from_millis(1500),
        steps: scale.pick(6, 8),
    };
    let clients = scale.pick(CLIENTS_QUICK, CLIENTS_FULL);
    let loads = scale.pick(LOADS_QUICK, LOADS_FULL);
    let open = loads.iter().map(|load| point(by_load(*load), open(*load)));
    Plan {
        stages: vec![
            Stage::new(cluster(), clients.iter().map(closed).collect()),
            Stage {
                calibration: Some(calibration),
                ..Stage::new(cluster(), open.collect())
            },
        ],
        arms: arms_of(scale),
        rounds: 2,
    }
}

/// All files cost the same everywhere.
fn cluster() -> ClusterPlan {
    let mut plan = workload::cluster(arms::AGENTS);
    for node in &mut plan.nodes {
        node.cache = CachePlan::default();
    }
    plan
}

fn stream(pacing: Pacing) -> Stream {
    Stream {
        site: "site".into(),
        pacing,
        requests: Requests::Single {
            path: "/work?cpu=4000us&bytes=16384".into(),
        },
        header: None,
    }
}

fn open(rate: f64) -> Pacing {
    Pacing::Open {
        rate,
        arrivals: Arrivals::Poisson,
    }
}

fn arms_of(scale: Scale) -> Vec<Arm> {
    let auto = |name: &str, admission: &str| {
        let arm = TidegateArm::reading(name, AUTO, BESIDE, FRESH);
        Arm::of(FrontKind::Tidegate(arm.admitting(admission)))
    };
    let slo = SLO.as_millis();
    let mut all = vec![
        auto(OFF, "{ mode = \"off\" }"),
        auto(
            STATIC,
            "{ mode = \"static\", cpu = 0.95, scope = \"chosen\" }",
        ),
        auto(
            ADAPTIVE,
            &format!("{{ mode = \"adaptive\", slo = \"{slo}ms\" }}"),
        ),
        Arm::of(FrontKind::Haproxy(HaproxyBalance::Limited { queue: SLO * 6 / 10 })),
    ];
    if scale == Scale::Full {
        all.extend([
            Arm::of(FrontKind::Nginx(NginxBalance::LeastConn)),
            Arm::of(FrontKind::Envoy(EnvoyFilter::None)),
        ]);
    }
    all
}

fn by_clients(clients: u32) -> String {
    format!("clients={clients}")
}

fn by_load(load: f64) -> String {
    format!("load={load}")
}

/// Counts what came in time.
struct InTime;

impl Watch for InTime {
    fn during(&mut self, _: &mut Cluster, _: &Run<'_>) -> Result<(), ExperimentError> {
        Ok(())
    }

    fn metrics(&mut self, run: &Run<'_>, result: &LoadResult) -> Vec<(String, f64)> {
        let total = result.total();
        let seconds = run.point.length.as_secs_f64();
        let over = |limit: Duration| total.slower_than(limit.as_secs_f64() * 1e3);
        let within = total.completed.saturating_sub(over(SLO)) as f64;
        let late = over(QOS) as f64;
        let share = |part: f64, whole: u64| part / (whole as f64).max(1.0) * 100.0;
        vec![
            ("goodput_rps".into(), within / seconds),
            (
                "refused_pct".into(),
                share(total.refused as f64, total.offered),
            ),
            ("over_1s_pct".into(), share(late, total.completed)),
        ]
    }
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let plan = plan(lab.scale);
    let measured = Runner::run(lab, &plan, &mut InTime)?;
    let findings = findings(lab.scale, &measured);
    let took = clock::now().since(started);
    Ok(report(&EXPERIMENT, lab, &plan, measured, findings, took))
}

fn of(table: &Table, arm: &str, metric: &str, label: &str) -> Option<f64> {
    median(table, arm, &labelled(metric, label))
}

fn verdicts(table: &Table, most: &str, loads: &[f64]) -> Vec<Option<Verdict>> {
    let over = |metric: &str, label: &str| {
        Some(of(table, ADAPTIVE, metric, label)? / of(table, OFF, metric, label)?)
    };
    let mut verdicts = vec![
        at_most(
            format!("adaptive's mean response time over that without admission, {most}"),
            over("mean_ms", most),
            0.49,
        ),
        at_least(
            format!("adaptive's throughput over that without admission, {most}"),
            over("throughput_rps", most),
            1.15,
        ),
        at_most(
            format!("adaptive's requests over 1 s, %, {most}"),
            of(table, ADAPTIVE, "over_1s_pct", most),
            0.1,
        ),
        at_most(
            "adaptive's refusals at 0.9 of the knee, %".into(),
            of(table, ADAPTIVE, "refused_pct", &by_load(0.9)),
            0.0,
        ),
    ];
    // What the nodes can do: the most that any arm ever completed.
    let all = |load: &f64| labelled("throughput_rps", &by_load(*load));
    let rates = table
        .keys()
        .flat_map(|arm| loads.iter().map(move |load| (arm, load)));
    let capacity = rates.filter_map(|(arm, load)| median(table, arm, &all(load)));
    let capacity = capacity.fold(f64::NAN, f64::max);
    for load in loads.iter().filter(|load| **load > 1.0) {
        let goodput = of(table, ADAPTIVE, "goodput_rps", &by_load(*load));
        verdicts.push(at_least(
            format!("adaptive's goodput over the most that any arm completed, {load} of the knee"),
            goodput.map(|goodput| goodput / capacity),
            0.97,
        ));
    }
    verdicts
}

fn findings(scale: Scale, measured: &Measured) -> Findings {
    let table = &measured.table;
    let clients = scale.pick(CLIENTS_QUICK, CLIENTS_FULL);
    let loads = scale.pick(LOADS_QUICK, LOADS_FULL);
    let most = by_clients(clients.last().copied().unwrap_or(0));
    let names: Vec<_> = table.keys().map(String::as_str).collect();
    let order =
        |metric, label: &str, greatest| ranked(table, &names, &labelled(metric, label), greatest);
    Findings {
        paper: [
            (
                "mean_response_time".to_owned(),
                beside(
                    json!("-51 % against no admission, -28 % against admission over TCP, at 520 clients; throughput +15 %"),
                    "003 §IV, Figure 5",
                    order("mean_ms", &most, false),
                    Value::Null,
                ),
            ),
            (
                "quality_of_service".to_owned(),
                beside(
                    json!("almost no request over 1 s"),
                    "003 §IV, Figures 8 and 9",
                    order("over_1s_pct", &most, false),
                    Value::Null,
                ),
            ),
        ]
        .into(),
        verdicts: verdicts(table, &most, loads),
        notes: vec![
            "A refused client of the closed loop rests for 10 ms and asks again. Response times are those of answered requests.".into(),
            "The variant over TCP is not here yet.".into(),
        ],
        plots: vec![
            Sketch::Over {
                title: "Mean response time by clients",
                quantity: "mean_ms",
                parameter: "clients",
                x: Axis::linear("clients"),
                y: Axis::from_zero("ms"),
            },
            Sketch::Over {
                title: "Goodput by offered load",
                quantity: "goodput_rps",
                parameter: "load",
                x: Axis::linear("offered load over the knee"),
                y: Axis::from_zero("requests/s within 500 ms"),
            },
        ],
    }
}
