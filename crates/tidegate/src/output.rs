//! The one place that writes to standard output and standard error.
//!
//! Results go to standard output, events and errors to standard error, or to systemd's journal where that is the same. A reader
//! that went away (`tidegate status | head -1`) ends a command quietly, and never a front-end or an agent.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use tidegate_proxy::{Entry, Journal};
use tidegate_remote::clock;

use crate::events::{About, EventLog};
use crate::journal;

/// Events that wait to be written; one more is dropped and counted.
const EVENTS_MAX: usize = 1024;
/// Longest wait for the last events at the end.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The thread that writes events, if there is one.
static EVENTS: OnceLock<SyncSender<Line>> = OnceLock::new();
/// Events that were dropped since the last word about it.
static DROPPED: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
enum Line {
    Text(Said),
    /// All before this is written when it is answered.
    Flush(SyncSender<()>),
}

/// Something that is to be said.
#[derive(Debug)]
struct Said {
    line: String,
    /// The same for the journal, if that is where standard error leads.
    entry: Option<Entry>,
}

/// From now on a thread of its own writes the events: what reports one (the control thread,
/// say) never waits for a reader that stands still. Without the thread all goes on as before.
pub(crate) fn run_in_background() {
    let (sender, lines) = queue();
    let thread = std::thread::Builder::new().name("events".into());
    let write = move || {
        // Writing takes none; with those that it has, it writes as well.
        tidegate_remote::privilege::keep(tidegate_remote::privilege::NONE).ok();
        write_lines(&lines);
    };
    if thread.spawn(write).is_ok() {
        // Set already: the thread just started ends with its channel.
        EVENTS.set(sender).unwrap_or_default();
    }
}

fn queue() -> (SyncSender<Line>, Receiver<Line>) {
    sync_channel(EVENTS_MAX)
}

/// Has the line written, or counted where too many wait.
fn hand_over(events: &SyncSender<Line>, said: Said, dropped: &AtomicU64) {
    if events.try_send(Line::Text(said)).is_err() {
        dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits until the events so far are written, but not for ever.
pub(crate) fn flush() {
    if let Some(events) = EVENTS.get() {
        let (done, written) = sync_channel(1);
        if events.try_send(Line::Flush(done)).is_ok() {
            // The process ends in either case.
            written.recv_timeout(FLUSH_TIMEOUT).unwrap_or_default();
        }
    }
}

fn write_lines(lines: &Receiver<Line>) {
    for line in lines {
        match line {
            Line::Text(said) => say(&said),
            // The one that asked may have waited long enough.
            Line::Flush(done) => done.send(()).unwrap_or_default(),
        }
        let dropped = DROPPED.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            let text = format!("{dropped} events were dropped: they were not read in time");
            let entry = journal::of_errors().map(|_| journal::event("events_dropped", &text));
            say(&Said { line: text, entry });
        }
    }
}

/// Where and how to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// Objects for programs instead of text for people.
    pub(crate) json: bool,
    /// Events are dropped.
    pub(crate) quiet: bool,
    /// Where events are kept besides; none: nowhere.
    pub(crate) log: Option<&'static EventLog>,
}

impl Output {
    /// For parts whose events are not watched.
    pub(crate) const QUIET: Self = Self {
        json: false,
        quiet: true,
        log: None,
    };

    /// The same, and events are kept as well.
    #[must_use]
    pub(crate) fn keeping(self, log: &'static EventLog) -> Self {
        Self {
            log: Some(log),
            ..self
        }
    }

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

    /// Moves the cursor of a terminal; see [`Output::redraws`].
    pub(crate) fn control(self, sequence: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(sequence.as_bytes())?;
        out.flush()
    }

    /// A text as it fits the terminal that results go to: lines are broken at blanks.
    pub(crate) fn fit(self, text: &str) -> String {
        match Self::columns().filter(|_| !self.json) {
            Some(columns) => wrapped(text, columns),
            None => text.to_owned(),
        }
    }

    /// Columns of the terminal that results go to; none if they go elsewhere.
    pub(crate) fn columns() -> Option<usize> {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        (size.ws_col > 0).then_some(size.ws_col.into())
    }

    /// Whether results go to a terminal, where a table can be drawn anew in its place.
    pub(crate) fn redraws(self) -> bool {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        !self.json && !dumb && io::stdout().is_terminal()
    }

    /// Something that happened and when, for those that watch. That none does is no error.
    pub(crate) fn event(self, event: &str, text: &str) {
        self.event_about(event, About::default(), text);
    }

    /// The same, with what it concerns.
    pub(crate) fn event_about(self, event: &str, about: About<'_>, text: &str) {
        if let Some(log) = self.log {
            log.add(event, about, text);
        }
        if self.quiet {
            return;
        }
        let time = now();
        let line = if self.json {
            let mut line = json!({ "time": time, "event": event, "message": text });
            for (name, value) in about.fields() {
                line[name] = value.into();
            }
            line.to_string()
        } else {
            format!("{time} {text}")
        };
        let entry = self.journal().map(|_| {
            let mut entry = journal::event(event, text);
            for (name, value) in about.fields() {
                entry.field(name, value);
            }
            entry
        });
        let said = Said { line, entry };
        match EVENTS.get() {
            None => say(&said),
            Some(events) => hand_over(events, said, &DROPPED),
        }
    }

