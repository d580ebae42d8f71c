//! Which reads of one node are in flight. Pure: time comes in.
//!
//! A read is sent every interval whether or not the one before was answered: one lost datagram
//! must not cost more than one interval. So several may be in flight, and each is either
//! answered once or counted as timed out once.

use std::time::Duration;

use tidegate_core::time::Timestamp;

use super::keys::Purpose;

/// Most reads of one node in flight. One that is older than as many rounds has timed out,
/// whatever the time-out says.
pub(super) const IN_FLIGHT_MAX: usize = 16;

/// A read that is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InFlightRead {
    /// What the answer must repeat.
    pub(super) nonce: u64,
    /// When it was sent.
    pub(super) sent_at: Timestamp,
    /// The key that it was made with, by its index among the reader's.
    pub(super) key: usize,
    /// What for.
    pub(super) purpose: Purpose,
}

/// The reads of one node that were sent last.
#[derive(Debug, Default)]
pub(super) struct InFlightReads {
    /// By number.
    nonces: [u64; IN_FLIGHT_MAX],
    /// When they were sent, by number; zero once they ended.
    sent: [Timestamp; IN_FLIGHT_MAX],
    /// What they were made with and for, by number.
    made: [(u32, Purpose); IN_FLIGHT_MAX],
    /// Number of the next one.
    next: u32,
    /// Number of the oldest that may be in flight.
    oldest: u32,
}

impl InFlightReads {
    /// Notes a read that is sent. [`Self::expire`] has made room.
    pub(super) fn send(&mut self, read: InFlightRead) {
        let at = self.next as usize % IN_FLIGHT_MAX;
        self.nonces[at] = read.nonce;
        self.sent[at] = read.sent_at;
        self.made[at] = (read.key as u32, read.purpose);
        self.next = self.next.wrapping_add(1);
    }

    /// How many reads of the load have timed out since this was last asked.
    pub(super) fn expire(&mut self, now: Timestamp, timeout: Duration) -> u32 {
        let mut expired = 0;
        while self.oldest != self.next {
            let full = self.next.wrapping_sub(self.oldest) as usize >= IN_FLIGHT_MAX;
            let at = self.oldest as usize % IN_FLIGHT_MAX;
            let sent = &mut self.sent[at];
            if *sent != Timestamp::ZERO {
                if !full && now.since(*sent) < timeout {
                    break;
                }
                expired += u32::from(self.made[at].1 == Purpose::Load);
                *sent = Timestamp::ZERO;
            }
            self.oldest = self.oldest.wrapping_add(1);
        }
        expired
    }

    /// The read with this nonce, if it is still in flight.
    pub(super) fn pending(&self, nonce: u64) -> Option<InFlightRead> {
        let at = self.index(nonce)?;
        Some(InFlightRead {
            nonce,
            sent_at: self.sent[at],
            key: self.made[at].0 as usize,
            purpose: self.made[at].1,
        })
    }

    /// Ends the read with this nonce.
    pub(super) fn end(&mut self, nonce: u64) {
        if let Some(at) = self.index(nonce) {
            self.sent[at] = Timestamp::ZERO;
        }
    }

    /// Ends the read that was noted last: it could not be sent.
    pub(super) fn end_last(&mut self) {
        self.sent[self.next.wrapping_sub(1) as usize % IN_FLIGHT_MAX] = Timestamp::ZERO;
    }

    fn index(&self, nonce: u64) -> Option<usize> {
        let under_way = |at: &usize| self.nonces[*at] == nonce && self.sent[*at] != Timestamp::ZERO;
        (0..IN_FLIGHT_MAX).find(under_way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(5);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    /// Its nonce is a hundred times the millisecond at which it was sent.
    fn sent(ms: u64) -> InFlightRead {
        InFlightRead {
            nonce: ms * 100,
            sent_at: at(ms),
            key: ms as usize,
            purpose: Purpose::Load,
        }
    }

    #[test]
    fn each_read_is_answered_or_times_out_once() {
        let mut in_flight = InFlightReads::default();
        for ms in 1..=5 {
            assert_eq!(in_flight.expire(at(ms), TIMEOUT), 0);
            in_flight.send(sent(ms));
        }
        // Out of order, and one of them twice.
        assert_eq!(in_flight.pending(300), Some(sent(3)));
        in_flight.end(300);
        assert_eq!(in_flight.pending(300), None);
        in_flight.end(100);
        assert_eq!(in_flight.pending(600), None, "not sent yet");
        assert_eq!(in_flight.pending(0), None, "an empty slot is no read");
        // The second was sent at 2 and is 5 ms old at 7; the third was answered.
        assert_eq!(in_flight.expire(at(7), TIMEOUT), 1);
        assert_eq!(in_flight.pending(200), None);
        assert_eq!(in_flight.expire(at(100), TIMEOUT), 2);
        assert_eq!(in_flight.expire(at(100), TIMEOUT), 0);
    }

    #[test]
    fn one_that_could_not_be_sent_is_not_awaited() {
        let mut in_flight = InFlightReads::default();
        in_flight.send(sent(1));
        in_flight.send(sent(2));
        in_flight.end_last();
        assert_eq!(in_flight.pending(200), None);
        assert_eq!(in_flight.expire(at(100), TIMEOUT), 1);
    }

    #[test]
    fn no_answer_to_a_key_that_was_tried_is_no_fault() {
        let mut in_flight = InFlightReads::default();
        for (ms, purpose) in [
            (1, Purpose::Renewal),
            (2, Purpose::Load),
            (3, Purpose::Whose),
        ] {
            let tried = InFlightRead {
                purpose,
                ..sent(ms)
            };
            in_flight.send(tried);
            assert_eq!(in_flight.pending(ms * 100), Some(tried));
        }
        assert_eq!(in_flight.expire(at(100), TIMEOUT), 1);
    }

    #[test]
    fn numbers_come_round() {
        let mut in_flight = InFlightReads {
            next: u32::MAX,
            oldest: u32::MAX,
            ..InFlightReads::default()
        };
        in_flight.send(sent(1));
        in_flight.send(sent(2));
        assert_eq!(in_flight.pending(100), Some(sent(1)));
        assert_eq!(in_flight.expire(at(100), TIMEOUT), 2);
    }

    #[test]
    fn a_full_ring_times_out_early() {
        let mut in_flight = InFlightReads::default();
        let mut expired = 0;
        for ms in 1..=40 {
            expired += in_flight.expire(at(ms), Duration::from_secs(1));
            in_flight.send(sent(ms));
        }
        assert_eq!(expired as usize, 40 - IN_FLIGHT_MAX);
        assert_eq!(in_flight.pending(2500), Some(sent(25)));
        assert_eq!(in_flight.pending(2400), None);
    }
}
