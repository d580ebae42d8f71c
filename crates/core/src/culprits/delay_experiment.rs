//! The randomized delay experiment: a random half of a class's requests is delayed for a moment; if the
//! resource's use moves with them, the class uses it.
//!
//! ```text
//! each request at t: even chances: delayed by 0 or h = 300 ms
//! Y1 = use in [t, t + h)   Y2 = use in [t + h, t + 2h)   C = Y1 - Y2       t as if not delayed
//! cost  = (mean C of those not delayed - mean C of those delayed) / 2
//! t     = difference / sqrt(var / n + var / n)           confirmed at t > 3
//! n     ~ (6 sd / cost)^2                                requests that it takes, sd of the use in one h
//! ```
//!
//! Exact whatever else goes on, needs no model, and no request is refused.
//!
//! Inputs: requests of the class as they come, the resource's use. Failure case: work that outlasts h
//! is priced at 0.65 of what it costs, so the experiment decides and does not price; work behind the reply
//! or on a full resource answers late or not at all.
//! Source: Neyman's difference of means; measured against throttling by half in blocks of 2 s: it
//! confirms 2.5 times as many in the same time, and fewer innocents.

use std::collections::VecDeque;
use std::time::Duration;

use super::ClassId;
use crate::prng::Prng;
use crate::time::Timestamp;

/// By how much requests are delayed.
pub const DELAY: Duration = Duration::from_millis(300);
/// t above which a class is confirmed.
const CONFIRMED_T: f64 = 3.0;
/// Requests of each half before anything is decided: fewer have no variance to speak of.
const ARM_REQUESTS_MIN: u64 = 8;
/// The experiment is evaluated after so many times as many requests again: evaluated after each one, it
/// would meet t > 3 by chance sooner or later.
const EVALUATION_GROWTH: f64 = 1.5;
/// Requests whose use is not known yet; further ones are not delayed and not counted.
const UNSETTLED_MAX: usize = 4096;
/// Longest time that an experiment may take; one that needs more cannot be made here.
pub const TIME_MAX: Duration = Duration::from_secs(60);
/// Factor in the number of requests that an experiment takes.
const SIGMAS: f64 = 6.0;

/// Why the requests of a class may not be delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DelayRefusal {
    /// A client may give a delayed request up and send it again: that must do no harm.
    #[error("its methods are not all idempotent")]
    NotIdempotent,
    /// A site that is too slow already is not made slower.
    #[error("the site is above its SLO")]
    AboveSlo,
    /// There is nothing to be found out any more.
    #[error("its site or the resource is out of the cluster")]
    Gone,
}

/// Whether the requests of a class may be delayed at all.
pub fn may_delay(idempotent: bool, site_above_slo: bool) -> Result<(), DelayRefusal> {
    if !idempotent {
        return Err(DelayRefusal::NotIdempotent);
    }
    if site_above_slo {
        return Err(DelayRefusal::AboveSlo);
    }
    Ok(())
}

/// Requests that it takes to confirm a class: `sd` is the standard deviation of the use in one delay,
/// `cost` what a request is thought to cost, both in seconds.
pub fn requests_needed(sd: f64, cost: f64) -> f64 {
    match cost > 0.0 {
        true => (SIGMAS * sd / cost)
            .powi(2)
            .max(2.0 * ARM_REQUESTS_MIN as f64),
        false => f64::INFINITY,
    }
}

/// The half that a request was assigned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// When it goes on if it is not delayed.
    pub at: Timestamp,
    /// Whether it is delayed.
    pub delayed: bool,
}

/// Draws the half of a request, with even chances: whether it is delayed.
pub fn is_delayed(prng: &mut Prng) -> bool {
    prng.bits() >> 63 == 1
}

/// Where an experiment stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ExperimentOutcome {
    /// It goes on.
    Running {
        /// Requests that it has counted.
        requests: u64,
        /// Requests that it is thought to take.
        needed: u64,
    },
    /// The class uses the resource.
    Confirmed {
        /// t of the difference.
        t: f64,
        /// Seconds per request, at least: work that outlasts the delay is not all in it.
        cost_seconds: f64,
    },
    /// After as many requests as should have shown it, it did not show.
    NotConfirmed {
        /// t of the difference.
        t: f64,
    },
    /// It would take more than a minute of the class's traffic.
    CannotBeConfirmed {
        /// Requests that it would take.
        needed: u64,
    },
}

/// Mean and variance as they come (Welford).
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    count: u64,
    mean: f64,
    squares: f64,
}

impl Moments {
    fn add(&mut self, value: f64) {
        self.count += 1;
        let off = value - self.mean;
        self.mean += off / self.count as f64;
        self.squares += off * (value - self.mean);
    }

