//! A request's way: checks, route, throttle, test, pick, connection, response head; and again elsewhere, if
//! that failed and trying again can do no harm ([`retry`]).

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use http::header::UPGRADE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use socket2::SockRef;
use tidegate_core::load::RestKind;
use tidegate_core::picker::{Arrival, Decision, Ticket};
use tidegate_core::throttle::lowered;
use tidegate_core::time::Timestamp;

use crate::body::RequestBody;
use crate::dithering::{self, Hold};
use crate::exchange::{Asked, Live};
use crate::head::{self, Checked, Facts, Hop};
use crate::marking;
use crate::reason::Reason;
use crate::retry::{self, Failure};
use crate::session::{Session, Upload};
use crate::sockets::probes;
use crate::throttling::{self, Held};
use crate::upstream::{Sent, Upstream, Way};
use crate::waiting::Waiting;
use crate::worker::Worker;

/// What of a request matters once it is on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passage {
    pub(crate) facts: Facts,
    /// It may be sent again, if nobody has answered.
    repeatable: bool,
    /// It went out on a pooled connection, which the node may have closed long before.
    stale: bool,
}

/// A request on its way to its first node.
pub(crate) enum Outgoing {
    /// It ends here: OPTIONS that has come as far as it may.
    Ends,
    /// It goes out on a pooled connection.
    Pooled(Request<RequestBody>, Box<Upstream>, Passage),
    /// It needs a new connection.
    Unconnected(Request<RequestBody>, Passage),
    /// It cannot go on yet.
    Waits(Request<RequestBody>, Passage, Wait),
}

/// What a request waits for.
pub(crate) enum Wait {
    /// The throttle of its class, and then a node.
    Throttle(Held, Arrival),
    /// The end of its hold in a test, and then a node.
    Test(Hold, Arrival),
    /// Room at a node.
    Room(Waiting),
}

/// Checks a request, finds its site and its node, and makes it ready to be sent.
pub(crate) fn outgoing(
    session: &Rc<Session>,
    live: &mut Live,
    request: Request<Incoming>,
) -> Result<Outgoing, Reason> {
    let worker = &session.worker;
    let checked = head::check(&request, &worker.config.limits)?;
    let facts = checked.facts;
    if head::ends_here(&request, &facts) {
        return Ok(Outgoing::Ends);
    }
    let waiting = match admit(session, live, &request, &checked) {
        Ok(waiting) => waiting,
        Err(reason) => {
            live.note_form(request.headers());
            return Err(reason);
        }
    };
    let request = prepared(session, request, &facts)?;
    let passage = Passage {
        facts,
        repeatable: retry::is_idempotent(request.method())
            && matches!(request.body(), RequestBody::Empty),
        stale: false,
    };
    match waiting {
        Some(waiting) => Ok(Outgoing::Waits(request, passage, waiting)),
        None => connected(worker, live, request, passage),
    }
}

/// A request that has its ticket: on a pooled connection, if there is one.
fn connected(
    worker: &Worker,
    live: &mut Live,
    request: Request<RequestBody>,
    mut passage: Passage,
) -> Result<Outgoing, Reason> {
    let Some(way) = destination(worker, live) else {
        return Err(Reason::NoNode);
    };
    if passage.facts.names_host() {
        let pooled = worker.pool.borrow_mut().take(way);
        if let Some(upstream) = pooled {
            passage.stale = true;
            return Ok(Outgoing::Pooled(request, upstream, passage));
        }
    }
    Ok(Outgoing::Unconnected(request, passage))
}

