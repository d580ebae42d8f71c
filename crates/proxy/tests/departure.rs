//! Clients that leave before their answer, and clients that only end what they send.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use common::{Bench, Message, Node, Peer, clock, ok, until};
use tidegate_core::admission::{AdmissionConfig, AdmissionKind, Rank};
use tidegate_core::throttle::{SetBy, ThrottleLimits};
use tidegate_core::topology::NodeId;
use tidegate_proxy::Reason;

const LONG: Duration = Duration::from_secs(600);
const CLIENTS: usize = 30;

/// A node that counts the requests that it is sent, and answers each when it may.
struct Counting {
    node: Node,
    requests: Arc<AtomicUsize>,
    open: Sender<()>,
}

impl Counting {
    fn new() -> Self {
        let (open, gate) = channel();
        let gate: Arc<Mutex<Receiver<()>>> = Arc::new(Mutex::new(gate));
        let requests = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&requests);
        let node = Node::answering(move |request: &Message| {
            counter.fetch_add(1, Ordering::SeqCst);
            gate.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .recv()
                .ok();
            ok(request.text())
        });
        Self {
            node,
            requests,
            open,
        }
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// A proxy that gives it one request at a time, in whatever way.
    fn bench(&self, throttled: bool) -> Bench {
        let admission = AdmissionConfig {
            slo: LONG,
            queue: 1000,
            ..AdmissionConfig::new(AdmissionKind::Adaptive)
        };
        if throttled {
            let bench = Bench::with(&[self.node.address], |config| config.workers = 1);
            let limits = ThrottleLimits {
                concurrency: Some(1),
                ..ThrottleLimits::default()
            };
            for class in ["GET /*", "POST /*"] {
                let throttles = &bench.shared.throttles;
                let set = throttles.set(
                    class.parse().unwrap(),
                    limits,
                    SetBy::Operator,
                    None,
                    clock(),
                );
                set.unwrap();
            }
            bench
        } else {
            let bench = Bench::admitting(&[self.node.address], admission);
            let limits = Rank::ALL.map(|_| 1.0);
            bench.shared.table.set_limits(NodeId(0), limits);
            bench
        }
    }
}

const POST: &str = "POST /p HTTP/1.1\r\nhost: shop.example\r\ncontent-length: 5\r\n\r\nhello";
const PART: &str = "POST /p HTTP/1.1\r\nhost: shop.example\r\ncontent-length: 500000\r\n\r\nhello";
const CHUNKS: &str = "POST /p HTTP/1.1\r\nhost: shop.example\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
const GET: &str = "GET /p HTTP/1.1\r\nhost: shop.example\r\n\r\n";
const OLD: &str = "POST /p HTTP/1.0\r\nhost: shop.example\r\ncontent-length: 5\r\n\r\nhello";

/// What clients send before they leave, while another request has the node.
fn leavers() -> Vec<(&'static str, String)> {
    vec![
        ("a POST", POST.into()),
        ("part of a POST", PART.into()),
        ("chunks", CHUNKS.into()),
        ("a GET", GET.into()),
        ("a GET and a byte", format!("{GET}G")),
        ("a POST and a byte", format!("{POST}P")),
        ("HTTP/1.0", OLD.into()),
    ]
}

fn those_who_left_are_not_served(throttled: bool) {
    for (what, sent) in leavers() {
        let counting = Counting::new();
        let bench = counting.bench(throttled);
        let mut first = bench.client();
        // Of the same class as the others.
        let (ahead, echo) = match sent.starts_with("GET") {
            true => (GET, ""),
            false => (POST, "hello"),
        };
        first.send(ahead);
        until("the node has the first", || counting.requests() == 1);
        let clients: Vec<Peer> = (0..CLIENTS)
            .map(|_| {
                let mut client = bench.client();
                client.send(&sent);
                client
            })
            .collect();
        until("all others wait", || {
            bench.snapshot().requests == CLIENTS as u64 + 1
        });
        drop(clients);
        until(what, || {
            bench.snapshot().reason(Reason::ClientGone) == CLIENTS as u64
        });
        counting.open.send(()).unwrap();
        assert_eq!(first.read_response(false).text(), echo, "{what}");
        bench.settled();
        assert_eq!(counting.requests(), 1, "{what}");
    }
}

