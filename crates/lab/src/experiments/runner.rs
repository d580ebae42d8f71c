//! Carries out a plan: arms in turn at each point, in another order each round, every arm on the
//! same cluster. What fails is reported and is not fatal.
//!
//! Each run also says what else could have bounded it: how busy the nodes and the front's CPU
//! were, and whether the load generator kept up. A run that was disturbed from outside is
//! repeated while there is time (see `reserve.rs`), and the throughput of a closed loop counts per
//! second in which the nodes' CPU was there.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_remote::clock;

use crate::cluster::{Cluster, ClusterError};
use crate::front::{self, FrontEnd};
use crate::load::{self, Knee, LoadPlan, LoadResult, Sample};

use super::drive::{load_plan, run_load, scaled, sites, start, trial};
use super::fitness::Fitness;
use super::measured::Measured;
use super::plan::{Arm, Calibration, GENERATOR, Plan, Point, Stage};
use super::quiet;
use super::reserve::Reserve;
use super::usage::{CpuCounters, Usage};
use super::{ExperimentError, Lab};

/// Looks at the cluster or does something to it while a load runs.
pub trait RunHook {
    /// Called when the load has started; returns when it has seen enough, at the latest when
    /// `run.total` has passed.
    fn during(&mut self, cluster: &mut Cluster, run: &Run<'_>) -> Result<(), ExperimentError>;

    /// What the arm's first process has written by the end of the run, the last of it: its events.
    fn heard(&mut self, _: &str) {}

    /// What the run adds to the table, as metrics without the point's label.
    fn metrics(&mut self, run: &Run<'_>, result: &LoadResult) -> Vec<(String, f64)>;

    /// What the run adds to the raw data.
    fn raw(&mut self) -> Value {
        Value::Null
    }
}

/// Looks at nothing but the load's own figures.
#[derive(Debug)]
pub struct NoHook;

impl RunHook for NoHook {
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
    /// Where the arm's first process has its admin interface, if it has one and runs.
    pub admin: Option<SocketAddr>,
}

/// See the module.
#[derive(Debug)]
pub struct Runner<'a> {
    lab: &'a Lab,
    plan: &'a Plan,
    measured: Measured,
    said: BTreeSet<String>,
    fitness: Fitness,
    reserve: Reserve,
}

impl<'a> Runner<'a> {
    /// Carries out the whole plan.
    ///
    /// # Errors
    /// If a cluster does not come up, the knee cannot be found, or no arm has a result.
    pub fn run(
        lab: &'a Lab,
        plan: &'a Plan,
        hook: &mut dyn RunHook,
    ) -> Result<Measured, ExperimentError> {
        let mut runner = Self {
            lab,
            plan,
            measured: Measured::default(),
            said: BTreeSet::new(),
            fitness: Fitness::default(),
            reserve: Reserve::new(lab.scale, plan.estimate(), clock::now()),
        };
        let arms = runner.available();
        for stage in &plan.stages {
            runner.stage(stage, &arms, hook)?;
        }
        for sentence in runner.fitness.sentences() {
            runner.note(sentence);
        }
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
            if !self.lab.part.has_arm(&arm.name) {
                continue;
            }
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
        hook: &mut dyn RunHook,
    ) -> Result<(), ExperimentError> {
        let part = &self.lab.part;
        let points = stage.points.iter().filter(|it| part.has_point(&it.label));
        let points: Vec<_> = points.collect();
        if points.is_empty() {
            return Ok(());
        }
        let mut plan = stage.cluster.clone();
        plan.mode = self.lab.mode.or(plan.mode);
        self.lab.progress.step("set-up", stage.set_up());
        let mut cluster = match Cluster::start(&plan) {
            Err(why) if stage.optional => {
                self.skip(stage, &why.to_string());
                return Ok(());
            }
            started => started?,
        };
        self.reserve.done(stage.set_up());
        self.measured.mode = cluster.mode().name().into();
        for sentence in cluster.emulated() {
            if !self.measured.emulated.contains(&sentence) {
                self.measured.emulated.push(sentence);
            }
        }
        let knee = stage.calibration.as_ref();
        let knee = knee.map(|it| self.calibrate(it, &cluster)).transpose()?;
        self.reserve.done(
            stage
                .calibration
                .as_ref()
                .map_or(Duration::ZERO, Calibration::estimate),
        );
        let mut here = Vec::new();
        for arm in arms.iter().map(|arm| stage.arm(arm)) {
            let fits = front::fits(&arm.kind, &cluster).map_err(|why| why.to_string());
            match fits.and_then(|()| trial(arm, points[0], &cluster)) {
                Ok(()) => here.push(arm),
                Err(why) => self.note(format!("SKIPPED {}: {why}", arm.name)),
            }
        }
        for point in points {
            self.point(point, &here, (knee, plan.node_cpu), &mut cluster, hook)?;
        }
        Ok(())
    }

