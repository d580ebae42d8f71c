//! When a front-end helps with a lock that stands still, and how homes and nodes without words begin.
//!
//! ```text
//! lease  20 ms + 3 round trips, times 1 to 2 at random           own clock, from when the word was first seen
//! help   TAKE, COMMIT, GIVE unchanged for the lease; VOID unchanged for the fence, 2 AGE_MAX at least
//! home   K or an S is blank: for 2 AGE_MAX + lease nothing; then K 0 -> ours, each S 0 -> free at a random sequence
//! node   A is blank: 0 -> (1, serves its home); a front-end that knows generation g: (g + 1, serves where it was known)
//! order  generations only grow: a smaller one is an old datagram, unless the node's words have begun anew
//! ```
//!
//! Leases only say when to help: a lease that is over too soon costs a swap that fails, never safety. No value comes back,
//! so a word that reads the same has stood still in between. Blank does come back: it counts while it is read at least each
//! 100 ms. While a home is blank, swaps of nodes that were under way when its words were lost grow too old. A sequence that
//! begins at random is not one that a sleeping front-end remembers.
//!
//! Inputs: words with the time of their reading, round trips, random numbers. Failure case: with a transport that
//! refuses nothing for its age (RDMA) the fence must be the time until the node's queue pair is gone; the caller sets it.
//! A front-end whose clock runs half as fast as the node's waits too little. A lent node without words, file and front-end
//! that knows it goes home, whatever floors say.
//! Source: not in Reconfiguration-2004, whose locks die with their owners.

use std::time::Duration;

use super::words::{Assignment, Count24, LockPhase, LockState, SiteLock, SiteNumber, WordError};
use crate::time::Timestamp;

/// Nodes refuse a swap with a deadline that is older than this, by their own clocks.
pub const AGE_MAX: Duration = Duration::from_millis(200);
/// A node that has not answered for so long counts as silent.
pub const SILENT_AFTER: Duration = Duration::from_millis(250);
/// What a lease is at least, and how many round trips come on top.
const LEASE: Duration = Duration::from_millis(20);
const LEASE_ROUND_TRIPS: u32 = 3;
/// How much longer than `AGE_MAX` a void move waits: clocks differ, and so do the ways of datagrams.
const FENCE_FACTOR: u32 = 2;

/// A blank word that was not read for so long may have been written and lost again.
const BLANK_GAP: Duration = Duration::from_millis(100);

/// How long a lock stands still before it is helped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// A lock that is taken.
    pub lease: Duration,
    /// A lock whose move is void.
    pub fence: Duration,
}

impl Patience {
    /// By the round trip to the home, a random number in [0, 1), and what the transport to nodes needs until no
    /// swap can be late any more.
    pub fn new(round_trip: Duration, random: f64, transport_fence: Duration) -> Self {
        let lease = LEASE + LEASE_ROUND_TRIPS * round_trip;
        Self {
            lease: lease.mul_f64(1.0 + random.clamp(0.0, 1.0)),
            fence: transport_fence.max(FENCE_FACTOR * AGE_MAX),
        }
    }

    /// How long nothing is done about a home without words.
    pub fn blank(&self) -> Duration {
        self.fence + self.lease
    }
}

/// What a front-end has seen of a word of the home, a site's lock or the constitution, on its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockWatch {
    word: u64,
    since: Timestamp,
    read_at: Timestamp,
}

/// What a lock that stands still asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockCare {
    /// Nothing yet.
    None,
    /// [`super::steps::Attempt::help`] with what it holds.
    Help(SiteLock),
    /// It has no words: swap 0 for a free lock.
    Begin,
}

impl LockWatch {
    /// Begins with what was read.
    pub const fn new(word: u64, now: Timestamp) -> Self {
        Self {
            word,
            since: now,
            read_at: now,
        }
    }

    /// It was read again.
    pub fn on_read(&mut self, word: u64, now: Timestamp) {
        let is_unseen = word == 0 && now.since(self.read_at) > BLANK_GAP;
        if word != self.word || is_unseen {
            *self = Self::new(word, now);
        }
        self.read_at = now;
    }

