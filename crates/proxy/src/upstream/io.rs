//! A node's stream as hyper sees it, and what is seen of it on the way: whether anything came, and what was sent.
//!
//! A node that answers before it has read all of a body, and closes, resets its connection (RFC 9112 §9.6): what it had sent before
//! can be read still, but writing fails, at which hyper gives the connection up. So a write that fails so stands still
//! in place of that, for as long as reading goes on: that finds the answer, or else the end of the stream or its error, at once.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::io::AsyncWrite;

use crate::stream::Stream;
use crate::wire::inflow::{Inflow, Scratch};

/// Memory for what was sent that an idle connection to a node keeps.
const SENT_KEPT: usize = 1 << 10;

/// What is known of the bytes of the present request on an upstream connection.
#[derive(Debug)]
pub(crate) struct UpstreamBytes {
    pub(crate) inflow: RefCell<Inflow>,
    pub(crate) scratch: Rc<Scratch>,
    /// Reads that brought bytes or the end of the stream.
    pub(crate) reads: Cell<u32>,
    /// Whether what is sent is kept.
    pub(crate) capturing: Cell<bool>,
    /// What was sent, to send it again.
    pub(crate) sent: RefCell<Vec<u8>>,
}

impl UpstreamBytes {
    pub(crate) fn new(scratch: Rc<Scratch>) -> Self {
        Self {
            inflow: RefCell::new(Inflow::of_node()),
            scratch,
            reads: Cell::new(0),
            capturing: Cell::new(false),
            sent: RefCell::default(),
        }
    }

    /// What was sent will not be sent again.
    pub(crate) fn forget(&self) {
        let mut sent = self.sent.borrow_mut();
        sent.clear();
        sent.shrink_to(SENT_KEPT);
    }
}

/// The node's side.
pub(crate) struct NodeIo {
    stream: Stream,
    /// The node takes nothing more.
    deaf: bool,
    watch: Rc<UpstreamBytes>,
}

impl NodeIo {
    pub(crate) fn new(stream: Stream, watch: Rc<UpstreamBytes>) -> Self {
        Self {
            stream,
            deaf: false,
            watch,
        }
    }

    pub(crate) fn into_stream(self) -> Stream {
        self.stream
    }

    fn stream(&mut self) -> Pin<&mut Stream> {
        Pin::new(&mut self.stream)
    }

    /// What becomes of a write that failed: it stands still if the node may have answered before. A request whose bytes are kept
    /// is sent again in place of that.
    #[cold]
    fn on_deaf(&mut self, error: io::Error, context: &Context<'_>) -> Poll<io::Result<usize>> {
        let is_reset = matches!(
            error.kind(),
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
        );
        if !is_reset || self.watch.capturing.get() {
            return Poll::Ready(Err(error));
        }
        // Once: each later read asks to be woken by itself.
        if !self.deaf {
            self.deaf = true;
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Read for NodeIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let Self {
            stream,
            deaf,
            watch,
        } = &mut *self;
        let mut inflow = watch.inflow.borrow_mut();
        let read = ready!(inflow.poll_read(stream, &watch.scratch, context, buffer))?;
        // The write had the error that would have come here: this is no end of an answer that has no length.
        if read == 0 && *deaf {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        watch.reads.set(watch.reads.get().saturating_add(1));
        Poll::Ready(Ok(()))
    }
}

impl Write for NodeIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = match ready!(self.stream().poll_write(context, bytes)) {
            Ok(written) => written,
            Err(error) => return self.on_deaf(error, context),
        };
        if self.watch.capturing.get() {
            let mut sent = self.watch.sent.borrow_mut();
            sent.extend_from_slice(&bytes[..written]);
        }
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = self.stream();
        let written = match ready!(match slices {
            [only] => stream.poll_write(context, only),
            slices => stream.poll_write_vectored(context, slices),
        }) {
            Ok(written) => written,
            Err(error) => return self.on_deaf(error, context),
        };
        if self.watch.capturing.get() {
            let mut sent = self.watch.sent.borrow_mut();
            let mut left = written;
            for slice in slices {
                let part = left.min(slice.len());
                sent.extend_from_slice(&slice[..part]);
                left -= part;
            }
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    #[inline(always)]
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_keeps_so_much_memory_of_what_was_sent_and_no_more() {
        let kept = |sent: usize| {
            let watch = UpstreamBytes::new(Rc::default());
            *watch.sent.borrow_mut() = vec![0; sent];
            watch.forget();
            let sent = watch.sent.borrow();
            assert!(sent.is_empty());
            sent.capacity()
        };
        assert_eq!(kept(SENT_KEPT), SENT_KEPT);
        assert!(kept(100 * SENT_KEPT) <= SENT_KEPT);
    }
}
