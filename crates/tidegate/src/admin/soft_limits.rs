//! What soft limits make of a node: fields for programs, sentences for people, metrics.

use tidegate_core::topology::{Cause, NodeId, NodeResource, Topology};

use super::plane::Plane;
use crate::exposition::{Kind, Text};
use crate::models::SoftLimitStatus;

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

/// A number of single precision as it was written.
pub(super) fn decimal(share: f32) -> f64 {
    (f64::from(share) * 1e6).round() / 1e6
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
