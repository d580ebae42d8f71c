//! Nodes that were taken out of the cluster: what they have yet may end by itself, until a deadline. Of one worker.

use std::cell::RefCell;

use tidegate_core::topology::{Membership, Node, NodeId, Topology};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Leavers(RefCell<Vec<Leaver>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Leaver {
    node: NodeId,
    generation: u32,
    /// The tick at which its requests are cut off.
    due: u64,
}

impl Leavers {
    /// Those that leave by this topology have until this tick, if they have not begun to leave before.
    pub(crate) fn follow(&self, topology: &Topology, due: u64) {
        let mut leavers = self.0.borrow_mut();
        let leaves = |node: &Node| node.membership == Membership::Leaving;
        leavers.retain(|it| {
            let node = topology.nodes.get(it.node.index());
            node.is_some_and(|node| leaves(node) && node.generation == it.generation)
        });
        for (node, at) in topology.present().filter(|(_, node)| leaves(node)) {
            if leavers.iter().all(|it| it.node != node) {
                leavers.push(Leaver {
                    node,
                    generation: at.generation,
                    due,
                });
            }
        }
    }

    /// Whether the time of any of them is over.
    pub(crate) fn any_due(&self, tick: u64) -> bool {
        self.0.borrow().iter().any(|it| it.due <= tick)
    }

    /// Whether the time of this one is over.
    pub(crate) fn is_due(&self, node: NodeId, tick: u64) -> bool {
        let leavers = self.0.borrow();
        leavers.iter().any(|it| it.node == node && it.due <= tick)
    }
}
