//! What it costs to read many nodes often: CPU per read in the reader's thread, user and
//! kernel; rate reached; age of the load at a decision; slots missed.
//!
//! ```text
//! cargo bench -p tidegate-remote --bench reader -- [udp|shm] [NODES INTERVAL_US]... [SECONDS s] [PERCENT budget]
//! ```
//!
//! With a budget, in percent of a core, reading keeps to it: reads are as far apart as that takes, nodes are read in turn, and
//! ages are those at decisions of `auto`, 10 000 a second without requests in flight. The goal for 1000 nodes is at most 15 % of a
//! core and a p99 of at most 2 ms; the last column says whether both were reached.
//!
//! The split into user and kernel is the system's: sampled by the timer tick, good over some
//! seconds. As machines differ, the cost of an empty system call is printed beside.
//!
//! Nodes are emulated: addresses 127.1.x.y, all answered by a few responders of this process,
//! each with one record that is published anew every millisecond. To the reader they are a
//! thousand nodes. On loopback the kernel does the receiver's work in the sender's call, so the
//! reader is charged for the way of a request up to the responder's socket, which on a network
//! the node's CPU pays; it is not charged for that of the answer, which on a network lands in
//! soft interrupts of the front-end.
//!
//! Where the time goes: nine tenths are the kernel's way of one datagram out and one in, three
//! quarters of that the way out (socket, routing, buffer, queue). Batches have taken the system
//! calls out of it already. What was tried besides, against plain sendmmsg and recvmmsg in one
//! run of a program with nothing else in it: no checksum, busy polling, larger batches: nothing
//! beyond noise; "don't fragment": some percent (kept); connected sockets: a sixth less for the
//! way out, but a call for each node. Segmentation offload both ways (UDP_SEGMENT, UDP_GRO): a
//! tenth of the cost, but only for many nodes behind one address and port, and the wire format
//! has no place yet to say which of them is meant.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and fails by panicking"
)]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_core::load::LoadTable;
use tidegate_core::policy::{PolicyConfig, PolicyKind, Share, View};
use tidegate_core::prng::Prng;
use tidegate_core::record::{LoadRecord, Sources};
use tidegate_core::topology::{NodeId, SiteId};
use tidegate_remote::reader::{Reader, ReaderOptions, ReaderStats, Target, Transport};
use tidegate_remote::udp::{Key, Responder, ResponderOptions};
use tidegate_remote::{RegionMemory, clock};

/// Threads that answer for all nodes.
const RESPONDERS: usize = 2;
/// Nodes and intervals in microseconds, unless given.
const DEFAULT_RUNS: &[(usize, u64)] = &[
    (1000, 1000),
    (1000, 5000),
    (1000, 10_000),
    (200, 1000),
    (100, 1000),
    (10, 1000),
];
/// Rest of a responder that stands for hundreds of nodes: on a network a reader would not pay
/// for waking it up.
const GATHER: Duration = Duration::from_micros(50);
/// Time before measuring starts, and where a budget has to find its pace first.
const WARM_UP: Duration = Duration::from_millis(500);
const WARM_UP_BUDGET: Duration = Duration::from_secs(3);
/// Between two looks at loads' ages, and decisions at each look.
const LOOK_EVERY: Duration = Duration::from_micros(500);
const LOOKS: usize = 5;
/// The goal: p99 of the ages at decisions, and part of a core.
const AGE_MAX: Duration = Duration::from_millis(2);
const CORE_MAX: f64 = 0.15;

fn main() {
    let mut seconds = 3;
    let mut budget = None;
    let mut runs = Vec::new();
    let mut transports = vec!["shm", "udp"];
    let mut numbers = Vec::new();
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "udp" => transports = vec!["udp"],
            "shm" => transports = vec!["shm"],
            "s" => seconds = numbers.pop().unwrap(),
            "budget" => budget = numbers.pop().map(|percent| percent as f64 / 100.0),
            other => numbers.extend(other.parse::<u64>().ok()),
        }
    }
    for pair in numbers.chunks_exact(2) {
        runs.push((pair[0] as usize, pair[1]));
    }
    if runs.is_empty() {
        runs.extend(DEFAULT_RUNS);
    }
    println!(
        "load average {}",
        std::fs::read_to_string("/proc/loadavg").unwrap().trim()
    );
    println!("an empty system call takes {} ns", empty_call());
    println!(
        "transport nodes  wanted/s reached/s  ns/read   user kernel  % core overruns  lost  age p50   p99 us  goal"
    );
    for transport in transports {
        for (nodes, interval_us) in &runs {
            run(transport, (*nodes, *interval_us), budget, seconds);
        }
    }
}

/// Nanoseconds of a system call that does nothing, the quickest of some rounds.
fn empty_call() -> u128 {
    const CALLS: u32 = 10_000;
    let round = |_| {
        let began = clock::now();
        for _ in 0..CALLS {
            std::hint::black_box(rustix::process::getppid());
        }
        clock::now().since(began).as_nanos() / u128::from(CALLS)
    };
    (0..10).map(round).min().unwrap()
}

