//! Answers of our own in place of the node's: the same for a connection that is closed behind it,
//! as bytes, and for one that stays, as a response. What a site adds to them is in `answers`.

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Response, StatusCode};

use crate::record::reason::Reason;

pub(crate) const REASON: HeaderName = HeaderName::from_static("x-tidegate-reason");
/// Methods that are not refused as such (RFC 9110 §15.5.6 wants them named).
const ALLOWED: HeaderValue =
    HeaderValue::from_static("GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS");
pub(crate) const CLOSE: HeaderValue = HeaderValue::from_static("close");
/// A client that did not wait, in logs.
pub(crate) const CLIENT_CLOSED: u16 = 499;
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// An answer on a connection that stays, unless the head was malformed.
pub(crate) fn answer(reason: Reason) -> Response<Bytes> {
    let text = Bytes::from_static(reason.what().as_bytes());
    let mut response = Response::new(text);
    *response.status_mut() = on_the_wire(reason.status());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, TEXT);
    headers.insert(REASON, HeaderValue::from_static(reason.label()));
    if reason == Reason::MethodRefused {
        headers.insert(ALLOW, ALLOWED);
    }
    if reason == Reason::MethodRefused || reason.status() == StatusCode::BAD_REQUEST {
        // What comes behind a malformed head, or a CONNECT, is not trusted to be a request.
        headers.insert(CONNECTION, CLOSE);
    }
    response
}

/// 499 is of logs only: hardly any client is left that could read the answer.
fn on_the_wire(status: StatusCode) -> StatusCode {
    match status.as_u16() {
        CLIENT_CLOSED => StatusCode::BAD_REQUEST,
        _ => status,
    }
}

/// The answer to an OPTIONS request that may go no further.
pub(crate) fn options_answer() -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    response.headers_mut().insert(ALLOW, ALLOWED);
    response
}

/// A whole answer, for a connection that is closed behind it.
pub(crate) fn ready_made(reason: Reason) -> Bytes {
    closing(answer(reason))
}

/// The bytes of a response of our own; the connection is closed behind them.
pub(crate) fn closing(response: Response<Bytes>) -> Bytes {
    let (mut parts, body) = response.into_parts();
    parts.headers.insert(CONNECTION, CLOSE);
    let status = parts.status.canonical_reason().unwrap_or_default();
    let mut bytes = format!("HTTP/1.1 {} {status}\r\n", parts.status.as_u16()).into_bytes();
    for (name, value) in &parts.headers {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
    bytes.extend_from_slice(&body);
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ready_made_answer_is_well_formed() {
        for reason in Reason::ALL {
            let answer = ready_made(*reason);
            let mut headers = [httparse::EMPTY_HEADER; 16];
            let mut parsed = httparse::Response::new(&mut headers);
            let head = parsed.parse(&answer).unwrap().unwrap();
            let status = on_the_wire(reason.status()).as_u16();
            assert_eq!(parsed.code, Some(status));
            assert_ne!(status, CLIENT_CLOSED, "{}", reason.label());
            let header = |name: &str| {
                let found = parsed.headers.iter().find(|it| it.name == name);
                found.map(|it| std::str::from_utf8(it.value).unwrap())
            };
            assert_eq!(header("x-tidegate-reason"), Some(reason.label()));
            assert_eq!(header("connection"), Some("close"));
            let length = (answer.len() - head).to_string();
            assert_eq!(header("content-length"), Some(length.as_str()));
            assert_eq!(&answer[head..], reason.what().as_bytes());
        }
    }
}
