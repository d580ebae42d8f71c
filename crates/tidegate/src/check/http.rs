//! `http`: a request, and the status and body of its answer (RFC 9110, RFC 9112).

use bytes::Bytes;
use http::header::{CONNECTION, HOST, USER_AGENT};
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_core::topology::{CheckFailure, HttpCheck};

use super::{ANSWER_BYTES_MAX, Duplex, Target, Unwell, connect_by, contains};

/// Bytes of a response's head.
const HEAD_BYTES_MAX: usize = 16 << 10;

pub(super) async fn ask(target: &Target<'_>, wanted: &HttpCheck) -> Result<(), Unwell> {
    let stream = connect_by(target).await?;
    let request = request(target, wanted).map_err(|_| CheckFailure::Malformed("HTTP"))?;
    match target.http2 {
        false => by_http1(stream, request, wanted).await,
        true => by_http2(stream, request, wanted).await,
    }
}

fn request(target: &Target<'_>, wanted: &HttpCheck) -> http::Result<Request<Empty<Bytes>>> {
    let host = wanted.host.clone();
    let host = host.unwrap_or_else(|| target.address.to_string());
    let request = Request::builder()
        .method(wanted.method.label())
        .header(USER_AGENT, "tidegate-check");
    let request = match (target.http2, target.tls) {
        (false, _) => request
            .uri(&wanted.path)
            .header(HOST, host)
            .header(CONNECTION, "close"),
        (true, None) => request.uri(format!("http://{host}{}", wanted.path)),
        (true, Some(_)) => request.uri(format!("https://{host}{}", wanted.path)),
    };
    request.body(Empty::new())
}

/// By HTTP/2 (RFC 9113), from the first byte.
async fn by_http2(
    stream: Box<dyn Duplex>,
    request: Request<Empty<Bytes>>,
    wanted: &HttpCheck,
) -> Result<(), Unwell> {
    let mut http = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    http.max_header_list_size(HEAD_BYTES_MAX as u32);
    let (mut sender, connection) = (http.handshake(TokioIo::new(stream)).await)
        .map_err(|error: hyper::Error| failure(&error))?;
    let answer = async {
        let answer = sender.send_request(request).await;
        judge(answer.map_err(|error| failure(&error))?, wanted).await
    };
    tokio::select! {
        judged = answer => Ok(judged?),
        () = async { connection.await.ok(); std::future::pending().await } => Err(CheckFailure::Broken.into()),
    }
}

async fn by_http1(
    stream: Box<dyn Duplex>,
    request: Request<Empty<Bytes>>,
    wanted: &HttpCheck,
) -> Result<(), Unwell> {
    let mut http = hyper::client::conn::http1::Builder::new();
    http.max_buf_size(HEAD_BYTES_MAX);
    let (mut sender, connection) = (http.handshake(TokioIo::new(stream)).await)
        .map_err(|error: hyper::Error| failure(&error))?;
    let answer = async {
        let answer = sender.send_request(request).await;
        judge(answer.map_err(|error| failure(&error))?, wanted).await
    };
    // The connection works for the answer, and ends with it.
    tokio::select! {
        judged = answer => Ok(judged?),
        () = async { connection.await.ok(); std::future::pending().await } => Err(CheckFailure::Broken.into()),
    }
}

/// Whether an answer is as wanted.
async fn judge(answer: Response<Incoming>, wanted: &HttpCheck) -> Result<(), CheckFailure> {
    let status = answer.status().as_u16();
    if !wanted.takes(status) {
        return Err(CheckFailure::Status(status));
    }
    let Some(text) = &wanted.body else {
        return Ok(());
    };
    let mut body = answer.into_body();
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| failure(&error))?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        let from = read.len().saturating_sub(text.len());
        let room = ANSWER_BYTES_MAX - read.len();
        read.extend_from_slice(&data[..data.len().min(room)]);
        if contains(&read[from..], text.as_bytes()) {
            return Ok(());
        }
        if read.len() == ANSWER_BYTES_MAX {
            break;
        }
    }
    Err(CheckFailure::Body)
}

