//! What checks and the slow start make of a node: fields for programs, sentences for people, metrics.

use tidegate_core::topology::{
    Cause, CheckConfig, CheckId, CheckResult, CheckSet, Node, NodeId, Topology,
};
use tidegate_core::units::format_duration;

use super::plane::{Look, Plane};
use super::trouble::spell;
use crate::check::CheckCounts;
use crate::driver::{failing_services, named_check, wrong};
use crate::exposition::{Kind, Text};
use crate::models::{CheckStatus, ServicesStatus};

/// What a node may have of its fair share, if it starts slowly.
pub(super) fn slow_start(plane: &Plane, topology: &Topology, id: NodeId) -> Option<f64> {
    let ramping = &topology.site(topology.node(id).site).ramping;
    let ramps = ramping.binary_search(&id).is_ok();
    ramps.then(|| f64::from(plane.shared.table.ramp(id).factor))
}

/// One of a node's checks, and what became of it so far.
struct NodeCheck<'a> {
    config: &'a CheckConfig,
    /// Whether the node is out by it.
    failing: bool,
    counts: CheckCounts,
}

/// A node's checks, in their order.
fn each<'a>(plane: &Plane, topology: &'a Topology, id: NodeId) -> Vec<NodeCheck<'a>> {
    let node = topology.node(id);
    let configs = topology.site(node.site).health.checks.iter();
    let each = (0..).map(CheckId).zip(configs).map(|(check, config)| {
        let counts = plane.checks.of(id, node.generation, &config.label);
        NodeCheck {
            config,
            failing: node.failing_checks.has(check),
            counts: counts.unwrap_or_default(),
        }
    });
    each.collect()
}

/// What its site's checks say of a node.
pub(super) fn status(
    plane: &Plane,
    look: &Look,
    topology: &Topology,
    id: NodeId,
) -> Vec<CheckStatus> {
    let status = |check: NodeCheck<'_>| {
        let (last, counts) = (check.counts.last, check.counts);
        let error = last.and_then(|last| match last.result {
            CheckResult::Passed => None,
            CheckResult::Failed(failure) => Some(wrong(failure)),
        });
        let failed = counts.failed.into_iter();
        CheckStatus {
            label: check.config.label.clone(),
            failing: check.failing,
            passed: counts.passed,
            failed: failed.map(|(what, count)| (what.into(), count)).collect(),
            error,
            seconds_ago: last.map(|last| look.now.since(last.at).as_secs_f64()),
            took_seconds: last.map(|last| last.took.as_secs_f64()),
            in_a_row: last.map_or(0, |last| last.in_a_row),
        }
    };
    let each = each(plane, topology, id).into_iter();
    each.map(status).collect()
}

/// What the service checks of a node's own agent say, by its last record.
pub(super) fn services(plane: &Plane, topology: &Topology, id: NodeId) -> Option<ServicesStatus> {
    let node = topology.node(id);
    let services = plane.shared.table.last(id).services?;
    let places = |set: CheckSet| set.iter().map(|it| it.0 + 1).collect();
    Some(ServicesStatus {
        checked: places(services.checked),
        failing: places(services.failing),
        out: !node.failing_services.is_empty(),
    })
}

/// Which check has a node out: by its label, where there are several.
pub(super) fn failing(topology: &Topology, id: NodeId) -> String {
    let node = topology.node(id);
    if node.failing_checks.is_empty() && !node.failing_services.is_empty() {
        return failing_services(node.failing_services);
    }
    let configs = &topology.site(node.site).health.checks;
    let places = (0..).map(CheckId).zip(configs);
    let failing = places.filter(|(check, _)| node.failing_checks.has(*check));
    let labels: Vec<_> = failing.map(|(_, it)| format!("`{}`", it.label)).collect();
    match (configs.len(), labels.as_slice()) {
        (0 | 1, _) | (_, []) => "its check fails".into(),
        (_, [label]) => format!("its check {label} fails"),
        (_, labels) => format!("its checks {} fail", labels.join(", ")),
    }
}

/// What is to be said of both.
pub(super) fn notes(
    plane: &Plane,
    look: &Look,
    topology: &Topology,
    id: NodeId,
) -> impl Iterator<Item = String> {
    let results = results(plane, look, topology, id);
    results.into_iter().chain(ramp(plane, topology, id))
}

