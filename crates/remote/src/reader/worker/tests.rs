//! What answers the reader takes, and what it does with all others. The test is the network: it holds
//! the nodes' sockets, and nothing happens but what it sends.

use tidegate_core::load::{Implausible, WordOp};
use tidegate_core::record::{LoadRecord, Sources};
use tidegate_core::topology::NodeId;

use super::super::status::NodeReadStatus;
use super::super::{BACKOFF, FAULTS_MAX, Transport, Wanted};
use super::*;
use crate::udp::wire::{MESSAGE_BYTES_MAX, Verb};

/// A reader's work without its thread, and the nodes that it asks.
struct Network {
    worker: Worker,
    buffers: Buffers,
    nodes: Vec<UdpSocket>,
    rounds: u64,
}

fn loopback() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// The key of the node at this index: the bytes are the same for all, only the name differs.
fn key(node: usize) -> Key {
    Key::new(&format!("n{node}"), *b"0123456789abcdef")
}

fn old_key(node: usize) -> Key {
    Key::new(&format!("n{node}"), *b"fedcba9876543210")
}

impl Network {
    fn of(nodes: usize) -> Self {
        Self::with(nodes, |node| vec![key(node)])
    }

    fn with(nodes: usize, keys: impl Fn(usize) -> Vec<Key>) -> Self {
        let sockets: Vec<_> = (0..nodes).map(|_| loopback()).collect();
        let target = |(node, socket): (usize, &UdpSocket)| Target {
            node: NodeId(node as u32),
            generation: 0,
            transport: Transport::Udp {
                address: socket.local_addr().unwrap(),
                keys: keys(node),
                rdma: false,
            },
        };
        let targets: Vec<_> = sockets.iter().enumerate().map(target).collect();
        let shared = Arc::new(ReaderState::new(nodes).unwrap());
        let table = Arc::new(LoadTable::new(nodes, 1));
        let options = ReaderOptions::default();
        Self {
            worker: Worker::new(targets, table, shared, &options).unwrap(),
            buffers: Buffers::new(),
            nodes: sockets,
            rounds: 0,
        }
    }

    /// Asks all nodes once; what came to each.
    fn ask(&mut self) -> Vec<Vec<Request>> {
        self.rounds += 1;
        let nodes = 0..self.nodes.len();
        self.worker.send(&mut self.buffers, 0, nodes, self.rounds);
        (0..self.nodes.len())
            .map(|node| self.received(node))
            .collect()
    }

    /// What came to a node, whichever of the keys it was made with.
    fn received(&self, node: usize) -> Vec<Request> {
        let keys: Vec<_> = (0..self.nodes.len())
            .flat_map(|node| [key(node), old_key(node)])
            .collect();
        let made = self.made(node, &keys);
        made.into_iter().map(|(request, _)| request).collect()
    }

    /// The same, with the indices of the keys.
    fn made(&self, node: usize, keys: &[Key]) -> Vec<(Request, usize)> {
        let mut bytes = [0; MESSAGE_BYTES_MAX];
        let next = || {
            let length = self.nodes[node].recv(&mut bytes).ok()?;
            Some(Request::decode(&bytes[..length], keys).unwrap())
        };
        std::iter::from_fn(next).collect()
    }

    fn status(&self, node: usize) -> NodeReadStatus {
        self.worker.shared.nodes[node].status()
    }

    /// As if so many reads of a node had not been answered.
    fn miss(&self, node: usize, reads: u32) {
        self.worker.shared.nodes[node].faults(ReadFault::Timeout, reads);
    }

    /// Sends an answer from a node's address.
    fn answer(&self, node: usize, message: &[u8]) {
        send(&self.nodes[node], message, self.reader());
    }

