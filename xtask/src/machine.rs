//! Test programs in emulated machines (`scripts/kernel-vm.sh`).

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
    /// Another program that is there.
    pub(crate) with: Option<&'a Path>,
    /// Variables of the script's environment, which the program has too.
    pub(crate) variables: &'a [(&'a str, &'a str)],
    /// What lines of its output begin with, where two machines have theirs at once.
    pub(crate) label: &'a str,
    /// Seconds that it may run; not set: as many as the script gives it.
    pub(crate) limit: Option<u32>,
    pub(crate) program: &'a Path,
    pub(crate) arguments: &'a [&'a str],
}

/// Runs the tests and passes on what they say. It has failed where a test did, where one found that it cannot run there,
/// in a machine in which it may do everything, and where none ran.
pub(crate) fn run(root: &Path, machine: &Machine<'_>) -> Result<Outcome, String> {
    let failed = |error| format!("scripts/kernel-vm.sh: {error}");
    let mut command = Command::new(root.join("scripts/kernel-vm.sh"));
    command.args(machine.options);
    if let Some(with) = machine.with {
        command.arg("--with").arg(with);
    }
    if let Some(limit) = machine.limit {
        command.env("LIMIT", limit.to_string());
    }
    let mut child = command
        .envs(machine.variables.iter().copied())
        .arg(machine.series)
        .arg(machine.program)
        .args(machine.arguments)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let (mut skipped, mut ran, mut said) = (false, false, Said::default());
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line.map_err(failed)?;
            let line = String::from_utf8_lossy(&line);
            println!("{}{}", machine.label, line.trim_end());
            said.line(line.trim_end());
            skipped |= line.starts_with("SKIPPED");
            ran |= line.starts_with("test ") && line.trim_end().ends_with(" ok");
        }
    }
    let status = child.wait().map_err(failed)?;
    Ok(match status.code() {
        Some(0) if skipped => bad("a test was skipped in a machine in which it may do everything"),
        Some(0) if !ran => bad("no test ran in the machine"),
        Some(0) => Outcome::Good,
        Some(CANNOT) => Outcome::Skipped(format!(
            "no machine with Linux {}; the line above says why",
            machine.series
        )),
        _ => Outcome::Bad(said.failures()),
    })
}

fn bad(why: &str) -> Outcome {
    println!("{why}");
    Outcome::Bad(vec![why.to_owned()])
}

/// What a test program has said about failures, line by line.
#[derive(Debug, Default)]
struct Said {
    failed: Vec<String>,
    /// By the test: where it panicked, and with what.
    reasons: Vec<(String, String)>,
    /// The line before was where a test panicked.
    reason_follows: bool,
    /// The test that has begun and not ended.
    current: Option<String>,
    /// What the script says of the machine.
    machine: Option<String>,
}

impl Said {
    fn line(&mut self, line: &str) {
        if std::mem::take(&mut self.reason_follows)
            && let Some((_, reason)) = self.reasons.last_mut()
        {
            reason.push_str(line);
        }
        if let Some((test, ended)) = line
            .strip_prefix("test ")
            .and_then(|line| line.split_once(" ..."))
        {
            let ended = ended.trim();
            self.current = ended.is_empty().then(|| test.to_owned());
            if ended.ends_with("FAILED") {
                self.failed.push(test.to_owned());
            }
        } else if let Some((test, place)) = line
            .strip_prefix("thread '")
            .and_then(|line| line.split_once('\''))
            && let Some((_, place)) = place.split_once("panicked at ")
        {
            self.reasons.push((test.to_owned(), format!("{place} ")));
            self.reason_follows = true;
        } else if line.starts_with("kernel-vm: the ") {
            self.machine = Some(line.to_owned());
        }
    }

    /// Each test that failed, and why.
    fn failures(&self) -> Vec<String> {
        let why = |test: &String| {
            let reason = self.reasons.iter().find(|(of, _)| of == test);
            match reason {
                Some((_, reason)) => format!("{test}: {reason}"),
                None => test.clone(),
            }
        };
        let mut failures: Vec<_> = self.failed.iter().map(why).collect();
        if let Some(machine) = &self.machine {
            let during = self.current.as_ref();
            let during = during.map_or_else(String::new, |test| format!(", in {test}"));
            failures.push(format!("{machine}{during}"));
        }
        failures
    }
}

/// Builds a test program of a package: that of its unit tests, or one of its folder `tests`.
pub(crate) fn build(root: &Path, package: &str, which: &[&str]) -> Result<PathBuf, String> {
    let output = Command::new("cargo")
        .current_dir(root)
        .args(["test", "--locked", "--package", package])
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

#[cfg(test)]
mod tests {
    use super::*;

    fn failures(text: &str) -> Vec<String> {
        let mut said = Said::default();
        text.lines().for_each(|line| said.line(line));
        said.failures()
    }

    #[test]
    fn a_test_that_fails_is_named_with_its_reason() {
        let text = "test a::good ... ok\n\
            test a::bad ... FAILED\n\
            test a::worse ... FAILED\n\
            ---- a::bad stdout ----\n\
            thread 'a::bad' (12) panicked at tests/a.rs:7:5:\n\
            it is 3\n\
            note: run with";
        let expected = ["a::bad: tests/a.rs:7:5: it is 3", "a::worse"];
        assert_eq!(failures(text), expected);
    }

    #[test]
    fn a_test_that_hangs_is_named() {
        let text = "test a::good ... ok\n\
            test a::hangs ... \n\
            kernel-vm: the program did not end within 900 s";
        let expected = ["kernel-vm: the program did not end within 900 s, in a::hangs"];
        assert_eq!(failures(text), expected);
        assert!(failures("test a::good ... ok").is_empty());
    }
}
