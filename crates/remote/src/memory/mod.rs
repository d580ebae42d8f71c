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
//!   words are served over RDMA, the owner's process changes and reads them by the card too (`words`), and whatever
//!   maps them is refused.

pub(crate) mod demand;
mod door;
mod layout;
pub(crate) mod lines;
mod mapping;
pub(crate) mod presence;
#[cfg(test)]
mod tests;
pub(crate) mod words;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use tidegate_core::record::{CpuLine, LoadRecord, RECORD_BYTES_MAX};
use tidegate_core::time::Timestamp;

use door::Door;
pub(crate) use door::Visitor;
pub use layout::WORDS;
pub(crate) use layout::{
    EPOCH, IDENTITY, IDENTITY_VALUE, REGION_BYTES, RETIRED, WORDS_BYTES, WORDS_OVER_RDMA,
    WORDS_PAGE, WORDS_START,
};
use lines::{CopyError, RECORD_WORDS};
pub(crate) use mapping::Mapping;
use words::{ChangeWords, WordChange};

use crate::clock;
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
    /// What changes the words in the CPU's place, once something does.
    by_card: OnceLock<Box<dyn ChangeWords>>,
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
            by_card: OnceLock::new(),
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
    ///
    /// # Errors
    /// If there is no such word, or a card that serves the words does not answer in time.
    pub fn word(&self, word: u32) -> Result<u64, RegionError> {
        match self.by_card.get() {
            None => Ok(self.word_at(word)?.load(Ordering::SeqCst)),
            Some(_) => self.change(word, WordChange::NOTHING, None),
        }
    }

    /// Sets the word to `new` if it holds `expected`; gives the value that it held.
    ///
    /// # Errors
    /// As [`Self::word`]; with a time-out of no tries nothing was done, with one of any it may have been.
    pub fn compare_and_swap(&self, word: u32, expected: u64, new: u64) -> Result<u64, RegionError> {
        self.change(word, WordChange::CompareAndSwap { expected, new }, None)
    }

    /// Adds to the word, wrapping; gives the value that it held.
    ///
    /// # Errors
    /// As [`Self::compare_and_swap`].
    pub fn fetch_and_add(&self, word: u32, delta: u64) -> Result<u64, RegionError> {
        self.change(word, WordChange::FetchAndAdd { delta }, None)
    }

    /// Does this to a word, by the deadline if there is one.
    pub(crate) fn change(
        &self,
        word: u32,
        change: WordChange,
        deadline: Option<Timestamp>,
    ) -> Result<u64, RegionError> {
        let at = self.word_at(word)?;
        let Some(card) = self.by_card.get() else {
            return Ok(change.by_cpu(at));
        };
        let deadline = deadline.unwrap_or_else(|| clock::now() + card.patience());
        Ok(card.change(word, change, deadline)?)
    }

    /// From now on the words are changed by a card alone, for as long as this memory lives. To be called before anything
    /// else changes them.
    ///
    /// # Errors
    /// If the kernel's programs keep the words, or they were given away before.
    pub(crate) fn give_words(&self, card: Box<dyn ChangeWords>) -> Result<(), RegionError> {
        let elsewhere = RegionError::Refused(Refusal::WordsElsewhere);
        if self.kernel_words.is_some() || self.by_card.set(card).is_err() {
            return Err(elsewhere);
        }
        self.mapping.words()[WORDS_OVER_RDMA].store(1, Ordering::SeqCst);
        Ok(())
    }

    /// The device that changes the words, if one does.
    pub(crate) fn words_device(&self) -> Option<&str> {
        self.by_card.get().map(|card| card.device())
    }

    /// How long that device is waited for, if one changes the words.
    pub(crate) fn words_patience(&self) -> Option<Duration> {
        self.by_card.get().map(|card| card.patience())
    }

    /// Copies the first lines of the record that `out` has room for; gives its sequence.
    pub(crate) fn copy(&self, out: &mut [u8]) -> Result<u32, CopyError> {
        lines::copy(self.record_area(), out)
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

/// Refuses if the words of a mapped region are changed by a card alone.
pub(crate) fn changed_here(region: &Mapping) -> Result<(), RegionError> {
    match region.words()[WORDS_OVER_RDMA].load(Ordering::SeqCst) {
        0 => Ok(()),
        _ => Err(RegionError::Refused(Refusal::WordsElsewhere)),
    }
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
