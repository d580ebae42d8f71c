//! One client connection, as far as its parts share it: phase, deadline, upstream connection.
//!
//! Deadlines cost a store: a phase writes the tick at which it is over, and the worker's clock
//! looks over all sessions once per tick and wakes those that are late. What acts on it:
//!
//! | phase | waits for | late means |
//! |---|---|---|
//! | `Idle` | first byte of a head | after a second: its buffers are given back; later: closed without an answer |
//! | `Head` | rest of the head | 408 |
//! | `Busy` | request body, response head | 408 or 504, by which side stood still |
//! | `Body` | response body, client | cut: `response_stalled` or `client_stalled` |
//! | `Tunnel` | either side | closed |
//!
//! A request may have a time in all as well, waits included: then it is late in whatever phase it is
//! (`total_timeout`).

pub(crate) mod departure;
pub(crate) mod eviction;
pub(crate) mod introduction;

use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use http::{HeaderValue, Version};
use tidegate_core::allowance::Allowance;
use tidegate_core::load::RestKind;
use tidegate_core::picker::Resting;
use tidegate_core::topology::NodeId;

use crate::base::{Removal, Settings, Ticks, WorkerBase};
use crate::config::listener::ListenerPlan;
use crate::config::route::RouteTimeouts;
use crate::gate::place::Place;
use crate::gate::throttle::Passed;
use crate::record::reason::Reason;
use crate::wire::inflow::Inflow;
use crate::wire::proxy_header::Ends;
use departure::{EndedSending, LOOK_TICKS, RequestStage, Unseen};
use eviction::Standing;
use introduction::Introduction;

/// Ticks for which an idle connection keeps its buffers.
const BUFFERED_TICKS: u64 = 50;
/// A deadline that never comes.
const NEVER: u64 = u64::MAX;

/// What a session is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Idle,
    Head,
    Busy,
    Body,
    Tunnel,
}

/// How far the request body is on its way to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upload {
    /// There is none, or it was sent whole.
    Done,
    /// It is being sent.
    Active,
    /// It could not be read to its end: the client has left, or it is refused.
    Failed(Reason),
}

/// Whether the present request takes its node's time.
#[derive(Default)]
enum Repose {
    /// There is none, or it does.
    #[default]
    Works,
    /// It will take none from this tick on, if it is still there.
    From {
        tick: u64,
        node: NodeId,
        kind: RestKind,
    },
    /// It takes none.
    Rests(#[expect(dead_code, reason = "the request rests while it is kept")] Resting),
}

/// What the handshake of a connection has shown.
pub(crate) struct TlsSession {
    /// The name that the client has asked for.
    pub(crate) name: Option<Box<str>>,
    /// Its certificate, as a header value.
    pub(crate) identity: Option<HeaderValue>,
}

/// See the module.
pub(crate) struct ClientConnection {
    pub(crate) base: Rc<WorkerBase>,
    /// Whether the listener that it came by was taken out.
    pub(crate) listener: Rc<Removal>,
    /// How that listener served connections when this one came.
    pub(crate) plan: Arc<ListenerPlan>,
    /// What its handshake has shown, where it is one of TLS.
    pub(crate) tls: OnceCell<Rc<TlsSession>>,
    /// What headers to nodes say of it, where some have one.
    introduction: OnceCell<Rc<Introduction>>,
    /// What its present request is served by.
    pub(crate) settings: Settings,
    pub(crate) client: IpAddr,
    /// The client's address as text.
    pub(crate) client_value: HeaderValue,
    phase: Cell<Phase>,
    due: Cell<u64>,
    /// When it is closed, if it is idle until then.
    closes: Cell<u64>,
    /// When the present body must be over.
    ends: Cell<u64>,
    /// When the present phase began, or its body last went on.
    moved: Cell<u64>,
    allowance: Cell<Allowance>,
    /// While the node is waited for: what is left of the client's time.
    clients: Cell<Option<u64>>,
    late: Cell<bool>,
    /// When the present request must be over.
    total: Cell<u64>,
    /// It is over its time in all.
    overdue: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    repose: Cell<Repose>,
    /// The node that has the present request.
    pub(crate) at: Cell<Option<NodeId>>,
    /// The place of the present request, if it is of a throttled class.
    place: RefCell<Option<Box<Place>>>,
    pub(crate) upload: Cell<Upload>,
    pub(crate) uploaded: Cell<u64>,
    /// Which of its requests is the present one.
    pub(crate) serial: Cell<u64>,
    /// Another task drives the connection to the node that has the present request.
    pub(crate) driven_elsewhere: Cell<bool>,
    /// The request body waits for the client, not for the node.
    pub(crate) upload_waits: Cell<bool>,
    /// A request was read on this connection.
    pub(crate) served: Cell<bool>,
    /// An answer of ours was given that the client may not have read.
    pub(crate) refused: Cell<bool>,
    /// hyper has found the head malformed, and this was said.
    pub(crate) malformed: Cell<Option<Reason>>,
    /// The client has sent more than its present request, or ended its sending: whether it is still
    /// there is looked at by the clock.
    pub(crate) watched: Cell<bool>,
    /// Its answer is awaited while the reactor does not know of its socket.
    pub(crate) unseen: Unseen,
    /// The tick at which the client was seen to have ended its sending, and whether its answer had
    /// begun.
    ended: Cell<Option<(u64, bool)>>,
    /// Since then it was asked whether it is there.
    pub(crate) probed: Cell<bool>,
    /// The request waits for its turn.
    pub(crate) queued: Cell<bool>,
    /// The HTTP version of the present request.
    pub(crate) version: Cell<Version>,
    /// Interim responses that are to be written to the client.
    pub(crate) interims: RefCell<BytesMut>,
    /// hyper has nothing left to write to the client of what it has begun.
    pub(crate) clean: Cell<bool>,
    /// All of the last response has gone to the socket.
    pub(crate) flushed: Cell<bool>,
    /// Why the present request ends, if it is dropped now.
    pub(crate) abandon: Cell<Reason>,
    /// The session must end now.
    pub(crate) cut: Cell<bool>,
    /// What comes from the client.
    pub(crate) inflow: RefCell<Inflow>,
}

impl ClientConnection {
    /// What another connection has left of its time for a head is this one's.
    pub(crate) fn take_deadline_of(&self, other: &Self) {
        self.due.set(other.due.get());
        self.closes.set(other.closes.get());
        self.moved.set(other.moved.get());
    }