    /// Whether it has been blank for so long that it may be begun.
    pub fn may_begin(&self, patience: &Patience) -> bool {
        self.word == 0 && self.read_at.since(self.since) >= patience.blank()
    }

    /// What there is to do about a lock, as of the latest reading.
    ///
    /// # Errors
    /// The word holds what no front-end writes.
    pub fn care(&self, patience: &Patience) -> Result<LockCare, WordError> {
        let stood = self.read_at.since(self.since);
        let Some(lock) = SiteLock::unpack(self.word)? else {
            return Ok(match self.may_begin(patience) {
                true => LockCare::Begin,
                false => LockCare::None,
            });
        };
        let wait = match lock.state {
            LockState::Idle | LockState::Frozen => return Ok(LockCare::None),
            LockState::Receives(LockPhase::Void, _) => patience.fence,
            LockState::Receives(LockPhase::Take | LockPhase::Commit, _) | LockState::Gives(_) => {
                patience.lease
            }
        };
        let over = stood >= wait;
        Ok(if over {
            LockCare::Help(lock)
        } else {
            LockCare::None
        })
    }
}

/// The lock that a site without one begins with.
pub fn first_lock(random: u64) -> SiteLock {
    SiteLock::idle(Count24::new(random as u32).next())
}

/// How a front-end takes an assignment that it has read of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It is what is known, or later: take it.
    News,
    /// It is an old datagram: drop it.
    Old,
    /// The node lost its words, and a front-end that knew less began them anew: swap it for this.
    Raise(Assignment),
}

/// Compares what was read with what is known. `same_life`: the region's epoch is that of what is known.
pub fn arrival(known: Option<Assignment>, read: Assignment, same_life: bool) -> Arrival {
    match known {
        Some(known) if known.generation.is_after(read.generation) => match same_life {
            true => Arrival::Old,
            false => Arrival::Raise(Assignment {
                generation: known.generation.next(),
                ..read
            }),
        },
        Some(_) | None => Arrival::News,
    }
}

