//! An upgraded connection: bytes both ways, until both sides have said that they are done, one
//! breaks, or nothing moves for too long. A side that is done is told to the other (half-close).
//! The request that began it is in flight until then, and rests: it holds no room at its node.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tidegate_core::load::RestKind;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::exchange::Live;
use crate::forward;
use crate::reason::Reason;
use crate::session::{Phase, Session, Upload};
use crate::waiting;

/// Bytes that are held in each direction.
const BUFFER_BYTES: usize = 16 << 10;

/// A tunnel to be: the node has agreed.
pub(crate) struct Tunnel {
    live: Live,
    node: TcpStream,
    /// What the node sent right behind its answer.
    early: Bytes,
}

impl Tunnel {
    /// Waits until hyper is done with the node's connection, and lays the tunnel ready for the
    /// session. A node may agree before it has the request's body, which must come first all the same
    /// (RFC 9110 §7.8). Gives the request back if there is no connection any more.
    pub(crate) async fn begin(session: &Rc<Session>, mut live: Live) -> Result<(), (Live, Reason)> {
        let sent = poll_fn(|_| {
            if session.take_late() {
                return Poll::Ready(Err(forward::late(session)));
            }
            match (session.drive(), session.upload.get()) {
                (_, Upload::Failed(reason)) => Poll::Ready(Err(reason)),
                (true, _) => Poll::Ready(Ok(())),
                (false, _) => Poll::Pending,
            }
        });
        if let Err(reason) = sent.await {
            return Err((live, reason));
        }
        let upstream = session.upstream.take();
        let Some((node, early)) = upstream.and_then(|mut it| it.take_stream()) else {
            return Err((live, Reason::BadResponse));
        };
        live.on_server_done();
        if let Some(ticket) = live.ticket() {
            ticket.end_account();
            session.rest(ticket.node, RestKind::Answered);
            waiting::serve(&session.worker);
        }
        session.suspend();
        session
            .tunnel
            .set(Some(Box::new(Self { live, node, early })));
        Ok(())
    }

    /// Carries bytes until the end.
    pub(crate) async fn run(mut self, session: &Session, mut client: TcpStream, early: Bytes) {
        let worker = &session.worker;
        let stats = worker.stats();
        stats.tunnels.add(1);
        session.enter(Phase::Tunnel, worker.ticks.tunnel_idle);
        let mut up = Pipe::new(&early);
        let mut down = Pipe::new(&self.early);
        let reason = poll_fn(|context| {
            session.register(context.waker());
            if session.cut.get() {
                return Poll::Ready(Some(worker.cut_for.get()));
            }
            if session.take_late() {
                return Poll::Ready(Some(Reason::TunnelIdle));
            }
            let before = up.bytes + down.bytes;
            let sent = up.poll(&mut client, &mut self.node, context);
            let received = down.poll(&mut self.node, &mut client, context);
            if up.bytes + down.bytes > before {
                session.extend(worker.ticks.tunnel_idle);
            }
            match (sent, received) {
                // Whoever breaks a tunnel off ends it, and that is how tunnels usually end.
                (Poll::Ready(Err(_)), _) | (_, Poll::Ready(Err(_))) => Poll::Ready(None),
                (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => Poll::Ready(None),
                (Poll::Pending, Poll::Ready(Ok(())) | Poll::Pending)
                | (Poll::Ready(Ok(())), Poll::Pending) => Poll::Pending,
            }
        })
        .await;
        session.uploaded.set(up.bytes);
        self.live.on_bytes(down.bytes);
        stats.tunnels_closed.add(1);
        match reason {
            None => self.live.complete(),
            Some(reason) => self.live.fail(reason),
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
        source: &mut TcpStream,
        sink: &mut TcpStream,
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
            ready!(Pin::new(&mut *source).poll_read(context, &mut read))?;
            (self.from, self.to) = (0, read.filled().len());
            self.ended = self.to == 0;
        }
    }
}
