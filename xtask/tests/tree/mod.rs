//! The repository's files, for tests that read them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Its root folder.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("this crate lies in a folder")
        .to_path_buf()
}

/// A file's text.
pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The files that are, or are about to be, in the repository.
pub(crate) fn files() -> Vec<String> {
    let output = Command::new("git")
        .current_dir(root())
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .output()
        .expect("git lists the files");
    let text = String::from_utf8(output.stdout).expect("file names are UTF-8");
    let exists = |file: &String| root().join(file).exists();
    let files: Vec<_> = text.lines().map(str::to_owned).filter(exists).collect();
    assert!(!files.is_empty(), "git lists no file");
    files
}

/// Fails with all that is wrong, a line each.
pub(crate) fn none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
