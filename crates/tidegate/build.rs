//! Puts the commit into the version of what is deployed. The same sources give the same text; without git, or
//! outside of its repository, there is just no commit.
//!
//! Development builds have none: they would be built anew after each commit.

use std::path::Path;
use std::process::Command;

/// Set by packagers that build without a repository.
const OVERRIDE: &str = "TIDEGATE_COMMIT";
/// Letters of a commit.
const LETTERS: usize = 12;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed={OVERRIDE}");
    let given = std::env::var(OVERRIDE).ok();
    let release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = given.or_else(|| release.then(commit).flatten());
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let commit = commit.unwrap_or_default();
    let full = match commit.is_empty() {
        true => version,
        false => format!("{version} ({commit})"),
    };
    println!("cargo:rustc-env=TIDEGATE_VERSION={full}");
    println!("cargo:rustc-env=TIDEGATE_REVISION={commit}");
}

/// The commit of this repository, and not of one that these sources merely lie in.
fn commit() -> Option<String> {
    let here = std::env::var("CARGO_MANIFEST_DIR").ok()?;
    let root = Path::new(&here).parent()?.parent()?;
    let top = git(root, &["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    // HEAD changes with the branch, the branch's file with each commit.
    let branch = git(root, &["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["HEAD"].into_iter().chain(branch.as_deref()) {
        let path = root.join(git(root, &["rev-parse", "--git-path", name])?);
        if path.exists() {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
    let mut commit = git(root, &["rev-parse", "HEAD"])?;
    commit.truncate(LETTERS);
    Some(commit)
}

fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    let ran = git.arg("-C").arg(folder).args(arguments).output().ok()?;
    if !ran.status.success() {
        return None;
    }
    let text = String::from_utf8(ran.stdout).ok()?;
    Some(text.trim().to_owned())
}
