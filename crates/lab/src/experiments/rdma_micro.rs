//! `rdma-micro`: latency of READ, compare-and-swap and fetch-and-add over size and with 0 to 32 hogs at the target, beside
//! two-sided ways to get the same (Reconfiguration-2004 §4.2, Figures 5 to 9; KLM-2005 §V), and what each takes of
//! the target's CPU.
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

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_remote::clock;
use tidegate_remote::rdma::RdmaDevice;

use crate::rdma_points::{ARMS, COMMAND, Line};
use crate::results::{Axis, Report};

use super::judge::{Table, at_most, median};
use super::measured::{Measured, labelled};
use super::paper::beside;
use super::report::{ExperimentFindings, Sketch, report_of};
use super::{Experiment, ExperimentError, Lab, Scale, arms};

/// See the module.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "rdma-micro",
    about: "latency of READ, compare-and-swap and fetch-and-add over size and with 0 to 32 hogs at the target, beside two-sided ways",
    source: "Reconfiguration-2004 §4.2, Figures 5 to 9; KLM-2005 §5",
    needs: "an RDMA device, or what scripts/kernel-vm.sh needs to emulate one",
    estimate,
    run,
    plan: None,
};

/// What every table of an emulated machine says in its title.
const EMULATED: &str = "emulated_";
const DISCLAIMER: &str = "Emulated: order and isolation mean something, microseconds do not. One machine (qemu without hardware virtualisation, Linux 6.1) \
     has reader and target, and its kernel plays the device (Soft-RoCE on its loopback interface), on the CPU of the reader.";
/// The machine's own limit of time, in seconds.
const LIMIT: &str = "LIMIT";
/// How the script says that there is no machine.
const CANNOT: i32 = 77;
const SCRIPT: &str = "scripts/kernel-vm.sh";
const SERIES: &str = "6.1";

const MOST: u32 = 32;
const LARGEST: &str = "bytes=1344";
const RECORD: &str = "bytes=320";

/// Options of `rdma-points`.
fn points(scale: Scale) -> [(&'static str, &'static str); 6] {
    scale.pick(
        [
            ("--hogs", "0,32"),
            ("--lines", "1,21"),
            ("--operations", "400"),
            ("--longest-ms", "1000"),
            ("--rounds", "1"),
            ("--counted", "10000"),
        ],
        [
            ("--hogs", "0,1,4,16,32"),
            ("--lines", "1,4,16,21"),
            ("--operations", "1000"),
            ("--longest-ms", "1500"),
            ("--rounds", "2"),
            ("--counted", "100000"),
        ],
    )
}

fn hogs(scale: Scale) -> &'static [u32] {
    scale.pick(&[0, MOST], &[0, 1, 4, 16, MOST])
}

fn estimate(scale: Scale) -> Duration {
    Duration::from_secs(scale.pick(80, 430))
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let here = RdmaDevice::open(None).is_ok();
    let mut bench = Bench {
        lab,
        measured: Measured::default(),
        emulated: !here,
    };
    let program = std::env::current_exe().map_err(|error| unfit(&error))?;
    let mut command = match here {
        true => Command::new(program),
        false => {
            let mut command = Command::new(script(&program)?);
            let limit = estimate(lab.scale).as_secs() * 3;
            command
                .env(LIMIT, limit.to_string())
                .env("THREADS", "multi");
            command.args(["--rdma", SERIES]).arg(program);
            command
        }
    };
    command.arg(COMMAND);
    for (option, value) in points(lab.scale) {
        command.args([option, value]);
    }
    bench.read(&mut command)?;
    let findings = findings(lab.scale, &bench.measured.table, bench.prefix());
    let arms: Vec<_> = ARMS.iter().map(|name| arms::named(name)).collect();
    let took = clock::now().since(started);
    Ok(report_of(
        &EXPERIMENT,
        lab,
        &arms,
        bench.measured,
        findings,
        took,
    ))
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

struct Bench<'a> {
    lab: &'a Lab,
    measured: Measured,
    emulated: bool,
}

