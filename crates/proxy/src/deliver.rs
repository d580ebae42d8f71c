//! The response head on its way back, and what follows it.

use std::rc::Rc;

use http::header::{CONNECTION, CONTENT_LENGTH};
use http::{HeaderValue, Response, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;
use tidegate_core::load::RestKind;
use tidegate_core::policy::Probe;

use crate::body::{ResponseBody, ResponseStream};
use crate::exchange::Live;
use crate::forward::Passage;
use crate::grpc::Form;
use crate::head::{self, Facts};
use crate::orca;
use crate::reason::Reason;
use crate::refuse;
use crate::session::{Phase, Session};
use crate::worker::Worker;

const NODE: http::HeaderName = http::HeaderName::from_static("x-tidegate-node");

/// A response head that is in order.
pub(crate) enum Delivery {
    /// It goes to the client, and its body follows.
    Response(Response<ResponseBody>),
    /// The node has agreed to a tunnel.
    Tunnel(Live, Response<ResponseBody>),
}

/// The response as it goes to the client.
pub(crate) fn deliver(
    session: &Rc<Session>,
    mut live: Live,
    response: Response<Incoming>,
    passage: &Passage,
) -> Delivery {
    let worker = &session.worker;
    let (mut parts, incoming) = response.into_parts();
    let upgraded = parts.status == StatusCode::SWITCHING_PROTOCOLS;
    let via = worker.config.forwarded.via.as_deref();
    let prepared = head::prepare_response(&mut parts.headers, parts.status, parts.version, via);
    let seen = match prepared {
        Ok(seen)
            if (!upgraded || is_asked_for(&mut live, &parts.headers))
                && begins(session, &incoming, seen) =>
        {
            seen
        }
        Ok(_) | Err(_) => {
            live.on_failure(Reason::BadResponse);
            return Delivery::Response(refused(live, Reason::BadResponse));
        }
    };
    if !upgraded && let Some(exchange) = live.exchange() {
        exchange.tunnel = None;
    }
    head::drop_trailer_names(&mut parts.headers, passage.facts, seen);
    live.on_head(
        parts.status.as_u16(),
        !upgraded && !incoming.is_end_stream(),
    );
    if seen.load_metrics {
        read_load(worker, &mut live, &mut parts.headers);
    }
    if worker.config.node_header {
        name_node(worker, &mut live, &mut parts.headers);
    }
    parts.version = Version::HTTP_11;
    if upgraded {
        // Whatever becomes of the tunnel: the node has done what it was asked for.
        live.settle(None);
        return Delivery::Tunnel(live, Response::from_parts(parts, ResponseBody::Empty));
    }
    let body = if incoming.is_end_stream() {
        live.complete();
        ResponseBody::Empty
    } else {
        session.begin_body(worker.ticks.response_body);
        session.enter(Phase::Body, worker.ticks.body_idle);
        if let Some(node) = live.node() {
            session.rest_after(node, RestKind::Answered, worker.ticks.long_answer);
        }
        ResponseBody::Stream(ResponseStream::new(incoming, live))
    };
    let mut response = Response::from_parts(parts, body);
    settle_connection(session, &mut response);
    Delivery::Response(response)
}

/// Whether a node that switches protocols names only those that the client asked for (RFC 9110 §7.8).
fn is_asked_for(live: &mut Live, headers: &http::HeaderMap) -> bool {
    let tunnel = live
        .exchange()
        .and_then(|exchange| exchange.tunnel.as_ref());
    tunnel.is_some_and(|tunnel| head::switches_to(headers, &tunnel.protocols))
}

/// Whether the body that is on its way begins as it should.
fn begins(session: &Session, body: &Incoming, head: Facts) -> bool {
    let upstream = session.upstream.borrow();
    (upstream.as_ref()).is_none_or(|upstream| upstream.expect(body, !head.chunked))
}

/// An answer of our own instead of the node's.
#[cold]
pub(crate) fn refused(mut live: Live, reason: Reason) -> Response<ResponseBody> {
    let (site, form) = match live.exchange() {
        Some(exchange) => (exchange.site, exchange.form),
        None => (None, Form::Http),
    };
    let mut response = match live.session() {
        Some(session) => session.worker.answers.answer(reason, site, form),
        None => refuse::answer(reason),
    };
    if let Some(session) = live.session() {
        settle_connection(session, &mut response);
    }
    let bytes = response.body().size_hint().lower();
    let status = match reason.status().as_u16() {
        refuse::CLIENT_CLOSED => refuse::CLIENT_CLOSED,
        _ => response.status().as_u16(),
    };
    live.refuse(reason, status, bytes);
    response
}

/// Says what becomes of the connection behind this answer. While it drains, a worker closes each connection
/// behind its next answer, and says so in it: the client then sends nothing more into a connection that closes.
/// An HTTP/1.0 client reads an answer without a length up to the end of the connection.
pub(crate) fn settle_connection(session: &Session, response: &mut Response<ResponseBody>) {
    if session.worker.draining.get() {
        response.headers_mut().insert(CONNECTION, refuse::CLOSE);
    }
    if session.version.get() == Version::HTTP_10 {
        let closes = response.headers().get(CONNECTION) == Some(&refuse::CLOSE);
        let has_length = response.headers().contains_key(CONTENT_LENGTH)
            || response.body().size_hint().exact().is_some();
        if closes || !has_length {
            // To an answer of a later version hyper would add `connection: keep-alive`.
            *response.version_mut() = Version::HTTP_10;
        }
    }
}

/// Reads the node's load report, which is not for the client, if the site wants it.
#[cold]
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

#[cold]
fn name_node(worker: &Worker, live: &mut Live, headers: &mut http::HeaderMap) {
    let Some(ticket) = live
        .exchange()
        .and_then(|exchange| exchange.ticket.as_ref())
    else {
        return;
    };
    let picker = worker.picker.borrow();
    let node = picker.topology().nodes.get(ticket.node.index());
    // A name that is no header value is not worth a failed request.
    if let Some(value) = node.and_then(|node| HeaderValue::from_str(&node.name).ok()) {
        headers.insert(NODE, value);
    }
}
