//! How long a body on its way may still take: it may stand still for a while, and must otherwise be as fast as
//! a least rate.
//!
//! A body begins with the time for which it may stand still. Each byte then buys the time that it takes at the
//! least rate, and none has more in hand than at the begin:
//!
//! ```text
//! due = min(due + bytes / rate, now + idle)
//! ```
//!
//! So a body that is faster than the rate may pause for the whole of `idle` at any time, and one that
//! trickles is over after `idle`, whatever it sends. Apache's `mod_reqtimeout` (`MinRate`) counts in the
//! same way. Times are ticks of the caller's clock.

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Bytes that have not bought a whole tick yet.
    rest: u64,
}

impl Allowance {
    /// Until when the body must go on, after these bytes. `latest` is now and the time for which it may
    /// stand still; without a least rate, 0, that is what it always gets.
    pub fn on_bytes(&mut self, due: u64, bytes: u64, latest: u64, bytes_per_tick: u64) -> u64 {
        if bytes_per_tick == 0 {
            return latest;
        }
        let bytes = self.rest.saturating_add(bytes);
        self.rest = bytes % bytes_per_tick;
        due.saturating_add(bytes / bytes_per_tick).min(latest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: u64 = 100;
    const RATE: u64 = 5;

    /// When a body ends that sends so many bytes every so many ticks; None: never.
    fn end(bytes: u64, every: u64) -> Option<u64> {
        let mut allowance = Allowance::default();
        let mut due = IDLE;
        for now in (every..100_000).step_by(every as usize) {
            if due <= now {
                return Some(due);
            }
            due = allowance.on_bytes(due, bytes, now + IDLE, RATE);
        }
        None
    }

    #[test]
    fn what_trickles_ends_and_what_is_as_fast_as_the_rate_does_not() {
        // One byte just before it would be called idle, and one byte a tick.
        assert_eq!(end(1, IDLE - 1), Some(IDLE));
        assert!(end(1, 1).is_some_and(|end| end < 2 * IDLE));
        assert_eq!(end(RATE, 1), None);
        assert_eq!(end(1000, 99), None);
        assert_eq!(end(0, 1), Some(IDLE));
    }

    #[test]
    fn nobody_saves_up_more_than_a_pause() {
        let mut allowance = Allowance::default();
        assert_eq!(allowance.on_bytes(10, u64::MAX, 150, RATE), 150);
        assert_eq!(allowance.on_bytes(10, 1, 150, 0), 150);
    }
}
