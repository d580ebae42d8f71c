//! A request body on its way to a node, one frame at a time: none is read before the node's connection wants it, so a
//! slow node slows its client down and little is held in between.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use super::replay::HeldBody;
use crate::connection::{ClientConnection, Phase, Upload};
use crate::head;
use crate::record::reason::Reason;
use crate::wire::client_body::{ClientBody, ClientBodyError};

/// Asks a client for the body that it holds back.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Why a body ends before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.what())]
pub(crate) struct BodyError(pub(crate) Reason);

/// A request body on its way to a node.
pub(crate) enum RequestBody {
    Empty,
    Stream(Box<RequestStream>),
    /// It can be sent again.
    Held(Box<HeldBody>),
}

/// See [`RequestBody`].
pub(crate) struct RequestStream {
    incoming: ClientBody,
    connection: Rc<ClientConnection>,
    /// Which of the connection's requests it is of.
    serial: u64,
    /// A client of HTTP/2 holds the body back until it is asked for it.
    is_asked_for: bool,
    hold: Option<ExpectHold>,
    left: u64,
    /// What waits for a place: a frame, or the end.
    next: Option<Option<Frame<Bytes>>>,
}

/// Holds a body back until the node wants it, or the client sends it unasked.
struct ExpectHold {
    wanted: Arc<AtomicBool>,
    at_latest: Pin<Box<Sleep>>,
}

impl RequestBody {
    /// Wraps a body of at most `limit` bytes. With `wanted` it is held back until that is set; a client that `expects` it is asked
    /// for it then. With `replay` it can be sent again while it is no longer than that.
    pub(crate) fn new(
        incoming: ClientBody,
        connection: &Rc<ClientConnection>,
        limit: Option<u64>,
        wanted: Option<Arc<AtomicBool>>,
        expects: bool,
        replay: Option<usize>,
    ) -> Self {
        // hyper asks by itself, when the body is first read.
        let is_held_back = expects && matches!(incoming, ClientBody::Http2(_));
        let is_known_long = |most: usize| incoming.size_hint().lower() > most as u64;
        let replay = replay.filter(|most| !is_known_long(*most));
        let stream = Box::new(RequestStream {
            incoming,
            serial: connection.serial.get(),
            is_asked_for: !is_held_back,
            connection: Rc::clone(connection),
            hold: wanted.map(|wanted| ExpectHold {
                wanted,
                at_latest: Box::pin(tokio::time::sleep(
                    connection.settings.timeouts().expect_continue,
                )),
            }),
            left: limit.unwrap_or(u64::MAX),
            next: None,
        });
        match replay {
            None => Self::Stream(stream),
            Some(most) => Self::Held(Box::new(HeldBody::new(stream, most))),
        }
    }

    /// It is sent again.
    pub(crate) fn begin_again(&self) {
        match self {
            Self::Empty | Self::Stream(_) => {}
            Self::Held(body) => body.begin(),
        }
    }
}

/// Why a body that is in order so far does not go on. A client that has ended its side (RFC 9112 §8) may still read.
#[cold]
fn end_of(error: &ClientBodyError) -> Reason {
    let error = match error {
        ClientBodyError::Http1(error) => error,
        // The client has reset it, or the connection has ended; else its frames are not as long as its head says.
        ClientBodyError::Http2(error) if error.is_remote() || error.is_io() => {
            return Reason::ClientGone;
        }
        ClientBodyError::Http2(_) => return Reason::BodyCut,
    };
    let source = std::error::Error::source(error).and_then(|it| it.downcast_ref::<io::Error>());
    match source.map(io::Error::kind) {
        Some(io::ErrorKind::UnexpectedEof) => Reason::BodyCut,
        Some(_) | None => Reason::ClientGone,
    }
}

impl RequestStream {
    /// Whether its request has ended. A connection that drives itself may ask on for it.
    fn is_over(&self) -> bool {
        self.connection.serial.get() != self.serial || !self.connection.is_answered()
    }

    pub(super) fn connection(&self) -> &ClientConnection {
        &self.connection
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.next.is_none() && self.incoming.is_end_stream()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }

    /// What was read before may go on, once it has a place.
    pub(super) fn poll_again(&self, context: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        if self.is_over() {
            return Poll::Ready(Err(BodyError(Reason::ClientGone)));
        }
        ready!(self.connection.poll_place(context));
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.is_over() {
            return Poll::Ready(Some(Err(BodyError(Reason::ClientGone))));
        }
        if let Some(hold) = &mut self.hold {
            if !hold.wanted.load(Ordering::Relaxed) && !self.connection.has_sent_more() {
                let polled = hold.at_latest.as_mut().poll(context);
                if polled.is_pending() {
                    self.connection.stand_still();
                }
                ready!(polled);
            }
            self.hold = None;
        }
        if !self.is_asked_for {
            self.is_asked_for = true;
            let mut interims = self.connection.interims.borrow_mut();
            interims.extend_from_slice(CONTINUE);
            drop(interims);
            self.connection.wake();
        }
        let connection = &self.connection;
        let kept = self.next.take();
        let waited = kept.is_some();
        let polled = match kept {
            Some(next) => Poll::Ready(next.map(Ok)),
            None => Pin::new(&mut self.incoming).poll_frame(context),
        };
        connection.upload_waits.set(polled.is_pending());
        if polled.is_pending() {
            connection.stand_still();
        }
        let polled = ready!(polled);
        connection.on_client();
        let next = match polled.transpose() {
            Ok(next) => next,
            Err(error) => {
                let broken = connection.inflow.borrow().broken();
                return self.fail(broken.map_or_else(|| end_of(&error), Reason::from));
            }
        };
        if connection.poll_place(context).is_pending() {
            self.next = Some(next);
            return Poll::Pending;
        }
        if waited && connection.phase() == Phase::Busy {
            connection.on_node_bytes();
        }
        let Some(mut frame) = next else {
            self.done();
            return Poll::Ready(None);
        };
        if let Some(trailers) = frame.trailers_mut() {
            head::strip_trailers(trailers, &connection.settings.forwarded());
        }
        if let Some(data) = frame.data_ref() {
            let bytes = data.len() as u64;
            let Some(left) = self.left.checked_sub(bytes) else {
                return self.fail(Reason::BodyTooLarge);
            };
            self.left = left;
            connection.uploaded.set(connection.uploaded.get() + bytes);
            if self.incoming.is_end_stream() {
                self.done();
            } else {
                connection.on_body_bytes(bytes);
            }
        } else {
            // Trailers are the last.
            self.done();
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn fail(&self, reason: Reason) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.connection.upload.set(Upload::Failed(reason));
        Poll::Ready(Some(Err(BodyError(reason))))
    }

    /// All is sent: from now on the node's answer is due.
    pub(super) fn done(&self) {
        self.connection.upload.set(Upload::Done);
        if self.connection.phase() == Phase::Busy {
            self.connection.end_body();
            self.connection
                .extend(self.connection.ticks().response_head);
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Stream(stream) => stream.poll(context),
            Self::Held(body) => body.poll(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Stream(stream) => stream.incoming.is_end_stream(),
            Self::Held(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Stream(stream) => stream.incoming.size_hint(),
            Self::Held(body) => body.size_hint(),
        }
    }
}
