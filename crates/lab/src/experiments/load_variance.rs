//! `load-variance`: how evenly the nodes work (KLM-2005 §5.5, Figure 8: CPU cycles that each
//! back-end spent in windows of 50 ms, the variance across back-ends, for two Zipf streams of
//! alpha 0.9 and 0.1 that share all nodes).
//!
//! ```text
//! window w, node s:  u[w, s] = CPU time / (50 ms x share of s)        1 = all that it may use
//! metric:            mean over w of Var_s u[w, s]
//! ```
//!
//! The CPU time is the control group's own, read each 50 ms for all nodes at once. A quota that
//! is charged at the scheduler's tick lets a node's windows scatter by themselves; that part is
//! the same for all arms, and the report tells it: it is what a node at its limit shows.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_core::time::Timestamp;
use tidegate_remote::clock;

use crate::cluster::Cluster;
use crate::load::LoadResult;
use crate::results::Report;

use super::arms::AUTO;
use super::judge::{at_least, at_most, ratio};
use super::measured::Measured;
use super::paper::{beside, own, peers, ranked};
use super::plan::{Plan, Point, Stage};
use super::report::{ExperimentFindings, Sketch, auto_ahead, report};
use super::runner::{Run, RunHook, Runner};
use super::{Experiment, ExperimentError, Lab, Scale, arms, shared_sites, workload};

/// See the module.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "load-variance",
    about: "variance across nodes of the CPU time in 50 ms windows, two sites that share all nodes",
    source: "KLM-2005 §5.5, Figure 8",
    needs: "namespaces (root); haproxy, nginx, envoy for their arms",
    estimate: |scale| plan(scale).estimate(),
    run,
    plan: Some(plan),
};

/// The paper's window.
const WINDOW: Duration = Duration::from_millis(50);
const METRIC: &str = "variance";

fn plan(scale: Scale) -> Plan {
    let mut all = arms::paper();
    all.push(arms::auto());
    all.extend(arms::best_peers());
    let (warm_up, length) = scale.pick((1000, 4500), (1000, 15_000));
    let point = Point {
        streams: shared_sites::streams(0.1),
        ..Point::single(
            String::new(),
            workload::clients("site", workload::CLIENTS, 0.9),
            Duration::from_millis(warm_up),
            Duration::from_millis(length),
        )
    };
    Plan {
        stages: vec![Stage::new(
            workload::cluster(arms::PAPER_AGENTS),
            vec![point],
        )],
        arms: workload::processes(all),
        rounds: 2,
    }
}

/// CPU time of all nodes, window by window.
#[derive(Debug, Default)]
struct Windows {
    /// Per window, the share of its allowance that each node used.
    used: Vec<Vec<f64>>,
}

impl RunHook for Windows {
    fn during(&mut self, cluster: &mut Cluster, run: &Run<'_>) -> Result<(), ExperimentError> {
        self.used.clear();
        let start = clock::now() + run.point.warm_up;
        let end = start + run.point.length;
        clock::sleep_until(start);
        let (mut due, mut last) = (start + WINDOW, look(cluster));
        while due <= end {
            clock::sleep_until(due);
            let now = look(cluster);
            self.used.push(between(cluster, &last, &now));
            last = now;
            due = due + WINDOW;
        }
        Ok(())
    }

    fn metrics(&mut self, _: &Run<'_>, _: &LoadResult) -> Vec<(String, f64)> {
        let variances = self.used.iter().map(|window| variance(window));
        let mean = variances.sum::<f64>() / (self.used.len() as f64).max(1.0);
        vec![(METRIC.into(), mean)]
    }

    fn raw(&mut self) -> Value {
        let permille = |used: &f64| (used * 1e3).round() as u64;
        let used = self.used.iter().map(|window| window.iter().map(permille));
        json!({
            "window_ms": WINDOW.as_millis() as u64,
            "used_permille": used.map(Iterator::collect).collect::<Vec<Vec<_>>>(),
        })
    }
}

/// When, and each node's CPU time so far.
type Look = (Timestamp, Vec<Duration>);

fn look(cluster: &Cluster) -> Look {
    let nodes = 0..cluster.nodes().len();
    (
        clock::now(),
        nodes.map(|node| cluster.cpu_time(node)).collect(),
    )
}

fn between(cluster: &Cluster, last: &Look, now: &Look) -> Vec<f64> {
    let wall = now.0.seconds_since(last.0).max(f64::MIN_POSITIVE);
    let pairs = last.1.iter().zip(&now.1).zip(cluster.nodes());
    pairs
        .map(|((last, now), node)| now.saturating_sub(*last).as_secs_f64() / (wall * node.share))
        .collect()
}

fn variance(values: &[f64]) -> f64 {
    let count = (values.len() as f64).max(1.0);
    let mean = values.iter().sum::<f64>() / count;
    values
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>()
        / count
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let plan = plan(lab.scale);
    let measured = Runner::run(lab, &plan, &mut Windows::default())?;
    let findings = findings(&plan, &measured);
    Ok(report(
        &EXPERIMENT,
        lab,
        &plan,
        measured,
        findings,
        clock::now().since(started),
    ))
}

fn findings(plan: &Plan, measured: &Measured) -> ExperimentFindings {
    let table = &measured.table;
    let times = |arm| ratio(table, "random", arm, METRIC);
    let mut verdicts = vec![
        at_least("random's variance over klm's".into(), times("klm"), 2.0),
        at_least("random's variance over auto's".into(), times(AUTO), 2.0),
        at_most(
            "klm's variance over ulm's".into(),
            ratio(table, "klm", "ulm", METRIC),
            1.0,
        ),
        at_most(
            "ulm's variance over random's".into(),
            ratio(table, "ulm", "random", METRIC),
            1.0,
        ),
    ];
    verdicts.extend(auto_ahead(plan, table, METRIC, false));
    ExperimentFindings {
        paper: [(
            "random_over_klm".to_owned(),
            beside(
                json!("almost a factor of 2; ulm a little below random and round robin"),
                "KLM-2005 §5.5, Figure 8",
                ranked(table, &own(plan, table), METRIC, false),
                ranked(table, &peers(plan, table), METRIC, false),
            ),
        )]
        .into(),
        verdicts,
        notes: vec![
            arms::RUNG.into(),
            "Variance of the share of its CPU allowance that each node used in 50 ms, mean over all windows.".into(),
        ],
        plots: vec![Sketch::bar("Unevenness of the nodes", METRIC, "variance in 50 ms windows")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variance_is_that_of_the_whole() {
        assert!((variance(&[0.0, 1.0]) - 0.25).abs() < 1e-12);
        assert!(variance(&[0.7; 8]).abs() < 1e-12);
        assert!(variance(&[]).abs() < 1e-12);
    }
}
