//! One request from its head to its end, and the books that it must be entered in exactly once.
//!
//! [`Live`] is the guard: it goes from the service into the response body (or into the tunnel),
//! and if it is dropped before the request has ended, the request ends there and then, as
//! cancelled. The ticket lies in it, so a request in flight cannot outlive it either.

use std::net::IpAddr;
use std::rc::Rc;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Request};
use tidegate_core::picker::{Outcome, Ticket};
use tidegate_core::throttle::{Marks, ThrottleId};
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{NodeId, SiteId};

use crate::classify::SessionHash;
use crate::config::LogFormat;
use crate::dithering::Dithered;
use crate::grpc::Form;
use crate::log::{Head, Line, Recent, Tail};
use crate::observed::Words;
use crate::reason::Reason;
use crate::seats::Seat;
use crate::session::{Phase, Session};
use crate::throttling::Throttled;
use crate::waiting;
use crate::worker::Worker;

/// What is known of the present request. Reused by the requests of a connection.
pub(crate) struct Exchange {
    line: Line,
    pub(crate) arrived_at: Timestamp,
    pub(crate) dispatched_at: Timestamp,
    /// When it first asked for a node: throttles and tests have had their time before.
    pub(crate) asked_at: Option<Timestamp>,
    upstream_us: Option<u64>,
    /// What the node's answer is, if it comes to its end.
    answers: Option<Outcome>,
    pub(crate) site: Option<SiteId>,
    pub(crate) ticket: Option<Ticket>,
    pub(crate) tries: u32,
    /// Nodes that did not answer it.
    pub(crate) tried: Vec<NodeId>,
    /// It was not tried again because the budget is used up.
    pub(crate) retry_denied: bool,
    /// Whose request it is; taken when it is let in.
    pub(crate) session: Option<SessionHash>,
    /// The throttle that it has met.
    pub(crate) throttled: Option<Throttled>,
    /// The hold of a test.
    pub(crate) dithered: Option<Dithered>,
    /// The tunnel that it asks to be.
    pub(crate) tunnel: Option<Asked>,
    /// What the client takes for an answer, where it was looked for.
    pub(crate) form: Form,
    pub(crate) status: u16,
    bytes: u64,
    words: Words,
    /// Its number where discovery is told of it, until it is told of its end.
    observed: Option<u64>,
}

impl Default for Exchange {
    fn default() -> Self {
        Self {
            line: Line::default(),
            arrived_at: Timestamp::ZERO,
            dispatched_at: Timestamp::ZERO,
            asked_at: None,
            upstream_us: None,
            answers: None,
            site: None,
            ticket: None,
            tries: 0,
            tried: Vec::new(),
            retry_denied: false,
            session: None,
            throttled: None,
            dithered: None,
            tunnel: None,
            form: Form::Http,
            status: 0,
            bytes: 0,
            words: Words::default(),
            observed: None,
        }
    }
}

/// A tunnel that a request asks for.
pub(crate) struct Asked {
    /// Its place among the tunnels.
    pub(crate) _seat: Seat,
    /// The values of `Upgrade`.
    pub(crate) protocols: Vec<HeaderValue>,
}

/// See the module.
pub(crate) struct Live {
    /// None once it has ended.
    inner: Option<(Rc<Session>, Box<Exchange>)>,
}

impl Live {
    /// A request's head was read.
    pub(crate) fn begin<B>(session: &Rc<Session>, request: &Request<B>) -> Self {
        let worker = &session.worker;
        worker.stats().requests.add(1);
        let now = worker.now();
        let mut exchange = session.take_spare();
        exchange.arrived_at = now;
        exchange.dispatched_at = now;
        if worker.config.log.recent > 0 || worker.observer.is_some() {
            let uri = request.uri();
            let target = uri.path_and_query().map_or("", PathAndQuery::as_str);
            let path_length = uri.path().len();
            let method = request.method().as_str();
            exchange.words = Words::new(method, target, path_length);
        }
        let format = worker.log_format();
        if format != LogFormat::Off {
            let target = request.uri().path_and_query();
            exchange.line.begin(
                format,
                &Head {
                    unix_nanos: worker.unix_nanos(now),
                    client: session.client_text(),
                    method: request.method().as_str(),
                    target: target.map_or("", |target| target.as_str()),
                    version: request.version(),
                    headers: request.headers(),
                },
            );
        }
        session.on_request(request.version());
        Self {
            inner: Some((Rc::clone(session), exchange)),
        }
    }

