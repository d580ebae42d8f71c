//! `admission-recovery`: how long overload takes to be under control, from 0.7 to 1.4 of the knee at
//! once.
//!
//! ```text
//! request    1 ms of CPU, 1 KiB: alone at a node 10 ms; SLO 100 ms
//! load       0.7 for 1.5 s, 1.4 for 1.5 s, and again: the measured part begins with a step up
//! capacity   the most that any arm completes in the second half of the high parts
//! recovery   to the end of the last window of the first second after a step whose goodput is surely below
//!            97 % of the capacity: its mean over all steps by three standard errors, which are those of
//!            all windows together
//! deficit    what is missing to the capacity in that second, as time: sum of (capacity - goodput) / capacity
//! ```
//!
//! One step has a few requests in 20 ms; the mean over many steps tells something. What remains of it is
//! in the standard error, which windows of 100 ms have a third of. Also a front-end that never falters
//! needs the time of a request: the first answers to the new load come after it.
//!
//! Source: the protocol of Breakwater-2020 (a step to 1.4 times the capacity), without its cooperating clients.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_core::stats::mean;
use tidegate_remote::clock;

use crate::cluster::Cluster;
use crate::experiments::judge::{Table, at_most, best, median};
use crate::experiments::measured::{Measured, labelled};
use crate::experiments::paper::{beside, ranked};
use crate::experiments::plan::{Arm, Plan, Point, Stage};
use crate::experiments::report::{ExperimentFindings, Sketch, report};
use crate::experiments::runner::{Run, RunHook, Runner};
use crate::experiments::{Experiment, ExperimentError, Lab, Scale};
use crate::load::{Arrivals, LoadResult, Pacing, Window};
use crate::results::{Axis, Curve, Mark, Plot, Report};

use super::{
    ADAPTIVE, Feed, KERNEL, adaptive_mode, arm, asking, calibration, cluster, envoy_concurrency,
    haproxy, in_time, measured_arms, nginx, off, open, point,
};

/// See the module.
pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "admission-recovery",
    about: "time until goodput is back after a step from 0.7 to 1.4 of the knee",
    source: "design goals; protocol of Breakwater",
    needs: "haproxy, nginx, envoy for their arms",
    estimate: |scale| plan(scale).estimate(),
    run,
    plan: Some(plan),
};

const PATH: &str = "/work?cpu=1000us&bytes=1024";
const SLO: Duration = Duration::from_millis(100);
const LOW: f64 = 0.7;
/// Twice as much.
const PERCENT: u32 = 200;
/// How long each part lasts.
const PART: Duration = Duration::from_millis(1500);
/// Of the series.
const WINDOW: Duration = Duration::from_millis(10);
const PART_WINDOWS: usize = 150;
/// So many of them are one that is judged.
const JUDGED: [usize; 3] = [2, 5, 10];
/// And so many are one of the picture.
const DRAWN: usize = 5;
/// Windows after a step that are looked at.
const LOOKED_AT: usize = 100;
/// Part of the capacity that counts as all of it.
const ENOUGH: f64 = 0.97;
/// Standard errors.
const SURELY: f64 = 3.0;
const DEFICIT: &str = "deficit_ms";

fn plan(scale: Scale) -> Plan {
    let cycle = (PART * 2).as_millis() as u64;
    let pacing = Pacing::Open {
        rate: LOW,
        arrivals: Arrivals::Steps {
            low: PART,
            high: PART,
            percent: PERCENT,
        },
    };
    let length = [PART.as_millis() as u64, cycle * scale.pick(3, 6)];
    let point = Point {
        windows: Some(WINDOW),
        slo: Some(SLO),
        ..point(String::new(), asking(pacing, PATH), length)
    };
    let mut arms = vec![
        off(Feed::Kernel),
        arm(ADAPTIVE, Feed::Kernel, &adaptive_mode(SLO, "")),
        haproxy(SLO),
        envoy_concurrency(),
    ];
    if scale == Scale::Full {
        arms.push(nginx());
    }
    Plan {
        stages: vec![Stage {
            calibration: Some(calibration(scale, asking(open(1.0), PATH), 450.0)),
            ..Stage::new(cluster(KERNEL), vec![point])
        }],
        arms,
        rounds: 2,
    }
}

