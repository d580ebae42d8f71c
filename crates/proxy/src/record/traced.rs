//! What is exported of requests that belong to a recorded trace: one span of the front-end, and one of each node that was asked.
//!
//! ```text
//! worker ── TracedRequest, at its end ──> batch ── bounded channel ──> whoever exports them
//! ```
//!
//! A request that is not traced has none of this. A worker never waits: what finds no room is counted and lost, and of the
//! requests of one second no more are traced than the configuration says, whatever clients ask for.
//! Failure case: what clients choose is in here, so each text is cut ([`TEXT_MAX`], [`PATH_MAX`]).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::header::{HOST, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, Request, Version};
use tidegate_core::time::Timestamp;
use tokio::sync::mpsc;

use super::hedged::Hedged;
use super::reason::Reason;
use super::stats::Stats;
use crate::wire::trace::{SpanId, TRACESTATE, TraceId, TraceParent, set_traceparent};

/// Requests of a batch; it goes to the exporter then, or with the next flush.
pub(crate) const BATCH: usize = 64;
/// Batches of all workers that wait for the exporter.
pub(crate) const BATCHES_MAX: usize = 64;
/// Most bytes of a path, and of a query.
const PATH_MAX: usize = 1024;
/// Most bytes of another text that a client chooses.
const TEXT_MAX: usize = 256;
/// Most bytes of `tracestate`: what all are to pass on at least (W3C-TRACE-CONTEXT §3.3.1.5).
const STATE_MAX: usize = 512;

/// A request as its trace has it. Times are nanoseconds of the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedRequest {
    /// The trace.
    pub trace: TraceId,
    /// The span that the request came from; none: the trace begins here.
    pub parent: Option<SpanId>,
    /// `tracestate` as it came.
    pub state: Option<String>,
    /// This request's own span.
    pub span: SpanId,
    /// When the head was read.
    pub begun: u64,
    /// When the last byte was handed over, or it failed.
    pub ended: u64,
    /// When a node was last chosen, or when none was: from `begun` to here it waited or was tried elsewhere.
    pub queued_until: u64,
    /// As it was sent.
    pub method: String,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// `Host`, with its port if that was sent.
    pub host: Option<String>,
    /// Without the query.
    pub path: String,
    /// The query, where it is wanted.
    pub query: Option<String>,
    /// `User-Agent`.
    pub user_agent: Option<String>,
    /// Address of the connection.
    pub client: IpAddr,
    /// Of HTTP towards the client: `1.0`, `1.1`, `2`.
    pub version: &'static str,
    /// Of the answer; 499 if none was sent.
    pub status: u16,
    /// Of the answer's body.
    pub bytes: u64,
    /// Of the request's body.
    pub bytes_in: u64,
    /// Its site.
    pub site: Option<String>,
    /// The throttled class that it has met.
    pub throttle: Option<String>,
    /// It was not tried again, as the retry budget was used up.
    pub retry_denied: bool,
    /// What became of a second node.
    pub hedged: Option<Hedged>,
    /// Why it did not end with the node's own answer.
    pub reason: Option<Reason>,
    /// The nodes that were asked.
    pub tries: Vec<TracedTry>,
}

/// A node that was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedTry {
    /// Its span, which the node gets as its caller.
    pub span: SpanId,
    /// The node's name.
    pub node: String,
    /// Where it is.
    pub address: SocketAddr,
    /// Whether it was asked as a second node beside a slow first one.
    pub hedge: bool,
    /// Path that it was asked for, with its query where that is wanted; empty if nothing was sent.
    pub target: String,
    /// Whether by TLS.
    pub tls: bool,
    /// Whether by HTTP/2.
    pub http2: bool,
    /// When it was chosen.
    pub begun: u64,
    /// When its answer's head came.
    pub head: Option<u64>,
    /// When its answer ended, or it failed, or another one took its place.
    pub ended: u64,
    /// Of its answer.
    pub status: Option<u16>,
    /// Why it gave none, or broke off.
    pub error: Option<Reason>,
    /// Another node's answer was taken.
    pub lost: bool,
}

