//! How atomics are numbered, and what follows from a node's answer to one. Pure: time and answers come in.
//!
//! ```text
//! sequence  the node's clock as far as known, and more than the last one; of an atomic that has to come in time, the
//!           clock when it was decided
//! done      its value
//! epoch     the first time the node's life is learned, and the atomic made anew; later it has restarted
//! stale     made anew: our numbers lie behind those that the node knows of us; the answer has brought its clock
//! too old   made anew, unless a copy was sent: that may have come sooner, and be forgotten by now
//! too new   refused: a copy may yet be carried out; later ones count on the clock that is known now
//! the rest  refused
//! ```
//!
//! An atomic is made anew at most [`RENEWALS_MAX`] times.

use tidegate_core::time::{Timestamp, nanos};

use super::node_clock::NodeClock;
use super::wire::{Reply, Status};
use crate::region::{NUMBERED_LATE_MAX, Refusal, RegionError};

/// Times that an atomic is made anew because the node said that it was not carried out: to learn the epoch, to
/// learn the node's clock, and one to spare.
pub(crate) const RENEWALS_MAX: u32 = 3;

/// The numbers of one initiator's atomics at one node.
#[derive(Debug, Default)]
pub(crate) struct Sequences {
    /// The node's life as far as known; 0: not yet.
    epoch: u32,
    /// Sequence of the last atomic.
    last: u64,
    clock: NodeClock,
}

/// What an answer means for the atomic that it answers.
#[derive(Debug)]
pub(crate) enum Settled {
    /// It was carried out; the word held this.
    Done(u64),
    /// It was not carried out, for this reason, and may be made anew.
    Renew(Refusal),
    /// It was not carried out, or that is not known.
    Lost(RegionError),
}

impl Sequences {
    /// The node's clock was this at some moment between these two.
    pub(crate) fn note_clock(
        &mut self,
        node_now_ns: u64,
        sent_at: Timestamp,
        received_at: Timestamp,
    ) {
        self.clock.note(node_now_ns, sent_at, received_at);
    }

    /// The node's clock as far as known, ns; 0: not yet.
    pub(crate) fn node_clock(&self, now: Timestamp) -> u64 {
        self.clock.at(now)
    }

    /// The node's life as far as known; 0: not yet.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Whether words of this life are those that are known. It is the known one from now on.
    pub(crate) fn is_life(&mut self, epoch: u32) -> bool {
        let before = std::mem::replace(&mut self.epoch, epoch);
        let same = before == 0 || before == epoch;
        if !same {
            // Sequences count on the node's clock, which may have begun anew.
            self.last = 0;
        }
        same
    }

    /// The next sequence.
    pub(crate) fn next(&mut self, now: Timestamp) -> u64 {
        self.last = self.node_clock(now).max(self.last.saturating_add(1));
        self.last
    }

    /// Whether the node's clock is known.
    pub(crate) fn knows_clock(&self) -> bool {
        self.clock.is_known()
    }

    /// The sequence of an atomic that was decided at this moment: it ages from then on. None if it is too late for it,
    /// since later ones were numbered by now.
    pub(crate) fn next_since(&mut self, since: Timestamp) -> Option<u64> {
        let decided = self.node_clock(since);
        let next = decided.max(self.last.saturating_add(1));
        if next - decided > nanos(NUMBERED_LATE_MAX) {
            return None;
        }
        self.last = next;
        Some(next)
    }

    /// The node's clock has begun anew: numbers of before bind no more.
    pub(crate) fn forget_last(&mut self) {
        self.last = 0;
    }

    /// Sequence of the last atomic.
    #[cfg(test)]
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Settles an atomic on this word by its answer. `sent` is how many times it was sent with its sequence.
    pub(crate) fn settle(&mut self, reply: &Reply, word: u32, sent: u32) -> Settled {
        match reply.status {
            Status::Done => Settled::Done(reply.value),
            Status::Epoch => {
                // Sequences count on the node's clock, which may have begun anew.
                self.last = 0;
                match std::mem::replace(&mut self.epoch, reply.epoch) {
                    0 => Settled::Renew(Refusal::Stale),
                    _ => Settled::Lost(RegionError::Restarted),
                }
            }
            Status::Stale => Settled::Renew(Refusal::Stale),
            Status::TooOld if sent == 1 => Settled::Renew(Refusal::TooOld),
            Status::TooOld => Settled::Lost(RegionError::Refused(Refusal::TooOld)),
            Status::TooNew => {
                self.last = 0;
                Settled::Lost(RegionError::Refused(Refusal::TooNew))
            }
            Status::NoWord => Settled::Lost(RegionError::Refused(Refusal::Word(word))),
            Status::Full => Settled::Lost(RegionError::Refused(Refusal::Full)),
            Status::WordsElsewhere => Settled::Lost(RegionError::Refused(Refusal::WordsElsewhere)),
            Status::Absent
            | Status::Torn
            | Status::NoDevice
            | Status::NoQueuePair
            | Status::BadOffer
            | Status::NoWay
            | Status::CardFault
            | Status::Other(_) => {
                let number = reply.status.number();
                Settled::Lost(RegionError::Refused(Refusal::Other(number)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(5_000 + ms)
    }

    #[test]
    fn a_number_ages_from_when_the_atomic_was_decided() {
        let mut sequences = Sequences::default();
        assert!(!sequences.knows_clock());
        sequences.note_clock(20 * SECOND, at(0), at(0));
        assert!(sequences.knows_clock());
        // However late it is numbered.
        assert_eq!(sequences.next_since(at(0)), Some(20 * SECOND));
        assert_eq!(sequences.next_since(at(0)), Some(20 * SECOND + 1));
    }

    #[test]
    fn what_would_be_numbered_much_later_than_it_was_decided_has_no_number() {
        let mut sequences = Sequences::default();
        sequences.note_clock(20 * SECOND, at(0), at(0));
        let late = u64::try_from(NUMBERED_LATE_MAX.as_millis()).unwrap();
        let last = sequences.next(at(late));
        assert_eq!(sequences.next_since(at(0)), None);
        assert_eq!(sequences.last(), last, "nothing was numbered");
        assert_eq!(sequences.next_since(at(1)), Some(last + 1));
    }
}
