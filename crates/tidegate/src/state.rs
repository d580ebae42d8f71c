//! What a front-end keeps over a restart: files for its owner alone in one folder, which only one process writes to
//! at a time.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::replace::replace_private;
use crate::secret_file;

/// Where systemd says that a service may keep files: folders with colons between them (`StateDirectory=`).
pub(crate) const SERVICE_MANAGER: &str = "STATE_DIRECTORY";

/// The folder: the one of the configuration, relative to the configuration's own, or the first of the service
/// manager's.
pub(crate) fn folder(
    configured: Option<&Path>,
    relative_to: &Path,
    service_manager: Option<OsString>,
) -> Option<PathBuf> {
    if let Some(path) = configured {
        return Some(relative_to.join(path));
    }
    let folders = service_manager?;
    let first = folders.as_bytes().split(|byte| *byte == b':').next()?;
    let first = Path::new(std::ffi::OsStr::from_bytes(first));
    first.is_absolute().then(|| first.to_owned())
}

/// A file in it.
#[derive(Clone, Debug)]
pub(crate) struct StateFile {
    folder: PathBuf,
    path: PathBuf,
}

impl StateFile {
    pub(crate) fn new(folder: PathBuf, name: &str) -> Self {
        Self {
            path: folder.join(name),
            folder,
        }
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What is in it, if it is there and nobody else could have written it; at most so many bytes.
    ///
    /// # Errors
    /// Why it is not used, without the path.
    pub(crate) fn read(&self, most: usize) -> Result<Option<Vec<u8>>, String> {
        secret_file::read_kept(&self.path, most)
    }

    /// Whether files can be made in the folder, as far as can be said without making one.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn may_write(&self) -> Result<(), String> {
        let wanted = Access::WRITE_OK | Access::EXEC_OK;
        let may = accessat(CWD, &self.folder, wanted, AtFlags::EACCESS);
        may.map_err(|error| self.cannot(&error.into()))
    }

    /// Replaces it.
    ///
    /// # Errors
    /// It cannot be written, or another process writes there: a front-end that is replaced by the next one.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), String> {
        let written = File::open(&self.folder).and_then(|folder| {
            // Let go when `folder` is closed.
            folder.try_lock().map_err(|error| match error {
                TryLockError::WouldBlock => std::io::Error::other("another process writes there"),
                TryLockError::Error(error) => error,
            })?;
            replace_private(&self.path, bytes)
        });
        written.map_err(|error| self.cannot(&error))
    }

    fn cannot(&self, error: &std::io::Error) -> String {
        format!("cannot write {}: {error}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let name = format!("tidegate-state-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn the_folder_is_the_configurations_or_the_service_managers_or_none() {
        let of = |configured: Option<&str>, manager: Option<&str>| {
            let found = folder(
                configured.map(Path::new),
                Path::new("/etc/tidegate"),
                manager.map(OsString::from),
            );
            found.map(|it| it.display().to_string())
        };
        let some = |path: &str| Some(path.to_owned());
        assert_eq!(of(None, None), None);
        assert_eq!(of(None, Some("/var/lib/a")), some("/var/lib/a"));
        assert_eq!(of(None, Some("/var/lib/a:/var/lib/b")), some("/var/lib/a"));
        assert_eq!(of(None, Some("")), None);
        assert_eq!(of(None, Some("a")), None, "not relative to who knows what");
        assert_eq!(of(Some("state"), Some("/a")), some("/etc/tidegate/state"));
        assert_eq!(of(Some("/var/b"), Some("/a")), some("/var/b"));
    }

    #[test]
    fn what_is_written_is_read_again_and_another_process_is_waited_for() {
        let folder = scratch("again");
        let file = StateFile::new(folder.clone(), "learned");
        assert_eq!(file.read(9), Ok(None));
        assert_eq!((file.may_write(), file.write(b"one")), (Ok(()), Ok(())));
        assert_eq!(file.read(9), Ok(Some(b"one".to_vec())));
        assert!(file.read(2).unwrap_err().contains("larger than 2 bytes"));
        // A lock belongs to an open folder, so this one is as good as another process's.
        let other = File::open(&folder).unwrap();
        other.lock().unwrap();
        let busy = file.write(b"two").unwrap_err();
        assert!(busy.ends_with("another process writes there"), "{busy}");
        assert_eq!(file.read(9), Ok(Some(b"one".to_vec())));
        drop(other);
        assert_eq!(file.write(b"two"), Ok(()));
        std::fs::remove_dir_all(&folder).unwrap();
        let gone = file.write(b"three").unwrap_err();
        assert!(gone.starts_with("cannot write "), "{gone}");
        assert_eq!(file.may_write(), Err(gone), "the same words for both");
    }

    #[test]
    fn a_file_that_others_could_have_written_is_not_used() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = scratch("others");
        let file = StateFile::new(folder.clone(), "learned");
        file.write(b"one").unwrap();
        std::fs::set_permissions(file.path(), PermissionsExt::from_mode(0o644)).unwrap();
        assert!(file.read(9).unwrap_err().contains("mode 0644"));
        std::fs::rename(file.path(), folder.join("elsewhere")).unwrap();
        symlink("elsewhere", file.path()).unwrap();
        assert_eq!(file.read(9), Err("it is a link".into()));
        if rustix::process::geteuid().is_root() {
            file.write(b"one").unwrap();
            std::os::unix::fs::chown(file.path(), Some(1001), None).unwrap();
            let why = file.read(9).unwrap_err();
            assert!(why.contains("belongs to user 1001"), "{why}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
