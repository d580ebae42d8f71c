//! What is read of a certificate itself, in DER (X.690) by the form of RFC 5280 §4.1: its validity, and its subject as
//! text.
//!
//! Formula: a value is a tag, a length, and so many bytes; lengths of up to four bytes are read. Failure case: none, where
//! anything is not as expected. Nothing here decides whether a certificate is believed.

use std::fmt::Write as _;
use std::ops::Range;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
const ENUMERATED: u8 = 0x0a;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// `[0]`: the version, or the body of a response.
const VERSION: u8 = 0xa0;
/// Strings whose bytes are text of one byte a letter or UTF-8: UTF8String, NumericString, PrintableString, IA5String.
const STRINGS: [u8; 4] = [0x0c, 0x12, 0x13, 0x16];
/// A subject as text has at most so many bytes.
const SUBJECT_MAX: usize = 1024;

/// Attributes of a subject that have a short name (RFC 4514 §3, and the address for mail).
const ATTRIBUTES: [(&[u8], &str); 10] = [
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 9], "STREET"),
    (&[0x55, 4, 5], "serialNumber"),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25],
        "DC",
    ),
    (
        &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1],
        "emailAddress",
    ),
];

/// Takes the next value off: its tag, and its bytes.
fn take<'a>(rest: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&[tag, first], mut after) = rest.split_first_chunk::<2>()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        let count = usize::from(first & 0x7f);
        if !(1..=4).contains(&count) {
            return None;
        }
        let (bytes, behind) = after.split_at_checked(count)?;
        length = bytes
            .iter()
            .fold(0, |sum, byte| (sum << 8) | usize::from(*byte));
        after = behind;
    }
    let (value, behind) = after.split_at_checked(length)?;
    *rest = behind;
    Some((tag, value))
}

fn take_of<'a>(rest: &mut &'a [u8], wanted: u8) -> Option<&'a [u8]> {
    take(rest).filter(|(tag, _)| *tag == wanted).map(|it| it.1)
}

/// What stands behind the issuer: validity, subject, and more.
fn from_validity(certificate: &[u8]) -> Option<&[u8]> {
    let mut rest = certificate;
    let mut certificate = take_of(&mut rest, SEQUENCE)?;
    let mut rest = take_of(&mut certificate, SEQUENCE)?;
    if rest.first() == Some(&VERSION) {
        take(&mut rest)?;
    }
    // Serial number, algorithm of the signature, issuer.
    for _ in 0..3 {
        take(&mut rest)?;
    }
    Some(rest)
}

/// From when until when a certificate is valid, in seconds since 1970; dates before that are 0.
pub(super) fn validity(certificate: &[u8]) -> Option<Range<u64>> {
    let mut rest = from_validity(certificate)?;
    let mut dates = take_of(&mut rest, SEQUENCE)?;
    let from = time(take(&mut dates)?)?;
    let until = time(take(&mut dates)?)?;
    Some(from..until)
}

/// Whether a file has an OCSP response that says something (RFC 6960 §4.2.1): status 0 and a body.
pub fn is_ocsp_response(file: &[u8]) -> bool {
    let mut rest = file;
    let Some(mut response) = take_of(&mut rest, SEQUENCE) else {
        return false;
    };
    let is_successful = take_of(&mut response, ENUMERATED) == Some(&[0]);
    let has_body =
        take(&mut response).is_some_and(|(tag, body)| tag == VERSION && !body.is_empty());
    is_successful && has_body && rest.is_empty()
}

/// `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ` (RFC 5280 §4.1.2.5).
fn time((tag, text): (u8, &[u8])) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = match tag {
        UTC_TIME if text.len() == 12 => {
            let year: i64 = text[..2].parse().ok()?;
            (
                if year < 50 { 2000 + year } else { 1900 + year },
                &text[2..],
            )
        }
        GENERALIZED_TIME if text.len() == 14 => (text[..4].parse().ok()?, &text[4..]),
        _ => return None,
    };
    let two = |at: usize| rest[at..at + 2].parse::<i64>().ok();
    let (month, day) = (two(0)?, two(2)?);
    let (hour, minute, second) = (two(4)?, two(6)?, two(8)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    Some(u64::try_from(seconds).unwrap_or(0))
}

