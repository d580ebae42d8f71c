//! `envoy_admission_control`: requests are refused at random, the more the fewer of those that were let
//! in succeed.
//!
//! ```text
//! n, s    requests that ended in the last 30 s, and those of them that succeeded: that were
//!         answered, in time for the front-end's own time-outs, without a server error
//! P     = ((n - s / 0.95) / (n + 1)) ^ (1 / 1), 0 to 0.8
//! ```
//!
//! Inputs: how own requests end; a clock; chance.
//!
//! Failure case: a server that is slow fails nothing until time-outs are over; so far everything is
//! let in, and by then no answer is of use (study: 0 to 1 % of the capacity at any overload, also 30 s
//! later). More than 80 % are never refused, and what is over is remembered for 30 s.
//!
//! Source: Envoy's admission control filter with its defaults, which is the throttling by clients of
//! "Site Reliability Engineering", chapter 21. Its least rate, below which it lets everything in, is zero
//! by default and is not here.

use super::{Admission, AdmissionVerdict, Priority, Prng, Sample, Timestamp, View, admit_if};

/// The window, in seconds, each of which is counted apart.
const SECONDS: usize = 30;
/// No request is refused while this part succeeds.
const THRESHOLD: f64 = 0.95;
const AGGRESSION: f64 = 1.0;
const REFUSED_MAX: f64 = 0.8;

/// Requests that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct EndedInSecond {
    all: u64,
    successes: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct EnvoyAdmissionControl {
    seconds: [EndedInSecond; SECONDS],
    /// The second of the clock that the window ends with.
    last: u64,
    sum: EndedInSecond,
}

impl EnvoyAdmissionControl {
    /// Forgets what is older than the window.
    fn forget(&mut self, now: Timestamp) {
        let second = now.nanos() / 1_000_000_000;
        let gone = second.saturating_sub(self.last).min(SECONDS as u64);
        for number in 1..=gone {
            let old = &mut self.seconds[((self.last + number) % SECONDS as u64) as usize];
            self.sum.all -= old.all;
            self.sum.successes -= old.successes;
            *old = EndedInSecond::default();
        }
        self.last = self.last.max(second);
    }

    /// The chance of a request to be refused.
    fn refused(&self) -> f64 {
        let (all, successes) = (self.sum.all as f64, self.sum.successes as f64);
        let failing = (all - successes / THRESHOLD) / (all + 1.0);
        failing.max(0.0).powf(1.0 / AGGRESSION).min(REFUSED_MAX)
    }
}

impl Admission for EnvoyAdmissionControl {
    fn on_request(&mut self, view: &View<'_>, _: Priority, prng: &mut Prng) -> AdmissionVerdict {
        self.forget(view.now);
        let refused = self.refused();
        admit_if(refused == 0.0 || prng.unit() >= refused)
    }

    fn refuses_all(&self) -> bool {
        false
    }

    fn on_sample(&mut self, sample: &Sample, now: Timestamp, _: &mut Prng) {
        self.forget(now);
        let success = u64::from(sample.success);
        let here = &mut self.seconds[(self.last % SECONDS as u64) as usize];
        for ended in [here, &mut self.sum] {
            ended.all += 1;
            ended.successes += success;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ids::NodeId;

    fn ended(it: &mut EnvoyAdmissionControl, second: u64, successes: u32, failures: u32) {
        let now = Timestamp::from_millis(second * 1000 + 500);
        for number in 0..successes + failures {
            let sample = Sample {
                node: NodeId(0),
                in_flight: 1,
                latency: Duration::from_millis(10),
                success: number < successes,
            };
            it.on_sample(&sample, now, &mut Prng::new(1));
        }
    }

    #[test]
    fn the_chance_is_that_of_the_formula() {
        let mut it = EnvoyAdmissionControl::default();
        assert_eq!(it.refused(), 0.0);
        ended(&mut it, 1, 95, 5);
        assert!(it.refused() < 1e-12, "as many as may fail");
        ended(&mut it, 2, 0, 100);
        let wanted = (200.0 - 95.0 / 0.95) / 201.0;
        assert!((it.refused() - wanted).abs() < 1e-12);
        ended(&mut it, 3, 0, 100_000);
        assert_eq!(it.refused(), 0.8, "no more than that");
    }

    #[test]
    fn what_is_older_than_thirty_seconds_is_forgotten() {
        let mut it = EnvoyAdmissionControl::default();
        ended(&mut it, 100, 0, 10);
        ended(&mut it, 110, 10, 0);
        it.forget(Timestamp::from_millis(129_999));
        assert_eq!((it.sum.all, it.sum.successes), (20, 10));
        it.forget(Timestamp::from_millis(130_000));
        assert_eq!((it.sum.all, it.sum.successes), (10, 10));
        // A clock that goes backwards forgets nothing, one that leaps all.
        it.forget(Timestamp::ZERO);
        assert_eq!(it.sum.all, 10);
        it.forget(Timestamp::from_nanos(u64::MAX));
        assert_eq!(it.sum, EndedInSecond::default());
    }
}
