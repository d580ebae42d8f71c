//! Clusters in namespaces on the running kernel, as root; without it each test says SKIPPED.
//! Asserted are counters and CPU times, which are the same on a machine that others use too.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tidegate_lab::cluster::{Cluster, ClusterPlan, Mode, NodePlan};

const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster in namespaces, or none with the reason printed.
fn start(nodes: Vec<NodePlan>) -> Option<Cluster> {
    let plan = ClusterPlan {
        mode: Some(Mode::Namespaces),
        ..ClusterPlan::new(nodes)
    };
    match Cluster::start(&plan) {
        Ok(cluster) => Some(cluster),
        Err(why) if why.to_string().starts_with("no namespaces mode") => {
            println!("SKIPPED: {why}");
            None
        }
        Err(why) => panic!("{why}"),
    }
}

/// The whole answer to one request.
fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: n\r\nconnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn every_node_serves_at_its_own_address_and_pays_for_it() {
    let names = ["a", "b", "c"];
    let Some(cluster) = start(names.map(|name| NodePlan::new(name, 0.2)).into()) else {
        return;
    };
    let addresses: Vec<_> = cluster.nodes().iter().map(|node| node.address).collect();
    let before: Vec<_> = (0..3).map(|node| cluster.cpu_time(node)).collect();
    let answer = cluster
        .front()
        .inside(|| get(addresses[1], "/work?cpu=100ms&bytes=7"))
        .unwrap()
        .unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nxxxxxxx"), "{answer}");
    let used = |node: usize| cluster.cpu_time(node) - before[node];
    assert!(used(1) >= Duration::from_millis(100), "{:?}", used(1));
    for idle in [0, 2] {
        assert!(used(idle) < Duration::from_millis(50), "{:?}", used(idle));
    }
}
