//! Atomics over a network that loses, doubles and delays frames, by front-ends that give up in the middle: each is
//! carried out once or not at all, and once where its answer came.
//!
//! ```text
//! front-end 198.18.0.1, a device ── cable: loses, doubles, delays ── 198.18.0.2, a device: node
//! ```
//!
//! Both ends are in one kernel, whose own addresses never leave it: rules send what is for the other end over the cable
//! before the table of its own addresses is looked at. That is done in the emulated machine alone.
//!
//! | atomics | what must hold |
//! |---|---|
//! | additions of 1 | no two saw one value; the word is the number of those answered, or more by as many as had no answer |
//! | swaps to a value of their own | from the last value back to 0 there is one swap for each; all that were answered as done are among them |

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::prng::Prng;
use tidegate_core::time::Timestamp;
use tidegate_remote::rdma::{RdmaDevice, RdmaNode, RdmaNodeOptions, RdmaOptions, RdmaRegion};
use tidegate_remote::udp::{UdpOptions, UdpRegion};
use tidegate_remote::{LATE_MAX, Refusal, Region, RegionError, RegionMemory, clock};

use crate::support::rdma::{RdmaServer, has_device, options};
use crate::support::{Node, key, record};

/// Set by the emulated machine: there routes may be changed.
pub(super) const EMULATED: &str = "TIDEGATE_EMULATED";
/// How many atomics, if not [`FEW`].
const ATOMICS: &str = "TIDEGATE_TEST_ATOMICS";
const FEW: u64 = 8_000;
const THREADS: u64 = 4;
const ADDED: u32 = 3;
const SWAPPED: u32 = 500;

const FRONT: &str = "198.18.0.1";
const NODE: &str = "198.18.0.2";
/// What the cable does to each frame, both ways. Some are late enough to come behind later ones.
const FAULTS: &str = "netem limit 10000 delay 100us 80us loss 1% duplicate 2%";
const DEVICES_MAX_TRIES: u32 = 10_000;

/// A card sends again after 4 to 8 ms.
const WAIT: RdmaOptions = RdmaOptions {
    wait: Duration::from_millis(80),
};
/// The cable loses datagrams too.
const WIRE: UdpOptions = UdpOptions {
    wait: Duration::from_millis(200),
    tries: 16,
};
/// One atomic of so many is given up after a part of the time that an answer takes.
const CUT_EVERY: usize = 50;
const CUT_MAX_US: usize = 600;
const HASTY: RdmaOptions = RdmaOptions {
    wait: Duration::from_micros(250),
};

