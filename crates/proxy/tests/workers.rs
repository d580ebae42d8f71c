//! A worker that fails: loudly, with its connections, and not for long.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::io::BufRead;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Bench, Node, Peer, clock, ok, until};
use tidegate_core::time::Timestamp;
use tidegate_proxy::Reason;

const SOON: Duration = Duration::from_millis(60);
const CAUSE: &str = "a clock that stands on its head";

/// The worker's timers are the ones that look at it while no request comes.
static BROKEN: AtomicBool = AtomicBool::new(false);

fn at_worker() -> bool {
    let thread = std::thread::current();
    thread.name().is_some_and(|it| it.starts_with("tidegate-w"))
}

fn fragile_clock() -> Timestamp {
    if at_worker() && BROKEN.swap(false, Ordering::SeqCst) {
        panic!("{CAUSE}");
    }
    clock()
}

#[test]
fn a_worker_whose_timer_fails_says_so_and_is_replaced() {
    let node = Node::start(|peer| {
        while let Some(request) = peer.read_message() {
            if request.start.contains("/never") {
                peer.reader.read_line(&mut String::new()).ok();
                return;
            }
            peer.send(std::str::from_utf8(&ok("ok")).unwrap());
        }
    });
    let mut bench = Bench::with(&[node.address], |config| {
        config.workers = 1;
        config.clock = fragile_clock;
        config.timeouts.client_head = SOON;
    });
    let mut failures = bench.proxy.as_mut().unwrap().failures();
    let mut idle = bench.client();
    assert_eq!(idle.get("/").status(), 200);
    let mut waiting = bench.client();
    common::ask(&mut waiting, "/never");
    until("it is at the node", || bench.in_flight() == 1);
    BROKEN.store(true, Ordering::SeqCst);
    until("the worker is replaced", || {
        bench.snapshot().worker_failures == 1
    });
    // What it had ends with it, and is in the books.
    assert!(idle.is_closed() && waiting.is_closed());
    let seen = bench.settled();
    assert_eq!((seen.completed, seen.reason(Reason::WorkerFailed)), (1, 1));
    assert_eq!((seen.connections, seen.nodes[0].connections), (0, 0));
    let failure = failures.try_recv().unwrap();
    assert_eq!((failure.worker, failure.cause.as_str()), (0, CAUSE));
    // Its successor serves, on the same sockets, and its time-outs hold.
    assert_eq!(bench.client().get("/").status(), 200);
    let mut late: Peer = bench.client();
    late.send("GET / HTTP/1.1\r\nhost: shop");
    assert_eq!(late.read_response(false).reason(), Some("head_timeout"));
}

static FAILING: AtomicBool = AtomicBool::new(false);

fn failing_clock() -> Timestamp {
    assert!(!(at_worker() && FAILING.load(Ordering::SeqCst)), "{CAUSE}");
    clock()
}

/// Failures that are not read take no memory without end, and none of them stops the worker.
#[test]
fn so_many_failures_wait_to_be_read_and_the_counter_has_the_rest() {
    const FAILURES_MAX: usize = 16;
    let node = Node::ok();
    let mut bench = Bench::with(&[node.address], |config| {
        config.workers = 1;
        config.clock = failing_clock;
    });
    FAILING.store(true, Ordering::SeqCst);
    until("it has failed more often", || {
        bench.snapshot().worker_failures > FAILURES_MAX as u64
    });
    FAILING.store(false, Ordering::SeqCst);
    assert_eq!(bench.client().get("/").status(), 200);
    let mut failures = bench.proxy.as_mut().unwrap().failures();
    let read = std::iter::from_fn(|| failures.try_recv().ok());
    assert_eq!(read.count(), FAILURES_MAX);
}
