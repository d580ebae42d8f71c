//! A client's connection as the reader of frames sees it: bytes that came before are read first, all are counted, and behind the last
//! frame the client gets time to read it.
//!
//! The library hands over each frame with data by itself. So while a connection has its turn its frames are held, and go out behind it
//! together ([`Wire::release`]): one system call, and one record of TLS, for the streams whose answers came at once. Formula: held are
//! frames until the next one would make them more than [`HELD_MAX`]; a longer one goes out with what is held before it, and is not
//! copied. Failure case: a socket that takes no more leaves them held, and the library's next frame waits.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::stream::Stream;
use crate::wire::frames::FrameAccount;
use crate::wire::inflow::Scratch;

/// What a client may still send behind our last frame before it is cut off.
const LATE_MAX: usize = 1 << 20;

/// Bytes of frames that are held: a record of TLS (RFC 8446 §5.1).
const HELD_MAX: usize = 16 << 10;

/// A connection, and what is on its way to its client.
pub(super) struct Wire {
    stream: RefCell<Stream>,
    account: Rc<FrameAccount>,
    held: RefCell<Held>,
}

#[derive(Default)]
struct Held {
    /// It is the connection's turn.
    holds: bool,
    /// Frames, of which so many bytes are out.
    frames: Vec<u8>,
    sent: usize,
}

impl Wire {
    pub(super) fn new(stream: Stream, account: Rc<FrameAccount>) -> Rc<Self> {
        Rc::new(Self {
            stream: RefCell::new(stream),
            account,
            held: RefCell::default(),
        })
    }

    /// The connection itself, when frames are given up.
    pub(super) fn into_stream(self) -> Stream {
        self.stream.into_inner()
    }

    /// Frames are held from now on.
    pub(super) fn hold(&self) {
        self.held.borrow_mut().holds = true;
    }

    /// What is held goes out, as far as the socket takes it. An error is the connection's end.
    pub(super) fn release(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut held = self.held.borrow_mut();
        held.holds = false;
        ready!(self.poll_held(&mut held, context))?;
        Pin::new(&mut *self.stream.borrow_mut()).poll_flush(context)
    }

    fn poll_held(&self, held: &mut Held, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if held.frames.is_empty() {
            return Poll::Ready(Ok(()));
        }
        while let Some(left @ [_, ..]) = held.frames.get(held.sent..) {
            let mut stream = self.stream.borrow_mut();
            let written = ready!(Pin::new(&mut *stream).poll_write(context, left))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            held.sent += written;
            self.account.on_written(written as u64);
        }
        // An idle connection keeps no memory for them.
        held.frames = Vec::new();
        held.sent = 0;
        Poll::Ready(Ok(()))
    }

    fn poll_write(
        &self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut held = self.held.borrow_mut();
        let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        if !held.holds || held.frames.len() + bytes > HELD_MAX {
            ready!(self.poll_held(&mut held, context))?;
        }
        if held.holds && bytes <= HELD_MAX {
            if held.frames.capacity() == 0 {
                held.frames.reserve_exact(HELD_MAX);
            }
            for slice in slices {
                held.frames.extend_from_slice(slice);
            }
            return Poll::Ready(Ok(bytes));
        }
        let mut stream = self.stream.borrow_mut();
        let written = ready!(Pin::new(&mut *stream).poll_write_vectored(context, slices))?;
        self.account.on_written(written as u64);
        Poll::Ready(Ok(written))
    }
}

/// See the module.
pub(super) struct FrameIo {
    /// It is still there when the frames are given up.
    wire: Rc<Wire>,
    /// What was read before.
    early: Bytes,
    scratch: Rc<Scratch>,
    /// The sending side is closed, and so many bytes have come since.
    late: Option<usize>,
}

impl FrameIo {
    pub(super) fn new(wire: Rc<Wire>, early: Bytes, scratch: Rc<Scratch>) -> Self {
        Self {
            wire,
            early,
            scratch,
            late: None,
        }
    }
}