/// What a span says of its node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedNode<'a> {
    pub(crate) name: &'a str,
    pub(crate) address: SocketAddr,
    pub(crate) tls: bool,
    pub(crate) http2: bool,
}

/// A request's trace while it is in progress.
#[derive(Debug)]
pub(crate) struct Trace {
    request: TracedRequest,
    /// From the clock of requests to the Unix epoch: one for the whole request, so that its times are in order.
    epoch: u64,
    flags: u8,
    query: bool,
    /// The try that the request is at.
    current: Option<usize>,
    /// The second node, while both are asked.
    second: Option<usize>,
    /// The second node has won, and is handed the request now.
    won: Option<usize>,
}

/// What is known with the head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TracedHead {
    pub(crate) now: Timestamp,
    pub(crate) unix_nanos: u64,
    pub(crate) client: IpAddr,
    pub(crate) is_tls: bool,
    /// Whether queries are wanted.
    pub(crate) query: bool,
}

/// What is known at the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TracedEnd<'a> {
    pub(crate) now: Timestamp,
    pub(crate) queued_until: Timestamp,
    pub(crate) status: u16,
    pub(crate) bytes: u64,
    pub(crate) bytes_in: u64,
    pub(crate) site: Option<&'a str>,
    pub(crate) throttle: Option<&'a str>,
    pub(crate) retry_denied: bool,
    pub(crate) hedged: Option<Hedged>,
    pub(crate) reason: Option<Reason>,
}

impl Trace {
    /// Its number.
    pub(crate) fn trace(&self) -> TraceId {
        self.request.trace
    }

    /// A request of this parent has come, whose own span this is.
    pub(crate) fn begin<B>(
        parent: &TraceParent,
        span: SpanId,
        request: &Request<B>,
        head: &TracedHead,
    ) -> Box<Self> {
        let (uri, headers) = (request.uri(), request.headers());
        let text = |name: http::HeaderName, most| {
            let value = headers.get(name)?.as_bytes();
            Some(cut(&String::from_utf8_lossy(value), most))
        };
        let target = uri.path_and_query();
        let query = target.and_then(PathAndQuery::query).filter(|_| head.query);
        let host = uri.authority().map(|it| cut(it.as_str(), TEXT_MAX));
        let request = TracedRequest {
            trace: parent.trace,
            parent: parent.caller,
            state: parent.caller.and_then(|_| state(headers)),
            span,
            begun: head.unix_nanos,
            ended: head.unix_nanos,
            queued_until: head.unix_nanos,
            method: cut(request.method().as_str(), TEXT_MAX),
            scheme: if head.is_tls { "https" } else { "http" },
            host: host.or_else(|| text(HOST, TEXT_MAX)),
            path: cut(uri.path(), PATH_MAX),
            query: query.map(|it| cut(it, PATH_MAX)),
            user_agent: text(USER_AGENT, TEXT_MAX),
            client: head.client,
            version: match request.version() {
                Version::HTTP_10 => "1.0",
                Version::HTTP_2 => "2",
                _ => "1.1",
            },
            status: 0,
            bytes: 0,
            bytes_in: 0,
            site: None,
            throttle: None,
            retry_denied: false,
            hedged: None,
            reason: None,
            tries: Vec::new(),
        };
        Box::new(Self {
            request,
            epoch: head.unix_nanos.saturating_sub(head.now.nanos()),
            flags: parent.flags,
            query: head.query,
            current: None,
            second: None,
            won: None,
        })
    }

    fn unix(&self, at: Timestamp) -> u64 {
        self.epoch.saturating_add(at.nanos())
    }

    /// The request is handed to this node, which was chosen then; the one before has it no more.
    pub(crate) fn begin_try(
        &mut self,
        span: SpanId,
        node: AskedNode<'_>,
        begun: Timestamp,
        now: Timestamp,
    ) {
        if let Some(second) = self.won.take() {
            self.current = Some(second);
            return;
        }
        self.close_current(now);
        self.current = Some(self.push(span, node, false, begun));
    }

