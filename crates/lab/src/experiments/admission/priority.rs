//! `admission-priority`: which requests are served at ten times the knee, by priority.
//!
//! ```text
//! priority     0     1     2     3       in x-tidegate-priority, 0 is the highest
//! requests  5     15    30    50 %    so all of priority 0 and a part of priority 1 can be served
//! success   answered within the SLO, of those offered
//! ```
//!
//! HAProxy has priorities of its own (`set-priority-class`, which orders its queue); Envoy's
//! `adaptive_concurrency` has none. All read agents from memory, since several front-ends do.

use std::collections::BTreeMap;

use tidegate_remote::clock;

use crate::cluster::Cluster;
use crate::experiments::judge::{Table, at_least, at_most, best, median};
use crate::experiments::measured::{Measured, labelled};
use crate::experiments::plan::{Plan, Point, Stage};
use crate::experiments::report::{ExperimentFindings, Sketch, report};
use crate::experiments::runner::{Run, RunHook, Runner};
use crate::experiments::{Experiment, ExperimentError, Lab, Scale};
use crate::load::{LoadResult, Stream};
use crate::results::{Axis, GoalVerdict, Report};

use super::{
    ADAPTIVE, Feed, MEMORY, SLO, adaptive_mode, arm, calibration, cluster, envoy_concurrency,
    haproxy, in_time, measured_arms, open, point, stream,
};

/// See the module.
pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "admission-priority",
    about: "which priorities are served at ten times the knee, by 1, 4 and 16 front-ends",
    source: "design goals",
    needs: "haproxy, envoy for their arms",
    estimate: |scale| plan(scale).estimate(),
    run,
    plan: Some(plan),
};

const HEADER: &str = "x-tidegate-priority";
/// Shares of the priorities, the highest first.
const SHARES: [f64; 4] = [0.05, 0.15, 0.3, 0.5];
/// All together, of the knee.
const LOAD: f64 = 10.0;
const FEW: &[u32] = &[1, 4];
const MANY: &[u32] = &[1, 4, 16];

fn front_ends(scale: Scale) -> &'static [u32] {
    scale.pick(FEW, MANY)
}

fn plan(scale: Scale) -> Plan {
    let length = scale.pick([800, 3000], [1000, 5000]);
    let by = |processes: &u32| Point {
        streams: priorities(),
        front_ends: Some(*processes),
        ..point(label(*processes), stream(open(LOAD)), length)
    };
    let mut arms = vec![
        arm(
            ADAPTIVE,
            Feed::Beside,
            &adaptive_mode(SLO, ", priorities = 4"),
        ),
        haproxy(SLO),
    ];
    if scale == Scale::Full {
        arms.push(envoy_concurrency());
    }
    Plan {
        stages: vec![Stage {
            calibration: Some(calibration(scale, stream(open(1.0)), 120.0)),
            ..Stage::new(cluster(MEMORY), front_ends(scale).iter().map(by).collect())
        }],
        arms,
        rounds: 2,
    }
}

/// One stream for each priority.
fn priorities() -> Vec<Stream> {
    let priority = |(number, share): (usize, &f64)| Stream {
        header: Some((HEADER.into(), number.to_string())),
        ..stream(open(LOAD * share))
    };
    SHARES.iter().enumerate().map(priority).collect()
}

fn label(processes: u32) -> String {
    format!("front_ends={processes}")
}

fn metric(priority: usize) -> String {
    format!("priority{priority}_success_pct")
}

/// Counts by priority.
#[derive(Debug)]
struct ByPriority;

impl RunHook for ByPriority {
    fn during(&mut self, _: &mut Cluster, _: &Run<'_>) -> Result<(), ExperimentError> {
        Ok(())
    }

