//! Places of a throttled class: a request that stands still for its client lends its place to the next, and has one
//! again before its node does more for it.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::io::Read;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Bench, Message, Node, Peer, ask, clock, ok, until};
use tidegate_core::throttle::{SetBy, Throttle, ThrottleLimits};
use tidegate_proxy::{ProxyConfig, Reason};

/// More than all buffers between a node and a client hold.
const LARGE: usize = 64 << 20;
const LONG: Duration = Duration::from_secs(3600);

fn config(config: &mut ProxyConfig) {
    config.timeouts.throttled_idle = Duration::from_millis(100);
    config.timeouts.body_idle = LONG;
    config.limits.throttled_rate = 1 << 40;
}

/// Throttles the class of all requests for `/one/…`, whatever the method.
fn set_limits(bench: &Bench, limits: ThrottleLimits) {
    let class = "* /one/*".parse().unwrap();
    let throttles = &bench.shared.throttles;
    (throttles.set(class, limits, SetBy::Operator, None, clock())).unwrap();
}

/// One request of the class at a time.
fn one_at_a_time(bench: &Bench) {
    let limits = ThrottleLimits {
        concurrency: Some(1),
        ..ThrottleLimits::default()
    };
    set_limits(bench, limits);
}

fn throttle(bench: &Bench) -> Throttle {
    bench.shared.throttles.all().remove(0)
}

/// All have ended, and nothing is left of them.
fn settled(bench: &Bench) {
    until("the throttle is empty", || {
        let it = throttle(bench);
        (it.in_flight, it.lent, it.waiting) == (0, 0, 0)
    });
    let it = throttle(bench).counters;
    assert_eq!(it.passed, it.ended);
    bench.settled();
}

/// A node whose answer to `/one/large` is large, and which answers `/one/gated` at the signal.
fn node(gate: Option<Receiver<()>>) -> Node {
    let gate = Arc::new(Mutex::new(gate));
    Node::answering(move |request: &Message| {
        if request.start.contains("/one/large") {
            return ok(&"x".repeat(LARGE));
        }
        if request.start.contains("/one/gated")
            && let Some(gate) = &*gate.lock().unwrap()
        {
            gate.recv().ok();
        }
        ok(&request.body.len().to_string())
    })
}

/// A client that has asked for a large answer, and reads none of it.
fn unread(bench: &Bench) -> Peer {
    let mut client = bench.client();
    let passed = throttle(bench).counters.passed;
    ask(&mut client, "/one/large");
    until("it is in flight", || {
        throttle(bench).counters.passed == passed + 1
    });
    client
}

/// A client that reads nothing of its answer and has lent its place to another, whose request is at the node
/// until the gate opens.
fn lent() -> (Sender<()>, Node, Bench, Peer, Peer) {
    let (open, gate) = channel();
    let node = node(Some(gate));
    let bench = Bench::with(&[node.address], config);
    one_at_a_time(&bench);
    let first = unread(&bench);
    let mut other = bench.client();
    ask(&mut other, "/one/gated");
    until("the other has its turn", || {
        throttle(&bench).counters.passed == 2
    });
    (open, node, bench, first, other)
}

#[test]
fn clients_that_read_nothing_hold_no_place() {
    let node = node(None);
    let bench = Bench::with(&[node.address], config);
    one_at_a_time(&bench);
    let mut first = unread(&bench);
    let mut others = [bench.client(), bench.client()];
    for other in &mut others {
        assert_eq!(other.get("/one/small").text(), "0");
    }
    assert_eq!(throttle(&bench).lent, 1);
    // It is late, and whole.
    assert_eq!(first.read_response(false).body.len(), LARGE);
    settled(&bench);
    // One that leaves meanwhile leaves nothing behind.
    drop(unread(&bench));
    settled(&bench);
    assert_eq!(bench.client().get("/one/small").text(), "0");
    settled(&bench);
}

#[test]
fn a_client_that_trickles_holds_no_place() {
    let node = node(None);
    let bench = Bench::with(&[node.address], config);
    one_at_a_time(&bench);
    let mut first = unread(&bench);
    let mut other = bench.client();
    ask(&mut other, "/one/small");
    let mut some = [0; 1 << 12];
    until("the other has its turn", || {
        // It reads all the time, and no client is as fast as the rate.
        first.reader.get_mut().read_exact(&mut some).unwrap();
        throttle(&bench).counters.passed == 2
    });
    assert_eq!(other.read_response(false).text(), "0");
    assert!(throttle(&bench).counters.ended == 1, "it is still read");
    drop(first);
    settled(&bench);
}

#[test]
fn without_its_place_the_node_does_no_more_until_it_has_one_again() {
    let (open, _node, bench, mut first, mut other) = lent();
    let stopped = bench.shared.stats.snapshot().bytes_out;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| first.read_response(false).body.len());
        // It reads as fast as it can, and the other has the place.
        for _ in 0..100 {
            assert_eq!(bench.client().get("/else").text(), "0");
            let it = throttle(&bench);
            assert_eq!((it.in_flight, it.lent, it.counters.ended), (1, 1, 0));
        }
        open.send(()).unwrap();
        assert_eq!(other.read_response(false).text(), "0");
        assert_eq!(reader.join().unwrap(), LARGE);
    });
    assert!(bench.settled().bytes_out >= stopped + LARGE as u64);
    settled(&bench);
}