    /// The session, while the request is in progress.
    pub(crate) fn session(&self) -> Option<&Rc<Session>> {
        self.inner.as_ref().map(|(session, _)| session)
    }

    /// What is known of the request, while it is in progress.
    pub(crate) fn exchange(&mut self) -> Option<&mut Exchange> {
        self.inner.as_mut().map(|(_, exchange)| &mut **exchange)
    }

    /// The node that has it.
    pub(crate) fn node(&self) -> Option<NodeId> {
        let (_, exchange) = self.inner.as_ref()?;
        Some(exchange.ticket.as_ref()?.node)
    }

    /// Its ticket, if it has one.
    pub(crate) fn ticket(&self) -> Option<&Ticket> {
        self.inner.as_ref()?.1.ticket.as_ref()
    }

    /// The throttle of its class.
    pub(crate) fn throttle(&self) -> Option<ThrottleId> {
        let (_, exchange) = self.inner.as_ref()?;
        Some(exchange.throttled.as_ref()?.rule().id)
    }

    /// The request will be refused: in the form that its client reads.
    pub(crate) fn note_form(&mut self, headers: &HeaderMap) {
        if let Some(exchange) = self.exchange() {
            exchange.form = Form::of(headers);
        }
    }

    /// The last byte of the server's answer is here, or it is no answer any more.
    pub(crate) fn on_server_done(&mut self) {
        if let Some((session, exchange)) = &mut self.inner {
            let worker = &session.worker;
            exchange.observe_end(worker, worker.now());
        }
    }

    pub(crate) fn on_bytes(&mut self, bytes: u64) {
        if let Some(exchange) = self.exchange() {
            exchange.bytes += bytes;
        }
    }

    /// The head of the node's answer has come; what it is worth is known at its end.
    pub(crate) fn on_head(&mut self, status: u16, has_body: bool) {
        let Some((session, exchange)) = &mut self.inner else {
            return;
        };
        exchange.status = status;
        let Some(ticket) = &mut exchange.ticket else {
            return;
        };
        let worker = &session.worker;
        let now = worker.now();
        if has_body {
            worker.picker.borrow_mut().handle_head(ticket, now);
        }
        let micros = micros_between(exchange.dispatched_at, now);
        if let Some(node) = worker.stats().node(ticket.node) {
            node.on_head(status, micros, now);
        }
        exchange.upstream_us = Some(micros);
        exchange.answers = Some(match status {
            500.. => Outcome::ServerError,
            _ => Outcome::Success,
        });
    }

    /// The node has not answered, or with what is no answer.
    pub(crate) fn on_failure(&mut self, reason: Reason) {
        if let Some((session, exchange)) = &mut self.inner {
            let now = session.worker.now();
            exchange.on_failure(&session.worker, reason, now);
        }
    }

    /// What the node's answer is worth is known: all of it has come, or it ends for this reason.
    pub(crate) fn settle(&mut self, reason: Option<Reason>) {
        if let Some((session, exchange)) = &mut self.inner {
            let now = session.worker.now();
            exchange.settle(&session.worker, reason, now);
        }
    }

    /// The answer went out whole.
    pub(crate) fn complete(&mut self) {
        if let Some(session) = self.session() {
            session.release_upstream();
        }
        self.finish(None);
    }

    /// The request ends for this reason.
    pub(crate) fn fail(&mut self, reason: Reason) {
        if let Some(session) = self.session() {
            drop(session.upstream.take());
        }
        self.finish(Some(reason));
    }

