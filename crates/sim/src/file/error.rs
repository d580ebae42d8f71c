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
    /// What to do about it.
    pub help: Option<String>,
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
            help: None,
            at,
        }
    }

    pub(super) fn of_toml(error: &toml::de::Error) -> Self {
        let at = error.span().unwrap_or(0..0);
        let mut lines = error.message().lines();
        let message = lines.next().unwrap_or("not TOML");
        // serde puts the names that it knows behind the message.
        if let Some((what, known)) = message.split_once(", expected one of ") {
            let help = Some(format!("one of: {known}"));
            return Self {
                help,
                ..Self::new(at, what.replace("unknown field", "unknown key"), "")
            };
        }
        let rest: Vec<_> = lines.collect();
        Self::new(at, message, rest.join("; "))
    }
}
