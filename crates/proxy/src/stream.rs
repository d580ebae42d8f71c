//! The byte stream of a connection with a client or a node: TCP as it is, or TLS on top of it.
//!
//! The reactor knows of a socket once something has to be waited for on it. A client that connects, asks at once and is
//! answered at once needs neither to be put into the kernel's list of what is waited for nor to be taken out of it:
//!
//! ```text
//! accept ──> Unwatched ── nothing to read, no room to write, more than a head came, ──> Watched
//!                         a client may have left, another request may come
//! ```
//!
//! A second request is waited for even where it is here already: the reactor then learns in the same turn which pooled connections
//! their nodes have closed meanwhile, and such a request goes on none of those.
//!
//! | end of what the client sends | plain | TLS |
//! |---|---|---|
//! | the stream is read to its end | FIN | `close_notify`, or a FIN without one |
//! | seen while the client waits | readiness of the socket | the same, or a `close_notify` that was read |
//!
//! A client's FIN without `close_notify` (RFC 8446 §6.1) is an end like any other: requests say themselves how long they are, so
//! one that was cut short is known as such. A node's is an error: it would end a response that is as long as the connection
//! (RFC 9112 §8), and whatever is on the way can send it. In a tunnel it is an end again.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{self, Shutdown, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{TlsStream, client, server};

/// What is read at once of a socket that the reactor does not know: a head.
const UNWATCHED_READ: usize = 2 << 10;

/// The name of HTTP/2 in handshakes.
const HTTP2: &[u8] = b"h2";

/// See the module.
pub(crate) enum Stream {
    Plain(Socket),
    Tls(Box<Tls>),
}

/// The socket of a connection.
pub(crate) enum Socket {
    /// The reactor does not know of it.
    Unwatched(Unwatched),
    Watched(TcpStream),
    /// The reactor could not take it in.
    Lost,
}

/// A socket of which the reactor does not know.
pub(crate) struct Unwatched {
    stream: net::TcpStream,
    /// Something was written, and more can be: what is read next is another request.
    answered: bool,
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

    /// Whether the reactor knows of it, and so wakes what waits.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        !matches!(self, Self::Plain(Socket::Unwatched(_)))
    }

    /// The socket, for what the reactor knows of it. Nothing may be read from it or written to it.
    pub(crate) fn socket(&mut self) -> io::Result<&TcpStream> {
        match self {
            Self::Plain(socket) => Ok(socket.watched()?),
            Self::Tls(tls) => Ok(tls.stream.get_ref().0),
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
                let mut byte = ReadBuf::uninit(&mut byte);
                stream.watched()?.poll_peek(context, &mut byte)
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
            Self::Plain(Socket::Unwatched(socket)) => socket.write(|stream| stream.write(bytes)),
            Self::Plain(stream) => stream.watched()?.try_write(bytes),
            Self::Tls(tls) => match Pin::new(&mut tls.stream).poll_write(context, bytes) {
                Poll::Ready(written) => written,
                Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
            },
        }
    }
}

