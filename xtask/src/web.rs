//! The page of culprits: TypeScript in `web`, bundled into one file. That file is checked in, so that
//! no build needs node.

use std::path::Path;
use std::process::Command;

use crate::npm;
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
        let status = npm::npm(&root.join(FOLDER), &["run", "--silent", script]).status();
        let status = status.map_err(|error| format!("npm: {error}"))?;
        if !status.success() {
            println!("`npm run {script}` in {FOLDER} failed");
            good = false;
        }
    }
    Ok(good.into())
}

/// What is missing here. Packages that are missing are fetched.
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
    npm::missing(&root.join(FOLDER))
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