/// What one step did: answers in each window of the part after it.
#[derive(Clone, Debug, PartialEq)]
struct Step {
    within: Vec<f64>,
    completed: Vec<f64>,
}

/// The steps of every round, by arm.
#[derive(Debug, Default)]
struct Steps(BTreeMap<String, Vec<Vec<Step>>>);

impl RunHook for Steps {
    fn during(&mut self, _: &mut Cluster, _: &Run<'_>) -> Result<(), ExperimentError> {
        Ok(())
    }

    fn metrics(&mut self, run: &Run<'_>, result: &LoadResult) -> Vec<(String, f64)> {
        let series = result.streams.first().map_or(&[][..], |it| &it.series);
        let rounds = self.0.entry(run.arm.name.clone()).or_default();
        rounds.push(steps(series));
        in_time(run.point, result)
    }
}

/// The high parts of a series that begins with one.
fn steps(series: &[Window]) -> Vec<Step> {
    let cycles = series.chunks_exact(2 * PART_WINDOWS);
    let step = |cycle: &[Window]| {
        let count = |of: fn(&Window) -> u64| {
            let high = cycle.iter().take(PART_WINDOWS);
            high.map(|it| of(it) as f64).collect()
        };
        Step {
            within: count(|it| it.within),
            completed: count(|it| it.completed),
        }
    };
    cycles.map(step).collect()
}

/// Answers in a window when the load has been high for long, of the arm that gives most.
fn capacity(steps: &Steps) -> Option<f64> {
    let settled = |rounds: &Vec<Vec<Step>>| {
        let all = rounds.iter().flatten();
        let late = all.flat_map(|step| step.completed.iter().skip(PART_WINDOWS / 2));
        mean(late.copied())
    };
    steps.0.values().filter_map(settled).reduce(f64::max)
}

/// Mean over all steps of the answers in each judged window after a step, and the standard error of
/// such a mean: one window of a few steps would not tell it, all of them do.
fn windows(steps: &[Step], judged: usize) -> (Vec<f64>, f64) {
    let sums = |number: usize| {
        let window = move |step: &Step| -> f64 {
            let window = step.within.iter().skip(number * judged);
            window.take(judged).sum()
        };
        steps.iter().map(window)
    };
    let numbers = 0..LOOKED_AT / judged;
    let means: Vec<_> = numbers.filter_map(|number| mean(sums(number))).collect();
    let squares = means.iter().enumerate().flat_map(|(number, mean)| {
        let squared = move |sum: f64| (sum - mean).powi(2);
        sums(number).map(squared)
    });
    let count = steps.len() as f64;
    let variance = mean(squares).unwrap_or(0.0) * count / (count - 1.0).max(1.0);
    (means, (variance / count.max(1.0)).sqrt())
}

/// Milliseconds from the step to the end of the last judged window that is surely below what is
/// enough; `capacity` is of one window of the series.
fn recovery_ms(steps: &[Step], judged: usize, capacity: f64) -> f64 {
    let enough = ENOUGH * capacity * judged as f64;
    let (means, error) = windows(steps, judged);
    let last = means
        .iter()
        .rposition(|mean| mean + SURELY * error < enough);
    let short = last.map_or(0, |number| (number + 1) * judged);
    short as f64 * WINDOW.as_secs_f64() * 1e3
}

/// Milliseconds of the capacity that are missing after a step.
fn deficit_ms(steps: &[Step], capacity: f64) -> f64 {
    let all = steps.iter().map(|step| {
        let seen = step.within.iter().take(LOOKED_AT);
        LOOKED_AT as f64 - seen.sum::<f64>() / capacity
    });
    let missing = mean(all).map_or(f64::NAN, |it| it.max(0.0));
    missing * WINDOW.as_secs_f64() * 1e3
}

/// The name of a recovery's metric.
fn named(judged: usize) -> String {
    let millis = WINDOW.as_millis() as usize * judged;
    labelled("recovery_ms", &format!("window={millis}"))
}