impl Bench<'_> {
    fn prefix(&self) -> &'static str {
        if self.emulated { EMULATED } else { "" }
    }

    /// Takes what the program says, wherever it runs.
    fn read(&mut self, command: &mut Command) -> Result<(), ExperimentError> {
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
                        self.take(&line);
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
            Some(CANNOT) if self.emulated => {
                let why =
                    format!("SKIPPED: no RDMA device is here, and none can be emulated: {said}");
                Err(ExperimentError::Unfit(why))
            }
            _ => Err(ExperimentError::Read(format!("{}: {said}", output.status))),
        }
    }

    fn take(&mut self, line: &Line) {
        match line {
            Line::Device {
                name,
                in_software,
                cpus,
            } => self.device(name, *in_software, *cpus),
            Line::Point {
                arm,
                label,
                round,
                failed,
                p50_us,
                p99_us,
                ..
            } => {
                let progress = &self.lab.progress;
                progress.message(&format!("{arm} {label} round {}", round + 1));
                let prefix = self.prefix();
                for (quantity, value) in [("p50_us", p50_us), ("p99_us", p99_us)] {
                    let metric = labelled(&format!("{prefix}{quantity}"), label);
                    self.measured.record(arm, &metric, *value);
                }
                let failed =
                    (*failed > 0).then(|| format!("{arm} {label}: {failed} without an answer"));
                self.measured.notes.extend(failed);
            }
            Line::Cpu {
                arm,
                stopped,
                answered,
                failed,
                target_ns,
            } => {
                let each = *target_ns as f64 / f64::from((*answered).max(1));
                let label = if *stopped {
                    "target=stopped"
                } else {
                    "target=runs"
                };
                let metric = format!("{}target_cpu_ns", self.prefix());
                self.measured.record(arm, &labelled(&metric, label), each);
                self.measured.notes.push(format!(
                    "{arm}, {label}: {answered} reads were answered, {failed} were not; the target's process took {target_ns} ns of CPU."
                ));
            }
            Line::Without { arm, why } => {
                self.measured.notes.push(format!("SKIPPED {arm}: {why}"));
            }
            Line::End { .. } => {}
        }
        self.measured.raw.push(json!(line));
    }

    fn device(&mut self, name: &str, in_software: bool, cpus: usize) {
        let kind = if in_software { "in software" } else { "a card" };
        let place = if self.emulated {
            "emulated machine"
        } else {
            "this machine"
        };
        self.measured.mode = format!("{place}, device {name} ({kind}), {cpus} CPUs");
        if self.emulated {
            self.measured.emulated.push(DISCLAIMER.into());
        }
    }
}

fn findings(scale: Scale, table: &Table, prefix: &str) -> ExperimentFindings {
    let p99 = |arm: &str, what: &str, hogs: u32| {
        let metric = labelled(&format!("{prefix}p99_us"), &format!("{what} hogs={hogs}"));
        median(table, arm, &metric)
    };
    let growth = |arm: &str, what: &str| Some(p99(arm, what, MOST)? / p99(arm, what, 0)?);
    let grows = |arm: &str, what: &str, level: &str| {
        let goal = format!("{arm} ({level}), {what}: p99 with {MOST} hogs over none");
        at_most(goal, growth(arm, what), 1.5)
    };
    let cpu = |arm: &str, label: &str| {
        let metric = format!("{prefix}target_cpu_ns");
        median(table, arm, &labelled(&metric, label))
    };
    let mut verdicts = vec![
        grows("kernel", RECORD, "the kernel's record, the target stopped"),
        grows("read", LARGEST, "one READ"),
        grows("read", "op=cas", "compare-and-swap"),
        grows("read", "op=faa", "fetch-and-add"),
        at_most(
            "CPU of the stopped target per READ, all of which are answered, ns".into(),
            cpu("read", "target=stopped"),
            0.0,
        ),
        at_most(
            "CPU of the running target per READ (each 500 ms the reader says that it reads) over that per datagram".into(),
            cpu("read", "target=runs")
                .zip(cpu("udp", "target=runs"))
                .map(|(one, other)| one / other),
            0.05,
        ),
    ];
    for other in ["udp", "tcp"] {
        let both = p99("read", LARGEST, MOST).zip(p99(other, LARGEST, MOST));
        verdicts.push(at_most(
            format!("one READ's p99 over {other}'s, {LARGEST}, {MOST} hogs"),
            both.map(|(one, other)| one / other),
            1.0,
        ));
    }
    ExperimentFindings {
        paper: papers(table, prefix),
        verdicts,
        notes: vec![
            "read is one READ or atomic; record is a record as the front-end reads it (word 0 with it; where a device in software may \
             split lines three READs), kernel the same of a record that the kernel makes each 5 ms, without words. udp and tcp answer at normal priority, \
             udp_realtime at real-time priority."
                .into(),
            "A record has 1344 bytes at most, and nothing larger is registered: sizes end there, and not at 4 KiB as in the papers.".into(),
        ],
        plots: plots(scale, prefix),
    }
}

