//! Packages of npm, in the folders that have a lock file for them.

use std::path::Path;
use std::process::{Command, Stdio};

/// Why a folder's packages are not there. Those that are missing are fetched, as the lock file has them.
pub(crate) fn missing(folder: &Path) -> Option<String> {
    if Command::new("npm").arg("--version").output().is_err() {
        return Some("npm is not installed".into());
    }
    if is_fetched(folder) {
        return None;
    }
    // Packages' own scripts do not run here; none of these needs them.
    let fetched = npm(folder, &["ci", "--ignore-scripts"])
        .stdout(Stdio::null())
        .output();
    match fetched {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            let error = told.lines().find(|line| line.starts_with("npm error"));
            let error = error.unwrap_or("npm ci failed").to_owned();
            let folder = folder.file_name().unwrap_or_default().to_string_lossy();
            Some(format!("the packages of {folder} cannot be had: {error}"))
        }
        Err(error) => Some(format!("npm: {error}")),
    }
}

/// Whether the packages are those of the lock file: npm notes what it has put there.
fn is_fetched(folder: &Path) -> bool {
    let changed = |path: &str| {
        let data = std::fs::metadata(folder.join(path));
        data.and_then(|data| data.modified())
    };
    match (
        changed("node_modules/.package-lock.json"),
        changed("package-lock.json"),
    ) {
        (Ok(put), Ok(wanted)) => put >= wanted,
        _ => false,
    }
}

/// A command of npm in a folder.
pub(crate) fn npm(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("npm");
    command.current_dir(folder).args(arguments);
    command
}
