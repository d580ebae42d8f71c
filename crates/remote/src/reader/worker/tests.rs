//! What answers the reader takes, and what it does with all others. The test is the network: it holds
//! the nodes' sockets, and nothing happens but what it sends.

use tidegate_core::load::WordOp;
use tidegate_core::record::{LoadRecord, Sources};
use tidegate_core::topology::NodeId;

use super::super::status::{Shared, SharedStats};
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

fn key() -> Key {
    Key::from_bytes(*b"0123456789abcdef")
}

impl Network {
    fn of(nodes: usize) -> Self {
        let sockets: Vec<_> = (0..nodes).map(|_| loopback()).collect();
        let target = |(node, socket): (usize, &UdpSocket)| Target {
            node: NodeId(node as u32),
            transport: Transport::Udp {
                address: socket.local_addr().unwrap(),
                key: key(),
            },
        };
        let targets: Vec<_> = sockets.iter().enumerate().map(target).collect();
        let shared = Arc::new(State {
            nodes: targets.iter().map(|_| Shared::default()).collect(),
            stats: SharedStats::default(),
            stop: false.into(),
        });
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
        self.nodes.iter().map(received).collect()
    }

    /// Sends an answer from a node's address.
    fn answer(&self, node: usize, message: &[u8]) {
        send(&self.nodes[node], message, self.reader());
    }

    fn reader(&self) -> SocketAddr {
        let port = self.worker.sides[0].socket.local_addr().unwrap().port();
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    /// Lets the reader take in what has come: answers taken, unexpected datagrams, forged answers.
    fn take(&mut self) -> (u64, u64, u64) {
        self.worker.take(&mut self.buffers);
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

fn received(node: &UdpSocket) -> Vec<Request> {
    let mut bytes = [0; MESSAGE_BYTES_MAX];
    let next = || {
        let length = node.recv(&mut bytes).ok()?;
        Some(Request::decode(&bytes[..length], &[key()]).unwrap().0)
    };
    std::iter::from_fn(next).collect()
}

/// A node's true answer: a record with this run queue.
fn answered(request: &Request, runnable: u32) -> Vec<u8> {
    changed(request, runnable, |reply| reply)
}

fn changed(request: &Request, runnable: u32, change: impl Fn(Reply) -> Reply) -> Vec<u8> {
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
    let record = LoadRecord {
        sequence: 1 + runnable,
        generation: 1,
        t_ns: 1_000_000 + u64::from(runnable),
        runnable,
        sources: Sources::RUNNABLE,
        ..LoadRecord::default()
    };
    let mut lines = [0; tidegate_core::record::RECORD_BYTES_MAX];
    record.encode(&[], &mut lines);
    let length = message.len() - HEADER_BYTES;
    message[HEADER_BYTES..].copy_from_slice(&lines[..length]);
    reply.encode(&key(), &mut message);
    message
}

#[test]
fn an_answer_is_taken_once() {
    let mut network = Network::of(1);
    let request = network.ask()[0][0];
    let answer = answered(&request, 7);
    network.answer(0, &answer);
    network.answer(0, &answer);
    assert_eq!(network.take(), (1, 1, 0));
    // A second that says something else, as somebody with the key could make it, changes nothing.
    network.answer(0, &answered(&request, 9));
    assert_eq!(network.take(), (1, 2, 0));
    assert_eq!(network.runnable(0), 7.0);
}

#[test]
fn an_answer_from_another_address_is_not_taken() {
    let mut network = Network::of(2);
    let asked = network.ask();
    let answer = answered(&asked[0][0], 7);
    network.answer(1, &answer);
    send(&loopback(), &answer, network.reader());
    assert_eq!(network.take(), (0, 2, 0));
    assert!(network.runnable(0).is_nan() && network.runnable(1).is_nan());
    network.answer(0, &answer);
    assert_eq!(network.take(), (1, 2, 0), "the true one still counts");
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
    assert_eq!(network.take(), (0, 5, 0));
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
    assert_eq!(network.take(), (0, 7, 0));
    assert_eq!(network.worker.table.answered_word(NodeId(0), ticket), None);
    network.answer(0, &answered(&add, 0));
    network.answer(0, &answered(&add, 0));
    network.answer(0, &answered(&read, 7));
    assert_eq!(network.take(), (2, 8, 0));
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
        let (_, unexpected, _) = network.take();
        assert_eq!(unexpected, batch * RECEIVE_BATCH as u64);
    }
}