    fn reader(&self) -> SocketAddr {
        let port = self.worker.sockets[0].socket.local_addr().unwrap().port();
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    /// Lets the reader take in what has come: answers taken, unexpected datagrams, forged answers.
    fn receive(&mut self) -> (u64, u64, u64) {
        self.worker.receive(&mut self.buffers);
        let stats = &self.worker.stats;
        (stats.received, stats.unexpected, stats.forged)
    }

    fn runnable(&self, node: u32) -> f32 {
        self.worker.table.last(NodeId(node)).runnable
    }
}

fn send(from: &UdpSocket, message: &[u8], to: SocketAddr) {
    assert_eq!(from.send_to(message, to).unwrap(), message.len());
}

/// A node's true answer: a record with this run queue.
fn answered(request: &Request, runnable: u32) -> Vec<u8> {
    changed(request, runnable, |reply| reply)
}

/// Node 0's answer with a change.
fn changed(request: &Request, runnable: u32, change: impl Fn(Reply) -> Reply) -> Vec<u8> {
    made_with(&key(0), request, runnable, change)
}

fn made_with(
    key: &Key,
    request: &Request,
    runnable: u32,
    change: impl Fn(Reply) -> Reply,
) -> Vec<u8> {
    let record = LoadRecord {
        sequence: 1 + runnable,
        generation: 1,
        t_ns: 1_000_000 + u64::from(runnable),
        runnable,
        sources: Sources::RUNNABLE,
        ..LoadRecord::default()
    };
    made_of(key, request, &record, change)
}

fn made_of(
    key: &Key,
    request: &Request,
    record: &LoadRecord,
    change: impl Fn(Reply) -> Reply,
) -> Vec<u8> {
    let reply = change(Reply {
        verb: request.verb,
        lines: request.lines,
        status: Status::Done,
        initiator: request.initiator,
        sequence: request.sequence,
        nonce: request.nonce,
        node_now_ns: 1_000_000_000,
        value: 0,
        readers: 1,
        epoch: 1,
    });
    let mut message = vec![0; message_bytes(reply.lines)];
    let mut lines = [0; tidegate_core::record::RECORD_BYTES_MAX];
    record.encode(&[], &mut lines);
    let length = message.len() - HEADER_BYTES;
    message[HEADER_BYTES..].copy_from_slice(&lines[..length]);
    reply.encode(key, &mut message);
    message
}

#[test]
fn one_node_that_lies_about_the_number_of_front_ends_is_overruled() {
    let mut network = Network::of(3);
    let asked = network.ask();
    for (node, readers) in [(0, 4), (1, u32::MAX), (2, 4)] {
        let change = |reply| Reply { readers, ..reply };
        let answer = made_with(&key(node), &asked[node][0], 7, change);
        network.answer(node, &answer);
    }
    assert_eq!(network.receive(), (3, 0, 0));
    let schedule = Schedule::new(3, Duration::from_millis(1), clock::now());
    network.worker.publish_stats(&schedule, clock::now());
    assert_eq!(
        network.worker.shared.stats.readers.load(Ordering::Relaxed),
        4
    );
}

/// Before, the honest records counted as known ones until the agent was restarted.
#[test]
fn after_a_clock_of_the_far_future_a_node_is_known_again_without_a_restart() {
    let mut network = Network::of(1);
    let mut answer = |sequence: u32, t_ns: u64| {
        let record = LoadRecord {
            sequence,
            generation: 1,
            t_ns,
            runnable: sequence,
            sources: Sources::RUNNABLE,
            ..LoadRecord::default()
        };
        let request = network.ask()[0][0];
        network.answer(0, &made_of(&key(0), &request, &record, |reply| reply));
        network.receive();
        let status = network.status(0);
        (network.runnable(0), status.last_error, status.implausible)
    };
    assert_eq!(answer(1, 1 << 62), (1.0, None, 0));
    let clock = Some(ReadFault::Implausible(Implausible::Clock));
    for read in 2..5 {
        assert_eq!(
            answer(read, u64::from(read) * 1_000_000),
            (1.0, clock, u64::from(read) - 1)
        );
    }
    assert_eq!(answer(5, 5_000_000), (5.0, None, 3));
    assert_eq!(answer(6, 6_000_000), (6.0, None, 3));
}

#[test]
fn nonsense_is_refused_by_name_and_changes_nothing() {
    let mut network = Network::of(1);
    let honest = LoadRecord {
        sequence: 1,
        generation: 1,
        t_ns: 1_000_000,
        runnable: 3,
        sources: Sources::RUNNABLE,
        ..LoadRecord::default()
    };
    let nonsense = LoadRecord {
        sequence: 2,
        generation: 2,
        t_ns: 2_000_000,
        runnable: u32::MAX,
        ..honest
    };
    let tasks = Some(ReadFault::Implausible(Implausible::Tasks));
    for (record, error) in [(honest, None), (nonsense, tasks), (nonsense, tasks)] {
        let request = network.ask()[0][0];
        network.answer(0, &made_of(&key(0), &request, &record, |reply| reply));
        network.receive();
        let status = network.status(0);
        assert_eq!((status.last_error, status.restarts), (error, 0));
        assert_eq!(network.runnable(0), 3.0);
    }
    assert_eq!(network.status(0).implausible, 2);
}

/// Before, a machine so busy that each slot began behind its end never took an answer in.
#[test]
fn a_slot_that_is_late_or_ended_by_the_bell_takes_in_what_is_here() {
    let mut network = Network::of(1);
    for (runnable, is_late) in [(3, true), (4, false)] {
        let request = network.ask()[0][0];
        network.answer(0, &answered(&request, runnable));
        let deadline = match is_late {
            true => Timestamp::ZERO,
            false => {
                network.worker.shared.ring();
                clock::now() + Duration::from_secs(3600)
            }
        };
        let Network {
            worker, buffers, ..
        } = &mut network;
        worker.receive_until(buffers, deadline);
        assert_eq!(network.runnable(0), runnable as f32);
    }
    let request = network.ask()[0][0];
    network.answer(0, &answered(&request, 5));
    network.worker.shared.ring();
    let interval = &network.worker.shared.interval;
    interval.store(nanos(Duration::from_secs(60)), Ordering::Relaxed);
    assert!(network.worker.gather(&mut network.buffers, false));
    assert_eq!(network.runnable(0), 5.0);
}

#[test]
fn an_answer_is_taken_once() {
    let mut network = Network::of(1);
    let request = network.ask()[0][0];
    let answer = answered(&request, 7);
    network.answer(0, &answer);
    network.answer(0, &answer);
    assert_eq!(network.receive(), (1, 1, 0));
    // A second that says something else, as a holder of the key could make it, changes nothing.
    network.answer(0, &answered(&request, 9));
    assert_eq!(network.receive(), (1, 2, 0));
    assert_eq!(network.runnable(0), 7.0);
}

#[test]
fn an_answer_from_another_address_is_not_taken() {
    let mut network = Network::of(2);
    let asked = network.ask();
    let answer = answered(&asked[0][0], 7);
    network.answer(1, &answer);
    send(&loopback(), &answer, network.reader());
    assert_eq!(network.receive(), (0, 2, 0));
    assert!(network.runnable(0).is_nan() && network.runnable(1).is_nan());
    network.answer(0, &answer);
    assert_eq!(network.receive(), (1, 2, 0), "the true one still counts");
}

/// A relay at one node's address has another node answer what it was asked.
#[test]
fn what_a_node_was_asked_is_answered_by_no_other() {
    let mut network = Network::of(2);
    let asked = network.ask();
    let (own, others) = (asked[0][0], asked[1][0]);
    assert_ne!(own.initiator, others.initiator);
    for relayed in [
        changed(&others, 3, |reply| Reply {
            nonce: own.nonce,
            ..reply
        }),
        changed(&own, 3, |reply| Reply {
            initiator: others.initiator,
            ..reply
        }),
        changed(&own, 3, |reply| Reply {
            initiator: own.initiator ^ 1,
            ..reply
        }),
        changed(&own, 3, |reply| Reply {
            nonce: own.nonce ^ 1,
            ..reply
        }),
        answered(&others, 3),
    ] {
        network.answer(0, &relayed);
    }
    assert_eq!(network.receive(), (0, 5, 0));
}

#[test]
fn nonces_tell_nothing_of_the_next_one() {
    let mut network = Network::of(2);
    let mut nonces: Vec<_> = (0..8)
        .flat_map(|_| network.ask().concat())
        .map(|request| request.nonce)
        .collect();
    assert_eq!(nonces.len(), 16);
    let far = |pair: &[u64]| pair[1].abs_diff(pair[0]) > 1 << 32;
    assert!(nonces.windows(2).all(far), "{nonces:x?}");
    nonces.sort_unstable();
    assert!(nonces.windows(2).all(far), "{nonces:x?}");
}

#[test]
fn an_answer_of_another_verb_is_not_taken() {
    let mut network = Network::of(1);
    let op = WordOp::FetchAndAdd { word: 3, delta: 5 };
    let ticket = network.worker.table.ask_word(NodeId(0), op);
    let asked = network.ask().concat();
    let (read, add) = (asked[0], asked[1]);
    assert_eq!((read.verb, add.verb), (Verb::Read, Verb::FetchAndAdd));
    assert_ne!(read.initiator, add.initiator);
    for other in [
        changed(&add, 0, |reply| Reply {
            verb: Verb::CompareAndSwap,
            ..reply
        }),
        changed(&add, 0, |reply| Reply {
            nonce: reply.nonce ^ 1,
            ..reply
        }),
        changed(&add, 0, |reply| Reply {
            sequence: reply.sequence ^ 1,
            ..reply
        }),
        // A read's answer with an atomic's numbers, and the other way round.
        changed(&read, 7, |reply| Reply {
            initiator: add.initiator,
            nonce: add.nonce,
            sequence: add.sequence,
            ..reply
        }),
        changed(&add, 0, |reply| Reply {
            initiator: read.initiator,
            nonce: read.nonce,
            ..reply
        }),
        changed(
            &Request {
                lines: LINES as u8 + 1,
                ..read
            },
            7,
            |reply| reply,
        ),
    ] {
        network.answer(0, &other);
    }
    send(&loopback(), &answered(&add, 0), network.reader());
    assert_eq!(network.receive(), (0, 7, 0));
    assert_eq!(network.worker.table.answered_word(NodeId(0), ticket), None);
    network.answer(0, &answered(&add, 0));
    network.answer(0, &answered(&add, 0));
    network.answer(0, &answered(&read, 7));
    assert_eq!(network.receive(), (2, 8, 0));
    let told = network.worker.table.answered_word(NodeId(0), ticket);
    assert!(
        matches!(told, Some(WordReply::Done { held: 0, .. })),
        "{told:?}"
    );
}

#[test]
fn a_flood_does_not_keep_the_reader_from_sending() {
    let mut network = Network::of(1);
    let stranger = loopback();
    let noise = [0x55; 64];
    for _ in 0..3 * RECEIVE_BATCH {
        send(&stranger, &noise, network.reader());
    }
    // One batch for each batch of nodes, and then it is time to send again.
    for batch in 1..=3 {
        let (_, unexpected, _) = network.receive();
        assert_eq!(unexpected, batch * RECEIVE_BATCH as u64);
    }
}

/// A captured node has its own key and no other's.
#[test]
fn an_answer_made_with_another_nodes_key_is_not_taken() {
    let mut network = Network::of(2);
    let asked = network.ask();
    let forged = made_with(&key(1), &asked[0][0], 0, |reply| reply);
    network.answer(0, &forged);
    assert_eq!(network.receive(), (0, 0, 1));
    assert!(network.runnable(0).is_nan());
    assert_eq!(network.status(0).last_error, Some(ReadFault::WrongKey));
    network.answer(0, &answered(&asked[0][0], 7));
    assert_eq!(network.receive(), (1, 0, 1));
    assert_eq!(
        (network.runnable(0), network.status(0).last_error),
        (7.0, None)
    );
}

/// A relay without a key hands what one node is asked to another one.
#[test]
fn a_request_to_one_node_means_nothing_to_another() {
    let mut network = Network::of(2);
    network.worker.send(&mut network.buffers, 0, 0..2, 1);
    let mut bytes = [0; MESSAGE_BYTES_MAX];
    let length = network.nodes[0].recv(&mut bytes).unwrap();
    let refused = Request::decode(&bytes[..length], &[key(1)]);
    assert!(refused.is_err(), "{refused:?}");
    assert!(Request::decode(&bytes[..length], &[key(0)]).is_ok());
}

#[test]
fn a_node_that_knows_the_old_key_only_is_read_with_it_until_it_answers_to_the_new_one() {
    let keys = [key(0), old_key(0)];
    let mut network = Network::with(1, |node| vec![key(node), old_key(node)]);
    network.ask();
    network.miss(0, 8);
    let mut old = None;
    while old.is_none() {
        network.worker.send(&mut network.buffers, 0, 0..1, 1);
        old = network
            .made(0, &keys)
            .into_iter()
            .find(|(_, key)| *key == 1);
    }
    let (request, _) = old.unwrap();
    network.answer(0, &made_with(&keys[1], &request, 7, |reply| reply));
    assert_eq!(network.status(0).key, None);
    assert_eq!(network.receive(), (1, 0, 0));
    assert_eq!((network.runnable(0), network.status(0).key), (7.0, Some(2)));
    // It is asked with the old one from now on, and now and then with the new one.
    let mut new = None;
    while new.is_none() {
        network.worker.send(&mut network.buffers, 0, 0..1, 1);
        for (request, key) in network.made(0, &keys) {
            match key {
                0 => new = Some(request),
                _ => network.answer(0, &made_with(&keys[1], &request, 7, |reply| reply)),
            }
        }
        network.receive();
        assert_eq!(network.status(0).last_error, None);
    }
    network.answer(0, &made_with(&keys[0], &new.unwrap(), 8, |reply| reply));
    network.receive();
    assert_eq!((network.runnable(0), network.status(0).key), (8.0, Some(1)));
    // A holder of the old key is asked no more.
    network.miss(0, FAULTS_MAX - 1);
    for _ in 0..100 {
        network.worker.send(&mut network.buffers, 0, 0..1, 1);
        assert!(network.made(0, &keys).iter().all(|(_, key)| *key == 0));
    }
}

/// An agent comes back after it was silent for long, or its keys change.
#[test]
fn a_silent_node_is_asked_in_earnest_with_a_key_of_its_own_alone() {
    let mut network = Network::with(3, |node| vec![key(node), old_key(node)]);
    let all: Vec<_> = (0..3).flat_map(|node| [key(node), old_key(node)]).collect();
    for faults in [1, FAULTS_MAX] {
        network.miss(0, faults);
        for round in 0..256 {
            let worker = &mut network.worker;
            worker.send(&mut network.buffers, 0, 0..1, round * BACKOFF);
            for (request, key) in network.made(0, &all) {
                assert_eq!(request.word == 0, all[key] == old_key(0), "{request:?}");
            }
        }
    }
}

#[test]
fn a_node_with_another_nodes_key_is_found_and_not_believed() {
    let mut network = Network::of(3);
    network.miss(0, FAULTS_MAX);
    let mut asked = None;
    for round in 0.. {
        network
            .worker
            .send(&mut network.buffers, 0, 0..1, round * BACKOFF);
        let all = [key(0), key(1), key(2)];
        asked = network
            .made(0, &all)
            .into_iter()
            .find(|(_, key)| *key == 2)
            .or(asked);
        if asked.is_some() {
            break;
        }
    }
    let (request, _) = asked.unwrap();
    network.answer(0, &made_with(&key(2), &request, 0, |reply| reply));
    assert_eq!(network.receive(), (1, 0, 0));
    assert!(network.runnable(0).is_nan());
    // The next read with its own key gets no answer, and the finding stands.
    network.miss(0, 1);
    let status = network.status(0);
    assert_eq!(status.last_error, Some(ReadFault::WrongKey));
    assert_eq!(status.key_of, Some(NodeId(2)));
}

/// What the reader reads of a network.
fn targets(network: &Network, nodes: &[(usize, u32)]) -> Vec<Target> {
    let target = |&(node, generation): &(usize, u32)| Target {
        node: NodeId(node as u32),
        generation,
        transport: Transport::Udp {
            address: network.nodes[node].local_addr().unwrap(),
            keys: vec![key(node)],
            rdma: false,
        },
    };
    nodes.iter().map(target).collect()
}

impl Network {
    /// From now on these are read, each with its generation.
    fn want(&mut self, nodes: &[(usize, u32)], version: u64) {
        self.want_targets(targets(self, nodes), version);
    }

