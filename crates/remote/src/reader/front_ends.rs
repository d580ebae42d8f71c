//! How many front-ends read the same nodes, from what each node counted.
//!
//! ```text
//! counted(node) = the most that the node named within the last second or two; where it is read over RDMA, and
//!                 its agent names none because it stands still, what it named last
//! estimate      = the middle of counted over the nodes that answered (of two, the smaller),
//!                 at most 1024
//! ```
//!
//! All front-ends read all nodes, so honest nodes agree, but for one whose agent has just begun. The middle
//! is a number that an honest node named, or lies between two of them, while less than half of the nodes
//! lie; the largest of all was whatever one captured node liked to say.
//!
//! Failure case: a single node is believed, whatever it says, up to the bound; of two, one can make
//! the estimate smaller. A front-end that ends while an agent stands still is counted until that goes on.

use std::time::Duration;

use tidegate_core::time::Timestamp;

/// More than this is nonsense: a node's table of readers has no more entries.
const FRONT_ENDS_MAX: u32 = 1024;
/// Over this time, and the one before, the largest number is kept.
const WINDOW: Duration = Duration::from_secs(1);

/// What one node counted of late.
#[derive(Debug, Default)]
pub(super) struct Counted {
    window: u64,
    now: u32,
    last: u32,
    named: u32,
}

impl Counted {
    pub(super) fn note(&mut self, value: u32, now: Timestamp) {
        self.turn(now);
        self.named = value;
        self.now = self.now.max(value);
    }

    /// The node is read, by what names no number: the last one still holds.
    pub(super) fn still(&mut self, now: Timestamp) {
        self.turn(now);
        self.now = self.now.max(self.named);
    }

    /// Zero if it has not answered.
    pub(super) fn current(&mut self, now: Timestamp) -> u32 {
        self.turn(now);
        self.now.max(self.last)
    }

    fn turn(&mut self, now: Timestamp) {
        let window = now.nanos() / WINDOW.as_nanos() as u64;
        if window != self.window {
            self.last = if window == self.window + 1 {
                self.now
            } else {
                0
            };
            self.now = 0;
            self.window = window;
        }
    }
}

/// The number of front-ends, from those that the nodes counted; zero if none did.
pub(super) fn estimate(counted: impl Iterator<Item = u32>) -> u32 {
    let mut known: Vec<_> = counted.filter(|count| *count > 0).collect();
    if known.is_empty() {
        return 0;
    }
    let middle = (known.len() - 1) / 2;
    let (_, middle, _) = known.select_nth_unstable(middle);
    (*middle).min(FRONT_ENDS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minority_of_lying_nodes_moves_the_estimate_nowhere() {
        let of = |counted: &[u32]| estimate(counted.iter().copied());
        for lie in [1, 13, FRONT_ENDS_MAX, u32::MAX] {
            assert_eq!(of(&[4, lie, 4]), 4);
            assert_eq!(of(&[lie, 4, lie, 4, 4, 4, lie, 4, 4, lie]), 4);
        }
        assert_eq!(of(&[4, u32::MAX]), 4, "of two the smaller");
        // A node that has just begun has not seen all yet; one that is silent says nothing.
        assert_eq!(of(&[4, 1, 4, 0, 0, 0]), 4);
        assert_eq!(of(&[]), 0);
        assert_eq!(of(&[0, 0]), 0);
    }

    #[test]
    fn one_node_is_believed_up_to_the_bound() {
        for (said, believed) in [
            (1, 1),
            (FRONT_ENDS_MAX, FRONT_ENDS_MAX),
            (FRONT_ENDS_MAX + 1, FRONT_ENDS_MAX),
            (u32::MAX, FRONT_ENDS_MAX),
        ] {
            assert_eq!(estimate([said].into_iter()), believed);
        }
    }

    #[test]
    fn what_a_node_counted_is_kept_for_a_second_or_two() {
        let at = |millis: u64| Timestamp::from_nanos(millis * 1_000_000);
        let mut counted = Counted::default();
        counted.note(3, at(1_000));
        counted.note(2, at(1_500));
        assert_eq!(counted.current(at(1_999)), 3);
        counted.note(2, at(2_100));
        assert_eq!(counted.current(at(2_999)), 3);
        assert_eq!(counted.current(at(3_000)), 2);
        assert_eq!(counted.current(at(4_000)), 0);
    }

    #[test]
    fn what_a_node_counted_last_holds_while_it_is_read_without_its_agent() {
        let at = |millis: u64| Timestamp::from_nanos(millis * 1_000_000);
        let mut counted = Counted::default();
        counted.still(at(500));
        assert_eq!(counted.current(at(500)), 0, "none was named yet");
        counted.note(3, at(1_000));
        counted.note(2, at(1_500));
        for second in 2..20 {
            counted.still(at(second * 1_000));
        }
        assert_eq!(counted.current(at(19_999)), 2);
        assert_eq!(counted.current(at(21_000)), 0);
    }
}
