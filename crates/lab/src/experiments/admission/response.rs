//! `admission`: mean response time and throughput over the number of clients (Admission-2008 §IV-B,
//! Figure 5), before the lab's server, and before Apache with PHP in its processes.
//!
//! The lab's server gets no slower by a crowd: a request costs the CPU time that it asks for. That
//! others do is what admission control gains in throughput. Apache does here as it does elsewhere,
//! when it may have more processes than the machine has memory for:
//!
//! ```text
//! request   16 MiB held by its process, 4 ms of CPU and what so much memory costs: 15 ms
//! node      512 MiB: thirty requests at once, and what is beyond drives out the programs' own pages
//! crowd     320 clients, 40 at each node, of which 48 may be at work
//! ```
//!
//! One such node did 20 requests per second at 0.3 of a CPU with 2, 8 and 25 clients, and nothing in 8 s
//! with 40. It may not come to itself for long, so all servers are started anew after each run.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_remote::clock;

use crate::cluster::{Cluster, ClusterPlan, ServerKind};
use crate::experiments::judge::{Table, at_least, at_most};
use crate::experiments::measured::{Measured, labelled};
use crate::experiments::paper::{beside, ranked};
use crate::experiments::plan::{Arm, Plan, Point, Stage};
use crate::experiments::report::{ExperimentFindings, Sketch, report};
use crate::experiments::runner::{Run, RunHook, Runner};
use crate::experiments::{Experiment, ExperimentError, Lab, Scale};
use crate::load::LoadResult;
use crate::results::{Axis, GoalVerdict, Report};

use super::{
    ADAPTIVE, ADAPTIVE_TCP, KERNEL, LIGHT, OFF, OVER_TCP, SLO, STATIC, STATIC_TCP, asking, best_of,
    by_clients, closed, cluster, haproxy, in_time, measured_arms, of, over, paper_arms, point,
    seldom_arms, stream,
};

/// See the module.
pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "admission",
    about: "mean response time and throughput by clients: no admission, static and adaptive, over TCP and one-sided",
    source: "Admission-2008 §IV, Figure 5",
    needs: "haproxy for its arm; libapache2-mod-php for its nodes",
    estimate,
    run,
    plan: Some(plan),
};

const QUICK: &[u32] = &[LIGHT, 200];
const FULL: &[u32] = &[LIGHT, 64, 200, 400];
/// Before Apache: a light load and a crowd.
const APACHE_CLIENTS: [u32; 2] = [LIGHT, 320];
const APACHE_PATH: &str = "/work?cpu=4000us&bytes=16384&mem=16MiB";
/// Processes of each Apache.
const PROCESSES: u32 = 48;
/// Answers on their way when the load ends, and servers that start anew.
const GRACE: Duration = Duration::from_millis(500);
const REVIVAL: Duration = Duration::from_millis(3500);

fn clients(scale: Scale) -> &'static [u32] {
    scale.pick(QUICK, FULL)
}

fn by_apache(clients: u32) -> String {
    format!("apache_clients={clients}")
}

fn is_apache(point: &Point) -> bool {
    APACHE_CLIENTS.map(by_apache).contains(&point.label)
}

fn estimate(scale: Scale) -> Duration {
    let plan = plan(scale);
    let points = plan.stages.iter().flat_map(|stage| &stage.points);
    let revived = points.filter(|point| is_apache(point)).map(|point| {
        let arms = plan.arms.iter().filter(|arm| point.takes(arm)).count() as u32;
        (GRACE + REVIVAL) * arms * plan.rounds
    });
    plan.estimate() + revived.sum::<Duration>()
}

fn plan(scale: Scale) -> Plan {
    let length = scale.pick([1200, 2500], [2000, 4000]);
    let by = |clients: &u32| point(by_clients(*clients), stream(closed(*clients)), length);
    let points = clients(scale).iter().map(by).collect();
    let mut stages = vec![Stage::new(cluster(KERNEL), points)];
    let mut arms = paper_arms();
    if scale == Scale::Full {
        stages.push(apache(length));
        arms.extend(seldom_arms());
    }
    arms.push(haproxy(SLO));
    Plan {
        stages,
        arms,
        rounds: 2,
    }
}

/// Before real servers.
fn apache(length: [u64; 2]) -> Stage {
    let mut plan: ClusterPlan = cluster(KERNEL);
    for node in &mut plan.nodes {
        node.server = ServerKind::ApachePhp;
        node.workers = PROCESSES;
    }
    let two: fn(&Arm) -> bool = |arm| [OFF, ADAPTIVE].contains(&&*arm.name);
    let more: fn(&Arm) -> bool =
        |arm| arm.peer() || [OFF, ADAPTIVE_TCP, ADAPTIVE].contains(&&*arm.name);
    let [light, crowd] = APACHE_CLIENTS;
    let points = [(light, two), (crowd, more)].map(|(clients, only)| Point {
        only: Some(only),
        ..point(
            by_apache(clients),
            asking(closed(clients), APACHE_PATH),
            length,
        )
    });
    Stage {
        optional: true,
        ..Stage::new(plan, points.into())
    }
}

/// Counts what came in time, and starts Apaches anew.
#[derive(Debug)]
struct Revival;

