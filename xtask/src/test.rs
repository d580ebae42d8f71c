//! The whole test run, one step after the other, and one line at its end that counts it.
//!
//! A test that cannot run on this machine prints a line `SKIPPED: reason` and returns; it is
//! counted as skipped, not as passed, and must be on the list of what may be (`skips`). A step that is no test
//! (format, lints, documentation) counts as one test.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use crate::left;
use crate::skips::{self, Finder, List, Skip};

/// Steps that pass or fail as a whole: name, environment, arguments for cargo.
type Step = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static [&'static str],
);

const STEPS: &[Step] = &[
    ("format", &[], &["fmt", "--all", "--check"]),
    (
        "lints",
        &[],
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ],
    ),
    (
        "documentation",
        &[("RUSTDOCFLAGS", "-D warnings")],
        &[
            "doc",
            "--workspace",
            "--no-deps",
            "--document-private-items",
            "--locked",
        ],
    ),
];

/// `--no-fail-fast` so that one failure does not hide others; `--show-output` for the reasons
/// of skipped tests.
const TESTS: &[&str] = &[
    "test",
    "--workspace",
    "--locked",
    "--no-fail-fast",
    "--",
    "--show-output",
];

/// The same tests, built: how long that takes is no matter of `SILENCE`.
const BUILD: &[&str] = &["test", "--workspace", "--locked", "--no-run"];

/// Tests that print nothing for so long hang; the longest needs two minutes on an idle machine.
const SILENCE: Duration = Duration::from_secs(15 * 60);

/// How a step ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    Good,
    /// What has failed, where the step knows.
    Bad(Vec<String>),
    /// It could not be done here, and why.
    Skipped(String),
}

impl From<bool> for Outcome {
    fn from(good: bool) -> Self {
        if good {
            Self::Good
        } else {
            Self::Bad(Vec::new())
        }
    }
}

impl Outcome {
    /// Whether nothing is wrong; a step that was skipped says so.
    pub(crate) fn said(self) -> bool {
        if let Self::Skipped(why) = &self {
            println!("SKIPPED: {why}");
        }
        !matches!(self, Self::Bad(_))
    }

    /// What a step comes to of which this is one part and the other another.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Bad(mut what), Self::Bad(more)) => {
                what.extend(more);
                Self::Bad(what)
            }
            (Self::Bad(what), _) | (_, Self::Bad(what)) => Self::Bad(what),
            (Self::Skipped(why), _) | (_, Self::Skipped(why)) => Self::Skipped(why),
            (Self::Good, Self::Good) => Self::Good,
        }
    }
}

#[derive(Default)]
struct Count {
    passed: u64,
    failed: u64,
    skipped: Vec<Skip>,
    /// What failed, to be repeated at the end.
    failures: Vec<String>,
}

impl Count {
    /// Counts a step.
    fn step(&mut self, name: &str, outcome: Outcome) {
        match outcome {
            Outcome::Good => self.passed += 1,
            Outcome::Bad(what) if what.is_empty() => {
                self.failed += 1;
                self.failures.push(name.to_owned());
            }
            Outcome::Bad(what) => {
                self.failed += 1;
                let what = what.into_iter().map(|what| format!("{name}: {what}"));
                self.failures.extend(what);
            }
            Outcome::Skipped(why) => {
                println!("SKIPPED: {why}");
                self.skipped.push(Skip::of_step(name, why));
            }
        }
    }
}

/// Runs all of it; true if nothing failed.
pub(crate) fn run(root: &Path) -> Result<bool, String> {
    // What is wrong with the list is said before half an hour of tests.
    let list = List::load(root)?;
    let mut count = Count::default();
    for (name, environment, arguments) in STEPS {
        println!("== {name}");
        let status = Command::new("cargo")
            .current_dir(root)
            .args(*arguments)
            .envs(environment.iter().copied())
            .status()
            .map_err(|error| format!("cargo: {error}"))?;
        count.step(name, status.success().into());
    }
    println!("== MIB");
    count.step("MIB", crate::mib::check(root)?);
    println!("== tests");
    left::adopt()?;
    tests(root, &mut count)?;
    left::adopt_no_more()?;
    println!("== programs of the kernel");
    count.step("programs of the kernel", crate::bpf::check(root)?);
    count.step("other kernels", crate::kernels::check(root)?);
    println!("== RDMA");
    count.step("RDMA", crate::rdma::check(root)?);
    println!("== fuzz targets");
    count.step("fuzz targets", crate::fuzz::check(root)?);
    println!("== pages");
    count.step("pages", crate::web::check(root)?);
    println!("== pages in a browser");
    count.step("pages in a browser", crate::web::browser(root)?);
    println!("== instructions per request");
    let instructions = crate::instructions::check(root)?;
    count.step("instructions per request", instructions);
    println!("== skipped");
    let lost = list.judge(&count.skipped, skips::installs);
    count.failed += lost.len() as u64;
    count.failures.extend(lost);
    for failure in &count.failures {
        println!("FAILED: {failure}");
    }
    println!(
        "{} passed, {} failed, {} skipped",
        count.passed,
        count.failed,
        count.skipped.len()
    );
    Ok(count.failed == 0)
}

