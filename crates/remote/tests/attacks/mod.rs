//! What an attacker sends that records datagrams or holds a front-end's key. The same for the
//! responder and for the kernel's programs.

use std::net::UdpSocket;
use std::time::Duration;

use tidegate_core::record::AGGREGATE_LINES;
use tidegate_remote::udp::wire::{Reply, Request, Status, Verb, message_bytes};

use crate::support::kernel::KernelNode;
use crate::support::{Node, PATIENCE, UdpNode, Words, key, record};

const SECOND: u64 = 1_000_000_000;

/// A socket that sends what it is given and verifies what comes back.
pub(crate) struct Raw {
    socket: UdpSocket,
    patience: Duration,
}

impl Raw {
    /// By a socket that is connected to the node.
    pub(crate) fn by(socket: UdpSocket) -> Self {
        Self {
            socket,
            patience: PATIENCE,
        }
    }

    pub(crate) fn to(node: &UdpNode) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(node.address()).unwrap();
        Self::by(socket)
    }

    pub(crate) fn ask(&self, request: &Request) -> Reply {
        let mut bytes = vec![0; message_bytes(request.lines)];
        request.encode(&key(), bytes.first_chunk_mut().unwrap());
        self.send(&bytes);
        let length = self.receive(&mut bytes);
        let (reply, _) = Reply::parse(&bytes[..length])
            .unwrap()
            .verify(&key())
            .unwrap();
        assert_eq!(
            (reply.nonce, reply.sequence),
            (request.nonce, request.sequence)
        );
        reply
    }

    pub(crate) fn send(&self, bytes: &[u8]) {
        self.socket.send(bytes).unwrap();
    }

    fn receive(&self, bytes: &mut [u8]) -> usize {
        let patience = self.patience;
        self.socket.set_read_timeout(Some(patience)).unwrap();
        let received = self.socket.recv(bytes);
        received.unwrap_or_else(|error| panic!("no answer within {patience:?}: {error}"))
    }

    /// The node's clock, and an addition of 1 to word 5 by a fresh initiator of its present life.
    fn addition(&self) -> (u64, Request) {
        let add = Request {
            verb: Verb::FetchAndAdd,
            word: 5,
            operand: 1,
            ..Request::read(0, 77, 1)
        };
        let reply = self.ask(&add);
        assert_eq!(reply.status, Status::Epoch, "a first one learns the epoch");
        let epoch = reply.epoch;
        (reply.node_now_ns, Request { epoch, ..add })
    }
}

/// A node to which datagrams can be sent.
pub(crate) trait Datagrams: Words {
    fn raw(&self) -> Raw;
}

impl Datagrams for UdpNode {
    fn raw(&self) -> Raw {
        self.memory().publish(&record(1), &[]);
        Raw::to(self)
    }
}

impl Datagrams for KernelNode {
    fn raw(&self) -> Raw {
        Raw::by(self.socket())
    }
}

/// Instead of a test that hangs.
#[test]
#[should_panic(expected = "no answer within 1ms")]
fn a_lost_answer_fails_a_test_with_words() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(silent.local_addr().unwrap()).unwrap();
    let raw = Raw {
        socket,
        patience: Duration::from_millis(1),
    };
    raw.ask(&Request::read(1, 1, 1));
}

macro_rules! attacks {
    ($($transport:ident: $node:ty,)*; $($case:ident)*) => {
        attacks! { @each [$($transport: $node,)*] [$($case)*] }
    };
    (@each [$($transport:ident: $node:ty,)*] $cases:tt) => {
        $( attacks! { @one $transport $node, $cases } )*
    };
    (@one $transport:ident $node:ty, [$($case:ident)*]) => {
        mod $transport {
            $( #[test] fn $case() { super::$case::<$node>() } )*
        }
    };
}

attacks! {
    on_the_responder: crate::support::UdpNode,
    on_the_kernel: crate::support::kernel::KernelNode,;
    an_atomic_of_the_past_or_the_future_is_refused
    a_number_of_the_future_blocks_no_other_front_end
    an_old_answer_is_given_again_however_old_it_is
    replayed_reads_count_as_no_front_end
    reads_tell_word_0
}

fn an_atomic_of_the_past_or_the_future_is_refused<N: Datagrams>() {
    let Some(node) = N::begin() else { return };
    let raw = node.raw();
    let (now, add) = raw.addition();
    for (sequence, status) in [
        (now.saturating_sub(60 * SECOND), Status::TooOld),
        (now - SECOND / 5, Status::TooOld),
        (now + 60 * SECOND, Status::TooNew),
        (u64::MAX - 2, Status::TooNew),
    ] {
        let reply = raw.ask(&Request { sequence, ..add });
        assert_eq!(reply.status, status, "{sequence} at {now}");
    }
    assert_eq!(node.word(5), 0);
    // The answer to each of them brings the clock.
    let (sequence, _) = raw.addition();
    let reply = raw.ask(&Request { sequence, ..add });
    assert_eq!((reply.status, reply.value), (Status::Done, 0));
}

fn a_number_of_the_future_blocks_no_other_front_end<N: Datagrams>() {
    let Some(node) = N::begin() else { return };
    let raw = node.raw();
    let (_, add) = raw.addition();
    for initiator in 0..2000 {
        let reply = raw.ask(&Request {
            initiator,
            sequence: u64::MAX - 1,
            ..add
        });
        assert_eq!(reply.status, Status::TooNew);
    }
    node.initiator().fetch_and_add(5, 1).unwrap();
    assert_eq!(node.word(5), 1);
}

fn an_old_answer_is_given_again_however_old_it_is<N: Datagrams>() {
    let Some(node) = N::begin() else { return };
    let raw = node.raw();
    let (sequence, add) = raw.addition();
    let add = Request { sequence, ..add };
    assert_eq!(raw.ask(&add).value, 0);
    // Until its number is too old to be carried out. Each read has a later number: copies have no rate of their own.
    let mut now = sequence;
    while now <= sequence + SECOND / 5 {
        let read = Request {
            sequence: now,
            ..Request::read(1, 77, 3)
        };
        now = raw.ask(&read).node_now_ns;
    }
    let again = raw.ask(&Request { nonce: 9, ..add });
    assert_eq!((again.status, again.value), (Status::Done, 0));
    let stranger = raw.ask(&Request {
        initiator: 78,
        ..add
    });
    assert_eq!(stranger.status, Status::TooOld);
    assert_eq!(node.word(5), 1);
}

fn replayed_reads_count_as_no_front_end<N: Datagrams>() {
    let Some(node) = N::begin() else { return };
    let raw = node.raw();
    let (now, _) = raw.addition();
    let read = |initiator, sequence| Request {
        sequence,
        ..Request::read(AGGREGATE_LINES as u8, initiator, initiator)
    };
    // Recorded long ago, of twelve front-ends; first reads; made up.
    for initiator in 100..112 {
        for sequence in [now.saturating_sub(2 * SECOND), 0, now + SECOND, u64::MAX] {
            let reply = raw.ask(&read(initiator, sequence));
            assert_eq!((reply.status, reply.readers), (Status::Done, 0));
        }
    }
    let (now, _) = raw.addition();
    let reply = raw.ask(&read(1, now));
    assert_eq!(reply.readers, 1, "one that is alive");
}

fn reads_tell_word_0<N: Datagrams>() {
    let Some(node) = N::begin() else { return };
    let raw = node.raw();
    node.initiator().fetch_and_add(0, 1 << 40 | 3).unwrap();
    let reply = raw.ask(&Request::read(AGGREGATE_LINES as u8, 1, 1));
    assert_eq!(reply.value, 1 << 40 | 3);
}
