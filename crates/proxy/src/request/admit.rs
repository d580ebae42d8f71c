//! The way of a request to a node: checks of its head, its site, the throttle and the test of its class, and room.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::header::UPGRADE;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use tidegate_core::picker::Arrival;
use tidegate_core::throttle::lowered;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::SiteId;

use super::client::Client;
use super::guard::RequestGuard;
use super::pick::{dispatch, pick};
use super::redirect;
use super::state::AskedTunnel;
use crate::config::listener::ListenerAnswers;
use crate::connection::Upload;
use crate::gate::RequestTarget;
use crate::gate::delay::InDelay;
use crate::gate::queue::InQueue;
use crate::gate::throttle::{InThrottle, Met};
use crate::head::{self, CheckedHead, HeadInfo, Hop};
use crate::record::reason::Reason;
use crate::route::{self, PlainPath};
use crate::upstream::body::RequestBody;
use crate::wire::client_body::ClientBody;

/// The method of a connection that is passed on as it is, in the log and wherever requests are of a class.
pub(crate) const CONNECTION: &str = "TCP";

/// What of a request matters once it is on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestTraits {
    pub(crate) facts: HeadInfo,
    /// It may be sent again while there is no answer.
    pub(crate) repeatable: bool,
    /// It went out on a pooled connection, which the node may have closed long before.
    pub(crate) stale: bool,
}

/// What becomes of a request.
pub(crate) enum Admitted {
    /// It ends here: OPTIONS that has come as far as it may.
    Ends,
    /// Its listener or its route answers it.
    Answered(Box<Response<Bytes>>),
    /// It has a node.
    Ready(RequestTraits),
    /// It cannot go on yet.
    Waits(RequestTraits, Box<Wait>),
}

/// What a request waits for.
pub(crate) enum Wait {
    /// The throttle of its class, and then a node.
    Throttle(InThrottle, Arrival),
    /// The end of its hold in a test, and then a node.
    Delay(InDelay, Arrival),
    /// Room at a node.
    Room(InQueue),
}

/// Checks a request, and finds its site and its node.
pub(crate) fn admit(
    client: &Client,
    guard: &mut RequestGuard,
    request: &Request<ClientBody>,
) -> Result<Admitted, Reason> {
    let checked = head::check(request, client.connection.settings.uri_bytes())?;
    let facts = checked.facts;
    if head::ends_here(request, &facts) {
        return Ok(Admitted::Ends);
    }
    let plan = &client.connection.plan;
    if let Some(answers) = &plan.answers
        && let Some(answer) = own_answer(answers, request, checked.host)
    {
        return Ok(Admitted::Answered(Box::new(answer)));
    }
    if plan.refuses_other_hosts && !client.connection.is_shown_for(checked.host) {
        return Err(Reason::Misdirected);
    }
    let entered = match enter(client, guard, request, &checked) {
        Ok(entered) => entered,
        Err(reason) => {
            guard.note_form(request.headers());
            return Err(reason);
        }
    };
    let traits = RequestTraits {
        facts,
        repeatable: head::is_idempotent(request.method()) && request.body().is_end_stream(),
        stale: false,
    };
    Ok(match entered {
        Entered::Goes => Admitted::Ready(traits),
        Entered::Waits(wait) => Admitted::Waits(traits, wait),
        Entered::Answered(answer) => Admitted::Answered(answer),
    })
}

/// What a listener answers itself, if it does.
fn own_answer<B>(
    answers: &ListenerAnswers,
    request: &Request<B>,
    host: &str,
) -> Option<Response<Bytes>> {
    let challenges = answers.challenges.as_ref();
    let proof = challenges.and_then(|it| it.http_answer(request.uri().path()));
    if let Some(proof) = proof {
        return Some(Response::new(proof));
    }
    let port = answers.redirects_to?;
    Some(redirect::to_https(request, host, port))
}

