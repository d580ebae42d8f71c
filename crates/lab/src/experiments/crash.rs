//! `crash`: what clients notice when a server dies, hangs, and comes back.
//!
//! ```text
//! 0 s           2 s            7 s            12 s            20 s            28 s
//! steady ────── kill n1 ────── revive n1 ──── stop n2 ─────── resume n2 ───── end
//! ```
//!
//! Kill is the process gone: connections are refused. Stop is a process that the kernel keeps and
//! that never answers (SIGSTOP): connections are accepted, answers do not come.
//!
//! * **failed**: requests that clients lost, by a wrong answer or none within the time-out.
//! * **avoid**: from the fault to the last lost or slow (over a second) answer before the node came
//!   back; zero if there was none. A request that hangs is lost when its time-out has passed,
//!   so after a stop even the best front-end needs that long.
//! * **return**: from the node's return until it works half as much as before the fault, by its
//!   control group's CPU time. A node that does not return counts to the end of the phase.
//!
//! Times are as fine as the windows of the series.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_core::time::Timestamp;
use tidegate_remote::clock;

use crate::cluster::Cluster;
use crate::front::FrontKind;
use crate::load::{LoadResult, Window};
use crate::results::{Axis, Report};

use super::arms::AUTO;
use super::judge::{at_most, best, median};
use super::measured::Measured;
use super::paper::peers;
use super::plan::{Arm, Plan, Point, Stage};
use super::report::{ExperimentFindings, Sketch, report};
use super::runner::{Run, RunHook, Runner};
use super::{Experiment, ExperimentError, Lab, Scale, arms, workload};

/// See the module.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "crash",
    about: "servers that die, hang and come back under load: lost requests, time to avoid, time to return",
    source: "design goals",
    needs: "haproxy, nginx, apache2, envoy for their arms",
    estimate: |scale| plan(scale).estimate(),
    run,
    plan: Some(plan),
};

const KILLED: usize = 0;
const STOPPED: usize = 1;
const WINDOW: Duration = Duration::from_millis(100);
/// Windows that a node's work is smoothed over.
const WINDOWS_SMOOTH: usize = 3;
/// A request that takes longer has failed.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Slower than this is noticed.
const SLOW_MS: f64 = 1000.0;
/// A node that is well again should work again by then.
const RETURN_MAX_MS: f64 = 1000.0;
/// Clients: about 0.6 of what the nodes bear.
const CLIENTS: u32 = 8;

/// When what happens, seconds after the warm-up.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    kill: f64,
    revive: f64,
    stop: f64,
    resume: f64,
    end: f64,
}

fn schedule(scale: Scale) -> Schedule {
    match scale {
        Scale::Quick => Schedule {
            kill: 1.0,
            revive: 3.5,
            stop: 6.0,
            resume: 9.0,
            end: 12.0,
        },
        Scale::Full => Schedule {
            kill: 2.0,
            revive: 7.0,
            stop: 12.0,
            resume: 20.0,
            end: 28.0,
        },
    }
}

/// What is done to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Kill,
    Revive,
    Stop,
    Resume,
}

impl Schedule {
    fn faults(&self) -> [(f64, Fault); 4] {
        [
            (self.kill, Fault::Kill),
            (self.revive, Fault::Revive),
            (self.stop, Fault::Stop),
            (self.resume, Fault::Resume),
        ]
    }
}

fn plan(scale: Scale) -> Plan {
    let mut all = vec![arms::auto(), arms::blind("least_request")];
    all.extend(match scale {
        Scale::Quick => arms::best_peers(),
        Scale::Full => full_peers(),
    });
    let point = Point {
        timeout: TIMEOUT,
        windows: Some(WINDOW),
        ..Point::single(
            String::new(),
            workload::clients("site", CLIENTS, 0.5),
            Duration::from_secs(1),
            Duration::from_secs_f64(schedule(scale).end),
        )
    };
    Plan {
        stages: vec![Stage::new(workload::cluster(arms::AGENTS), vec![point])],
        arms: all,
        rounds: 2,
    }
}

/// Each peer once or twice: how it balances matters little here.
fn full_peers() -> Vec<Arm> {
    let mut peers = arms::best_peers();
    peers.push(Arm::of(FrontKind::Apache));
    peers
}

/// Does the faults and sees how much the nodes work.
#[derive(Debug)]
struct Faults {
    schedule: Schedule,
    /// When each fault was done: a revived node has answered then.
    done: Vec<f64>,
    /// Seconds after the warm-up, and the CPU time so far of the killed and the stopped node.
    looks: Vec<(f64, [f64; 2])>,
}

