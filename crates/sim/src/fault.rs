//! What operators do and what breaks during a run. Plain data.

use std::time::Duration;

use tidegate_core::topology::{AdminState, NodeId};

/// The operator changes a node's state at every front-end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Order {
    /// When, since the start.
    pub at: Duration,
    /// Which node.
    pub node: NodeId,
    /// Its new state.
    pub state: AdminState,
}

/// Something is wrong with a node for a while. Faults of one node may not overlap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// Which node.
    pub node: NodeId,
    /// What.
    pub kind: FaultKind,
    /// Since when.
    pub from: Duration,
    /// Until when.
    pub to: Duration,
}

/// What can be wrong with a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// It crashed: its requests are lost, connections are refused, reads go unanswered. It
    /// comes back empty, as another generation.
    Dead,
    /// It stands still: it answers nothing, neither requests nor reads, and afterwards goes on
    /// with its old work. Requests that reach it meanwhile wait. Antagonists stand still too.
    Paused,
    /// It answers each new request at once with a server error, and looks idle: a sinkhole.
    Failing,
    /// It is dead for the first part of every period.
    Flapping {
        /// One outage and one stretch of health together.
        period: Duration,
        /// The outage's share of it, 0 to 1.
        down: f64,
    },
}
