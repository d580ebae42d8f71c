//! Clusters, faults and overrides drawn at random, through all checks of the simulator: requests
//! are conserved, pickers' counts agree, nothing goes where it must not, and equal nodes are treated
//! alike. A failure prints its
//! seed; `SEED=n` replays that one alone.

mod support;

use std::time::Duration;

use support::seeds;
use tidegate_core::load::Rung;
use tidegate_core::policy::{PolicyConfig, PolicyKind};
use tidegate_core::prng::Prng;
use tidegate_core::topology::{AdminState, NodeId, SiteId};
use tidegate_sim::matrix::score::{Score, unmet};
use tidegate_sim::model::{Antagonist, Arrivals, Demand};
use tidegate_sim::report::Report;
use tidegate_sim::scenario::{
    Answer, Expect, Fault, FaultKind, Io, Leave, NodeModel, NodeOverride, Records, Scenario, Scope,
    SiteModel, Warming,
};
use tidegate_sim::world::run;

const SEEDS: u64 = 256;
/// Of equal clusters: their runs are longer.
const EVEN_SEEDS: u64 = 24;

/// Draws of a scenario's parts.
struct Draw(Prng);

impl Draw {
    fn chance(&mut self, share: f64) -> bool {
        self.0.unit() < share
    }

    fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.0.unit()
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.0.below(of.len())]
    }

    fn millis(&mut self, least: f64, most: f64) -> Duration {
        Duration::from_secs_f64(self.between(least, most) * 1e-3)
    }

    fn demand(&mut self) -> Demand {
        let shapes = [
            Demand::Fixed,
            Demand::Exponential,
            Demand::LogNormal { cv: 2.0 },
            Demand::Bimodal {
                share: 0.01,
                ratio: 50.0,
            },
            Demand::Pareto {
                tail: 1.3,
                spread: 100.0,
            },
        ];
        self.one(&shapes)
    }

    fn site(&mut self) -> SiteModel {
        let mut site = SiteModel::new(self.between(0.2, 1.3));
        site.demand = self.demand();
        site.mean_demand = self.millis(0.5, 20.0);
        if self.chance(0.2) {
            site.arrivals = Arrivals::Bursts {
                peak: 2.0,
                share: 0.2,
                length: self.millis(1.0, 50.0),
            };
        }
        if self.chance(0.2) {
            site.io = Some(Io {
                mean: self.millis(1.0, 30.0),
                shape: self.demand(),
            });
        }
        site
    }

    fn records(&mut self) -> Records {
        let rungs = [
            Rung::XdpNative,
            Rung::KernelRecord,
            Rung::AgentRealtime,
            Rung::Agent,
        ];
        let milli = Duration::from_millis(1);
        Records {
            rung: self.one(&rungs),
            interval: self.one(&[milli, milli, 5 * milli, 50 * milli]),
            published: self.one(&[Duration::ZERO, Duration::ZERO, 10 * milli]),
            age: self.one(&[Duration::ZERO, Duration::ZERO, 20 * milli]),
            delay: self.one(&[Duration::ZERO, milli]),
            loss: self.one(&[0.0, 0.0, 0.1, 0.9]),
            in_flight: self.chance(0.8),
            scope: self.one(&[Scope::Host, Scope::Host, Scope::Requests]),
            answer: self.one(&[Answer::Kernel, Answer::Process { slice: 4 * milli }]),
        }
    }

    fn node(&mut self, site: SiteId) -> NodeModel {
        let mut node = NodeModel::new(self.between(0.5, 8.0));
        node.site = site;
        node.speed = self.between(0.5, 1.6);
        if self.chance(0.3) {
            node.antagonist = Some(Antagonist {
                shortest: Duration::from_millis(5),
                longest: Duration::from_millis(200),
                ..Antagonist::new(4, 0.4)
            });
        }
        node.records = (!self.chance(0.2)).then(|| self.records());
        node.reports = self.chance(0.2);
        node.limit = self.chance(0.2).then_some(20);
        node.io_channels = self.chance(0.2).then_some(4);
        node.io_slowness = self.one(&[1.0, 1.0, 4.0]);
        node
    }

    /// One fault of a node within the run.
    fn fault(&mut self, node: NodeId, length: Duration) -> Fault {
        let from = length.mul_f64(self.between(0.0, 0.7));
        let kinds = [
            FaultKind::Dead,
            FaultKind::Paused,
            FaultKind::Failing,
            FaultKind::Breaking,
            FaultKind::Flapping {
                period: length.mul_f64(0.1).max(Duration::from_micros(10)),
                down: 0.4,
            },
        ];
        Fault {
            node,
            kind: self.one(&kinds),
            from,
            to: from + length.mul_f64(self.between(0.05, 0.5)),
        }
    }

    /// Nodes that leave and come back, cold or not, to sites that start them slowly or not.
    fn leaves(&mut self, scenario: &mut Scenario, length: Duration) {
        for node in (0..scenario.nodes.len() as u32).map(NodeId) {
            if self.chance(0.2) {
                let from = length.mul_f64(self.between(0.0, 0.7));
                let to = from + length.mul_f64(self.between(0.05, 0.5));
                scenario.leaves.push(Leave { node, from, to });
            }
            let warming = Warming {
                times: 5.0,
                requests: 10.0,
            };
            scenario.nodes[node.index()].warming = self.chance(0.3).then_some(warming);
        }
        for site in &mut scenario.sites {
            if self.chance(0.5) {
                site.slow_start = length.mul_f64(0.3);
            }
        }
    }

    fn change(&mut self, node: NodeId, length: Duration) -> NodeOverride {
        let states = [AdminState::Drain, AdminState::Maint, AdminState::Ready];
        NodeOverride {
            at: length.mul_f64(self.0.unit()),
            node,
            state: self.one(&states),
        }
    }
}