/// Runs the tests, passes their output on and counts them.
fn tests(root: &Path, count: &mut Count) -> Result<(), String> {
    let built = Command::new("cargo")
        .current_dir(root)
        .args(BUILD)
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    if !built.success() {
        count.step("build of the tests", false.into());
        return Ok(());
    }
    let mut child = Command::new("cargo")
        .current_dir(root)
        .args(TESTS)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cargo: {error}"))?;
    let output = child.stdout.take().ok_or("cargo's output was not piped")?;
    let cargo = left::pid(&child);
    // What is left behind may hold the output open, so it is ended beside the reading.
    let ended = std::thread::spawn(move || -> Result<_, String> {
        let good = left::wait_for(&child)?;
        Ok((good, left::end_all()?))
    });
    let (mut finder, mut counted_failures, mut passed) = (Finder::default(), 0, 0);
    let mut skipped = Vec::new();
    let lines = lines(output);
    loop {
        let line = match lines.recv_timeout(SILENCE) {
            Ok(line) => line.map_err(|error| format!("cargo: {error}"))?,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let hung = left::end_children_of(cargo)?;
                count.failed += hung.len() as u64;
                let hung = hung.into_iter().map(|it| format!("this hung: {it}"));
                count.failures.extend(hung);
                continue;
            }
        };
        println!("{line}");
        skipped.extend(finder.line(&line));
        if let Some(test) = failure(&line) {
            count.failures.push(test.to_owned());
        }
        if let Some((good, failed)) = result(&line) {
            passed += good;
            counted_failures += failed;
        }
    }
    let ended = ended.join().map_err(|_| "the wait for cargo panicked")?;
    let (good, left) = ended?;
    count.failed += left.len() as u64;
    let left = left.into_iter();
    count
        .failures
        .extend(left.map(|it| format!("a test left this process behind: {it}")));
    let whole = skipped.iter().filter(|skip| skip.is_whole()).count() as u64;
    count.passed += passed.saturating_sub(whole);
    count.skipped.append(&mut skipped);
    // A test binary that died, or did not build, has no line of its own.
    if !good && counted_failures == 0 {
        count.failures.push("cargo test: see above".to_owned());
    }
    count.failed += if good { 0 } else { counted_failures.max(1) };
    Ok(())
}

/// Lines of `output` as they come.
fn lines(output: ChildStdout) -> mpsc::Receiver<std::io::Result<String>> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

/// The name in a line like `test net::tests::x ... FAILED`.
fn failure(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

/// The counts in a line like `test result: ok. 12 passed; 0 failed; 0 ignored; …`.
fn result(line: &str) -> Option<(u64, u64)> {
    let counts = line.strip_prefix("test result: ")?;
    let before = |word: &str| -> Option<u64> {
        counts
            .split(word)
            .next()?
            .rsplit([' ', '.', ';'])
            .find(|word| !word.is_empty())?
            .parse()
            .ok()
    };
    Some((before(" passed")?, before(" failed")?))
}

#[cfg(test)]
mod tests {
    use super::{failure, result};

    #[test]
    fn result_lines_are_counted() {
        let line = "test result: ok. 12 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(result(line), Some((12, 3)));
        assert_eq!(result("test prng::tests::x ... ok"), None);
    }

    #[test]
    fn failures_have_their_names() {
        assert_eq!(
            failure("test prng::tests::x ... FAILED"),
            Some("prng::tests::x")
        );
        assert_eq!(failure("test prng::tests::x ... ok"), None);
    }
}
