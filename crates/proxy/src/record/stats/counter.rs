//! A counter with one writer: its worker adds without locking the bus, anybody reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// See the module. Release and acquire, so that a thread that reads an end has also seen its begin.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Nothing was counted.
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds; only the one writer may.
    pub(crate) fn add(&self, more: u64) {
        let sum = self.0.load(Ordering::Relaxed).wrapping_add(more);
        self.0.store(sum, Ordering::Release);
    }

    /// Takes away what was added; only the one writer may.
    pub(crate) fn take(&self, less: u64) {
        let rest = self.0.load(Ordering::Relaxed).wrapping_sub(less);
        self.0.store(rest, Ordering::Release);
    }

    /// Begins anew; only the one writer may.
    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Its value.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}
