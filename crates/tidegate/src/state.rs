//! What a front-end keeps over a restart: files for its owner alone in one folder, which one front-end at a time has
//! for itself.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fs::{Access, AtFlags, CWD, OFlags, RenameFlags, accessat, renameat_with};
use rustix::process::geteuid;
use tidegate_culprits::live::front_end::KeptFile;

use crate::config::state_folder::{ASIDE, LOCK};
use crate::replace::replace_private;
use crate::secret_file;

/// Permission bits with which others can put files into a folder and take them away.
const OTHERS_WRITE: u32 = 0o022;
/// What an owner needs to make files in a folder.
const OWNER_WRITES: u32 = 0o300;

/// Why the user of this number cannot or should not keep files in a folder, and what to do about it; none if all is
/// well as far as can be said without making a file.
pub(crate) fn unfit(folder: &Path, user: u32) -> Option<String> {
    let why = match folder.metadata() {
        Ok(about) if !about.is_dir() => Some("it is not a folder".into()),
        Ok(about) => misplaced(about.mode(), about.uid(), user).or_else(|| {
            // The system knows more than modes, but of this process's own user only.
            let own = geteuid().as_raw() == user;
            own.then(|| refused_by_system(folder)).flatten()
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => Some(format!(
            "it is not there: `install -d -m 0700 -o {user} {}`, or StateDirectory= of systemd",
            folder.display()
        )),
        Err(error) => Some(error.to_string()),
    };
    why.map(|why| format!("cannot keep files in {}: {why}", folder.display()))
}

/// The same by mode and owner of the folder alone.
fn misplaced(mode: u32, owner: u32, user: u32) -> Option<String> {
    let shown = mode & 0o7777;
    if owner != user {
        return Some(format!(
            "it belongs to user {owner}, not to the user of the front-end: chown {user}, or StateDirectory= of systemd"
        ));
    }
    if mode & OTHERS_WRITE != 0 {
        return Some(format!(
            "others can write there (mode {shown:04o}): name a folder of the front-end's own, as \
             `install -d -m 0700` makes one"
        ));
    }
    if mode & OWNER_WRITES != OWNER_WRITES && user != 0 {
        return Some(format!(
            "its owner cannot write there (mode {shown:04o}): chmod 0700"
        ));
    }
    None
}

/// The same for this process, whatever the reason: a file system that is read-only, a sandbox.
fn refused_by_system(folder: &Path) -> Option<String> {
    let wanted = Access::WRITE_OK | Access::EXEC_OK;
    let error = accessat(CWD, folder, wanted, AtFlags::EACCESS).err()?;
    let error = std::io::Error::from(error);
    let hint = if error.kind() == ErrorKind::ReadOnlyFilesystem {
        ": ReadWritePaths= or StateDirectory= of systemd open it"
    } else {
        ""
    };
    Some(format!("{error}{hint}"))
}

/// Why a front-end does not have a folder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Untaken {
    /// It cannot keep files there.
    #[error("{0}")]
    Unfit(String),
    /// Another front-end does.
    #[error("{0}")]
    Elsewhere(String),
}

/// A folder as the files of this process know it: they have its lock together.
#[derive(Clone, Debug)]
pub(crate) struct StateFolder {
    path: PathBuf,
    lock: Arc<Mutex<Weak<File>>>,
}

impl StateFolder {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            lock: Arc::default(),
        }
    }

    /// The lock, be it that another file of this process has it already.
    fn locked(&self) -> Result<Arc<File>, Untaken> {
        let mut known = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = known.upgrade() {
            return Ok(lock);
        }
        let lock = Arc::new(self.take_lock()?);
        *known = Arc::downgrade(&lock);
        Ok(lock)
    }

    fn take_lock(&self) -> Result<File, Untaken> {
        let path = self.path.join(LOCK);
        let cannot = |error: std::io::Error| {
            let why = match secret_file::is_link(&error) {
                true => "it is a link, which is not followed; remove it".into(),
                false => error.to_string(),
            };
            Untaken::Unfit(format!("cannot lock {}: {why}", path.display()))
        };
        // Others cannot open it, so they cannot hold it. A pipe in its place does not hold us up.
        let lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
            .mode(0o600)
            .open(&path)
            .map_err(cannot)?;
        if !lock.metadata().map_err(cannot)?.is_file() {
            let path = path.display();
            return Err(Untaken::Unfit(format!(
                "cannot lock {path}: it is not a regular file; remove it"
            )));
        }
        match lock.try_lock() {
            Ok(()) => Ok(lock),
            Err(TryLockError::WouldBlock) => Err(Untaken::Elsewhere(format!(
                "another front-end keeps files in {}: this one does once that one has ended; if it is not its \
                 successor, name a folder of its own as `directory` in [state]",
                self.path.display()
            ))),
            Err(TryLockError::Error(error)) => Err(cannot(error)),
        }
    }
}

