//! Throttled classes: they are held and still complete, others are not, and nothing is left behind.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use common::{Bench, Gated, Message, Node, Peer, ask, clock, ok, until};
use tidegate_core::admission::{AdmissionConfig, AdmissionKind, Rank};
use tidegate_core::throttle::{Marks, SetBy, Throttle, ThrottleLimits};
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{NodeId, SiteId};
use tidegate_proxy::{LogFormat, LogTarget, Reason};

const CLASS: &str = "GET /slow/*";
const LONG: Duration = Duration::from_secs(600);

fn set(bench: &Bench, limits: ThrottleLimits, last: Option<Duration>) {
    let now = clock();
    let until = last.map(|last| now + last);
    let pattern = CLASS.parse().expect("a pattern");
    let set = (bench.shared.throttles).set(pattern, limits, SetBy::Operator, until, now);
    set.expect("limits that make sense");
}

fn one_at_a_time() -> ThrottleLimits {
    ThrottleLimits {
        concurrency: Some(1),
        ..ThrottleLimits::default()
    }
}

fn throttle(bench: &Bench) -> Throttle {
    bench.shared.throttles.all().remove(0)
}

fn release(bench: &Bench) -> Throttle {
    let released = bench.shared.throttles.release(CLASS, clock());
    released.expect("the class is throttled")
}

/// All have ended, and the throttle's books balance.
fn settled(bench: &Bench) {
    bench.settled();
    until("the throttle is empty", || {
        let it = throttle(bench);
        it.in_flight == 0 && it.waiting == 0
    });
    let it = throttle(bench).counters;
    assert_eq!(it.arrived, it.passed + it.rejected + it.left);
    assert_eq!(it.passed, it.ended);
}

/// So many clients, each of which has asked; the first has gone on, the others are held.
fn held(bench: &Bench, count: u64) -> Vec<Peer> {
    let mut clients = Vec::new();
    for number in 0..count {
        let mut client = bench.client();
        ask(&mut client, &format!("/slow/{number}"));
        clients.push(client);
        until("it has come to the throttle", || {
            throttle(bench).counters.arrived == number + 1
        });
    }
    clients
}

#[test]
fn who_is_held_goes_in_order_and_others_pass_by() {
    let gated = Gated::new();
    let bench = Bench::with(&[gated.node.address], |config| config.workers = 2);
    set(&bench, one_at_a_time(), None);
    // Clients come to either worker, and have their turns all the same.
    let mut clients = held(&bench, 6);
    let it = throttle(&bench);
    assert_eq!((it.in_flight, it.waiting, it.counters.held), (1, 5, 5));
    assert_eq!(bench.in_flight(), 1, "who is held is at no node");
    for _ in 0..8 {
        assert_eq!(bench.client().get("/now").status(), 200);
    }
    assert_eq!(throttle(&bench).counters.arrived, 6);
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(throttle(&bench).waiting, 5 - number as u64);
        gated.open();
        assert_eq!(client.read_response(false).status(), 200);
        until("the next has gone on", || {
            throttle(&bench).counters.passed == (number as u64 + 2).min(6)
        });
    }
    settled(&bench);
    assert!(throttle(&bench).counters.delayed > Duration::ZERO);
}

#[test]
fn a_request_that_is_held_keeps_its_body() {
    let (open, gate) = channel::<()>();
    let gate = Mutex::new(gate);
    let node = Node::answering(move |request: &Message| {
        gate.lock().map(|gate| gate.recv().ok()).ok();
        ok(&request.body.len().to_string())
    });
    let bench = Bench::new(&[node.address]);
    let class = "POST /upload".parse().unwrap();
    let throttles = &bench.shared.throttles;
    throttles
        .set(class, one_at_a_time(), SetBy::Config, None, clock())
        .unwrap();
    let body = "x".repeat(300_000);
    let mut clients = Vec::new();
    for number in 1..=2 {
        let mut client = bench.client();
        let length = body.len();
        client.send(&format!(
            "POST /upload HTTP/1.1\r\nhost: shop.example\r\ncontent-length: {length}\r\n\r\n"
        ));
        clients.push(client);
        until("it has come", || {
            throttle(&bench).counters.arrived == number
        });
    }
    for client in &mut clients {
        client.send(&body);
        open.send(()).unwrap();
        assert_eq!(client.read_response(false).text(), "300000");
    }
    settled(&bench);
    assert_eq!(throttle(&bench).counters.held, 1);
}

