//! Whether a worker accepts connections: not while the worker itself is the bottleneck.
//!
//! ```text
//! lag      from when a timer of the worker was due to when it was served; m is its mean over 100 ms
//! paused   from m > 50 ms until m < 10 ms, for 1 s at most; then it accepts for 100 ms at least
//! ```
//!
//! A lag is how long whatever is ready waits for its turn, every request that was let in among it. More
//! connections would make all of them slower; left to the kernel they cost nothing until there is
//! time for them. The lag falls as soon as there is less to do, so it need not be known how much a
//! worker can do. A client that has waited for a second is better off with an answer, be it a refusal.
//!
//! Inputs: a lag at each tick, time.
//!
//! Failure case: the kernel shares connections out among the workers' sockets whether they accept
//! or not, so those of a paused worker wait though another might have time. Where others starve the whole
//! process of its CPU the lag looks the same; pausing then does neither good nor harm.
//!
//! Source: lag of an event loop as the measure of its load is common (Node's `monitorEventLoopDelay`);
//! pausing is what Envoy's overload manager calls `stop_accepting_connections`.

use std::time::Duration;

use super::ewma::Ewma;
use crate::time::Timestamp;

/// Lag above which it pauses, and below which it accepts again.
const PAUSE: Duration = Duration::from_millis(50);
const ACCEPT: Duration = Duration::from_millis(10);
/// Time constant of the lag, seconds.
const LAG_TAU_S: f64 = 0.1;
/// Longest pause, and what follows it whatever the lag.
const PAUSE_MAX: Duration = Duration::from_secs(1);
const ACCEPT_MIN: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Clone, Debug)]
pub struct AcceptGate {
    lag: Ewma,
    looked_at: Option<Timestamp>,
    paused: bool,
    /// Since when it is paused, or accepts.
    since: Timestamp,
}

impl Default for AcceptGate {
    fn default() -> Self {
        Self {
            lag: Ewma::new(LAG_TAU_S),
            looked_at: None,
            paused: false,
            since: Timestamp::ZERO,
        }
    }
}

impl AcceptGate {
    /// A timer was served now, so much later than it was due.
    pub fn on_lag(&mut self, lag: Duration, now: Timestamp) {
        let before = self.looked_at.replace(now);
        let dt = before.map_or(0.0, |before| now.seconds_since(before));
        self.lag.add(lag.as_secs_f64(), dt);
        let mean = self.lag();
        let stood = now.since(self.since);
        let paused = match self.paused {
            true => mean >= ACCEPT && stood < PAUSE_MAX,
            false => mean > PAUSE && stood >= ACCEPT_MIN,
        };
        if paused != self.paused {
            self.paused = paused;
            self.since = now;
        }
    }

    /// Whether it accepts nothing for now.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// The mean lag.
    pub fn lag(&self) -> Duration {
        Duration::try_from_secs_f64(self.lag.value()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: u64 = 20;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Ticks from a time on with the same lag, until the gate is in that state.
    fn until(gate: &mut AcceptGate, at: &mut u64, lag: u64, paused: bool) -> u64 {
        let from = *at;
        while gate.is_paused() != paused {
            *at += TICK.max(lag);
            gate.on_lag(ms(lag), Timestamp::from_millis(*at));
            assert!(*at < from + 10_000, "never");
        }
        *at - from
    }

    fn started() -> (AcceptGate, u64) {
        let mut gate = AcceptGate::default();
        gate.on_lag(ms(0), Timestamp::from_millis(1000));
        (gate, 1000)
    }

    #[test]
    fn a_worker_that_lags_pauses_and_accepts_again_when_it_has_caught_up() {
        let (mut gate, mut at) = started();
        assert!(until(&mut gate, &mut at, 80, true) <= 160);
        assert!(gate.lag() > PAUSE);
        assert!(until(&mut gate, &mut at, 0, false) <= 220);
        assert!(gate.lag() < ACCEPT);
    }

    #[test]
    fn lag_between_the_two_bounds_changes_nothing() {
        let (mut gate, mut at) = started();
        for _ in 0..100 {
            at += 40;
            gate.on_lag(ms(40), Timestamp::from_millis(at));
            assert!(!gate.is_paused());
        }
        until(&mut gate, &mut at, 100, true);
        for _ in 0..20 {
            at += 40;
            gate.on_lag(ms(40), Timestamp::from_millis(at));
            assert!(gate.is_paused());
        }
    }

    #[test]
    fn one_hiccup_of_a_moment_is_no_overload() {
        let (mut gate, mut at) = started();
        for lag in [0, 0, 45, 0, 0, 55, 0, 0] {
            at += TICK.max(lag);
            gate.on_lag(ms(lag), Timestamp::from_millis(at));
            assert!(!gate.is_paused(), "{lag} at {at}");
        }
    }

    #[test]
    fn a_pause_ends_after_a_second_and_begins_again_if_it_must() {
        let (mut gate, mut at) = started();
        until(&mut gate, &mut at, 100, true);
        let paused = until(&mut gate, &mut at, 100, false);
        assert!((1000..=1100).contains(&paused), "{paused}");
        let accepting = until(&mut gate, &mut at, 100, true);
        assert!((100..=200).contains(&accepting), "{accepting}");
    }

    #[test]
    fn a_clock_that_stands_still_or_steps_back_pauses_nobody() {
        let mut gate = AcceptGate::default();
        for at in [1000, 1000, 500, 1000] {
            gate.on_lag(ms(20), Timestamp::from_millis(at));
            assert!(!gate.is_paused());
        }
    }
}
