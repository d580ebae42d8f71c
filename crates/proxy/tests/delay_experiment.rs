//! The delay experiment: half of a class is delayed and still completes, others are not touched, and nothing
//! is left behind.

mod common;

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Bench, Gated, Message, Node, PATIENCE, Peer, TEST_HELD_MAX, ask, clock, ok, until};
use tidegate_core::culprits::delay_experiment::{Assignment, DelayRefusal};
use tidegate_core::throttle::{SetBy, ThrottleLimits};
use tidegate_proxy::{Assignments, DelayExperimentCounters, DelayExperimentError, Reason};

const CLASS: &str = "GET /slow/*";
/// Most assignments that wait to be read.
const ASSIGNMENTS_MAX: usize = 4096;
/// So long that only the end of the experiment ends it.
const LONG: Duration = Duration::from_secs(600);

fn begin(bench: &Bench, class: &str, delay: Duration) -> Result<Assignments, DelayExperimentError> {
    let pattern = class.parse().expect("a pattern");
    bench
        .shared
        .delay_experiments
        .begin(pattern, delay, clock() + 2 * LONG)
}

fn counters(bench: &Bench) -> DelayExperimentCounters {
    bench.shared.delay_experiments.counters()
}

/// A node that reports which requests came, in order.
fn recording() -> (Node, Receiver<String>) {
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

/// A client that has asked for a path of the class, and what was assigned it.
fn asked(bench: &Bench, assignments: &mut Assignments, path: &str) -> (Peer, Assignment) {
    let mut client = bench.client();
    ask(&mut client, path);
    let mut assignment = None;
    until("it is assigned", || {
        assignment = assignments.take().next();
        assignment.is_some()
    });
    (client, assignment.expect("a assignment"))
}

/// So many clients that are delayed; those that are not have been answered.
fn delayed(bench: &Bench, assignments: &mut Assignments, count: usize) -> Vec<Peer> {
    let mut delayed = Vec::new();
    while delayed.len() < count {
        let (mut client, assignment) = asked(bench, assignments, "/slow/1");
        if assignment.delayed {
            delayed.push(client);
        } else {
            assert_eq!(client.read_response(false).status(), 200);
        }
    }
    until("the last is delayed", || {
        counters(bench).delayed_now == count as u64
    });
    delayed
}

#[test]
fn half_of_the_class_is_held_and_others_pass_by() {
    let (node, seen) = recording();
    for workers in [1, 2] {
        let bench = Bench::with(&[node.address], |config| config.workers = workers);
        let mut assignments = begin(&bench, CLASS, LONG).expect("an experiment");
        assert_eq!(
            bench.shared.delay_experiments.class().as_deref(),
            Some(CLASS)
        );
        let (mut delayed, mut passed) = (Vec::new(), Vec::new());
        for number in 0..40 {
            let path = format!("/slow/{number}");
            let (mut client, assignment) = asked(&bench, &mut assignments, &path);
            if assignment.delayed {
                delayed.push((client, format!("GET {path}")));
            } else {
                assert_eq!(client.read_response(false).status(), 200);
                passed.push(format!("GET {path}"));
            }
        }
        // One worker assigns as its seed says; with two, the kernel chooses which.
        let enough = if workers == 1 { 12 } else { 1 };
        assert!(
            delayed.len() >= enough && passed.len() >= enough,
            "{}",
            delayed.len()
        );
        assert_eq!(bench.in_flight(), 0, "who is delayed is at no node");
        let mut other = bench.client();
        other.send("POST /slow/1 HTTP/1.1\r\nhost: shop.example\r\ncontent-length: 2\r\n\r\nab");
        assert_eq!(other.read_response(false).status(), 200);
        assert_eq!(other.get("/other").status(), 200);
        assert_eq!(assignments.take().count(), 0, "others are not assigned");
        passed.extend(["POST /slow/1".to_owned(), "GET /other".to_owned()]);
        assert_eq!(seen.try_iter().collect::<Vec<_>>(), passed);
        until("the last is delayed", || {
            counters(&bench).delayed_now == delayed.len() as u64
        });
        let count = counters(&bench);
        assert_eq!(count.delayed, count.delayed_now);
        assert_eq!((count.not_delayed, count.left_out), (40 - count.delayed, 0));
        // The end of the experiment sets them free.
        drop(assignments);
        let mut late = Vec::new();
        for (mut client, line) in delayed {
            assert_eq!(client.read_response(false).status(), 200);
            late.push(line);
        }
        let mut then: Vec<_> = seen.try_iter().collect();
        then.sort();
        late.sort();
        assert_eq!(then, late);
        bench.settled();
        assert_eq!(counters(&bench).delayed_now, 0);
    }
}

#[test]
fn a_delay_ends_by_itself_and_is_in_the_books() {
    let delay = Duration::from_millis(20);
    let node = Node::ok();
    let bench = Bench::with(&[node.address], |config| {
        config.workers = 1;
        config.log.recent = 100;
    });
    let mut assignments = begin(&bench, "* /slow/*", delay).expect("an experiment");
    let mut client = bench.client();
    for _ in 0..30 {
        assert_eq!(client.get("/slow/1").status(), 200);
    }
    assert_eq!(client.get("/other").status(), 200);
    bench.settled();
    let assigned: Vec<_> = assignments.take().map(|it| (it.at, it.delayed)).collect();
    let recent = bench.shared.stats.recent();
    let books = recent.iter().map(|it| (it.at, it.delayed.is_some()));
    assert_eq!(books.take(30).collect::<Vec<_>>(), assigned);
    assert_eq!(recent[30].delayed, None);
    assert!(assigned.iter().any(|(_, delayed)| *delayed));
    assert!(
        recent
            .iter()
            .all(|it| it.delayed.is_none_or(|it| it >= delay))
    );
}

#[test]
fn whoever_leaves_while_it_is_held_leaves_nothing_behind() {
    let (node, seen) = recording();
    let bench = Bench::new(&[node.address]);
    let mut assignments = begin(&bench, CLASS, LONG).expect("an experiment");
    let mut delayed = delayed(&bench, &mut assignments, 2);
    seen.try_iter().for_each(drop);
    delayed.remove(0);
    until("it has left", || counters(&bench).delayed_now == 1);
    drop(assignments);
    assert_eq!(delayed[0].read_response(false).status(), 200);
    bench.settled();
    let lines: Vec<_> = seen.try_iter().collect();
    assert_eq!(lines, ["GET /slow/1"], "one has not come");
    assert_eq!(bench.snapshot().reason(Reason::ClientGone), 1);
    assert_eq!(counters(&bench).delayed_now, 0);
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
    assert_eq!(counters(&bench), DelayExperimentCounters::default());
    let assignments = begin(&bench, CLASS, LONG).expect("an experiment");
    assert_eq!(
        begin(&bench, "GET /other", LONG).err(),
        Some(DelayExperimentError::Running)
    );
    drop(assignments);
    get();
    // An experiment whose time is over delays no request, even if it is not ended.
    let pattern = CLASS.parse().expect("a pattern");
    let over = bench.shared.delay_experiments.begin(pattern, LONG, clock());
    let mut over = over.expect("an experiment");
    get();
    assert_eq!(over.take().count(), 0);
    drop(over);
    assert_eq!(counters(&bench), DelayExperimentCounters::default());
    assert_eq!(bench.shared.delay_experiments.class(), None);
}

#[test]
fn a_method_that_is_not_idempotent_is_not_delayed() {
    let node = Node::ok();
    let bench = Bench::new(&[node.address]);
    let refused = Some(DelayExperimentError::Refused(DelayRefusal::NotIdempotent));
    for class in ["POST /slow/*", "PATCH /slow/*", "MOVE /slow/*"] {
        assert_eq!(begin(&bench, class, LONG).err(), refused, "{class}");
    }
    let mut assignments = begin(&bench, "* /slow/*", LONG).expect("an experiment");
    let mut client = bench.client();
    for method in ["POST", "PATCH", "MOVE"] {
        let head = format!("{method} /slow/1 HTTP/1.1\r\nhost: shop.example\r\n");
        client.send(&(head + "content-length: 2\r\n\r\nab"));
        assert_eq!(client.read_response(false).status(), 200);
    }
    assert_eq!(assignments.take().count(), 0);
    assert_eq!(counters(&bench), DelayExperimentCounters::default());
}

#[test]
fn a_drain_ends_the_delay() {
    let (node, seen) = recording();
    let mut bench = Bench::with(&[node.address], |config| config.workers = 2);
    let mut assignments = begin(&bench, CLASS, LONG).expect("an experiment");
    let mut delayed = delayed(&bench, &mut assignments, 3);
    seen.try_iter().for_each(drop);
    let drained = bench.proxy.take().expect("a proxy").drain(PATIENCE);
    assert_eq!((drained.finished, drained.cut), (3, 0));
    assert_eq!(seen.try_iter().count(), 3);
    for client in &mut delayed {
        assert_eq!(client.read_response(false).status(), 200);
    }
    assert_eq!(counters(&bench).delayed_now, 0);
}

#[test]
fn a_proxy_that_stops_at_once_lets_go_of_whoever_is_held() {
    let node = Node::ok();
    let mut bench = Bench::with(&[node.address], |config| config.workers = 2);
    let mut assignments = begin(&bench, CLASS, LONG).expect("an experiment");
    let _clients = delayed(&bench, &mut assignments, 3);
    drop(bench.proxy.take());
    bench.settled();
    assert_eq!(counters(&bench).delayed_now, 0);
}

#[test]
fn no_more_are_held_than_may_be() {
    let node = Node::ok();
    let bench = Bench::with(&[node.address], |config| config.workers = 1);
    let mut assignments = begin(&bench, CLASS, LONG).expect("an experiment");
    let _clients = delayed(&bench, &mut assignments, TEST_HELD_MAX);
    let mut client = bench.client();
    for _ in 0..10 {
        assert_eq!(client.get("/slow/1").status(), 200);
    }
    assert_eq!(assignments.take().count(), 0);
    assert_eq!(counters(&bench).left_out, 10);
}

#[test]
fn assignments_that_are_not_read_delay_no_further_request() {
    let node = Node::ok();
    let bench = Bench::with(&[node.address], |config| config.workers = 1);
    let mut assignments = begin(&bench, CLASS, Duration::ZERO).expect("an experiment");
    let mut client = bench.client();
    for _ in 0..ASSIGNMENTS_MAX + 5 {
        assert_eq!(client.get("/slow/1").status(), 200);
    }
    assert_eq!(counters(&bench).left_out, 5);
    let taken = assignments.take().count();
    assert_eq!(taken, ASSIGNMENTS_MAX);
    let assigned = counters(&bench);
    assert_eq!(assigned.delayed + assigned.not_delayed, taken as u64);
    assert_eq!(client.get("/slow/1").status(), 200);
    assert_eq!(assignments.take().count(), 1, "there is room again");
}

#[test]
fn a_throttled_class_is_assigned_when_its_turn_comes() {
    let gated = Gated::new();
    let bench = Bench::with(&[gated.node.address], |config| config.workers = 1);
    let limits = ThrottleLimits {
        concurrency: Some(1),
        ..ThrottleLimits::default()
    };
    let throttles = &bench.shared.throttles;
    let class = CLASS.parse().expect("a pattern");
    throttles
        .set(class, limits, SetBy::Operator, None, clock())
        .expect("limits that make sense");
    let arrived = || throttles.all()[0].counters.arrived;
    let mut clients = Vec::new();
    for number in 1..=2 {
        let mut client = bench.client();
        ask(&mut client, &format!("/slow/{number}"));
        clients.push(client);
        until("it has come to the throttle", || arrived() == number);
    }
    let mut assignments = begin(&bench, CLASS, LONG).expect("an experiment");
    let begun = clock();
    gated.open();
    assert_eq!(clients[0].read_response(false).status(), 200);
    let mut assignment = None;
    until("the second is assigned", || {
        assignment = assignments.take().next();
        assignment.is_some()
    });
    assert!(
        assignment.is_some_and(|it| it.at >= begun),
        "{assignment:?}"
    );
    // Held or not, it has the throttle's place.
    assert_eq!(throttles.all()[0].in_flight, 1);
    drop(assignments);
    gated.open();
    assert_eq!(clients[1].read_response(false).status(), 200);
    bench.settled();
    until("the throttle is empty", || {
        throttles.all()[0].in_flight == 0
    });
}
