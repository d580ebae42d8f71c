//! The node's side of a region: where the record is published and where the words live.
//!
//! A region is sealed memory without a name. It serves a [`crate::udp::Responder`] of the same
//! process, and other processes of this host if it has a door (`door`), a socket under a name in
//! the file system (in `/dev/shm` or `/run`), which hands the memory out. It has one owner:
//!
//! * A second owner is refused ([`RegionError::Owned`]). A name whose owner died is taken
//!   over; one that is not a region's never is.
//! * An owner that ends marks its memory as retired. Readers that map the memory of one that was
//!   killed see the record stand still, and look at the name again (`shm`).
//! * The words start at zero with a new epoch, and the record with a new generation.
//! * A node has one set of words: where the kernel's programs keep them ([`KernelWords`]), the
//!   region hands those out in place of its own.
//! * A card's atomics need not be atomic beside those of a CPU (rxe's and those of cards that say so are not): once the
//!   words are served over RDMA, every other way to change them is refused, the owner's own among them.

pub(crate) mod demand;
mod door;
mod layout;
pub(crate) mod lines;
mod mapping;
pub(crate) mod presence;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use tidegate_core::record::{CpuLine, LoadRecord, RECORD_BYTES_MAX};

use door::Door;
pub(crate) use door::Visitor;
pub use layout::WORDS;
pub(crate) use layout::{
    EPOCH, IDENTITY, IDENTITY_VALUE, REGION_BYTES, RETIRED, WORDS_BYTES, WORDS_OVER_RDMA,
    WORDS_PAGE, WORDS_START,
};
use lines::{CopyError, RECORD_WORDS};
pub(crate) use mapping::Mapping;

use crate::region::{Refusal, RegionError};

/// Which users may take a region's memory, unless said otherwise: its owner's user alone.
pub const MODE_DEFAULT: u32 = 0o600;

/// Words that the kernel's programs keep.
#[derive(Debug)]
pub struct KernelWords {
    /// Their map, which can be mapped.
    pub map: OwnedFd,
    /// Their epoch.
    pub epoch: u32,
}

/// The node's side of a region.
#[derive(Debug)]
pub struct RegionMemory {
    file: OwnedFd,
    mapping: Mapping,
    /// The kernel's words; nothing if they are in the region.
    kernel_words: Option<Mapping>,
    /// Zero stands for "not known" in a request.
    epoch: AtomicU32,
    /// The sequence of the last publication. The lock makes publishers take turns; readers
    /// never see it.
    sequence: Mutex<u32>,
    generation: u64,
    door: Option<Door>,
}

impl RegionMemory {
    /// A region that only this user's processes may map, by its name.
    pub fn create(path: &Path) -> Result<Self, RegionError> {
        Self::create_with_mode(path, MODE_DEFAULT)
    }

    /// A region that processes may map which have write permission by this mode. They change words
    /// (and could change the record: give it to the proxy only).
    pub fn create_with_mode(path: &Path, mode: u32) -> Result<Self, RegionError> {
        Self::new(Some((path, mode)), None)
    }

    /// A region in memory of this process alone, for a responder to serve.
    pub fn anonymous() -> Result<Self, RegionError> {
        Self::new(None, None)
    }

    /// A region whose words are the kernel's, with a name if other processes of this host read it.
    pub fn beside_kernel(path: Option<&Path>, words: KernelWords) -> Result<Self, RegionError> {
        Self::new(path.map(|path| (path, MODE_DEFAULT)), Some(words))
    }

    fn new(name: Option<(&Path, u32)>, words: Option<KernelWords>) -> Result<Self, RegionError> {
        let file = sealed().map_err(RegionError::io("make a region's memory"))?;
        let mapping = Mapping::of(&file, REGION_BYTES)?;
        let (map, epoch) = match words {
            Some(KernelWords { map, epoch }) => (Some(map), epoch),
            None => (None, random_epoch()?),
        };
        let kernel_words = match &map {
            Some(map) => Some(Mapping::of(map, WORDS_BYTES)?),
            None => None,
        };
        mapping.words()[EPOCH].store(epoch.into(), Ordering::Relaxed);
        mapping.words()[IDENTITY].store(IDENTITY_VALUE.to_le(), Ordering::Release);
        let door = match name {
            Some((path, mode)) => {
                let region = file.try_clone();
                let region = region.map_err(RegionError::io("hand a region out"))?;
                let memory = [region].into_iter().chain(map).collect();
                Some(Door::open(path, mode, memory)?)
            }
            None => None,
        };
        Ok(Self {
            file,
            mapping,
            kernel_words,
            epoch: AtomicU32::new(epoch),
            sequence: Mutex::new(0),
            generation: random()?,
            door,
        })
    }

