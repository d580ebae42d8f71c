//! Metrics of requests that are sent more than once: retries, what the budget refused, what came back unsent or not begun, second nodes of slow ones, and copies.

use tidegate_proxy::{Hedged, Mirrored, Snapshot};

use crate::exposition::{Kind, Text};

/// Adds them.
pub(super) fn metrics(snapshot: &Snapshot, text: &mut Text) {
    let counters = [
        (
            "tidegate_retries",
            "Requests tried again at a node.",
            snapshot.retries,
        ),
        (
            "tidegate_retries_denied",
            "Retries that the retry budget refused.",
            snapshot.retries_denied,
        ),
        (
            "tidegate_status_retries",
            "Those of them in place of an answer, for its status (retry_on).",
            snapshot.status_retries,
        ),
        (
            "tidegate_stale_connections",
            "Requests that came back unsent from a connection that the node had closed.",
            snapshot.stale,
        ),
        (
            "tidegate_replays",
            "Requests with a body that were sent again, because their node had not begun.",
            snapshot.replays,
        ),
    ];
    for (name, help, value) in counters {
        text.family(name, Kind::Counter, help).count(&[], value);
    }
    let help = "Requests that were drawn to be copied for another site (mirror), by what became of the copy.";
    let mut family = text.family("tidegate_mirrored", Kind::Counter, help);
    for (outcome, count) in Mirrored::ALL.iter().zip(&snapshot.mirrored) {
        family.count(&[("outcome", outcome.label())], *count);
    }
    let help = "Requests whose first node had not answered in time (hedge), by what became of the second one.";
    let mut family = text.family("tidegate_hedged", Kind::Counter, help);
    for (outcome, count) in Hedged::ALL.iter().zip(&snapshot.hedged) {
        family.count(&[("outcome", outcome.label())], *count);
    }
    let help = "Bytes of request bodies that are held now, to be sent again.";
    text.family("tidegate_held_body_bytes", Kind::Gauge, help)
        .sample(&[], snapshot.held_bytes as f64);
}
