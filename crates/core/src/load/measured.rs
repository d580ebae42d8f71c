//! When each number of a load was measured, for people and programs that look at it. Policies judge a load by its age as a whole.
//!
//! A record is read at one moment, so all its numbers are as old as it is. Reported numbers have periods of their own
//! ([`super::ReportedLoad`]), and the load has the age of the one with the shortest. What is kept here is of one load: beside
//! any other one, it counts for nothing, and numbers are as old as that load.
//!
//! One writer, the node's reader; anybody reads. The time of the load stands for the version: it is zero while the rest changes.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::NodeLoad;
use crate::time::Timestamp;

/// Tries of a read that meets the writer.
const READ_TRIES: usize = 4;

/// When each was measured; nothing for what is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Used share of the CPUs.
    pub cpu: Option<Timestamp>,
    /// Used share of the memory.
    pub memory: Option<Timestamp>,
    /// Used share of the file descriptors.
    pub files: Option<Timestamp>,
    /// CPUs that the node has.
    pub capacity: Option<Timestamp>,
    /// Run-queue length: as reported, or what it is expected from.
    pub runnable: Option<Timestamp>,
    /// Requests in flight at the node.
    pub in_flight: Option<Timestamp>,
}

impl Measured {
    /// All that is known of a load, measured when it was.
    pub fn at_once(load: &NodeLoad) -> Self {
        let if_known = |value: f32| value.is_finite().then_some(load.observed_at);
        Self {
            cpu: if_known(load.utilization),
            memory: if_known(load.memory),
            files: if_known(load.files),
            capacity: if_known(load.capacity),
            runnable: if_known(load.runnable),
            in_flight: if_known(load.in_flight),
        }
    }

    fn words(&self) -> [u64; 6] {
        let all = [
            self.cpu,
            self.memory,
            self.files,
            self.capacity,
            self.runnable,
            self.in_flight,
        ];
        all.map(|at| at.map_or(0, Timestamp::nanos))
    }

    fn of_words(words: [u64; 6]) -> Self {
        let known = words.map(|word| (word != 0).then(|| Timestamp::from_nanos(word)));
        let [cpu, memory, files, capacity, runnable, in_flight] = known;
        Self {
            cpu,
            memory,
            files,
            capacity,
            runnable,
            in_flight,
        }
    }
}

/// Where they lie.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct MeasuredSlot {
    /// The load's own time; zero while it is written, and before the first.
    of: AtomicU64,
    words: [AtomicU64; 6],
}

impl MeasuredSlot {
    pub(super) fn store(&self, load: &NodeLoad, measured: &Measured) {
        self.of.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, value) in self.words.iter().zip(measured.words()) {
            word.store(value, Ordering::Relaxed);
        }
        self.of.store(load.observed_at.nanos(), Ordering::Release);
    }

    /// As before the first.
    pub(super) fn clear(&self) {
        self.of.store(0, Ordering::Release);
    }

    /// Nothing if it is of another load, and when the writer is at work each time.
    pub(super) fn load(&self, load: &NodeLoad) -> Option<Measured> {
        (0..READ_TRIES).find_map(|_| self.try_load(load))
    }

    fn try_load(&self, load: &NodeLoad) -> Option<Measured> {
        let of = self.of.load(Ordering::Acquire);
        let words = std::array::from_fn(|place| self.words[place].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let is_whole = self.of.load(Ordering::Relaxed) == of;
        let is_of = of != 0 && of == load.observed_at.nanos();
        (is_whole && is_of).then(|| Measured::of_words(words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_of_one_load() {
        let slot = MeasuredSlot::default();
        let load = NodeLoad {
            observed_at: Timestamp::from_millis(500),
            utilization: 0.5,
            memory: 0.25,
            ..NodeLoad::UNKNOWN
        };
        assert_eq!(slot.load(&load), None);
        assert_eq!(slot.load(&NodeLoad::UNKNOWN), None);
        let measured = Measured {
            memory: Some(Timestamp::from_millis(100)),
            ..Measured::at_once(&load)
        };
        assert_eq!(measured.cpu, Some(load.observed_at));
        assert_eq!(measured.files, None);
        slot.store(&load, &measured);
        assert_eq!(slot.load(&load), Some(measured));
        let next = NodeLoad {
            observed_at: Timestamp::from_millis(501),
            ..load
        };
        assert_eq!(slot.load(&next), None);
        slot.clear();
        assert_eq!(slot.load(&load), None);
    }
}
