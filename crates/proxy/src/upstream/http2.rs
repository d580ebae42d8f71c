//! Connections of HTTP/2 to nodes (RFC 9113), which several requests share, each as a stream. A task of its own drives each connection: no
//! request can do it for the others.
//!
//! | a stream | then |
//! |---|---|
//! | is refused (`REFUSED_STREAM`), or is beyond the last that its node's `GOAWAY` names | was not begun: the request is sent again, whatever its method (RFC 9113 §8.7) |
//! | has a connection that ends before its answer begins | the request goes elsewhere, if it is repeatable |
//! | is reset otherwise | the answer has failed |
//!
//! A request is kept as its head, not as its bytes, and its body as far as that is held ([`replay`](super::replay)). Failure
//! case: interim responses of such nodes end here, and they are asked for no tunnels.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{EXPECT, HOST};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Request, Uri, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use tidegate_core::topology::NodeId;

use super::body::{BodyError, RequestBody};
use super::replay::HeldBody;
use super::{HyperSent, UpstreamKey, UpstreamParts};
use crate::head;
use crate::record::stats::{NodeStats, WorkerStats};
use crate::stream::Stream;

/// Requests that share a connection; more get another one.
const STREAMS_MAX: usize = 100;
/// Bytes of an answer that may be on their way before its client takes them.
const STREAM_WINDOW: u32 = 256 << 10;
/// The same of all answers of a connection.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Bytes of a request's body that are handed over before they are written.
const SEND_BUFFER: usize = 64 << 10;

/// See the module.
pub(crate) struct Http2Connection {
    sender: RefCell<SendRequest<Http2Body>>,
    key: UpstreamKey,
    /// Requests that use it.
    open: Cell<usize>,
    /// When it was last in use.
    used_at: Cell<u64>,
    stats: Arc<WorkerStats>,
}

/// One stream of a connection.
pub(crate) struct Http2 {
    connection: Rc<Http2Connection>,
    /// The request as it can be sent again.
    kept: Option<Box<Kept>>,
}

/// See [`Http2::kept`].
struct Kept {
    head: Request<()>,
    body: Option<HeldBody>,
    /// Whether it may be sent again, too, where the node may have begun.
    repeatable: bool,
}

/// Whether a node has begun with a request, by how its stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begun {
    /// The node says that it has not.
    No,
    /// Nothing is known of it.
    Unknown,
    /// It has, and has failed.
    Failed,
}

/// A body that goes out on a stream. A type of its own: what hyper makes of it is then not shared with HTTP/1.1, whose requests
/// pay for calls that are not inlined.
pub(super) struct Http2Body(RequestBody);

impl From<Http2Body> for RequestBody {
    fn from(body: Http2Body) -> Self {
        body.0
    }
}

impl Body for Http2Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.0).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// Where hyper's tasks run: on this worker.
#[derive(Clone, Copy, Debug)]
struct OnThisWorker;

impl<F: Future<Output = ()> + 'static> Executor<F> for OnThisWorker {
    fn execute(&self, task: F) {
        tokio::task::spawn_local(task);
    }
}

impl Http2Connection {
    pub(super) fn key(&self) -> UpstreamKey {
        self.key
    }

    /// Whether one more request may use it.
    pub(super) fn has_room(&self) -> bool {
        self.open.get() < STREAMS_MAX && !self.sender.borrow().is_closed()
    }

    /// Whether it is in use, or was since this tick.
    pub(super) fn is_used_since(&self, tick: u64) -> bool {
        let is_used = self.open.get() > 0 || self.used_at.get() >= tick;
        is_used && !self.sender.borrow().is_closed()
    }

    /// Counts at its node.
    pub(super) fn count(&self, with: impl FnOnce(&NodeStats)) {
        if let Some(counters) = self.stats.node_of(self.key.node, self.key.generation) {
            with(counters);
        }
    }
}

impl Drop for Http2Connection {
    fn drop(&mut self) {
        self.count(|node| node.closes.add(1));
    }
}

