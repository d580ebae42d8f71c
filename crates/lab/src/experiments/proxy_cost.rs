//! `proxy-cost`: what a proxied request costs the front-end, in CPU time and instructions.
//!
//! ```text
//! CPU 0   load generator (64 clients in a closed loop), and the front-end, held to 40 % of the CPU
//!         by a quota of its control group
//! CPU 1   four nodes with the test server, which answer at once, and their agents
//! cost  = CPU time of its control group / requests answered
//! ```
//!
//! The quota makes every front-end saturated although one CPU drives it: an idle one wakes up for
//! each request, and its wake-ups would be measured. All stand in turn within a round, each is
//! compared with HAProxy in the same round, and the median of these ratios counts: on a shared
//! machine microseconds drift by tens of percent, ratios by less. Instructions are steadier
//! still: by hardware counters (perf: user and kernel) where the machine has them, else by
//! callgrind (valgrind: user only), as what the second of two loads adds.
//!
//! One worker each, keep-alive to the nodes, the client's address, protocol and host passed on, no
//! access log. `auto` also reads the load of four nodes, up to a thousand times a second, and pays for it. Their agents are on
//! the nodes' CPU.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tidegate_remote::clock;

use crate::cluster::{Cluster, Place};
use crate::front::{self, FrontEnd, FrontKind, HaproxyBalance, SiteTargets};
use crate::load::{LoadPlan, Pacing, Requests, Stream};
use crate::results::{Axis, Metric, Report};

use super::judge::{Table, at_most, ratio};
use super::measured::{Measured, labelled};
use super::one_front_end::{self, CPU, NODES, QUOTA};
use super::plan::Arm;
use super::report::{ExperimentFindings, Sketch};
use super::{Experiment, ExperimentError, Lab, Scale, arms, drive, instructions};

/// See the module.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "proxy-cost",
    about: "CPU time and instructions per proxied request: keep-alive 1 KiB and 16 KiB, connection per request",
    source: "design goals",
    needs: "namespaces (root); haproxy, nginx, apache2, envoy for their arms; valgrind or perf for instructions",
    estimate,
    run,
    plan: None,
};

/// Clients in a closed loop.
const CLIENTS: u32 = 64;
/// What others are compared with.
pub(super) const BASE: &str = "haproxy roundrobin";

/// A kind of request.
#[derive(Clone, Copy, Debug)]
struct Kind {
    label: &'static str,
    bytes: u32,
    connection_per_request: bool,
}

const KINDS: [Kind; 3] = [
    Kind {
        label: "keepalive=1KiB",
        bytes: 1024,
        connection_per_request: false,
    },
    Kind {
        label: "keepalive=16KiB",
        bytes: 16_384,
        connection_per_request: false,
    },
    Kind {
        label: "close=1KiB",
        bytes: 1024,
        connection_per_request: true,
    },
];

/// In the full form a front-end that learns has learned a kind of request by then.
fn warm_up(scale: Scale) -> Duration {
    Duration::from_millis(scale.pick(300, 2000))
}

fn length(scale: Scale) -> Duration {
    Duration::from_millis(scale.pick(1500, 2500))
}

fn rounds(scale: Scale) -> u32 {
    scale.pick(2, 5)
}

fn all() -> Vec<Arm> {
    let mut all = vec![Arm::of(FrontKind::Haproxy(HaproxyBalance::RoundRobin))];
    all.extend([arms::blind("round_robin"), arms::auto()]);
    all.push(Arm::of(FrontKind::Nginx(front::NginxBalance::RoundRobin)));
    all.push(Arm::of(FrontKind::Apache));
    all.push(Arm::of(FrontKind::Envoy(front::EnvoyFilter::None)));
    all
}

