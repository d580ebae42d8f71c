//! One connection of HTTP/1.1 to a node, which serves one request at a time. It is no task: the session
//! that has it polls it, so an answer costs no detour through the scheduler.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use bytes::Bytes;
use http::{Method, Request, Uri, Version};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Connection, SendRequest};
use tidegate_core::topology::NodeId;

use super::body::RequestBody;
use super::io::{NodeIo, UpstreamBytes};
use super::waker::Gate;
use super::{HyperSent, UpstreamKey, UpstreamParts};
use crate::record::stats::{NodeStats, WorkerStats};
use crate::stream::Stream;

/// See the module.
pub(crate) struct Http1 {
    connection: Option<Connection<NodeIo, RequestBody>>,
    sender: SendRequest<RequestBody>,
    ended: bool,
    gate: Arc<Gate>,
    waker: Waker,
    watch: Rc<UpstreamBytes>,
    key: UpstreamKey,
    /// The tick at which it went into the pool.
    parked_at: u64,
    stats: Arc<WorkerStats>,
}

impl Http1 {
    /// Speaks HTTP on a stream.
    pub(crate) async fn new(
        stream: Stream,
        key: UpstreamKey,
        parts: UpstreamParts<'_>,
    ) -> Result<Self, hyper::Error> {
        let UpstreamParts {
            http1: builder,
            scratch,
            stats,
            ..
        } = parts;
        let watch = Rc::new(UpstreamBytes::new(scratch));
        let io = NodeIo::new(stream, Rc::clone(&watch));
        let (sender, connection) = builder.handshake(io).await?;
        let gate = Arc::new(Gate::default());
        if let Some(counters) = stats.node_of(key.node, key.generation) {
            counters.connects.add(1);
        }
        Ok(Self {
            connection: Some(connection),
            sender,
            ended: false,
            waker: Waker::from(Arc::clone(&gate)),
            gate,
            watch,
            key,
            parked_at: 0,
            stats,
        })
    }

    pub(super) fn key(&self) -> UpstreamKey {
        self.key
    }

    #[inline]
    pub(super) fn key_ref(&self) -> &UpstreamKey {
        &self.key
    }

    /// When it went into the pool.
    pub(super) fn parked_at(&self) -> u64 {
        self.parked_at
    }

    /// It goes into the pool at this tick.
    pub(super) fn park(&mut self, tick: u64) {
        self.gate.set_owner(None);
        self.watch.forget();
        self.parked_at = tick;
    }

    /// Counts at its node.
    pub(super) fn count(&self, with: impl FnOnce(&NodeStats)) {
        if let Some(counters) = self.stats.node_of(self.key.node, self.key.generation) {
            with(counters);
        }
    }

    /// Hands a request over; it goes out with the next [`drive`](Self::drive). With `capture`
    /// its bytes are kept, so that it can be sent again.
    pub(crate) fn send(
        &mut self,
        request: Request<RequestBody>,
        owner: Option<Waker>,
        capture: bool,
    ) -> impl Future<Output = HyperSent<RequestBody>> + use<> {
        self.gate.set_owner(owner);
        self.watch.reads.set(0);
        self.watch.inflow.borrow_mut().expect_head();
        self.watch.capturing.set(capture);
        self.watch.sent.borrow_mut().clear();
        let before = self.gate.hush();
        let sent = self.sender.try_send_request(request);
        self.gate.unhush(before);
        sent
    }

    /// Lets the connection do what it can do now. True if it has ended.
    pub(crate) fn drive(&mut self) -> bool {
        let Some(connection) = &mut self.connection else {
            return true;
        };
        if self.ended {
            return true;
        }
        let mut context = Context::from_waker(&self.waker);
        let polled = self
            .gate
            .poll_in_turns(|| Pin::new(&mut *connection).poll(&mut context));
        // The task that waits for the response learns how it ended.
        self.ended = polled.is_ready();
        self.ended
    }

    /// Runs `work` without waking the owner, which will drive the connection anyhow.
    pub(crate) fn quietly<T>(&self, work: impl FnOnce() -> T) -> T {
        let done = self.gate.quietly(work);
        self.gate.take_woken();
        done
    }

    /// Gives up an ended connection, so that what waits in it comes back.
    pub(crate) fn give_up(&mut self) {
        self.connection = None;
    }

    /// Takes the stream of a connection that has ended in an upgrade, and what was read ahead.
    pub(crate) fn take_stream(&mut self) -> Option<(Stream, Bytes)> {
        let parts = self.connection.take()?.into_parts();
        let kept = self.watch.inflow.borrow_mut().take_kept();
        let early = [&parts.read_buf[..], &kept].concat();
        Some((parts.io.into_stream().into_tunnel(), early.into()))
    }