/// Days since 1970 of a date of the Gregorian calendar: years begin in March, so that the leap day is the last one.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The subject as text (RFC 4514): the last part first. Letters that mean something, there or in a header field, are
/// written as their bytes in hexadecimal, so none of them ends what it stands in.
pub(super) fn subject(certificate: &[u8]) -> Option<String> {
    let mut rest = from_validity(certificate)?;
    take_of(&mut rest, SEQUENCE)?;
    let mut name = take_of(&mut rest, SEQUENCE)?;
    let mut parts = Vec::new();
    while !name.is_empty() {
        let mut set = take_of(&mut name, SET)?;
        let mut part = String::new();
        while !set.is_empty() {
            let mut attribute = take_of(&mut set, SEQUENCE)?;
            let kind = take_of(&mut attribute, OBJECT_ID)?;
            let (tag, value) = take(&mut attribute)?;
            if !part.is_empty() {
                part.push('+');
            }
            write_attribute(&mut part, kind, tag, value);
        }
        parts.push(part);
    }
    parts.reverse();
    let text = parts.join(",");
    (text.len() <= SUBJECT_MAX).then_some(text)
}

fn write_attribute(out: &mut String, kind: &[u8], tag: u8, value: &[u8]) {
    let known = ATTRIBUTES.iter().find(|(id, _)| *id == kind);
    match known {
        Some((_, name)) => out.push_str(name),
        None => write_id(out, kind),
    }
    out.push('=');
    if known.is_some() && STRINGS.contains(&tag) {
        return write_value(out, value);
    }
    out.push('#');
    for byte in value {
        write_hex(out, *byte);
    }
}

fn write_value(out: &mut String, value: &[u8]) {
    for (index, byte) in value.iter().enumerate() {
        let at_edge = index == 0 || index + 1 == value.len();
        let is_plain = match byte {
            b' ' | b'#' => !at_edge,
            b'"' | b'\\' | b',' | b'+' | b';' | b'<' | b'>' | b'=' => false,
            byte => byte.is_ascii_graphic(),
        };
        if is_plain {
            out.push(char::from(*byte));
        } else {
            out.push('\\');
            write_hex(out, *byte);
        }
    }
}

fn write_hex(out: &mut String, byte: u8) {
    // Text takes whatever is written to it.
    write!(out, "{byte:02X}").unwrap_or_default();
}

/// An object's number: the first byte holds two parts, seven bits of each other one count (X.690 §8.19).
fn write_id(out: &mut String, id: &[u8]) {
    let mut parts = Vec::new();
    let mut part: u64 = 0;
    for byte in id {
        part = (part << 7) | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            if parts.is_empty() {
                let first = (part / 40).min(2);
                parts.push(first.to_string());
                part -= first * 40;
            }
            parts.push(part.to_string());
            part = 0;
        }
    }
    out.push_str(&parts.join("."));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_seconds() {
        let cases: [(u8, &str, Option<u64>); 8] = [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (UTC_TIME, "500101000000Z", Some(0)),
            (GENERALIZED_TIME, "20000229120000Z", Some(951_825_600)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, "20001301000000Z", None),
            (UTC_TIME, "20000229120000Z", None),
            (UTC_TIME, "0002291200 0Z", None),
        ];
        for (tag, text, expected) in cases {
            assert_eq!(time((tag, text.as_bytes())), expected, "{text}");
        }
    }

    #[test]
    fn values_are_written_so_that_they_end_nothing() {
        let mut out = String::new();
        write_attribute(&mut out, &[0x55, 4, 3], 0x0c, b" a\"b,c=d\r\n# ");
        assert_eq!(out, "CN=\\20a\\22b\\2Cc\\3Dd\\0D\\0A#\\20");
        out.clear();
        write_attribute(&mut out, &[0x2a, 0x86, 0x48, 1], 0x0c, b"x");
        assert_eq!(out, "1.2.840.1=#78");
        out.clear();
        write_attribute(&mut out, &[0x55, 4, 3], 0x1e, b"\0x");
        assert_eq!(out, "CN=#0078", "another kind of string");
    }

    #[test]
    fn a_response_says_something() {
        let good = [SEQUENCE, 7, ENUMERATED, 1, 0, VERSION, 2, SEQUENCE, 0];
        assert!(is_ocsp_response(&good));
        let try_later = [SEQUENCE, 3, ENUMERATED, 1, 3];
        for bad in [&good[..8], &try_later, b"-----BEGIN CERTIFICATE-----", b""] {
            assert!(!is_ocsp_response(bad), "{bad:?}");
        }
        let longer = [&good[..], &[0]].concat();
        assert!(!is_ocsp_response(&longer));
    }

    #[test]
    fn whatever_is_no_certificate_has_neither() {
        let mut bytes = vec![SEQUENCE, 0x84, 0xff, 0xff, 0xff, 0xff];
        for length in 0..bytes.len() {
            assert_eq!(validity(&bytes[..length]), None);
            assert_eq!(subject(&bytes[..length]), None);
        }
        bytes[1] = 0x85;
        assert_eq!(validity(&bytes), None);
        assert_eq!(subject(&[SEQUENCE, 4, SEQUENCE, 2, 2, 0]), None);
    }
}