fn estimate(scale: Scale) -> Duration {
    let arms = all().len() as u32;
    let run = (warm_up(scale) + length(scale) + Duration::from_millis(700)) * KINDS.len() as u32;
    let counted = Duration::from_secs(10) * instructions::arms(scale, &all()).len() as u32;
    Duration::from_secs(3) + (run + Duration::from_millis(700)) * arms * rounds(scale) + counted
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let reason = "a front-end's CPU quota needs control groups";
    let cluster = one_front_end::cluster(lab, reason)?;
    let (measured, arms) = one_front_end::begin(lab, &cluster, all());
    let mut bench = Bench {
        lab,
        cluster: &cluster,
        place: cluster.aside("proxy", CPU)?,
        measured,
    };
    bench.all_rounds(&arms)?;
    bench.count(&arms);
    let mut measured = bench.measured;
    compare(&mut measured.table);
    one_front_end::end(&EXPERIMENT, lab, &arms, measured, findings, started)
}

struct Bench<'a> {
    lab: &'a Lab,
    cluster: &'a Cluster,
    place: Place,
    measured: Measured,
}

impl Bench<'_> {
    fn all_rounds(&mut self, arms: &[Arm]) -> Result<(), ExperimentError> {
        self.place.limit(Some(QUOTA))?;
        for (round, arm) in one_front_end::turns(arms, rounds(self.lab.scale)) {
            let message = format!("{} round {}", arm.name, round + 1);
            self.lab.progress.message(&message);
            if let Err(error) = self.one(arm, round) {
                let note = format!("FAILED {}: {error}", arm.name);
                self.measured.notes.push(note);
            }
        }
        Ok(self.place.limit(None)?)
    }

    /// All kinds of requests through one process.
    fn one(&mut self, arm: &Arm, round: u32) -> Result<(), ExperimentError> {
        let front = self.front(arm, &[])?;
        for kind in KINDS {
            self.load(&front, kind, warm_up(self.lab.scale))?;
            let (at, before) = (clock::now(), self.place.cpu_time());
            let answered = self.load(&front, kind, length(self.lab.scale))?;
            let used = self.place.cpu_time().saturating_sub(before).as_secs_f64();
            let wall = clock::now().seconds_since(at);
            let metrics = [
                ("cpu_us", used * 1e6 / answered as f64),
                (
                    "requests_rps",
                    answered as f64 / length(self.lab.scale).as_secs_f64(),
                ),
                ("quota_used_pct", used / wall / QUOTA * 100.0),
            ];
            for (metric, value) in metrics {
                let metric = format!("{metric}[{}]", kind.label);
                self.measured.record(&arm.name, &metric, value);
            }
            self.measured.raw.push(json!({
                "arm": arm.name, "round": round, "kind": kind.label, "answered": answered, "cpu_seconds": used, "seconds": wall,
            }));
        }
        Ok(())
    }

    fn front(&self, arm: &Arm, under: &[String]) -> Result<FrontEnd, ExperimentError> {
        let site = SiteTargets {
            name: "site".into(),
            nodes: (0..NODES).collect(),
        };
        Ok(front::start_under(
            &self.place,
            &arm.kind,
            &[site],
            self.cluster,
            under,
        )?)
    }

    /// Requests answered; an error if one was not.
    fn load(&self, front: &FrontEnd, kind: Kind, length: Duration) -> Result<u64, ExperimentError> {
        let plan = LoadPlan {
            targets: vec![front.address],
            streams: vec![Stream {
                site: "site".into(),
                pacing: Pacing::Closed {
                    clients: CLIENTS,
                    think: Duration::ZERO,
                },
                requests: Requests::Single {
                    path: format!("/work?bytes={}", kind.bytes),
                },
                header: None,
            }],
            warm_up: Duration::ZERO,
            length,
            timeout: Duration::from_secs(20),
            connection_per_request: kind.connection_per_request,
            ..LoadPlan::default()
        };
        let total = drive::run_load(self.cluster, &plan)?.wait()?.total();
        match (total.completed, total.failed + total.refused) {
            (0, _) => Err(ExperimentError::Unfit(format!(
                "nothing was answered: {:?}",
                total.errors
            ))),
            (answered, 0) => Ok(answered),
            (_, failed) => Err(ExperimentError::Unfit(format!(
                "{failed} requests failed: {:?}",
                total.errors
            ))),
        }
    }

    /// Instructions per request of those that can be counted.
    fn count(&mut self, arms: &[Arm]) {
        let counter = match instructions::Counter::find() {
            Ok(counter) => counter,
            Err(why) => {
                self.measured
                    .notes
                    .push(format!("Instructions are not counted: {why}"));
                return;
            }
        };
        self.measured.notes.push(counter.note().into());
        for arm in instructions::arms(self.lab.scale, arms) {
            self.lab
                .progress
                .message(&format!("{} instructions", arm.name));
            let under = counter.under(self.cluster.folder());
            let counted = self.front(&arm, &under).and_then(|front| {
                let load = |length| self.load(&front, KINDS[0], length);
                counter.count(&front, self.cluster.folder(), load)
            });
            match counted {
                Ok(counted) => {
                    for (metric, value) in counted {
                        let metric = format!("{metric}[{}]", KINDS[0].label);
                        self.measured.record(&arm.name, &metric, value);
                    }
                }
                Err(error) => self
                    .measured
                    .notes
                    .push(format!("Instructions of {}: {error}", arm.name)),
            }
        }
    }
}

