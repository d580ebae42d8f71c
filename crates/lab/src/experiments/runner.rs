//! Carries out a plan: arms in turn at each point, in another order each round, every arm on the
//! same cluster. What fails is told and is not fatal.
//!
//! Each run also says what else could have bounded it: how busy the nodes and the front's CPU
//! were, and whether the load generator kept up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::{Cluster, Process, lab};
use crate::front::{self, FrontEnd, SiteTargets};
use crate::load::{self, Knee, LoadPlan, LoadResult, Pacing, Sample, Stream};

use super::judge::Table;
use super::plan::{Arm, Calibration, GENERATOR, Plan, Point, SET_UP, Stage};
use super::usage::{OTHERS_MAX, Usage};
use super::{ExperimentError, Lab};

/// Of all loads.
const SEED: u64 = 1;

/// Looks at the cluster or does something to it while a load runs.
pub trait Watch {
    /// Called when the load has started; returns when it has seen enough, at the latest when
    /// `run.total` has passed.
    fn during(&mut self, cluster: &mut Cluster, run: &Run<'_>) -> Result<(), ExperimentError>;

    /// What the run adds to the table, as metrics without the point's label.
    fn metrics(&mut self, run: &Run<'_>, result: &LoadResult) -> Vec<(String, f64)>;

    /// What the run adds to the raw data.
    fn raw(&mut self) -> Value {
        Value::Null
    }
}

/// Looks at nothing but the load's own figures.
#[derive(Debug)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn during(&mut self, _: &mut Cluster, _: &Run<'_>) -> Result<(), ExperimentError> {
        Ok(())
    }

    fn metrics(&mut self, _: &Run<'_>, _: &LoadResult) -> Vec<(String, f64)> {
        Vec::new()
    }
}

/// One run of one arm.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// At which point.
    pub point: &'a Point,
    /// Of which arm.
    pub arm: &'a Arm,
    /// In which round, from 0.
    pub round: u32,
    /// Requests per second at the knee, if it was looked for.
    pub knee: Option<f64>,
    /// The CPU that the nodes share.
    pub node_cpu: u32,
}

/// Everything that was measured.
#[derive(Debug, Default)]
pub struct Measured {
    /// Arm, metric, value of each round.
    pub table: Table,
    /// How nodes were kept apart.
    pub mode: String,
    /// What was emulated and how.
    pub emulated: Vec<String>,
    /// What the reader of the report should know.
    pub notes: Vec<String>,
    /// Every run with its whole result.
    pub raw: Vec<Value>,
}

/// See the module.
#[derive(Debug)]
pub struct Runner<'a> {
    lab: &'a Lab,
    plan: &'a Plan,
    measured: Measured,
    said: BTreeSet<String>,
    runs: u32,
    /// Share of late requests of the runs in which the load generator did not keep up.
    saturated: Vec<f64>,
    /// Share of the nodes' CPU that others took, of the runs in which they took too much.
    disturbed: Vec<f64>,
}

impl<'a> Runner<'a> {
    /// Carries out the whole plan.
    ///
    /// # Errors
    /// If a cluster does not come up, the knee cannot be found, or no arm has a result.
    pub fn run(
        lab: &'a Lab,
        plan: &'a Plan,
        watch: &mut dyn Watch,
    ) -> Result<Measured, ExperimentError> {
        let mut runner = Self {
            lab,
            plan,
            measured: Measured::default(),
            said: BTreeSet::new(),
            runs: 0,
            saturated: Vec::new(),
            disturbed: Vec::new(),
        };
        let arms = runner.available();
        for stage in &plan.stages {
            runner.stage(stage, &arms, watch)?;
        }
        runner.judge_machine();
        match runner.measured.table.is_empty() {
            true => Err(ExperimentError::Nothing(runner.measured.notes.join("; "))),
            false => Ok(runner.measured),
        }
    }