    fn skip(&mut self, stage: &Stage, why: &str) {
        let labels = stage.points.iter().map(|it| it.label.as_str());
        let labels = labels.collect::<Vec<_>>().join(", ");
        self.note(format!("SKIPPED {labels}: {why}"));
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
            let result = run_load(cluster, &plan)?.wait()?;
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
        hook: &mut dyn RunHook,
    ) -> Result<(), ExperimentError> {
        let guards = point
            .antagonists
            .iter()
            .map(|(node, kind)| cluster.antagonist(*node, kind));
        let _guards = guards.collect::<Result<Vec<_>, _>>()?;
        let beside = point.beside_front.as_ref();
        let _beside = match beside.map(|kind| cluster.beside_front(kind)).transpose() {
            Err(why @ ClusterError::Loopback(_)) => {
                self.note(format!("SKIPPED {}: {why}", point.label));
                return Ok(());
            }
            started => started?,
        };
        let arms: Vec<_> = arms.iter().filter(|arm| point.takes(arm)).collect();
        if let Some(arm) = arms.first() {
            self.settle(point, arm, knee, cluster)?;
            self.reserve.done(point.settle);
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
                    admin: None,
                };
                if let Err(error) = self.quiet(&run, cluster, hook) {
                    self.note(format!("FAILED {} {}: {error}", arm.name, point.label));
                }
                self.reserve.done(point.run(arm));
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
        run_load(cluster, &plan)?.wait()?;
        Ok(())
    }

    /// One run, repeated while it was disturbed and there is time.
    fn quiet(
        &mut self,
        run: &Run<'_>,
        cluster: &mut Cluster,
        hook: &mut dyn RunHook,
    ) -> Result<(), ExperimentError> {
        let Run { point, arm, .. } = *run;
        let text = format!("{} {} round {}", arm.name, point.label, run.round + 1);
        let length = point.run(arm);
        self.lab.progress.step(text.trim(), length);
        for repeats in 0.. {
            let (result, usage) = self.one(run, cluster, hook)?;
            if !usage.is_disturbed() || !self.reserve.allows(length, repeats, clock::now()) {
                self.record(run, &result, &usage, hook);
                break;
            }
            self.fitness.repeat();
            self.wait(length);
            self.lab
                .progress
                .again(&format!("{} once more", text.trim()), length);
        }
        Ok(())
    }

    /// Until the machine is quiet, while there is time.
    fn wait(&self, run: Duration) {
        let since = clock::now();
        let is_noisy = || self.reserve.waits(run, since, clock::now()) && !quiet::is_quiet();
        if is_noisy() {
            self.lab.progress.message("waiting for a quiet machine");
            while is_noisy() {}
        }
    }

    fn one(
        &self,
        run: &Run<'_>,
        cluster: &mut Cluster,
        hook: &mut dyn RunHook,
    ) -> Result<(LoadResult, Usage), ExperimentError> {
        let point = run.point;
        let mut fronts = start(run.arm, point, cluster)?;
        let plan = load_plan(point, run.knee, &fronts.processes);
        let count = |fronts: &[FrontEnd], cluster: &Cluster| {
            CpuCounters::of(cluster, fronts, run.node_cpu, &self.lab.awake)
        };
        let before = count(&fronts.processes, cluster);
        let running = run_load(cluster, &plan)?;
        let admin = fronts.processes.first().and_then(|front| front.admin);
        let watched = hook.during(cluster, &Run { admin, ..*run });
        let result = running.wait()?;
        watched?;
        if let Some(front) = fronts.processes.first() {
            hook.heard(&front.told());
        }
        let usage = count(&fronts.processes, cluster).since(&before);
        if let Some(why) = fronts.processes.iter_mut().find_map(FrontEnd::ended) {
            return Err(ExperimentError::Unfit(why));
        }
        Ok((result, usage))
    }

    fn record(
        &mut self,
        run: &Run<'_>,
        result: &LoadResult,
        usage: &Usage,
        hook: &mut dyn RunHook,
    ) {
        self.measured.take(run, result, usage, hook);
        self.fitness.run(usage);
        if result.generator.saturated {
            self.fitness.late(result.late_share());
            return;
        }
        for sentence in &result.said {
            self.note(sentence.clone());
        }
    }

    fn note(&mut self, sentence: String) {
        if self.said.insert(sentence.clone()) {
            self.measured.notes.push(sentence);
        }
    }
}
