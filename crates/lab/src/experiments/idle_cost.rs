//! `idle-cost`: what a front-end and the agents that it reads take of a CPU, by nodes and requests per second.
//!
//! ```text
//! CPU 0   load generator (an open loop), and the front-end in a control group of its own, without a quota
//! CPU 1   nodes with the test server, which answer at once; their agents stand beside their quotas
//! cost  = CPU time of a control group / time
//! ```
//!
//! What it is for: a front-end that knows its nodes' loads must not pay for that where nothing is to be decided. Peers that know nothing
//! of their nodes stand beside, so what is left over is the price of knowing, and of ours.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tidegate_remote::clock;

use crate::cluster::{Cluster, Place};
use crate::front::{self, FrontEnd, FrontKind, HaproxyBalance, NginxBalance, SiteTargets};
use crate::load::{Arrivals, LoadPlan, Pacing, Requests, Stream};
use crate::results::{Axis, Report};

use super::arms::AUTO;
use super::judge::{Table, at_most, median, ratio};
use super::measured::Measured;
use super::one_front_end::{self, CPU};
use super::plan::Arm;
use super::report::{ExperimentFindings, Sketch};
use super::{Experiment, ExperimentError, Lab, Scale, arms, drive};

/// See the module.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "idle-cost",
    about: "CPU of front-end and agents over nodes and requests per second, without any among them",
    source: "design goals",
    needs: "namespaces (root); haproxy and nginx for their arms",
    estimate,
    run,
    plan: None,
};

/// What passes before anything is measured: reads have found their pace by then.
const WARM_UP: Duration = Duration::from_millis(1200);
/// The base of the ratios.
const BASE: &str = "haproxy roundrobin";

fn length(scale: Scale) -> Duration {
    Duration::from_millis(scale.pick(3000, 4000))
}

fn rounds(scale: Scale) -> u32 {
    scale.pick(1, 2)
}

/// Of the front-end's nodes, as many as it is given.
fn nodes(scale: Scale) -> &'static [usize] {
    scale.pick(&[8], &[2, 8])
}

/// Requests per second.
fn rates(scale: Scale) -> &'static [u32] {
    scale.pick(&[0, 100], &[0, 20, 100, 1000])
}

fn all() -> Vec<Arm> {
    vec![
        Arm::of(FrontKind::Haproxy(HaproxyBalance::RoundRobin)),
        arms::auto(),
        arms::blind("round_robin"),
        Arm::of(FrontKind::Nginx(NginxBalance::RoundRobin)),
    ]
}

fn label(nodes: usize, rate: u32) -> String {
    format!("nodes={nodes} rate={rate}")
}

fn estimate(scale: Scale) -> Duration {
    let one = WARM_UP + length(scale) + Duration::from_millis(300);
    let points = (nodes(scale).len() * rates(scale).len()) as u32;
    let start = Duration::from_secs(1) * nodes(scale).len() as u32;
    Duration::from_secs(4) + (one * points + start) * all().len() as u32 * rounds(scale)
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let reason = "what agents take is counted by control groups";
    let most = nodes(lab.scale).iter().max().copied().unwrap_or_default();
    let cluster = one_front_end::cluster_of(most, lab, reason)?;
    let (measured, arms) = one_front_end::begin(lab, &cluster, all());
    let mut bench = Bench {
        lab,
        cluster: &cluster,
        place: cluster.aside("idle", CPU)?,
        measured,
    };
    for (round, arm) in one_front_end::turns(&arms, rounds(lab.scale)) {
        for nodes in nodes(lab.scale) {
            if let Err(error) = bench.one(arm, *nodes, round) {
                let note = format!("FAILED {}, {nodes} nodes: {error}", arm.name);
                bench.measured.notes.push(note);
            }
        }
    }
    let findings = |table: &Table| findings(table, lab.scale);
    one_front_end::end(&EXPERIMENT, lab, &arms, bench.measured, findings, started)
}

struct Bench<'a> {
    lab: &'a Lab,
    cluster: &'a Cluster,
    place: Place,
    measured: Measured,
}

