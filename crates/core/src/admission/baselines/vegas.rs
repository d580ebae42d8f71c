//! `vegas`: a limit of own requests in flight at the site, by the queue that a latency over the least
//! one tells of.
//!
//! ```text
//! base  = least latency; anew from one sample each 15 to 30 L samples, at random
//! q     = L (1 - base / latency), rounded up     requests that wait somewhere
//! s     = max(1, log10 L rounded down)
//! L     + 6 s if q <= s;  + s if q < 3 s;  - s if q > 6 s or the request failed
//!                                                within 1 to 1000; not if n < L / 2
//! room    n < L, rounded down
//! ```
//!
//! Inputs: n, own requests in flight at the site; latencies; failures.
//!
//! Failure case: the least of latencies that differ by themselves is no base: with one front-end the
//! limit ends far below what servers can use (study: 21 % of the capacity), and a base that is taken
//! in overload hides it.
//!
//! Source: Netflix's concurrency-limits, VegasLimit with its defaults; Vegas-1995. There n is counted when the sample's request began, here when the last
//! one did.

use super::{
    Admission, AdmissionVerdict, InFlightAtLast, Limits, Priority, Prng, Sample, Timestamp, View,
    of_site, seconds,
};

const LIMIT_FIRST: f64 = 20.0;
const LIMIT_MIN: f64 = 1.0;
const LIMIT_MAX: f64 = 1000.0;
/// In steps: no queue; one that may grow; one that may not.
const ALPHA: f64 = 3.0;
const BETA: f64 = 6.0;
/// Samples between two bases, over the limit, at most; half of it at least.
const PROBE: f64 = 30.0;

/// See the module.
#[derive(Debug)]
pub(crate) struct Vegas {
    limit: f64,
    base: Option<f64>,
    samples: u32,
    /// The base is taken anew after so many samples, over the limit; nothing: not drawn yet.
    probe: Option<f64>,
    at_last: InFlightAtLast,
}

impl Default for Vegas {
    fn default() -> Self {
        Self {
            limit: LIMIT_FIRST,
            base: None,
            samples: 0,
            probe: None,
            at_last: InFlightAtLast::default(),
        }
    }
}

impl Vegas {
    /// Whether this sample is the next base, whatever it is.
    fn is_probe(&mut self, prng: &mut Prng) -> bool {
        self.samples = self.samples.saturating_add(1);
        let mut draw = || PROBE * (0.5 + 0.5 * prng.unit());
        let probe = *self.probe.get_or_insert_with(&mut draw);
        let due = f64::from(self.samples) >= probe * self.limit;
        if due {
            self.probe = Some(draw());
            self.samples = 0;
        }
        due
    }

    fn adapt(&mut self, waiting: f64, success: bool) {
        let step = self.limit.log10().floor().max(1.0);
        let change = if !success {
            -step
        } else if self.at_last.is_below_half_of(self.limit) {
            0.0
        } else if waiting <= step {
            BETA * step
        } else if waiting < ALPHA * step {
            step
        } else if waiting > BETA * step {
            -step
        } else {
            0.0
        };
        self.limit = (self.limit + change).clamp(LIMIT_MIN, LIMIT_MAX);
    }
}

impl Admission for Vegas {
    fn on_request(&mut self, view: &View<'_>, _: Priority, _: &mut Prng) -> AdmissionVerdict {
        self.at_last.admit_below(self.limit, view)
    }

    fn on_sample(&mut self, sample: &Sample, _: Timestamp, prng: &mut Prng) {
        let latency = seconds(sample);
        let probe = self.is_probe(prng);
        match self.base {
            Some(base) if latency >= base && !probe => {
                let waiting = (self.limit * (1.0 - base / latency)).ceil();
                self.adapt(waiting, sample.success);
            }
            Some(_) | None => self.base = Some(latency),
        }
    }

    fn limits(&self) -> Limits {
        of_site(self.limit.floor())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ids::NodeId;

    fn sample(limit: &mut Vegas, millis: u64, success: bool) {
        let sample = Sample {
            node: NodeId(0),
            in_flight: 1,
            latency: Duration::from_millis(millis),
            success,
        };
        limit.on_sample(&sample, Timestamp::ZERO, &mut Prng::new(1));
    }

    #[test]
    fn it_follows_the_queue_between_its_bounds() {
        let mut limit = Vegas {
            at_last: InFlightAtLast(1000),
            ..Vegas::default()
        };
        sample(&mut limit, 10, true);
        assert_eq!((limit.base, limit.limit), (Some(0.01), 20.0));
        let mut after = |millis, success| {
            sample(&mut limit, millis, success);
            limit.limit
        };
        assert_eq!(after(10, true), 26.0, "nobody waits");
        assert_eq!(after(11, true), 26.0, "three of 26 wait: neither");
        assert_eq!(after(16, true), 25.0, "ten of 26 wait");
        assert_eq!(after(10, false), 24.0, "a failure");
        // From a hundred on steps are of two.
        (0..15).for_each(|_| {
            after(10, true);
        });
        assert_eq!(after(1000, true), 124.0);
    }

    #[test]
    fn a_limit_that_does_not_bind_only_falls() {
        let mut limit = Vegas {
            at_last: InFlightAtLast(9),
            ..Vegas::default()
        };
        (0..100).for_each(|_| sample(&mut limit, 10, true));
        assert_eq!(limit.limit, 20.0);
        (0..100).for_each(|_| sample(&mut limit, 10, false));
        assert_eq!(limit.limit, 1.0);
    }

    #[test]
    fn the_base_is_taken_anew() {
        let mut limit = Vegas::default();
        sample(&mut limit, 10, true);
        let mut samples = 1;
        while limit.base == Some(0.01) {
            sample(&mut limit, 20, true);
            samples += 1;
        }
        assert_eq!(limit.base, Some(0.02));
        assert!((300..=600).contains(&samples), "{samples}: 15 to 30 of 20");
    }
}
