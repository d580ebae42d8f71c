//! Bytes per second that the response bodies of a class share.
//!
//! ```text
//! piece     max(1 KiB, 0.1 s * rate), or what is left of the chunk
//! goes at   max(free, now - 0.1 s)
//! free      becomes that + piece / rate
//! ```
//!
//! A chunk is cut into pieces, and each learns when it may go; `free` is one for the class, so
//! responses that go on at the same time have turns piece by piece, and together the rate. What was
//! not used is saved up for a tenth of a second.
//!
//! Inputs: bytes that are about to go, a clock.
//!
//! Failure case: a response that waits here still has its place at its server, whose buffers it fills;
//! where that hurts, concurrency beside it keeps the number small. A client that reads more slowly than
//! the rate is not slowed further. A client that leaves takes no turn back.
//!
//! Source: a virtual clock per class (VirtualClock-1990); Elephants-2005 shapes heavy classes with tc.

use std::time::Duration;

use crate::time::Timestamp;

/// What may be saved up, and the length of a piece.
const BURST: Duration = Duration::from_millis(100);
/// Shortest piece, bytes.
const PIECE_MIN: u64 = 1 << 10;

/// The bytes that go next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// How many.
    pub bytes: u64,
    /// Not before.
    pub at: Timestamp,
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bandwidth {
    free: Timestamp,
}

impl Bandwidth {
    /// The first piece of a chunk of so many bytes, at so many bytes per second.
    pub(super) fn next(&mut self, chunk: u64, rate: u64, now: Timestamp) -> Piece {
        let rate = rate.max(1) as f64;
        let most = (rate * BURST.as_secs_f64()) as u64;
        let bytes = chunk.min(most.max(PIECE_MIN));
        let at = self.free.max(now - BURST);
        self.free = at + Duration::from_secs_f64(bytes as f64 / rate);
        Piece {
            bytes,
            at: at.max(now),
        }
    }

    /// Another rate: nothing is owed.
    pub(super) fn reset(&mut self) {
        self.free = Timestamp::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 100 << 10;

    /// When a body of so many bytes has gone, in chunks of 64 KiB.
    fn sent(bandwidth: &mut Bandwidth, mut left: u64, mut now: Timestamp) -> Timestamp {
        while left > 0 {
            let piece = bandwidth.next(left.min(64 << 10), RATE, now);
            assert!(piece.bytes > 0 && piece.at >= now);
            left -= piece.bytes;
            now = piece.at;
        }
        now
    }

    #[test]
    fn a_body_takes_as_long_as_the_rate_says() {
        let start = Timestamp::from_millis(5000);
        let mut bandwidth = Bandwidth::default();
        let seconds = sent(&mut bandwidth, 10 * RATE, start).seconds_since(start);
        assert!((9.7..=10.0).contains(&seconds), "{seconds}");
    }

    #[test]
    fn bodies_that_go_at_once_share_the_rate_in_turns() {
        let start = Timestamp::from_millis(5000);
        let mut bandwidth = Bandwidth::default();
        let mut at = [start; 4];
        let mut bytes = [0; 4];
        for _ in 0..50 {
            for body in 0..4 {
                let piece = bandwidth.next(64 << 10, RATE, at[body]);
                at[body] = piece.at;
                bytes[body] += piece.bytes;
            }
        }
        assert!(bytes.iter().all(|it| *it == bytes[0]), "{bytes:?}");
        let seconds = at[3].seconds_since(start);
        let rate = bytes.iter().sum::<u64>() as f64 / seconds;
        assert!((rate / RATE as f64 - 1.0).abs() < 0.02, "{rate}");
    }

    #[test]
    fn small_bodies_are_counted_too_and_a_pause_saves_up_little() {
        let mut bandwidth = Bandwidth::default();
        let now = Timestamp::from_millis(60_000);
        let at_once = (0..1000).filter(|_| bandwidth.next(1024, RATE, now).at == now);
        assert_eq!(
            at_once.count(),
            11,
            "a tenth of a second's and the one that begins"
        );
        bandwidth.reset();
        assert_eq!(bandwidth.next(1024, RATE, now).at, now);
    }

    #[test]
    fn a_slow_rate_still_sends_something_at_once() {
        let mut bandwidth = Bandwidth::default();
        let now = Timestamp::from_millis(60_000);
        let first = bandwidth.next(1 << 20, 1024, now);
        assert_eq!((first.bytes, first.at), (1024, now));
        let second = bandwidth.next(1 << 20, 1024, now);
        assert_eq!(second.at, now + Duration::from_millis(900));
    }
}
