//! When the requests of a site come.
//!
//! ```text
//! Poisson   rate r
//! bursts    rate r * peak in a burst, r * (1 - share * peak) / (1 - share) between two
//! step      rate r before, r * times from a moment on
//! surge     the same, and r again after a while
//! closed    each of so many clients when it has its answer and has thought: from outside, by `again`
//! ```
//!
//! Lengths of bursts and of what lies between are exponential, so the mean rate is r. A burst
//! meets all front-ends at once: the crowd is one crowd.

use std::time::Duration;

use tidegate_core::prng::Prng;
use tidegate_core::time::Timestamp;

use crate::model::{Arrivals, Stream};

/// See the module.
#[derive(Debug)]
pub(crate) struct ArrivalTimes {
    /// Seconds, on the run's clock.
    now: f64,
    quiet: f64,
    burst: Option<Bursts>,
    /// When the rate changes, and to what, from the last change to the first.
    steps: Vec<(f64, f64)>,
}

#[derive(Debug)]
struct Bursts {
    rate: f64,
    /// Mean lengths of a burst and of what lies between, seconds.
    length: f64,
    gap: f64,
    bursting: bool,
    /// When this stretch ends.
    until: f64,
    prng: Prng,
}

impl ArrivalTimes {
    pub(crate) fn new(
        arrivals: &Arrivals,
        rate: f64,
        site: u32,
        seed: u64,
        now: Timestamp,
    ) -> Self {
        let now = now.seconds_since(Timestamp::ZERO);
        let plain = Self {
            now,
            quiet: rate,
            burst: None,
            steps: Vec::new(),
        };
        let (peak, share, length) = match *arrivals {
            Arrivals::Poisson | Arrivals::Closed { .. } => return plain,
            Arrivals::Step { at, times } => {
                let steps = vec![(now + at.as_secs_f64(), rate * times)];
                return Self { steps, ..plain };
            }
            Arrivals::Surge { at, lasts, times } => {
                let at = now + at.as_secs_f64();
                let steps = vec![(at + lasts.as_secs_f64(), rate), (at, rate * times)];
                return Self { steps, ..plain };
            }
            Arrivals::Bursts {
                peak,
                share,
                length,
            } => (peak, share, length),
        };
        let share = share.clamp(1e-6, 1.0 - 1e-6);
        let peak = peak.clamp(0.0, 1.0 / share);
        let length = length.as_secs_f64().max(1e-6);
        let mut prng = Stream::Bursts(site).prng(seed);
        let bursting = prng.unit() < share;
        let mut bursts = Bursts {
            rate: rate * peak,
            length,
            gap: length * (1.0 - share) / share,
            bursting,
            until: now,
            prng,
        };
        bursts.until += bursts.stretch();
        Self {
            now,
            quiet: rate * (1.0 - share * peak) / (1.0 - share),
            burst: Some(bursts),
            ..plain
        }
    }

    /// The next one. `prng` is the site's.
    pub(crate) fn draw(&mut self, prng: &mut Prng) -> Timestamp {
        // So much is left to pass of a process of rate 1.
        let mut left = prng.exponential(1.0);
        while let Some(bursts) = &mut self.burst {
            let rate = if bursts.bursting {
                bursts.rate
            } else {
                self.quiet
            };
            let passes = (bursts.until - self.now).max(0.0) * rate;
            if left <= passes {
                self.now += left / rate;
                return self.timestamp();
            }
            left -= passes;
            self.now = bursts.until;
            bursts.bursting = !bursts.bursting;
            bursts.until += bursts.stretch();
        }
        while let Some((at, rate)) = self.steps.last().copied() {
            let passes = (at - self.now).max(0.0) * self.quiet;
            if left <= passes {
                break;
            }
            left -= passes;
            self.now = self.now.max(at);
            self.quiet = rate;
            self.steps.pop();
        }
        self.now += left / self.quiet;
        self.timestamp()
    }

    fn timestamp(&self) -> Timestamp {
        Timestamp::ZERO + Duration::try_from_secs_f64(self.now).unwrap_or(Duration::MAX)
    }
}

impl Bursts {
    fn stretch(&mut self) -> f64 {
        let mean = if self.bursting { self.length } else { self.gap };
        self.prng.exponential(mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(arrivals: &Arrivals, seconds: f64) -> Vec<u32> {
        let mut times = ArrivalTimes::new(arrivals, 1000.0, 0, 5, Timestamp::ZERO);
        let mut prng = Stream::Requests(0).prng(5);
        let mut counts = vec![0; (seconds * 10.0) as usize];
        loop {
            let tenth = times.draw(&mut prng).seconds_since(Timestamp::ZERO) * 10.0;
            match counts.get_mut(tenth as usize) {
                Some(count) => *count += 1,
                None => return counts,
            }
        }
    }

    #[test]
    fn a_step_is_where_and_as_high_as_it_should_be() {
        let step = Arrivals::Step {
            at: Duration::from_millis(50_000),
            times: 3.0,
        };
        let counts = counts(&step, 100.0);
        let mean = |counts: &[u32]| f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
        let (before, after) = (mean(&counts[..500]), mean(&counts[500..]));
        assert!((before - 100.0).abs() < 3.0, "{before}");
        assert!((after - 300.0).abs() < 6.0, "{after}");
    }

    #[test]
    fn a_surge_is_over_when_it_should_be() {
        let surge = Arrivals::Surge {
            at: Duration::from_secs(30),
            lasts: Duration::from_secs(20),
            times: 4.0,
        };
        let counts = counts(&surge, 100.0);
        let mean = |counts: &[u32]| f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
        let (surge, after) = (mean(&counts[300..500]), mean(&counts[500..]));
        assert!((surge - 400.0).abs() < 10.0, "{surge}");
        assert!((after - 100.0).abs() < 3.0, "{after}");
    }

    #[test]
    fn the_mean_rate_is_the_one_asked_for_and_bursts_reach_their_peak() {
        let bursts = Arrivals::Bursts {
            peak: 2.5,
            share: 0.2,
            length: Duration::from_millis(300),
        };
        for (arrivals, most) in [(Arrivals::Poisson, 150), (bursts, 320)] {
            let counts = counts(&arrivals, 1000.0);
            let mean = f64::from(counts.iter().sum::<u32>()) / 1e6;
            assert!((mean - 1.0).abs() < 0.06, "{arrivals:?}: {mean}");
            let peak = *counts.iter().max().unwrap();
            assert!(peak <= most && peak >= most * 4 / 5, "{arrivals:?}: {peak}");
        }
    }
}
