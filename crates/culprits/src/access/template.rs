//! Formats that users configure: fields and what stands between them.
//!
//! A field ends where the text after it in the format begins; within quotes a quote that is
//! escaped ends nothing. So two fields need something between them.

use std::borrow::Cow;

use super::{Entry, Moment, Wrong, request_line};
use crate::time::{SECOND, Stamp, decimal};

/// Most parts of a format.
const ITEMS_MAX: usize = 256;

/// A format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    items: Vec<Item>,
    /// How the pieces of the time, with a space between, are read.
    time: Time,
    moment: Moment,
}

/// A part of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Literal(String),
    Field(Field),
}

/// What a field means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// Nothing to us.
    Skip,
    /// The whole request line.
    Request,
    Method,
    /// Path and query.
    Target,
    /// The query, with its `?` or without.
    Query,
    Site,
    /// A time, or a piece of one.
    Time(Time, Moment),
    /// What is to be added to the time, in a unit of so many nanoseconds.
    Fraction(i64),
    /// First byte to last, in a unit of so many nanoseconds.
    Total(i64),
    /// At the server; a list adds up.
    Upstream(i64),
}

/// How a time is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Time {
    /// As strftime does with this format.
    Format(String),
    Iso,
    /// Since the epoch, in a unit of so many nanoseconds.
    Epoch(i64),
}

/// Values of one line.
#[derive(Default)]
struct Values<'a> {
    request: Option<&'a str>,
    method: &'a str,
    target: Option<&'a str>,
    query: &'a str,
    site: &'a str,
    time: Cow<'a, str>,
    fraction: i64,
    total: Option<i64>,
    upstream: Option<i64>,
    /// There is a field for it, and it says that no server was asked.
    not_sent: bool,
}

impl Template {
    /// A format of these parts.
    ///
    /// # Errors
    /// A sentence that says what is missing or cannot be distinguished.
    pub(super) fn new(items: Vec<Item>) -> Result<Self, String> {
        let items = joined(items);
        if items.len() > ITEMS_MAX {
            return Err(format!("the format has more than {ITEMS_MAX} parts"));
        }
        let fields = |pair: &[Item]| matches!(pair, [Item::Field(_), Item::Field(_)]);
        if items.windows(2).any(fields) {
            return Err("two fields of the format have nothing between them".into());
        }
        let mut times = items.iter().filter_map(|item| match item {
            Item::Field(Field::Time(time, moment)) => Some((time, *moment)),
            Item::Field(_) | Item::Literal(_) => None,
        });
        let (first, moment) = times.next().ok_or("the format has no time")?;
        let mut time = first.clone();
        for (piece, _) in times {
            let (Time::Format(format), Time::Format(piece)) = (&mut time, piece) else {
                break; // The first one says it all.
            };
            format.push(' ');
            format.push_str(piece);
        }
        let target = |item: &Item| matches!(item, Item::Field(Field::Request | Field::Target));
        if !items.iter().any(target) {
            return Err("the format has no request".into());
        }
        Ok(Self {
            items,
            time,
            moment,
        })
    }

    /// Reads a line.
    pub(super) fn read<'a>(&self, line: &'a str) -> Result<Option<Entry<'a>>, Wrong> {
        let mut values = Values::default();
        let mut rest = line;
        let mut quoted = false;
        for (index, item) in self.items.iter().enumerate() {
            match item {
                Item::Literal(text) => {
                    let after = rest.strip_prefix(text.as_str());
                    rest = after
                        .ok_or_else(|| Wrong(format!("`{text}` at `{}`", start(rest)).into()))?;
                    quoted = text.ends_with('"');
                }
                Item::Field(field) => {
                    let end = match self.items.get(index + 1) {
                        Some(Item::Literal(next)) => field_end(rest, next, field, quoted)
                            .ok_or_else(|| {
                                Wrong(format!("`{next}` after `{}`", start(rest)).into())
                            })?,
                        Some(Item::Field(_)) | None => rest.len(),
                    };
                    let (value, after) = rest.split_at(end);
                    values.take(field, value)?;
                    rest = after;
                }
            }
        }
        self.entry(values)
    }

    fn entry<'a>(&self, values: Values<'a>) -> Result<Option<Entry<'a>>, Wrong> {
        let at = match &self.time {
            Time::Format(format) => Stamp::by_format(format, &values.time),
            Time::Iso => Stamp::iso(&values.time),
            Time::Epoch(unit) => Stamp::epoch(&values.time, *unit),
        };
        let mut at =
            at.ok_or_else(|| Wrong(format!("a time instead of `{}`", start(&values.time)).into()))?;
        if let Some(resolution) = self.fraction_unit() {
            at.nanos += values.fraction;
            at.resolution = resolution;
        }
        let (method, target) = match (values.target, values.request) {
            (Some(target), _) => (values.method, target),
            (None, Some(request)) => match request_line(request) {
                Some(found) => found,
                None => return Ok(None),
            },
            (None, None) => return Err(Wrong::new("a request")),
        };
        let query = values.query.trim_start_matches('?');
        let target = match query {
            "" | "-" => Cow::Borrowed(target),
            query => Cow::Owned(format!("{target}?{query}")),
        };
        Ok(Some(Entry {
            site: values.site.into(),
            method: method.into(),
            target,
            at,
            moment: self.moment,
            total: values.total,
            wait: 0,
            upstream: values.upstream,
            sent: !values.not_sent,
        }))
    }

    fn fraction_unit(&self) -> Option<i64> {
        self.items.iter().find_map(|item| match item {
            Item::Field(Field::Fraction(unit)) => Some(*unit),
            Item::Field(_) | Item::Literal(_) => None,
        })
    }
}

