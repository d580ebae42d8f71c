//! The causal test: hold a random half of a class's requests for a moment, and look whether the
//! resource's use moves with them.
//!
//! ```text
//! each request at t: a coin; held 0 or h = 300 ms
//! Y1 = use in [t, t + h)   Y2 = use in [t + h, t + 2h)   C = Y1 - Y2       t as if it had not been held
//! cost  = (mean C of those not held - mean C of those held) / 2
//! t     = difference / sqrt(var / n + var / n)           confirmed at t > 3
//! n     ~ (6 sd / cost)^2                                requests that it takes, sd of the use in one h
//! ```
//!
//! A randomised experiment: exact whatever else goes on, needs no model, and no request is refused.
//!
//! Inputs: requests of the class as they come, the resource's use. Failure case: work that outlasts h
//! is priced at 0.65 of what it costs, so the test decides and does not price; work behind the reply
//! or on a full resource answers late or not at all.
//! Source: Neyman's difference of means; measured against throttling by half in blocks of 2 s: it
//! confirms 2.5 times as many in the same time, and fewer innocents.

use std::collections::VecDeque;
use std::time::Duration;

use super::ClassId;
use crate::prng::Prng;
use crate::time::Timestamp;

/// How long requests are held.
pub const HOLD: Duration = Duration::from_millis(300);
/// t above which a class is confirmed.
const CONFIRMED: f64 = 3.0;
/// Requests of each half before anything is decided: fewer have no variance to speak of.
const LEAST: u64 = 8;
/// After so many times as many requests the test is looked at again: looked at after each one, it
/// would meet t > 3 by chance sooner or later.
const LOOK_AGAIN: f64 = 1.5;
/// Requests whose use is not known yet; further ones are not held and not counted.
const WAITING_MAX: usize = 4096;
/// Traffic that a test may take; one that needs more cannot be made here.
pub const LONGEST: Duration = Duration::from_secs(60);
/// The rule for how many requests it takes.
const SIGMAS: f64 = 6.0;

/// Why a class may not be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A request that waited may be given up and sent again: that must do no harm.
    #[error("its methods are not all idempotent")]
    NotIdempotent,
    /// Nothing is made slower that is too slow already.
    #[error("the site is above its SLO")]
    AboveSlo,
}

/// Whether a class may be held at all.
pub fn may_hold(idempotent: bool, site_above_slo: bool) -> Result<(), Refusal> {
    if !idempotent {
        return Err(Refusal::NotIdempotent);
    }
    if site_above_slo {
        return Err(Refusal::AboveSlo);
    }
    Ok(())
}

/// Requests that it takes to confirm a class: `sd` is the standard deviation of the use in one hold,
/// `cost` what a request is thought to cost, both in seconds.
pub fn requests_needed(sd: f64, cost: f64) -> f64 {
    match cost > 0.0 {
        true => (SIGMAS * sd / cost).powi(2).max(2.0 * LEAST as f64),
        false => f64::INFINITY,
    }
}

/// What was tossed for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Toss {
    /// When it would go on if it were not held.
    pub at: Timestamp,
    /// Whether it is held.
    pub held: bool,
}

/// Whether a request is held: an even coin.
pub fn coin(prng: &mut Prng) -> bool {
    prng.bits() >> 63 == 1
}

/// How a test stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
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
        /// Seconds per request, at least: work that outlasts the hold is not all in it.
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

/// A test of one class against one resource.
#[derive(Clone, Debug)]
pub struct Dither {
    class: ClassId,
    prng: Prng,
    began: Timestamp,
    /// Requests whose use is not known yet, and whether they were held.
    waiting: VecDeque<(Timestamp, bool)>,
    /// Of those that were not held, and of those that were.
    arms: [Moments; 2],
    /// Use in one hold.
    used: Moments,
    /// What a request is thought to cost, seconds.
    cost: f64,
    /// Requests from which on it is looked at next.
    look: u64,
}

impl Dither {
    /// Begins a test of a class whose requests are thought to cost so many seconds.
    pub fn new(class: ClassId, cost_seconds: f64, seed: u64, now: Timestamp) -> Self {
        Self {
            class,
            prng: Prng::new(seed),
            began: now,
            waiting: VecDeque::new(),
            arms: [Moments::default(); 2],
            used: Moments::default(),
            cost: cost_seconds,
            look: 2 * LEAST,
        }
    }

    /// The class under test.
    pub fn class(&self) -> ClassId {
        self.class
    }

    /// A request of the class has come; for how long to hold it.
    pub fn toss(&mut self, now: Timestamp) -> Duration {
        if self.waiting.len() == WAITING_MAX {
            return Duration::ZERO;
        }
        let held = coin(&mut self.prng);
        self.waiting.push_back((now, held));
        if held { HOLD } else { Duration::ZERO }
    }

    /// A request that somebody else tossed a [`coin`] for, held for [`HOLD`] or not at all; in about the
    /// order of their times. False if it is not counted: too many are not settled yet.
    pub fn on_toss(&mut self, toss: Toss) -> bool {
        let room = self.waiting.len() < WAITING_MAX;
        if room {
            self.waiting.push_back((toss.at, toss.held));
        }
        room
    }

    /// Counts the requests whose use is known by now. `used` gives the use between two moments,
    /// seconds; none where it is not known. Requests that nothing is known of half a minute later
    /// are given up.
    pub fn settle(
        &mut self,
        now: Timestamp,
        used: impl Fn(Timestamp, Timestamp) -> Option<f64>,
    ) -> Outcome {
        while let Some((sent, held)) = self.waiting.front().copied() {
            let (middle, end) = (sent + HOLD, sent + 2 * HOLD);
            let both = used(sent, middle).zip(used(middle, end));
            match both {
                Some((first, second)) => {
                    self.arms[usize::from(held)].add(first - second);
                    self.used.add(first);
                }
                None if now.since(end) < LONGEST / 2 => break,
                None => {}
            }
            self.waiting.pop_front();
        }
        self.outcome(now)
    }

