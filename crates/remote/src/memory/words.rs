//! What is done to a word, and what does it where that is not this machine's CPU.
//!
//! A card's atomics are atomic among themselves and need not be beside those of a CPU. So where a card serves the words,
//! whatever this process does to them goes through the card too: the region's owner does not notice, but that it takes
//! longer, and may fail.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::time::Timestamp;

use crate::region::RegionError;

/// What is done to a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WordChange {
    /// It becomes `new` if it holds what is expected.
    CompareAndSwap { expected: u64, new: u64 },
    /// So much is added, wrapping.
    FetchAndAdd { delta: u64 },
}

impl WordChange {
    /// What leaves a word as it is, and tells what it holds.
    pub(crate) const NOTHING: Self = Self::FetchAndAdd { delta: 0 };

    /// Done by this machine's CPU; gives the value that the word held.
    pub(crate) fn by_cpu(self, word: &AtomicU64) -> u64 {
        match self {
            Self::CompareAndSwap { expected, new } => {
                let swapped =
                    word.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst);
                swapped.unwrap_or_else(|held| held)
            }
            Self::FetchAndAdd { delta } => word.fetch_add(delta, Ordering::SeqCst),
        }
    }
}

/// Why it is not known what a word held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotChanged {
    /// Nothing was done to it, nor will be.
    NotNow,
    /// Something may have been done.
    Unknown,
}

impl From<NotChanged> for RegionError {
    fn from(why: NotChanged) -> Self {
        let tries = match why {
            NotChanged::NotNow => 0,
            NotChanged::Unknown => 1,
        };
        Self::Timeout { tries }
    }
}

/// Changes a region's words in the CPU's place.
pub(crate) trait ChangeWords: fmt::Debug + Send + Sync {
    /// Does this to a word that there is; waits no longer than until the deadline. Gives the value that it held.
    fn change(&self, word: u32, change: WordChange, deadline: Timestamp)
    -> Result<u64, NotChanged>;

    /// How long one change is to be waited for.
    fn patience(&self) -> Duration;

    /// Which device does it.
    fn device(&self) -> &str;
}
