//! The common and the combined format of Apache and nginx, and what people put behind them.
//!
//! ```text
//! [vhost:port] client ident user [time] "request" status bytes ["referer" "agent" …] tail
//! ```
//!
//! What a bare number at the end means follows from all of the sample: with a fraction it is nginx's
//! `$request_time` (a second one is `$upstream_response_time`), whole numbers are Apache's `%D` or
//! `%T`: a request of less than 20 us is as rare as a site where half of all requests take more
//! than 20 s. Names (`rt=0.1`, `duration_us=100`) say it themselves.

use tidegate_core::stats::quantile_of_ordered;

use super::template::{start, upstream};
use super::{Entry, Moment, Wrong, request_line};
use crate::time::{COMMON, SECOND, Stamp, decimal};

/// Median below which whole numbers are seconds.
const SECONDS_BELOW: u64 = 20;
/// Words behind the request that are looked at.
const WORDS_MAX: usize = 64;

/// What stands at the end of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Nothing that tells a time.
    None,
    /// Apache's `%D`.
    Micros,
    /// Apache's `%T`.
    Seconds,
    /// nginx's `$request_time`, and `$upstream_response_time` if there is another.
    Decimals,
    /// `rt=` and the like, as nginx's users write them.
    Named,
    /// Tidegate's own.
    Tidegate,
}

impl Tail {
    /// What most of these lines end with.
    pub(super) fn detect(lines: &[String]) -> Self {
        let mut whole = Vec::new();
        let (mut decimals, mut named, mut own) = (0, 0, 0);
        for words in lines.iter().filter_map(|line| Some(parts(line)?.tail)) {
            own += usize::from(value(words, "duration_us").is_some());
            named += usize::from(NAMES.iter().any(|(name, _)| value(words, name).is_some()));
            match numbers(words).next() {
                Some(number) if number.contains('.') => decimals += 1,
                Some(number) => whole.extend(number.parse::<u64>()),
                None => {}
            }
        }
        let median = quantile_of_ordered(&mut whole, 0.5);
        if own > 0 {
            Self::Tidegate
        } else if named > 0 {
            Self::Named
        } else if decimals > 0 {
            Self::Decimals
        } else {
            match median {
                Some(median) if median < SECONDS_BELOW => Self::Seconds,
                Some(_) => Self::Micros,
                None => Self::None,
            }
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "common or combined, without durations",
            Self::Micros => "common or combined with %D, microseconds (assumed by their size)",
            Self::Seconds => "common or combined with %T, seconds (assumed by their size)",
            Self::Decimals => {
                "common or combined with $request_time, seconds (assumed by their fractions)"
            }
            Self::Named => "common or combined with named times",
            Self::Tidegate => "Tidegate, combined",
        }
    }

    fn moment(self) -> Moment {
        match self {
            // Which server wrote it is not known; a line is written at the end by both.
            Self::Decimals | Self::Named => Moment::End,
            Self::None | Self::Micros | Self::Seconds | Self::Tidegate => Moment::Start,
        }
    }
}

/// Names of times in seconds, and whether they are those of the servers.
const NAMES: [(&str, bool); 4] = [
    ("rt", false),
    ("request_time", false),
    ("urt", true),
    ("upstream_response_time", true),
];

/// A line in its parts.
struct Parts<'a> {
    before: &'a str,
    time: &'a str,
    request: &'a str,
    tail: &'a str,
}

/// Reads a line.
pub(super) fn read(line: &str, tail: Tail) -> Result<Option<Entry<'_>>, Wrong> {
    let wrong = || Wrong::new("client - user [time] \"request\" status bytes");
    let parts = parts(line).ok_or_else(wrong)?;
    let at = Stamp::by_format(COMMON, parts.time)
        .ok_or_else(|| Wrong(format!("a time instead of `{}`", start(parts.time)).into()))?;
    let Some((method, target)) = request_line(parts.request) else {
        return Ok(None);
    };
    let mut entry = Entry {
        site: vhost(parts.before).into(),
        method: method.into(),
        target: target.into(),
        at,
        moment: tail.moment(),
        total: None,
        wait: 0,
        upstream: None,
        sent: true,
    };
    add_times(&mut entry, parts.tail, tail)?;
    Ok(Some(entry))
}

