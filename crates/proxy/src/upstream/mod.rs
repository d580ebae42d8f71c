//! Connections to nodes: of HTTP/1.1, each for one request at a time, and of HTTP/2, which several requests share; and the pool of them.

pub(crate) mod body;
mod http1;
mod http2;
mod io;
pub(crate) mod marking;
mod pool;
mod replay;
mod waker;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::Builder;
use pin_project_lite::pin_project;
use tidegate_core::throttle::Marks;
use tidegate_core::topology::{Membership, NodeId, Topology};

use crate::config::Limits;
use crate::connection::introduction::IntroductionId;
use crate::record::stats::WorkerStats;
use crate::stream::Stream;
use crate::tls::NodeTlsId;
use crate::wire::inflow::Scratch;
use body::RequestBody;
use http1::Http1;
use http2::Http2;
pub(crate) use pool::Pool;

/// Where a connection goes, and as what: only one that is the same in all of it can stand in for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UpstreamKey {
    pub(crate) node: NodeId,
    /// Which of the nodes that have its place.
    pub(crate) generation: u32,
    pub(crate) address: SocketAddr,
    /// How the network is to treat it.
    pub(crate) marks: Marks,
    /// The rule by which it speaks TLS; none: it is plain.
    pub(crate) tls: Option<NodeTlsId>,
    /// Whether it speaks HTTP/2.
    pub(crate) http2: bool,
    /// The client connection that its header has named, if it had one.
    pub(crate) introduces: Option<IntroductionId>,
}

impl UpstreamKey {
    /// Whether the other one is at the same server, by the same rules. Node, marks and client are compared by the one that asks.
    #[inline]
    fn is_of_same_server(&self, other: &Self) -> bool {
        self.generation == other.generation
            && self.tls == other.tls
            && self.http2 == other.http2
            && self.address == other.address
    }

    /// Whether the node is still a member there, and no move to another site waits for its connections.
    fn is_current(&self, topology: &Topology) -> bool {
        let node = topology.nodes.get(self.node.index());
        node.is_some_and(|node| {
            node.membership == Membership::Member
                && !node.withheld
                && (node.generation, node.address) == (self.generation, self.address)
        })
    }
}

/// What connections of one worker share.
pub(crate) struct UpstreamParts<'a> {
    pub(crate) http1: &'a Builder,
    pub(crate) limits: Limits,
    pub(crate) scratch: Rc<Scratch>,
    pub(crate) stats: Arc<WorkerStats>,
}

/// What a request goes to its node on.
pub(crate) enum Upstream {
    /// A connection of its own.
    Http1(Box<Http1>),
    /// A stream of a connection that others use as well.
    Http2(Http2),
}

impl Upstream {
    /// Speaks HTTP on a stream of bytes, by the version that the key has.
    pub(crate) async fn new(
        stream: Stream,
        key: UpstreamKey,
        parts: UpstreamParts<'_>,
    ) -> Result<Self, hyper::Error> {
        Ok(match key.http2 {
            false => Self::Http1(Box::new(Http1::new(stream, key, parts).await?)),
            true => Self::Http2(Http2::new(stream, key, parts).await?),
        })
    }

    /// Lets others use it as well, where they can.
    pub(crate) fn share(&self, pool: &mut Pool) {
        match self {
            Self::Http1(_) => {}
            Self::Http2(stream) => pool.share(stream.connection()),
        }
    }

    /// Whether a task of its own drives it, and not the session that has it.
    pub(crate) fn drives_itself(&self) -> bool {
        match self {
            Self::Http1(_) => false,
            Self::Http2(_) => true,
        }
    }

    /// Hands a request over; it goes out with the next [`drive`](Self::drive). With `capture`
    /// it is kept, so that it can be sent again if it is not answered; HTTP/2 keeps it in any case, and gives it back where the
    /// node says that it was not begun.
    #[inline]
    pub(crate) fn send(
        &mut self,
        request: Request<RequestBody>,
        owner: Option<Waker>,
        capture: bool,
    ) -> Sending {
        match self {
            Self::Http1(connection) => Box::pin(Converted {
                sending: connection.send(request, owner, capture),
            }),
            Self::Http2(stream) => Box::pin(Converted {
                sending: stream.send(request, capture),
            }),
        }
    }

    /// Lets the connection do what it can do now. True if it has ended.
    #[inline]
    pub(crate) fn drive(&mut self) -> bool {
        match self {
            Self::Http1(connection) => connection.drive(),
            Self::Http2(_) => false,
        }
    }

    /// Runs `work` without waking the owner, which will drive the connection anyhow.
    pub(crate) fn quietly<T>(&self, work: impl FnOnce() -> T) -> T {
        match self {
            Self::Http1(connection) => connection.quietly(work),
            Self::Http2(_) => work(),
        }
    }

