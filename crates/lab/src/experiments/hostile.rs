//! `hostile`: what good clients notice while others mean harm.
//!
//! ```text
//! 0 s           1 s                                       end
//! attack ────── good clients, 100 requests/s ──────────── end
//! CPU 0   front-end, good clients (real-time priority), the attacker on a host and with an address of its own
//! CPU 1   four nodes: good requests want a fifth of what they can do
//! ```
//!
//! Each good request comes on a connection of its own, so that a front-end without room for new connections is seen. Each scene meets a
//! front-end that was started for it, with the time-outs and limits that it has by default or that the lab gives all of its kind
//! (`crates/lab/src/front/`); against the flood each also limits requests by their source as its manual says: 200 a second.
//!
//! * **good**: good requests that were answered within their time-out, of those sent, in percent.
//! * **p99**: of those.
//! * **front**: its CPU time, and the greatest resident memory that was seen.
//! * **cut**, **answered**: what became of the attacker's connections.
//!
//! What it does not show: attacks from many addresses, and networks that are full.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tidegate_remote::clock;

use crate::cluster::{Cluster, Host, Process, lab};
use crate::front::{self, Features, FrontEnd, FrontKind, HaproxyBalance, NginxBalance, Site};
use crate::load::attack::{Attacked, Scene};
use crate::load::{Arrivals, LoadPlan, Pacing, Requests, Stream};
use crate::results::{Axis, Report};

use super::arms::{self, AUTO};
use super::judge::{Table, at_least, at_most, best, median, ratio};
use super::measured::Measured;
use super::one_front_end::{self, NODES};
use super::plan::Arm;
use super::report::{ExperimentFindings, Sketch};
use super::{Experiment, ExperimentError, Lab, Scale, drive};

/// See the module.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "hostile",
    about: "what good clients notice of slow heads, bodies and readers, large heads, a flood from one source, and idle connections without end",
    source: "design goals",
    needs: "namespaces (root); haproxy, nginx for their arms",
    estimate,
    run,
    plan: None,
};

/// Good requests a second, and what one wants.
const RATE: f64 = 100.0;
const PATH: &str = "/work?cpu=2ms&bytes=1024";
const TIMEOUT: Duration = Duration::from_secs(2);
/// The attack begins so long before what is measured.
const LEAD: Duration = Duration::from_secs(1);
/// Requests a second of one source, where a flood is expected.
const PER_SOURCE: u32 = 200;
/// Between two looks at the front-end's memory.
const LOOK: Duration = Duration::from_millis(200);
const CALM: &str = "attack=none";

fn length(scale: Scale) -> Duration {
    // Longer than the time-outs of heads, which are ten seconds.
    scale.pick(Duration::from_secs(4), Duration::from_secs(15))
}

fn all() -> Vec<Arm> {
    vec![
        arms::auto(),
        Arm::of(FrontKind::Haproxy(HaproxyBalance::LeastConn)),
        Arm::of(FrontKind::Nginx(NginxBalance::LeastConn)),
    ]
}

/// No attack, and each.
fn scenes() -> impl Iterator<Item = Option<Scene>> + Clone {
    std::iter::once(None).chain(Scene::ALL.map(Some))
}

fn labelled(scene: Option<Scene>) -> String {
    scene.map_or_else(|| CALM.into(), |scene| format!("attack={}", scene.label()))
}

fn estimate(scale: Scale) -> Duration {
    let one = LEAD + length(scale) + Duration::from_millis(1500);
    Duration::from_secs(3) + one * (scenes().count() * all().len()) as u32
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let reason = "the attacker needs a host of its own";
    let cluster = one_front_end::cluster(lab, reason)?;
    let (measured, arms) = one_front_end::begin(lab, &cluster, all());
    let mut bench = Bench {
        lab,
        cluster: &cluster,
        attacker: cluster.host()?,
        measured,
    };
    for scene in scenes() {
        for arm in &arms {
            let label = labelled(scene);
            lab.progress.message(&format!("{} {label}", arm.name));
            if let Err(error) = bench.one(arm, scene) {
                let note = format!("FAILED {} {label}: {error}", arm.name);
                bench.measured.notes.push(note);
            }
        }
    }
    let findings = |table: &Table| findings(table, &arms);
    one_front_end::end(&EXPERIMENT, lab, &arms, bench.measured, findings, started)
}

struct Bench<'a> {
    lab: &'a Lab,
    cluster: &'a Cluster,
    attacker: Host,
    measured: Measured,
}

