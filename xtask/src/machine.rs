//! Test programs of `crates/remote` in emulated machines (`scripts/kernel-vm.sh`).

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::test::Outcome;

/// How `scripts/kernel-vm.sh` says that there is no machine.
const CANNOT: i32 = 77;

/// Which machine, as the script is asked for it, and what is run there.
pub(crate) struct Machine<'a> {
    /// Linux of this series.
    pub(crate) series: &'a str,
    /// Options of the script.
    pub(crate) options: &'a [&'a str],
    pub(crate) program: &'a Path,
    pub(crate) arguments: &'a [&'a str],
}

/// Runs the tests and passes on what they say. It has failed where a test did, where one found that it cannot run there,
/// in a machine in which it may do everything, and where none ran.
pub(crate) fn run(root: &Path, machine: &Machine<'_>) -> Result<Outcome, String> {
    let failed = |error| format!("scripts/kernel-vm.sh: {error}");
    let mut child = Command::new(root.join("scripts/kernel-vm.sh"))
        .args(machine.options)
        .arg(machine.series)
        .arg(machine.program)
        .args(machine.arguments)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let (mut skipped, mut ran) = (false, false);
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line.map_err(failed)?;
            let line = String::from_utf8_lossy(&line);
            println!("{}", line.trim_end());
            skipped |= line.starts_with("SKIPPED");
            ran |= line.starts_with("test ") && line.trim_end().ends_with(" ok");
        }
    }
    let status = child.wait().map_err(failed)?;
    Ok(match status.code() {
        Some(0) if skipped => {
            println!("a test was skipped in a machine in which it may do everything");
            Outcome::Bad
        }
        Some(0) if !ran => {
            println!("no test ran in the machine");
            Outcome::Bad
        }
        Some(0) => Outcome::Good,
        Some(CANNOT) => Outcome::Skipped(format!(
            "no machine with Linux {}; the line above says why",
            machine.series
        )),
        _ => Outcome::Bad,
    })
}

/// Builds a test program of `crates/remote`: that of its unit tests, or one of its folder `tests`.
pub(crate) fn build(root: &Path, which: &[&str]) -> Result<PathBuf, String> {
    let output = Command::new("cargo")
        .current_dir(root)
        .args(["test", "--locked", "--package", "tidegate-remote"])
        .args(which)
        .arg("--no-run")
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    // "  Executable unittests src/lib.rs (target/debug/deps/tidegate_remote-…)"
    let line = text.lines().find(|line| line.contains("Executable"));
    let path = line.and_then(|line| line.split_once('(')?.1.strip_suffix(')'));
    path.map(|path| root.join(path))
        .ok_or_else(|| format!("cargo built no tests: {text}"))
}