    /// Gives up an ended connection, so that what waits in it comes back.
    pub(crate) fn give_up(&mut self) {
        match self {
            Self::Http1(connection) => connection.give_up(),
            Self::Http2(_) => {}
        }
    }

    /// Takes the stream of a connection that has ended in an upgrade, and what was read ahead.
    pub(crate) fn take_stream(&mut self) -> Option<(Stream, Bytes)> {
        match self {
            Self::Http1(connection) => connection.take_stream(),
            Self::Http2(_) => None,
        }
    }

    /// Whether the pool may have it back.
    #[inline]
    pub(crate) fn settle(&mut self) -> bool {
        match self {
            Self::Http1(connection) => connection.settle(),
            Self::Http2(_) => true,
        }
    }

    /// What its bytes are behind the head that has come: the body that hyper has read from it. False
    /// if what is here of that is malformed.
    #[inline]
    pub(crate) fn expect(&mut self, body: &Incoming, until_end: bool) -> bool {
        match self {
            Self::Http1(connection) => connection.expect(body, until_end),
            Self::Http2(stream) => {
                stream.forget();
                true
            }
        }
    }

    /// Whether interim responses have come since they were taken last.
    #[inline]
    pub(crate) fn has_interims(&self) -> bool {
        match self {
            Self::Http1(connection) => connection.has_interims(),
            // hyper does not hand them on.
            Self::Http2(_) => false,
        }
    }

    /// Interim responses that have come since this was asked last.
    pub(crate) fn take_interims(&self) -> Vec<u8> {
        match self {
            Self::Http1(connection) => connection.take_interims(),
            Self::Http2(_) => Vec::new(),
        }
    }

    /// Whether there were more of them than may be.
    pub(crate) fn is_flooded(&self) -> bool {
        match self {
            Self::Http1(connection) => connection.is_flooded(),
            Self::Http2(_) => false,
        }
    }

    /// The node that it goes to, if the present request can be sent again so far: it is kept, and
    /// not one byte of an answer has come.
    pub(crate) fn awaited(&self) -> Option<NodeId> {
        match self {
            Self::Http1(connection) => connection.awaited(),
            Self::Http2(stream) => stream.awaited(),
        }
    }

    /// The request that is [awaited](Self::awaited), as it can be sent again; none if part of it is still here.
    pub(crate) fn awaited_request(&self) -> Option<Request<RequestBody>> {
        match self {
            Self::Http1(connection) => connection.awaited_request(),
            Self::Http2(stream) => stream.awaited_request(),
        }
    }

    /// The request whose answer's head has come, as it can be sent again, if it is repeatable.
    pub(crate) fn repeatable_request(&self) -> Option<Request<RequestBody>> {
        match self {
            Self::Http1(connection) => connection.repeatable_request(),
            Self::Http2(stream) => stream.awaited_request(),
        }
    }

    /// What of the present request was sent, if there was no byte of an answer and all of it was
    /// kept: the request as it can be sent again.
    pub(crate) fn unanswered(&self, error: &hyper::Error) -> Option<Request<RequestBody>> {
        match self {
            Self::Http1(connection) => connection.unanswered(error),
            Self::Http2(stream) => stream.unanswered(error),
        }
    }
}

/// Whether the node has refused the stream (`REFUSED_STREAM`, RFC 9113 §7).
pub(crate) fn is_refused(error: &hyper::Error) -> bool {
    http2::is_refused(error)
}

/// What becomes of a request that was handed over.
pub(crate) type Sent = Result<Response<Incoming>, SendFailure>;

/// The same as hyper has it.
type HyperSent<B> = Result<Response<Incoming>, TrySendError<Request<B>>>;

/// Why there is no answer to it.
pub(crate) struct SendFailure {
    pub(crate) error: hyper::Error,
    /// The request, if no byte of it has gone out.
    pub(crate) unsent: Option<Box<Request<RequestBody>>>,
}

impl<B: Into<RequestBody>> From<TrySendError<Request<B>>> for SendFailure {
    #[cold]
    fn from(mut error: TrySendError<Request<B>>) -> Self {
        let unsent = error.take_message();
        Self {
            unsent: unsent.map(|request| Box::new(request.map(Into::into))),
            error: error.into_error(),
        }
    }
}

/// A request that was handed over, by either version. In memory of its own: what waits for an answer is moved about by hyper, and
/// a request that it could not send comes back with it.
pub(crate) type Sending = Pin<Box<dyn Future<Output = Sent>>>;

pin_project! {
    /// The same as hyper has it.
    struct Converted<F> {
        #[pin]
        sending: F,
    }
}

impl<F, E> Future for Converted<F>
where
    F: Future<Output = Result<Response<Incoming>, E>>,
    E: Into<SendFailure>,
{
    type Output = Sent;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Sent> {
        self.project().sending.poll(context).map_err(Into::into)
    }
}
