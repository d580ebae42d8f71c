//! What is known of a request, and how it is entered in the record exactly once.

use std::net::IpAddr;

use http::HeaderValue;
use tidegate_core::classes::Words;
use tidegate_core::picker::{Affinity, Outcome, Ticket};
use tidegate_core::throttle::Marks;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{NodeId, SiteId};

use super::client::Client;
use crate::gate::delay::Delayed;
use crate::gate::throttle::Throttled;
use crate::head::classify::SessionHash;
use crate::record::hedged::Hedged;
use crate::record::id::RequestId;
use crate::record::log::{Line, Recent, Tail};
use crate::record::reason::Reason;
use crate::record::traced::{Trace, TracedEnd};
use crate::refusal::Form;
use crate::route::Route;
use crate::worker::Worker;
use crate::worker::seats::Seat;

/// What is known of the present request. Reused by the requests of a connection.
pub(crate) struct RequestState {
    pub(super) line: Line,
    pub(crate) arrived_at: Timestamp,
    pub(crate) dispatched_at: Timestamp,
    /// When it first asked for a node: throttles and tests have had their time before.
    pub(crate) asked_at: Option<Timestamp>,
    pub(super) upstream_us: Option<u64>,
    /// What the node's answer is, if it comes to its end.
    pub(super) answers: Option<Outcome>,
    /// The answer that streams is of known length.
    pub(crate) is_sized: bool,
    pub(crate) site: Option<SiteId>,
    pub(crate) ticket: Option<Ticket>,
    pub(crate) tries: u32,
    /// Nodes that did not answer it, or whose answer may not be passed on.
    pub(crate) tried: Vec<NodeId>,
    /// It was not tried again because the budget is used up.
    pub(crate) retry_denied: bool,
    /// Whether it may have a second node, or what became of that.
    pub(crate) hedging: Hedging,
    /// Whose request it is; taken when it is let in.
    pub(crate) session: Option<SessionHash>,
    /// Where its session wants it.
    pub(crate) affinity: Affinity,
    /// The route of its site that it is of.
    pub(crate) route: Option<Route>,
    /// The throttle that it has met.
    pub(crate) throttled: Option<Throttled>,
    /// The hold of a test.
    pub(crate) delayed: Option<Delayed>,
    /// The tunnel that it asks to be.
    pub(crate) tunnel: Option<AskedTunnel>,
    /// What the client takes for an answer, where it was looked for.
    pub(crate) form: Form,
    pub(crate) status: u16,
    pub(super) bytes: u64,
    /// Set with each head, where something reads them.
    pub(super) words: Words,
    /// By what it is known, once that is wanted.
    id: Option<RequestId>,
    /// Its number for discovery, until its end is written too.
    observed: Option<u64>,
    /// Its trace, if it is exported.
    pub(crate) trace: Option<Box<Trace>>,
}

impl Default for RequestState {
    fn default() -> Self {
        Self {
            line: Line::default(),
            arrived_at: Timestamp::ZERO,
            dispatched_at: Timestamp::ZERO,
            asked_at: None,
            upstream_us: None,
            answers: None,
            is_sized: false,
            site: None,
            ticket: None,
            tries: 0,
            tried: Vec::new(),
            retry_denied: false,
            hedging: Hedging::Never,
            session: None,
            affinity: Affinity::None,
            route: None,
            throttled: None,
            delayed: None,
            tunnel: None,
            form: Form::Http,
            status: 0,
            bytes: 0,
            words: Words::default(),
            id: None,
            observed: None,
            trace: None,
        }
    }
}

/// Whether a request may have a second node where its first one is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hedging {
    /// It may not.
    Never,
    /// It may.
    May,
    /// It has had one, or could not, and may not again.
    Was(Hedged),
}

impl Hedging {
    fn outcome(self) -> Option<Hedged> {
        match self {
            Self::Never | Self::May => None,
            Self::Was(outcome) => Some(outcome),
        }
    }
}

/// A tunnel that a request asks for.
pub(crate) struct AskedTunnel {
    /// Its place among the tunnels.
    pub(crate) _seat: Seat,
    /// The values of `Upgrade`.
    pub(crate) protocols: Vec<HeaderValue>,
}

/// What is known of a request only at its end.
struct RequestEnd<'a> {
    ticket: Option<&'a Ticket>,
    throttled: Option<&'a Throttled>,
    reason: Option<Reason>,
    duration_us: u64,
    /// Of its body.
    bytes_in: u64,
}

