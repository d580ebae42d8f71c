//! A bound on own requests at a server that tells nothing: from own counts alone.
//!
//! ```text
//! L     a tenth more in the time of a request, while it binds
//! cap   where service takes twice what it takes unloaded: as for a site ([`super::downstream`])
//! ```
//!
//! All own requests in flight count as at work: nothing shows which of them wait. The law finds by
//! probe phases what a request takes at its fastest, and holds the server to twice that.
//!
//! Failure case: many front-ends, each with a request or two at a server, cannot tell its queue
//! from their own; then answers come late (study: 89 % of the capacity with 64 front-ends).
//!
//! Source: the admission study, "Fallback"; there with probe phases at a half, which do not find a base once
//! it is lost (every base is nearly a fixed point).

use super::downstream::{Downstream, SiteSeen};
use crate::time::Timestamp;

/// Growth of the limit in the time of a request, as a part of it.
const LIMIT_GROWTH: f64 = 0.1;
/// What that time is taken to be at least, seconds.
const REQUEST_MIN: f64 = 0.01;
/// Least limit.
const LIMIT_MIN: f64 = 2.0;
/// Until anything is known, for all front-ends together.
const LIMIT_FIRST: f64 = 32.0;

/// What a tick shows of own requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnSeen {
    /// Its length, seconds.
    pub(super) dt: f64,
    pub(super) in_flight: f64,
    /// Those that ended in it.
    pub(super) ended: f64,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct OwnLatency {
    limit: f64,
    cap: Option<f64>,
    law: Downstream,
}

impl OwnLatency {
    /// One of which nothing is known, for a front-end with this share.
    pub(super) fn new(share: f64) -> Self {
        Self::from_limit(LIMIT_FIRST * share)
    }

    /// One that goes on from what was allowed before.
    pub(super) fn from_limit(limit: f64) -> Self {
        Self {
            limit: limit.max(LIMIT_MIN),
            cap: None,
            law: Downstream::default(),
        }
    }

    /// The bound.
    pub(super) fn limit(&self) -> f64 {
        let cap = self.cap.unwrap_or(f64::INFINITY);
        self.limit.min(cap).max(LIMIT_MIN)
    }

    /// Takes in a tick; whether the limit binds.
    pub(super) fn on_tick(&mut self, own: &OwnSeen, binds: bool, slo: f64, now: Timestamp) {
        let OwnSeen {
            dt,
            in_flight,
            ended,
        } = *own;
        let seen = SiteSeen {
            slowdown: None,
            mix: None,
            dt,
            in_flight,
            throttled: 0.0,
            useful: in_flight,
            ended,
            utilization: 0.0,
            binds,
            limits: self.limit,
            slo,
            inherently_long: false,
            alone: 0.0,
            together: false,
        };
        self.cap = self.law.on_tick(&seen, now);
        match self.cap {
            // It goes on from here when it is let go.
            Some(cap) if !self.law.state().1 => self.limit = cap.max(LIMIT_MIN),
            Some(_) => {}
            None if binds => {
                let request = self.law.residence().max(REQUEST_MIN);
                self.limit += f64::max(1.0, LIMIT_GROWTH * self.limit) * dt / request;
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_silent_server_of_four_cpus_gets_little_more_than_it_can_do_at_once() {
        // Known at half of its capacity for two seconds, or met in overload.
        for calm in [2000, 0] {
            let mut law = OwnLatency::new(1.0);
            let mut now = Timestamp::from_millis(1000);
            let (cpus, service, dt) = (4.0, 0.01, 0.001);
            let mut in_flight: f64 = 0.0;
            for millis in 0..20_000 {
                now = now + Duration::from_millis(1);
                let ended = (in_flight.min(cpus) / service * dt).min(in_flight);
                in_flight -= ended;
                let offered = if millis < calm { 200.0 } else { 800.0 };
                let wanted = in_flight + offered * dt;
                let binds = wanted > law.limit();
                in_flight = wanted.min(law.limit().max(in_flight));
                let own = OwnSeen {
                    dt,
                    in_flight,
                    ended,
                };
                law.on_tick(&own, binds, 0.5, now);
            }
            assert!((4.0..14.0).contains(&law.limit), "{calm}: {}", law.limit);
        }
    }
}
