//! Heads of HTTP/2 in the form that all checks and nodes know, that of HTTP/1.1, and back. Pure functions over heads.
//!
//! The library has refused what is no HTTP/2 already: pseudo-header fields that are missing, unknown, twice there or behind others,
//! fields of one connection, names in capitals, a `TE` that is not `trailers`, a length that the frames do not keep. Here is the rest:
//!
//! | rule | source |
//! |---|---|
//! | `:authority` becomes `Host`; a `Host` beside it says the same | RFC 9113 §8.3.1 |
//! | the target is what `:path` says: origin form, or `*` | RFC 9113 §8.3.1 |
//! | lines of `Cookie` are joined | RFC 9113 §8.2.3 |
//! | `CONNECT` for a WebSocket becomes an upgrade, and the agreement to it a 200 | RFC 8441 §5 |
//! | a body without a length is chunked towards the node; a request without a body has no length but 0 | RFC 9112 §6.3 |
//! | fields of one connection do not go back, in trailers neither | RFC 9113 §8.2.2 |
//!
//! Failure case: a head that breaks such a rule is answered with 400.

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE,
};
use http::header::{SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY};
use http::{HeaderMap, Method, Response, StatusCode, Uri, request, response};

use super::{KEEP_ALIVE, PROXY_CONNECTION};
use crate::record::reason::Reason;

/// The protocol that may be asked for by CONNECT.
const WEBSOCKET: &str = "websocket";
/// Most fields of an interim response.
const INTERIM_FIELDS_MAX: usize = 128;
/// Fields of one connection.
const OF_CONNECTION: [HeaderName; 5] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// How long a request's body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyLength {
    /// There is none.
    None,
    /// So many bytes.
    Known(u64),
    /// It ends when it ends.
    Unknown,
}

/// Makes the request for a WebSocket, which HTTP/2 writes as a CONNECT with a protocol, the upgrade that HTTP/1.1 has for it (RFC 6455 §4.1).
/// True if it is one. Another protocol stays a CONNECT, which is refused.
pub(crate) fn receive_tunnel(
    head: &mut request::Parts,
    protocol: &str,
    nonce: impl FnOnce() -> [u8; 16],
) -> bool {
    if head.method != Method::CONNECT || !protocol.eq_ignore_ascii_case(WEBSOCKET) {
        return false;
    }
    head.method = Method::GET;
    let headers = &mut head.headers;
    headers.remove(CONTENT_LENGTH);
    if let Ok(key) = HeaderValue::try_from(base64(&nonce())) {
        headers.insert(SEC_WEBSOCKET_KEY, key);
    }
    true
}

/// Says in a head that it asks for a WebSocket; a received head says nothing of its connection.
pub(crate) fn ask_tunnel(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(WEBSOCKET));
}

/// The answer to a WebSocket's request that the node has agreed to.
pub(crate) fn agree_to_tunnel(head: &mut response::Parts) {
    head.status = StatusCode::OK;
    // It is the node's answer to our key.
    head.headers.remove(SEC_WEBSOCKET_ACCEPT);
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = group
            .iter()
            .fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - group.len()));
        for digit in 0..4 {
            let index = bits >> (18 - 6 * digit) & 63;
            text.push(match digit <= group.len() {
                true => char::from(DIGITS[index as usize]),
                false => '=',
            });
        }
    }
    text
}

/// Gives a request's head the form of HTTP/1.1; `has_body` if its stream goes on. It is a whole head even where it is refused, so that
/// it can be logged.
pub(crate) fn receive(head: &mut request::Parts, has_body: bool) -> Result<BodyLength, Reason> {
    let host = receive_target(head);
    join_cookies(&mut head.headers);
    strip(&mut head.headers);
    host?;
    let length = head.headers.get(CONTENT_LENGTH);
    let length = length.map(|it| it.to_str().ok()?.parse::<u64>().ok());
    match (has_body, length) {
        (false, None | Some(Some(0))) => Ok(BodyLength::None),
        (true, Some(Some(length))) => Ok(BodyLength::Known(length)),
        (true, None) => {
            let chunked = HeaderValue::from_static("chunked");
            head.headers.insert(TRANSFER_ENCODING, chunked);
            Ok(BodyLength::Unknown)
        }
        (_, Some(_)) => Err(Reason::BadRequest),
    }
}

