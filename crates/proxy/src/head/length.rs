//! What heads say of the length of a body, as it goes on: one number below 2^63 without zeros in front. Servers that
//! count in 63 bits take a longer one for something else, and some take `010` for 8.

use http::HeaderMap;
use http::header::{CONTENT_LENGTH, HeaderValue};

/// The longest body, bytes.
const LENGTH_MAX: u64 = i64::MAX as u64;
/// A number of so few digits is below it.
const LENGTH_DIGITS_PLAIN: usize = 18;

/// The one value of all `Content-Length` fields and of the lists in them (RFC 9112 §6.3), written without zeros in
/// front; none if there is none or it is beyond [`LENGTH_MAX`]. Where a response has no body hyper has not looked.
#[cold]
pub(super) fn one_length(headers: &HeaderMap) -> Option<HeaderValue> {
    let values = headers.get_all(CONTENT_LENGTH).iter();
    let mut all = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let first = all.next()?.trim_ascii();
    if !first.iter().all(u8::is_ascii_digit) || !all.all(|other| other.trim_ascii() == first) {
        return None;
    }
    let length: u64 = std::str::from_utf8(first).ok()?.parse().ok()?;
    (length <= LENGTH_MAX).then(|| HeaderValue::from(length))
}

/// Whether a `Content-Length` can go on as it is: it is a number without zeros in front, far below [`LENGTH_MAX`].
pub(super) fn is_plain_length(value: &[u8]) -> bool {
    (1..=LENGTH_DIGITS_PLAIN).contains(&value.len())
        && value.iter().all(u8::is_ascii_digit)
        && (value[0] != b'0' || value.len() == 1)
}