impl RunHook for Faults {
    fn during(&mut self, cluster: &mut Cluster, run: &Run<'_>) -> Result<(), ExperimentError> {
        self.looks.clear();
        self.done.clear();
        let start = clock::now() + run.point.warm_up;
        let done = self.carry_out(cluster, start);
        // The next arm finds all nodes there, whatever happened.
        cluster.resume(STOPPED)?;
        cluster.revive(KILLED)?;
        done
    }

    fn metrics(&mut self, _: &Run<'_>, result: &LoadResult) -> Vec<(String, f64)> {
        let Schedule {
            kill,
            revive,
            stop,
            resume,
            end,
        } = self.schedule;
        let total = result.total();
        let series = merged(result);
        let done = |fault: usize, due: f64| self.done.get(fault).copied().unwrap_or(due);
        let (revived, resumed) = (done(1, revive), done(3, resume));
        let share = |count: u64| count as f64 / (total.offered as f64).max(1.0) * 100.0;
        vec![
            ("failed_pct".into(), share(total.failed + total.refused)),
            ("failed_by_kill".into(), lost(&series, kill, stop) as f64),
            ("failed_by_stop".into(), lost(&series, stop, end) as f64),
            ("avoid_killed_ms".into(), avoid(&series, kill, revive) * 1e3),
            (
                "avoid_stopped_ms".into(),
                avoid(&series, stop, resume) * 1e3,
            ),
            (
                "return_killed_ms".into(),
                returned(&self.series_of(0), kill, revived, stop) * 1e3,
            ),
            (
                "return_stopped_ms".into(),
                returned(&self.series_of(1), stop, resumed, end) * 1e3,
            ),
        ]
    }

    fn raw(&mut self) -> Value {
        json!({ "cpu_seconds_of_killed_and_stopped": self.looks, "schedule": format!("{:?}", self.schedule) })
    }
}

impl Faults {
    /// Does what is due when it is due, and looks at the CPU time between.
    fn carry_out(
        &mut self,
        cluster: &mut Cluster,
        start: Timestamp,
    ) -> Result<(), ExperimentError> {
        let mut faults = self.schedule.faults().into_iter().peekable();
        let mut due = start;
        loop {
            clock::sleep_until(due);
            let at = clock::now().seconds_since(start);
            if at >= self.schedule.end {
                return Ok(());
            }
            if let Some((_, fault)) = faults.next_if(|(when, _)| *when <= at) {
                match fault {
                    Fault::Kill => cluster.kill(KILLED)?,
                    Fault::Revive => cluster.revive(KILLED)?,
                    Fault::Stop => cluster.stop(STOPPED)?,
                    Fault::Resume => cluster.resume(STOPPED)?,
                }
                self.done.push(clock::now().seconds_since(start));
            }
            let used = [KILLED, STOPPED].map(|node| cluster.cpu_time(node).as_secs_f64());
            self.looks.push((clock::now().seconds_since(start), used));
            due = due + WINDOW;
        }
    }

    /// Time and CPU time of one of the two nodes.
    fn series_of(&self, which: usize) -> Vec<(f64, f64)> {
        self.looks
            .iter()
            .map(|(at, used)| (*at, used[which]))
            .collect()
    }
}

/// The windows of all streams as one series.
fn merged(result: &LoadResult) -> Vec<Window> {
    let mut windows: BTreeMap<u64, Window> = BTreeMap::new();
    for window in result.streams.iter().flat_map(|stream| &stream.series) {
        let at = windows.entry((window.at * 1e3).round() as u64).or_default();
        at.at = window.at;
        at.completed += window.completed;
        at.failed += window.failed;
        at.p99_ms = at.p99_ms.max(window.p99_ms);
    }
    windows.into_values().collect()
}

/// Requests lost in a phase.
fn lost(series: &[Window], from: f64, to: f64) -> u64 {
    let phase = series.iter().filter(|it| it.at >= from && it.at < to);
    phase.map(|it| it.failed).sum()
}

/// From the fault to the last answer before the node's return that clients minded.
fn avoid(series: &[Window], fault: f64, back: f64) -> f64 {
    let phase = series.iter().filter(|it| it.at >= fault && it.at < back);
    let mut minded = phase.filter(|it| it.failed > 0 || it.p99_ms > SLOW_MS);
    minded
        .next_back()
        .map_or(0.0, |it| it.at + WINDOW.as_secs_f64() - fault)
}