/// The scenario of a seed.
fn composed(seed: u64) -> Scenario {
    let mut draw = Draw(Prng::new(seed));
    let sites = draw.one(&[1u32, 1, 2]);
    let nodes = sites + draw.0.below(12) as u32;
    let front_ends = draw.one(&[1, 2, 3, 8]);
    let mut scenario = Scenario::new(nodes, front_ends, 1.0).seed(seed);
    scenario.requests = 200 + draw.0.below(300) as u32;
    scenario.sites = (0..sites).map(|_| draw.site()).collect();
    // The first nodes see to it that no site is without.
    let site = |draw: &mut Draw, index: u32| match index {
        index if index < sites => SiteId(index),
        _ => SiteId(draw.0.below(sites as usize) as u32),
    };
    scenario.nodes = (0..nodes)
        .map(|index| {
            let site = site(&mut draw, index);
            draw.node(site)
        })
        .collect();
    scenario.front_ends.subset = draw.chance(0.2).then_some(2);
    scenario.front_ends.timeout = draw.chance(0.3).then(|| draw.millis(20.0, 500.0));
    scenario.network.delay = draw.millis(0.05, 1.0);
    if draw.chance(0.3) {
        scenario.network.jitter = draw.millis(0.05, 2.0);
    }
    let length = scenario.length();
    for node in (0..nodes).map(NodeId) {
        if draw.chance(0.25) {
            scenario.faults.push(draw.fault(node, length));
        }
        while draw.chance(0.2) {
            scenario.overrides.push(draw.change(node, length));
        }
    }
    draw.leaves(&mut scenario, length);
    scenario
}

#[track_caller]
fn checked(scenario: &Scenario, kind: PolicyKind) -> Report {
    match run(scenario, PolicyConfig::new(kind)) {
        Ok(report) => {
            let ended = report.completed + report.failed + report.rejected;
            assert_eq!(
                report.offered,
                ended,
                "SEED={} {}",
                scenario.seed,
                kind.name()
            );
            report
        }
        Err(broken) => panic!("SEED={} {}: {broken}", scenario.seed, kind.name()),
    }
}

/// The default policy in each of them, and one of the others in turn.
#[test]
fn random_clusters_break_no_rule() {
    // `checked` asserts that every request ended, and `run` checks the rules at each event.
    for seed in seeds(0..SEEDS) {
        let scenario = composed(seed);
        let others = PolicyKind::ALL.len() as u64 - 1;
        let other = PolicyKind::ALL[1 + (seed % others) as usize];
        checked(&scenario, PolicyKind::Auto);
        checked(&scenario, other);
    }
}

/// Equal, healthy nodes of one site, with records of each millisecond.
fn even(seed: u64) -> Scenario {
    let mut draw = Draw(Prng::new(seed));
    let nodes = 4 + draw.0.below(17) as u32;
    let front_ends = draw.one(&[1, 8, 64, 64]);
    let load = draw.between(0.7, 0.95);
    let mut scenario = Scenario::new(nodes, front_ends, load).seed(seed);
    scenario.requests = 400 * nodes;
    let shapes = [
        Demand::Fixed,
        Demand::Exponential,
        Demand::LogNormal { cv: 2.0 },
    ];
    for site in &mut scenario.sites {
        site.demand = draw.one(&shapes);
    }
    scenario
}

/// The default policy sends no node less than half of its fair share, and 64 front-ends that
/// do not talk do not all send to the same node.
#[test]
fn equal_nodes_are_neither_starved_nor_herded() {
    for seed in seeds(0..EVEN_SEEDS) {
        let scenario = even(seed);
        let herding = (scenario.front_ends.count == 64).then_some(1.5);
        let expect = Expect {
            least_share: Some(0.5),
            herding,
            failed: Some(0.0),
        };
        let score = Score::of(&[checked(&scenario, PolicyKind::Auto)]);
        let unmet = unmet(&expect, &score);
        assert!(unmet.is_empty(), "SEED={seed}: {}", unmet.join("; "));
    }
}

#[test]
fn random_clusters_are_replayed_to_the_byte() {
    for seed in seeds(0..SEEDS / 16) {
        let digest = || checked(&composed(seed), PolicyKind::Auto).digest;
        assert_eq!(digest(), digest(), "SEED={seed}");
    }
}
