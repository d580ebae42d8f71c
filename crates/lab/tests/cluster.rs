//! Clusters in namespaces on the running kernel, as root; without it each test says SKIPPED.
//! Asserted are counters and CPU times, which are the same on a machine that others use too.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

mod support;

use std::path::Path;
use std::time::Duration;

use support::{agent_binary, answer, ask, eventually, get, read_load, start, status_of};
use tidegate_core::record::Sources;
use tidegate_lab::antagonist::Antagonist;
use tidegate_lab::cluster::{AgentPlan, Cluster, NODE_MEMORY, NodePlan, Placed, ServerKind};

const MS: Duration = Duration::from_millis(1);

/// Three nodes of this share.
fn three(share: f64) -> Vec<NodePlan> {
    ["a", "b", "c"]
        .map(|name| NodePlan::new(name, share))
        .into()
}

#[test]
fn every_node_serves_at_its_own_address_and_pays_for_it() {
    let Some(cluster) = start(three(0.2)) else {
        return;
    };
    let before: Vec<_> = (0..3).map(|node| cluster.cpu_time(node)).collect();
    let answer = get(&cluster, 1, "/work?cpu=100ms&bytes=7&mem=1MiB&fds=5").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nxxxxxxx"), "{answer}");
    let used = |node: usize| cluster.cpu_time(node) - before[node];
    assert!(used(1) >= 100 * MS, "{:?}", used(1));
    for idle in [0, 2] {
        assert!(used(idle) < 50 * MS, "{:?}", used(idle));
    }
    let refused = get(&cluster, 0, "/work?cpu=1").unwrap();
    assert!(
        refused.starts_with("HTTP/1.1 400") && refused.contains("unit"),
        "{refused}"
    );
    assert_eq!(status_of(&get(&cluster, 0, "/nothing").unwrap()), 404);
}

#[test]
fn a_node_that_slows_down_takes_more_cpu_time_for_the_same() {
    let Some(cluster) = start(three(0.2)) else {
        return;
    };
    let cost = || {
        let before = cluster.cpu_time(1);
        let answer = get(&cluster, 1, "/work?cpu=20ms").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        cluster.cpu_time(1) - before
    };
    cluster.slow_down(1, 5).unwrap();
    let slow = cost();
    assert!(slow >= 100 * MS, "{slow:?}");
    cluster.slow_down(1, 1).unwrap();
    let usual = cost();
    assert!(usual < 60 * MS, "{usual:?}");
    let refused = cluster.slow_down(1, 0).unwrap_err().to_string();
    assert!(refused.contains("400"), "{refused}");
}

/// Three nodes want all the CPU that there is and get what their shares say: the ratios of
/// their CPU times, which do not depend on how much the machine has to give.
#[test]
fn a_node_burns_no_more_than_its_share() {
    let shares = [0.1, 0.2, 0.3];
    let nodes = shares.iter().enumerate();
    let nodes = nodes.map(|(index, share)| NodePlan::new(format!("n{index}"), *share));
    let Some(cluster) = start(nodes.collect()) else {
        return;
    };
    let hogs = Antagonist::Hogs { threads: 2 };
    let guards: Vec<_> = (0..3)
        .map(|node| cluster.antagonist(node, &hogs).unwrap())
        .collect();
    let times = || [0, 1, 2].map(|node| cluster.cpu_time(node));
    let (clock, before) = (tidegate_remote::clock::now(), times());
    eventually("the smallest has burnt enough", || {
        (times()[0] - before[0] >= 150 * MS).then_some(())
    });
    let (after, elapsed) = (times(), tidegate_remote::clock::now().since(clock));
    for (node, share) in shares.iter().enumerate() {
        let used = (after[node] - before[node]).as_secs_f64();
        // A tick of 10 ms of what it may have overdrawn.
        let most = share * elapsed.as_secs_f64() + 0.02;
        assert!(used <= most, "node {node} used {used} s of {most}");
        assert!(used >= 0.1, "node {node} used {used} s");
    }
    drop(guards);
    // The server's threads alone want nothing.
    let before = times();
    status_of(&get(&cluster, 0, "/health").unwrap());
    assert!(times()[2] - before[2] < 20 * MS);
}

