//! The kernel's programs under Debian's other kernels, in emulated machines: what one verifier
//! takes, another may not.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Series of Debian 12 and of its backports.
const SERIES: [&str; 2] = ["6.1", "6.12"];
/// How `scripts/kernel-vm.sh` says that there is no machine.
const CANNOT: i32 = 77;

/// Runs the tests of `crates/remote/src/kernel` in each; nothing where none can be had.
pub(crate) fn check(root: &Path) -> Result<Option<bool>, String> {
    let tests = build(root)?;
    let mut good = true;
    for series in SERIES {
        println!("== Linux {series}");
        let status = Command::new(root.join("scripts/kernel-vm.sh"))
            .arg(series)
            .arg(&tests)
            .args(["kernel::", "--test-threads=1"])
            .status()
            .map_err(|error| format!("scripts/kernel-vm.sh: {error}"))?;
        match status.code() {
            Some(0) => {}
            Some(CANNOT) => {
                println!("SKIPPED: no machine with Linux {series}; the line above says why");
                return Ok(None);
            }
            _ => good = false,
        }
    }
    Ok(Some(good))
}

/// The binary with the unit tests of `crates/remote`.
fn build(root: &Path) -> Result<PathBuf, String> {
    let output = Command::new("cargo")
        .current_dir(root)
        .args([
            "test",
            "--locked",
            "--package",
            "tidegate-remote",
            "--lib",
            "--no-run",
        ])
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    // "  Executable unittests src/lib.rs (target/debug/deps/tidegate_remote-…)"
    let line = text.lines().find(|line| line.contains("Executable"));
    let path = line.and_then(|line| line.split_once('(')?.1.strip_suffix(')'));
    path.map(|path| root.join(path))
        .ok_or_else(|| format!("cargo built no tests: {text}"))
}
