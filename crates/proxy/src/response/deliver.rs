//! The response head on its way back, and what follows it.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, Entry, SET_COOKIE, STRICT_TRANSPORT_SECURITY};
use http::{HeaderValue, Response, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;
use tidegate_core::load::RestKind;
use tidegate_core::picker::Affinity;
use tidegate_core::policy::Probe;

use super::body::{ResponseBody, ResponseStream};
use super::orca;
use crate::connection::{ClientConnection, Phase};
use crate::head::{self, HeadInfo};
use crate::record::reason::Reason;
use crate::refusal::{self, CLIENT_CLOSED, CLOSE, Form};
use crate::request::{Client, RequestGuard, RequestTraits};
use crate::worker::Worker;

const NODE: http::HeaderName = http::HeaderName::from_static("x-tidegate-node");

/// A response head that is in order.
pub(crate) enum Delivery {
    /// It goes to the client, and its body follows.
    Response(Response<ResponseBody>),
    /// The node has agreed to a tunnel.
    Tunnel(Box<(RequestGuard, Response<ResponseBody>)>),
}

/// The response as it goes to the client.
pub(crate) fn deliver(
    client: &Client,
    mut guard: RequestGuard,
    response: Response<Incoming>,
    traits: &RequestTraits,
) -> Delivery {
    let worker = &client.worker;
    let (mut parts, incoming) = response.into_parts();
    let upgraded = parts.status == StatusCode::SWITCHING_PROTOCOLS;
    let settings = &client.connection.settings;
    let prepared = head::prepare_response(
        &mut parts.headers,
        parts.status,
        parts.version,
        settings.forwarded().via.as_deref(),
    );
    let seen = match prepared {
        Ok(seen)
            if (!upgraded || is_asked_for(&mut guard, &parts.headers))
                && begins(client, &incoming, seen) =>
        {
            seen
        }
        Ok(_) | Err(_) => {
            guard.on_failure(Reason::BadResponse);
            return Delivery::Response(refused(guard, Reason::BadResponse));
        }
    };
    if !upgraded && let Some(state) = guard.state() {
        state.tunnel = None;
    }
    head::drop_trailer_names(&mut parts.headers, traits.facts, seen);
    let head = guard.on_head(
        parts.status.as_u16(),
        !upgraded && !incoming.is_end_stream(),
    );
    if seen.load_metrics {
        read_load(worker, &mut guard, &mut parts.headers);
    }
    change_by_route(&mut guard, &mut parts.headers);
    stick(client, &mut guard, &mut parts.headers);
    if settings.looks_at_answers() {
        look_at(client, &mut guard, &mut parts.headers);
    }
    parts.version = Version::HTTP_11;
    if upgraded {
        // Whatever becomes of the tunnel: the node has done what it was asked for.
        guard.settle(None);
        let response = Response::from_parts(parts, ResponseBody::Empty);
        return Delivery::Tunnel(Box::new((guard, response)));
    }
    let body = if incoming.is_end_stream() {
        guard.complete_with(head);
        ResponseBody::Empty
    } else {
        if let Some(state) = guard.state() {
            state.is_sized = incoming.size_hint().exact().is_some();
        }
        client.connection.begin_body(settings.ticks().response_body);
        client
            .connection
            .enter(Phase::Body, settings.ticks().body_idle);
        if let Some(node) = guard.node() {
            client
                .connection
                .rest_after(node, RestKind::Answered, settings.ticks().long_answer);
        }
        ResponseBody::Stream(ResponseStream::new(incoming, guard, head))
    };
    let mut response = Response::from_parts(parts, body);
    settle_connection(&client.connection, &mut response);
    Delivery::Response(response)
}

/// A session that came without a cookie, or is at another node than its cookie names, gets one.
fn stick(client: &Client, guard: &mut RequestGuard, headers: &mut http::HeaderMap) {
    let Some(state) = guard.state() else { return };
    let (affinity, Some(ticket)) = (state.affinity, &state.ticket) else {
        return;
    };
    match affinity {
        Affinity::None | Affinity::Key { .. } => return,
        Affinity::Node { node, .. } if node == ticket.node => return,
        Affinity::New | Affinity::Node { .. } => {}
    }
    let (sites, is_tls) = (&client.worker.sites, client.connection.plan.tls.is_some());
    if let Some(cookie) = sites.sticky_cookie(ticket.site(), ticket.node, is_tls) {
        headers.append(SET_COOKIE, cookie);
    }
}

/// The head that a client gets, as its route will have it.
fn change_by_route(guard: &mut RequestGuard, headers: &mut http::HeaderMap) {
    if let Some(route) = guard.state().and_then(|state| state.route.as_ref())
        && !route.response_headers.is_empty()
    {
        route.response_headers.apply(headers);
    }
}

/// Whether a node that switches protocols names only those that the client asked for (RFC 9110 §7.8).
fn is_asked_for(guard: &mut RequestGuard, headers: &http::HeaderMap) -> bool {
    let tunnel = guard.state().and_then(|state| state.tunnel.as_ref());
    tunnel.is_some_and(|tunnel| head::switches_to(headers, &tunnel.protocols))
}

/// Whether the body that is on its way begins as it should.
fn begins(client: &Client, body: &Incoming, head: HeadInfo) -> bool {
    let mut upstream = client.upstream.borrow_mut();
    (upstream.as_mut()).is_none_or(|upstream| upstream.expect(body, !head.chunked))
}

/// The answer of a request's listener or route; `is_whole` if all of the request was read.
#[cold]
pub(crate) fn routed(
    client: &Client,
    mut guard: RequestGuard,
    answer: Response<Bytes>,
    is_whole: bool,
) -> Response<ResponseBody> {
    let mut response = answer.map(ResponseBody::from);
    guard.log_answer(response.headers_mut());
    let bytes = response.body().size_hint().lower();
    guard.answer(response.status().as_u16(), bytes, is_whole);
    settle_connection(&client.connection, &mut response);
    response
}

/// An answer of our own instead of the node's.
#[cold]
pub(crate) fn refused(mut guard: RequestGuard, reason: Reason) -> Response<ResponseBody> {
    let (site, form) = match guard.state() {
        Some(state) => (state.site, state.form),
        None => (None, Form::Http),
    };
    let mut response = match guard.client() {
        Some(client) => client.worker.sites.answer(reason, site, form),
        None => refusal::answer(reason),
    }
    .map(ResponseBody::from);
    if let Some(client) = guard.client() {
        settle_connection(&client.connection, &mut response);
    }
    guard.log_answer(response.headers_mut());
    let bytes = response.body().size_hint().lower();
    let status = match reason.status().as_u16() {
        CLIENT_CLOSED => CLIENT_CLOSED,
        _ => response.status().as_u16(),
    };
    guard.refuse(reason, status, bytes);
    response
}

/// Says what becomes of the connection behind this answer. While it drains, or when the listener was taken out, a worker closes each
/// connection behind its next answer, and says so in it: the client then sends nothing more into a connection that closes. The same
/// goes for an answer that comes before the whole request: what is left of that may never be read (RFC 9112 §9.3).
/// An HTTP/1.0 client reads an answer without a length up to the end of the connection.
pub(crate) fn settle_connection(
    connection: &ClientConnection,
    response: &mut Response<ResponseBody>,
) {
    if let (Some(hsts), Some(_)) = (&connection.plan.hsts, &connection.plan.tls)
        && let Entry::Vacant(vacant) = response.headers_mut().entry(STRICT_TRANSPORT_SECURITY)
    {
        vacant.insert(hsts.clone());
    }
    if connection.base.drain.has_begun()
        || connection.listener.has_begun()
        || connection.inflow.borrow().awaits_body()
    {
        response.headers_mut().insert(CONNECTION, CLOSE);
    }
    if connection.version.get() == Version::HTTP_10 {
        let closes = response.headers().get(CONNECTION) == Some(&CLOSE);
        let has_length = response.headers().contains_key(CONTENT_LENGTH)
            || response.body().size_hint().exact().is_some();
        if closes || !has_length {
            // To an answer of a later version hyper would add `connection: keep-alive`.
            *response.version_mut() = Version::HTTP_10;
        }
    }
}

/// Reads the node's load report, which is not for the client, if the site wants it, or if the node's load is read so.
#[cold]
fn read_load(worker: &Worker, guard: &mut RequestGuard, headers: &mut http::HeaderMap) {
    let Some(state) = guard.state() else {
        return;
    };
    let (Some(site), Some(ticket)) = (state.site, &state.ticket) else {
        return;
    };
    let of_site = worker.sites.read_load_of(site);
    let of_node = worker.load_reports.reads(ticket.node);
    if !of_site && !of_node {
        return;
    }
    let Some(report) = orca::take(headers) else {
        return;
    };
    let (node, now) = (ticket.node, worker.base.now());
    if of_node {
        worker.load_reports.take(node, report.as_ref(), now);
    }
    let probe = report.map(|report| Probe {
        node,
        in_flight: report.in_flight,
        latency: report.latency,
    });
    if let Some(probe) = probe.filter(|it| of_site && !it.in_flight.is_nan()) {
        let mut picker = worker.base.cluster.picker.borrow_mut();
        picker.handle_probe(site, &probe, now);
    }
}

/// The head is all but what says how it is sent.
#[cold]
fn look_at(client: &Client, guard: &mut RequestGuard, headers: &mut http::HeaderMap) {
    if client.connection.settings.names_node() {
        name_node(&client.worker, guard, headers);
    }
    guard.log_answer(headers);
}

fn name_node(worker: &Worker, guard: &mut RequestGuard, headers: &mut http::HeaderMap) {
    let Some(ticket) = guard.state().and_then(|state| state.ticket.as_ref()) else {
        return;
    };
    let picker = worker.base.cluster.picker.borrow();
    let node = picker.topology().nodes.get(ticket.node.index());
    // A name that is no header value is not worth a failed request.
    if let Some(value) = node.and_then(|node| HeaderValue::from_str(&node.name).ok()) {
        headers.insert(NODE, value);
    }
}