#[test]
fn queued_requests_of_clients_that_left_reach_no_node() {
    // Asserts on what the node got, for each way to leave.
    those_who_left_are_not_served(false);
}

#[test]
fn throttled_requests_of_clients_that_left_reach_no_node() {
    // Asserts on what the node got, for each way to leave.
    those_who_left_are_not_served(true);
}

#[test]
fn requests_of_clients_that_left_are_taken_from_the_node() {
    for (what, sent) in leavers() {
        if what == "HTTP/1.0" {
            // Such a client cannot be asked whether it has left.
            continue;
        }
        let counting = Counting::new();
        let bench = Bench::new(&[counting.node.address]);
        let mut client = bench.client();
        client.send(&sent);
        until("it is at the node", || bench.in_flight() == 1);
        drop(client);
        let reason = match sent == PART {
            true => Reason::BodyCut,
            false => Reason::ClientGone,
        };
        assert_eq!(bench.settled().reason(reason), 1, "{what}");
    }
}

#[test]
fn an_answer_that_nobody_reads_any_more_is_given_up() {
    let node = Node::start(|peer| {
        peer.read_message();
        peer.send("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nhello");
        std::io::Read::read_to_end(&mut peer.reader, &mut Vec::new()).ok();
    });
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    client.send(GET);
    assert_eq!(client.read_head().unwrap().status(), 200);
    let mut begin = [0; 5];
    std::io::Read::read_exact(&mut client.reader, &mut begin).unwrap();
    // It has read all that there is, so its end is no reset.
    drop(client);
    assert_eq!(bench.settled().reason(Reason::ClientGone), 1);
}

/// The final answer, behind any interim one.
fn final_answer(client: &mut Peer) -> Message {
    loop {
        let head = client.read_head().expect("an answer");
        if head.status() == 100 {
            continue;
        }
        let mut body = vec![0; head.get("content-length").unwrap().parse().unwrap()];
        std::io::Read::read_exact(&mut client.reader, &mut body).unwrap();
        return Message { body, ..head };
    }
}

#[test]
fn a_client_that_ends_what_it_sends_is_answered() {
    for (what, sent, expected) in [
        ("a GET", GET.to_owned(), vec![""]),
        ("a POST", POST.to_owned(), vec!["hello"]),
        ("HTTP/1.0", OLD.to_owned(), vec!["hello"]),
        (
            "several",
            [GET, POST, CHUNKS, GET].concat(),
            vec!["", "hello", "hello", ""],
        ),
    ] {
        let counting = Counting::new();
        let bench = Bench::new(&[counting.node.address]);
        let mut client = bench.client();
        client.send(&sent);
        client.shut();
        for (number, expected) in expected.iter().enumerate() {
            until("it is at the node", || counting.requests() == number + 1);
            counting.open.send(()).unwrap();
            // An answer that comes soon comes alone.
            assert_eq!(client.read_response(false).text(), *expected, "{what}");
        }
        assert!(client.is_closed(), "{what}");
        let seen = bench.settled();
        assert_eq!(seen.completed, expected.len() as u64, "{what}");
    }
}

#[test]
fn a_client_that_ends_what_it_sends_is_answered_when_its_turn_comes() {
    let counting = Counting::new();
    let bench = counting.bench(false);
    let mut first = bench.client();
    first.send(POST);
    until("the node has the first", || counting.requests() == 1);
    let mut second = bench.client();
    second.send(POST);
    second.shut();
    // It is asked whether it is there.
    assert_eq!(second.read_head().unwrap().status(), 100);
    counting.open.send(()).unwrap();
    assert_eq!(first.read_response(false).text(), "hello");
    counting.open.send(()).unwrap();
    assert_eq!(final_answer(&mut second).text(), "hello");
    assert!(second.is_closed());
    assert_eq!(bench.settled().completed, 2);
}

#[test]
fn a_slow_answer_reaches_a_client_that_ended_what_it_sends() {
    let counting = Counting::new();
    let bench = Bench::new(&[counting.node.address]);
    let mut client = bench.client();
    client.send(POST);
    client.shut();
    assert_eq!(client.read_head().unwrap().status(), 100, "it is asked");
    counting.open.send(()).unwrap();
    assert_eq!(final_answer(&mut client).text(), "hello");
    assert_eq!(bench.settled().completed, 1);
}