/// Waits for its turn and for room, and then for the answer.
pub(crate) async fn go_on_waiting(
    session: &Rc<Session>,
    live: &mut Live,
    request: Request<RequestBody>,
    passage: &mut Passage,
    wait: Wait,
) -> Result<Response<Incoming>, Reason> {
    session.queued.set(true);
    let waited = match wait {
        Wait::Throttle(held, arrival) => {
            let target = (request.method(), uri_target(&request));
            until_passed(session, live, held, arrival, target).await
        }
        Wait::Test(hold, arrival) => until_over(session, live, hold, arrival).await,
        Wait::Room(waiting) => until_room(session, live, waiting).await,
    };
    session.queued.set(false);
    if let Err(reason) = waited {
        live.note_form(request.headers());
        return Err(reason);
    }
    let worker = &session.worker;
    match connected(worker, live, request, *passage)? {
        Outgoing::Pooled(request, upstream, pooled) => {
            *passage = pooled;
            let mut sending = pin!(send(session, upstream, request, passage));
            let polled =
                poll_fn(|context| poll_head(session, live, sending.as_mut(), passage, context))
                    .await;
            match polled {
                Ok(response) => Ok(response),
                Err(failure) => go_on_after(session, live, failure, passage).await,
            }
        }
        Outgoing::Unconnected(request, _) => go_on(session, live, request, passage).await,
        Outgoing::Ends | Outgoing::Waits(..) => Err(Reason::NoNode),
    }
}

/// Waits for the throttle, for the test of its class, and then for room.
async fn until_passed(
    session: &Rc<Session>,
    live: &mut Live,
    held: Held,
    arrival: Arrival,
    target: (&Method, &str),
) -> Result<(), Reason> {
    // However long that takes: the throttle watches the time.
    session.suspend();
    let passed = held.ended().await?;
    let worker = &session.worker;
    let now = worker.now();
    let exchange = live.exchange().ok_or(Reason::ClientGone)?;
    if let Some(throttled) = &mut exchange.throttled {
        throttled.pass(now);
        session.take_place(passed);
    }
    if let Some(hold) = dithering::toss(worker, exchange, arrival.site, target, now) {
        return until_over(session, live, hold, arrival).await;
    }
    until_picked(session, live, &arrival, now).await
}

/// Waits for the end of the hold, and then for room.
async fn until_over(
    session: &Rc<Session>,
    live: &mut Live,
    hold: Hold,
    arrival: Arrival,
) -> Result<(), Reason> {
    session.suspend();
    hold.over().await;
    let now = session.worker.now();
    let exchange = live.exchange().ok_or(Reason::ClientGone)?;
    if let Some(dithered) = &mut exchange.dithered {
        dithered.pass(now);
    }
    until_picked(session, live, &arrival, now).await
}

/// Asks for a node after a wait, and waits for room.
async fn until_picked(
    session: &Rc<Session>,
    live: &mut Live,
    arrival: &Arrival,
    now: Timestamp,
) -> Result<(), Reason> {
    let worker = &session.worker;
    worker.refresh();
    match pick(worker, live, arrival, now)? {
        Some(waiting) => until_room(session, live, waiting).await,
        None => Ok(()),
    }
}

async fn until_room(session: &Session, live: &mut Live, waiting: Waiting) -> Result<(), Reason> {
    let ticket = waiting.ended().await?;
    let worker = &session.worker;
    dispatch(worker, live, ticket, worker.now());
    Ok(())
}

/// Where the ticket says that the request goes.
fn destination(worker: &Worker, live: &mut Live) -> Option<Way> {
    let exchange = live.exchange()?;
    let node = exchange.ticket.as_ref()?.node;
    let picker = worker.picker.borrow();
    Some(Way {
        node,
        address: picker.topology().nodes.get(node.index())?.address,
        marks: exchange.marks(),
    })
}

/// What a class of requests is told by. The form of OPTIONS for a whole server stands for its root.
fn target<B>(request: &Request<B>) -> (&Method, &str) {
    let path = match request.uri().path() {
        "*" => "/",
        path => path,
    };
    (request.method(), path)
}

/// Path and query, as the client sent them.
fn uri_target<B>(request: &Request<B>) -> &str {
    let target = request.uri().path_and_query();
    target.map_or("", |target| target.as_str())
}

