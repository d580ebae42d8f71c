//! From a TCP connection to one of TLS.
//!
//! | what comes | then |
//! |---|---|
//! | a handshake | a connection; ALPN says its protocol: HTTP/2 or HTTP/1.1 |
//! | a handshake for the certificate of a challenge | the end: nothing is said on it |
//! | plain HTTP | a plain `400` that says so |
//! | anything else, or a handshake that fails | an alert, if there is one for it, and the end |
//! | nothing, until the time for a head is over | the end |
//!
//! The time for a head counts from the accept, and the handshake takes of it. A client that is not let in was refused
//! before.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use tokio::net::TcpStream;
use tokio_rustls::rustls::ServerConnection;

use super::linger::linger;
use crate::connection::TlsSession;
use crate::record::reason::Reason;
use crate::refusal::ready_made;
use crate::request::{Client, enter_headless};
use crate::stream::Stream;
use crate::tls::{Handshake, HandshakeFailure, ServerTls, client_identity};

/// The first byte of a record with a handshake in it (RFC 8446 §5.1).
const HANDSHAKE: u8 = 22;

/// The connection, if there is one; else all is said that is to be said.
pub(super) async fn handshake(
    client: &Client,
    tls: &ServerTls,
    stream: TcpStream,
) -> Option<Stream> {
    let stats = client.worker.base.stats();
    match shake_hands(client, tls, stream).await {
        Ok(stream) => Some(stream),
        Err(failure) => {
            stats.handshake_failures[failure.index()].add(1);
            None
        }
    }
}

async fn shake_hands(
    client: &Client,
    tls: &ServerTls,
    stream: TcpStream,
) -> Result<Stream, HandshakeFailure> {
    let linger_for = client.connection.settings.timeouts().linger;
    let mut first = [0];
    let peeked = in_time(client, stream.peek(&mut first)).await?;
    match (peeked, first) {
        (Err(_) | Ok(0), _) => return Err(HandshakeFailure::Gone),
        (Ok(_), [HANDSHAKE]) => {}
        (Ok(_), [byte]) if byte.is_ascii_uppercase() => {
            enter_headless(client, Reason::PlainHttp);
            linger(stream, Some(ready_made(Reason::PlainHttp)), linger_for).await;
            return Err(HandshakeFailure::Plain);
        }
        (Ok(_), _) => return Err(HandshakeFailure::Malformed),
    }
    let accepting = tls.acceptor().accept(stream).into_fallible();
    match in_time(client, accepting).await? {
        Ok(stream) => {
            let session = stream.get_ref().1;
            if ServerTls::is_challenge(session) {
                return Err(HandshakeFailure::Challenge);
            }
            let handshake = Handshake::seen(session);
            client.worker.base.stats().handshakes[handshake.index()].add(1);
            let seen = Rc::new(seen(session));
            // It is set here alone.
            client.connection.tls.set(seen).unwrap_or_default();
            Ok(Stream::of_client(stream))
        }
        Err((error, stream)) => {
            let failure = HandshakeFailure::of(&error);
            if failure != HandshakeFailure::Gone {
                // The alert is out; what is unread would make the kernel reset the connection before it is read.
                linger(stream, None, linger_for).await;
            }
            Err(failure)
        }
    }
}

fn seen(session: &ServerConnection) -> TlsSession {
    let chain = session.peer_certificates().unwrap_or_default();
    TlsSession {
        name: session.server_name().map(Into::into),
        identity: chain.first().and_then(|it| client_identity(it)),
    }
}

/// Waits for something until the time for a head is over, or the worker ends.
async fn in_time<T>(
    client: &Client,
    wanted: impl Future<Output = T>,
) -> Result<T, HandshakeFailure> {
    let connection = &client.connection;
    let mut wanted = pin!(wanted);
    poll_fn(|context| {
        connection.register(context.waker());
        if connection.cut.get() {
            return Poll::Ready(Err(HandshakeFailure::Cut));
        }
        if connection.take_late() {
            return Poll::Ready(Err(HandshakeFailure::Timeout));
        }
        wanted.as_mut().poll(context).map(Ok)
    })
    .await
}
