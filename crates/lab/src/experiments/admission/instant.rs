//! `admission-instant`: response times and refusals from moment to moment under a crowd (Admission-2008
//! §IV-B, Figures 6 and 7: response times of single requests, drop rate of each second).
//!
//! * **streak**: the longest time in which everything or nothing was let in. The paper's controller
//!   over TCP shows them, since it goes on by what it learned last.
//! * **worst window**: the mean response time of the slowest window.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_remote::clock;

use crate::cluster::Cluster;
use crate::experiments::judge::{at_most, best, median};
use crate::experiments::measured::Measured;
use crate::experiments::paper::{beside, ranked};
use crate::experiments::plan::{Plan, Point, Stage};
use crate::experiments::report::{ExperimentFindings, Sketch, report};
use crate::experiments::runner::{Run, RunHook, Runner};
use crate::experiments::{Experiment, ExperimentError, Lab, Scale};
use crate::load::{LoadResult, Window};
use crate::results::{Axis, Curve, Plot, Report};

use super::{
    ADAPTIVE, KERNEL, OFF, OVER_TCP, SLO, STATIC, STATIC_TCP, closed, cluster, haproxy, in_time,
    measured_arms, paper_arms, point, stream,
};

/// See the module.
pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "admission-instant",
    about: "response times and refusals from moment to moment under a crowd",
    source: "Admission-2008 §IV, Figures 6 and 7",
    needs: "haproxy for its arm",
    estimate: |scale| plan(scale).estimate(),
    run,
    plan: Some(plan),
};

/// The paper's 400 clients are 1.7 times as many as its servers bear; before these nodes 24 are.
const CLIENTS: u32 = 200;
const WINDOW: Duration = Duration::from_millis(100);
/// Whose courses are drawn: the paper's three, and ours.
const DRAWN: [&str; 4] = [OFF, STATIC_TCP, STATIC, ADAPTIVE];

fn plan(scale: Scale) -> Plan {
    let length = scale.pick([1500, 6000], [2000, 15_000]);
    let point = Point {
        windows: Some(WINDOW),
        ..point(String::new(), stream(closed(CLIENTS)), length)
    };
    let mut arms = paper_arms();
    arms.push(haproxy(SLO));
    Plan {
        stages: vec![Stage::new(cluster(KERNEL), vec![point])],
        arms,
        rounds: 2,
    }
}

/// Keeps the course of each arm's first round.
#[derive(Debug, Default)]
struct Courses(BTreeMap<String, Vec<Window>>);

impl RunHook for Courses {
    fn during(&mut self, _: &mut Cluster, _: &Run<'_>) -> Result<(), ExperimentError> {
        Ok(())
    }

    fn metrics(&mut self, run: &Run<'_>, result: &LoadResult) -> Vec<(String, f64)> {
        let series = result.streams.first().map_or(&[][..], |it| &it.series);
        let mut metrics = in_time(run.point, result);
        metrics.push(("streak_ms".into(), streak_ms(series)));
        let worst = series.iter().map(|it| it.mean_ms).fold(0.0, f64::max);
        metrics.push(("worst_window_ms".into(), worst));
        self.0
            .entry(run.arm.name.clone())
            .or_insert_with(|| series.to_vec());
        metrics
    }
}

/// What part of the requests that ended in a window was refused; none if none ended.
fn refused(window: &Window) -> Option<f64> {
    let all = window.completed + window.failed;
    (all > 0).then(|| window.failed as f64 / all as f64)
}

/// The longest time in which everything, or nothing, was let in.
fn streak_ms(series: &[Window]) -> f64 {
    // Where nothing ended nothing was let in.
    let side = |window: &Window| match refused(window).unwrap_or(1.0) {
        share if share <= 0.0 => Some(true),
        share if share < 1.0 => None,
        _all => Some(false),
    };
    let runs = series.chunk_by(|one, other| side(one) == side(other));
    let one_sided = runs.filter(|run| run.first().and_then(side).is_some());
    let longest = one_sided.map(<[Window]>::len).max().unwrap_or(0);
    longest as f64 * WINDOW.as_secs_f64() * 1e3
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let plan = plan(lab.scale);
    let mut courses = Courses::default();
    let measured = Runner::run(lab, &plan, &mut courses)?;
    let findings = findings(&plan, &measured, &courses);
    let took = clock::now().since(started);
    Ok(report(&EXPERIMENT, lab, &plan, measured, findings, took))
}

