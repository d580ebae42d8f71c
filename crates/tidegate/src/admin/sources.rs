//! Sources of nodes, for the API and the metrics.

use super::plane::Plane;
use crate::exposition::{Kind, Text};
use crate::models::{SourceEventStatus, SourceStatus};

/// All, by their names.
pub(super) fn status(plane: &Plane) -> Vec<SourceStatus> {
    let now = (plane.clock)();
    let all = plane.sources.all().into_iter();
    let status = all.map(|(name, state)| SourceStatus {
        name,
        what: state.what,
        site: state.site,
        nodes: state.found as u64,
        refused: state.refused as u64,
        answers: state.answers,
        failures: state.failures,
        answered_seconds_ago: state.answered.map(|at| now.since(at).as_secs_f64()),
        error: state.error,
        events: (state.events.into_iter())
            .map(|event| SourceEventStatus {
                seconds_ago: now.since(event.at).as_secs_f64(),
                text: event.text,
            })
            .collect(),
    });
    status.collect()
}

pub(super) fn metrics(plane: &Plane, text: &mut Text) {
    let sources = plane.sources.all();
    if sources.is_empty() {
        return;
    }
    let now = (plane.clock)();
    let mut family = text.family(
        "tidegate_source_answers",
        Kind::Counter,
        "Questions to a source of nodes, by whether it has answered.",
    );
    for (name, state) in &sources {
        let counts = [("answered", state.answers), ("failed", state.failures)];
        for (result, count) in counts {
            family.count(&[("source", name), ("result", result)], count);
        }
    }
    let mut family = text.family(
        "tidegate_source_nodes",
        Kind::Gauge,
        "Nodes in the last answer of a source.",
    );
    for (name, state) in &sources {
        family.sample(&[("source", name)], state.found as f64);
    }
    let mut family = text.family(
        "tidegate_source_answered_seconds_ago",
        Kind::Gauge,
        "Since the last answer of a source.",
    );
    for (name, state) in &sources {
        if let Some(at) = state.answered {
            family.sample(&[("source", name)], now.since(at).as_secs_f64());
        }
    }
}