/// One line of the table.
fn run(transport: &str, (nodes, interval_us): (usize, u64), budget: Option<f64>, seconds: u64) {
    let stop = Arc::new(AtomicBool::new(false));
    let path = PathBuf::from(format!("/dev/shm/tidegate-bench-{}", std::process::id()));
    let memory = Arc::new(RegionMemory::create(&path).unwrap());
    let publisher = publish(Arc::clone(&memory), Arc::clone(&stop));
    let key = Key::random("n1").unwrap();
    let responders: Vec<_> = (0..if transport == "udp" { RESPONDERS } else { 0 })
        .map(|_| respond(&memory, &key))
        .collect();
    let targets = (0..nodes)
        .map(|node| Target {
            node: NodeId(node as u32),
            generation: 0,
            transport: match responders.get(node % RESPONDERS) {
                None => Transport::Shm { path: path.clone() },
                Some(responder) => Transport::Udp {
                    address: address(node, responder.address().port()),
                    keys: vec![key.clone()],
                    rdma: false,
                },
            },
        })
        .collect();
    let table = Arc::new(LoadTable::new(nodes, 1));
    let options = ReaderOptions {
        interval: Duration::from_micros(interval_us),
        budget,
        ..ReaderOptions::default()
    };
    let reader = Reader::spawn(targets, Arc::clone(&table), options).unwrap();
    std::thread::sleep(budget.map_or(WARM_UP, |_| WARM_UP_BUDGET));
    let (before, began) = (reader.stats(), clock::now());
    let ages = ages(&table, Duration::from_secs(seconds));
    // The statistics are at most a tenth of a second old, at both ends.
    let (after, took) = (reader.stats(), clock::now().since(began));
    print(transport, nodes, interval_us, &before, &after, took, &ages);
    drop(reader);
    stop.store(true, Ordering::Release);
    publisher.join().unwrap();
}

fn publish(memory: Arc<RegionMemory>, stop: Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        tidegate_remote::realtime::try_fifo(tidegate_remote::realtime::PRIORITY).ok();
        let mut record = LoadRecord {
            cores_milli: 4000,
            interval_ns: 1_000_000,
            sources: Sources::BUSY_SWITCH
                .with(Sources::RUNNABLE)
                .with(Sources::COMPLETIONS),
            ..LoadRecord::default()
        };
        while !stop.load(Ordering::Acquire) {
            record.t_ns = clock::now().nanos();
            record.busy_ns += 500_000;
            record.completions += 1;
            memory.publish(&record, &[]);
            std::thread::sleep(Duration::from_millis(1));
        }
    })
}

fn respond(memory: &Arc<RegionMemory>, key: &Key) -> Responder {
    let options = ResponderOptions {
        rate_max: u32::MAX,
        gather: GATHER,
        ..ResponderOptions::new("0.0.0.0:0".parse().unwrap(), vec![key.clone()])
    };
    Responder::spawn(Arc::clone(memory), options).unwrap()
}

fn address(node: usize, port: u16) -> SocketAddr {
    let ip = Ipv4Addr::new(127, 1, (node / 250) as u8, (node % 250 + 1) as u8);
    SocketAddr::from((ip, port))
}

/// Ages of the load as decisions find them, sorted, in nanoseconds.
fn ages(table: &LoadTable, time: Duration) -> Vec<u64> {
    let mut prng = Prng::new(1);
    let mut policy = PolicyConfig::new(PolicyKind::Auto).build();
    let candidates: Vec<_> = (0..table.nodes() as u32).map(NodeId).collect();
    let shares = vec![Share::default(); candidates.len()];
    let end = clock::now() + time;
    let mut ages = Vec::new();
    while clock::now() < end {
        for _ in 0..LOOKS {
            let now = clock::now();
            let view = View {
                now,
                site: SiteId(0),
                candidates: &candidates,
                shares: &shares,
                table,
            };
            let node = policy.pick(&view, &mut prng).node;
            ages.push(now.since(table.last(node).observed_at).as_nanos() as u64);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    ages.sort_unstable();
    ages
}

fn print(
    transport: &str,
    nodes: usize,
    interval_us: u64,
    before: &ReaderStats,
    after: &ReaderStats,
    took: Duration,
    ages: &[u64],
) {
    let reads = (after.received - before.received).max(1) as f64;
    let user = (after.cpu_user - before.cpu_user).as_nanos() as f64;
    let kernel = (after.cpu_system - before.cpu_system).as_nanos() as f64;
    let lost = (after.sent - before.sent).saturating_sub(after.received - before.received);
    let age = |share: f64| ages[((ages.len() - 1) as f64 * share) as usize] / 1000;
    let core = (user + kernel) / took.as_nanos() as f64;
    let reached = core <= CORE_MAX && Duration::from_micros(age(0.99)) <= AGE_MAX;
    println!(
        "{transport:9} {nodes:5} {:9.0} {:9.0} {:8.0} {:6.0} {:6.0} {:7.1} {:8} {lost:5} {:8} {:8}  {}",
        nodes as f64 * 1e6 / interval_us as f64,
        reads / took.as_secs_f64(),
        (user + kernel) / reads,
        user / reads,
        kernel / reads,
        core * 100.0,
        after.overruns - before.overruns,
        age(0.5),
        age(0.99),
        if reached { "reached" } else { "missed" },
    );
}
