//! The file of the access log, opened so that lines, whose text clients choose, end nowhere but there.
//!
//! Where other users can write to its folder, anything may come to have the log's name at any time, before the start or
//! between a rotation and SIGUSR1:
//!
//! | found | what is done |
//! |---|---|
//! | a link, there or in the folders before | followed if root or our user has laid it, in a folder of theirs that no other can write to |
//! | a file of another user | refused |
//! | a file with a second name (a hard link), of another user or where others can write to the folder | refused |
//! | a pipe, a socket, a disk, a folder | refused, and not waited for |
//! | a terminal, `/dev/null` | written to |
//! | a link of `/proc`, as `/dev/stdout` leads to one | followed: what it names is open in this process already |
//!
//! Each step is taken from the folder that the one before has opened, so what was looked at is what is opened.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use rustix::fs::{
    CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fcntl_getfl, fcntl_setfl, fstat, fstatfs,
    openat, readlinkat,
};
use rustix::io::Errno;

/// Links on the way, as many as the kernel follows.
const LINKS_MAX: usize = 40;
/// Permission bits with which others can put files into a folder and take them away.
const OTHERS_WRITE: u32 = 0o022;
/// Mode of a new log, less what the umask takes.
const MODE: Mode = Mode::from_raw_mode(0o666);
/// To write at the end, of a new file if there is none, and to wait for nothing.
const APPEND: OFlags = OFlags::WRONLY
    .union(OFlags::APPEND)
    .union(OFlags::CREATE)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

/// Opens it to append to it.
///
/// # Errors
/// It cannot be opened, or is refused; what to do about that is in the text.
pub(super) fn append(path: &Path) -> io::Result<File> {
    let own = rustix::process::geteuid().as_raw();
    let log = find(path, own, APPEND).map_err(|error| with_path(path, &error))?;
    // Opening was not to wait; writing is.
    let flags = fcntl_getfl(&log)? - OFlags::NONBLOCK;
    fcntl_setfl(&log, flags)?;
    Ok(File::from(log))
}

/// Whether the user of this number could log to this file, as far as that can be said without making it.
///
/// # Errors
/// As when it is opened.
pub fn check_log_file(path: &Path, user: u32) -> io::Result<()> {
    match find(path, user, OFlags::PATH) {
        Ok(_) => Ok(()),
        // It is made at the start, if its folder is there.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
            let found = std::fs::metadata(folder.unwrap_or(Path::new(".")));
            found.map(drop).map_err(|error| with_path(path, &error))
        }
        Err(error) => Err(with_path(path, &error)),
    }
}

fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Goes along a path, and opens what is at its end with these flags.
fn find(path: &Path, own: u32, flags: OFlags) -> io::Result<OwnedFd> {
    let mut folder = begin(path)?;
    let mut rest = parts(path);
    let mut links = 0;
    while let Some(name) = rest.pop() {
        let is_last = rest.is_empty();
        let step = Step {
            folder: folder.as_fd(),
            name: &name,
            own,
            in_proc: fstatfs(&folder)?.f_type == PROC_SUPER_MAGIC,
        };
        let (opened, about) = step.open(if is_last { flags } else { OFlags::PATH })?;
        if FileType::from_raw_mode(about.st_mode) != FileType::Symlink {
            if !is_last {
                folder = opened;
                continue;
            }
            if !step.in_proc {
                step.check_end(&about)?;
            }
            return Ok(opened);
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        let target = step.target(&opened, &about)?;
        let target = Path::new(OsStr::from_bytes(&target));
        if target.has_root() {
            folder = begin(target)?;
        }
        rest.extend(parts(target));
    }
    Err(Errno::ISDIR.into())
}

/// The folder that a path begins at.
fn begin(path: &Path) -> io::Result<OwnedFd> {
    let start = if path.has_root() { "/" } else { "." };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, start, flags, Mode::empty())?)
}

/// The names in a path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|part| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.collect()
}

/// A name in a folder.
struct Step<'a> {
    folder: BorrowedFd<'a>,
    name: &'a OsStr,
    own: u32,
    /// The folder is one of `/proc`.
    in_proc: bool,
}

