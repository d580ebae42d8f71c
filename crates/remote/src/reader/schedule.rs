//! When the reader reads which node. Pure: time comes in.
//!
//! Nodes are divided into groups, and an interval into as many slots. Reading all nodes in one
//! burst at the start of each interval would cost fewer wake-ups, but a thousand answers would
//! come at once: more than the default receive buffer holds (some three hundred answers) and
//! than a NIC's ring usually does, and the last of them would wait for half a millisecond
//! behind the others. In slots of at least [`SLOT_MIN`] with at least [`GROUP_MIN`] nodes, a
//! batch is still large enough that a system call costs little per node.
//!
//! A reader that cannot keep up leaves out time, never nodes: groups come in turn whatever the
//! clock says, so all nodes are read equally often, if less often than asked. And after each
//! slot that came too late it rests for as long as the slot's work took: at real-time priority
//! nothing else would run on its CPU, and a front-end has requests to serve as well. So a reader
//! that is asked for too much takes half a core, not a whole one.
//!
//! Where the budget allows to read many nodes but seldom, they are read in turn: in as many groups as `load::groups` says, however
//! small, so that some have always been read just now.
//!
//! The interval changes with what loads are needed for. Then the group whose turn it was has it still: a pace that changes
//! all the time leaves out none.

use std::ops::Range;
use std::time::Duration;

use tidegate_core::load;
use tidegate_core::time::Timestamp;

/// Fewest nodes of a group, if there are more groups than one.
const GROUP_MIN: usize = 64;
/// Shortest slot.
const SLOT_MIN: Duration = Duration::from_micros(100);

/// How often to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadPace {
    /// Time between two reads of a node.
    pub(super) interval: Duration,
    /// Shorter ones would be of use, and are not within the budget.
    pub(super) is_short_of: bool,
}

/// Absolute deadlines, one per slot.
#[derive(Debug)]
pub(super) struct Schedule {
    nodes: usize,
    pace: ReadPace,
    in_turn: bool,
    groups: usize,
    slot: Duration,
    group: usize,
    began: Timestamp,
    deadline: Timestamp,
    overruns: u64,
    rounds: u64,
}

impl Schedule {
    pub(super) fn new(nodes: usize, interval: Duration, now: Timestamp) -> Self {
        let pace = ReadPace {
            interval,
            is_short_of: false,
        };
        Self::at(nodes, pace, now)
    }

    fn at(nodes: usize, pace: ReadPace, now: Timestamp) -> Self {
        let interval = pace.interval;
        let turns = load::groups(nodes, interval).filter(|_| pace.is_short_of);
        let by_nodes = nodes / GROUP_MIN;
        let by_time = (interval.as_nanos() / SLOT_MIN.as_nanos()) as usize;
        let groups = turns.unwrap_or(by_nodes.min(by_time)).max(1);
        Self {
            nodes,
            pace,
            in_turn: turns.is_some(),
            groups,
            slot: interval / groups as u32,
            group: 0,
            began: now,
            deadline: now,
            overruns: 0,
            rounds: 0,
        }
    }

    /// Goes on with so many nodes.
    pub(super) fn of(self, nodes: usize, interval: Duration, now: Timestamp) -> Self {
        Self {
            overruns: self.overruns,
            rounds: self.rounds,
            ..Self::new(nodes, interval, now)
        }
    }

    /// How often it reads.
    pub(super) fn paced_by(&self) -> ReadPace {
        self.pace
    }

    /// Whether nodes are read in turn, because they cannot be read as often as is of use.
    pub(super) fn in_turn(&self) -> bool {
        self.in_turn
    }

    /// Goes on at this pace, at once.
    pub(super) fn paced(self, pace: ReadPace, now: Timestamp) -> Self {
        let next = Self::at(self.nodes, pace, now);
        // Where there are fewer groups now, the same nodes are in one further in front.
        let group = self.group * next.groups / self.groups;
        Self {
            group,
            overruns: self.overruns,
            rounds: self.rounds,
            ..next
        }
    }

    /// Begins a slot: the nodes to read in it, and whether a round of all nodes begins.
    pub(super) fn begin(&mut self, now: Timestamp) -> (Range<usize>, bool) {
        self.began = now;
        let group = self.group;
        self.group = (group + 1) % self.groups;
        self.deadline = self.deadline + self.slot;
        if group == 0 {
            self.rounds += 1;
        }
        // Whole nodes, spread evenly: no group has two more than another.
        let bound = |group: usize| group * self.nodes / self.groups;
        (bound(group)..bound(group + 1), group == 0)
    }

