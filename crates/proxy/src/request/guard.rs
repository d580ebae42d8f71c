//! The guard of a request: it goes from the service into the response body (or into the tunnel),
//! and if it is dropped before the request has ended, the request ends there and then, as
//! cancelled. The ticket lies in its state, so a request in flight cannot outlive it either.

use std::rc::Rc;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use tidegate_core::classes::Words;
use tidegate_core::picker::{Outcome, Ticket};
use tidegate_core::throttle::ThrottleId;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::NodeId;

use super::client::Client;
use super::state::{RequestState, micros_between};
use crate::config::LogFormat;
use crate::record::log::Head;
use crate::record::reason::Reason;
use crate::record::traced::{Trace, TracedHead};
use crate::refusal::Form;
use crate::wire::trace::{SpanId, TraceParent};

/// The header by which a client learns its request's id.
const REQUEST: HeaderName = HeaderName::from_static("x-tidegate-request");

/// See the module.
pub(crate) struct RequestGuard {
    /// None once it has ended.
    inner: Option<(Rc<Client>, Box<RequestState>)>,
}

impl RequestGuard {
    /// A request's head was read.
    pub(crate) fn begin<B>(client: &Rc<Client>, request: &Request<B>) -> Self {
        let worker = &client.worker;
        worker.base.stats().requests.add(1);
        let now = worker.base.now();
        let mut state = client.take_spare();
        state.arrived_at = now;
        state.dispatched_at = now;
        if client.connection.settings.keeps_recent() || worker.base.record.observer.is_some() {
            let uri = request.uri();
            let target = uri.path_and_query().map_or("", PathAndQuery::as_str);
            let path_length = uri.path().len();
            let method = request.method().as_str();
            state.words.set(method, target, path_length);
        }
        let format = client.connection.settings.log_format();
        if format != LogFormat::Off {
            let target = request.uri().path_and_query();
            state.line.begin(
                format,
                &client.connection.settings.log_fields(),
                &Head {
                    unix_nanos: worker.base.clock.unix_nanos(now),
                    client: client.connection.client_text(),
                    method: request.method().as_str(),
                    target: target.map_or("", |target| target.as_str()),
                    version: request.version(),
                    headers: request.headers(),
                },
            );
        } else {
            state.line.skip();
        }
        client.connection.on_request(request.version());
        Self {
            inner: Some((Rc::clone(client), state)),
        }
    }

    /// The request belongs to this trace, and is exported with this span.
    #[cold]
    #[inline(never)]
    pub(crate) fn trace<B>(
        &mut self,
        (parent, span): &(TraceParent, SpanId),
        request: &Request<B>,
    ) {
        if let Some((client, state)) = &mut self.inner {
            let now = state.arrived_at;
            let head = TracedHead {
                now,
                unix_nanos: client.worker.base.clock.unix_nanos(now),
                client: client.connection.client,
                is_tls: client.connection.plan.tls.is_some(),
                query: client.connection.settings.traces().1.query,
            };
            state.trace = Some(Trace::begin(parent, *span, request, &head));
        }
    }

    /// The client, while the request is in progress.
    pub(crate) fn client(&self) -> Option<&Rc<Client>> {
        self.inner.as_ref().map(|(client, _)| client)
    }

    /// What is known of the request, while it is in progress.
    pub(crate) fn state(&mut self) -> Option<&mut RequestState> {
        self.inner.as_mut().map(|(_, state)| &mut **state)
    }

    /// Whether other nodes than one may have it as well: another site's get a copy, or a second one is asked where it is slow.
    #[inline]
    pub(crate) fn may_be_more(&self) -> bool {
        let route = self
            .inner
            .as_ref()
            .and_then(|(_, state)| state.route.as_ref());
        route.is_some_and(|route| route.asks_more())
    }

    /// The node that has it.
    pub(crate) fn node(&self) -> Option<NodeId> {
        let (_, state) = self.inner.as_ref()?;
        Some(state.ticket.as_ref()?.node)
    }

