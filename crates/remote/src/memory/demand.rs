//! How often a region is read, which its owner may go by, and how it is woken.
//!
//! ```text
//!  reader, responder:  READS += 1; if ASLEEP: ASLEEP = 0, wake
//!  owner:              ASLEEP = 1; READS as they were? sleep while ASLEEP = 1, until the deadline; ASLEEP = 0
//! ```
//!
//! Either the owner sees the read or the read sees the owner asleep, since all four accesses are in one order. A
//! reader that keeps to an older layout counts nothing: then the owner goes by the clock.

use std::sync::atomic::Ordering;

use rustix::thread::futex;
use tidegate_core::time::Timestamp;

use super::RegionMemory;
use super::layout::{ASLEEP, READS};
use super::mapping::Mapping;
use crate::clock;

/// Counts a read, and wakes the owner if it sleeps until one comes.
pub(crate) fn note_read(region: &Mapping) {
    region.words()[READS].fetch_add(1, Ordering::SeqCst);
    let asleep = region.half_word(ASLEEP);
    if asleep.load(Ordering::SeqCst) != 0 && asleep.swap(0, Ordering::SeqCst) != 0 {
        // It may just have woken up by itself.
        futex::wake(asleep, futex::Flags::empty(), 1).ok();
    }
}

impl RegionMemory {
    /// Reads so far, by whatever way the record was copied from this memory.
    pub fn reads(&self) -> u64 {
        self.mapping.words()[READS].load(Ordering::SeqCst)
    }

    /// Counts a read that was not made through a mapping.
    pub fn note_read(&self) {
        note_read(&self.mapping);
    }

    /// Sleeps until a read comes that is not among the first `seen`, or until the deadline. A signal ends it too.
    pub fn sleep_until_read(&self, seen: u64, deadline: Timestamp) {
        let asleep = self.mapping.half_word(ASLEEP);
        asleep.store(1, Ordering::SeqCst);
        let rest = deadline.since(clock::now());
        if self.reads() == seen && !rest.is_zero() {
            // Woken, over or changed meanwhile: the caller looks itself.
            futex::wait(
                asleep,
                futex::Flags::empty(),
                1,
                Some(&clock::timespec(rest)),
            )
            .ok();
        }
        asleep.store(0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    /// After this long something is stuck.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn a_read_wakes_the_owner() {
        let memory = Arc::new(RegionMemory::anonymous().unwrap());
        let owner = {
            let memory = Arc::clone(&memory);
            std::thread::spawn(move || {
                let deadline = clock::now() + PATIENCE;
                while memory.reads() == 0 && clock::now() < deadline {
                    memory.sleep_until_read(0, deadline);
                }
                clock::now() < deadline
            })
        };
        while memory.mapping.half_word(ASLEEP).load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        memory.note_read();
        assert!(owner.join().unwrap(), "it slept on");
        assert_eq!(memory.reads(), 1);
    }

    #[test]
    fn no_sleep_where_a_read_has_come_or_the_time_is_over() {
        let memory = RegionMemory::anonymous().unwrap();
        memory.note_read();
        // It returns, or the test does not end.
        memory.sleep_until_read(0, Timestamp::from_nanos(u64::MAX));
        memory.sleep_until_read(1, Timestamp::from_millis(1));
        assert_eq!(memory.mapping.half_word(ASLEEP).load(Ordering::SeqCst), 0);
    }
}