    /// Publishes a record: takes the next sequence, and this region's generation where the
    /// record has none (zero). CPU lines: the busiest first, see [`LoadRecord::encode`].
    pub fn publish(&self, record: &LoadRecord, cpus: &[CpuLine]) {
        let mut bytes = [0; RECORD_BYTES_MAX];
        // A publisher that panicked left at worst a torn record, which this one replaces.
        let mut sequence = self.sequence.lock().unwrap_or_else(PoisonError::into_inner);
        *sequence = next_sequence(*sequence);
        let numbered = LoadRecord {
            sequence: *sequence,
            generation: if record.generation == 0 {
                self.generation
            } else {
                record.generation
            },
            ..*record
        };
        let length = numbered.encode(cpus, &mut bytes);
        lines::write(self.record_area(), &bytes[..length]);
    }

    /// The generation of this owner: random, never zero.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The epoch of the words: this life of theirs, never zero.
    pub fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Begins another epoch, by every way at once: what was carried out in the one before is known
    /// no more.
    pub(crate) fn begin_epoch(&self) -> Result<(), RegionError> {
        let epoch = random_epoch()?;
        self.epoch.store(epoch, Ordering::Release);
        self.mapping.words()[EPOCH].store(epoch.into(), Ordering::Release);
        Ok(())
    }

    /// The region's name, unless it is anonymous.
    pub fn path(&self) -> Option<&Path> {
        self.door.as_ref().map(Door::path)
    }

    /// The value of a word.
    pub fn word(&self, word: u32) -> Result<u64, RegionError> {
        Ok(self.word_at(word)?.load(Ordering::SeqCst))
    }

    /// Sets the word to `new` if it holds `expected`; gives the value that it held.
    pub fn compare_and_swap(&self, word: u32, expected: u64, new: u64) -> Result<u64, RegionError> {
        Ok(compare_and_swap(self.changeable(word)?, expected, new))
    }

    /// Adds to the word, wrapping; gives the value that it held.
    pub fn fetch_and_add(&self, word: u32, delta: u64) -> Result<u64, RegionError> {
        Ok(self.changeable(word)?.fetch_add(delta, Ordering::SeqCst))
    }

    /// From now on the words are changed over RDMA alone, for as long as this memory lives.
    ///
    /// # Errors
    /// If the kernel's programs keep the words.
    pub fn give_words_to_rdma(&self) -> Result<(), RegionError> {
        if self.kernel_words.is_some() {
            return Err(RegionError::Refused(Refusal::WordsElsewhere));
        }
        self.mapping.words()[WORDS_OVER_RDMA].store(1, Ordering::SeqCst);
        Ok(())
    }

    /// Copies the first lines of the record that `out` has room for; gives its sequence.
    pub(crate) fn copy(&self, out: &mut [u8]) -> Result<u32, CopyError> {
        lines::copy(self.record_area(), out)
    }

    /// A word that may be changed by this way.
    fn changeable(&self, word: u32) -> Result<&AtomicU64, RegionError> {
        let at = self.word_at(word)?;
        changed_here(&self.mapping).map(|()| at)
    }

    fn record_area(&self) -> &[AtomicU64] {
        &self.mapping.words()[..RECORD_WORDS]
    }

    fn word_at(&self, word: u32) -> Result<&AtomicU64, RegionError> {
        word_at(&self.mapping, self.kernel_words.as_ref(), word)
    }
}

impl AsFd for RegionMemory {
    /// The memory itself.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for RegionMemory {
    fn drop(&mut self) {
        self.mapping.words()[RETIRED].store(1, Ordering::Release);
    }
}

/// Memory of a region's size that no process can cut short or make longer.
fn sealed() -> Result<OwnedFd, rustix::io::Errno> {
    let file = memfd_create(
        "tidegate-region",
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    )?;
    ftruncate(&file, REGION_BYTES as u64)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// A word of a mapped region, or of the kernel if that keeps them.
pub(crate) fn word_at<'a>(
    region: &'a Mapping,
    kernel_words: Option<&'a Mapping>,
    word: u32,
) -> Result<&'a AtomicU64, RegionError> {
    let words = match kernel_words {
        Some(words) => words.words(),
        None => &region.words()[WORDS_START..],
    };
    let known = words[..WORDS].get(word as usize);
    known.ok_or(RegionError::Refused(Refusal::Word(word)))
}

/// Refuses if the words of a mapped region are changed over RDMA alone.
pub(crate) fn changed_here(region: &Mapping) -> Result<(), RegionError> {
    match region.words()[WORDS_OVER_RDMA].load(Ordering::SeqCst) {
        0 => Ok(()),
        _ => Err(RegionError::Refused(Refusal::WordsElsewhere)),
    }
}

/// The verb on one word; gives the value that it held.
pub(crate) fn compare_and_swap(word: &AtomicU64, expected: u64, new: u64) -> u64 {
    word.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst)
        .unwrap_or_else(|held| held)
}

/// The number of the next publication: never zero, which means that there was none.
fn next_sequence(sequence: u32) -> u32 {
    sequence.checked_add(1).unwrap_or(1)
}

/// An epoch that no other is likely to have.
pub(crate) fn random_epoch() -> Result<u32, RegionError> {
    Ok((random()? as u32).max(1))
}

/// A random number that is not zero.
pub(crate) fn random() -> Result<u64, RegionError> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(RegionError::io("take a random number"))?;
    Ok(u64::from_ne_bytes(bytes).max(1))
}
