//! What an experiment does, as data: clusters, arms, points, rounds, and how long that takes.
//!
//! ```text
//! time = stages x (set-up + calibration) + points x rounds x arms x (front-ends + warm-up + length)
//! ```
//!
//! What it does not know: what is measured beside the load, and what follows from it.

use std::time::Duration;

use crate::antagonist::Antagonist;
use crate::cluster::ClusterPlan;
use crate::front::FrontKind;
use crate::load::{Pacing, Stream};

/// A cluster that comes up and goes away: about this long.
pub(super) const SET_UP: Duration = Duration::from_secs(5);
/// A database that is made and filled.
const DATABASE: Duration = Duration::from_secs(10);
/// Front-ends that start and stop: an arm, and each process of it.
const ARM: Duration = Duration::from_millis(300);
const PROCESS: Duration = Duration::from_millis(85);
/// Enough requests for every cache, and the later ones not to depend on the first.
const SETTLE: Duration = Duration::from_secs(4);
/// Of a refused client of a closed loop, by default.
const REST: Duration = Duration::from_millis(10);
/// A load generator that starts, and the last answers that it waits for.
pub(super) const GENERATOR: Duration = Duration::from_millis(400);

/// A whole experiment.
#[derive(Clone, Debug)]
pub struct Plan {
    /// One after the other, each on a cluster of its own.
    pub stages: Vec<Stage>,
    /// What is compared, in turn.
    pub arms: Vec<Arm>,
    /// How often each arm is measured at each point.
    pub rounds: u32,
}

/// A cluster, and what is measured on it.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The nodes.
    pub cluster: ClusterPlan,
    /// The loads.
    pub points: Vec<Point>,
    /// What stands for arms of the plan here, by their names.
    pub instead: Vec<Arm>,
    /// How the knee is found first; then the points' rates are fractions of it.
    pub calibration: Option<Calibration>,
    /// Whether the experiment has a result without it: then a cluster that does not come up is
    /// skipped.
    pub optional: bool,
}

/// The search for the knee.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// What is put before the nodes.
    pub front: FrontKind,
    /// The load; its rates are shares of the walk's.
    pub streams: Vec<Stream>,
    /// First rate, requests per second.
    pub first: f64,
    /// Of each step.
    pub length: Duration,
    /// Steps at most, for the estimate.
    pub steps: u32,
}

/// One thing that is compared.
#[derive(Clone, Debug)]
pub struct Arm {
    /// Its name in tables.
    pub name: String,
    /// What is started.
    pub kind: FrontKind,
    /// How many processes of it, which do not know of each other.
    pub processes: u32,
}

/// One load on the cluster.
#[derive(Clone, Debug)]
pub struct Point {
    /// What distinguishes it, as in `throughput_rps[alpha=0.5]`; empty for the only one.
    pub label: String,
    /// The load; the site of every stream is served by all nodes.
    pub streams: Vec<Stream>,
    /// What else is on which node.
    pub antagonists: Vec<(usize, Antagonist)>,
    /// What else wants the front-ends' CPU, which then gets as much of it as they do.
    pub beside_front: Option<Antagonist>,
    /// Once, before the first arm: fills the nodes' caches as this load leaves them.
    pub settle: Duration,
    /// In each run, before anything counts.
    pub warm_up: Duration,
    /// What is measured.
    pub length: Duration,
    /// How long the last answers take after that, about.
    pub tail: Duration,
    /// A request that takes longer has failed.
    pub timeout: Duration,
    /// Length of the windows of the time series.
    pub windows: Option<Duration>,
    /// Answers are also counted by the value of this header.
    pub count_by: Option<String>,
    /// Numbers in this header of answers are added up.
    pub sum_by: Option<String>,
    /// Answers within this time are counted in the windows.
    pub slo: Option<Duration>,
    /// A refused client of a closed loop rests so long.
    pub rest: Duration,
    /// How many processes each arm has here; none: as the arm says.
    pub front_ends: Option<u32>,
    /// Only these arms are measured here; none: all.
    pub only: Option<fn(&Arm) -> bool>,
}

impl Calibration {
    /// How long it takes, about.
    #[must_use]
    pub fn estimate(&self) -> Duration {
        (self.length + GENERATOR) * self.steps
    }
}

impl Arm {
    /// One process of a front-end.
    #[must_use]
    pub fn of(kind: FrontKind) -> Self {
        Self {
            name: kind.label(),
            kind,
            processes: 1,
        }
    }

    /// Several processes.
    #[must_use]
    pub fn times(mut self, processes: u32) -> Self {
        self.processes = processes;
        self
    }

    /// Whether it is another project's.
    #[must_use]
    pub fn peer(&self) -> bool {
        !matches!(self.kind, FrontKind::Tidegate(_))
    }
}