/// A course of some arms.
fn course(
    courses: &Courses,
    title: &str,
    y: Axis,
    value: impl Fn(&Window) -> Option<f64>,
) -> Sketch {
    let curve = |name: &str| {
        let series = courses.0.get(name)?;
        let points = series.iter().filter_map(|it| Some((it.at, value(it)?)));
        Some(Curve {
            name: name.into(),
            peer: false,
            points: points.collect(),
        })
    };
    Sketch::Course(Plot::Series {
        title: title.into(),
        x: Axis::linear("s"),
        y,
        series: DRAWN.into_iter().filter_map(curve).collect(),
        marks: Vec::new(),
    })
}

fn findings(plan: &Plan, measured: &Measured, courses: &Courses) -> ExperimentFindings {
    let table = &measured.table;
    let (names, _) = measured_arms(plan, table);
    let tcp = best(table, OVER_TCP, "worst_window_ms", false);
    let worst = |arm: &str| median(table, arm, "worst_window_ms");
    let order = |metric| ranked(table, &names, metric, false);
    ExperimentFindings {
        paper: [
            (
                "response_times".to_owned(),
                beside(
                    json!("no admission: many very slow; TCP: fewer; RDMA: almost none"),
                    "Admission-2008 §IV, Figure 6; here the mean of the worst 100 ms, in ms",
                    order("worst_window_ms"),
                    Value::Null,
                ),
            ),
            (
                "refusals".to_owned(),
                beside(
                    json!(
                        "RDMA: fluctuate rapidly; TCP: longer streaks of drops and of acceptances"
                    ),
                    "Admission-2008 §IV, Figure 7; here the longest streak, in ms",
                    order("streak_ms"),
                    Value::Null,
                ),
            ),
        ]
        .into(),
        verdicts: vec![
            at_most(
                "adaptive's worst window, mean response time in ms".into(),
                worst(ADAPTIVE),
                SLO.as_secs_f64() * 1e3,
            ),
            at_most(
                format!(
                    "adaptive's worst window over that of the best over TCP, {}",
                    tcp.unwrap_or("none")
                ),
                worst(ADAPTIVE)
                    .zip(tcp.and_then(worst))
                    .map(|(one, other)| one / other),
                1.0,
            ),
        ],
        notes: vec![format!(
            "{CLIENTS} clients in a closed loop, windows of {WINDOW:?}; a refused client rests for 100 ms. Pictures show the first round."
        )],
        plots: vec![
            course(
                courses,
                "Mean response time, from moment to moment",
                Axis::log("ms"),
                |it| (it.completed > 0).then_some(it.mean_ms),
            ),
            course(
                courses,
                "Refused share of what ended, from moment to moment",
                Axis::from_zero("%"),
                |it| refused(it).map(|share| share * 100.0),
            ),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(completed: u64, failed: u64) -> Window {
        Window {
            completed,
            failed,
            ..Window::default()
        }
    }

    #[test]
    fn a_streak_is_all_or_nothing() {
        let series = [
            window(5, 0),
            window(5, 0),
            window(5, 1),
            window(0, 3),
            window(0, 9),
            window(0, 0),
            window(1, 9),
        ];
        assert!((streak_ms(&series) - 300.0).abs() < 1e-9);
        assert!((streak_ms(&series[..3]) - 200.0).abs() < 1e-9);
        assert_eq!(streak_ms(&[window(1, 1), window(2, 1)]), 0.0);
        assert_eq!(streak_ms(&[]), 0.0);
    }
}
