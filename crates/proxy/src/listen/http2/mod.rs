//! A client connection of HTTP/2 (RFC 9113): frames are read and written here, and each stream is served in a task of its own, with a
//! [`Client`] of its own, as if its request had come alone ([`stream`]). So a request is let in, picked and counted by itself, whatever
//! connection it shares.
//!
//! | the connection | then |
//! |---|---|
//! | has not said its preface and settings in the time for a head | cut |
//! | has no stream for the time that an idle connection has | `GOAWAY`, and closed |
//! | belongs to a worker that drains, or to a listener that was taken out | `GOAWAY`; its streams end by themselves |
//! | asks for more than it may ([`FrameAccount`]) | `GOAWAY` with `ENHANCE_YOUR_CALM`, and cut |
//! | breaks the protocol | `GOAWAY` with the reason, and closed |
//!
//! Failure case: a stream that breaks the protocol, or cannot be answered to its end, is reset; the others go on.
//!
//! [`Client`]: crate::request::Client

mod io;
mod stream;
mod tunnel;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::server::{Builder, Connection, Handshake, SendResponse};
use h2::{Reason as Code, RecvStream};
use http::Request;

use super::clients::Clients;
use super::linger::linger;
use crate::connection::{ClientConnection, Phase};
use crate::request::Client;
use crate::stream::Stream;
use crate::wire::frames::FrameAccount;
use crate::worker::head_and_buffer_bytes;
use io::{FrameIo, Wire};

/// Streams that a client may have open at once.
const STREAMS_MAX: u32 = 128;
/// Bytes of a request's body that may be on their way before its node takes them.
const STREAM_WINDOW: u32 = 256 << 10;
/// The same of all streams of a connection.
const CONNECTION_WINDOW: u32 = 512 << 10;
/// Bytes of an answer that a stream may hand over before they are written.
const SEND_BUFFER: usize = 64 << 10;
/// Streams that are remembered after they were reset, for frames that were under way.
const RESET_STREAMS: usize = 32;
/// Streams that are reset for breaking the protocol before the connection ends.
const BROKEN_STREAMS: usize = 128;
/// Streams that are taken in before others get their turn.
const BATCH: usize = 32;
/// Streams' memory that is kept for the next ones.
const SPARE_MAX: usize = 8;

/// Serves the connection, of which these bytes were read before.
pub(super) async fn serve(
    clients: &Rc<Clients>,
    client: &Rc<Client>,
    stream: Stream,
    early: Bytes,
) {
    let connection = &client.connection;
    let base = &connection.base;
    let account = Rc::<FrameAccount>::default();
    let scratch = Rc::clone(&base.scratch);
    let wire = Wire::new(stream, Rc::clone(&account));
    let io = FrameIo::new(Rc::clone(&wire), early, scratch);
    let (head_bytes, _) = head_and_buffer_bytes(&connection.settings.limits());
    // All of it is on the heap: an idle connection keeps no more than it must.
    let Some(frames) = Box::pin(begin(connection, builder(head_bytes).handshake(io))).await else {
        // What is unread would make the kernel reset the connection before the last frame is read.
        if let Some(wire) = Rc::into_inner(wire)
            && !connection.cut.get()
        {
            let limit = connection.settings.timeouts().linger;
            linger(wire.into_stream(), None, limit).await;
        }
        return;
    };
    base.stats().http2_connections.add(1);
    connection.enter(Phase::Idle, connection.ticks().client_idle);
    let mut serving = Serving {
        frames,
        wire,
        streams: Streams::new(clients, client, account),
        head_bytes,
        is_excessive: false,
    };
    poll_fn(|context| serving.poll(context)).await;
}

fn builder(head_bytes: usize) -> Builder {
    let mut builder = Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(head_bytes).unwrap_or(u32::MAX))
        .max_send_buffer_size(SEND_BUFFER)
        .max_concurrent_reset_streams(RESET_STREAMS)
        .max_local_error_reset_streams(Some(BROKEN_STREAMS))
        .enable_connect_protocol();
    builder
}

/// Waits for the client's preface and settings, for as long as a head may take.
async fn begin(
    connection: &ClientConnection,
    handshake: Handshake<FrameIo, Bytes>,
) -> Option<Connection<FrameIo, Bytes>> {
    let mut handshake = pin!(handshake);
    poll_fn(|context| {
        connection.register(context.waker());
        if connection.cut.get() || connection.take_late() {
            return Poll::Ready(None);
        }
        handshake.as_mut().poll(context).map(Result::ok)
    })
    .await
}

