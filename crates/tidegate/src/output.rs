//! The one place that writes to standard output and standard error.
//!
//! Results go to standard output, events and errors to standard error. A reader that went away
//! (`tidegate status | head -1`) ends a command quietly, and never a front-end or an agent.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;
use serde_json::{Value, json};

/// Where and how to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// Objects for programs instead of text for people.
    pub(crate) json: bool,
}

impl Output {
    /// A result: the text for people, or the value for programs.
    pub(crate) fn result(self, text: &str, value: &impl Serialize) -> io::Result<()> {
        let text = if self.json {
            serde_json::to_string(value)?
        } else {
            text.trim_end().to_owned()
        };
        print(&text)
    }

    /// A result that is the same for all, like a completion script.
    pub(crate) fn raw(self, text: &str) -> io::Result<()> {
        print(text.trim_end())
    }

    /// Something that happened, for whoever watches. That nobody does is no error.
    pub(crate) fn event(self, event: &str, text: &str) {
        if self.json {
            report(&json!({ "event": event, "message": text }).to_string());
        } else {
            report(text);
        }
    }

    /// Why a command failed; `details` are for programs.
    pub(crate) fn error(self, text: &str, details: Option<Value>) {
        if self.json {
            let details = details.unwrap_or_else(|| json!({ "error": text }));
            // The command has failed already: that nobody reads why changes nothing.
            print(&details.to_string()).unwrap_or_default();
        } else {
            report(text);
        }
    }

    /// Whether errors are read by a person who sees colours.
    pub(crate) fn colour(self) -> bool {
        !self.json && io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

fn report(text: &str) {
    // There is nowhere to say that standard error is gone.
    writeln!(io::stderr().lock(), "{text}").unwrap_or_default();
}