impl Http2 {
    /// The first stream of a new connection.
    pub(super) async fn new(
        stream: Stream,
        key: UpstreamKey,
        parts: UpstreamParts<'_>,
    ) -> Result<Self, hyper::Error> {
        let head_bytes = u32::try_from(parts.limits.head_bytes).unwrap_or(u32::MAX);
        let (sender, driver) = Builder::new(OnThisWorker)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(head_bytes)
            .max_send_buf_size(SEND_BUFFER)
            .handshake(TokioIo::new(stream))
            .await?;
        tokio::task::spawn_local(async move {
            // Each of its requests learns by itself how it ended.
            driver.await.unwrap_or_default();
        });
        let connection = Rc::new(Http2Connection {
            sender: RefCell::new(sender),
            key,
            open: Cell::new(0),
            used_at: Cell::new(u64::MAX),
            stats: parts.stats,
        });
        connection.count(|node| node.connects.add(1));
        Ok(Self::of(&connection))
    }

    /// One more stream of a connection.
    pub(super) fn of(connection: &Rc<Http2Connection>) -> Self {
        connection.open.set(connection.open.get() + 1);
        Self {
            connection: Rc::clone(connection),
            kept: None,
        }
    }

    pub(super) fn connection(&self) -> &Rc<Http2Connection> {
        &self.connection
    }

    /// The request is over at this tick.
    pub(super) fn park(self, tick: u64) {
        self.connection.used_at.set(tick);
    }

    /// Hands a request over. It is kept, unless it has a body that is not held; with `repeatable` it may be sent again where the node
    /// may have begun, too.
    pub(super) fn send(
        &mut self,
        mut request: Request<RequestBody>,
        repeatable: bool,
    ) -> impl Future<Output = HyperSent<Http2Body>> + use<> {
        let body = match request.body() {
            RequestBody::Empty => Some(None),
            RequestBody::Held(body) => body.again().map(Some),
            RequestBody::Stream(_) => None,
        };
        self.kept = body.map(|body| {
            Box::new(Kept {
                head: copy_of(&request),
                body,
                repeatable,
            })
        });
        to_http2(&mut request, self.connection.key.tls.is_some());
        self.connection
            .sender
            .borrow_mut()
            .try_send_request(request.map(Http2Body))
    }

    /// The node that it goes to, if the request may be sent again. Once an answer has begun this is not asked any more.
    pub(super) fn awaited(&self) -> Option<NodeId> {
        let kept = self.kept.as_ref()?;
        kept.repeatable.then_some(self.connection.key.node)
    }

    /// The request that is [awaited](Self::awaited), as it can be sent again.
    pub(super) fn awaited_request(&self) -> Option<Request<RequestBody>> {
        self.awaited()?;
        self.kept_request()
    }

    fn kept_request(&self) -> Option<Request<RequestBody>> {
        let Kept { head, body, .. } = &**self.kept.as_ref()?;
        let body = match body {
            None => RequestBody::Empty,
            Some(body) => RequestBody::Held(Box::new(body.again()?)),
        };
        Some(copy_of(head).map(|()| body))
    }

    /// The same, if this error says that the node has not begun, or may not have and it is repeatable.
    pub(super) fn unanswered(&self, error: &hyper::Error) -> Option<Request<RequestBody>> {
        let may_go = match begun(error) {
            Begun::No => true,
            Begun::Unknown => self.kept.as_ref()?.repeatable,
            Begun::Failed => false,
        };
        let request = self.kept_request().filter(|_| may_go)?;
        self.connection
            .stats
            .replays
            .add(u64::from(!request.body().is_end_stream()));
        Some(request)
    }

    /// An answer has come: the request will not be sent again.
    pub(super) fn forget(&mut self) {
        if let Some(body) = self.kept.take().and_then(|kept| kept.body) {
            body.forget();
        }
    }
}

