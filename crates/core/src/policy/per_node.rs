//! A policy's memory of each node.

use crate::ids::NodeId;

/// One value per node, made when it is first asked for; room for a whole topology is made by
/// [`PerNode::reserve`].
#[derive(Debug)]
pub(super) struct PerNode<T>(Vec<T>);

impl<T: Default> PerNode<T> {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    /// Makes room for nodes `0..nodes`.
    pub(super) fn reserve(&mut self, nodes: usize) {
        if self.0.len() < nodes {
            self.0.resize_with(nodes, T::default);
        }
    }

    /// The node's value is as at the beginning.
    pub(super) fn forget(&mut self, node: NodeId) {
        if let Some(value) = self.0.get_mut(node.index()) {
            *value = T::default();
        }
    }

    /// The node's value.
    pub(super) fn of(&mut self, node: NodeId) -> &mut T {
        self.reserve(node.index() + 1);
        &mut self.0[node.index()]
    }

    /// The node's value if it has one.
    pub(super) fn get(&self, node: NodeId) -> Option<&T> {
        self.0.get(node.index())
    }
}