#[test]
fn release_sets_them_free() {
    let gated = Gated::new();
    let bench = Bench::with(&[gated.node.address], |config| config.workers = 2);
    set(&bench, one_at_a_time(), None);
    let mut clients = held(&bench, 5);
    assert_eq!(release(&bench).waiting, 4);
    until("all are at the node", || bench.in_flight() == 5);
    for _ in 0..5 {
        gated.open();
    }
    for client in &mut clients {
        assert_eq!(client.read_response(false).status(), 200);
    }
    bench.settled();
    assert!(bench.shared.throttles.all().is_empty());
}

#[test]
fn a_throttle_ends_by_itself() {
    let gated = Gated::new();
    let bench = Bench::new(&[gated.node.address]);
    set(&bench, one_at_a_time(), None);
    let mut clients = held(&bench, 3);
    set(&bench, one_at_a_time(), Some(Duration::from_millis(20)));
    until("all are at the node", || bench.in_flight() == 3);
    // Whichever the node lets go first.
    for _ in 0..3 {
        gated.open();
    }
    for client in &mut clients {
        assert_eq!(client.read_response(false).status(), 200);
    }
    bench.settled();
    let ended = bench.shared.throttles.poll_ended(clock()).unwrap();
    assert_eq!((ended.pattern.name(), ended.waiting), (CLASS, 2));
    assert_eq!(bench.shared.throttles.poll_ended(clock()), None);
}

#[test]
fn who_leaves_while_it_is_held_leaves_nothing_behind() {
    let gated = Gated::new();
    let bench = Bench::new(&[gated.node.address]);
    set(&bench, one_at_a_time(), None);
    let mut clients = held(&bench, 3);
    drop(clients.remove(1));
    until("it has left", || throttle(&bench).counters.left == 1);
    assert_eq!(throttle(&bench).waiting, 1);
    for client in &mut clients {
        gated.open();
        assert_eq!(client.read_response(false).status(), 200);
    }
    settled(&bench);
    assert_eq!(bench.snapshot().reason(Reason::ClientGone), 1);
    // One that leaves while it is at the node makes room too.
    let mut clients = vec![bench.client(), bench.client()];
    for (number, client) in clients.iter_mut().enumerate() {
        ask(client, "/slow/again");
        until("it is there", || {
            throttle(&bench).counters.arrived == 4 + number as u64
        });
    }
    drop(clients.remove(0));
    until("the other goes on", || {
        throttle(&bench).counters.passed == 4
    });
    gated.open();
    gated.open();
    assert_eq!(clients[0].read_response(false).status(), 200);
    settled(&bench);
}

#[test]
fn whoever_may_not_wait_longer_is_told_to_come_again() {
    let gated = Gated::new();
    let bench = Bench::new(&[gated.node.address]);
    let limits = ThrottleLimits {
        queue: Some(Duration::from_millis(20)),
        ..one_at_a_time()
    };
    set(&bench, limits, None);
    let mut clients = held(&bench, 2);
    let answer = clients[1].read_response(false);
    assert_eq!((answer.status(), answer.reason()), (429, Some("throttled")));
    assert!(answer.get("retry-after").is_some());
    assert_eq!(clients[1].get("/now").status(), 200, "the connection stays");
    gated.open();
    assert_eq!(clients[0].read_response(false).status(), 200);
    settled(&bench);
    assert_eq!(bench.snapshot().reason(Reason::Throttled), 1);
}

#[test]
fn the_log_has_the_wait_of_requests_that_were_refused_at_a_throttle() {
    let path = std::env::temp_dir().join(format!("tidegate-throttled-{}.log", std::process::id()));
    let gated = Gated::new();
    let mut bench = Bench::with(&[gated.node.address], |config| {
        config.log.format = LogFormat::Json;
        config.log.target = LogTarget::File(path.clone());
    });
    let queue = Duration::from_millis(20);
    let limits = ThrottleLimits {
        queue: Some(queue),
        ..one_at_a_time()
    };
    set(&bench, limits, None);
    let mut clients = held(&bench, 2);
    assert_eq!(clients[1].read_response(false).status(), 429);
    gated.open();
    assert_eq!(clients[0].read_response(false).status(), 200);
    settled(&bench);
    drop(bench.proxy.take());
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let line = text
        .lines()
        .find(|it| it.contains("\"throttled\""))
        .unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert!(line["queue_us"].as_u64().unwrap() >= queue.as_micros() as u64);
    assert_eq!(line["queue_us"], line["duration_us"], "{line}");
    assert_eq!(line["held_us"], line["queue_us"], "{line}");
}

#[test]
fn a_rate_lets_all_of_them_through_in_the_end() {
    let node = Node::ok();
    let bench = Bench::new(&[node.address]);
    let limits = ThrottleLimits {
        rate: Some(10.0),
        ..ThrottleLimits::default()
    };
    set(&bench, limits, None);
    let mut clients = held(&bench, 4);
    for client in &mut clients {
        assert_eq!(client.read_response(false).status(), 200);
    }
    settled(&bench);
    assert_eq!(throttle(&bench).counters.passed, 4);
}

