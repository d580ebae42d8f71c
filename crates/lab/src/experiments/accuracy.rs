//! `accuracy`: how near reported load is to actual load (paper 000 §5.1, Figure 4).
//!
//! ```text
//! node         one, with a bursty neighbour: loads its CPU for some time, sleeps for some time
//! actual       CPU time of its processes in windows of 10 ms / (10 ms x share)
//! reported     what a front-end knows at the end of the window, from records that it has read:
//!   ulm        utilisation between the agent's last two measurements, 50 ms apart
//!   beside     utilisation between the newest record and one at least 10 ms older
//!   klm        the same
//! error        |reported - actual| per window: mean and p95
//! ```
//!
//! All are read each millisecond, so all that is between them is where and how they measure:
//! inside the node's quota at ordinary priority each 50 ms (ulm, rung 6), beside it at real-time
//! priority each millisecond (rung 5), or in the kernel at the moment of the read (klm, rung 2).
//! Agents ask the control group for its CPU time, which the kernel brings up to date when a
//! task stops running and at each tick (4 ms at 250 Hz); the kernel's program counts at every
//! task switch. The actual time is that of the processes' own clocks, which include what runs
//! just now.
//!
//! Source: paper 000 §5.1; 10 ms and the time stamps of one clock are the paper's.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_core::load::Rates;
use tidegate_core::record::{LINES_MAX, LoadRecord};
use tidegate_core::time::Timestamp;
use tidegate_remote::realtime::{PRIORITY, try_fifo};
use tidegate_remote::shm::ShmRegion;
use tidegate_remote::udp::{Key, UdpOptions, UdpRegion};
use tidegate_remote::{Region, clock};

use crate::antagonist::Antagonist;
use crate::cluster::{Cluster, ClusterPlan, LoadAt, Mode, Node};
use crate::results::{Axis, Curve, Plot, Report};

use super::judge::{Table, at_most, median};
use super::measured::Measured;
use super::paper::{beside, ranked};
use super::plan::Arm;
use super::report::{Findings, report_of};
use super::{Experiment, ExperimentError, Lab, Scale, arms, workload};

/// See the module.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "accuracy",
    about: "error of the load that ULM and KLM report, against the actual load in 10 ms windows",
    source: "paper 000 §5.1, Figure 4",
    needs: "namespaces (root)",
    estimate,
    run,
    plan: None,
};

/// The paper's window of the actual load.
const WINDOW: Duration = Duration::from_millis(10);
/// Time between two reads of an agent.
const READ: Duration = Duration::from_millis(1);
/// Records that are kept: as many as fit into several agents' intervals.
const KEPT: usize = 256;
/// What the node may use: enough that its neighbour's own spells show.
const SHARE: f64 = 0.9;
const SET_UP: Duration = Duration::from_secs(3);
const ROUNDS: u32 = 6;
/// Windows in the picture.
const SHOWN: usize = 300;
/// Before anything counts.
const SETTLE: Duration = Duration::from_millis(500);
const SCHEMES: [&str; 3] = [arms::ULM, arms::BESIDE, arms::KLM];

fn length(scale: Scale) -> Duration {
    Duration::from_secs(scale.pick(8, 15))
}

fn estimate(scale: Scale) -> Duration {
    SET_UP + length(scale) * ROUNDS
}

/// One window: actual load, and what each scheme reported at its end.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: f64,
    actual: f64,
    reported: [f64; 3],
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let mut plan: ClusterPlan = workload::unequal(&[SHARE], arms::PAPER_AGENTS);
    plan.mode = lab.mode;
    let cluster = Cluster::start(&plan)?;
    if cluster.mode() == Mode::Loopback {
        return Err(ExperimentError::Unfit(
            "accuracy compares the kernel's account with what agents make of it: it needs namespaces mode".into(),
        ));
    }
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        lab.progress
            .step(&format!("round {}", round + 1), length(lab.scale));
        let _neighbour = cluster.antagonist(0, &neighbour(round))?;
        rounds.push(observe(&cluster, length(lab.scale))?);
    }
    let measured = Measured {
        table: table(&rounds),
        mode: cluster.mode().name().into(),
        emulated: cluster.emulated(),
        raw: rounds
            .iter()
            .map(|round| json!(round.iter().map(Sample::row).collect::<Vec<_>>()))
            .collect(),
        ..Measured::default()
    };
    let findings = findings(&measured.table);
    let schemes = SCHEMES.map(|scheme| Arm {
        name: scheme.into(),
        ..arms::scheme(scheme, arms::PAPER_INTERVAL)
    });
    let mut report = report_of(
        &EXPERIMENT,
        lab,
        &schemes,
        measured,
        findings,
        clock::now().since(started),
    );
    report
        .plots
        .extend(rounds.first().map(|round| picture(round)));
    Ok(report)
}

/// Loads the CPU for some time and sleeps for some time.
fn neighbour(round: u32) -> Antagonist {
    Antagonist::Bursty {
        threads: 1,
        duty: 0.5,
        shortest: Duration::from_millis(50),
        longest: Duration::from_secs(1),
        seed: u64::from(round) + 1,
    }
}

