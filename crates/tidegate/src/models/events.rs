//! `GET /api/events`.

use serde::{Deserialize, Serialize};

/// What happened, the oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Events {
    /// When the process began that counts these numbers, seconds since 1970.
    pub(crate) since: u64,
    /// The number of the newest event there is; 0 before the first.
    pub(crate) newest: u64,
    /// That of the oldest that is kept.
    pub(crate) oldest: u64,
    /// Those that were asked for.
    pub(crate) events: Vec<EventModel>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct EventModel {
    /// Grows by one with each.
    pub(crate) number: u64,
    /// When, seconds since 1970; of several times the last.
    pub(crate) at_seconds: f64,
    /// How often the same happened, of which this is the last time.
    pub(crate) times: u32,
    /// When it was so for the first time.
    pub(crate) first_at_seconds: f64,
    /// What kind it is: its name in the log.
    pub(crate) kind: String,
    /// How bad it is.
    pub(crate) level: EventLevel,
    /// The site that it concerns.
    pub(crate) site: Option<String>,
    /// The node that it concerns.
    pub(crate) node: Option<String>,
    /// The operator that wanted it: the name that its program gave, and its address.
    pub(crate) by: Option<String>,
    /// A sentence.
    pub(crate) text: String,
}

/// How bad an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EventLevel {
    /// Something is well again.
    Good,
    /// Something happened.
    Note,
    /// Something does not work as well as it should.
    Warn,
    /// Something does not work.
    Bad,
}