fn add_times<'a>(entry: &mut Entry<'a>, words: &'a str, tail: Tail) -> Result<(), Wrong> {
    let number = |text: Option<&str>, unit| match text {
        None | Some("-") => Ok(None),
        Some(text) => match decimal(text, unit) {
            Some((nanos, _)) => Ok(Some(nanos)),
            None => Err(Wrong(format!("a time instead of `{}`", start(text)).into())),
        },
    };
    let mut bare = numbers(words);
    let first = bare.next();
    let fraction = first.filter(|it| *it != "-").map(|it| it.contains('.'));
    // Lines that begin to tell durations within a file, or other ones, are of another format.
    match (tail, fraction) {
        (Tail::None, Some(_)) => return Err(Wrong::new("no number at the end")),
        (Tail::Micros | Tail::Seconds, Some(true)) => {
            return Err(Wrong::new("a whole number at the end"));
        }
        (Tail::Decimals, Some(false)) => {
            return Err(Wrong::new("a number with a fraction at the end"));
        }
        _ => {}
    }
    match tail {
        Tail::None => {}
        Tail::Micros => entry.total = number(first, 1000)?,
        Tail::Seconds => entry.total = number(first, SECOND)?,
        Tail::Decimals => {
            entry.total = number(first, SECOND)?;
            let times = second_list(words);
            if !times.is_empty() {
                entry.upstream = upstream(&times, SECOND)?;
                entry.sent = entry.upstream.is_some();
            }
        }
        Tail::Named => {
            for (name, servers) in NAMES {
                match value(words, name) {
                    Some(times) if times.ends_with([',', ':']) => {
                        return Err(Wrong::new("several times in quotes"));
                    }
                    Some(times) if servers => {
                        entry.upstream = upstream(times, SECOND)?;
                        entry.sent = entry.upstream.is_some();
                    }
                    Some(time) => entry.total = number(Some(time), SECOND)?,
                    None => {}
                }
            }
        }
        Tail::Tidegate => {
            entry.total = number(value(words, "duration_us"), 1000)?;
            entry.wait = number(value(words, "queue_us"), 1000)?.unwrap_or(0);
            entry.sent = value(words, "node").is_some();
            if let Some(site) = value(words, "site") {
                entry.site = site.into();
            }
        }
    }
    Ok(())
}

fn parts(line: &str) -> Option<Parts<'_>> {
    let (before, rest) = line.split_once(" [")?;
    let (time, rest) = rest.split_once("] \"")?;
    let end = closing_quote(rest)?;
    let (request, rest) = (&rest[..end], &rest[end + 1..]);
    let mut words = rest.trim_start().splitn(3, ' ');
    let status = words.next()?;
    let bytes = words.next()?;
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if status.len() != 3 || !number(status) || !(bytes == "-" || number(bytes)) {
        return None;
    }
    Some(Parts {
        before,
        time,
        request,
        tail: words.next().unwrap_or_default(),
    })
}

/// `shop.example:80 10.0.0.1 - -`: four words before the time, the first with a port.
fn vhost(before: &str) -> &str {
    let mut words = before.split_ascii_whitespace();
    let first = words.next().unwrap_or_default();
    match first.rsplit_once(':') {
        Some((host, port)) if words.count() == 3 && port.parse::<u16>().is_ok() => host,
        Some(_) | None => "",
    }
}

/// The name of quoted words that have none. Clients choose what is in quotes, so it is never
/// taken for one of the numbers at the end.
const QUOTED: &str = "\"";

/// Words of the tail with their names: quoted or bare, a quoted one without its quotes.
fn words(tail: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = tail;
    let next = move || {
        rest = rest.trim_start();
        let name_end = rest.find(['=', '"', ' ']).unwrap_or(rest.len());
        let (name, after) = match rest[name_end..].strip_prefix('=') {
            Some(after) => (&rest[..name_end], after),
            None => ("", rest),
        };
        let (word, after) = match after.strip_prefix('"') {
            Some(quoted) => {
                let end = closing_quote(quoted)?;
                let name = if name.is_empty() { QUOTED } else { name };
                rest = &quoted[end + 1..];
                return Some((name, &quoted[..end]));
            }
            None if after.is_empty() && name.is_empty() => return None,
            None => after.split_at(after.find(' ').unwrap_or(after.len())),
        };
        rest = after;
        Some((name, word))
    };
    std::iter::from_fn(next).take(WORDS_MAX)
}

/// Bare numbers of the tail, `-` among them.
fn numbers(tail: &str) -> impl Iterator<Item = &str> {
    let number = |text: &str| {
        text == "-"
            || text
                .bytes()
                .all(|byte| byte.is_ascii_digit() || b".,".contains(&byte))
    };
    let bare = words(tail).filter(|(name, _)| name.is_empty());
    bare.map(|(_, word)| word)
        .filter(move |word| !word.is_empty() && number(word))
}

/// The numbers behind the first one, as far as `,` and `:` hold them together: `0.1, 0.2 : 0.3`.
fn second_list(tail: &str) -> String {
    let bare = words(tail).filter(|(name, _)| name.is_empty());
    let mut bare = bare.map(|(_, word)| word).peekable();
    let first = bare.find(|word| {
        word.bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
    });
    let mut list = String::new();
    let is_time = |word: &&str| word.bytes().all(|byte| b"0123456789.,:-".contains(&byte));
    while let Some(word) = bare.next_if(is_time)
        && first.is_some()
    {
        list.push_str(word);
        let joined = |text: &str| text.ends_with([',', ':']);
        let goes_on = joined(word) || bare.peek().is_some_and(|next| next.starts_with([',', ':']));
        if !goes_on {
            break;
        }
    }
    list
}

fn value<'a>(tail: &'a str, name: &str) -> Option<&'a str> {
    words(tail)
        .find(|(own, _)| *own == name)
        .map(|(_, word)| word)
}

/// Where a quoted text ends.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    })
}
