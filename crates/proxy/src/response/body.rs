//! A response body on its way to the client, one frame at a time: none is read before the client's connection wants
//! it, so a slow client slows its node down and little is held in between.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::pacing::Pacing;
use crate::connection::Upload;
use crate::record::reason::Reason;
use crate::request::{Moment, RequestGuard};
use crate::upstream::body::BodyError;

/// A response body on its way to the client. Small, since hyper moves responses about.
pub(crate) enum ResponseBody {
    /// Nothing, or nothing more.
    Empty,
    /// A text of our own.
    Ready(Box<Bytes>),
    /// The node's. The ticket is in it, and ends with it.
    Stream(Box<ResponseStream>),
}

/// See [`ResponseBody`].
pub(crate) struct ResponseStream {
    incoming: Incoming,
    guard: RequestGuard,
    /// When the head came, until something of the body is asked for: a short one has come with it.
    head: Option<Moment>,
    /// A chunk that goes piece by piece.
    pacing: Option<Pacing>,
    /// Why it ends, once what came before has gone out.
    broken: Option<Reason>,
}

impl From<Bytes> for ResponseBody {
    fn from(text: Bytes) -> Self {
        match text.is_empty() {
            true => Self::Empty,
            false => Self::Ready(Box::new(text)),
        }
    }
}

impl ResponseStream {
    pub(crate) fn new(incoming: Incoming, guard: RequestGuard, head: Option<Moment>) -> Box<Self> {
        Box::new(Self {
            incoming,
            guard,
            head,
            pacing: None,
            broken: None,
        })
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let head = self.head.take();
        let Some(client) = self.guard.client() else {
            return Poll::Ready(None);
        };
        if let Some(reason) = self.broken.take() {
            return self.fail(reason);
        }
        if client.connection.take_late() {
            let connection = &client.connection;
            return self.fail(match connection.node_stands_still() {
                _ if connection.is_overdue() => Reason::TotalTimeout,
                true => Reason::ResponseStalled,
                false => Reason::AnswerSlow,
            });
        }
        client.connection.on_client();
        if let Some(pacing) = &mut self.pacing {
            let worker = &client.worker;
            let polled = pacing.poll(&worker.base, worker.throttles.shared(), context);
            if polled.is_pending() {
                client.connection.await_throttle();
            }
            let piece = ready!(polled);
            self.pacing = self.pacing.take().filter(|pacing| !pacing.is_done());
            return self.hand_on(Frame::data(piece), None);
        }
        // What the node is to do takes a place.
        ready!(client.connection.poll_place(context));
        let mut driven = false;
        let polled = loop {
            let incoming = Pin::new(&mut self.incoming);
            let polled = client.connection.with_context(context, |context| {
                match &*client.upstream.borrow() {
                    Some(upstream) => upstream.quietly(|| incoming.poll_frame(context)),
                    None => incoming.poll_frame(context),
                }
            });
            if polled.is_ready() || driven {
                break polled;
            }
            client.drive();
            driven = true;
        };
        if polled.is_pending() {
            client.connection.await_node();
        }
        match ready!(polled) {
            Some(Ok(frame)) => match (self.guard.throttle(), frame.into_data()) {
                (Some(throttle), Ok(chunk)) => {
                    if self.incoming.is_end_stream() {
                        self.guard.on_server_done();
                    }
                    self.pacing = Some(Pacing::new(throttle, chunk));
                    self.poll(context)
                }
                (None, Ok(chunk)) => self.hand_on(Frame::data(chunk), head),
                (_, Err(frame)) => self.hand_on(frame, head),
            },
            None => {
                self.guard.complete();
                Poll::Ready(None)
            }
            // A request body that breaks takes the connection to the node with it.
            Some(Err(_)) => {
                self.broken = Some(match client.connection.upload.get() {
                    Upload::Failed(reason) => reason,
                    Upload::Done | Upload::Active => Reason::ResponseBroken,
                });
                // hyper writes what it holds before it asks again; behind an error it would drop it.
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    /// It goes to the client; with the answer's head, if nothing was asked for between.
    fn hand_on(
        &mut self,
        frame: Frame<Bytes>,
        head: Option<Moment>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(client) = self.guard.client() {
            client.connection.on_node_bytes();
            client.connection.await_client();
        }
        if let Some(data) = frame.data_ref() {
            self.guard.on_bytes(data.len() as u64);
        }
        // Behind trailers hyper asks for nothing more.
        if frame.is_trailers() || self.is_end_stream() {
            self.guard.complete_with(head);
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.pacing.is_none() && self.incoming.is_end_stream()
    }

    fn fail(&mut self, reason: Reason) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.guard.fail(reason);
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
        let body = self.get_mut();
        match body {
            Self::Empty => Poll::Ready(None),
            Self::Ready(text) => {
                let text = std::mem::take(&mut **text);
                *body = Self::Empty;
                Poll::Ready(Some(Ok(Frame::data(text))))
            }
            Self::Stream(stream) => stream.poll(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Ready(_) => false,
            Self::Stream(stream) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Ready(text) => SizeHint::with_exact(text.len() as u64),
            Self::Stream(stream) => stream.incoming.size_hint(),
        }
    }
}
