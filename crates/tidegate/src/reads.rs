//! How loads are read, as the driver and the admin interface see it.

use std::time::Duration;

use tidegate_core::topology::NodeId;

use crate::admin::models::ReadStatus;

/// The reader, if there is anything to read.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    /// Whether each node is read.
    pub(crate) read: Vec<bool>,
    /// Time between two reads of a node.
    pub(crate) interval: Duration,
}

impl Reads {
    /// Most front-ends that any agent says read it; zero while none says so.
    pub(crate) fn readers(&self) -> u32 {
        0
    }

    /// Why a node's load is not known; nothing for a node that nobody reads.
    pub(crate) fn trouble(&self, node: NodeId) -> Option<String> {
        let status = self.status(node)?;
        Some(status.last_error.unwrap_or("no answer yet".into()))
    }

    /// How the reads of a node go; nothing for a node that nobody reads.
    pub(crate) fn status(&self, _node: NodeId) -> Option<ReadStatus> {
        None
    }

    /// Nodes that are read.
    pub(crate) fn nodes(&self) -> u32 {
        self.read.iter().filter(|read| **read).count() as u32
    }

    /// Whether the reader runs at real-time priority, or why not; nothing without a reader.
    pub(crate) fn realtime(&self) -> Option<Result<(), String>> {
        None
    }
}
