//! How much load is much: the knee, found by a walk, so that experiments can say "0.9 of it"
//! and mean the same on a fast and on a slow machine.
//!
//! The load is raised by [`FACTOR`] from a low one until the median latency exceeds [`SLOWER`]
//! times the unloaded one, or more than [`FAILED_SHARE`] of the requests fail. The knee is the last
//! load before that. The unloaded median is the least of those seen so far: the first step also
//! warms caches, and must not make the bar too high.
//!
//! A walk instead of a bisection: each step leaves the system in order for the next one, and
//! the steps are a latency curve that is worth printing.
//!
//! Practice of load-balancer benchmarks (the walk by 1.2 until four times the unloaded median).

use serde::{Deserialize, Serialize};

/// Each step offers so many times the load of the one before.
pub const FACTOR: f64 = 1.2;
/// Beyond so many times the unloaded median a load is too much.
pub const SLOWER: f64 = 4.0;
/// So are failures of more than this share.
pub const FAILED_SHARE: f64 = 0.01;
/// Steps at most: from 20 to 29,000 requests per second.
pub const STEPS_MAX: usize = 40;
/// Where [`knee`] begins, requests per second.
pub const START_RPS: f64 = 20.0;

/// What one step found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Load offered, requests per second. The walk fills it in.
    pub rps: f64,
    /// Requests offered.
    pub offered: u64,
    /// Requests failed or refused.
    pub failed: u64,
    /// Median latency.
    pub p50_ms: f64,
    /// Latency of 99 of 100.
    pub p99_ms: f64,
}

impl Sample {
    /// Of a measured stream.
    pub fn of(stream: &super::StreamResult) -> Self {
        Self {
            rps: 0.0,
            offered: stream.offered,
            failed: stream.failed + stream.refused,
            p50_ms: stream.p50_ms,
            p99_ms: stream.p99_ms,
        }
    }

    fn failed_share(&self) -> f64 {
        self.failed as f64 / (self.offered as f64).max(1.0)
    }
}

/// A found knee.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    /// The last load that was not too much, requests per second.
    pub rps: f64,
    /// The least median of the walk.
    pub unloaded_p50_ms: f64,
    /// Whether the walk ended because a load was too much, not because it had gone far enough.
    pub found: bool,
    /// All steps, the one that was too much last.
    pub walk: Vec<Sample>,
}

impl Knee {
    /// A load expressed as a fraction of the knee, requests per second.
    pub fn at(&self, fraction: f64) -> f64 {
        self.rps * fraction
    }
}

/// Walks from [`START_RPS`].
///
/// # Errors
/// The first error of `measure`.
pub fn knee<E>(measure: impl FnMut(f64) -> Result<Sample, E>) -> Result<Knee, E> {
    knee_from(START_RPS, measure)
}

/// Walks from `start` requests per second, which must be a load that is certainly low.
///
/// # Errors
/// The first error of `measure`.
pub fn knee_from<E>(
    start: f64,
    mut measure: impl FnMut(f64) -> Result<Sample, E>,
) -> Result<Knee, E> {
    let mut knee = Knee {
        rps: start,
        unloaded_p50_ms: f64::INFINITY,
        found: false,
        walk: Vec::new(),
    };
    let mut rps = start;
    while knee.walk.len() < STEPS_MAX && !knee.found {
        let sample = Sample {
            rps,
            ..measure(rps)?
        };
        knee.walk.push(sample);
        let bar = SLOWER * knee.unloaded_p50_ms;
        knee.found = sample.p50_ms > bar || sample.failed_share() > FAILED_SHARE;
        if !knee.found {
            knee.rps = rps;
            knee.unloaded_p50_ms = knee.unloaded_p50_ms.min(sample.p50_ms);
            rps *= FACTOR;
        }
    }
    if !knee.unloaded_p50_ms.is_finite() {
        knee.unloaded_p50_ms = knee.walk.first().map_or(0.0, |first| first.p50_ms);
    }
    Ok(knee)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// M/M/1 with processor sharing: the mean is S / (1 - rho), the median ln 2 of it.
    fn server(capacity: f64) -> impl FnMut(f64) -> Result<Sample, Infallible> {
        move |rps| {
            let left = (1.0 - rps / capacity).max(1e-3);
            let p50_ms = std::f64::consts::LN_2 * 1e3 / capacity / left;
            Ok(Sample {
                offered: 1000,
                p50_ms,
                ..Sample::default()
            })
        }
    }

    #[test]
    fn the_knee_of_a_modelled_server_is_where_its_curve_says() {
        // Four times the unloaded median is at rho = 3/4 of what is left at the start.
        for capacity in [200.0, 1000.0, 5000.0] {
            let knee = knee(server(capacity)).unwrap();
            let unloaded = 1.0 - START_RPS / capacity;
            let expected = capacity * (1.0 - unloaded / SLOWER);
            assert!(knee.found);
            assert!(
                knee.rps <= expected && knee.rps * FACTOR > expected,
                "{capacity}: {} against {expected}",
                knee.rps
            );
            assert_eq!(knee.walk.len(), {
                let steps = (expected / START_RPS).log(FACTOR).floor();
                steps as usize + 2
            });
        }
    }

    #[test]
    fn failures_end_the_walk_too() {
        let walk = |rps: f64| {
            Ok::<_, Infallible>(Sample {
                offered: 1000,
                failed: if rps > 100.0 { 11 } else { 10 },
                p50_ms: 1.0,
                ..Sample::default()
            })
        };
        let knee = knee(walk).unwrap();
        assert!(knee.found && knee.rps <= 100.0 && knee.rps * FACTOR > 100.0);
        assert!((knee.at(0.5) - knee.rps / 2.0).abs() < 1e-9);
    }

    #[test]
    fn a_server_that_never_tires_ends_the_walk_without_a_knee() {
        let easy = |_| {
            Ok::<_, Infallible>(Sample {
                p50_ms: 1.0,
                ..Sample::default()
            })
        };
        let knee = knee(easy).unwrap();
        assert!(!knee.found);
        assert_eq!(knee.walk.len(), STEPS_MAX);
        assert_eq!(knee.rps, knee.walk[STEPS_MAX - 1].rps);
    }

    #[test]
    fn an_error_ends_the_walk() {
        let failed = knee(|rps| {
            if rps > 50.0 {
                Err("gone")
            } else {
                Ok(Sample::default())
            }
        });
        assert_eq!(failed.unwrap_err(), "gone");
    }

    #[test]
    fn a_slow_first_step_does_not_raise_the_bar() {
        let mut first = true;
        let mut inner = server(1000.0);
        let knee = knee(|rps| {
            let mut sample = inner(rps)?;
            if std::mem::take(&mut first) {
                sample.p50_ms *= 3.0;
            }
            Ok::<_, Infallible>(sample)
        })
        .unwrap();
        assert!(knee.rps < 800.0, "{}", knee.rps);
    }
}
