//! Answers of chosen statuses, in place of which another node is asked.
//!
//! ```text
//! another node is asked  if the status is among `retry_on` of the route, or else of the site,
//!                        the request is repeatable (idempotent, without a body), its time is not over,
//!                        tries are left, a node has room that has not had it, and the site's budget pays
//! passed on              any other answer, so the last one in any case
//! ```
//!
//! Inputs: the head of the answer; of its body nothing has gone to the client. The node is seen to have answered so either way: its
//! health counts all of its answers.
//!
//! Failure case: an answer that would be the same anywhere (an application's own 503) costs as many nodes as there are tries, within
//! the budget. The next node may let the time run out: the client gets 504 then, though there was an answer.
//!
//! Source: RFC 9110 §9.2.2 (what is idempotent may be repeated); the budget is [`tidegate_core::retry_budget`].

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use http::Response;
use http_body::Body;
use hyper::body::Incoming;
use tidegate_core::picker::Retried;

use super::retry::{Failure, elsewhere};
use crate::record::reason::Reason;
use crate::request::{Client, RequestGuard, RequestTraits, dispatch};

/// The least status that may be chosen.
pub(super) const LEAST: u16 = 400;
/// A body that is no longer is read, if it is here, so that its connection can be used again.
const READ_MAX: u64 = 64 << 10;
/// So often the connection is asked for more of it.
const READS_MAX: usize = 8;

/// The request with its ticket for another node, if this answer is not passed on.
#[cold]
pub(super) fn in_place_of(
    client: &Client,
    guard: &mut RequestGuard,
    response: &mut Response<Incoming>,
    traits: &RequestTraits,
) -> Option<Failure> {
    let status = response.status().as_u16();
    let may_be = traits.repeatable && !client.connection.is_overdue();
    if !may_be || !is_chosen(client, guard, status) {
        return None;
    }
    let request = client.upstream.borrow().as_ref()?.repeatable_request()?;
    let ticket = elsewhere(client, guard, Retried::Answer)?;
    guard.on_other_asked(status);
    match is_read(client, response.body_mut()) {
        true => client.release_upstream(),
        false => drop(client.upstream.take()),
    }
    let worker = &client.worker;
    worker.sites.on_retry(ticket.site());
    worker.base.stats().status_retries.add(1);
    dispatch(client, guard, ticket, worker.base.now());
    Some(Failure::dispatched(Reason::BadResponse, request))
}

pub(super) fn is_chosen(client: &Client, guard: &mut RequestGuard, status: u16) -> bool {
    let Some(state) = guard.state() else {
        return false;
    };
    let of_route = state.route.as_ref().and_then(|it| it.retry_on.as_ref());
    match (of_route, state.site) {
        (Some(chosen), _) => chosen.contains(&status),
        (None, Some(site)) => client.worker.sites.retries_on(site, status),
        (None, None) => false,
    }
}

/// Whether all of a short body is here.
fn is_read(client: &Client, body: &mut Incoming) -> bool {
    let length = body.size_hint().exact();
    if length.is_none_or(|length| length > READ_MAX) {
        return false;
    }
    if let Some(upstream) = &mut *client.upstream.borrow_mut()
        && !upstream.expect(body, false)
    {
        return false;
    }
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..READS_MAX {
        match Pin::new(&mut *body).poll_frame(&mut context) {
            Poll::Ready(None) => return true,
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(Some(Err(_))) => return false,
            Poll::Pending => {
                client.drive();
            }
        }
    }
    body.is_end_stream()
}
