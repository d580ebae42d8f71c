//! What is wrong with a scenario file, and where.

use std::ops::Range;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FileError {
    /// What, in a sentence.
    pub message: String,
    /// A word for the caret.
    pub label: String,
    /// The bytes of the text that it is about.
    pub at: Range<usize>,
}

impl FileError {
    pub(super) fn new(
        at: Range<usize>,
        message: impl Into<String>,
        label: impl Into<String>,
    ) -> Self {
        Self {
            message: message.into(),
            label: label.into(),
            at,
        }
    }

    pub(super) fn of_toml(error: &toml::de::Error) -> Self {
        let mut lines = error.message().lines();
        let message = lines.next().unwrap_or("not TOML").to_owned();
        let rest: Vec<_> = lines.collect();
        Self::new(error.span().unwrap_or(0..0), message, rest.join("; "))
    }
}
