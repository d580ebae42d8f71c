//! A request's body as it comes from its client, by either version of HTTP.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::frames::FrameAccount;

/// See the module.
pub(crate) enum ClientBody {
    /// There is none, whatever follows.
    Empty,
    /// Of a connection of HTTP/1. In memory of its own: requests are moved about, and few have a body.
    Http1(Box<Incoming>),
    /// Of a stream of HTTP/2.
    Http2(Box<StreamBody>),
}

/// The body of a stream of HTTP/2. What is taken of it makes room in the client's window, so a slow node slows its client
/// down.
pub(crate) struct StreamBody {
    stream: RecvStream,
    account: Rc<FrameAccount>,
    /// What is left of the length that its head says, if it says one.
    length: Option<u64>,
    /// All data have come; trailers may follow.
    is_data_over: bool,
}

/// Why a body does not come to its end.
#[derive(Debug)]
pub(crate) enum ClientBodyError {
    Http1(hyper::Error),
    Http2(h2::Error),
}

impl ClientBody {
    /// Of a request on a connection of HTTP/1.
    #[inline]
    pub(crate) fn of_http1(body: Incoming) -> Self {
        match body.is_end_stream() {
            true => Self::Empty,
            false => Self::Http1(Box::new(body)),
        }
    }
}

impl StreamBody {
    /// Of a stream whose head says this length, or none.
    pub(crate) fn new(
        stream: RecvStream,
        account: Rc<FrameAccount>,
        length: Option<u64>,
    ) -> Box<Self> {
        Box::new(Self {
            stream,
            account,
            length,
            is_data_over: false,
        })
    }

    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.is_data_over {
            if let Some(data) = ready!(self.stream.poll_data(context)).transpose()? {
                let bytes = data.len();
                self.account.on_body(bytes as u64);
                self.length = self.length.map(|left| left.saturating_sub(bytes as u64));
                // A stream that is over has no window.
                self.stream.flow_control().release_capacity(bytes)?;
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            self.is_data_over = true;
        }
        let trailers = ready!(self.stream.poll_trailers(context))?;
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = ClientBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClientBodyError>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Http1(incoming) => {
                let polled = ready!(Pin::new(incoming).poll_frame(context));
                Poll::Ready(polled.map(|frame| frame.map_err(ClientBodyError::Http1)))
            }
            Self::Http2(body) => {
                let polled = ready!(body.poll_frame(context));
                Poll::Ready(polled.map(|frame| frame.map_err(ClientBodyError::Http2)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Http1(incoming) => incoming.is_end_stream(),
            Self::Http2(body) => body.stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Http1(incoming) => incoming.size_hint(),
            Self::Http2(body) => body
                .length
                .map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}
