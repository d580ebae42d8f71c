//! How the fields of a JSON line are written that an operator has chosen.
//!
//! ```text
//! at the head      of each field of the request     length | ,"name":value      (nothing, if it does not apply)
//! at the answer    of each header of the answer     length | ,"name":value
//! at the end       in the order of the choice, those from above and those of the end; the first comma becomes a brace
//! ```
//!
//! Failure case: a header is what others sent, so it is cut ([`FIELD_BYTES_MAX`]) and escaped; one that holds a secret is
//! written where it is named, and nowhere else.

use std::io::Write as _;

use http::{HeaderMap, HeaderName};

use super::format::{json_optional, json_string, put, rfc3339};
use super::{FIELD_BYTES_MAX, Head, Tail};
use crate::config::log_fields::{LogField, LogFields, OfEnd, OfHead, Source};

/// Bytes of a length before what is as long.
const LENGTH: usize = size_of::<u32>();

impl LogFields {
    /// Writes what is known with the head.
    pub(super) fn begin(&self, out: &mut Vec<u8>, head: &Head<'_>) {
        for LogField { key, source } in &*self.fields {
            match source {
                Source::Head(field) => piece(out, |out| field.write(key, head, out)),
                Source::RequestHeader(name) => {
                    piece(out, |out| write_header(key, head.headers, name, out));
                }
                Source::ResponseHeader(_) | Source::End(_) => {}
            }
        }
    }

    /// Writes what is known with the answer's head.
    pub(super) fn answer(&self, out: &mut Vec<u8>, headers: &HeaderMap) {
        for LogField { key, source } in &*self.fields {
            if let Source::ResponseHeader(name) = source {
                piece(out, |out| write_header(key, headers, name, out));
            }
        }
    }

    /// Writes the line, of which the pieces of the head and of the answer are given.
    pub(super) fn end(
        &self,
        mut of_head: &[u8],
        mut of_answer: &[u8],
        tail: &Tail<'_>,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        for LogField { key, source } in &*self.fields {
            match source {
                Source::Head(_) | Source::RequestHeader(_) => {
                    out.extend_from_slice(take_piece(&mut of_head));
                }
                Source::ResponseHeader(_) => out.extend_from_slice(take_piece(&mut of_answer)),
                Source::End(field) => field.write(key, tail, out),
            }
        }
        match out.get_mut(start) {
            Some(comma) => *comma = b'{',
            None => out.push(b'{'),
        }
        out.extend_from_slice(b"}\n");
    }
}

/// Writes something with its length before it.
fn piece(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH]);
    write(out);
    let length = (out.len() - start - LENGTH) as u32;
    out[start..start + LENGTH].copy_from_slice(&length.to_ne_bytes());
}

/// The next piece; nothing if there is none.
fn take_piece<'a>(pieces: &mut &'a [u8]) -> &'a [u8] {
    let taken = pieces.split_first_chunk().and_then(|(length, rest)| {
        let length = u32::from_ne_bytes(*length) as usize;
        rest.split_at_checked(length)
    });
    let (piece, rest) = taken.unwrap_or_default();
    *pieces = rest;
    piece
}

/// A header's value, if it is there: of several lines one (RFC 9110 §5.3), and no more than a field may have.
fn write_header(key: &[u8], headers: &HeaderMap, name: &HeaderName, out: &mut Vec<u8>) {
    let mut values = headers.get_all(name).iter().map(|it| it.as_bytes());
    let Some(first) = values.next() else { return };
    out.extend_from_slice(key);
    match values.next() {
        None => json_string(out, &first[..first.len().min(FIELD_BYTES_MAX)]),
        Some(second) => {
            let mut all = first.to_vec();
            for value in std::iter::once(second).chain(values) {
                if all.len() >= FIELD_BYTES_MAX {
                    break;
                }
                all.extend_from_slice(b", ");
                all.extend_from_slice(value);
            }
            all.truncate(FIELD_BYTES_MAX);
            json_string(out, &all);
        }
    }
}

impl OfHead {
    fn write(self, key: &[u8], head: &Head<'_>, out: &mut Vec<u8>) {
        if self == Self::TraceId {
            if let Some(trace) = head.trace() {
                out.extend_from_slice(key);
                plain_string(out, trace);
            }
            return;
        }
        out.extend_from_slice(key);
        match self {
            Self::Time => {
                out.push(b'"');
                rfc3339(out, head.unix_nanos);
                out.push(b'"');
            }
            Self::Client => plain_string(out, head.client),
            Self::Method => json_string(out, head.method.as_bytes()),
            Self::Host => json_optional(out, head.host()),
            Self::Path => json_string(out, head.target()),
            Self::Version => plain_string(out, head.version()),
            Self::Referer => json_optional(out, head.referer()),
            Self::UserAgent => json_optional(out, head.user_agent()),
            Self::TraceId => {}
        }
    }
}

/// A text of our own, in which nothing is to be escaped.
fn plain_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

impl OfEnd {
    fn write(self, key: &[u8], tail: &Tail<'_>, out: &mut Vec<u8>) {
        let micros = |value: Option<std::time::Duration>| value.map(|it| it.as_micros() as u64);
        let why = tail.why.as_ref();
        let text = match self {
            Self::Site => tail.site,
            Self::Node => tail.node,
            Self::Throttle => tail.throttle,
            Self::Sticky => why.and_then(|it| it.sticky.label()),
            Self::Hedged => tail.hedged.map(|it| it.label()),
            Self::Reason => tail.reason.map(|it| it.label()),
            Self::Score => {
                // A policy that compares nothing has no score, and JSON has no NaN.
                if let Some(score) = why.map(|it| it.score).filter(|it| it.is_finite()) {
                    out.extend_from_slice(key);
                    put!(out, "{score}");
                }
                return;
            }
            Self::Id => {
                out.extend_from_slice(key);
                put!(out, "\"{}\"", tail.id);
                return;
            }
            Self::RetryDenied => return flag(out, key, tail.retry_denied.then_some(true)),
            Self::FailOpen => return flag(out, key, why.map(|it| it.fail_open)),
            Self::Status => return number(out, key, Some(tail.status.into())),
            Self::Bytes => return number(out, key, Some(tail.bytes)),
            Self::BytesIn => return number(out, key, Some(tail.bytes_in)),
            Self::Duration => return number(out, key, Some(tail.duration_us)),
            Self::Queue => return number(out, key, Some(tail.queue_us)),
            Self::Upstream => return number(out, key, tail.upstream_us),
            Self::Tries => return number(out, key, Some(tail.tries.into())),
            Self::Compared => return number(out, key, why.map(|it| it.compared.into())),
            Self::LoadAge => return number(out, key, micros(why.and_then(|it| it.load_age))),
            Self::InFlight => return number(out, key, why.map(|it| it.in_flight.into())),
            Self::Held => return number(out, key, tail.held_us),
            Self::Experiment => return number(out, key, tail.experiment_us),
        };
        if let Some(text) = text {
            out.extend_from_slice(key);
            json_string(out, text.as_bytes());
        }
    }
}

fn number(out: &mut Vec<u8>, key: &[u8], value: Option<u64>) {
    if let Some(value) = value {
        out.extend_from_slice(key);
        put!(out, "{value}");
    }
}

fn flag(out: &mut Vec<u8>, key: &[u8], value: Option<bool>) {
    if let Some(value) = value {
        out.extend_from_slice(key);
        put!(out, "{value}");
    }
}