impl<'a> Values<'a> {
    fn take(&mut self, field: &Field, value: &'a str) -> Result<(), Wrong> {
        let number = |unit| {
            decimal(value.trim(), unit)
                .map(|(nanos, _)| nanos)
                .ok_or_else(|| Wrong(format!("a number instead of `{}`", start(value)).into()))
        };
        match field {
            Field::Skip => {}
            Field::Request => self.request = Some(value),
            Field::Method => self.method = if value == "-" { "" } else { value },
            Field::Target => self.target = Some(value),
            Field::Query => self.query = value,
            Field::Site => self.site = if value == "-" { "" } else { value },
            Field::Time(..) if self.time.is_empty() => self.time = value.into(),
            Field::Time(Time::Format(_), _) => {
                self.time.to_mut().push(' ');
                self.time.to_mut().push_str(value);
            }
            Field::Time(Time::Iso | Time::Epoch(_), _) => {}
            Field::Fraction(unit) => self.fraction = number(*unit)?,
            Field::Total(unit) if value.trim() != "-" => self.total = Some(number(*unit)?),
            Field::Total(_) => {}
            Field::Upstream(unit) => match upstream(value, *unit)? {
                Some(nanos) => self.upstream = Some(nanos),
                None => self.not_sent = true,
            },
        }
        Ok(())
    }
}

/// Times of all servers that were asked, added up: `0.010, 0.250 : 0.030`; none if none was.
pub(super) fn upstream(value: &str, unit: i64) -> Result<Option<i64>, Wrong> {
    let mut sum = None;
    let parts = value.split([',', ':']).map(str::trim);
    for part in parts.filter(|part| !part.is_empty() && *part != "-") {
        let (nanos, _) = decimal(part, unit)
            .ok_or_else(|| Wrong(format!("upstream times instead of `{}`", start(value)).into()))?;
        sum = Some(nanos.saturating_add(sum.unwrap_or(0)));
    }
    Ok(sum)
}

/// Where a field ends that this text follows.
fn field_end(rest: &str, next: &str, field: &Field, quoted: bool) -> Option<usize> {
    if quoted && next.starts_with('"') {
        return unescaped(rest, next);
    }
    if *field == Field::Upstream(SECOND) {
        // `0.1, 0.2 : 0.3` is one value.
        let joined = |at: &usize| {
            rest[..*at].ends_with([',', ':']) || rest[*at..].trim_start().starts_with([',', ':'])
        };
        let mut ends = rest.match_indices(next).map(|(at, _)| at);
        return ends.find(|at| !next.starts_with(' ') || !joined(at));
    }
    // Some values have the separator in them.
    let within = match field {
        Field::Time(Time::Format(format), _) => format.matches(next).count(),
        Field::Time(Time::Iso | Time::Epoch(_), _) => 0,
        Field::Request if next == " " && !rest.starts_with('-') => 2,
        Field::Skip
        | Field::Request
        | Field::Method
        | Field::Target
        | Field::Query
        | Field::Site
        | Field::Fraction(_)
        | Field::Total(_)
        | Field::Upstream(_) => 0,
    };
    let mut found = rest.match_indices(next).map(|(at, _)| at);
    found.nth(within)
}

/// Where `end`, which begins with a quote, stands and its quote is not escaped.
fn unescaped(text: &str, end: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'\\' => escaped = !escaped,
            b'"' if !escaped && text[at..].starts_with(end) => return Some(at),
            _ => escaped = false,
        }
    }
    None
}

/// Pieces of text side by side become one; a target and its query become one field.
fn joined(items: Vec<Item>) -> Vec<Item> {
    let mut joined: Vec<Item> = Vec::new();
    for item in items {
        match (joined.last_mut(), item) {
            (Some(Item::Literal(text)), Item::Literal(more)) => text.push_str(&more),
            (Some(Item::Field(Field::Target)), Item::Field(Field::Query)) => {}
            (_, Item::Literal(text)) if text.is_empty() => {}
            (_, item) => joined.push(item),
        }
    }
    joined
}

/// The beginning of a text, for messages.
pub(super) fn start(text: &str) -> String {
    text.chars().take(40).collect()
}