    /// How far a long command is, for a person at a terminal: the line is drawn anew each time
    /// and goes away with an empty one. Elsewhere nothing is said.
    pub(crate) fn progress(self, text: &str) {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if self.quiet || dumb || !io::stderr().is_terminal() {
            return;
        }
        // To the line's start, the text, and away with what is left of the one before.
        let mut out = io::stderr().lock();
        write!(out, "\r{text}\x1b[K").unwrap_or_default();
        out.flush().unwrap_or_default();
    }

    /// Why a command failed.
    pub(crate) fn error(self, text: &str) {
        if self.json {
            self.report(&json!({ "error": text }));
        } else {
            self.say_error(text, format!("error: {text}"));
        }
    }

    /// Why a command failed, in full: `text` for people, `details` for programs.
    pub(crate) fn detailed_error(self, text: &str, details: &Value) {
        if self.json {
            self.report(details);
        } else {
            self.say_error(text, text.to_owned());
        }
    }

    fn say_error(self, text: &str, line: String) {
        let entry = self.journal().map(|_| journal::error(text));
        say(&Said { line, entry });
    }

    /// The journal, if standard error leads there, and nothing else is wanted.
    fn journal(self) -> Option<&'static Journal> {
        match self.json {
            true => None,
            false => journal::of_errors(),
        }
    }

    /// The command has failed already: a reader that is gone changes nothing.
    fn report(self, details: &Value) {
        print(&details.to_string()).unwrap_or_default();
    }

    /// Whether errors are read at a terminal with colours.
    pub(crate) fn colour(self) -> bool {
        !self.json && io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
    }
}

/// The time of a log line: RFC 3339, in UTC, to a millisecond.
pub(crate) fn now() -> String {
    let unix = jiff::Timestamp::from_nanosecond(clock::unix().as_nanos() as i128);
    format!("{:.3}", unix.unwrap_or_default())
}

/// Lines of at most so many letters, broken at blanks. What is broken off begins below the text of its
/// line: behind its blanks, or behind its `label:`.
fn wrapped(text: &str, columns: usize) -> String {
    let mut out = String::new();
    for line in text.split('\n') {
        let blanks = line.len() - line.trim_start().len();
        let label = line.find(": ").filter(|end| !line[..*end].contains(' '));
        let behind = label.map_or(0, |end| line.len() - line[end + 1..].trim_start().len());
        let indent = " ".repeat(blanks.max(behind).min(columns / 2));
        let mut length = 0;
        // Blanks within a line stay as they are: they may be columns.
        for word in line.split_inclusive(' ') {
            let letters = word.trim_end().chars().count();
            if length > indent.len() && length + letters > columns {
                out.truncate(out.trim_end_matches(' ').len());
                out.push('\n');
                out.push_str(&indent);
                length = indent.len();
            }
            out.push_str(word);
            length += word.chars().count();
        }
        out.push('\n');
    }
    out.pop();
    out
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// Says it in the journal, or where that does not take it at standard error.
fn say(said: &Said) {
    let sent = said.entry.as_ref().and_then(|entry| {
        let sent = journal::of_errors()?.send(entry);
        sent.ok()
    });
    if sent.is_none() {
        report(&said.line);
    }
}

fn report(text: &str) {
    // There is nowhere to say that standard error is gone.
    writeln!(io::stderr().lock(), "{text}").unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_events_wait_to_be_written_and_more_are_counted() {
        let (events, lines) = queue();
        let dropped = AtomicU64::new(0);
        for (told, counted) in [(1024, 0), (1, 1)] {
            for _ in 0..told {
                let said = Said {
                    line: "an event".into(),
                    entry: None,
                };
                hand_over(&events, said, &dropped);
            }
            assert_eq!(dropped.load(Ordering::Relaxed), counted);
        }
        assert_eq!(lines.try_iter().count(), 1024);
    }

    #[test]
    fn long_lines_are_broken_at_blanks_below_their_text() {
        let text = "load:    226 requests/s, open loop\n  two  columns";
        let expected = "load:    226 requests/s,\n         open loop\n  two  columns";
        assert_eq!(wrapped(text, 24), expected);
        assert_eq!(wrapped(text, 80), text);
        for columns in 24..60 {
            let lines = wrapped(text, columns);
            assert!(
                lines.lines().all(|line| line.chars().count() <= columns),
                "{lines}"
            );
            let words = |text: &str| {
                text.split_whitespace()
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            };
            assert_eq!(words(&lines), words(text));
        }
    }

    #[test]
    fn a_log_lines_time_is_of_rfc_3339_and_of_one_width() {
        let time = now();
        assert_eq!(time.len(), "2026-01-31T12:34:56.789Z".len(), "{time}");
        let parsed: jiff::Timestamp = time.parse().unwrap();
        assert!(clock::unix().as_secs() < parsed.as_second() as u64 + 60);
    }
}
