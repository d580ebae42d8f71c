//! A second node for a request whose first one is slow: the head that comes first is the client's.
//!
//! | | |
//! |---|---|
//! | which requests | of a route with `hedge`, GET, HEAD and OPTIONS without a body; none of a session that sticks, of a throttled class, of a delay experiment, none that asks for a tunnel, none without a host |
//! | when | the request is on its connection, its node has had it for `after`, and no head has come; once per request |
//! | where | another node that has room to spare, by the site's policy ([`Picker::handle_extra`]): none where requests wait or were refused |
//! | at whose expense | the route's budget ([`hedge_budget`]), which is asked first; the site's admission is not asked again |
//! | the second one wins | by a head below 500 that `retry_on` does not name: the first one's connection is closed, and its ticket ends without an outcome |
//! | it loses | by the first one's head, or with the request: the same the other way round |
//! | it fails | by any other head, or by none; that is an outcome of its node, and the first one goes on |
//! | it takes over | where the first one breaks, or answers what `retry_on` names, or stops answering anything: then it is the request's next try, which costs no budget of retries |
//!
//! Times of the request (`total`, `response_head`) go on as they are; `response_head` begins again where the second one takes over.
//! A copy that another site gets is made once. A first try that still has no connection has its own time for that (`connect`).
//!
//! Failure case: a node that is slow for all answers is asked all the same: what lost is no evidence against it, beside its requests
//! in flight. An answer that is slow anywhere is worked on twice.
//!
//! Source: Dean-2013.
//!
//! [`Picker::handle_extra`]: tidegate_core::picker::Picker::handle_extra
//! [`hedge_budget`]: tidegate_core::hedge_budget

use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Method, Request, Response};
use hyper::body::Incoming;
use tidegate_core::picker::{Affinity, Extra, Ticket};
use tidegate_core::throttle::Marks;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{NodeId, SiteId};
use tokio::time::{Sleep, sleep};

use super::dial::{Patience, dial};
use super::retry::Failure;
use super::{introduction_of, poll_head, status};
use crate::record::hedged::Hedged;
use crate::record::reason::Reason;
use crate::request::{
    Client, Hedging, RequestGuard, RequestTraits, hand_over, note_try, outcome_of, trace_second,
};
use crate::tls::NodeTlsFailure;
use crate::upstream::body::RequestBody;
use crate::upstream::{SendFailure, Sending, Upstream, UpstreamKey};
use crate::worker::Worker;

/// The least status that does not win.
const BAD: u16 = 500;

/// A request of a route has come: it pays for second nodes if it may have one. Whether it may.
#[cold]
#[inline(never)]
pub(crate) fn may_be(
    client: &Client,
    guard: &mut RequestGuard,
    method: &Method,
    traits: &RequestTraits,
) -> bool {
    let is_safe = [Method::GET, Method::HEAD, Method::OPTIONS].contains(method);
    let Some(state) = guard.state().filter(|_| is_safe && traits.repeatable) else {
        return false;
    };
    let route = state.route.as_ref().filter(|it| it.hedge.is_some());
    let (Some(route), Some(site)) = (route, state.site) else {
        return false;
    };
    let is_bound = state.affinity != Affinity::None;
    let is_held = state.throttled.is_some() || state.delayed.is_some();
    if is_bound || is_held || traits.facts.tunnel || !traits.facts.names_host() {
        return false;
    }
    let sites = &client.worker.sites;
    sites.with_hedge_budget(site, route.place(), |budget| budget.on_request());
    state.hedging = Hedging::May;
    true
}

/// Waits for the response head of the first node, or of a second one.
pub(super) async fn answered(
    client: &Client,
    guard: &mut RequestGuard,
    sending: Sending,
    traits: &RequestTraits,
) -> Result<Response<Incoming>, Failure> {
    let mut hedge = Hedge {
        stage: HedgeStage::before(client, guard),
        sending,
        traits: *traits,
    };
    poll_fn(|context| hedge.poll(client, guard, context)).await
}

/// A request that may have a second node.
struct Hedge<'a> {
    stage: HedgeStage<'a>,
    /// What goes to the node that the request is at.
    sending: Sending,
    traits: RequestTraits,
}

enum HedgeStage<'a> {
    /// The first node has its time still.
    Waits(Pin<Box<Sleep>>),
    /// The second one gets a connection.
    Connects(Box<Connecting<'a>>),
    /// It has the request.
    Asked(Box<Asked>),
    /// There is none, or no more.
    Over,
}

struct Connecting<'a> {
    second: Second,
    request: Request<RequestBody>,
    connecting: Pin<Box<dyn Future<Output = Result<Upstream, Reason>> + 'a>>,
}

struct Asked {
    second: Second,
    upstream: Upstream,
    sending: Sending,
    /// The node may have closed the connection long before.
    stale: bool,
}

