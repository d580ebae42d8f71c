//! `one-vs-two-sided`: how long a front-end waits for a node's load, by what answers, as the
//! node gets busier (Reconfiguration-2004 §4.2 Figure 9, Admission-2008 §5.1 Figure 4).
//!
//! ```text
//! front CPU   one reader at real-time priority: a read, 300 us of rest, the next
//! node CPU    what answers, the node's packets, and 0 to 32 hogs in its control group
//! latency     from the request to the verified record; p50, p99, p99.9 of 2000
//! ```
//!
//! | arm | what answers | which load holds it up |
//! |---|---|---|
//! | `xdp_native`, `xdp_generic`, `tc` | the kernel, as the packet comes in | none of processes |
//! | `kernel_record` | a process at real-time priority; a timer makes the record | real-time |
//! | `agent_realtime` | the same, and it makes the record | real-time |
//! | `agent` | a process inside the node's group, as KLM-2005's ULM | all |
//! | `tcp` | a daemon there that reads `/proc/stat` for each question | all |
//! | `rdma` | the card, of a record that a process makes; three READs where it is in software | none |
//! | `rdma_kernel` | the same of a record that the kernel makes; all processes of the target stand still | none |
//!
//! The last two need a device, and are measured where one is: on this machine, or in an emulated one (`rdma_place`), with
//! hogs beside the target instead of a node's control group. There `agent`, `agent_realtime` and `tcp` are measured
//! once more beside them, and all metrics are named `emulated_`.
//!
//! On a virtual cable the sender's CPU would take packets in for the node, and nothing on the node
//! could hold up what answers there. So receive steering moves them to the node's CPU first: at the
//! node, before generic XDP, TC and sockets; for native XDP, which comes before steering, in a
//! switch between front and node (its way is one cable longer).
//! `agent_realtime` is the fair baseline: what papers compare with is a process at ordinary
//! priority.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::{Value, json};
use tidegate_core::record::AGGREGATE_LINES;
use tidegate_core::stats::quantile_of_sorted;
use tidegate_remote::realtime::try_fifo;
use tidegate_remote::udp::{Key, UdpOptions, UdpRegion};
use tidegate_remote::{Region, clock};

use crate::antagonist::Antagonist;
use crate::cluster::{AgentPlan, Cluster, ClusterPlan, LoadAt, Mode, Placed, Process, lab};
use crate::gather::Gatherer;
use crate::rdma_points::Line;
use crate::results::{Axis, Report};

use super::arms::NATIVE;
use super::judge::{Table, at_most, median};
use super::measured::{Measured, labelled};
use super::paper::beside;
use super::rdma_place::{DISCLAIMER, EMULATED, RdmaPlace};
use super::report::{ExperimentFindings, Sketch, report_of};
use super::{Experiment, ExperimentError, Lab, Scale, arms, workload};

/// See the module.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "one-vs-two-sided",
    about: "latency of a load read by whoever answers, with 0 to 32 hogs on the node",
    source: "Reconfiguration-2004 §4.2, Figures 5 and 9; Admission-2008 §5.1, Figure 4",
    needs: "namespaces (root); a kernel that takes BPF programs for its arms",
    estimate,
    run,
    plan: None,
};

/// Rest between two reads.
const REST: Duration = Duration::from_micros(300);
/// Priority of the reader: nothing of the lab's is above it.
const PRIORITY: u8 = 50;
/// A read that takes longer counts as this long.
const GIVEN_UP: Duration = Duration::from_secs(1);
/// Of each arm at a point, one after the other.
const ROUNDS: u32 = 2;
const SET_UP: Duration = Duration::from_secs(4);
const HOGS: u32 = 32;

const TCP: &str = "tcp";
const AGENT: &str = "agent";
const REALTIME: &str = "agent_realtime";
const KERNEL: [&str; 2] = ["xdp_generic", "tc"];
const TCP_PORT: u16 = 9940;
const RDMA: &str = "rdma";
const RDMA_KERNEL: &str = "rdma_kernel";
/// Arms of `rdma-points`, and what they are called here.
const OVER_RDMA: [(&str, &str); 5] = [
    ("record", RDMA),
    ("kernel", RDMA_KERNEL),
    ("udp_realtime", REALTIME),
    ("udp", AGENT),
    ("tcp", TCP),
];
/// What a front-end reads of a record, as a label of `rdma-points`.
const RECORD: &str = "bytes=320 ";

