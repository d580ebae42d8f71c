//! Whether a site's answers take long by inherent latency: long polls, downloads, a slow service of others. There
//! the SLO is no measure, and nothing that lies behind the servers can be protected by it.
//!
//! ```text
//! first    an own request sent to a node where hardly another own one is: it waits for no other
//! T        time of firsts in flight / firsts that ended, one at least; the last 10 s in which there were any
//! long     T >= SLO / 2, from SLO / 8 after the first of them on
//! ```
//!
//! Little's law over all requests cannot tell: in overload from the start it says how long the queue is.
//! And waiting for the answers is too late: it says something from the first milliseconds on, since
//! requests that have not ended yet count with the time that they have taken.
//!
//! Inputs: own counts of firsts, a clock, the SLO.
//!
//! Failure case: a few requests that never end, the only firsts of a site that is loaded ever after:
//! then what lies behind it is not protected, its servers still are.

use super::SLO_PART;
use super::ewma::weight;
use crate::load::Firsts;

/// Time constant of what was seen of requests at idle servers, seconds.
const IDLE_SEEN_TAU_S: f64 = 10.0;
/// Part of the SLO after which it is known.
const KNOWN_AFTER: f64 = 0.125;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct InherentLatency {
    time: f64,
    ended: f64,
    /// Firsts that ended so far, as reported.
    ended_before: u64,
    /// Since the first of them, seconds.
    since: f64,
    alone: f64,
    long: bool,
}

impl InherentLatency {
    /// A tick: its length, and firsts so far.
    pub(super) fn on_tick(&mut self, dt: f64, firsts: Firsts, slo: f64) {
        let Firsts { sent, ended } = firsts;
        let more = ended.wrapping_sub(self.ended_before);
        self.ended_before = ended;
        let present = sent.saturating_sub(ended);
        if present == 0 && more == 0 {
            return;
        }
        let kept = 1.0 - weight(dt, IDLE_SEEN_TAU_S);
        self.time = self.time * kept + present as f64 * dt;
        self.ended = self.ended * kept + more as f64;
        self.since += dt;
        if self.since >= KNOWN_AFTER * slo {
            self.alone = self.time / self.ended.max(1.0);
            self.long = self.alone >= SLO_PART * slo;
        }
    }

    /// Time and number of such requests, and since when they are seen, for the next process.
    pub(super) fn learned(&self) -> [f64; 3] {
        [self.time, self.ended, self.since]
    }

    /// As it was before; it counts once the first of them is seen again.
    pub(super) fn recall(&mut self, [time, ended, since]: [f64; 3]) {
        (self.time, self.ended, self.since) = (time, ended, since);
    }

    /// How long a request takes on the average that waits for no other, seconds; zero until it is known.
    pub(super) fn alone(&self) -> f64 {
        self.alone
    }

    /// Whether they do.
    pub(super) fn is_long(&self) -> bool {
        self.long
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLO: f64 = 0.5;

    fn firsts(in_flight: u64, ended: u64) -> Firsts {
        let sent = in_flight + ended;
        Firsts { sent, ended }
    }

    /// Sixteen requests at once, each of which takes so many milliseconds, and is followed by another;
    /// the first millisecond at which they are known to be long.
    fn known_at(takes: u64, millis: u64) -> Option<u64> {
        let mut latency = InherentLatency::default();
        (1..millis).find(|ms| {
            let ended = 16 * (ms / takes);
            latency.on_tick(0.001, firsts(16, ended), SLO);
            latency.is_long()
        })
    }

    #[test]
    fn long_ones_are_known_long_before_they_end() {
        assert_eq!(known_at(5000, 10_000), Some(63));
        assert_eq!(known_at(400, 10_000), Some(63));
        assert_eq!(known_at(40, 10_000), None);
    }

    #[test]
    fn one_that_waits_for_nobody_takes_what_it_takes() {
        let mut latency = InherentLatency::default();
        (1..10_000).for_each(|ms| latency.on_tick(0.001, firsts(1, ms / 40), SLO));
        let alone = latency.alone();
        assert!((alone / 0.04 - 1.0).abs() < 0.05, "{alone}");
    }

    #[test]
    fn a_site_can_become_fast_and_slow() {
        let mut latency = InherentLatency::default();
        let mut ended = 0;
        let mut run = |takes: u64, millis: u64| {
            for ms in 0..millis {
                ended += u64::from(ms % takes == 0);
                latency.on_tick(0.001, firsts(1, ended), SLO);
            }
            latency.is_long()
        };
        assert!(!run(20, 5000));
        assert!(run(2000, 60_000));
        assert!(!run(20, 5000));
    }

    #[test]
    fn without_any_what_was_known_stays() {
        let mut latency = InherentLatency::default();
        (0..1000).for_each(|_| latency.on_tick(0.001, firsts(5, 0), SLO));
        assert!(latency.is_long());
        (0..100_000).for_each(|_| latency.on_tick(0.001, firsts(0, 5), SLO));
        assert!(latency.is_long());
    }
}
