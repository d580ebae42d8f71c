//! How often reading can be afforded. Pure: times come in.
//!
//! ```text
//! cost     = CPU time of reading / rounds       since the last look, smoothed: a quarter of each new one
//! allowed  = max(budget, process / 10)          CPUs; process: what the whole process takes, in CPUs
//! interval = cost / allowed, 50 ms at most
//! ```
//!
//! A front-end that has much to do may look more: what it sees decides where all that goes.
//!
//! Failure case: a thread that is kept from its CPU costs no CPU time, and still is late. `schedule` sees to that.
//! Source: our own; no measurement stands behind the tenth.

use std::time::Duration;

use tidegate_core::director::HEARTBEAT;
use tidegate_core::time::Timestamp;

/// The part of the process's CPU time that reading may take in any case.
const PART: f64 = 0.1;
/// The part that a new cost has in the smoothed one.
const SHARE: f64 = 0.25;

/// CPU time as of a moment, all since the start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    pub(super) at: Timestamp,
    /// Rounds of all nodes.
    pub(super) rounds: u64,
    /// What they took.
    pub(super) reading: Duration,
    /// What the process has taken.
    pub(super) process: Duration,
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// CPUs.
    budget: f64,
    last: Option<Spent>,
    /// Of a round, seconds.
    cost: Option<f64>,
    interval: Duration,
}

impl Budget {
    pub(super) fn new(budget: f64) -> Self {
        Self {
            budget,
            last: None,
            cost: None,
            interval: Duration::ZERO,
        }
    }

    /// The same with another budget.
    pub(super) fn of(self, budget: f64) -> Self {
        Self { budget, ..self }
    }

    /// The shortest interval that can be afforded; zero while that is not known.
    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// Takes in what was spent by now.
    pub(super) fn on_look(&mut self, spent: &Spent) {
        let Some(last) = self.last.replace(*spent) else {
            return;
        };
        let rounds = spent.rounds.saturating_sub(last.rounds);
        let seconds = spent.at.seconds_since(last.at);
        if rounds == 0 || seconds <= 0.0 {
            return;
        }
        let since = |now: Duration, then| now.saturating_sub(then).as_secs_f64();
        let new = since(spent.reading, last.reading) / rounds as f64;
        let cost = self.cost.map_or(new, |cost| cost + (new - cost) * SHARE);
        self.cost = Some(cost);
        let process = since(spent.process, last.process) / seconds;
        let allowed = self.budget.max(process * PART);
        let interval = Duration::try_from_secs_f64(cost / allowed);
        self.interval = interval.map_or(HEARTBEAT, |it| it.min(HEARTBEAT));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The interval after a look a second, at each of which so many rounds took so many ms, and the process so many.
    fn after(budget: f64, looks: &[(u64, u64, u64)]) -> Duration {
        let mut budget = Budget::new(budget);
        let mut spent = Spent {
            at: Timestamp::from_millis(1),
            rounds: 0,
            reading: Duration::ZERO,
            process: Duration::ZERO,
        };
        budget.on_look(&spent);
        assert_eq!(budget.interval(), Duration::ZERO, "nothing is known yet");
        for (rounds, reading, process) in looks {
            spent.at = spent.at + Duration::from_secs(1);
            spent.rounds += rounds;
            spent.reading += Duration::from_millis(*reading);
            spent.process += Duration::from_millis(*process);
            budget.on_look(&spent);
        }
        budget.interval()
    }

    #[test]
    fn reading_takes_its_budget_or_a_tenth_of_what_all_takes() {
        // 100 us a round: 20 a second and CPU percent.
        assert_eq!(after(0.05, &[(1000, 100, 120)]), Duration::from_millis(2));
        assert_eq!(after(0.05, &[(100, 10, 500)]), Duration::from_millis(2));
        assert_eq!(
            after(0.05, &[(1000, 100, 2000)]),
            Duration::from_micros(500)
        );
        assert_eq!(after(0.5, &[(1000, 100, 120)]), Duration::from_micros(200));
    }

    #[test]
    fn a_dear_moment_counts_for_a_quarter_and_none_without_a_round() {
        let steady = (1000, 100, 100);
        let dear = (1000, 500, 500);
        assert_eq!(after(0.05, &[steady, dear]), Duration::from_millis(4));
        assert_eq!(after(0.05, &[steady, (0, 3, 3)]), Duration::from_millis(2));
    }

    #[test]
    fn the_heartbeat_is_kept_whatever_it_costs() {
        assert_eq!(after(0.001, &[(10, 900, 900)]), HEARTBEAT);
        assert_eq!(after(0.0, &[(10, 900, 0)]), HEARTBEAT);
        // Reading that costs nothing is not even measured.
        assert_eq!(after(0.05, &[(10, 0, 0)]), Duration::ZERO);
    }
}
