//! The experiments, one file each, and the table of all.
//!
//! An experiment says what it does as a [`Plan`] (see `plan.rs`), which the runner carries out,
//! and what follows from it as verdicts. To add one: a file with an [`Experiment`] constant and
//! a line in [`ALL`].
//!
//! What it does not know: how nodes are made, how load is made, what prints.

mod accuracy;
mod admission;
pub mod arms;
mod changes;
mod crash;
mod culprits_suite;
mod drive;
mod elephants;
mod fitness;
mod hostile;
mod idle_cost;
mod instructions;
pub mod judge;
mod load_variance;
mod loaded_nodes;
mod measured;
mod one_front_end;
mod one_vs_two_sided;
mod paper;
mod plan;
mod poll_interval;
mod protocol_cost;
mod proxy_cost;
mod quiet;
mod rdma_micro;
mod rdma_place;
mod report;
mod reserve;
mod runner;
mod shared_sites;
mod single_site;
mod slbl;
mod tail;
#[cfg(test)]
mod tests;
mod usage;
mod workload;

use std::time::Duration;

use crate::awake::Awake;
use crate::cluster::{ClusterError, Mode};
use crate::front::FrontError;
use crate::load::LoadError;
use crate::progress::Progress;
use crate::results::Report;

pub use measured::Measured;
pub use plan::{Arm, Calibration, Plan, Point, Stage};
pub use runner::{NoHook, Run, RunHook, Runner};

/// Every experiment, in the order of the papers.
pub const ALL: &[&Experiment] = &[
    &one_vs_two_sided::EXPERIMENT,
    &rdma_micro::EXPERIMENT,
    &accuracy::EXPERIMENT,
    &single_site::EXPERIMENT,
    &loaded_nodes::EXPERIMENT,
    &shared_sites::EXPERIMENT,
    &load_variance::EXPERIMENT,
    &poll_interval::EXPERIMENT,
    &proxy_cost::EXPERIMENT,
    &protocol_cost::EXPERIMENT,
    &idle_cost::EXPERIMENT,
    &tail::EXPERIMENT,
    &crash::EXPERIMENT,
    &hostile::EXPERIMENT,
    &changes::reload::EXPERIMENT,
    &changes::upgrade::EXPERIMENT,
    &changes::discovery::EXPERIMENT,
    &changes::burst_length::EXPERIMENT,
    &changes::burst_files::EXPERIMENT,
    &changes::node_utilization::EXPERIMENT,
    &changes::move_latency::EXPERIMENT,
    &changes::move_safety::EXPERIMENT,
    &changes::move_faults::EXPERIMENT,
    &slbl::poll_interval::EXPERIMENT,
    &slbl::normal::EXPERIMENT,
    &slbl::overload::EXPERIMENT,
    &slbl::scale::EXPERIMENT,
    &slbl::reaction::EXPERIMENT,
    &admission::response::EXPERIMENT,
    &admission::instant::EXPERIMENT,
    &admission::qos::EXPERIMENT,
    &admission::traces::EXPERIMENT,
    &admission::goodput::EXPERIMENT,
    &admission::recovery::EXPERIMENT,
    &admission::priority::EXPERIMENT,
    &culprits_suite::EXPERIMENT,
    &elephants::EXPERIMENT,
];

/// One experiment.
#[derive(Debug)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it asks, in one line.
    pub about: &'static str,
    /// Where the claim that it tests stands.
    pub source: &'static str,
    /// What it needs beyond the lab itself.
    pub needs: &'static str,
    /// How long it takes, about.
    pub estimate: fn(Scale) -> Duration,
    /// Does it.
    pub run: fn(&Lab) -> Result<Report, ExperimentError>,
    /// What it will do, for those that are a plan.
    pub plan: Option<fn(Scale) -> Plan>,
}

/// How much of an experiment is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Within three minutes: fewer arms, points and seconds.
    Quick,
    /// All of it.
    Full,
}

impl Scale {
    /// One of two values.
    #[must_use]
    pub fn pick<T>(self, quick: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}

/// A part of an experiment, to look at closely: the points and arms of these names, all if there is
/// none.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// Labels of points.
    pub points: Vec<String>,
    /// Names of arms.
    pub arms: Vec<String>,
}

impl Part {
    /// Whether that is everything.
    pub fn is_all(&self) -> bool {
        self.points.is_empty() && self.arms.is_empty()
    }

    fn has(names: &[String], name: &str) -> bool {
        names.is_empty() || names.iter().any(|it| it == name)
    }

    fn has_point(&self, label: &str) -> bool {
        Self::has(&self.points, label)
    }

    fn has_arm(&self, name: &str) -> bool {
        Self::has(&self.arms, name)
    }
}

/// What an experiment is given.
#[derive(Debug)]
pub struct Lab {
    /// How much of it.
    pub scale: Scale,
    /// How nodes are kept apart; none: as well as this machine can.
    pub mode: Option<Mode>,
    /// Which part of it.
    pub part: Part,
    /// What hears how far it is.
    pub progress: Progress,
    /// Whether idle CPUs are kept awake.
    pub awake: Awake,
}

/// Why an experiment has no result.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The cluster.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A front-end that the experiment cannot do without.
    #[error(transparent)]
    Front(#[from] FrontError),
    /// The load generator.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Reading load.
    #[error("{0}")]
    Read(String),
    /// Every arm failed.
    #[error("no arm has a result: {0}")]
    Nothing(String),
    /// It cannot be done here.
    #[error("{0}")]
    Unfit(String),
}

/// The experiment of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Experiment> {
    ALL.iter()
        .copied()
        .find(|experiment| experiment.name == name)
}