/// Reads both agents and the control group until the time is over.
fn observe(cluster: &Cluster, length: Duration) -> Result<Vec<Sample>, ExperimentError> {
    let node = &cluster.nodes()[0];
    let start = clock::now();
    let end = start + length;
    let over = AtomicBool::new(false);
    let known: [Mutex<Known>; 3] = Default::default();
    std::thread::scope(|scope| {
        let readers: Vec<_> = SCHEMES
            .iter()
            .zip(&known)
            .map(|(scheme, known)| {
                let (over, place) = (&over, cluster.front());
                scope.spawn(move || place.inside(|| read(node, scheme, known, over)))
            })
            .collect();
        let sampler = scope.spawn(|| {
            punctual();
            sample(node, &known, start, end)
        });
        let samples = match sampler.join() {
            Ok(samples) => samples,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        over.store(true, Ordering::Relaxed);
        for reader in readers {
            match reader.join() {
                Ok(done) => done??,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(samples)
    })
}

/// Both who reads and who compares are on time where that is permitted, as the product's reader
/// is: what is measured is not their own lateness.
fn punctual() {
    try_fifo(PRIORITY).ok();
}

/// The windows until the end.
fn sample(node: &Node, known: &[Mutex<Known>; 3], start: Timestamp, end: Timestamp) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut due = start + SETTLE;
    clock::sleep_until(due);
    // They live as long as the round.
    let processes = node.place().processes();
    let used = || -> Duration {
        processes
            .iter()
            .filter_map(|it| clock::process_time(*it))
            .sum()
    };
    let (mut last_at, mut last) = (clock::now(), used());
    while due < end {
        due = due + WINDOW;
        clock::sleep_until(due);
        let (at, used) = (clock::now(), used());
        let reported = [0, 1, 2].map(|index| known_of(&known[index]).reported(SCHEMES[index]));
        let wall = at.seconds_since(last_at).max(f64::MIN_POSITIVE);
        samples.push(Sample {
            at: at.seconds_since(start),
            actual: used.saturating_sub(last).as_secs_f64() / (wall * node.share),
            reported: reported.map(|it| it.unwrap_or(f64::NAN)),
        });
        (last_at, last) = (at, used);
    }
    samples
}

fn known_of(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    // Whoever panicked had nothing half done.
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads one agent each millisecond.
fn read(
    node: &Node,
    scheme: &str,
    known: &Mutex<Known>,
    over: &AtomicBool,
) -> Result<(), ExperimentError> {
    let failed =
        |why: String| ExperimentError::Read(format!("reading {scheme} of {}: {why}", node.name));
    let agent = node.agents.iter().find(|agent| agent.name == scheme);
    let agent = agent.ok_or_else(|| failed("there is no such agent".into()))?;
    let mut region = region(&agent.load).map_err(failed)?;
    punctual();
    let mut due = clock::now();
    while !over.load(Ordering::Relaxed) {
        // An agent that is held up gives no answer in time: then the last record stands.
        if let Ok(record) = region
            .read(LINES_MAX)
            .map_err(drop)
            .and_then(|it| it.record().map_err(drop))
        {
            known_of(known).note(record);
        }
        due = (due + READ).max(clock::now());
        clock::sleep_until(due);
    }
    Ok(())
}

fn region(load: &LoadAt) -> Result<Box<dyn Region>, String> {
    Ok(match load {
        LoadAt::Udp { address, key_file } => {
            let key = Key::from_file(key_file).map_err(|error| error.to_string())?;
            let options = UdpOptions {
                tries: 1,
                ..UdpOptions::default()
            };
            let region = UdpRegion::connect(*address, key, options);
            Box::new(region.map_err(|error| error.to_string())?)
        }
        LoadAt::Shm { path } => Box::new(ShmRegion::new(path)),
    })
}

/// The records of one agent, newest last, each once.
#[derive(Debug, Default)]
struct Known {
    records: VecDeque<LoadRecord>,
}

impl Known {
    fn note(&mut self, record: LoadRecord) {
        if self
            .records
            .back()
            .is_some_and(|last| last.t_ns == record.t_ns)
        {
            return;
        }
        self.records.push_back(record);
        if self.records.len() > KEPT {
            self.records.pop_front();
        }
    }

    /// The load that a front-end makes of them.
    fn reported(&self, scheme: &str) -> Option<f64> {
        let newest = self.records.back()?;
        let older = self.records.iter().rev().skip(1);
        let far =
            |it: &&LoadRecord| Duration::from_nanos(newest.t_ns.saturating_sub(it.t_ns)) >= WINDOW;
        let before = match scheme == arms::ULM {
            // The agent's own interval.
            true => older.take(1).next(),
            false => older.filter(far).take(1).next(),
        };
        Rates::between(before?, newest).map(|rates| rates.utilization)
    }
}

impl Sample {
    /// As raw data.
    fn row(&self) -> [f64; 5] {
        let [ulm, beside, klm] = self.reported;
        [self.at, self.actual, ulm, beside, klm]
    }
}

/// Errors in percent of the node's share, by scheme and round.
fn table(rounds: &[Vec<Sample>]) -> Table {
    let mut table = Table::new();
    for (index, scheme) in SCHEMES.iter().enumerate() {
        let metrics: &mut BTreeMap<_, Vec<f64>> = table.entry((*scheme).into()).or_default();
        for round in rounds {
            let mut errors: Vec<_> = round
                .iter()
                .map(|it| (it.reported[index] - it.actual).abs() * 100.0)
                .collect();
            errors.retain(|error| error.is_finite());
            errors.sort_by(f64::total_cmp);
            let mean = errors.iter().sum::<f64>() / (errors.len() as f64).max(1.0);
            let p95 = errors
                .get(errors.len() * 95 / 100)
                .copied()
                .unwrap_or(f64::NAN);
            let known = errors.len() as f64 / (round.len() as f64).max(1.0) * 100.0;
            metrics
                .entry("mean_error_pct".into())
                .or_default()
                .push(mean);
            metrics.entry("p95_error_pct".into()).or_default().push(p95);
            metrics.entry("known_pct".into()).or_default().push(known);
        }
    }
    table
}

fn findings(table: &Table) -> Findings {
    let of = |metric| {
        let [ulm, _, klm] = SCHEMES.map(|scheme| median(table, scheme, metric));
        klm.zip(ulm).map(|(klm, ulm)| klm / ulm)
    };
    Findings {
        paper: [(
            "order".to_owned(),
            beside(
                json!("klm reports almost the actual values; ulm lags, since it is brought up to date each 50 ms"),
                "000 §5.1, Figure 4 (no numbers in the text)",
                ranked(table, &SCHEMES, "mean_error_pct", false),
                Value::Null,
            ),
        )]
        .into(),
        verdicts: vec![
            at_most("klm's mean error over ulm's".into(), of("mean_error_pct"), 0.5),
            at_most("klm's p95 error over ulm's".into(), of("p95_error_pct"), 1.0),
            at_most("klm's mean error, % of the node's CPU".into(), median(table, arms::KLM, "mean_error_pct"), 2.0),
        ],
        notes: vec![
            arms::RUNG.into(),
            "Errors are in percent of the CPU that the node may use. The windows of klm and of the agent beside the quota are the actual \
             load's, 10 ms; ulm's is its agent's 50 ms."
                .into(),
        ],
        plots: Vec::new(),
    }
}

/// Actual and reported load over the first seconds.
fn picture(samples: &[Sample]) -> Plot {
    let curve = |name: &str, load: fn(&Sample) -> f64| Curve {
        name: name.into(),
        peer: false,
        points: samples
            .iter()
            .take(SHOWN)
            .map(|it| (it.at, load(it)))
            .filter(|it| it.1.is_finite())
            .collect(),
    };
    Plot::Series {
        title: "Actual and reported load of one node".into(),
        x: Axis::linear("s"),
        y: Axis::from_zero("share of the node's CPU"),
        series: vec![
            curve("actual", |it| it.actual),
            curve("ulm", |it| it.reported[0]),
            curve("beside", |it| it.reported[1]),
            curve("klm", |it| it.reported[2]),
        ],
        marks: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(t_ms: u64, busy_ms: u64) -> LoadRecord {
        LoadRecord {
            generation: 1,
            t_ns: t_ms * 1_000_000,
            busy_ns: busy_ms * 1_000_000,
            ..LoadRecord::default()
        }
    }

    #[test]
    fn ulm_takes_its_last_two_records_and_klm_a_window() {
        let mut known = Known::default();
        assert_eq!(known.reported(arms::ULM), None);
        for (at, busy) in [(0, 0), (5, 0), (10, 5), (12, 7)] {
            known.note(record(at, busy));
            known.note(record(at, busy));
        }
        assert_eq!(known.records.len(), 4);
        let (ulm, klm) = (known.reported(arms::ULM), known.reported(arms::KLM));
        // The same capacity divides both.
        let ratio = ulm.unwrap() / klm.unwrap();
        assert!((ratio - 1.0 / (7.0 / 12.0)).abs() < 1e-6, "{ulm:?} {klm:?}");
    }

    #[test]
    fn errors_are_absolute_and_in_percent() {
        let sample = |actual, ulm, klm| Sample {
            at: 0.0,
            actual,
            reported: [ulm, 0.5, klm],
        };
        let table = table(&[vec![sample(0.5, 0.1, 0.5), sample(0.5, 0.9, f64::NAN)]]);
        assert!((table["ulm"]["mean_error_pct"][0] - 40.0).abs() < 1e-9);
        assert!(table["klm"]["mean_error_pct"][0].abs() < 1e-9);
        assert!((table["klm"]["known_pct"][0] - 50.0).abs() < 1e-9);
    }
}