    pub(crate) fn new(
        base: Rc<WorkerBase>,
        client: IpAddr,
        listener: Rc<Removal>,
        plan: Arc<ListenerPlan>,
    ) -> Rc<Self> {
        let client = client.to_canonical();
        let text = client.to_string();
        let client_value =
            HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("unknown"));
        let settings = Settings::copy_of(&base.settings);
        let due = Cell::new(base.due(settings.ticks().client_head));
        let closes = due.clone();
        let moved = Cell::new(base.tick());
        Rc::new(Self {
            base,
            listener,
            plan,
            tls: OnceCell::new(),
            introduction: OnceCell::new(),
            settings,
            client,
            client_value,
            phase: Cell::new(Phase::Idle),
            due,
            closes,
            ends: Cell::new(NEVER),
            moved,
            allowance: Cell::default(),
            clients: Cell::new(None),
            late: Cell::new(false),
            total: Cell::new(NEVER),
            overdue: Cell::new(false),
            waker: RefCell::new(None),
            repose: Cell::default(),
            at: Cell::default(),
            place: RefCell::new(None),
            upload: Cell::new(Upload::Done),
            uploaded: Cell::new(0),
            serial: Cell::new(0),
            driven_elsewhere: Cell::new(false),
            upload_waits: Cell::new(false),
            served: Cell::new(false),
            refused: Cell::new(false),
            malformed: Cell::new(None),
            watched: Cell::new(false),
            unseen: Unseen::default(),
            ended: Cell::new(None),
            probed: Cell::new(false),
            queued: Cell::new(false),
            version: Cell::new(Version::HTTP_10),
            interims: RefCell::default(),
            clean: Cell::new(true),
            flushed: Cell::new(true),
            abandon: Cell::new(Reason::ClientGone),
            cut: Cell::new(false),
            inflow: RefCell::new(Inflow::of_client()),
        })
    }