/// What this error says of it. The last stream that a `GOAWAY` names is looked at where it is received: streams up to that one end by
/// an error of their own, or with their connection.
fn begun(error: &hyper::Error) -> Begun {
    let source = std::error::Error::source(error);
    let of_frames = source.and_then(|it| it.downcast_ref::<h2::Error>());
    let is_of_stream = source.is_some_and(|it| it.is::<io::Error>());
    match of_frames {
        Some(error) if error.reason() == Some(h2::Reason::REFUSED_STREAM) => Begun::No,
        Some(error) if error.is_go_away() && error.is_remote() => Begun::No,
        Some(error) if error.is_go_away() || error.is_io() => Begun::Unknown,
        Some(_) => Begun::Failed,
        None if is_of_stream || error.is_closed() || error.is_canceled() => Begun::Unknown,
        None => Begun::Failed,
    }
}

/// Whether the node has refused the stream: it has no room for it, whereas a `GOAWAY` says that its connection ends.
pub(super) fn is_refused(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error);
    let of_frames = source.and_then(|it| it.downcast_ref::<h2::Error>());
    of_frames.is_some_and(|it| it.is_reset() && it.reason() == Some(h2::Reason::REFUSED_STREAM))
}

impl Drop for Http2 {
    fn drop(&mut self) {
        let open = &self.connection.open;
        open.set(open.get().saturating_sub(1));
    }
}

/// A request without its body.
fn copy_of<B>(request: &Request<B>) -> Request<()> {
    let mut copy = Request::new(());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    copy
}

/// Gives a request, which is in the form of HTTP/1.1, that of HTTP/2: `Host` becomes `:authority` (RFC 9113 §8.3.1).
fn to_http2<B>(request: &mut Request<B>, secure: bool) {
    let authority = authority(request.headers());
    let target = request.uri().path_and_query().cloned();
    let scheme = if secure { Scheme::HTTPS } else { Scheme::HTTP };
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(scheme);
    parts.path_and_query = Some(target.unwrap_or_else(|| PathAndQuery::from_static("/")));
    if let Some(authority) = authority {
        parts.authority = Some(authority);
        request.headers_mut().remove(HOST);
    }
    // What makes no URL stays as it is, and is refused where it is sent.
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
    *request.version_mut() = Version::HTTP_2;
    let headers = request.headers_mut();
    head::http2::strip(headers);
    // The client is asked for its body by us: hyper does not hand a node's asking on.
    headers.remove(EXPECT);
}

fn authority(headers: &HeaderMap) -> Option<Authority> {
    Authority::try_from(headers.get(HOST)?.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_gets_the_form_of_http_2() {
        let request = |host: &str| {
            Request::get("/a?b")
                .header("host", host)
                .header("connection", "te")
                .header("te", "trailers")
                .header("expect", "100-continue")
                .header("x-kept", "1")
                .body(())
                .unwrap()
        };
        for (secure, host, uri) in [
            (false, "shop.example", "http://shop.example/a?b"),
            (true, "shop.example:8443", "https://shop.example:8443/a?b"),
            (false, "[2001:db8::7]", "http://[2001:db8::7]/a?b"),
        ] {
            let mut request = request(host);
            to_http2(&mut request, secure);
            assert_eq!(request.uri(), uri);
            let mut names: Vec<_> = request.headers().keys().map(|it| it.as_str()).collect();
            names.sort_unstable();
            assert_eq!(names, ["te", "x-kept"]);
        }
        let mut whole = Request::options("*").header("host", "a").body(()).unwrap();
        to_http2(&mut whole, false);
        assert_eq!(whole.uri().path(), "*");
    }

    #[test]
    fn a_copy_is_the_same_request() {
        let request = Request::put("/a").header("host", "a").body(()).unwrap();
        let copy = copy_of(&request);
        assert_eq!(copy.method(), request.method());
        assert_eq!(
            (copy.uri(), copy.headers()),
            (request.uri(), request.headers())
        );
    }
}
