//! A node has one set of words, one epoch and one memory of what it has carried out, by whichever way
//! a front-end comes: XDP, TC, the agent's socket, shared memory.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "../../remote/tests/support/namespaces.rs"]
#[expect(dead_code, reason = "its other users use the rest")]
mod namespaces;

use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use namespaces::{Hosts, Kept, NODE_SECOND, NODE_V4, PATIENT, PORT};
use tidegate_core::load::Rung;
use tidegate_core::record::AGGREGATE_LINES;
use tidegate_core::time::{Timestamp, nanos};
use tidegate_node::{Agent, AgentConfig, AgentError, AgentHandle, RUNGS};
use tidegate_remote::kernel::{KernelResponder, pass_at, uninstall};
use tidegate_remote::shm::ShmRegion;
use tidegate_remote::udp::UdpRegion;
use tidegate_remote::udp::key_file::NodeKey;
use tidegate_remote::udp::wire::{Reply, Request, Status, Verb, message_bytes};
use tidegate_remote::{LATE_MAX, Refusal, Region, RegionError, clock};

/// An answer that has not come by then is lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// The word that is added to by every way.
const WORD: u32 = 300;

#[expect(clippy::print_stdout, reason = "how a test says that it could not run")]
fn skip(why: &str) {
    println!("SKIPPED: {why}");
}

/// Two hosts with two cables, the node's loopback up; nothing where the test cannot be.
fn hosts() -> Option<Hosts> {
    if !rustix::process::geteuid().is_root()
        || !std::path::Path::new("/sys/kernel/btf/vmlinux").exists()
    {
        skip("it takes root and a kernel that describes itself");
        return None;
    }
    let hosts = Hosts::new().map_err(|why| skip(&why)).ok()?;
    let second = hosts.second_cable();
    let up = second.and_then(|()| hosts.ip(&["-n", hosts.node(), "link", "set", "lo", "up"]));
    up.map_err(|why| skip(&why)).ok()?;
    Some(hosts)
}

/// What is installed is known by its port, whatever the namespace: agents of other tests would see it at theirs.
const INSTALLED_PORT: u16 = PORT + 2;

/// The name of an agent's shared memory.
fn path(test: &str) -> PathBuf {
    let process = std::process::id();
    PathBuf::from(format!("/dev/shm/tidegate-words-{test}-{process}"))
}

fn agent(hosts: &Hosts, rungs: &[Rung], key: &NodeKey, shm: Option<PathBuf>) -> Kept<AgentHandle> {
    let config = AgentConfig {
        listen: ([0, 0, 0, 0], PORT).into(),
        rungs: rungs.to_vec(),
        shm,
        ..AgentConfig::new(vec![key.clone()])
    };
    let agent = hosts.keep_at_node(move || {
        // As `tidegate agent` does.
        tidegate_remote::privilege::keep(tidegate_node::STARTING_CAPABILITIES).unwrap();
        Agent::spawn(&config)
    });
    agent.unwrap_or_else(|error| panic!("{error}"))
}

fn at(address: &str) -> SocketAddr {
    at_port(address, PORT)
}

