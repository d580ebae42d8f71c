//! A request that has its node goes there, on a pooled connection or a new one, and comes back with the head of an
//! answer; or goes elsewhere, if that failed and trying again can do no harm ([`retry`]).

mod dial;
pub(crate) mod hedge;
pub(crate) mod mirror;
mod retry;
mod status;

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;

use crate::connection::Upload;
use crate::connection::introduction::IntroductionId;
use crate::head;
use crate::record::reason::Reason;
use crate::request::{Client, Hedging, RequestGuard, RequestTraits};
use crate::stream::Stream;
use crate::tls::NodeTlsFailure;
use crate::upstream::body::RequestBody;
use crate::upstream::{SendFailure, Sending, Upstream, UpstreamKey, is_refused};
use crate::worker::{NodeOpening, NodeSpeech};
use dial::Patience;
pub(crate) use retry::{Failure, rescue};

/// The pooled connection on which a request that has its ticket can go, if there is one. A request that names no host gets
/// its own behind this, with the node's name.
pub(crate) fn pooled(
    client: &Client,
    guard: &mut RequestGuard,
    traits: &mut RequestTraits,
) -> Result<Option<Upstream>, Reason> {
    let Some(key) = upstream_key(client, guard) else {
        return Err(Reason::NoNode);
    };
    if !traits.facts.names_host() {
        return Ok(None);
    }
    let upstream = client.worker.pool.borrow_mut().take(&key);
    traits.stale = upstream.is_some();
    Ok(upstream)
}

/// Where the ticket says that the request goes.
#[inline]
fn upstream_key(client: &Client, guard: &mut RequestGuard) -> Option<UpstreamKey> {
    let worker = &client.worker;
    let state = guard.state()?;
    let node = state.ticket.as_ref()?.node;
    let speech = (state.site).map_or(NodeSpeech::NONE, |it| worker.sites.node_speech(it));
    let picker = worker.base.cluster.picker.borrow();
    let at = picker.topology().nodes.get(node.index())?;
    Some(UpstreamKey {
        node,
        generation: at.generation,
        address: at.address,
        marks: state.marks(),
        tls: speech.tls,
        http2: speech.http2,
        introduces: match speech.introduces {
            false => None,
            true => Some(introduction_of(client)),
        },
    })
}

#[cold]
#[inline(never)]
fn introduction_of(client: &Client) -> IntroductionId {
    client.connection.introduction().id
}

/// Sends a request on this connection.
pub(crate) fn send(
    client: &Client,
    guard: &mut RequestGuard,
    mut upstream: Upstream,
    mut request: Request<RequestBody>,
    traits: &RequestTraits,
) -> Sending {
    if let Some(trace) = guard.state().and_then(|state| state.trace.as_mut()) {
        trace.introduce(&mut request);
    }
    let connection = &client.connection;
    connection.extend(if connection.is_uploading() {
        connection.begin_body(connection.ticks().request_body);
        connection.ticks().body_idle
    } else {
        connection.ticks().response_head
    });
    connection.driven_elsewhere.set(upstream.drives_itself());
    let sending = upstream.send(request, connection.waker(), traits.repeatable);
    drop(client.upstream.replace(Some(upstream)));
    sending
}

/// Waits for the response head.
pub(crate) fn poll_head(
    client: &Client,
    guard: &mut RequestGuard,
    sending: &mut Sending,
    traits: &RequestTraits,
    context: &mut Context<'_>,
) -> Poll<Result<Response<Incoming>, Failure>> {
    if client.connection.take_late() {
        drop(client.upstream.take());
        return Poll::Ready(Err(Failure::at_last(client.connection.late_reason())));
    }
    let ended = client.drive();
    let mut polled = client
        .connection
        .with_context(context, |context| sending.as_mut().poll(context));
    if polled.is_pending() && ended {
        // What still waits in the connection comes back when that is dropped.
        if let Some(upstream) = &mut *client.upstream.borrow_mut() {
            upstream.give_up();
        }
        polled = sending.as_mut().poll(context);
    }
    client.take_interims();
    if polled.is_pending()
        && client.stranded.take()
        && let Some(failure) = retry::leave(client, guard)
    {
        return Poll::Ready(Err(failure));
    }
    if let Poll::Ready(Ok(response)) = &mut polled
        && response.status().as_u16() >= status::LEAST
        && let Some(failure) = status::in_place_of(client, guard, response, traits)
    {
        return Poll::Ready(Err(failure));
    }
    polled.map_err(|error| failure(client, error, traits.stale))
}

