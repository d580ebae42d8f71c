//! Copies of a share of requests, for another site: what a new version makes of real requests, without a client that waits for it.
//!
//! | a copy | |
//! |---|---|
//! | is made | of requests of safe methods (RFC 9110 §9.2.1) without a body, once they were let in or wait; of so many of a route's as it says, drawn at random |
//! | has | the head that a node of the first site gets, and a field that names that site ([`MARK`]). What comes with the field is not copied |
//! | goes | to a node that the other site has to spare, by that site's own policy ([`Picker::handle_extra`]): to none where it queues or refuses |
//! | is under way | as a task of its own, which the request neither waits for nor ends; so many of them at a time |
//! | is answered | to the end of the answer, within limits. Nothing becomes of that; what it is worth counts at the node that gave it |
//!
//! Failure case: a site whose answers depend on what only the first site has seen (a session) answers other things. What servers do
//! for safe requests they do twice: a counter of visits counts copies as well.
//!
//! [`Picker::handle_extra`]: tidegate_core::picker::Picker::handle_extra

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue, Method, Request, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use tidegate_core::picker::{Extra, Ticket};
use tidegate_core::throttle::Marks;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::SiteId;
use tokio::time::timeout;

use super::dial::{Patience, dial};
use crate::config::route::MirrorConfig;
use crate::record::mirrored::Mirrored;
use crate::record::reason::Reason;
use crate::request::{Client, RequestGuard, RequestTraits, outcome_of};
use crate::upstream::body::RequestBody;
use crate::upstream::{Sending, Upstream, UpstreamKey};
use crate::worker::Worker;
use crate::worker::mirrors::MirrorSeat;

/// The field of a copy. Its value is the name of the site that the request was for.
const MARK: HeaderName = HeaderName::from_static("x-tidegate-mirror");
/// Bytes of an answer that are read.
const ANSWER_MAX: u64 = 1 << 20;

/// Has a copy of the request made, if its route says so and it is drawn.
#[cold]
#[inline(never)]
pub(crate) fn mirror(
    client: &Client,
    guard: &mut RequestGuard,
    request: &Request<RequestBody>,
    traits: &RequestTraits,
) {
    let worker = &client.worker;
    let Some(state) = guard.state() else { return };
    let route = state.route.as_ref();
    let (Some(mirror), Some(site)) = (route.and_then(|it| it.mirror.as_ref()), state.site) else {
        return;
    };
    if !worker.mirrors.draws(mirror.share) {
        return;
    }
    let is_plain = request.body().is_end_stream() && !traits.facts.tunnel;
    let begun = match is_plain {
        true => begin(worker, mirror, site, request),
        false => Err(Mirrored::Body),
    };
    if let Err(why) = begun {
        worker.base.stats().mirrored[why.index()].add(1);
    }
}

/// Begins with a copy, or says why there is none.
fn begin(
    worker: &Rc<Worker>,
    mirror: &MirrorConfig,
    from: SiteId,
    request: &Request<RequestBody>,
) -> Result<(), Mirrored> {
    if request.headers().contains_key(MARK) {
        return Err(Mirrored::Copy);
    }
    if ![Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method()) {
        return Err(Mirrored::Unsafe);
    }
    let seat = worker.mirrors.seat().ok_or(Mirrored::TooMany)?;
    let cluster = &worker.base.cluster;
    let to = cluster.site_named(&mirror.to).ok_or(Mirrored::NoRoom)?;
    let mut picker = cluster.picker.borrow_mut();
    let name = picker.topology().site(from).name.clone();
    let now = worker.base.now();
    let ticket = picker.handle_extra(to, Extra::Copy, now);
    let ticket = ticket.ok_or(Mirrored::NoRoom)?;
    drop(picker);
    let mut head = Request::new(());
    *head.method_mut() = request.method().clone();
    *head.uri_mut() = request.uri().clone();
    *head.version_mut() = request.version();
    *head.headers_mut() = request.headers().clone();
    // Sites have names of letters, digits and a few signs.
    let name = HeaderValue::try_from(name).unwrap_or_else(|_| HeaderValue::from_static("-"));
    head.headers_mut().insert(MARK, name);
    let copy = Copy {
        worker: Rc::clone(worker),
        ticket,
        head,
        begun_at: now,
        _seat: seat,
    };
    tokio::task::spawn_local(copy.run());
    Ok(())
}

