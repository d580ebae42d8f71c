//! The causal test: half of a class is held and still completes, others are not touched, and nothing
//! is left behind.

mod common;

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Bench, Gated, Message, Node, PATIENCE, Peer, TEST_HELD_MAX, ask, clock, ok, until};
use tidegate_core::culprits::dither::{Refusal, Toss};
use tidegate_core::throttle::{Order, SetBy};
use tidegate_proxy::{DitherCounters, DitherError, Reason, Tosses};

const CLASS: &str = "GET /slow/*";
/// Most tosses that wait to be read.
const TOSSES_MAX: usize = 4096;
/// So long that only the end of the test ends it.
const LONG: Duration = Duration::from_secs(600);

fn begin(bench: &Bench, class: &str, hold: Duration) -> Result<Tosses, DitherError> {
    let pattern = class.parse().expect("a pattern");
    bench
        .shared
        .dithering
        .begin(pattern, hold, clock() + 2 * LONG)
}

fn counters(bench: &Bench) -> DitherCounters {
    bench.shared.dithering.counters()
}

/// A node that tells which requests came, in order.
fn told() -> (Node, Receiver<String>) {
    let (sender, seen) = channel();
    let sender = Arc::new(Mutex::new(sender));
    let node = Node::answering(move |request: &Message| {
        let line = request.start.trim_end_matches(" HTTP/1.1").to_owned();
        let sender = sender.lock().map(|sender| sender.clone());
        sender.map(|sender| sender.send(line).ok()).ok();
        ok("served")
    });
    (node, seen)
}

/// A client that has asked for a path of the class, and what was tossed for it.
fn asked(bench: &Bench, tosses: &mut Tosses, path: &str) -> (Peer, Toss) {
    let mut client = bench.client();
    ask(&mut client, path);
    let mut toss = None;
    until("it is tossed for", || {
        toss = tosses.take().next();
        toss.is_some()
    });
    (client, toss.expect("a toss"))
}

/// So many clients that are held; those that are not have been answered.
fn held(bench: &Bench, tosses: &mut Tosses, count: usize) -> Vec<Peer> {
    let mut held = Vec::new();
    while held.len() < count {
        let (mut client, toss) = asked(bench, tosses, "/slow/1");
        if toss.held {
            held.push(client);
        } else {
            assert_eq!(client.read_response(false).status(), 200);
        }
    }
    until("the last is held", || {
        counters(bench).waiting == count as u64
    });
    held
}

#[test]
fn half_of_the_class_is_held_and_others_pass_by() {
    let (node, seen) = told();
    for workers in [1, 2] {
        let bench = Bench::with(&[node.address], |config| config.workers = workers);
        let mut tosses = begin(&bench, CLASS, LONG).expect("a test");
        assert_eq!(bench.shared.dithering.class().as_deref(), Some(CLASS));
        let (mut held, mut passed) = (Vec::new(), Vec::new());
        for number in 0..40 {
            let path = format!("/slow/{number}");
            let (mut client, toss) = asked(&bench, &mut tosses, &path);
            if toss.held {
                held.push((client, format!("GET {path}")));
            } else {
                assert_eq!(client.read_response(false).status(), 200);
                passed.push(format!("GET {path}"));
            }
        }
        // A coin of one worker falls as its seed says; with two, the kernel chooses whose it is.
        let enough = if workers == 1 { 12 } else { 1 };
        assert!(
            held.len() >= enough && passed.len() >= enough,
            "{}",
            held.len()
        );
        assert_eq!(bench.in_flight(), 0, "who is held is at no node");
        let mut other = bench.client();
        other.send("POST /slow/1 HTTP/1.1\r\nhost: shop.example\r\ncontent-length: 2\r\n\r\nab");
        assert_eq!(other.read_response(false).status(), 200);
        assert_eq!(other.get("/other").status(), 200);
        assert_eq!(tosses.take().count(), 0, "others are not tossed for");
        passed.extend(["POST /slow/1".to_owned(), "GET /other".to_owned()]);
        assert_eq!(seen.try_iter().collect::<Vec<_>>(), passed);
        until("the last is held", || {
            counters(&bench).waiting == held.len() as u64
        });
        let count = counters(&bench);
        assert_eq!(count.held, count.waiting);
        assert_eq!((count.not_held, count.left_out), (40 - count.held, 0));
        // The end of the test sets them free.
        drop(tosses);
        let mut late = Vec::new();
        for (mut client, line) in held {
            assert_eq!(client.read_response(false).status(), 200);
            late.push(line);
        }
        let mut then: Vec<_> = seen.try_iter().collect();
        then.sort();
        late.sort();
        assert_eq!(then, late);
        bench.settled();
        assert_eq!(counters(&bench).waiting, 0);
    }
}