const fn agent(
    name: &'static str,
    place: Placed,
    port: u16,
    rungs: &'static [&'static str],
) -> AgentPlan {
    AgentPlan {
        name,
        interval: Duration::from_millis(1),
        place,
        port,
        rungs,
        agent_check: None,
    }
}

/// All that can stand at one interface side by side.
const TOGETHER: &[AgentPlan] = &[
    agent("xdp_generic", Placed::Kernel, 9931, &["xdp_generic"]),
    agent("tc", Placed::Kernel, 9932, &["tc"]),
    agent("kernel_record", Placed::Unlimited, 9933, &["kernel_record"]),
    agent(REALTIME, Placed::Unlimited, 9934, &[REALTIME, AGENT]),
    AgentPlan {
        interval: arms::PAPER_INTERVAL,
        ..agent(AGENT, Placed::Inside, 9935, &[AGENT])
    },
];
/// Excludes generic XDP.
const ALONE: &[AgentPlan] = &[agent(NATIVE, Placed::Kernel, 9931, &[NATIVE])];

/// Threads that want CPU on the node, and its share of a CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    hogs: u32,
    share: f64,
}

impl Point {
    fn label(self) -> String {
        match self.share < 1.0 {
            true => format!("hogs={} quota={:.0}%", self.hogs, self.share * 100.0),
            false => format!("hogs={}", self.hogs),
        }
    }
}

const fn free(hogs: u32) -> Point {
    Point { hogs, share: 1.0 }
}

const IDLE: Point = free(0);
const BUSY: Point = free(HOGS);
const STARVED: Point = Point {
    hogs: HOGS,
    share: 0.25,
};

const QUICK: &[Point] = &[IDLE, BUSY, STARVED];
const FULL: &[Point] = &[IDLE, free(1), free(4), free(16), BUSY, STARVED];

fn points(scale: Scale) -> &'static [Point] {
    scale.pick(QUICK, FULL)
}

/// Reads of one arm at one point in one round, and the longest that they may take.
fn reads(scale: Scale) -> (usize, Duration) {
    scale.pick(
        (1000, Duration::from_secs(2)),
        (2000, Duration::from_secs(4)),
    )
}

/// All points once, several times: a busy hypervisor's minutes shall not be one point's.
fn sweeps(scale: Scale) -> u32 {
    scale.pick(1, 3)
}

fn estimate(scale: Scale) -> Duration {
    let (reads, longest) = reads(scale);
    // Those inside the group are slow, the others fast.
    let fast = (REST + Duration::from_micros(100)) * reads as u32;
    let points = points(scale).len() as u32;
    let namespaces = SET_UP * (1 + 2 * points) + (fast * 5 + longest * 2) * points * ROUNDS;
    namespaces * sweeps(scale) + rdma_estimate(scale)
}

fn rdma_estimate(scale: Scale) -> Duration {
    Duration::from_secs(scale.pick(50, 110))
}

/// Options of `rdma-points`.
fn rdma_points(scale: Scale) -> [(&'static str, &'static str); 7] {
    let (hogs, operations, longest_ms, rounds) = scale.pick(
        ("0,32", "400", "1000", "1"),
        ("0,1,4,16,32", "1000", "1000", "2"),
    );
    [
        ("--hogs", hogs),
        ("--lines", "5"),
        ("--operations", operations),
        ("--longest-ms", longest_ms),
        ("--rounds", rounds),
        ("--counted", "0"),
        ("--atomics", "false"),
    ]
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let mut bench = Bench {
        lab,
        measured: Measured::default(),
    };
    for _ in 0..sweeps(lab.scale) {
        for point in points(lab.scale) {
            bench.point(*point, TOGETHER)?;
            if let Err(error) = bench.point(*point, ALONE) {
                let why = format!("SKIPPED {NATIVE} {}: {error}", point.label());
                bench.measured.notes.push(why);
            }
        }
    }
    let place = RdmaPlace::find();
    bench.over_rdma(&place);
    let findings = findings(lab.scale, &bench.measured.table, &place);
    let names = [NATIVE]
        .into_iter()
        .chain(TOGETHER.iter().map(|it| it.name));
    let names = names.chain([TCP, RDMA, RDMA_KERNEL]);
    let arms: Vec<_> = names.map(arms::named).collect();
    let took = clock::now().since(started);
    Ok(report_of(
        &EXPERIMENT,
        lab,
        &arms,
        bench.measured,
        findings,
        took,
    ))
}

