//! Small programs that are run to their end: `ip` and the like.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::ClusterError;
use super::sweep::MARK;

/// The longest piece of a program's output that goes into a message, bytes.
const TOLD_MAX: usize = 2000;

/// Runs it; what it wrote on standard output.
pub(crate) fn run(command: &mut Command) -> Result<String, ClusterError> {
    let text = text(command);
    let output = command.stdin(Stdio::null()).output();
    let Output {
        status,
        stdout,
        stderr,
    } = output.map_err(|source| ClusterError::Start {
        command: text.clone(),
        source,
    })?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    let told = [stderr, stdout].concat();
    let told = String::from_utf8_lossy(&told);
    Err(ClusterError::Failed {
        command: text,
        status,
        told: told.trim().chars().take(TOLD_MAX).collect(),
    })
}

/// `ip` with these arguments, marked as the cluster's: should the lab be killed now, a
/// sweep also ends what still runs.
pub(crate) fn ip(mark: &str, arguments: &[&str]) -> Result<String, ClusterError> {
    run(Command::new("ip").args(arguments).env(MARK, mark))
}

/// Program and arguments as one would type them.
pub(crate) fn text(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

/// Where a program of the operating system is, if it is installed.
pub(crate) fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        // Servers live where not every user's path goes.
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// A binary of this project: as the environment says, else beside this one, else one folder up
/// (where the binaries lie when this is a test).
pub(crate) fn ours(program: &str, variable: &str) -> Result<PathBuf, ClusterError> {
    if let Some(path) = std::env::var_os(variable) {
        return Ok(path.into());
    }
    let this = std::env::current_exe().map_err(ClusterError::file("find", "this program"))?;
    let mut folders = this.ancestors().skip(1).take(2).map(Path::to_path_buf);
    folders
        .find_map(|folder| Some(folder.join(program)).filter(|file| file.is_file()))
        .ok_or_else(|| {
            ClusterError::Missing(format!(
                "there is no `{program}` beside {}: build it, or set {variable} to its path",
                this.display()
            ))
        })
}

/// The product.
pub fn tidegate() -> Result<PathBuf, ClusterError> {
    ours("tidegate", "TIDEGATE_BIN")
}

/// The lab itself, which runs its servers, antagonists and load generators as other processes.
pub fn lab() -> Result<PathBuf, ClusterError> {
    ours("tidegate-lab", "TIDEGATE_LAB_BIN")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_comes_back_or_goes_into_the_message() {
        assert_eq!(run(Command::new("echo").arg("a b")).unwrap(), "a b\n");
        let failed = run(Command::new("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err();
        let text = failed.to_string();
        assert!(
            text.contains("why") && text.contains('3') && text.contains("sh -c"),
            "{text}"
        );
        let absent = run(&mut Command::new("no-such-program")).unwrap_err();
        assert!(absent.to_string().contains("no-such-program"), "{absent}");
    }

    #[test]
    fn programs_are_found_or_not() {
        assert!(installed("sh").is_some());
        assert!(installed("no-such-program").is_none());
        let missing = ours("no-such-binary", "TGLAB_NO_SUCH_VARIABLE").unwrap_err();
        assert!(
            missing.to_string().contains("TGLAB_NO_SUCH_VARIABLE"),
            "{missing}"
        );
    }
}
