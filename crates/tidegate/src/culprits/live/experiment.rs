//! The causal test, run: which class and resource, what the proxy tosses, what the resource did then.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::classes::ClassId;
use tidegate_core::culprits::dither::{HOLD, LONGEST};
use tidegate_core::culprits::{Discovery, ResourceId};
use tidegate_core::throttle::ClassPattern;
use tidegate_core::time::Timestamp;
use tidegate_culprits::causal::{CausalReport, CausalTest};
use tidegate_proxy::{Dithering, Tosses};

/// How often it is looked whether enough is known.
const LOOK: Duration = Duration::from_secs(1);

/// A test that runs. Dropping it ends it: who is held goes on at once.
#[derive(Debug)]
pub(super) struct Experiment {
    test: CausalTest,
    tosses: Tosses,
    resource: ResourceId,
    class: ClassId,
    due: Timestamp,
}

/// Whom it is about.
#[derive(Clone, Debug)]
pub(super) struct Suspect<'a> {
    pub(super) class: ClassId,
    pub(super) class_name: &'a str,
    /// Its requests.
    pub(super) pattern: ClassPattern,
    pub(super) resource: ResourceId,
    pub(super) resource_name: &'a str,
    /// What a request is thought to cost the resource.
    pub(super) cost_seconds: f64,
}

impl Experiment {
    /// Begins to toss.
    ///
    /// # Errors
    /// Why the class cannot be tested now.
    pub(super) fn begin(
        suspect: &Suspect<'_>,
        dithering: &Arc<Dithering>,
        now: Timestamp,
    ) -> Result<Self, String> {
        let class = suspect.class_name;
        let tosses = dithering.begin(suspect.pattern.clone(), HOLD, now + LONGEST);
        let tosses = tosses.map_err(|error| format!("`{class}` cannot be tested: {error}"))?;
        let name = (suspect.class, suspect.class_name);
        Ok(Self {
            test: CausalTest::new(name, suspect.resource_name, suspect.cost_seconds, now),
            tosses,
            resource: suspect.resource,
            class: suspect.class,
            due: now + LOOK,
        })
    }

    /// Takes in what was tossed; whether it is over. `known` is up to when the resource's use is known.
    pub(super) fn look(
        &mut self,
        discovery: &mut Discovery,
        site_above_slo: bool,
        known: Timestamp,
        now: Timestamp,
    ) -> bool {
        for toss in self.tosses.take() {
            self.test.on_toss(toss);
        }
        if now < self.due {
            return false;
        }
        self.due = now + LOOK;
        let resource = self.resource;
        let used = |from, to| discovery.used(resource, from, to);
        let over = self.test.settle(known, site_above_slo, used);
        if over {
            discovery.on_tested(resource, self.class, self.test.is_confirmed());
        }
        over
    }

    /// How far it has come.
    pub(super) fn report(&self, now: Timestamp) -> CausalReport {
        self.test.report(now)
    }
}