/// Sends a request that has its node, and waits for the answer's head.
pub(crate) async fn forward(
    client: &Client,
    guard: &mut RequestGuard,
    request: Request<RequestBody>,
    traits: &mut RequestTraits,
) -> Result<Response<Incoming>, Reason> {
    let Some(upstream) = pooled(client, guard, traits)? else {
        return try_nodes(client, guard, request, traits).await;
    };
    let sending = send(client, guard, upstream, request, traits);
    match answered(client, guard, sending, traits).await {
        Ok(response) => Ok(response),
        Err(failure) => retry_after_failure(client, guard, failure, traits).await,
    }
}

/// Tries at new connections and other nodes until there is an answer, or nothing left to try.
pub(crate) async fn try_nodes(
    client: &Client,
    guard: &mut RequestGuard,
    mut request: Request<RequestBody>,
    traits: &RequestTraits,
) -> Result<Response<Incoming>, Reason> {
    loop {
        let failure = match attempt(client, guard, request, traits).await {
            Ok(response) => return Ok(response),
            Err(failure) => failure,
        };
        if failure.is_dispatched() {
            return Box::pin(retry_after_failure(client, guard, failure, traits)).await;
        }
        request = retry::after(client, guard, failure)?;
    }
}

/// Goes on after a try that got no answer.
pub(crate) async fn retry_after_failure(
    client: &Client,
    guard: &mut RequestGuard,
    failure: Failure,
    traits: &RequestTraits,
) -> Result<Response<Incoming>, Reason> {
    let is_dispatched = failure.is_dispatched();
    let request = retry::after(client, guard, failure)?;
    if is_dispatched {
        let mut traits = *traits;
        return Box::pin(forward(client, guard, request, &mut traits)).await;
    }
    try_nodes(client, guard, request, traits).await
}

/// One try at the ticket's node, on a new connection, or on any where the request names no host.
async fn attempt(
    client: &Client,
    guard: &mut RequestGuard,
    mut request: Request<RequestBody>,
    traits: &RequestTraits,
) -> Result<Response<Incoming>, Failure> {
    // A node that is new is not asked by older rules.
    client.worker.sites.follow();
    let Some(key) = upstream_key(client, guard) else {
        return Err(Failure::at_last(Reason::NoNode));
    };
    let site = guard.state().and_then(|state| state.site);
    let opening = site.map(|it| client.worker.sites.node_opening(it));
    let opening = opening.unwrap_or_default();
    if !traits.facts.names_host() {
        let pooled = named(client, &mut request, traits, &key);
        if let Some(upstream) = pooled {
            let traits = RequestTraits {
                stale: true,
                ..*traits
            };
            let sending = send(client, guard, upstream, request, &traits);
            return answered(client, guard, sending, &traits).await;
        }
    }
    let patience = guard.state().and_then(|state| state.route.as_ref());
    let patience = patience.and_then(|route| route.timeouts.connect);
    let connecting = tokio::select! {
        biased;
        connecting = connect(client, key, opening, patience) => connecting,
        () = client.connection.overdue() => return Err(Failure::at_last(Reason::TotalTimeout)),
    };
    let upstream = match connecting {
        Ok(upstream) => upstream,
        Err(reason) => return Err(Failure::of_node(reason, request)),
    };
    let traits = RequestTraits {
        stale: false,
        ..*traits
    };
    let sending = send(client, guard, upstream, request, &traits);
    answered(client, guard, sending, &traits).await
}

