//! What a front-end knows of a node's clock. Pure.
//!
//! ```text
//! node_now - received_at <= offset <= node_now - sent_at        each answer
//! offset    the one before, while an answer allows it; else the least that it allows
//! ```
//!
//! An answer carries the node's clock of some moment between the request and the answer. Either end alone
//! is wrong by what a datagram, or the thread that takes it in, was late. Atomics are numbered by this clock, and
//! a number that is too old costs another try, while one of the future is lost: hence the least.

use tidegate_core::time::Timestamp;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeClock {
    /// The node's clock minus ours, once an answer has come.
    offset: Option<i128>,
}

impl NodeClock {
    /// The node's clock was this at some moment between these two.
    pub(crate) fn note(&mut self, node_now_ns: u64, sent_at: Timestamp, received_at: Timestamp) {
        let at = |ours: Timestamp| i128::from(node_now_ns) - i128::from(ours.nanos());
        let allowed = at(received_at)..=at(sent_at);
        if !self.offset.is_some_and(|offset| allowed.contains(&offset)) {
            self.offset = Some(*allowed.start());
        }
    }

    /// Whether an answer has come.
    pub(crate) fn is_known(&self) -> bool {
        self.offset.is_some()
    }

    /// The node's clock as far as known, ns; 0: not yet.
    pub(crate) fn at(&self, now: Timestamp) -> u64 {
        let node_now = self.offset.map(|offset| i128::from(now.nanos()) + offset);
        node_now.map_or(0, |node_now| u64::try_from(node_now).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1_000 + ms)
    }

    /// The node's clock is five seconds ahead of ours.
    fn node(ms: u64) -> u64 {
        at(5_000 + ms).nanos()
    }

    #[test]
    fn nothing_is_known_before_an_answer() {
        assert_eq!(NodeClock::default().at(at(0)), 0);
    }

    #[test]
    fn an_answer_that_is_taken_in_late_makes_the_clock_no_older() {
        let mut clock = NodeClock::default();
        clock.note(node(1), at(0), at(2));
        assert_eq!(clock.at(at(10)), node(9), "by half of the round trip");
        // Answered at 20, taken in at 500: by its coming alone the clock would be half a second behind.
        clock.note(node(20), at(19), at(500));
        assert_eq!(clock.at(at(500)), node(499));
    }

    #[test]
    fn a_better_answer_moves_the_clock_ahead_and_never_beyond_the_nodes() {
        let mut clock = NodeClock::default();
        // The first one is late on its way there, or taken in late: which of them cannot be known.
        clock.note(node(1), at(0), at(300));
        assert_eq!(clock.at(at(300)), node(1));
        clock.note(node(400), at(100), at(401));
        assert_eq!(clock.at(at(401)), node(400));
        clock.note(node(500), at(500), at(500));
        assert_eq!(clock.at(at(500)), node(500));
    }

    #[test]
    fn a_clock_that_was_set_back_or_began_anew_is_followed() {
        let mut clock = NodeClock::default();
        clock.note(node(1), at(0), at(2));
        clock.note(17, at(10), at(12));
        assert_eq!(clock.at(at(12)), 17);
        // Nonsense is followed as well, and left again.
        clock.note(u64::MAX, at(20), at(22));
        assert_eq!(clock.at(at(22)), u64::MAX);
        assert_eq!(clock.at(at(23)), 0, "beyond what a clock can show");
        clock.note(node(30), at(30), at(30));
        assert_eq!(clock.at(at(31)), node(31));
    }
}
