//! A shared mapping seen as atomics: the one place where bytes of other processes are touched.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU32, AtomicU64};

use memmap2::{MmapOptions, MmapRaw};

use crate::region::RegionError;

/// Memory that several processes, or the kernel's programs, work on.
#[derive(Debug)]
pub(crate) struct Mapping {
    raw: MmapRaw,
}

impl Mapping {
    /// Maps so many bytes of memory that no process can cut short: sealed, or a map of the kernel's.
    pub(crate) fn of(memory: impl AsFd, bytes: usize) -> Result<Self, RegionError> {
        let raw = MmapOptions::new()
            .len(bytes)
            .map_raw(memory.as_fd().as_raw_fd());
        Ok(Self {
            raw: raw.map_err(RegionError::io("map a region"))?,
        })
    }

    /// The memory as words.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        let start = self.raw.as_ptr().cast::<AtomicU64>();
        debug_assert!(start.is_aligned());
        // SAFETY: the mapping is page-aligned and as long as it says, any bytes are a valid
        // AtomicU64, and it lives as long as `self`. Other processes change it, through atomics
        // of the same size only. It cannot be cut short, which would raise SIGBUS: whatever maps
        // something makes sure of that (see `of`).
        unsafe { std::slice::from_raw_parts(start, self.raw.len() / size_of::<u64>()) }
    }

    /// The first four bytes of a word, on which the kernel lets threads sleep. All accesses to such a word are of this size.
    pub(crate) fn half_word(&self, word: usize) -> &AtomicU32 {
        let word = self.words()[word].as_ptr().cast::<AtomicU32>();
        // SAFETY: aligned and within the mapping, as the word is; as above for the rest.
        unsafe { &*word }
    }
}
