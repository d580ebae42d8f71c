//! Clusters in overload: what admission control is for.

use std::borrow::Cow;
use std::time::Duration;

use tidegate_core::admission::{
    AdmissionConfig, AdmissionKind, StaticLimits, StaticScope, WithoutRecords,
};
use tidegate_core::policy::{PolicyConfig, PolicyKind};
use tidegate_core::topology::NodeId;
use tidegate_sim::model::{Antagonist, Arrivals, Demand};
use tidegate_sim::processor::Overload;
use tidegate_sim::scenario::{Fault, FaultKind, Held, HeldBy, Io, Scenario, Series};
use tidegate_sim::world::{Violation, run};

/// Answers are wanted within this time.
pub(crate) const SLO: Duration = Duration::from_millis(100);
/// Length of a run, seconds, a tenth of it warm-up.
const SECONDS: f64 = 6.0;
/// What suits a server of the base best, where an operator sets it: two requests for each CPU, of
/// all front-ends together; and a used share of the CPUs.
const CONNECTIONS: u32 = 8;
const CPU: f32 = 0.95;

/// A scenario with a name. Its capacity may be below what CPUs alone allow.
pub(crate) struct Row {
    /// Its name.
    pub(crate) name: Cow<'static, str>,
    /// What happens.
    pub(crate) scenario: Scenario,
    /// Requests per second that can be served at most.
    pub(crate) capacity: f64,
    /// Answers are wanted within this time.
    pub(crate) slo: Duration,
    /// What servers without records get.
    pub(crate) without_records: WithoutRecords,
}

/// What a run gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// Requests answered within the SLO, over those that could have been.
    pub(crate) goodput: f64,
    /// Requests refused, over all.
    pub(crate) shed: f64,
    /// Median latency.
    pub(crate) p50_ms: f64,
    /// 99th percentile.
    pub(crate) p99_ms: f64,
}

/// Eight servers of four CPUs, requests of 10 ms, at this load: 3200 a second are their capacity.
/// A crowd makes a server slower: by half with 128 on its run queue.
fn base(front_ends: u32, load: f64) -> Scenario {
    let mut scenario = Scenario::new(8, front_ends, load)
        .demand(Demand::LogNormal { cv: 0.5 })
        .nodes(|node| node.overload = Overload { per_task: 0.004 });
    scenario.network.delay = Duration::from_micros(50);
    scenario.front_ends.timeout = Some(Duration::from_secs(10));
    sized(scenario)
}

/// With as many requests as come in a run.
fn sized(scenario: Scenario) -> Scenario {
    let rate = scenario.rate(0);
    scenario.requests((rate * SECONDS) as u32)
}

fn row(name: &'static str, scenario: Scenario) -> Row {
    let capacity = scenario.rate(0) / scenario.sites[0].load;
    Row {
        name: name.into(),
        scenario,
        capacity,
        slo: SLO,
        without_records: WithoutRecords::Limit,
    }
}

/// Front-ends that know nothing of each other but their number.
fn without_words(mut scenario: Scenario) -> Scenario {
    scenario.front_ends.words = false;
    scenario
}

/// 20 ms on and 60 ms off: three times the mean rate in bursts.
fn bursts(front_ends: u32) -> Scenario {
    base(front_ends, 1.4).sites(|site| {
        site.arrivals = Arrivals::Bursts {
            peak: 3.0,
            share: 0.25,
            length: Duration::from_millis(20),
        };
    })
}

/// All of them.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = plain_rows();
    rows.extend([
        mixed("cost 1:100 2 fe=1", 1, 2.0),
        mixed("cost 1:100 2", 4, 2.0),
        mixed("cost 1:100 10", 4, 10.0),
        slows("slows to a third fe=1", 1),
        slows("slows to a third", 4),
        slows("slows to a third fe=64", 64),
    ]);
    rows
}

/// Each server's pool of 5 connections to its database, 20 ms each: 250 a second.
fn database(name: &'static str, front_ends: u32, load: f64) -> Row {
    let mut scenario = base(front_ends, load * 2000.0 / 16000.0);
    scenario = scenario.mean_demand(Duration::from_millis(2));
    scenario.sites[0].io = Some(Io {
        mean: Duration::from_millis(20),
        shape: Demand::Exponential,
    });
    scenario = scenario.nodes(|node| node.io_channels = Some(5));
    Row {
        capacity: 2000.0,
        ..row(name, sized(scenario))
    }
}

