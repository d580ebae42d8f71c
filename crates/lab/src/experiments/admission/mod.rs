//! Admission control: the experiments of Admission-2008, and those of the design.
//!
//! ```text
//! request     4 ms of CPU, 16 KiB: each node does 25 a second, all eight 200
//! goodput     answered within the SLO of 500 ms, per second
//! capacity    the most that any arm completed at the same cost, per second
//! a refused client of a closed loop rests 100 ms and asks again
//! ```
//!
//! | arm | the controller reads |
//! |---|---|
//! | `no admission` | nothing |
//! | `static`, `adaptive` | the nodes' kernels, each millisecond (rung 2, generic XDP), one-sidedly |
//! | `static_tcp`, `adaptive_tcp` | daemons in the nodes' quotas over TCP, each millisecond: Admission-2008's baseline |
//! | `..._tcp_50ms` | the same each 50 ms |
//!
//! `static` refuses when the node that the policy chose has its CPU at 90 %. Admission-2008 refuses when
//! any node is over its limit; among eight small nodes one nearly always is. All of them choose nodes
//! by `auto`. One process each where nothing else is said: a limit that is set holds for one.
//!
//! The daemons take from the nodes what an answer costs; that is a large part of a tenth of a CPU each
//! millisecond, and was a small one of the paper's two. Hence the arms at 50 ms.

pub(super) mod goodput;
pub(super) mod instant;
pub(super) mod priority;
pub(super) mod qos;
pub(super) mod recovery;
pub(super) mod response;
pub(super) mod traces;

use std::time::Duration;

use crate::cluster::{AgentPlan, CachePlan, Cluster, ClusterPlan};
use crate::front::{EnvoyFilter, FrontKind, HaproxyBalance, NginxBalance, TidegateArm};
use crate::load::{Arrivals, LoadResult, Pacing, Requests, Stream};

use super::arms::{AUTO, BESIDE, FRESH, KLM, PAPER_INTERVAL, beside_agent, klm_agent};
use super::judge::{Table, best, median};
use super::measured::labelled;
use super::plan::{Arm, Calibration, Plan, Point};
use super::runner::{Run, RunHook};
use super::{ExperimentError, Scale, workload};

const OFF: &str = "no admission";
const STATIC: &str = "static";
const ADAPTIVE: &str = "adaptive";
const STATIC_TCP: &str = "static_tcp";
const ADAPTIVE_TCP: &str = "adaptive_tcp";
const STATIC_TCP_50: &str = "static_tcp_50ms";
const ADAPTIVE_TCP_50: &str = "adaptive_tcp_50ms";
/// All that read over TCP.
const OVER_TCP: [&str; 4] = [STATIC_TCP, ADAPTIVE_TCP, STATIC_TCP_50, ADAPTIVE_TCP_50];

const SITE: &str = "site";
const SLO: Duration = Duration::from_millis(500);
/// Admission-2008's bound of a satisfied client.
const QOS: Duration = Duration::from_secs(1);
/// Admission-2008's interval of monitoring.
const INTERVAL: Duration = Duration::from_millis(1);
/// Of a refused client.
const REST: Duration = Duration::from_millis(100);
/// Of an open loop: no client waits for later answers than this.
const TIMEOUT: Duration = Duration::from_millis(1500);
/// Clients of a closed loop that the nodes bear.
const LIGHT: u32 = 24;
/// What each request costs and brings.
const PATH: &str = "/work?cpu=4000us&bytes=16384";
/// Static limits.
const STATIC_MODE: &str = "{ mode = \"static\", cpu = 0.9, scope = \"chosen\" }";

/// What a controller reads.
#[derive(Clone, Copy, Debug)]
enum Feed {
    /// The nodes' kernels, over UDP.
    Kernel,
    /// Agents beside the nodes' quotas, from memory, at [`SPARING`]: for many front-ends on one CPU.
    Beside,
    /// Daemons in the nodes' quotas, over TCP at an interval.
    Tcp(Duration),
}

/// The agents for [`Feed::Kernel`] and for [`Feed::Beside`].
const KERNEL: &[AgentPlan] = &[klm_agent()];
const MEMORY: &[AgentPlan] = &[AgentPlan {
    interval: SPARING,
    ..beside_agent()
}];
/// Where sixteen front-ends share one CPU with the agents of eight nodes: each millisecond, agents and
/// readers would take half of it.
const SPARING: Duration = Duration::from_millis(5);

/// Nodes to which all files cost the same.
fn cluster(agents: &[AgentPlan]) -> ClusterPlan {
    let mut plan = workload::cluster(agents);
    for node in &mut plan.nodes {
        node.cache = CachePlan::default();
    }
    plan
}

/// Equal requests.
fn stream(pacing: Pacing) -> Stream {
    asking(pacing, PATH)
}

