//! The fuzz targets are compiled, so that none rots. Running them takes cargo-fuzz: see `fuzz/README.md`. Their
//! corpora are replayed by the tests of the crates.

use std::path::Path;
use std::process::Command;

use crate::test::Outcome;

const MANIFEST: &str = "fuzz/Cargo.toml";

/// Whether all targets compile. Not `--locked`: the lock file follows the workspace's, and what is built of it is not
/// given to anybody.
pub(crate) fn check(root: &Path) -> Result<Outcome, String> {
    // Has cargo fetch what is not here yet.
    let fetched = cargo(root)
        .args(["tree", "--manifest-path", MANIFEST])
        .output();
    let fetched = fetched.map_err(|error| format!("cargo: {error}"))?;
    if !fetched.status.success() {
        let told = String::from_utf8_lossy(&fetched.stderr);
        let error = told.lines().find(|line| line.starts_with("error"));
        let error = error.unwrap_or("cargo tree failed");
        return Ok(Outcome::Skipped(format!(
            "the packages of fuzz/ cannot be had: {error}"
        )));
    }
    let status = cargo(root)
        .args(["check", "--quiet", "--bins", "--offline"])
        .args(["--manifest-path", MANIFEST, "--target-dir", "target/fuzz"])
        // Nothing is linked, so libFuzzer need not be compiled.
        .env("CUSTOM_LIBFUZZER_PATH", "target/fuzz/libnone.a")
        .status();
    let status = status.map_err(|error| format!("cargo: {error}"))?;
    Ok(status.success().into())
}

fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root);
    cargo
}