/// A file in it.
#[derive(Debug)]
pub(crate) struct StateFile {
    folder: StateFolder,
    path: PathBuf,
    /// What is there is set aside before the first write.
    spared: bool,
    /// Locked once this front-end has the folder for itself, and until this is dropped.
    lock: Option<Arc<File>>,
}

impl StateFile {
    pub(crate) fn new(folder: &StateFolder, name: &str) -> Self {
        Self {
            path: folder.path.join(name),
            folder: folder.clone(),
            spared: false,
            lock: None,
        }
    }

    /// The folder is another front-end's from now on, if no other file of this process is in it.
    pub(crate) fn give_up(&mut self) {
        self.lock = None;
    }

    /// Takes the folder, until this is dropped or gives it up.
    pub(crate) fn take(&mut self) -> Result<(), Untaken> {
        if let Some(why) = unfit(&self.folder.path, geteuid().as_raw()) {
            return Err(Untaken::Unfit(why));
        }
        if self.lock.is_none() {
            self.lock = Some(self.folder.locked()?);
        }
        Ok(())
    }

    fn set_aside(&self) -> Result<(), String> {
        let aside = self.aside();
        let about = match self.path.symlink_metadata() {
            Ok(about) => about,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(format!("cannot write {}: {error}", self.path.display())),
        };
        if !about.is_file() && !about.is_symlink() {
            // Writing says what is wrong.
            return Ok(());
        }
        let moved = renameat_with(CWD, &self.path, CWD, &aside, RenameFlags::NOREPLACE);
        moved.map_err(|error| {
            let hint = match std::io::Error::from(error) {
                error if error.kind() == ErrorKind::AlreadyExists => {
                    "that is there already; move one of them away".into()
                }
                error => error.to_string(),
            };
            let (path, aside) = (self.path.display(), aside.display());
            format!("cannot set {path} aside as {aside}: {hint}")
        })
    }
}