    /// This node is asked as well.
    pub(crate) fn begin_second(&mut self, span: SpanId, node: AskedNode<'_>, now: Timestamp) {
        self.second = Some(self.push(span, node, true, now));
    }

    fn push(&mut self, span: SpanId, node: AskedNode<'_>, hedge: bool, begun: Timestamp) -> usize {
        let begun = self.unix(begun);
        self.request.tries.push(TracedTry {
            span,
            node: node.name.to_owned(),
            address: node.address,
            hedge,
            target: String::new(),
            tls: node.tls,
            http2: node.http2,
            begun,
            head: None,
            ended: 0,
            status: None,
            error: None,
            lost: false,
        });
        self.request.tries.len() - 1
    }

    /// The second node's answer counts, and no other's.
    pub(crate) fn second_wins(&mut self, now: Timestamp) {
        self.close_current(now);
        self.won = self.second.take();
        if let Some(first) = self.current
            && let Some(first) = self.request.tries.get_mut(first)
        {
            first.lost = first.error.is_none() && first.status.is_none();
        }
    }

    /// The second node has given no answer for this reason, or one of this status that is not passed on.
    pub(crate) fn second_ends(&mut self, ended: Result<u16, Reason>, now: Timestamp) {
        let now = self.unix(now);
        let second = self.second.take();
        if let Some(second) = second.and_then(|at| self.request.tries.get_mut(at)) {
            second.ended = now;
            match ended {
                Ok(status) => (second.status, second.head) = (Some(status), Some(now)),
                Err(reason) => second.error = Some(reason),
            }
        }
    }

    /// The head of the node's answer has come.
    #[cold]
    pub(crate) fn on_head(&mut self, status: u16, now: Timestamp) {
        let now = self.unix(now);
        if let Some(current) = self.current_try() {
            current.status = Some(status);
            current.head = Some(now);
        }
        if let Some(second) = self
            .second
            .take()
            .and_then(|at| self.request.tries.get_mut(at))
        {
            second.ended = now;
            second.lost = true;
        }
    }

    /// The node's answer is not passed on.
    pub(crate) fn on_other_asked(&mut self, status: u16, now: Timestamp) {
        let now = self.unix(now);
        if let Some(current) = self.current_try() {
            current.status = Some(status);
            current.head = Some(now);
            current.ended = now;
        }
    }

    /// The node has not answered, or broke off.
    #[cold]
    pub(crate) fn on_failure(&mut self, reason: Reason, now: Timestamp) {
        let now = self.unix(now);
        if let Some(current) = self.current_try() {
            current.error = Some(reason);
            current.ended = now;
        }
    }

    fn current_try(&mut self) -> Option<&mut TracedTry> {
        self.request.tries.get_mut(self.current?)
    }

    fn close_current(&mut self, now: Timestamp) {
        let now = self.unix(now);
        if let Some(current) = self.current_try()
            && current.ended == 0
        {
            current.ended = now;
        }
    }

    /// The request goes out to the node that has it now, which gets its own span as the caller.
    #[cold]
    pub(crate) fn introduce<B>(&mut self, request: &mut Request<B>) {
        self.introduce_at(self.current, request);
    }

    /// The same of the second node.
    pub(crate) fn introduce_second<B>(&mut self, request: &mut Request<B>) {
        self.introduce_at(self.second, request);
    }

    fn introduce_at<B>(&mut self, at: Option<usize>, request: &mut Request<B>) {
        let (trace, flags, query) = (self.request.trace, self.flags, self.query);
        let Some(asked) = at.and_then(|at| self.request.tries.get_mut(at)) else {
            return;
        };
        let target = match query {
            true => request
                .uri()
                .path_and_query()
                .map_or("", PathAndQuery::as_str),
            false => request.uri().path(),
        };
        asked.target = cut(target, PATH_MAX);
        set_traceparent(request.headers_mut(), trace, asked.span, flags);
    }