/// The second node, from its pick to what became of it.
struct Second {
    worker: Rc<Worker>,
    ticket: Option<Ticket>,
    site: SiteId,
    key: UpstreamKey,
    begun_at: Timestamp,
    outcome: Hedged,
}

impl HedgeStage<'_> {
    /// The first node has had the request from its dispatch on. A request has a second one once.
    fn before(client: &Client, guard: &mut RequestGuard) -> Self {
        let now = client.worker.base.now();
        let hedge = after(guard).zip(guard.state());
        hedge.map_or(Self::Over, |(after, state)| {
            let had = now.since(state.dispatched_at);
            Self::Waits(Box::pin(sleep(after.saturating_sub(had))))
        })
    }
}

impl<'a> Hedge<'a> {
    fn poll(
        &mut self,
        client: &'a Client,
        guard: &mut RequestGuard,
        context: &mut Context<'_>,
    ) -> Poll<Result<Response<Incoming>, Failure>> {
        loop {
            if self.is_asked() && client.stranded.take() {
                // The ejection was the verdict on the node.
                self.take_over(client, guard);
            }
            let traits = RequestTraits {
                // No third node is asked in place of an answer while there is a second one.
                repeatable: self.traits.repeatable && !self.is_asked(),
                ..self.traits
            };
            match poll_head(client, guard, &mut self.sending, &traits, context) {
                Poll::Pending => {}
                Poll::Ready(first) if self.is_asked() && is_passed_over(client, guard, &first) => {
                    self.take_over(client, guard);
                    continue;
                }
                Poll::Ready(first) => return Poll::Ready(first),
            }
            let response = ready!(self.poll_second(client, guard, context));
            self.take_over(client, guard);
            client.take_interims();
            return Poll::Ready(Ok(response));
        }
    }

    fn is_asked(&self) -> bool {
        matches!(self.stage, HedgeStage::Asked(_))
    }

    /// The head of the second node, if it wins.
    fn poll_second(
        &mut self,
        client: &'a Client,
        guard: &mut RequestGuard,
        context: &mut Context<'_>,
    ) -> Poll<Response<Incoming>> {
        loop {
            match &mut self.stage {
                HedgeStage::Over => return Poll::Pending,
                HedgeStage::Waits(after) => {
                    ready!(after.as_mut().poll(context));
                    self.stage = begun(client, guard);
                }
                HedgeStage::Connects(it) => {
                    let connected = ready!(it.connecting.as_mut().poll(context));
                    let stage = mem::replace(&mut self.stage, HedgeStage::Over);
                    if let HedgeStage::Connects(it) = stage {
                        let Connecting {
                            second, request, ..
                        } = *it;
                        match connected {
                            Ok(upstream) => {
                                self.stage = second.asked(client, upstream, request, false);
                            }
                            Err(reason) => second.fail(guard, reason),
                        }
                    }
                }
                HedgeStage::Asked(asked) => match ready!(asked.poll_head(context)) {
                    Ok(response) if wins(client, guard, response.status().as_u16()) => {
                        return Poll::Ready(response);
                    }
                    ended => {
                        let stage = mem::replace(&mut self.stage, HedgeStage::Over);
                        if let HedgeStage::Asked(asked) = stage {
                            self.stage = asked.end(client, guard, ended);
                        }
                    }
                },
            }
        }
    }

    /// The second node has the request now, and no other one.
    fn take_over(&mut self, client: &Client, guard: &mut RequestGuard) {
        let HedgeStage::Asked(asked) = mem::replace(&mut self.stage, HedgeStage::Over) else {
            return;
        };
        let Asked {
            mut second,
            upstream,
            sending,
            stale,
        } = *asked;
        let (Some(ticket), Some(state)) = (second.ticket.take(), guard.state()) else {
            return;
        };
        second.outcome = Hedged::Won;
        state.hedging = Hedging::Was(Hedged::Won);
        if let Some(first) = &state.ticket {
            state.tried.push(first.node);
        }
        if let Some(trace) = &mut state.trace {
            trace.second_wins(client.worker.base.now());
        }
        let connection = &client.connection;
        connection.driven_elsewhere.set(upstream.drives_itself());
        drop(client.upstream.replace(Some(upstream)));
        self.sending = sending;
        self.traits.stale = stale;
        hand_over(client, guard, ticket, second.begun_at);
        connection.extend(connection.ticks().response_head);
    }
}

/// Whether the second node's answer is awaited in place of what came of the first one, which is its own node's doing in any case.
fn is_passed_over(
    client: &Client,
    guard: &mut RequestGuard,
    first: &Result<Response<Incoming>, Failure>,
) -> bool {
    match first {
        Ok(response) => {
            let status = response.status().as_u16();
            let is_chosen = status::is_chosen(client, guard, status);
            if is_chosen {
                guard.on_other_asked(status);
            }
            is_chosen
        }
        Err(failure) => failure.is_made_good(client, guard),
    }
}