#[test]
fn antagonists_of_all_kinds_work_inside_the_node() {
    let Some(cluster) = start(three(0.2)) else {
        return;
    };
    let kinds = [
        Antagonist::PingPong {
            processes: 4,
            bytes: 4096,
        },
        Antagonist::Memory {
            bytes: 4 << 20,
            period: 20 * MS,
            duty: 0.5,
        },
        Antagonist::Files {
            files: 500,
            period: 20 * MS,
            duty: 0.5,
        },
        Antagonist::Bursty {
            threads: 2,
            duty: 0.5,
            shortest: 5 * MS,
            longest: 50 * MS,
            seed: 1,
        },
    ];
    for kind in kinds {
        let before = [0, 1].map(|node| cluster.cpu_time(node));
        let guard = cluster.antagonist(1, &kind).unwrap();
        eventually("the antagonist takes CPU time", || {
            (cluster.cpu_time(1) - before[1] >= 30 * MS).then_some(())
        });
        drop(guard);
        let other = cluster.cpu_time(0) - before[0];
        assert!(other < 20 * MS, "{kind:?} took {other:?} of another node");
    }
}

/// An agent in the node's group and one beside it tell of that node alone.
#[test]
fn agents_tell_the_nodes_cpu_time_and_run_queue_and_not_the_hosts() {
    if !agent_binary() {
        return;
    }
    let agent = |name, place, port| AgentPlan {
        name,
        interval: 5 * MS,
        place,
        port,
        rungs: Placed::rungs(place),
        agent_check: None,
    };
    let mut nodes = three(0.2);
    for node in &mut nodes {
        node.agents = vec![
            agent("inside", Placed::Inside, 9901),
            agent("beside", Placed::Beside, 9902),
        ];
    }
    let Some(cluster) = start(nodes) else {
        return;
    };
    let guard = cluster
        .antagonist(0, &Antagonist::Hogs { threads: 4 })
        .unwrap();
    for which in 0..2 {
        let first = read_load(&cluster, 0, which);
        assert!(first.scope == 1 || first.scope == 2, "{first:?}");
        assert_eq!(first.quota_milli, 200);
        if first.sources.has(Sources::MEMORY) {
            assert_eq!(first.memory_total, NODE_MEMORY);
            assert!(first.memory_available > NODE_MEMORY / 2);
        }
        assert!(first.sources.has(Sources::BUSY_ACCT));
        let busy = eventually("four hogs are seen and burn CPU time", || {
            let now = read_load(&cluster, 0, which);
            // Inside the quota an agent may be too slow to look at each thread, and says so.
            let seen = now.runnable >= 4 || which == 0 && !now.sources.has(Sources::RUNNABLE);
            let enough = seen && now.busy_ns >= first.busy_ns + 50_000_000;
            enough.then_some(now.busy_ns)
        });
        // The group's own counter goes on from where the agent's ended.
        assert!(Duration::from_nanos(busy - first.busy_ns) <= cluster.cpu_time(0));
        let idle = read_load(&cluster, 1, which);
        let later = eventually("a later record", || {
            let later = read_load(&cluster, 1, which);
            (later.t_ns > idle.t_ns).then_some(later)
        });
        let (passed, busy) = (later.t_ns - idle.t_ns, later.busy_ns - idle.busy_ns);
        assert!(
            busy < passed,
            "an idle node was busy for {busy} of {passed} ns"
        );
    }
    drop(guard);
    assert!(cluster.beside_cpu_time(0) > Duration::ZERO);
}

