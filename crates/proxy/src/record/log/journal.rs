//! systemd's journal by its own protocol (SYSTEMD-JOURNAL): an entry is a datagram of fields.
//!
//! ```text
//! NAME=value\n                                      a value of one line
//! NAME\n  length, 8 bytes, little-endian  value \n  any other
//! ```
//!
//! An entry that no datagram is large enough for is put into a file in memory that cannot be changed any more, and the
//! datagram carries its descriptor alone. Failure case: a journal that stands still. Its queue and the socket's buffer are
//! bounded; then an entry waits as long as [`Journal::open`] says, and is refused.

use std::fs::File;
use std::io::{self, IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, sendmsg_addr,
};

/// Longest name of a field; the journal drops an entry's fields with longer ones.
const NAME_MAX: usize = 64;

/// How much an entry matters (`syslog(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Something does not work.
    Error = 3,
    /// Something may soon not work, or not as well.
    Warning = 4,
    /// As it should be.
    Info = 6,
}

/// An entry of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry(Vec<u8>);

impl Entry {
    /// Of the program or part of it that is given.
    pub fn new(identifier: &str, priority: Priority, message: &str) -> Self {
        let mut entry = Self(Vec::with_capacity(message.len() + 128));
        entry.put("MESSAGE", message.as_bytes());
        entry.put("PRIORITY", (priority as u8).to_string().as_bytes());
        entry.put("SYSLOG_IDENTIFIER", identifier.as_bytes());
        entry
    }

    /// One more field: `TIDEGATE_` and its name in capitals, anything but letters and digits as `_`.
    pub fn field(&mut self, name: &str, value: &str) {
        let letter = |byte: u8| match byte.is_ascii_alphanumeric() {
            true => char::from(byte.to_ascii_uppercase()),
            false => '_',
        };
        let name = "TIDEGATE_".chars().chain(name.bytes().map(letter));
        let name: String = name.take(NAME_MAX).collect();
        self.put(&name, value.as_bytes());
    }

    fn put(&mut self, name: &str, value: &[u8]) {
        let Self(bytes) = self;
        bytes.extend_from_slice(name.as_bytes());
        if value.contains(&b'\n') {
            bytes.push(b'\n');
            bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
        } else {
            bytes.push(b'=');
        }
        bytes.extend_from_slice(value);
        bytes.push(b'\n');
    }
}

/// A way into the journal.
#[derive(Debug)]
pub struct Journal {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Journal {
    /// The journal whose socket this is. An entry waits so long for it, if it must.
    ///
    /// # Errors
    /// There is none.
    pub fn open(path: &Path, patience: Duration) -> io::Result<Self> {
        Self::check(path)?;
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(patience))?;
        let path = path.to_owned();
        Ok(Self { socket, path })
    }

    /// Whether this is the socket of a journal, as far as can be seen.
    ///
    /// # Errors
    /// It is not.
    pub fn check(path: &Path) -> io::Result<()> {
        let with_path = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let found = std::fs::metadata(path);
        let found = found.map_err(|why| io::Error::new(why.kind(), with_path(&why)))?;
        match found.file_type().is_socket() {
            true => Ok(()),
            false => Err(io::Error::other(with_path(&"this is no socket"))),
        }
    }

    /// Hands an entry over.
    ///
    /// # Errors
    /// The journal is not there, or has not taken it in time.
    pub fn send(&self, Entry(bytes): &Entry) -> io::Result<()> {
        // By its path each time: a journal that is started anew is another one.
        match self.socket.send_to(bytes, &self.path) {
            Err(why) if is_too_large(&why) => self.send_in_file(bytes),
            sent => sent.map(drop),
        }
    }

    #[cold]
    fn send_in_file(&self, bytes: &[u8]) -> io::Result<()> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut file = File::from(memfd_create("tidegate-journal", flags)?);
        file.write_all(bytes)?;
        let sealed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
        fcntl_add_seals(&file, sealed)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = [file.as_fd()];
        if !control.push(SendAncillaryMessage::ScmRights(&files)) {
            return Err(io::Error::other("no room for a descriptor"));
        }
        let to = SocketAddrUnix::new(&self.path)?;
        let nothing = [IoSlice::new(&[])];
        let flags = SendFlags::NOSIGNAL;
        sendmsg_addr(&self.socket, &to, &nothing, &mut control, flags)?;
        Ok(())
    }
}