    fn want_targets(&mut self, targets: Vec<Target>, version: u64) {
        let interval = self.worker.interval;
        let shared = &self.worker.shared;
        *shared.wanted.lock().unwrap() = Some(Wanted {
            targets,
            interval,
            budget: None,
            version,
        });
        shared.is_wanted.store(true, Ordering::Release);
        assert!(self.worker.take_wanted());
        assert_eq!(self.worker.shared.followed.load(Ordering::Acquire), version);
    }

    /// How many requests came to each node in a round.
    fn asked(&mut self) -> Vec<usize> {
        self.rounds += 1;
        let all = 0..self.worker.order.len();
        self.worker.send(&mut self.buffers, 0, all, self.rounds);
        let nodes = 0..self.nodes.len();
        nodes.map(|node| self.received(node).len()).collect()
    }
}

#[test]
fn nodes_come_and_go_and_what_is_known_of_those_that_stay_is_kept() {
    let mut network = Network::of(4);
    network.want(&[(0, 0), (1, 0)], 1);
    assert_eq!(network.asked(), [1, 1, 0, 0]);
    network.miss(0, 3);
    network.miss(1, 3);
    let initiator = network.worker.peers.get(1).initiator;
    // One goes, one stays, one comes; another node has the place of the one that goes, later.
    network.want(&[(1, 0), (3, 0)], 2);
    assert_eq!(network.asked(), [0, 1, 0, 1]);
    assert!(!network.worker.shared.nodes[0].is_read());
    assert_eq!(network.status(1).consecutive_faults, 3);
    assert_eq!(network.worker.peers.get(1).initiator, initiator);
    network.want(&[(0, 1), (1, 0), (3, 0)], 3);
    assert_eq!(network.asked(), [1, 1, 0, 1]);
    assert_eq!(network.status(0).consecutive_faults, 0);
    // Indices and keys are used again: nothing grows with the changes.
    for version in 0..100 {
        network.want(&[(0, version + 2), (2, version)], 4 + u64::from(version));
    }
    assert_eq!(network.asked(), [1, 0, 1, 0]);
    assert!(network.worker.nodes.len() <= 4 && network.worker.keys.len() <= 4);
    network.want(&[], 1000);
    assert_eq!(network.asked(), [0; 4]);
}

#[test]
fn nodes_are_read_in_the_order_of_their_places_and_those_read_last_are_recent() {
    let mut network = Network::of(6);
    // Indices that are free again are taken by others.
    network.want(&[(1, 0), (2, 0), (5, 0)], 1);
    network.want(&[(5, 0), (4, 0), (0, 0), (2, 0), (1, 0)], 2);
    let all: Vec<_> = (0..6).map(NodeId).collect();
    let mut recent = |in_turn, group| {
        network.worker.show_recent(in_turn, group);
        let recent = network.worker.table.recent()?;
        Some(recent.among(&all))
    };
    assert_eq!(recent(false, 0..5), None);
    assert_eq!(recent(true, 0..2), Some(0..2));
    // Node 3 is not read; nor is it a candidate then.
    assert_eq!(recent(true, 2..4), Some(2..5));
    assert_eq!(recent(true, 4..5), Some(5..6));
    assert_eq!(recent(true, 7..9), None);
    assert_eq!(recent(true, 0..2), Some(0..2));
    assert_eq!(recent(false, 0..5), None);
}

#[test]
fn an_answer_of_a_node_that_is_read_no_more_counts_for_none() {
    let mut network = Network::of(2);
    let asked = network.ask();
    network.want(&[(1, 0)], 1);
    network.answer(0, &answered(&asked[0][0], 7));
    assert_eq!(network.receive(), (0, 1, 0));
    assert_eq!(network.status(0).reads, 0);
}

#[test]
fn nodes_of_one_agent_are_read_with_one_read_while_it_answers() {
    let mut network = Network::with(3, |_| vec![key(0)]);
    let mut targets = targets(&network, &[(0, 0), (1, 0), (2, 0)]);
    for target in &mut targets {
        let address = network.nodes[0].local_addr().unwrap();
        let keys = vec![match target.node.0 {
            2 => old_key(0),
            _ => key(0),
        }];
        target.transport = Transport::Udp {
            address,
            keys,
            rdma: false,
        };
    }
    network.want_targets(targets.clone(), 1);
    let hour = nanos(Duration::from_secs(3600));
    network
        .worker
        .shared
        .interval
        .store(hour, Ordering::Relaxed);
    // Nothing is known yet, so each is read for itself.
    network.worker.send(&mut network.buffers, 0, 0..3, 1);
    let first = network.made(0, &[key(0), old_key(0)]);
    assert_eq!(first.len(), 3);
    // The answer to one is the other's too, and not that of the node with another key.
    network.answer(0, &answered(&first[0].0, 7));
    assert_eq!(network.receive(), (1, 0, 0));
    let reads = |network: &Network| [0, 1, 2].map(|node| network.status(node).reads);
    assert_eq!(reads(&network), [1, 1, 0]);
    assert_eq!([0, 1].map(|node| network.runnable(node)), [7.0, 7.0]);
    network.worker.send(&mut network.buffers, 0, 0..3, 2);
    let second = network.made(0, &[key(0), old_key(0)]);
    let made_with: Vec<_> = second.iter().map(|(_, key)| *key).collect();
    assert_eq!(made_with, [0, 1], "one for two nodes, one for the third");
    // What is wrong is seen for each of them again once the agent is silent.
    network.worker.shared.interval.store(0, Ordering::Relaxed);
    network.worker.timeout = Duration::ZERO;
    network.worker.send(&mut network.buffers, 0, 0..3, 3);
    assert_eq!(network.made(0, &[key(0), old_key(0)]).len(), 3);
    // One that goes leaves the read to the other.
    targets.retain(|target| target.node.0 == 1);
    network.want_targets(targets, 2);
    network.worker.send(&mut network.buffers, 0, 0..1, 4);
    assert_eq!(network.received(0).len(), 1);
}
