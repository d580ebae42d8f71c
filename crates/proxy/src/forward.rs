//! A request's way: checks, route, pick, connection, response head; and again elsewhere, if that
//! failed and trying again can do no harm.
//!
//! What may be tried again, within the retry budget and the limit on tries:
//!
//! | what happened | tried again |
//! |---|---|
//! | no connection | at another node: nothing was sent |
//! | the request came back unsent from a pooled connection | at the same node, on a new connection, and free of charge: the node had merely closed an idle connection |
//! | a pooled connection broke before the first byte of an answer | the same, if the method is idempotent and there is no body |
//! | a new connection broke before the first byte of an answer | at another node, if the method is idempotent and there is no body |
//! | anything else, and every time-out of an answer | never |

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use tidegate_core::picker::{Decision, Outcome, Ticket};
use tidegate_core::policy::Probe;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::NodeId;
use tokio::net::TcpStream;

use crate::body::{RequestBody, ResponseBody, ResponseStream};
use crate::exchange::Live;
use crate::head::{self, Checked, Facts, Hop};
use crate::orca;
use crate::reason::{Ending, Reason};
use crate::refuse;
use crate::session::{Phase, Session, Upload};
use crate::tunnel::Tunnel;
use crate::upstream::Upstream;
use crate::worker::Worker;

const NODE: http::HeaderName = http::HeaderName::from_static("x-tidegate-node");

