//! The kernel's programs under Debian's other kernels, in emulated machines: what one verifier
//! takes, another may not.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::test::Outcome;

/// Series of Debian 12 and of its backports.
const SERIES: [&str; 2] = ["6.1", "6.12"];
/// How `scripts/kernel-vm.sh` says that there is no machine.
const CANNOT: i32 = 77;

/// Runs the tests of `crates/remote/src/kernel` in each.
pub(crate) fn check(root: &Path) -> Result<Outcome, String> {
    let tests = build(root)?;
    let mut good = true;
    for series in SERIES {
        println!("== Linux {series}");
        let (code, skipped) = run(root, series, &tests)?;
        match code {
            Some(0) if skipped => {
                println!("a test was skipped in a machine in which it may do everything");
                good = false;
            }
            Some(0) => {}
            Some(CANNOT) => {
                let why = format!("no machine with Linux {series}; the line above says why");
                return Ok(Outcome::Skipped(why));
            }
            _ => good = false,
        }
    }
    Ok(good.into())
}

/// Runs them in one machine and passes on what it says: its exit code, and whether a test found that
/// it cannot run there.
fn run(root: &Path, series: &str, tests: &Path) -> Result<(Option<i32>, bool), String> {
    let failed = |error| format!("scripts/kernel-vm.sh: {error}");
    let mut child = Command::new(root.join("scripts/kernel-vm.sh"))
        .arg(series)
        .arg(tests)
        .args(["kernel::", "--test-threads=1", "--show-output"])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut skipped = false;
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line.map_err(failed)?;
            let line = String::from_utf8_lossy(&line);
            println!("{}", line.trim_end());
            skipped |= line.starts_with("SKIPPED");
        }
    }
    let status = child.wait().map_err(failed)?;
    Ok((status.code(), skipped))
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
