//! HAProxy's HTTP log, as `option httplog` writes it.
//!
//! ```text
//! ... [date] frontend backend/server TR/Tw/Tc/Tr/Ta status ... "request"
//! sent to the server at date + TR + Tw, over at date + Ta
//! ```
//!
//! The date is that of the request's first byte, to the millisecond and without a zone. A timer of
//! -1 means that it did not come so far. Ta ends with the last byte to the client: a slow reader
//! counts, as the log has no time of the server's last byte. Releases before 1.7 have Tq and Tt
//! in the places of TR and Ta. Source: HAProxy's configuration manual, "HTTP log format".

use super::{Entry, Moment, Wrong, request_line};
use crate::time::{HAPROXY, SECOND, Stamp};

const MILLISECOND: i64 = SECOND / 1000;
/// Brackets among which the date is looked for.
const BRACKETS_MAX: usize = 8;
/// A server that was never chosen.
const NO_SERVER: &str = "<NOSRV>";

/// Reads a line.
pub(super) fn read(line: &str) -> Result<Option<Entry<'_>>, Wrong> {
    let wrong = || {
        Wrong::new(
            "HAProxy's HTTP log: [date] frontend backend/server TR/Tw/Tc/Tr/Ta … \"request\"",
        )
    };
    let (at, rest) = date(line).ok_or_else(wrong)?;
    let mut words = rest.split_ascii_whitespace();
    let (Some(_frontend), Some(target), Some(timers)) = (words.next(), words.next(), words.next())
    else {
        return Err(wrong());
    };
    let (backend, server) = target.split_once('/').ok_or_else(wrong)?;
    let [received, queued, connected, _answered, total] = five(timers).ok_or_else(wrong)?;
    let (_, request) = rest.split_once('"').ok_or_else(wrong)?;
    // A line that syslog cut off has no closing quote.
    let request = request
        .rsplit_once('"')
        .map_or(request, |(request, _)| request);
    let Some((method, target)) = request_line(request) else {
        return Ok(None);
    };
    let total = total.max(0) * MILLISECOND;
    let wait = (received.max(0) + queued.max(0)) * MILLISECOND;
    Ok(Some(Entry {
        site: backend.into(),
        method: method.into(),
        target: target.into(),
        at,
        moment: Moment::Start,
        total: Some(total),
        wait,
        upstream: None,
        sent: server != NO_SERVER && received >= 0 && queued >= 0 && connected >= 0,
    }))
}

/// The date and what follows. An address of IPv6 stands in brackets too.
fn date(line: &str) -> Option<(Stamp, &str)> {
    line.match_indices(" [")
        .take(BRACKETS_MAX)
        .find_map(|(at, bracket)| {
            let (date, rest) = line[at + bracket.len()..].split_once("] ")?;
            Some((Stamp::by_format(HAPROXY, date)?, rest))
        })
}

/// Five timers in milliseconds; `+` marks what was logged before the end.
fn five(timers: &str) -> Option<[i64; 5]> {
    let mut parts = timers.split('/');
    let mut five = [0; 5];
    for timer in &mut five {
        let text = parts.next()?;
        let millis: i64 = text.strip_prefix('+').unwrap_or(text).parse().ok()?;
        if !(-1..=i64::from(u32::MAX)).contains(&millis) {
            return None;
        }
        *timer = millis;
    }
    parts.next().is_none().then_some(five)
}
