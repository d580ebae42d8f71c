//! Seeded runs of the core against modelled clusters. A failure prints its seed;
//! `SEED=n` replays that one alone.

mod support;

use std::time::Duration;

use tidegate_core::policy::{PolicyConfig, PolicyKind};
use tidegate_core::topology::{AdminState, NodeId};
use tidegate_sim::model::{Antagonist, Arrivals, Demand};
use tidegate_sim::report::Report;
use tidegate_sim::scenario::{Fault, FaultKind, Invention, NodeOverride, Scenario, Scope};
use tidegate_sim::world::run;

fn seeds() -> std::ops::Range<u64> {
    support::seeds(1..4)
}

fn ran(scenario: &Scenario, kind: PolicyKind) -> Report {
    let report = run(scenario, PolicyConfig::new(kind));
    report.unwrap_or_else(|violation| panic!("{}: {violation}", kind.name()))
}

/// Nodes that come and go, by order and by accident, under antagonists.
fn troubled(seed: u64) -> Scenario {
    let at = Duration::from_millis;
    let change = |ms, node, state| NodeOverride {
        at: at(ms),
        node: NodeId(node),
        state,
    };
    let mut scenario = Scenario::new(8, 3, 0.6)
        .seed(seed)
        .requests(2000)
        .demand(Demand::LogNormal { cv: 2.0 })
        .antagonists(Antagonist::new(4, 0.25))
        .speeds(0.5, 1.6);
    scenario.overrides = vec![
        change(300, 1, AdminState::Drain),
        change(600, 1, AdminState::Ready),
        change(500, 2, AdminState::Maint),
    ];
    scenario.faults = vec![Fault {
        node: NodeId(5),
        kind: FaultKind::Dead,
        from: at(400),
        to: at(900),
    }];
    scenario
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    for kind in PolicyKind::ALL {
        let bytes = |seed| format!("{:?}", ran(&troubled(seed), *kind));
        assert_eq!(bytes(1), bytes(1), "{}", kind.name());
        assert_ne!(bytes(1), bytes(2), "{}", kind.name());
    }
}

#[test]
fn every_policy_meets_the_same_arrivals() {
    let offered = |kind| {
        let report = ran(&troubled(1), kind);
        assert_eq!(report.offered, 2000);
        report.completed + report.failed + report.rejected
    };
    for kind in PolicyKind::ALL {
        assert_eq!(offered(*kind), 2000, "{}", kind.name());
    }
}

/// Conservation, and nothing to drained or ejected nodes, are checked by the world itself.
#[test]
fn nothing_is_lost_and_nothing_goes_where_it_must_not() {
    for seed in seeds() {
        for kind in PolicyKind::ALL {
            let report = ran(&troubled(seed), *kind);
            let share = report.failed as f64 / report.offered as f64;
            // The node that dies has an eighth of the requests in flight, and is retried.
            assert!(share < 0.05, "{} seed {seed}: {report}", kind.name());
        }
    }
}

/// A node that hangs refuses nothing and fails nothing: only its silence tells.
#[test]
fn a_hanging_node_is_left_alone() {
    for seed in seeds() {
        let mut scenario = Scenario::new(8, 2, 0.6)
            .seed(seed)
            .mean_demand(Duration::from_millis(50));
        let rate = scenario.rate(0);
        scenario = scenario.requests((rate * 10.0) as u32);
        scenario.faults = vec![Fault {
            node: NodeId(5),
            kind: FaultKind::Paused,
            from: Duration::from_secs(2),
            to: Duration::from_secs(9),
        }];
        for kind in PolicyKind::ALL {
            let report = ran(&scenario, *kind);
            let fair = report.sent.iter().sum::<u64>() as f64 / 8.0;
            // It is there for 3 of 10 seconds, and found silent within 1.6.
            let share = report.sent[5] as f64 / fair;
            assert!(share < 0.55, "{} seed {seed}: {share}", kind.name());
        }
    }
}

/// The node that lies, and when it begins to count what it draws: it is new to everything before.
const LIAR: usize = 1;
const SETTLED: usize = 5;
const SECONDS: usize = 20;

/// A lie among honest nodes.
#[derive(Clone, Copy, Debug)]
struct Lie {
    load: f64,
    nodes: u32,
    front_ends: u32,
    invention: Invention,
    kind: Option<FaultKind>,
}

impl Lie {
    /// One node of eight always claims to be idle, whatever it does, before four front-ends.
    fn idle(kind: Option<FaultKind>) -> Self {
        Self {
            load: 0.6,
            nodes: 8,
            front_ends: 4,
            invention: Invention::default(),
            kind,
        }
    }

    /// What the node gets once all is settled, in fair shares.
    fn drawn(&self, seed: u64) -> f64 {
        let mut scenario = Scenario::new(self.nodes, self.front_ends, self.load).seed(seed);
        if let Some(records) = &mut scenario.nodes[LIAR].records {
            records.scope = Scope::Invented(self.invention);
        }
        scenario.faults.extend(self.kind.map(|kind| Fault {
            node: NodeId(LIAR as u32),
            kind,
            from: Duration::ZERO,
            to: Duration::from_secs(3 * SECONDS as u64),
        }));
        settled_share(scenario, SETTLED) * f64::from(self.nodes)
    }
}

/// The part of the requests that node [`LIAR`] gets from this second on.
fn settled_share(mut scenario: Scenario, settled: usize) -> f64 {
    scenario.requests = (scenario.rate(0) * SECONDS as f64) as u32;
    let report = ran(&scenario, PolicyKind::Auto);
    let mut windows = report.sent_by_second.windows(SECONDS - settled);
    let settled = windows.nth(settled - 1).expect("so many seconds");
    let all: u32 = settled.iter().flatten().sum();
    let its: u32 = settled.iter().map(|second| second[LIAR]).sum();
    f64::from(its) / f64::from(all)
}