struct Bench<'a> {
    lab: &'a Lab,
    measured: Measured,
}

impl Bench<'_> {
    /// All of these agents, one after the other, round by round.
    fn point(&mut self, point: Point, agents: &[AgentPlan]) -> Result<(), ExperimentError> {
        let mut plan: ClusterPlan = workload::unequal(&[point.share], agents);
        plan.mode = self.lab.mode;
        self.lab
            .progress
            .step(&format!("{} set-up", point.label()), SET_UP);
        let cluster = Cluster::start(&plan)?;
        if cluster.mode() == Mode::Loopback {
            return Err(ExperimentError::Unfit(
                "who answers a packet can be told only in namespaces mode".into(),
            ));
        }
        self.measured.mode = cluster.mode().name().into();
        self.measured.emulated = cluster.emulated();
        cluster.receive_on_nodes_cpu(0)?;
        let native = agents.iter().any(|agent| agent.name == NATIVE);
        let _daemon = (!native).then(|| daemon(&cluster)).transpose()?;
        let _hogs = match point.hogs {
            0 => None,
            threads => Some(cluster.antagonist(0, &Antagonist::Hogs { threads })?),
        };
        for round in 0..ROUNDS {
            for agent in agents {
                self.arm(&cluster, point, agent.name, round)?;
            }
            if !native {
                self.arm(&cluster, point, TCP, round)?;
            }
        }
        Ok(())
    }

    fn arm(
        &mut self,
        cluster: &Cluster,
        point: Point,
        name: &str,
        round: u32,
    ) -> Result<(), ExperimentError> {
        let (count, longest) = reads(self.lab.scale);
        let text = format!("{name} {} round {}", point.label(), round + 1);
        self.lab
            .progress
            .step(&text, (REST + Duration::from_micros(100)) * count as u32);
        let source = source(cluster, name)?;
        let latencies = cluster
            .front()
            .inside(|| observe(&source, count, longest))?;
        let mut latencies = latencies.map_err(ExperimentError::Read)?;
        latencies.sort_by(f64::total_cmp);
        let quantile = |q: f64| quantile_of_sorted(&latencies, q).unwrap_or(f64::NAN);
        let arm = self.measured.table.entry(name.into()).or_default();
        for (metric, value) in [
            ("p50_us", quantile(0.5)),
            ("p99_us", quantile(0.99)),
            ("p99.9_us", quantile(0.999)),
        ] {
            arm.entry(labelled(metric, &point.label()))
                .or_default()
                .push(value);
        }
        self.measured.raw.push(json!({
            "arm": name, "point": point.label(), "round": round, "reads": latencies.len(),
            "percentiles_us": (0..=100).map(|it| quantile(f64::from(it) / 100.0)).collect::<Vec<_>>(),
        }));
        Ok(())
    }
}

impl Bench<'_> {
    /// Those over RDMA, where a device is. Why there are none is a note: what was measured before is kept.
    fn over_rdma(&mut self, place: &RdmaPlace) {
        let Lab {
            scale, progress, ..
        } = self.lab;
        let takes = rdma_estimate(*scale);
        progress.step("over RDMA", takes);
        let measured = &mut self.measured;
        let done = place.measure(&rdma_points(*scale), takes * 4, |line| {
            take(measured, place, line);
        });
        match done {
            Ok(()) if place.is_emulated() => {
                measured.emulated.push(format!("{EMULATED}*: {DISCLAIMER}"));
            }
            Ok(()) => {}
            Err(why) => measured.notes.push(format!("{RDMA}, {RDMA_KERNEL}: {why}")),
        }
    }
}

