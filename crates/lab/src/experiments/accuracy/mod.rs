//! `accuracy`: how near reported load is to actual load (KLM-2005 §5.1, Figure 4), for every rung,
//! and what reading it costs.
//!
//! ```text
//! node         one, with a neighbour that loads its CPU for some time and sleeps for some time:
//!              `bursty` one thread, 50 ms to 1 s; `alternators` one or 16 threads, 200 ms each
//! actual       CPU time of its processes in windows of 10 ms / (10 ms x share)
//! reported     what a front-end knows at the end of the window, from records that it has read
//! error        |reported - actual| per window: mean and p95
//! ```
//!
//! | scheme | rung | where and when the load is measured | utilisation over |
//! |---|---|---|---|
//! | `ulm` | 6 | inside the node's quota at ordinary priority, each 50 ms | its last 50 ms |
//! | `beside` | 5 | beside it at real-time priority, each millisecond | 10 ms |
//! | `kernel_record` | 4 | by a timer in the kernel, each millisecond | 10 ms |
//! | `tc`, `klm` (generic XDP), `xdp_native` | 3, 2, 1 | in the kernel at the moment of the read | 10 ms |
//!
//! Each has a node to itself and is read each millisecond, so all that is between them is where
//! and how they measure. (All at one node they hold each other up: klm's error was up to three
//! times as large.)
//! Agents ask the control group for its CPU time, which the kernel brings up to date when a
//! task stops running and at each tick (4 ms at 250 Hz); the kernel's program counts at every
//! task switch. The actual time is that of the processes' own clocks, which include what runs
//! just now.
//!
//! Source: KLM-2005 §5.1; 10 ms and the time stamps of one clock are the paper's.

mod cost;
mod known;
mod schemes;
mod watch;

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_core::stats;
use tidegate_remote::clock;

use crate::antagonist::Antagonist;
use crate::cluster::{Cluster, ClusterPlan, Mode};
use crate::results::{Axis, Curve, Plot, Report};

use super::judge::{Table, at_least, at_most, median};
use super::measured::{Measured, labelled};
use super::paper::{beside, ranked};
use super::report::{ExperimentFindings, Sketch, report_of};
use super::{Experiment, ExperimentError, Lab, Scale, arms, workload};
use schemes::{SCHEMES, Scheme};
use watch::Sample;

/// See the module.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "accuracy",
    about: "error of the load that every rung reports, against the actual load in 10 ms windows",
    source: "KLM-2005 §5.1, Figure 4",
    needs: "namespaces (root); a kernel that takes BPF programs for rungs 1 to 4",
    estimate,
    run,
    plan: None,
};

/// What the node may use: enough that its neighbour's own spells show.
const SHARE: f64 = 0.9;
const SET_UP: Duration = Duration::from_secs(3);
/// Windows in the picture, and how long they take.
const SHOWN: usize = 300;
const PICTURE: Duration = Duration::from_millis(3500);

/// What loads the node, and in how many rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Neighbour {
    Bursty,
    Alternators(u32),
}

const MANY: Neighbour = Neighbour::Alternators(16);

impl Neighbour {
    fn label(self) -> String {
        match self {
            Self::Bursty => "bursty".into(),
            Self::Alternators(threads) => format!("alternators={threads}"),
        }
    }

    /// Drawn spells differ from round to round, regular ones do not.
    fn rounds(self, scale: Scale) -> u32 {
        match self {
            Self::Bursty => scale.pick(2, 6),
            Self::Alternators(_) => scale.pick(2, 3),
        }
    }

    fn antagonist(self, round: u32) -> Antagonist {
        match self {
            Self::Bursty => Antagonist::Bursty {
                threads: 1,
                duty: 0.5,
                shortest: Duration::from_millis(50),
                longest: Duration::from_secs(1),
                seed: u64::from(round) + 1,
            },
            Self::Alternators(threads) => Antagonist::Alternators {
                threads,
                period: Duration::from_millis(400),
            },
        }
    }
}

fn neighbours(scale: Scale) -> &'static [Neighbour] {
    scale.pick(
        &[Neighbour::Bursty, MANY],
        &[Neighbour::Bursty, Neighbour::Alternators(1), MANY],
    )
}

/// Of a round.
fn length(scale: Scale) -> Duration {
    Duration::from_secs(scale.pick(4, 5))
}

/// Of a scheme's reads whose cost is counted.
fn cost_length(scale: Scale) -> Duration {
    Duration::from_secs(scale.pick(2, 8))
}

