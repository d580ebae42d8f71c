//! How a line is written. What a client sent never breaks out of its field: quotes, backslashes,
//! control characters and invalid UTF-8 are escaped, so a line stays one line and one object.

use std::io::Write;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

use super::{Head, Tail};

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Writes a number or a formatted piece. A `Vec` takes all.
macro_rules! put {
    ($out:expr, $($argument:tt)*) => {{
        let written = write!($out, $($argument)*);
        debug_assert!(written.is_ok(), "a Vec takes all");
    }};
}
pub(super) use put;

pub(super) fn combined_head(out: &mut Vec<u8>, head: &Head<'_>) {
    out.extend_from_slice(head.client.as_bytes());
    out.extend_from_slice(b" - - [");
    clf_time(out, head.unix_nanos);
    out.extend_from_slice(b"] \"");
    quoted(out, head.method.as_bytes());
    out.push(b' ');
    quoted(out, head.target());
    put!(out, " HTTP/{}\"", head.version());
}

pub(super) fn combined_result(out: &mut Vec<u8>, tail: &Tail<'_>) {
    put!(out, " {} {}", tail.status, tail.bytes);
}

pub(super) fn combined_middle(out: &mut Vec<u8>, head: &Head<'_>) {
    for field in [head.referer(), head.user_agent()] {
        out.extend_from_slice(b" \"");
        quoted(out, field.unwrap_or(b"-"));
        out.push(b'"');
    }
    out.extend_from_slice(b" host=\"");
    quoted(out, head.host().unwrap_or(b"-"));
    out.push(b'"');
}

pub(super) fn combined_tail(out: &mut Vec<u8>, tail: &Tail<'_>) {
    put!(
        out,
        " bytes_in={} duration_us={} queue_us={}",
        tail.bytes_in,
        tail.duration_us,
        tail.queue_us
    );
    if let Some(micros) = tail.upstream_us {
        put!(out, " upstream_us={micros}");
    }
    for (name, value) in [("site", tail.site), ("node", tail.node)] {
        if let Some(value) = value {
            put!(out, " {name}=\"");
            quoted(out, value.as_bytes());
            out.push(b'"');
        }
    }
    put!(out, " tries={}", tail.tries);
    if tail.retry_denied {
        out.extend_from_slice(b" retry_denied=true");
    }
    if let Some(hedged) = tail.hedged {
        put!(out, " hedged={}", hedged.label());
    }
    if let Some(why) = &tail.why {
        put!(out, " compared={}", why.compared);
        if why.score.is_finite() {
            put!(out, " score={}", why.score);
        }
        if let Some(age) = why.load_age {
            put!(out, " load_age_us={}", age.as_micros());
        }
        put!(
            out,
            " in_flight={} fail_open={}",
            why.in_flight,
            why.fail_open
        );
        if let Some(sticky) = why.sticky.label() {
            put!(out, " sticky={sticky}");
        }
    }
    if let Some(throttle) = tail.throttle {
        put!(out, " throttle=\"");
        quoted(out, throttle.as_bytes());
        out.push(b'"');
    }
    if let Some(micros) = tail.held_us {
        put!(out, " held_us={micros}");
    }
    if let Some(micros) = tail.experiment_us {
        put!(out, " experiment_us={micros}");
    }
    if let Some(reason) = tail.reason {
        put!(out, " reason={}", reason.label());
    }
    put!(out, " id={}", tail.id);
    out.push(b'\n');
}

pub(super) fn json_optional(out: &mut Vec<u8>, text: Option<&[u8]>) {
    match text {
        Some(text) => json_string(out, text),
        None => out.extend_from_slice(b"null"),
    }
}

pub(super) fn json_string(out: &mut Vec<u8>, text: &[u8]) {
    // What is no UTF-8 is taken as Latin-1, byte by byte.
    let utf8 = text.is_ascii() || std::str::from_utf8(text).is_ok();
    let plain = |byte: u8| match byte {
        b'"' | b'\\' | 0x7f => false,
        0x80.. => utf8,
        byte => byte >= 0x20,
    };
    out.push(b'"');
    escape(out, text, plain, |out, byte| match byte {
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        byte => {
            out.extend_from_slice(b"\\u00");
            hex(out, byte);
        }
    });
    out.push(b'"');
}

/// As Apache does: backslash before quotes and backslashes, `\xhh` for all but printable ASCII.
fn quoted(out: &mut Vec<u8>, text: &[u8]) {
    let plain = |byte: u8| (0x20..0x7f).contains(&byte) && byte != b'"' && byte != b'\\';
    escape(out, text, plain, |out, byte| match byte {
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        byte => {
            out.extend_from_slice(b"\\x");
            hex(out, byte);
        }
    });
}

fn escape(
    out: &mut Vec<u8>,
    text: &[u8],
    plain: impl Fn(u8) -> bool,
    write: impl Fn(&mut Vec<u8>, u8),
) {
    let mut from = 0;
    for (index, byte) in text.iter().copied().enumerate() {
        if !plain(byte) {
            out.extend_from_slice(&text[from..index]);
            write(out, byte);
            from = index + 1;
        }
    }
    out.extend_from_slice(&text[from..]);
}

fn hex(out: &mut Vec<u8>, byte: u8) {
    out.push(HEX[usize::from(byte >> 4)]);
    out.push(HEX[usize::from(byte & 15)]);
}

/// A point in time as people write it, in UTC.
fn civil(unix_nanos: u64) -> DateTime {
    let seconds = Duration::from_nanos(unix_nanos).as_secs() as i64;
    // 64 bits of nanoseconds end in the year 2554, jiff's calendar in 9999.
    let at = Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
    Offset::UTC.to_datetime(at)
}

pub(super) fn rfc3339(out: &mut Vec<u8>, unix_nanos: u64) {
    let at = civil(unix_nanos);
    put!(
        out,
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z",
        at.year(),
        at.month(),
        at.day(),
        at.hour(),
        at.minute(),
        at.second(),
        unix_nanos / 1000 % 1_000_000
    );
}

fn clf_time(out: &mut Vec<u8>, unix_nanos: u64) {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let at = civil(unix_nanos);
    put!(
        out,
        "{:02}/{}/{:04}:{:02}:{:02}:{:02} +0000",
        at.day(),
        MONTHS[usize::from(at.month().unsigned_abs()) - 1],
        at.year(),
        at.hour(),
        at.minute(),
        at.second()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        let cases = [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (1_078_012_799, "2004-02-28T23:59:59.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
            (1_767_225_599, "2025-12-31T23:59:59.000000Z"),
        ];
        for (seconds, expected) in cases {
            let text = written(|out| rfc3339(out, seconds * 1_000_000_000));
            assert_eq!(text, expected);
        }
        let clf = written(|out| clf_time(out, 971_186_136_000_000_000));
        assert_eq!(clf, "10/Oct/2000:13:55:36 +0000");
        let micros = written(|out| rfc3339(out, 1_234_567_890));
        assert_eq!(micros, "1970-01-01T00:00:01.234567Z");
    }

    #[test]
    fn no_field_breaks_out() {
        let hostile = b"a\"b\\c\r\nd\x00\x7f\xc3\xa4\xff";
        let json = written(|out| json_string(out, hostile));
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        let latin: String = hostile.iter().map(|byte| char::from(*byte)).collect();
        assert_eq!(read, latin);
        assert_eq!(
            written(|out| quoted(out, hostile)),
            r#"a\"b\\c\x0d\x0ad\x00\x7f\xc3\xa4\xff"#
        );
        assert_eq!(written(|out| json_string(out, "ä€".as_bytes())), "\"ä€\"");
    }
}
