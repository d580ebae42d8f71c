//! The time in which disturbed runs may be repeated.
//!
//! ```text
//! short form   what the plan leaves of the three minutes, less a margin
//! full form    as much again as the plan takes
//! ```
//!
//! A run is repeated for what the hypervisor and other programs did meanwhile, never for what it
//! measured, and not before the machine is quiet again (see `quiet.rs`). Once the reserve is used up, runs count as they are, and the report says how many
//! of them were disturbed. Pure: time comes in.

use std::time::Duration;

use tidegate_core::time::Timestamp;

use super::Scale;

/// What the short form of every experiment keeps within.
pub(super) const QUICK_MAX: Duration = Duration::from_secs(180);
/// For what estimates do not know.
const MARGIN: Duration = Duration::from_secs(8);
/// Of one run, so that one bad spell does not use up everything,
const REPEATS_MAX: u32 = 5;
/// and waited for at most so long before each.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reserve {
    end: Timestamp,
    /// What the rest of the plan takes.
    ahead: Duration,
}

impl Reserve {
    /// Of a plan of this length that begins now.
    pub(super) fn new(scale: Scale, plan: Duration, now: Timestamp) -> Self {
        let most = match scale {
            Scale::Quick => QUICK_MAX.saturating_sub(MARGIN),
            Scale::Full => plan * 2,
        };
        Self {
            end: now + most,
            ahead: plan,
        }
    }

    /// A part of the plan is done that was estimated at so long.
    pub(super) fn done(&mut self, part: Duration) {
        self.ahead = self.ahead.saturating_sub(part);
    }

    /// Whether a run of this length may be done once more.
    pub(super) fn allows(&self, run: Duration, repeats: u32, now: Timestamp) -> bool {
        repeats < REPEATS_MAX && now + self.ahead + run <= self.end
    }

    /// Whether it may be waited any longer for quiet before it.
    pub(super) fn waits(&self, run: Duration, since: Timestamp, now: Timestamp) -> bool {
        now.since(since) < WAIT_MAX && now + self.ahead + run < self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn only_time_that_the_plan_leaves_is_used() {
        let start = Timestamp::ZERO;
        let mut reserve = Reserve::new(Scale::Quick, SECOND * 150, start);
        assert!(reserve.allows(SECOND * 22, 0, start));
        assert!(!reserve.allows(SECOND * 23, 0, start));
        // Half of the plan took longer than estimated: less is left.
        reserve.done(SECOND * 75);
        assert!(reserve.allows(SECOND * 5, 0, start + SECOND * 92));
        assert!(!reserve.allows(SECOND * 6, 0, start + SECOND * 92));
        let full = Reserve::new(Scale::Full, SECOND * 600, start);
        assert!(full.allows(SECOND * 600, 0, start));
        assert!(!full.allows(SECOND * 601, 0, start));
    }

    #[test]
    fn one_run_is_not_repeated_for_ever() {
        let reserve = Reserve::new(Scale::Full, SECOND * 600, Timestamp::ZERO);
        let start = Timestamp::ZERO;
        assert!(reserve.allows(SECOND, 4, start));
        assert!(!reserve.allows(SECOND, 5, start));
        assert!(reserve.waits(SECOND, start, start + SECOND * 29));
        assert!(!reserve.waits(SECOND, start, start + SECOND * 30));
        assert!(!reserve.waits(SECOND * 600, start, start));
    }
}
