//! The one place that writes to standard output and standard error.
//!
//! Results go to standard output, all else to standard error. A reader that went away ends the
//! lab quietly.

use std::io::{self, Write};

/// A line of a result.
pub(crate) fn result(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// A word about what happens or what went wrong.
pub(crate) fn note(line: &str) {
    let mut out = io::stderr().lock();
    // No output is left to report that there is no output.
    out.write_all(format!("{line}\n").as_bytes())
        .unwrap_or_default();
}
