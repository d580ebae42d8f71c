//! How this process was started, so that its successor is started in the same way.
//!
//! The program is taken by the path that it was started by, not by the file that runs: that one may have been replaced
//! by a newer version, or a link in its path may lead to another one by now.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The file that this process runs.
const OWN: &str = "/proc/self/exe";

/// A program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// Those of this process. To be asked as it starts, while its file is still there.
    pub(crate) fn of_this_process() -> io::Result<Self> {
        let mut arguments = std::env::args_os();
        let name = PathBuf::from(arguments.next().unwrap_or_default());
        let here = std::env::current_dir()?;
        let search = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&search);
        let path = candidates(&name, &here, folders)
            .find(|path| is_own(path))
            .map_or_else(|| std::fs::read_link(OWN), Ok)?;
        Ok(Self {
            path,
            arguments: arguments.collect(),
        })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What starts it.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments);
        command
    }
}

/// Where a program of this name may be.
fn candidates(
    name: &Path,
    here: &Path,
    folders: impl Iterator<Item = PathBuf>,
) -> impl Iterator<Item = PathBuf> {
    let is_path = name.components().count() > 1 || name.is_absolute();
    let direct = is_path.then(|| here.join(name));
    let searched = folders.filter(move |_| !is_path);
    direct
        .into_iter()
        .chain(searched.map(move |folder| here.join(folder).join(name)))
}

/// Whether this is the file that runs.
fn is_own(path: &Path) -> bool {
    let identity = |path: &Path| path.metadata().ok().map(|it| (it.dev(), it.ino()));
    let own = identity(Path::new(OWN));
    own.is_some() && own == identity(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_where_it_was_started() {
        let found = |name: &str| {
            let folders = ["/usr/bin", "bin"].map(PathBuf::from).into_iter();
            let found: Vec<_> = candidates(Path::new(name), Path::new("/here"), folders).collect();
            found
        };
        assert_eq!(found("/opt/tidegate"), [Path::new("/opt/tidegate")]);
        assert_eq!(found("./tidegate"), [Path::new("/here/./tidegate")]);
        let searched = ["/usr/bin/tidegate", "/here/bin/tidegate"].map(PathBuf::from);
        assert_eq!(found("tidegate"), searched);
    }

    #[test]
    fn this_process_can_be_started_again() {
        let program = Program::of_this_process().unwrap();
        assert!(is_own(program.path()), "{program:?}");
    }
}
