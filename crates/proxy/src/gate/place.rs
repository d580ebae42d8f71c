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
//! fast as [`Limits::throttled_rate`](crate::Limits), as any body by [`Allowance`]. All requests of the class together
//! have a patience as well, which the core keeps ([`Stood`]): once it has run out, a request that stands still lends
//! its place at once. Without its place the request stands still, however fast its client has become, until it has one
//! again. So those that trickle hold a place only while their nodes have something to do.

use std::task::{Context, Poll};
use std::time::Duration;

use tidegate_core::allowance::Allowance;
use tidegate_core::throttle::Stood;

use super::throttle::Passed;
use crate::base::{TICK, Ticks};
use crate::record::reason::Reason;

/// See the module.
pub(crate) struct Place {
    passed: Passed,
    patience: Patience,
    account: Account,
    /// It waits until it has a place again.
    returns: bool,
}

impl Place {
    pub(crate) fn new(passed: Passed, ticks: &Ticks) -> Self {
        Self {
            passed,
            patience: Patience::new(ticks.throttled_idle, ticks.throttled_bytes),
            account: Account::default(),
            returns: false,
        }
    }

    /// Whether the request has a place, of which there are so many.
    pub(crate) fn is_bounded(&self) -> bool {
        self.passed.is_bounded()
    }

    /// The request ends, for this reason if it is not answered.
    pub(crate) fn end(self, reason: Option<Reason>) {
        self.passed.end(reason);
    }

    /// From now on the request stands still for its client, if that does not go on at once.
    pub(crate) fn await_client(&mut self, tick: u64) {
        self.patience.begin(tick);
    }

    /// The client does not go on: the request stands still.
    pub(crate) fn stand_still(&mut self, tick: u64) {
        self.patience.begin(tick);
        if self.passed.has_place() && !self.passed.stand_still(Stood::default()) {
            self.passed.lend();
        }
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
        let stood = self
            .account
            .stood(self.patience.spent(tick), self.passed.has_place());
        let is_patient = stood.is_none_or(|stood| self.passed.stand_still(stood));
        if self.patience.is_over(tick) || (self.patience.stands_still() && !is_patient) {
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

/// What the class knows of a request that stands still. Times are ticks.
#[derive(Default)]
struct Account {
    /// What the request had spent of its patience when it was last looked at.
    spent: u64,
    /// What it took from its class and has not made good.
    taken: u64,
}

impl Account {
    /// What the class is to know now, if anything. Without a place the request takes nothing from it.
    fn stood(&mut self, spent: u64, has_place: bool) -> Option<Stood> {
        let before = std::mem::replace(&mut self.spent, spent);
        let still = spent.saturating_sub(before);
        let made_good = before.saturating_sub(spent).min(self.taken);
        let still = if has_place { still } else { 0 };
        self.taken = self.taken + still - made_good;
        (still + made_good > 0).then(|| Stood {
            still: ticks(still),
            made_good: ticks(made_good),
        })
    }
}

fn ticks(ticks: u64) -> Duration {
    TICK.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX))
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

    fn stands_still(&self) -> bool {
        self.still.is_some()
    }

    /// What is spent of it now.
    fn spent(&self, tick: u64) -> u64 {
        let still = self.still.map_or(0, |since| tick.saturating_sub(since));
        self.idle - self.left.saturating_sub(still)
    }

    fn is_over(&self, tick: u64) -> bool {
        self.stands_still() && self.spent(tick) >= self.idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: u64 = 100;
    const RATE: u64 = 10;

    #[test]
    fn a_class_is_told_what_a_request_takes_from_it_and_makes_good_and_no_more() {
        let mut account = Account::default();
        let stood = |still, made_good| {
            Some(Stood {
                still: TICK * still,
                made_good: TICK * made_good,
            })
        };
        assert_eq!(account.stood(0, true), None);
        assert_eq!(account.stood(30, true), stood(30, 0));
        assert_eq!(account.stood(30, true), None);
        assert_eq!(account.stood(20, true), stood(0, 10));
        // What it stands still without a place is its own, and so is what it makes good of that.
        assert_eq!(account.stood(100, false), None);
        assert_eq!(account.stood(70, true), stood(0, 20));
        assert_eq!(account.stood(0, true), None);
        assert_eq!(
            account.stood(u64::MAX, true).unwrap().still,
            ticks(u64::MAX)
        );
    }

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
        // Without a rate a request that moves keeps it.
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