/// Lets a connection in that is passed on as it is, as one request of the site, and asks for a node: it has one now, or waits.
pub(crate) fn admit_connection(
    client: &Client,
    guard: &mut RequestGuard,
    site: &str,
) -> Result<Option<InQueue>, Reason> {
    let (worker, base) = (&client.worker, &client.worker.base);
    let seat = worker.tunnels.take().ok_or(Reason::TooManyTunnels)?;
    base.cluster.refresh();
    let site = base.cluster.site_named(site).ok_or(Reason::NoSite)?;
    let state = guard.state().ok_or(Reason::ClientGone)?;
    state.site = Some(site);
    state.tunnel = Some(AskedTunnel {
        _seat: seat,
        protocols: Vec::new(),
    });
    let now = state.arrived_at;
    if let Some(counters) = base.stats().site(site) {
        counters.requests.add(1);
    }
    let headers = HeaderMap::new();
    let from = client.connection.client;
    let arrival = Arrival {
        site,
        affinity: worker.sites.affinity(site, &headers, from),
        priority: worker.sites.priority(site, "/", &headers),
        kind: base.cluster.kind(site, CONNECTION, "/"),
        throttled: false,
        id: worker.queue.number(),
    };
    pick(client, guard, &arrival, now)
}

/// Waits for its turn and for room: then the request has a node.
pub(crate) async fn waited(
    client: &Client,
    guard: &mut RequestGuard,
    request: &Request<RequestBody>,
    wait: Box<Wait>,
) -> Result<(), Reason> {
    client.connection.queued.set(true);
    let waiting = async {
        match *wait {
            Wait::Throttle(held, arrival) => {
                let plain = PlainPath::of(path(request));
                let target = plain.target(request.uri().path(), uri_target(request));
                let target = target_of(request, arrival.site, &target);
                until_passed(client, guard, held, arrival, target).await
            }
            Wait::Delay(hold, arrival) => until_over(client, guard, hold, arrival).await,
            Wait::Room(waiting) => until_room(client, guard, waiting).await,
        }
    };
    let waited = tokio::select! {
        biased;
        waited = waiting => waited,
        () = client.connection.overdue() => Err(Reason::TotalTimeout),
    };
    client.connection.queued.set(false);
    if waited.is_err() {
        guard.note_form(request.headers());
    }
    waited
}

/// What says whether the request is of a class: its target, however it is spelt.
fn target_of<'a, B>(request: &'a Request<B>, site: SiteId, target: &'a str) -> RequestTarget<'a> {
    RequestTarget {
        site,
        method: request.method(),
        target,
    }
}

/// Waits for the throttle, for the test of its class, and then for room.
async fn until_passed(
    client: &Client,
    guard: &mut RequestGuard,
    held: InThrottle,
    arrival: Arrival,
    target: RequestTarget<'_>,
) -> Result<(), Reason> {
    let (worker, connection) = (&client.worker, &client.connection);
    // However long that takes: the throttle watches the time.
    connection.suspend();
    let passed = held.ended().await?;
    let now = worker.base.now();
    let state = guard.state().ok_or(Reason::ClientGone)?;
    if let Some(throttled) = &mut state.throttled {
        throttled.pass(now);
        connection.take_place(passed);
    }
    // A path that was rewritten is not the class's any more: such a request is no part of a test.
    let is_rewritten = state.route.as_ref().is_some_and(|it| it.rewrites());
    if !is_rewritten && let Some((delayed, hold)) = worker.delays.assign(target, now) {
        state.delayed = Some(delayed);
        return until_over(client, guard, hold, arrival).await;
    }
    until_picked(client, guard, &arrival, now).await
}

/// Waits for the end of the hold, and then for room.
async fn until_over(
    client: &Client,
    guard: &mut RequestGuard,
    hold: InDelay,
    arrival: Arrival,
) -> Result<(), Reason> {
    client.connection.suspend();
    hold.over().await;
    let now = client.worker.base.now();
    let state = guard.state().ok_or(Reason::ClientGone)?;
    if let Some(delayed) = &mut state.delayed {
        delayed.pass(now);
    }
    until_picked(client, guard, &arrival, now).await
}