fn failure(error: &hyper::Error) -> CheckFailure {
    match error.is_parse() {
        true => CheckFailure::Malformed("HTTP"),
        false => CheckFailure::Broken,
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::topology::CheckMethod;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::testing;

    fn http() -> HttpCheck {
        HttpCheck {
            method: CheckMethod::Get,
            path: "/healthz?full=1".into(),
            host: Some("shop.example".into()),
            statuses: vec![200..=399],
            body: None,
        }
    }

    /// What a check makes of a server that answers so, and what the server was asked.
    fn asked(wanted: HttpCheck, answer: Vec<u8>) -> (Result<(), Unwell>, String) {
        testing::runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let server = tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = vec![0; 1024];
                let read = stream.read(&mut head).await.unwrap();
                stream.write_all(&answer).await.ok();
                head.truncate(read);
                String::from_utf8(head).unwrap()
            });
            let target = Target {
                address,
                node: "n1",
                site: None,
                tls: None,
                http2: false,
                proxy: None,
            };
            let result = ask(&target, &wanted).await;
            (result, server.await.unwrap())
        })
    }

    fn answers(wanted: HttpCheck, answer: impl Into<Vec<u8>>) -> Result<(), CheckFailure> {
        match asked(wanted, answer.into()).0 {
            Ok(()) => Ok(()),
            Err(Unwell::Failed(failure)) => Err(failure),
            Err(Unwell::Unasked) => panic!("the test's machine could not ask"),
        }
    }

    #[test]
    fn a_node_is_asked_as_its_site_wants_it() {
        let (result, head) = asked(http(), b"HTTP/1.1 204 No Content\r\n\r\n".to_vec());
        assert_eq!(result, Ok(()));
        assert!(
            head.starts_with("GET /healthz?full=1 HTTP/1.1\r\n"),
            "{head}"
        );
        assert!(head.contains("host: shop.example\r\n"), "{head}");
        assert!(head.contains("user-agent: tidegate-check\r\n"), "{head}");
        let wanted = HttpCheck {
            method: CheckMethod::Head,
            host: None,
            ..http()
        };
        let (result, head) = asked(
            wanted,
            b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n".into(),
        );
        assert_eq!(result, Ok(()));
        assert!(
            head.starts_with("HEAD /") && head.contains("host: 127.0.0.1:"),
            "{head}"
        );
    }

    #[test]
    fn a_status_that_is_not_wanted_fails() {
        let unwell = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(answers(http(), unwell), Err(CheckFailure::Status(503)));
        let wanted = HttpCheck {
            statuses: vec![200..=200, 503..=503],
            ..http()
        };
        assert_eq!(answers(wanted, unwell), Ok(()));
    }

    #[test]
    fn a_body_is_searched_across_its_pieces_and_not_without_end() {
        let wanted = HttpCheck {
            body: Some("all well".into()),
            ..http()
        };
        let plain = "HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\nall well now";
        assert_eq!(answers(wanted.clone(), plain), Ok(()));
        let pieces = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nall w\r\n4\r\nell!\r\n0\r\n\r\n";
        assert_eq!(answers(wanted.clone(), pieces), Ok(()));
        let other = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nfailed";
        assert_eq!(answers(wanted.clone(), other), Err(CheckFailure::Body));
        let long = |filler: usize| {
            let mut answer = b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n".to_vec();
            answer.resize(answer.len() + filler, b'x');
            answer.extend_from_slice(b"all well");
            answer.resize(answer.len() + 100_000 - filler - 8, b'x');
            answer
        };
        assert_eq!(answers(wanted.clone(), long(60_000)), Ok(()));
        assert_eq!(answers(wanted, long(70_000)), Err(CheckFailure::Body));
    }

    #[test]
    fn what_is_no_answer_fails() {
        let odd = "SSH-2.0-OpenSSH_9.2\r\n\r\n";
        assert_eq!(answers(http(), odd), Err(CheckFailure::Malformed("HTTP")));
        assert_eq!(answers(http(), ""), Err(CheckFailure::Broken));
        let mut long = b"HTTP/1.1 200 OK\r\na: ".to_vec();
        long.resize(1 << 20, b'x');
        assert_eq!(answers(http(), long), Err(CheckFailure::Malformed("HTTP")));
    }
}
