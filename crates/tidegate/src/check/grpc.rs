//! `grpc`: whether a server, or a service of it, says that it serves: `grpc.health.v1.Health/Check` over HTTP/2 (gRPC health checking
//! protocol, version 1).
//!
//! | what comes back | the node |
//! |---|---|
//! | `SERVING` (1) | is well |
//! | another serving status: `UNKNOWN` (0), `NOT_SERVING` (2), `SERVICE_UNKNOWN` (3) | is not; the code says which |
//! | a status of gRPC that is not 0: it does not know the service (5), or health checks (12) | is not; the code says which |
//! | anything else | is no server of gRPC |

use bytes::Bytes;
use http::header::{CONTENT_TYPE, TE, USER_AGENT};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_core::topology::CheckFailure;

use super::{Target, Unwell, connect_by};

/// Bytes of an answer: five and a field.
const ANSWER_MAX: usize = 1024;
const HEAD_BYTES_MAX: u32 = 16 << 10;
const MALFORMED: CheckFailure = CheckFailure::Malformed("gRPC");
/// What a server says that serves.
const SERVING: u32 = 1;
/// What a call of gRPC ends with that went well.
const OK: u32 = 0;

pub(super) async fn ask(target: &Target<'_>, service: &str) -> Result<(), Unwell> {
    let stream = connect_by(target).await?;
    let scheme = if target.tls.is_some() {
        "https"
    } else {
        "http"
    };
    let uri = format!("{scheme}://{}/grpc.health.v1.Health/Check", target.address);
    let request = Request::post(uri)
        .header(CONTENT_TYPE, "application/grpc")
        .header(TE, "trailers")
        .header(USER_AGENT, "tidegate-check")
        .body(Full::new(Bytes::from(question(service))));
    let request = request.map_err(|_| MALFORMED)?;
    let mut http = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    http.max_header_list_size(HEAD_BYTES_MAX);
    let handshake = http.handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|_| CheckFailure::Broken)?;
    let answer = async {
        let answer = sender.send_request(request).await;
        let (head, body) = answer.map_err(|_| CheckFailure::Broken)?.into_parts();
        if head.status != http::StatusCode::OK {
            return Err(CheckFailure::Status(head.status.as_u16()));
        }
        judge(&head.headers, body).await
    };
    // The connection works for the answer, and ends with it.
    tokio::select! {
        judged = answer => Ok(judged?),
        () = async { connection.await.ok(); std::future::pending().await } => Err(CheckFailure::Broken.into()),
    }
}

/// `HealthCheckRequest { service: 1 }` as a message of gRPC: not compressed, its length, itself.
fn question(service: &str) -> Vec<u8> {
    let field = match u8::try_from(service.len()) {
        // An empty field is left out; a longer one than the configuration allows is not asked for.
        Ok(length @ 1..=127) => [&[10, length], service.as_bytes()].concat(),
        Ok(_) | Err(_) => Vec::new(),
    };
    let length = (field.len() as u32).to_be_bytes();
    [&[0], &length[..], &field].concat()
}

/// Reads the answer to its end: its status is in the trailers, or in the head where there is nothing else.
async fn judge(head: &HeaderMap, mut body: Incoming) -> Result<(), CheckFailure> {
    let mut read = Vec::new();
    let mut status = status(head);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| CheckFailure::Broken)?;
        match frame.into_data() {
            Ok(data) if read.len() + data.len() <= ANSWER_MAX => read.extend_from_slice(&data),
            Ok(_) => return Err(MALFORMED),
            Err(frame) => {
                let trailers = frame.into_trailers().map_err(|_| MALFORMED)?;
                status = self::status(&trailers);
            }
        }
    }
    match status.ok_or(MALFORMED)? {
        OK => verdict(&read),
        other => Err(CheckFailure::Code("gRPC status", other)),
    }
}

fn status(headers: &HeaderMap) -> Option<u32> {
    headers.get("grpc-status")?.to_str().ok()?.parse().ok()
}

/// What `HealthCheckResponse { status: 1 }` says. A field that is left out is 0.
fn verdict(message: &[u8]) -> Result<(), CheckFailure> {
    let [0, length @ ..] = message else {
        return Err(MALFORMED);
    };
    let (length, field) = length.split_first_chunk().ok_or(MALFORMED)?;
    if u32::from_be_bytes(*length) as usize != field.len() {
        return Err(MALFORMED);
    }
    let serving = match field {
        [] => 0,
        // Enumerations of this message are small.
        [8, status @ 0..=127] => u32::from(*status),
        _ => return Err(MALFORMED),
    };
    match serving {
        SERVING => Ok(()),
        other => Err(CheckFailure::Code("gRPC serving status", other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_a_message_of_one_field() {
        assert_eq!(question(""), [0, 0, 0, 0, 0]);
        assert_eq!(question("shop"), b"\0\0\0\0\x06\x0a\x04shop");
    }

    #[test]
    fn an_answer_says_one_status() {
        assert_eq!(verdict(&[0, 0, 0, 0, 2, 8, 1]), Ok(()));
        for (message, code) in [
            (&[0, 0, 0, 0, 0][..], 0),
            (&[0, 0, 0, 0, 2, 8, 2], 2),
            (&[0, 0, 0, 0, 2, 8, 3], 3),
        ] {
            let expected = CheckFailure::Code("gRPC serving status", code);
            assert_eq!(verdict(message), Err(expected));
        }
        for message in [
            &b""[..],
            &[0, 0, 0],
            &[1, 0, 0, 0, 2, 8, 1],
            &[0, 0, 0, 0, 3, 8, 1],
            &[0, 0, 0, 0, 2, 16, 1],
            &[0, 255, 255, 255, 255, 8, 1],
            b"<html>",
        ] {
            assert_eq!(verdict(message), Err(MALFORMED), "{message:?}");
        }
    }
}
