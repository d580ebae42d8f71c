//! Logs with an object a line: nginx and Apache as users set them up, Caddy, Traefik, Envoy,
//! Elastic's field names, Google's, and our own.
//!
//! Which fields tell what is found out once, by their names. A duration whose name has no unit is
//! in seconds if it has a fraction and in milliseconds if not, and says so in the format's name. A
//! time is the end of a request unless its name says start; ours is the start.

use std::borrow::Cow;

use serde_json::Value;

use super::template::{start, upstream};
use super::{Entry, Moment, Wrong, request_line};
use crate::time::{COMMON, SECOND, Stamp, decimal};

const MILLISECOND: i64 = SECOND / 1000;
const MICROSECOND: i64 = 1000;

/// The name of a field; dots lead into objects.
type Name = &'static str;
/// The unit follows from the value: see the module.
const BY_VALUE: i64 = 0;

const STARTS: &[Name] = &[
    "start_time",
    "StartUTC",
    "StartLocal",
    "startTime",
    "request_start",
    "time_start",
];
const ENDS: &[Name] = &[
    "time",
    "timestamp",
    "@timestamp",
    "ts",
    "time_iso8601",
    "msec",
    "time_local",
    "date",
    "datetime",
    "logged_at",
    "end_time",
];
const METHODS: &[Name] = &[
    "method",
    "request_method",
    "RequestMethod",
    "http_method",
    "verb",
    "request.method",
    "http.request.method",
    "req.method",
    "httpRequest.requestMethod",
    "requestMethod",
];
const TARGETS: &[Name] = &[
    "request_uri",
    "uri",
    "path",
    "url",
    "RequestPath",
    "request.uri",
    "url.original",
    "url.path",
    "req.url",
    "request_path",
    "http_uri",
    "httpRequest.requestUrl",
    "requestUrl",
    "http.url",
    "target",
];
const REQUESTS: &[Name] = &["request", "request_line", "message"];
const SITES: &[Name] = &[
    "site",
    "vhost",
    "server_name",
    "ServiceName",
    "RequestHost",
    "request.host",
    "url.domain",
    "http_host",
    "host",
    "authority",
];
const TOTALS: &[(Name, i64)] = &[
    ("duration_ns", 1),
    ("duration_us", MICROSECOND),
    ("duration_ms", MILLISECOND),
    ("duration_seconds", SECOND),
    ("duration_s", SECOND),
    ("request_time", SECOND),
    ("request_time_ms", MILLISECOND),
    ("response_time_ms", MILLISECOND),
    ("responseTimeMs", MILLISECOND),
    ("latency_ns", 1),
    ("latency_us", MICROSECOND),
    ("latency_ms", MILLISECOND),
    ("elapsed_ms", MILLISECOND),
    ("took_ms", MILLISECOND),
    ("event.duration", 1),
    ("Duration", 1),
    ("httpRequest.latency", SECOND),
    ("duration", BY_VALUE),
    ("responseTime", BY_VALUE),
    ("response_time", BY_VALUE),
    ("latency", BY_VALUE),
    ("elapsed", BY_VALUE),
];
const UPSTREAMS: &[(Name, i64)] = &[
    ("upstream_response_time", SECOND),
    ("upstream_response_time_ms", MILLISECOND),
    ("OriginDuration", 1),
    ("upstream_duration_ms", MILLISECOND),
];
/// Ours: from the head to the last try.
const QUEUE: Name = "queue_us";
/// Ours: which server answered.
const NODE: Name = "node";

/// Which fields tell what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    time: Name,
    moment: Moment,
    method: Option<Name>,
    target: Target,
    site: Option<Name>,
    total: Option<(Name, i64)>,
    upstream: Option<(Name, i64)>,
    own: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// Path and query.
    Path(Name),
    /// The request line.
    Line(Name),
}

impl Names {
    /// What these lines have; none if they are no objects with a time and a request.
    pub(super) fn detect(lines: &[String]) -> Option<Self> {
        let objects = lines.iter().map(|line| serde_json::from_str::<Value>(line));
        let objects: Vec<_> = objects.flatten().filter(Value::is_object).collect();
        let has = |name: &Name| objects.iter().any(|object| get(object, name).is_some());
        let text = |name: &Name| {
            let mut found = objects.iter().filter_map(|object| get(object, name));
            found.any(Value::is_string)
        };
        let known = |(name, _): &(Name, i64)| has(name);
        let own = has(&QUEUE) && has(&"duration_us");
        let start = STARTS.iter().copied().find(has);
        let target = TARGETS.iter().copied().find(text).map(Target::Path);
        let line = || REQUESTS.iter().copied().find(text).map(Target::Line);
        let time = start.or_else(|| ENDS.iter().copied().find(has))?;
        Some(Self {
            time,
            moment: if own || start.is_some() {
                Moment::Start
            } else {
                Moment::End
            },
            method: METHODS.iter().copied().find(text),
            target: target.or_else(line)?,
            site: SITES.iter().copied().find(text),
            total: TOTALS.iter().copied().find(known),
            upstream: UPSTREAMS.iter().copied().find(known),
            own,
        })
    }