fn at_port(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

/// A handle by each way.
fn ways(hosts: &Hosts, key: &NodeKey, shm: &str) -> Vec<(&'static str, Box<dyn Region + Send>)> {
    let udp = |address: &str| UdpRegion::connect(at(address), key.key.clone(), PATIENT).unwrap();
    let front = |address: &str| Box::new(hosts.at_front(|| udp(address)));
    vec![
        ("XDP", front(NODE_V4)),
        ("TC", front(NODE_SECOND)),
        ("responder", Box::new(hosts.at_node(|| udp(NODE_V4)))),
        ("shared memory", Box::new(ShmRegion::new(&path(shm)))),
    ]
}

/// The epoch by each way, if it is one.
fn epoch(ways: &mut [(&'static str, Box<dyn Region + Send>)]) -> u32 {
    let read = |(_, way): &mut (&str, Box<dyn Region + Send>)| {
        way.read(AGGREGATE_LINES).unwrap().epoch.unwrap()
    };
    let mut epochs: Vec<_> = ways.iter_mut().map(read).collect();
    epochs.dedup();
    assert_eq!(epochs.len(), 1, "{epochs:?}");
    epochs[0]
}

#[test]
fn additions_by_all_four_ways_add_up_in_one_epoch() {
    const ADDITIONS: u64 = 300;
    let Some(hosts) = hosts() else { return };
    let key = NodeKey::random("n1").unwrap();
    // The place for XDP is taken there, so that TC answers.
    let _other = hosts.at_node(|| pass_at("node1").unwrap());
    let start = || agent(&hosts, &RUNGS, &key, Some(path("ways")));
    let agent = start();
    let why = agent.ask(|agent| agent.status().why.join("\n"));
    for answers in ["node0 (xdp_generic)", "node1 (tc)"] {
        assert!(why.contains(answers), "{why}");
    }
    let mut handles = ways(&hosts, &key, "ways");
    let before = epoch(&mut handles);
    let mut seen = std::thread::scope(|scope| {
        let add = |way: &mut Box<dyn Region + Send>| {
            let add = |_| way.fetch_and_add(WORD, 1).unwrap();
            (0..ADDITIONS).map(add).collect::<Vec<_>>()
        };
        let threads: Vec<_> = handles
            .iter_mut()
            .map(|(_, way)| scope.spawn(move || add(way)))
            .collect();
        let all = threads.into_iter().flat_map(|it| it.join().unwrap());
        all.collect::<Vec<_>>()
    });
    // Every value was seen by one addition, whichever way it came.
    seen.sort_unstable();
    assert_eq!(seen, (0..4 * ADDITIONS).collect::<Vec<_>>());
    for (name, way) in &mut handles {
        assert_eq!(way.fetch_and_add(WORD, 0).unwrap(), 4 * ADDITIONS, "{name}");
    }
    let responder = agent.ask(|agent| agent.status().responder);
    assert_eq!(
        (responder.atomics, responder.faults),
        (0, 0),
        "the kernel did it"
    );
    // Another life of the agent: it shows by every way at once.
    drop(agent);
    let _agent = start();
    assert_ne!(epoch(&mut ways(&hosts, &key, "ways")), before);
    for (name, way) in &mut ways(&hosts, &key, "ways") {
        assert_eq!(way.fetch_and_add(WORD, 0).unwrap(), 0, "{name}");
    }
}

#[test]
fn word_0_is_one_word_by_whichever_way_it_is_swapped_and_read() {
    let Some(hosts) = hosts() else { return };
    let key = NodeKey::random("n1").unwrap();
    let _other = hosts.at_node(|| pass_at("node1").unwrap());
    let _agent = agent(&hosts, &RUNGS, &key, Some(path("first")));
    let mut ways = ways(&hosts, &key, "first");
    for turn in 0..ways.len() {
        let held = turn as u64;
        for (name, way) in &mut ways {
            let told = way.read(AGGREGATE_LINES).unwrap().first_word;
            assert_eq!(told, Some(held), "{name}");
        }
        let (name, way) = &mut ways[turn];
        // One that was decided too long ago does not happen.
        let late = Timestamp::from_nanos(clock::now().nanos() - nanos(LATE_MAX) - 1);
        let refused = way.compare_and_swap_since(0, held, 99, late).unwrap_err();
        let too_old = matches!(refused, RegionError::Refused(Refusal::TooOld));
        assert!(too_old, "{name}: {refused}");
        let swapped = way.compare_and_swap_since(0, held, held + 1, clock::now());
        assert_eq!(swapped.unwrap(), held, "{name}");
    }
}

/// A request by one way, and its answer.
fn ask(hosts: &Hosts, node: &str, front: bool, key: &NodeKey, request: &Request) -> Reply {
    let exchange = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.connect(at(node)).unwrap();
        let mut bytes = vec![0; message_bytes(request.lines)];
        request.encode(&key.key, bytes.first_chunk_mut().unwrap());
        socket.send(&bytes).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = socket.recv(&mut bytes).expect("an answer by this way");
        let parsed = Reply::parse(&bytes[..length]).unwrap();
        parsed.verify(&key.key).unwrap().0
    };
    if front {
        hosts.at_front(exchange)
    } else {
        hosts.at_node(exchange)
    }
}

#[test]
fn a_copy_that_comes_by_another_way_is_not_carried_out_again() {
    let Some(hosts) = hosts() else { return };
    let key = NodeKey::random("n1").unwrap();
    let _other = hosts.at_node(|| pass_at("node1").unwrap());
    let _agent = agent(&hosts, &RUNGS, &key, Some(path("copies")));
    let by = [(NODE_V4, true), (NODE_SECOND, true), (NODE_V4, false)];
    for (turn, first) in (0..).zip(&by) {
        let initiator = 77 + turn;
        let request = Request {
            verb: Verb::FetchAndAdd,
            word: WORD as u16,
            operand: 1,
            ..Request::read(0, initiator, 1)
        };
        let refused = ask(&hosts, first.0, first.1, &key, &request);
        assert_eq!(refused.status, Status::Epoch);
        let request = Request {
            epoch: refused.epoch,
            sequence: refused.node_now_ns,
            ..request
        };
        for (node, front) in [first].into_iter().chain(&by) {
            let reply = ask(&hosts, node, *front, &key, &request);
            assert_eq!(reply.status, Status::Done);
            assert_eq!(reply.value, turn, "first by {first:?}, again by {node}");
        }
    }
    let held = ShmRegion::new(&path("copies")).fetch_and_add(WORD, 0);
    assert_eq!(held.unwrap(), by.len() as u64);
}

#[test]
fn what_is_installed_counts_with_front_ends_on_its_own_host() {
    let Some(hosts) = hosts() else { return };
    let key = NodeKey::random("n1").unwrap();
    let config = AgentConfig {
        listen: ([0, 0, 0, 0], INSTALLED_PORT).into(),
        rungs: vec![Rung::XdpGeneric],
        ..AgentConfig::new(vec![key.clone()])
    };
    let options = tidegate_node::kernel_options(&config, config.listen).unwrap();
    let installed = hosts.at_node(|| {
        let responder = KernelResponder::attach(&options)?;
        responder.install(&options)
    });
    match installed {
        Ok(installed) => assert_eq!(installed.silent_locally, None),
        Err(error) => return skip(&error.to_string()),
    }
    let connect =
        |to| UdpRegion::connect(at_port(to, INSTALLED_PORT), key.key.clone(), PATIENT).unwrap();
    let mut ways = [
        hosts.at_front(|| connect(NODE_V4)),
        hosts.at_node(|| connect(NODE_V4)),
        hosts.at_node(|| connect("127.0.0.1")),
    ];
    for number in 0..30 {
        let way = &mut ways[number as usize % 3];
        assert_eq!(way.fetch_and_add(WORD, 1).unwrap(), number);
    }
    let epochs = ways
        .each_mut()
        .map(|way| way.read(AGGREGATE_LINES).unwrap().epoch);
    assert_eq!(epochs, [epochs[0]; 3]);
    // An agent beside it would keep words of its own.
    let refused = hosts.at_node(|| Agent::spawn(&config).map(drop).unwrap_err());
    assert!(
        matches!(refused, AgentError::Installed(INSTALLED_PORT)),
        "{refused}"
    );
    hosts.at_node(|| uninstall(INSTALLED_PORT).unwrap());
    let hooks = hosts.ip(&[
        "netns",
        "exec",
        hosts.node(),
        "tc",
        "filter",
        "show",
        "dev",
        "lo",
        "ingress",
    ]);
    if let Ok(hooks) = hooks {
        assert_eq!(String::from_utf8_lossy(&hooks.stdout).trim(), "");
    }
}
