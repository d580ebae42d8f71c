//! What nodes' agents say, in the JSON API.

use serde::{Deserialize, Serialize};

/// What a node's agent says of it, by HAProxy's agent check.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct AgentStatus {
    /// Its word for the node's state: ready, drain or maint.
    pub(crate) state: String,
    /// Its word for the node's health: up, down, fail or stopped.
    pub(crate) health: String,
    /// Why it is not up, in the agent's words; null if it is, or if the agent says nothing of it.
    pub(crate) reason: Option<String>,
    /// What the node weighs by it; null if the agent says nothing of that.
    pub(crate) weight: Option<f64>,
    /// The same in the agent's word: `75%`, or `weight:20`.
    pub(crate) weight_word: Option<String>,
    /// Most requests of this front-end in flight there; null if the agent says nothing of that.
    pub(crate) maxconn: Option<u32>,
    /// How long ago it answered last; null if it never has.
    pub(crate) seconds_ago: Option<f64>,
    /// Words that were not understood.
    pub(crate) ignored_words: u64,
    /// The last of them.
    pub(crate) ignored_word: Option<String>,
}
