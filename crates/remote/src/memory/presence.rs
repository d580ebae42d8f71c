//! How many front-ends read a region, those counted that read it through a mapping: reads of memory leave no trace, so each
//! signs in.
//!
//! ```text
//! slot  = (name, seen)                     64 of them; seen: when its reader last signed in
//! sign  : seen = now                       each 250 ms while it reads; a slot of one not seen for 2 s is taken over
//! count = slots seen within 2 s            and what the responder has counted by datagrams within 2 s
//! ```
//!
//! Inputs: the host's monotonic clock, which all that map the memory have in common.
//!
//! Failure case: of more than 64 readers that many and one are known. Processes that may map the memory may write nonsense into it: the
//! estimate of all nodes (`reader::front_ends`) bounds what that is worth. Reads that the kernel answers are counted by the kernel
//! alone. Source: our own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::time::Timestamp;

use super::RegionMemory;
use super::layout::{BY_DATAGRAMS, PRESENCE, PRESENCE_SLOTS};
use super::mapping::Mapping;

/// A reader signs in this often.
pub(crate) const SIGN_EVERY: Duration = Duration::from_millis(250);
/// One that has not signed in for so long is gone.
const GONE_AFTER: Duration = Duration::from_secs(2);

/// A reader's side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Presence {
    /// Not zero.
    name: u64,
    signed_at: Timestamp,
    count: u32,
}

impl Presence {
    /// Of a reader with this name, which no other has.
    pub(crate) fn new(name: u64) -> Self {
        Self {
            name: name.max(1),
            signed_at: Timestamp::ZERO,
            count: 0,
        }
    }

    /// Signs in if that is due; the readers of this memory, this one among them.
    pub(crate) fn sign(&mut self, region: &Mapping, now: Timestamp) -> u32 {
        if self.count == 0 || now.since(self.signed_at) >= SIGN_EVERY {
            self.signed_at = now;
            let has_place = sign(region, self.name, now);
            self.count = present(region, now).saturating_add((!has_place).into());
            self.count = self.count.saturating_add(by_datagrams(region, now));
        }
        self.count
    }
}

/// A slot's name, and when its reader was seen.
fn slots(region: &Mapping) -> impl Iterator<Item = (&AtomicU64, &AtomicU64)> {
    let words = &region.words()[PRESENCE..PRESENCE + 2 * PRESENCE_SLOTS];
    words.chunks_exact(2).map(|slot| (&slot[0], &slot[1]))
}

fn is_gone(seen: &AtomicU64, now: Timestamp) -> bool {
    let seen = Timestamp::from_nanos(seen.load(Ordering::Relaxed));
    now.since(seen) > GONE_AFTER
}

/// False if there is no place for it.
fn sign(region: &Mapping, name: u64, now: Timestamp) -> bool {
    if let Some((_, seen)) = slots(region).find(|(it, _)| it.load(Ordering::Relaxed) == name) {
        seen.store(now.nanos(), Ordering::Relaxed);
        return true;
    }
    slots(region).any(|(held, seen)| {
        let before = held.load(Ordering::Relaxed);
        let free = before == 0 || is_gone(seen, now);
        // Another one may take it between the two: the next time it looks for a place again.
        let taken = free
            && (held.compare_exchange(before, name, Ordering::Relaxed, Ordering::Relaxed)).is_ok();
        if taken {
            seen.store(now.nanos(), Ordering::Relaxed);
        }
        taken
    })
}

fn present(region: &Mapping, now: Timestamp) -> u32 {
    let is_here = |(name, seen): &(&AtomicU64, &AtomicU64)| {
        name.load(Ordering::Relaxed) != 0 && !is_gone(seen, now)
    };
    slots(region).filter(is_here).count() as u32
}

/// What the responder has counted: seconds of the clock and a number, half a word each.
fn by_datagrams(region: &Mapping, now: Timestamp) -> u32 {
    let word = region.words()[BY_DATAGRAMS].load(Ordering::Relaxed);
    match seconds(now).wrapping_sub((word >> 32) as u32) {
        age if u64::from(age) <= GONE_AFTER.as_secs() => word as u32,
        _ => 0,
    }
}

fn seconds(now: Timestamp) -> u32 {
    (now.nanos() / 1_000_000_000) as u32
}

impl RegionMemory {
    /// Front-ends that read it through mappings.
    pub(crate) fn present(&self, now: Timestamp) -> u32 {
        present(&self.mapping, now)
    }

    /// As many read it by datagrams now: for those that map it.
    pub(crate) fn set_by_datagrams(&self, readers: u32, now: Timestamp) {
        let word = u64::from(seconds(now)) << 32 | u64::from(readers);
        self.mapping.words()[BY_DATAGRAMS].store(word, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + millis)
    }

    #[test]
    fn readers_that_sign_in_are_counted_until_they_are_gone() {
        let memory = RegionMemory::anonymous().unwrap();
        let region = &memory.mapping;
        let mut one = Presence::new(7);
        let mut other = Presence::new(8);
        assert_eq!(one.sign(region, at(0)), 1);
        assert_eq!(other.sign(region, at(1)), 2);
        assert_eq!(one.sign(region, at(249)), 1, "it has not looked again");
        assert_eq!(one.sign(region, at(250)), 2);
        assert_eq!(memory.present(at(300)), 2);
        assert_eq!(one.sign(region, at(2500)), 1, "the other is gone");
        // A place that was given up is taken again.
        for name in 0..1000 {
            Presence::new(100 + name).sign(region, at(3000 + name * 3000));
        }
        assert_eq!(memory.present(at(3000 + 999 * 3000)), 1);
    }

    #[test]
    fn one_reader_of_two_handles_is_one() {
        let memory = RegionMemory::anonymous().unwrap();
        let mut handles = [Presence::new(7), Presence::new(7)];
        for handle in &mut handles {
            assert_eq!(handle.sign(&memory.mapping, at(0)), 1);
        }
    }

    #[test]
    fn of_more_than_have_a_place_one_more_is_known() {
        let memory = RegionMemory::anonymous().unwrap();
        for name in 1..=PRESENCE_SLOTS as u64 {
            Presence::new(name).sign(&memory.mapping, at(0));
        }
        let late = Presence::new(1000).sign(&memory.mapping, at(1));
        assert_eq!(late, PRESENCE_SLOTS as u32 + 1);
    }

    #[test]
    fn those_by_datagrams_are_counted_with_them_while_they_come() {
        let memory = RegionMemory::anonymous().unwrap();
        memory.set_by_datagrams(3, at(0));
        let count = |millis| Presence::new(7).sign(&memory.mapping, at(millis));
        assert_eq!(count(1000), 4);
        assert_eq!(count(10_000), 1);
    }
}