fn wins(client: &Client, guard: &mut RequestGuard, status: u16) -> bool {
    status < BAD && !status::is_chosen(client, guard, status)
}

/// Has a second node asked, if there is one.
fn begun<'a>(client: &'a Client, guard: &mut RequestGuard) -> HedgeStage<'a> {
    let worker = &client.worker;
    let upstream = client.upstream.borrow();
    let request = upstream.as_ref().and_then(Upstream::repeatable_request);
    drop(upstream);
    let Some(request) = request else {
        // Part of it has not gone out yet.
        return after(guard).map_or(HedgeStage::Over, |after| {
            HedgeStage::Waits(Box::pin(sleep(after)))
        });
    };
    let picked = picked(client, guard);
    let outcome = picked.as_ref().map_or_else(|why| *why, |_| Hedged::Lost);
    if let Some(state) = guard.state() {
        state.hedging = Hedging::Was(outcome);
    }
    match picked {
        Ok(second) => second.begin(client, guard, request),
        Err(why) => {
            worker.base.stats().hedged[why.index()].add(1);
            HedgeStage::Over
        }
    }
}

/// How long the first node has, if a second one may be asked.
fn after(guard: &mut RequestGuard) -> Option<Duration> {
    let route = guard.state()?.route.as_ref()?;
    Some(route.hedge?.after)
}

/// Another node with room, if the budget pays for it.
fn picked(client: &Client, guard: &mut RequestGuard) -> Result<Second, Hedged> {
    let worker = &client.worker;
    let state = guard.state().ok_or(Hedged::NoRoom)?;
    let (Some(site), Some(route), Some(first)) = (state.site, &state.route, &state.ticket) else {
        return Err(Hedged::NoRoom);
    };
    let pays = |take: bool| {
        let paid = worker
            .sites
            .with_hedge_budget(site, route.place(), |budget| match take {
                true => budget.try_take(),
                false => budget.has_one(),
            });
        paid.filter(|paid| *paid).ok_or(Hedged::NoBudget)
    };
    pays(false)?;
    worker.base.cluster.refresh();
    worker.sites.follow();
    let mut tried = state.tried.clone();
    tried.push(first.node);
    let now = worker.base.now();
    let mut picker = worker.base.cluster.picker.borrow_mut();
    let ticket = picker.handle_extra(site, Extra::Try(&tried), now);
    let ticket = ticket.ok_or(Hedged::NoRoom)?;
    drop(picker);
    let key = key(client, &ticket).ok_or(Hedged::NoRoom)?;
    pays(true)?;
    note_try(worker, &ticket);
    trace_second(worker, state, &ticket, now);
    Ok(Second {
        worker: Rc::clone(worker),
        ticket: Some(ticket),
        site,
        key,
        begun_at: now,
        outcome: Hedged::Lost,
    })
}

/// Where the second node is. It is of no throttled class, so no mark is on it.
fn key(client: &Client, ticket: &Ticket) -> Option<UpstreamKey> {
    let worker = &client.worker;
    let speech = worker.sites.node_speech(ticket.site());
    let picker = worker.base.cluster.picker.borrow();
    let at = picker.topology().nodes.get(ticket.node.index())?;
    Some(UpstreamKey {
        node: ticket.node,
        generation: at.generation,
        address: at.address,
        marks: Marks::NONE,
        tls: speech.tls,
        http2: speech.http2,
        introduces: speech.introduces.then(|| introduction_of(client)),
    })
}

