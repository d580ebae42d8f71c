//! Metrics of the export of traces.

use tidegate_proxy::Snapshot;

use crate::exposition::{Kind, Text};
use crate::otlp::{ExportCounts, ExportOutcome};

/// Adds them.
pub(super) fn metrics(counts: &ExportCounts, snapshot: &Snapshot, text: &mut Text) {
    let help = "Spans that the collector took.";
    text.family("tidegate_trace_spans_exported", Kind::Counter, help)
        .count(&[], counts.exported());
    let help = "Spans that the collector did not take of a batch that it took.";
    text.family("tidegate_trace_spans_rejected", Kind::Counter, help)
        .count(&[], counts.rejected());
    let help = "Requests of recorded traces that were not exported: too many in their second (rate), too many that waited (queue), refused by the collector, or not taken in time (unavailable).";
    let mut family = text.family("tidegate_trace_requests_dropped", Kind::Counter, help);
    for (reason, count) in [
        ("rate", snapshot.traces_over_rate),
        ("queue", snapshot.traces_over_queue),
        ("refused", counts.refused()),
        ("unavailable", counts.unavailable()),
    ] {
        family.count(&[("reason", reason)], count);
    }
    let help = "Tries to hand a batch to the collector, by what became of them.";
    let mut family = text.family("tidegate_trace_exports", Kind::Counter, help);
    for outcome in ExportOutcome::ALL {
        family.count(&[("outcome", outcome.label())], counts.tries(outcome));
    }
}
