//! What is done about culprits: throttles by the policy, and delay experiments, asked for or not.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate_core::classes::ClassId;
use tidegate_core::culprits::Confidence;
use tidegate_core::culprits::delay_experiment::may_delay;
use tidegate_core::time::Timestamp;

use super::super::experiment::{RunningExperiment, Suspect};
use super::super::findings::Findings;
use super::super::handed_over::LearnedPolicy;
use super::super::policy::{OthersDo, Scene};
use super::Running;
use crate::delay_experiment::ExperimentReport;

/// Part of what requests shall take from which on one that waits for room is held back.
const HELD_BACK: f64 = 0.1;
/// For so long a class gets no further experiment by itself.
const EXPERIMENT_LASTS: Duration = Duration::from_secs(600);

impl Running {
    /// Does by itself what the operator lets it do.
    pub(super) fn act(&mut self, now: Timestamp) {
        let findings = self.findings.load_full();
        let flagged: BTreeSet<&str> = findings.flagged().map(|it| &*it.class).collect();
        let slo = self.actions.slo.as_secs_f64();
        let own = |name: &str| self.policy.as_ref().is_some_and(|it| it.throttles(name));
        let but = |name: &str| flagged.contains(name) || own(name);
        let fare = self.requests.others_fare(&but, HELD_BACK * slo, now);
        let others = OthersDo {
            latency: fare.seconds.map(|seconds| seconds / slo),
            held_back: fare.held_back,
            took: self.requests.take_at_servers(&|name| !but(name), now),
        };
        self.latency = others.latency.unwrap_or_default();
        if let Some(policy) = &mut self.policy {
            let pressed = self.watched.pressed();
            let requests = &self.requests;
            let held_back = |class: &str| {
                let fare = requests.others_fare(&|name| name != class, HELD_BACK * slo, now);
                fare.held_back
            };
            let took = |class: &str| requests.take_at_servers(&|name| name == class, now);
            let scene = Scene {
                found: &findings.all,
                pressed: &pressed,
                others,
                held_back: &held_back,
                took: &took,
            };
            for it in policy.act(&scene, &*self.throttles, now) {
                self.log.event(it.event, &it.text);
            }
        }
        if self.actions.delay_experiments && self.experiment.is_none() && self.latency <= 1.0 {
            self.experiment_on_ambiguous(&findings, now);
        }
    }

    /// Goes on from what the process that this one succeeds had throttled.
    pub(super) fn take_over(&mut self, known: &LearnedPolicy) {
        let now = (self.clocks.now)();
        let alone = self.requests.alone();
        let Some(policy) = &mut self.policy else {
            for it in &known.automatic.throttles {
                let text = format!(
                    "{}: not throttled any more, `automatic` is switched off",
                    it.class
                );
                self.log.event("released", &text);
            }
            return;
        };
        for it in policy.recall(known, alone, &*self.throttles, now) {
            self.log.event(it.event, &it.text);
        }
    }

    /// Begins an experiment on the first class that cannot be separated from others and had none of late.
    fn experiment_on_ambiguous(&mut self, findings: &Findings, now: Timestamp) {
        self.experimented_at
            .retain(|_, at| now.since(*at) < EXPERIMENT_LASTS);
        let unsure = findings.flagged().find(|it| {
            let ambiguous = matches!(it.flagged, Some((Confidence::Ambiguous, _)));
            let class = (it.class.to_string(), it.resource.to_string());
            ambiguous && !self.experimented_at.contains_key(&class)
        });
        let Some(unsure) = unsure else { return };
        let class = (unsure.class.to_string(), unsure.resource.to_string());
        self.experimented_at.insert(class, now);
        match self.begin_experiment(&unsure.class, Some(&unsure.resource)) {
            Ok(begun) => self.log.event("experiment", &begun.text),
            Err(why) => self.log.event("experiment", &why),
        }
    }

    /// Begins a delay experiment on a class against a resource, or the one of which it is thought to use most.
    pub(super) fn begin_experiment(
        &mut self,
        class: &str,
        resource: Option<&str>,
    ) -> Result<ExperimentReport, String> {
        if self.experiment.is_some() {
            return Err("an experiment on another class runs".into());
        }
        may_delay(true, self.latency > 1.0).map_err(|why| format!("not now: {why}"))?;
        let found = self.found();
        let own = found.iter().filter(|it| &*it.class == class);
        let own = own.filter(|it| resource.is_none_or(|name| &*it.resource == name));
        let most = own.max_by(|one, other| one.share.total_cmp(&other.share));
        let most = most.ok_or_else(|| match resource {
            Some(resource) => format!("no requests of `{class}` are known with {resource} in use"),
            None => format!("no requests of `{class}` are known with any resource in use"),
        })?;
        let text = most.pattern.as_deref();
        let text = text.ok_or_else(|| format!("`{class}` has no method and path of its own"))?;
        let pattern = self.names.pattern(text);
        let pattern = pattern.map_err(|error| format!("`{text}` cannot be tested: {error}"))?;
        let watched = self.watched.iter().find(|it| it.name == *most.resource);
        let watched = watched.ok_or("the resource is gone")?;
        let names = self.requests.names();
        let number = names.iter().position(|name| name == class);
        let suspect = Suspect {
            class: ClassId(number.unwrap_or_default() as u16),
            class_name: class,
            pattern,
            resource: watched.id,
            resource_name: &watched.name,
            cost_seconds: most.cost_seconds,
        };
        let now = (self.clocks.now)();
        let experiment = RunningExperiment::begin(&suspect, &*self.delay_experiments, now)?;
        let report = experiment.report(now);
        self.last_experiment = Some(report.clone());
        self.experiment = Some(experiment);
        self.publish(found);
        Ok(report)
    }

    pub(super) fn evaluate_experiment(&mut self, now: Timestamp) {
        let Some(experiment) = &mut self.experiment else {
            return;
        };
        let known = self.watched.known_until();
        let above_slo = self.latency > 1.0;
        let over = experiment.look(&mut self.discovery, above_slo, known, now);
        let report = experiment.report(now);
        if over {
            self.log.event("experiment", &report.text);
            self.experiment = None;
        }
        self.last_experiment = Some(report);
    }
}
