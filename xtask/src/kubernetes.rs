//! A real `kube-apiserver` for the tests of discovery, built once: about six minutes of CPU, 3 GB of downloads and
//! caches of Go, and a binary of 95 MB. It is kept outside the tree, so that each clone of it finds it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The module that requires Kubernetes.
const MODULE: &str = "xtask/kubernetes";
/// Names the binary, in place of the one that is built here.
const VARIABLE: &str = "TIDEGATE_KUBE_APISERVER";

/// Builds it unless it is there.
pub(crate) fn run(root: &Path) -> Result<bool, String> {
    let file = file(root)?;
    if file.exists() {
        println!("{}: is there", file.display());
        return Ok(true);
    }
    let folder = file.parent().ok_or("a file without a folder")?;
    let failed = |what: &Path, error| format!("{}: {error}", what.display());
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    let fresh = file.with_extension(format!("new-{}", std::process::id()));
    println!("building {}: some minutes", file.display());
    // Other work goes first.
    let status = Command::new("nice")
        .current_dir(root.join(MODULE))
        .args(["-n", "10", "go", "build", "-trimpath", "-ldflags", "-s -w"])
        .arg("-o")
        .arg(&fresh)
        .arg(".")
        .env("CGO_ENABLED", "0")
        .status()
        .map_err(|error| format!("go: {error}"))?;
    if !status.success() {
        return Err(format!("go build in {MODULE} failed: {status}"));
    }
    std::fs::rename(&fresh, &file).map_err(|error| failed(&file, error))?;
    println!("{}: built", file.display());
    Ok(true)
}

/// Where it is, by its version: `crates/discover/tests/api_server` looks there as well.
fn file(root: &Path) -> Result<PathBuf, String> {
    if let Some(file) = std::env::var_os(VARIABLE) {
        return Ok(file.into());
    }
    let module = root.join(MODULE).join("go.mod");
    let text = std::fs::read_to_string(&module);
    let text = text.map_err(|error| format!("{}: {error}", module.display()))?;
    let version = text.lines().find_map(|line| {
        let line = line.trim().trim_start_matches("require ");
        line.strip_prefix("k8s.io/kubernetes ")
    });
    let version = version.ok_or_else(|| format!("{}: no version", module.display()))?;
    let cache = match (std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME")) {
        (Some(cache), _) => PathBuf::from(cache),
        (None, Some(home)) => Path::new(&home).join(".cache"),
        (None, None) => return Err("neither HOME nor XDG_CACHE_HOME is set".into()),
    };
    let name = format!("kube-apiserver-{version}");
    Ok(cache.join("tidegate").join(name))
}
