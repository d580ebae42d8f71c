//! What speaks against a node: its errors, how often it was ejected and why it is out now, and what
//! brings it back; as fields for programs and as sentences for people.

use tidegate_core::time::Timestamp;
use tidegate_core::topology::{Cause, Ejection, Node, NodeId, Topology};
use tidegate_proxy::{NodeSnapshot, Reason};

use super::checks;
use super::plane::{Look, Plane};
use super::soft_limits;
use crate::driver::why_agent_has_it_out;
use crate::models::Trouble;

/// An error is worth a sentence for so long, where nothing else is wrong.
const RECENT_SECONDS: f64 = 300.0;

/// What speaks against a node now.
pub(super) fn trouble(plane: &Plane, look: &Look, topology: &Topology, id: NodeId) -> Trouble {
    let node = topology.node(id);
    let ejected = node.ejection;
    let counted = look.snapshot.nodes.get(id.index());
    let last = counted.and_then(|node| node.last_error);
    let since = |at: Timestamp| look.now.since(at).as_secs_f64();
    let mut trouble = Trouble {
        in_a_row: plane.shared.table.outcomes(id).streak,
        errors: counted.map(errors).unwrap_or_default(),
        error: last.map(|last| last.what.to_string()),
        error_seconds_ago: last.map(|last| since(last.at)),
        ejections: node.ejections,
        ejected_for: ejected.map(|it| it.cause.label().into()),
        ejected_seconds_ago: ejected.map(|it| since(it.since)),
        notes: Vec::new(),
    };
    let by_check = checks::failing(topology, id);
    // Its load comes with responses alone, and it gives none while it is out.
    let in_responses = plane.shared.load_reports.counts(id).is_some();
    let back = ejected.map(|it| back(it, node, in_responses, look.now));
    trouble.notes = notes(&trouble, ejected.zip(back), &by_check, look.now);
    trouble.notes.extend(why_agent_has_it_out(node));
    trouble.notes.extend(soft_limits::note(plane, topology, id));
    trouble
        .notes
        .extend(checks::notes(plane, look, topology, id));
    trouble
}

/// Errors by what they were, those that there are.
fn errors(node: &NodeSnapshot) -> std::collections::BTreeMap<String, u64> {
    let reasons = Reason::ALL.iter().zip(&node.reasons);
    let reasons = reasons.map(|(reason, count)| (reason.label().to_owned(), *count));
    let statuses = [("5xx".to_owned(), node.status_classes[4])];
    reasons.chain(statuses).filter(|it| it.1 > 0).collect()
}

fn notes(
    trouble: &Trouble,
    ejected: Option<(Ejection, String)>,
    by_check: &str,
    now: Timestamp,
) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some((ejection, back)) = ejected {
        let why = match ejection.cause {
            Cause::Failures => "requests to it failed and it answered nothing",
            Cause::Silence => "it answered neither requests nor a probe",
            Cause::Errors => "most of its answers were errors and the others' were not",
            Cause::Check => by_check,
            Cause::SoftLimit => "it is about to run out of a resource",
            Cause::Agent => "its agent says so",
        };
        let ago = spell(now.since(ejection.since).as_secs_f64());
        notes.push(format!("ejected {ago} ago because {why}"));
        notes.push(back);
    } else if trouble.in_a_row > 0 {
        notes.push(match trouble.in_a_row {
            1 => "its last request failed".into(),
            failed => format!("its last {failed} requests failed"),
        });
    }
    if let (Some(error), Some(ago)) = (&trouble.error, trouble.error_seconds_ago)
        && (!notes.is_empty() || ago < RECENT_SECONDS)
    {
        let all = trouble.errors.iter();
        let all: Vec<_> = all.map(|(what, count)| format!("{what} {count}")).collect();
        notes.push(format!(
            "last error {error} {} ago (so far {})",
            spell(ago),
            all.join(", ")
        ));
    }
    if trouble.ejections > 1 && !notes.is_empty() {
        notes.push(format!("ejected {} times so far", trouble.ejections));
    }
    notes
}

/// What brings it back.
fn back(ejection: Ejection, node: &Node, in_responses: bool, now: Timestamp) -> String {
    let left = ejection.until.since(now).as_secs_f64();
    match ejection.cause {
        Cause::Errors if left > 0.0 => {
            format!("it returns in {}, if it answers a probe then", spell(left))
        }
        Cause::Failures | Cause::Silence | Cause::Errors => {
            "it returns when it answers a probe; one is sent each two seconds or more often".into()
        }
        Cause::Check if node.failing_checks.is_empty() => {
            "it returns when its load record says that all pass".into()
        }
        Cause::Check => "it returns when it passes its check".into(),
        Cause::SoftLimit if in_responses => {
            "it returns after a minute without reports: they come with its responses alone".into()
        }
        Cause::SoftLimit => {
            "it returns when less is used for a while, as its load record shows".into()
        }
        Cause::Agent => {
            "it returns when its agent says otherwise: what that said last stands".into()
        }
    }
}

pub(super) fn spell(seconds: f64) -> String {
    match seconds {
        ..10.0 => format!("{seconds:.1} s"),
        ..120.0 => format!("{seconds:.0} s"),
        ..7200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.0} h", seconds / 3600.0),
    }
}