fn estimate(scale: Scale) -> Duration {
    let rounds: u32 = neighbours(scale).iter().map(|it| it.rounds(scale)).sum();
    let costs = SCHEMES.iter().filter(|it| it.program.is_some()).count() as u32;
    (SET_UP + length(scale) * rounds) * SCHEMES.len() as u32
        + cost_length(scale) * 2 * costs
        + SET_UP
        + PICTURE
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let mut bench = Bench {
        lab,
        measured: Measured::default(),
    };
    for scheme in &SCHEMES {
        match bench.scheme(scheme) {
            Err(error) if scheme.agent.name == arms::NATIVE => {
                let why = format!("SKIPPED {}: {error}", arms::NATIVE);
                bench.measured.notes.push(why);
            }
            done => done?,
        }
    }
    let picture = bench.picture()?;
    let findings = findings(lab.scale, &bench.measured.table);
    let arms: Vec<_> = names().map(arms::named).collect();
    let took = clock::now().since(started);
    let mut report = report_of(&EXPERIMENT, lab, &arms, bench.measured, findings, took);
    report.plots.push(picture);
    Ok(report)
}

struct Bench<'a> {
    lab: &'a Lab,
    measured: Measured,
}

impl Bench<'_> {
    /// One scheme at a node of its own, with each neighbour in turn.
    fn scheme(&mut self, scheme: &Scheme) -> Result<(), ExperimentError> {
        let (scale, name) = (self.lab.scale, scheme.agent.name);
        let (cluster, node_cpu) = self.cluster(std::slice::from_ref(scheme))?;
        self.measured.mode = cluster.mode().name().into();
        self.measured.emulated = cluster.emulated();
        let length = length(scale);
        if scheme.program.is_some() {
            let text = format!("{name} cost of a read");
            self.lab.progress.step(&text, cost_length(scale) * 2);
        }
        let table = &mut self.measured.table;
        cost::measure(&cluster, node_cpu, scheme, cost_length(scale), table)?;
        for neighbour in neighbours(scale) {
            let label = neighbour.label();
            for round in 0..neighbour.rounds(scale) {
                let text = format!("{name} {label} round {}", round + 1);
                self.lab.progress.step(&text, length);
                let _neighbour = cluster.antagonist(0, &neighbour.antagonist(round))?;
                let samples = watch::watch(&cluster, std::slice::from_ref(scheme), length)?;
                errors(&samples, name, &label, &mut self.measured.table);
                self.measured.raw.push(json!({
                    "scheme": name,
                    "neighbour": label,
                    "columns": ["at_s", "actual", "reported"],
                    "windows": samples.iter().map(Sample::row).collect::<Vec<_>>(),
                }));
            }
        }
        Ok(())
    }

    /// A node with these, which receives on its own CPU, and that CPU.
    fn cluster(&self, schemes: &[Scheme]) -> Result<(Cluster, u32), ExperimentError> {
        let agents: Vec<_> = schemes.iter().map(|it| it.agent.clone()).collect();
        let mut plan: ClusterPlan = workload::unequal(&[SHARE], &agents);
        plan.mode = self.lab.mode;
        self.lab.progress.step("set-up", SET_UP);
        let cluster = Cluster::start(&plan)?;
        if cluster.mode() == Mode::Loopback {
            return Err(ExperimentError::Unfit(
                "accuracy compares the kernel's account with what agents make of it: it needs namespaces mode".into(),
            ));
        }
        cluster.receive_on_nodes_cpu(0)?;
        Ok((cluster, plan.node_cpu))
    }

    /// Three schemes at once at one node.
    fn picture(&self) -> Result<Plot, ExperimentError> {
        let shown = [arms::ULM, arms::BESIDE, arms::KLM];
        let shown = SCHEMES
            .into_iter()
            .filter(|it| shown.contains(&it.agent.name));
        let shown: Vec<_> = shown.collect();
        let (cluster, _) = self.cluster(&shown)?;
        self.lab.progress.step("picture", PICTURE);
        let _neighbour = cluster.antagonist(0, &Neighbour::Bursty.antagonist(0))?;
        let samples = watch::watch(&cluster, &shown, PICTURE)?;
        Ok(picture(&samples, &shown))
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    SCHEMES.into_iter().map(|it| it.agent.name)
}

/// Adds a scheme's errors in percent of the node's share.
fn errors(samples: &[Sample], scheme: &str, label: &str, table: &mut Table) {
    let mut errors: Vec<_> = samples
        .iter()
        .flat_map(|it| {
            it.reported
                .iter()
                .map(|reported| (reported - it.actual).abs() * 100.0)
        })
        .filter(|error| error.is_finite())
        .collect();
    let mean = stats::mean(errors.iter().copied()).unwrap_or(0.0);
    let p95 = stats::quantile(&mut errors, 0.95);
    let known = errors.len() as f64 / (samples.len() as f64).max(1.0) * 100.0;
    let metrics = table.entry(scheme.into()).or_default();
    for (name, value) in [
        ("mean_error_pct", mean),
        ("p95_error_pct", p95.unwrap_or(f64::NAN)),
        ("known_pct", known),
    ] {
        let values = metrics.entry(labelled(name, label)).or_default();
        values.push(value);
    }
}

