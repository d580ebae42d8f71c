//! What must hold for any bytes that a client sends where HTTP/2 is spoken. Shared by the fuzz target and by the tests
//! of `tidegate-proxy`.
//!
//! 1. Reading frames and heads never panics, and ends with the bytes.
//! 2. A head that is received says one host at most, and nothing of its connection; its cookies are one line; it is chunked exactly where
//!    its body has no length, and has none where there is no body.
//! 3. What holds for heads of HTTP/1.1 holds for it from there on (`head.rs`).

use bytes::Bytes;
use h2::RecvStream;
use h2::server::Builder;
use http::header::{CONTENT_LENGTH, COOKIE, HOST, TRANSFER_ENCODING};
use http::{Method, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{BodyLength, OF_CONNECTION, receive};
use crate::head::invariants::check_request;

/// Bytes that are under way between the two sides.
const PIPE: usize = 64 << 10;

/// Checks all of them.
pub(crate) fn check(bytes: &[u8]) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.build().expect("a runtime without anything");
    runtime.block_on(async {
        let (mut client, server) = tokio::io::duplex(PIPE);
        let client = async {
            // The other side may have had enough.
            client.write_all(bytes).await.unwrap_or_default();
            client.shutdown().await.unwrap_or_default();
            client
                .read_to_end(&mut Vec::new())
                .await
                .unwrap_or_default();
        };
        let server = async {
            let mut builder = Builder::new();
            builder.max_header_list_size(16 << 10);
            let Ok(mut frames) = builder.handshake::<_, Bytes>(server).await else {
                return;
            };
            while let Some(Ok((request, mut answer))) = frames.accept().await {
                received(request);
                answer.send_reset(h2::Reason::CANCEL);
            }
        };
        tokio::join!(client, server);
    });
}

fn received(request: Request<RecvStream>) {
    let (mut head, stream) = request.into_parts();
    let has_body = !stream.is_end_stream();
    let received = receive(&mut head, has_body);
    let headers = &head.headers;
    assert!(headers.get_all(COOKIE).iter().count() <= 1, "{headers:?}");
    if let Ok(length) = received {
        assert_eq!(length == BodyLength::None, !has_body);
        let is_chunked = headers.contains_key(TRANSFER_ENCODING);
        assert_eq!(is_chunked, length == BodyLength::Unknown);
        assert!(!is_chunked || !headers.contains_key(CONTENT_LENGTH));
        for name in OF_CONNECTION.iter().filter(|it| **it != TRANSFER_ENCODING) {
            assert!(!headers.contains_key(name), "{headers:?}");
        }
        if head.method != Method::CONNECT {
            assert!(head.uri.authority().is_none(), "{}", head.uri);
        }
        let hosts = headers.get_all(HOST).iter().count();
        let request = Request::from_parts(head, ());
        if hosts <= 1 {
            check_request(&request);
        }
    }
}
