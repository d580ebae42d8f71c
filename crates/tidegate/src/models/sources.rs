//! What `GET /api/status` says of sources of nodes.

use serde::{Deserialize, Serialize};

/// A source of nodes: a `[[discover]]`, or the host name of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SourceStatus {
    /// Its name; that of a host name is `node NAME`.
    pub(crate) name: String,
    /// What is asked: `file nodes.json`, `dns web.internal, port 80`.
    pub(crate) what: String,
    /// The site of its nodes.
    pub(crate) site: String,
    /// Nodes in its last answer.
    pub(crate) nodes: u64,
    /// How many of these cannot be used.
    #[serde(default)]
    pub(crate) refused: u64,
    /// Questions that it has answered.
    pub(crate) answers: u64,
    /// Questions that it has not answered.
    pub(crate) failures: u64,
    /// How long ago the last answer was; null if there was none.
    pub(crate) answered_seconds_ago: Option<f64>,
    /// Why the last question had no answer, or why its nodes were not taken over; null if all is well.
    pub(crate) error: Option<String>,
    /// What has changed, the last first.
    pub(crate) events: Vec<SourceEventStatus>,
}

/// A node that cannot come in, since another one has its name, or it is our own listener.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LeftOutStatus {
    /// `node n1 of web`: its name and its source.
    pub(crate) what: String,
    /// Why it is left out.
    pub(crate) why: String,
}

/// Something that has happened at a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SourceEventStatus {
    /// How long ago.
    pub(crate) seconds_ago: f64,
    /// What, in a sentence.
    pub(crate) text: String,
}