/// A connection that has begun.
struct Serving {
    frames: Connection<FrameIo, Bytes>,
    wire: Rc<Wire>,
    streams: Rc<Streams>,
    head_bytes: usize,
    /// Its client has asked for more than it may, and has been answered so.
    is_excessive: bool,
}

impl Serving {
    /// Ready when it is over.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let streams = Rc::clone(&self.streams);
        let connection = &streams.client.connection;
        connection.register(context.waker());
        let late = connection.take_late();
        if connection.cut.get() || (late && streams.leaves()) {
            return Poll::Ready(());
        }
        let base = &connection.base;
        if late || base.drain.has_begun() || connection.listener.has_begun() {
            self.leave();
        }
        self.wire.hold();
        if self.poll_frames(context).is_ready() {
            return Poll::Ready(());
        }
        match self.wire.release(context) {
            Poll::Ready(Err(_)) => Poll::Ready(()),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        }
    }

    /// Takes frames in, and hands those on that are due. Ready when the connection is over.
    fn poll_frames(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let streams = Rc::clone(&self.streams);
        let connection = &streams.client.connection;
        for _ in 0..BATCH {
            match self.frames.poll_accept(context) {
                Poll::Ready(Some(Ok((request, answer)))) => streams.begin(request, answer),
                // The client is sent why, as far as it can be.
                Poll::Ready(Some(Err(error))) => {
                    // What is no error of ours to say is that the client has left.
                    if error.is_go_away() && error.is_library() && !self.is_excessive {
                        connection.base.stats().http2_violations.add(1);
                    }
                    return Poll::Ready(());
                }
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending if self.takes_excess() => {}
                Poll::Pending => return Poll::Pending,
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// The client learns that the connection ends: streams that are open go on.
    fn leave(&mut self) {
        if !self.streams.leaves.replace(true) {
            self.frames.graceful_shutdown();
            self.streams.rest();
        }
    }

    /// Whether the client has asked for more than it may since this was last looked at: then it learns so now.
    fn takes_excess(&mut self) -> bool {
        let streams = &self.streams;
        if self.is_excessive || !streams.account.is_excessive(self.head_bytes) {
            return false;
        }
        self.is_excessive = true;
        let connection = &streams.client.connection;
        connection.base.stats().http2_excesses.add(1);
        streams.leaves.set(true);
        connection.enter(Phase::Idle, connection.ticks().linger);
        self.frames.abrupt_shutdown(Code::ENHANCE_YOUR_CALM);
        true
    }
}

/// What the streams of a connection share.
struct Streams {
    clients: Rc<Clients>,
    /// The connection itself.
    client: Rc<Client>,
    account: Rc<FrameAccount>,
    open: Cell<usize>,
    /// The client knows that the connection ends.
    leaves: Cell<bool>,
    /// Memory of streams that are over.
    spare: RefCell<Vec<Rc<Client>>>,
}

impl Streams {
    fn new(clients: &Rc<Clients>, client: &Rc<Client>, account: Rc<FrameAccount>) -> Rc<Self> {
        Rc::new(Self {
            clients: Rc::clone(clients),
            client: Rc::clone(client),
            account,
            open: Cell::new(0),
            leaves: Cell::new(false),
            spare: RefCell::default(),
        })
    }

    fn leaves(&self) -> bool {
        self.leaves.get()
    }

    /// A stream comes, with a request.
    fn begin(self: &Rc<Self>, request: Request<RecvStream>, answer: SendResponse<Bytes>) {
        self.account.on_request();
        let spare = self.spare.borrow_mut().pop();
        let client = spare.unwrap_or_else(|| self.client.of_stream());
        self.open.set(self.open.get() + 1);
        // While there are streams, it is their time that runs.
        self.client.connection.suspend();
        self.client.connection.served.set(true);
        // In memory of its own: a task moves what it holds three times more.
        let serving = Box::pin(stream::serve(Rc::clone(self), client, request, answer));
        tokio::task::spawn_local(serving);
    }

    /// A stream is over.
    fn end(&self, client: Rc<Client>) {
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_MAX && !client.connection.cut.get() {
            spare.push(client);
        }
        self.open.set(self.open.get().saturating_sub(1));
        self.rest();
    }

    /// If there is no stream, the connection's own time runs.
    fn rest(&self) {
        let connection = &self.client.connection;
        if self.open.get() > 0 {
            return;
        }
        match self.leaves() {
            true => connection.enter(Phase::Idle, connection.ticks().linger),
            false => {
                connection.enter_idle();
                connection.extend(connection.ticks().client_idle);
            }
        }
    }
}