/// From the node's return until it works at half its former rate again; at most the phase.
fn returned(used: &[(f64, f64)], fault: f64, back: f64, end: f64) -> f64 {
    let at = |time: f64| used.iter().find(|(at, _)| *at >= time).copied();
    let (Some(first), Some(before)) = (at(0.0), at(fault)) else {
        return end - back;
    };
    let half = (before.1 - first.1) / (before.0 - first.0).max(f64::MIN_POSITIVE) / 2.0;
    let pairs = used.iter().zip(used.iter().skip(WINDOWS_SMOOTH));
    let mut after = pairs.filter(|(old, new)| old.0 >= back && new.0 < end);
    let found = after.find(|(old, new)| new.1 - old.1 > half * (new.0 - old.0));
    found.map_or(end - back, |(_, new)| new.0 - back)
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let plan = plan(lab.scale);
    let mut faults = Faults {
        schedule: schedule(lab.scale),
        done: Vec::new(),
        looks: Vec::new(),
    };
    let measured = Runner::run(lab, &plan, &mut faults)?;
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
    let own = |metric| median(table, AUTO, metric);
    let mut verdicts = vec![
        at_most(
            "requests lost by the kill, auto".into(),
            own("failed_by_kill"),
            0.0,
        ),
        at_most(
            "time to avoid the killed node, auto, ms".into(),
            own("avoid_killed_ms"),
            200.0,
        ),
        at_most(
            "time to avoid the hanging node, auto, ms".into(),
            own("avoid_stopped_ms"),
            TIMEOUT.as_secs_f64() * 1e3 + 500.0,
        ),
    ];
    let peer = best(table, peers(plan, table), "failed", false);
    let theirs = peer.and_then(|peer| median(table, peer, "failed"));
    let goal = format!(
        "requests that auto lost, at most as many as the best peer, {}",
        peer.unwrap_or("none")
    );
    verdicts.push(
        own("failed")
            .zip(theirs)
            .and_then(|(own, theirs)| at_most(goal, Some(own), theirs)),
    );
    for metric in ["return_killed_ms", "return_stopped_ms"] {
        verdicts.push(at_most(
            format!("auto's {metric}"),
            own(metric),
            RETURN_MAX_MS,
        ));
    }
    ExperimentFindings {
        paper: BTreeMap::new(),
        verdicts,
        notes: vec![
            format!("{CLIENTS} clients in a closed loop; a request is lost after {TIMEOUT:?}."),
            "Health checks as each front-end's file says: HAProxy and Envoy ask each two seconds, nginx and Apache see failures in passing, \
             Tidegate ejects in passing, probes what it ejected, and what is silent."
                .into(),
        ],
        plots: vec![
            Sketch::bar("Requests lost", "failed_pct", "% of all requests"),
            Sketch::Bars {
                title: "Time to avoid and to return".into(),
                groups: [
                    ("avoid killed", "avoid_killed_ms"),
                    ("avoid hanging", "avoid_stopped_ms"),
                    ("return revived", "return_killed_ms"),
                    ("return resumed", "return_stopped_ms"),
                ]
                .map(|(name, metric)| (name.to_owned(), metric.to_owned()))
                .into(),
                y: Axis::from_zero("ms"),
            },
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(at: f64, failed: u64, p99_ms: f64) -> Window {
        Window {
            at,
            failed,
            p99_ms,
            completed: 1,
            ..Window::default()
        }
    }

    #[test]
    fn a_fault_is_avoided_after_the_last_answer_that_was_minded() {
        let series = [
            window(0.9, 5, 0.0),
            window(1.0, 1, 10.0),
            window(1.4, 0, 1500.0),
            window(1.5, 0, 20.0),
            window(3.0, 9, 0.0),
        ];
        assert!((avoid(&series, 1.0, 3.0) - 0.5).abs() < 1e-9);
        assert!(avoid(&series[3..], 1.0, 3.0).abs() < 1e-9);
        assert_eq!(lost(&series, 1.0, 3.0), 1);
    }

    #[test]
    fn a_node_is_back_when_it_works_half_as_much_as_before() {
        let used = |at: u32| match at {
            0..10 => f64::from(at),
            10..30 => 10.0,
            _ => 10.0 + f64::from(at - 30),
        };
        let series: Vec<_> = (0..60).map(|at| (f64::from(at) * 0.1, used(at))).collect();
        let back = returned(&series, 1.0, 2.0, 6.0);
        assert!((1.0..1.4).contains(&back), "{back}");
        assert!((returned(&series[..25], 1.0, 2.0, 6.0) - 4.0).abs() < 1e-9);
    }
}
