//! `GET /api/history`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What happened in equal steps, the oldest first. A step that nothing is known of is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct HistoryModel {
    /// Length of a step.
    pub(crate) step_seconds: u64,
    /// When the last step ended, seconds since 1970.
    pub(crate) end_seconds: u64,
    /// Steps of each list.
    pub(crate) steps: u64,
    /// Sites by name.
    pub(crate) sites: Vec<SiteHistory>,
    /// Nodes by name.
    pub(crate) nodes: Vec<NodeHistory>,
}

/// A site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SiteHistory {
    /// Its name.
    pub(crate) name: String,
    /// Requests that ended.
    pub(crate) requests_per_second: Vec<Option<f64>>,
    /// Those of them that were rejected.
    pub(crate) refused_per_second: Vec<Option<f64>>,
    /// Requests that failed, and answers of its nodes with a server error.
    pub(crate) errors_per_second: Vec<Option<f64>>,
    /// The median of the answers' times; of ten seconds the mean of its seconds'.
    pub(crate) p50_seconds: Vec<Option<f64>>,
    /// Of a hundred, one took longer; of ten seconds the largest of its seconds'.
    pub(crate) p99_seconds: Vec<Option<f64>>,
    /// Requests that waited for room, at the end of each second; of ten seconds the most.
    pub(crate) queued: Vec<Option<u32>>,
    /// Rejections and errors of each step by reason, the four most frequent of it.
    pub(crate) reasons: BTreeMap<String, Vec<Option<u32>>>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeHistory {
    /// Its name.
    pub(crate) name: String,
    /// The site that it serves.
    pub(crate) site: String,
    /// A letter for each step: `0` to `9` for each tenth of its CPUs that was used, `+` where more than one and a half
    /// tasks shared a CPU, `.` where its load was not known, `x` while it was ejected, `d` drained, `m` moving, a blank
    /// where nothing is known.
    pub(crate) load: String,
}