    fn outcome(&mut self, now: Timestamp) -> Outcome {
        let [free, held] = &self.arms;
        let requests = free.count + held.count;
        let needed = requests_needed(self.used.variance().sqrt(), self.cost);
        let shown = (needed.min(1e15)).ceil() as u64;
        let running = Outcome::Running {
            requests,
            needed: shown,
        };
        let passed = now.since(self.began);
        let over = passed >= LONGEST;
        if free.count < LEAST || held.count < LEAST {
            return match over {
                true => Outcome::CannotBeConfirmed { needed: shown },
                false => running,
            };
        }
        if requests < self.look && !over {
            return running;
        }
        self.look = (requests as f64 * LOOK_AGAIN).ceil() as u64;
        let error =
            (free.variance() / free.count as f64 + held.variance() / held.count as f64).sqrt();
        let difference = free.mean - held.mean;
        let t = if error > 0.0 { difference / error } else { 0.0 };
        if t > CONFIRMED {
            return Outcome::Confirmed {
                t,
                cost_seconds: difference / 2.0,
            };
        }
        let rate = requests as f64 / passed.as_secs_f64().max(1e-3);
        if needed > rate * LONGEST.as_secs_f64() {
            return Outcome::CannotBeConfirmed { needed: shown };
        }
        match over || requests as f64 >= needed {
            true => Outcome::NotConfirmed { t },
            false => running,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A resource on which requests work for `cost` seconds from when they were let go on, beside
    /// noise; ten requests a second for a minute at most.
    fn run(cost: f64, noise: f64, thought: f64) -> Outcome {
        let mut dither = Dither::new(ClassId(1), thought, 5, Timestamp::ZERO);
        let mut prng = Prng::new(8);
        let mut millis: Vec<f64> = (0..70_000).map(|_| noise * 0.002 * prng.unit()).collect();
        let mut now = 0.0;
        let mut last = None;
        while now < 61.0 {
            now += prng.exponential(0.1);
            let sent = Timestamp::from_nanos((now * 1e9) as u64);
            let held = dither.toss(sent).as_secs_f64();
            let start = ((now + held) * 1e3) as usize;
            let length = (cost * 1e3) as usize;
            (start..start + length).for_each(|ms| millis[ms] += 0.001);
            let used = |from: Timestamp, to: Timestamp| {
                let range = (from.nanos() / 1_000_000) as usize..(to.nanos() / 1_000_000) as usize;
                (to <= sent).then(|| millis[range].iter().sum())
            };
            let outcome = dither.settle(sent, used);
            last = Some(outcome);
            if !matches!(outcome, Outcome::Running { .. }) {
                break;
            }
        }
        last.unwrap()
    }

    #[test]
    fn work_that_moves_is_confirmed_and_priced() {
        let found = run(0.05, 1.0, 0.05);
        let Outcome::Confirmed { t, cost_seconds } = found else {
            panic!("{found:?}");
        };
        assert!(t > 3.0 && (0.03..0.08).contains(&cost_seconds), "{found:?}");
    }

    #[test]
    fn who_does_nothing_is_not_confirmed() {
        let found = run(0.0, 1.0, 0.02);
        assert!(matches!(found, Outcome::NotConfirmed { .. }), "{found:?}");
    }

    #[test]
    fn what_takes_too_long_is_said_so() {
        let found = run(0.0, 1.0, 0.0001);
        assert!(
            matches!(found, Outcome::CannotBeConfirmed { .. }),
            "{found:?}"
        );
        assert!((requests_needed(0.1, 0.1) - 36.0).abs() < 1e-9);
        assert_eq!(requests_needed(0.1, 0.0), f64::INFINITY);
    }

    #[test]
    fn what_would_do_harm_is_refused() {
        assert_eq!(may_hold(true, false), Ok(()));
        assert_eq!(may_hold(false, false), Err(Refusal::NotIdempotent));
        assert_eq!(may_hold(true, true), Err(Refusal::AboveSlo));
    }

    #[test]
    fn a_seed_tosses_the_same_coins() {
        let tosses = |seed: u64| -> Vec<Duration> {
            let mut dither = Dither::new(ClassId(1), 0.1, seed, Timestamp::ZERO);
            (0..5000)
                .map(|ms| dither.toss(Timestamp::from_millis(ms)))
                .collect()
        };
        assert_eq!(tosses(3), tosses(3));
        let held = tosses(3).iter().filter(|hold| **hold == HOLD).count();
        assert!((1900..2200).contains(&held), "{held}");
    }

    #[test]
    fn it_is_the_same_whoever_tosses() {
        let mut own = Dither::new(ClassId(1), 0.1, 3, Timestamp::ZERO);
        let mut told = Dither::new(ClassId(1), 0.1, 4, Timestamp::ZERO);
        let mut prng = Prng::new(3);
        for ms in 0..WAITING_MAX as u64 {
            let at = Timestamp::from_millis(ms);
            let held = coin(&mut prng);
            assert_eq!(own.toss(at), if held { HOLD } else { Duration::ZERO });
            assert!(told.on_toss(Toss { at, held }));
        }
        let toss = Toss {
            at: Timestamp::from_millis(5000),
            held: true,
        };
        assert!(!told.on_toss(toss), "there is no more room");
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
        assert_eq!(told.settle(end, used), own.settle(end, used));
        assert!(told.on_toss(toss), "there is room again");
    }
}
