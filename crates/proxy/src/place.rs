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
    patience: Patience,
    /// It waits until it has a place again.
    returns: bool,
}

impl Place {
    pub(crate) fn new(passed: Passed, ticks: &Ticks) -> Self {
        Self {
            passed,
            patience: Patience::new(ticks.throttled_idle, ticks.throttled_bytes),
            returns: false,
        }
    }

    /// From now on the request stands still for its client.
    pub(crate) fn await_client(&mut self, tick: u64) {
        self.patience.begin(tick);
    }

    /// The client has sent or taken what there was.
    pub(crate) fn on_client(&mut self, tick: u64) {
        self.patience.end(tick);
    }

    /// So many bytes went on.
    pub(crate) fn on_bytes(&mut self, bytes: u64, tick: u64) {
        self.patience.on_bytes(bytes, tick);
    }

    /// The worker's clock looks at it.
    pub(crate) fn on_tick(&mut self, tick: u64) {
        if self.patience.is_over(tick) {
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

/// For how long a request may stand still for its client. Times are ticks.
struct Patience {
    /// Since when it stands still.
    still: Option<u64>,
    /// For how long it may from then on.
    left: u64,
    allowance: Allowance,
    idle: u64,
    bytes_per_tick: u64,
}

impl Patience {
    fn new(idle: u64, bytes_per_tick: u64) -> Self {
        Self {
            still: None,
            left: idle,
            allowance: Allowance::default(),
            idle,
            bytes_per_tick,
        }
    }

    fn begin(&mut self, tick: u64) {
        self.still.get_or_insert(tick);
    }

    fn end(&mut self, tick: u64) {
        if let Some(since) = self.still.take() {
            self.left = self.left.saturating_sub(tick.saturating_sub(since));
        }
    }

    fn on_bytes(&mut self, bytes: u64, tick: u64) {
        let still = self.still.is_some();
        self.end(tick);
        let rate = self.bytes_per_tick;
        self.left = (self.allowance).on_bytes(self.left, bytes, self.idle, rate);
        if still {
            self.begin(tick);
        }
    }

    fn is_over(&self, tick: u64) -> bool {
        let over = |since: u64| tick.saturating_sub(since) >= self.left;
        self.still.is_some_and(over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: u64 = 100;
    const RATE: u64 = 10;

    #[test]
    fn who_stands_still_is_out_of_patience_to_the_tick() {
        let mut patience = Patience::new(IDLE, RATE);
        assert!(!patience.is_over(1_000_000), "nobody waits for the client");
        patience.begin(50);
        patience.begin(120);
        assert!(!patience.is_over(149) && patience.is_over(150));
        // What the node takes in between is not the client's time.
        patience.end(90);
        assert!(!patience.is_over(1_000_000));
        patience.begin(1000);
        assert!(!patience.is_over(1059) && patience.is_over(1060));
        patience.end(5000);
        patience.begin(6000);
        assert!(patience.is_over(6000), "nothing is left");
    }

    /// When one is out of patience whose client takes so many bytes each tick.
    fn over(bytes: u64, rate: u64) -> Option<u64> {
        let mut patience = Patience::new(IDLE, rate);
        (0..100 * IDLE).find(|tick| {
            patience.begin(*tick);
            patience.on_bytes(bytes, *tick);
            patience.is_over(*tick)
        })
    }

    #[test]
    fn who_is_as_fast_as_the_rate_keeps_its_place_and_who_trickles_does_not() {
        assert_eq!(over(RATE, RATE), None);
        assert_eq!(over(100 * RATE, RATE), None);
        assert_eq!(over(0, RATE), Some(IDLE));
        let trickles = over(1, RATE).unwrap();
        assert!((IDLE..=IDLE + IDLE / 5).contains(&trickles), "{trickles}");
        assert!(over(RATE - 1, RATE).is_some());
        // Without a rate whoever moves keeps it.
        assert_eq!(over(1, 0), None);
    }

    #[test]
    fn who_was_slow_earns_its_time_again_and_no_more_than_that() {
        let mut patience = Patience::new(IDLE, RATE);
        patience.begin(0);
        assert!(patience.is_over(IDLE));
        patience.on_bytes(30 * RATE, IDLE);
        assert!(!patience.is_over(IDLE + 29) && patience.is_over(IDLE + 30));
        patience.on_bytes(u64::MAX, IDLE);
        assert!(!patience.is_over(2 * IDLE - 1) && patience.is_over(2 * IDLE));
    }
}
