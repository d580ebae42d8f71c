//! The pages of the admin interface: TypeScript in `web`, each bundled into one file. These files are checked
//! in, so that no build needs node.

use std::path::Path;
use std::process::Command;

use crate::npm;
use crate::test::Outcome;

const FOLDER: &str = "web";
/// The pages by the names that the bundler has for them, and where each is checked in.
const PAGES: [(&str, &str); 2] = [
    ("culprits", "crates/culprits/src/page.html"),
    ("front", "crates/tidegate/src/admin/page.html"),
];
/// Oldest node that the bundler and node's own test runner need.
const NODE_MAJOR: u32 = 18;
/// Oldest node that drives a browser.
const BROWSER_NODE_MAJOR: u32 = 20;

/// Bundles anew, in place of what is checked in.
pub(crate) fn run(root: &Path) -> Result<bool, String> {
    if let Some(why) = missing(root, NODE_MAJOR) {
        return Err(why);
    }
    for (name, page) in PAGES {
        let file = root.join(page).display().to_string();
        node(root, &["build.mjs", "page", name, &file])?;
        println!("wrote {page}");
    }
    Ok(true)
}

/// Whether the sources have sound types and form, pass their tests, and give the files that are
/// checked in.
pub(crate) fn check(root: &Path) -> Result<Outcome, String> {
    if let Some(why) = missing(root, NODE_MAJOR) {
        return Ok(Outcome::Skipped(why));
    }
    let mut good = true;
    for (name, page) in PAGES {
        if !is_fresh(root, name, page)? {
            println!("{page} is stale: run `cargo xtask web`");
            good = false;
        }
    }
    for script in ["check", "test"] {
        good &= npm_run(root, script)?;
    }
    Ok(good.into())
}

/// Whether the pages do in a browser what they should.
pub(crate) fn browser(root: &Path) -> Result<Outcome, String> {
    if let Some(why) = missing(root, BROWSER_NODE_MAJOR) {
        return Ok(Outcome::Skipped(why));
    }
    if Command::new("chromium").arg("--version").output().is_err() {
        return Ok(Outcome::Skipped("chromium is not installed".into()));
    }
    npm_run(root, "browser").map(Outcome::from)
}

/// Whether a page is what its sources give.
fn is_fresh(root: &Path, name: &str, page: &str) -> Result<bool, String> {
    let process = std::process::id();
    let fresh = std::env::temp_dir().join(format!("tidegate-web-{process}-{name}.html"));
    let file = fresh.display().to_string();
    let built = node(root, &["build.mjs", "page", name, &file]);
    let same = built.and_then(|()| Ok(read(&fresh)? == read(&root.join(page))?));
    // It may not have come that far.
    std::fs::remove_file(&fresh).ok();
    same
}

/// Runs a script of the package; whether it succeeded.
fn npm_run(root: &Path, script: &str) -> Result<bool, String> {
    let status = npm::npm(&root.join(FOLDER), &["run", "--silent", script]).status();
    let good = status.map_err(|error| format!("npm: {error}"))?.success();
    if !good {
        println!("`npm run {script}` in {FOLDER} failed");
    }
    Ok(good)
}

/// What is missing here. Packages that are missing are fetched.
fn missing(root: &Path, oldest: u32) -> Option<String> {
    let version = Command::new("node").arg("--version").output();
    let Ok(version) = version else {
        return Some("node is not installed".into());
    };
    let text = String::from_utf8_lossy(&version.stdout);
    let major = text.trim().trim_start_matches('v').split('.').next();
    let major: u32 = major.and_then(|it| it.parse().ok()).unwrap_or_default();
    if major < oldest {
        return Some(format!("node {oldest} or newer is needed; here is {text}"));
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