    /// The request is answered by ourselves, with this status and so many bytes.
    pub(crate) fn refuse(&mut self, reason: Reason, status: u16, bytes: u64) {
        if let Some(exchange) = self.exchange() {
            exchange.status = status;
            exchange.bytes = bytes;
        }
        if let Some(session) = self.session() {
            session.refused.set(true);
        }
        self.fail(reason);
    }

    fn finish(&mut self, reason: Option<Reason>) {
        let Some((session, mut exchange)) = self.inner.take() else {
            return;
        };
        let worker = &session.worker;
        exchange.end(&session, worker, reason);
        session.end_body();
        session.enter(Phase::Idle, worker.ticks.client_idle);
        session.put_spare(exchange);
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(session) = self.session() {
            let reason = session.abandon.get();
            self.fail(reason);
        }
    }
}

impl Exchange {
    /// Marks of its connections.
    pub(crate) fn marks(&self) -> Marks {
        let throttled = self.throttled.as_ref();
        throttled.map_or(Marks::NONE, |throttled| throttled.rule().marks)
    }

    /// Whether it gives way to all other classes.
    pub(crate) fn gives_way(&self) -> bool {
        let throttled = self.throttled.as_ref();
        throttled.is_some_and(|throttled| throttled.rule().lowest_priority)
    }

    /// It goes to a server now. Tried again it is still the same request.
    pub(crate) fn observe_sent(&mut self, worker: &Worker, site: SiteId, now: Timestamp) {
        if let (Some(observer), None) = (&worker.observer, self.observed) {
            let asked = self.asked_at.unwrap_or(now);
            self.observed = observer.on_sent(site, self.words, asked, now);
        }
    }

    /// The server has no more work with it. Only the first time counts.
    pub(crate) fn observe_end(&mut self, worker: &Worker, now: Timestamp) {
        if let (Some(observer), Some(id)) = (&worker.observer, self.observed.take()) {
            observer.on_end(id, now);
        }
    }

    fn on_failure(&mut self, worker: &Worker, reason: Reason, now: Timestamp) {
        let (Some(ticket), Some(outcome)) = (&self.ticket, reason.outcome()) else {
            return;
        };
        let mut picker = worker.picker.borrow_mut();
        picker.handle_outcome(ticket, outcome, now);
        if let Some(node) = worker.stats().node(ticket.node) {
            node.on_failure(reason, now);
        }
        if self.upstream_us.is_none() {
            self.upstream_us = Some(micros_between(self.dispatched_at, now));
        }
    }

    /// The answer has ended: by itself, by its node, or by its client, who is not the node's doing.
    fn settle(&mut self, worker: &Worker, reason: Option<Reason>, now: Timestamp) {
        let Some(outcome) = self.answers.take() else {
            return;
        };
        match (reason, &self.ticket) {
            (Some(reason), _) if reason.outcome().is_some() => {
                self.on_failure(worker, reason, now);
            }
            (_, Some(ticket)) => {
                let mut picker = worker.picker.borrow_mut();
                picker.handle_outcome(ticket, outcome, now);
            }
            (_, None) => {}
        }
    }

    /// Enters the request in the books and lets go of everything.
    fn end(&mut self, session: &Session, worker: &Worker, reason: Option<Reason>) {
        let now = worker.now();
        self.observe_end(worker, now);
        if let (Some(observer), Some(site), true) = (
            &worker.observer,
            self.site,
            reason.is_some_and(Reason::is_for_lack_of_room),
        ) {
            observer.on_refused(site, self.words, now);
        }
        let duration_us = micros_between(self.arrived_at, now);
        self.settle(worker, reason, now);
        let ticket = self.ticket.take();
        let throttled = self.throttled.take();
        if self.status == 0 {
            self.status = reason.map_or(200, Reason::status_code);
        }
        let stats = worker.stats();
        let uploaded = session.uploaded.get();
        stats.bytes_in.add(uploaded);
        stats.bytes_out.add(self.bytes);
        stats.on_end(self.site, self.status, reason, duration_us);
        if worker.log_format() != LogFormat::Off {
            let ended = (reason, duration_us, uploaded);
            self.log(worker, (ticket.as_ref(), throttled.as_ref()), ended, now);
        }
        if worker.config.log.recent > 0 {
            let recent = self.recent(session.client, ticket.as_ref(), reason, now);
            worker.remember(Recent {
                throttle: throttled.as_ref().map(|it| it.rule().id),
                held: throttled.as_ref().and_then(|it| it.held(now)),
                tested: self.dithered.map(|it| it.held(now)),
                ..recent
            });
        }
        session.end_rest();
        drop(ticket);
        session.leave_place(reason);
        self.reset();
        waiting::serve(worker);
    }