/// How far the clock of [`a_late_clock`] is ahead, milliseconds.
static AHEAD: AtomicU64 = AtomicU64::new(0);
/// When that clock was looked at first.
static STARTED: OnceLock<Timestamp> = OnceLock::new();

/// A clock that stands, but for what it is set ahead.
fn a_late_clock() -> Timestamp {
    let ahead = Duration::from_millis(AHEAD.load(Ordering::SeqCst));
    *STARTED.get_or_init(clock) + ahead
}

/// One request of the class at a time, whose answers take a second and more; the second of three has been refused
/// by admission, and the third is held.
fn refused_and_held(gated: &Gated) -> (Bench, Peer) {
    let admission = AdmissionConfig {
        queue: 0,
        ..AdmissionConfig::new(AdmissionKind::Adaptive)
    };
    let bench = Bench::admitting_with(&[gated.node.address], admission, |config| {
        config.clock = a_late_clock;
    });
    set(&bench, one_at_a_time(), None);
    let mut clients = held(&bench, 3);
    until("the first is at the node", || bench.in_flight() == 1);
    bench.shared.table.set_limits(NodeId(0), [0.0; Rank::COUNT]);
    AHEAD.fetch_add(1500, Ordering::SeqCst);
    gated.open();
    assert_eq!(clients[0].read_response(false).status(), 200);
    let refused = clients[1].read_response(false);
    assert_eq!(
        (refused.status(), refused.reason()),
        (503, Some("queue_full"))
    );
    let last = clients.pop();
    (bench, last.expect("three have asked"))
}

#[test]
fn a_request_that_admission_refuses_leaves_its_place_taken_for_a_while() {
    let gated = Gated::new();
    let (bench, mut last) = refused_and_held(&gated);
    until("its place is taken, and that is all", || {
        let it = throttle(&bench);
        (it.in_flight, it.waiting, bench.in_flight()) == (1, 1, 0)
    });
    // There is room again before the pause is over.
    bench.shared.table.set_limits(NodeId(0), [1.0; Rank::COUNT]);
    gated.open();
    AHEAD.fetch_add(1000, Ordering::SeqCst);
    assert_eq!(last.read_response(false).status(), 200);
    settled(&bench);
    // A release ends it as well.
    let (bench, mut last) = refused_and_held(&gated);
    bench.shared.table.set_limits(NodeId(0), [1.0; Rank::COUNT]);
    gated.open();
    release(&bench);
    assert_eq!(last.read_response(false).status(), 200);
    // And so does the proxy.
    let (mut bench, last) = refused_and_held(&gated);
    let drained = bench.proxy.take().expect("it runs").drain(Duration::ZERO);
    assert!(drained.cut >= 1, "{drained:?}");
    settled(&bench);
    assert_eq!(throttle(&bench).counters.passed, 2);
    drop(last);
}

#[test]
fn a_throttled_request_takes_no_slot_while_the_throttle_stands() {
    let gated = Gated::new();
    let admission = AdmissionConfig {
        slo: LONG,
        ..AdmissionConfig::new(AdmissionKind::Adaptive)
    };
    let bench = Bench::admitting(&[gated.node.address], admission);
    let table = &bench.shared.table;
    table.set_limits(NodeId(0), [1.0; Rank::COUNT]);
    table.accounts().set_most(SiteId(0), 4);
    let throttled = || (bench.in_flight(), table.accounts().in_flight(NodeId(0)));
    set(&bench, one_at_a_time(), None);
    let mut clients = held(&bench, 2);
    until("it has an account of its own", || throttled() == (1, 1));
    assert_eq!(bench.client().get("/now").status(), 200);
    // The second goes on as the throttle ends, as any request does.
    release(&bench);
    until("both are there", || throttled() == (2, 1));
    clients.iter().for_each(|_| gated.open());
    for client in &mut clients {
        assert_eq!(client.read_response(false).status(), 200);
    }
    until("nothing is left", || throttled() == (0, 0));
    bench.settled();
}

#[test]
fn a_proxy_that_stops_lets_go_of_whoever_is_held() {
    let gated = Gated::new();
    let mut bench = Bench::with(&[gated.node.address], |config| config.workers = 2);
    set(&bench, one_at_a_time(), None);
    let clients = held(&bench, 4);
    let drained = bench.proxy.take().unwrap().drain(Duration::ZERO);
    assert_eq!(drained.cut, 4);
    settled(&bench);
    let it = throttle(&bench).counters;
    assert_eq!((it.arrived, it.rejected), (4, 0));
    drop(clients);
}