#[test]
fn a_hold_ends_by_itself_and_is_in_the_books() {
    let hold = Duration::from_millis(20);
    let node = Node::ok();
    let bench = Bench::with(&[node.address], |config| {
        config.workers = 1;
        config.log.recent = 100;
    });
    let mut tosses = begin(&bench, "* /slow/*", hold).expect("a test");
    let mut client = bench.client();
    for _ in 0..30 {
        assert_eq!(client.get("/slow/1").status(), 200);
    }
    assert_eq!(client.get("/other").status(), 200);
    bench.settled();
    let tossed: Vec<_> = tosses.take().map(|it| (it.at, it.held)).collect();
    let recent = bench.shared.stats.recent();
    let books = recent.iter().map(|it| (it.at, it.tested.is_some()));
    assert_eq!(books.take(30).collect::<Vec<_>>(), tossed);
    assert_eq!(recent[30].tested, None);
    assert!(tossed.iter().any(|(_, held)| *held));
    assert!(
        recent
            .iter()
            .all(|it| it.tested.is_none_or(|it| it >= hold))
    );
}

#[test]
fn whoever_leaves_while_it_is_held_leaves_nothing_behind() {
    let (node, seen) = told();
    let bench = Bench::new(&[node.address]);
    let mut tosses = begin(&bench, CLASS, LONG).expect("a test");
    let mut held = held(&bench, &mut tosses, 2);
    seen.try_iter().for_each(drop);
    held.remove(0);
    until("it has left", || counters(&bench).waiting == 1);
    drop(tosses);
    assert_eq!(held[0].read_response(false).status(), 200);
    bench.settled();
    let lines: Vec<_> = seen.try_iter().collect();
    assert_eq!(lines, ["GET /slow/1"], "one has not come");
    assert_eq!(bench.snapshot().reason(Reason::ClientGone), 1);
    assert_eq!(counters(&bench).waiting, 0);
}

#[test]
fn without_a_test_nobody_is_held() {
    let node = Node::ok();
    let bench = Bench::with(&[node.address], |config| config.workers = 1);
    let mut client = bench.client();
    let mut get = || {
        for _ in 0..20 {
            assert_eq!(client.get("/slow/1").status(), 200);
        }
    };
    get();
    assert_eq!(counters(&bench), DitherCounters::default());
    let tosses = begin(&bench, CLASS, LONG).expect("a test");
    assert_eq!(
        begin(&bench, "GET /other", LONG).err(),
        Some(DitherError::Running)
    );
    drop(tosses);
    get();
    // A test whose time is over holds no request, even if it is not ended.
    let pattern = CLASS.parse().expect("a pattern");
    let over = bench.shared.dithering.begin(pattern, LONG, clock());
    let mut over = over.expect("a test");
    get();
    assert_eq!(over.take().count(), 0);
    drop(over);
    assert_eq!(counters(&bench), DitherCounters::default());
    assert_eq!(bench.shared.dithering.class(), None);
}

#[test]
fn what_is_not_idempotent_is_not_tested() {
    let node = Node::ok();
    let bench = Bench::new(&[node.address]);
    let refused = Some(DitherError::Refused(Refusal::NotIdempotent));
    for class in ["POST /slow/*", "PATCH /slow/*", "MOVE /slow/*"] {
        assert_eq!(begin(&bench, class, LONG).err(), refused, "{class}");
    }
    let mut tosses = begin(&bench, "* /slow/*", LONG).expect("a test");
    let mut client = bench.client();
    for method in ["POST", "PATCH", "MOVE"] {
        let head = format!("{method} /slow/1 HTTP/1.1\r\nhost: shop.example\r\n");
        client.send(&(head + "content-length: 2\r\n\r\nab"));
        assert_eq!(client.read_response(false).status(), 200);
    }
    assert_eq!(tosses.take().count(), 0);
    assert_eq!(counters(&bench), DitherCounters::default());
}

