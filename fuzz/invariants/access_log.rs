//! What must hold for any bytes that are taken for an access log. Shared by the fuzz target and by the tests of
//! `tidegate-culprits`.
//!
//! The first line is taken for a format of Apache or nginx, the others for lines of that format, and of what they
//! look like.
//!
//! 1. Reading formats and lines never panics, and each has a name or an error that says something.
//! 2. Times of what is plausible can be added up.

use super::{Entry, Format, SAMPLE_LINES};

/// Checks all of them.
pub(crate) fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let lines: Vec<_> = rest.lines().map(str::to_owned).collect();
    match Format::parse(first) {
        Ok(format) => read(&format, &lines),
        Err(why) => assert!(!why.is_empty()),
    }
    let sample = &lines[..lines.len().min(SAMPLE_LINES)];
    if let Some(format) = Format::detect(sample) {
        let understood = |line: &String| format.read(line).is_ok();
        assert!(sample.iter().any(understood));
        read(&format, &lines);
    }
}

fn read(format: &Format, lines: &[String]) {
    assert!(!format.name().is_empty());
    for line in lines {
        match format.read(line) {
            Ok(Some(entry)) => adds_up(&entry),
            Ok(None) => {}
            Err(wrong) => assert!(!wrong.0.is_empty()),
        }
    }
}

fn adds_up(entry: &Entry<'_>) {
    if !entry.is_plausible() {
        return;
    }
    let life = entry.life().unwrap_or_default();
    assert!(life >= 0, "{entry:?}");
    let end = entry.at.nanos.checked_add(entry.to_end());
    let start = end.and_then(|end| end.checked_sub(life));
    assert!(start.is_some(), "{entry:?}");
}