/// Adds what only all arms together tell.
fn judge(steps: &Steps, table: &mut Table) {
    let Some(capacity) = capacity(steps) else {
        return;
    };
    for (arm, rounds) in &steps.0 {
        let Some(metrics) = table.get_mut(arm) else {
            continue;
        };
        for judged in JUDGED {
            let each = rounds.iter().map(|it| recovery_ms(it, judged, capacity));
            metrics.insert(named(judged), each.collect());
        }
        let each = rounds.iter().map(|it| deficit_ms(it, capacity));
        metrics.insert(DEFICIT.into(), each.collect());
    }
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let plan = plan(lab.scale);
    let mut steps = Steps::default();
    let mut measured = Runner::run(lab, &plan, &mut steps)?;
    judge(&steps, &mut measured.table);
    let findings = findings(&plan, &measured, &steps);
    let took = clock::now().since(started);
    Ok(report(&EXPERIMENT, lab, &plan, measured, findings, took))
}

/// Goodput around a step, all steps of an arm together.
fn course(plan: &Plan, steps: &Steps) -> Plot {
    let seconds = WINDOW.as_secs_f64() * DRAWN as f64;
    let curve = |arm: &Arm| {
        let all = steps.0.get(&arm.name)?.concat();
        let (means, _) = windows(&all, DRAWN);
        // A window's answers stand at its end.
        let at = |(number, count): (usize, &f64)| {
            let end = (number + 1) as f64 * seconds;
            (end * 1e3, count / seconds)
        };
        Some(Curve {
            name: arm.name.clone(),
            peer: arm.peer(),
            points: means.iter().enumerate().map(at).collect(),
        })
    };
    Plot::Series {
        title: "Goodput after the step, mean of all steps, windows of 50 ms".into(),
        x: Axis::linear("ms"),
        y: Axis::from_zero("requests/s within 100 ms"),
        series: plan.arms.iter().filter_map(curve).collect(),
        marks: vec![Mark {
            x: 0.0,
            text: "0.7 to 1.4".into(),
        }],
    }
}

