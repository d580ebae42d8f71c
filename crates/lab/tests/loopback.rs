//! Clusters in loopback mode, which anybody may start. Asserted are computed CPU times, which
//! are exact, and the order of events.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

mod support;

use std::time::Duration;

use support::{answer, ask, eventually, get, read_load, start_loopback, status_of};
use tidegate_lab::antagonist::Antagonist;
use tidegate_lab::cluster::{
    AgentPlan, CachePlan, Cluster, ClusterPlan, Mode, NodePlan, Placed, ServerKind,
};

const MS: Duration = Duration::from_millis(1);

/// Two nodes with an agent beside and one inside.
fn two() -> Vec<NodePlan> {
    let agent = |name, place, port| AgentPlan {
        name,
        interval: MS,
        place,
        port,
        rungs: Placed::rungs(place),
        agent_check: None,
    };
    let node = |name: &str| NodePlan {
        agents: vec![
            agent("beside", Placed::Beside, 9901),
            agent("inside", Placed::Inside, 9902),
        ],
        ..NodePlan::new(name, 0.5)
    };
    vec![node("a"), node("b")]
}

#[test]
fn the_results_say_what_was_emulated() {
    let cluster = start_loopback(two());
    assert_eq!(cluster.mode(), Mode::Loopback);
    let said = cluster.emulated().join("\n");
    assert!(
        said.contains("Loopback mode") && said.contains("asked for"),
        "{said}"
    );
    assert!(
        cluster
            .nodes()
            .iter()
            .all(|node| node.address.ip().is_loopback())
    );
    assert!(cluster.front().limit(Some(0.5)).is_err());
}

#[test]
fn a_request_costs_what_its_url_says_and_the_cache_what_the_plan_says() {
    let mut nodes = two();
    for node in &mut nodes {
        node.agents.clear();
        node.cache = CachePlan {
            files: 1,
            hit: MS,
            miss: 3 * MS,
        };
    }
    let cluster = start_loopback(nodes);
    let done = get(
        &cluster,
        0,
        "/work?cpu=2ms&bytes=5&sleep=1ms&mem=1MiB&fds=2",
    )
    .unwrap();
    assert!(done.ends_with("\r\n\r\nxxxxx"), "{done}");
    assert_eq!(cluster.cpu_time(0).as_micros(), 2000);
    for (file, costs, found) in [
        (7, 3, "miss"),
        (7, 1, "hit"),
        (8, 3, "miss"),
        (7, 3, "miss"),
    ] {
        let before = cluster.cpu_time(1);
        let done = get(&cluster, 1, &format!("/work?file={file}")).unwrap();
        assert!(
            done.contains(&format!("x-lab-cache: {found}\r\n")),
            "{done}"
        );
        assert_eq!((cluster.cpu_time(1) - before).as_micros(), costs * 1000);
    }
    assert_eq!(status_of(&get(&cluster, 0, "/work?cpu=x").unwrap()), 400);
    assert_eq!(status_of(&get(&cluster, 0, "/").unwrap()), 404);
    assert_eq!(status_of(&get(&cluster, 0, "/health").unwrap()), 200);
}

#[test]
fn a_node_that_slows_down_takes_more_cpu_time_for_the_same() {
    let cluster = start_loopback(vec![NodePlan::new("a", 1.0)]);
    let cost = || {
        let before = cluster.cpu_time(0);
        assert_eq!(status_of(&get(&cluster, 0, "/work?cpu=10ms").unwrap()), 200);
        cluster.cpu_time(0) - before
    };
    cluster.slow_down(0, 3).unwrap();
    let slow = cost();
    assert!(slow >= 30 * MS, "{slow:?}");
    cluster.slow_down(0, 1).unwrap();
    let usual = cost();
    assert!((10 * MS..30 * MS).contains(&usual), "{usual:?}");
}

