//! Which nodes were read last, where the budget does not allow to read all of them as often as decisions could use.
//!
//! ```text
//! groups  = interval / SLOT         nodes in ascending order, one group read in each slot of 0.8 ms
//! recent  = the group whose answers came last: read a slot and a round trip ago at most
//! of use    where interval >= 8 ms and a group has RECENT_MIN nodes at least
//! ```
//!
//! A reader says which nodes these are, and the load table passes it on. `policy::auto` looks among them first: what it compares is
//! fresh then, however long a round of all nodes takes. With agents that renew their records each millisecond no age is above 2 ms.
//!
//! Inputs: how many nodes are read, how often each, and which of them each slot reads.
//!
//! Failure case: a node that does not answer, or is read less often, is among the recent ones all the same; its record is as old
//! as it says, and old is unknown. Nodes out of service are no candidates. While the recent nodes are another site's, candidates are
//! drawn from all. A reader that is late is late with its groups too.
//! Source: our own; simulated in `crates/sim/examples/turn_rows.rs`, decision 062.

use std::ops::Range;
use std::time::Duration;

use crate::ids::NodeId;

/// For so long the nodes of a group are the recent ones.
const SLOT: Duration = Duration::from_micros(800);
/// Where each node is read more often than this, no record is much older than those of a group.
const INTERVAL_MIN: Duration = Duration::from_millis(8);
/// Smaller groups are not worth a reader's wake-ups.
const RECENT_MIN: usize = 8;

/// In how many groups nodes are read in turn, where that is of use.
pub fn groups(nodes: usize, interval: Duration) -> Option<usize> {
    if interval < INTERVAL_MIN {
        return None;
    }
    let groups = (interval.as_nanos() / SLOT.as_nanos()) as usize;
    (nodes / groups >= RECENT_MIN).then_some(groups)
}

/// The nodes that were read last: from the first on, in ascending order, and before the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recent {
    first: u32,
    /// Not among them; never 0.
    end: u32,
}

impl Recent {
    /// Those from the first to the last.
    pub fn new(first: NodeId, last: NodeId) -> Self {
        Self {
            first: first.0,
            end: last.0.saturating_add(1),
        }
    }

    /// One word for the load table.
    pub(super) fn word(recent: Option<Self>) -> u64 {
        recent.map_or(0, |it| (u64::from(it.first) << 32) | u64::from(it.end))
    }

    pub(super) fn of_word(word: u64) -> Option<Self> {
        let end = word as u32;
        let first = (word >> 32) as u32;
        (end > 0).then_some(Self { first, end })
    }

    /// Their places among candidates in ascending order.
    pub fn among(self, candidates: &[NodeId]) -> Range<usize> {
        let before = |bound: u32| candidates.partition_point(|node| node.0 < bound);
        let first = before(self.first);
        first..before(self.end).max(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_that_are_out_or_of_another_site_are_not_recent() {
        let recent = Recent::new(NodeId(10), NodeId(19));
        let among = |numbers: &[u32]| {
            let candidates: Vec<_> = numbers.iter().copied().map(NodeId).collect();
            recent.among(&candidates)
        };
        assert_eq!(among(&[3, 9, 10, 12, 19, 20, 40]), 2..5);
        assert_eq!(among(&[3, 9, 20]), 2..2);
        assert!(among(&[]).is_empty() && among(&[1, 2]).is_empty());
        let turned = Recent::new(NodeId(9), NodeId(3));
        assert!(turned.among(&[NodeId(2), NodeId(5)]).is_empty());
    }

    #[test]
    fn a_word_says_as_much() {
        for recent in [
            None,
            Some(Recent::new(NodeId(0), NodeId(0))),
            Some(Recent::new(NodeId(7), NodeId(u32::MAX))),
        ] {
            assert_eq!(Recent::of_word(Recent::word(recent)), recent);
        }
    }

    #[test]
    fn turns_are_for_many_nodes_that_are_read_seldom() {
        let ms = Duration::from_millis;
        assert_eq!(groups(1000, ms(55)), Some(68));
        assert_eq!(groups(1000, ms(100)), Some(125));
        // 50 nodes on 15 % of a CPU and on 5.
        assert_eq!((groups(50, ms(3)), groups(50, ms(8))), (None, None));
        assert_eq!(groups(1000, ms(5)), None);
        assert_eq!(
            (groups(0, ms(50)), groups(1000, Duration::ZERO)),
            (None, None)
        );
    }
}
