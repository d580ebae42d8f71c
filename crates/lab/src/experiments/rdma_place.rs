//! Runs `rdma-points` where an RDMA device is, and takes what it says line by line.
//!
//! ```text
//! a device here    tidegate-lab rdma-points           this machine
//! none             scripts/kernel-vm.sh --rdma 6.1    an emulated machine, whose kernel plays the device
//! ```
//!
//! What measures, and how, stands in `rdma_points`. In the emulated machine a request goes from one process to the other
//! within one kernel, and the CPU of the reader does the device's work: that no process of the target has a part in it,
//! and that all others wait for their turn behind hogs, is true there too. Microseconds are not. The emulator has a thread
//! for each CPU: with one for both a CPU full of hogs would hold up the reader's.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tidegate_remote::rdma::RdmaDevice;

use crate::rdma_points::{COMMAND, Line};

use super::ExperimentError;

/// What every table of an emulated machine says in its title.
pub(super) const EMULATED: &str = "emulated_";
pub(super) const DISCLAIMER: &str = "Emulated: order and isolation mean something, microseconds do not. One machine (qemu without hardware virtualisation, Linux 6.1) \
     has reader and target, and its kernel plays the device (Soft-RoCE on its loopback interface), on the CPU of the reader.";
/// The machine's own limit of time, in seconds.
const LIMIT: &str = "LIMIT";
/// How the script says that there is no machine.
const CANNOT: i32 = 77;
const SCRIPT: &str = "scripts/kernel-vm.sh";
const SERIES: &str = "6.1";

/// Where `rdma-points` runs.
#[derive(Debug)]
pub(super) struct RdmaPlace {
    is_here: bool,
}

impl RdmaPlace {
    pub(super) fn find() -> Self {
        Self {
            is_here: RdmaDevice::open(None).is_ok(),
        }
    }

    pub(super) fn is_emulated(&self) -> bool {
        !self.is_here
    }

    /// What metrics of this place begin with.
    pub(super) fn prefix(&self) -> &'static str {
        if self.is_here { "" } else { EMULATED }
    }

    /// Measures with these options; an emulated machine may take so long.
    pub(super) fn measure(
        &self,
        options: &[(&str, &str)],
        limit: Duration,
        take: impl FnMut(&Line),
    ) -> Result<(), ExperimentError> {
        let program = std::env::current_exe().map_err(|error| unfit(&error))?;
        let mut command = match self.is_here {
            true => Command::new(program),
            false => {
                let mut command = Command::new(script(&program)?);
                command
                    .env(LIMIT, limit.as_secs().to_string())
                    .env("THREADS", "multi");
                command.args(["--rdma", SERIES]).arg(program);
                command
            }
        };
        command.arg(COMMAND);
        for (option, value) in options {
            command.args([option, value]);
        }
        self.read(&mut command, take)
    }

    /// Takes what the program says, wherever it runs.
    fn read(
        &self,
        command: &mut Command,
        mut take: impl FnMut(&Line),
    ) -> Result<(), ExperimentError> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.map_err(|error| unfit(&error))?;
        let (mut lines, mut end, mut last) = (0, None, String::new());
        if let Some(output) = child.stdout.take() {
            for line in BufReader::new(output).split(b'\n') {
                let line = line.map_err(|error| unfit(&error))?;
                let line = String::from_utf8_lossy(&line);
                match serde_json::from_str(line.trim()) {
                    Ok(Line::End { lines }) => end = Some(lines),
                    Ok(line) => {
                        lines += 1;
                        take(&line);
                    }
                    // What the machine's kernel says.
                    Err(_) => last = line.trim().to_owned(),
                }
            }
        }
        let output = child.wait_with_output().map_err(|error| unfit(&error))?;
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().lines().last().unwrap_or(&last).to_owned();
        match output.status.code() {
            Some(0) if end == Some(lines) => Ok(()),
            Some(0) => Err(ExperimentError::Read(format!(
                "{lines} lines came, of {}",
                end.unwrap_or_default()
            ))),
            Some(CANNOT) if self.is_emulated() => {
                let why =
                    format!("SKIPPED: no RDMA device is here, and none can be emulated: {said}");
                Err(ExperimentError::Unfit(why))
            }
            _ => Err(ExperimentError::Read(format!("{}: {said}", output.status))),
        }
    }
}

fn unfit(error: &dyn std::fmt::Display) -> ExperimentError {
    ExperimentError::Unfit(error.to_string())
}

/// The script of the sources that this program was built from, or of those in which it is run.
fn script(program: &Path) -> Result<PathBuf, ExperimentError> {
    let beside = program.ancestors().map(|it| it.join(SCRIPT));
    let mut all = beside.chain([PathBuf::from(SCRIPT)]);
    all.find(|it| it.is_file()).ok_or_else(|| {
        let why = format!("SKIPPED: no RDMA device is here, and no {SCRIPT} to emulate one");
        ExperimentError::Unfit(why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(script: &str) -> Result<Vec<Line>, ExperimentError> {
        let place = RdmaPlace { is_here: false };
        let mut lines = Vec::new();
        let mut command = Command::new("sh");
        place.read(command.args(["-c", script]), |line| {
            lines.push(line.clone())
        })?;
        Ok(lines)
    }

    #[test]
    fn lines_are_taken_from_among_what_a_machine_says() {
        let device = r#"{"line":"device","name":"rxe0","in_software":true,"cpus":2}"#;
        let all = format!(
            "echo 'kernel-vm: Linux'; printf '%s\\r\\n' '{device}' '{{\"line\":\"end\",\"lines\":1}}'"
        );
        let expected = Line::Device {
            name: "rxe0".into(),
            in_software: true,
            cpus: 2,
        };
        assert_eq!(said(&all).unwrap(), [expected]);
    }

    #[test]
    fn a_machine_that_cannot_be_had_is_a_skip_and_lost_lines_are_an_error() {
        let skipped = said("echo 'kernel-vm: qemu is missing' >&2; exit 77").unwrap_err();
        let text = skipped.to_string();
        assert!(
            text.starts_with("SKIPPED: ") && text.ends_with("qemu is missing"),
            "{text}"
        );
        let lost = said(r#"echo '{"line":"end","lines":3}'"#).unwrap_err();
        assert_eq!(lost.to_string(), "0 lines came, of 3");
        assert!(said("exit 1").is_err());
    }
}
