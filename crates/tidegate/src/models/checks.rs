//! What checks make of nodes, in the JSON API.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a check says of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CheckStatus {
    /// What sets it apart from others of its site.
    pub(crate) label: String,
    /// Whether the node is out by it.
    pub(crate) failing: bool,
    /// How often the node passed it.
    pub(crate) passed: u64,
    /// How often it failed, by what was wrong: connect, timeout, broken, malformed, status or body.
    pub(crate) failed: BTreeMap<String, u64>,
    /// What was wrong the last time; null if it passed, or if there was none.
    pub(crate) error: Option<String>,
    /// How long ago that ended.
    pub(crate) seconds_ago: Option<f64>,
    /// How long that took.
    pub(crate) took_seconds: Option<f64>,
    /// How many in a row ended like it.
    pub(crate) in_a_row: u64,
}

/// What the service checks of a node's own agent say: their places in the agent's file, from 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServicesStatus {
    /// Those that there are.
    pub(crate) checked: Vec<u8>,
    /// Those of them that fail.
    pub(crate) failing: Vec<u8>,
    /// Whether the node gets no requests for that.
    pub(crate) out: bool,
}
