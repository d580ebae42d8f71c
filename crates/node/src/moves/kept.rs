//! What a later agent must know, as a file: the generation that was seen last, what the servers are set up for, and the hook
//! that was begun last.
//!
//! ```text
//! tidegate moves 1
//! generation 5
//! site shop
//! lent true
//! hook 5
//! sure true
//! ```
//!
//! Sites are there by name, since a number means another site in another list. The file is replaced as a whole, and on the disk
//! before anything of it is begun. Failure case: a file that is not understood is an error with its line; the agent does not start.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use tidegate_core::moves::agent::KeptAssignment;
use tidegate_core::moves::words::{Count24, SiteNumber};

use super::{left, trust};

/// In the folder.
const NAME: &str = "moves.kept";

/// The files that an agent keeps in its folder.
pub fn kept_files(folder: &Path) -> [PathBuf; 2] {
    [folder.join(NAME), left::file(folder)]
}

const HEAD: &str = "tidegate moves 1";
const MODE: u32 = 0o600;
/// Longest file.
const BYTES_MAX: u64 = 4096;

/// Why an agent of this user's number cannot keep a file in a folder.
///
/// # Errors
/// Others could change it, or it is not there.
pub fn check_kept_folder(folder: &Path, user: u32) -> Result<(), KeptError> {
    trust::folder_of(folder, user).map_err(KeptError::Folder)
}

/// Why what was kept cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// Others could change it.
    #[error("cannot keep what moves did: {0}")]
    Folder(String),
    /// It cannot be read or written.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: String,
        /// What the system says.
        error: std::io::Error,
    },
    /// It is not what an agent writes.
    #[error(
        "{path}, line {line}: expected {expected}; remove the file to begin anew: a hook may then run twice"
    )]
    Broken {
        /// The file.
        path: String,
        /// Which line, from 1.
        line: usize,
        /// What should be there.
        expected: String,
    },
}

/// The file.
#[derive(Clone, Debug)]
pub(super) struct KeptFile {
    folder: PathBuf,
    path: PathBuf,
}

/// What it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    generation: Count24,
    site: String,
    lent: bool,
    hook: Count24,
    is_sure: bool,
}

impl Kept {
    /// From numbers to names.
    pub(super) fn of(kept: KeptAssignment, sites: &[&str]) -> Option<Self> {
        Some(Self {
            generation: kept.generation,
            site: (*sites.get(kept.site.index())?).to_owned(),
            lent: kept.lent,
            hook: kept.hook,
            is_sure: kept.is_sure,
        })
    }

    /// From names to numbers. Of a site that is not among these, nothing is sure.
    pub(super) fn assignment(&self, sites: &[&str]) -> KeptAssignment {
        let place = sites.iter().position(|it| *it == self.site);
        KeptAssignment {
            generation: self.generation,
            site: SiteNumber(place.unwrap_or(0) as u8),
            lent: self.lent,
            hook: self.hook,
            is_sure: self.is_sure && place.is_some(),
        }
    }

    fn text(&self) -> String {
        format!(
            "{HEAD}\ngeneration {}\nsite {}\nlent {}\nhook {}\nsure {}\n",
            self.generation.get(),
            self.site,
            self.lent,
            self.hook.get(),
            self.is_sure
        )
    }

    /// The first line that is wrong, and what it should be.
    fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            return Err((1, format!("`{HEAD}`")));
        }
        let mut number = 1;
        let mut value = |name: &str, expected: &str| {
            number += 1;
            let line = lines
                .next()
                .and_then(|it| it.strip_prefix(name)?.strip_prefix(' '));
            let wrong = (number, format!("`{name}` and {expected}"));
            line.map(|it| (it, wrong.clone())).ok_or(wrong)
        };
        let count = |(text, wrong): (&str, (usize, String))| {
            let count = text.parse().ok().filter(|it| *it < 1 << 24);
            count.map(Count24::new).ok_or(wrong)
        };
        let flag = |(text, wrong): (&str, (usize, String))| text.parse().map_err(|_| wrong);
        let (number, yes_no) = ("a number below 2^24", "true or false");
        Ok(Self {
            generation: count(value("generation", number)?)?,
            site: value("site", "a name")?.0.to_owned(),
            lent: flag(value("lent", yes_no)?)?,
            hook: count(value("hook", number)?)?,
            is_sure: flag(value("sure", yes_no)?)?,
        })
    }
}

