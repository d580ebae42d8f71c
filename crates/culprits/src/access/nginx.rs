//! nginx's `log_format`.
//!
//! A line is written when its request is over, so every time is the end. `$upstream_response_time`
//! is the time at the servers, one after the other; nginx has read the request by then and a slow
//! client reads from its buffers. Source: the documentation of `ngx_http_log_module` and
//! `ngx_http_upstream_module`.

use super::Moment;
use super::template::{Field, Item, Template, Time};
use crate::time::{COMMON, SECOND};

/// Reads a format string, or the whole `log_format name '...' '...';`.
pub(super) fn compile(text: &str) -> Result<Template, String> {
    let text = of_line(text);
    let mut items = Vec::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find('$') {
        items.push(Item::Literal(rest[..at].to_owned()));
        let after = &rest[at + 1..];
        let (name, after) = match after.strip_prefix('{') {
            Some(inner) => inner.split_once('}').ok_or("a `}` is missing")?,
            None => {
                let word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
                after.split_at(after.find(|letter| !word(letter)).unwrap_or(after.len()))
            }
        };
        if name.is_empty() {
            return Err("a `$` without a variable's name".into());
        }
        items.push(Item::Field(field(name)));
        rest = after;
    }
    items.push(Item::Literal(rest.to_owned()));
    Template::new(items)
}

/// The quoted pieces of a configuration, one behind the other.
fn of_line(text: &str) -> String {
    let Some(rest) = text.strip_prefix("log_format") else {
        return text.to_owned();
    };
    let mut format = String::new();
    let mut rest = rest;
    while let Some(at) = rest.find(['\'', '"']) {
        let quote = &rest[at..=at];
        let inner = &rest[at + 1..];
        let (piece, after) = inner.split_once(quote).unwrap_or((inner, ""));
        format.push_str(piece);
        rest = after;
    }
    format
}

fn field(name: &str) -> Field {
    match name {
        "request" => Field::Request,
        "request_method" => Field::Method,
        "request_uri" | "uri" | "document_uri" => Field::Target,
        "args" | "query_string" => Field::Query,
        "host" | "http_host" | "server_name" => Field::Site,
        "time_local" => Field::Time(Time::Format(COMMON.into()), Moment::End),
        "time_iso8601" => Field::Time(Time::Iso, Moment::End),
        "msec" => Field::Time(Time::Epoch(SECOND), Moment::End),
        "request_time" => Field::Total(SECOND),
        "upstream_response_time" => Field::Upstream(SECOND),
        _ => Field::Skip,
    }
}