impl AsyncRead for FrameIo {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        if this.early.is_empty() {
            ready!(Pin::new(&mut *this.wire.stream.borrow_mut()).poll_read(context, buffer))?;
        } else {
            let bytes = this.early.len().min(buffer.remaining());
            buffer.put_slice(&this.early[..bytes]);
            this.early.advance(bytes);
        }
        (this.wire.account).on_read((buffer.filled().len() - before) as u64);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for FrameIo {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.wire.poll_write(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.wire.poll_write(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// What is held goes out at the end of the turn.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let holds = self.wire.held.borrow().holds;
        match holds {
            true => Poll::Ready(Ok(())),
            false => self.wire.release(context),
        }
    }

    /// Closes the sending side, and waits for the client to close its own: what it has sent meanwhile would reset the connection
    /// before it has read the last frame. The time for that is the connection's.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.late.is_none() {
            ready!(this.wire.release(context))?;
            ready!(Pin::new(&mut *this.wire.stream.borrow_mut()).poll_shutdown(context))?;
        }
        let late = this.late.get_or_insert(0);
        let mut scratch = this.scratch.raw.borrow_mut();
        while *late < LATE_MAX {
            let mut read = ReadBuf::new(&mut scratch);
            ready!(Pin::new(&mut *this.wire.stream.borrow_mut()).poll_read(context, &mut read))?;
            match read.filled().len() {
                0 => break,
                bytes => *late += bytes,
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn pair() -> (TcpStream, Rc<Wire>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        let server = tokio::net::TcpStream::from_std(server).unwrap();
        (
            client,
            Wire::new(Stream::Plain(server.into()), Rc::default()),
        )
    }

    /// Hands frames over; how many bytes the wire took, none if it takes no more.
    fn hand_over(wire: &Wire, slices: &[&[u8]], context: &mut Context<'_>) -> Option<usize> {
        let slices: Vec<_> = slices.iter().map(|it| IoSlice::new(it)).collect();
        match wire.poll_write(context, &slices) {
            Poll::Ready(written) => Some(written.unwrap()),
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn frames_of_one_turn_go_out_together_behind_it() {
        let (mut client, wire) = pair();
        client.set_nonblocking(true).unwrap();
        let mut got = [0; 64];
        wire.hold();
        poll_fn(|context| {
            for frame in [[&b"head"[..], b"data"], [b"next", b""]] {
                let bytes = frame.concat().len();
                assert_eq!(hand_over(&wire, &frame, context), Some(bytes));
            }
            Poll::Ready(())
        })
        .await;
        let early = client.read(&mut got).unwrap_err();
        assert_eq!(early.kind(), io::ErrorKind::WouldBlock);
        poll_fn(|context| wire.release(context)).await.unwrap();
        client.set_nonblocking(false).unwrap();
        client.read_exact(&mut got[..12]).unwrap();
        assert_eq!(&got[..12], b"headdatanext");
        assert_eq!(wire.held.borrow().frames.capacity(), 0);
        // Out of its turn, and where it is a long one, a frame is not held.
        let long = vec![b'x'; HELD_MAX + 1];
        for (holds, frame) in [(false, &b"frame"[..]), (true, &long)] {
            poll_fn(|context| {
                if holds {
                    wire.hold();
                }
                let written = hand_over(&wire, &[frame], context);
                assert_eq!(written, Some(frame.len()));
                Poll::Ready(())
            })
            .await;
            let mut got = vec![0; frame.len()];
            client.read_exact(&mut got).unwrap();
            assert_eq!(got, frame);
        }
    }

    #[tokio::test]
    async fn a_socket_that_takes_no_more_loses_nothing() {
        let (mut client, wire) = pair();
        let mut sent = Vec::new();
        poll_fn(|context| {
            wire.hold();
            for byte in (0..=u8::MAX).cycle() {
                let frame = [byte; HELD_MAX / 3];
                let Some(written) = hand_over(&wire, &[&frame], context) else {
                    break;
                };
                sent.extend_from_slice(&frame[..written]);
            }
            assert!(wire.release(context).is_pending());
            Poll::Ready(())
        })
        .await;
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            client.read_to_end(&mut got).unwrap();
            got
        });
        poll_fn(|context| wire.release(context)).await.unwrap();
        drop(wire);
        assert_eq!(reader.join().unwrap(), sent);
    }
}