impl RunHook for Revival {
    fn during(&mut self, cluster: &mut Cluster, run: &Run<'_>) -> Result<(), ExperimentError> {
        if !is_apache(run.point) {
            return Ok(());
        }
        let length = run.point.warm_up + run.point.length;
        clock::sleep_until(clock::now() + length + GRACE);
        let nodes = 0..cluster.nodes().len();
        nodes.clone().try_for_each(|node| cluster.kill(node))?;
        for node in nodes {
            cluster.revive(node)?;
        }
        Ok(())
    }

    fn metrics(&mut self, run: &Run<'_>, result: &LoadResult) -> Vec<(String, f64)> {
        in_time(run.point, result)
    }
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let plan = plan(lab.scale);
    let measured = Runner::run(lab, &plan, &mut Revival)?;
    let findings = findings(lab.scale, &plan, &measured);
    let took = clock::now().since(started);
    Ok(report(&EXPERIMENT, lab, &plan, measured, findings, took))
}

fn verdicts(table: &Table, most: &str) -> Vec<Option<GoalVerdict>> {
    let tcp = best_of(table, OVER_TCP, "mean_ms", most, false);
    let over_tcp = tcp.and_then(|tcp| over(table, (ADAPTIVE, tcp), "mean_ms", most));
    let [_, apache] = APACHE_CLIENTS.map(by_apache);
    let throughput = |label: &str| over(table, (ADAPTIVE, OFF), "throughput_rps", label);
    vec![
        at_most(
            format!("adaptive's mean response time over that without admission, {most}"),
            over(table, (ADAPTIVE, OFF), "mean_ms", most),
            0.49,
        ),
        at_most(
            format!(
                "adaptive's mean response time over that of the best over TCP, {}, {most}",
                tcp.unwrap_or("none")
            ),
            over_tcp,
            0.72,
        ),
        at_most(
            format!("static's mean response time over {STATIC_TCP}'s, {most}: the paper's two"),
            over(table, (STATIC, STATIC_TCP), "mean_ms", most),
            0.72,
        ),
        at_least(
            format!("adaptive's throughput over that without admission, {most}"),
            throughput(most),
            1.15,
        ),
        at_least(
            format!("adaptive's throughput over that without admission, {apache}"),
            throughput(&apache),
            1.15,
        ),
        at_most(
            format!("adaptive's requests over 1 s, %, {most}"),
            of(table, ADAPTIVE, "over_1s_pct", most),
            0.1,
        ),
    ]
}

fn findings(scale: Scale, plan: &Plan, measured: &Measured) -> ExperimentFindings {
    let table = &measured.table;
    let most = by_clients(clients(scale).last().copied().unwrap_or(LIGHT));
    let (names, _) = measured_arms(plan, table);
    let order =
        |metric, label: &str, greatest| ranked(table, &names, &labelled(metric, label), greatest);
    let figure = |value: &str, metric, greatest| {
        let source = "Admission-2008 §IV, Figure 5, at 520 clients";
        beside(
            json!(value),
            source,
            order(metric, &most, greatest),
            Value::Null,
        )
    };
    let line = |title, quantity, y| Sketch::Over {
        title,
        quantity,
        parameter: "clients",
        x: Axis::linear("clients"),
        y: Axis::from_zero(y),
    };
    ExperimentFindings {
        paper: [
            (
                "mean_response_time".to_owned(),
                figure(
                    "RDMA -51 % against no admission, -28 % against TCP",
                    "mean_ms",
                    false,
                ),
            ),
            (
                "throughput".to_owned(),
                figure(
                    "RDMA and TCP +15 % against no admission",
                    "throughput_rps",
                    true,
                ),
            ),
        ]
        .into(),
        verdicts: verdicts(table, &most),
        notes: notes(),
        plots: vec![
            line("Mean response time by clients", "mean_ms", "ms"),
            line("Throughput by clients", "throughput_rps", "requests/s"),
            Sketch::Over {
                title: "Throughput before Apache by clients",
                quantity: "throughput_rps",
                parameter: "apache_clients",
                x: Axis::linear("clients"),
                y: Axis::from_zero("requests/s"),
            },
        ],
    }
}

fn notes() -> Vec<String> {
    vec![
        "A refused client of the closed loop rests for 100 ms and asks again. Response times are those of answered requests.".into(),
        "The arms over TCP ask a daemon in each node's quota, at ordinary priority, each millisecond as in the paper, or each 50 ms. \
         A node here has a tenth of a CPU, the paper's had two: each answer takes the larger part of it."
            .into(),
        "static and adaptive read the node's kernel over UDP each millisecond (rung 2, generic XDP).".into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_judged_against_the_best_over_tcp() {
        let row = |ms: f64, rps: f64| {
            [
                ("mean_ms[clients=200]".to_owned(), vec![ms]),
                ("throughput_rps[clients=200]".to_owned(), vec![rps]),
            ]
            .into()
        };
        let table: Table = [
            (OFF.to_owned(), row(1000.0, 100.0)),
            (STATIC_TCP.to_owned(), row(500.0, 100.0)),
            (ADAPTIVE_TCP.to_owned(), row(400.0, 90.0)),
            (ADAPTIVE.to_owned(), row(200.0, 116.0)),
        ]
        .into();
        let verdicts: Vec<_> = verdicts(&table, "clients=200")
            .into_iter()
            .flatten()
            .collect();
        let told: Vec<_> = verdicts
            .iter()
            .map(|it| (it.measured, it.reached))
            .collect();
        assert_eq!(told, [(0.2, true), (0.5, true), (1.16, true)]);
        assert!(verdicts[1].goal.contains(ADAPTIVE_TCP), "{verdicts:?}");
    }
}