fn findings(scale: Scale, table: &Table) -> ExperimentFindings {
    let of = |scheme: &str, metric: &str, neighbour: Neighbour| {
        median(table, scheme, &labelled(metric, &neighbour.label()))
    };
    let over = |one: &str, other: &str, metric: &str, neighbour| {
        Some(of(one, metric, neighbour)? / of(other, metric, neighbour)?)
    };
    let (mean, p95) = ("mean_error_pct", "p95_error_pct");
    let bursty = Neighbour::Bursty;
    let least = |goal: &str, value| at_least(goal.into(), value, 10.0);
    let mut verdicts = vec![
        at_most(
            "klm's mean error over ulm's, bursty".into(),
            over(arms::KLM, arms::ULM, mean, bursty),
            0.5,
        ),
        at_most(
            "klm's p95 error over ulm's, bursty".into(),
            over(arms::KLM, arms::ULM, p95, bursty),
            1.0,
        ),
        least(
            "ulm's mean error over klm's, 16 alternators",
            over(arms::ULM, arms::KLM, mean, MANY),
        ),
    ];
    for neighbour in neighbours(scale) {
        let goal = format!(
            "klm's mean error, % of the node's CPU, {}",
            neighbour.label()
        );
        verdicts.push(at_most(goal, of(arms::KLM, mean, *neighbour), 2.0));
    }
    let groups = neighbours(scale).iter().map(|it| it.label());
    let groups = groups.map(|label| (label.clone(), labelled(mean, &label)));
    let names: Vec<_> = names().collect();
    ExperimentFindings {
        paper: [(
            "order".to_owned(),
            beside(
                json!("klm reports almost the actual values; ulm lags, since it is brought up to date each 50 ms"),
                "KLM-2005 §5.1, Figure 4 (no numbers in the text)",
                ranked(table, &names, &labelled(mean, &bursty.label()), false),
                Value::Null,
            ),
        )]
        .into(),
        verdicts,
        notes: vec![
            "klm is rung 2, generic XDP. beside and ulm are read from memory of the host, one-sidedly as by RDMA, all others over UDP. The \
             node takes its packets in on its own CPU."
                .into(),
            "Errors are in percent of the CPU that the node may use. All windows but ulm's are the actual load's, 10 ms; ulm's is its \
             agent's 50 ms. program_us_per_read, switch_ns and softirq_pct are of an idle node that is read 987 times a second; \
             softirq_pct is counted at ticks, with a noise of two tenths."
                .into(),
        ],
        plots: vec![Sketch::Bars {
            title: "Mean error of the reported load".into(),
            groups: groups.collect(),
            y: Axis::from_zero("% of the node's CPU"),
        }],
    }
}

/// Actual and reported load over the first seconds.
fn picture(samples: &[Sample], schemes: &[Scheme]) -> Plot {
    let curve = |name: &str, load: &dyn Fn(&Sample) -> f64| Curve {
        name: name.into(),
        peer: false,
        points: samples
            .iter()
            .take(SHOWN)
            .map(|it| (it.at, load(it)))
            .filter(|it| it.1.is_finite())
            .collect(),
    };
    let actual = curve("actual", &|it| it.actual);
    let reported = schemes.iter().enumerate();
    let reported =
        reported.filter(|(_, it)| [arms::ULM, arms::BESIDE, arms::KLM].contains(&it.agent.name));
    let reported =
        reported.map(|(index, it)| curve(it.agent.name, &|sample| sample.reported[index]));
    Plot::Series {
        title: "Actual and reported load of one node".into(),
        x: Axis::linear("s"),
        y: Axis::from_zero("share of the node's CPU"),
        series: [actual].into_iter().chain(reported).collect(),
        marks: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_absolute_and_in_percent() {
        let sample = |actual, reported| Sample {
            at: 0.0,
            actual,
            reported: vec![reported],
        };
        let mut table = Table::new();
        let samples = [sample(0.5, 0.1), sample(0.5, 0.7), sample(0.5, f64::NAN)];
        errors(&samples, "ulm", "x=1", &mut table);
        assert!((table["ulm"]["mean_error_pct[x=1]"][0] - 30.0).abs() < 1e-9);
        assert!((table["ulm"]["p95_error_pct[x=1]"][0] - 40.0).abs() < 1e-9);
        assert!((table["ulm"]["known_pct[x=1]"][0] - 200.0 / 3.0).abs() < 1e-9);
    }
}