impl Bench<'_> {
    /// Each rate in turn before one process.
    fn one(&mut self, arm: &Arm, nodes: usize, round: u32) -> Result<(), ExperimentError> {
        let site = SiteTargets {
            name: "site".into(),
            nodes: (0..nodes).collect(),
        };
        let front = front::start_under(&self.place, &arm.kind, &[site], self.cluster, &[])?;
        for rate in rates(self.lab.scale) {
            let label = label(nodes, *rate);
            let message = format!("{} {label} round {}", arm.name, round + 1);
            self.lab.progress.message(&message);
            self.pass(&front, *rate, WARM_UP)?;
            let before = self.spent();
            let at = clock::now();
            self.pass(&front, *rate, length(self.lab.scale))?;
            let seconds = clock::now().seconds_since(at);
            let (front_seconds, agents) = self.spent();
            let share = |now: f64, then: f64| (now - then) / seconds * 100.0;
            let figures = [
                ("front_cpu_pct", share(front_seconds, before.0)),
                (
                    "agent_cpu_pct",
                    share(agents, before.1) / self.cluster.nodes().len() as f64,
                ),
            ];
            for (metric, value) in figures {
                self.measured
                    .record(&arm.name, &format!("{metric}[{label}]"), value);
            }
            self.measured.raw.push(json!({
                "arm": arm.name, "round": round, "nodes": nodes, "rate": rate, "figures": figures, "seconds": seconds,
            }));
        }
        Ok(())
    }

    /// CPU seconds of the front-end and of all agents so far.
    fn spent(&self) -> (f64, f64) {
        let beside = |node| self.cluster.beside_cpu_time(node).as_secs_f64();
        let agents = (0..self.cluster.nodes().len()).map(beside).sum();
        (self.place.cpu_time().as_secs_f64(), agents)
    }

    /// Lets so much time pass, with requests or without; an error if one failed.
    fn pass(&self, front: &FrontEnd, rate: u32, length: Duration) -> Result<(), ExperimentError> {
        if rate == 0 {
            clock::sleep_until(clock::now() + length);
            return Ok(());
        }
        let plan = LoadPlan {
            targets: vec![front.address],
            streams: vec![Stream {
                site: "site".into(),
                pacing: Pacing::Open {
                    rate: rate.into(),
                    arrivals: Arrivals::Poisson,
                },
                requests: Requests::Single {
                    path: "/work?bytes=1024".into(),
                },
                header: None,
            }],
            warm_up: Duration::ZERO,
            length,
            timeout: Duration::from_secs(20),
            ..LoadPlan::default()
        };
        let total = drive::run_load(self.cluster, &plan)?.wait()?.total();
        match total.failed + total.refused {
            0 => Ok(()),
            failed => Err(ExperimentError::Unfit(format!(
                "{failed} requests failed: {:?}",
                total.errors
            ))),
        }
    }
}

fn findings(table: &Table, scale: Scale) -> ExperimentFindings {
    let front = |nodes, rate| format!("front_cpu_pct[{}]", label(nodes, rate));
    let mut verdicts = vec![
        at_most(
            "front-end before 8 nodes without requests, % of a CPU".into(),
            median(table, AUTO, &front(8, 0)),
            0.2,
        ),
        at_most(
            "an agent that is read without requests, % of a CPU".into(),
            median(table, AUTO, &format!("agent_cpu_pct[{}]", label(8, 0))),
            0.5,
        ),
    ];
    for rate in rates(scale).iter().filter(|rate| **rate > 0) {
        verdicts.push(at_most(
            format!("front-end before 8 nodes at {rate} requests/s over {BASE}"),
            ratio(table, AUTO, BASE, &front(8, *rate)),
            1.3,
        ));
    }
    ExperimentFindings {
        paper: BTreeMap::new(),
        verdicts,
        notes: vec![
            "All nodes have an agent beside them whatever front-end is measured; where none reads it, agent_cpu_pct is what it takes \
             for itself."
                .into(),
        ],
        plots: nodes(scale)
            .iter()
            .map(|nodes| Sketch::Bars {
                title: format!("CPU of a front-end before {nodes} nodes"),
                groups: rates(scale)
                    .iter()
                    .map(|rate| (format!("{rate} requests/s"), front(*nodes, *rate)))
                    .collect(),
                y: Axis::from_zero("% of a CPU"),
            })
            .collect(),
    }
}
