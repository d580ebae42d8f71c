//! `envoy_adaptive_concurrency`: a limit of own requests in flight at the site, by the gradient of a
//! latency that is measured with next to nothing in flight to the latency of the moment.
//!
//! ```text
//! base    p90 of 50 requests, measured while L is 3: at first, each 60 s and up to 9 s later at
//!         random, and when L has been 3 for five windows
//! g       = clamp(1.25 base / p90 of 100 ms, 0.5, 2)
//! L       = g L + sqrt(g L), rounded down; 3 to 1000
//! room      n < L
//! ```
//!
//! Inputs: n, own requests in flight at the site; latencies, those of failures too; a clock. Time is
//! looked at when requests come and end.
//!
//! Failure case: many front-ends: each measures its base in the others' overload, and none knows of
//! the others' limits. Healthy requests are refused while it measures. A site whose requests get dearer is
//! held short for a minute.
//!
//! Source: Envoy's adaptive concurrency filter with the defaults of its gradient controller, but p90
//! as in its example, where the default is the median; one picker's knowledge stands for a process's.

use std::time::Duration;

use super::latencies::Latencies;
use super::{
    Admission, AdmissionVerdict, Limits, Priority, Prng, Sample, Timestamp, View, admit_if,
    in_flight, of_site, seconds,
};

const LIMIT_MIN: u32 = 3;
const LIMIT_MAX: u32 = 1000;
const QUANTILE: f64 = 0.9;
/// A window of latencies.
const WINDOW: Duration = Duration::from_millis(100);
/// Between two measurements of the base; and the greatest part of it that chance adds.
const MEASURE: Duration = Duration::from_secs(60);
const JITTER: f64 = 0.15;
/// Requests that make a base.
const REQUESTS: u32 = 50;
/// A latency so many times the base is none yet that waits.
const BUFFER: f64 = 1.25;
/// Windows with the least limit after which the base is doubted.
const DOUBT: u32 = 5;

/// What latencies are gathered for.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// For the base; the limit is to be this again when it is known.
    Measuring { then: u32 },
    /// For the gradient.
    Sampling {
        /// The window's end.
        until: Timestamp,
        /// The base is measured again.
        measure_at: Timestamp,
    },
}

/// See the module.
#[derive(Debug)]
pub(crate) struct EnvoyAdaptiveConcurrency {
    limit: u32,
    phase: Phase,
    /// Requests that began before this tell nothing: they were among more than three.
    since: Timestamp,
    base: f64,
    latencies: Latencies,
    /// Windows with the least limit in a row.
    least: u32,
}

impl Default for EnvoyAdaptiveConcurrency {
    fn default() -> Self {
        Self {
            limit: LIMIT_MIN,
            phase: Phase::Measuring { then: LIMIT_MIN },
            since: Timestamp::ZERO,
            base: 0.0,
            latencies: Latencies::NONE,
            least: 0,
        }
    }
}

impl EnvoyAdaptiveConcurrency {
    /// Does what is due.
    fn look(&mut self, now: Timestamp) {
        let Phase::Sampling { until, measure_at } = self.phase else {
            return;
        };
        if now >= until {
            self.end_window();
            let until = now + WINDOW;
            self.phase = Phase::Sampling { until, measure_at };
        }
        if now >= measure_at || self.least >= DOUBT {
            self.measure(now);
        }
    }

    fn measure(&mut self, now: Timestamp) {
        self.phase = Phase::Measuring { then: self.limit };
        self.limit = LIMIT_MIN;
        self.since = now;
        self.latencies = Latencies::NONE;
        self.least = 0;
    }

    fn end_window(&mut self) {
        let Some(sampled) = self.latencies.take_quantile(QUANTILE) else {
            return;
        };
        let gradient = (BUFFER * self.base / sampled).clamp(0.5, 2.0);
        let wanted = gradient * f64::from(self.limit);
        let before = self.limit;
        self.limit = ((wanted + wanted.sqrt()) as u32).clamp(LIMIT_MIN, LIMIT_MAX);
        self.least = match before == LIMIT_MIN && self.limit == LIMIT_MIN {
            true => self.least + 1,
            false => 0,
        };
    }
}

