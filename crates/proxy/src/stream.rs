//! The byte stream of a connection with a client or a node: TCP as it is, or TLS on top of it.
//!
//! | end of what the client sends | plain | TLS |
//! |---|---|---|
//! | the stream is read to its end | FIN | `close_notify`, or a FIN without one |
//! | seen while the client waits | readiness of the socket | the same, or a `close_notify` that was read |
//!
//! A client's FIN without `close_notify` (RFC 8446 §6.1) is an end like any other: requests say themselves how long they are, so
//! one that was cut short is known as such. A node's is an error: it would end a response that is as long as the connection
//! (RFC 9112 §8), and whatever is on the way can send it. In a tunnel it is an end again.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{TlsStream, client, server};

/// The name of HTTP/2 in handshakes.
const HTTP2: &[u8] = b"h2";

/// See the module.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<Tls>),
}

/// A connection whose handshake is over.
pub(crate) struct Tls {
    stream: TlsStream<TcpStream>,
    /// All that the other side has sent was read, and its end.
    ended: bool,
    /// A FIN without `close_notify` is an end, too.
    lenient: bool,
}

impl Stream {
    /// Of a client, whose handshake is over.
    pub(crate) fn of_client(stream: server::TlsStream<TcpStream>) -> Self {
        Self::Tls(Box::new(Tls {
            stream: stream.into(),
            ended: false,
            lenient: true,
        }))
    }

    /// Of a node, whose handshake is over.
    pub(crate) fn of_node(stream: client::TlsStream<TcpStream>) -> Self {
        Self::Tls(Box::new(Tls {
            stream: stream.into(),
            ended: false,
            lenient: false,
        }))
    }

    /// What it carries from now on says by itself where it ends.
    pub(crate) fn into_tunnel(mut self) -> Self {
        if let Self::Tls(tls) = &mut self {
            tls.lenient = true;
        }
        self
    }

    /// Whether its handshake has chosen HTTP/2 (RFC 9113 §3.2).
    pub(crate) fn is_http2(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.stream.get_ref().1.alpn_protocol() == Some(HTTP2),
        }
    }

    /// The socket, for what the reactor knows of it. Nothing may be read from it or written to it.
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(tls) => tls.stream.get_ref().0,
        }
    }

    /// Whether the end of what the other side sends was read.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.ended,
        }
    }

    /// Waits for something to read, and leaves it there. None is there at the end of the stream. TLS keeps what it has
    /// deciphered, at most one record, for the next read.
    #[inline]
    pub(crate) fn poll_peek(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(stream) => {
                let mut byte = [MaybeUninit::uninit()];
                stream.poll_peek(context, &mut ReadBuf::uninit(&mut byte))
            }
            Self::Tls(tls) => tls.poll_peek(context),
        }
    }

    /// Writes as much as can be taken now; an error that would block if that is nothing. TLS may keep it until the next
    /// flush.
    pub(crate) fn write_now(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.try_write(bytes),
            Self::Tls(tls) => match Pin::new(&mut tls.stream).poll_write(context, bytes) {
                Poll::Ready(written) => written,
                Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
            },
        }
    }
}

impl Tls {
    fn poll_peek(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let peeked = ready!(Pin::new(&mut self.stream).poll_fill_buf(context));
        let peeked = peeked.map(<[u8]>::len);
        let peeked = end_of(peeked, self.lenient);
        self.ended |= matches!(peeked, Ok(0));
        Poll::Ready(peeked)
    }

    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        let read = read.map(|()| buffer.filled().len() - before);
        let read = end_of(read, self.lenient);
        self.ended |= matches!(read, Ok(0)) && buffer.remaining() > 0;
        Poll::Ready(read.map(drop))
    }
}

/// A FIN without `close_notify` is an end, too, for those that are lenient.
fn end_of(read: io::Result<usize>, lenient: bool) -> io::Result<usize> {
    match read {
        Err(error) if lenient && error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
        read => read,
    }
}

impl AsyncRead for Stream {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(tls) => tls.poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    #[inline]
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(tls) => Pin::new(&mut tls.stream).poll_write(context, bytes),
        }
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::Tls(tls) => Pin::new(&mut tls.stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    #[inline(always)]
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            // A socket has nothing to flush.
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(tls) => Pin::new(&mut tls.stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(tls) => Pin::new(&mut tls.stream).poll_shutdown(context),
        }
    }
}