    /// Its ticket, if it has one.
    pub(crate) fn ticket(&self) -> Option<&Ticket> {
        self.inner.as_ref()?.1.ticket.as_ref()
    }

    /// The throttle of its class.
    pub(crate) fn throttle(&self) -> Option<ThrottleId> {
        let (_, state) = self.inner.as_ref()?;
        Some(state.throttled.as_ref()?.rule().id)
    }

    /// The request will be refused: in the form that its client reads.
    pub(crate) fn note_form(&mut self, headers: &HeaderMap) {
        if let Some(state) = self.state() {
            state.form = Form::of(headers);
        }
    }

    /// The last byte of the server's answer is here, or it is no answer any more.
    pub(crate) fn on_server_done(&mut self) {
        if let Some((client, state)) = &mut self.inner {
            let worker = &client.worker;
            state.observe_end(worker, worker.base.now());
        }
    }

    pub(crate) fn on_bytes(&mut self, bytes: u64) {
        if let Some(state) = self.state() {
            state.bytes += bytes;
        }
    }

    /// The head of the node's answer has come; what it is worth is known at its end.
    #[inline]
    pub(crate) fn on_head(&mut self, status: u16, has_body: bool) -> Option<Moment> {
        let (client, state) = self.inner.as_mut()?;
        state.status = status;
        let ticket = state.ticket.as_mut()?;
        let worker = &client.worker;
        let now = worker.base.now();
        if has_body {
            worker
                .base
                .cluster
                .picker
                .borrow_mut()
                .handle_head(ticket, now);
        }
        let micros = micros_between(state.dispatched_at, now);
        if let Some(node) = worker.base.stats().node(ticket.node) {
            node.on_head(status, micros, now);
        }
        if let Some(trace) = &mut state.trace {
            trace.on_head(status, now);
        }
        state.upstream_us = Some(micros);
        state.answers = Some(outcome_of(status));
        let tick = worker.base.tick();
        Some(Moment { at: now, tick })
    }

    /// The answer's head is as its client gets it, but for the request's id.
    pub(crate) fn log_answer(&mut self, headers: &mut HeaderMap) {
        if let Some((client, state)) = &mut self.inner {
            if client.connection.settings.names_requests() {
                let id = state.id(&client.worker).to_string();
                if let Ok(id) = HeaderValue::try_from(id) {
                    headers.insert(REQUEST, id);
                }
            }
            let fields = client.connection.settings.log_fields();
            state.line.answer(&fields, headers);
        }
    }

    /// The node's answer is not passed on, as another one is asked: it counts there all the same.
    pub(crate) fn on_other_asked(&mut self, status: u16) {
        let Some((client, state)) = &mut self.inner else {
            return;
        };
        let Some(ticket) = &state.ticket else {
            return;
        };
        let base = &client.worker.base;
        let now = base.now();
        if let Some(trace) = &mut state.trace {
            trace.on_other_asked(status, now);
        }
        if let Some(node) = base.stats().node(ticket.node) {
            node.on_head(status, micros_between(state.dispatched_at, now), now);
        }
        let mut picker = base.cluster.picker.borrow_mut();
        picker.handle_outcome(ticket, outcome_of(status), now);
    }

    /// The node is there, and its connection is passed on: that is all that is known of its answer.
    pub(crate) fn on_connected(&mut self) {
        self.on_head(StatusCode::OK.as_u16(), true);
    }

    /// The node has not answered, or with what is no answer.
    pub(crate) fn on_failure(&mut self, reason: Reason) {
        if let Some((client, state)) = &mut self.inner {
            let now = client.worker.base.now();
            state.on_failure(&client.worker, reason, now);
        }
    }

    /// What the node's answer is worth is known: all of it has come, or it ends for this reason.
    pub(crate) fn settle(&mut self, reason: Option<Reason>) {
        if let Some((client, state)) = &mut self.inner {
            let now = client.worker.base.now();
            state.settle(&client.worker, reason, now);
        }
    }

