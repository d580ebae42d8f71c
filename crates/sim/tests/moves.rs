//! Nodes that move between sites, in virtual time: small runs of what `examples/move_rows.rs` measures.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::time::Duration;

use tidegate_sim::moves::{Arm, Faults, Load, MovesReport, MovesScenario, Rule, run};

const BURST_RULE: Rule = Rule {
    moves_max: 1000,
    ..Rule::DEFAULT
};

/// Eight nodes of three sites, of which one at a time is asked by all clients.
fn bursts(arm: Arm, requests: u64) -> MovesReport {
    let scenario = MovesScenario {
        nodes: vec![3, 3, 2],
        cpus: 1,
        demand: Duration::from_millis(1),
        load: Load::Bursts {
            clients: 64,
            requests,
        },
        arm,
        bounds: (1, 6),
        front_ends: 2,
        faults: None,
        length: Duration::from_secs(30),
        seed: 1,
    };
    run(&scenario).unwrap()
}

fn steady(load: f64, length: Duration) -> MovesScenario {
    MovesScenario {
        nodes: vec![5, 5],
        cpus: 2,
        demand: Duration::from_millis(20),
        load: Load::steady(load, 2),
        arm: Arm::Moves(Rule::DEFAULT),
        bounds: (2, 8),
        front_ends: 1,
        faults: None,
        length,
        seed: 1,
    }
}

#[test]
fn long_bursts_get_the_nodes_and_short_ones_lose_nothing() {
    let rigid = bursts(Arm::Rigid, 16_384).per_second();
    let most = bursts(Arm::OverProvisioned, 16_384).per_second();
    let ours = bursts(Arm::Moves(BURST_RULE), 16_384).per_second();
    assert!(most > 2.0 * rigid, "{rigid} {most}");
    assert!(ours > 1.2 * rigid && ours < most, "{rigid} {ours} {most}");
    let rigid = bursts(Arm::Rigid, 512).per_second();
    let ours = bursts(Arm::Moves(BURST_RULE), 512).per_second();
    assert!(ours > 0.9 * rigid, "{rigid} {ours}");
}

#[test]
fn a_seed_gives_the_same_run() {
    let [one, two] = [1, 1].map(|_| bursts(Arm::Moves(BURST_RULE), 4096));
    assert_eq!(one, two);
}

#[test]
fn an_hour_of_steady_load_moves_nothing() {
    let hour = Duration::from_secs(3600);
    let report = run(&steady(0.6, hour)).unwrap();
    assert!(report.completed.iter().sum::<u64>() > 1_000_000);
    assert_eq!(report.moves, []);
}

#[test]
fn a_crowd_gets_nodes_within_a_second_and_they_go_back() {
    let second = Duration::from_secs(1);
    let scenario = MovesScenario {
        load: Load::Open(vec![
            (Duration::ZERO, vec![0.3, 0.25]),
            (5 * second, vec![1.35, 0.2]),
            (20 * second, vec![0.25, 0.8]),
        ]),
        ..steady(0.3, 40 * second)
    };
    let report = run(&scenario).unwrap();
    let came = report.first_to(0, 5 * second).unwrap();
    assert!(came < second, "{came:?}");
    assert!(report.nodes[1] >= 5, "{report:?}");
}

#[test]
fn front_ends_that_crash_leave_no_lock_and_lose_no_node() {
    let mut crashes = 0;
    for seed in 0..50 {
        let scenario = MovesScenario {
            nodes: vec![2, 2, 2, 2],
            cpus: 1,
            demand: Duration::from_millis(5),
            load: Load::Bursts {
                clients: 32,
                requests: 300,
            },
            arm: Arm::Moves(BURST_RULE),
            bounds: (1, 5),
            front_ends: 3,
            faults: Some(Faults {
                crash: 0.1,
                down: Duration::from_millis(300),
                late: 0.5,
                late_max: Duration::from_millis(400),
                until: Duration::from_secs(4),
            }),
            length: Duration::from_secs(8),
            seed,
        };
        let report = run(&scenario).unwrap();
        assert!(report.locks_free, "seed {seed}");
        assert_eq!(report.nodes.iter().sum::<usize>(), 8, "seed {seed}");
        crashes += report.crashes;
    }
    assert!(crashes > 50, "{crashes}");
}
