//! What every admission mode must hold to, through the real director, table and picker.

mod cluster;
mod crowd;

use std::time::Duration;

use cluster::Cluster;
use crowd::Crowd;
use tidegate_core::admission::{
    AdmissionConfig, AdmissionKind, Priority, RejectReason, StaticLimits,
};
use tidegate_core::picker::Decision;
use tidegate_core::prng::Prng;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{AdminState, NodeId, SiteId};

const SITE: SiteId = SiteId(0);
const START: Timestamp = Timestamp::from_millis(1000);
/// No mode gives a site more.
const LIMIT_MAX: f64 = 1000.0;
/// The seeds of random sequences.
const SEEDS: std::ops::Range<u64> = 0..20;

/// The mode as it would be used, with all the priorities that it knows.
fn config(kind: AdmissionKind) -> AdmissionConfig {
    AdmissionConfig {
        slo: Duration::from_millis(100),
        queue: 16,
        priorities: if kind.has_priorities() { 4 } else { 1 },
        limits: StaticLimits {
            connections: Some(4),
            cpu: Some(0.95),
            ..StaticLimits::default()
        },
        ..AdmissionConfig::new(kind)
    }
}

/// Every mode with its name and configuration.
fn all() -> impl Iterator<Item = (&'static str, AdmissionKind, AdmissionConfig)> {
    let all = AdmissionKind::ALL.iter();
    all.map(|(kind, name)| (*name, *kind, config(*kind)))
}

/// The lowest priority in use.
fn lowest(config: &AdmissionConfig) -> Priority {
    priority(config.priorities - 1)
}

fn priority(number: u8) -> Priority {
    Priority::new(number).unwrap_or_else(|| panic!("there is no priority {number}"))
}

#[test]
fn the_very_first_request_of_a_healthy_cluster_is_let_in() {
    for (name, _, config) in all() {
        for known in [true, false] {
            let mut crowd = Crowd::new(4, config, 1);
            if known {
                crowd.read_idle();
                crowd.tick();
            }
            let decision = crowd.ask(lowest(&config));
            assert!(
                matches!(decision, Decision::Forward(_)),
                "{name}: {decision:?}"
            );
        }
    }
}

#[test]
fn without_candidates_everybody_is_told_so() {
    for (name, _, config) in all() {
        let mut none = Crowd::new(0, config, 1);
        none.tick();
        let decision = none.ask(lowest(&config));
        let told = matches!(decision, Decision::Reject(RejectReason::NoNode));
        assert!(told, "{name}: {decision:?}");

        let mut gone = Crowd::new(2, config, 1);
        for _ in 0..40 {
            gone.arrive(lowest(&config));
        }
        for node in 0..2 {
            gone.override_node(NodeId(node), AdminState::Drain);
        }
        gone.tick();
        gone.serve();
        assert_eq!(gone.picker.waiting(), 0, "{name}");
        let decision = gone.ask(lowest(&config));
        let told = matches!(decision, Decision::Reject(RejectReason::NoNode));
        assert!(told, "{name}: {decision:?}");
    }
}

/// Any sequence of arrivals, ends, cancellations, odd loads, orders, and steps of the clock, some of
/// them backwards. [`Crowd`] checks each decision.
#[test]
fn nothing_that_happens_breaks_a_rule() {
    for (name, _, config) in all() {
        for seed in SEEDS {
            let mut crowd = Crowd::new(6, config, seed);
            crowd.happen(2000);
            assert!(
                crowd.wrong.is_empty(),
                "{name}, seed {seed}: {}",
                crowd.wrong
            );
            assert!(crowd.decisions.len() > 500, "{name}");
        }
    }
}

#[test]
fn the_same_seed_decides_the_same() {
    for (name, _, config) in all() {
        let decisions = |seed| {
            let mut crowd = Crowd::new(6, config, seed);
            crowd.happen(2000);
            crowd.decisions
        };
        assert_eq!(decisions(7), decisions(7), "{name}");
        assert_ne!(decisions(7), decisions(8), "{name}");
    }
}

