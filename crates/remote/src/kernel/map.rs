//! Maps that the programs share with processes.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use libbpf_rs::{MapCore, MapFlags};
use memmap2::{Mmap, MmapOptions, MmapRaw};
use tidegate_core::record::{
    AGGREGATE_LINES, CpuLine, LINE_BYTES, LoadRecord, RECORD_BYTES_MAX, RecordError,
};

use super::object::refused;
use super::{COUNTS, KernelError};
use crate::region::RegionError;
use crate::udp::ResponderStats;
use crate::udp::wire::DropReason;

/// Bytes of the part of a record that a process tells.
const SLOW_BYTES: usize = AGGREGATE_LINES * LINE_BYTES;
/// Where its two slots begin, behind the number of the one that counts.
const SLOTS_AT: usize = 64;
/// Tries to copy a record while the timer makes the next one.
const TRIES: usize = 4;

/// The part of the record that only a process can see: files, disks, pressure, services. The
/// programs put it under what they see themselves, as long as it is young.
#[derive(Debug)]
pub struct SlowHalf {
    map: MmapRaw,
    next: usize,
}

impl SlowHalf {
    pub(super) fn map(map: &impl MapCore) -> Result<Self, KernelError> {
        let bytes = SLOTS_AT + 2 * SLOW_BYTES;
        let map = MmapOptions::new()
            .len(bytes)
            .map_raw(map.as_fd().as_raw_fd())
            .map_err(RegionError::io("map the slow half of the record"))?;
        Ok(Self { map, next: 1 })
    }

    /// Publishes what a process has seen.
    pub fn publish(&mut self, record: &LoadRecord) {
        let mut bytes = [0; RECORD_BYTES_MAX];
        record.encode(&[], &mut bytes);
        let at = SLOTS_AT + self.next * SLOW_BYTES;
        // SAFETY: the mapping has room for both slots, is ours to write, and lives as long as
        // `self`. A program may read this slot only if it began before the last publication
        // and still runs, microseconds against a millisecond; numbers may then be mixed, and
        // are the next moment's.
        unsafe {
            let slot = self.map.as_mut_ptr().add(at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), slot, SLOW_BYTES);
        }
        // SAFETY: the mapping begins at a page, so its first word is aligned; only atomics
        // touch it.
        let current = unsafe { &*self.map.as_mut_ptr().cast::<AtomicU64>() };
        current.store(self.next as u64, Ordering::Release);
        self.next ^= 1;
    }
}

/// The record that a timer in the kernel makes.
#[derive(Debug)]
pub struct PublishedRecord(Mmap);

impl PublishedRecord {
    pub(super) fn map(map: &impl MapCore) -> Result<Self, KernelError> {
        let mut options = MmapOptions::new();
        options.len(RECORD_BYTES_MAX);
        // SAFETY: the mapping is of a map, which no process can cut short. The timer writes to it
        // while it is read; `read` copies it out byte by byte and looks whether it was whole.
        let map = unsafe { options.map(map.as_fd().as_raw_fd()) }
            .map_err(RegionError::io("map the kernel's record"))?;
        Ok(Self(map))
    }

    /// The record of the last timer that ended.
    ///
    /// # Errors
    /// If there is none yet, or each try met the timer at work.
    pub fn read(&self) -> Result<(LoadRecord, Vec<CpuLine>), RecordError> {
        let mut last = Err(RecordError::Absent);
        for _ in 0..TRIES {
            let mut bytes = [0_u8; RECORD_BYTES_MAX];
            for (at, byte) in bytes.iter_mut().enumerate() {
                // SAFETY: within the mapping, which is as long as the array.
                *byte = unsafe { self.0.as_ptr().add(at).read_volatile() };
            }
            fence(Ordering::Acquire);
            last = LoadRecord::decode(&bytes).map(|record| {
                let lines = record.cpus(&bytes).collect();
                (record, lines)
            });
            if !matches!(last, Err(RecordError::Torn(_))) {
                break;
            }
        }
        last
    }
}

/// The programs' counters, all CPUs together.
pub(super) fn stats(map: &impl MapCore) -> Result<ResponderStats, KernelError> {
    let count = |index: usize| -> Result<u64, KernelError> {
        let values = map
            .lookup_percpu(&(index as u32).to_ne_bytes(), MapFlags::ANY)
            .map_err(refused("read the programs' counters"))?
            .unwrap_or_default();
        let word = |bytes: &Vec<u8>| bytes.first_chunk().map_or(0, |it| u64::from_ne_bytes(*it));
        Ok(values.iter().map(word).sum())
    };
    let drops = DropReason::ALL.len();
    let mut dropped = Vec::with_capacity(drops);
    for (index, (reason, _)) in DropReason::ALL.iter().enumerate() {
        dropped.push((*reason, count(index)?));
    }
    let named = |name: &str| {
        let index = COUNTS.iter().position(|it| *it == name);
        count(drops + index.unwrap_or_default())
    };
    Ok(ResponderStats {
        reads: named("reads")?,
        atomics: named("atomics")?,
        repeated: named("repeated")?,
        refused: named("refused")?,
        limited: named("limited")?,
        elsewhere: named("elsewhere")?,
        imitated: named("imitated")?,
        dropped,
        ..ResponderStats::default()
    })
}
