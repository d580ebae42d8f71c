//! What soft limits make of a node: sentences for people.

use tidegate_core::topology::{Cause, NodeId, Topology};

use super::plane::Plane;
use crate::driver::crossed;

/// What a node is over, and whether that keeps requests from it.
pub(super) fn note(plane: &Plane, topology: &Topology, id: NodeId) -> Option<String> {
    let node = topology.node(id);
    let crossing = node.soft_limit?;
    let now = crossing.resource.used(&plane.shared.table.last(id));
    let now = now.map_or_else(
        || "now it is not known".into(),
        |used| format!("now it is {:.0} %", used * 100.0),
    );
    let out = match node.ejection.map(|it| it.cause) {
        Some(Cause::SoftLimit) => "",
        Some(Cause::Failures | Cause::Silence | Cause::Errors | Cause::Check) => {
            "; it is out for more than that"
        }
        None => "; it is used all the same, as too many nodes are out",
    };
    Some(format!(
        "when it crossed its soft limit, {}; {now}{out}",
        crossed(crossing)
    ))
}
