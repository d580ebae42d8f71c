//! Front-ends that change while they run: `reload` gives them other servers, `upgrade` another process, `discovery` has them
//! find their servers, `burst-length`, `node-utilization`, `move-latency`, `move-safety` and `move-faults` have them move nodes between sites.
//!
//! ```text
//! CPU 0   front-end, load generators, those that change it
//! CPU 1   nodes with the test server
//! ```
//!
//! All arms stand in turn within a round, and an arm that changes is compared with the same one that does not, in the
//! same round. HAProxy is changed as its manual says, by SIGUSR2 to its master (`-W`), and not as often: it starts a process
//! for each change.

mod api_server;
mod burst_clients;
pub(super) mod burst_files;
pub(super) mod burst_length;
mod burst_runs;
pub(super) mod discovery;
mod etcd;
mod front_end_faults;
pub(super) mod move_faults;
pub(super) mod move_latency;
pub(super) mod move_safety;
mod moves_seen;
mod name_server;
pub(super) mod node_utilization;
mod orders;
pub(super) mod reload;
mod reply;
mod service;
mod shared_words;
mod shuffle;
mod tunnels;
pub(super) mod upgrade;
mod words_seen;

use std::ops::Range;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_core::time::Timestamp;
use tidegate_remote::clock;

use crate::cluster::{AgentPlan, Cluster, Mode};
use crate::front::{self, FrontKind, HaproxyBalance, Moving, Site};
use crate::load::StreamResult;
use crate::results::Report;

use super::measured::Measured;
use super::plan::Arm;
use super::report::{ExperimentFindings, report_of};
use super::{Experiment, ExperimentError, Lab, Scale, arms, workload};

/// Of every experiment here.
const ROUNDS: u32 = 2;
/// Of every load, before anything counts and changes.
const WARM_UP: Duration = Duration::from_secs(2);
/// How long the cluster takes to come up, about.
const CLUSTER: Duration = Duration::from_secs(3);
/// How long an arm takes to come up and to go, about.
const SET_UP: Duration = Duration::from_secs(2);

/// An arm, and how often it is changed.
#[derive(Clone, Debug)]
struct Changed {
    arm: Arm,
    /// Time between two changes; none: it stays as it is.
    every: Option<Duration>,
    /// A program that it needs beside its front-end's.
    needs: Option<&'static str>,
}

impl Changed {
    /// An arm that is left alone.
    fn never(kind: FrontKind) -> Self {
        Self {
            arm: Arm::of(kind),
            every: None,
            needs: None,
        }
    }

    /// The same with other bounds on the nodes of a site, if nodes move.
    fn bounded(&self, bounds: (usize, usize)) -> Self {
        let mut changed = self.clone();
        if let Some(moving) = changed.moving_mut() {
            moving.bounds = bounds;
        }
        changed
    }

    /// How its nodes move, if they do.
    fn moving_mut(&mut self) -> Option<&mut Moving> {
        match &mut self.arm.kind {
            FrontKind::Tidegate(arm) => arm.moving.as_deref_mut(),
            FrontKind::Haproxy(_)
            | FrontKind::Nginx(_)
            | FrontKind::Apache
            | FrontKind::Envoy(_) => None,
        }
    }

    /// The versions of its programs, or why it cannot be run here.
    fn versions(&self) -> Result<Vec<String>, String> {
        let mut versions = vec![front::available(&self.arm.kind)?];
        if let Some(program) = self.needs {
            versions.push(front::installed(program)?.1);
        }
        Ok(versions)
    }

    /// The same under another name, changed so often.
    fn each(mut self, name: &str, every: Duration) -> Self {
        self.arm.name = name.into();
        self.every = Some(every);
        self
    }
}

fn auto() -> Changed {
    Changed::never(arms::auto().kind)
}

/// Nodes can move between the sites, which have so many nodes at least and at most; `keys` are of `[reconfigure]`.
fn moving(name: &str, keys: &str, bounds: (usize, usize)) -> Changed {
    let mut changed = auto();
    changed.arm.name = name.into();
    if let FrontKind::Tidegate(arm) = &mut changed.arm.kind {
        let keys = keys.into();
        arm.moving = Some(Box::new(Moving { keys, bounds }));
    }
    changed
}

fn haproxy() -> Changed {
    Changed::never(FrontKind::Haproxy(HaproxyBalance::LeastConn))
}

/// A site that these nodes serve.
fn site(
    name: &str,
    nodes: Range<usize>,
    arm: &Changed,
    cluster: &Cluster,
) -> Result<Site, ExperimentError> {
    let server = |node| front::server(&arm.arm.kind, name, cluster, node);
    let servers = nodes.map(server).collect::<Result<_, _>>()?;
    Ok(Site::of(name, servers))
}

/// An experiment of changes: what is changed, and what is made of it.
struct ChangesExperiment {
    experiment: &'static Experiment,
    /// Of every node.
    agents: &'static [AgentPlan],
    arms: fn() -> Vec<Changed>,
    /// One run of an arm.
    run: fn(&Lab, &Cluster, &Changed) -> Result<Figures, ExperimentError>,
    findings: fn(&Measured, Scale) -> ExperimentFindings,
}

/// The agents of most.
const BESIDE: &[AgentPlan] = &[arms::beside_agent()];

/// What all experiments do with their arms.
struct Rounds<'a> {
    lab: &'a Lab,
    cluster: &'a Cluster,
    measured: Measured,
}

