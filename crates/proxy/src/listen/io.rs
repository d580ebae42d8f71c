//! A client's socket as hyper sees it, and what is seen of it on the way.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Buf;
use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::io::{AsyncWrite, Interest};

use crate::connection::departure::{self, DepartureVerdict, PROBE};
use crate::connection::{ClientConnection, Phase};
use crate::record::reason::Reason;
use crate::refusal::ready_made;
use crate::stream::Stream;

/// Answers up to this size are gathered into one buffer.
const GATHER_BYTES_MAX: usize = 4096;

/// The client's side. Notes when a head begins, counts a write as progress,
/// and gives hyper's own answers to malformed heads our form.
pub(crate) struct ClientIo {
    stream: Stream,
    connection: Rc<ClientConnection>,
}

impl ClientIo {
    pub(crate) fn new(stream: Stream, connection: Rc<ClientConnection>) -> Self {
        Self { stream, connection }
    }

    pub(crate) fn into_stream(self) -> Stream {
        self.stream
    }

    /// Waits for something to read, and leaves it there.
    pub(crate) fn poll_read_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Self { stream, connection } = self;
        let reading = &mut connection.inflow.borrow_mut().reading;
        // What may be wrong here shows at the read.
        reading
            .poll(context, |context| stream.socket()?.poll_read_ready(context))
            .map(drop)
    }

    fn socket(&mut self) -> Pin<&mut Stream> {
        Pin::new(&mut self.stream)
    }

    /// While no request is being served and the last response is out, the only thing that hyper
    /// writes is its own answer to a malformed head.
    fn is_refusal(&self) -> bool {
        matches!(self.connection.phase(), Phase::Idle | Phase::Head)
            && self.connection.flushed.get()
    }

    fn poll_refusal(&mut self, context: &mut Context<'_>, answer: &[u8]) -> Poll<io::Result<()>> {
        if self.connection.begins_http2() {
            // It is no malformed head: what has come so far is read by another parser.
            return Poll::Ready(Ok(()));
        }
        let seen = self.connection.inflow.borrow().seen_so_far();
        let reason = match answer.get(9..12) {
            _ if seen.too_long => Reason::BodyTooLarge,
            Some(b"414") => Reason::UriTooLong,
            Some(b"431") => Reason::HeadTooLarge,
            Some(_) | None if seen.tls => Reason::Tls,
            Some(_) | None if seen.other_coding => Reason::BadEncoding,
            Some(_) | None => Reason::BadRequest,
        };
        let ours = ready_made(reason);
        // Nothing was written on this connection since it was last flushed: there is room.
        let written = ready!(self.socket().poll_write(context, &ours))?;
        if written < ours.len() {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.connection.malformed.set(Some(reason));
        Poll::Ready(Ok(()))
    }

    /// Small pieces leave as one buffer: gathering them here costs less than in the kernel.
    fn poll_gathered(
        &mut self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = Pin::new(&mut self.stream);
        if let [only] = slices {
            return stream.poll_write(context, only);
        }
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        if total > GATHER_BYTES_MAX {
            return stream.poll_write_vectored(context, slices);
        }
        let mut scratch = self.connection.base.scratch.raw.borrow_mut();
        let mut at = 0;
        for slice in slices {
            scratch[at..at + slice.len()].copy_from_slice(slice);
            at += slice.len();
        }
        stream.poll_write(context, &scratch[..total])
    }

    /// Writes interim responses, where nothing of hyper's is half written; before the answer itself
    /// they are all out. Behind the rest of an earlier response that the client does not take they
    /// would come too late to be of use, and are dropped.
    #[inline]
    fn poll_interims(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.connection.interims.borrow().is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.poll_some_interims(context)
    }

    #[cold]
    fn poll_some_interims(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, connection } = self;
        let mut interims = connection.interims.borrow_mut();
        if !connection.clean.get() {
            interims.clear();
        }
        while !interims.is_empty() {
            let stream = Pin::new(&mut *stream);
            let written = ready!(stream.poll_write(context, &interims))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            interims.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    /// Looks whether a client that waits for its answer has left ([`departure`]). hyper would look by
    /// reading on, into a new buffer for every request; so its setting is that half-closed connections are
    /// in order, and asks for a flush on every turn, which is when this looks.
    fn poll_gone(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let connection = &self.connection;
        // hyper sees the end of a body that it reads.
        if !connection.is_answered() || (connection.is_uploading() && connection.upload_waits.get())
        {
            return Ok(());
        }
        if !self.stream.is_watched() {
            if !connection.unseen.look(connection.base.tick()) {
                return Ok(());
            }
            connection.unseen.end();
        }
        if !connection.watched.get() {
            let reading = &mut connection.inflow.borrow_mut().reading;
            match reading.poll(context, |context| self.stream.poll_peek(context)) {
                Poll::Pending => return Ok(()),
                // Behind what is here nothing more can be seen: from now on the clock sees to it.
                Poll::Ready(Ok(_)) => connection.watched.set(true),
                Poll::Ready(Err(error)) => return Err(error),
            }
        }
        self.look(context)
    }

    /// Looks at what the reactor knows of the socket, whatever is still unread.
    fn look(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let ready = {
            let socket = self.stream.socket()?;
            let ready = pin!(socket.ready(Interest::READABLE | Interest::WRITABLE));
            match ready.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(ready) => ready?,
                Poll::Pending => return Ok(()),
            }
        };
        let stream = &mut self.stream;
        if ready.is_write_closed() {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if !ready.is_read_closed() && !stream.has_ended() {
            return Ok(());
        }
        match departure::verdict(self.connection.on_sending_ended()) {
            DepartureVerdict::Answer => Ok(()),
            DepartureVerdict::Gone => Err(io::ErrorKind::ConnectionAborted.into()),
            // One that is half written finds out as well.
            DepartureVerdict::Probe if !self.connection.interims.borrow().is_empty() => Ok(()),
            DepartureVerdict::Probe => match stream.write_now(context, PROBE) {
                Ok(written) if written == PROBE.len() => {
                    self.connection.probed.set(true);
                    Ok(())
                }
                // Half a response would make the next one unreadable.
                Ok(_) => Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
                Err(error) => Err(error),
            },
        }
    }

    fn on_write(&self, polled: &Poll<io::Result<usize>>) {
        let connection = &self.connection;
        match (polled, connection.phase()) {
            // The rest of a response is still going out.
            (Poll::Ready(Ok(1..)), Phase::Idle) => {
                connection.extend_idle();
            }
            (Poll::Ready(Ok(written @ 1..)), Phase::Body) => {
                connection.on_body_bytes(*written as u64)
            }
            (Poll::Pending, Phase::Body) => connection.stand_still(),
            _ => {}
        }
    }
}

impl Read for ClientIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, connection } = &mut *self;
        let mut inflow = connection.inflow.borrow_mut();
        let is_head = !inflow.is_in_body();
        let read = ready!(inflow.poll_read(stream, &connection.base.scratch, context, buffer))?;
        if is_head && read > 0 {
            connection.on_head_bytes();
        }
        Poll::Ready(Ok(()))
    }
}

