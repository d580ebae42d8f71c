//! Instructions per request: by hardware counters where the machine has them, else by callgrind.
//!
//! * perf: `perf stat -p PID` over one load; user and kernel instructions.
//! * callgrind: the program runs in a simulated CPU, some fifty times slower; user instructions
//!   only. A first load warms it up, then the counts are set to zero, and what the second load
//!   adds is divided by its requests.
//!
//! Source of the method: the counts repeat to about 2 %, where CPU time of a shared machine does
//! not.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::front::{FrontEnd, FrontKind};

use super::plan::Arm;
use super::{ExperimentError, Scale};

/// Loads under a counter.
const WARM_UP: Duration = Duration::from_secs(1);
const COUNTED: Duration = Duration::from_secs(4);

/// What counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counter {
    /// Hardware counters.
    Perf,
    /// A simulated CPU.
    Callgrind,
}

/// The arms that are counted: all, but in a short run not those that take long to start in a
/// simulated CPU.
pub(super) fn arms(scale: Scale, arms: &[Arm]) -> Vec<Arm> {
    let short = |arm: &&Arm| matches!(arm.kind, FrontKind::Tidegate(_) | FrontKind::Haproxy(_));
    let counted = arms.iter().filter(|arm| scale == Scale::Full || short(arm));
    counted.cloned().collect()
}

impl Counter {
    /// The best one that works here.
    pub(super) fn find() -> Result<Self, String> {
        let perf = Command::new("perf")
            .args(["stat", "-e", "instructions:u", "true"])
            .output();
        let counts = |output: std::process::Output| {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            output.status.success()
                && !text.contains("not supported")
                && !text.contains("not counted")
        };
        if perf.is_ok_and(counts) {
            return Ok(Self::Perf);
        }
        let valgrind = Command::new("valgrind")
            .arg("--version")
            .stdout(Stdio::null())
            .status();
        match valgrind {
            Ok(status) if status.success() => Ok(Self::Callgrind),
            _ => Err("there are neither hardware counters for perf nor valgrind".into()),
        }
    }

    pub(super) fn note(self) -> &'static str {
        match self {
            Self::Perf => "Instructions by hardware counters (perf), user and kernel.",
            Self::Callgrind => {
                "Instructions by callgrind, user only: this machine shows no hardware counters. A simulated CPU is some fifty \
                 times slower, so what is done by the clock and not by the request (auto's reads of load) counts fifty times."
            }
        }
    }

    /// What the program is run under.
    pub(super) fn under(self, folder: &Path) -> Vec<String> {
        match self {
            Self::Perf => Vec::new(),
            Self::Callgrind => vec![
                "valgrind".into(),
                "--quiet".into(),
                "--tool=callgrind".into(),
                "--trace-children=yes".into(),
                format!("--callgrind-out-file={}/callgrind.%p", folder.display()),
            ],
        }
    }

    /// Loads it, and counts.
    pub(super) fn count(
        self,
        front: &FrontEnd,
        folder: &Path,
        load: impl Fn(Duration) -> Result<u64, ExperimentError>,
    ) -> Result<Vec<(&'static str, f64)>, ExperimentError> {
        load(WARM_UP)?;
        match self {
            Self::Perf => perf(front, load),
            Self::Callgrind => callgrind(front, folder, load),
        }
    }
}

fn perf(
    front: &FrontEnd,
    load: impl Fn(Duration) -> Result<u64, ExperimentError>,
) -> Result<Vec<(&'static str, f64)>, ExperimentError> {
    let pids: Vec<_> = front.processes().iter().map(u32::to_string).collect();
    let failed = |error: std::io::Error| ExperimentError::Unfit(format!("perf: {error}"));
    // It ends by itself some time after the load.
    let seconds = (COUNTED + Duration::from_secs(2)).as_secs().to_string();
    let child = Command::new("perf")
        .args([
            "stat",
            "-x,",
            "-e",
            "instructions:u,instructions:k",
            "-p",
            &pids.join(","),
        ])
        .args(["sleep", &seconds])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let answered = load(COUNTED)?;
    let output = child.wait_with_output().map_err(failed)?;
    let text = String::from_utf8_lossy(&output.stderr);
    let of = |event: &str| {
        let line = text.lines().find(|line| line.contains(event))?;
        line.split(',').next()?.parse::<f64>().ok()
    };
    let per = |count: Option<f64>| count.unwrap_or(f64::NAN) / answered as f64;
    Ok(vec![
        ("user_instructions", per(of("instructions:u"))),
        ("kernel_instructions", per(of("instructions:k"))),
    ])
}

fn callgrind(
    front: &FrontEnd,
    folder: &Path,
    load: impl Fn(Duration) -> Result<u64, ExperimentError>,
) -> Result<Vec<(&'static str, f64)>, ExperimentError> {
    let pids: Vec<_> = front.processes().iter().map(u32::to_string).collect();
    control("--zero", &pids)?;
    let answered = load(COUNTED)?;
    control("--dump", &pids)?;
    let counted: f64 = pids.iter().map(|pid| dumped(folder, pid)).sum();
    Ok(vec![("user_instructions", counted / answered as f64)])
}

fn control(what: &str, pids: &[String]) -> Result<(), ExperimentError> {
    let output = Command::new("callgrind_control")
        .arg(what)
        .args(pids)
        .output();
    let output =
        output.map_err(|error| ExperimentError::Unfit(format!("callgrind_control: {error}")))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let told = String::from_utf8_lossy(&output.stderr);
            Err(ExperimentError::Unfit(format!(
                "callgrind_control {what}: {}",
                told.trim()
            )))
        }
    }
}

/// Instructions in all dumps of a process.
fn dumped(folder: &Path, pid: &str) -> f64 {
    let prefix = format!("callgrind.{pid}.");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
    ours.map(|entry| total(&std::fs::read_to_string(entry.path()).unwrap_or_default()))
        .sum()
}

/// The `totals:` (or, per part, `summary:`) of a dump.
fn total(text: &str) -> f64 {
    let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let found = line("totals:").or_else(|| line("summary:"));
    found
        .and_then(|it| it.split_whitespace().next()?.parse().ok())
        .unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_tells_its_total() {
        assert!((total("events: Ir\nfn=a\n1 2\ntotals: 12345\n") - 12345.0).abs() < 1e-9);
        assert!((total("summary: 7\n") - 7.0).abs() < 1e-9);
        assert!(total("").abs() < 1e-9);
    }
}
