//! Bodies on their way, one frame at a time: nobody reads a frame before the other side wants
//! it, so a slow reader slows the writer down and little is held in between.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Sleep;

use crate::exchange::Live;
use crate::head;
use crate::pacing::Pacing;
use crate::reason::Reason;
use crate::session::{Phase, Session, Upload};

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
    session: Rc<Session>,
    hold: Option<Hold>,
    left: u64,
    /// What waits for a place: a frame, or the end.
    next: Option<Option<Frame<Bytes>>>,
}

/// Holds a body back until the node wants it, or the client sends it unasked.
struct Hold {
    wanted: Arc<AtomicBool>,
    at_latest: Pin<Box<Sleep>>,
}

impl RequestBody {
    /// Wraps a body of at most `limit` bytes. With `wanted` it is held back until that is set.
    pub(crate) fn new(
        incoming: Incoming,
        session: &Rc<Session>,
        limit: Option<u64>,
        wanted: Option<Arc<AtomicBool>>,
    ) -> Self {
        Self::Stream(Box::new(RequestStream {
            incoming,
            session: Rc::clone(session),
            hold: wanted.map(|wanted| Hold {
                wanted,
                at_latest: Box::pin(tokio::time::sleep(
                    session.worker.config.timeouts.expect_continue,
                )),
            }),
            left: limit.unwrap_or(u64::MAX),
            next: None,
        }))
    }
}

impl RequestStream {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(hold) = &mut self.hold {
            if !hold.wanted.load(Ordering::Relaxed) && !self.session.has_sent_more() {
                let polled = hold.at_latest.as_mut().poll(context);
                if polled.is_pending() {
                    self.session.stand_still();
                }
                ready!(polled);
            }
            self.hold = None;
        }
        let session = &self.session;
        let kept = self.next.take();
        let waited = kept.is_some();
        let polled = match kept {
            Some(next) => Poll::Ready(next.map(Ok)),
            None => Pin::new(&mut self.incoming).poll_frame(context),
        };
        session.upload_waits.set(polled.is_pending());
        if polled.is_pending() {
            session.stand_still();
        }
        let polled = ready!(polled);
        session.on_client();
        let Ok(next) = polled.transpose() else {
            let broken = session.inflow.borrow().broken();
            return self.fail(broken.map_or(Reason::ClientGone, Reason::from));
        };
        if session.poll_place(context).is_pending() {
            self.next = Some(next);
            return Poll::Pending;
        }
        if waited && session.phase() == Phase::Busy {
            session.on_node_bytes();
        }
        let Some(mut frame) = next else {
            self.done();
            return Poll::Ready(None);
        };
        if let Some(trailers) = frame.trailers_mut() {
            head::strip_trailers(trailers, &session.worker.config.forwarded);
        }
        if let Some(data) = frame.data_ref() {
            let bytes = data.len() as u64;
            let Some(left) = self.left.checked_sub(bytes) else {
                return self.fail(Reason::BodyTooLarge);
            };
            self.left = left;
            session.uploaded.set(session.uploaded.get() + bytes);
            if self.incoming.is_end_stream() {
                self.done();
            } else {
                session.on_body_bytes(bytes);
            }
        } else {
            // Trailers are the last.
            self.done();
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn fail(&self, reason: Reason) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.session.upload.set(Upload::Failed(reason));
        Poll::Ready(Some(Err(BodyError(reason))))
    }

    /// All is sent: from now on the node's answer is due.
    fn done(&self) {
        self.session.upload.set(Upload::Done);
        if self.session.phase() == Phase::Busy {
            self.session.end_body();
            self.session.extend(self.session.worker.ticks.response_head);
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

/// A response body on its way to the client.
pub(crate) enum ResponseBody {
    /// Nothing.
    Empty,
    /// A text of our own.
    Ready(Option<Bytes>),
    /// The node's. The ticket is in it, and ends with it.
    Stream(ResponseStream),
}

/// See [`ResponseBody`].
pub(crate) struct ResponseStream {
    incoming: Incoming,
    live: Live,
    /// A chunk that goes piece by piece.
    pacing: Option<Pacing>,
    /// Why it ends, once what came before has gone out.
    broken: Option<Reason>,
}

impl ResponseStream {
    pub(crate) fn new(incoming: Incoming, live: Live) -> Self {
        Self {
            incoming,
            live,
            pacing: None,
            broken: None,
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(session) = self.live.session() else {
            return Poll::Ready(None);
        };
        if let Some(reason) = self.broken.take() {
            return self.fail(reason);
        }
        if session.take_late() {
            return self.fail(match session.node_stands_still() {
                true => Reason::ResponseStalled,
                false => Reason::AnswerSlow,
            });
        }
        session.on_client();
        if let Some(pacing) = &mut self.pacing {
            let polled = pacing.poll(&session.worker, context);
            if polled.is_pending() {
                session.await_throttle();
            }
            let piece = ready!(polled);
            self.pacing = self.pacing.take().filter(|pacing| !pacing.is_done());
            return self.hand_on(Frame::data(piece));
        }
        // What the node is to do takes a place.
        ready!(session.poll_place(context));
        let mut driven = false;
        let polled = loop {
            let incoming = Pin::new(&mut self.incoming);
            let polled =
                session.with_context(context, |context| match &*session.upstream.borrow() {
                    Some(upstream) => upstream.quietly(|| incoming.poll_frame(context)),
                    None => incoming.poll_frame(context),
                });
            if polled.is_ready() || driven {
                break polled;
            }
            session.drive();
            driven = true;
        };
        if polled.is_pending() {
            session.await_node();
        }
        match ready!(polled) {
            Some(Ok(frame)) => match (self.live.throttle(), frame.into_data()) {
                (Some(throttle), Ok(chunk)) => {
                    if self.incoming.is_end_stream() {
                        self.live.on_server_done();
                    }
                    self.pacing = Some(Pacing::new(throttle, chunk));
                    self.poll(context)
                }
                (None, Ok(chunk)) => self.hand_on(Frame::data(chunk)),
                (_, Err(frame)) => self.hand_on(frame),
            },
            None => {
                self.live.complete();
                Poll::Ready(None)
            }
            // A request body that breaks takes the connection to the node with it.
            Some(Err(_)) => {
                self.broken = Some(match session.upload.get() {
                    Upload::Failed(reason) => reason,
                    Upload::Done | Upload::Active => Reason::ResponseBroken,
                });
                // hyper writes what it holds before it asks again; behind an error it would drop it.
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    /// It goes to the client.
    fn hand_on(&mut self, frame: Frame<Bytes>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(session) = self.live.session() {
            session.on_node_bytes();
            session.await_client();
        }
        if let Some(data) = frame.data_ref() {
            self.live.on_bytes(data.len() as u64);
        }
        // Behind trailers hyper asks for nothing more.
        if frame.is_trailers() || self.is_end_stream() {
            self.live.complete();
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.pacing.is_none() && self.incoming.is_end_stream()
    }

    fn fail(&mut self, reason: Reason) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.live.fail(reason);
        Poll::Ready(Some(Err(BodyError(reason))))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Ready(text) => Poll::Ready(text.take().map(Frame::data).map(Ok)),
            Self::Stream(stream) => stream.poll(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Ready(text) => text.is_none(),
            Self::Stream(stream) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Ready(text) => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
            Self::Stream(stream) => stream.incoming.size_hint(),
        }
    }
}