/// One that is under way.
struct Copy {
    worker: Rc<Worker>,
    ticket: Ticket,
    head: Request<()>,
    begun_at: Timestamp,
    _seat: MirrorSeat,
}

/// The head of an answer, and the connection that it comes on.
struct Begun {
    upstream: Upstream,
    response: Response<Incoming>,
}

impl Copy {
    async fn run(mut self) {
        let outcome = match self.begun().await {
            Ok(begun) => self.read(begun).await,
            Err(reason) => {
                self.on_failure(reason);
                Mirrored::Failed
            }
        };
        let Self { worker, ticket, .. } = self;
        worker.base.stats().mirrored[outcome.index()].add(1);
        let site = ticket.site();
        drop(ticket);
        worker.queue.handle_room(Some(site));
    }

    /// The head of the node's answer: on a pooled connection, or on a new one if that had broken, which is no node's fault.
    async fn begun(&mut self) -> Result<Begun, Reason> {
        let worker = &self.worker;
        worker.sites.follow();
        let key = self.key().ok_or(Reason::NoNode)?;
        if let Some(counters) = worker.base.stats().node(key.node) {
            counters.tries.add(1);
        }
        if !self.head.headers().contains_key(HOST) {
            let host = HeaderValue::try_from(key.address.to_string());
            let host = host.unwrap_or_else(|_| HeaderValue::from_static("localhost"));
            self.head.headers_mut().insert(HOST, host);
        }
        let waker = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
        let pooled = worker.pool.borrow_mut().take(&key);
        if let Some(upstream) = pooled
            && let Some(begun) = self.asked(upstream, &waker).await?
        {
            return Ok(begun);
        }
        let timeouts = worker.base.settings.timeouts();
        let patience = Patience {
            connect: timeouts.connect,
            keepalive: timeouts.keepalive,
        };
        let opening = worker.sites.node_opening(self.ticket.site());
        let stream = dial(worker, key, opening, patience, None).await?;
        let upstream = worker.upstream(stream, key).await;
        let upstream = upstream.map_err(|_| Reason::ConnectFailed)?;
        let begun = self.asked(upstream, &waker).await?;
        begun.ok_or(Reason::Reset)
    }

    /// Where it goes. It is no client's: no mark of a throttle is on it, and no header says whose it is.
    fn key(&self) -> Option<UpstreamKey> {
        let worker = &self.worker;
        let speech = worker.sites.node_speech(self.ticket.site());
        let picker = worker.base.cluster.picker.borrow();
        let at = picker.topology().nodes.get(self.ticket.node.index())?;
        Some(UpstreamKey {
            node: self.ticket.node,
            generation: at.generation,
            address: at.address,
            marks: Marks::NONE,
            tls: speech.tls,
            http2: speech.http2,
            introduces: None,
        })
    }

    /// Asks on this connection; none if that breaks before an answer.
    async fn asked(&self, mut upstream: Upstream, waker: &Waker) -> Result<Option<Begun>, Reason> {
        let mut request = Request::new(RequestBody::Empty);
        *request.method_mut() = self.head.method().clone();
        *request.uri_mut() = self.head.uri().clone();
        *request.version_mut() = self.head.version();
        *request.headers_mut() = self.head.headers().clone();
        let mut sending = upstream.send(request, Some(waker.clone()), false);
        let head = poll_fn(|context| poll_head(&mut upstream, &mut sending, context));
        let most = self.worker.base.settings.timeouts().response_head;
        match timeout(most, head).await {
            Ok(Some(response)) => Ok(Some(Begun { upstream, response })),
            Ok(None) => Ok(None),
            Err(_) => Err(Reason::ResponseTimeout),
        }
    }