fn plain_rows() -> Vec<Row> {
    let io = |front_ends, cpu, io, load| {
        let mut scenario = base(front_ends, load).mean_demand(Duration::from_millis(cpu));
        scenario.sites[0].io = Some(Io {
            mean: Duration::from_millis(io),
            shape: Demand::Exponential,
        });
        scenario
    };
    vec![
        row("0.9", base(4, 0.9)),
        row("1.4", base(4, 1.4)),
        row("2", base(4, 2.0)),
        row("4", base(4, 4.0)),
        row("10", base(4, 10.0)),
        row("0.85 fe=1", base(1, 0.85)),
        row("0.9 fe=1", base(1, 0.9)),
        row("1.4 fe=1", base(1, 1.4)),
        row("2 fe=1", base(1, 2.0)),
        row("10 fe=1", base(1, 10.0)),
        row(
            "exponential 2 fe=1",
            base(1, 2.0).demand(Demand::Exponential),
        ),
        row("io 20+2 2 fe=1", sized(io(1, 2, 20, 2.0))),
        database("database 2 fe=1", 1, 2.0),
        row("bursts 1.4 fe=1", bursts(1)),
        row("2 fe=16", base(16, 2.0)),
        row("2 fe=64", base(64, 2.0)),
        row("10 fe=64", base(64, 10.0)),
        row("0.9 fe=16", base(16, 0.9)),
        row("2 fe=16 no words", without_words(base(16, 2.0))),
        row("exponential 2", base(4, 2.0).demand(Demand::Exponential)),
        row("io 20+2 2", sized(io(4, 2, 20, 2.0))),
        database("database 2", 4, 2.0),
        database("database 10", 4, 10.0),
        database("database 2 fe=16", 16, 2.0),
        database("database 2 fe=64", 64, 2.0),
        row(
            "antagonists 2",
            sized(base(4, 2.0).antagonists(Antagonist::new(8, 0.25))),
        ),
        row("unequal 2", sized(base(4, 2.0).speeds(0.5, 1.5))),
        // Each server's six workers do 250 a second, 24 ms each; its CPUs could do four times that.
        Row {
            capacity: 2000.0,
            ..row(
                "6 workers 2",
                sized(io(4, 4, 20, 0.5).nodes(|node| node.workers = Some(6))),
            )
        },
        row("bursts 1.4", bursts(4)),
        row(
            "records 50 ms 2",
            base(4, 2.0).record_interval(Duration::from_millis(50)),
        ),
        row("no records 2", base(4, 2.0).missing(1.0)),
        row("no records 2 fe=1", base(1, 2.0).missing(1.0)),
    ]
}

/// One request in fifty costs a hundred times as much as the others; what is slow by itself is in
/// time if it is answered within half a second.
fn mixed(name: &'static str, front_ends: u32, load: f64) -> Row {
    let demand = Demand::Bimodal {
        share: 0.02,
        ratio: 100.0,
    };
    Row {
        slo: AdmissionConfig::SLO,
        ..row(name, base(front_ends, load).demand(demand))
    }
}

/// At 0.9 of the capacity, after two seconds all servers become slower by themselves.
fn slows(name: &'static str, front_ends: u32) -> Row {
    const AT: f64 = 2.0;
    const TIMES: u32 = 3;
    let mut scenario = base(front_ends, 0.9);
    scenario.faults = (0..scenario.nodes.len() as u32)
        .map(|node| Fault {
            node: NodeId(node),
            kind: FaultKind::Slow { times: TIMES },
            from: Duration::from_secs_f64(AT),
            to: Duration::from_secs_f64(10.0 * SECONDS),
        })
        .collect();
    let before = AT - SECONDS * scenario.warm_up;
    let after = SECONDS - AT;
    let (rate, capacity) = (scenario.rate(0), scenario.rate(0) / 0.9);
    let possible = rate * before + capacity / f64::from(TIMES) * after;
    Row {
        capacity: possible / (before + after),
        ..row(name, scenario)
    }
}