impl Step<'_> {
    /// Opens what has the name: the link, if it is one, but for those of `/proc`.
    fn open(&self, flags: OFlags) -> io::Result<(OwnedFd, Stat)> {
        let follow = match self.in_proc {
            true => OFlags::empty(),
            false => OFlags::NOFOLLOW,
        };
        let open = |flags| {
            openat(
                self.folder,
                self.name,
                flags | follow | OFlags::CLOEXEC,
                MODE,
            )
        };
        match open(flags) {
            Ok(opened) => {
                let about = fstat(&opened)?;
                Ok((opened, about))
            }
            // A link, or nothing that can be written to: a pipe that is not read, a socket.
            Err(error @ (Errno::LOOP | Errno::NXIO)) => {
                let opened = open(OFlags::PATH)?;
                let about = fstat(&opened)?;
                if FileType::from_raw_mode(about.st_mode) == FileType::Symlink {
                    return Ok((opened, about));
                }
                Err((self.check_end(&about).err()).unwrap_or_else(|| error.into()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether it is what a log may be.
    fn check_end(&self, about: &Stat) -> io::Result<()> {
        let kind = match FileType::from_raw_mode(about.st_mode) {
            FileType::CharacterDevice => return Ok(()),
            FileType::RegularFile => return self.check_file(about),
            FileType::Fifo => "a pipe",
            FileType::Socket => "a socket",
            FileType::Directory => "a folder",
            FileType::Symlink | FileType::BlockDevice | FileType::Unknown => "something else",
        };
        Err(io::Error::other(format!(
            "it is {kind}, and not a regular file; remove it, or name another file"
        )))
    }

    fn check_file(&self, about: &Stat) -> io::Result<()> {
        let owner = about.st_uid;
        if !self.trusts(owner) {
            return Err(io::Error::other(format!(
                "it belongs to user {owner}, who is neither root nor the user of this process: chown"
            )));
        }
        if about.st_nlink > 1 && (owner != self.own || !self.folder_is_closed()?) {
            return Err(io::Error::other(format!(
                "the file has {} names (hard links), which others may have given it; move it away",
                about.st_nlink
            )));
        }
        Ok(())
    }

    /// Where a link leads, if it is not one that another user may have planted.
    fn target(&self, link: &OwnedFd, about: &Stat) -> io::Result<Vec<u8>> {
        let target = readlinkat(link, "", Vec::new())?.into_bytes();
        let owner = about.st_uid;
        let why = match (self.trusts(owner), self.folder_is_closed()?) {
            (true, true) => return Ok(target),
            (false, _) => format!("of user {owner}"),
            (true, false) => "in a folder that others can write to".into(),
        };
        let name = Path::new(self.name).display();
        let target = Path::new(OsStr::from_bytes(&target)).display();
        Err(io::Error::other(format!(
            "`{name}` is a link {why}, which is not followed; if it is meant, name its target: {target}"
        )))
    }

    /// Whether none but root and our user can change what is in the folder.
    fn folder_is_closed(&self) -> io::Result<bool> {
        let folder = fstat(self.folder)?;
        Ok(self.trusts(folder.st_uid) && folder.st_mode & OTHERS_WRITE == 0)
    }

    fn trusts(&self, user: u32) -> bool {
        user == 0 || user == self.own
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt, lchown, symlink};
    use std::path::PathBuf;

    use super::*;

    /// Some other user.
    const OTHER: u32 = 65_534;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("tidegate-log-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&folder).unwrap();
            let folder = Self(folder.canonicalize().unwrap());
            set_mode(&folder.0, 0o755);
            std::fs::write(folder.victim(), "precious").unwrap();
            folder
        }

        fn log(&self) -> PathBuf {
            self.0.join("access.log")
        }

        fn victim(&self) -> PathBuf {
            self.0.join("victim")
        }

        /// What both say of the log, and that nothing was written elsewhere.
        fn refused(&self) -> String {
            let own = rustix::process::geteuid().as_raw();
            let why = append(&self.log()).unwrap_err().to_string();
            let checked = check_log_file(&self.log(), own).unwrap_err();
            assert_eq!(checked.to_string(), why);
            assert!(why.contains("access.log: "), "{why}");
            assert_eq!(std::fs::read(self.victim()).unwrap(), b"precious");
            why
        }

        fn written(&self) {
            let own = rustix::process::geteuid().as_raw();
            check_log_file(&self.log(), own).unwrap();
            append(&self.log()).unwrap().write_all(b"line\n").unwrap();
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_log_is_made_and_appended_to() {
        let folder = Folder::new("made");
        let own = rustix::process::geteuid().as_raw();
        check_log_file(&folder.log(), own).unwrap();
        assert!(!folder.log().exists(), "a check makes none");
        for lines in ["line\n", "line\nline\n"] {
            folder.written();
            assert_eq!(std::fs::read_to_string(folder.log()).unwrap(), lines);
        }
        let absent = folder.0.join("absent/access.log");
        for error in [
            append(&absent).unwrap_err(),
            check_log_file(&absent, own).unwrap_err(),
        ] {
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
        }
    }

    #[test]
    fn a_log_is_not_written_through_a_link_that_was_planted() {
        let folder = Folder::new("links");
        symlink("victim", folder.log()).unwrap();
        // Any user that can write to the folder may have laid it.
        for mode in [0o777, 0o775, 0o1777] {
            set_mode(&folder.0, mode);
            let why = folder.refused();
            assert!(why.contains("name its target: victim"), "{why}");
        }
        set_mode(&folder.0, 0o755);
        if rustix::process::geteuid().is_root() {
            lchown(folder.log(), Some(OTHER), None).unwrap();
            let why = folder.refused();
            assert!(why.contains("is a link of user 65534"), "{why}");
            lchown(folder.log(), Some(0), None).unwrap();
            std::os::unix::fs::chown(&folder.0, Some(OTHER), None).unwrap();
            let why = folder.refused();
            assert!(why.contains("a folder that others can write to"), "{why}");
        }
    }

    #[test]
    fn a_folder_on_the_way_may_not_be_such_a_link_either() {
        let folder = Folder::new("way");
        std::fs::create_dir(folder.0.join("open")).unwrap();
        std::fs::create_dir(folder.0.join("precious")).unwrap();
        set_mode(&folder.0.join("open"), 0o777);
        symlink("../precious", folder.0.join("open/log")).unwrap();
        let path = folder.0.join("open/log/access.log");
        let why = append(&path).unwrap_err().to_string();
        assert!(why.contains("`log` is a link in a folder"), "{why}");
        assert!(!folder.0.join("precious/access.log").exists());
    }

    #[test]
    fn a_link_of_an_operator_is_followed() {
        let folder = Folder::new("operator");
        let logs = folder.0.join("logs");
        std::fs::create_dir(&logs).unwrap();
        set_mode(&logs, 0o755);
        symlink("logs/current", folder.log()).unwrap();
        symlink(logs.join("first"), logs.join("current")).unwrap();
        folder.written();
        let text = std::fs::read_to_string(logs.join("first")).unwrap();
        assert_eq!(text, "line\n");
        // Not in a circle.
        symlink("second", logs.join("third")).unwrap();
        symlink("third", logs.join("second")).unwrap();
        assert!(append(&logs.join("third")).is_err());
    }

    #[test]
    fn a_file_of_another_user_or_of_another_name_is_no_log() {
        let folder = Folder::new("owners");
        std::fs::hard_link(folder.victim(), folder.log()).unwrap();
        set_mode(&folder.0, 0o777);
        let why = folder.refused();
        assert!(why.contains("2 names (hard links)"), "{why}");
        // It is ours, and so is the folder.
        set_mode(&folder.0, 0o755);
        append(&folder.log()).unwrap();
        if rustix::process::geteuid().is_root() {
            std::fs::remove_file(folder.log()).unwrap();
            std::fs::write(folder.log(), "").unwrap();
            std::os::unix::fs::chown(folder.log(), Some(OTHER), None).unwrap();
            let why = folder.refused();
            assert!(why.contains("belongs to user 65534"), "{why}");
            // Root's is one that any other user may have been given to write to.
            std::os::unix::fs::chown(folder.log(), Some(0), None).unwrap();
            check_log_file(&folder.log(), OTHER).unwrap();
            std::fs::hard_link(folder.log(), folder.0.join("second")).unwrap();
            assert!(check_log_file(&folder.log(), OTHER).is_err());
        }
    }

    #[test]
    fn a_pipe_or_a_socket_is_no_log_and_does_not_hold_us_up() {
        let folder = Folder::new("kinds");
        let kinds = [(FileType::Fifo, "a pipe"), (FileType::Socket, "a socket")];
        for (kind, name) in kinds {
            rustix::fs::mknodat(CWD, folder.log(), kind, Mode::from_raw_mode(0o666), 0).unwrap();
            let why = folder.refused();
            assert!(why.contains(&format!("it is {name}, ")), "{why}");
            if kind == FileType::Fifo {
                // One that is read opens at once, and is none either.
                let read = File::options().read(true).write(true).open(folder.log());
                let _reader = read.unwrap();
                let why = folder.refused();
                assert!(why.contains("it is a pipe, "), "{why}");
            }
            std::fs::remove_file(folder.log()).unwrap();
        }
        std::fs::create_dir(folder.log()).unwrap();
        assert!(append(&folder.log()).is_err());
    }

    #[test]
    fn devices_and_what_this_process_has_open_are_written_to() {
        append(Path::new("/dev/null")).unwrap();
        let folder = Folder::new("open");
        let file = File::create(folder.0.join("open")).unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        symlink(format!("/proc/self/fd/{fd}"), folder.log()).unwrap();
        folder.written();
        assert_eq!(file.metadata().unwrap().len(), 5);
        // A pipe waits for its reader again once it is open.
        let (_reader, pipe) = io::pipe().unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&pipe);
        let log = append(Path::new(&format!("/proc/self/fd/{fd}"))).unwrap();
        assert!(!fcntl_getfl(&log).unwrap().contains(OFlags::NONBLOCK));
        assert!(log.metadata().unwrap().nlink() > 0);
    }
}
