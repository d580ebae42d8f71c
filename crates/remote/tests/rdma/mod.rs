//! What only RDMA can do wrong: keys, rights, queue pairs, processes that stand still or die. All of it takes a device.

mod atomics;
mod cable;
mod losses;
mod processes;
mod reading;
mod words;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tidegate_core::record::AGGREGATE_LINES;
use tidegate_core::time::Timestamp;
use tidegate_remote::rdma::exchange::Grant;
use tidegate_remote::rdma::{Endpoint, RdmaNode, RdmaNodeOptions};
use tidegate_remote::shm::ShmRegion;
use tidegate_remote::udp::wire::{CONNECT_BYTES, Request, Status, Verb};
use tidegate_remote::udp::{Connect, Key, UdpRegion};
use tidegate_remote::{Read, Refusal, Region, RegionError, RegionMemory, clock};

use crate::support::rdma::{CARD, RdmaServer, handle, has_device, options};
use crate::support::{ANY_PORT, BadNetwork, IMPATIENT, Node, PATIENT, UdpNode, key, path, record};

fn any_port() -> SocketAddr {
    ANY_PORT.parse().unwrap()
}

fn is_refused(result: Result<u64, RegionError>, expected: Refusal) -> bool {
    matches!(result, Err(RegionError::Refused(why)) if why == expected)
}

/// A node that grants something else than it has.
#[derive(Debug)]
struct Falsified {
    node: RdmaNode,
    change: fn(&mut Grant),
}

impl Connect for Falsified {
    fn connect(
        &mut self,
        request: &Request,
        source: IpAddr,
        offer: &[u8; CONNECT_BYTES],
        grant: &mut [u8; CONNECT_BYTES],
        now: Timestamp,
    ) -> Option<Status> {
        let status = self.node.connect(request, source, offer, grant, now);
        if status == Some(Status::Done) {
            let mut changed = Grant::decode(grant).unwrap();
            (self.change)(&mut changed);
            changed.encode(grant);
        }
        status
    }
}

fn falsified(change: fn(&mut Grant)) -> RdmaServer {
    let memory = Arc::new(RegionMemory::anonymous().unwrap());
    memory.publish(&record(1), &[]);
    let node = RdmaNode::new(&memory, &options(true)).unwrap();
    RdmaServer::with(memory, any_port(), Falsified { node, change })
}

#[test]
fn a_wrong_key_of_memory_is_refused_by_the_card() {
    if !has_device() {
        return;
    }
    let changes: [fn(&mut Grant); 3] = [
        |it| it.records.key ^= 0x55,
        // Past the end of the memory.
        |it| it.records.address += 64,
        // Words may not be read.
        |it| {
            it.records = it
                .words
                .map(|words| tidegate_remote::rdma::RemoteMemory {
                    bytes: it.records.bytes,
                    ..words
                })
                .unwrap()
        },
    ];
    for change in changes {
        let node = falsified(change);
        let mut handle = handle(node.address(), PATIENT);
        let refused = handle.read(21).unwrap_err();
        assert!(
            matches!(refused, RegionError::Refused(Refusal::Card)),
            "{refused}"
        );
    }
}

#[test]
fn the_record_cannot_be_changed_from_afar() {
    if !has_device() {
        return;
    }
    let node = falsified(|it| {
        let words = it.words.as_mut().unwrap();
        (words.address, words.key) = (it.records.address, it.records.key);
    });
    let mut handle = handle(node.address(), PATIENT);
    // Word 2 of the record is its generation.
    assert!(is_refused(handle.fetch_and_add(2, 1), Refusal::Card));
    assert!(is_refused(handle.compare_and_swap(2, 0, 1), Refusal::Card));
    let own = node.memory().generation();
    let mut honest = UdpRegion::connect(node.address(), key(), PATIENT).unwrap();
    let read = honest.read(AGGREGATE_LINES).unwrap();
    assert_eq!(read.record().unwrap().generation, own);
}

