//! Shared memory on one host: the region, mapped.
//!
//! The verbs are plain loads and locked instructions on memory that the owner writes, so a read
//! costs some tens of nanoseconds and no system call. The memory is sealed: no process can cut it
//! short under a reader. What a mapping cannot tell is that its owner went away and another one
//! came under the same name. Three things do:
//!
//! * an owner that ends marks its memory as retired;
//! * when the record has stood still for 20 ms, the name is looked up again;
//! * before an atomic, which is rare, the name is always looked up.
//!
//! Where a card changes the words, no CPU does: atomics are refused, and reads tell nothing of word 0.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_core::time::Timestamp;

use crate::clock;
use crate::memory::demand::note_read;
use crate::memory::lines::{CopyError, RECORD_WORDS, copy};
use crate::memory::presence::Presence;
use crate::memory::words::WordChange;
use crate::memory::{
    EPOCH, IDENTITY, IDENTITY_VALUE, Mapping, REGION_BYTES, RETIRED, Visitor, WORDS_BYTES,
    changed_here, word_at,
};
use crate::region::{LATE_MAX, Read, Refusal, Region, RegionError};

/// A record that has not changed for this long makes the reader look at the region's name again,
/// and again after the same time: 50 lookups a second at most.
const STILL_MAX: Duration = Duration::from_millis(20);
/// Longest wait for an owner that is asked for its memory.
const PATIENCE: Duration = Duration::from_secs(1);

/// A handle to the region of a name. It asks for the memory when it is first used, and again when
/// another owner has taken the name over.
#[derive(Debug)]
pub struct ShmRegion {
    path: PathBuf,
    patience: Duration,
    asked: Option<Visitor>,
    mapped: Option<Mapped>,
    /// Under this name it is counted among those that read there.
    name: Option<u64>,
}

#[derive(Debug)]
struct Mapped {
    region: Mapping,
    kernel_words: Option<Mapping>,
    /// Which of all files of that name handed it out.
    identity: (u64, u64),
    presence: Option<Presence>,
    sequence: u32,
    /// When the record last changed or the name was last looked up.
    checked: Timestamp,
}

