//! Whether a file is safe to act on: only root and this process's own user can change it, or put another in its place.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Permission bits with which the group or others can write.
const WRITABLE: u32 = 0o022;
/// In such a folder only its owner removes a file.
const STICKY: u32 = 0o1000;
const EXECUTABLE: u32 = 0o111;

/// What is wrong with a program to run, if anything is.
pub fn program(path: &Path) -> Result<(), String> {
    if !path.is_absolute() {
        return Err(format!("{} is not an absolute path", path.display()));
    }
    let about = file(path)?;
    match about.mode() & EXECUTABLE {
        0 => Err(format!("{} is not executable", path.display())),
        _ => Ok(()),
    }
}

/// What is wrong with a file to read, if anything is.
pub(super) fn file(path: &Path) -> Result<std::fs::Metadata, String> {
    let real = real(path)?;
    let about = metadata(&real)?;
    if !about.is_file() {
        return Err(format!("{} is not a file", real.display()));
    }
    of_us_alone(&real, &about, false, own())?;
    real.parent().map_or(Ok(()), |it| folders(it, own()))?;
    Ok(about)
}

/// What is wrong with a folder to write to, if anything is.
pub(super) fn folder(path: &Path) -> Result<(), String> {
    folder_of(path, own())
}

/// The same for the user of this number.
pub(super) fn folder_of(path: &Path, user: u32) -> Result<(), String> {
    folders(&real(path)?, user)
}

fn folders(real: &Path, user: u32) -> Result<(), String> {
    for folder in real.ancestors() {
        let about = metadata(folder)?;
        if !about.is_dir() {
            return Err(format!("{} is not a folder", folder.display()));
        }
        of_us_alone(folder, &about, true, user)?;
    }
    Ok(())
}

/// The number of this process's user.
fn own() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn of_us_alone(
    path: &Path,
    about: &std::fs::Metadata,
    may_stick: bool,
    own: u32,
) -> Result<(), String> {
    let (owner, mode) = (about.uid(), about.mode() & 0o7777);
    if owner != 0 && owner != own {
        return Err(format!(
            "{} belongs to user {owner}; expected root or user {own}",
            path.display()
        ));
    }
    if mode & WRITABLE != 0 && !(may_stick && mode & STICKY != 0) {
        return Err(format!(
            "others can write to {} (mode {mode:04o}): chmod go-w",
            path.display()
        ));
    }
    Ok(())
}

/// Where it is, without links on the way.
fn real(path: &Path) -> Result<std::path::PathBuf, String> {
    std::fs::canonicalize(path).map_err(|error| said(path, &error))
}

fn metadata(path: &Path) -> Result<std::fs::Metadata, String> {
    std::fs::symlink_metadata(path).map_err(|error| said(path, &error))
}

fn said(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_others_can_change_is_refused_with_its_path() {
        let folder_path =
            std::env::temp_dir().join(format!("tidegate-trust-{}", std::process::id()));
        std::fs::create_dir_all(&folder_path).unwrap();
        let path = folder_path.join("hook");
        std::fs::write(&path, "").unwrap();
        let mode = |path: &Path, mode| set_permissions(path, Permissions::from_mode(mode)).unwrap();
        mode(&folder_path, 0o755);
        mode(&path, 0o644);
        assert!(file(&path).is_ok() && folder(&folder_path).is_ok());
        assert!(program(&path).unwrap_err().ends_with("is not executable"));
        mode(&path, 0o755);
        assert_eq!(program(&path), Ok(()));
        assert!(program(Path::new("hook")).unwrap_err().contains("absolute"));
        mode(&path, 0o775);
        assert!(
            program(&path)
                .unwrap_err()
                .contains("(mode 0775): chmod go-w")
        );
        mode(&path, 0o755);
        mode(&folder_path, 0o777);
        assert!(
            program(&path).unwrap_err().contains("chmod go-w"),
            "another could stand there"
        );
        mode(&folder_path, 0o755);
        assert!(file(&folder_path).unwrap_err().ends_with("is not a file"));
        assert!(folder(&path).unwrap_err().ends_with("is not a folder"));
        assert!(file(&folder_path.join("none")).is_err());
        std::fs::remove_dir_all(&folder_path).unwrap();
    }
}