    /// One stream of this connection: as if its requests came on a connection of their own.
    pub(crate) fn of_stream(&self) -> Rc<Self> {
        let (base, listener) = (Rc::clone(&self.base), Rc::clone(&self.listener));
        let made = Self::new(base, self.client, listener, Arc::clone(&self.plan));
        if let Some(session) = self.tls.get() {
            // It is set here alone.
            made.tls.set(Rc::clone(session)).unwrap_or_default();
        }
        if let Some(introduction) = self.introduction.get() {
            made.introduction
                .set(Rc::clone(introduction))
                .unwrap_or_default();
        }
        made
    }

    /// Headers to nodes say this of it.
    pub(crate) fn introduce(&self, ends: Ends) {
        // Only the first is kept, and there is one.
        self.introduction
            .set(Rc::new(Introduction::new(ends)))
            .unwrap_or_default();
    }

    /// What headers to nodes say of it. Of a connection that is older than the wish for them the address alone is known.
    #[cold]
    pub(crate) fn introduction(&self) -> &Introduction {
        self.introduction.get_or_init(|| {
            let unknown: IpAddr = match self.client {
                IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            Rc::new(Introduction::new(Ends {
                source: (self.client, 0).into(),
                destination: (unknown, 0).into(),
            }))
        })
    }

    /// The same, if there was any cause to know it.
    pub(crate) fn known_introduction(&self) -> Option<&Introduction> {
        self.introduction.get().map(|it| &**it)
    }

    /// Whether it begins as HTTP/2 does, where that is spoken unasked.
    pub(crate) fn begins_http2(&self) -> bool {
        let preface = || self.inflow.borrow().seen_so_far().preface;
        self.plan.protocols.http2 && self.plan.tls.is_none() && !self.served.get() && preface()
    }

    /// Of the URLs that its requests have.
    pub(crate) fn scheme(&self) -> &'static str {
        match self.plan.tls {
            None => "http",
            Some(_) => "https",
        }
    }

    /// Whether its client was asked for a certificate.
    pub(crate) fn asks_certificate(&self) -> bool {
        self.plan.tls.as_ref().is_some_and(|tls| tls.asks_clients())
    }

    /// Whether the certificate that its client was shown is for this host, where it was shown one.
    pub(crate) fn is_shown_for(&self, host: &str) -> bool {
        let name = self.tls.get().and_then(|session| session.name.as_deref());
        (self.plan.tls.as_ref()).is_none_or(|tls| tls.covers(name, host))
    }

    /// The client's address as text.
    pub(crate) fn client_text(&self) -> &str {
        self.client_value.to_str().unwrap_or_default()
    }

    /// Time-outs of the present request.
    pub(crate) fn ticks(&self) -> Ticks {
        self.settings.ticks()
    }

    // Phases and deadlines.

    pub(crate) fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// Enters a phase that may take so many ticks.
    pub(crate) fn enter(&self, phase: Phase, ticks: u64) {
        self.phase.set(phase);
        self.extend(ticks);
    }

    /// The present request is over: what there is of newer settings holds for the next.
    #[inline]
    pub(crate) fn enter_idle(&self) {
        self.settings.leave_route();
        self.settings.follow(&self.base.settings);
        self.end_total();
        self.phase.set(Phase::Idle);
        self.extend_idle();
    }

    /// The client has so long for its next request from now on.
    #[inline]
    pub(crate) fn extend_idle(&self) {
        let idle = self.ticks().client_idle;
        self.closes.set(self.base.due(idle));
        self.extend(idle.min(BUFFERED_TICKS));
    }

    /// The buffers are there for a while from now on, if the connection is idle.
    pub(crate) fn begin_buffers(&self) {
        if self.phase() == Phase::Idle {
            let buffered = self.base.due(BUFFERED_TICKS);
            self.due.set(self.due.get().min(buffered));
        }
    }

    /// An idle connection that is late is to be closed: else its buffers are to be given back.
    pub(crate) fn is_closing(&self) -> bool {
        self.closes.get() <= self.base.tick()
    }

    /// Whether nothing of a connection that is idle and late is in its buffers; it is late no longer then.
    pub(crate) fn end_buffers(&self) -> bool {
        if !self.flushed.get() || self.inflow.borrow().is_ahead() {
            return false;
        }
        self.late.set(false);
        self.due.set(self.closes.get());
        true
    }

    /// The present request is of a route with time-outs of its own.
    pub(crate) fn take_route(&self, timeouts: &RouteTimeouts) {
        if !timeouts.is_empty() {
            self.settings.take_route(timeouts);
            self.begin_total();
        }
    }