    fn log(
        &self,
        worker: &Worker,
        (ticket, throttled): (Option<&Ticket>, Option<&Throttled>),
        (reason, duration_us, bytes_in): (Option<Reason>, u64, u64),
        now: Timestamp,
    ) {
        let picker = worker.picker.borrow();
        let topology = picker.topology();
        let site = self.site.and_then(|site| topology.sites.get(site.index()));
        let node = ticket.and_then(|ticket| topology.nodes.get(ticket.node.index()));
        let tail = Tail {
            status: self.status,
            bytes: self.bytes,
            bytes_in,
            duration_us,
            queue_us: micros_between(self.arrived_at, self.queued_until(now)),
            upstream_us: self.upstream_us,
            site: site.map(|site| site.name.as_str()),
            node: node.map(|node| node.name.as_str()),
            tries: self.tries,
            retry_denied: self.retry_denied,
            why: ticket.map(|ticket| ticket.why),
            throttle: throttled.map(|throttled| throttled.rule().pattern.name()),
            held_us: throttled
                .and_then(|throttled| throttled.held(now))
                .map(|held| held.as_micros() as u64),
            test_us: (self.dithered).map(|it| it.held(now).as_micros() as u64),
            reason,
        };
        worker.log(&self.line, &tail);
    }

    /// When its wait for a node ended: when one was chosen, or with the request where none ever was.
    fn queued_until(&self, now: Timestamp) -> Timestamp {
        match self.site.is_some() && self.tries == 0 {
            true => now,
            false => self.dispatched_at,
        }
    }

    fn recent(
        &self,
        client: IpAddr,
        ticket: Option<&Ticket>,
        reason: Option<Reason>,
        now: Timestamp,
    ) -> Recent {
        Recent {
            at: self.arrived_at,
            duration: now.since(self.arrived_at),
            client,
            site: self.site,
            node: ticket.map(|ticket| ticket.node),
            why: ticket.map(|ticket| ticket.why),
            tries: self.tries,
            throttle: None,
            held: None,
            tested: None,
            status: self.status,
            reason,
            words: self.words,
        }
    }

    fn reset(&mut self) {
        self.upstream_us = None;
        self.answers = None;
        self.asked_at = None;
        self.site = None;
        self.tries = 0;
        self.tried.clear();
        self.retry_denied = false;
        self.session = None;
        self.dithered = None;
        self.tunnel = None;
        self.form = Form::Http;
        self.status = 0;
        self.bytes = 0;
        self.words = Words::default();
    }
}

/// A request whose head could not be read has come and gone.
pub(crate) fn enter_headless(session: &Session, reason: Reason) {
    let worker = &session.worker;
    worker.stats().requests.add(1);
    let now = worker.now();
    let mut exchange = session.take_spare();
    exchange.arrived_at = now;
    exchange.dispatched_at = now;
    exchange.line.begin(
        worker.log_format(),
        &Head {
            unix_nanos: worker.unix_nanos(now),
            client: session.client_text(),
            method: "-",
            target: "-",
            version: http::Version::HTTP_11,
            headers: &HeaderMap::new(),
        },
    );
    exchange.end(session, worker, Some(reason));
}

fn micros_between(from: Timestamp, to: Timestamp) -> u64 {
    to.nanos().saturating_sub(from.nanos()) / 1000
}
