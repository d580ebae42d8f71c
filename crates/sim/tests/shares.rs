//! `auto` does not starve a healthy node, whatever was the matter with it before, and however much
//! the site's latencies say about the moment instead of the node. A failure prints its seed;
//! `SEED=n` replays that one alone.

mod support;

use std::time::Duration;

use tidegate_core::policy::{PolicyConfig, PolicyKind};
use tidegate_core::topology::NodeId;
use tidegate_sim::model::{Demand, Stream};
use tidegate_sim::report::Report;
use tidegate_sim::scenario::{Cold, Fault, FaultKind, Scenario};
use tidegate_sim::world::run;

const NODES: usize = 3;
const NODE: NodeId = NodeId(1);
/// Length of a run, and when one of the nodes is in trouble, seconds.
const SECONDS: usize = 60;
const TROUBLE: std::ops::Range<usize> = 20..24;
/// An ejected node is probed after this at the latest.
const PROBED: usize = 2;
/// The promise: so much of its fair share over ten seconds.
const LEAST: f64 = 0.5;
const WINDOW: usize = 10;

/// Three equal nodes, requests of a millisecond, hardly any load.
fn idle(front_ends: u32, records: bool, rate: f64) -> Scenario {
    let demand = Duration::from_millis(1);
    let mut scenario = Scenario::new(NODES as u32, front_ends, 1.0)
        .mean_demand(demand)
        .demand(Demand::LogNormal { cv: 0.3 });
    let load = rate / scenario.rate(0);
    scenario = scenario.sites(|site| site.load = load);
    if !records {
        scenario = scenario.missing(1.0);
    }
    scenario.requests((rate * SECONDS as f64) as u32)
}

fn trouble(kind: FaultKind) -> Fault {
    Fault {
        node: NODE,
        kind,
        from: Duration::from_secs(TROUBLE.start as u64),
        to: Duration::from_secs(TROUBLE.end as u64),
    }
}

/// Each node stands still now and then, by itself, as on a host where others want the CPUs: for up to
/// 40 ms, twice a second.
fn busy_host(mut scenario: Scenario, seed: u64) -> Scenario {
    for node in 0..NODES as u32 {
        let mut prng = Stream::Antagonist(node).prng(seed);
        let mut at = Duration::from_secs(1);
        while at < Duration::from_secs(SECONDS as u64) {
            let fault = Fault {
                node: NodeId(node),
                kind: FaultKind::Paused,
                from: at,
                to: at + Duration::from_secs_f64(0.001 + 0.04 * prng.unit()),
            };
            at = fault.to + Duration::from_secs_f64(0.1 + 0.8 * prng.unit());
            let overlaps = |other: &Fault| {
                other.node == fault.node && other.from < fault.to && fault.from < other.to
            };
            if !scenario.faults.iter().any(overlaps) {
                scenario.faults.push(fault);
            }
        }
    }
    // A node that has done nothing for 100 ms has to warm up.
    scenario.nodes(|node| {
        node.cold = Some(Cold {
            after: Duration::from_millis(100),
            extra: Duration::from_micros(700),
        });
    })
}

/// The least part of its fair share that a node got in ten seconds, windows a second apart, leaving out
/// those in which one was in trouble or not yet probed again.
fn least_share(report: &Report) -> f64 {
    let windows = report.sent_by_second.windows(WINDOW).enumerate();
    let well = |(first, _): &(usize, &[Vec<u32>])| {
        let last = first + WINDOW;
        last <= SECONDS && (last <= TROUBLE.start || *first >= TROUBLE.end + PROBED)
    };
    let share = |window: &[Vec<u32>]| {
        let sent = |node: usize| window.iter().map(|second| second[node]).sum::<u32>();
        let all: u32 = (0..NODES).map(sent).sum();
        let least = (0..NODES).map(sent).min().unwrap_or(0);
        f64::from(least) * NODES as f64 / f64::from(all.max(1))
    };
    let shares = windows.filter(well).map(|(_, window)| share(window));
    shares.fold(f64::INFINITY, f64::min)
}

fn check(name: &str, build: impl Fn(Scenario, u64) -> Scenario) {
    for seed in support::seeds(1..4) {
        for (front_ends, records) in [(1, true), (1, false), (2, true), (2, false)] {
            for rate in [20.0, 60.0, 200.0] {
                let scenario = build(idle(front_ends, records, rate), seed).seed(seed);
                let report = run(&scenario, PolicyConfig::new(PolicyKind::Auto));
                let report = report.unwrap_or_else(|violation| panic!("{violation}"));
                let least = least_share(&report);
                assert!(
                    least >= LEAST,
                    "{name}, {front_ends} front-ends, records {records}, {rate}/s, seed {seed}: {least:.2}"
                );
            }
        }
    }
}

fn with(mut scenario: Scenario, kind: FaultKind) -> Scenario {
    scenario.faults = vec![trouble(kind)];
    scenario
}

#[test]
fn a_node_that_hung_or_died_gets_its_share_again() {
    check("hung", |scenario, _| with(scenario, FaultKind::Paused));
    check("died", |scenario, _| with(scenario, FaultKind::Dead));
}

#[test]
fn what_a_busy_host_does_to_latencies_starves_no_node() {
    check("busy", busy_host);
    check("busy, hung", |scenario, seed| {
        busy_host(with(scenario, FaultKind::Paused), seed)
    });
}
