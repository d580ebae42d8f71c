//! A stream of HTTP/2 as a stream of bytes, for tunnels (RFC 8441): data both ways, each within the other's window.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use h2::{RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::stream::poll_window;
use crate::wire::frames::FrameAccount;

/// See the module.
pub(super) struct TunnelIo {
    incoming: RecvStream,
    out: SendStream<Bytes>,
    /// What has come and was not read yet.
    chunk: Bytes,
    account: Rc<FrameAccount>,
}

impl TunnelIo {
    pub(super) fn new(
        incoming: RecvStream,
        out: SendStream<Bytes>,
        account: Rc<FrameAccount>,
    ) -> Self {
        Self {
            incoming,
            out,
            chunk: Bytes::new(),
            account,
        }
    }
}

/// The client has reset the stream, or its connection is gone.
fn broken(error: h2::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, error)
}

impl AsyncRead for TunnelIo {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.chunk.is_empty() {
            let Some(data) = ready!(this.incoming.poll_data(context)) else {
                return Poll::Ready(Ok(()));
            };
            let data = data.map_err(broken)?;
            this.account.on_body(data.len() as u64);
            let window = this.incoming.flow_control();
            window.release_capacity(data.len()).map_err(broken)?;
            this.chunk = data;
        }
        let bytes = this.chunk.len().min(buffer.remaining());
        buffer.put_slice(&this.chunk[..bytes]);
        this.chunk.advance(bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TunnelIo {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let room = ready!(poll_window(
            &mut this.out,
            &this.account,
            bytes.len(),
            context
        ));
        let room = room.ok_or(io::ErrorKind::ConnectionReset)?;
        let piece = Bytes::copy_from_slice(&bytes[..room.min(bytes.len())]);
        let written = piece.len();
        this.account.on_data(written as u64);
        this.out.send_data(piece, false).map_err(broken)?;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = self.out.send_data(Bytes::new(), true);
        Poll::Ready(ended.map_err(broken))
    }
}