    /// Whether the connection is ready for another request.
    pub(crate) fn settle(&mut self) -> bool {
        let ready = |this: &Self| {
            !this.ended && this.sender.is_ready() && !this.watch.inflow.borrow().is_ahead()
        };
        ready(self) || (!self.drive() && ready(self))
    }

    /// What its bytes are behind the head that has come: the body that hyper has read from it. False
    /// if what is here of that is malformed.
    pub(crate) fn expect(&self, body: &Incoming, until_end: bool) -> bool {
        let mut inflow = self.watch.inflow.borrow_mut();
        if !inflow.seen().found {
            return true;
        }
        inflow.expect(body, until_end);
        inflow.check_kept(&self.watch.scratch).is_ok()
    }

    /// Whether interim responses have come since they were taken last.
    #[inline]
    pub(crate) fn has_interims(&self) -> bool {
        !self.watch.inflow.borrow().interims.is_empty()
    }

    /// Interim responses that have come since this was asked last.
    pub(crate) fn take_interims(&self) -> Vec<u8> {
        self.watch.inflow.borrow_mut().interims.take()
    }

    /// Whether there were more of them than may be.
    pub(crate) fn is_flooded(&self) -> bool {
        self.watch.inflow.borrow().interims.is_flooded()
    }

    /// The node that it goes to, if the present request can be sent again so far: its bytes are kept, and
    /// not one of an answer has come.
    pub(crate) fn awaited(&self) -> Option<NodeId> {
        let silent = self.watch.reads.get() == 0 && !self.ended;
        (silent && self.watch.capturing.get()).then_some(self.key.node)
    }

    /// The request that is [awaited](Self::awaited), as it can be sent again; none if part of it is still here.
    pub(crate) fn awaited_request(&self) -> Option<Request<RequestBody>> {
        self.awaited()?;
        parse_again(&self.watch.sent.borrow())
    }

    /// The present request as it can be sent again, if its bytes are kept; part of an answer may have come.
    pub(super) fn repeatable_request(&self) -> Option<Request<RequestBody>> {
        let is_kept = self.watch.capturing.get();
        is_kept.then(|| parse_again(&self.watch.sent.borrow()))?
    }

    /// What of the present request was sent, if there was no byte of an answer and all of it was
    /// kept: the request as it can be sent again.
    pub(crate) fn unanswered(&self, error: &hyper::Error) -> Option<Request<RequestBody>> {
        // The end of the stream is a read too.
        let silent = match self.watch.reads.get() {
            0 => true,
            1 => error.is_incomplete_message() || error.is_closed(),
            _ => false,
        };
        if !silent || !self.watch.capturing.get() {
            return None;
        }
        parse_again(&self.watch.sent.borrow())
    }
}

impl Drop for Http1 {
    fn drop(&mut self) {
        self.count(|node| node.closes.add(1));
    }
}

/// A bodyless request from the bytes that were sent.
fn parse_again(sent: &[u8]) -> Option<Request<RequestBody>> {
    let lines = sent.iter().filter(|byte| **byte == b'\n').count();
    let mut fields = vec![httparse::EMPTY_HEADER; lines];
    let mut parsed = httparse::Request::new(&mut fields);
    if parsed.parse(sent).ok()?.is_partial() {
        return None;
    }
    let mut request = Request::new(RequestBody::Empty);
    *request.method_mut() = Method::from_bytes(parsed.method?.as_bytes()).ok()?;
    *request.uri_mut() = parsed.path?.parse::<Uri>().ok()?;
    *request.version_mut() = Version::HTTP_11;
    for field in parsed.headers.iter() {
        let name = http::HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        let value = http::HeaderValue::from_bytes(field.value).ok()?;
        request.headers_mut().append(name, value);
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_can_be_sent_again() {
        let sent = b"GET /a?b HTTP/1.1\r\nhost: shop\r\ncookie: a\r\ncookie: b\r\n\r\n";
        let request = parse_again(sent).unwrap();
        assert_eq!(request.method(), Method::GET);
        assert_eq!(request.uri(), "/a?b");
        assert_eq!(request.headers()["host"], "shop");
        assert_eq!(request.headers().get_all("cookie").iter().count(), 2);
        assert!(parse_again(&sent[..30]).is_none());
        assert!(parse_again(b"").is_none());
    }
}