    /// Reads the answer, and lets others have its connection if that serves on.
    async fn read(&mut self, begun: Begun) -> Mirrored {
        let Begun {
            mut upstream,
            response,
        } = begun;
        let status = response.status().as_u16();
        self.on_head(status);
        let has = |name| response.headers().contains_key(name);
        let until_end = !has(CONTENT_LENGTH) && !has(TRANSFER_ENCODING);
        let mut body = response.into_body();
        if !upstream.expect(&body, until_end) {
            self.on_failure(Reason::BadResponse);
            return Mirrored::Failed;
        }
        let mut read = 0;
        let whole = poll_fn(|context| poll_body(&mut upstream, &mut body, &mut read, context));
        let whole = timeout(self.worker.base.settings.timeouts().body_idle, whole).await;
        let outcome = match whole {
            Ok(Mirrored::Failed) => {
                self.on_failure(Reason::ResponseBroken);
                return Mirrored::Failed;
            }
            Ok(outcome) => outcome,
            Err(_) => Mirrored::Cut,
        };
        self.on_end(status);
        if outcome == Mirrored::Answered && upstream.settle() {
            self.worker.park(upstream);
        }
        outcome
    }

    fn on_head(&mut self, status: u16) {
        let base = &self.worker.base;
        let now = base.now();
        if let Some(node) = base.stats().node(self.ticket.node) {
            let micros = now.since(self.begun_at).as_micros();
            node.on_head(status, u64::try_from(micros).unwrap_or(u64::MAX), now);
        }
        let mut picker = base.cluster.picker.borrow_mut();
        picker.handle_head(&mut self.ticket, now);
    }

    fn on_end(&self, status: u16) {
        let base = &self.worker.base;
        let mut picker = base.cluster.picker.borrow_mut();
        picker.handle_outcome(&self.ticket, outcome_of(status), base.now());
    }

    fn on_failure(&self, reason: Reason) {
        let base = &self.worker.base;
        let now = base.now();
        if let Some(outcome) = reason.outcome() {
            let mut picker = base.cluster.picker.borrow_mut();
            picker.handle_outcome(&self.ticket, outcome, now);
            if let Some(node) = base.stats().node(self.ticket.node) {
                node.on_failure(reason, now);
            }
        }
    }
}

/// The head of an answer; none if the connection breaks before.
fn poll_head(
    upstream: &mut Upstream,
    sending: &mut Sending,
    context: &mut Context<'_>,
) -> Poll<Option<Response<Incoming>>> {
    let ended = upstream.drive();
    let mut polled = sending.as_mut().poll(context);
    if polled.is_pending() && ended {
        upstream.give_up();
        polled = sending.as_mut().poll(context);
    }
    polled.map(Result::ok)
}

/// Reads what has come of a body: whether it was answered whole, failed, or is longer than is read.
fn poll_body(
    upstream: &mut Upstream,
    body: &mut Incoming,
    read: &mut u64,
    context: &mut Context<'_>,
) -> Poll<Mirrored> {
    let mut driven = false;
    loop {
        match Pin::new(&mut *body).poll_frame(context) {
            Poll::Ready(None) => return Poll::Ready(Mirrored::Answered),
            Poll::Ready(Some(Err(_))) => return Poll::Ready(Mirrored::Failed),
            Poll::Ready(Some(Ok(frame))) => {
                driven = false;
                *read += frame.data_ref().map_or(0, |data| data.len() as u64);
                if *read > ANSWER_MAX {
                    return Poll::Ready(Mirrored::Cut);
                }
            }
            Poll::Pending if driven => return Poll::Pending,
            Poll::Pending => {
                upstream.drive();
                driven = true;
            }
        }
    }
}