impl Point {
    /// A closed or open loop against one site, with everything else at its usual value.
    #[must_use]
    pub fn single(label: String, stream: Stream, warm_up: Duration, length: Duration) -> Self {
        Self {
            label,
            streams: vec![stream],
            antagonists: Vec::new(),
            beside_front: None,
            settle: SETTLE,
            warm_up,
            length,
            timeout: Duration::from_secs(10),
            windows: None,
            count_by: None,
            sum_by: None,
            tail: Duration::ZERO,
            slo: None,
            rest: REST,
            front_ends: None,
            only: None,
        }
    }

    /// Whether clients wait for answers before they ask again.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        let closed = |stream: &Stream| matches!(stream.pacing, Pacing::Closed { .. });
        self.streams.iter().all(closed)
    }

    /// Whether an arm is measured here.
    #[must_use]
    pub fn takes(&self, arm: &Arm) -> bool {
        self.only.is_none_or(|only| only(arm))
    }

    /// How many processes of an arm stand here.
    #[must_use]
    pub fn processes(&self, arm: &Arm) -> u32 {
        self.front_ends.unwrap_or(arm.processes)
    }

    /// How long one run takes, about.
    #[must_use]
    pub fn run(&self, arm: &Arm) -> Duration {
        ARM + PROCESS * self.processes(arm) + GENERATOR + self.warm_up + self.length + self.tail
    }
}

impl Stage {
    /// Points on a cluster.
    #[must_use]
    pub fn new(cluster: ClusterPlan, points: Vec<Point>) -> Self {
        Self {
            cluster,
            points,
            instead: Vec::new(),
            calibration: None,
            optional: false,
        }
    }

    /// How long its cluster takes to come up and to go away, about.
    #[must_use]
    pub fn set_up(&self) -> Duration {
        let nodes = self.cluster.nodes.iter();
        let databases = nodes.filter(|node| !node.server.is_web()).count();
        SET_UP + DATABASE * databases as u32
    }

    /// What an arm of the plan is here.
    #[must_use]
    pub fn arm<'a>(&'a self, arm: &'a Arm) -> &'a Arm {
        self.instead
            .iter()
            .find(|it| it.name == arm.name)
            .unwrap_or(arm)
    }
}

impl Plan {
    /// How long it takes, about.
    #[must_use]
    pub fn estimate(&self) -> Duration {
        let point = |point: &Point| {
            let arms = self.arms.iter().filter(|arm| point.takes(arm));
            point.settle + arms.map(|arm| point.run(arm)).sum::<Duration>() * self.rounds
        };
        let stage = |stage: &Stage| {
            let calibration = stage.calibration.as_ref();
            let walk = calibration.map_or(Duration::ZERO, Calibration::estimate);
            stage.set_up() + walk + stage.points.iter().map(point).sum::<Duration>()
        };
        self.stages.iter().map(stage).sum()
    }

    /// Runs of the load generator, calibration aside.
    #[must_use]
    pub fn runs(&self) -> usize {
        let points = self.stages.iter().flat_map(|stage| &stage.points);
        let runs = points.map(|point| self.arms.iter().filter(|arm| point.takes(arm)).count());
        runs.sum::<usize>() * self.rounds as usize
    }

    /// What is wrong with it, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        if self.rounds < 2 {
            return Err("there are at least two rounds".into());
        }
        let mut names: Vec<_> = self.arms.iter().map(|arm| &arm.name).collect();
        names.sort();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("two arms are called {}", pair[0]));
        }
        self.stages
            .iter()
            .try_for_each(|stage| self.check_stage(stage))
    }

    fn check_stage(&self, stage: &Stage) -> Result<(), String> {
        let nodes = &stage.cluster.nodes;
        let shares: f64 = nodes.iter().map(|node| node.share).sum();
        if nodes.is_empty() || shares > 1.0 {
            return Err(format!(
                "the nodes' shares add up to {shares:.2} of one CPU"
            ));
        }
        let measured = |arm: &&Arm| stage.points.iter().any(|point| point.takes(arm));
        for arm in self.arms.iter().map(|arm| stage.arm(arm)).filter(measured) {
            let FrontKind::Tidegate(tidegate) = &arm.kind else {
                continue;
            };
            let has = |agent: &'static str| {
                nodes
                    .iter()
                    .all(|node| node.agents.iter().any(|it| it.name == agent))
            };
            if let Some(agent) = tidegate.agent.filter(|agent| !has(agent)) {
                return Err(format!(
                    "{} reads the agent {agent}, which not every node has",
                    arm.name
                ));
            }
        }
        stage
            .points
            .iter()
            .try_for_each(|point| check_point(point, nodes.len()))
    }
}

fn check_point(point: &Point, nodes: usize) -> Result<(), String> {
    let label = &point.label;
    if let Some((node, _)) = point.antagonists.iter().find(|(node, _)| *node >= nodes) {
        return Err(format!(
            "{label}: an antagonist is on node {node} of {nodes}"
        ));
    }
    for stream in &point.streams {
        if let Pacing::Open { rate, .. } = stream.pacing
            && rate <= 0.0
        {
            return Err(format!("{label}: a rate of {rate}"));
        }
    }
    Ok(())
}
