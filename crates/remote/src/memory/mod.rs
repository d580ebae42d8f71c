//! The node's side of a region: where the record is published and where the words live.
//!
//! A region lies in a file (in `/dev/shm`, so that it never meets a disk) or in anonymous
//! memory that a [`crate::udp::Responder`] of the same process serves. It has one owner:
//!
//! * The owner holds a lock on the file as long as it lives. Whoever comes second is refused
//!   ([`RegionError::Owned`]); a file whose owner died is replaced, and so is never one that
//!   is not a region.
//! * A replaced file is a new file under the old name, put there whole by a rename. Readers
//!   that still map the old one find it marked as retired, or see the record stand still and
//!   look at the name again (`shm`).
//! * The words start at zero and the record with a new generation.

mod layout;
pub(crate) mod lines;
mod mapping;
#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, OFlags, flock};
use tidegate_core::record::{CpuLine, LoadRecord, RECORD_BYTES_MAX};

pub use layout::WORDS;
pub(crate) use layout::{IDENTITY, IDENTITY_VALUE, REGION_BYTES, RETIRED, WORDS_START};
use lines::{CopyError, RECORD_WORDS};
pub(crate) use mapping::Mapping;

use crate::region::{Refusal, RegionError};

/// Who may map a region's file, unless said otherwise: its owner's user alone.
pub const MODE_DEFAULT: u32 = 0o600;
/// Names tried for a file that is about to take the region's name.
const NAME_TRIES: usize = 8;

/// The node's side of a region.
#[derive(Debug)]
pub struct RegionMemory {
    mapping: Mapping,
    /// The sequence of the last publication. The lock makes publishers take turns; readers
    /// never see it.
    sequence: Mutex<u32>,
    generation: u64,
    file: Option<Named>,
}

/// The file of a region and the name that it was given.
#[derive(Debug)]
struct Named {
    /// Keeps the lock.
    file: File,
    path: PathBuf,
}

impl RegionMemory {
    /// A region in a file that only this user may open.
    pub fn create(path: &Path) -> Result<Self, RegionError> {
        Self::create_with_mode(path, MODE_DEFAULT)
    }

    /// A region in a file with these permissions. Read permission lets others read the record,
    /// write permission lets them change words (and the record: give it to the proxy only).
    pub fn create_with_mode(path: &Path, mode: u32) -> Result<Self, RegionError> {
        let old = lock_old(path)?;
        let (file, temporary) = create_beside(path, mode)?;
        let made = Self::fill(&file).and_then(|mapping| {
            std::fs::rename(&temporary, path).map_err(RegionError::io("give a region its name"))?;
            Ok(mapping)
        });
        if made.is_err() {
            // The reason why it failed is what matters, not that a stray file may remain.
            std::fs::remove_file(&temporary).ok();
        }
        let mapping = made?;
        if let Some(old) = old {
            old.words()[RETIRED].store(1, Ordering::Release);
        }
        let path = path.to_path_buf();
        Self::new(mapping, Some(Named { file, path }))
    }

    /// A region in memory of this process alone, for a responder to serve.
    pub fn anonymous() -> Result<Self, RegionError> {
        Self::new(Mapping::anonymous()?, None)
    }

    fn new(mapping: Mapping, file: Option<Named>) -> Result<Self, RegionError> {
        Ok(Self {
            mapping,
            sequence: Mutex::new(0),
            generation: random()?,
            file,
        })
    }

    /// Gives a new file its size, lock and identity.
    fn fill(file: &File) -> Result<Mapping, RegionError> {
        flock(file, FlockOperation::NonBlockingLockExclusive)
            .map_err(RegionError::io("lock a region"))?;
        file.set_len(REGION_BYTES as u64)
            .map_err(RegionError::io("make room for a region"))?;
        let mapping = Mapping::writable(file)?;
        mapping.words()[IDENTITY].store(IDENTITY_VALUE.to_le(), Ordering::Release);
        Ok(mapping)
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

    /// The file's name, unless the region is anonymous.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|named| named.path.as_path())
    }

    /// The value of a word.
    pub fn word(&self, word: u32) -> Result<u64, RegionError> {
        Ok(self.word_at(word)?.load(Ordering::SeqCst))
    }

    /// Sets the word to `new` if it holds `expected`; gives the value that it held.
    pub fn compare_and_swap(&self, word: u32, expected: u64, new: u64) -> Result<u64, RegionError> {
        Ok(compare_and_swap(self.word_at(word)?, expected, new))
    }

