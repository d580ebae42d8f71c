//! Access logs: what a line says of a request, whichever server wrote it.
//!
//! | log | the time is | known to | how long |
//! |---|---|---|---|
//! | Apache | the start (`%t`), unless `end:` says otherwise | 1 s, less with `%{msec}t` and the like | `%D`, `%T`, `%{ms}T` |
//! | nginx | the end: lines are written when a request is over | 1 s (`$time_local`), 1 ms (`$msec`) | `$request_time`, `$upstream_response_time` |
//! | HAProxy | the start: the request's first byte | 1 ms | timers: sent after TR + Tw, over after Ta |
//! | Tidegate | the start | 1 us (JSON), 1 s (combined) | `duration_us`, sent after `queue_us` |
//! | other JSON | the end, unless the name says start | as written | by name |
//!
//! What counts is when a request was at the server, so time with the client or in a queue is taken
//! off where a log tells it.

mod apache;
mod combined;
pub(super) mod formats;
mod haproxy;
#[cfg(any(test, feature = "fuzzing"))]
#[path = "../../../../fuzz/invariants/access_log.rs"]
pub(crate) mod invariants;
mod json;
mod nginx;
mod template;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use super::time::{SECOND, Stamp};
use template::Template;

/// Lines by which a format is recognised.
pub(super) const SAMPLE_LINES: usize = 200;

/// Latest time, nanoseconds of the epoch: the year 2255.
const TIME_MAX: i64 = 9_000_000_000 * SECOND;
/// Longest request, nanoseconds.
const LIFE_MAX: i64 = 31 * 86_400 * SECOND;

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    /// Site, virtual host or back-end; empty if the log does not say.
    pub(super) site: Cow<'a, str>,
    /// Empty if the log does not say.
    pub(super) method: Cow<'a, str>,
    pub(super) target: Cow<'a, str>,
    pub(super) at: Stamp,
    pub(super) moment: Moment,
    /// From first byte to last, nanoseconds.
    pub(super) total: Option<i64>,
    /// From the first byte until it was sent to a server, nanoseconds.
    pub(super) wait: i64,
    /// At the server, nanoseconds, where that is logged apart.
    pub(super) upstream: Option<i64>,
    /// Whether it got to a server.
    pub(super) sent: bool,
}

impl Entry<'_> {
    /// Time at the server, as far as is known.
    pub(super) fn life(&self) -> Option<i64> {
        let life = self.upstream.or(self.total.map(|total| total - self.wait));
        life.map(|life| life.max(0))
    }

    /// Whether times can be added up: nothing lasts longer than a month.
    pub(super) fn is_plausible(&self) -> bool {
        let times = [self.total, Some(self.wait), self.upstream];
        let mut known = times.into_iter().flatten();
        (0..=TIME_MAX).contains(&self.at.nanos) && known.all(|it| (0..=LIFE_MAX).contains(&it))
    }

    /// From its time in the log to its end at the server, nanoseconds.
    pub(super) fn to_end(&self) -> i64 {
        let life = self.life().unwrap_or(0);
        match self.moment {
            Moment::Start => self.wait + life,
            // The client may have read on after the server's end.
            Moment::End => (self.wait + life - self.total.unwrap_or(life)).min(0),
        }
    }
}

/// What of a request the time in a log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// Its first byte.
    Start,
    /// Its last.
    End,
}

/// What a line should have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong(pub(super) Cow<'static, str>);

impl Wrong {
    const fn new(expected: &'static str) -> Self {
        Self(Cow::Borrowed(expected))
    }
}

/// How lines are read.
#[derive(Clone, Debug)]
pub(super) enum Format {
    /// Apache's or nginx's format string.
    Template(&'static str, Template),
    /// Common or combined, and what stands behind.
    Combined(combined::Tail),
    /// HAProxy's `option httplog`.
    Haproxy,
    /// An object a line.
    Json(json::Names),
}

impl Format {
    /// Reads the format string of an Apache or nginx configuration. Apache's directives begin
    /// with `%`, nginx's variables with `$`; a whole `LogFormat` or `log_format` line will do.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.starts_with("log_format") || (text.contains('$') && !text.contains('%')) {
            Ok(Self::Template("nginx format", nginx::compile(text)?))
        } else if text.contains('%') {
            Ok(Self::Template("Apache format", apache::compile(text)?))
        } else {
            Err(
                "a format of Apache has directives like %t, one of nginx variables like $msec"
                    .into(),
            )
        }
    }

    /// The format that understands most of the lines, if one understands any.
    pub(super) fn detect(lines: &[String]) -> Option<Self> {
        let mut candidates = vec![Self::Haproxy, Self::Combined(combined::Tail::detect(lines))];
        candidates.extend(json::Names::detect(lines).map(Self::Json));
        let understood = |format: &Self| lines.iter().filter(|it| format.read(it).is_ok()).count();
        let counted = candidates
            .into_iter()
            .map(|format| (understood(&format), format));
        let (count, best) = counted.max_by_key(|(count, _)| *count)?;
        (count > 0).then_some(best)
    }

    /// What it is called, with what was taken for granted.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Template(name, _) => (*name).into(),
            Self::Combined(tail) => tail.name().into(),
            Self::Haproxy => "HAProxy HTTP log".into(),
            Self::Json(names) => names.name(),
        }
    }

    /// Reads a line; none if it tells of no request, as Apache's `"-"` does.
    pub(super) fn read<'a>(&self, line: &'a str) -> Result<Option<Entry<'a>>, Wrong> {
        match self {
            Self::Template(_, template) => template.read(line),
            Self::Combined(tail) => combined::read(line, *tail),
            Self::Haproxy => haproxy::read(line),
            Self::Json(names) => names.read(line),
        }
    }
}

/// Method and target of a request line; none if it is empty. What is no HTTP is a target.
fn request_line(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    if line.is_empty() || line == "-" || line == "<BADREQ>" {
        return None;
    }
    let Some((method, rest)) = line.split_once(' ') else {
        return Some(("", line));
    };
    let target = match rest.rsplit_once(' ') {
        Some((target, version)) if version.starts_with("HTTP/") => target,
        Some(_) | None => rest,
    };
    Some((method, target.trim()))
}