/// A request whose client names no host names its node; and the pooled connection on which it can go, if there is one.
fn named(
    client: &Client,
    request: &mut Request<RequestBody>,
    traits: &RequestTraits,
    key: &UpstreamKey,
) -> Option<Upstream> {
    head::ensure_host(request, &traits.facts, || {
        HeaderValue::try_from(key.address.to_string())
            .unwrap_or_else(|_| HeaderValue::from_static("localhost"))
    });
    client.worker.pool.borrow_mut().take(key)
}

/// Waits for the response head, and has a second node asked where that may be.
async fn answered(
    client: &Client,
    guard: &mut RequestGuard,
    mut sending: Sending,
    traits: &RequestTraits,
) -> Result<Response<Incoming>, Failure> {
    if guard.state().is_some_and(|it| it.hedging == Hedging::May) {
        return Box::pin(hedge::answered(client, guard, sending, traits)).await;
    }
    poll_fn(|context| poll_head(client, guard, &mut sending, traits, context)).await
}

/// Connects to the ticket's node, or to others while that fails: a stream of bytes, on which nothing was said.
pub(crate) async fn open(client: &Client, guard: &mut RequestGuard) -> Result<Stream, Reason> {
    loop {
        let key = upstream_key(client, guard).ok_or(Reason::NoNode)?;
        let site = guard.state().and_then(|state| state.site);
        let opening = site.map(|it| client.worker.sites.node_opening(it));
        let opening = opening.unwrap_or_default();
        let reason = match dial(client, key, opening, None).await {
            Ok(stream) => return Ok(stream),
            Err(reason) => reason,
        };
        let nothing = Request::new(RequestBody::Empty);
        retry::after(client, guard, Failure::of_node(reason, nothing))?;
    }
}

/// A connection on which HTTP is spoken; `patience` is its route's, if that has some of its own.
async fn connect(
    client: &Client,
    key: UpstreamKey,
    opening: NodeOpening,
    patience: Option<Duration>,
) -> Result<Upstream, Reason> {
    let stream = dial(client, key, opening, patience).await?;
    let upstream = client.worker.upstream(stream, key).await;
    upstream.map_err(|_| Reason::ConnectFailed)
}

/// A connection for the client's request, in the time that one may take.
async fn dial(
    client: &Client,
    key: UpstreamKey,
    opening: NodeOpening,
    patience: Option<Duration>,
) -> Result<Stream, Reason> {
    client.connection.suspend();
    let timeouts = client.connection.settings.timeouts();
    let patience = Patience {
        connect: patience.unwrap_or(timeouts.connect),
        keepalive: timeouts.keepalive,
    };
    let introduction = opening.proxy.map(|_| client.connection.introduction());
    dial::dial(&client.worker, key, opening, patience, introduction).await
}

fn failure(client: &Client, failure: SendFailure, stale: bool) -> Failure {
    let SendFailure { error, unsent } = failure;
    let upstream = client.upstream.take();
    let broken = match NodeTlsFailure::is_of_tls(&error) {
        true => Reason::NodeTls,
        false => Reason::Reset,
    };
    if let Some(request) = unsent {
        return Failure::of_connection(broken, *request, stale);
    }
    match client.connection.upload.get() {
        Upload::Failed(reason) => return Failure::at_last(reason),
        Upload::Done | Upload::Active => {}
    }
    let flooded = upstream.as_ref().is_some_and(|it| it.is_flooded());
    if error.is_parse() || error.is_parse_too_large() || flooded {
        return Failure::at_last(Reason::BadResponse);
    }
    match upstream.and_then(|upstream| upstream.unanswered(&error)) {
        Some(request) if stale && is_refused(&error) => Failure::refused(broken, request),
        Some(request) => Failure::of_connection(broken, request, stale),
        None => Failure::at_last(broken),
    }
}
