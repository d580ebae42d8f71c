//! How long a thread may be at real-time priority for what is in vain.

use std::time::Duration;

use tidegate_core::time::Timestamp;

/// Over this time the CPU time is limited.
const BUDGET_WINDOW: Duration = Duration::from_millis(100);

/// What a thread does with its priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum PriorityChange {
    /// It stays.
    Stay,
    /// To normal priority, until the window ends.
    Lower,
    /// Back to real-time priority.
    Raise,
}

/// A share of a CPU at real-time priority for what is in vain; beyond it the thread waits for its turn like any other.
/// Requests by the node's clock of now take what they need.
pub(in super::super) struct RealtimeBudget {
    per_window: Duration,
    since: Timestamp,
    cpu: Duration,
    in_vain: Duration,
    over: bool,
}

impl RealtimeBudget {
    /// A share of one CPU, 0 to 1, for a thread that has used so much of it.
    pub(in super::super) fn new(share: f64, cpu: Duration) -> Self {
        Self {
            per_window: BUDGET_WINDOW.mul_f64(share.clamp(0.0, 1.0)),
            since: Timestamp::ZERO,
            cpu,
            in_vain: Duration::ZERO,
            over: false,
        }
    }

    /// What to do now that the thread has used so much CPU time in all, since the last time for `received` datagrams,
    /// of which `in_vain` were.
    pub(in super::super) fn note(
        &mut self,
        cpu: Duration,
        in_vain: u32,
        received: u32,
        now: Timestamp,
    ) -> PriorityChange {
        let used = cpu.saturating_sub(self.cpu);
        self.cpu = cpu;
        let mut turn = PriorityChange::Stay;
        if now.since(self.since) >= BUDGET_WINDOW {
            self.since = now;
            self.in_vain = Duration::ZERO;
            if std::mem::take(&mut self.over) {
                turn = PriorityChange::Raise;
            }
        }
        self.in_vain += used * in_vain / received.max(1);
        if turn == PriorityChange::Stay && !self.over && self.in_vain > self.per_window {
            self.over = true;
            turn = PriorityChange::Lower;
        }
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn a_thread_beyond_its_budget_waits_like_any_other_until_the_window_ends() {
        let ms = Duration::from_millis;
        let mut budget = RealtimeBudget::new(0.05, ms(3));
        assert_eq!(budget.note(ms(4), 10, 10, at(1000)), PriorityChange::Stay);
        // 5 ms of 100.
        assert_eq!(budget.note(ms(8), 10, 10, at(1050)), PriorityChange::Stay);
        assert_eq!(budget.note(ms(9), 10, 10, at(1060)), PriorityChange::Lower);
        assert_eq!(budget.note(ms(40), 10, 10, at(1090)), PriorityChange::Stay);
        assert_eq!(budget.note(ms(41), 10, 10, at(1100)), PriorityChange::Raise);
        assert_eq!(budget.note(ms(45), 10, 10, at(1150)), PriorityChange::Stay);
        assert_eq!(budget.note(ms(46), 10, 10, at(1199)), PriorityChange::Lower);
        // A whole CPU is never too much.
        let mut whole = RealtimeBudget::new(1.0, ms(0));
        assert_eq!(whole.note(ms(0), 1, 1, at(1000)), PriorityChange::Stay);
        assert_eq!(whole.note(ms(99), 1, 1, at(1099)), PriorityChange::Stay);
    }

    #[test]
    fn honest_requests_take_nothing_of_the_budget() {
        let ms = Duration::from_millis;
        let mut budget = RealtimeBudget::new(0.05, ms(0));
        assert_eq!(budget.note(ms(0), 0, 1, at(1000)), PriorityChange::Stay);
        assert_eq!(budget.note(ms(80), 0, 64, at(1080)), PriorityChange::Stay);
        // Nothing came.
        assert_eq!(budget.note(ms(81), 0, 0, at(1081)), PriorityChange::Stay);
        // A quarter of 16 ms, and of 8.
        assert_eq!(budget.note(ms(97), 16, 64, at(1097)), PriorityChange::Stay);
        assert_eq!(
            budget.note(ms(105), 16, 64, at(1099)),
            PriorityChange::Lower
        );
    }
}