impl RequestState {
    /// Marks of its connections.
    pub(crate) fn marks(&self) -> Marks {
        let throttled = self.throttled.as_ref();
        throttled.map_or(Marks::NONE, |throttled| throttled.rule().marks)
    }

    /// By what it is known.
    #[inline]
    pub(crate) fn id(&mut self, worker: &Worker) -> RequestId {
        *self.id.get_or_insert_with(|| worker.base.record.ids.next())
    }

    /// Whether it gives way to all other classes.
    pub(crate) fn gives_way(&self) -> bool {
        let throttled = self.throttled.as_ref();
        throttled.is_some_and(|throttled| throttled.rule().lowest_priority)
    }

    /// It goes to a server now. Tried again it is still the same request.
    pub(crate) fn observe_sent(&mut self, worker: &Worker, site: SiteId, now: Timestamp) {
        if let (Some(observer), None) = (&worker.base.record.observer, self.observed) {
            let asked = self.asked_at.unwrap_or(now);
            self.observed = observer.on_sent(site, &self.words, asked, now);
        }
    }

    /// The server has no more work with it. Only the first time counts.
    pub(crate) fn observe_end(&mut self, worker: &Worker, now: Timestamp) {
        if let (Some(observer), Some(id)) = (&worker.base.record.observer, self.observed.take()) {
            observer.on_end(id, now);
        }
    }

    pub(super) fn on_failure(&mut self, worker: &Worker, reason: Reason, now: Timestamp) {
        if let Some(trace) = &mut self.trace {
            trace.on_failure(reason, now);
        }
        let (Some(ticket), Some(outcome)) = (&self.ticket, reason.outcome()) else {
            return;
        };
        let mut picker = worker.base.cluster.picker.borrow_mut();
        picker.handle_outcome(ticket, outcome, now);
        worker.queue.on_failure();
        if let Some(node) = worker.base.stats().node(ticket.node) {
            node.on_failure(reason, now);
        }
        if self.upstream_us.is_none() {
            self.upstream_us = Some(micros_between(self.dispatched_at, now));
        }
    }

    /// The answer has ended: by itself, by its node, or by its client, which is not the node's doing.
    pub(super) fn settle(&mut self, worker: &Worker, reason: Option<Reason>, now: Timestamp) {
        let Some(outcome) = self.answers.take() else {
            return;
        };
        match (reason, &self.ticket) {
            (Some(reason), _) if reason.outcome().is_some() => {
                self.on_failure(worker, reason, now);
            }
            (_, Some(ticket)) => {
                let mut picker = worker.base.cluster.picker.borrow_mut();
                picker.handle_outcome(ticket, outcome, now);
                if outcome != Outcome::Success {
                    worker.queue.on_failure();
                }
            }
            (_, None) => {}
        }
    }

    /// Enters the request in the books and lets go of everything.
    pub(super) fn end(
        &mut self,
        client: &Client,
        worker: &Worker,
        reason: Option<Reason>,
        now: Timestamp,
    ) {
        self.observe_end(worker, now);
        if let (Some(observer), Some(site), true) = (
            &worker.base.record.observer,
            self.site,
            reason.is_some_and(Reason::is_for_lack_of_room),
        ) {
            observer.on_refused(site, &self.words, now);
        }
        let duration_us = micros_between(self.arrived_at, now);
        self.settle(worker, reason, now);
        if self.status == 0 {
            self.status = reason.map_or(200, Reason::status_code);
        }
        let stats = worker.base.stats();
        let uploaded = client.connection.uploaded.get();
        stats.bytes_in.add(uploaded);
        stats.bytes_out.add(self.bytes);
        stats.on_end(self.site, self.status, reason, duration_us);
        if self.line.has_begun() || client.connection.settings.keeps_recent() {
            self.id(worker);
        }
        let ended = RequestEnd {
            ticket: self.ticket.as_ref(),
            throttled: self.throttled.as_ref(),
            reason,
            duration_us,
            bytes_in: uploaded,
        };
        if self.line.has_begun() {
            self.log(client, &ended, now);
        }
        if client.connection.settings.keeps_recent() {
            let client = client.connection.client;
            let write = |recent: &mut Recent| self.write_recent(recent, client, &ended, now);
            worker.base.record.remember(write);
        }
        if self.trace.is_some() {
            self.end_trace(client, reason, now);
        }
        client.connection.at.set(None);
        client.connection.end_rest();
        self.ticket = None;
        client.connection.leave_place(reason);
        let site = self.site;
        self.reset();
        worker.queue.handle_room(site);
        self.throttled = None;
    }

