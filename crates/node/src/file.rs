//! A kernel file that is opened once and read again and again.

use std::fmt::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tidegate_core::time::Timestamp;

/// Bytes that the shared buffer begins with: more than any file of a small machine.
const BUFFER_BYTES: usize = 16 << 10;
/// Bytes that it may grow to; a longer file is not read.
const BUFFER_BYTES_MAX: usize = 4 << 20;
/// How long a file that could not be read is left alone.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// Where files are read into. One for all files of a sampler.
#[derive(Debug)]
pub(crate) struct Buffer(Vec<u8>);

impl Buffer {
    pub(crate) fn new() -> Self {
        Self(vec![0; BUFFER_BYTES])
    }

    /// The whole of it, for other calls that fill a buffer.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// How the kernel hands a file out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// In one piece, if the buffer can hold it.
    Whole,
    /// Record by record: a read may end early, and only an empty one is the end.
    Records,
}

/// The file.
#[derive(Debug)]
pub(crate) struct KernelFile {
    path: PathBuf,
    shape: Shape,
    file: Option<OwnedFd>,
    retry_at: Timestamp,
    error: Option<Errno>,
}

impl KernelFile {
    /// A file that is opened at the first read.
    pub(crate) fn new(path: PathBuf, shape: Shape) -> Self {
        Self {
            path,
            shape,
            file: None,
            retry_at: Timestamp::ZERO,
            error: None,
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Lets go of the open file: the next read opens it anew.
    pub(crate) fn close(&mut self) {
        self.file = None;
    }

    /// What it holds now; nothing if it cannot be read, see [`KernelFile::why_not`]. A failed
    /// file is opened again after [`RETRY`]: controllers and processes come and go.
    pub(crate) fn read<'b>(&mut self, now: Timestamp, buffer: &'b mut Buffer) -> Option<&'b [u8]> {
        if self.file.is_none() && now < self.retry_at {
            return None;
        }
        match self.fill(buffer) {
            Ok(length) => {
                self.error = None;
                Some(&buffer.0[..length])
            }
            Err(error) => {
                self.file = None;
                self.error = Some(error);
                self.retry_at = now + RETRY;
                None
            }
        }
    }

    fn fill(&mut self, buffer: &mut Buffer) -> Result<usize, Errno> {
        let file = match &self.file {
            Some(file) => file,
            None => {
                let file = rustix::fs::open(
                    &self.path,
                    OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK,
                    Mode::empty(),
                )?;
                self.file.insert(file)
            }
        };
        let mut length = 0;
        loop {
            if length == buffer.0.len() {
                if length >= BUFFER_BYTES_MAX {
                    return Err(Errno::FBIG);
                }
                buffer.0.resize(length * 2, 0);
                // A file in one piece is made anew for the larger buffer.
                if self.shape == Shape::Whole {
                    length = 0;
                }
            }
            let space = &mut buffer.0[length..];
            let read = match rustix::io::pread(file, &mut *space, length as u64) {
                Err(Errno::INTR) => continue,
                read => read?,
            };
            let filled = read == space.len();
            length += read;
            if read == 0 || (self.shape == Shape::Whole && !filled) {
                return Ok(length);
            }
        }
    }

    /// Why it could not be read, as part of a sentence.
    pub(crate) fn why_not(&self) -> String {
        let mut why = self.path.display().to_string();
        let what = match self.error {
            None => " does not say what it should".to_owned(),
            Some(error) => format!(": {error}"),
        };
        // Writing to a String cannot fail.
        why.write_str(&what).unwrap_or_default();
        why
    }
}

/// Reads a file once, for what is looked at rarely.
pub(crate) fn read_once(path: PathBuf, shape: Shape, buffer: &mut Buffer) -> Option<&[u8]> {
    KernelFile::new(path, shape).read(Timestamp::ZERO, buffer)
}

/// `path` under `root`: absolute paths stay inside.
pub(crate) fn under(root: &Path, path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    root.join(path.strip_prefix("/").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_files_are_read_again_and_again() {
        let mut buffer = Buffer::new();
        let mut file = KernelFile::new("/proc/self/stat".into(), Shape::Whole);
        for ms in 1..4 {
            let bytes = file.read(Timestamp::from_millis(ms), &mut buffer).unwrap();
            assert!(bytes.ends_with(b"\n"));
        }
    }

    #[test]
    fn a_file_longer_than_the_buffer_makes_it_grow() {
        let text = vec![b'x'; 3 * BUFFER_BYTES + 1];
        let path = std::env::temp_dir().join(format!("tidegate-file-{}", std::process::id()));
        std::fs::write(&path, &text).unwrap();
        for shape in [Shape::Whole, Shape::Records] {
            let mut buffer = Buffer::new();
            let mut file = KernelFile::new(path.clone(), shape);
            let read = file.read(Timestamp::ZERO, &mut buffer).unwrap();
            assert_eq!(read.len(), text.len(), "{shape:?}");
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_missing_file_is_tried_again_later() {
        let path = std::env::temp_dir().join(format!("tidegate-late-{}", std::process::id()));
        let mut buffer = Buffer::new();
        let mut file = KernelFile::new(path.clone(), Shape::Whole);
        assert!(file.read(Timestamp::from_millis(1), &mut buffer).is_none());
        assert!(file.why_not().contains("tidegate-late"));
        std::fs::write(&path, "1").unwrap();
        let early = Timestamp::from_millis(2);
        assert!(file.read(early, &mut buffer).is_none());
        let late = Timestamp::from_millis(1002);
        assert_eq!(file.read(late, &mut buffer), Some(&b"1"[..]));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn absolute_paths_stay_under_the_root() {
        assert_eq!(under(Path::new("/"), "proc/stat"), Path::new("/proc/stat"));
        assert_eq!(
            under(Path::new("/r"), "/proc/stat"),
            Path::new("/r/proc/stat")
        );
    }
}
