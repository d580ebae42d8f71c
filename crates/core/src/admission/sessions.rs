//! Which user sessions were let in a moment ago: what has begun may go on, ahead of what has not.
//!
//! ```text
//! slot         hash mod slots: upper half of the hash | tick at which its window is over
//! established  the slot has this hash, and its window is not over
//! mark         the slot gets this hash and a new window, unless it has another's whose window is not over
//! ```
//!
//! Under overload each request is a new lottery, and a session of ten seldom wins all: at four times the
//! capacity 6 % of them get to their end, and the work for the others was in vain. With established ones
//! first it is 27 %, all that the server can do (`tests/sessions.rs`).
//!
//! Inputs: a hash of the session, 64 bits that no client can foresee (the shell has the key); a clock.
//! One table is shared by all workers: atomic words, no lock, no loop, bounded memory.
//!
//! Failure case: more sessions in a window than slots. Two that fall on one slot do not disturb each
//! other: the first stays established, the second goes without. Other front-ends do not know of them.
//!
//! Source: admission by user within an hour in DAGOR-2018; by session in Sessions-2002.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::time::Timestamp;

/// Windows are kept to within 2^24 ns, 17 ms; 32 bits of these are two years.
const TICK_BITS: u32 = 24;
/// Bits of a word that hold a tick.
const HALF: u32 = 32;

/// See the module.
#[derive(Debug)]
pub struct Sessions {
    slots: Box<[AtomicU64]>,
    window: Duration,
}

impl Sessions {
    /// Slots that are enough for most: a megabyte.
    pub const SLOTS: usize = 1 << 17;

    /// A table without any session.
    pub fn new(slots: usize, window: Duration) -> Self {
        Self {
            slots: (0..slots.max(1)).map(|_| AtomicU64::new(0)).collect(),
            window,
        }
    }

    /// Whether a request with this hash was let in within the window.
    pub fn is_established(&self, hash: u64, now: Timestamp) -> bool {
        let word = self.slot(hash).load(Ordering::Relaxed);
        word >> HALF == hash >> HALF && is_open(word, now)
    }

    /// A request with this hash was let in.
    pub fn mark(&self, hash: u64, now: Timestamp) {
        let slot = self.slot(hash);
        let before = slot.load(Ordering::Relaxed);
        if before >> HALF != hash >> HALF && is_open(before, now) {
            return;
        }
        // One tick more: a window is never cut short.
        let end = ((now + self.window).nanos() >> TICK_BITS) + 1;
        let after = hash >> HALF << HALF | end.min(u32::MAX.into());
        if after != before {
            // Where another came first, that one stays.
            slot.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed)
                .ok();
        }
    }

    fn slot(&self, hash: u64) -> &AtomicU64 {
        &self.slots[(hash % self.slots.len() as u64) as usize]
    }
}

/// Whether the window of a word is not over.
fn is_open(word: u64, now: Timestamp) -> bool {
    let now = now.nanos() >> TICK_BITS;
    u64::from(word as u32) > now
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(60);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + ms)
    }

    #[test]
    fn whoever_was_let_in_is_known_until_the_window_is_over() {
        let sessions = Sessions::new(16, WINDOW);
        let hash = 0xdead_beef_0000_0003;
        assert!(!sessions.is_established(hash, at(0)));
        sessions.mark(hash, at(0));
        assert!(sessions.is_established(hash, at(0)));
        assert!(sessions.is_established(hash, at(59_999)));
        assert!(!sessions.is_established(hash, at(60_100)));
        // Each request that is let in gives a new window.
        sessions.mark(hash, at(30_000));
        assert!(sessions.is_established(hash, at(89_999)));
        assert!(!sessions.is_established(hash, at(90_100)));
    }

    #[test]
    fn of_two_in_one_slot_the_first_stays_until_its_window_is_over() {
        let sessions = Sessions::new(16, WINDOW);
        let (first, second) = (1 << 32 | 5, 2 << 32 | 5);
        sessions.mark(first, at(0));
        sessions.mark(second, at(1));
        assert!(sessions.is_established(first, at(2)) && !sessions.is_established(second, at(2)));
        sessions.mark(second, at(60_100));
        assert!(
            !sessions.is_established(first, at(60_101))
                && sessions.is_established(second, at(60_101))
        );
    }

    #[test]
    fn sessions_do_not_take_each_other_for_themselves() {
        let sessions = Sessions::new(1 << 10, WINDOW);
        let mut prng = crate::prng::Prng::new(1);
        let marked: Vec<_> = (0..100).map(|_| prng.bits()).collect();
        for hash in &marked {
            sessions.mark(*hash, at(0));
        }
        let known = marked
            .iter()
            .filter(|hash| sessions.is_established(**hash, at(1)));
        assert!(known.count() >= 90);
        let unseen = (0..100_000).filter(|_| sessions.is_established(prng.bits(), at(1)));
        assert_eq!(unseen.count(), 0);
    }

    #[test]
    fn workers_share_a_table_without_a_lock() {
        let sessions = Sessions::new(1 << 12, WINDOW);
        std::thread::scope(|scope| {
            for worker in 0..4_u64 {
                let sessions = &sessions;
                scope.spawn(move || {
                    for number in 0..1000 {
                        sessions.mark((number + 1) << 32 | number, at(worker));
                    }
                });
            }
        });
        assert!(
            (0..1000).all(|number| sessions.is_established((number + 1) << 32 | number, at(9)))
        );
    }

    #[test]
    fn times_beyond_all_clocks_are_taken() {
        let sessions = Sessions::new(0, Duration::MAX);
        let last = Timestamp::from_nanos(u64::MAX);
        sessions.mark(7, last);
        assert!(
            !sessions.is_established(7, last),
            "no window lies behind the end of time"
        );
    }
}