impl Bench<'_> {
    /// A scene before a front-end of its own.
    fn one(&mut self, arm: &Arm, scene: Option<Scene>) -> Result<(), ExperimentError> {
        let front = self.front(arm, scene)?;
        let attack = scene.map(|scene| self.attack(&front, scene)).transpose()?;
        clock::sleep_until(clock::now() + LEAD);
        let before = front.cpu_time();
        let good = drive::run_load(self.cluster, &self.good(&front))?;
        let memory = self.watch(&front);
        let result = good.wait()?;
        let used = front.cpu_time().saturating_sub(before);
        let attacked = attack.map(attacked).transpose()?.unwrap_or_default();
        let total = result.total();
        let sent = total.completed + total.failed + total.refused;
        let answered: u64 = attacked.answered.values().sum();
        let length = length(self.lab.scale).as_secs_f64();
        let p99 = match total.completed {
            0 => f64::NAN,
            _some => total.p99_ms,
        };
        let figures = [
            ("good_pct", total.completed as f64 / sent as f64 * 100.0),
            ("p99_ms", p99),
            ("front_cpu_pct", used.as_secs_f64() / length * 100.0),
            ("front_mib", memory as f64 / f64::from(1 << 20)),
            ("attacker_cut", attacked.cut as f64),
            ("attacker_answered", answered as f64),
            ("attacker_unconnected", attacked.unconnected as f64),
        ];
        let label = labelled(scene);
        for (metric, value) in figures {
            let metric = format!("{metric}[{label}]");
            self.measured.record(&arm.name, &metric, value);
        }
        self.measured.raw.push(json!({
            "arm": arm.name, "scene": label, "sent": sent, "errors": total.errors, "attacked": attacked, "generator": result.generator,
        }));
        Ok(())
    }

    fn front(&self, arm: &Arm, scene: Option<Scene>) -> Result<FrontEnd, ExperimentError> {
        let server = |node| front::server(&arm.kind, "site", self.cluster, node);
        let servers = (0..NODES).map(server).collect::<Result<_, _>>()?;
        let features = Features {
            per_source: (scene == Some(Scene::Flood)).then_some(PER_SOURCE),
            ..Features::default()
        };
        let sites = vec![Site::of("site", servers)];
        let place = self.cluster.front();
        Ok(front::start_with(
            place,
            &arm.kind,
            sites,
            self.cluster,
            features,
        )?)
    }

    fn attack(&self, front: &FrontEnd, scene: Scene) -> Result<Process, ExperimentError> {
        let seconds = (LEAD + length(self.lab.scale)).as_secs_f64();
        let mut command = self.attacker.place().command(lab()?);
        let (target, seconds) = (front.address.to_string(), seconds.to_string());
        command.args(["attack", "--scene", scene.label()]);
        command.args(["--target", &target, "--seconds", &seconds]);
        Ok(Process::start("the attacker", &mut command)?)
    }

    fn good(&self, front: &FrontEnd) -> LoadPlan {
        LoadPlan {
            targets: vec![front.address],
            streams: vec![Stream {
                site: "site".into(),
                pacing: Pacing::Open {
                    rate: RATE,
                    arrivals: Arrivals::Poisson,
                },
                requests: Requests::Single { path: PATH.into() },
                header: None,
            }],
            warm_up: Duration::ZERO,
            length: length(self.lab.scale),
            timeout: TIMEOUT,
            connection_per_request: true,
            ..LoadPlan::default()
        }
    }

    /// The most memory that the front-end has while the good load runs.
    fn watch(&self, front: &FrontEnd) -> u64 {
        let end = clock::now() + length(self.lab.scale);
        let mut most = 0;
        while clock::now() < end {
            most = most.max(front.resident());
            clock::sleep_until(clock::now() + LOOK);
        }
        most
    }
}

/// What the attacker says at its end.
fn attacked(mut attacker: Process) -> Result<Attacked, ExperimentError> {
    let deadline = clock::now() + LEAD * 10;
    while attacker.ended().is_none() {
        if clock::now() > deadline {
            return Err(ExperimentError::Unfit("the attacker does not end".into()));
        }
        clock::sleep_until(clock::now() + LOOK);
    }
    let said = attacker.told();
    serde_json::from_str(&said)
        .map_err(|error| ExperimentError::Unfit(format!("the attacker: {error}: {said}")))
}

fn findings(table: &Table, arms: &[Arm]) -> ExperimentFindings {
    let peers: Vec<_> = arms.iter().filter(|arm| arm.peer()).collect();
    let mut verdicts = Vec::new();
    for scene in Scene::ALL {
        let metric = |quantity: &str| format!("{quantity}[{}]", labelled(Some(scene)));
        let (good, label) = (metric("good_pct"), scene.label());
        verdicts.push(at_least(
            format!("good requests answered, {label}, auto, %"),
            median(table, AUTO, &good),
            100.0,
        ));
        let names = peers.iter().map(|arm| arm.name.as_str());
        let peer = best(table, names, &good, true);
        verdicts.push(peer.and_then(|peer| {
            at_least(
                format!("good requests answered, {label}, auto over {peer}"),
                ratio(table, AUTO, peer, &good),
                1.0,
            )
        }));
        let calm = median(table, AUTO, &format!("p99_ms[{CALM}]"));
        let p99 = median(table, AUTO, &metric("p99_ms"));
        verdicts.push(at_most(
            format!("p99 of good requests, {label}, auto over its own without attack"),
            p99.zip(calm).map(|(p99, calm)| p99 / calm),
            2.0,
        ));
    }
    ExperimentFindings {
        paper: BTreeMap::new(),
        verdicts,
        notes: vec![format!(
            "{RATE} good requests/s, each on a connection of its own; against the flood every front-end limits a source to {PER_SOURCE} requests/s."
        )],
        plots: ["good_pct", "p99_ms"]
            .map(|quantity| Sketch::Bars {
                title: match quantity {
                    "good_pct" => "Good requests answered".into(),
                    _p99 => "p99 of good requests".into(),
                },
                groups: scenes()
                    .map(|scene| {
                        let label = labelled(scene);
                        (label.replace("attack=", ""), format!("{quantity}[{label}]"))
                    })
                    .collect(),
                y: Axis::from_zero(match quantity {
                    "good_pct" => "%",
                    _p99 => "ms",
                }),
            })
            .into(),
    }
}