/// The target in origin form, and its authority as `Host`.
fn receive_target(head: &mut request::Parts) -> Result<(), Reason> {
    if head.method == Method::CONNECT {
        // It is refused for its method.
        return Ok(());
    }
    let uri = std::mem::take(&mut head.uri).into_parts();
    head.uri = uri.path_and_query.map_or_else(Uri::default, Uri::from);
    let Some(authority) = uri.authority else {
        return Ok(());
    };
    let text = authority.as_str();
    let mut hosts = head.headers.get_all(HOST).iter();
    let differs = hosts.any(|host| !host.as_bytes().eq_ignore_ascii_case(text.as_bytes()));
    let host = HeaderValue::from_str(text).map_err(|_| Reason::BadHost)?;
    head.headers.insert(HOST, host);
    match differs {
        true => Err(Reason::BadHost),
        false => Ok(()),
    }
}

/// One line of cookies: clients send one for each, so that they compress better.
fn join_cookies(headers: &mut HeaderMap) {
    let mut lines = headers.get_all(COOKIE).iter();
    let (Some(_), Some(_)) = (lines.next(), lines.next()) else {
        return;
    };
    let lines: Vec<_> = headers.get_all(COOKIE).iter().collect();
    let lines: Vec<_> = lines.iter().map(|line| line.as_bytes()).collect();
    // Values and the bytes between them are values together.
    if let Ok(joined) = HeaderValue::from_bytes(&lines.join(&b"; "[..])) {
        headers.insert(COOKIE, joined);
    }
}

/// Takes out of a head, or of trailers, what is of one connection, and does not go over HTTP/2.
pub(crate) fn strip(headers: &mut HeaderMap) {
    // Mostly there is none: names are compared rather than looked up.
    if headers.keys().any(|name| OF_CONNECTION.contains(name)) {
        for name in &OF_CONNECTION {
            headers.remove(name);
        }
    }
}

/// Interim responses that were written for HTTP/1.1.
pub(crate) fn interims(mut heads: &[u8]) -> Vec<Response<()>> {
    let mut interims = Vec::new();
    while let Some((interim, length)) = first_interim(heads) {
        interims.push(interim);
        heads = heads.get(length..).unwrap_or_default();
    }
    interims
}

/// The first of them, and how long it is.
fn first_interim(heads: &[u8]) -> Option<(Response<()>, usize)> {
    let mut fields = [httparse::EMPTY_HEADER; INTERIM_FIELDS_MAX];
    let mut parsed = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(length) = parsed.parse(heads).ok()? else {
        return None;
    };
    let mut interim = Response::new(());
    *interim.status_mut() = StatusCode::from_u16(parsed.code?).ok()?;
    for field in parsed.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        let value = HeaderValue::from_bytes(field.value).ok()?;
        interim.headers_mut().append(name, value);
    }
    strip(interim.headers_mut());
    Some((interim, length))
}