/// How a step from 0.7 to 1.4 times the capacity is taken, over many runs: answers in time in windows
/// of ten milliseconds from the step on, over the capacity's; and what the scatter makes of one window.
pub(crate) fn step(front_ends: u32, kind: AdmissionKind) -> Result<(Vec<f64>, f64), Violation> {
    const RUNS: u64 = 60;
    const AT: Duration = Duration::from_millis(1500);
    const WINDOW: Duration = Duration::from_millis(10);
    const LOOKED_AT: usize = 50;
    let mut scenario = base(front_ends, 0.7).sites(|site| {
        site.arrivals = Arrivals::Step { at: AT, times: 2.0 };
        site.admission = config(kind, front_ends);
    });
    scenario.series = Some(Series {
        window: WINDOW,
        slo: SLO,
    });
    let rate = scenario.rate(0);
    let capacity = rate / 0.7 * WINDOW.as_secs_f64();
    // Two thirds of a second behind the step.
    scenario.requests = (rate * (AT.as_secs_f64() + 2.0 / 1.5)) as u32;
    let first = (AT.as_nanos() / WINDOW.as_nanos()) as usize;
    let mut windows = vec![0.0; LOOKED_AT];
    for seed in 0..RUNS {
        let report = run(
            &scenario.clone().seed(seed),
            PolicyConfig::new(PolicyKind::Auto),
        )?;
        for (sum, count) in windows.iter_mut().zip(report.series.iter().skip(first)) {
            *sum += *count as f64;
        }
    }
    let all = capacity * RUNS as f64;
    let shares = windows.into_iter().map(|sum| sum / all).collect();
    Ok((shares, all.sqrt() / all))
}

/// Sites whose answers take longer than the SLO by nature, while the servers have time: long polls,
/// downloads, a slow service of others. From the first request on, nothing is to be refused.
pub(crate) fn calm_rows() -> Vec<Row> {
    let slow = |front_ends, io: u64, shape, load| {
        let mut scenario = base(front_ends, load).mean_demand(Duration::from_millis(2));
        scenario.sites[0].io = Some(Io {
            mean: Duration::from_millis(io),
            shape,
        });
        scenario.warm_up = 0.0;
        sized(scenario)
    };
    let exponential = Demand::Exponential;
    let rows = [
        row("200 ms at 0.3 fe=1", slow(1, 200, exponential, 0.3)),
        row("2 s at 0.1 fe=1", slow(1, 2000, exponential, 0.1)),
        row("2 s at 0.1", slow(4, 2000, exponential, 0.1)),
        row(
            "2 s at 0.1 no records",
            slow(4, 2000, exponential, 0.1).missing(1.0),
        ),
        row("5 s at 0.02", slow(4, 5000, Demand::Fixed, 0.02)),
        row(
            "5 s at 0.02 no records",
            slow(4, 5000, Demand::Fixed, 0.02).missing(1.0),
        ),
    ];
    // As it is if nothing is set.
    let usual = |row| Row {
        slo: AdmissionConfig::SLO,
        without_records: WithoutRecords::Admit,
        ..row
    };
    rows.map(usual).into()
}