    /// Adds to the word, wrapping; gives the value that it held.
    pub fn fetch_and_add(&self, word: u32, delta: u64) -> Result<u64, RegionError> {
        Ok(self.word_at(word)?.fetch_add(delta, Ordering::SeqCst))
    }

    /// Copies the first lines of the record that `out` has room for; gives its sequence.
    pub(crate) fn copy(&self, out: &mut [u8]) -> Result<u32, CopyError> {
        lines::copy(self.record_area(), out)
    }

    fn record_area(&self) -> &[AtomicU64] {
        &self.mapping.words()[..RECORD_WORDS]
    }

    fn word_at(&self, word: u32) -> Result<&AtomicU64, RegionError> {
        word_at(&self.mapping, word)
    }
}

impl Drop for RegionMemory {
    fn drop(&mut self) {
        self.mapping.words()[RETIRED].store(1, Ordering::Release);
        let Some(named) = &self.file else { return };
        // Only the file that is ours: another owner may have taken the name over.
        let same = |ours: std::fs::Metadata| {
            std::fs::symlink_metadata(&named.path)
                .is_ok_and(|theirs| identity(&ours) == identity(&theirs))
        };
        if named.file.metadata().is_ok_and(same) {
            // A file that cannot be removed is replaced by the next owner.
            std::fs::remove_file(&named.path).ok();
        }
    }
}

/// A word of a mapped region.
pub(crate) fn word_at(mapping: &Mapping, word: u32) -> Result<&AtomicU64, RegionError> {
    if (word as usize) < WORDS {
        Ok(&mapping.words()[WORDS_START + word as usize])
    } else {
        Err(RegionError::Refused(Refusal::Word(word)))
    }
}

/// The verb on one word; gives the value that it held.
pub(crate) fn compare_and_swap(word: &AtomicU64, expected: u64, new: u64) -> u64 {
    word.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst)
        .unwrap_or_else(|held| held)
}

/// What tells two files of one name apart.
pub(crate) fn identity(file: &std::fs::Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Whether an open file is a region of this layout.
pub(crate) fn is_region(
    file: &File,
    mapping: impl FnOnce() -> Result<Mapping, RegionError>,
) -> Result<Option<Mapping>, RegionError> {
    let about = file
        .metadata()
        .map_err(RegionError::io("look at a region's file"))?;
    if !about.is_file() || about.len() < REGION_BYTES as u64 {
        return Ok(None);
    }
    let mapping = mapping()?;
    let known = mapping.words()[IDENTITY].load(Ordering::Acquire) == IDENTITY_VALUE.to_le();
    Ok(known.then_some(mapping))
}

/// How a region's file is opened: never through a link that someone else may have laid.
pub(crate) fn open_options(write: bool) -> OpenOptions {
    let mut options = OpenOptions::new();
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    options
        .read(true)
        .write(write)
        .custom_flags(flags.bits() as i32);
    options
}

/// The number of the next publication: never zero, which means that there was none.
fn next_sequence(sequence: u32) -> u32 {
    sequence.checked_add(1).unwrap_or(1)
}

/// What lies under the name, if it is a region that nobody owns any more.
fn lock_old(path: &Path) -> Result<Option<Mapping>, RegionError> {
    let file = match open_options(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(RegionError::io("open the region of before")(error)),
    };
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Err(RegionError::Owned(path.to_path_buf()));
    }
    match is_region(&file, || Mapping::writable(&file))? {
        Some(mapping) => Ok(Some(mapping)),
        None => Err(RegionError::NotRegion(path.to_path_buf())),
    }
}

/// A new file in the same folder, under a name that nobody else takes.
fn create_beside(path: &Path, mode: u32) -> Result<(File, PathBuf), RegionError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut refused = io::Error::from(io::ErrorKind::AlreadyExists);
    for _ in 0..NAME_TRIES {
        let temporary = path.with_file_name(format!(".{name}.{:016x}", random()?));
        match open_options(true)
            .create_new(true)
            .mode(mode)
            .open(&temporary)
        {
            Ok(file) => return Ok((file, temporary)),
            Err(error) => refused = error,
        }
    }
    Err(RegionError::io("create a region")(refused))
}

/// A random number that is not zero.
pub(crate) fn random() -> Result<u64, RegionError> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(RegionError::io("take a random number"))?;
    Ok(u64::from_ne_bytes(bytes).max(1))
}