fn asking(pacing: Pacing, path: &str) -> Stream {
    Stream {
        site: SITE.into(),
        pacing,
        requests: Requests::Single { path: path.into() },
        header: None,
    }
}

fn closed(clients: u32) -> Pacing {
    Pacing::Closed {
        clients,
        think: Duration::ZERO,
    }
}

/// Poisson, at a fraction of the knee.
fn open(rate: f64) -> Pacing {
    Pacing::Open {
        rate,
        arrivals: Arrivals::Poisson,
    }
}

/// A point without caches to fill.
fn point(label: String, stream: Stream, [warm_up, length]: [u64; 2]) -> Point {
    let [warm_up, length] = [warm_up, length].map(Duration::from_millis);
    let single = Point::single(label, stream, warm_up, length);
    let timeout = match single.is_closed() {
        true => single.timeout,
        false => TIMEOUT,
    };
    Point {
        settle: Duration::ZERO,
        slo: Some(SLO),
        rest: REST,
        timeout,
        ..single
    }
}

/// The search for the knee of these requests.
fn calibration(scale: Scale, stream: Stream, first: f64) -> Calibration {
    Calibration {
        front: FrontKind::Tidegate(TidegateArm::blind("least_request")),
        streams: vec![stream],
        first,
        length: Duration::from_millis(1500),
        steps: scale.pick(6, 8),
    }
}

fn arm(name: &str, feed: Feed, admission: &str) -> Arm {
    let arm = match feed {
        Feed::Kernel => TidegateArm::reading(name, AUTO, KLM, FRESH),
        Feed::Beside => TidegateArm::reading(name, AUTO, BESIDE, SPARING),
        Feed::Tcp(interval) => TidegateArm::asking(name, AUTO, interval),
    };
    Arm::of(FrontKind::Tidegate(arm.admitting(admission)))
}

fn off(feed: Feed) -> Arm {
    arm(OFF, feed, "{ mode = \"off\" }")
}

/// The mode `adaptive`, with more keys as TOML.
fn adaptive_mode(slo: Duration, more: &str) -> String {
    let slo = slo.as_millis();
    format!("{{ mode = \"adaptive\", slo = \"{slo}ms\"{more} }}")
}

fn adaptive(feed: Feed) -> Arm {
    arm(ADAPTIVE, feed, &adaptive_mode(SLO, ""))
}

/// The systems of Admission-2008 and `adaptive`, the latter over TCP too.
fn paper_arms() -> Vec<Arm> {
    let tcp = Feed::Tcp(INTERVAL);
    vec![
        off(Feed::Kernel),
        arm(STATIC_TCP, tcp, STATIC_MODE),
        arm(STATIC, Feed::Kernel, STATIC_MODE),
        arm(ADAPTIVE_TCP, tcp, &adaptive_mode(SLO, "")),
        adaptive(Feed::Kernel),
    ]
}

/// The same over TCP at a longer interval.
fn seldom_arms() -> Vec<Arm> {
    let seldom = Feed::Tcp(PAPER_INTERVAL);
    vec![
        arm(STATIC_TCP_50, seldom, STATIC_MODE),
        arm(ADAPTIVE_TCP_50, seldom, &adaptive_mode(SLO, "")),
    ]
}

/// HAProxy as its manual protects servers; its queue has the part of the SLO that `adaptive`'s has.
fn haproxy(slo: Duration) -> Arm {
    let queue = slo * 6 / 10;
    Arm::of(FrontKind::Haproxy(HaproxyBalance::Limited { queue }))
}

fn nginx() -> Arm {
    Arm::of(FrontKind::Nginx(NginxBalance::LimitConn))
}

fn envoy_concurrency() -> Arm {
    Arm::of(FrontKind::Envoy(EnvoyFilter::AdaptiveConcurrency))
}

fn envoy_success(slo: Duration) -> Arm {
    let filter = EnvoyFilter::AdmissionControl { timeout: slo };
    Arm::of(FrontKind::Envoy(filter))
}

fn by_clients(clients: u32) -> String {
    format!("clients={clients}")
}

fn by_load(load: f64) -> String {
    format!("load={load}")
}

/// Counts what came in time.
#[derive(Debug)]
struct InTime;

impl RunHook for InTime {
    fn during(&mut self, _: &mut Cluster, _: &Run<'_>) -> Result<(), ExperimentError> {
        Ok(())
    }

    fn metrics(&mut self, run: &Run<'_>, result: &LoadResult) -> Vec<(String, f64)> {
        in_time(run.point, result)
    }
}

