//! `GET /api/overview`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

use super::{GrownKind, Headline, ReaderStatus};

/// What the page shows each second: small, whatever the cluster. Numbers have three digits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Overview {
    /// Tidegate's version.
    pub(crate) version: String,
    /// Since the start.
    pub(crate) uptime_seconds: f64,
    /// The time by this front-end's clock, seconds since 1970.
    pub(crate) at_seconds: f64,
    /// As in the status.
    pub(crate) ready: bool,
    /// As in the status.
    pub(crate) draining: bool,
    /// What is wrong, worst first.
    pub(crate) headline: Headline,
    /// Where clients connect.
    pub(crate) listeners: Vec<String>,
    /// Front-ends known to serve these nodes, this one included.
    pub(crate) front_ends: u32,
    /// Grows with every change of a node's or site's state.
    pub(crate) topology_version: u64,
    /// The number of the newest event; 0 before the first.
    pub(crate) newest_event: u64,
    /// The last seconds.
    pub(crate) recent: OverviewRecent,
    /// Age of the load record at decisions of the last seconds, p99.
    pub(crate) load_age_p99_seconds: Option<f64>,
    /// Requests now.
    pub(crate) in_flight: u64,
    /// Client connections now.
    pub(crate) connections: u64,
    /// Since the start, as in the status.
    pub(crate) completed: u64,
    /// Likewise.
    pub(crate) failed: u64,
    /// Likewise, for whatever reason.
    pub(crate) rejected: u64,
    /// Likewise.
    pub(crate) cancelled: u64,
    /// The thread that reads loads.
    pub(crate) reader: ReaderStatus,
    /// The sites.
    pub(crate) sites: Vec<OverviewSite>,
}

/// The last seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OverviewRecent {
    pub(crate) requests_per_second: f64,
    pub(crate) errors_per_second: f64,
    pub(crate) p50_seconds: Option<f64>,
    pub(crate) p99_seconds: Option<f64>,
}

/// A site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OverviewSite {
    pub(crate) name: String,
    pub(crate) policy: String,
    pub(crate) hosts: Vec<String>,
    pub(crate) paths: Vec<String>,
    /// Nodes that requests may go to now.
    pub(crate) candidates: u32,
    /// No node is up, so ejected ones are used.
    pub(crate) fail_open: bool,
    #[serde(flatten)]
    pub(crate) recent: OverviewRecent,
    /// Requests that wait for room.
    pub(crate) queued: u64,
    /// How long they waited.
    pub(crate) queue_wait_p99_seconds: Option<f64>,
    /// Rejected requests per second by reason.
    pub(crate) refused: BTreeMap<String, f64>,
    /// Failed ones, and answers with a server error.
    pub(crate) errors: BTreeMap<String, f64>,
    /// Kinds that go last where room is short.
    pub(crate) grown: Vec<GrownKind>,
    /// The nodes.
    pub(crate) nodes: Vec<OverviewNode>,
}

/// A node: a list, since names of fields would be most of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OverviewNode(
    /// Its name.
    pub(crate) String,
    /// What it does in one word or two; `up` if it may have requests.
    pub(crate) String,
    /// How its load is read.
    pub(crate) String,
    /// Tasks that run or wait; this and the next two are null while the load is not known.
    pub(crate) Option<Short>,
    /// CPUs that it may use.
    pub(crate) Option<Short>,
    /// Used share of them.
    pub(crate) Option<Short>,
    /// Time since its record was made, seconds.
    pub(crate) Option<Short>,
    /// Own requests there.
    pub(crate) u64,
    /// Its part in the site's answers.
    pub(crate) Option<Short>,
    /// Answers per second.
    pub(crate) Short,
    /// Median time to the response head, seconds.
    pub(crate) Option<Short>,
    /// The 99th percentile.
    pub(crate) Option<Short>,
    /// Errors per second.
    pub(crate) Short,
    /// Its weight.
    pub(crate) Short,
    /// What speaks against it.
    pub(crate) Option<String>,
);

/// A number that is written without `.0`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(crate) struct Short(pub(crate) f64);

impl Serialize for Short {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_whole = self.0.fract() == 0.0 && (0.0..1e15).contains(&self.0);
        match is_whole {
            true => serializer.serialize_u64(self.0 as u64),
            false => serializer.serialize_f64(self.0),
        }
    }
}
