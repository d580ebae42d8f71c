//! The formats of one file: the one it begins with, and those it changes to.
//!
//! ```text
//! a line is read by    the format of the line before, then any other that the file has had
//! kept                 lines that none of them understands
//! asked anew           when 50 are kept, or the file ends with 3 and more: what understands half of them is
//!                      one more format of the file
//! ```
//!
//! Inputs: lines in their order. A server's log changes where its configuration did, and logs of two servers
//! are put together. Failure case: what is kept is taken in up to 50 lines late; what was named on the command
//! line stays.

use super::{Entry, Format, Wrong};

/// Lines that are kept before they are looked at.
const KEPT_MAX: usize = 50;
/// Fewer than these are no format.
const KEPT_MIN: usize = 3;
/// Most formats of a file.
const FORMATS_MAX: usize = 4;

/// See the module.
pub(crate) struct Formats {
    known: Vec<Format>,
    current: usize,
    may_change: bool,
    changed: bool,
    kept: Vec<(u64, String)>,
}

impl Formats {
    /// The format that the user says, or the one that most of the first lines are of.
    pub(crate) fn of(told: Option<&Format>, sample: &[String]) -> Option<Self> {
        let first = told.cloned().or_else(|| Format::detect(sample))?;
        Some(Self {
            known: vec![first],
            current: 0,
            may_change: told.is_none(),
            changed: false,
            kept: Vec::new(),
        })
    }

    /// The format of the last line that was understood.
    pub(crate) fn current(&self) -> &Format {
        &self.known[self.current]
    }

    /// Reads a line. The error is that of the current format.
    pub(crate) fn read<'a>(&mut self, line: &'a str) -> Result<Option<Entry<'a>>, Wrong> {
        let read = self.current().read(line);
        if read.is_err() {
            for (place, format) in self.known.iter().enumerate() {
                if let (false, Ok(entry)) = (place == self.current, format.read(line)) {
                    self.current = place;
                    return Ok(entry);
                }
            }
        }
        read
    }

    /// Keeps a line that was not understood.
    pub(crate) fn keep(&mut self, number: u64, line: &str) {
        self.kept.push((number, line.to_owned()));
    }

    /// Whether what is kept is enough to find out what it is.
    pub(crate) fn is_settled(&self) -> bool {
        self.kept.len() >= KEPT_MAX || !self.may_change
    }

    /// What was kept; the file has a new format if there is one that understands half of it.
    pub(crate) fn settle(&mut self) -> Vec<(u64, String)> {
        let kept = std::mem::take(&mut self.kept);
        self.changed = false;
        if !self.may_change || kept.len() < KEPT_MIN || self.known.len() >= FORMATS_MAX {
            return kept;
        }
        let lines: Vec<String> = kept.iter().map(|(_, line)| line.clone()).collect();
        if let Some(format) = Format::detect(&lines) {
            let understood = lines.iter().filter(|line| format.read(line).is_ok());
            if 2 * understood.count() >= lines.len() {
                self.known.push(format);
                self.current = self.known.len() - 1;
                self.changed = true;
            }
        }
        kept
    }

    /// Whether the file has got a new format by what was kept last.
    pub(crate) fn has_changed(&self) -> bool {
        self.changed
    }
}