    fn variance(&self) -> f64 {
        self.squares / (self.count.max(2) - 1) as f64
    }
}

/// An experiment on one class against one resource.
#[derive(Clone, Debug)]
pub struct DelayExperiment {
    class: ClassId,
    prng: Prng,
    began: Timestamp,
    /// Requests whose use is not known yet, and whether they were delayed.
    unsettled: VecDeque<(Timestamp, bool)>,
    /// Of requests that were not delayed, and of delayed ones.
    arms: [Moments; 2],
    /// Use in one delay.
    used: Moments,
    /// What a request is thought to cost, seconds.
    cost: f64,
    /// Requests from which on it is evaluated next.
    evaluate_at: u64,
}

impl DelayExperiment {
    /// Begins an experiment on a class whose requests are thought to cost so many seconds.
    pub fn new(class: ClassId, cost_seconds: f64, seed: u64, now: Timestamp) -> Self {
        Self {
            class,
            prng: Prng::new(seed),
            began: now,
            unsettled: VecDeque::new(),
            arms: [Moments::default(); 2],
            used: Moments::default(),
            cost: cost_seconds,
            evaluate_at: 2 * ARM_REQUESTS_MIN,
        }
    }

    /// The class that it is about.
    pub fn class(&self) -> ClassId {
        self.class
    }

    /// A request of the class has come; by how much to delay it.
    pub fn assign(&mut self, now: Timestamp) -> Duration {
        if self.unsettled.len() == UNSETTLED_MAX {
            return Duration::ZERO;
        }
        let delayed = is_delayed(&mut self.prng);
        self.unsettled.push_back((now, delayed));
        if delayed { DELAY } else { Duration::ZERO }
    }

    /// A request that was assigned elsewhere by [`is_delayed`], and delayed by [`DELAY`] or not at all; in about
    /// the order of their times. False if it is not counted: too many are not settled yet.
    pub fn on_assignment(&mut self, assignment: Assignment) -> bool {
        let room = self.unsettled.len() < UNSETTLED_MAX;
        if room {
            self.unsettled
                .push_back((assignment.at, assignment.delayed));
        }
        room
    }

    /// Counts the requests whose use is known by now. `used` gives the use between two moments,
    /// seconds; none where it is not known. Requests without a known use half a minute later
    /// are given up.
    pub fn settle(
        &mut self,
        now: Timestamp,
        used: impl Fn(Timestamp, Timestamp) -> Option<f64>,
    ) -> ExperimentOutcome {
        while let Some((sent, delayed)) = self.unsettled.front().copied() {
            let (middle, end) = (sent + DELAY, sent + 2 * DELAY);
            let both = used(sent, middle).zip(used(middle, end));
            match both {
                Some((first, second)) => {
                    self.arms[usize::from(delayed)].add(first - second);
                    self.used.add(first);
                }
                None if now.since(end) < TIME_MAX / 2 => break,
                None => {}
            }
            self.unsettled.pop_front();
        }
        self.outcome(now)
    }

