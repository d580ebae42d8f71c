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
use hyper::body::Incoming;
use tokio::time::Sleep;

use crate::connection::{ClientConnection, Phase, Upload};
use crate::head;
use crate::record::reason::Reason;

/// Why a body ends before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.what())]
pub(crate) struct BodyError(pub(crate) Reason);

/// A request body on its way to a node.
pub(crate) enum RequestBody {
    Empty,
    Stream(Box<RequestStream>),
}

/// See [`RequestBody`].
pub(crate) struct RequestStream {
    incoming: Incoming,
    connection: Rc<ClientConnection>,
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
    /// Wraps a body of at most `limit` bytes. With `wanted` it is held back until that is set.
    pub(crate) fn new(
        incoming: Incoming,
        connection: &Rc<ClientConnection>,
        limit: Option<u64>,
        wanted: Option<Arc<AtomicBool>>,
    ) -> Self {
        Self::Stream(Box::new(RequestStream {
            incoming,
            connection: Rc::clone(connection),
            hold: wanted.map(|wanted| ExpectHold {
                wanted,
                at_latest: Box::pin(tokio::time::sleep(
                    connection.settings.timeouts().expect_continue,
                )),
            }),
            left: limit.unwrap_or(u64::MAX),
            next: None,
        }))
    }
}

/// Why a body that is in order so far does not go on. A client that has ended its side (RFC 9112 §8) may still read.
#[cold]
fn end_of(error: &hyper::Error) -> Reason {
    let source = std::error::Error::source(error).and_then(|it| it.downcast_ref::<io::Error>());
    match source.map(io::Error::kind) {
        Some(io::ErrorKind::UnexpectedEof) => Reason::BodyCut,
        Some(_) | None => Reason::ClientGone,
    }
}

impl RequestStream {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
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
    fn done(&self) {
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
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Stream(stream) => stream.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Stream(stream) => stream.incoming.size_hint(),
        }
    }
}
