//! The numbers that are known of a node's load, each with where it comes from, its age, its weight and its soft limit: for `why`.

use tidegate_core::load::Rung;
use tidegate_core::policy::PolicyKind;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{NodeId, NodeResource, Site, Topology};

use super::plane::{Look, Plane};
use super::soft_limits::decimal;
use crate::models::NodeMetric;

/// Every number of a node, known or not.
pub(super) fn all(plane: &Plane, look: &Look, topology: &Topology, id: NodeId) -> Vec<NodeMetric> {
    let site = topology.site(topology.node(id).site);
    let load = plane.shared.table.last(id);
    let measured = plane.shared.table.measured(id, &load);
    let used = |resource: NodeResource| resource.used(&load);
    let numbers = [
        ("cpu", used(NodeResource::Cpu), measured.cpu),
        ("memory", used(NodeResource::Memory), measured.memory),
        ("files", used(NodeResource::Files), measured.files),
        ("capacity", Some(load.capacity), measured.capacity),
        ("runnable", Some(load.runnable), measured.runnable),
        ("in_flight", Some(load.in_flight), measured.in_flight),
    ];
    let is_believed = load.is_fresh(look.now);
    let metric = |(name, value, at): (&str, Option<f32>, Option<Timestamp>)| {
        let value = value.filter(|value| value.is_finite());
        let at = at.filter(|at| value.is_some() && *at != Timestamp::ZERO);
        let resource = NodeResource::ALL.into_iter().find(|(_, it)| *it == name);
        let resource = resource.map(|(resource, _)| resource);
        NodeMetric {
            name: name.into(),
            value: value.map(decimal),
            source: at.map_or(Rung::None, |_| load.rung).label().into(),
            age_seconds: at.map(|at| look.now.since(at).as_secs_f64()),
            believed: at.is_some() && is_believed,
            weight: resource.and_then(|it| weight(site, it)),
            limit: resource.and_then(|it| site.health.soft_limits.of(it).map(decimal)),
        }
    };
    numbers.into_iter().map(metric).collect()
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
