//! Answers of our own: made ready for a connection that is not read at all, or as a response in
//! place of the node's. And how a refused client gets to read them: closing a socket with unread
//! bytes makes the kernel reset it, and a reset can overtake the answer. So a refused connection
//! lingers: its sending side is closed, and what still comes is read and thrown away, for a
//! while and up to a size.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::body::ResponseBody;
use crate::reason::Reason;

pub(crate) const REASON: HeaderName = HeaderName::from_static("x-tidegate-reason");
/// What a refused client may still send before it is cut off.
const LINGER_BYTES_MAX: usize = 1 << 20;
/// Methods that are not refused as such (RFC 9110 §15.5.6 wants them named).
const ALLOWED: HeaderValue =
    HeaderValue::from_static("GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS");
const CLOSE: HeaderValue = HeaderValue::from_static("close");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
/// Seconds after which a client that was refused for overload may come again.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("1");

/// A whole answer, for a connection that is closed behind it.
pub(crate) fn ready_made(reason: Reason) -> Vec<u8> {
    let status = reason.status();
    let retry = if retries(status) {
        "retry-after: 1\r\n"
    } else {
        ""
    };
    format!(
        "HTTP/1.1 {} {}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n\
         connection: close\r\n{retry}{REASON}: {}\r\n\r\n{}\n",
        status.as_u16(),
        status.canonical_reason().unwrap_or_default(),
        reason.what().len() + 1,
        reason.label(),
        reason.what()
    )
    .into_bytes()
}

/// An answer on a connection that stays, unless the head was malformed.
pub(crate) fn answer(reason: Reason) -> Response<ResponseBody> {
    let text = Bytes::from_static(reason.what().as_bytes());
    let mut response = Response::new(ResponseBody::Ready(Some(text)));
    *response.status_mut() = reason.status();
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
    if retries(reason.status()) {
        headers.insert(RETRY_AFTER, RETRY_AFTER_SECONDS);
    }
    response
}

/// The answer to an OPTIONS request that may go no further.
pub(crate) fn options_answer() -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Empty);
    response.headers_mut().insert(ALLOW, ALLOWED);
    response
}

fn retries(status: StatusCode) -> bool {
    status == StatusCode::SERVICE_UNAVAILABLE
}

/// Sends a last answer, if there is one, and lets the client read it.
pub(crate) async fn linger(mut stream: TcpStream, answer: Option<Vec<u8>>, limit: Duration) {
    let farewell = async {
        if let Some(answer) = answer {
            stream.write_all(&answer).await?;
        }
        stream.shutdown().await?;
        let mut sink = [0; 4096];
        let mut left = LINGER_BYTES_MAX;
        while left > 0 {
            let read = stream.read(&mut sink).await?;
            if read == 0 {
                break;
            }
            left = left.saturating_sub(read);
        }
        std::io::Result::Ok(())
    };
    // Whatever goes wrong here goes wrong for a client that has left.
    tokio::time::timeout(limit, farewell).await.ok();
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
            assert_eq!(parsed.code, Some(reason.status_code()));
            let header = |name: &str| {
                let found = parsed.headers.iter().find(|it| it.name == name);
                found.map(|it| std::str::from_utf8(it.value).unwrap())
            };
            assert_eq!(header("x-tidegate-reason"), Some(reason.label()));
            let length = (answer.len() - head).to_string();
            assert_eq!(header("content-length"), Some(length.as_str()));
        }
    }
}