impl Admission for EnvoyAdaptiveConcurrency {
    fn on_request(&mut self, view: &View<'_>, _: Priority, _: &mut Prng) -> AdmissionVerdict {
        self.look(view.now);
        admit_if(in_flight(view) < u64::from(self.limit))
    }

    fn on_sample(&mut self, sample: &Sample, now: Timestamp, prng: &mut Prng) {
        self.look(now);
        if now - sample.latency < self.since {
            return;
        }
        self.latencies.add(seconds(sample));
        let Phase::Measuring { then } = self.phase else {
            return;
        };
        if self.latencies.count() < REQUESTS {
            return;
        }
        if let Some(base) = self.latencies.take_quantile(QUANTILE) {
            self.base = base;
            self.limit = then;
            self.phase = Phase::Sampling {
                until: now + WINDOW,
                measure_at: now + MEASURE.mul_f64(1.0 + JITTER * prng.unit()),
            };
        }
    }

    fn limits(&self) -> Limits {
        of_site(self.limit.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::NodeId;

    struct Filter {
        filter: EnvoyAdaptiveConcurrency,
        now: Timestamp,
        prng: Prng,
    }

    impl Filter {
        fn new() -> Self {
            Self {
                filter: EnvoyAdaptiveConcurrency::default(),
                now: Timestamp::from_millis(1000),
                prng: Prng::new(1),
            }
        }

        /// So many requests, one each millisecond, each of this latency; the limit after them.
        fn after(&mut self, requests: u32, latency: u64) -> u32 {
            for _ in 0..requests {
                self.now = self.now + Duration::from_millis(1);
                let sample = Sample {
                    node: NodeId(0),
                    in_flight: 1,
                    latency: Duration::from_millis(latency),
                    success: true,
                };
                self.filter.on_sample(&sample, self.now, &mut self.prng);
            }
            self.filter.limit
        }

        fn measures(&self) -> bool {
            matches!(self.filter.phase, Phase::Measuring { .. })
        }
    }

    #[test]
    fn fifty_requests_make_the_base_and_windows_the_limit() {
        let mut it = Filter::new();
        assert_eq!(it.after(49, 10), 3);
        assert!(it.measures());
        it.after(1, 10);
        assert!(!it.measures());
        assert!((it.filter.base / 0.01 - 1.0).abs() < 0.03);
        // 1.25 * 3 = 3.75, and its root is 1.94.
        assert_eq!(it.after(101, 10), 5);
        assert_eq!(it.after(10_000, 10), 1000);
        // No more than half at once: 500 and its root.
        it.after(100, 10);
        assert_eq!(it.after(100, 10_000), 522);
    }

    #[test]
    fn a_base_that_allows_next_to_nothing_is_doubted() {
        let mut it = Filter::new();
        it.after(50, 10);
        let mut millis = 0;
        while !it.measures() {
            it.after(1, 100);
            millis += 1;
        }
        assert!((500..=700).contains(&millis), "{millis}: five windows");
        // Requests of before do not count.
        it.after(49, 1);
        it.after(100, 1000);
        assert!(it.measures());
        it.after(1, 1);
        assert!(!it.measures());
    }

    #[test]
    fn the_base_is_measured_each_minute_or_a_little_later_and_the_limit_comes_back() {
        let mut it = Filter::new();
        it.after(10_050, 10);
        let before = it.filter.limit;
        let mut millis = 10_000;
        while !it.measures() {
            it.after(1, 10);
            millis += 1;
        }
        assert!((60_000..69_100).contains(&millis), "{millis}");
        assert_eq!(it.filter.limit, LIMIT_MIN);
        assert_eq!(it.after(60, 10), before);
    }
}