/// A node whose answers to `/slow/…` are long.
fn large(bytes: usize) -> (Node, Vec<u8>) {
    let body: Vec<u8> = (0..bytes).map(|at| b'a' + (at % 23) as u8).collect();
    let long = body.clone();
    let node = Node::answering(move |request: &Message| {
        if !request.start.contains("/slow/") {
            return ok("short");
        }
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", long.len());
        [head.as_bytes(), &long].concat()
    });
    (node, body)
}

fn bandwidth(bytes: u64) -> ThrottleLimits {
    ThrottleLimits {
        bandwidth: Some(bytes),
        ..ThrottleLimits::default()
    }
}

#[test]
fn a_body_comes_whole_piece_by_piece() {
    let (node, body) = large(300_000);
    let bench = Bench::new(&[node.address]);
    set(&bench, bandwidth(4 << 20), None);
    let mut client = bench.client();
    for _ in 0..2 {
        assert_eq!(client.get("/slow/1").body, body);
    }
    settled(&bench);
    let it = throttle(&bench).counters;
    assert_eq!(it.paced_bytes, 2 * body.len() as u64);
    assert_eq!(node.connections(), 1, "the connection was kept");
}

#[test]
fn a_body_that_waits_goes_on_when_the_order_changes_or_ends() {
    let (node, body) = large(1 << 20);
    let bench = Bench::new(&[node.address]);
    set(&bench, bandwidth(1 << 10), None);
    let mut client = bench.client();
    ask(&mut client, "/slow/1");
    until("it waits", || {
        throttle(&bench).counters.paced > Duration::ZERO
    });
    assert_eq!(bench.client().get("/other").text(), "short");
    // A quarter of an hour otherwise.
    set(&bench, bandwidth(1 << 30), None);
    assert_eq!(client.read_response(false).body, body);
    set(&bench, bandwidth(1 << 10), None);
    ask(&mut client, "/slow/1");
    let before = throttle(&bench).counters.paced;
    until("it waits", || throttle(&bench).counters.paced > before);
    release(&bench);
    assert_eq!(client.read_response(false).body, body);
    bench.settled();
}

#[test]
fn marked_connections_are_for_requests_with_the_same_marks() {
    let node = Node::ok();
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    let mut get = |path: &str| {
        assert_eq!(client.get(path).status(), 200);
        node.connections()
    };
    let marked = |priority| ThrottleLimits {
        marks: Marks {
            priority: Some(priority),
            ..Marks::NONE
        },
        ..ThrottleLimits::default()
    };
    assert_eq!(get("/"), 1);
    set(&bench, marked(3), None);
    assert_eq!(get("/slow/1"), 2);
    assert_eq!((get("/"), get("/slow/1")), (2, 2), "each has its own");
    set(&bench, marked(4), None);
    assert_eq!(get("/slow/1"), 3);
    assert_eq!(get("/"), 3);
    release(&bench);
    assert_eq!(get("/slow/1"), 3, "it is like any other again");
    assert_eq!(bench.shared.throttles.unmarked(), None);
}

#[test]
fn a_class_that_gives_way_goes_behind_all_others() {
    let (seen, order) = channel();
    let seen = Arc::new(Mutex::new(seen));
    let (open, gate) = channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let node = Node::answering(move |request: &Message| {
        seen.lock().unwrap().send(request.start.clone()).unwrap();
        gate.lock().unwrap().recv().ok();
        ok("served")
    });
    let admission = AdmissionConfig {
        slo: LONG,
        ..AdmissionConfig::new(AdmissionKind::Adaptive)
    };
    let bench = Bench::admitting(&[node.address], admission);
    bench.shared.table.set_limits(NodeId(0), [1.0; Rank::COUNT]);
    let gives_way = ThrottleLimits {
        lowest_priority: true,
        ..ThrottleLimits::default()
    };
    set(&bench, gives_way, None);
    let paths = ["/first", "/slow/1", "/other"];
    let mut clients = Vec::new();
    for (number, path) in paths.iter().enumerate() {
        let mut client = bench.client();
        ask(&mut client, path);
        clients.push(client);
        until("it is at the node, or waits", || {
            let waits = bench.shared.table.found_no_room(SiteId(0));
            bench.in_flight() == 1 && waits == number as u64
        });
    }
    for _ in &paths {
        open.send(()).unwrap();
    }
    for client in &mut clients {
        assert_eq!(client.read_response(false).status(), 200);
    }
    let order: Vec<_> = order.try_iter().collect();
    assert!(
        order[1].contains("/other") && order[2].contains("/slow/1"),
        "{order:?}"
    );
    settled(&bench);
}