    /// The time of the present request in all counts from now.
    fn begin_total(&self) {
        let total = self.ticks().total;
        (self.total).set(total.map_or(NEVER, |ticks| self.base.due(ticks)));
    }

    /// The present request is over, or a tunnel, which may take as long as it likes.
    pub(crate) fn end_total(&self) {
        self.total.set(NEVER);
        self.overdue.set(false);
    }

    /// Whether the present request has taken longer in all than it may.
    pub(crate) fn is_overdue(&self) -> bool {
        self.overdue.get()
    }

    /// Waits until it has. The clock wakes the connection's task then.
    pub(crate) async fn overdue(&self) {
        poll_fn(|_| match self.is_overdue() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    /// Gives the present phase so many ticks from now.
    pub(crate) fn extend(&self, ticks: u64) {
        self.due.set(self.base.due(ticks).min(self.ends.get()));
        self.moved.set(self.base.tick());
        self.late.set(false);
    }

    /// A body begins that may take so many ticks in all.
    pub(crate) fn begin_body(&self, total: Option<u64>) {
        let ends = total.map_or(NEVER, |ticks| self.base.due(ticks));
        self.ends.set(ends);
        self.allowance.take();
        self.clients.set(None);
    }

    /// The body is over: nothing is left of its limits.
    pub(crate) fn end_body(&self) {
        self.ends.set(NEVER);
    }

    /// So many bytes of a body went on.
    pub(crate) fn on_body_bytes(&self, bytes: u64) {
        let base = &self.base;
        self.moved.set(base.tick());
        if let Some(place) = &mut *self.place.borrow_mut() {
            place.on_bytes(bytes, base.tick());
        }
        if self.late.get() {
            return;
        }
        let (idle, rate) = (self.ticks().body_idle, self.ticks().body_bytes);
        let mut allowance = self.allowance.get();
        match self.clients.get() {
            Some(left) => {
                let left = allowance.on_bytes(left, bytes, idle, rate);
                self.clients.set(Some(left));
            }
            None => {
                let latest = base.due(idle).min(self.ends.get());
                let due = self.due.get().min(latest);
                self.due.set(allowance.on_bytes(due, bytes, latest, rate));
            }
        }
        self.allowance.set(allowance);
    }

    /// The client has taken all that there is of the answer: from now on it is the node's time that runs.
    pub(crate) fn await_node(&self) {
        if self.clients.get().is_none() {
            let base = &self.base;
            // As `due` adds one: a wait shorter than a tick gives the client nothing.
            let left = self.due.get().saturating_sub(base.tick() + 1);
            self.clients.set(Some(left.min(self.ticks().body_idle)));
            let due = base.due(self.ticks().body_idle);
            self.due.set(due.min(self.ends.get()));
        }
    }

    /// The throttle has the answer wait: neither the client's time runs, nor the node's.
    pub(crate) fn await_throttle(&self) {
        self.await_node();
        self.suspend();
    }

    /// The node has sent more: the client has the time that was left to it.
    pub(crate) fn on_node_bytes(&self) {
        if let Some(left) = self.clients.take() {
            self.extend(left);
        }
    }

    /// Whether a late answer is the node's doing.
    pub(crate) fn node_stands_still(&self) -> bool {
        self.clients.get().is_some() && self.base.tick() < self.ends.get()
    }

    /// Whether a late body is one that moves, but too slowly or for too long.
    pub(crate) fn is_slow(&self) -> bool {
        let still = self.base.tick().saturating_sub(self.moved.get());
        still < self.ticks().body_idle
    }

    /// Why a request is late that has no answer yet: which side has stood still.
    pub(crate) fn late_reason(&self) -> Reason {
        if self.is_overdue() {
            Reason::TotalTimeout
        } else if self.is_uploading() && self.upload_waits.get() {
            match self.is_slow() {
                true => Reason::BodySlow,
                false => Reason::BodyTimeout,
            }
        } else {
            Reason::ResponseTimeout
        }
    }

    /// Gives the present phase as long as it takes: its time is watched elsewhere.
    pub(crate) fn suspend(&self) {
        self.due.set(NEVER);
    }

    /// How it stands where a connection has to give way.
    pub(crate) fn standing(&self) -> Standing {
        Standing {
            phase: self.phase(),
            waited_for: self.due.get() != NEVER && self.flushed.get(),
            served: self.served.get(),
            since: self.moved.get(),
            head: self.ticks().client_head,
        }
    }

    /// The time of its phase is over now.
    pub(crate) fn expire(&self) {
        self.closes.set(0);
        self.on_late();
    }

    fn on_late(&self) {
        self.due.set(NEVER);
        self.late.set(true);
        self.wake();
    }

    /// Whether the phase, or the request, has run out of time.
    pub(crate) fn is_late(&self) -> bool {
        self.late.get() || self.is_overdue()
    }

    /// The same, and it is dealt with.
    pub(crate) fn take_late(&self) -> bool {
        self.late.replace(false) || self.is_overdue()
    }

    /// The worker's clock looks at the session. True if its request rests from now on.
    pub(crate) fn on_tick(&self, tick: u64) -> bool {
        if self.due.get() <= tick {
            self.on_late();
        }
        if self.total.get() <= tick {
            self.total.set(NEVER);
            self.overdue.set(true);
            self.wake();
        }
        if let Some(place) = &mut *self.place.borrow_mut() {
            place.on_tick(tick);
        }
        if self.unseen.is_long(tick) && self.is_answered() {
            self.wake();
        }
        let unseen = self.watched.get() || (self.is_uploading() && !self.upload_waits.get());
        if unseen && tick.is_multiple_of(LOOK_TICKS) && self.is_answered() {
            self.wake();
        }
        let repose = self.repose.take();
        if let Repose::From {
            tick: from,
            node,
            kind,
        } = repose
            && from <= tick
        {
            self.rest(node, kind);
            return true;
        }
        self.repose.set(repose);
        false
    }

    // Whether the request holds room at its node; see [`tidegate_core::picker::Picker::rest`].

    /// The present request, which the node has, rests if it is still there so many ticks from now.
    pub(crate) fn rest_after(&self, node: NodeId, kind: RestKind, ticks: u64) {
        let tick = self.base.due(ticks);
        self.repose.set(Repose::From { tick, node, kind });
    }

    /// It rests from now on.
    pub(crate) fn rest(&self, node: NodeId, kind: RestKind) {
        let resting = self.base.cluster.picker.borrow().rest(node, kind);
        self.repose.set(Repose::Rests(resting));
    }

    /// Cuts the present request off if it is at one of these nodes.
    pub(crate) fn cut_off_at(&self, is_over: impl Fn(NodeId) -> bool) {
        if self.at.get().is_some_and(is_over) {
            self.cut.set(true);
            self.wake();
        }
    }

    /// It is about to end, or to be sent again.
    pub(crate) fn end_rest(&self) {
        self.repose.set(Repose::Works);
    }

    // The place of the request among those of its throttled class; see [`Place`].

    /// The throttle has let the present request on.
    pub(crate) fn take_place(&self, passed: Passed) {
        let place = Place::new(passed, &self.ticks());
        self.place.replace(Some(Box::new(place)));
    }

    /// The request has ended, for this reason if it was not answered.
    pub(crate) fn leave_place(&self, reason: Option<Reason>) {
        if let Some(place) = self.place.take() {
            place.end(reason);
        }
    }

    /// Whether the request has a place, of which there are so many.
    pub(crate) fn has_bounded_place(&self) -> bool {
        let place = self.place.borrow();
        place.as_ref().is_some_and(|place| place.is_bounded())
    }

    /// The request stands still for its client from now on, if that does not go on at once.
    pub(crate) fn await_client(&self) {
        if let Some(place) = &mut *self.place.borrow_mut() {
            place.await_client(self.base.tick());
        }
    }

    /// The client does not go on: the request stands still for it, and so does its node where the answer has begun.
    pub(crate) fn stand_still(&self) {
        if let Some(place) = &mut *self.place.borrow_mut() {
            place.stand_still(self.base.tick());
        }
        match self.repose.take() {
            Repose::From {
                node,
                kind: kind @ RestKind::Answered,
                ..
            } => {
                self.rest(node, kind);
                self.base.room_made.notify_one();
            }
            repose @ (Repose::Works | Repose::From { .. } | Repose::Rests(_)) => {
                self.repose.set(repose);
            }
        }
    }

    /// The client has sent or taken what there was.
    pub(crate) fn on_client(&self) {
        if let Some(place) = &mut *self.place.borrow_mut() {
            place.on_client(self.base.tick());
        }
    }

    /// Waits until the request has a place, if it needs one: its node is to do more for it.
    pub(crate) fn poll_place(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut place = self.place.borrow_mut();
        match place.as_mut().map(|place| place.poll(context)) {
            None | Some(Poll::Ready(false)) => Poll::Ready(()),
            Some(Poll::Ready(true)) => {
                let due = self.base.due(self.ticks().body_idle);
                self.due.set(due.min(self.ends.get()));
                Poll::Ready(())
            }
            Some(Poll::Pending) => {
                self.await_throttle();
                Poll::Pending
            }
        }
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Notes the task to wake.
    pub(crate) fn register(&self, waker: &Waker) {
        let mut slot = self.waker.borrow_mut();
        if !slot.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *slot = Some(waker.clone());
        }
    }

    /// The task to wake; none before the first poll.
    pub(crate) fn waker(&self) -> Option<Waker> {
        self.waker.borrow().clone()
    }

    // The client that waits for its answer.

    /// A request has begun.
    pub(crate) fn on_request(&self, version: Version) {
        self.served.set(true);
        self.serial.set(self.serial.get() + 1);
        self.flushed.set(false);
        self.watched.set(false);
        self.unseen.end();
        self.ended.set(None);
        self.probed.set(false);
        self.queued.set(false);
        self.version.set(version);
        self.refused.set(false);
        self.upload.set(Upload::Done);
        self.uploaded.set(0);
        self.upload_waits.set(false);
        self.abandon.set(Reason::ClientGone);
        self.begin_total();
        self.enter(Phase::Busy, self.ticks().response_head);
    }

    /// Whether the client reads interim responses.
    pub(crate) fn reads_interim(&self) -> bool {
        self.version.get() >= Version::HTTP_11
    }

    /// Whether there is more of the client than the head of its request: a body that it was to hold
    /// back, or its end.
    pub(crate) fn has_sent_more(&self) -> bool {
        self.watched.get() || self.inflow.borrow().is_ahead()
    }

    /// Whether an answer is awaited or on its way.
    pub(crate) fn is_answered(&self) -> bool {
        matches!(self.phase(), Phase::Busy | Phase::Body)
    }

    /// The client is seen to have ended its sending.
    pub(crate) fn on_sending_ended(&self) -> EndedSending {
        let tick = self.base.tick();
        let answered = self.phase() == Phase::Body;
        let (since, late) = self.ended.get().unwrap_or((tick, answered));
        self.ended.set(Some((since, late)));
        EndedSending {
            stage: match (answered, self.queued.get()) {
                // A body that is paced or cut has no time of its own.
                (true, _) if self.due.get() == NEVER => RequestStage::Answered { quiet: 0 },
                (true, _) => RequestStage::Answered {
                    quiet: tick.saturating_sub(self.moved.get()),
                },
                (false, true) => RequestStage::Queued,
                (false, false) => RequestStage::Sent,
            },
            reads_interim: self.reads_interim(),
            probed: self.probed.get(),
            late,
            ticks: tick.saturating_sub(since),
        }
    }

    // What hyper does not keep.

    /// Bytes of a head have come.
    pub(crate) fn on_head_bytes(&self) {
        if self.phase.get() == Phase::Idle {
            self.settings.follow(&self.base.settings);
            self.enter(Phase::Head, self.ticks().client_head);
        }
    }

    /// Whether the last head has a `Content-Length`, which hyper takes away beside a
    /// `Transfer-Encoding`.
    pub(crate) fn head_has_length(&self) -> bool {
        self.inflow.borrow().seen().found
    }

    /// Whether a request body is on its way to the node.
    pub(crate) fn is_uploading(&self) -> bool {
        self.upload.get() == Upload::Active
    }

    /// Polls with a context that wakes the caller only when a request body is on its way, or when the connection to the node drives
    /// itself: then another task may drive the upstream connection in between.
    pub(crate) fn with_context<T>(
        &self,
        context: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> T,
    ) -> T {
        if self.is_uploading() || self.driven_elsewhere.get() {
            poll(context)
        } else {
            poll(&mut Context::from_waker(Waker::noop()))
        }
    }

    /// The connection is over: it wakes nothing any more.
    pub(crate) fn close(&self) {
        self.waker.take();
    }
}
