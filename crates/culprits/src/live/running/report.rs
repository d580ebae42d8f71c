//! The report of a running front-end: the picture of the last minute.

use std::time::Duration;

use tidegate_core::throttle::Throttle;
use tidegate_core::time::Timestamp;

use super::Running;
use crate::evidence::Lived;
use crate::picture::report::{self, Mode, Report};
use crate::picture::{self, ClassMaterial, Material};

/// What a picture shows, but for what was used before.
const SHOWN: Duration = Duration::from_secs(60);

impl Running {
    /// The picture of the last minute.
    pub(super) fn report(&mut self) -> Report {
        let now = (self.clocks.now)();
        self.hear(now);
        let unix = (self.clocks.unix)().as_nanos() as i64;
        // The Unix time at the clock's zero.
        let base = unix - now.nanos() as i64;
        let on_unix = |at: Timestamp| Timestamp::from_nanos((at.nanos() as i64 + base) as u64);
        let lived = |it: &Lived| Lived {
            class: it.class,
            sent: on_unix(it.sent),
            ended: on_unix(it.ended),
        };
        let requests: Vec<_> = self.requests.ended().map(lived).collect();
        let unfinished: Vec<_> = (self.requests.unfinished())
            .map(|(class, sent)| (class, on_unix(sent)))
            .collect();
        let spans = self.watched.spans(base);
        let material = Material {
            mode: Mode::Live,
            from: unix - SHOWN.as_nanos() as i64,
            to: unix,
            notes: self.notes(),
            classes: self.classes(base),
            requests: &requests,
            unfinished: &unfinished,
            resources: self.watched.materials(&spans, base),
        };
        Report {
            past: self.watched.past(base),
            ..picture::report(&material)
        }
    }

    fn classes(&self, base: i64) -> Vec<ClassMaterial> {
        let throttles = self.throttles.all();
        let throttle = |text: &String| {
            let pattern = self.names.pattern(text).ok()?;
            let own = throttles.iter().filter(|it| it.pattern.covers(&pattern));
            let own = own.max_by(|one, other| one.pattern.compare(&other.pattern))?;
            Some(shown(own, base))
        };
        let names = self.requests.names().into_iter();
        let class = |(name, pattern): (String, Option<String>)| ClassMaterial {
            throttle: pattern.as_ref().and_then(throttle),
            pattern,
            name,
        };
        names
            .zip(self.requests.class_patterns())
            .map(class)
            .collect()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.watched.iter().len() == 0 {
            notes.push(
                "No node's load is read, so there is no resource to explain: run `tidegate agent` on the \
                 nodes, or on a database's host with `role = \"resource\"`."
                    .into(),
            );
        }
        notes.extend(self.watched.notes(&self.cluster.resources.unread()));
        notes.extend(
            self.last_experiment
                .iter()
                .map(|it| format!("Experiment: {}.", it.text)),
        );
        for (address, why) in self.requests.silent() {
            notes.push(format!(
                "What the front-end at {address} sends to servers is missing: {why}"
            ));
        }
        if self.requests.overflows > 0 {
            notes.push(format!(
                "{} times there were more requests than could be followed.",
                self.requests.overflows
            ));
        }
        notes
    }
}

/// What slows a class, for the picture.
fn shown(throttle: &Throttle, base: i64) -> report::Throttle {
    let seconds = |at: Timestamp| (at.nanos() as i64 + base) as f64 * 1e-9;
    report::Throttle {
        class: throttle.pattern.name().into(),
        limits: throttle.limits.to_string(),
        by: throttle.set_by.label().into(),
        since: Some(seconds(throttle.since)),
        until: throttle.until.map(seconds),
        held: Some(throttle.counters.held),
        held_ms: Some(throttle.counters.delayed.as_secs_f64() * 1e3),
        in_flight: Some(throttle.in_flight),
        waiting: Some(throttle.waiting),
    }
}