fn plots(scale: Scale, prefix: &str) -> Vec<Sketch> {
    let axis = || Axis {
        label: "us".into(),
        log: true,
        zero: false,
    };
    let title = |what: &str| match prefix {
        "" => what.to_owned(),
        _ => format!("{what} (emulated)"),
    };
    let by_hogs = |quantity: &str, what: &str| -> Vec<(String, String)> {
        let label = |hogs: &u32| format!("hogs={hogs}");
        let group = |hogs: &u32| {
            let metric = format!("{prefix}{quantity}");
            (
                label(hogs),
                labelled(&metric, &format!("{what} {}", label(hogs))),
            )
        };
        hogs(scale).iter().map(group).collect()
    };
    let bars = |what: &str, quantity: &str, of: &str| Sketch::Bars {
        title: title(what),
        groups: by_hogs(quantity, of),
        y: axis(),
    };
    vec![
        bars("p99 of reading 1344 bytes", "p99_us", LARGEST),
        bars("p50 of reading 1344 bytes", "p50_us", LARGEST),
        bars("p99 of a record of 320 bytes", "p99_us", RECORD),
        bars("p99 of compare-and-swap", "p99_us", "op=cas"),
    ]
}

/// The papers' figures beside ours.
fn papers(table: &Table, prefix: &str) -> BTreeMap<String, Value> {
    let ours = |label: String| -> Value {
        let metric = labelled(&format!("{prefix}p50_us"), &label);
        let row = |arm: &String| Some((arm.clone(), json!(median(table, arm, &metric)?.round())));
        Value::Object(table.keys().filter_map(row).collect())
    };
    let rows = [
        (
            "median latency of a small read, us",
            "RDMA Read 11.89 (polling) and 23.97 (events), IPoIB 53.8",
            "Reconfiguration-2004 §4.2, Figure 5a, one byte",
            "bytes=64 hogs=0".to_owned(),
        ),
        (
            "the same with background threads",
            "RDMA Read stays as it is, IPoIB grows with the threads",
            "Reconfiguration-2004 §4.2, Figure 9a",
            format!("bytes=64 hogs={MOST}"),
        ),
    ];
    rows.into_iter()
        .map(|(name, figure, source, label)| {
            let row = beside(json!(figure), source, ours(label), Value::Null);
            (name.to_owned(), row)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::awake::Awake;
    use crate::experiments::Part;
    use crate::progress::Progress;

    fn lab() -> Lab {
        Lab {
            scale: Scale::Quick,
            mode: None,
            part: Part::default(),
            progress: Progress::silent(),
            awake: Awake::start(Path::new("/nonexistent")),
        }
    }

    fn said(script: &str) -> Result<Measured, ExperimentError> {
        let lab = lab();
        let mut bench = Bench {
            lab: &lab,
            measured: Measured::default(),
            emulated: true,
        };
        bench.read(Command::new("sh").args(["-c", script]))?;
        Ok(bench.measured)
    }

    #[test]
    fn points_are_taken_from_among_what_a_machine_says() {
        let device = r#"{"line":"device","name":"rxe0","in_software":true,"cpus":2}"#;
        let point = |hogs: u32, p99: f64| {
            format!(
                r#"{{"line":"point","arm":"kernel","label":"bytes=320 hogs={hogs}","round":0,"count":9,"failed":0,"p50_us":1.0,"p99_us":{p99}}}"#
            )
        };
        let all = format!(
            "echo 'kernel-vm: Linux'; printf '%s\\r\\n' '{device}' '{}' '{}' '{{\"line\":\"end\",\"lines\":3}}'",
            point(0, 100.0),
            point(32, 120.0)
        );
        let measured = said(&all).unwrap();
        assert!(measured.emulated[0].starts_with("Emulated: order and isolation mean something"));
        let findings = findings(Scale::Quick, &measured.table, EMULATED);
        let verdicts: Vec<_> = findings.verdicts.iter().flatten().collect();
        assert_eq!(verdicts.len(), 1);
        assert!(verdicts[0].reached && (verdicts[0].measured - 1.2).abs() < 1e-9);
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
