//! What is tried again after a try that got no answer, where, and at whose expense.
//!
//! | what happened | tried again |
//! |---|---|
//! | no connection, or no TLS on it | at another node: nothing was sent |
//! | the request came back unsent from a pooled connection | at the same node, on a new connection, and free of charge: the node had merely closed an idle connection |
//! | the node of HTTP/2 says by `GOAWAY` that it has not begun | the same, whatever the method, if what of its body has come is held; from a new connection at another node |
//! | the node of HTTP/2 refuses the stream | the same, but not free of charge: it may have no room |
//! | a pooled connection broke before the first byte of an answer | the same, if the request is repeatable; an upgrade too |
//! | a new connection broke before the first byte of an answer | at another node, if the request is repeatable |
//! | the node was ejected because it answers nothing, not even probes | at another node that is up, if the request is repeatable and not a byte of an answer has come |
//! | an answer of a status that is chosen | at another node, if the request is repeatable ([`status`](super::status)) |
//! | anything else, and every time-out of an answer | never |
//!
//! Repeatable is a request whose method is idempotent and that has no body. All but the free retry are within the limit on
//! tries and the site's retry budget, and go to nodes that bear them ([`Picker::handle_retry`]). A request that waits at an ejected node and is denied a retry stays there and asks again
//! while it waits: the budget fills again, or the node comes back and answers.
//!
//! [`Picker::handle_retry`]: tidegate_core::picker::Picker::handle_retry

use http::Request;
use tidegate_core::picker::{Retried, Ticket};
use tidegate_core::topology::{NodeId, SiteId};

use crate::record::reason::Reason;
use crate::request::{Client, RequestGuard, dispatch};
use crate::upstream::body::RequestBody;
use crate::worker::Worker;

/// A try that got no answer.
pub(crate) struct Failure {
    reason: Reason,
    next: Next,
}

/// What can be done about it.
enum Next {
    /// Nothing.
    Nothing,
    /// It was a pooled connection that the node may have closed long before: a new one will do.
    NewConnection(Request<RequestBody>),
    /// The node has refused the stream on a pooled connection: a new one may do, within the budget.
    Refused(Request<RequestBody>),
    /// The request may be sent to another node.
    Elsewhere(Request<RequestBody>),
    /// The request has its ticket for another node.
    Dispatched(Request<RequestBody>),
}

impl Failure {
    pub(crate) fn at_last(reason: Reason) -> Self {
        Self {
            reason,
            next: Next::Nothing,
        }
    }

    /// The request has its ticket for another node.
    pub(super) fn dispatched(reason: Reason, request: Request<RequestBody>) -> Self {
        Self {
            reason,
            next: Next::Dispatched(request),
        }
    }

    /// Whether another node may have the request; what has happened is noted of the one that had it, then.
    pub(super) fn is_made_good(&self, client: &Client, guard: &mut RequestGuard) -> bool {
        match self.next {
            Next::Nothing | Next::Dispatched(_) => return false,
            Next::NewConnection(_) => client.worker.base.stats().stale.add(1),
            // It has not begun, and says so: that is no failure.
            Next::Refused(_) => {}
            Next::Elsewhere(_) => guard.on_failure(self.reason),
        }
        true
    }

    /// Whether it has: then an idle connection to that one will do.
    pub(super) fn is_dispatched(&self) -> bool {
        matches!(self.next, Next::Dispatched(_))
    }

    /// The node is to blame, and another one may have the request.
    pub(crate) fn of_node(reason: Reason, request: Request<RequestBody>) -> Self {
        Self {
            reason,
            next: Next::Elsewhere(request),
        }
    }

    /// The node has refused the stream on a pooled connection.
    pub(crate) fn refused(reason: Reason, request: Request<RequestBody>) -> Self {
        Self {
            reason,
            next: Next::Refused(request),
        }
    }

    /// The connection had broken; a pooled one may have long before.
    pub(crate) fn of_connection(
        reason: Reason,
        request: Request<RequestBody>,
        pooled: bool,
    ) -> Self {
        Self {
            reason,
            next: match pooled {
                true => Next::NewConnection(request),
                false => Next::Elsewhere(request),
            },
        }
    }
}

/// The request after a try that got no answer, if it is tried again. It has a ticket then.
pub(crate) fn after(
    client: &Client,
    guard: &mut RequestGuard,
    failure: Failure,
) -> Result<Request<RequestBody>, Reason> {
    let request = goes_on(client, guard, failure)?;
    request.body().begin_again();
    Ok(request)
}

