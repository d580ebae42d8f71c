//! The place of a request among those of its throttled class that are in flight: how long its client may keep it
//! waiting there, before it lends its place to the next.
//!
//! ```text
//!        client keeps it waiting for too long          node is to do more for it
//! has ────────────────────────────────────────> lent ────────────────────────────> returns ──> has
//! ```
//!
//! Time counts while the request stands still for its client: a body that the client does not send, or an answer that
//! it does not read. It may stand still for [`Timeouts::throttled_idle`](crate::Timeouts) and must otherwise be as
//! fast as [`Limits::throttled_rate`](crate::Limits), as any body by [`Allowance`]. Without its place the request
//! stands still, however fast its client has become, until it has one again. So those that trickle hold a place only
//! while their nodes have something to do.

use std::task::{Context, Poll};

use tidegate_core::allowance::Allowance;

use crate::throttling::Passed;
use crate::worker::Ticks;

/// See the module.
pub(crate) struct Place {
    passed: Passed,
    /// Since when the request stands still for its client.
    still: Option<u64>,
    /// For how long it still may.
    left: u64,
    allowance: Allowance,
    /// It waits until it has a place again.
    returns: bool,
}

impl Place {
    pub(crate) fn new(passed: Passed, ticks: &Ticks) -> Self {
        Self {
            passed,
            still: None,
            left: ticks.throttled_idle,
            allowance: Allowance::default(),
            returns: false,
        }
    }

    /// From now on the request stands still for its client.
    pub(crate) fn await_client(&mut self, tick: u64) {
        self.still.get_or_insert(tick);
    }

    /// The client has sent or taken what there was.
    pub(crate) fn on_client(&mut self, tick: u64) {
        if let Some(since) = self.still.take() {
            self.left = self.left.saturating_sub(tick.saturating_sub(since));
        }
    }

    /// So many bytes went on.
    pub(crate) fn on_bytes(&mut self, bytes: u64, tick: u64, ticks: &Ticks) {
        let still = self.still.is_some();
        self.on_client(tick);
        let (idle, rate) = (ticks.throttled_idle, ticks.throttled_bytes);
        self.left = self.allowance.on_bytes(self.left, bytes, idle, rate);
        if still {
            self.await_client(tick);
        }
    }

    /// The worker's clock looks at it.
    pub(crate) fn on_tick(&mut self, tick: u64) {
        let over = |since: u64| tick.saturating_sub(since) >= self.left;
        if self.still.is_some_and(over) {
            self.passed.lend();
        }
    }

    /// Waits until it has a place, if it has lent it; whether it had to wait.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let polled = self.passed.poll_return(context);
        let waited = std::mem::replace(&mut self.returns, polled.is_pending());
        polled.map(|()| waited)
    }
}