/// Asks for a node after a wait, and waits for room.
async fn until_picked(
    client: &Client,
    guard: &mut RequestGuard,
    arrival: &Arrival,
    now: Timestamp,
) -> Result<(), Reason> {
    client.worker.base.cluster.refresh();
    match pick(client, guard, arrival, now)? {
        Some(waiting) => until_room(client, guard, waiting).await,
        None => Ok(()),
    }
}

/// Waits for room: then the request has a node.
pub(crate) async fn until_room(
    client: &Client,
    guard: &mut RequestGuard,
    waiting: InQueue,
) -> Result<(), Reason> {
    let route = guard.state().and_then(|state| state.route.as_ref());
    let ticket = match route.and_then(|route| route.timeouts.queue) {
        // A product timer: a deadline makes no sound.
        Some(most) => match tokio::time::timeout(most, waiting.ended()).await {
            Ok(ended) => ended?,
            Err(_) => return Err(Reason::QueueTimeout),
        },
        None => waiting.ended().await?,
    };
    dispatch(client, guard, ticket, client.worker.base.now());
    Ok(())
}

/// What a class of requests is known by. The form of OPTIONS for a whole server stands for its root.
fn path<B>(request: &Request<B>) -> &str {
    match request.uri().path() {
        "*" => "/",
        path => path,
    }
}

/// Path and query, as the client sent them.
fn uri_target<B>(request: &Request<B>) -> &str {
    let target = request.uri().path_and_query();
    target.map_or("", |target| target.as_str())
}

/// What becomes of a request of a site. What is rare is in memory of its own.
enum Entered {
    /// It has a node.
    Goes,
    /// It cannot go on yet.
    Waits(Box<Wait>),
    /// Its route answers it.
    Answered(Box<Response<Bytes>>),
}

/// Checks what the head alone does not tell, and finds the site and its route.
fn enter(
    client: &Client,
    guard: &mut RequestGuard,
    request: &Request<ClientBody>,
    checked: &CheckedHead<'_>,
) -> Result<Entered, Reason> {
    let (worker, connection) = (&client.worker, &client.connection);
    let base = &worker.base;
    let facts = &checked.facts;
    if facts.chunked && connection.head_has_length() {
        return Err(Reason::LengthAndEncoding);
    }
    let now = guard.state().ok_or(Reason::ClientGone)?.arrived_at;
    (worker.sources).admit(connection.client, &connection.settings, now)?;
    let length = request.body().size_hint().lower();
    let body_max = connection.settings.body_bytes();
    if body_max.is_some_and(|most| length > most) {
        return Err(Reason::BodyTooLarge);
    }
    // Counted before it is allowed: those that wait for a node's word are tunnels to be.
    let tunnel = match facts.tunnel {
        true => Some(AskedTunnel {
            _seat: worker.tunnels.take().ok_or(Reason::TooManyTunnels)?,
            protocols: request.headers().get_all(UPGRADE).iter().cloned().collect(),
        }),
        false => None,
    };
    base.cluster.refresh();
    let plain = PlainPath::of(path(request));
    let site = base
        .cluster
        .site(checked.host, &plain)
        .ok_or(Reason::NoSite)?;
    let Some(state) = guard.state() else {
        return Err(Reason::ClientGone);
    };
    state.site = Some(site);
    if let Some(counters) = base.stats().site(site) {
        counters.requests.add(1);
    }
    state.route = match worker.sites.routes(site) {
        Some(routes) => {
            let asking = route::Asking {
                host: checked.host,
                client: connection.client,
                config: &connection.settings.forwarded(),
                asks_certificate: connection.asks_certificate(),
            };
            route::find(&routes, &asking, request)
        }
        None => None,
    };
    if let Some(route) = &state.route {
        if let Some(answer) = route.answer(checked.host, request) {
            return Ok(Entered::Answered(Box::new(answer)));
        }
        connection.take_route(&route.timeouts);
    }
    state.tunnel = tunnel;
    enter_site(client, guard, request, site, &plain)
}