fn is_too_large(why: &io::Error) -> bool {
    let errno = Errno::from_io_error(why);
    matches!(errno, Some(Errno::MSGSIZE | Errno::NOBUFS))
}

#[cfg(test)]
mod tests {
    use std::io::{IoSliceMut, Read as _, Seek as _};

    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

    use super::*;

    /// A socket that stands for the journal's.
    fn journal(name: &str) -> (UnixDatagram, PathBuf) {
        let path = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        std::fs::remove_file(&path).ok();
        (UnixDatagram::bind(&path).unwrap(), path)
    }

    fn open(path: &Path) -> Journal {
        Journal::open(path, Duration::from_millis(20)).unwrap()
    }

    #[test]
    fn an_entry_is_lines_and_what_is_more_than_a_line_has_its_length() {
        let mut entry = Entry::new("tidegate", Priority::Warning, "one\ntwo");
        entry.field("http.status-code", "502");
        entry.field("empty", "");
        entry.field(&"x".repeat(99), "long");
        let mut wanted =
            b"MESSAGE\n\x07\0\0\0\0\0\0\0one\ntwo\nPRIORITY=4\nSYSLOG_IDENTIFIER=tidegate\n\
                           TIDEGATE_HTTP_STATUS_CODE=502\nTIDEGATE_EMPTY=\n"
                .to_vec();
        wanted.extend_from_slice(format!("TIDEGATE_{}=long\n", "X".repeat(55)).as_bytes());
        assert_eq!(entry.0, wanted);
    }

    #[test]
    fn an_entry_that_is_too_large_for_a_datagram_comes_as_a_file() {
        let (taken, path) = journal("journal-large");
        let journal = open(&path);
        let message = "m".repeat(8 << 20);
        let entry = Entry::new("tidegate", Priority::Info, &message);
        journal.send(&entry).unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; 16];
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(&taken, &mut parts, &mut control, flags).unwrap();
        assert_eq!(received.bytes, 0);
        let message = control.drain().next().unwrap();
        let RecvAncillaryMessage::ScmRights(mut files) = message else {
            panic!("a descriptor is expected");
        };
        let mut file = File::from(files.next().unwrap());
        file.rewind().unwrap();
        let mut found = Vec::new();
        file.read_to_end(&mut found).unwrap();
        assert!(found == entry.0);
        assert!(
            file.write_all(b"more").is_err(),
            "it can be changed no more"
        );
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_journal_that_stands_still_refuses_in_the_end() {
        let (taken, path) = journal("journal-still");
        let journal = open(&path);
        let entry = Entry::new("tidegate", Priority::Info, "m");
        let (sent, why) = (0..)
            .find_map(|sent| Some((sent, journal.send(&entry).err()?)))
            .unwrap();
        assert_eq!(why.kind(), io::ErrorKind::WouldBlock);
        assert!(sent > 0);
        let mut bytes = [0; 4096];
        for _ in 0..sent {
            let length = taken.recv(&mut bytes).unwrap();
            assert_eq!(bytes[..length], entry.0);
        }
        journal.send(&entry).unwrap();
        drop(taken);
        assert!(journal.send(&entry).is_err(), "it is gone");
        // Another one, by the same name.
        std::fs::remove_file(&path).unwrap();
        let taken = UnixDatagram::bind(&path).unwrap();
        journal.send(&entry).unwrap();
        assert_eq!(taken.recv(&mut bytes).unwrap(), entry.0.len());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_is_no_journal() {
        let why = |path: &str| Journal::check(Path::new(path)).unwrap_err();
        let absent = why("/nowhere/socket");
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
        assert!(
            absent.to_string().starts_with("/nowhere/socket: "),
            "{absent}"
        );
        assert!(why("/dev/null").to_string().ends_with("no socket"));
    }
}
