//! What checks and the slow start make of a node: fields for programs, sentences for people, metrics.

use tidegate_core::topology::{CheckResult, Node, NodeId, Topology};
use tidegate_core::units::format_duration;

use super::plane::{Look, Plane};
use super::trouble::spell;
use crate::driver::wrong;
use crate::exposition::{Kind, Text};
use crate::models::CheckStatus;

/// What a node may have of its fair share, if it starts slowly.
pub(super) fn slow_start(plane: &Plane, topology: &Topology, id: NodeId) -> Option<f64> {
    let ramping = &topology.site(topology.node(id).site).ramping;
    let ramps = ramping.binary_search(&id).is_ok();
    ramps.then(|| f64::from(plane.shared.table.ramp(id).factor))
}

/// What its site's checks say of a node.
pub(super) fn status(
    plane: &Plane,
    look: &Look,
    topology: &Topology,
    id: NodeId,
) -> Option<CheckStatus> {
    let node = topology.node(id);
    topology.site(node.site).health.check.as_ref()?;
    let checks = plane.checks.of(id, node.generation).unwrap_or_default();
    let last = checks.last;
    let error = last.and_then(|last| match last.result {
        CheckResult::Passed => None,
        CheckResult::Failed(failure) => Some(wrong(failure)),
    });
    let failed = checks.failed.into_iter();
    Some(CheckStatus {
        failing: node.fails_check,
        passed: checks.passed,
        failed: failed.map(|(what, count)| (what.into(), count)).collect(),
        error,
        seconds_ago: last.map(|last| look.now.since(last.at).as_secs_f64()),
        took_seconds: last.map(|last| last.took.as_secs_f64()),
        in_a_row: last.map_or(0, |last| last.in_a_row),
    })
}

/// What is to be said of both.
pub(super) fn notes(
    plane: &Plane,
    look: &Look,
    topology: &Topology,
    id: NodeId,
) -> impl Iterator<Item = String> {
    let result = result(plane, look, topology, id);
    result.into_iter().chain(ramp(plane, topology, id))
}

/// What the last check has shown, if something was wrong or the node waits for a first one.
fn result(plane: &Plane, look: &Look, topology: &Topology, id: NodeId) -> Option<String> {
    let node = topology.node(id);
    let check = topology.site(node.site).health.check.as_ref()?;
    let known = plane.checks.of(id, node.generation).unwrap_or_default();
    let Some(last) = known.last else {
        return node
            .fails_check
            .then(|| "it has no requests before it has passed a check".into());
    };
    let ago = spell(look.now.since(last.at).as_secs_f64());
    let row = last.in_a_row;
    match last.result {
        CheckResult::Failed(failure) => {
            let what = wrong(failure);
            Some(format!(
                "its last check failed {ago} ago: {what} ({row} in a row, {} take it out)",
                check.fall
            ))
        }
        CheckResult::Passed if node.fails_check => Some(format!(
            "its last check passed {ago} ago ({row} in a row, {} bring it back)",
            check.rise
        )),
        CheckResult::Passed => None,
    }
}

/// What it may have while it starts slowly.
fn ramp(plane: &Plane, topology: &Topology, id: NodeId) -> Option<String> {
    let site = topology.site(topology.node(id).site);
    site.ramping.binary_search(&id).ok()?;
    let percent = plane.shared.table.ramp(id).factor * 100.0;
    let length = site.health.slow_start.max(site.health.warm_up);
    let length = format_duration(length);
    Some(format!(
        "it starts slowly: up to {percent:.0} % of its fair share now, all of it after {length} or sooner"
    ))
}

/// Of nodes that are checked, and of those that start slowly.
pub(super) fn metrics(plane: &Plane, topology: &Topology, text: &mut Text) {
    let members = || {
        topology
            .members()
            .map(|(id, node)| Labelled::of(topology, id, node))
    };
    let help = "The part of its fair share that a node may have that starts slowly.";
    let mut family = text.family("tidegate_node_slow_start_ratio", Kind::Gauge, help);
    for node in members() {
        if let Some(factor) = slow_start(plane, topology, node.id) {
            family.sample(&node.labels, factor);
        }
    }
    let checked = |it: &Labelled<'_>| topology.site(it.node.site).health.check.is_some();
    let help = "Whether the node is out by its checks.";
    let mut family = text.family("tidegate_node_check_failing", Kind::Gauge, help);
    for node in members().filter(checked) {
        let failing = if node.node.fails_check { 1.0 } else { 0.0 };
        family.sample(&node.labels, failing);
    }
    let all: Vec<_> = (members())
        .filter_map(|it| Some((it.labels, plane.checks.of(it.id, it.node.generation)?)))
        .collect();
    let help = "Checks of the node by result: passed, or what was wrong.";
    let mut family = text.family("tidegate_node_checks", Kind::Counter, help);
    for ([site, node], checks) in &all {
        family.count(&[*site, *node, ("result", "passed")], checks.passed);
        for (failure, count) in &checks.failed {
            family.count(&[*site, *node, ("result", failure)], *count);
        }
    }
    let help = "How long the node's checks took, added up.";
    let mut family = text.family("tidegate_node_check_seconds", Kind::Counter, help);
    for (labels, checks) in &all {
        family.sample(labels, checks.seconds);
    }
}

/// A node and the labels of its metrics.
struct Labelled<'a> {
    id: NodeId,
    node: &'a Node,
    labels: [(&'a str, &'a str); 2],
}

impl<'a> Labelled<'a> {
    fn of(topology: &'a Topology, id: NodeId, node: &'a Node) -> Self {
        let site = &topology.site(node.site).name;
        let labels = [("site", site.as_str()), ("node", node.name.as_str())];
        Self { id, node, labels }
    }
}
