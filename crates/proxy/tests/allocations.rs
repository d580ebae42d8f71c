//! How often a worker asks the allocator for memory for a proxied request, on a kept connection and on one of its own: by counting.
//! A number that grows is a cost that each request has from then on; one that shrinks is to be written down here.
#![expect(
    unsafe_code,
    reason = "an allocator can only be implemented with it; this one hands all to the system's and counts"
)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Bench, Node};
use tidegate_proxy::ProxyThread;

thread_local! {
    /// Whether what this thread allocates counts.
    static COUNTS: Cell<bool> = const { Cell::new(false) };
}

/// Allocations of the worker.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

fn count() {
    if COUNTS.with(Cell::get) {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps GlobalAlloc's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps GlobalAlloc's contract.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps GlobalAlloc's contract.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Requests over which the mean is taken: what is allocated now and then vanishes in it.
const REQUESTS: u64 = 500;

/// Allocations for each request, of as many as are counted.
fn each(mut ask: impl FnMut()) -> u64 {
    // Buffers and tables grow to their size.
    for _ in 0..50 {
        ask();
    }
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..REQUESTS {
        ask();
    }
    (ALLOCATIONS.load(Ordering::Relaxed) - before) / REQUESTS
}

#[test]
fn a_request_takes_so_many_allocations() {
    let node = Node::ok();
    let bench = Bench::with(&[node.address], |config| {
        config.workers = 1;
        config.events = 64;
        config.thread_start = |thread| {
            COUNTS.with(|counts| counts.set(matches!(thread, ProxyThread::Worker)));
            Ok(())
        };
    });
    let mut kept = bench.client();
    let kept = each(|| assert_eq!(kept.get("/").status(), 200));
    let alone = each(|| {
        let mut client = bench.client();
        client.send("GET / HTTP/1.1\r\nhost: shop.example\r\nconnection: close\r\n\r\n");
        assert_eq!(client.read_response(false).status(), 200);
        assert!(client.is_closed());
    });
    assert_eq!(kept, 6);
    // Three more where its request comes later than the connection, and is waited for.
    assert!((27..=32).contains(&alone), "{alone}");
}