impl KeptFile {
    /// The file of this folder.
    ///
    /// # Errors
    /// A folder that others can write to, or that is not there.
    pub(super) fn of(folder: &Path) -> Result<Self, KeptError> {
        trust::folder(folder).map_err(KeptError::Folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            path: folder.join(NAME),
        })
    }

    fn failed(&self) -> impl FnOnce(std::io::Error) -> KeptError {
        let path = self.path.display().to_string();
        move |error| KeptError::Io { path, error }
    }

    /// What was kept last; none if nothing was.
    pub(super) fn read(&self) -> Result<Option<Kept>, KeptError> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(&self.path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed()(error)),
        };
        let mut text = String::new();
        let read = file.take(BYTES_MAX).read_to_string(&mut text);
        read.map_err(self.failed())?;
        let broken = |(line, expected)| KeptError::Broken {
            path: self.path.display().to_string(),
            line,
            expected,
        };
        Kept::parse(&text).map(Some).map_err(broken)
    }

    /// Keeps this instead. On the disk when it returns.
    pub(super) fn write(&self, kept: &Kept) -> Result<(), KeptError> {
        replace(&self.path, kept.text().as_bytes(), MODE)
            .and_then(|()| File::open(&self.folder)?.sync_all())
            .map_err(self.failed())
    }
}

/// Replaces a file as a whole; its bytes are on the disk.
pub(super) fn replace(path: &Path, bytes: &[u8], mode: u32) -> std::io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".next");
    let next = PathBuf::from(name);
    let written = write(&next, bytes, mode).and_then(|()| std::fs::rename(&next, path));
    if written.is_err() {
        // Why it could not be written is what matters.
        std::fs::remove_file(&next).ok();
    }
    written
}

fn write(next: &Path, bytes: &[u8], mode: u32) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    match std::fs::remove_file(next) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        // One that a crash has left.
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(next)?;
    file.set_permissions(std::fs::Permissions::from_mode(mode))?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Kept {
        Kept {
            generation: Count24::new(5),
            site: "my shop".into(),
            lent: true,
            hook: Count24::new(4),
            is_sure: true,
        }
    }

    #[test]
    fn what_was_kept_is_read_again() {
        let folder = std::env::temp_dir().join(format!("tidegate-kept-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = KeptFile::of(&folder).unwrap();
        assert_eq!(file.read().unwrap(), None);
        for lent in [true, false] {
            let kept = Kept { lent, ..kept() };
            file.write(&kept).unwrap();
            assert_eq!(file.read().unwrap(), Some(kept));
        }
        std::fs::write(&file.path, "tidegate moves 1\ngeneration x\n").unwrap();
        let error = file.read().unwrap_err().to_string();
        assert!(
            error.contains("moves.kept, line 2: expected `generation` and a number"),
            "{error}"
        );
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(KeptFile::of(&folder).is_err());
    }

    #[test]
    fn a_file_that_is_cut_anywhere_is_an_error_and_no_panic() {
        let text = kept().text();
        assert_eq!(Kept::parse(&text), Ok(kept()));
        // Without the end of its last line it is whole.
        for length in 0..text.len() - 1 {
            let cut = Kept::parse(&text[..length]);
            assert!(cut.is_err(), "{:?}", &text[..length]);
        }
        for (line, wrong) in [
            (1, text.replace("moves 1", "moves 2")),
            (2, text.replace("ion 5", "ion 16777216")),
            (4, text.replace("lent true", "lent yes")),
            (5, text.replace("hook", "hooks")),
        ] {
            assert_eq!(Kept::parse(&wrong).unwrap_err().0, line);
        }
    }

    #[test]
    fn sites_are_kept_by_name() {
        let number = kept().assignment(&["blog", "my shop"]);
        assert_eq!((number.site, number.is_sure), (SiteNumber(1), true));
        assert_eq!(Kept::of(number, &["blog", "my shop"]), Some(kept()));
        let unknown = kept().assignment(&["blog"]);
        assert!(!unknown.is_sure);
        assert_eq!(unknown.generation, Count24::new(5));
    }
}
