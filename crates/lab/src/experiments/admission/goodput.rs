//! `admission-goodput`: what is answered within the SLO, beside the peers' own ways to protect servers.
//!
//! | point | what |
//! |---|---|
//! | `load=0.9` to `load=10` | equal requests, fractions of the knee |
//! | `slower=3` | at 1.4 of the knee each request suddenly costs three times as much |
//! | `front_ends=1, 4, 16` | so many processes that do not know of each other, at twice the knee |
//! | `mixed=2` | one request in fifty costs a hundred times as much as the others, twice the knee |
//! | `crowded=2` | another program takes half of the front-ends' CPU, twice the knee |
//!
//! The other program is a thread that always wants CPU, for each CPU of the front-ends (the lab has one), in
//! a control group of the same weight as theirs. Load generator and agents stand apart from both.
//!
//! Peers: HAProxy's `maxconn` with a queue of 0.6 of the SLO, nginx's `limit_conn`, Envoy's
//! `adaptive_concurrency` and `admission_control`. The limits of the first two were set knowing what
//! the nodes can do, and for as many front-ends as there are.
//!
//! The front-ends of `front_ends=` read agents beside the quotas from memory each 5 ms: they all share
//! one CPU, and 128 000 datagrams a second would take more than that.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_remote::clock;

use crate::antagonist::Antagonist;
use crate::cluster::Cluster;
use crate::experiments::judge::{Table, at_least, at_most};
use crate::experiments::measured::{Measured, labelled};
use crate::experiments::plan::{Arm, Plan, Point, Stage};
use crate::experiments::report::{ExperimentFindings, Sketch, report};
use crate::experiments::runner::{Run, RunHook, Runner};
use crate::experiments::{Experiment, ExperimentError, Lab, Scale};
use crate::load::{LoadResult, Mix, Pacing, Requests, Size, Stream, Window};
use crate::results::{Axis, GoalVerdict, Report};

use super::{
    ADAPTIVE, Feed, KERNEL, MEMORY, OFF, SITE, SLO, TIMEOUT, adaptive, best_of, by_load,
    calibration, capacity, cluster, envoy_concurrency, envoy_success, haproxy, in_time,
    measured_arms, nginx, of, off, open, point, stream,
};

/// See the module.
pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "admission-goodput",
    about: "goodput within the SLO at 0.9 to 10 times the knee, with several front-ends, mixed costs, a server that slows down, front-ends without CPU; peers",
    source: "design goals",
    needs: "haproxy, nginx, envoy for their arms",
    estimate: |scale| plan(scale).estimate(),
    run,
    plan: Some(plan),
};

const METRIC: &str = "goodput_rps";
const QUICK: &[f64] = &[0.9, 2.0];
const FULL: &[f64] = &[0.9, 1.4, 2.0, 4.0, 10.0];
const FEW: &[u32] = &[1, 16];
const MANY: &[u32] = &[1, 4, 16];
/// Of the knee, for the points whose label does not say.
const TWICE: f64 = 2.0;
const MIXED: &str = "mixed=2";
const SLOWER: &str = "slower=3";
const CROWDED: &str = "crowded=2";
/// One for each CPU of the front-ends.
const HOGS: Antagonist = Antagonist::Hogs { threads: 1 };
/// What requests cost then, and since when, after the warm-up.
const TIMES: u32 = 3;
const SLOWS: Duration = Duration::from_secs(2);
const WINDOW: Duration = Duration::from_millis(100);
/// The arms that the harder points are about.
const MAIN: [&str; 5] = [
    OFF,
    ADAPTIVE,
    "haproxy maxconn",
    "nginx limit_conn",
    "envoy adaptive_concurrency",
];

fn loads(scale: Scale) -> &'static [f64] {
    scale.pick(QUICK, FULL)
}

fn front_ends(scale: Scale) -> &'static [u32] {
    scale.pick(FEW, MANY)
}

fn is_main(arm: &Arm) -> bool {
    MAIN.contains(&&*arm.name)
}

fn plan(scale: Scale) -> Plan {
    let length = scale.pick([700, 2300], [1000, 3500]);
    let by = |load: &f64| point(by_load(*load), stream(open(*load)), length);
    let mut points: Vec<_> = loads(scale).iter().map(by).collect();
    points.push(crowded(length));
    let mut arms = vec![
        off(Feed::Kernel),
        adaptive(Feed::Kernel),
        haproxy(SLO),
        envoy_concurrency(),
    ];
    if scale == Scale::Full {
        points.push(slower());
        arms.extend([nginx(), envoy_success(SLO)]);
    }
    let mut stages = vec![
        Stage {
            calibration: Some(calibration(scale, stream(open(1.0)), 120.0)),
            ..Stage::new(cluster(KERNEL), points)
        },
        several(scale, length),
    ];
    if scale == Scale::Full {
        stages.push(mixed(scale, length));
    }
    Plan {
        stages,
        arms,
        rounds: 2,
    }
}

/// A server that slows down by itself.
fn slower() -> Point {
    Point {
        windows: Some(WINDOW),
        only: Some(is_main),
        ..point(SLOWER.into(), stream(open(1.4)), [1000, 6000])
    }
}

