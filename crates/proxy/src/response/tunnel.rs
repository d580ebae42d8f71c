//! An upgraded connection: bytes both ways, until both sides have said that they are done, one
//! breaks, or nothing moves for too long. A side that is done closes towards the other (half-close).
//! The request that began it is in flight until then, and rests: it holds no room at its node.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tidegate_core::load::RestKind;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection::{Phase, Upload};
use crate::record::reason::Reason;
use crate::request::{Client, RequestGuard};
use crate::stream::Stream;

/// Bytes that are held in each direction.
const BUFFER_BYTES: usize = 16 << 10;

/// A tunnel to be: the node has agreed.
pub(crate) struct Tunnel {
    guard: RequestGuard,
    node: Stream,
    /// What the node sent right behind its answer.
    early: Bytes,
}

impl Tunnel {
    /// Waits until hyper is done with the node's connection, and makes the tunnel ready.
    /// A node may agree before it has the request's body, which must come first all the same
    /// (RFC 9110 §7.8). Gives the request back if there is no connection any more.
    pub(crate) async fn begin(
        client: &Client,
        mut guard: RequestGuard,
    ) -> Result<Self, (RequestGuard, Reason)> {
        let sent = poll_fn(|_| {
            if client.connection.take_late() {
                return Poll::Ready(Err(client.connection.late_reason()));
            }
            match (client.drive(), client.connection.upload.get()) {
                (_, Upload::Failed(reason)) => Poll::Ready(Err(reason)),
                (true, _) => Poll::Ready(Ok(())),
                (false, _) => Poll::Pending,
            }
        });
        if let Err(reason) = sent.await {
            return Err((guard, reason));
        }
        let upstream = client.upstream.take();
        let Some((node, early)) = upstream.and_then(|mut it| it.take_stream()) else {
            return Err((guard, Reason::BadResponse));
        };
        guard.on_server_done();
        if let Some(ticket) = guard.ticket() {
            ticket.end_account();
            client.connection.rest(ticket.node, RestKind::Answered);
            client.worker.queue.handle_room(Some(ticket.site()));
        }
        client.connection.suspend();
        client.connection.end_total();
        Ok(Self { guard, node, early })
    }

    /// Of a connection that is passed on as it is. It is at work at its node until it ends, and holds room there.
    pub(crate) fn of_connection(client: &Client, guard: RequestGuard, node: Stream) -> Self {
        client.connection.end_rest();
        let early = Bytes::new();
        Self { guard, node, early }
    }

    /// Carries bytes until the end.
    pub(crate) async fn run(
        mut self,
        client: &Client,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        early: Bytes,
    ) {
        let worker = &client.worker;
        let stats = worker.base.stats();
        stats.tunnels.add(1);
        client
            .connection
            .enter(Phase::Tunnel, client.connection.ticks().tunnel_idle);
        let mut up = Pipe::new(&early);
        let mut down = Pipe::new(&self.early);
        let reason = poll_fn(|context| {
            client.connection.register(context.waker());
            if client.connection.cut.get() {
                return Poll::Ready(Some(worker.base.drain.cut_for.get()));
            }
            if client.connection.take_late() {
                return Poll::Ready(Some(Reason::TunnelIdle));
            }
            let before = up.bytes + down.bytes;
            let sent = up.poll(&mut stream, &mut self.node, context);
            let received = down.poll(&mut self.node, &mut stream, context);
            if up.bytes + down.bytes > before {
                client
                    .connection
                    .extend(client.connection.ticks().tunnel_idle);
            }
            match (sent, received) {
                // A side that breaks a tunnel off ends it, and that is how tunnels usually end.
                (Poll::Ready(Err(_)), _) | (_, Poll::Ready(Err(_))) => Poll::Ready(None),
                (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => Poll::Ready(None),
                (Poll::Pending, Poll::Ready(Ok(())) | Poll::Pending)
                | (Poll::Ready(Ok(())), Poll::Pending) => Poll::Pending,
            }
        })
        .await;
        client.connection.uploaded.set(up.bytes);
        self.guard.on_bytes(down.bytes);
        stats.tunnels_closed.add(1);
        match reason {
            None => self.guard.complete(),
            Some(reason) => self.guard.fail(reason),
        }
    }
}

/// One direction.
struct Pipe {
    buffer: Vec<u8>,
    from: usize,
    to: usize,
    ended: bool,
    shut: bool,
    bytes: u64,
}

impl Pipe {
    fn new(early: &[u8]) -> Self {
        let mut buffer = vec![0; BUFFER_BYTES.max(early.len())];
        buffer[..early.len()].copy_from_slice(early);
        Self {
            buffer,
            from: 0,
            to: early.len(),
            ended: false,
            shut: false,
            bytes: 0,
        }
    }

    /// Ready when this direction is done.
    fn poll(
        &mut self,
        source: &mut (impl AsyncRead + Unpin),
        sink: &mut (impl AsyncWrite + Unpin),
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            while self.from < self.to {
                let pending = &self.buffer[self.from..self.to];
                let written = ready!(Pin::new(&mut *sink).poll_write(context, pending))?;
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.from += written;
                self.bytes += written as u64;
            }
            if self.ended {
                if !self.shut {
                    ready!(Pin::new(&mut *sink).poll_shutdown(context))?;
                    self.shut = true;
                }
                return Poll::Ready(Ok(()));
            }
            let mut read = ReadBuf::new(&mut self.buffer);
            match Pin::new(&mut *source).poll_read(context, &mut read) {
                Poll::Ready(read) => read?,
                Poll::Pending => {
                    ready!(Pin::new(&mut *sink).poll_flush(context))?;
                    return Poll::Pending;
                }
            }
            (self.from, self.to) = (0, read.filled().len());
            self.ended = self.to == 0;
        }
    }
}