/// Asks the throttle and the test of a site's request, if it has them, and then for a node: it has one now, or waits. Its
/// path is given as others of the same path are compared by.
fn enter_site(
    client: &Client,
    guard: &mut RequestGuard,
    request: &Request<ClientBody>,
    site: SiteId,
    plain: &PlainPath<'_>,
) -> Result<Entered, Reason> {
    let (worker, connection) = (&client.worker, &client.connection);
    let base = &worker.base;
    let headers = request.headers();
    let target = plain.target(request.uri().path(), uri_target(request));
    let state = guard.state().ok_or(Reason::ClientGone)?;
    let now = state.arrived_at;
    state.session = worker.sites.on_request(site, headers);
    let established =
        (state.session).is_some_and(|session| worker.sites.is_established(site, session, now));
    let of = target_of(request, site, &target);
    let mut arrival = Arrival {
        site,
        priority: (worker.sites)
            .priority(site, plain, headers)
            .with_established(established),
        kind: base.cluster.kind(site, of.method.as_str(), of.target),
        throttled: false,
        affinity: worker.sites.affinity(site, headers, connection.client),
        id: worker.queue.number(),
    };
    state.affinity = arrival.affinity;
    let met = worker.throttles.enter(of, now);
    if let Some((throttled, met)) = met {
        state.throttled = Some(throttled);
        if state.gives_way() {
            arrival.priority = lowered(arrival.priority);
        }
        match met {
            Met::Free => {}
            Met::Full => return Err(Reason::ThrottleFull),
            Met::Passed(passed) => connection.take_place(passed),
            Met::Held(held) => {
                return Ok(Entered::Waits(Box::new(Wait::Throttle(held, arrival))));
            }
        }
    }
    if let Some((delayed, hold)) = worker.delays.assign(of, now) {
        state.delayed = Some(delayed);
        return Ok(Entered::Waits(Box::new(Wait::Delay(hold, arrival))));
    }
    Ok(match pick(client, guard, &arrival, now)? {
        None => Entered::Goes,
        Some(waiting) => Entered::Waits(Box::new(Wait::Room(waiting))),
    })
}

/// Makes the head what a node gets, and gives the body as it gets that.
pub(crate) fn prepare(
    client: &Client,
    guard: &mut RequestGuard,
    request: &mut Request<ClientBody>,
    facts: &HeadInfo,
) -> Result<RequestBody, Reason> {
    let connection = &client.connection;
    let has_body = !request.body().is_end_stream();
    head::prepare(
        request,
        facts,
        has_body,
        &Hop {
            config: &connection.settings.forwarded(),
            client: connection.client,
            client_value: &connection.client_value,
            scheme: connection.scheme(),
            asks_certificate: connection.asks_certificate(),
            certificate: connection
                .tls
                .get()
                .and_then(|session| session.identity.as_ref()),
        },
    )?;
    if let Some(route) = guard.state().and_then(|state| state.route.as_ref()) {
        route.change(request, &connection.settings.forwarded())?;
    }
    if !has_body {
        return Ok(RequestBody::Empty);
    }
    connection.upload.set(Upload::Active);
    let expects = facts.expects_continue;
    let site = guard.state().and_then(|state| state.site);
    let by_http2 = site.is_some_and(|it| client.worker.sites.node_http2(it));
    // What a node of HTTP/2 says to it does not come this far.
    let asks_node = expects && !by_http2;
    let wanted = asks_node.then(|| {
        let wanted = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&wanted);
        hyper::ext::on_informational(request, move |informational| {
            if informational.status() == StatusCode::CONTINUE {
                asked.store(true, Ordering::Relaxed);
            }
        });
        wanted
    });
    let limits = connection.settings.limits();
    // Nodes of HTTP/1.1 do not say that they have not begun.
    let replay = by_http2.then_some(limits.replay_bytes);
    let incoming = std::mem::replace(request.body_mut(), ClientBody::Empty);
    let limit = limits.body_bytes;
    Ok(RequestBody::new(
        incoming, connection, limit, wanted, expects, replay,
    ))
}