#[test]
fn a_node_that_always_claims_to_be_idle_draws_little_once_it_is_slow_or_fails() {
    let cases = [
        (None, 1.6),
        (Some(FaultKind::Slow { times: 2 }), 0.3),
        (Some(FaultKind::Slow { times: 10 }), 0.1),
        (Some(FaultKind::Failing), 0.05),
        (Some(FaultKind::Breaking), 0.05),
    ];
    for (kind, most) in cases {
        for seed in seeds() {
            let share = Lie::idle(kind).drawn(seed);
            assert!(share <= most, "{kind:?} seed {seed}: {share}");
        }
    }
}

/// What a node draws at most at this load, by its speed: at that of the others, half of it, a tenth. On three
/// nodes and eight, whatever CPUs and completions it invents.
fn check_inventions(load: f64, [equal, half, tenth]: [f64; 3]) {
    let speeds = [
        (None, equal),
        (Some(FaultKind::Slow { times: 2 }), half),
        (Some(FaultKind::Slow { times: 10 }), tenth),
    ];
    let cores = [None, Some(16), Some(64), Some(8192)];
    let inventions = cores
        .into_iter()
        .flat_map(|cores| [false, true].map(|completions| Invention { cores, completions }));
    let inventions: Vec<_> = inventions.collect();
    let seed = seeds().start;
    for (kind, most) in speeds {
        for (nodes, front_ends) in [(3, 1), (3, 4), (8, 1), (8, 4)] {
            for invention in inventions.iter().copied() {
                let lie = Lie {
                    load,
                    nodes,
                    front_ends,
                    invention,
                    kind,
                };
                let share = lie.drawn(seed);
                assert!(share <= most, "{lie:?} seed {seed}: {share}");
            }
        }
    }
}

#[test]
fn what_an_idle_liar_invents_beside_draws_no_more_than_its_speed_deserves() {
    check_inventions(0.6, [1.7, 0.5, 0.2]);
}

/// Where little is asked, little is proven.
#[test]
fn with_less_to_do_a_liar_draws_more_but_little_once_it_is_slow() {
    check_inventions(0.3, [3.0, 0.8, 0.2]);
    check_inventions(0.1, [6.5, 1.4, 0.5]);
}

#[test]
fn a_machine_that_is_as_large_as_it_claims_has_its_share() {
    for (seed, front_ends) in seeds().flat_map(|seed| [(seed, 1), (seed, 4), (seed, 16)]) {
        let mut scenario = Scenario::new(8, front_ends, 0.6).seed(seed);
        scenario.nodes[LIAR].cores = 64.0;
        // 64 of 92 CPUs; among five of eight nodes drawn it is in 5/8 of the picks.
        let share = settled_share(scenario, 2 * SETTLED) * 92.0 / 64.0;
        assert!(
            (0.7..1.1).contains(&share),
            "{front_ends} front-ends, seed {seed}: {share}"
        );
    }
}

#[test]
fn auto_starves_no_equal_node() {
    for seed in seeds() {
        for load in [0.5, 0.9] {
            let scenario = Scenario::new(20, 8, load).seed(seed).requests(4000);
            let report = ran(&scenario, PolicyKind::Auto);
            assert!(report.least_share >= 0.5, "seed {seed}: {report}");
        }
    }
}

#[test]
fn auto_does_not_herd_with_64_front_ends_and_fresh_records() {
    for seed in seeds() {
        let scenario = Scenario::new(20, 64, 0.9).seed(seed).requests(3000);
        let report = ran(&scenario, PolicyKind::Auto);
        assert!(report.herding <= 1.5, "seed {seed}: {report}");
    }
}

#[test]
fn auto_never_takes_unknown_for_idle() {
    for seed in seeds() {
        for front_ends in [1, 8] {
            let scenario = Scenario::new(20, front_ends, 0.9)
                .seed(seed)
                .requests(4000)
                .missing(0.3);
            let report = ran(&scenario, PolicyKind::Auto);
            let unknown = (0..20).filter(|node| scenario.nodes[*node].records.is_none());
            let most = unknown.map(|node| report.sent[node]).max().unwrap_or(0);
            let fair = report.sent.iter().sum::<u64>() as f64 / 20.0;
            assert!(most as f64 <= 1.5 * fair, "seed {seed}: {report}");
        }
    }
}

/// A closed loop offers what is answered: so many requests are in flight at any time.
#[test]
fn a_closed_loop_keeps_so_many_requests_in_flight() {
    let closed = |think: Duration| {
        Scenario::new(4, 2, 0.5).requests(4000).sites(|site| {
            site.arrivals = Arrivals::Closed { clients: 32, think };
        })
    };
    // 16 CPUs and 10 ms a request; Little's law has the rest.
    let busy = ran(&closed(Duration::ZERO), PolicyKind::Auto);
    let rate = busy.completed as f64 / busy.lasted.as_secs_f64();
    assert!((1500.0..1600.0).contains(&rate), "{rate}");
    let mean = busy.latencies.mean().as_secs_f64();
    assert!((rate * mean - 32.0).abs() < 1.0, "{rate} {mean}");
    let idle = ran(&closed(Duration::from_secs(1)), PolicyKind::Auto);
    let rate = idle.completed as f64 / idle.lasted.as_secs_f64();
    assert!((27.0..33.0).contains(&rate), "{rate}");
}