impl KeptFile for StateFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn folder(&self) -> &Path {
        &self.folder.path
    }

    fn aside(&self) -> PathBuf {
        self.path.with_extension(ASIDE)
    }

    fn read(&self, most: usize) -> Result<Option<Vec<u8>>, String> {
        secret_file::read_kept(&self.path, most)
    }

    fn spare(&mut self) {
        self.spared = true;
    }

    fn has_folder(&self) -> bool {
        self.lock.is_some()
    }

    fn take_folder(&mut self) -> Result<(), String> {
        self.take().map_err(|why| why.to_string())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.take_folder()?;
        if self.spared {
            self.set_aside()?;
            self.spared = false;
        }
        let written = replace_private(&self.path, bytes);
        written.map_err(|error| format!("cannot write {}: {error}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let name = format!("tidegate-state-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        set_mode(&folder, 0o700);
        folder
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_folder_belongs_to_the_front_ends_user_who_alone_can_write_there() {
        for mode in [0o700, 0o755, 0o750, 0o2711] {
            assert_eq!(misplaced(mode, 1000, 1000), None, "{mode:o}");
        }
        for (mode, owner, user, why) in [
            (
                0o700,
                0,
                1000,
                "belongs to user 0, not to the user of the front-end: chown 1000",
            ),
            (0o700, 1000, 0, "belongs to user 1000"),
            (
                0o777,
                1000,
                1000,
                "others can write there (mode 0777): name a folder of the front-end's own",
            ),
            (0o1777, 0, 0, "others can write there (mode 1777)"),
            (0o770, 1000, 1000, "others can write there (mode 0770)"),
            (0o702, 1000, 1000, "others can write there (mode 0702)"),
            (
                0o500,
                1000,
                1000,
                "its owner cannot write there (mode 0500): chmod 0700",
            ),
            (
                0o600,
                1000,
                1000,
                "its owner cannot write there (mode 0600)",
            ),
        ] {
            let found = misplaced(mode, owner, user).unwrap_or_default();
            assert!(found.contains(why), "{mode:o}: {found}");
        }
        assert_eq!(misplaced(0o500, 0, 0), None, "root can write there");
    }

    #[test]
    fn a_folder_that_is_of_no_use_is_told_with_the_remedy() {
        let folder = scratch("unfit");
        let own = geteuid().as_raw();
        assert_eq!(unfit(&folder, own), None);
        let why = unfit(&folder, own + 1).unwrap();
        assert!(why.contains("chown"), "{why}");
        let gone = unfit(&folder.join("gone"), own).unwrap();
        assert!(gone.contains("install -d -m 0700"), "{gone}");
        std::fs::write(folder.join("file"), "").unwrap();
        let file = unfit(&folder.join("file"), own).unwrap();
        assert!(file.ends_with("it is not a folder"), "{file}");
        set_mode(&folder, 0o777);
        let mut file = StateFile::new(&StateFolder::new(folder.clone()), "learned");
        let why = file.write(b"one").unwrap_err();
        assert!(why.contains("mode 0777"), "{why}");
        assert_eq!(file.read(9), Ok(None));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = scratch("again");
        let mut file = StateFile::new(&StateFolder::new(folder.clone()), "learned");
        assert_eq!(file.read(9), Ok(None));
        assert_eq!(file.write(b"one"), Ok(()));
        assert_eq!(file.read(9), Ok(Some(b"one".to_vec())));
        assert!(file.read(2).unwrap_err().contains("larger than 2 bytes"));
        std::fs::remove_dir_all(&folder).unwrap();
        let gone = file.write(b"three").unwrap_err();
        assert!(gone.contains("it is not there"), "{gone}");
        assert_eq!(file.take_folder(), Err(gone), "the same words for both");
    }

    #[test]
    fn one_front_end_at_a_time_has_the_folder() {
        let folder = scratch("one");
        let mut first = StateFile::new(&StateFolder::new(folder.clone()), "learned");
        let mut second = StateFile::new(&StateFolder::new(folder.clone()), "learned");
        assert_eq!(first.take_folder(), Ok(()));
        let busy = second.write(b"two").unwrap_err();
        assert!(
            busy.starts_with("another front-end keeps files in"),
            "{busy}"
        );
        assert_eq!(first.write(b"one"), Ok(()));
        assert_eq!(second.take_folder(), Err(busy), "between writes, too");
        assert_eq!(second.read(9), Ok(Some(b"one".to_vec())), "a successor");
        // Others can neither read nor open what is locked.
        let mode = folder.join(LOCK).metadata().unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(first);
        assert_eq!(second.write(b"two"), Ok(()));
        assert_eq!(second.read(9), Ok(Some(b"two".to_vec())));
        drop(second);
        std::fs::remove_file(folder.join(LOCK)).unwrap();
        symlink("elsewhere", folder.join(LOCK)).unwrap();
        let mut third = StateFile::new(&StateFolder::new(folder.clone()), "learned");
        let why = third.take_folder().unwrap_err();
        assert!(
            why.starts_with("cannot lock")
                && why.ends_with("it is a link, which is not followed; remove it"),
            "{why}"
        );
        assert!(!folder.join("elsewhere").exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_was_not_read_is_set_aside_once_and_never_lost() {
        let folder = scratch("aside");
        let mut file = StateFile::new(&StateFolder::new(folder.clone()), "x.learned");
        std::fs::write(file.path(), "precious").unwrap();
        file.spare();
        assert_eq!((file.write(b"one"), file.write(b"two")), (Ok(()), Ok(())));
        let aside = file.aside();
        assert_eq!(std::fs::read(&aside).unwrap(), b"precious");
        assert_eq!(file.read(9), Ok(Some(b"two".to_vec())));
        // There is room for one.
        file.spare();
        let full = file.write(b"three").unwrap_err();
        assert!(
            full.contains("there already; move one of them away"),
            "{full}"
        );
        assert_eq!(std::fs::read(&aside).unwrap(), b"precious");
        assert_eq!(file.read(9), Ok(Some(b"two".to_vec())));
        std::fs::remove_file(&aside).unwrap();
        assert_eq!(file.write(b"three"), Ok(()));
        assert_eq!(std::fs::read(&aside).unwrap(), b"two");
        // Nothing is there to be set aside.
        std::fs::remove_file(file.path()).unwrap();
        file.spare();
        assert_eq!(file.write(b"four"), Ok(()));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_that_others_could_have_written_is_not_used() {
        let folder = scratch("others");
        let mut file = StateFile::new(&StateFolder::new(folder.clone()), "learned");
        file.write(b"one").unwrap();
        set_mode(file.path(), 0o644);
        assert!(file.read(9).unwrap_err().contains("mode 0644"));
        std::fs::rename(file.path(), folder.join("elsewhere")).unwrap();
        symlink("elsewhere", file.path()).unwrap();
        assert_eq!(file.read(9), Err("it is a link".into()));
        if geteuid().is_root() {
            file.write(b"one").unwrap();
            std::os::unix::fs::chown(file.path(), Some(1001), None).unwrap();
            let why = file.read(9).unwrap_err();
            assert!(why.contains("belongs to user 1001"), "{why}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
