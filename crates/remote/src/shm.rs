//! Shared memory on one host: the region's file, mapped.
//!
//! The verbs are plain loads and locked instructions on memory that the owner writes, so a read
//! costs some tens of nanoseconds and no system call. What a mapping cannot tell is that its
//! owner went away and another one came under the same name. Three things do:
//!
//! * an owner that ends, and one that replaces a dead one, mark the old memory as retired;
//! * when the record has stood still for 20 ms, the name is looked up again;
//! * before an atomic, which is rare, the name is always looked up.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_core::time::Timestamp;

use crate::clock;
use crate::memory::lines::{CopyError, RECORD_WORDS, copy};
use crate::memory::{
    Mapping, RETIRED, compare_and_swap, identity, is_region, open_options, word_at,
};
use crate::region::{Read, Refusal, Region, RegionError};

/// A record that has not changed for this long makes the reader look at the file's name again,
/// and again after the same time: 50 lookups a second at most.
const STILL_MAX: Duration = Duration::from_millis(20);

/// A handle to the region in a file. It opens the file when it is first used, and again when
/// another owner has put a new one in its place.
#[derive(Debug)]
pub struct ShmRegion {
    path: PathBuf,
    mapped: Option<Mapped>,
}

#[derive(Debug)]
struct Mapped {
    mapping: Mapping,
    file: (u64, u64),
    sequence: u32,
    /// When the record last changed or the name was last looked up.
    checked: Timestamp,
}

impl ShmRegion {
    /// A handle to the region under this name. The file may come later.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
            mapped: None,
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

    /// The mapping, unless its owner said that it is gone: then the file of the next one.
    fn current(&mut self) -> Result<&mut Mapped, RegionError> {
        let retired =
            |mapped: &Mapped| mapped.mapping.words()[RETIRED].load(Ordering::Acquire) != 0;
        let mapped = match self.mapped.take() {
            Some(mapped) if !retired(&mapped) => mapped,
            Some(_) | None => Mapped::open(&self.path)?,
        };
        if retired(&mapped) {
            return Err(RegionError::Absent);
        }
        Ok(self.mapped.insert(mapped))
    }

    /// Forgets the mapping if the name belongs to another file by now, or to none.
    fn look_up(&mut self) -> Result<(), RegionError> {
        let named = match std::fs::symlink_metadata(&self.path) {
            Ok(about) => Some(identity(&about)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(RegionError::io("look at a region's name")(error)),
        };
        if self.mapped.as_ref().map(|mapped| mapped.file) != named {
            self.mapped = None;
        }
        Ok(())
    }

    /// The mapping for an atomic, which must not go to memory that nobody serves any more.
    fn words(&mut self) -> Result<&Mapping, RegionError> {
        self.look_up()?;
        let mapping = &self.current()?.mapping;
        if mapping.is_writable() {
            Ok(mapping)
        } else {
            Err(RegionError::Refused(Refusal::ReadOnly))
        }
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
    /// Opens and maps the file: for changing words where permitted, else for reading.
    fn open(path: &Path) -> Result<Self, RegionError> {
        let opened = match open_options(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                open_options(false).open(path).map(|file| (file, false))
            }
            opened => opened.map(|file| (file, true)),
        };
        let (file, writable) = match opened {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(RegionError::Absent);
            }
            Err(error) => return Err(RegionError::io("open a region")(error)),
        };
        let map = |file: &File| match writable {
            true => Mapping::writable(file),
            false => Mapping::read_only(file),
        };
        let Some(mapping) = is_region(&file, || map(&file))? else {
            return Err(RegionError::NotRegion(path.to_path_buf()));
        };
        let about = file
            .metadata()
            .map_err(RegionError::io("look at a region's file"))?;
        Ok(Self {
            mapping,
            file: identity(&about),
            sequence: 0,
            checked: Timestamp::ZERO,
        })
    }

    fn copy(&mut self, out: &mut [u8], now: Timestamp) -> Copied {
        match copy(&self.mapping.words()[..RECORD_WORDS], out) {
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
        Ok(read)
    }

    fn compare_and_swap(&mut self, word: u32, expected: u64, new: u64) -> Result<u64, RegionError> {
        let mapping = self.words()?;
        Ok(compare_and_swap(word_at(mapping, word)?, expected, new))
    }

    fn fetch_and_add(&mut self, word: u32, delta: u64) -> Result<u64, RegionError> {
        let mapping = self.words()?;
        Ok(word_at(mapping, word)?.fetch_add(delta, Ordering::SeqCst))
    }
}
