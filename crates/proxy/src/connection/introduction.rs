//! What a header of the PROXY protocol says of a client's connection, where connections to nodes begin with one: both of its ends.
//!
//! Such a connection to a node is one client connection's alone: what its header has said cannot be unsaid. The connection's number
//! tells its own from those of others, and it knows where they are, to have them closed with it.

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};

use tidegate_core::topology::NodeId;

use crate::wire::proxy_header::Ends;

/// Which client connection it is: two that are open have never the same one in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IntroductionId(NonZeroU32);

/// See the module.
#[derive(Debug)]
pub(crate) struct Introduction {
    pub(crate) id: IntroductionId,
    pub(crate) ends: Ends,
    /// Nodes that connections were made to.
    nodes: RefCell<Vec<NodeId>>,
}

impl Introduction {
    pub(crate) fn new(ends: Ends) -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        Self {
            id: IntroductionId(NonZeroU32::new(number).unwrap_or(NonZeroU32::MAX)),
            ends,
            nodes: RefCell::default(),
        }
    }

    /// A connection to this node is made.
    pub(crate) fn note(&self, node: NodeId) {
        let mut nodes = self.nodes.borrow_mut();
        if !nodes.contains(&node) {
            nodes.push(node);
        }
    }

    /// Nodes that connections were made to, each once.
    pub(crate) fn take_nodes(&self) -> Vec<NodeId> {
        self.nodes.take()
    }
}