impl Write for ClientIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_refusal() {
            ready!(self.poll_refusal(context, bytes))?;
            return Poll::Ready(Ok(bytes.len()));
        }
        ready!(self.poll_interims(context))?;
        self.connection.clean.set(false);
        let polled = self.socket().poll_write(context, bytes);
        self.on_write(&polled);
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.is_refusal() {
            let first = slices.first().map_or(&[][..], |slice| slice);
            ready!(self.poll_refusal(context, first))?;
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        ready!(self.poll_interims(context))?;
        self.connection.clean.set(false);
        let polled = self.poll_gathered(context, slices);
        self.on_write(&polled);
        polled
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes when its own buffer is empty.
        self.connection.clean.set(true);
        if let Poll::Ready(Err(error)) = self.poll_interims(context) {
            return Poll::Ready(Err(error));
        }
        self.poll_gone(context)?;
        ready!(self.socket().poll_flush(context))?;
        if matches!(self.connection.phase(), Phase::Idle | Phase::Head) {
            self.connection.flushed.set(true);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.connection.begins_http2() {
            return Poll::Ready(Ok(()));
        }
        match self.stream {
            // It is closed behind this, which says the same; or lingers, and then that says it.
            Stream::Plain(_) => Poll::Ready(Ok(())),
            Stream::Tls(_) => self.socket().poll_shutdown(context),
        }
    }
}