    fn log(&self, client: &Client, ended: &RequestEnd<'_>, now: Timestamp) {
        let worker = &client.worker;
        let RequestEnd {
            ticket,
            throttled,
            reason,
            duration_us,
            bytes_in,
        } = *ended;
        let picker = worker.base.cluster.picker.borrow();
        let topology = picker.topology();
        let site = self.site.and_then(|site| topology.sites.get(site.index()));
        let node = ticket.and_then(|ticket| topology.nodes.get(ticket.node.index()));
        let tail = Tail {
            id: self.id.unwrap_or_default(),
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
            hedged: self.hedging.outcome(),
            why: ticket.map(|ticket| ticket.why),
            throttle: throttled.map(|throttled| throttled.rule().pattern.name()),
            held_us: throttled
                .and_then(|throttled| throttled.held(now))
                .map(|held| held.as_micros() as u64),
            experiment_us: (self.delayed).map(|it| it.delayed(now).as_micros() as u64),
            reason,
        };
        let fields = client.connection.settings.log_fields();
        worker.base.record.log(&self.line, &fields, &tail);
    }

    #[cold]
    #[inline(never)]
    fn end_trace(&mut self, client: &Client, reason: Option<Reason>, now: Timestamp) {
        let Some(trace) = self.trace.take() else {
            return;
        };
        let throttled = self.throttled.as_ref();
        let base = &client.worker.base;
        let picker = base.cluster.picker.borrow();
        let sites = &picker.topology().sites;
        let site = self.site.and_then(|site| sites.get(site.index()));
        base.record.trace(trace.end(&TracedEnd {
            now,
            queued_until: self.queued_until(now),
            status: self.status,
            bytes: self.bytes,
            bytes_in: client.connection.uploaded.get(),
            site: site.map(|site| site.name.as_str()),
            throttle: throttled.map(|it| it.rule().pattern.name()),
            retry_denied: self.retry_denied,
            hedged: self.hedging.outcome(),
            reason,
        }));
    }

    /// When its wait for a node ended: when one was chosen, or with the request where none ever was.
    fn queued_until(&self, now: Timestamp) -> Timestamp {
        match self.site.is_some() && self.tries == 0 {
            true => now,
            false => self.dispatched_at,
        }
    }

    /// Writes all of it anew.
    #[inline]
    fn write_recent(
        &self,
        recent: &mut Recent,
        from: IpAddr,
        ended: &RequestEnd<'_>,
        now: Timestamp,
    ) {
        let RequestEnd {
            ticket, throttled, ..
        } = *ended;
        let Recent {
            id,
            trace,
            at,
            duration,
            client,
            site,
            node,
            why,
            tries,
            throttle,
            held,
            delayed,
            status,
            reason,
            words,
        } = recent;
        *id = self.id.unwrap_or_default();
        *trace = self.trace.as_ref().map(|it| it.trace());
        *at = self.arrived_at;
        *duration = now.since(self.arrived_at);
        *client = from;
        *site = self.site;
        *node = ticket.map(|ticket| ticket.node);
        *why = ticket.map(|ticket| ticket.why);
        *tries = self.tries;
        *throttle = throttled.map(|it| it.rule().id);
        *held = throttled.and_then(|it| it.held(now));
        *delayed = self.delayed.map(|it| it.delayed(now));
        *status = self.status;
        *reason = ended.reason;
        *words = self.words;
    }

    fn reset(&mut self) {
        self.id = None;
        self.upstream_us = None;
        self.answers = None;
        self.asked_at = None;
        self.site = None;
        self.tries = 0;
        self.tried.clear();
        self.retry_denied = false;
        self.hedging = Hedging::Never;
        self.session = None;
        self.affinity = Affinity::None;
        self.delayed = None;
        self.route = None;
        self.tunnel = None;
        self.form = Form::Http;
        self.status = 0;
        self.bytes = 0;
    }
}

pub(super) fn micros_between(from: Timestamp, to: Timestamp) -> u64 {
    to.nanos().saturating_sub(from.nanos()) / 1000
}
