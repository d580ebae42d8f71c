//! Files that are replaced as a whole: a reader sees the old or the new one, also after a
//! crash of the process, and of private ones after a crash of the machine.
//!
//! In a folder that others write to, a link under the name of the next file would have us write to what it names.
//! So that file is always new, and nothing is written through a link.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// Mode of a file that was not there before, less what the umask takes.
const MODE_NEW: u32 = 0o666;
/// Mode of a file for its owner alone.
const MODE_PRIVATE: u32 = 0o600;

/// Writes a file beside the one that it then replaces, with its permissions. What is no file, like a pipe, is
/// written to.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if std::fs::metadata(path).is_ok_and(|known| !known.is_file()) {
        return write_to(path, bytes);
    }
    let mode = match std::fs::symlink_metadata(path) {
        Ok(known) if known.is_file() => Some(known.permissions().mode() & 0o777),
        Ok(_) | Err(_) => None,
    };
    exchange(path, |next| fill(next, mode, bytes).map(drop))
}

/// The same for its owner alone, on the disk when this returns. Only a file or a link is replaced; anything else stays
/// and is an error.
pub(crate) fn replace_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(known) if known.is_file() || known.is_symlink() => {}
        Ok(_) => return Err(io::Error::other("something that is no file has its name")),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    exchange(path, |next| {
        fill(next, Some(MODE_PRIVATE), bytes)?.sync_all()
    })?;
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Has a file made beside another, which it then replaces.
fn exchange(path: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let next = path.with_extension("next");
    let written = make(&next).and_then(|()| std::fs::rename(&next, path));
    if written.is_err() {
        // Why it could not be written is what matters.
        std::fs::remove_file(&next).ok();
    }
    written
}

/// A new file, with this mode whatever the umask takes, or the usual one.
fn fill(next: &Path, mode: Option<u32>, bytes: &[u8]) -> io::Result<File> {
    match std::fs::remove_file(next) {
        // One that a crash has left, or a link.
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .mode(mode.unwrap_or(MODE_NEW))
        .open(next)?;
    if let Some(mode) = mode {
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    file.write_all(bytes)?;
    Ok(file)
}

/// Writes to a pipe or a device; never to a file that has just taken its place.
fn write_to(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).open(path)?;
    if file.metadata()?.is_file() {
        return Err(io::Error::other("it became a file while it was opened"));
    }
    file.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let name = format!("tidegate-replace-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn files_are_replaced_and_others_written_to() {
        let folder = scratch("kinds");
        let file = folder.join("page.html");
        replace(&file, b"one").unwrap();
        replace(&file, b"two").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        replace(Path::new("/dev/null"), b"three").unwrap();
        assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
        assert!(replace(&folder.join("absent/page.html"), b"four").is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn nothing_is_written_through_a_link_that_was_planted() {
        let folder = scratch("links");
        let (victim, file) = (folder.join("victim"), folder.join("page.html"));
        std::fs::write(&victim, "precious").unwrap();
        // Under the name of the next file, and under its own.
        symlink(&victim, folder.join("page.next")).unwrap();
        symlink(&victim, &file).unwrap();
        replace(&file, b"new").unwrap();
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
        assert!(std::fs::symlink_metadata(&file).unwrap().is_file());
        // What was left of a crash is no hindrance.
        std::fs::write(folder.join("page.next"), "half").unwrap();
        replace(&file, b"newer").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"newer");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_that_others_cannot_read_stays_so() {
        let folder = scratch("modes");
        let file = folder.join("overrides.json");
        replace(&file, b"one").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        replace(&file, b"two").unwrap();
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_private_file_is_its_owners_alone_whatever_was_there() {
        let folder = scratch("private");
        let (file, victim) = (folder.join("learned"), folder.join("victim"));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        replace_private(&file, b"one").unwrap();
        assert_eq!(mode(&file), 0o600);
        std::fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        replace_private(&file, b"two").unwrap();
        assert_eq!(mode(&file), 0o600);
        // Neither link leads to the victim.
        std::fs::write(&victim, "precious").unwrap();
        std::fs::remove_file(&file).unwrap();
        symlink(&victim, &file).unwrap();
        symlink(&victim, folder.join("learned.next")).unwrap();
        replace_private(&file, b"three").unwrap();
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
        assert_eq!(std::fs::read(&file).unwrap(), b"three");
        assert!(std::fs::symlink_metadata(&file).unwrap().is_file());
        // What is no file stays.
        std::fs::create_dir(folder.join("folder")).unwrap();
        assert!(replace_private(&folder.join("folder"), b"four").is_err());
        assert!(replace_private(Path::new("/dev/null"), b"five").is_err());
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 3);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
