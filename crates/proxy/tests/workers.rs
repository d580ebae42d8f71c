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

fn fragile_clock() -> Timestamp {
    let worker = std::thread::current()
        .name()
        .is_some_and(|name| name.starts_with("tidegate-w"));
    if worker && BROKEN.swap(false, Ordering::SeqCst) {
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