#[cfg(any(test, feature = "fuzzing"))]
#[path = "../../../../fuzz/invariants/http2.rs"]
pub(crate) mod invariants;

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn head(uri: &str, fields: &[(&str, &str)]) -> request::Parts {
        let mut builder = Request::builder().uri(uri);
        for (name, value) in fields {
            builder = builder.header(*name, *value);
        }
        builder.body(()).unwrap().into_parts().0
    }

    #[test]
    fn the_authority_is_the_host() {
        let mut got = head("https://shop.example:8443/a?b", &[]);
        assert_eq!(receive(&mut got, false), Ok(BodyLength::None));
        assert_eq!(got.uri, "/a?b");
        assert_eq!(got.headers["host"], "shop.example:8443");
        let mut same = head("https://shop.example/", &[("host", "Shop.Example")]);
        assert_eq!(receive(&mut same, false), Ok(BodyLength::None));
        assert_eq!(same.headers["host"], "shop.example");
        let mut alone = head("/", &[("host", "shop.example")]);
        assert_eq!(receive(&mut alone, false), Ok(BodyLength::None));
        assert_eq!(alone.headers["host"], "shop.example");
        for hosts in [&["other.example"][..], &["shop.example", "other.example"]] {
            let fields: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
            let mut other = head("https://shop.example/", &fields);
            assert_eq!(receive(&mut other, false), Err(Reason::BadHost));
            assert_eq!(other.headers.get_all("host").iter().count(), 1);
        }
    }

    #[test]
    fn cookies_are_one_line() {
        let cookies = [("cookie", "a=1"), ("x", "y"), ("cookie", "b=2; c=3")];
        let mut got = head("https://shop.example/", &cookies);
        receive(&mut got, false).unwrap();
        let lines: Vec<_> = got.headers.get_all("cookie").iter().collect();
        assert_eq!(lines, ["a=1; b=2; c=3"]);
        let mut one = head("https://shop.example/", &cookies[..1]);
        receive(&mut one, false).unwrap();
        assert_eq!(one.headers["cookie"], "a=1");
    }

    #[test]
    fn a_length_says_what_follows() {
        let cases = [
            (None, false, Ok(BodyLength::None), false),
            (Some("0"), false, Ok(BodyLength::None), false),
            (Some("5"), false, Err(Reason::BadRequest), false),
            (Some("5"), true, Ok(BodyLength::Known(5)), false),
            (Some("five"), true, Err(Reason::BadRequest), false),
            (Some("-5"), true, Err(Reason::BadRequest), false),
            (None, true, Ok(BodyLength::Unknown), true),
        ];
        for (length, has_body, expected, chunked) in cases {
            let fields: Vec<_> = length.iter().map(|it| ("content-length", *it)).collect();
            let mut got = head("https://shop.example/", &fields);
            assert_eq!(receive(&mut got, has_body), expected, "{length:?}");
            assert_eq!(got.headers.contains_key("transfer-encoding"), chunked);
        }
    }

    #[test]
    fn a_websocket_is_asked_for_by_an_upgrade() {
        let mut got = head("https://shop.example/chat", &[("content-length", "3")]);
        got.method = Method::CONNECT;
        assert!(!receive_tunnel(&mut got, "connect-udp", || [0; 16]));
        assert_eq!(got.method, Method::CONNECT);
        assert!(receive_tunnel(&mut got, "websocket", || {
            *b"the sample nonce"
        }));
        assert_eq!(receive(&mut got, false), Ok(BodyLength::None));
        ask_tunnel(&mut got.headers);
        assert_eq!(
            (got.method, got.uri),
            (Method::GET, Uri::from_static("/chat"))
        );
        // The example of RFC 6455 §1.3.
        assert_eq!(got.headers["sec-websocket-key"], "dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(got.headers["connection"], "upgrade");
        assert_eq!(got.headers["upgrade"], "websocket");
        assert_eq!(got.headers["host"], "shop.example");
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
        ] {
            assert_eq!(base64(bytes), text);
        }
    }

    #[test]
    fn fields_of_a_connection_stay_there() {
        let mut headers = HeaderMap::new();
        for name in &OF_CONNECTION {
            headers.insert(name, HeaderValue::from_static("x"));
        }
        headers.insert("x-kept", HeaderValue::from_static("y"));
        strip(&mut headers);
        assert_eq!(headers.len(), 1);
        let mut got = head("https://a/", &[("transfer-encoding", "chunked")]);
        receive(&mut got, false).unwrap();
        assert!(!got.headers.contains_key("transfer-encoding"));
    }

    #[test]
    fn interim_responses_are_read_again() {
        let text = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\nlink: </b>\r\nconnection: x\r\n\r\n\
            HTTP/1.1 100 Continue\r\n\r\n";
        let [hints, go_on] = &interims(text)[..] else {
            panic!("two");
        };
        assert_eq!(hints.status(), StatusCode::EARLY_HINTS);
        assert_eq!(hints.headers().get_all("link").iter().count(), 2);
        assert_eq!(hints.headers().len(), 2);
        assert_eq!(go_on.status(), StatusCode::CONTINUE);
        assert!(interims(b"HTTP/1.1 103 Early").is_empty());
        assert!(interims(b"").is_empty());
    }
}