impl Socket {
    /// The same, known to the reactor.
    ///
    /// # Errors
    /// The kernel has no memory to watch one more.
    pub(crate) fn into_watched(mut self) -> io::Result<TcpStream> {
        self.watched()?;
        match self {
            Self::Watched(stream) => Ok(stream),
            Self::Unwatched(_) | Self::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// The reactor knows of it from now on.
    fn watched(&mut self) -> io::Result<&mut TcpStream> {
        if let Self::Unwatched(_) = self {
            self.watch()?;
        }
        match self {
            Self::Watched(stream) => Ok(stream),
            Self::Unwatched(_) | Self::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    #[cold]
    #[inline(never)]
    fn watch(&mut self) -> io::Result<()> {
        if let Self::Unwatched(socket) = std::mem::replace(self, Self::Lost) {
            *self = Self::Watched(TcpStream::from_std(socket.stream)?);
        }
        Ok(())
    }

    /// Our end of the connection.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Unwatched(socket) => socket.stream.local_addr(),
            Self::Watched(stream) => stream.local_addr(),
            Self::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// What there is to read, as long as that is no more than a first head; else the reactor knows of it from now on.
    #[inline(never)]
    fn read_unwatched(&mut self, buffer: &mut ReadBuf<'_>) -> io::Result<bool> {
        let Self::Unwatched(socket) = self else {
            return Ok(false);
        };
        if socket.answered {
            self.watch()?;
            return Ok(false);
        }
        let room = buffer.remaining().min(UNWATCHED_READ);
        match socket.stream.read(buffer.initialize_unfilled_to(room)) {
            Ok(read) => {
                buffer.advance(read);
                if read == room {
                    self.watch()?;
                }
                Ok(true)
            }
            Err(error) => {
                self.watch_if_it_blocks(error)?;
                Ok(false)
            }
        }
    }

    /// What was written at once; none if there is no room, and then the reactor knows of it from now on.
    #[inline(never)]
    fn write_unwatched(
        &mut self,
        write: impl FnOnce(&mut net::TcpStream) -> io::Result<usize>,
    ) -> io::Result<Option<usize>> {
        let Self::Unwatched(socket) = self else {
            return Ok(None);
        };
        match socket.write(write) {
            Ok(written) => Ok(Some(written)),
            Err(error) => self.watch_if_it_blocks(error).map(|()| None),
        }
    }

    fn watch_if_it_blocks(&mut self, error: io::Error) -> io::Result<()> {
        const NOTHING_NOW: [io::ErrorKind; 2] =
            [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted];
        match NOTHING_NOW.contains(&error.kind()) {
            true => self.watch(),
            false => Err(error),
        }
    }
}

impl Unwatched {
    fn write(
        &mut self,
        write: impl FnOnce(&mut net::TcpStream) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.answered = true;
        write(&mut self.stream)
    }

    fn shutdown(&mut self) -> io::Result<()> {
        self.answered = false;
        self.stream.shutdown(Shutdown::Write)
    }
}

impl From<net::TcpStream> for Socket {
    /// The reactor does not know of it yet.
    fn from(stream: net::TcpStream) -> Self {
        Self::Unwatched(Unwatched {
            stream,
            answered: false,
        })
    }
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        Self::Watched(stream)
    }
}

impl AsyncRead for Socket {
    #[inline]
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if matches!(*self, Self::Unwatched(_)) && self.read_unwatched(buffer)? {
            return Poll::Ready(Ok(()));
        }
        Pin::new(self.watched()?).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    #[inline]
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if matches!(*self, Self::Unwatched(_))
            && let Some(written) = self.write_unwatched(|stream| stream.write(bytes))?
        {
            return Poll::Ready(Ok(written));
        }
        Pin::new(self.watched()?).poll_write(context, bytes)
    }

    #[inline]
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if matches!(*self, Self::Unwatched(_))
            && let Some(written) = self.write_unwatched(|stream| stream.write_vectored(slices))?
        {
            return Poll::Ready(Ok(written));
        }
        Pin::new(self.watched()?).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    #[inline(always)]
    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A socket has nothing to flush.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Unwatched(socket) => Poll::Ready(socket.shutdown()),
            Self::Watched(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Lost => Poll::Ready(Ok(())),
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
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::runtime::Builder;

    use super::*;

    /// What a client has, and the socket of it here that the reactor does not know.
    fn pair() -> (net::TcpStream, Socket) {
        let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        (client, Socket::from(socket))
    }

    fn is_watched(socket: &Socket) -> bool {
        matches!(socket, Socket::Watched(_))
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test);
    }

    /// Waits until this much has come.
    fn until_here(socket: &Socket, bytes: usize) {
        let Socket::Unwatched(socket) = socket else {
            panic!("it is watched");
        };
        while !matches!(socket.stream.peek(&mut vec![0; bytes]), Ok(here) if here == bytes) {}
    }

    /// The same once a first request was read.
    async fn asking(asked: &mut [u8]) -> (net::TcpStream, Socket) {
        let (mut client, mut socket) = pair();
        client.write_all(b"ask").unwrap();
        until_here(&socket, 3);
        assert_eq!(socket.read(asked).await.unwrap(), 3);
        (client, socket)
    }

    #[test]
    fn what_is_asked_and_answered_at_once_is_not_watched() {
        run(async {
            let mut asked = [0; 100];
            let (mut client, mut socket) = asking(&mut asked).await;
            socket.write_all(b"answer").await.unwrap();
            let slices = [IoSlice::new(b", and "), IoSlice::new(b"more")];
            assert_eq!(socket.write_vectored(&slices).await.unwrap(), 10);
            assert!(!is_watched(&socket));
            socket.shutdown().await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, "answer, and more");
            drop(client);
            assert_eq!(socket.read(&mut asked).await.unwrap(), 0);
            assert!(!is_watched(&socket), "its end was here");
        });
    }

    #[test]
    fn what_has_to_be_waited_for_is_watched() {
        run(async {
            let (mut client, mut socket) = pair();
            let mut byte = [0];
            let later = poll_fn(|context| {
                let mut read = ReadBuf::new(&mut byte);
                assert!(
                    Pin::new(&mut socket)
                        .poll_read(context, &mut read)
                        .is_pending()
                );
                Poll::Ready(())
            });
            later.await;
            assert!(is_watched(&socket));
            client.write_all(b"x").unwrap();
            assert_eq!(socket.read_u8().await.unwrap(), b'x');
            // More than the kernel holds for a client that does not read.
            let (client, mut socket) = pair();
            let all = vec![b'y'; 32 << 20];
            let reader = std::thread::spawn(move || {
                let mut read = Vec::new();
                (&client).read_to_end(&mut read).unwrap();
                read.len()
            });
            socket.write_all(&all).await.unwrap();
            socket.shutdown().await.unwrap();
            assert_eq!(reader.join().unwrap(), all.len());
        });
    }

    #[test]
    fn another_request_is_watched_for_even_if_it_is_here() {
        run(async {
            let mut asked = [0; 100];
            let (mut client, mut socket) = asking(&mut asked).await;
            socket.write_all(b"answer").await.unwrap();
            assert!(!is_watched(&socket));
            client.write_all(b"more").unwrap();
            until_here(&socket, 4);
            let at_once = poll_fn(|context| {
                let mut read = ReadBuf::new(&mut asked);
                Poll::Ready(Pin::new(&mut socket).poll_read(context, &mut read))
            });
            assert!(at_once.await.is_pending(), "the reactor has not looked");
            assert!(is_watched(&socket));
            assert_eq!(socket.read(&mut asked).await.unwrap(), 4);
            assert_eq!(&asked[..4], b"more");
        });
    }

    #[test]
    fn what_says_more_than_a_head_is_watched() {
        run(async {
            for (sent, watched) in [(UNWATCHED_READ - 1, false), (UNWATCHED_READ, true)] {
                let (mut client, mut socket) = pair();
                client.write_all(&vec![b'x'; sent]).unwrap();
                until_here(&socket, sent);
                let mut read = vec![0; 2 * UNWATCHED_READ];
                assert_eq!(socket.read(&mut read).await.unwrap(), sent);
                assert_eq!(is_watched(&socket), watched);
            }
        });
    }

    #[test]
    fn an_error_comes_out_and_is_not_waited_for() {
        run(async {
            let (client, mut socket) = pair();
            let linger = Some(std::time::Duration::ZERO);
            socket2::SockRef::from(&client).set_linger(linger).unwrap();
            drop(client);
            // Reset, and known as such once something is sent.
            while socket.write(b"x").await.is_ok() {}
            assert!(!is_watched(&socket));
        });
    }
}
