//! What soft limits make of a node, and what it has of each resource: fields for programs, sentences for people,
//! metrics.

use tidegate_core::load::Rung;
use tidegate_core::policy::PolicyKind;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{Cause, NodeId, NodeResource, Site, Topology};

use super::plane::{Look, Plane};
use crate::exposition::{Kind, Text};
use crate::models::{ResourceUse, SoftLimitStatus};

/// How a node came over one of its limits, if it is over one.
pub(super) fn status(topology: &Topology, id: NodeId) -> Option<SoftLimitStatus> {
    let node = topology.node(id);
    let crossing = node.soft_limit?;
    Some(SoftLimitStatus {
        resource: crossing.resource.label().into(),
        used: crossing.used.into(),
        limit: decimal(crossing.limit),
        full_in_seconds: crossing.full_in.map(|left| left.as_secs_f64()),
        out: node.ejection.map(|it| it.cause) == Some(Cause::SoftLimit),
    })
}

/// What a node is over, and whether that keeps requests from it.
pub(super) fn note(plane: &Plane, topology: &Topology, id: NodeId) -> Option<String> {
    let node = topology.node(id);
    let crossing = node.soft_limit?;
    let now = crossing.resource.used(&plane.shared.table.last(id));
    let now = now.map_or_else(
        || "how much it is now is not known".into(),
        |used| format!("now it is {:.0} %", used * 100.0),
    );
    let out = match node.ejection.map(|it| it.cause) {
        Some(Cause::SoftLimit) => "",
        Some(Cause::Failures | Cause::Silence | Cause::Errors | Cause::Check | Cause::Agent) => {
            "; it is out for more than that"
        }
        None => "; it is used all the same, as too many nodes are out",
    };
    Some(format!(
        "when it crossed its soft limit: {crossing}; {now}{out}"
    ))
}

/// What a node has of each resource.
pub(super) fn resources(
    plane: &Plane,
    look: &Look,
    topology: &Topology,
    id: NodeId,
) -> Vec<ResourceUse> {
    let site = topology.site(topology.node(id).site);
    let load = plane.shared.table.last(id);
    let is_known = load.observed_at != Timestamp::ZERO;
    let age = is_known.then(|| look.now.since(load.observed_at).as_secs_f64());
    let rung = if load.is_fresh(look.now) {
        load.rung
    } else {
        Rung::None
    };
    let resource = |(resource, name): (NodeResource, &str)| ResourceUse {
        resource: name.into(),
        used: resource.used(&load).map(f64::from),
        source: rung.label().into(),
        age_seconds: age,
        limit: site.health.soft_limits.of(resource).map(decimal),
        weight: weight(site, resource),
    };
    NodeResource::ALL.into_iter().map(resource).collect()
}

/// A configured share as it was written.
fn decimal(share: f32) -> f64 {
    (f64::from(share) * 1e6).round() / 1e6
}

/// What a resource weighs in the site's policy.
fn weight(site: &Site, resource: NodeResource) -> Option<f64> {
    let [cpu, memory, files] = site.policy.parameters.weights;
    let weight = match resource {
        NodeResource::Files => files,
        NodeResource::Memory => memory,
        NodeResource::Cpu => cpu,
    };
    (site.policy.kind == PolicyKind::Slbl).then(|| decimal(weight))
}

/// The same in a sentence, of what is known.
pub(super) fn reason(
    plane: &Plane,
    look: &Look,
    topology: &Topology,
    id: NodeId,
) -> Option<String> {
    let known = resources(plane, look, topology, id);
    let all = NodeResource::ALL.into_iter().zip(known);
    let said = all.filter_map(|((resource, _), known)| {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let mut more = Vec::new();
        more.extend(known.limit.map(|it| format!("soft limit {}", percent(it))));
        more.extend(known.weight.map(|it| format!("weight {it:.2}")));
        let more = match more.is_empty() {
            true => String::new(),
            false => format!(" ({})", more.join(", ")),
        };
        Some(format!(
            "{} of its {}{more}",
            percent(known.used?),
            resource.what()
        ))
    });
    let said: Vec<_> = said.collect();
    (!said.is_empty()).then(|| format!("in use: {}", said.join(", ")))
}

/// Of nodes whose sites have soft limits.
pub(super) fn metrics(topology: &Topology, text: &mut Text) {
    let help = "The soft limit of a resource, as a used share.";
    let mut family = text.family("tidegate_node_soft_limit_ratio", Kind::Gauge, help);
    for (_, node) in topology.members() {
        let site = topology.site(node.site);
        for (resource, name) in NodeResource::ALL {
            if let Some(limit) = site.health.soft_limits.of(resource) {
                let labels = [
                    ("site", &*site.name),
                    ("node", &*node.name),
                    ("resource", name),
                ];
                family.sample(&labels, decimal(limit));
            }
        }
    }
    let help = "Whether the node is over a soft limit, be it out or used all the same.";
    let mut family = text.family("tidegate_node_soft_limit_crossed", Kind::Gauge, help);
    for (_, node) in topology.members() {
        let site = topology.site(node.site);
        let labels = [("site", &*site.name), ("node", &*node.name)];
        let over = if node.soft_limit.is_some() { 1.0 } else { 0.0 };
        family.sample(&labels, over);
    }
}
