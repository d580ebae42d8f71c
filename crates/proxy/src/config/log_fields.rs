//! The fields of JSON lines of the access log: all that there are, with their meaning, and those that an operator has
//! chosen, whose names and places are found once.

use std::sync::Arc;

use http::HeaderName;

/// What a field of the request's head is named by, before the header's name.
const OF_REQUEST: &str = "request.header.";
/// The same of the answer's.
const OF_RESPONSE: &str = "response.header.";
/// Headers that hold what lets their bearer in.
const SECRETS: &[&str] = &[
    "authorization",
    "proxy-authorization",
    "cookie",
    "set-cookie",
    "x-api-key",
    "x-auth-token",
    "x-csrf-token",
    "x-amz-security-token",
];
macro_rules! fields {
    ($(#[doc = $about:literal])* $name:ident { $($variant:ident = $label:literal: $what:literal;)* }) => {
        $(#[doc = $about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name { $($variant),* }

        impl $name {
            /// Each with its name and what it means.
            const ALL: &'static [(Self, &'static str, &'static str)] =
                &[$((Self::$variant, $label, $what)),*];

            fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().find(|(_, label, _)| *label == name).map(|(field, ..)| *field)
            }
        }
    };
}

fields! {
    /// What is known with the request's head.
    OfHead {
        Time = "time": "when the head was read, RFC 3339, UTC";
        Client = "client": "address of the connection, whatever `X-Forwarded-For` says";
        Method = "method": "of the request";
        Host = "host": "of the request; null if not sent";
        Path = "path": "of the request, with its query";
        Version = "version": "of HTTP: `1.0`, `1.1`, `2.0`";
        Referer = "referer": "of the request; null if not sent";
        UserAgent = "user_agent": "of the request; null if not sent";
        TraceId = "trace_id": "the trace that the request belongs to, if its `traceparent` names one (W3C Trace Context); `[forwarded] traceparent = \"make\"` begins one for each that belongs to none";
    }
}

fields! {
    /// What is known at the end.
    OfEnd {
        Status = "status": "of the answer; 499 if the client left before there was one, 400 in the middle of its body (`body_cut`)";
        Bytes = "bytes": "of the answer's body";
        BytesIn = "bytes_in": "of the request's body";
        Duration = "duration_us": "from the head to the last byte handed over, or to the failure";
        Queue = "queue_us": "from the head to the last time that a node was chosen, or to the refusal if none was: waits for room, throttles, earlier tries";
        Upstream = "upstream_us": "from there to the head of the node's answer";
        Site = "site": "where it belonged";
        Node = "node": "the node that had it last";
        Tries = "tries": "nodes that it was sent to";
        RetryDenied = "retry_denied": "true if it was not tried again because the retry budget was used up";
        Hedged = "hedged": "what became of a [second node](hedging.md), if the first one was slow: `won`, `lost`, `failed`, `no_room`, `no_budget`";
        Compared = "compared": "nodes that the policy compared";
        Score = "score": "the chosen node's score";
        LoadAge = "load_age_us": "age of the load record that the choice rested on";
        InFlight = "in_flight": "own requests at the node, this one included";
        FailOpen = "fail_open": "whether ejections were ignored for this choice";
        Sticky = "sticky": "of a [sticky session](sticky.md): `home` (it went to its session's node), `new` (which has none yet), or why not: `node_out`, `loaded`, `no_room`, `retried`";
        Throttle = "throttle": "the [throttled](throttles.md) class that it met";
        Held = "held_us": "how long that held it";
        Experiment = "experiment_us": "by how much a delay experiment on its class ([culprits](culprits.md)) delayed it";
        Id = "id": "by what `tidegate why ID` and the page find it among the last requests, and, with `id_header`, its client";
        Reason = "reason": "why it did not end with the node's own answer, see below";
    }
}

/// A field that there is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogFieldError {
    /// None has this name.
    #[error("no such field")]
    Unknown,
    /// It is of a request or an answer, and not `request.header.` or `response.header.` with the name of a header.
    #[error("not the name of a header")]
    BadHeader,
}

/// Where a field's value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Head(OfHead),
    RequestHeader(HeaderName),
    ResponseHeader(HeaderName),
    End(OfEnd),
}

/// A field of JSON lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogField {
    /// Its name as it is written: `,"name":`.
    pub(crate) key: Box<[u8]>,
    pub(crate) source: Source,
}

impl LogField {
    /// The field that is written by a name of its own: one of [`Self::all`], `request.header.NAME` or
    /// `response.header.NAME`.
    ///
    /// # Errors
    /// There is no such field.
    pub fn new(name: &str, field: &str) -> Result<Self, LogFieldError> {
        let header = |name: &str| name.parse().map_err(|_| LogFieldError::BadHeader);
        let source = if let Some(name) = field.strip_prefix(OF_REQUEST) {
            Source::RequestHeader(header(name)?)
        } else if let Some(name) = field.strip_prefix(OF_RESPONSE) {
            Source::ResponseHeader(header(name)?)
        } else {
            let of_head = OfHead::named(field).map(Source::Head);
            let of_end = || OfEnd::named(field).map(Source::End);
            let is_message = |kind| {
                field
                    .strip_prefix(kind)
                    .is_some_and(|it| it.starts_with('.'))
            };
            of_head.or_else(of_end).ok_or({
                match is_message("request") || is_message("response") {
                    true => LogFieldError::BadHeader,
                    false => LogFieldError::Unknown,
                }
            })?
        };
        Ok(Self::of(name, source))
    }

    fn of(name: &str, source: Source) -> Self {
        let key = format!(",{}:", serde_json::Value::from(name));
        Self {
            key: key.into_bytes().into(),
            source,
        }
    }

    /// Every field but headers, in the order of a line: its name, and what it means.
    pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> + Clone {
        let of_head = OfHead::ALL.iter().map(|(_, name, what)| (*name, *what));
        of_head.chain(OfEnd::ALL.iter().map(|(_, name, what)| (*name, *what)))
    }

    /// Whether it is a header that lets its bearer in, and so should stand in no log by accident.
    pub fn is_secret(&self) -> bool {
        match &self.source {
            Source::RequestHeader(name) | Source::ResponseHeader(name) => {
                SECRETS.contains(&name.as_str())
            }
            Source::Head(_) | Source::End(_) => false,
        }
    }
}

/// The fields of JSON lines, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFields {
    pub(crate) fields: Arc<[LogField]>,
    of_response: bool,
}

impl Default for LogFields {
    /// All but headers.
    fn default() -> Self {
        let of_head = OfHead::ALL
            .iter()
            .map(|(field, name, _)| LogField::of(name, Source::Head(*field)));
        let of_end = OfEnd::ALL
            .iter()
            .map(|(field, name, _)| LogField::of(name, Source::End(*field)));
        Self::new(of_head.chain(of_end).collect())
    }
}

impl LogFields {
    /// These.
    pub fn new(fields: Vec<LogField>) -> Self {
        let is_of_response = |it: &LogField| matches!(it.source, Source::ResponseHeader(_));
        Self {
            of_response: fields.iter().any(is_of_response),
            fields: fields.into(),
        }
    }

    /// Whether answers are looked at.
    pub(crate) fn are_of_response(&self) -> bool {
        self.of_response
    }
}
