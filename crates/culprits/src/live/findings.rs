//! What was found of classes and resources, as metrics, `why` and the policy see it.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::culprits::Confidence;
use tidegate_core::time::Timestamp;

use crate::delay_experiment::ExperimentReport;

/// A class and a resource, as the last evaluation saw them.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The class's name.
    pub class: Arc<str>,
    /// What an override of its requests calls it; none if there can be none.
    pub pattern: Option<Arc<str>>,
    /// The resource's name.
    pub resource: Arc<str>,
    /// Part of the resource's capacity that it uses.
    pub share: f64,
    /// Of the resource, per request.
    pub cost_seconds: f64,
    /// Half width of its 95 % interval, as a part of it; infinite where nothing is known.
    pub cost_error: f64,
    /// What it rests on: t, z, and the fit over the best at a wrong time.
    pub evidence: [f64; 3],
    /// Its mean number of requests in progress.
    pub in_progress: f64,
    /// How sure it is that it is a culprit, and since when it is named; none if it is not.
    pub flagged: Option<(Confidence, Timestamp)>,
    /// The share for which it is worth a trial, though it is not named.
    pub suspected: Option<f64>,
    /// The share that its requests' lives alone tell, for which it is worth a trial when nothing else helps.
    pub presumed: Option<f64>,
}

/// What others see of it.
#[derive(Debug, Default)]
pub struct Findings {
    /// Each class with requests against each resource in use; what is named first, then by share.
    pub all: Vec<Finding>,
    /// The last delay experiment, or the one that runs.
    pub experiment: Option<ExperimentReport>,
    /// Times at which events of requests found no room.
    pub overflows: u64,
    /// Evaluations so far.
    pub evaluations: u64,
    /// Time that they took.
    pub evaluated: Duration,
}

impl Findings {
    /// Which classes are named.
    pub fn flagged(&self) -> impl Iterator<Item = &Finding> {
        self.all.iter().take_while(|it| it.flagged.is_some())
    }
}