/// The service: an answer to every request.
pub(crate) async fn respond(
    session: Rc<Session>,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Infallible> {
    let mut live = Live::begin(&session, &request);
    let response = match forward(&session, &mut live, request).await {
        Ok(Answer::Node(response, facts)) => deliver(&session, live, response, &facts).await,
        Ok(Answer::Own(response)) => {
            live.complete();
            Ok(response)
        }
        Err(reason) => Err((live, reason)),
    };
    Ok(response.unwrap_or_else(|(mut live, reason)| {
        let response = refuse::answer(reason);
        let bytes = response.body().size_hint().lower();
        live.refuse(reason, bytes);
        response
    }))
}

enum Answer {
    Node(Response<Incoming>, Facts),
    Own(Response<ResponseBody>),
}

/// A try that got no answer.
struct Failure {
    reason: Reason,
    /// The request, if it may be sent again.
    request: Option<Request<RequestBody>>,
    /// It was a pooled connection that the node may have closed long before.
    stale: bool,
    /// Not a byte of it was sent.
    unsent: bool,
}

impl Failure {
    fn at_last(reason: Reason) -> Self {
        Self {
            reason,
            request: None,
            stale: false,
            unsent: false,
        }
    }
}

async fn forward(
    session: &Rc<Session>,
    live: &mut Live,
    request: Request<Incoming>,
) -> Result<Answer, Reason> {
    let checked = head::check(&request, &session.worker.config.limits)?;
    let facts = checked.facts;
    if head::ends_here(&request, &facts) {
        return Ok(Answer::Own(refuse::options_answer()));
    }
    admit(session, live, &request, &checked)?;
    let mut request = outgoing(session, request, &facts)?;
    let repeatable = is_idempotent(request.method())
        && matches!(request.body(), RequestBody::Empty)
        && !facts.tunnel;
    let mut tried = Vec::new();
    let mut fresh = false;
    loop {
        let failure = match attempt(session, live, request, &facts, (fresh, repeatable)).await {
            Ok(response) => return Ok(Answer::Node(response, facts)),
            Err(failure) => failure,
        };
        request = if failure.stale {
            again_on_new_connection(session, failure)?
        } else {
            again_elsewhere(session, live, failure, &mut tried)?
        };
        fresh = true;
    }
}

/// Checks what the head alone does not tell, finds the site, and asks for a node.
fn admit(
    session: &Rc<Session>,
    live: &mut Live,
    request: &Request<Incoming>,
    checked: &Checked<'_>,
) -> Result<(), Reason> {
    let worker = &session.worker;
    let limits = &worker.config.limits;
    let facts = &checked.facts;
    if facts.chunked
        && session.with_raw_head(|raw| head::is_head_of(raw, request) && head::has_length(raw))
    {
        return Err(Reason::LengthAndEncoding);
    }
    let length = request.body().size_hint().lower();
    if limits.body_bytes.is_some_and(|most| length > most) {
        return Err(Reason::BodyTooLarge);
    }
    if facts.tunnel && worker.tunnels.get() >= limits.tunnels {
        return Err(Reason::TooManyTunnels);
    }
    worker.refresh();
    // The form of OPTIONS for a whole server stands for its root.
    let path = match request.uri().path() {
        "*" => "/",
        path => path,
    };
    let site = worker.site(checked.host, path).ok_or(Reason::NoSite)?;
    let Some(exchange) = live.exchange() else {
        return Err(Reason::ClientGone);
    };
    exchange.site = Some(site);
    if let Some(counters) = worker.stats().site(site) {
        counters.requests.add(1);
    }
    worker.budget.borrow_mut().on_request();
    let now = exchange.arrived_at;
    match worker.picker.borrow_mut().handle_request(site, now) {
        Decision::Reject(reason) => Err(reason.into()),
        Decision::Forward(ticket) => {
            dispatch(worker, live, ticket, now);
            Ok(())
        }
    }
}

/// The request goes to the ticket's node.
fn dispatch(worker: &Worker, live: &mut Live, ticket: Ticket, now: Timestamp) {
    let stats = worker.stats();
    match ticket.why.load_age {
        Some(age) => stats.load_age.record(age.as_micros() as u64),
        None => stats.load_unknown.add(1),
    }
    if let Some(counters) = stats.node(ticket.node) {
        counters.tries.add(1);
    }
    if let Some(exchange) = live.exchange() {
        exchange.tries += 1;
        exchange.dispatched_at = now;
        exchange.ticket = Some(ticket);
    }
}

/// The request as it goes to a node.
fn outgoing(
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
        session.forget_raw_head();
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

fn is_idempotent(method: &Method) -> bool {
    // RFC 9110 §9.2.2; TRACE does not come this far.
    [
        Method::GET,
        Method::HEAD,
        Method::OPTIONS,
        Method::PUT,
        Method::DELETE,
    ]
    .contains(method)
}

/// One try at the ticket's node.
async fn attempt(
    session: &Rc<Session>,
    live: &mut Live,
    mut request: Request<RequestBody>,
    facts: &Facts,
    (fresh, repeatable): (bool, bool),
) -> Result<Response<Incoming>, Failure> {
    let worker = &session.worker;
    let Some(node) = live
        .exchange()
        .and_then(|it| Some(it.ticket.as_ref()?.node))
    else {
        return Err(Failure::at_last(Reason::NoNode));
    };
    let address = worker.picker.borrow().topology().node(node).address;
    head::ensure_host(&mut request, facts, || {
        HeaderValue::try_from(address.to_string())
            .unwrap_or_else(|_| HeaderValue::from_static("localhost"))
    });
    let pooled = match fresh {
        true => None,
        false => worker.pool.borrow_mut().take(node, address),
    };
    let stale = pooled.is_some();
    let upstream = match pooled {
        Some(upstream) => upstream,
        None => match connect(session, node, address).await {
            Ok(upstream) => upstream,
            Err(reason) => {
                return Err(Failure {
                    reason,
                    request: Some(request),
                    stale: false,
                    unsent: true,
                });
            }
        },
    };
    drop(session.upstream.replace(Some(upstream)));
    exchange_heads(session, request, repeatable, stale).await
}

async fn connect(
    session: &Session,
    node: NodeId,
    address: SocketAddr,
) -> Result<Box<Upstream>, Reason> {
    let worker = &session.worker;
    session.suspend();
    let connecting =
        tokio::time::timeout(worker.config.timeouts.connect, TcpStream::connect(address));
    let stream = match connecting.await {
        Ok(Ok(stream)) => stream,
        Ok(Err(_)) => return Err(Reason::ConnectFailed),
        Err(_) => return Err(Reason::ConnectTimeout),
    };
    // Without it small answers wait for acknowledgements; a socket that refuses it still works.
    if stream.set_nodelay(true).is_err() {
        return Err(Reason::ConnectFailed);
    }
    worker
        .upstream(stream, node, address)
        .await
        .map_err(|_| Reason::ConnectFailed)
}

/// Sends the request and waits for the response head.
async fn exchange_heads(
    session: &Rc<Session>,
    request: Request<RequestBody>,
    repeatable: bool,
    stale: bool,
) -> Result<Response<Incoming>, Failure> {
    let ticks = &session.worker.ticks;
    session.extend(if session.is_uploading() {
        ticks.body_idle
    } else {
        ticks.response_head
    });
    let mut request = Some(request);
    let mut sending = pin!(None);
    let sent = poll_fn(|context| {
        if session.take_late() {
            return Poll::Ready(Err(late(session)));
        }
        if let Some(request) = request.take()
            && let Some(upstream) = &mut *session.upstream.borrow_mut()
        {
            sending.set(Some(upstream.send(request, context.waker(), repeatable)));
        }
        let Some(mut sending) = sending.as_mut().as_pin_mut() else {
            return Poll::Ready(Err(Reason::Reset));
        };
        let ended = session.drive();
        let polled = session.with_context(context, |context| sending.as_mut().poll(context));
        if polled.is_pending() && ended {
            // What still waits in the connection comes back when that is dropped.
            if let Some(upstream) = &mut *session.upstream.borrow_mut() {
                upstream.give_up();
            }
            return sending.poll(context).map(Ok);
        }
        polled.map(Ok)
    })
    .await;
    match sent {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) => Err(failure(session, error, stale)),
        Err(reason) => {
            drop(session.upstream.take());
            Err(Failure::at_last(reason))
        }
    }
}

/// Who has stood still.
fn late(session: &Session) -> Reason {
    if session.is_uploading() && session.upload_waits.get() {
        Reason::BodyTimeout
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
        return Failure {
            reason: Reason::Reset,
            request: Some(request),
            stale,
            unsent: true,
        };
    }
    match session.upload.get() {
        Upload::TooLarge => return Failure::at_last(Reason::BodyTooLarge),
        Upload::Failed => return Failure::at_last(Reason::ClientGone),
        Upload::Done | Upload::Active => {}
    }
    let error = error.into_error();
    if error.is_parse() || error.is_parse_too_large() {
        return Failure::at_last(Reason::BadResponse);
    }
    let request = upstream.and_then(|upstream| upstream.unanswered(&error));
    Failure {
        reason: Reason::Reset,
        stale: stale && request.is_some(),
        request,
        unsent: false,
    }
}

/// The same node, which is not to blame, but not one of its pooled connections.
fn again_on_new_connection(
    session: &Session,
    failure: Failure,
) -> Result<Request<RequestBody>, Reason> {
    let worker = &session.worker;
    let stats = worker.stats();
    stats.stale.add(1);
    if !failure.unsent {
        if !worker.budget.borrow_mut().try_take(worker.now()) {
            stats.retries_denied.add(1);
            return Err(failure.reason);
        }
        stats.retries.add(1);
    }
    failure.request.ok_or(failure.reason)
}

/// Another node, if there is one and the budget allows it.
fn again_elsewhere(
    session: &Session,
    live: &mut Live,
    failure: Failure,
    tried: &mut Vec<NodeId>,
) -> Result<Request<RequestBody>, Reason> {
    let worker = &session.worker;
    let reason = failure.reason;
    if reason.ending() == Ending::Failed {
        live.on_outcome(Outcome::TransportFailure);
    }
    let request = failure.request.ok_or(reason)?;
    let exchange = live.exchange().ok_or(reason)?;
    let (Some(site), Some(ticket)) = (exchange.site, &exchange.ticket) else {
        return Err(reason);
    };
    tried.push(ticket.node);
    if exchange.tries >= worker.config.limits.tries {
        return Err(reason);
    }
    worker.refresh();
    if !worker.has_others(site, tried) {
        return Err(reason);
    }
    let now = worker.now();
    let stats = worker.stats();
    if !worker.budget.borrow_mut().try_take(now) {
        stats.retries_denied.add(1);
        return Err(reason);
    }
    match worker.picker.borrow_mut().handle_retry(site, tried, now) {
        Decision::Reject(_) => Err(reason),
        Decision::Forward(ticket) => {
            stats.retries.add(1);
            dispatch(worker, live, ticket, now);
            Ok(request)
        }
    }
}

/// The response as it goes to the client.
async fn deliver(
    session: &Rc<Session>,
    mut live: Live,
    response: Response<Incoming>,
    facts: &Facts,
) -> Result<Response<ResponseBody>, (Live, Reason)> {
    let worker = &session.worker;
    let (mut parts, incoming) = response.into_parts();
    let upgraded = parts.status == StatusCode::SWITCHING_PROTOCOLS;
    let via = worker.config.forwarded.via.as_deref();
    let prepared = head::prepare_response(&mut parts.headers, parts.status, parts.version, via);
    let Ok(seen) = prepared.and_then(|seen| match upgraded && !facts.tunnel {
        true => Err(Reason::BadResponse),
        false => Ok(seen),
    }) else {
        live.on_outcome(Outcome::TransportFailure);
        return Err((live, Reason::BadResponse));
    };
    if let Some(exchange) = live.exchange() {
        exchange.status = parts.status.as_u16();
    }
    live.on_outcome(match parts.status.is_server_error() {
        true => Outcome::ServerError,
        false => Outcome::Success,
    });
    if seen.load_metrics {
        read_load(worker, &mut live, &mut parts.headers);
    }
    if worker.config.node_header {
        name_node(worker, &mut live, &mut parts.headers);
    }
    parts.version = Version::HTTP_11;
    let body = if upgraded {
        match Tunnel::begin(session, live).await {
            Ok(()) => ResponseBody::Empty,
            Err(live) => return Err((live, Reason::BadResponse)),
        }
    } else if incoming.is_end_stream() {
        live.complete();
        ResponseBody::Empty
    } else {
        session.enter(Phase::Body, worker.ticks.body_idle);
        ResponseBody::Stream(ResponseStream::new(incoming, live))
    };
    Ok(Response::from_parts(parts, body))
}

/// Reads the node's load report, which is not for the client, if the site wants it.
fn read_load(worker: &Worker, live: &mut Live, headers: &mut http::HeaderMap) {
    let Some(exchange) = live.exchange() else {
        return;
    };
    let (Some(site), Some(ticket)) = (exchange.site, &exchange.ticket) else {
        return;
    };
    if !worker.reads_load_of(site) {
        return;
    }
    let value = headers.remove(head::LOAD_METRICS);
    if let Some(report) = value.and_then(|value| orca::parse(value.as_bytes())) {
        let probe = Probe {
            node: ticket.node,
            in_flight: report.in_flight,
            latency: report.latency,
        };
        let now = worker.now();
        worker.picker.borrow_mut().handle_probe(site, &probe, now);
    }
}

fn name_node(worker: &Worker, live: &mut Live, headers: &mut http::HeaderMap) {
    let Some(ticket) = live
        .exchange()
        .and_then(|exchange| exchange.ticket.as_ref())
    else {
        return;
    };
    let picker = worker.picker.borrow();
    let name = &picker.topology().node(ticket.node).name;
    // A name that is no header value is not worth a failed request.
    if let Ok(value) = HeaderValue::from_str(name) {
        headers.insert(NODE, value);
    }
}
