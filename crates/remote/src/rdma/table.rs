//! Which queue pairs a node keeps. Pure: time comes in, queue pairs are whatever the caller makes.
//!
//! ```text
//! known       asked again with the same offer: the same answer, and it counts as used
//! stale       the offer is older than the initiator's last: a copy that was late, or one that was recorded
//! made        another offer of an initiator takes the place of its last; else it takes a free place
//! at the max  it takes the place of the one that was not heard of for longest, if that is [`IDLE`]; else refused
//! ```
//!
//! A node cannot see one-sided reads. So a front-end says every [`RENEW_EVERY`] that it still reads, by the same offer.
//!
//! Failure case: front-ends whose datagrams are lost for [`IDLE`] while the node is full. They are cut off although they
//! read, and connect anew.

use std::time::Duration;

use tidegate_core::time::Timestamp;

use crate::udp::wire::CONNECT_BYTES;

/// How often a front-end says that it still reads: so that it counts as one of the node's readers of the last second.
pub(crate) const RENEW_EVERY: Duration = Duration::from_millis(500);
/// After this time without a word a queue pair may go: no loss of some datagrams explains it.
const IDLE: Duration = Duration::from_secs(15);

struct Entry<C> {
    initiator: u64,
    offer: [u8; CONNECT_BYTES],
    sequence: u64,
    heard_at: Timestamp,
    connection: C,
}

/// All of them.
pub(super) struct Table<C> {
    entries: Vec<Entry<C>>,
    max: usize,
}

/// An offer that came.
#[derive(Clone, Copy)]
pub(super) struct Offer<'a> {
    pub(super) initiator: u64,
    pub(super) sequence: u64,
    pub(super) bytes: &'a [u8; CONNECT_BYTES],
}

/// What is to be done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admitted {
    Known,
    Stale,
    /// Room was made: make one and [`Table::keep`] it.
    Make,
    Full,
}

impl<C> Table<C> {
    pub(super) fn new(max: usize) -> Self {
        Self {
            entries: Vec::new(),
            max,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The queue pair of an initiator.
    pub(super) fn of(&mut self, initiator: u64) -> Option<&mut C> {
        let of = |it: &&mut Entry<C>| it.initiator == initiator;
        self.entries
            .iter_mut()
            .find(of)
            .map(|it| &mut it.connection)
    }

    /// Decides, and makes room where that takes it.
    pub(super) fn admit(&mut self, offer: Offer<'_>, now: Timestamp) -> Admitted {
        let known = self
            .entries
            .iter()
            .position(|it| it.initiator == offer.initiator);
        match known {
            Some(at) if offer.sequence < self.entries[at].sequence => Admitted::Stale,
            Some(at) if self.entries[at].offer == *offer.bytes => {
                let entry = &mut self.entries[at];
                (entry.sequence, entry.heard_at) = (offer.sequence, now);
                Admitted::Known
            }
            // Of one moment there is one offer.
            Some(at) if offer.sequence == self.entries[at].sequence => Admitted::Stale,
            Some(at) => {
                self.entries.swap_remove(at);
                Admitted::Make
            }
            None if self.entries.len() < self.max => Admitted::Make,
            None => self.displace(now),
        }
    }

    fn displace(&mut self, now: Timestamp) -> Admitted {
        let heard = |entry: &Entry<C>| entry.heard_at;
        let oldest = (0..self.entries.len()).min_by_key(|at| heard(&self.entries[*at]));
        match oldest {
            Some(at) if now.since(self.entries[at].heard_at) >= IDLE => {
                self.entries.swap_remove(at);
                Admitted::Make
            }
            Some(_) | None => Admitted::Full,
        }
    }

    /// Keeps what was made for an offer that was admitted.
    pub(super) fn keep(&mut self, offer: Offer<'_>, connection: C, now: Timestamp) {
        debug_assert!(self.entries.len() < self.max);
        self.entries.push(Entry {
            initiator: offer.initiator,
            offer: *offer.bytes,
            sequence: offer.sequence,
            heard_at: now,
            connection,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static OFFERS: [[u8; CONNECT_BYTES]; 3] =
        [[1; CONNECT_BYTES], [2; CONNECT_BYTES], [3; CONNECT_BYTES]];

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + seconds * 1000)
    }

    fn offer(initiator: u64, sequence: u64, which: usize) -> Offer<'static> {
        Offer {
            initiator,
            sequence,
            bytes: &OFFERS[which],
        }
    }

    /// A table in which these initiators are connected, one a second.
    fn with(initiators: &[u64]) -> Table<u64> {
        let mut table = Table::new(2);
        for (seconds, initiator) in (0..).zip(initiators) {
            let offer = offer(*initiator, 10, 0);
            assert_eq!(table.admit(offer, at(seconds)), Admitted::Make);
            table.keep(offer, *initiator, at(seconds));
        }
        table
    }

    #[test]
    fn an_offer_that_comes_again_gets_the_same_queue_pair() {
        let mut table = with(&[7]);
        for sequence in [10, 11, 11] {
            assert_eq!(table.admit(offer(7, sequence, 0), at(1)), Admitted::Known);
        }
        // A recorded one of before ends nothing.
        assert_eq!(table.admit(offer(7, 10, 0), at(1)), Admitted::Stale);
        assert_eq!(table.admit(offer(7, 10, 1), at(1)), Admitted::Stale);
        assert_eq!(table.admit(offer(7, 11, 1), at(1)), Admitted::Stale);
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn an_initiator_has_one_queue_pair_its_last() {
        let mut table = with(&[7]);
        assert_eq!(table.admit(offer(7, 11, 1), at(1)), Admitted::Make);
        assert_eq!(table.len(), 0);
        table.keep(offer(7, 11, 1), 70, at(1));
        assert_eq!(table.admit(offer(7, 12, 1), at(1)), Admitted::Known);
        assert_eq!(table.of(7), Some(&mut 70));
        assert_eq!(table.of(8), None);
    }

    #[test]
    fn a_full_table_gives_up_the_one_that_was_silent_for_longest_and_no_other() {
        let mut table = with(&[7, 8]);
        assert_eq!(table.admit(offer(9, 1, 2), at(14)), Admitted::Full);
        // The first one says that it still reads.
        assert_eq!(table.admit(offer(7, 11, 0), at(14)), Admitted::Known);
        assert_eq!(table.admit(offer(9, 1, 2), at(15)), Admitted::Full);
        assert_eq!(table.admit(offer(9, 1, 2), at(16)), Admitted::Make);
        table.keep(offer(9, 1, 2), 9, at(16));
        assert_eq!(table.admit(offer(7, 12, 0), at(16)), Admitted::Known);
        assert_eq!(table.admit(offer(8, 12, 0), at(16)), Admitted::Full);
    }
}