/// What a run of an arm has measured: figures for the table, and everything.
struct Figures {
    table: Vec<(String, f64)>,
    raw: Value,
}

impl Figures {
    /// Of metrics without labels.
    fn plain(table: Vec<(&'static str, f64)>, raw: Value) -> Self {
        let named = |(metric, value): (&str, f64)| (metric.to_owned(), value);
        Self {
            table: table.into_iter().map(named).collect(),
            raw,
        }
    }
}

impl<'a> Rounds<'a> {
    fn new(lab: &'a Lab, cluster: &'a Cluster) -> Result<Self, ExperimentError> {
        if cluster.mode() == Mode::Loopback {
            let why =
                "front-ends that change need namespaces mode: sockets and processes are counted";
            return Err(ExperimentError::Unfit(why.into()));
        }
        Ok(Self {
            lab,
            cluster,
            measured: Measured {
                mode: cluster.mode().name().into(),
                emulated: cluster.emulated(),
                ..Measured::default()
            },
        })
    }

    /// Runs the arms that are there, in turn.
    fn run(
        &mut self,
        arms: &[Changed],
        one: impl Fn(&Lab, &Cluster, &Changed) -> Result<Figures, ExperimentError>,
    ) {
        let mut present = Vec::new();
        for arm in arms {
            if !self.lab.part.has_arm(&arm.arm.name) {
                continue;
            }
            let notes = match arm.versions() {
                Ok(versions) => {
                    present.push(arm);
                    let versions = versions.into_iter();
                    versions.map(|it| format!("Version: {it}.")).collect()
                }
                Err(why) => vec![format!("SKIPPED {}: {why}", arm.arm.name)],
            };
            for note in notes {
                if !self.measured.notes.contains(&note) {
                    self.measured.notes.push(note);
                }
            }
        }
        for round in 0..ROUNDS {
            for arm in &present {
                let name = &arm.arm.name;
                let text = format!("{name} round {}", round + 1);
                self.lab.progress.message(&text);
                match one(self.lab, self.cluster, arm) {
                    Ok(figures) => self.take(name, round, figures),
                    Err(error) => self.measured.notes.push(format!("FAILED {text}: {error}")),
                }
            }
        }
    }

    fn take(&mut self, arm: &str, round: u32, figures: Figures) {
        let table = self.measured.table.entry(arm.into()).or_default();
        for (metric, value) in figures.table {
            table.entry(metric).or_default().push(value);
        }
        self.measured
            .raw
            .push(json!({ "arm": arm, "round": round, "run": figures.raw }));
    }

    fn report(
        self,
        experiment: &Experiment,
        arms: &[Changed],
        findings: impl Fn(&Measured, Scale) -> ExperimentFindings,
        started: Timestamp,
    ) -> Result<Report, ExperimentError> {
        let measured = self.measured;
        if measured.table.is_empty() {
            return Err(ExperimentError::Nothing(measured.notes.join("; ")));
        }
        let arms: Vec<_> = arms.iter().map(|it| it.arm.clone()).collect();
        let findings = findings(&measured, self.lab.scale);
        let took = clock::now().since(started);
        Ok(report_of(
            experiment, self.lab, &arms, measured, findings, took,
        ))
    }
}

impl ChangesExperiment {
    /// Runs the arms, in turn, on one cluster.
    fn carry_out(&self, lab: &Lab) -> Result<Report, ExperimentError> {
        let started = clock::now();
        let mut plan = workload::cluster(self.agents);
        plan.mode = lab.mode;
        let cluster = Cluster::start(&plan)?;
        let mut rounds = Rounds::new(lab, &cluster)?;
        let arms = (self.arms)();
        rounds.run(&arms, self.run);
        rounds.report(self.experiment, &arms, self.findings, started)
    }
}

/// How long all arms take with a load of this length, about.
fn estimated(arms: &[Changed], length: Duration) -> Duration {
    CLUSTER + (SET_UP + WARM_UP + length) * arms.len() as u32 * ROUNDS
}

/// What is said of every load.
fn load_figures(total: &StreamResult) -> Vec<(&'static str, f64)> {
    vec![
        ("requests", total.offered as f64),
        ("failed", (total.failed + total.refused) as f64),
        ("p50_ms", total.p50_ms),
        ("p99_ms", total.p99_ms),
        ("p999_ms", total.p999_ms),
    ]
}

/// Does something each time that it is due, so many times at the most, until the end; how long each took.
fn repeat(
    every: Duration,
    end: Timestamp,
    mut act: impl FnMut() -> Result<(), ExperimentError>,
) -> Result<Vec<Duration>, ExperimentError> {
    let mut took = Vec::new();
    let mut due = clock::now();
    while due < end {
        clock::sleep_until(due);
        let begun = clock::now();
        act()?;
        took.push(clock::now().since(begun));
        // What takes longer than its turn is not made up for.
        due = (due + every).max(begun);
    }
    Ok(took)
}

/// How many changes there were, and the mean and greatest time that one took.
fn change_figures(took: &[Duration]) -> Vec<(&'static str, f64)> {
    let ms = |it: Duration| it.as_secs_f64() * 1e3;
    let sum: Duration = took.iter().sum();
    let count = took.len();
    vec![
        ("changes", count as f64),
        ("change_mean_ms", ms(sum) / (count as f64).max(1.0)),
        ("change_max_ms", took.iter().max().copied().map_or(0.0, ms)),
    ]
}