#[test]
fn agents_see_antagonists_of_all_kinds() {
    let cluster = start_loopback(two());
    let idle = read_load(&cluster, 0, 0);
    assert_eq!(idle.cores_milli, 500);
    let hogs = cluster
        .antagonist(0, &Antagonist::Hogs { threads: 3 })
        .unwrap();
    for which in [0, 1] {
        eventually("the hogs are in the record", || {
            (read_load(&cluster, 0, which).runnable >= 3).then_some(())
        });
    }
    assert_eq!(read_load(&cluster, 1, 0).runnable, 0);
    drop(hogs);
    eventually("the hogs are gone", || {
        (read_load(&cluster, 0, 0).runnable < 3).then_some(())
    });
    let period = 20 * MS;
    let kinds = [
        Antagonist::Memory {
            bytes: 1 << 20,
            period,
            duty: 0.5,
        },
        Antagonist::Files {
            files: 100,
            period,
            duty: 0.5,
        },
    ];
    for kind in kinds {
        let _guard = cluster.antagonist(1, &kind).unwrap();
        eventually("it takes and gives back", || {
            let now = read_load(&cluster, 1, 0);
            let taken = idle.memory_available - now.memory_available >= 1 << 20
                || now.files_open - idle.files_open >= 100;
            taken.then_some(())
        });
        eventually("it gives back", || {
            let now = read_load(&cluster, 1, 0);
            let same =
                (now.memory_available, now.files_open) == (idle.memory_available, idle.files_open);
            same.then_some(())
        });
    }
}

#[test]
fn emulated_nodes_die_pause_and_come_back() {
    let mut cluster = start_loopback(two());
    let address = cluster.nodes()[0].address;
    cluster.kill(0).unwrap();
    assert!(get(&cluster, 0, "/health").is_err());
    assert_eq!(status_of(&get(&cluster, 1, "/health").unwrap()), 200);
    cluster.revive(0).unwrap();
    assert_eq!(status_of(&get(&cluster, 0, "/work?cpu=1ms").unwrap()), 200);
    assert_eq!(cluster.nodes()[0].address, address);

    cluster.stop(1).unwrap();
    let (record, used) = (read_load(&cluster, 1, 0), cluster.cpu_time(1));
    let waiting = ask(&cluster, 1, "/work?cpu=1ms").unwrap();
    assert_eq!(status_of(&get(&cluster, 0, "/work?cpu=20ms").unwrap()), 200);
    assert_eq!(cluster.cpu_time(1), used);
    assert_eq!(read_load(&cluster, 1, 0).sequence, record.sequence);
    cluster.resume(1).unwrap();
    assert_eq!(status_of(&answer(waiting).unwrap()), 200);
    eventually("the agent goes on", || {
        (read_load(&cluster, 1, 0).sequence != record.sequence).then_some(())
    });
    assert!(cluster.stop(2).is_err());
}

#[test]
fn a_killed_node_breaks_its_connections_and_forgets_its_requests() {
    let mut cluster = start_loopback(two());
    let waiting = ask(&cluster, 0, "/work?cpu=60s").unwrap();
    eventually("it is there", || {
        (read_load(&cluster, 0, 0).in_flight >= 1).then_some(())
    });
    cluster.kill(0).unwrap();
    let broken = answer(waiting);
    assert!(broken.is_err() || broken.is_ok_and(|text| text.is_empty()));
    cluster.revive(0).unwrap();
    // Nothing of the 60 s is left to be done.
    eventually("it is idle", || {
        (read_load(&cluster, 0, 0).in_flight == 0).then_some(())
    });
}

#[test]
fn other_servers_need_namespaces() {
    let mut nodes = two();
    nodes[0].server = ServerKind::Nginx;
    let plan = ClusterPlan {
        mode: Some(Mode::Loopback),
        ..ClusterPlan::new(nodes)
    };
    let why = Cluster::start(&plan).unwrap_err().to_string();
    assert!(why.contains("nginx") && why.contains("namespaces"), "{why}");
}
