//! Files for their owner alone: keys, tokens, and what is kept. The one place that checks which others can read them.
//!
//! A secret that any local user can read is none, so such a file is refused, with what to do about it.
//! Mode and owner are those of the file that was opened, not of a name that may since mean another file.

use std::fs::{File, OpenOptions};
use std::io;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags, fstat, readlinkat};

/// Permission bits of the group and of all others.
const OTHERS: u32 = 0o077;
/// What root's own group may have: the service manager hands secrets to services as 0440, owned by root.
const ROOT_GROUP_READS: u32 = 0o040;

/// Reads a secret of at most `most` bytes. The error says what is wrong without the path.
pub(crate) fn read(path: &Path, most: usize) -> Result<String, String> {
    let own = rustix::process::geteuid().as_raw();
    let bytes = contents(open(path, own)?, own, most)?;
    String::from_utf8(bytes).map_err(|_| "it is not text".into())
}

/// Reads a file that this process or root has written for its owner alone, and follows no link; none if there is no
/// such file.
pub(crate) fn read_kept(path: &Path, most: usize) -> Result<Option<Vec<u8>>, String> {
    let own = rustix::process::geteuid().as_raw();
    match open_file(path) {
        Ok(file) => contents(file, own, most).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if is_link(&error) => Err("it is a link".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether the system lets this process open a file no more, or never did.
pub(crate) fn is_denied(path: &Path) -> bool {
    let error = File::open(path).err();
    error.is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// What is in a file of at most `most` bytes that only the user `own` and root can read or write.
fn contents(mut file: File, own: u32, most: usize) -> Result<Vec<u8>, String> {
    let about = file.metadata().map_err(|error| error.to_string())?;
    if !about.is_file() {
        return Err("it is not a regular file".into());
    }
    exposed(about.mode(), about.uid(), about.gid(), own).map_or(Ok(()), Err)?;
    let mut bytes = Vec::new();
    let limited = file.by_ref().take(most as u64 + 1).read_to_end(&mut bytes);
    limited.map_err(|error| error.to_string())?;
    if bytes.len() > most {
        return Err(format!("it is larger than {most} bytes"));
    }
    Ok(bytes)
}

/// Opens a file, or the one that a link names, if root or this user has laid the link: another user's could lead to
/// a file that is not theirs.
fn open(path: &Path, own: u32) -> Result<File, String> {
    let said = |error: io::Error| error.to_string();
    match open_file(path) {
        Err(error) if is_link(&error) => {}
        opened => return opened.map_err(said),
    }
    // Owner and target of one link, whatever stands under its name by now.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let link = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| said(error.into()))?;
    let owner = fstat(&link).map_err(|error| said(error.into()))?.st_uid;
    if owner != 0 && owner != own {
        return Err(format!("it is a link of user {owner}"));
    }
    let target = readlinkat(&link, "", Vec::new()).map_err(|error| said(error.into()))?;
    let target = Path::new(std::ffi::OsStr::from_bytes(target.as_bytes()));
    let folder = path.parent().unwrap_or(Path::new(""));
    open_file(&folder.join(target)).map_err(said)
}

/// Opens a file and no link; a pipe without a writer does not hold us up.
fn open_file(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Whether it was a link that was not followed.
pub(crate) fn is_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

/// Why a file with this mode, owner and group is no place for a secret of the user `own`, if it is none.
fn exposed(mode: u32, owner: u32, group: u32, own: u32) -> Option<String> {
    let allowed = if group == 0 && owner == 0 {
        ROOT_GROUP_READS
    } else {
        0
    };
    if mode & OTHERS & !allowed != 0 {
        let mode = mode & 0o7777;
        return Some(format!(
            "others have access to it (mode {mode:04o}): chmod 0600"
        ));
    }
    if owner != 0 && owner != own {
        return Some(format!(
            "it belongs to user {owner}, who is neither root nor the user of this process: chown"
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let name = format!("tidegate-secret-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_secret_that_others_can_read_or_write_is_refused() {
        let folder = scratch("modes");
        let file = folder.join("secret");
        std::fs::write(&file, "0123456789abcdef").unwrap();
        for mode in [0o644, 0o640, 0o604, 0o660, 0o602, 0o610, 0o601, 0o620] {
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            let allowed = mode == 0o640 && rustix::process::geteuid().is_root();
            let found = read(&file, 64);
            assert_eq!(found.is_ok(), allowed, "{mode:o}: {found:?}");
            if let Err(why) = found {
                assert!(why.contains("chmod 0600"), "{why}");
                assert!(!why.contains("0123"), "{why}");
            }
        }
        for mode in [0o600, 0o400, 0o700] {
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(read(&file, 64).unwrap(), "0123456789abcdef", "{mode:o}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_link_to_a_secret_is_roots_or_our_own() {
        let folder = scratch("links");
        let (file, link) = (folder.join("secret"), folder.join("link"));
        std::fs::write(&file, "0123456789abcdef").unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink("secret", &link).unwrap();
        assert_eq!(read(&link, 64).unwrap(), "0123456789abcdef");
        // A link to a link is one too many.
        let second = folder.join("second");
        std::os::unix::fs::symlink("link", &second).unwrap();
        assert!(read(&second, 64).is_err());
        let own = rustix::process::geteuid().as_raw();
        let stranger = own.wrapping_add(1);
        assert!(open(&link, own).is_ok());
        let refused = open(&link, stranger);
        if own == 0 {
            // Root's links hold for all.
            assert!(refused.is_ok());
            std::os::unix::fs::lchown(&link, Some(stranger), None).unwrap();
            let why = read(&link, 64).unwrap_err();
            assert!(why.contains("a link of user 1"), "{why}");
        } else {
            assert!(refused.unwrap_err().contains("a link of user"));
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_secret_is_roots_or_our_own() {
        assert_eq!(exposed(0o100_600, 0, 0, 1000), None);
        assert_eq!(exposed(0o100_600, 1000, 1000, 1000), None);
        assert!(exposed(0o100_600, 1001, 1000, 1000).is_some());
        assert!(exposed(0o100_600, 1001, 0, 0).is_some());
        // As the service manager hands it over; but no other group, and not to write.
        assert_eq!(exposed(0o100_440, 0, 0, 1000), None);
        assert!(exposed(0o100_440, 0, 5, 1000).is_some());
        assert!(exposed(0o100_440, 1000, 0, 1000).is_some());
        assert!(exposed(0o100_460, 0, 0, 1000).is_some());
        assert!(exposed(0o100_444, 0, 0, 1000).is_some());
    }

    #[test]
    fn a_secret_has_a_length_and_is_text_in_a_regular_file() {
        let folder = scratch("kinds");
        let file = folder.join("secret");
        let write = |bytes: &[u8]| {
            std::fs::write(&file, bytes).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        };
        write(&[b'a'; 64]);
        assert_eq!(read(&file, 64).map(|text| text.len()), Ok(64));
        write(&[b'a'; 65]);
        assert!(read(&file, 64).unwrap_err().contains("64 bytes"));
        write(&[0xff; 16]);
        assert!(read(&file, 64).unwrap_err().contains("text"));
        assert!(read(&folder, 64).unwrap_err().contains("regular file"));
        assert!(read(Path::new("/dev/zero"), 64).is_err());
        assert!(read(&folder.join("absent"), 64).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