    /// What it is called, with what was taken for granted.
    pub(super) fn name(&self) -> String {
        if self.own {
            return "Tidegate, JSON".into();
        }
        let moment = match self.moment {
            Moment::Start => "start",
            Moment::End => "end",
        };
        let duration = match (self.total, self.upstream) {
            (_, Some((name, _))) => format!("`{name}`"),
            (Some((name, BY_VALUE)), None) => {
                format!("`{name}` (assumed: seconds with a fraction, milliseconds without)")
            }
            (Some((name, _)), None) => format!("`{name}`"),
            (None, None) => "no durations".into(),
        };
        format!("JSON: `{}` is the {moment}, {duration}", self.time)
    }

    /// Reads a line.
    pub(super) fn read(&self, line: &str) -> Result<Option<Entry<'static>>, Wrong> {
        let object: Value =
            serde_json::from_str(line).map_err(|_| Wrong::new("an object of JSON"))?;
        let text = |name: Option<Name>| {
            let found = name
                .and_then(|name| get(&object, name))
                .and_then(Value::as_str);
            found.unwrap_or_default().to_owned()
        };
        let missing = |name: Name| Wrong(format!("a field `{name}` that can be read").into());
        let at = get(&object, self.time)
            .and_then(stamp)
            .ok_or_else(|| missing(self.time))?;
        let mut method = text(self.method);
        let target = match self.target {
            Target::Path(name) => match get(&object, name).and_then(Value::as_str) {
                Some(target) => target.to_owned(),
                None => return Err(missing(name)),
            },
            Target::Line(name) => match request_line(&text(Some(name))) {
                Some((of_line, target)) => {
                    method = of_line.to_owned();
                    target.to_owned()
                }
                None => return Ok(None),
            },
        };
        let total = match self
            .total
            .and_then(|(name, unit)| Some((get(&object, name)?, unit)))
        {
            Some((value, unit)) => nanos(value, unit)?,
            None => None,
        };
        let upstream = match self.upstream {
            Some((name, unit)) => get(&object, name).map(|value| nanos(value, unit)),
            None => None,
        };
        let wait = match get(&object, QUEUE) {
            Some(value) if self.own => nanos(value, MICROSECOND)?.unwrap_or(0),
            Some(_) | None => 0,
        };
        let upstream = upstream.transpose()?;
        Ok(Some(Entry {
            site: Cow::Owned(text(self.site)),
            method: Cow::Owned(method),
            target: Cow::Owned(target),
            at,
            moment: self.moment,
            total,
            wait,
            upstream: upstream.flatten(),
            sent: upstream != Some(None) && (!self.own || get(&object, NODE).is_some()),
        }))
    }
}

/// A field by its name, or by the way to it.
fn get<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let direct = object.get(name);
    let nested = || {
        name.split('.')
            .try_fold(object, |inner, part| inner.get(part))
    };
    direct.or_else(nested).filter(|value| !value.is_null())
}

fn stamp(value: &Value) -> Option<Stamp> {
    match value {
        Value::Number(number) => Stamp::epoch_by_size(&number.to_string()),
        Value::String(text) => Stamp::iso(text)
            .or_else(|| Stamp::by_format(COMMON, text))
            .or_else(|| Stamp::epoch_by_size(text)),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A duration; none if it says that there is none.
fn nanos(value: &Value, unit: i64) -> Result<Option<i64>, Wrong> {
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.trim().to_owned(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => String::new(),
    };
    if text == "-" {
        return Ok(None);
    }
    let wrong = || Wrong(format!("a duration instead of `{}`", start(&text)).into());
    let end = text.find(|letter: char| letter.is_ascii_alphabetic() || letter == 'µ');
    let (number, suffix) = text.split_at(end.unwrap_or(text.len()));
    let unit = match suffix {
        "" if unit == BY_VALUE && number.contains('.') => SECOND,
        "" if unit == BY_VALUE => MILLISECOND,
        "" => unit,
        "s" => SECOND,
        "ms" => MILLISECOND,
        "us" | "µs" => MICROSECOND,
        "ns" => 1,
        // 1e-05 is how some write ten microseconds.
        _ => {
            let seconds: f64 = text.parse().map_err(|_| wrong())?;
            let unit = if unit == BY_VALUE { SECOND } else { unit };
            let nanos = seconds * unit as f64;
            return Ok((nanos.is_finite() && (0.0..9e18).contains(&nanos)).then_some(nanos as i64));
        }
    };
    if number.contains([',', ':']) {
        return upstream(number, unit);
    }
    decimal(number.trim(), unit)
        .map(|(nanos, _)| Some(nanos))
        .ok_or_else(wrong)
}
