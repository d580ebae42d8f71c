//! The page of culprits: TypeScript in `web`, bundled into one file. That file is checked in, so that
//! no build needs node.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::test::Outcome;

const FOLDER: &str = "web";
const PAGE: &str = "crates/culprits/src/page.html";
/// Oldest node that the bundler and node's own test runner need.
const NODE_MAJOR: u32 = 18;

/// Bundles anew, in place of what is checked in.
pub(crate) fn run(root: &Path) -> Result<bool, String> {
    if let Some(why) = missing(root) {
        return Err(why);
    }
    let page = root.join(PAGE);
    node(root, &["build.mjs", "page", &page.display().to_string()])?;
    println!("wrote {PAGE}");
    Ok(true)
}

/// Whether the sources have sound types and form, pass their tests, and give the file that is
/// checked in.
pub(crate) fn check(root: &Path) -> Result<Outcome, String> {
    if let Some(why) = missing(root) {
        return Ok(Outcome::Skipped(why));
    }
    let fresh = std::env::temp_dir().join(format!("tidegate-web-{}.html", std::process::id()));
    let built = node(root, &["build.mjs", "page", &fresh.display().to_string()]);
    let same = built.and_then(|()| Ok(read(&fresh)? == read(&root.join(PAGE))?));
    // It may not have come that far.
    std::fs::remove_file(&fresh).ok();
    let same = same?;
    if !same {
        println!("{PAGE} is stale: run `cargo xtask web`");
    }
    let mut good = same;
    for script in ["check", "test"] {
        let status = npm(root, &["run", "--silent", script]).status();
        let status = status.map_err(|error| format!("npm: {error}"))?;
        if !status.success() {
            println!("`npm run {script}` in {FOLDER} failed");
            good = false;
        }
    }
    Ok(good.into())
}

/// What is missing here. Packages that are missing are fetched, as the lock file has them.
fn missing(root: &Path) -> Option<String> {
    let version = Command::new("node").arg("--version").output();
    let Ok(version) = version else {
        return Some("node is not installed".into());
    };
    let text = String::from_utf8_lossy(&version.stdout);
    let major = text.trim().trim_start_matches('v').split('.').next();
    let major: u32 = major.and_then(|it| it.parse().ok()).unwrap_or_default();
    if major < NODE_MAJOR {
        return Some(format!(
            "node {NODE_MAJOR} or newer is needed; here is {text}"
        ));
    }
    if Command::new("npm").arg("--version").output().is_err() {
        return Some("npm is not installed".into());
    }
    if is_fetched(root) {
        return None;
    }
    // Packages' own scripts do not run here; none of these needs them.
    let fetched = npm(root, &["ci", "--ignore-scripts"])
        .stdout(Stdio::null())
        .output();
    match fetched {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            let error = told.lines().find(|line| line.starts_with("npm error"));
            let error = error.unwrap_or("npm ci failed").to_owned();
            Some(format!("the packages of {FOLDER} cannot be had: {error}"))
        }
        Err(error) => Some(format!("npm: {error}")),
    }
}

/// Whether the packages are those of the lock file: npm notes what it has put there.
fn is_fetched(root: &Path) -> bool {
    let changed = |path: &str| {
        let data = std::fs::metadata(root.join(FOLDER).join(path));
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

fn npm(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("npm");
    command.current_dir(root.join(FOLDER)).args(arguments);
    command
}

fn node(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("node")
        .current_dir(root.join(FOLDER))
        .args(arguments)
        .output()
        .map_err(|error| format!("node: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("node: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}