/// Adds each other arm's cost over HAProxy's of the same round.
pub(super) fn compare(table: &mut Table) {
    let costs = ["cpu_us", "user_instructions", "kernel_instructions"];
    let base = table.get(BASE).cloned().unwrap_or_default();
    let others = table.iter_mut().filter(|(arm, _)| *arm != BASE);
    for (_, metrics) in others {
        for (name, rounds) in metrics.clone() {
            let metric = Metric::of(&name);
            let Some(theirs) = base.get(&name).filter(|_| costs.contains(&metric.quantity)) else {
                continue;
            };
            let ratios = rounds
                .iter()
                .zip(theirs)
                .map(|(ours, theirs)| ours / theirs);
            let name = labelled(&format!("{}_over_haproxy", metric.quantity), metric.label);
            metrics.insert(name, ratios.collect());
        }
    }
}

fn findings(table: &Table) -> ExperimentFindings {
    let over = |arm: &str, metric: &str| ratio(table, arm, BASE, metric);
    let cpu = |kind: usize| format!("cpu_us[{}]", KINDS[kind].label);
    let instructions = format!("user_instructions[{}]", KINDS[0].label);
    let arm = "round_robin";
    ExperimentFindings {
        paper: BTreeMap::new(),
        verdicts: vec![
            at_most(
                "CPU per request over HAProxy's, keep-alive 1 KiB".into(),
                over(arm, &cpu(0)),
                0.85,
            ),
            at_most(
                "CPU per request over HAProxy's, keep-alive 16 KiB".into(),
                over(arm, &cpu(1)),
                0.85,
            ),
            at_most(
                "CPU per request over HAProxy's, connection per request".into(),
                over(arm, &cpu(2)),
                1.0,
            ),
            at_most(
                "CPU per request of auto over HAProxy's, keep-alive 1 KiB".into(),
                over("auto", &cpu(0)),
                1.0,
            ),
            at_most(
                "user instructions over HAProxy's, keep-alive 1 KiB".into(),
                over(arm, &instructions),
                0.85,
            ),
        ],
        notes: vec![
            format!(
                "Each front-end has {:.0} % of a CPU; quota_used_pct near 100 says that it was saturated.",
                QUOTA * 100.0
            ),
            "Ratios are taken within a round and their median counts.".into(),
        ],
        plots: vec![Sketch::Bars {
            title: "CPU time per proxied request, HAProxy = 1".into(),
            groups: KINDS
                .map(|kind| {
                    (
                        kind.label.to_owned(),
                        format!("cpu_us_over_haproxy[{}]", kind.label),
                    )
                })
                .into(),
            y: Axis::from_zero("over HAProxy's in the same round"),
        }],
    }
}