fn findings(plan: &Plan, measured: &Measured, steps: &Steps) -> ExperimentFindings {
    let table = &measured.table;
    let (names, peers) = measured_arms(plan, table);
    let mut verdicts: Vec<_> = JUDGED
        .map(|judged| {
            let wanted = WINDOW.as_secs_f64() * 1e3 * judged.max(2) as f64;
            let goal = format!("adaptive's recovery, windows of {wanted:.0} ms, ms");
            at_most(goal, median(table, ADAPTIVE, &named(judged)), wanted)
        })
        .into();
    let peer = best(table, peers, DEFICIT, false);
    let least = peer.and_then(|peer| median(table, peer, DEFICIT));
    verdicts.extend(least.map(|least| {
        let goal = format!(
            "adaptive's deficit in ms, at most the best peer's, {}",
            peer.unwrap_or("none")
        );
        at_most(goal, median(table, ADAPTIVE, DEFICIT), least)
    }));
    ExperimentFindings {
        paper: [(
            "recovery".to_owned(),
            beside(
                json!("Breakwater below 20 ms, DAGOR 500 ms, SEDA 1.58 s"),
                "abstract of Breakwater-2020; here in windows of 20 ms",
                ranked(table, &names, &named(JUDGED[0]), false),
                Value::Null,
            ),
        )]
        .into(),
        verdicts,
        notes: vec![format!(
            "Requests of 1 ms of CPU, SLO {SLO:?}; a recovery of {} ms is none within what is looked at. The first answers to a step come \
             after the time of a request, 10 ms and more.",
            WINDOW.as_millis() as usize * LOOKED_AT
        )],
        plots: vec![
            Sketch::Course(course(plan, steps)),
            Sketch::Bars {
                title: "Recovery after a step by length of windows, and deficit".into(),
                groups: JUDGED
                    .map(|judged| (format!("{} ms", 10 * judged), named(judged)))
                    .into_iter()
                    .chain([("deficit".into(), DEFICIT.into())])
                    .collect(),
                y: Axis::from_zero("ms"),
            },
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of a step: so many in each window from one window on, and fewer before.
    fn step(from: usize, before: f64, after: f64) -> Step {
        let at = |window: usize| if window < from { before } else { after };
        let within: Vec<_> = (0..PART_WINDOWS).map(at).collect();
        Step {
            completed: vec![10.0; PART_WINDOWS],
            within,
        }
    }

    #[test]
    fn a_step_is_over_with_its_last_short_window() {
        let steps = vec![step(7, 5.0, 10.0); 4];
        assert_eq!(recovery_ms(&steps, 2, 10.0), 80.0);
        assert_eq!(recovery_ms(&steps, 5, 10.0), 100.0);
        assert!((deficit_ms(&steps, 10.0) - 35.0).abs() < 1e-9);
        let never = vec![step(PART_WINDOWS, 5.0, 10.0); 4];
        assert_eq!(recovery_ms(&never, 10, 10.0), 1000.0);
        let always = vec![step(0, 0.0, 10.0); 4];
        assert_eq!(
            (recovery_ms(&always, 2, 10.0), deficit_ms(&always, 10.0)),
            (0.0, 0.0)
        );
        assert_eq!(recovery_ms(&[], 2, 10.0), 0.0);
        assert!(deficit_ms(&[], 10.0).is_nan());
    }

    #[test]
    fn scatter_is_not_a_relapse() {
        // Each window scatters by half, and one of them happens to be low in all steps.
        let mut steps = vec![step(0, 0.0, 10.0); 4];
        for (number, step) in steps.iter_mut().enumerate() {
            let low = |window: usize| (window + number).is_multiple_of(2);
            let scattered = (0..PART_WINDOWS).map(|it| if low(it) { 5.0 } else { 15.0 });
            step.within = scattered.collect();
            step.within[80] = 8.0;
        }
        assert_eq!(recovery_ms(&steps, 1, 10.0), 0.0);
        let (means, error) = windows(&steps, 1);
        assert!((means[0] - 10.0).abs() < 1e-9 && (means[80] - 8.0).abs() < 1e-9);
        assert!((error - 2.9).abs() < 0.1, "{error}");
        for step in &mut steps {
            step.within[80] = 0.0;
        }
        assert_eq!(recovery_ms(&steps, 1, 10.0), 810.0);
    }

    #[test]
    fn high_parts_are_cut_out_and_the_best_arm_is_the_capacity() {
        let window = |number: usize| Window {
            completed: if number % (2 * PART_WINDOWS) < PART_WINDOWS {
                9
            } else {
                5
            },
            within: 4,
            ..Window::default()
        };
        let series: Vec<_> = (0..4 * PART_WINDOWS + 7).map(window).collect();
        let found = steps(&series);
        assert_eq!(found.len(), 2);
        assert!(
            found
                .iter()
                .all(|it| it.completed == vec![9.0; PART_WINDOWS])
        );
        let mut slower = found.clone();
        slower[0].completed.fill(1.0);
        let all = [
            ("a".to_owned(), vec![found]),
            ("b".to_owned(), vec![slower]),
        ];
        let steps = Steps(all.into());
        assert_eq!(capacity(&steps), Some(9.0));
        let mut table: Table = [("a".to_owned(), BTreeMap::new())].into();
        judge(&steps, &mut table);
        assert_eq!(table["a"]["recovery_ms[window=20]"], [1000.0]);
        assert_eq!(table["a"].len(), JUDGED.len() + 1);
        assert!(!table.contains_key("b"));
    }

    #[test]
    fn parts_are_whole_numbers_of_windows() {
        assert_eq!(WINDOW * PART_WINDOWS as u32, PART);
        assert!(
            JUDGED
                .iter()
                .all(|judged| LOOKED_AT.is_multiple_of(*judged))
        );
        for scale in [Scale::Quick, Scale::Full] {
            let plan = plan(scale);
            let point = &plan.stages[0].points[0];
            assert_eq!(point.warm_up, PART, "the measured part begins with a step");
            assert!(
                point
                    .length
                    .as_millis()
                    .is_multiple_of((2 * PART).as_millis())
            );
        }
    }
}