/// Sites that work, beside what must not be held against them: requests that are held open, and tasks of
/// others on the same host. Nothing is to be refused. Records are of the whole host and count no requests,
/// as real ones.
pub(crate) fn neighbour_rows() -> Vec<Row> {
    const MS: fn(u64) -> Duration = Duration::from_millis;
    // Antagonists leave next to nothing by the scenario's reckoning: rates are in requests a second.
    let hogs_for = |part: f64, rate: f64, demand: Duration| {
        let mut scenario = Scenario::new(1, 1, 1.0).antagonists(Antagonist::new(4, part));
        scenario = scenario.mean_demand(demand);
        let load = rate / scenario.rate(0);
        scenario.sites(|site| site.load = load)
    };
    let hogs = |rate, demand| hogs_for(0.99, rate, demand);
    // Each of the three has the host's four CPUs: 0.18 of each are 54 % of these.
    let shared = |front_ends| {
        let scenario = Scenario::new(3, front_ends, 0.18);
        let scenario = scenario.nodes(|node| node.host = Some(0));
        scenario.demand(Demand::LogNormal { cv: 0.5 })
    };
    // So many of them at once, on the average, each for ten seconds.
    let held = |scenario: Scenario, at_once: f64, by| {
        let lasts = Duration::from_secs(10);
        let share = at_once / lasts.as_secs_f64() / scenario.rate(0);
        let held = Held::new(share, lasts, by).alike();
        scenario.sites(|site| site.held = Some(held))
    };
    let (tunnel, download) = (HeldBy::Tunnel(MS(10)), HeldBy::Download(MS(20)));
    let page = || hogs(20.0, MS(5));
    let rows = [
        row("4 hogs", page()),
        row("4 hogs 10 tunnels", held(page(), 10.0, tunnel)),
        row("4 hogs 30 downloads", held(page(), 30.0, download)),
        row("4 hogs 30 polls", held(page(), 30.0, HeldBy::Poll)),
        row("4 hogs 3 of 4 CPUs", hogs(300.0, MS(10))),
        row("4 hogs now and then", {
            let mut scenario = hogs_for(0.5, 200.0, MS(5));
            scenario.sites[0].io = Some(Io {
                mean: MS(50),
                shape: Demand::Exponential,
            });
            scenario
        }),
        // Thirty to sixty at once every second, which hardly compute.
        row("4 hogs bursts that wait", {
            let mut scenario = hogs(50.0, MS(1));
            scenario.sites[0].io = Some(Io {
                mean: MS(100),
                shape: Demand::Fixed,
            });
            scenario.sites(|site| {
                site.arrivals = Arrivals::Bursts {
                    peak: 18.0,
                    share: 0.05,
                    length: MS(50),
                }
            })
        }),
        row("one host", shared(1)),
        row("one host fe=4", shared(4)),
        row("one host 30 tunnels", held(shared(1), 30.0, tunnel)),
        row("one host 30 downloads", held(shared(1), 30.0, download)),
        row("one host 30 polls", held(shared(1), 30.0, HeldBy::Poll)),
    ];
    let usual = |row: Row| {
        let mut scenario = row.scenario.records(|records| records.in_flight = false);
        scenario.warm_up = 0.0;
        let rate = scenario.rate(0);
        Row {
            scenario: scenario.requests((rate * 60.0) as u32),
            capacity: rate,
            slo: AdmissionConfig::SLO,
            without_records: WithoutRecords::Admit,
            ..row
        }
    };
    rows.map(usual).into()
}

/// The mode, set as by an operator that knows the base and how many front-ends there are.
pub(crate) fn config(kind: AdmissionKind, front_ends: u32) -> AdmissionConfig {
    let limits = match kind {
        AdmissionKind::Static => StaticLimits {
            cpu: Some(CPU),
            scope: StaticScope::Chosen,
            ..StaticLimits::default()
        },
        AdmissionKind::MaxConn | AdmissionKind::Codel => StaticLimits {
            connections: Some((CONNECTIONS / front_ends).max(1)),
            ..StaticLimits::default()
        },
        AdmissionKind::Off
        | AdmissionKind::Adaptive
        | AdmissionKind::Gradient2
        | AdmissionKind::Vegas
        | AdmissionKind::EnvoyAdaptiveConcurrency
        | AdmissionKind::EnvoyAdmissionControl
        | AdmissionKind::Dagor => StaticLimits::default(),
    };
    AdmissionConfig {
        slo: SLO,
        limits,
        ..AdmissionConfig::new(kind)
    }
}

/// Runs it.
pub(crate) fn measure(row: &Row, kind: AdmissionKind) -> Result<Measured, Violation> {
    let admission = config(kind, row.scenario.front_ends.count);
    let scenario = row.scenario.clone();
    let scenario = scenario.sites(|site| {
        site.admission = AdmissionConfig {
            slo: row.slo,
            without_records: row.without_records,
            ..admission
        };
    });
    let report = run(&scenario, PolicyConfig::new(PolicyKind::Auto))?;
    let offered = f64::from(scenario.requests) * (1.0 - scenario.warm_up);
    let seconds = offered / scenario.rate(0);
    let possible = offered.min(row.capacity * seconds);
    let within = report.latencies.within(row.slo) as f64;
    let ms = |q| report.latencies.quantile(q).as_secs_f64() * 1e3;
    Ok(Measured {
        goodput: within / possible * 100.0,
        shed: report.rejected as f64 / f64::from(scenario.requests) * 100.0,
        p50_ms: ms(0.5),
        p99_ms: ms(0.99),
    })
}