    /// The arms whose program is there; the others are noted.
    fn available(&mut self) -> Vec<&'a Arm> {
        let mut versions = BTreeSet::new();
        let mut arms = Vec::new();
        for arm in &self.plan.arms {
            match front::available(&arm.kind) {
                Ok(version) => {
                    versions.insert(version);
                    arms.push(arm);
                }
                Err(why) => self.note(format!("SKIPPED {}: {why}", arm.name)),
            }
        }
        let versions: Vec<_> = versions.into_iter().collect();
        self.note(format!("Versions: {}.", versions.join(", ")));
        arms
    }

    fn stage(
        &mut self,
        stage: &'a Stage,
        arms: &[&'a Arm],
        watch: &mut dyn Watch,
    ) -> Result<(), ExperimentError> {
        let mut plan = stage.cluster.clone();
        plan.mode = self.lab.mode.or(plan.mode);
        self.lab.progress.step("set-up", SET_UP);
        let mut cluster = Cluster::start(&plan)?;
        self.measured.mode = cluster.mode().name().into();
        for sentence in cluster.emulated() {
            if !self.measured.emulated.contains(&sentence) {
                self.measured.emulated.push(sentence);
            }
        }
        let knee = stage.calibration.as_ref();
        let knee = knee.map(|it| self.calibrate(it, &cluster)).transpose()?;
        let arms: Vec<_> = arms.iter().map(|arm| stage.arm(arm)).collect();
        for point in &stage.points {
            self.point(point, &arms, (knee, plan.node_cpu), &mut cluster, watch)?;
        }
        Ok(())
    }

    fn calibrate(
        &mut self,
        calibration: &Calibration,
        cluster: &Cluster,
    ) -> Result<f64, ExperimentError> {
        let sites = sites(&calibration.streams, cluster);
        let front = front::start(cluster.front(), &calibration.front, &sites, cluster)?;
        let step = |rps: f64| -> Result<Sample, ExperimentError> {
            self.lab.progress.step(
                &format!("knee: {rps:.0} requests/s"),
                calibration.length + GENERATOR,
            );
            let plan = LoadPlan {
                targets: vec![front.address],
                streams: scaled(&calibration.streams, rps),
                warm_up: calibration.length / 4,
                length: calibration.length - calibration.length / 4,
                timeout: Duration::from_secs(5),
                ..LoadPlan::default()
            };
            let result = load(cluster, &plan)?.wait()?;
            Ok(Sample::of(&result.total()))
        };
        let knee: Knee = load::knee_from(calibration.first, step)?;
        self.note(format!(
            "The knee is {:.0} requests/s with {}: the last load of a walk by 1.2 whose median latency was at most \
             four times the unloaded {:.1} ms. Loads are fractions of it.",
            knee.rps, calibration.front.label(), knee.unloaded_p50_ms
        ));
        self.measured.raw.push(json!({ "knee": knee }));
        Ok(knee.rps)
    }

    fn point(
        &mut self,
        point: &'a Point,
        arms: &[&'a Arm],
        (knee, node_cpu): (Option<f64>, u32),
        cluster: &mut Cluster,
        watch: &mut dyn Watch,
    ) -> Result<(), ExperimentError> {
        let guards = point
            .antagonists
            .iter()
            .map(|(node, kind)| cluster.antagonist(*node, kind));
        let _guards = guards.collect::<Result<Vec<_>, _>>()?;
        let arms: Vec<_> = arms.iter().filter(|arm| point.takes(arm)).collect();
        if let Some(arm) = arms.first() {
            self.settle(point, arm, knee, cluster)?;
        }
        for round in 0..self.plan.rounds {
            // Another one begins each round: no arm is always measured after the same one.
            let shift = round as usize * (arms.len() / 2 + 1);
            for index in 0..arms.len() {
                let arm = arms[(index + shift) % arms.len()];
                let run = Run {
                    point,
                    arm,
                    round,
                    knee,
                    node_cpu,
                };
                let text = format!("{} {} round {}", arm.name, point.label, round + 1);
                self.lab.progress.step(text.trim(), point.run(arm));
                if let Err(error) = self.one(&run, cluster, watch) {
                    self.note(format!("FAILED {} {}: {error}", arm.name, point.label));
                }
            }
        }
        Ok(())
    }

    /// Runs the load once without looking.
    fn settle(
        &self,
        point: &Point,
        arm: &Arm,
        knee: Option<f64>,
        cluster: &Cluster,
    ) -> Result<(), ExperimentError> {
        if point.settle.is_zero() {
            return Ok(());
        }
        let text = format!("filling caches {}", point.label);
        self.lab.progress.step(text.trim(), point.settle);
        let fronts = start(arm, point, cluster)?;
        let plan = LoadPlan {
            warm_up: Duration::ZERO,
            length: point.settle,
            ..load_plan(point, knee, &fronts.processes)
        };
        load(cluster, &plan)?.wait()?;
        Ok(())
    }

    fn one(
        &mut self,
        run: &Run<'_>,
        cluster: &mut Cluster,
        watch: &mut dyn Watch,
    ) -> Result<(), ExperimentError> {
        let point = run.point;
        let mut fronts = start(run.arm, point, cluster)?;
        let plan = load_plan(point, run.knee, &fronts.processes);
        let before = Usage::of(cluster, &fronts.processes, run.node_cpu);
        let running = load(cluster, &plan)?;
        let watched = watch.during(cluster, run);
        let result = running.wait()?;
        watched?;
        let usage = Usage::of(cluster, &fronts.processes, run.node_cpu).since(&before);
        if let Some(why) = fronts.processes.iter_mut().find_map(FrontEnd::ended) {
            return Err(ExperimentError::Unfit(why));
        }
        self.record(run, &result, &usage, watch);
        Ok(())
    }

    fn record(&mut self, run: &Run<'_>, result: &LoadResult, usage: &Usage, watch: &mut dyn Watch) {
        let total = result.total();
        let mut metrics: Vec<(String, f64)> = vec![
            ("throughput_rps".into(), total.throughput_rps),
            ("mean_ms".into(), total.mean_ms),
            ("p50_ms".into(), total.p50_ms),
            ("p99_ms".into(), total.p99_ms),
            ("failed".into(), (total.failed + total.refused) as f64),
            ("nodes_cpu".into(), usage.nodes),
            ("front_cpu".into(), usage.front),
            ("others_cpu".into(), usage.others),
        ];
        if result.streams.len() > 1 {
            let streams = result.streams.iter();
            metrics.extend(streams.map(|it| {
                (
                    format!("site_throughput_rps:{}", it.site),
                    it.throughput_rps,
                )
            }));
        }
        metrics.extend(watch.metrics(run, result));
        let arm = self.measured.table.entry(run.arm.name.clone()).or_default();
        for (name, value) in &metrics {
            arm.entry(labelled(name, &run.point.label))
                .or_default()
                .push(*value);
        }
        self.measured.raw.push(json!({
            "arm": run.arm.name,
            "point": run.point.label,
            "round": run.round,
            "metrics": metrics.into_iter().collect::<BTreeMap<_, _>>(),
            "result": result,
            "watched": watch.raw(),
        }));
        self.runs += 1;
        if usage.others > OTHERS_MAX {
            self.disturbed.push(usage.others);
        }
        if result.generator.saturated {
            self.saturated.push(result.late_share());
            return;
        }
        for sentence in &result.said {
            self.note(sentence.clone());
        }
    }

    /// Says in how many runs the machine had no room for the nodes or for the load generator.
    fn judge_machine(&mut self) {
        let worst = self.disturbed.iter().copied().fold(0.0, f64::max);
        if !self.disturbed.is_empty() {
            self.note(format!(
                "DISTURBED: in {} of {} runs other programs took over {:.0} % of the nodes' CPU, at worst {:.0} %. Do not trust them.",
                self.disturbed.len(),
                self.runs,
                OTHERS_MAX * 100.0,
                worst * 100.0
            ));
        }
        let worst = self.saturated.iter().copied().fold(0.0, f64::max);
        if !self.saturated.is_empty() {
            self.note(format!(
                "In {} of {} runs the load generator did not keep up: at worst {:.1} % of the requests began over 1 ms late.",
                self.saturated.len(),
                self.runs,
                worst * 100.0
            ));
        }
    }

    fn note(&mut self, sentence: String) {
        if self.said.insert(sentence.clone()) {
            self.measured.notes.push(sentence);
        }
    }
}

/// A metric's whole name: `p99_ms`, `p99_ms[load=0.9]`, `site_throughput_rps[alpha=0.1 site=shop]`.
#[must_use]
pub(super) fn labelled(metric: &str, label: &str) -> String {
    match (metric.split_once(':'), label) {
        (None, "") => metric.into(),
        (None, label) => format!("{metric}[{label}]"),
        (Some((metric, site)), "") => format!("{metric}[site={site}]"),
        (Some((metric, site)), label) => format!("{metric}[{label} site={site}]"),
    }
}

/// A point's load, by way of these front-ends.
fn load_plan(point: &Point, knee: Option<f64>, fronts: &[FrontEnd]) -> LoadPlan {
    LoadPlan {
        targets: fronts.iter().map(|front| front.address).collect(),
        streams: match knee {
            Some(knee) => scaled(&point.streams, knee),
            None => point.streams.clone(),
        },
        warm_up: point.warm_up,
        length: point.length,
        // The same requests for all arms and rounds: ranges show the system, not the draw.
        seed: SEED,
        timeout: point.timeout,
        windows: point.windows,
        count_by: point.count_by.clone(),
        ..LoadPlan::default()
    }
}

/// All processes of an arm, and what they need on the nodes.
struct Fronts {
    processes: Vec<FrontEnd>,
    _helpers: Vec<Process>,
}

/// Starts all processes of an arm before all nodes.
fn start(arm: &Arm, point: &Point, cluster: &Cluster) -> Result<Fronts, ExperimentError> {
    let sites = sites(&point.streams, cluster);
    Ok(Fronts {
        _helpers: front::helpers(&arm.kind, cluster)?,
        processes: front::start_many(cluster.front(), &arm.kind, &sites, cluster, arm.processes)?,
    })
}

/// Every site of the streams, served by all nodes.
fn sites(streams: &[Stream], cluster: &Cluster) -> Vec<SiteTargets> {
    let names: BTreeSet<_> = streams.iter().map(|stream| stream.site.clone()).collect();
    let site = |name| SiteTargets {
        name,
        nodes: (0..cluster.nodes().len()).collect(),
    };
    names.into_iter().map(site).collect()
}

/// The streams with their rates, which are fractions, times `rps`.
fn scaled(streams: &[Stream], rps: f64) -> Vec<Stream> {
    let scale = |stream: &Stream| {
        let mut stream = stream.clone();
        if let Pacing::Open { rate, .. } = &mut stream.pacing {
            *rate *= rps;
        }
        stream
    };
    streams.iter().map(scale).collect()
}

/// The load generator beside the front-ends.
fn load(cluster: &Cluster, plan: &LoadPlan) -> Result<load::Running, ExperimentError> {
    let mut command = cluster.front().command(lab()?);
    command.arg("load");
    Ok(load::start(command, plan)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_put_behind_the_metric() {
        assert_eq!(labelled("p99_ms", ""), "p99_ms");
        assert_eq!(labelled("p99_ms", "load=0.9"), "p99_ms[load=0.9]");
        assert_eq!(
            labelled("rps:shop", "alpha=0.1"),
            "rps[alpha=0.1 site=shop]"
        );
        assert_eq!(labelled("rps:shop", ""), "rps[site=shop]");
    }

    #[test]
    fn rates_are_fractions_until_the_knee_is_known() {
        let stream = Stream {
            site: "shop".into(),
            pacing: Pacing::Open {
                rate: 0.9,
                arrivals: load::Arrivals::Poisson,
            },
            requests: load::Requests::zipf(0.5, 10, "/"),
        };
        let scaled = scaled(&[stream], 200.0);
        assert!(
            matches!(scaled[0].pacing, Pacing::Open { rate, .. } if (rate - 180.0).abs() < 1e-9)
        );
    }
}
