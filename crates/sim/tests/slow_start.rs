//! A node that comes back with empty caches: what a slow start is worth under each policy.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::time::Duration;

use tidegate_core::policy::{PolicyConfig, PolicyKind};
use tidegate_core::topology::NodeId;
use tidegate_sim::report::Report;
use tidegate_sim::scenario::{Leave, Scenario, Warming};
use tidegate_sim::world::run;

/// Two of ten nodes are away for two seconds and come back cold.
fn scenario(slow_start: Duration) -> Scenario {
    let mut scenario = Scenario::new(10, 4, 0.6).requests(48_000);
    let leave = |node| Leave {
        node: NodeId(node),
        from: Duration::from_secs(3),
        to: Duration::from_secs(5),
    };
    scenario.leaves = vec![leave(2), leave(7)];
    let warming = Warming {
        times: 6.0,
        requests: 300.0,
    };
    scenario
        .sites(|site| site.slow_start = slow_start)
        .nodes(|node| node.warming = Some(warming))
}

fn ran(kind: PolicyKind, slow_start: Duration) -> Report {
    run(&scenario(slow_start), PolicyConfig::new(kind)).unwrap()
}

fn p99_ms(report: &Report) -> f64 {
    report.latencies.quantile(0.99).as_secs_f64() * 1e3
}

const LONG: Duration = Duration::from_secs(8);

/// Policies that see no load pour requests into cold nodes as into warm ones: 2.7 to 3.1 s without a slow start.
#[test]
fn a_slow_start_spares_cold_nodes_that_a_blind_policy_would_flood() {
    for kind in [
        PolicyKind::Random,
        PolicyKind::RoundRobin,
        PolicyKind::WeightedRoundRobin,
    ] {
        let at_once = p99_ms(&ran(kind, Duration::ZERO));
        let slowly = p99_ms(&ran(kind, LONG));
        let seen = format!("{}: {at_once:.0} ms and {slowly:.0} ms", kind.name());
        assert!(slowly < at_once / 10.0, "{seen}");
    }
}

/// Those that see load leave cold nodes alone by themselves, and lose nothing by a slow start.
#[test]
fn a_policy_that_sees_load_loses_nothing_by_a_slow_start() {
    for kind in [PolicyKind::Auto, PolicyKind::LeastRequest] {
        let at_once = p99_ms(&ran(kind, Duration::ZERO));
        let slowly = p99_ms(&ran(kind, LONG));
        let seen = format!("{}: {at_once:.0} ms and {slowly:.0} ms", kind.name());
        assert!(slowly < at_once * 1.1, "{seen}");
    }
}

#[test]
fn nodes_that_leave_get_nothing_meanwhile_and_none_is_lost() {
    for kind in PolicyKind::ALL {
        let report = ran(*kind, Duration::ZERO);
        let (failed, rejected) = (report.failed, report.rejected);
        assert_eq!((failed, rejected), (0, 0), "{}", kind.name());
        let away = |second: usize| report.sent_by_second[second][2];
        assert!(away(2) > 0 && away(6) > 0, "{}", kind.name());
        // It left at a full second, and front-ends hear of it within a tick.
        assert!(away(4) == 0, "{}: {}", kind.name(), away(4));
    }
}