/// Takes a point of `rdma-points` under the names that it has here. On a machine with a device the namespaces have
/// measured those that are not over RDMA.
fn take(measured: &mut Measured, place: &RdmaPlace, line: &Line) {
    let (arm, label, p50_us, p99_us) = match line {
        Line::Point {
            arm,
            label,
            p50_us,
            p99_us,
            ..
        } => (arm, label, p50_us, p99_us),
        Line::Without { arm, why } => {
            measured
                .notes
                .push(format!("SKIPPED {arm} over RDMA: {why}"));
            return;
        }
        Line::Device { .. } | Line::Cpu { .. } | Line::End { .. } => return,
    };
    let named = OVER_RDMA.iter().find(|it| it.0 == arm);
    let (Some((_, name)), Some(point)) = (named, label.strip_prefix(RECORD)) else {
        return;
    };
    if place.is_emulated() || [RDMA, RDMA_KERNEL].contains(name) {
        for (quantity, value) in [("p50_us", p50_us), ("p99_us", p99_us)] {
            let metric = format!("{}{quantity}", place.prefix());
            measured.record(name, &labelled(&metric, point), *value);
        }
        measured.raw.push(json!({ "arm": name, "over_rdma": line }));
    }
}

/// Where an arm is asked.
enum Source {
    Udp(SocketAddr, Key),
    Tcp(SocketAddr),
}

fn source(cluster: &Cluster, name: &str) -> Result<Source, ExperimentError> {
    let node = &cluster.nodes()[0];
    if name == TCP {
        return Ok(Source::Tcp((node.address.ip(), TCP_PORT).into()));
    }
    let wrong = |why: String| ExperimentError::Read(format!("{name}: {why}"));
    let agents = TOGETHER.iter().chain(ALONE);
    let port = agents.filter(|it| it.name == name).map(|it| it.port).next();
    let port = port.ok_or_else(|| wrong("there is no such agent".into()))?;
    let key = node.agents.iter().find_map(|agent| match &agent.load {
        LoadAt::Udp { key, .. } => Some(key),
        LoadAt::Shm { .. } => None,
    });
    let key = key.ok_or_else(|| wrong("no agent has a key".into()))?;
    let key = key.read().map_err(wrong)?;
    Ok(Source::Udp((node.address.ip(), port).into(), key))
}

/// Reads so often, on the front's CPU, at real-time priority; microseconds.
fn observe(source: &Source, count: usize, longest: Duration) -> Result<Vec<f64>, String> {
    let mut cpu = CpuSet::new();
    cpu.set(0);
    sched_setaffinity(None, &cpu).map_err(|error| format!("stay on CPU 0: {error}"))?;
    try_fifo(PRIORITY).map_err(|error| error.to_string())?;
    let mut ask: Box<dyn FnMut() -> bool> = match source {
        Source::Udp(address, key) => {
            let options = UdpOptions {
                wait: GIVEN_UP,
                tries: 1,
            };
            let region = UdpRegion::connect(*address, key.clone(), options);
            let mut region = region.map_err(|error| error.to_string())?;
            Box::new(move || region.read(AGGREGATE_LINES).is_ok())
        }
        Source::Tcp(address) => {
            let gatherer = Gatherer::connect(*address, Duration::from_secs(10));
            let mut gatherer = gatherer.map_err(|error| error.to_string())?;
            Box::new(move || gatherer.ask().is_ok())
        }
    };
    let end = clock::now() + longest;
    let mut latencies = Vec::with_capacity(count);
    while latencies.len() < count && clock::now() < end {
        let start = clock::now();
        let answered = ask();
        let took = clock::now().since(start);
        let took = if answered { took } else { took.max(GIVEN_UP) };
        latencies.push(took.as_secs_f64() * 1e6);
        clock::sleep_until(clock::now() + REST);
    }
    Ok(latencies)
}

/// The two-sided daemon, inside the node's group.
fn daemon(cluster: &Cluster) -> Result<Process, ExperimentError> {
    let address = SocketAddr::from((cluster.nodes()[0].address.ip(), TCP_PORT));
    let mut command = cluster.nodes()[0].place().command(lab()?);
    command.args(["gather", "--listen", &address.to_string()]);
    let process = Process::start("the load gathering daemon", &mut command)?;
    let deadline = clock::now() + Duration::from_secs(10);
    let connects = || {
        let connect = || Gatherer::connect(address, Duration::from_secs(1)).is_ok();
        cluster.front().inside(connect).unwrap_or(false)
    };
    while !connects() {
        if clock::now() > deadline {
            return Err(ExperimentError::Read(
                "the load gathering daemon does not answer".into(),
            ));
        }
        clock::sleep_until(clock::now() + Duration::from_millis(20));
    }
    Ok(process)
}