    /// The answer went out whole.
    pub(crate) fn complete(&mut self) {
        self.complete_with(None);
    }

    /// The same, with its head if it has one: then the clock that was read there is not read again.
    pub(crate) fn complete_with(&mut self, head: Option<Moment>) {
        if let Some(client) = self.client() {
            client.release_upstream();
        }
        self.finish(None, head);
    }

    /// The request ends for this reason.
    pub(crate) fn fail(&mut self, reason: Reason) {
        if let Some(client) = self.client() {
            drop(client.upstream.take());
        }
        self.finish(Some(reason), None);
    }

    /// The request is answered by its listener or its route, with this status and so many bytes; `is_whole` if all of it was read.
    pub(crate) fn answer(&mut self, status: u16, bytes: u64, is_whole: bool) {
        if let Some(state) = self.state() {
            state.status = status;
            state.bytes = bytes;
        }
        if let Some(client) = self.client()
            && !is_whole
        {
            client.connection.refused.set(true);
        }
        self.complete();
    }

    /// The request is refused by ourselves, with this status and so many bytes.
    pub(crate) fn refuse(&mut self, reason: Reason, status: u16, bytes: u64) {
        if let Some(state) = self.state() {
            state.status = status;
            state.bytes = bytes;
        }
        if let Some(client) = self.client() {
            client.connection.refused.set(true);
        }
        self.fail(reason);
    }

    fn finish(&mut self, reason: Option<Reason>, with: Option<Moment>) {
        let Some((client, mut state)) = self.inner.take() else {
            return;
        };
        let worker = &client.worker;
        let now = match with {
            Some(moment) if moment.tick == worker.base.tick() => moment.at,
            Some(_) | None => worker.base.now(),
        };
        state.end(&client, worker, reason, now);
        client.connection.end_body();
        client.connection.enter_idle();
        client.put_spare(state);
    }
}

/// The recorded trace that a request belongs to, if it is exported, and the request's own span. Gives it a trace if it has none and is to
/// have one.
#[cold]
#[inline(never)]
pub(crate) fn traced(
    client: &Client,
    headers: &mut HeaderMap,
) -> Option<Box<(TraceParent, SpanId)>> {
    let worker = &client.worker;
    let (sampling, config) = client.connection.settings.traces();
    if config.exported {
        let takes = || (worker.base.record).may_trace(worker.base.now(), config.per_second);
        return worker.traces.begin(headers, sampling, takes).map(Box::new);
    }
    if let Some(sampling) = sampling {
        worker.traces.ensure(headers, sampling);
    }
    None
}

/// When something was, by the clock and by the worker's ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    at: Timestamp,
    tick: u64,
}

/// What an answer of this status says of its node.
#[inline]
pub(crate) fn outcome_of(status: u16) -> Outcome {
    match status {
        500.. => Outcome::ServerError,
        _ => Outcome::Success,
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let is_sized = self.state().is_some_and(|state| state.is_sized);
        if let Some(client) = self.client() {
            let reason = client.connection.abandoned_for(is_sized);
            self.fail(reason);
        }
    }
}

/// A request whose head could not be read has come and gone.
pub(crate) fn enter_headless(client: &Client, reason: Reason) {
    let worker = &client.worker;
    worker.base.stats().requests.add(1);
    let now = worker.base.now();
    let mut state = client.take_spare();
    state.arrived_at = now;
    state.dispatched_at = now;
    state.words = Words::default();
    state.line.begin(
        client.connection.settings.log_format(),
        &client.connection.settings.log_fields(),
        &Head {
            unix_nanos: worker.base.clock.unix_nanos(now),
            client: client.connection.client_text(),
            method: "-",
            target: "-",
            version: http::Version::HTTP_11,
            headers: &HeaderMap::new(),
        },
    );
    state.end(client, worker, Some(reason), now);
}
