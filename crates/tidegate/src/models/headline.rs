//! The state of a front-end in a sentence.

use serde::{Deserialize, Serialize};

/// What is wrong, worst first; a sentence on what goes on where nothing is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Headline {
    /// That of the worst.
    pub(crate) level: Level,
    /// The worst, with its numbers.
    pub(crate) text: String,
    /// What else is wrong.
    pub(crate) others: Vec<Problem>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Problem {
    /// How bad it is.
    pub(crate) level: Level,
    /// What it is, with its numbers.
    pub(crate) text: String,
}

/// How bad something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    /// Nothing is wrong.
    #[default]
    Good,
    /// Clients notice nothing yet.
    Warn,
    /// Clients notice it.
    Bad,
}