fn of(table: &Table, arm: &str, metric: &str, point: Point) -> Option<f64> {
    median(table, arm, &labelled(metric, &point.label()))
}

fn findings(scale: Scale, table: &Table, place: &RdmaPlace) -> ExperimentFindings {
    let busy = |arm: &str| of(table, arm, "p99_us", BUSY);
    let growth = |arm: &str| Some(busy(arm)? / of(table, arm, "p99_us", IDLE)?);
    let goal = |arm: &str| {
        let goal = format!("{arm}: p99 with {HOGS} hogs over idle");
        at_most(goal, growth(arm), 1.5)
    };
    let mut verdicts: Vec<_> = [NATIVE].into_iter().chain(KERNEL).map(goal).collect();
    let baseline = busy("xdp_generic").zip(busy(REALTIME));
    verdicts.push(at_most(
        format!("xdp_generic's p99 over {REALTIME}'s, {HOGS} hogs"),
        baseline.map(|(one, other)| one / other),
        1.0,
    ));
    let over_rdma =
        |arm: &str, point: Point| of(table, arm, &format!("{}p99_us", place.prefix()), point);
    for arm in [RDMA, RDMA_KERNEL] {
        let growth = over_rdma(arm, BUSY).zip(over_rdma(arm, IDLE));
        let goal = format!("{}{arm}: p99 with {HOGS} hogs over idle", place.prefix());
        verdicts.push(at_most(goal, growth.map(|(one, other)| one / other), 1.5));
    }
    let both = over_rdma(RDMA, BUSY).zip(over_rdma(REALTIME, BUSY));
    verdicts.push(at_most(
        format!(
            "{}{RDMA}'s p99 over {REALTIME}'s, {HOGS} hogs",
            place.prefix()
        ),
        both.map(|(one, other)| one / other),
        1.0,
    ));
    let all = points(scale).iter().map(|point| point.label());
    let groups = |metric: &str| -> Vec<(String, String)> {
        let group = |label: String| (label.clone(), labelled(metric, &label));
        all.clone().map(group).collect()
    };
    let bars = |title: &str, metric: &str| Sketch::Bars {
        title: title.into(),
        groups: groups(metric),
        y: Axis {
            label: "us".into(),
            log: true,
            zero: false,
        },
    };
    let mut plots = vec![
        bars("p99 of a load read", "p99_us"),
        bars("p50 of a load read", "p50_us"),
    ];
    if place.is_emulated() {
        plots.push(bars("p99 beside RDMA, emulated", "emulated_p99_us"));
    }
    ExperimentFindings {
        paper: papers(table, place),
        verdicts,
        notes: vec![
            format!(
                "{REALTIME} and kernel_record run on the node's CPU at real-time priority, outside its group; agent and tcp inside it at \
                 ordinary priority. A read that was not answered in time counts {} s.",
                GIVEN_UP.as_secs()
            ),
            format!(
                "All answer on the node's CPU: receive steering moves packets there before anything of the node sees them, for {NATIVE} in \
                 a switch before the node, one cable further."
            ),
        ],
        plots,
    }
}

/// The papers' figures beside ours.
fn papers(table: &Table, place: &RdmaPlace) -> BTreeMap<String, Value> {
    let ours = |point: Point| -> Value {
        let rows = table.keys().filter_map(|arm| {
            let prefix = match arm.as_str() {
                RDMA | RDMA_KERNEL => place.prefix(),
                _ => "",
            };
            let median = of(table, arm, &format!("{prefix}p50_us"), point)?.round();
            Some((format!("{prefix}{arm}"), json!(median)))
        });
        Value::Object(rows.collect())
    };
    let rows = [
        (
            "median latency of a read, us",
            "RDMA Read 11.89 (polling) and 23.97 (events), IPoIB 53.8",
            "Reconfiguration-2004 §4.2, Figure 5a, one byte",
            IDLE,
        ),
        (
            "the same with background threads",
            "RDMA Read stays as it is, IPoIB grows with the threads",
            "Reconfiguration-2004 §4.2, Figure 9a; Admission-2008 §5.1, Figure 4b",
            BUSY,
        ),
    ];
    rows.into_iter()
        .map(|(name, figure, source, point)| {
            let row = beside(json!(figure), source, ours(point), Value::Null);
            (name.to_owned(), row)
        })
        .collect()
}
