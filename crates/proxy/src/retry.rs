//! What is tried again after a try that got no answer, where, and at whose expense.
//!
//! | what happened | tried again |
//! |---|---|
//! | no connection | at another node: nothing was sent |
//! | the request came back unsent from a pooled connection | at the same node, on a new connection, and free of charge: the node had merely closed an idle connection |
//! | a pooled connection broke before the first byte of an answer | the same, if the request is repeatable; an upgrade too |
//! | a new connection broke before the first byte of an answer | at another node, if the request is repeatable |
//! | the node was ejected because it answers nothing, not even probes | at another node that is up, if the request is repeatable and not a byte of an answer has come |
//! | anything else, and every time-out of an answer | never |
//!
//! Repeatable is a request whose method is idempotent and that has no body: a body has gone to the node and
//! is not kept. All but the free retry are within the limit on tries and the site's retry budget. A request
//! that waits at an ejected node and is denied a retry stays there and asks again while it waits: the budget
//! fills again, or the node comes back and answers.

use http::{Method, Request};
use tidegate_core::retry_budget::RetryBudget;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::SiteId;

use crate::body::RequestBody;
use crate::config::ProxyConfig;
use crate::exchange::Live;
use crate::forward::dispatch;
use crate::reason::Reason;
use crate::session::Session;
use crate::site::SiteConfig;
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

    /// The node is to blame, and another one may have the request.
    pub(crate) fn of_node(reason: Reason, request: Request<RequestBody>) -> Self {
        Self {
            reason,
            next: Next::Elsewhere(request),
        }
    }

    /// The connection had broken; a pooled one may have long before.
    pub(crate) fn of_connection(request: Request<RequestBody>, pooled: bool) -> Self {
        Self {
            reason: Reason::Reset,
            next: match pooled {
                true => Next::NewConnection(request),
                false => Next::Elsewhere(request),
            },
        }
    }
}

pub(crate) fn is_idempotent(method: &Method) -> bool {
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

/// The request after a try that got no answer, if it is tried again. It has a ticket then.
pub(crate) fn after(
    session: &Session,
    live: &mut Live,
    failure: Failure,
) -> Result<Request<RequestBody>, Reason> {
    let Failure { reason, next } = failure;
    match next {
        Next::Dispatched(request) => Ok(request),
        // This costs no budget: a request meets one such connection at most, and the next one is new.
        Next::NewConnection(request) => {
            session.worker.stats().stale.add(1);
            Ok(request)
        }
        Next::Nothing => {
            live.on_failure(reason);
            Err(reason)
        }
        Next::Elsewhere(_) if reason == Reason::OutOfSockets => Err(reason),
        Next::Elsewhere(request) => {
            live.on_failure(reason);
            elsewhere(&session.worker, live, reason)?;
            Ok(request)
        }
    }
}

/// Another node, if there is one and the budget allows it.
fn elsewhere(worker: &Worker, live: &mut Live, reason: Reason) -> Result<(), Reason> {
    let exchange = live.exchange().ok_or(reason)?;
    let (Some(site), Some(ticket)) = (exchange.site, &exchange.ticket) else {
        return Err(reason);
    };
    exchange.tried.push(ticket.node);
    if exchange.tries >= worker.config.limits.tries {
        return Err(reason);
    }
    worker.refresh();
    if !worker.has_others(site, &exchange.tried) {
        return Err(reason);
    }
    exchange.retry_denied = !worker.may_retry(site, false);
    if exchange.retry_denied {
        return Err(reason);
    }
    let now = worker.now();
    let retried = (worker.picker.borrow_mut()).handle_retry(site, &exchange.tried, now);
    let ticket = retried.map_err(|_| reason)?;
    worker.on_retry(site);
    dispatch(worker, live, ticket, now);
    Ok(())
}

/// Takes a request back from a node that answers nothing, and has another one picked for it, if the request
/// is repeatable, another node is up, and the budget allows it.
#[cold]
pub(crate) fn leave(session: &Session, live: &mut Live) -> Option<Failure> {
    let worker = &session.worker;
    let exchange = live.exchange()?;
    let (site, node) = (exchange.site?, exchange.ticket.as_ref()?.node);
    let picker = worker.picker.borrow();
    let stranded = (picker.topology()).is_stranded(site, node, &exchange.tried);
    drop(picker);
    if !stranded || exchange.tries >= worker.config.limits.tries {
        return None;
    }
    let request = session.upstream.borrow().as_ref()?.awaited_request()?;
    exchange.retry_denied = !worker.may_retry(site, exchange.retry_denied);
    if exchange.retry_denied {
        return None;
    }
    exchange.tried.push(node);
    let now = worker.now();
    let retried = (worker.picker.borrow_mut()).handle_retry(site, &exchange.tried, now);
    let ticket = retried.ok()?;
    // The ejection was the verdict on the node; the answer that did not come is no further evidence.
    if let Some(counters) = worker.stats().node(node) {
        counters.on_failure(Reason::ResponseTimeout, now);
    }
    drop(session.upstream.take());
    worker.on_retry(site);
    dispatch(worker, live, ticket, now);
    Some(Failure {
        reason: Reason::ResponseTimeout,
        next: Next::Dispatched(request),
    })
}

/// Of each site: how many of its requests may be tried again here.
pub(crate) struct Budgets(Box<[RetryBudget]>);

impl Budgets {
    /// Each site's budget, of which a worker has its part.
    pub(crate) fn new(config: &ProxyConfig, now: Timestamp) -> Self {
        let budget = |site: &SiteConfig| {
            let part = site.retry.share(config.workers);
            RetryBudget::new(part, now)
        };
        Self(config.sites.iter().map(budget).collect())
    }
}

impl Worker {
    /// A request of the site has come: it pays for retries.
    pub(crate) fn pay_for_retries(&self, site: SiteId) {
        if let Some(budget) = self.budgets.borrow_mut().0.get_mut(site.index()) {
            budget.on_request();
        }
    }

    /// Whether a request of the site may be tried again; if so, it is paid for. A request that `was_denied`
    /// one before is not counted again.
    fn may_retry(&self, site: SiteId, was_denied: bool) -> bool {
        let mut budgets = self.budgets.borrow_mut();
        let budget = budgets.0.get_mut(site.index());
        let may = budget.is_some_and(|budget| budget.try_take(self.now()));
        if !may && !was_denied {
            let stats = self.stats();
            stats.retries_denied.add(1);
            if let Some(site) = stats.site(site) {
                site.retries_denied.add(1);
            }
        }
        may
    }

    /// A request of the site is tried again.
    fn on_retry(&self, site: SiteId) {
        let stats = self.stats();
        stats.retries.add(1);
        if let Some(site) = stats.site(site) {
            site.retries.add(1);
        }
    }

    /// Has requests that wait for nodes that answer nothing tried elsewhere. A request that the retry budget
    /// denies it now is asked about again the next time.
    pub(crate) fn rescue(&self) {
        self.refresh();
        let picker = self.picker.borrow();
        let topology = picker.topology();
        if topology.nodes.iter().any(|node| node.is_unresponsive()) {
            self.for_each_session(|session| session.on_unresponsive(topology));
        }
    }
}