/// Front-ends that have half of their CPU.
fn crowded(length: [u64; 2]) -> Point {
    Point {
        beside_front: Some(HOGS),
        only: Some(is_main),
        ..point(CROWDED.into(), stream(open(TWICE)), length)
    }
}

/// The same nodes behind several front-ends.
fn several(scale: Scale, length: [u64; 2]) -> Stage {
    let by = |processes: &u32| Point {
        front_ends: Some(*processes),
        only: Some(|arm| is_main(arm) && arm.name != OFF),
        ..point(by_front_ends(*processes), stream(open(TWICE)), length)
    };
    Stage {
        instead: vec![adaptive(Feed::Beside), off(Feed::Beside)],
        calibration: Some(calibration(scale, stream(open(1.0)), 120.0)),
        ..Stage::new(cluster(MEMORY), front_ends(scale).iter().map(by).collect())
    }
}

/// Cheap and dear requests.
fn mixed(scale: Scale, length: [u64; 2]) -> Stage {
    let kind = |weight: f64, micros: f64| Mix {
        weight,
        path: "/work?cpu={cpu}us&bytes=1024".into(),
        size: Size::fixed(1024.0),
        cost: Size::fixed(micros),
    };
    let mix = |pacing: Pacing| Stream {
        site: SITE.into(),
        pacing,
        requests: Requests::Mix(vec![kind(0.98, 200.0), kind(0.02, 20_000.0)]),
        header: None,
    };
    let point = Point {
        only: Some(is_main),
        ..point(MIXED.into(), mix(open(TWICE)), length)
    };
    Stage {
        calibration: Some(calibration(scale, mix(open(1.0)), 600.0)),
        ..Stage::new(cluster(KERNEL), vec![point])
    }
}

fn by_front_ends(processes: u32) -> String {
    format!("front_ends={processes}")
}

/// Counts what came in time, and slows the servers down where that is asked for.
#[derive(Debug)]
struct Slower;

impl RunHook for Slower {
    fn during(&mut self, cluster: &mut Cluster, run: &Run<'_>) -> Result<(), ExperimentError> {
        if run.point.label != SLOWER {
            return Ok(());
        }
        let start = clock::now();
        clock::sleep_until(start + run.point.warm_up + SLOWS);
        let slowed = all(cluster, TIMES);
        clock::sleep_until(start + run.point.warm_up + run.point.length);
        // The next arm finds the servers as they were, whatever happened.
        all(cluster, 1)?;
        slowed
    }

    fn metrics(&mut self, run: &Run<'_>, result: &LoadResult) -> Vec<(String, f64)> {
        let mut metrics = in_time(run.point, result);
        if run.point.label == SLOWER {
            let series = result.streams.first().map_or(&[][..], |it| &it.series);
            metrics.extend(after(series, run.point.length));
        }
        metrics
    }
}

fn all(cluster: &Cluster, times: u32) -> Result<(), ExperimentError> {
    let nodes = 0..cluster.nodes().len();
    let slowed: Vec<_> = nodes.map(|node| cluster.slow_down(node, times)).collect();
    Ok(slowed.into_iter().collect::<Result<_, _>>()?)
}

/// What was answered since the servers are slow, per second: within the SLO, and at all.
fn after(series: &[Window], length: Duration) -> [(String, f64); 2] {
    let since = SLOWS.as_secs_f64();
    let seconds = length.as_secs_f64() - since;
    let windows = || series.iter().filter(|it| it.at >= since);
    let rate = |count: u64| count as f64 / seconds;
    [
        (
            "goodput_after_rps".into(),
            rate(windows().map(|it| it.within).sum()),
        ),
        (
            "completed_after_rps".into(),
            rate(windows().map(|it| it.completed).sum()),
        ),
    ]
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let plan = plan(lab.scale);
    let measured = Runner::run(lab, &plan, &mut Slower)?;
    let findings = findings(lab.scale, &plan, &measured);
    let took = clock::now().since(started);
    Ok(report(&EXPERIMENT, lab, &plan, measured, findings, took))
}

/// Whether `adaptive` uses what the nodes can do, and is ahead of the best peer.
fn useful(
    table: &Table,
    peers: &[&str],
    metric: &str,
    label: &str,
    most: Option<f64>,
) -> [Option<GoalVerdict>; 2] {
    let own = of(table, ADAPTIVE, metric, label);
    let peer = best_of(table, peers.iter().copied(), metric, label, true);
    let theirs = peer.and_then(|peer| of(table, peer, metric, label));
    let ratio = |base: Option<f64>| own.zip(base).map(|(own, base)| own / base);
    [
        at_least(
            format!("adaptive's goodput over the nodes' capacity, {label}"),
            ratio(most),
            0.97,
        ),
        at_least(
            format!(
                "adaptive's goodput over the best peer's, {}, {label}",
                peer.unwrap_or("none")
            ),
            ratio(theirs),
            1.0,
        ),
    ]
}

