//! Nodes that run out of file descriptors: what soft limits are worth under each policy, at reads from 10 ms to 5 s.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::time::Duration;

use tidegate_core::policy::{PolicyConfig, PolicyKind};
use tidegate_core::topology::SoftLimits;
use tidegate_sim::report::Report;
use tidegate_sim::scenario::{FileTable, Scenario};
use tidegate_sim::world::run;

const POLICIES: [PolicyKind; 4] = [
    PolicyKind::RoundRobin,
    PolicyKind::LeastRequest,
    PolicyKind::Slbl,
    PolicyKind::Auto,
];
const READS: [Duration; 3] = [
    Duration::from_millis(10),
    Duration::from_millis(500),
    Duration::from_secs(5),
];

/// Six nodes for 80 seconds. Two of them have descriptors for 1000, and others take those as `taken` says.
fn scenario(reads: Duration, soft_limits: SoftLimits, taken: &[(u64, f64)]) -> Scenario {
    let mut scenario = Scenario::new(6, 2, 0.5).requests(96_000);
    for node in [1, 4] {
        let at = |(second, share): &(u64, f64)| (Duration::from_secs(*second), *share);
        scenario.nodes[node].files = Some(FileTable {
            max: 1000,
            taken: taken.iter().map(at).collect(),
        });
    }
    let scenario = scenario.sites(|site| site.soft_limits = soft_limits);
    scenario.record_interval(reads)
}

/// They leak for 30 s, stay full for ten, and are restarted.
const LEAK: [(u64, f64); 4] = [(10, 0.1), (40, 1.0), (50, 1.0), (50, 0.1)];
/// All descriptors are gone at once, for ten seconds.
const STARVED: [(u64, f64); 4] = [(20, 0.1), (20, 1.0), (30, 1.0), (30, 0.1)];

fn ran(kind: PolicyKind, reads: Duration, limits: SoftLimits, taken: &[(u64, f64)]) -> Report {
    let scenario = scenario(reads, limits, taken);
    run(&scenario, PolicyConfig::new(kind)).unwrap()
}

/// Each front-end learns of a node that refuses by three refused connections.
const REFUSALS: u64 = 3 * 2 * 2;

/// The ramp is seen before it arrives: not one connection is refused, where 4 to 10 are without limits.
#[test]
fn a_leak_costs_no_connection_at_any_read_interval() {
    for kind in POLICIES {
        let name = kind.name();
        let without = ran(kind, READS[0], SoftLimits::NONE, &LEAK);
        assert!(without.out_of_files > 0, "{name}");
        for reads in READS {
            let report = ran(kind, reads, SoftLimits::default(), &LEAK);
            let seen = format!("{name}, reads each {reads:?}");
            assert_eq!((report.out_of_files, report.failed), (0, 0), "{seen}");
            let sent = |from: usize, to: usize| -> u32 {
                let seconds = &report.sent_by_second[from..to];
                seconds.iter().map(|nodes| nodes[1]).sum()
            };
            assert!(sent(0, 20) > 0, "{seen}: it is in at first");
            assert_eq!(sent(40, 50), 0, "{seen}: it is out while it is full");
            assert!(sent(70, 80) > 0, "{seen}: it is back");
        }
    }
}

/// What gives no notice is found by the connections that are refused, at most three for each front-end and node; other
/// nodes answer their requests.
#[test]
fn nodes_that_are_starved_at_once_cost_a_few_connections() {
    for kind in POLICIES {
        for reads in READS {
            let report = ran(kind, reads, SoftLimits::default(), &STARVED);
            let seen = format!("{}, reads each {reads:?}", kind.name());
            let refused = report.out_of_files;
            assert!(refused <= REFUSALS, "{seen}: {refused} refused");
            assert!(report.failed <= 1, "{seen}: {} failed", report.failed);
        }
    }
}
