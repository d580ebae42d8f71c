//! A delay experiment that runs: class and resource, the proxy's assignments, the resource's use.

use std::time::Duration;

use tidegate_core::classes::ClassId;
use tidegate_core::culprits::delay_experiment::{DELAY, TIME_MAX};
use tidegate_core::culprits::{Discovery, ResourceId};
use tidegate_core::throttle::ClassPattern;
use tidegate_core::time::Timestamp;

use super::front_end::{Assignments, DelayExperiments};
use crate::delay_experiment::{ExperimentReport, ExperimentRun};

/// Time between evaluations.
const EVALUATION_PERIOD: Duration = Duration::from_secs(1);

/// An experiment that runs. Dropping it ends it: delayed requests go on at once.
#[derive(Debug)]
pub(super) struct RunningExperiment {
    run: ExperimentRun,
    assignments: Box<dyn Assignments>,
    resource: ResourceId,
    class: ClassId,
    due: Timestamp,
}

/// The class that it is on, and the resource.
#[derive(Clone, Debug)]
pub(super) struct Suspect<'a> {
    /// The class's number.
    pub(super) class: ClassId,
    /// Its name.
    pub(super) class_name: &'a str,
    /// Its requests.
    pub(super) pattern: ClassPattern,
    /// The resource's number.
    pub(super) resource: ResourceId,
    /// Its name.
    pub(super) resource_name: &'a str,
    /// What a request is thought to cost the resource.
    pub(super) cost_seconds: f64,
}

impl RunningExperiment {
    /// Begins to assign requests.
    ///
    /// # Errors
    /// Why the class cannot be tested now.
    pub(super) fn begin(
        suspect: &Suspect<'_>,
        delay_experiments: &dyn DelayExperiments,
        now: Timestamp,
    ) -> Result<Self, String> {
        let class = suspect.class_name;
        let assignments = delay_experiments.begin(suspect.pattern.clone(), DELAY, now + TIME_MAX);
        let assignments =
            assignments.map_err(|error| format!("`{class}` cannot be tested: {error}"))?;
        Ok(Self {
            run: ExperimentRun::new(
                suspect.class,
                suspect.class_name,
                suspect.resource_name,
                suspect.cost_seconds,
                now,
            ),
            assignments,
            resource: suspect.resource,
            class: suspect.class,
            due: now + EVALUATION_PERIOD,
        })
    }

    /// Takes in what was assigned; whether it is over. `known` is up to when the resource's use is known.
    pub(super) fn look(
        &mut self,
        discovery: &mut Discovery,
        site_above_slo: bool,
        known: Timestamp,
        now: Timestamp,
    ) -> bool {
        for assignment in self.assignments.take() {
            self.run.on_assignment(assignment);
        }
        if now < self.due {
            return false;
        }
        self.due = now + EVALUATION_PERIOD;
        let resource = self.resource;
        let used = |from, to| discovery.used(resource, from, to);
        let over = self.run.settle(known, site_above_slo, used);
        if over {
            discovery.on_experiment(resource, self.class, self.run.is_confirmed());
        }
        over
    }

    /// The number of the class that it is on.
    pub(super) fn class(&self) -> ClassId {
        self.class
    }

    /// Breaks it off: class or resource have left. How far it has come.
    pub(super) fn stop(&mut self, now: Timestamp) -> ExperimentReport {
        self.run.stop(now);
        self.run.report(now)
    }

    /// How far it has come.
    pub(super) fn report(&self, now: Timestamp) -> ExperimentReport {
        self.run.report(now)
    }
}