/// What the last of each check has shown, if something was wrong or the node waits for a first one.
fn results(plane: &Plane, look: &Look, topology: &Topology, id: NodeId) -> Vec<String> {
    let site = topology.node(id).site;
    let configs = &topology.site(site).health.checks;
    let each = each(plane, topology, id);
    let failing: Vec<_> = each.iter().filter(|it| it.failing).collect();
    let first = !failing.is_empty() && failing.iter().all(|it| it.counts.last.is_none());
    let first = first.then(|| "it has no requests before its checks have passed".into());
    let result = |check: &NodeCheck<'_>| {
        let (config, last) = (check.config, check.counts.last?);
        let name = named_check(config, configs);
        let ago = spell(look.now.since(last.at).as_secs_f64());
        let row = last.in_a_row;
        match last.result {
            CheckResult::Failed(failure) => {
                let what = wrong(failure);
                Some(format!(
                    "{name} failed {ago} ago: {what} ({row} in a row, {} take it out)",
                    config.fall
                ))
            }
            CheckResult::Passed if check.failing => Some(format!(
                "{name} passed {ago} ago ({row} in a row, {} bring it back)",
                config.rise
            )),
            CheckResult::Passed => None,
        }
    };
    let results = each.iter().filter_map(result);
    let services = service_note(topology.node(id));
    first.into_iter().chain(results).chain(services).collect()
}

/// Where to find which services fail. What has the node out says that they do, if they are it.
fn service_note(node: &Node) -> Option<String> {
    if node.failing_services.is_empty() {
        return None;
    }
    let is_why = node.ejection.is_some_and(|it| it.cause == Cause::Check);
    Some(match is_why && node.failing_checks.is_empty() {
        true => "the agent's log and its metrics name what it checks".into(),
        false => {
            let text = failing_services(node.failing_services);
            format!("{text}: the agent's log and its metrics name it")
        }
    })
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
    let help = "Whether the node is out by this check of its site.";
    let mut family = text.family("tidegate_node_check_failing", Kind::Gauge, help);
    let checked: Vec<_> = members()
        .map(|it| (each(plane, topology, it.id), it))
        .collect();
    let all = || {
        let nodes = checked.iter();
        nodes.flat_map(|(each, it)| each.iter().map(move |check| (it.with_check(check), check)))
    };
    for (labels, check) in all() {
        family.sample(&labels, if check.failing { 1.0 } else { 0.0 });
    }
    let made = || all().filter(|(_, check)| check.counts.last.is_some());
    let help = "How often the node was checked, by result: passed, or what was wrong.";
    let mut family = text.family("tidegate_node_checks", Kind::Counter, help);
    for ([site, node, label], check) in made() {
        let passed = check.counts.passed;
        family.count(&[site, node, label, ("result", "passed")], passed);
        for (failure, count) in &check.counts.failed {
            family.count(&[site, node, label, ("result", failure)], *count);
        }
    }
    let help = "How long the node's checks took, added up.";
    let mut family = text.family("tidegate_node_check_seconds", Kind::Counter, help);
    for (labels, check) in made() {
        family.sample(&labels, check.counts.seconds);
    }
}

/// Of nodes whose agents make service checks.
pub(super) fn services_metrics(plane: &Plane, topology: &Topology, text: &mut Text) {
    let members = topology.members();
    let known = members.filter_map(|(id, node)| {
        let services = plane.shared.table.last(id).services?;
        Some((Labelled::of(topology, id, node).labels, services))
    });
    let help = "Whether this service check of the node's own agent fails, by its last load record.";
    let mut family = text.family("tidegate_node_service_failing", Kind::Gauge, help);
    for ([site, node], services) in known {
        for check in services.checked.iter() {
            let place = (check.index() + 1).to_string();
            let failing = services.failing.has(check);
            let failing = if failing { 1.0 } else { 0.0 };
            family.sample(&[site, node, ("check", &place)], failing);
        }
    }
}

/// A node and the labels of its metrics.
struct Labelled<'a> {
    id: NodeId,
    labels: [(&'a str, &'a str); 2],
}

impl<'a> Labelled<'a> {
    fn of(topology: &'a Topology, id: NodeId, node: &'a Node) -> Self {
        let site = &topology.site(node.site).name;
        let labels = [("site", site.as_str()), ("node", node.name.as_str())];
        Self { id, labels }
    }

    /// The same of one of its checks.
    fn with_check(&self, check: &NodeCheck<'a>) -> [(&'a str, &'a str); 3] {
        let [site, node] = self.labels;
        [site, node, ("check", &check.config.label)]
    }
}