fn verdicts(scale: Scale, table: &Table, peers: &[&str]) -> Vec<Option<GoalVerdict>> {
    let mut verdicts = vec![at_most(
        "adaptive's refusals at 0.9 of the knee, %".into(),
        of(table, ADAPTIVE, "refused_pct", &by_load(0.9)),
        0.0,
    )];
    let labels: Vec<_> = loads(scale).iter().copied().map(by_load).collect();
    let most = capacity(table, labels.iter().map(String::as_str));
    for load in loads(scale).iter().filter(|load| **load > 1.0) {
        verdicts.extend(useful(table, peers, METRIC, &by_load(*load), most));
    }
    let several: Vec<_> = front_ends(scale)
        .iter()
        .copied()
        .map(by_front_ends)
        .collect();
    let most = capacity(table, several.iter().map(String::as_str));
    for label in &several {
        verdicts.extend(useful(table, peers, METRIC, label, most));
    }
    let at = |processes| of(table, ADAPTIVE, METRIC, &by_front_ends(processes));
    verdicts.push(at_least(
        "adaptive's goodput with 16 front-ends over that with one".into(),
        at(16).zip(at(1)).map(|(many, one)| many / one),
        0.98,
    ));
    let most = capacity(table, [MIXED]);
    verdicts.extend(useful(table, peers, METRIC, MIXED, most));
    let most = capacity(table, [CROWDED, &by_load(TWICE)]);
    verdicts.extend(useful(table, peers, METRIC, CROWDED, most));
    let completed = |arm: &String| of(table, arm, "completed_after_rps", SLOWER);
    let most = table.keys().filter_map(completed).reduce(f64::max);
    verdicts.extend(useful(table, peers, "goodput_after_rps", SLOWER, most));
    verdicts
}

fn findings(scale: Scale, plan: &Plan, measured: &Measured) -> ExperimentFindings {
    let table = &measured.table;
    let (_, peers) = measured_arms(plan, table);
    let group = |label: &str, metric: &str| (label.to_owned(), labelled(metric, label));
    let mut groups: Vec<_> = front_ends(scale)
        .iter()
        .map(|processes| group(&by_front_ends(*processes), METRIC))
        .collect();
    groups.push(group(CROWDED, METRIC));
    if scale == Scale::Full {
        groups.extend([group(MIXED, METRIC), group(SLOWER, "goodput_after_rps")]);
    }
    ExperimentFindings {
        paper: BTreeMap::new(),
        verdicts: verdicts(scale, table, &peers),
        notes: vec![
            format!(
                "The SLO is {SLO:?}. Capacity is the most that any arm completed at points of the same cost. A request without an answer within \
                 {TIMEOUT:?} has failed."
            ),
            "HAProxy and nginx let two requests to each server, divided by the front-ends, which is what such a server needs; adaptive and \
             Envoy's filters were told nothing. Envoy's adaptive_concurrency measures its base latency when it starts, which is before the load \
             here, and each minute."
                .into(),
        ],
        plots: vec![
            Sketch::Over {
                title: "Goodput by offered load",
                quantity: METRIC,
                parameter: "load",
                x: Axis::log("offered load over the knee"),
                y: Axis::from_zero("requests/s within 500 ms"),
            },
            Sketch::Bars {
                title: "Goodput in harder cases".into(),
                groups,
                y: Axis::from_zero("requests/s within the SLO"),
            },
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_comes_after_the_change_counts() {
        let window = |at: f64, within: u64, completed: u64| Window {
            at,
            within,
            completed,
            ..Window::default()
        };
        let series = [
            window(0.0, 50, 50),
            window(1.9, 50, 50),
            window(2.0, 10, 12),
            window(3.9, 20, 24),
        ];
        let [within, completed] = after(&series, Duration::from_secs(4));
        assert!((within.1 - 15.0).abs() < 1e-9 && (completed.1 - 18.0).abs() < 1e-9);
    }

    #[test]
    fn each_goal_has_its_own_capacity() {
        let row = |rows: &[(&str, f64)]| {
            let rows = rows.iter();
            rows.map(|(name, value)| ((*name).to_owned(), vec![*value]))
                .collect()
        };
        let table: Table = [
            (
                ADAPTIVE.to_owned(),
                row(&[
                    ("goodput_rps[load=2]", 98.0),
                    ("throughput_rps[load=2]", 98.0),
                    ("goodput_rps[front_ends=1]", 50.0),
                    ("goodput_rps[front_ends=16]", 48.0),
                    ("throughput_rps[front_ends=1]", 50.0),
                ]),
            ),
            (
                "haproxy maxconn".to_owned(),
                row(&[
                    ("goodput_rps[load=2]", 100.0),
                    ("throughput_rps[load=2]", 100.0),
                ]),
            ),
        ]
        .into();
        let verdicts = verdicts(Scale::Quick, &table, &["haproxy maxconn"]);
        let told: Vec<_> = verdicts
            .iter()
            .flatten()
            .map(|it| (it.measured, it.reached))
            .collect();
        let expected = [
            (0.98, true),  // of 100 at twice the knee
            (0.98, false), // HAProxy is ahead
            (1.0, true),   // one front-end
            (0.96, false), // sixteen
            (0.96, false), // sixteen over one
        ];
        assert_eq!(told, expected);
    }
}
