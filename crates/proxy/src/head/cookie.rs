//! A cookie by its name, from the request's head, without an allocation.

use http::HeaderMap;
use http::header::COOKIE;

/// Bytes of cookies that are looked through; browsers send 4096 at most for one.
const COOKIES_BYTES_MAX: usize = 16 << 10;

/// The value of the first cookie of this name (RFC 6265 §4.2.1), without the quotes that it may have.
pub(crate) fn find<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    let mut left = COOKIES_BYTES_MAX;
    for value in headers.get_all(COOKIE) {
        let bytes = value.as_bytes();
        let bytes = &bytes[..bytes.len().min(left)];
        left -= bytes.len();
        if let Some(found) = in_one(bytes, name.as_bytes()) {
            return Some(found);
        }
    }
    None
}

fn in_one<'a>(cookies: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    cookies.split(|byte| *byte == b';').find_map(|pair| {
        let value = pair.trim_ascii().strip_prefix(name)?.strip_prefix(b"=")?;
        let quoted = value
            .strip_prefix(b"\"")
            .and_then(|it| it.strip_suffix(b"\""));
        Some(quoted.unwrap_or(value))
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn found(lines: &[&str], name: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(COOKIE, HeaderValue::from_str(line).unwrap());
        }
        find(&headers, name).map(|value| String::from_utf8_lossy(value).into_owned())
    }

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        let cases: &[(&[&str], Option<&str>)] = &[
            (&["sid=abc"], Some("abc")),
            (&["a=1; sid=abc; b=2"], Some("abc")),
            (&["a=1;sid=abc"], Some("abc")),
            (&["a=1", "sid=abc"], Some("abc")),
            (&["sid=one; sid=two"], Some("one")),
            (&["sid=\"abc\""], Some("abc")),
            (&["sid=a=b"], Some("a=b")),
            (&["sid="], Some("")),
            (&["sid=\""], Some("\"")),
            (&["xsid=abc; sidx=abc"], None),
            (&["sid"], None),
            (&["; ;=;"], None),
            (&[], None),
        ];
        for (lines, expected) in cases {
            assert_eq!(found(lines, "sid").as_deref(), *expected, "{lines:?}");
        }
    }

    #[test]
    fn what_stands_behind_more_cookies_than_any_browser_sends_is_not_looked_for() {
        let long = "a=1; ".repeat(COOKIES_BYTES_MAX);
        assert_eq!(found(&[&long, "sid=abc"], "sid"), None);
        assert_eq!(found(&[&format!("{long}; sid=abc")], "sid"), None);
        assert_eq!(found(&["sid=abc", &long], "sid").as_deref(), Some("abc"));
        let sid = "sid=abc";
        let before = |bytes: usize| "a".repeat(bytes - sid.len());
        let last = before(COOKIES_BYTES_MAX);
        assert_eq!(found(&[&last, sid], "sid").as_deref(), Some("abc"));
        // One byte more of what stands before is one byte less that is seen.
        let last = before(COOKIES_BYTES_MAX + sid.len());
        assert_eq!(found(&[&last, sid], "sid"), None);
    }
}
