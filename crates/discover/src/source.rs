//! What a source answers, and why it does not.

use std::net::SocketAddr;
use std::time::Duration;

/// Longest text of an answer that is repeated in an error, letters.
const QUOTED_MAX: usize = 200;

/// A node as a source has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found {
    /// Its name; none: it is called by its address.
    pub(crate) name: Option<String>,
    /// Where it serves HTTP.
    pub(crate) address: SocketAddr,
    /// Its share relative to others; none: as much as they.
    pub(crate) weight: Option<f32>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    /// The nodes in it.
    pub(crate) nodes: Vec<Found>,
    /// Where nodes are that the source itself says will end: they get no more requests, whatever `max_drop` is.
    pub(crate) ending: Vec<SocketAddr>,
    /// When to ask again. What takes nodes out little by little needs answers, so this is some seconds at most; a source
    /// that says by itself what has changed answers what it has said before.
    pub(crate) again: Duration,
}

/// Why a source has not answered.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It cannot be reached or read.
    #[error("{0}")]
    Unreachable(String),
    /// It has not answered in time.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// Its answer has not the form that was agreed on.
    #[error("not understood: {0}")]
    Malformed(String),
    /// Its answer is too long.
    #[error("longer than {0} bytes")]
    TooLong(usize),
    /// What it was asked about is too long ago: it is to be asked for everything.
    #[error("what it has said before is out of date")]
    Expired,
    /// It says that none is ready, and will say so when one is.
    #[error("{0}")]
    NoneReady(String),
    /// It says that there is nothing.
    #[error("{0}")]
    Nothing(String),
}

impl SourceError {
    /// An answer that is not understood; what it says may hold parts of that answer.
    pub(crate) fn malformed(why: impl std::fmt::Display) -> Self {
        Self::Malformed(printable(&why.to_string()))
    }

    /// A source that cannot be reached.
    pub(crate) fn unreachable(why: impl std::fmt::Display) -> Self {
        Self::Unreachable(printable(&why.to_string()))
    }
}

/// A text of bounded length that is safe to log.
fn printable(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let letters = line.chars().take(QUOTED_MAX);
    let safe = |letter: char| match letter.is_control() {
        true => '?',
        false => letter,
    };
    letters.map(safe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_answer_says_is_safe_to_log() {
        let long = "x".repeat(10_000);
        let why = SourceError::malformed(format!("\u{1b}[2J{long}\nsecond line")).to_string();
        assert!(why.starts_with("not understood: ?[2Jxxx"), "{why}");
        assert!(why.len() < 300 && !why.contains('\n'), "{why}");
    }
}