#[test]
fn a_client_that_keeps_up_keeps_its_place() {
    let node = node(None);
    let bench = Bench::with(&[node.address], |it| {
        config(it);
        it.timeouts.throttled_idle = LONG;
        it.limits.throttled_rate = 0;
    });
    one_at_a_time(&bench);
    let mut first = unread(&bench);
    let mut other = bench.client();
    ask(&mut other, "/one/small");
    until("the other waits", || throttle(&bench).waiting == 1);
    let mut some = vec![0; LARGE / 2];
    first.reader.read_exact(&mut some).unwrap();
    let it = throttle(&bench);
    assert_eq!((it.in_flight, it.lent, it.waiting), (1, 0, 1));
    std::io::copy(
        &mut first.reader.by_ref().take(1 << 25),
        &mut std::io::sink(),
    )
    .unwrap();
    assert_eq!(other.read_response(false).text(), "0");
    settled(&bench);
}

/// A client that has asked with a body, and holds the last of it back.
fn unsent(bench: &Bench, framing: &str, begin: &str) -> Peer {
    let mut client = bench.client();
    let passed = throttle(bench).counters.passed;
    client.send(&format!(
        "POST /one/gated HTTP/1.1\r\nhost: shop.example\r\n{framing}\r\n\r\n{begin}"
    ));
    until("it is in flight", || {
        throttle(bench).counters.passed == passed + 1
    });
    client
}

#[test]
fn clients_that_send_nothing_hold_no_place_and_their_nodes_get_no_end_without_one() {
    for (framing, begin, end) in [
        ("content-length: 4", "ab", "cd"),
        ("transfer-encoding: chunked", "4\r\nabcd\r\n", "0\r\n\r\n"),
        (
            "transfer-encoding: chunked\r\ntrailer: x",
            "4\r\nabcd\r\n",
            "0\r\nx: y\r\n\r\n",
        ),
    ] {
        let (open, gate) = channel();
        let node = node(Some(gate));
        let bench = Bench::with(&[node.address], config);
        one_at_a_time(&bench);
        let mut first = unsent(&bench, framing, begin);
        let mut other = bench.client();
        ask(&mut other, "/one/gated");
        until("the other has its turn", || {
            throttle(&bench).counters.passed == 2
        });
        first.send(end);
        for _ in 0..100 {
            assert_eq!(bench.client().get("/else").text(), "0");
            let it = throttle(&bench);
            assert_eq!((it.in_flight, it.lent), (1, 1), "{framing}");
        }
        // The gate is for either of them: the first has no place, so it cannot have come to it.
        open.send(()).unwrap();
        assert_eq!(other.read_response(false).text(), "0");
        open.send(()).unwrap();
        assert_eq!(first.read_response(false).text(), "4", "{framing}");
        settled(&bench);
    }
}

/// Each of them alone would hold the place for a second and a half.
#[test]
fn a_crowd_of_clients_that_stand_still_holds_up_the_next_for_once() {
    let node = node(None);
    let bench = Bench::with(&[node.address], |it| {
        config(it);
        it.timeouts.throttled_idle = Duration::from_millis(1500);
    });
    one_at_a_time(&bench);
    let heads = [
        "POST /one/small HTTP/1.1\r\nhost: shop.example\r\ncontent-length: 4\r\n\r\nab",
        "POST /one/small HTTP/1.1\r\nhost: shop.example\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n",
        "GET /one/large HTTP/1.1\r\nhost: shop.example\r\n\r\n",
    ];
    let silent: Vec<_> = (0..64)
        .map(|number| {
            let mut client = bench.client();
            // Few that read nothing: what they do not read is in memory.
            let head = if number % 16 == 2 { 2 } else { number % 2 };
            client.send(heads[head]);
            until("it has come", || {
                throttle(&bench).counters.arrived == number as u64 + 1
            });
            client
        })
        .collect();
    let mut honest = bench.client();
    ask(&mut honest, "/one/small");
    until("it has its turn", || throttle(&bench).counters.passed == 65);
    assert_eq!(honest.read_response(false).text(), "0");
    let it = throttle(&bench);
    assert_eq!((it.lent + it.in_flight, it.waiting), (64, 0));
    drop(silent);
    settled(&bench);
}

#[test]
fn a_release_gives_whoever_waits_for_a_place_its_way() {
    let (open, _node, bench, mut first, mut other) = lent();
    bench.shared.throttles.release("* /one/*", clock()).unwrap();
    assert_eq!(first.read_response(false).body.len(), LARGE);
    open.send(()).unwrap();
    assert_eq!(other.read_response(false).text(), "0");
    bench.settled();
}

#[test]
fn a_paced_answer_is_no_way_round_the_least_rate() {
    let node = node(None);
    let bench = Bench::with(&[node.address], |config| {
        config.timeouts.body_idle = Duration::from_secs(1);
        config.limits.body_rate = 1 << 40;
    });
    let limits = ThrottleLimits {
        bandwidth: Some(1 << 30),
        ..ThrottleLimits::default()
    };
    set_limits(&bench, limits);
    let mut client = unread(&bench);
    // Two thousand reads, a millisecond apart, are longer than that. Forty of them make room for the front-end to write
    // again: on the busiest machine these are no second, in which the client would have stood still.
    let mut some = vec![0; 1 << 15];
    until("it is cut off", || {
        drop(client.reader.get_mut().read(&mut some));
        bench.snapshot().reason(Reason::AnswerSlow) == 1
    });
}
