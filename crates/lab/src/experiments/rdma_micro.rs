//! `rdma-micro`: latency of READ, compare-and-swap and fetch-and-add over size and with 0 to 32 hogs at the target, beside
//! two-sided ways to get the same (Reconfiguration-2004 §4.2, Figures 5 to 9; KLM-2005 §V), and what each takes of
//! the target's CPU.
//!
//! What measures, and how, stands in `rdma_points`; where, in `rdma_place`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_remote::clock;

use crate::rdma_points::{ARMS, Line};
use crate::results::{Axis, Report};

use super::judge::{Table, at_most, median};
use super::measured::{Measured, labelled};
use super::paper::beside;
use super::rdma_place::{DISCLAIMER, RdmaPlace};
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
    let place = RdmaPlace::find();
    let mut bench = Bench {
        lab,
        measured: Measured::default(),
        place: &place,
    };
    let limit = estimate(lab.scale) * 3;
    place.measure(&points(lab.scale), limit, |line| bench.take(line))?;
    let findings = findings(lab.scale, &bench.measured.table, place.prefix());
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

struct Bench<'a> {
    lab: &'a Lab,
    measured: Measured,
    place: &'a RdmaPlace,
}

impl Bench<'_> {
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
                let prefix = self.place.prefix();
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
                let metric = format!("{}target_cpu_ns", self.place.prefix());
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
        let place = if self.place.is_emulated() {
            "emulated machine"
        } else {
            "this machine"
        };
        self.measured.mode = format!("{place}, device {name} ({kind}), {cpus} CPUs");
        if self.place.is_emulated() {
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
    use super::super::rdma_place::EMULATED;
    use super::*;

    #[test]
    fn the_goal_is_a_ratio_of_what_was_measured_with_hogs_and_without() {
        let mut measured = Measured::default();
        for (hogs, p99) in [(0, 100.0), (MOST, 120.0)] {
            let metric = labelled("emulated_p99_us", &format!("{RECORD} hogs={hogs}"));
            measured.record("kernel", &metric, p99);
        }
        let findings = findings(Scale::Quick, &measured.table, EMULATED);
        let verdicts: Vec<_> = findings.verdicts.iter().flatten().collect();
        assert_eq!(verdicts.len(), 1);
        assert!(verdicts[0].reached && (verdicts[0].measured - 1.2).abs() < 1e-9);
    }
}
