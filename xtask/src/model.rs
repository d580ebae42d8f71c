//! The model of moves (`crates/core/tests/moves_model`) within large bounds; `make test` has small ones.

use std::path::Path;
use std::process::Command;

/// Optimised, one model after the other: each needs its memory for itself.
const TESTS: &[&str] = &[
    "test",
    "--profile",
    "fast",
    "--locked",
    "--package",
    "tidegate-core",
    "--test",
    "moves_model",
    "--",
    "--nocapture",
    "--test-threads=1",
];

/// Runs it, and prints what was seen of each model.
pub(crate) fn run(root: &Path) -> Result<bool, String> {
    let status = Command::new("cargo")
        .current_dir(root)
        .args(TESTS)
        .env("TIDEGATE_MODEL", "large")
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    Ok(status.success())
}
