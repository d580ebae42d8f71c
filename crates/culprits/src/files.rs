//! What became of a file: how it was understood, and what was not.

use serde::Serialize;

/// Bad lines that are shown.
const EXAMPLES_MAX: usize = 3;
/// Of a bad line so many letters are shown.
const FOUND_MAX: usize = 100;

/// One file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct FileReport {
    pub(super) file: String,
    /// How it was read, and what was assumed.
    pub(super) format: String,
    /// Lines that gave something.
    pub(super) lines: u64,
    pub(super) bad_lines: u64,
    /// The first of them.
    pub(super) examples: Vec<BadLine>,
    /// What else a reader should know.
    pub(super) notes: Vec<String>,
}

/// A line that was not understood.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct BadLine {
    pub(super) line: u64,
    pub(super) expected: String,
    pub(super) found: String,
}

impl FileReport {
    pub(super) fn new(file: &std::path::Path) -> Self {
        Self {
            file: file.display().to_string(),
            ..Self::default()
        }
    }

    /// Counts a line that was not understood.
    pub(super) fn bad(&mut self, line: u64, expected: &str, found: &str) {
        self.bad_lines += 1;
        if self.examples.len() < EXAMPLES_MAX {
            let visible = found.chars().take(FOUND_MAX);
            let visible = visible.map(|letter| {
                if letter.is_control() {
                    '\u{fffd}'
                } else {
                    letter
                }
            });
            self.examples.push(BadLine {
                line,
                expected: expected.to_owned(),
                found: visible.collect(),
            });
        }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let format = match self.format.as_str() {
            "" => "not understood",
            format => format,
        };
        let mut text = format!("  {}: {format}, {} lines", self.file, self.lines);
        if self.bad_lines > 0 {
            text += &format!(", {} bad lines", self.bad_lines);
        }
        text.push('\n');
        for note in &self.notes {
            text += &format!("    {note}\n");
        }
        for bad in &self.examples {
            let BadLine {
                line,
                expected,
                found,
            } = bad;
            text += &format!(
                "    {}:{line}: expected {expected}, found `{found}`\n",
                self.file
            );
        }
        text
    }
}
