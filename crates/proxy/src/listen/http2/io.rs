//! A client's connection as the reader of frames sees it: bytes that came before are read first, all are counted, and behind the last
//! frame the client gets time to read it.

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

/// See the module.
pub(super) struct FrameIo {
    /// It is still there when the frames are given up.
    stream: Rc<RefCell<Stream>>,
    /// What was read before.
    early: Bytes,
    account: Rc<FrameAccount>,
    scratch: Rc<Scratch>,
    /// The sending side is closed, and so many bytes have come since.
    late: Option<usize>,
}

impl FrameIo {
    pub(super) fn new(
        stream: Rc<RefCell<Stream>>,
        early: Bytes,
        account: Rc<FrameAccount>,
        scratch: Rc<Scratch>,
    ) -> Self {
        Self {
            stream,
            early,
            account,
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
            ready!(Pin::new(&mut *this.stream.borrow_mut()).poll_read(context, buffer))?;
        } else {
            let bytes = this.early.len().min(buffer.remaining());
            buffer.put_slice(&this.early[..bytes]);
            this.early.advance(bytes);
        }
        this.account
            .on_read((buffer.filled().len() - before) as u64);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for FrameIo {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut *this.stream.borrow_mut()).poll_write(context, bytes))?;
        this.account.on_written(written as u64);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written =
            ready!(Pin::new(&mut *this.stream.borrow_mut()).poll_write_vectored(context, slices))?;
        this.account.on_written(written as u64);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream.borrow_mut()).poll_flush(context)
    }

    /// Closes the sending side, and waits for the client to close its own: what it has sent meanwhile would reset the connection
    /// before it has read the last frame. The time for that is the connection's.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.late.is_none() {
            ready!(Pin::new(&mut *this.stream.borrow_mut()).poll_shutdown(context))?;
        }
        let late = this.late.get_or_insert(0);
        let mut scratch = this.scratch.raw.borrow_mut();
        while *late < LATE_MAX {
            let mut read = ReadBuf::new(&mut scratch);
            ready!(Pin::new(&mut *this.stream.borrow_mut()).poll_read(context, &mut read))?;
            match read.filled().len() {
                0 => break,
                bytes => *late += bytes,
            }
        }
        Poll::Ready(Ok(()))
    }
}
