//! Asks for a node, and takes the request there.

use tidegate_core::load::RestKind;
use tidegate_core::picker::{Arrival, Decision, Ticket};
use tidegate_core::time::Timestamp;

use super::client::Client;
use super::guard::RequestGuard;
use super::state::RequestState;
use crate::gate::queue::InQueue;
use crate::record::reason::Reason;
use crate::record::traced::AskedNode;
use crate::worker::Worker;

/// Asks for a node: the request has one now, or waits.
pub(super) fn pick(
    client: &Client,
    guard: &mut RequestGuard,
    arrival: &Arrival,
    now: Timestamp,
) -> Result<Option<InQueue>, Reason> {
    let worker = &client.worker;
    let Arrival { site, id, .. } = *arrival;
    if let Some(state) = guard.state() {
        state.asked_at.get_or_insert(now);
    }
    let mut picker = worker.base.cluster.picker.borrow_mut();
    if site.index() >= picker.topology().sites.len() {
        return Err(Reason::NoSite);
    }
    let arrival = Arrival {
        throttled: client.connection.has_bounded_place(),
        ..*arrival
    };
    worker.queue.on_request();
    let decision = picker.handle_request(&arrival, now);
    drop(picker);
    match decision {
        Decision::Reject(reason) => Err(reason.into()),
        Decision::Forward(ticket) => {
            dispatch(client, guard, ticket, now);
            Ok(None)
        }
        Decision::Wait => Ok(Some(worker.queue.wait(site, id))),
    }
}

/// The request goes to the ticket's node.
#[inline]
pub(crate) fn dispatch(client: &Client, guard: &mut RequestGuard, ticket: Ticket, now: Timestamp) {
    note_try(&client.worker, &ticket);
    hand_over(client, guard, ticket, now);
}

/// Counts that the ticket's node is asked.
#[inline]
pub(crate) fn note_try(worker: &Worker, ticket: &Ticket) {
    let stats = worker.base.stats();
    match ticket.why.load_age {
        Some(age) => stats.load_age.record(age.as_micros() as u64),
        None => stats.load_unknown.add(1),
    }
    if let Some(counters) = stats.node(ticket.node) {
        counters.tries.add(1);
    }
}

/// The request is the ticket's node's, which was asked then.
#[inline]
pub(crate) fn hand_over(client: &Client, guard: &mut RequestGuard, ticket: Ticket, now: Timestamp) {
    let worker = &client.worker;
    client.connection.at.set(Some(ticket.node));
    // What failed elsewhere is at work anew: this ends its rest.
    match ticket.is_throttled() {
        true => client.connection.end_rest(),
        false => {
            let overdue = worker.base.overdue(ticket.site());
            (client.connection).rest_after(ticket.node, RestKind::Unanswered, overdue);
        }
    }
    if let Some(state) = guard.state() {
        if let Some(session) = state.session.take() {
            worker.sites.mark(ticket.site(), session, now);
        }
        state.tries += 1;
        state.dispatched_at = now;
        state.observe_sent(worker, ticket.site(), now);
        if state.trace.is_some() {
            trace_try(worker, state, &ticket, now);
        }
        state.ticket = Some(ticket);
    }
}

/// The request's trace has one try more.
#[cold]
#[inline(never)]
fn trace_try(worker: &Worker, state: &mut RequestState, ticket: &Ticket, begun: Timestamp) {
    if let Some(trace) = &mut state.trace {
        with_asked_node(worker, ticket, |node| {
            trace.begin_try(worker.traces.span(), node, begun, worker.base.now());
        });
    }
}

/// The same of a second node.
pub(crate) fn trace_second(
    worker: &Worker,
    state: &mut RequestState,
    ticket: &Ticket,
    now: Timestamp,
) {
    if let Some(trace) = &mut state.trace {
        with_asked_node(worker, ticket, |node| {
            trace.begin_second(worker.traces.span(), node, now);
        });
    }
}

/// What a trace says of the ticket's node.
fn with_asked_node(worker: &Worker, ticket: &Ticket, take: impl FnOnce(AskedNode<'_>)) {
    let speech = worker.sites.node_speech(ticket.site());
    let picker = worker.base.cluster.picker.borrow();
    if let Some(node) = picker.topology().nodes.get(ticket.node.index()) {
        take(AskedNode {
            name: &node.name,
            address: node.address,
            tls: speech.tls.is_some(),
            http2: speech.http2,
        });
    }
}
