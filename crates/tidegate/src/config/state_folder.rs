//! Which folder a front-end keeps files in over a restart, and what they are called.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use tidegate_culprits::live::LEARNED_FILE;

use super::file::StateTable;

/// Where systemd says that a service may keep files: folders with colons between them (`StateDirectory=`).
const SERVICE_MANAGER: &str = "STATE_DIRECTORY";
/// The file that a front-end has locked while the folder is its own.
pub(crate) const LOCK: &str = "lock";
/// What was learned of nodes.
pub(crate) const LEARNED_OF_NODES: &str = "nodes.learned";
/// What happened at sites and nodes.
pub(crate) const HISTORY: &str = "history.json";
/// Nodes that operators have added.
pub(crate) const ADDED_NODES: &str = "nodes.json";
/// What a file is called once it was set aside.
pub(crate) const ASIDE: &str = "refused";

/// The files in it, whether they are there or not.
pub(super) fn files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let kept = [LEARNED_OF_NODES, ADDED_NODES, LEARNED_FILE, HISTORY].map(|name| folder.join(name));
    let aside = kept.clone().map(|path| path.with_extension(ASIDE));
    kept.into_iter().chain(aside).chain([folder.join(LOCK)])
}

/// The folder: the one of the configuration, relative to the configuration's own, or the first of the service
/// manager's, if there is any.
///
/// # Errors
/// Why the service manager's is not used.
fn folder(
    configured: Option<&Path>,
    relative_to: &Path,
    service_manager: Option<OsString>,
) -> Result<Option<PathBuf>, String> {
    if let Some(path) = configured {
        return Ok(Some(relative_to.join(path)));
    }
    let Some(folders) = service_manager.filter(|it| !it.is_empty()) else {
        return Ok(None);
    };
    let first = folders.as_bytes().split(|byte| *byte == b':').next();
    let first = Path::new(OsStr::from_bytes(first.unwrap_or_default()));
    if first.is_absolute() {
        return Ok(Some(first.to_owned()));
    }
    Err(format!(
        "nothing is kept over a restart: `{}` in {SERVICE_MANAGER} is not an absolute path; give the whole path, or name \
         the folder as `directory` in [state]",
        first.display()
    ))
}

/// The folder that a configuration file and the environment give; none if nothing is to be kept.
///
/// # Errors
/// As [`folder`].
pub(crate) fn of(state: &StateTable, file: &Path) -> Result<Option<PathBuf>, String> {
    if !state.keep.value {
        return Ok(None);
    }
    folder(
        state.directory.value.as_deref(),
        file.parent().unwrap_or(Path::new("")),
        std::env::var_os(SERVICE_MANAGER),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_the_configurations_or_the_service_managers_or_none() {
        let of = |configured: Option<&str>, manager: Option<&str>| {
            let found = folder(
                configured.map(Path::new),
                Path::new("/etc/tidegate"),
                manager.map(OsString::from),
            );
            found.map(|it| it.map(|it| it.display().to_string()))
        };
        let some = |path: &str| Ok(Some(path.to_owned()));
        assert_eq!(of(None, None), Ok(None));
        assert_eq!(of(None, Some("/var/lib/a")), some("/var/lib/a"));
        assert_eq!(of(None, Some("/var/lib/a:/var/lib/b")), some("/var/lib/a"));
        assert_eq!(of(None, Some("")), Ok(None));
        // Not relative to any folder, and not without a word.
        for relative in ["a", "a:/b", ":/b"] {
            let why = of(None, Some(relative)).unwrap_err();
            assert!(why.contains("not an absolute path"), "{relative}: {why}");
        }
        assert_eq!(of(Some("state"), Some("/a")), some("/etc/tidegate/state"));
        assert_eq!(of(Some("state"), Some("a")), some("/etc/tidegate/state"));
        assert_eq!(of(Some("/var/b"), Some("/a")), some("/var/b"));
    }
}