#[test]
fn a_record_of_another_generation_than_was_granted_is_not_given_out() {
    if !has_device() {
        return;
    }
    let node = falsified(|it| it.generation ^= 1);
    let mut handle = handle(node.address(), PATIENT);
    let refused = handle.read(AGGREGATE_LINES).unwrap_err();
    assert!(matches!(refused, RegionError::Restarted), "{refused}");
    // It was connected to anew before that.
    assert_eq!(node.responder().stats().connected, 2);
}

#[test]
fn a_grant_that_no_node_makes_is_refused() {
    if !has_device() {
        return;
    }
    type Change = (fn(&mut Grant), &'static str);
    let changes: [Change; 4] = [
        (|it| it.records.bytes = 0, "no record area"),
        (|it| it.endpoint.mtu = 9, "that no device gives"),
        (|it| it.endpoint.gid[15] = 9, "it is at 127.0.0.9"),
        (|it| it.endpoint.local_id = 9, "on InfiniBand"),
    ];
    for (change, why) in changes {
        let node = falsified(change);
        let refused = handle(node.address(), PATIENT).read(1).unwrap_err();
        assert!(matches!(refused, RegionError::Peer(_)), "{refused}");
        assert!(refused.to_string().contains(why), "{refused}");
    }
}

#[test]
fn a_front_end_to_whose_card_there_is_no_way_is_not_connected_and_the_node_says_why() {
    if !has_device() {
        return;
    }
    let memory = RegionMemory::anonymous().unwrap();
    let mut node = RdmaNode::new(&memory, &options(true)).unwrap();
    let refusals = node.refusals();
    let good = Endpoint {
        queue_pair: 17,
        first_packet: 1,
        gid: Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets(),
        mtu: 3,
        local_id: 0,
    };
    let mut sequence = 0;
    let mut connect = |source: [u8; 4], endpoint: Endpoint| {
        let (mut offer, mut grant) = ([0; CONNECT_BYTES], [0; CONNECT_BYTES]);
        endpoint.encode(&mut offer);
        // Until it is known what has become of it.
        loop {
            sequence += 1;
            let request = Request {
                verb: Verb::Connect,
                sequence,
                ..Request::read(2, 7, 0)
            };
            let now = clock::now();
            let status = node.connect(&request, source.into(), &offer, &mut grant, now);
            if let Some(status) = status {
                return status;
            }
        }
    };
    assert_eq!(connect([127, 0, 0, 1], good), Status::Done);
    // Another host's card.
    assert_eq!(connect([127, 0, 0, 2], good), Status::NoWay);
    assert_eq!(refusals.take(), None);
    let fabric = Endpoint {
        local_id: 9,
        ..good
    };
    assert_eq!(connect([127, 0, 0, 1], fabric), Status::NoWay);
    let why = refusals.take().unwrap();
    assert!(why.contains("one side is on InfiniBand"), "{why}");
    assert_eq!(connect([127, 0, 0, 1], good), Status::Done);
}

#[test]
fn who_lacks_the_nodes_key_is_not_connected() {
    if !has_device() {
        return;
    }
    let node = RdmaServer::start();
    let wrong = Key::new("n1", [9; 16]);
    let wire = UdpRegion::connect(node.address(), wrong, IMPATIENT).unwrap();
    let mut handle = tidegate_remote::rdma::RdmaRegion::new(wire, CARD);
    let refused = handle.read(1).unwrap_err();
    assert!(
        matches!(refused, RegionError::Timeout { tries: 2 }),
        "{refused}"
    );
    assert_eq!(node.responder().stats().connected, 0);
}

#[test]
fn where_a_card_changes_words_mappings_do_not_and_all_else_does() {
    if !has_device() {
        return;
    }
    let elsewhere = Refusal::WordsElsewhere;
    let name = path("rdma-words");
    for over_rdma in [true, false] {
        let memory = Arc::new(RegionMemory::create(&name).unwrap());
        memory.publish(&record(1), &[]);
        let node = RdmaNode::new(&memory, &options(over_rdma)).unwrap();
        let node = RdmaServer::with(memory, any_port(), node);
        let mut by_rdma = handle(node.address(), PATIENT);
        let mut by_udp = UdpRegion::connect(node.address(), key(), PATIENT).unwrap();
        let mut by_shm = ShmRegion::new(&name);
        // All of them read it. Word 0 is shown by what may change it.
        let shows = |read: Read, word: bool| assert_eq!(read.first_word, word.then_some(0));
        shows(by_udp.read(AGGREGATE_LINES).unwrap(), true);
        shows(by_shm.read(AGGREGATE_LINES).unwrap(), !over_rdma);
        shows(by_rdma.read(AGGREGATE_LINES).unwrap(), over_rdma);
        assert_eq!(by_udp.fetch_and_add(1, 1).unwrap(), 0);
        assert_eq!(by_udp.compare_and_swap(2, 0, 5).unwrap(), 0);
        assert_eq!(node.memory().fetch_and_add(1, 1).unwrap(), 1);
        assert_eq!(node.memory().word(2).unwrap(), 5);
        for (result, held, by_rdma) in [
            (by_shm.fetch_and_add(1, 1), 2, false),
            (by_shm.compare_and_swap(2, 5, 6), 5, false),
            (by_rdma.fetch_and_add(1, 1), 2, true),
            (by_rdma.compare_and_swap(2, 5, 6), 5, true),
        ] {
            match by_rdma == over_rdma {
                true => assert_eq!(result.unwrap(), held),
                false => assert!(is_refused(result, elsewhere)),
            }
        }
    }
}

#[test]
fn a_node_keeps_so_many_queue_pairs_and_no_more() {
    if !has_device() {
        return;
    }
    let memory = Arc::new(RegionMemory::anonymous().unwrap());
    memory.publish(&record(1), &[]);
    let options = RdmaNodeOptions {
        queue_pairs_max: 2,
        ..options(true)
    };
    let node = RdmaNode::new(&memory, &options).unwrap();
    let node = RdmaServer::with(memory, any_port(), node);
    let mut handles = [0, 1].map(|_| handle(node.address(), PATIENT));
    for handle in &mut handles {
        handle.read(AGGREGATE_LINES).unwrap();
    }
    let refused = handle(node.address(), PATIENT).read(1).unwrap_err();
    assert!(
        matches!(refused, RegionError::Refused(Refusal::NoQueuePair)),
        "{refused}"
    );
    // Those that were there read on.
    for handle in &mut handles {
        handle.read(AGGREGATE_LINES).unwrap();
    }
}

#[test]
fn a_node_without_a_device_says_so() {
    if !has_device() {
        return;
    }
    let node = UdpNode::start();
    let refused = handle(node.address(), PATIENT).read(1).unwrap_err();
    assert!(
        matches!(refused, RegionError::Refused(Refusal::NoDevice)),
        "{refused}"
    );
}

#[test]
fn offers_that_come_twice_and_answers_that_are_lost_change_nothing() {
    if !has_device() {
        return;
    }
    let node = RdmaServer::start();
    node.memory().publish(&record(1), &[]);
    let network = BadNetwork::before(node.address());
    let mut handles = [0, 1, 2].map(|_| handle(network.address(), IMPATIENT_BUT_SURE));
    for round in 0..20 {
        for handle in &mut handles {
            handle.read(AGGREGATE_LINES).unwrap();
            handle.fetch_and_add(3, 1).unwrap();
        }
        assert_eq!(node.memory().word(3).unwrap(), (round + 1) * 3);
    }
}

/// The network loses every other answer: the next try brings it, and comes before its number is too old.
const IMPATIENT_BUT_SURE: tidegate_remote::udp::UdpOptions = tidegate_remote::udp::UdpOptions {
    wait: std::time::Duration::from_millis(50),
    tries: 16,
};
