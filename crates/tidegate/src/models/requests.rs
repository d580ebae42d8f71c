//! `GET /api/requests`, and the decisions of `GET /api/why/NAME`.

use serde::{Deserialize, Serialize};

/// A request that has ended, and why it went where it went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Decision {
    /// By what it is known: `id` in the access log.
    #[serde(default)]
    pub(crate) id: String,
    /// The trace that it was exported with.
    #[serde(default)]
    pub(crate) trace_id: Option<String>,
    /// What became of it.
    #[serde(default)]
    pub(crate) sentence: String,
    /// The beginning of its method.
    #[serde(default)]
    pub(crate) method: String,
    /// Its site; null if none serves it.
    #[serde(default)]
    pub(crate) site: Option<String>,
    /// Since its head was read.
    pub(crate) seconds_ago: f64,
    /// The beginning of its path.
    pub(crate) path: String,
    /// The status that was sent.
    pub(crate) status: u16,
    /// The node that had it last; null if none had it.
    pub(crate) node: Option<String>,
    /// Nodes that it was tried at.
    pub(crate) tries: u32,
    /// Nodes that were compared.
    pub(crate) compared: Option<u32>,
    /// The chosen node's score; null if the policy compares nothing.
    pub(crate) score: Option<f64>,
    /// Age of the load record that the choice rests on; null without one.
    pub(crate) load_age_seconds: Option<f64>,
    /// Own requests in flight at the node, this one included.
    pub(crate) in_flight: Option<u32>,
    /// Whether it went to its session's node, and why not; null if it is of no session that sticks.
    pub(crate) sticky: Option<String>,
    /// The class whose throttle it met; null if there was none, or it is released.
    pub(crate) throttle: Option<String>,
    /// How long that held it; null if it did not.
    pub(crate) held_seconds: Option<f64>,
    /// By how much a delay experiment delayed it; null if it did not.
    pub(crate) experiment_seconds: Option<f64>,
    /// From its head to its end.
    pub(crate) duration_seconds: f64,
    /// Why it did not end with the node's own answer.
    pub(crate) reason: Option<String>,
}

/// `GET /api/requests`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LastRequests {
    /// The newest first.
    pub(crate) requests: Vec<Decision>,
}
