//! What must hold for any bytes that are taken for a message's head. Shared by the fuzz target and by the tests
//! of `tidegate-proxy`.
//!
//! 1. Checking and preparing never panic.
//! 2. What goes to a node is HTTP/1.1 in origin or asterisk form, with one `Host` of harmless bytes unless an
//!    HTTP/1.0 client gave none, and is in order itself.
//! 3. No field that ends at this hop goes on, nor one that a server may take for such a field or for one of ours.
//! 4. What is said of the client is what we know, if it is not trusted.
//! 5. Lengths go on below 2^63 and without zeros in front; an answer has one, and none beside chunks.

use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, Request, StatusCode, Version};

use super::{
    Hop, KEEP_ALIVE, PROXY_CONNECTION, X_FORWARDED_FOR, check as check_head, is_claim, is_folded,
    prepare, prepare_response,
};
use crate::config::{ForwardedConfig, Limits};
use crate::head::forwarded::{X_FORWARDED_HOST, X_FORWARDED_PROTO};

const CLIENT: &str = "192.0.2.7";
const FIELDS_MAX: usize = 100;

/// Checks all of them.
pub(crate) fn check(bytes: &[u8]) {
    if let Some(request) = request(bytes) {
        check_request(&request);
    }
}

/// The same of a head that is read, by whatever version of HTTP it came.
pub(crate) fn check_request(request: &Request<()>) {
    answers(request.headers());
    if let Ok(checked) = check_head(request, Limits::default().uri_bytes) {
        let (facts, host) = (checked.facts, checked.host.to_owned());
        assert!(is_harmless(&host), "{host}");
        for has_body in [false, true] {
            let mut request = request.clone();
            let config = ForwardedConfig::default();
            let client_value = HeaderValue::from_static(CLIENT);
            let hop = Hop {
                config: &config,
                client: CLIENT.parse().expect("an address"),
                client_value: &client_value,
                scheme: "http",
                asks_certificate: false,
                certificate: None,
            };
            if prepare(&mut request, &facts, has_body, &hop).is_ok() {
                goes_on(&request, &host);
            }
        }
    }
}

/// As hyper's parser hands it over.
fn request(bytes: &[u8]) -> Option<Request<()>> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut fields);
    parsed.parse(bytes).ok().filter(|it| it.is_complete())?;
    let version = match parsed.version? {
        0 => Version::HTTP_10,
        _ => Version::HTTP_11,
    };
    let mut request = Request::builder()
        .method(parsed.method?)
        .uri(parsed.path?)
        .version(version)
        .body(())
        .ok()?;
    for field in &*parsed.headers {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        let value = HeaderValue::from_bytes(field.value).ok()?;
        request.headers_mut().append(name, value);
    }
    Some(request)
}

fn is_harmless(host: &str) -> bool {
    let odd = |byte: u8| !byte.is_ascii_graphic() || b"\"#,/<>?@\\^`{|}".contains(&byte);
    !host.bytes().any(odd)
}

fn goes_on(request: &Request<()>, host: &str) {
    assert_eq!(request.version(), Version::HTTP_11);
    let uri = request.uri();
    assert!(uri.scheme().is_none() && uri.authority().is_none(), "{uri}");
    assert!(uri.path().starts_with('/') || uri.path() == "*", "{uri}");
    let headers = request.headers();
    let all = |name: HeaderName| headers.get_all(name).iter().collect::<Vec<_>>();
    match all(HOST).as_slice() {
        [] => assert_eq!(host, ""),
        hosts => assert_eq!(hosts, &[host]),
    }
    for name in [KEEP_ALIVE, PROXY_CONNECTION] {
        assert!(!headers.contains_key(&name), "{headers:?}");
    }
    match all(CONNECTION).as_slice() {
        [] => assert!(!headers.contains_key(UPGRADE), "{headers:?}"),
        [one] if *one == "te" => assert_eq!(all(TE), ["trailers"]),
        others => assert_eq!(others, &["upgrade"]),
    }
    assert!(all(TRANSFER_ENCODING).len() <= 1, "{headers:?}");
    if !headers.contains_key(TRANSFER_ENCODING) {
        assert!(all(CONTENT_LENGTH).len() <= 1, "{headers:?}");
        all(CONTENT_LENGTH).into_iter().for_each(is_length);
    }
    assert!(!headers.keys().any(|it| is_folded(it.as_str())));
    assert_eq!(all(X_FORWARDED_FOR), [CLIENT]);
    assert_eq!(all(X_FORWARDED_PROTO), ["http"]);
    assert_eq!(all(X_FORWARDED_HOST), all(HOST));
    let ours = [X_FORWARDED_FOR, X_FORWARDED_PROTO, X_FORWARDED_HOST];
    let claims = |it: &&HeaderName| is_claim(it.as_str()) && !ours.contains(it);
    assert_eq!(headers.keys().find(claims), None);
    if headers.contains_key(HOST) {
        let again = check_head(request, Limits::default().uri_bytes);
        let again = again.map(|it| it.host.to_owned());
        assert_eq!(again.as_deref(), Ok(host), "{request:?}");
    }
}

/// As its number would be written.
fn is_length(value: &HeaderValue) {
    let text = value.to_str().expect("text");
    let number: i64 = text.parse().expect("a number in 63 bits");
    assert_eq!(number.to_string(), text);
}

fn answers(fields: &HeaderMap) {
    for status in [StatusCode::OK, StatusCode::SWITCHING_PROTOCOLS] {
        let mut headers = fields.clone();
        if prepare_response(&mut headers, status, Version::HTTP_11, None).is_err() {
            continue;
        }
        let lengths: Vec<_> = headers.get_all(CONTENT_LENGTH).iter().collect();
        assert!(lengths.len() <= 1, "{headers:?}");
        assert!(!headers.contains_key(TRANSFER_ENCODING), "{headers:?}");
        for length in lengths {
            is_length(length);
            assert!(!fields.contains_key(TRANSFER_ENCODING), "{headers:?}");
        }
        for name in [KEEP_ALIVE, PROXY_CONNECTION] {
            assert!(!headers.contains_key(&name), "{headers:?}");
        }
        let connection = headers.get(CONNECTION);
        assert!(connection.is_none_or(|it| it == "upgrade"), "{headers:?}");
    }
}