/// What a node without a word begins with: what is known of it, or its site by the configuration.
pub fn first_assignment(known: Option<Assignment>, home: SiteNumber) -> Assignment {
    match known {
        None => Assignment::first(Count24::FIRST, home, false),
        Some(known) => {
            // What was on its way has lost its agent's state: it serves where it came from.
            let site = known.from().unwrap_or(known.site);
            let first = Assignment::first(known.generation.next(), site, site != home);
            Assignment {
                pinned: known.pinned,
                ..first
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::words::{AssignmentState, Gift, Intention, MoveCause, NodeNumber};
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1000 + millis)
    }

    fn taken() -> SiteLock {
        SiteLock::idle(Count24::FIRST).taken(Intention {
            node: NodeNumber(0),
            generation_low: 1,
            donor: SiteNumber(1),
            cause: MoveCause::Load,
            owner: 0,
        })
    }

    fn patience() -> Patience {
        Patience::new(MS(2), 0.0, Duration::ZERO)
    }

    /// Milliseconds until something is to be done about a lock that is read each millisecond.
    fn waits(word: u64) -> Option<u64> {
        let mut watch = LockWatch::new(word, at(0));
        (0..1000).find(|millis| {
            watch.on_read(word, at(*millis));
            watch.care(&patience()).unwrap() != LockCare::None
        })
    }

    #[test]
    fn a_lock_is_helped_after_the_lease_and_a_void_one_after_the_fence() {
        let give = SiteLock::idle(Count24::FIRST).giving(Gift {
            node: NodeNumber(0),
            generation_low: 1,
            receiver: SiteNumber(0),
            receiver_sequence_low: 2,
        });
        assert_eq!(waits(taken().pack()), Some(26));
        assert_eq!(waits(taken().in_phase(LockPhase::Commit).pack()), Some(26));
        assert_eq!(waits(give.pack()), Some(26));
        assert_eq!(waits(taken().in_phase(LockPhase::Void).pack()), Some(400));
        assert_eq!(waits(0), Some(426));
        assert_eq!(waits(SiteLock::idle(Count24::FIRST).pack()), None);
        let frozen = SiteLock {
            state: LockState::Frozen,
            ..taken()
        };
        assert_eq!(waits(frozen.pack()), None);
    }

    #[test]
    fn a_lock_that_changes_is_waited_for_anew() {
        let mut watch = LockWatch::new(taken().pack(), at(0));
        let committed = taken().in_phase(LockPhase::Commit);
        let mut care = |word, millis| {
            watch.on_read(word, at(millis));
            watch.care(&patience())
        };
        assert_eq!(care(committed.pack(), 20), Ok(LockCare::None));
        assert_eq!(care(committed.pack(), 40), Ok(LockCare::None));
        let help = Ok(LockCare::Help(committed));
        assert_eq!(care(committed.pack(), 46), help);
        assert_eq!(care(committed.pack(), 5000), help, "it is the same lock");
        assert!(care(7 << 37 | 1 << 40, 5001).is_err());
    }

    #[test]
    fn a_blank_word_counts_while_it_is_read() {
        let mut watch = LockWatch::new(0, at(0));
        let mut begins = |millis| {
            watch.on_read(0, at(millis));
            watch.may_begin(&patience())
        };
        let early: Vec<_> = (1..5).map(|it| begins(100 * it)).collect();
        assert_eq!(early, [false; 4]);
        assert!(begins(426));
        assert!(!begins(527), "it may have been begun and lost again");
        assert!((6..10).map(|it| begins(100 * it)).all(|it| !it));
        assert!(begins(953));
    }

    #[test]
    fn leases_differ_by_chance_and_the_fence_is_what_the_transport_needs() {
        assert_eq!(Patience::new(MS(2), 0.5, MS(0)).lease, MS(39));
        assert_eq!(Patience::new(MS(2), 7.0, MS(0)).lease, MS(52));
        assert_eq!(Patience::new(MS(2), 0.0, MS(2000)).fence, MS(2000));
    }

    #[test]
    fn blank_locks_begin_at_any_sequence_but_none() {
        for random in [0, 1, 0xff_ffff, u64::MAX, 77 << 24] {
            let lock = first_lock(random);
            assert_ne!(lock.sequence, Count24::ZERO);
            assert_eq!(SiteLock::unpack(lock.pack()), Ok(Some(lock)));
        }
    }

    #[test]
    fn a_node_without_words_begins_where_it_was_known() {
        let home = SiteNumber(2);
        let begun = first_assignment(None, home);
        assert_eq!((begun.generation, begun.site), (Count24::FIRST, home));
        let known = Assignment {
            pinned: true,
            ..Assignment::first(Count24::new(8), SiteNumber(1), true)
        };
        let again = first_assignment(Some(known), home);
        assert_eq!((again.generation.get(), again.site), (9, SiteNumber(1)));
        assert!(again.pinned && again.lent && again.is_serving());
        let on_its_way = Assignment {
            state: AssignmentState::Draining { from: home },
            ..known
        };
        let again = first_assignment(Some(on_its_way), home);
        assert_eq!((again.site, again.lent), (home, false));
    }

    #[test]
    fn a_smaller_generation_is_old_in_the_same_life_of_the_node_only() {
        let of = |generation| Assignment::first(Count24::new(generation), SiteNumber(0), false);
        assert_eq!(arrival(None, of(5), true), Arrival::News);
        assert_eq!(arrival(Some(of(5)), of(5), true), Arrival::News);
        assert_eq!(arrival(Some(of(5)), of(6), true), Arrival::News);
        assert_eq!(arrival(Some(of(6)), of(5), true), Arrival::Old);
        assert_eq!(arrival(Some(of(6)), of(5), false), Arrival::Raise(of(7)));
    }
}
