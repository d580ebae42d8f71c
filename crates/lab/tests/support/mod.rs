//! What tests of clusters share: a cluster or the reason why not, requests, reads of load.
#![allow(dead_code, reason = "each test file uses its own part of this")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tidegate_core::record::{LINES_MAX, LoadRecord};
use tidegate_lab::cluster::{Cluster, ClusterPlan, LoadAt, Mode, NodePlan, tidegate};
use tidegate_remote::shm::ShmRegion;
use tidegate_remote::udp::{UdpOptions, UdpRegion};
use tidegate_remote::{Region, RegionError};

/// How long anything may take before the test gives up; far longer than it takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster in namespaces, or none with the reason printed.
pub(crate) fn start(nodes: Vec<NodePlan>) -> Option<Cluster> {
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

/// A cluster in loopback mode.
pub(crate) fn start_loopback(nodes: Vec<NodePlan>) -> Cluster {
    let plan = ClusterPlan {
        mode: Some(Mode::Loopback),
        ..ClusterPlan::new(nodes)
    };
    Cluster::start(&plan).unwrap()
}

/// Whether there is an agent to run.
pub(crate) fn agent_binary() -> bool {
    tidegate().map_err(|why| println!("SKIPPED: {why}")).is_ok()
}

/// Waits until `happened` gives something.
#[expect(
    clippy::disallowed_methods,
    reason = "a test gives up on the real clock"
)]
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut happened: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = happened() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "gave up waiting: {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Sends a request to a node, from the front.
pub(crate) fn ask(cluster: &Cluster, node: usize, path: &str) -> std::io::Result<TcpStream> {
    let address = cluster.nodes()[node].address;
    let send = || {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: n\r\nconnection: close\r\n\r\n"
        )?;
        Ok(stream)
    };
    cluster.front().inside(send).unwrap()
}

/// The whole answer.
pub(crate) fn answer(mut stream: TcpStream) -> std::io::Result<String> {
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The whole answer of a node to one request from the front.
pub(crate) fn get(cluster: &Cluster, node: usize, path: &str) -> std::io::Result<String> {
    answer(ask(cluster, node, path)?)
}

pub(crate) fn status_of(answer: &str) -> u16 {
    let word = answer.split(' ').nth(1);
    word.and_then(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("no answer: `{answer}`"))
}

/// What an agent of a node says, read from the front as a front-end does.
pub(crate) fn read_load(cluster: &Cluster, node: usize, agent: usize) -> LoadRecord {
    let read = || match &cluster.nodes()[node].agents[agent].load {
        LoadAt::Udp { address, key } => {
            let options = UdpOptions {
                wait: PATIENCE,
                tries: 1,
            };
            UdpRegion::connect(*address, key.read().unwrap(), options)
                .unwrap()
                .read(LINES_MAX)
                .unwrap()
        }
        // An agent that its node's quota stops may be in the middle of a record.
        LoadAt::Shm { path } => eventually("a whole record", || {
            match ShmRegion::new(path).read(LINES_MAX) {
                Err(RegionError::Torn) => None,
                read => Some(read.unwrap()),
            }
        }),
    };
    cluster.front().inside(read).unwrap().record().unwrap()
}