impl Second {
    fn begin<'a>(
        self,
        client: &'a Client,
        guard: &mut RequestGuard,
        mut request: Request<RequestBody>,
    ) -> HedgeStage<'a> {
        if let Some(trace) = guard.state().and_then(|state| state.trace.as_mut()) {
            trace.introduce_second(&mut request);
        }
        let pooled = self.worker.pool.borrow_mut().take(&self.key);
        match pooled {
            Some(upstream) => self.asked(client, upstream, request, true),
            None => self.connect(client, guard, request),
        }
    }

    fn connect<'a>(
        self,
        client: &'a Client,
        guard: &mut RequestGuard,
        request: Request<RequestBody>,
    ) -> HedgeStage<'a> {
        let route = guard.state().and_then(|state| state.route.as_ref());
        let patience = route.and_then(|route| route.timeouts.connect);
        let connecting = Box::pin(connect(client, self.key, self.site, patience));
        HedgeStage::Connects(Box::new(Connecting {
            second: self,
            request,
            connecting,
        }))
    }

    fn asked<'a>(
        self,
        client: &Client,
        mut upstream: Upstream,
        request: Request<RequestBody>,
        stale: bool,
    ) -> HedgeStage<'a> {
        HedgeStage::Asked(Box::new(Asked {
            sending: upstream.send(request, client.connection.waker(), true),
            second: self,
            upstream,
            stale,
        }))
    }

    /// It has not answered, or with what is no answer.
    fn fail(mut self, guard: &mut RequestGuard, reason: Reason) {
        self.note_failed(guard);
        let base = &self.worker.base;
        let now = base.now();
        trace_end(guard, Err(reason), now);
        if let (Some(ticket), Some(outcome)) = (&self.ticket, reason.outcome()) {
            let mut picker = base.cluster.picker.borrow_mut();
            picker.handle_outcome(ticket, outcome, now);
            if let Some(node) = base.stats().node(ticket.node) {
                node.on_failure(reason, now);
            }
            self.worker.queue.on_failure();
        }
    }

    /// It has answered so, which is not passed on: it counts there all the same.
    fn answer_in_vain(mut self, guard: &mut RequestGuard, status: u16) {
        self.note_failed(guard);
        let base = &self.worker.base;
        let now = base.now();
        trace_end(guard, Ok(status), now);
        if let Some(ticket) = &self.ticket {
            if let Some(node) = base.stats().node(ticket.node) {
                let micros = now.since(self.begun_at).as_micros();
                node.on_head(status, u64::try_from(micros).unwrap_or(u64::MAX), now);
            }
            let mut picker = base.cluster.picker.borrow_mut();
            picker.handle_outcome(ticket, outcome_of(status), now);
            self.worker.queue.on_failure();
        }
    }

    fn note_failed(&mut self, guard: &mut RequestGuard) {
        self.outcome = Hedged::Failed;
        if let Some(state) = guard.state() {
            state.hedging = Hedging::Was(Hedged::Failed);
            state.tried.extend(self.node());
        }
    }

    fn node(&self) -> Option<NodeId> {
        self.ticket.as_ref().map(|it| it.node)
    }
}

/// The second node's part of the request's trace ends.
fn trace_end(guard: &mut RequestGuard, ended: Result<u16, Reason>, now: Timestamp) {
    if let Some(trace) = guard.state().and_then(|state| state.trace.as_mut()) {
        trace.second_ends(ended, now);
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        let worker = &self.worker;
        worker.base.stats().hedged[self.outcome.index()].add(1);
        if let Some(ticket) = self.ticket.take() {
            drop(ticket);
            worker.queue.handle_room(Some(self.site));
        }
    }
}

impl Asked {
    fn poll_head(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Response<Incoming>, SendFailure>> {
        let ended = self.upstream.drive();
        let mut polled = self.sending.as_mut().poll(context);
        if polled.is_pending() && ended {
            self.upstream.give_up();
            polled = self.sending.as_mut().poll(context);
        }
        polled
    }

    /// It has not won: an idle connection that had broken is no node's fault.
    fn end<'a>(
        self,
        client: &'a Client,
        guard: &mut RequestGuard,
        ended: Result<Response<Incoming>, SendFailure>,
    ) -> HedgeStage<'a> {
        let Self {
            second,
            upstream,
            stale,
            ..
        } = self;
        let SendFailure { error, unsent } = match ended {
            Ok(response) => {
                second.answer_in_vain(guard, response.status().as_u16());
                return HedgeStage::Over;
            }
            Err(failure) => failure,
        };
        let again = match unsent {
            Some(request) => Some(*request),
            None => upstream.unanswered(&error),
        };
        match again.filter(|_| stale) {
            Some(request) => return second.connect(client, guard, request),
            None if NodeTlsFailure::is_of_tls(&error) => second.fail(guard, Reason::NodeTls),
            None if error.is_parse() || error.is_parse_too_large() || upstream.is_flooded() => {
                second.fail(guard, Reason::BadResponse);
            }
            None => second.fail(guard, Reason::Reset),
        }
        HedgeStage::Over
    }
}

/// A new connection to the second node. The times of the request are those of the first one meanwhile.
async fn connect(
    client: &Client,
    key: UpstreamKey,
    site: SiteId,
    patience: Option<Duration>,
) -> Result<Upstream, Reason> {
    let (worker, connection) = (&client.worker, &client.connection);
    let timeouts = connection.settings.timeouts();
    let patience = Patience {
        connect: patience.unwrap_or(timeouts.connect),
        keepalive: timeouts.keepalive,
    };
    let opening = worker.sites.node_opening(site);
    let introduction = opening.proxy.map(|_| connection.introduction());
    let stream = dial(worker, key, opening, patience, introduction).await?;
    let upstream = worker.upstream(stream, key).await;
    upstream.map_err(|_| Reason::ConnectFailed)
}