/// Checks what the head alone does not tell, finds the site, asks its throttle and its test, if it has
/// them, and then for a node: it has one now, or waits.
fn admit(
    session: &Rc<Session>,
    live: &mut Live,
    request: &Request<Incoming>,
    checked: &Checked<'_>,
) -> Result<Option<Wait>, Reason> {
    let worker = &session.worker;
    let limits = &worker.config.limits;
    let facts = &checked.facts;
    if facts.chunked && session.head_has_length() {
        return Err(Reason::LengthAndEncoding);
    }
    let length = request.body().size_hint().lower();
    if limits.body_bytes.is_some_and(|most| length > most) {
        return Err(Reason::BodyTooLarge);
    }
    // Counted before it is allowed: those that wait for a node's word are tunnels to be.
    let tunnel = match facts.tunnel {
        true => Some(Asked {
            _seat: worker.seats.tunnels.take().ok_or(Reason::TooManyTunnels)?,
            protocols: request.headers().get_all(UPGRADE).iter().cloned().collect(),
        }),
        false => None,
    };
    worker.refresh();
    let target = target(request);
    let path = target.1;
    let site = worker.site(checked.host, path).ok_or(Reason::NoSite)?;
    let Some(exchange) = live.exchange() else {
        return Err(Reason::ClientGone);
    };
    exchange.site = Some(site);
    exchange.tunnel = tunnel;
    if let Some(counters) = worker.stats().site(site) {
        counters.requests.add(1);
    }
    worker.pay_for_retries(site);
    let now = exchange.arrived_at;
    let headers = request.headers();
    exchange.session = worker.session_tables.session(site, headers);
    let known = (exchange.session).is_some_and(|session| worker.knows(site, session, now));
    let mut arrival = Arrival {
        site,
        class: worker.class(site, path, headers).with_known(known),
        kind: worker.kind(site, target.0.as_str(), uri_target(request)),
        throttled: false,
        id: worker.waiters.number(),
    };
    let target = (target.0, uri_target(request));
    let asked = (target.0.as_str(), target.1);
    let held = throttling::enter(session, exchange, site, asked)?;
    if exchange.gives_way() {
        arrival.class = lowered(arrival.class);
    }
    if let Some(held) = held {
        return Ok(Some(Wait::Throttle(held, arrival)));
    }
    if let Some(hold) = dithering::toss(worker, exchange, site, target, now) {
        return Ok(Some(Wait::Test(hold, arrival)));
    }
    let waiting = pick(worker, live, &arrival, now)?;
    Ok(waiting.map(Wait::Room))
}

/// Asks for a node: the request has one now, or waits.
fn pick(
    worker: &Rc<Worker>,
    live: &mut Live,
    arrival: &Arrival,
    now: Timestamp,
) -> Result<Option<Waiting>, Reason> {
    let Arrival { site, id, .. } = *arrival;
    if let Some(exchange) = live.exchange() {
        exchange.asked_at.get_or_insert(now);
    }
    let mut picker = worker.picker.borrow_mut();
    if site.index() >= picker.topology().sites.len() {
        return Err(Reason::NoSite);
    }
    let throttled = live.session().is_some_and(|it| it.has_bounded_place());
    let arrival = Arrival {
        throttled,
        ..*arrival
    };
    let decision = picker.handle_request(&arrival, now);
    drop(picker);
    match decision {
        Decision::Reject(reason) => Err(reason.into()),
        Decision::Forward(ticket) => {
            dispatch(worker, live, ticket, now);
            Ok(None)
        }
        Decision::Wait => Ok(Some(Waiting::begin(worker, site, id))),
    }
}

