//! At most so many requests of a class per second, as a token bucket.
//!
//! ```text
//! tokens   grow by `rate` a second, up to max(1, 0.05 s * rate)
//! a request takes one, and waits until there is one
//! ```
//!
//! The bucket is small: a throttle that lets a second's worth through at once after each pause would
//! still hit the database like the crowd that it is there to keep away. 50 ms are what a worker
//! that looks a little late may catch up on.
//!
//! Inputs: requests, a clock. Failure case: requests of very different cost count as one each; then
//! concurrency is the better measure.
//!
//! Source: LeakyBucket-1986.

use std::time::Duration;

use crate::time::Timestamp;

/// What may be saved up, in seconds of the rate.
const BURST: f64 = 0.05;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    tokens: f64,
    at: Timestamp,
}

impl Rate {
    /// With a request to spare.
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            tokens: 1.0,
            at: now,
        }
    }

    /// Lets what a second is worth until now count.
    pub(super) fn refill(&mut self, rate: Option<f64>, now: Timestamp) {
        let Some(rate) = rate else { return };
        let most = (BURST * rate).max(1.0);
        self.tokens = (self.tokens + now.seconds_since(self.at) * rate).min(most);
        self.at = self.at.max(now);
    }

    /// Whether a request may go.
    pub(super) fn has_room(self, rate: Option<f64>) -> bool {
        rate.is_none() || self.tokens >= 1.0
    }

    /// A request goes.
    pub(super) fn take(&mut self, rate: Option<f64>) {
        if rate.is_some() {
            self.tokens -= 1.0;
        }
    }

    /// When one may go; nothing: when it was last refilled.
    pub(super) fn due(self, rate: Option<f64>) -> Option<Timestamp> {
        let rate = rate.filter(|_| self.tokens < 1.0)?;
        // A nanosecond more, so that rounding never makes it come too early.
        let nanos = (1.0 - self.tokens) / rate * 1e9 + 1.0;
        Some(self.at + Duration::from_nanos(nanos as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of the looks at these milliseconds let a request go.
    fn gone(rate: f64, looks: impl Iterator<Item = u64>) -> usize {
        let rate = Some(rate);
        let mut bucket = Rate::new(Timestamp::ZERO);
        looks
            .filter(|at| {
                bucket.refill(rate, Timestamp::from_millis(*at));
                let room = bucket.has_room(rate);
                if room {
                    bucket.take(rate);
                }
                room
            })
            .count()
    }

    #[test]
    fn so_many_go_per_second() {
        assert_eq!(gone(10.0, 0..1000), 10);
        assert_eq!(gone(0.5, 0..10_000), 5);
        assert_eq!(gone(500.0, (0..1000).flat_map(|at| [at; 4])), 500);
    }

    #[test]
    fn a_pause_saves_up_little() {
        let looks = [10_000; 100].into_iter();
        assert_eq!(gone(10.0, looks.clone()), 1);
        assert_eq!(gone(100.0, looks), 5);
    }

    #[test]
    fn the_next_is_due_when_its_token_is_there() {
        let rate = Some(4.0);
        let mut bucket = Rate::new(Timestamp::ZERO);
        assert_eq!(bucket.due(rate), None);
        bucket.take(rate);
        let due = bucket.due(rate).unwrap();
        assert_eq!(due.nanos() / 1_000_000, 250);
        bucket.refill(rate, due);
        assert!(bucket.has_room(rate));
        assert_eq!(bucket.due(None), None);
    }
}
