//! `gradient2`: a limit of own requests in flight at the site, by the gradient of a mean latency of
//! long to the latest one.
//!
//! ```text
//! long  = mean latency over about 600 samples; the plain mean of the first ten
//! long  = 0.95 long                            if it is more than twice the latest
//! g     = clamp(1.5 long / latest, 0.5, 1)
//! L     = 0.8 L + 0.2 (g L + 4)                within 20 to 200; not if n < L / 2
//! room    n < L, rounded down
//! ```
//!
//! Inputs: n, own requests in flight at the site; latencies, those of failures too.
//!
//! Failure case: n is never held below 20, which is too much for many front-ends (study: 98 % of the
//! capacity with one, 16 % with sixteen, nothing with 64). In lasting overload the mean of long
//! learns the overload and the limit creeps up.
//!
//! Source: Netflix's concurrency-limits, Gradient2Limit with its defaults, a sample at a time. There
//! n is counted when the sample's request began, here when the last one did.

use super::{
    Admission, AdmissionVerdict, InFlightAtLast, Limits, Priority, Prng, Sample, Timestamp, View,
    of_site, seconds,
};

const LIMIT_MIN: f64 = 20.0;
const LIMIT_MAX: f64 = 200.0;
const TOLERANCE: f64 = 1.5;
const SMOOTHING: f64 = 0.2;
/// The limit grows by so much while nothing gets slower.
const QUEUE: f64 = 4.0;
/// Samples of the mean, and those of which it is the plain one.
const WINDOW: f64 = 600.0;
const WARM_UP: u32 = 10;
/// A mean that is so many times the latest falls faster.
const DRIFT: f64 = 2.0;
const DRIFT_DECAY: f64 = 0.95;

/// See the module.
#[derive(Debug)]
pub(crate) struct Gradient2 {
    limit: f64,
    long: f64,
    samples: u32,
    at_last: InFlightAtLast,
}

impl Default for Gradient2 {
    fn default() -> Self {
        Self {
            limit: LIMIT_MIN,
            long: 0.0,
            samples: 0,
            at_last: InFlightAtLast::default(),
        }
    }
}

impl Gradient2 {
    /// Adds a latency to the mean of long.
    fn add(&mut self, latency: f64) {
        let weight = match self.samples < WARM_UP {
            true => {
                self.samples += 1;
                1.0 / f64::from(self.samples)
            }
            false => 2.0 / (WINDOW + 1.0),
        };
        self.long += (latency - self.long) * weight;
    }
}

impl Admission for Gradient2 {
    fn on_request(&mut self, view: &View<'_>, _: Priority, _: &mut Prng) -> AdmissionVerdict {
        self.at_last.admit_below(self.limit, view)
    }

    fn on_sample(&mut self, sample: &Sample, _: Timestamp, _: &mut Prng) {
        let latest = seconds(sample);
        self.add(latest);
        let long = self.long;
        if long > DRIFT * latest {
            self.long *= DRIFT_DECAY;
        }
        if self.at_last.is_below_half_of(self.limit) {
            return;
        }
        let gradient = (TOLERANCE * long / latest).clamp(0.5, 1.0);
        let wanted = gradient * self.limit + QUEUE;
        self.limit += (wanted - self.limit) * SMOOTHING;
        self.limit = self.limit.clamp(LIMIT_MIN, LIMIT_MAX);
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

    fn sample(limit: &mut Gradient2, millis: u64) {
        let sample = Sample {
            node: NodeId(0),
            in_flight: 1,
            latency: Duration::from_millis(millis),
            success: true,
        };
        limit.on_sample(&sample, Timestamp::ZERO, &mut Prng::new(1));
    }

    #[test]
    fn it_grows_while_latencies_stay_and_halves_its_way_when_they_double_and_more() {
        let mut limit = Gradient2 {
            at_last: InFlightAtLast(200),
            ..Gradient2::default()
        };
        sample(&mut limit, 10);
        assert!((limit.limit - 20.8).abs() < 1e-9, "0.8 L + 0.2 (L + 4)");
        (0..2000).for_each(|_| sample(&mut limit, 10));
        assert_eq!(limit.limit, 200.0);
        assert!((limit.long - 0.01).abs() < 1e-9);
        // 600 samples of mean hardly notice one: 0.8 L + 0.2 (L / 2 + 4).
        sample(&mut limit, 100);
        assert!((limit.limit - 180.8).abs() < 1e-9, "{}", limit.limit);
        // Fifteen milliseconds are within the tolerance.
        let before = limit.limit;
        sample(&mut limit, 15);
        assert!(limit.limit > before);
    }

    #[test]
    fn nothing_is_learned_of_a_limit_that_does_not_bind() {
        let mut limit = Gradient2 {
            at_last: InFlightAtLast(9),
            ..Gradient2::default()
        };
        (0..100).for_each(|_| sample(&mut limit, 10));
        assert_eq!(limit.limit, 20.0);
    }

    #[test]
    fn a_long_overload_is_forgotten_faster_than_it_was_learned() {
        let mut limit = Gradient2::default();
        (0..3000).for_each(|_| sample(&mut limit, 1000));
        let mut samples = 0;
        while limit.long > 0.021 {
            sample(&mut limit, 10);
            samples += 1;
        }
        assert!(samples < 100, "{samples} samples");
    }
}