    fn metrics(&mut self, run: &Run<'_>, result: &LoadResult) -> Vec<(String, f64)> {
        let slow_ms = SLO.as_secs_f64() * 1e3;
        let success = result.streams.iter().map(|it| {
            let within = it.completed.saturating_sub(it.slower_than(slow_ms));
            within as f64 / (it.offered as f64).max(1.0) * 100.0
        });
        let mut metrics = in_time(run.point, result);
        let by_priority = success.enumerate();
        metrics.extend(by_priority.map(|(priority, value)| (metric(priority), value)));
        metrics
    }
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let plan = plan(lab.scale);
    let measured = Runner::run(lab, &plan, &mut ByPriority)?;
    let findings = findings(lab.scale, &plan, &measured);
    let took = clock::now().since(started);
    Ok(report(&EXPERIMENT, lab, &plan, measured, findings, took))
}

/// By how much a lower priority is ahead of the next higher one at most, points.
fn inversion(table: &Table, label: &str) -> Option<f64> {
    let success = |priority| median(table, ADAPTIVE, &labelled(&metric(priority), label));
    let pairs =
        (1..SHARES.len()).filter_map(|priority| Some(success(priority)? - success(priority - 1)?));
    pairs.reduce(f64::max).map(|most| most.max(0.0))
}

fn verdicts(table: &Table, peers: &[&str], label: &str) -> [Option<GoalVerdict>; 3] {
    let top = labelled(&metric(0), label);
    let own = median(table, ADAPTIVE, &top);
    let peer = best(table, peers.iter().copied(), &top, true);
    let theirs = peer.and_then(|peer| median(table, peer, &top));
    [
        at_least(
            format!("the highest priority's success with adaptive, %, {label}"),
            own,
            99.9,
        ),
        at_most(
            format!("a lower priority ahead of a higher one with adaptive, points, {label}"),
            inversion(table, label),
            0.0,
        ),
        at_least(
            format!(
                "the highest priority's success, adaptive over the best peer, {}, {label}",
                peer.unwrap_or("none")
            ),
            own.zip(theirs).map(|(own, theirs)| own / theirs),
            1.0,
        ),
    ]
}

fn findings(scale: Scale, plan: &Plan, measured: &Measured) -> ExperimentFindings {
    let table = &measured.table;
    let (_, peers) = measured_arms(plan, table);
    let labels = front_ends(scale).iter().copied().map(label);
    let bars = |processes: &u32| {
        let group = |priority: usize| {
            let name = format!("priority {priority}");
            (name, labelled(&metric(priority), &label(*processes)))
        };
        Sketch::Bars {
            title: format!("Answered within the SLO by priority, front-ends: {processes}"),
            groups: (0..SHARES.len()).map(group).collect(),
            y: Axis::from_zero("% of those offered"),
        }
    };
    ExperimentFindings {
        paper: BTreeMap::new(),
        verdicts: labels.flat_map(|it| verdicts(table, &peers, &it)).collect(),
        notes: vec![format!(
            "Priorities 0 to 3 are 5, 15, 30 and 50 % of {LOAD} times the knee, so that one request in ten can be served; the SLO is {SLO:?}."
        )],
        plots: front_ends(scale).iter().map(bars).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_priority_ahead_is_an_inversion() {
        let table = |values: [f64; 4]| -> Table {
            let rows = values.iter().enumerate();
            let rows =
                rows.map(|(priority, value)| (labelled(&metric(priority), "x=1"), vec![*value]));
            [(ADAPTIVE.to_owned(), rows.collect())].into()
        };
        assert_eq!(inversion(&table([100.0, 33.0, 0.0, 0.0]), "x=1"), Some(0.0));
        assert_eq!(inversion(&table([97.0, 33.0, 0.5, 2.5]), "x=1"), Some(2.0));
        assert_eq!(inversion(&Table::new(), "x=1"), None);
    }

    #[test]
    fn every_priority_says_who_it_is() {
        let priorities = priorities();
        let headers: Vec<_> = priorities
            .iter()
            .filter_map(|it| it.header.as_ref())
            .collect();
        assert_eq!(headers.len(), SHARES.len());
        assert_eq!(headers[3], &(HEADER.to_owned(), "3".to_owned()));
        assert!((SHARES.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(priorities.iter().all(|it| it.site == priorities[0].site));
    }
}
