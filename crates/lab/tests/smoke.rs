//! One tiny experiment end to end: cluster, front-ends, load, table. In namespaces as root, beside
//! HAProxy; in loopback mode always. What is not here is SKIPPED with its reason.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

mod support;

use std::time::Duration;

use support::agent_binary;
use tidegate_lab::awake::Awake;
use tidegate_lab::cluster::{ClusterError, ClusterPlan, Mode, NodePlan};
use tidegate_lab::experiments::{
    Arm, ExperimentError, Lab, Measured, NoHook, Part, Plan, Point, Runner, Scale, Stage, arms,
};
use tidegate_lab::front::{self, FrontKind, HaproxyBalance};
use tidegate_lab::load::{Pacing, Requests, Stream};
use tidegate_lab::progress::Progress;

const MS: Duration = Duration::from_millis(1);

fn plan(mode: Mode, arms: Vec<Arm>) -> Plan {
    let nodes = ["a", "b"].map(|name| NodePlan::new(name, 0.3)).into();
    let cluster = ClusterPlan {
        mode: Some(mode),
        ..ClusterPlan::new(nodes)
    };
    let stream = Stream {
        site: "site".into(),
        pacing: Pacing::Closed {
            clients: 4,
            think: Duration::ZERO,
        },
        requests: Requests::Single {
            path: "/work?cpu=1ms&bytes=100".into(),
        },
        header: None,
    };
    let point = Point {
        settle: 100 * MS,
        ..Point::single("load=1".into(), stream, 100 * MS, 500 * MS)
    };
    Plan {
        stages: vec![Stage::new(cluster, vec![point])],
        arms,
        rounds: 2,
    }
}

fn run(plan: &Plan) -> Result<Measured, Box<ExperimentError>> {
    plan.check().unwrap();
    let lab = Lab {
        scale: Scale::Quick,
        mode: None,
        part: Part::default(),
        progress: Progress::silent(),
        awake: Awake::start(env!("CARGO_BIN_EXE_tidegate-lab").as_ref()),
    };
    Ok(Runner::run(&lab, plan, &mut NoHook)?)
}

/// Every arm that is installed answered in both rounds and lost nothing.
fn check(measured: &Measured, plan: &Plan) {
    for arm in &plan.arms {
        if let Err(why) = front::available(&arm.kind) {
            println!("SKIPPED {}: {why}", arm.name);
            let told = measured.notes.iter().any(|note| note.contains("SKIPPED"));
            assert!(told, "{:?}", measured.notes);
            continue;
        }
        let metrics = measured.table.get(&arm.name);
        let metrics = metrics.unwrap_or_else(|| panic!("{}: {:?}", arm.name, measured.notes));
        assert_eq!(metrics["failed[load=1]"], [0.0, 0.0], "{}", arm.name);
        let throughput = &metrics["throughput_rps[load=1]"];
        assert!(
            throughput.len() == 2 && throughput.iter().all(|it| *it > 0.0),
            "{throughput:?}"
        );
    }
}

#[test]
fn a_tiny_experiment_in_namespaces_with_haproxy_beside() {
    if !agent_binary() {
        return;
    }
    let haproxy = Arm::of(FrontKind::Haproxy(HaproxyBalance::RoundRobin));
    let arms = vec![arms::blind("round_robin").times(2), haproxy];
    let plan = plan(Mode::Namespaces, arms);
    match run(&plan).map_err(|why| *why) {
        Ok(measured) => check(&measured, &plan),
        Err(ExperimentError::Cluster(ClusterError::Missing(why))) => println!("SKIPPED: {why}"),
        Err(why) => panic!("{why}"),
    }
}

#[test]
fn a_tiny_experiment_in_loopback_mode() {
    if !agent_binary() {
        return;
    }
    let plan = plan(Mode::Loopback, vec![arms::blind("least_request")]);
    let measured = run(&plan).unwrap();
    assert_eq!(measured.mode, "loopback");
    assert!(!measured.emulated.is_empty());
    check(&measured, &plan);
}
