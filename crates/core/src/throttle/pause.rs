//! For how long the place of a request stays taken that its throttle has let on and admission has refused.
//!
//! ```text
//! pause   what an answer of the class takes, the mean of the last 8 or so; a second at the most, and while none
//!         is known
//! ends    also when none is held any more, when one that has lent its place needs one again, and when the
//!         throttle is released
//! ```
//!
//! A refusal takes no time: without a pause all requests that are held would go on one after the other within a
//! moment, and be refused while there is no room. With it they go no faster than they would be answered.
//!
//! Inputs: how long answers took, refusals, a clock. What it does not know: what is held, and why there is no room.
//!
//! Failure case: a site without room for good; then one is refused for each place and pause, and the others are held.

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::Timestamp;

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Part of the last answer in the mean.
const PART: f64 = 1.0 / 8.0;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Pauses {
    /// When those that have begun end.
    until: VecDeque<Timestamp>,
    /// What an answer takes, seconds.
    took: Option<f64>,
}

impl Pauses {
    pub(super) fn is_empty(&self) -> bool {
        self.until.is_empty()
    }

    /// A request was answered after so long.
    pub(super) fn on_answer(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        let before = self.took.unwrap_or(took);
        self.took = Some(before + (took - before) * PART);
    }

    /// A place stays taken from now on. None ends before those that have begun earlier.
    pub(super) fn begin(&mut self, now: Timestamp) {
        let most = PAUSE_MAX.as_secs_f64();
        let pause = Duration::from_secs_f64(self.took.map_or(most, |took| took.min(most)));
        let last = self.until.back().copied().unwrap_or(now);
        self.until.push_back(last.max(now + pause));
    }

    /// When the next pause ends.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.until.front().copied()
    }

    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.due().is_some_and(|due| due <= now)
    }

    /// Ends the next pause; false if there is none.
    pub(super) fn pop(&mut self) -> bool {
        self.until.pop_front().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause(took: &[u64]) -> Duration {
        let mut pauses = Pauses::default();
        for millis in took {
            pauses.on_answer(Duration::from_millis(*millis));
        }
        let now = Timestamp::from_millis(5000);
        pauses.begin(now);
        pauses.due().unwrap().since(now)
    }

    #[test]
    fn a_pause_is_as_long_as_an_answer_takes_and_a_second_at_the_most() {
        assert_eq!(pause(&[]), PAUSE_MAX);
        assert_eq!(pause(&[40]), Duration::from_millis(40));
        assert_eq!(pause(&[40, 120]), Duration::from_millis(50));
        assert_eq!(pause(&[999]), Duration::from_millis(999));
        assert_eq!(pause(&[60_000]), PAUSE_MAX);
    }

    #[test]
    fn pauses_end_in_the_order_in_which_they_began() {
        let at = Timestamp::from_millis;
        let mut pauses = Pauses::default();
        pauses.begin(at(0));
        pauses.on_answer(Duration::from_millis(10));
        pauses.begin(at(500));
        assert!(!pauses.is_over(at(999)) && pauses.is_over(at(1000)));
        assert!(pauses.pop() && pauses.is_over(at(1000)));
        assert!(pauses.pop() && pauses.is_empty() && !pauses.pop());
    }
}