fn goes_on(
    client: &Client,
    guard: &mut RequestGuard,
    failure: Failure,
) -> Result<Request<RequestBody>, Reason> {
    let Failure { reason, next } = failure;
    match next {
        Next::Dispatched(request) => Ok(request),
        // This costs no budget: a request meets one such connection at most, and the next one is new.
        Next::NewConnection(request) => {
            client.worker.base.stats().stale.add(1);
            Ok(request)
        }
        Next::Refused(request) => match pays(client, guard) {
            Some(site) => {
                client.worker.sites.on_retry(site);
                Ok(request)
            }
            None => {
                guard.on_failure(reason);
                Err(reason)
            }
        },
        Next::Nothing => {
            guard.on_failure(reason);
            Err(reason)
        }
        Next::Elsewhere(_) if reason == Reason::OutOfSockets => Err(reason),
        Next::Elsewhere(request) => {
            guard.on_failure(reason);
            let ticket = elsewhere(client, guard, Retried::Failure).ok_or(reason)?;
            client.worker.sites.on_retry(ticket.site());
            dispatch(client, guard, ticket, client.worker.base.now());
            Ok(request)
        }
    }
}

/// The request's site, if its budget has paid for one more try.
fn pays(client: &Client, guard: &mut RequestGuard) -> Option<SiteId> {
    let state = guard.state()?;
    let site = state.site?;
    state.retry_denied = !client.worker.sites.may_retry(site, false);
    (!state.retry_denied).then_some(site)
}

/// Another node, if tries are left, one bears the request, and the budget allows it, which has paid for it then.
pub(super) fn elsewhere(
    client: &Client,
    guard: &mut RequestGuard,
    retried: Retried,
) -> Option<Ticket> {
    let worker = &client.worker;
    let state = guard.state()?;
    let (site, ticket) = (state.site?, state.ticket.as_ref()?);
    state.tried.push(ticket.node);
    if state.tries >= client.connection.settings.limits().tries {
        return None;
    }
    worker.base.cluster.refresh();
    let picker = &worker.base.cluster.picker;
    let now = worker.base.now();
    if !picker
        .borrow()
        .bears_retry(site, &state.tried, retried, now)
    {
        return None;
    }
    state.retry_denied = !worker.sites.may_retry(site, false);
    if state.retry_denied {
        return None;
    }
    let sticky = ticket.why.sticky;
    let picked = (picker.borrow_mut()).handle_retry(site, &state.tried, retried, now);
    let mut ticket = picked.ok()?;
    ticket.why.sticky = sticky.retried();
    Some(ticket)
}

/// Takes a request back from a node that answers nothing, and has another one picked for it, if the request
/// is repeatable, another node is up, and the budget allows it.
#[cold]
pub(crate) fn leave(client: &Client, guard: &mut RequestGuard) -> Option<Failure> {
    let worker = &client.worker;
    let state = guard.state()?;
    let (site, node) = (state.site?, state.ticket.as_ref()?.node);
    let picker = worker.base.cluster.picker.borrow();
    let stranded = (picker.topology()).is_stranded(site, node, &state.tried);
    drop(picker);
    if !stranded || state.tries >= client.connection.settings.limits().tries {
        return None;
    }
    let request = client.upstream.borrow().as_ref()?.awaited_request()?;
    state.tried.push(node);
    let ticket = away(worker, site, &state.tried, &mut state.retry_denied);
    if ticket.is_none() {
        state.tried.pop();
    }
    let (ticket, now) = (ticket?, worker.base.now());
    // The ejection was the verdict on the node; the answer that did not come is no further evidence.
    if let Some(counters) = worker.base.stats().node(node) {
        counters.on_failure(Reason::ResponseTimeout, now);
    }
    drop(client.upstream.take());
    worker.sites.on_retry(site);
    if let Some(trace) = guard.state().and_then(|state| state.trace.as_mut()) {
        trace.on_failure(Reason::ResponseTimeout, now);
    }
    dispatch(client, guard, ticket, now);
    Some(Failure::dispatched(Reason::ResponseTimeout, request))
}

/// Another node for a request that waits at the last one that it tried, if one bears it and the budget allows it.
fn away(worker: &Worker, site: SiteId, tried: &[NodeId], denied: &mut bool) -> Option<Ticket> {
    let picker = &worker.base.cluster.picker;
    let now = worker.base.now();
    if !(picker.borrow()).bears_retry(site, tried, Retried::Failure, now) {
        return None;
    }
    *denied = !worker.sites.may_retry(site, *denied);
    if *denied {
        return None;
    }
    let picked = (picker.borrow_mut()).handle_retry(site, tried, Retried::Failure, now);
    picked.ok()
}

/// Has requests that wait for nodes that answer nothing tried elsewhere. A request that the retry budget
/// denies it now is asked about again the next time.
pub(crate) fn rescue(worker: &Worker, for_each: impl FnOnce(&mut dyn FnMut(&Client))) {
    let cluster = &worker.base.cluster;
    cluster.refresh();
    let picker = cluster.picker.borrow();
    let topology = picker.topology();
    if topology.nodes.iter().any(|node| node.is_unresponsive()) {
        for_each(&mut |client| client.on_unresponsive(topology));
    }
}