    fn outcome(&mut self, now: Timestamp) -> ExperimentOutcome {
        let [free, delayed] = &self.arms;
        let requests = free.count + delayed.count;
        let needed = requests_needed(self.used.variance().sqrt(), self.cost);
        let shown = (needed.min(1e15)).ceil() as u64;
        let running = ExperimentOutcome::Running {
            requests,
            needed: shown,
        };
        let passed = now.since(self.began);
        let over = passed >= TIME_MAX;
        if free.count < ARM_REQUESTS_MIN || delayed.count < ARM_REQUESTS_MIN {
            return match over {
                true => ExperimentOutcome::CannotBeConfirmed { needed: shown },
                false => running,
            };
        }
        if requests < self.evaluate_at && !over {
            return running;
        }
        self.evaluate_at = (requests as f64 * EVALUATION_GROWTH).ceil() as u64;
        let error = (free.variance() / free.count as f64
            + delayed.variance() / delayed.count as f64)
            .sqrt();
        let difference = free.mean - delayed.mean;
        let t = if error > 0.0 { difference / error } else { 0.0 };
        if t > CONFIRMED_T {
            return ExperimentOutcome::Confirmed {
                t,
                cost_seconds: difference / 2.0,
            };
        }
        let rate = requests as f64 / passed.as_secs_f64().max(1e-3);
        if needed > rate * TIME_MAX.as_secs_f64() {
            return ExperimentOutcome::CannotBeConfirmed { needed: shown };
        }
        match over || requests as f64 >= needed {
            true => ExperimentOutcome::NotConfirmed { t },
            false => running,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A resource on which requests work for `cost` seconds from when they were let go on, beside
    /// noise; ten requests a second for a minute at most.
    fn run(cost: f64, noise: f64, thought: f64) -> ExperimentOutcome {
        let mut experiment = DelayExperiment::new(ClassId(1), thought, 5, Timestamp::ZERO);
        let mut prng = Prng::new(8);
        let mut millis: Vec<f64> = (0..70_000).map(|_| noise * 0.002 * prng.unit()).collect();
        let mut now = 0.0;
        let mut last = None;
        while now < 61.0 {
            now += prng.exponential(0.1);
            let sent = Timestamp::from_nanos((now * 1e9) as u64);
            let delayed = experiment.assign(sent).as_secs_f64();
            let start = ((now + delayed) * 1e3) as usize;
            let length = (cost * 1e3) as usize;
            (start..start + length).for_each(|ms| millis[ms] += 0.001);
            let used = |from: Timestamp, to: Timestamp| {
                let range = (from.nanos() / 1_000_000) as usize..(to.nanos() / 1_000_000) as usize;
                (to <= sent).then(|| millis[range].iter().sum())
            };
            let outcome = experiment.settle(sent, used);
            last = Some(outcome);
            if !matches!(outcome, ExperimentOutcome::Running { .. }) {
                break;
            }
        }
        last.unwrap()
    }

    #[test]
    fn work_that_moves_is_confirmed_and_priced() {
        let found = run(0.05, 1.0, 0.05);
        let ExperimentOutcome::Confirmed { t, cost_seconds } = found else {
            panic!("{found:?}");
        };
        assert!(t > 3.0 && (0.03..0.08).contains(&cost_seconds), "{found:?}");
    }

    #[test]
    fn a_class_that_does_nothing_is_not_confirmed() {
        let found = run(0.0, 1.0, 0.02);
        assert!(
            matches!(found, ExperimentOutcome::NotConfirmed { .. }),
            "{found:?}"
        );
    }

    #[test]
    fn too_long_an_experiment_is_reported_as_such() {
        let found = run(0.0, 1.0, 0.0001);
        assert!(
            matches!(found, ExperimentOutcome::CannotBeConfirmed { .. }),
            "{found:?}"
        );
        assert!((requests_needed(0.1, 0.1) - 36.0).abs() < 1e-9);
        assert_eq!(requests_needed(0.1, 0.0), f64::INFINITY);
    }

    #[test]
    fn a_harmful_experiment_is_refused() {
        assert_eq!(may_delay(true, false), Ok(()));
        assert_eq!(may_delay(false, false), Err(DelayRefusal::NotIdempotent));
        assert_eq!(may_delay(true, true), Err(DelayRefusal::AboveSlo));
    }

    #[test]
    fn a_seed_makes_the_same_assignments() {
        let assignments = |seed: u64| -> Vec<Duration> {
            let mut experiment = DelayExperiment::new(ClassId(1), 0.1, seed, Timestamp::ZERO);
            (0..5000)
                .map(|ms| experiment.assign(Timestamp::from_millis(ms)))
                .collect()
        };
        assert_eq!(assignments(3), assignments(3));
        let delayed = assignments(3)
            .iter()
            .filter(|delay| **delay == DELAY)
            .count();
        assert!((1900..2200).contains(&delayed), "{delayed}");
    }

    #[test]
    fn own_and_foreign_assignments_give_the_same_outcome() {
        let mut own = DelayExperiment::new(ClassId(1), 0.1, 3, Timestamp::ZERO);
        let mut foreign = DelayExperiment::new(ClassId(1), 0.1, 4, Timestamp::ZERO);
        let mut prng = Prng::new(3);
        for ms in 0..UNSETTLED_MAX as u64 {
            let at = Timestamp::from_millis(ms);
            let delayed = is_delayed(&mut prng);
            assert_eq!(own.assign(at), if delayed { DELAY } else { Duration::ZERO });
            assert!(foreign.on_assignment(Assignment { at, delayed }));
        }
        let assignment = Assignment {
            at: Timestamp::from_millis(5000),
            delayed: true,
        };
        assert!(!foreign.on_assignment(assignment), "there is no more room");
        // The resource works in every other second.
        let used = |from: Timestamp, to: Timestamp| {
            let busy = (from.nanos() / 1_000_000_000).is_multiple_of(2);
            Some(if busy {
                to.since(from).as_secs_f64()
            } else {
                0.0
            })
        };
        let end = Timestamp::from_millis(6000);
        assert_eq!(foreign.settle(end, used), own.settle(end, used));
        assert!(foreign.on_assignment(assignment), "there is room again");
    }
}