    /// The request has ended. What a node had still ends with it.
    pub(crate) fn end(mut self: Box<Self>, end: &TracedEnd<'_>) -> TracedRequest {
        let (now, queued) = (self.unix(end.now), self.unix(end.queued_until));
        let second = self.second.take();
        for (place, asked) in self.request.tries.iter_mut().enumerate() {
            if asked.ended == 0 {
                asked.ended = now;
                asked.lost = second == Some(place);
            }
            // A second node that has won was asked before the first one was given up.
            asked.ended = asked.ended.max(asked.begun);
        }
        let mut request = self.request;
        request.ended = now.max(request.begun);
        request.queued_until = queued.clamp(request.begun, request.ended);
        request.status = end.status;
        request.bytes = end.bytes;
        request.bytes_in = end.bytes_in;
        request.site = end.site.map(str::to_owned);
        request.throttle = end.throttle.map(str::to_owned);
        request.retry_denied = end.retry_denied;
        request.hedged = end.hedged;
        request.reason = end.reason;
        request
    }
}

/// No more than so many bytes, and whole characters.
fn cut(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].to_owned()
}

/// `tracestate`, of several lines one; none if it is longer than must be passed on.
fn state(headers: &HeaderMap) -> Option<String> {
    let lines = headers.get_all(TRACESTATE).iter();
    let lines: Option<Vec<_>> = lines.map(|it| it.to_str().ok()).collect();
    let state = lines?.join(",");
    (1..=STATE_MAX).contains(&state.len()).then_some(state)
}

/// So many requests of one second are traced, over all workers.
#[derive(Debug, Default)]
pub(crate) struct TracedSecond(AtomicU64);

impl TracedSecond {
    /// Whether one more of this second may be: the second stands in the upper half, and how many were in the lower one.
    fn takes(&self, now: Timestamp, most: u32) -> bool {
        const SECOND: u64 = 1_000_000_000;
        let second = (now.nanos() / SECOND) << 32;
        let more = |seen: u64| match seen >> 32 << 32 == second {
            true => ((seen as u32) < most).then_some(seen + 1),
            false => (most > 0).then_some(second + 1),
        };
        let order = Ordering::Relaxed;
        self.0.fetch_update(order, order, more).is_ok()
    }
}

/// A worker's end of the channel to the exporter.
#[derive(Debug)]
pub(crate) struct TraceSink {
    batch: Vec<TracedRequest>,
    sender: Option<mpsc::Sender<Vec<TracedRequest>>>,
    stats: Arc<Stats>,
    worker: usize,
}

impl TraceSink {
    /// Without a sender nothing is traced.
    pub(crate) fn new(
        sender: Option<mpsc::Sender<Vec<TracedRequest>>>,
        stats: Arc<Stats>,
        worker: usize,
    ) -> Self {
        Self {
            batch: Vec::new(),
            sender,
            stats,
            worker,
        }
    }

    /// Whether one more request may be traced in this second.
    pub(crate) fn takes(&self, now: Timestamp, most: u32) -> bool {
        let takes = self.sender.is_some() && self.stats.traced_second.takes(now, most);
        if !takes {
            self.stats.worker(self.worker).traces_over_rate.add(1);
        }
        takes
    }

    /// Takes a request that has ended.
    pub(crate) fn push(&mut self, request: TracedRequest) {
        self.batch.push(request);
        if self.batch.len() >= BATCH {
            self.flush();
        }
    }

    /// Hands the batch over to the exporter, or drops it.
    #[inline]
    pub(crate) fn flush(&mut self) {
        if !self.batch.is_empty() {
            self.hand_over();
        }
    }

    #[cold]
    fn hand_over(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let requests = batch.len() as u64;
        let sent = self.sender.as_ref().map(|it| it.try_send(batch));
        if !matches!(sent, Some(Ok(()))) {
            let stats = self.stats.worker(self.worker);
            stats.traces_over_queue.add(requests);
        }
    }
}

impl Drop for TraceSink {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
#[path = "traced_tests.rs"]
mod tests;
