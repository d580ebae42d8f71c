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
use std::io::{self, Read, Write};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::StartHandshake;
use tokio_rustls::rustls::ServerConnection;
use tokio_rustls::rustls::server::{Accepted, Acceptor};

use super::linger::linger;
use crate::connection::TlsSession;
use crate::record::reason::Reason;
use crate::refusal::ready_made;
use crate::request::{Client, enter_headless};
use crate::stream::{self, Stream};
use crate::tls::{Handshake, HandshakeFailure, ServerTls, client_identity};

/// The first byte of a record with a handshake in it (RFC 8446 §5.1).
const HANDSHAKE: u8 = 22;

/// The connection, if there is one; else all is said that is to be said.
pub(super) async fn handshake(
    client: &Client,
    tls: &ServerTls,
    socket: stream::Socket,
) -> Option<Stream> {
    let stats = client.worker.base.stats();
    match shake_hands(client, tls, socket).await {
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
    socket: stream::Socket,
) -> Result<Stream, HandshakeFailure> {
    let mut stream = socket.into_watched().map_err(|_| HandshakeFailure::Gone)?;
    let linger_for = client.connection.settings.timeouts().linger;
    // A client that says nothing costs no memory for TLS.
    let readable = poll_fn(|context| stream.poll_read_ready(context));
    if in_time(client, readable).await?.is_err() {
        return Err(HandshakeFailure::Gone);
    }
    let mut hello = Hello::default();
    let begun = poll_fn(|context| hello.poll(&mut stream, context));
    let accepted = match in_time(client, begun).await? {
        Begun::Tls(accepted) => *accepted,
        Begun::Plain => {
            enter_headless(client, Reason::PlainHttp);
            linger(stream, Some(ready_made(Reason::PlainHttp)), linger_for).await;
            return Err(HandshakeFailure::Plain);
        }
        Begun::Failed(failure) => return Err(failure),
        Begun::Alerted(failure) => {
            linger(stream, None, linger_for).await;
            return Err(failure);
        }
    };
    let config = tls.config_for(&accepted.client_hello());
    let accepting = StartHandshake::from_parts(accepted, stream).into_stream(config);
    match in_time(client, accepting.into_fallible()).await? {
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

/// How a client begins.
enum Begun {
    /// With a whole ClientHello.
    Tls(Box<Accepted>),
    /// As plain HTTP does.
    Plain,
    /// In no way that leads to a connection, and an alert says so.
    Alerted(HandshakeFailure),
    /// With nothing that there is an alert for.
    Failed(HandshakeFailure),
}

/// The client's first message (ClientHello, RFC 8446 §4.1.2) as it comes.
#[derive(Default)]
struct Hello {
    acceptor: Acceptor,
    /// The first byte of all.
    first: Option<u8>,
}

impl Hello {
    /// Reads until it is whole, or known to be none.
    fn poll(&mut self, stream: &mut TcpStream, context: &mut Context<'_>) -> Poll<Begun> {
        let failed = |failure| Poll::Ready(Begun::Failed(failure));
        let mut socket = Socket {
            stream,
            context,
            first: &mut self.first,
        };
        loop {
            match self.acceptor.read_tls(&mut socket) {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Ok(0) | Err(_) => return failed(HandshakeFailure::Gone),
            }
            match *socket.first {
                Some(HANDSHAKE) => {}
                Some(byte) if byte.is_ascii_uppercase() => return Poll::Ready(Begun::Plain),
                _ => return failed(HandshakeFailure::Malformed),
            }
            match self.acceptor.accept() {
                Ok(Some(accepted)) => return Poll::Ready(Begun::Tls(Box::new(accepted))),
                Ok(None) => {}
                Err((error, mut alert)) => {
                    // Nothing was written before, so there is room for it; a client that is gone needs none.
                    alert.write_all(&mut socket).unwrap_or_default();
                    let failure = HandshakeFailure::of(&io::Error::other(error));
                    return Poll::Ready(Begun::Alerted(failure));
                }
            }
        }
    }
}

/// A socket as rustls reads and writes it, which never waits.
struct Socket<'a, 'b> {
    stream: &'a mut TcpStream,
    context: &'a mut Context<'b>,
    /// The first byte that was ever read.
    first: &'a mut Option<u8>,
}

impl Read for Socket<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(buffer);
        match Pin::new(&mut *self.stream).poll_read(self.context, &mut buffer) {
            Poll::Ready(read) => read?,
            Poll::Pending => return Err(io::ErrorKind::WouldBlock.into()),
        }
        if let Some(byte) = buffer.filled().first() {
            self.first.get_or_insert(*byte);
        }
        Ok(buffer.filled().len())
    }
}

impl Write for Socket<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match Pin::new(&mut *self.stream).poll_write(self.context, bytes) {
            Poll::Ready(written) => written,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        // A socket has nothing to flush.
        Ok(())
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