    /// When the slot ends.
    pub(super) fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// Ends a slot whose work was done by `now`: until when to rest, if it came too late. The
    /// time that was lost is not made up for.
    pub(super) fn end(&mut self, now: Timestamp) -> Option<Timestamp> {
        if now.since(self.deadline) < self.slot {
            return None;
        }
        self.overruns += 1;
        self.deadline = now + now.since(self.began);
        Some(self.deadline)
    }

    /// Slots that ended more than a slot late.
    pub(super) fn overruns(&self) -> u64 {
        self.overruns
    }

    /// Rounds of all nodes begun.
    pub(super) fn rounds(&self) -> u64 {
        self.rounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(1);

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_nanos(micros * 1000)
    }

    fn pace(millis: u64, is_short_of: bool) -> ReadPace {
        ReadPace {
            interval: Duration::from_millis(millis),
            is_short_of,
        }
    }

    #[test]
    fn every_node_comes_once_a_round() {
        for nodes in [1, 2, 63, 64, 127, 128, 1000, 1001, 5000] {
            let mut schedule = Schedule::new(nodes, INTERVAL, at(0));
            for round in 0..2 {
                let mut next = 0;
                let mut sizes = Vec::new();
                while next < nodes {
                    let (group, first) = schedule.begin(at(0));
                    assert_eq!(first, next == 0);
                    assert_eq!(group.start, next);
                    sizes.push(group.len());
                    next = group.end;
                }
                assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
                let ends = at(1000 * (round + 1));
                assert!(ends.since(schedule.deadline()) < Duration::from_micros(1));
            }
            assert_eq!(schedule.rounds(), 2);
        }
    }

    #[test]
    fn a_new_interval_begins_at_once_and_leaves_no_group_out() {
        let mut schedule = Schedule::new(1000, Duration::from_millis(50), at(0));
        assert_eq!(schedule.groups, 15);
        let mut next = 0;
        for turn in 0..100 {
            let (group, _) = schedule.begin(at(turn));
            assert!(group.start <= next, "{turn}: {group:?} after {next}");
            next = group.end % 1000;
            let millis = [1, 50][turn as usize % 2];
            let paced = pace(millis, false);
            schedule = schedule.paced(paced, at(turn));
            assert_eq!(schedule.paced_by(), paced);
            assert_eq!(schedule.deadline(), at(turn));
        }
        assert!(schedule.rounds() >= 5, "{}", schedule.rounds());
    }

    #[test]
    fn nodes_that_are_read_seldom_are_read_in_turn_and_none_is_left_out() {
        let calm = || Schedule::new(1000, INTERVAL, at(0));
        let mut schedule = calm().paced(pace(55, true), at(0));
        assert!(schedule.in_turn());
        let mut next = 0;
        for turn in 0..68 {
            let (group, first) = schedule.begin(at(turn));
            assert_eq!((group.start, first), (next, turn == 0));
            assert!((14..=15).contains(&group.len()), "{group:?}");
            next = group.end;
        }
        assert_eq!(next, 1000);
        // As often as is of use again, and seldom for want of need.
        assert!(!schedule.paced(pace(1, true), at(0)).in_turn());
        assert!(!calm().paced(pace(55, false), at(0)).in_turn());
    }

    #[test]
    fn groups_are_neither_small_nor_short() {
        for (nodes, interval_ms, groups) in [(10, 1, 1), (128, 1, 2), (1000, 1, 10), (1000, 50, 15)]
        {
            let schedule = Schedule::new(nodes, Duration::from_millis(interval_ms), at(0));
            assert_eq!(schedule.groups, groups, "{nodes} nodes, {interval_ms} ms");
        }
    }

    #[test]
    fn a_late_reader_loses_time_and_not_nodes() {
        let mut schedule = Schedule::new(10, INTERVAL, at(0));
        schedule.begin(at(0));
        assert_eq!(schedule.end(at(900)), None);
        schedule.begin(at(1000));
        // A little late is made up for.
        assert_eq!(schedule.end(at(2900)), None);
        schedule.begin(at(2900));
        assert_eq!(schedule.deadline(), at(3000));
        // It worked for 4.1 ms and rests as long.
        assert_eq!(schedule.end(at(7000)), Some(at(11_100)));
        assert_eq!(schedule.overruns(), 1);
        assert_eq!(schedule.begin(at(11_100)).0, 0..10);
        assert_eq!(schedule.deadline(), at(12_100));
    }
}
