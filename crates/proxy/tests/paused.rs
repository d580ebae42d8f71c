//! A worker that does not keep up stops accepting, and accepts again when it does.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Bench, Node, clock, until};
use tidegate_core::time::Timestamp;

/// The worker is to stand still.
static HOLD: AtomicBool = AtomicBool::new(false);
/// So long: what the worker measures, not what the test waits for.
const HELD: Duration = Duration::from_millis(500);

/// A clock that takes its time on demand: with it stands the worker that asks.
#[expect(
    clippy::disallowed_methods,
    reason = "a clock that stands still for a real time"
)]
fn slow_clock() -> Timestamp {
    if HOLD.swap(false, Ordering::SeqCst) {
        let start = Instant::now();
        while start.elapsed() < HELD {
            std::hint::spin_loop();
        }
    }
    clock()
}

#[test]
fn a_worker_that_stood_still_pauses_and_then_accepts_whoever_waited() {
    let node = Node::ok();
    let bench = Bench::with(&[node.address], |config| config.clock = slow_clock);
    let mut early = bench.client();
    assert_eq!(early.get("/").status(), 200);
    HOLD.store(true, Ordering::SeqCst);
    until("the worker pauses", || bench.snapshot().accept_pauses > 0);
    // It is in the kernel's backlog until the pause is over; kept connections go on.
    let mut late = bench.client();
    assert_eq!(early.get("/").status(), 200);
    assert_eq!(late.get("/").status(), 200);
    until("the pause is over", || bench.snapshot().accept_paused == 0);
    let seen = bench.settled();
    assert!(seen.accept_paused_micros > 0);
    assert!(seen.lag.count() > 0);
    assert_eq!((seen.accepted, seen.completed), (2, 3));
}
