//! A shared mapping seen as atomics: the one place where bytes of other processes are touched.

use std::fs::File;
use std::sync::atomic::AtomicU64;

use memmap2::{MmapOptions, MmapRaw};

use super::layout::{REGION_BYTES, REGION_WORDS};
use crate::region::RegionError;

/// The bytes of one region, mapped.
#[derive(Debug)]
pub(crate) struct Mapping {
    raw: MmapRaw,
    writable: bool,
}

impl Mapping {
    /// Maps a file for reading and writing.
    pub(crate) fn writable(file: &File) -> Result<Self, RegionError> {
        let raw = Self::options().map_raw(file);
        Self::new(raw, true)
    }

    /// Maps a file for reading.
    pub(crate) fn read_only(file: &File) -> Result<Self, RegionError> {
        let raw = Self::options().map_raw_read_only(file);
        Self::new(raw, false)
    }

    /// Maps memory without a file, which forked children would share but nobody else.
    pub(crate) fn anonymous() -> Result<Self, RegionError> {
        let raw = Self::options().map_anon().map(MmapRaw::from);
        Self::new(raw, true)
    }

    fn options() -> MmapOptions {
        let mut options = MmapOptions::new();
        options.len(REGION_BYTES);
        options
    }

    fn new(raw: std::io::Result<MmapRaw>, writable: bool) -> Result<Self, RegionError> {
        Ok(Self {
            raw: raw.map_err(RegionError::io("map a region"))?,
            writable,
        })
    }

    /// Whether words may be changed through this mapping.
    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    /// The region as words. Loads are always sound; stores only if the mapping is writable,
    /// which [`Self::is_writable`] tells and every caller that stores has made sure of.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        let start = self.raw.as_ptr().cast::<AtomicU64>();
        debug_assert!(start.is_aligned() && self.raw.len() >= REGION_BYTES);
        // SAFETY: the mapping is page-aligned, at least REGION_BYTES long (the length asked for
        // when it was made), any bytes are a valid AtomicU64, and it lives as long as `self`.
        // Other processes change it, through atomics of the same size only. A file that its
        // owner made shorter would raise SIGBUS: owners never do, they replace the file.
        unsafe { std::slice::from_raw_parts(start, REGION_WORDS) }
    }
}