#[test]
fn what_is_in_flight_or_waits_ends_and_is_counted_no_more() {
    for (name, _, config) in all() {
        for seed in SEEDS {
            let mut crowd = Crowd::new(6, config, seed);
            crowd.happen(1000);
            crowd.end_all();
            // Longer than anybody may wait.
            crowd.now = crowd.now + Duration::from_secs(600);
            crowd.tick();
            crowd.serve();
            crowd.end_all();
            let waiting = crowd.picker.waiting();
            assert_eq!(waiting, 0, "{name}, seed {seed}");
            for node in 0..6 {
                let in_flight = crowd.table.in_flight(NodeId(node));
                assert_eq!(in_flight, 0, "{name}, seed {seed}");
            }
        }
    }
}

#[test]
fn a_mode_without_a_queue_lets_nobody_wait() {
    for (name, _, config) in all().filter(|(_, _, config)| config.build().waits().is_none()) {
        for seed in SEEDS {
            let mut crowd = Crowd::new(6, config, seed);
            crowd.happen(1000);
            assert_eq!((crowd.waited, crowd.picker.waiting()), (0, 0), "{name}");
        }
    }
}

/// At one moment a lower priority never comes in where a higher one does not, be it that it waits or
/// that it is refused.
#[test]
fn a_lower_priority_never_comes_in_where_a_higher_one_does_not() {
    for (name, _, config) in all().filter(|(_, kind, _)| kind.has_priorities()) {
        for queue in [config.queue, 0] {
            let config = AdmissionConfig { queue, ..config };
            let mut held_up = 0;
            for seed in SEEDS {
                let mut crowd = Crowd::new(2, config, seed);
                let mut prng = Prng::new(seed);
                for _ in 0..200 {
                    crowd.happen(5);
                    let lower = 1 + prng.below(3) as u8;
                    let higher = prng.below(lower.into()) as u8;
                    let first = crowd.arrive(priority(higher));
                    let second = crowd.arrive(priority(lower));
                    held_up += u32::from(!first);
                    let seen = format!("{name}, queue of {queue}, seed {seed}");
                    assert!(first || !second, "{seen}: {lower} before {higher}");
                }
            }
            assert!(held_up > 100, "{name}: {held_up} of a higher priority");
        }
    }
}

/// How long after an overload one that comes alone may be refused.
fn patience(kind: AdmissionKind) -> Duration {
    match kind {
        AdmissionKind::Off
        | AdmissionKind::Static
        | AdmissionKind::Adaptive
        | AdmissionKind::MaxConn
        | AdmissionKind::Codel
        | AdmissionKind::Gradient2
        | AdmissionKind::Vegas
        | AdmissionKind::EnvoyAdaptiveConcurrency => Duration::from_secs(5),
        // Its window, and the time-outs of the overload's last requests.
        AdmissionKind::EnvoyAdmissionControl => Duration::from_secs(32),
        // A hundredth of the requests more with each second.
        AdmissionKind::Dagor => Duration::from_secs(110),
    }
}

#[test]
fn once_an_overload_is_over_everything_is_let_in_again() {
    for (name, kind, config) in all() {
        let mut cluster = Cluster::new(2, config, 3);
        // Two in each 20 ms, for both nodes, which could do fifty times as much.
        cluster.calm(Duration::from_secs(2));
        assert_eq!(cluster.refused, 0, "{name} before it");
        cluster.overload(Duration::from_secs(4), 4.0);
        assert!(
            cluster.refused > 0 || cluster.late > 0,
            "{name}: no overload"
        );
        cluster.calm(patience(kind));
        cluster.refused = 0;
        cluster.calm(Duration::from_secs(5));
        assert_eq!(cluster.refused, 0, "{name} after it");
    }
}

/// What a mode holds itself to is no less than a request and no more than it may be.
#[test]
fn limits_stay_within_their_bounds() {
    for (name, _, config) in all() {
        let mut cluster = Cluster::new(2, config, 4);
        for load in [0.5, 4.0, 0.1, 8.0, 1.0] {
            cluster.overload(Duration::from_millis(1500), load);
            let limits = cluster.picker.limits(SITE);
            for limit in [limits.node, limits.site] {
                let bounded = (1.0..=LIMIT_MAX).contains(&limit) || limit == f64::INFINITY;
                assert!(bounded, "{name}: {limit}");
            }
        }
    }
}