/// The request goes to the ticket's node.
pub(crate) fn dispatch(worker: &Worker, live: &mut Live, ticket: Ticket, now: Timestamp) {
    let stats = worker.stats();
    match ticket.why.load_age {
        Some(age) => stats.load_age.record(age.as_micros() as u64),
        None => stats.load_unknown.add(1),
    }
    if let Some(counters) = stats.node(ticket.node) {
        counters.tries.add(1);
    }
    if let Some(session) = live.session() {
        // What failed elsewhere is at work anew: this ends its rest.
        match ticket.is_throttled() {
            true => session.end_rest(),
            false => {
                let overdue = worker.overdue(ticket.site());
                session.rest_after(ticket.node, RestKind::Unanswered, overdue);
            }
        }
    }
    if let Some(exchange) = live.exchange() {
        if let Some(session) = exchange.session.take() {
            worker.session_tables.mark(ticket.site(), session, now);
        }
        exchange.tries += 1;
        exchange.dispatched_at = now;
        exchange.observe_sent(worker, ticket.site(), now);
        exchange.ticket = Some(ticket);
    }
}

/// The request as it goes to a node.
fn prepared(
    session: &Rc<Session>,
    request: Request<Incoming>,
    facts: &Facts,
) -> Result<Request<RequestBody>, Reason> {
    let config = &session.worker.config;
    let (parts, incoming) = request.into_parts();
    let has_body = !incoming.is_end_stream();
    let mut request = Request::from_parts(parts, RequestBody::Empty);
    head::prepare(
        &mut request,
        facts,
        has_body,
        &Hop {
            config: &config.forwarded,
            client: session.client,
            client_value: &session.client_value,
        },
    )?;
    if has_body {
        session.upload.set(Upload::Active);
        let wanted = facts.expects_continue.then(|| {
            let wanted = Arc::new(AtomicBool::new(false));
            let asked = Arc::clone(&wanted);
            hyper::ext::on_informational(&mut request, move |informational| {
                if informational.status() == StatusCode::CONTINUE {
                    asked.store(true, Ordering::Relaxed);
                }
            });
            wanted
        });
        let limit = config.limits.body_bytes;
        *request.body_mut() = RequestBody::new(incoming, session, limit, wanted);
    }
    Ok(request)
}

/// Sends a request on this connection.
pub(crate) fn send(
    session: &Session,
    mut upstream: Box<Upstream>,
    request: Request<RequestBody>,
    passage: &Passage,
) -> impl Future<Output = Sent> + use<> {
    let ticks = &session.worker.ticks;
    session.extend(if session.is_uploading() {
        session.begin_body(ticks.request_body);
        ticks.body_idle
    } else {
        ticks.response_head
    });
    let sending = upstream.send(request, session.waker(), passage.repeatable);
    drop(session.upstream.replace(Some(upstream)));
    sending
}

/// Waits for the response head.
pub(crate) fn poll_head(
    session: &Session,
    live: &mut Live,
    mut sending: Pin<&mut impl Future<Output = Sent>>,
    passage: &Passage,
    context: &mut Context<'_>,
) -> Poll<Result<Response<Incoming>, Failure>> {
    if session.take_late() {
        drop(session.upstream.take());
        return Poll::Ready(Err(Failure::at_last(late(session))));
    }
    let ended = session.drive();
    let mut polled = session.with_context(context, |context| sending.as_mut().poll(context));
    if polled.is_pending() && ended {
        // What still waits in the connection comes back when that is dropped.
        if let Some(upstream) = &mut *session.upstream.borrow_mut() {
            upstream.give_up();
        }
        polled = sending.poll(context);
    }
    session.take_interims();
    if polled.is_pending()
        && session.stranded.take()
        && let Some(failure) = retry::leave(session, live)
    {
        return Poll::Ready(Err(failure));
    }
    polled.map_err(|error| failure(session, error, passage.stale))
}

/// Tries at new connections and other nodes until there is an answer, or nothing left to try.
pub(crate) async fn go_on(
    session: &Rc<Session>,
    live: &mut Live,
    mut request: Request<RequestBody>,
    passage: &Passage,
) -> Result<Response<Incoming>, Reason> {
    loop {
        let failure = match attempt(session, live, request, passage).await {
            Ok(response) => return Ok(response),
            Err(failure) => failure,
        };
        request = retry::after(session, live, failure)?;
    }
}

