//! Which reads of one node are under way. Pure: time comes in.
//!
//! A read is sent every interval whether or not the one before was answered: one lost datagram
//! must not cost more than one interval. So several may be under way, and each is either
//! answered once or counted as timed out once.

use std::time::Duration;

use tidegate_core::time::Timestamp;

/// Most reads of one node under way. One that is older than as many rounds has timed out,
/// whatever the time-out says.
pub(super) const FLIGHTS_MAX: usize = 16;

/// The reads of one node that were sent last.
#[derive(Debug, Default)]
pub(super) struct Flights {
    /// When they were sent, by number; zero once they ended.
    sent: [Timestamp; FLIGHTS_MAX],
    /// Number of the next one.
    next: u32,
    /// Number of the oldest that may be under way.
    oldest: u32,
}

impl Flights {
    /// Notes a read that is sent now; gives its number. [`Self::expire`] has made room.
    pub(super) fn send(&mut self, now: Timestamp) -> u32 {
        let number = self.next;
        self.sent[number as usize % FLIGHTS_MAX] = now;
        self.next = number.wrapping_add(1);
        number
    }

    /// How many reads have timed out since this was last asked.
    pub(super) fn expire(&mut self, now: Timestamp, timeout: Duration) -> u32 {
        let mut expired = 0;
        while self.oldest != self.next {
            let full = self.next.wrapping_sub(self.oldest) as usize >= FLIGHTS_MAX;
            let sent = &mut self.sent[self.oldest as usize % FLIGHTS_MAX];
            if *sent != Timestamp::ZERO {
                if !full && now.since(*sent) < timeout {
                    break;
                }
                expired += 1;
                *sent = Timestamp::ZERO;
            }
            self.oldest = self.oldest.wrapping_add(1);
        }
        expired
    }

    /// When the read with this number was sent, if it is still under way.
    pub(super) fn pending(&self, number: u32) -> Option<Timestamp> {
        let age = self.next.wrapping_sub(number) as usize;
        let sent = self.sent[number as usize % FLIGHTS_MAX];
        ((1..=FLIGHTS_MAX).contains(&age) && sent != Timestamp::ZERO).then_some(sent)
    }

    /// Ends the read that was noted last: it could not be sent.
    pub(super) fn end_last(&mut self) {
        self.end(self.next.wrapping_sub(1));
    }

    /// Ends the read with this number.
    pub(super) fn end(&mut self, number: u32) {
        self.sent[number as usize % FLIGHTS_MAX] = Timestamp::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(5);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn each_read_is_answered_or_times_out_once() {
        let mut flights = Flights::default();
        for ms in 1..=5 {
            assert_eq!(flights.expire(at(ms), TIMEOUT), 0);
            assert_eq!(flights.send(at(ms)), ms as u32 - 1);
        }
        // Out of order, and one of them twice.
        assert_eq!(flights.pending(2), Some(at(3)));
        flights.end(2);
        assert_eq!(flights.pending(2), None);
        flights.end(0);
        assert_eq!(flights.pending(5), None, "not sent yet");
        // The second was sent at 2 and is 5 ms old at 7; the third was answered.
        assert_eq!(flights.expire(at(7), TIMEOUT), 1);
        assert_eq!(flights.pending(1), None);
        assert_eq!(flights.expire(at(100), TIMEOUT), 2);
        assert_eq!(flights.expire(at(100), TIMEOUT), 0);
    }

    #[test]
    fn numbers_come_round() {
        let mut flights = Flights {
            next: u32::MAX,
            oldest: u32::MAX,
            ..Flights::default()
        };
        assert_eq!(flights.send(at(1)), u32::MAX);
        assert_eq!(flights.send(at(2)), 0);
        assert_eq!(flights.pending(u32::MAX), Some(at(1)));
        assert_eq!(flights.expire(at(100), TIMEOUT), 2);
    }

    #[test]
    fn a_full_ring_times_out_early() {
        let mut flights = Flights::default();
        let mut expired = 0;
        for ms in 1..=40 {
            expired += flights.expire(at(ms), Duration::from_secs(1));
            flights.send(at(ms));
        }
        assert_eq!(expired as usize, 40 - FLIGHTS_MAX);
        assert_eq!(flights.pending(24), Some(at(25)));
        assert_eq!(flights.pending(23), None);
    }
}
