//! For how long requests of a class may stand still for their clients while they hold places, all together.
//!
//! ```text
//! lost      time that requests stood still at their places and have not made good;
//!           falls by N / 8 in each second, as an eighth of all places may be lost for good
//! patience  lost < N * idle
//! ```
//!
//! One request may stand still for `idle` by itself, before it lends its place to the next: short pauses of honest
//! clients need no turn each. That is a time per request, so a crowd of silent clients would hold up those that come
//! behind them by so much each. So the class has a patience too: all N places once for `idle`. When it has run out, a
//! request that stands still lends its place at once, and costs the others nothing but the work that its node does
//! for it. A client that goes on as fast as it must makes good what it took.
//!
//! Inputs: time that requests stood still or made good, a clock. Failure case: many honest clients that are slower than
//! `throttled_rate`; then all requests lend their places at each pause, and wait for one again behind those that
//! do something.
//!
//! Source: the token bucket of [`Rate`](super::rate::Rate), with places' time in place of requests.

use std::time::Duration;

use crate::time::Timestamp;

/// One of so many places may be lost for good.
const SHARE: u32 = 8;

/// What a request did to the patience of its class since it was last reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stood {
    /// It stood still at its place for so long.
    pub still: Duration,
    /// It made good so much of what it had stood still before.
    pub made_good: Duration,
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stillness {
    lost: Duration,
    at: Timestamp,
}

impl Stillness {
    /// None has stood still yet.
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            lost: Duration::ZERO,
            at: now,
        }
    }

    /// A request of a class with this limit stood still; one may do so for `idle`. Whether it may go on.
    pub(super) fn on_still(
        &mut self,
        stood: Stood,
        idle: Duration,
        limit: Option<u32>,
        now: Timestamp,
    ) -> bool {
        let Some(limit) = limit else { return true };
        let patience = idle.saturating_mul(limit);
        let forgiven = (now.since(self.at) / SHARE).saturating_mul(limit);
        let lost = (self.lost.saturating_sub(forgiven)).saturating_add(stood.still);
        // A lower limit comes with no more than it can forgive soon.
        let most = patience.saturating_mul(2);
        self.lost = lost.saturating_sub(stood.made_good).min(most);
        self.at = self.at.max(now);
        self.lost < patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(2);
    const TICK: u64 = 20;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn still(millis: u64) -> Stood {
        Stood {
            still: Duration::from_millis(millis),
            made_good: Duration::ZERO,
        }
    }

    fn made_good(millis: u64) -> Stood {
        Stood {
            still: Duration::ZERO,
            made_good: Duration::from_millis(millis),
        }
    }

    /// When there is a place for one that comes behind so many clients that never read, at `limit` places. Their nodes
    /// work for `work` on each, and places are looked at each tick.
    fn delay(clients: u64, limit: u32, work: u64) -> Duration {
        let mut stillness = Stillness::new(at(0));
        let mut now = 0;
        let mut left = clients;
        // What each place has, in milliseconds: work that is left, and how long it has stood still.
        let mut places: Vec<Option<(u64, u64)>> = vec![None; limit as usize];
        while left > 0 || places.iter().all(Option::is_some) {
            for place in &mut places {
                if place.is_none() && left > 0 {
                    left -= 1;
                    *place = Some((work, 0));
                }
                let Some((work, stood)) = place else { continue };
                if *work > 0 {
                    *work = work.saturating_sub(TICK);
                    continue;
                }
                let stands = still(if *stood == 0 { 0 } else { TICK });
                let patient = stillness.on_still(stands, IDLE, Some(limit), at(now));
                *stood += TICK;
                if !patient || *stood > IDLE.as_millis() as u64 {
                    *place = None;
                }
            }
            now += TICK;
        }
        Duration::from_millis(now)
    }

    #[test]
    fn silent_clients_hold_up_the_next_for_once_however_many_they_are() {
        for limit in [1, 2, 8] {
            for clients in [1, 10, 100, 1000] {
                let work = 100;
                let own = Duration::from_millis(clients * (work + 2 * TICK) / u64::from(limit));
                let delay = delay(clients, limit, work);
                // With a patience for each of them alone it is 2.1 s * clients / limit.
                let bound = IDLE + own * SHARE / (SHARE - 1) + Duration::from_millis(200);
                assert!(delay <= bound, "{limit} {clients}: {delay:?} > {bound:?}");
            }
        }
    }

    #[test]
    fn a_class_is_patient_until_its_places_were_lost_for_once() {
        let mut stillness = Stillness::new(at(0));
        let mut on_still = |stood, now| stillness.on_still(stood, IDLE, Some(2), at(now));
        assert!(on_still(still(3999), 0));
        assert!(!on_still(still(1), 0));
        // A quarter of a second's worth comes back each second: an eighth of two places.
        assert!(!on_still(Stood::default(), 0));
        assert!(on_still(Stood::default(), 4));
        assert!(!on_still(still(1000), 4));
        assert!(!on_still(Stood::default(), 4000));
        assert!(on_still(Stood::default(), 4008));
    }

    #[test]
    fn who_goes_on_makes_good_what_it_took() {
        let mut stillness = Stillness::new(at(0));
        for _ in 0..1000 {
            assert!(stillness.on_still(still(1500), IDLE, Some(1), at(0)));
            assert!(stillness.on_still(made_good(1500), IDLE, Some(1), at(0)));
        }
        // Nothing is saved up.
        assert!(stillness.on_still(made_good(10_000), IDLE, Some(1), at(0)));
        assert!(!stillness.on_still(still(2000), IDLE, Some(1), at(0)));
    }

    #[test]
    fn without_places_there_is_nothing_to_lose_and_a_lower_limit_is_forgiven_soon() {
        let mut stillness = Stillness::new(at(0));
        assert!(stillness.on_still(still(u64::MAX / 1000), IDLE, None, at(0)));
        assert!(stillness.on_still(still(100_000), IDLE, Some(100), at(0)));
        assert!(!stillness.on_still(Stood::default(), IDLE, Some(1), at(0)));
        assert!(stillness.on_still(Stood::default(), IDLE, Some(1), at(16_100)));
    }
}