/// Goes on after a try that got no answer.
pub(crate) async fn go_on_after(
    session: &Rc<Session>,
    live: &mut Live,
    failure: Failure,
    passage: &Passage,
) -> Result<Response<Incoming>, Reason> {
    let request = retry::after(session, live, failure)?;
    go_on(session, live, request, passage).await
}

/// One try at the ticket's node, on a new connection.
async fn attempt(
    session: &Rc<Session>,
    live: &mut Live,
    mut request: Request<RequestBody>,
    passage: &Passage,
) -> Result<Response<Incoming>, Failure> {
    let Some(way) = destination(&session.worker, live) else {
        return Err(Failure::at_last(Reason::NoNode));
    };
    head::ensure_host(&mut request, &passage.facts, || {
        HeaderValue::try_from(way.address.to_string())
            .unwrap_or_else(|_| HeaderValue::from_static("localhost"))
    });
    let upstream = match connect(session, way).await {
        Ok(upstream) => upstream,
        Err(reason) => return Err(Failure::of_node(reason, request)),
    };
    let passage = Passage {
        stale: false,
        ..*passage
    };
    let mut sending = pin!(send(session, upstream, request, &passage));
    poll_fn(|context| poll_head(session, live, sending.as_mut(), &passage, context)).await
}

/// Whether it is this machine that cannot connect: then no node is to blame.
pub fn is_own_fault(error: &std::io::Error) -> bool {
    const ENOMEM: i32 = 12;
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    const EADDRNOTAVAIL: i32 = 99;
    const ENOBUFS: i32 = 105;
    let number = error.raw_os_error().unwrap_or_default();
    [ENOMEM, ENFILE, EMFILE, EADDRNOTAVAIL, ENOBUFS].contains(&number)
}

async fn connect(session: &Session, way: Way) -> Result<Box<Upstream>, Reason> {
    let worker = &session.worker;
    session.suspend();
    let connecting = marking::connect(way.address, way.marks, worker.throttling());
    let connecting = tokio::time::timeout(worker.config.timeouts.connect, connecting);
    let stream = match connecting.await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) if is_own_fault(&error) => return Err(Reason::OutOfSockets),
        Ok(Err(_)) => return Err(Reason::ConnectFailed),
        Err(_) => return Err(Reason::ConnectTimeout),
    };
    let probes = probes(worker.config.timeouts.keepalive);
    if SockRef::from(&stream).set_tcp_keepalive(&probes).is_err() {
        return Err(Reason::ConnectFailed);
    }
    // Without it small answers wait for acknowledgements; a socket that refuses it still works.
    if stream.set_nodelay(true).is_err() {
        return Err(Reason::ConnectFailed);
    }
    worker
        .upstream(stream, way)
        .await
        .map_err(|_| Reason::ConnectFailed)
}

/// Who has stood still.
pub(crate) fn late(session: &Session) -> Reason {
    if session.is_uploading() && session.upload_waits.get() {
        match session.is_slow() {
            true => Reason::BodySlow,
            false => Reason::BodyTimeout,
        }
    } else {
        Reason::ResponseTimeout
    }
}

fn failure(
    session: &Session,
    mut error: TrySendError<Request<RequestBody>>,
    stale: bool,
) -> Failure {
    let upstream = session.upstream.take();
    if let Some(request) = error.take_message() {
        return Failure::of_connection(request, stale);
    }
    match session.upload.get() {
        Upload::Failed(reason) => return Failure::at_last(reason),
        Upload::Done | Upload::Active => {}
    }
    let error = error.into_error();
    let flooded = upstream.as_ref().is_some_and(|it| it.is_flooded());
    if error.is_parse() || error.is_parse_too_large() || flooded {
        return Failure::at_last(Reason::BadResponse);
    }
    match upstream.and_then(|upstream| upstream.unanswered(&error)) {
        Some(request) => Failure::of_connection(request, stale),
        None => Failure::at_last(Reason::Reset),
    }
}