pub(super) fn run(line: &str) -> Result<(), String> {
    let mut words = line.split(' ');
    let output = Command::new(words.next().unwrap_or_default())
        .args(words)
        .output();
    let output = output.map_err(|error| format!("{line}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{line}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

/// A device at each end of a new cable.
fn lay_cable() -> Result<(), String> {
    if std::env::var_os(EMULATED).is_none() {
        return Err("routes are changed in the emulated machine alone".into());
    }
    for line in [
        "ip link add front address 02:00:00:00:00:01 type veth peer name node address 02:00:00:00:00:02",
        "ip address add 198.18.0.1/32 dev front",
        "ip address add 198.18.0.2/32 dev node",
        "ip link set front up",
        "ip link set node up",
        "ip neighbour replace 198.18.0.2 lladdr 02:00:00:00:00:02 dev front nud permanent",
        "ip neighbour replace 198.18.0.1 lladdr 02:00:00:00:00:01 dev node nud permanent",
        "ip route add 198.18.0.2 dev front src 198.18.0.1 table 10",
        "ip route add 198.18.0.1 dev node src 198.18.0.2 table 11",
        "ip rule add pref 10 to 198.18.0.2 iif lo lookup 10",
        "ip rule add pref 11 to 198.18.0.1 iif lo lookup 11",
        "ip rule add pref 100 lookup local",
        "ip rule del pref 0",
        "rdma link add rxe_front type rxe netdev front",
        "rdma link add rxe_node type rxe netdev node",
    ] {
        run(line)?;
    }
    for interface in ["front", "node"] {
        let setting = format!("/proc/sys/net/ipv4/conf/{interface}/accept_local");
        std::fs::write(&setting, "1").map_err(|error| format!("{setting}: {error}"))?;
        run(&format!("tc qdisc add dev {interface} root {FAULTS}"))?;
    }
    for address in [FRONT, NODE] {
        has_address(address.parse().unwrap())?;
    }
    Ok(())
}

/// The kernel gives a device its addresses a moment later.
pub(super) fn has_address(address: IpAddr) -> Result<(), String> {
    let mut last = String::new();
    for _ in 0..DEVICES_MAX_TRIES {
        match RdmaDevice::open(Some(address)) {
            Ok(_) => return Ok(()),
            Err(error) => last = error.to_string(),
        }
        std::thread::yield_now();
    }
    Err(last)
}

/// How an atomic ended.
enum AtomicEnd {
    /// The word held this.
    Answered(u64),
    /// It may have been carried out.
    Unknown,
    /// It was not sent.
    Never,
}

fn ended(result: Result<u64, RegionError>) -> AtomicEnd {
    match result {
        Ok(held) => AtomicEnd::Answered(held),
        Err(RegionError::Timeout { .. } | RegionError::Io { .. }) => AtomicEnd::Unknown,
        Err(RegionError::Refused(Refusal::TooOld)) => AtomicEnd::Never,
        Err(other) => panic!("{other}"),
    }
}

/// Since when a swap must be wanted to be given up after so long.
fn given_up_after(time: Duration) -> Timestamp {
    let age = LATE_MAX - time;
    Timestamp::from_nanos(clock::now().nanos() - age.as_nanos() as u64)
}

/// What one front-end knows afterwards.
#[derive(Default)]
struct Front {
    /// Values that its additions saw.
    added: Vec<u64>,
    /// By the value that it wrote: the one that it replaced, and whether the answer came.
    swaps: HashMap<u64, (u64, bool)>,
    /// Values that its swaps found instead.
    found: Vec<u64>,
    additions_unknown: u64,
    swaps_unknown: u64,
}

impl Front {
    /// Adds and swaps so often each.
    fn run(number: u64, address: SocketAddr, times: u64) -> Self {
        let [mut handle, mut hasty] = [WAIT, HASTY].map(|options| {
            let wire = UdpRegion::connect(address, key(), WIRE).unwrap();
            RdmaRegion::new(wire, options)
        });
        let (mut front, mut prng) = (Self::default(), Prng::new(number));
        let mut held = 0;
        for time in 1..=times {
            let added = match prng.below(CUT_EVERY) {
                0 => hasty.fetch_and_add(ADDED, 1),
                _ => handle.fetch_and_add(ADDED, 1),
            };
            match ended(added) {
                AtomicEnd::Answered(before) => front.added.push(before),
                AtomicEnd::Unknown => front.additions_unknown += 1,
                AtomicEnd::Never => {}
            }
            let new = (number << 40) | time;
            let swapped = match prng.below(CUT_EVERY) {
                0 => {
                    let time = Duration::from_micros(prng.below(CUT_MAX_US) as u64);
                    let since = given_up_after(time);
                    handle.compare_and_swap_since(SWAPPED, held, new, since)
                }
                _ => handle.compare_and_swap(SWAPPED, held, new),
            };
            match ended(swapped) {
                AtomicEnd::Answered(before) if before == held => {
                    front.swaps.insert(new, (held, true));
                    held = new;
                }
                AtomicEnd::Answered(before) => {
                    front.found.push(before);
                    held = before;
                }
                AtomicEnd::Unknown => {
                    front.swaps.insert(new, (held, false));
                    front.swaps_unknown += 1;
                }
                AtomicEnd::Never => {}
            }
        }
        front
    }
}

/// All additions that were answered, and no other value twice.
fn check_additions(fronts: &[Front], last: u64) {
    assert!(fronts.iter().all(|it| it.added.is_sorted()));
    let mut seen: Vec<_> = fronts.iter().flat_map(|it| &it.added).copied().collect();
    seen.sort_unstable();
    let answered = seen.len() as u64;
    seen.dedup();
    assert_eq!(seen.len() as u64, answered, "two additions saw one value");
    assert!(seen.last().is_none_or(|it| *it < last));
    let unknown: u64 = fronts.iter().map(|it| it.additions_unknown).sum();
    assert!(
        (answered..=answered + unknown).contains(&last),
        "{last} after {answered} answered additions and {unknown} without an answer"
    );
}

/// Each value of the word was written by one swap that expected the one before.
fn check_swaps(fronts: &[Front], last: u64) {
    let mut swaps = HashMap::new();
    for front in fronts {
        swaps.extend(front.swaps.iter().map(|(new, swap)| (*new, *swap)));
    }
    for found in fronts.iter().flat_map(|it| &it.found) {
        assert!(
            *found == 0 || swaps.contains_key(found),
            "{found:x} was written by no swap"
        );
    }
    let mut value = last;
    while value != 0 {
        let swap = swaps.remove(&value);
        let (before, _) =
            swap.unwrap_or_else(|| panic!("{value:x} was written by no swap, or twice"));
        value = before;
    }
    let outside = swaps.values().filter(|(_, answered)| *answered).count();
    assert_eq!(
        outside, 0,
        "swaps that were answered as done and are not in the chain"
    );
}

/// A counter of a device, since it is there.
fn counted(device: &str, counter: &str) -> u64 {
    let file = format!("/sys/class/infiniband/{device}/ports/1/hw_counters/{counter}");
    std::fs::read_to_string(file)
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

#[test]
fn atomics_over_rdma_are_carried_out_once_where_frames_and_answers_are_lost() {
    if !has_device() {
        return;
    }
    if let Err(why) = lay_cable() {
        return println!("SKIPPED: {why}");
    }
    let atomics = std::env::var(ATOMICS).map_or(FEW, |it| it.parse().unwrap());
    let memory = Arc::new(RegionMemory::anonymous().unwrap());
    memory.publish(&record(1), &[]);
    let address: IpAddr = NODE.parse().unwrap();
    let at = RdmaNodeOptions {
        address: Some(address),
        ..options(true)
    };
    let node = RdmaNode::new(&memory, &at).unwrap();
    let node = RdmaServer::with(memory, (address, 0).into(), node);
    let started = clock::now();
    let fronts: Vec<_> = std::thread::scope(|scope| {
        let run = |number| {
            let address = node.address();
            scope.spawn(move || Front::run(number, address, atomics / THREADS / 2))
        };
        let threads: Vec<_> = (1..=THREADS).map(run).collect();
        threads.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let took = clock::now().since(started);
    let word = |word| node.memory().word(word).unwrap();
    check_additions(&fronts, word(ADDED));
    check_swaps(&fronts, word(SWAPPED));
    let of = |count: fn(&Front) -> u64| fronts.iter().map(count).sum::<u64>();
    let doubled = counted("rxe_node", "duplicate_request");
    println!(
        "{atomics} atomics by {THREADS} front-ends in {took:.1?}: {} additions answered, {} without an answer, the word is {}; \
         {} swaps done, {} found another value, {} without an answer; {} connections; the node's device saw {doubled} requests again",
        of(|it| it.added.len() as u64),
        of(|it| it.additions_unknown),
        word(ADDED),
        of(|it| it.swaps.values().filter(|(_, answered)| *answered).count() as u64),
        of(|it| it.found.len() as u64),
        of(|it| it.swaps_unknown),
        node.responder().stats().connected,
    );
    assert!(doubled > 0, "the cable loses and doubles frames");
    assert!(
        of(|it| it.swaps_unknown + it.additions_unknown) > 0,
        "some atomics are given up in the middle"
    );
}