fn in_time(point: &Point, result: &LoadResult) -> Vec<(String, f64)> {
    let total = result.total();
    let over = |limit: Duration| total.slower_than(limit.as_secs_f64() * 1e3);
    let within = total
        .completed
        .saturating_sub(over(point.slo.unwrap_or(SLO)));
    let share = |part: u64, whole: u64| part as f64 / (whole as f64).max(1.0) * 100.0;
    // Of nothing there is no share.
    let late = match total.completed {
        0 => f64::NAN,
        all => share(over(QOS), all),
    };
    vec![
        (
            "goodput_rps".into(),
            within as f64 / point.length.as_secs_f64(),
        ),
        ("refused_pct".into(), share(total.refused, total.offered)),
        ("over_1s_pct".into(), late),
    ]
}

/// The median of a metric of an arm at a point.
fn of(table: &Table, arm: &str, metric: &str, label: &str) -> Option<f64> {
    median(table, arm, &labelled(metric, label))
}

/// One arm's median over another's, at a point.
fn over(table: &Table, (arm, base): (&str, &str), metric: &str, label: &str) -> Option<f64> {
    Some(of(table, arm, metric, label)? / of(table, base, metric, label)?)
}

/// The one of some arms with the least (or greatest) median at a point.
fn best_of<'a>(
    table: &Table,
    arms: impl IntoIterator<Item = &'a str>,
    metric: &str,
    label: &str,
    greatest: bool,
) -> Option<&'a str> {
    best(table, arms, &labelled(metric, label), greatest)
}

/// The most that any arm completed at any of these points, per second.
fn capacity<'a>(table: &Table, labels: impl IntoIterator<Item = &'a str> + Clone) -> Option<f64> {
    let all = table.keys().flat_map(|arm| {
        let labels = labels.clone().into_iter();
        labels.filter_map(move |label| of(table, arm, "throughput_rps", label))
    });
    all.reduce(f64::max)
}

/// The names of a plan's arms that were measured, all and the peers alone.
fn measured_arms<'a>(plan: &'a Plan, table: &Table) -> (Vec<&'a str>, Vec<&'a str>) {
    let (own, peers) = (
        super::paper::own(plan, table),
        super::paper::peers(plan, table),
    );
    ([own, peers.clone()].concat(), peers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let row = |metric: &str, value: f64| (metric.to_owned(), vec![value, value]);
        [
            (
                OFF,
                vec![
                    row("throughput_rps[load=2]", 190.0),
                    row("mean_ms[load=2]", 1000.0),
                ],
            ),
            (
                ADAPTIVE,
                vec![
                    row("throughput_rps[load=2]", 180.0),
                    row("throughput_rps[load=4]", 200.0),
                    row("mean_ms[load=2]", 100.0),
                ],
            ),
        ]
        .map(|(arm, rows)| (arm.to_owned(), rows.into_iter().collect()))
        .into()
    }

    #[test]
    fn capacity_is_the_most_at_the_same_cost() {
        let table = table();
        assert_eq!(capacity(&table, ["load=2"]), Some(190.0));
        assert_eq!(capacity(&table, ["load=2", "load=4"]), Some(200.0));
        assert_eq!(capacity(&table, ["mixed=2"]), None);
        let ratio = over(&table, (ADAPTIVE, OFF), "mean_ms", "load=2");
        assert!((ratio.unwrap() - 0.1).abs() < 1e-9);
        let least = best_of(&table, [OFF, ADAPTIVE], "mean_ms", "load=2", false);
        assert_eq!(least, Some(ADAPTIVE));
    }

    #[test]
    fn the_same_controllers_stand_over_tcp_as_over_the_kernel() {
        let arms = [paper_arms(), seldom_arms()].concat();
        let admission = |name: &str| {
            let found = arms.iter().find(|arm| arm.name == name);
            match found.map(|arm| &arm.kind) {
                Some(FrontKind::Tidegate(arm)) => (arm.policy.clone(), arm.admission.clone()),
                other => panic!("{name}: {other:?}"),
            }
        };
        for tcp in OVER_TCP {
            let same = if tcp.starts_with(STATIC) {
                STATIC
            } else {
                ADAPTIVE
            };
            assert_eq!(admission(tcp), admission(same));
        }
        assert_ne!(admission(STATIC), admission(ADAPTIVE));
    }

    #[test]
    fn what_came_in_time_is_told_from_what_did_not() {
        let load = LoadResult::default();
        let point = point(by_load(2.0), stream(open(2.0)), [0, 1000]);
        let nothing = in_time(&point, &load);
        let values: Vec<_> = nothing.iter().map(|(_, value)| *value).collect();
        assert!(
            values[..2] == [0.0, 0.0] && values[2].is_nan(),
            "{nothing:?}"
        );
        assert_eq!(point.timeout, TIMEOUT);
        let closed = super::point(by_clients(5), stream(closed(5)), [0, 1000]);
        assert!(closed.timeout > QOS * 2);
    }
}