#[test]
fn a_drain_ends_the_hold() {
    let (node, seen) = told();
    let mut bench = Bench::with(&[node.address], |config| config.workers = 2);
    let mut tosses = begin(&bench, CLASS, LONG).expect("a test");
    let mut held = held(&bench, &mut tosses, 3);
    seen.try_iter().for_each(drop);
    let drained = bench.proxy.take().expect("a proxy").drain(PATIENCE);
    assert_eq!((drained.finished, drained.cut), (3, 0));
    assert_eq!(seen.try_iter().count(), 3);
    for client in &mut held {
        assert_eq!(client.read_response(false).status(), 200);
    }
    assert_eq!(counters(&bench).waiting, 0);
}

#[test]
fn a_proxy_that_stops_at_once_lets_go_of_whoever_is_held() {
    let node = Node::ok();
    let mut bench = Bench::with(&[node.address], |config| config.workers = 2);
    let mut tosses = begin(&bench, CLASS, LONG).expect("a test");
    let _clients = held(&bench, &mut tosses, 3);
    drop(bench.proxy.take());
    bench.settled();
    assert_eq!(counters(&bench).waiting, 0);
}

#[test]
fn no_more_are_held_than_may_be() {
    let node = Node::ok();
    let bench = Bench::with(&[node.address], |config| config.workers = 1);
    let mut tosses = begin(&bench, CLASS, LONG).expect("a test");
    let _clients = held(&bench, &mut tosses, TEST_HELD_MAX);
    let mut client = bench.client();
    for _ in 0..10 {
        assert_eq!(client.get("/slow/1").status(), 200);
    }
    assert_eq!(tosses.take().count(), 0);
    assert_eq!(counters(&bench).left_out, 10);
}

#[test]
fn tosses_that_nobody_takes_hold_nobody_any_more() {
    let node = Node::ok();
    let bench = Bench::with(&[node.address], |config| config.workers = 1);
    let mut tosses = begin(&bench, CLASS, Duration::ZERO).expect("a test");
    let mut client = bench.client();
    for _ in 0..TOSSES_MAX + 5 {
        assert_eq!(client.get("/slow/1").status(), 200);
    }
    assert_eq!(counters(&bench).left_out, 5);
    let taken = tosses.take().count();
    assert_eq!(taken, TOSSES_MAX);
    let tossed = counters(&bench);
    assert_eq!(tossed.held + tossed.not_held, taken as u64);
    assert_eq!(client.get("/slow/1").status(), 200);
    assert_eq!(tosses.take().count(), 1, "there is room again");
}

#[test]
fn a_throttled_class_is_tossed_for_when_its_turn_comes() {
    let gated = Gated::new();
    let bench = Bench::with(&[gated.node.address], |config| config.workers = 1);
    let order = Order {
        concurrency: Some(1),
        ..Order::default()
    };
    let throttles = &bench.shared.throttles;
    let class = CLASS.parse().expect("a pattern");
    throttles
        .set(class, order, SetBy::Operator, None, clock())
        .expect("an order that makes sense");
    let arrived = || throttles.all()[0].counters.arrived;
    let mut clients = Vec::new();
    for number in 1..=2 {
        let mut client = bench.client();
        ask(&mut client, &format!("/slow/{number}"));
        clients.push(client);
        until("it has come to the throttle", || arrived() == number);
    }
    let mut tosses = begin(&bench, CLASS, LONG).expect("a test");
    let begun = clock();
    gated.open();
    assert_eq!(clients[0].read_response(false).status(), 200);
    let mut toss = None;
    until("the second is tossed for", || {
        toss = tosses.take().next();
        toss.is_some()
    });
    assert!(toss.is_some_and(|it| it.at >= begun), "{toss:?}");
    // Held or not, it has the throttle's place.
    assert_eq!(throttles.all()[0].in_flight, 1);
    drop(tosses);
    gated.open();
    assert_eq!(clients[1].read_response(false).status(), 200);
    bench.settled();
    until("the throttle is empty", || {
        throttles.all()[0].in_flight == 0
    });
}