impl ShmRegion {
    /// A handle to the region under this name, which may come later. Waits up to a second for an
    /// owner that does not hand its memory out at once.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
            patience: PATIENCE,
            asked: None,
            mapped: None,
            name: None,
        }
    }

    /// The same, but what is not there at once is absent until the next look: for a thread that
    /// reads other nodes too.
    pub fn impatient(path: &Path) -> Self {
        Self {
            patience: Duration::ZERO,
            ..Self::new(path)
        }
    }

    /// The same, counted among the front-ends that read there, under a name that it shares with no other.
    pub(crate) fn counted(self, name: u64) -> Self {
        Self {
            name: Some(name),
            ..self
        }
    }

    /// Copies the record into `out`, whole lines; gives its sequence.
    pub(crate) fn copy(&mut self, out: &mut [u8], now: Timestamp) -> Result<u32, RegionError> {
        let mapped = self.current()?;
        match mapped.copy(out, now) {
            Copied::Progress(sequence) => return Ok(sequence),
            Copied::Still(result) if now.since(mapped.checked) < STILL_MAX => return result,
            Copied::Still(_) => {}
        }
        // Nothing has changed for long: perhaps it does elsewhere.
        mapped.checked = now;
        self.look_up()?;
        match self.current()?.copy(out, now) {
            Copied::Progress(sequence) => Ok(sequence),
            Copied::Still(result) => result,
        }
    }

    /// The mapping, unless its owner said that it is gone: then that of the next one.
    fn current(&mut self) -> Result<&mut Mapped, RegionError> {
        let mapped = match self.mapped.take() {
            Some(mapped) if !mapped.is_retired() => mapped,
            Some(_) | None => self.map()?,
        };
        if mapped.is_retired() {
            return Err(RegionError::Absent);
        }
        Ok(self.mapped.insert(mapped))
    }

    /// Asks for the memory, if that is not under way already, and maps what is handed out.
    fn map(&mut self) -> Result<Mapped, RegionError> {
        let visitor = match self.asked.take() {
            Some(visitor) if Some(visitor.identity) == self.identity()? => visitor,
            Some(_) | None => Visitor::ask(&self.path)?,
        };
        let Some(handed) = visitor.take(self.patience)? else {
            self.asked = Some(visitor);
            return Err(RegionError::Absent);
        };
        let region = Mapping::of(&handed.region, REGION_BYTES)?;
        if region.words()[IDENTITY].load(Ordering::Acquire) != IDENTITY_VALUE.to_le() {
            return Err(RegionError::NotRegion(self.path.clone()));
        }
        let words = handed.words.map(|words| Mapping::of(words, WORDS_BYTES));
        Ok(Mapped {
            region,
            kernel_words: words.transpose()?,
            identity: visitor.identity,
            presence: self.name.map(Presence::new),
            sequence: 0,
            checked: Timestamp::ZERO,
        })
    }

    /// Which file has the name now.
    fn identity(&self) -> Result<Option<(u64, u64)>, RegionError> {
        match std::fs::symlink_metadata(&self.path) {
            Ok(about) => Ok(Some((about.dev(), about.ino()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(RegionError::io("look at a region's name")(error)),
        }
    }

    /// Forgets the mapping if the name belongs to another owner by now, or to none.
    fn look_up(&mut self) -> Result<(), RegionError> {
        let named = self.identity()?;
        if self.mapped.as_ref().map(|mapped| mapped.identity) != named {
            self.mapped = None;
        }
        Ok(())
    }

    /// The mapping for an atomic, which must not go to memory that is no longer served.
    fn words(&mut self) -> Result<&Mapped, RegionError> {
        self.look_up()?;
        Ok(self.current()?)
    }
}

/// What a copy showed.
enum Copied {
    /// Another record than before.
    Progress(u32),
    /// The same as before, or none that is whole.
    Still(Result<u32, RegionError>),
}

impl Mapped {
    fn is_retired(&self) -> bool {
        self.region.words()[RETIRED].load(Ordering::Acquire) != 0
    }

    fn word(&self, word: u32) -> Result<&std::sync::atomic::AtomicU64, RegionError> {
        word_at(&self.region, self.kernel_words.as_ref(), word)
    }

    /// A word that may be changed by this way.
    fn changeable(&self, word: u32) -> Result<&std::sync::atomic::AtomicU64, RegionError> {
        let at = self.word(word)?;
        changed_here(&self.region).map(|()| at)
    }

    fn copy(&mut self, out: &mut [u8], now: Timestamp) -> Copied {
        note_read(&self.region);
        match copy(&self.region.words()[..RECORD_WORDS], out) {
            Ok(sequence) if sequence != self.sequence => {
                self.sequence = sequence;
                self.checked = now;
                Copied::Progress(sequence)
            }
            Ok(sequence) => Copied::Still(Ok(sequence)),
            Err(CopyError::Torn) => Copied::Still(Err(RegionError::Torn)),
            Err(CopyError::Absent) => Copied::Still(Err(RegionError::Absent)),
        }
    }
}

impl Region for ShmRegion {
    fn read(&mut self, lines: usize) -> Result<Read, RegionError> {
        let now = clock::now();
        let mut read = Read::empty(lines, now)?;
        self.copy(read.bytes_mut(), now)?;
        read.record()?;
        read.received_at = clock::now();
        // The owner's clock is ours.
        read.node_now_ns = Some(read.received_at.nanos());
        let mapped = self.current()?;
        read.epoch = Some(mapped.region.words()[EPOCH].load(Ordering::Relaxed) as u32);
        // Where a card changes it, what a CPU sees is not what the card would say.
        let first_word = mapped.changeable(0).ok();
        read.first_word = first_word.map(|word| word.load(Ordering::SeqCst));
        let presence = mapped.presence.as_mut();
        read.readers = presence.map(|it| it.sign(&mapped.region, read.received_at));
        Ok(read)
    }

    fn compare_and_swap(&mut self, word: u32, expected: u64, new: u64) -> Result<u64, RegionError> {
        let word = self.words()?.changeable(word)?;
        Ok(WordChange::CompareAndSwap { expected, new }.by_cpu(word))
    }

    fn compare_and_swap_since(
        &mut self,
        word: u32,
        expected: u64,
        new: u64,
        since: Timestamp,
    ) -> Result<u64, RegionError> {
        let word = self.words()?.changeable(word)?;
        if clock::now().since(since) > LATE_MAX {
            return Err(RegionError::Refused(Refusal::TooOld));
        }
        Ok(WordChange::CompareAndSwap { expected, new }.by_cpu(word))
    }

    fn fetch_and_add(&mut self, word: u32, delta: u64) -> Result<u64, RegionError> {
        let word = self.words()?.changeable(word)?;
        Ok(WordChange::FetchAndAdd { delta }.by_cpu(word))
    }
}