#[test]
fn nodes_die_pause_and_come_back() {
    let Some(mut cluster) = start(three(0.2)) else {
        return;
    };
    cluster.kill(0).unwrap();
    assert!(get(&cluster, 0, "/health").is_err());
    assert_eq!(status_of(&get(&cluster, 1, "/health").unwrap()), 200);
    cluster.revive(0).unwrap();
    assert_eq!(status_of(&get(&cluster, 0, "/health").unwrap()), 200);

    cluster.stop(1).unwrap();
    let used = cluster.cpu_time(1);
    let waiting = ask(&cluster, 1, "/work?cpu=1ms").unwrap();
    // Another node's answer comes; the stopped one's cannot.
    assert_eq!(status_of(&get(&cluster, 2, "/work?cpu=20ms").unwrap()), 200);
    waiting.set_nonblocking(true).unwrap();
    let early = waiting.peek(&mut [0]).unwrap_err();
    assert_eq!(early.kind(), std::io::ErrorKind::WouldBlock);
    // A thread stops when it next comes to run.
    assert!(cluster.cpu_time(1) - used < 5 * MS);
    cluster.resume(1).unwrap();
    waiting.set_nonblocking(false).unwrap();
    assert_eq!(status_of(&answer(waiting).unwrap()), 200);
    assert!(cluster.kill(7).is_err());
}

/// A node with this server, or the reason why not printed.
fn with_server(server: ServerKind) -> Option<Cluster> {
    let programs: &[&str] = match server {
        ServerKind::Test => &[],
        ServerKind::Nginx => &["/usr/sbin/nginx"],
        ServerKind::ApachePhp => &["/usr/sbin/apache2", "/usr/lib/apache2/modules/libphp8.2.so"],
        ServerKind::Auction | ServerKind::Database => unreachable!("they come together"),
    };
    if let Some(missing) = programs.iter().find(|path| !Path::new(path).exists()) {
        println!("SKIPPED: {missing} is not installed");
        return None;
    }
    start(vec![NodePlan {
        server,
        ..NodePlan::new("n", 0.5)
    }])
}

#[test]
fn nginx_serves_files_and_refuses_what_it_cannot_do() {
    let Some(mut cluster) = with_server(ServerKind::Nginx) else {
        return;
    };
    let answer = get(&cluster, 0, "/work?bytes=4096").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let body = answer.split("\r\n\r\n").nth(1).unwrap();
    assert_eq!(body.len(), 4096);
    assert_eq!(status_of(&get(&cluster, 0, "/work").unwrap()), 200);
    for refused in [
        "cpu=1ms",
        "sleep=1ms",
        "mem=1KiB",
        "fds=1",
        "file=1",
        "bytes=3",
    ] {
        let answer = get(&cluster, 0, &format!("/work?{refused}")).unwrap();
        assert_eq!(status_of(&answer), 400, "{refused}: {answer}");
    }
    die_pause_and_come_back(&mut cluster);
}

#[test]
fn apache_runs_php_that_costs_what_was_asked_for() {
    let Some(mut cluster) = with_server(ServerKind::ApachePhp) else {
        return;
    };
    let before = cluster.cpu_time(0);
    let answer = get(
        &cluster,
        0,
        "/work?cpu=60ms&bytes=10&mem=1MiB&fds=3&sleep=1ms",
    )
    .unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nxxxxxxxxxx"), "{answer}");
    let used = cluster.cpu_time(0) - before;
    assert!(used >= 60 * MS && used < 160 * MS, "{used:?}");
    for refused in ["cpu=1", "file=1", "colour=red", "cpu=61s"] {
        let answer = get(&cluster, 0, &format!("/work?{refused}")).unwrap();
        assert_eq!(status_of(&answer), 400, "{refused}: {answer}");
    }
    die_pause_and_come_back(&mut cluster);
}

/// Servers of many processes, too, die, stand still and come back as one.
fn die_pause_and_come_back(cluster: &mut Cluster) {
    cluster.kill(0).unwrap();
    assert!(get(cluster, 0, "/health").is_err());
    cluster.revive(0).unwrap();
    assert_eq!(status_of(&get(cluster, 0, "/health").unwrap()), 200);
    cluster.stop(0).unwrap();
    let waiting = ask(cluster, 0, "/health").unwrap();
    cluster.resume(0).unwrap();
    assert_eq!(status_of(&answer(waiting).unwrap()), 200);
}
