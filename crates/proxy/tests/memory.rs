//! What client connections hold, by counting every byte that is allocated and freed. With the default
//! limits the dearest connection there can be, as many times as connections may be open, must
//! stay below a gibibyte.
//!
//! One test, one after the other: the count is the process's.
#![expect(
    unsafe_code,
    reason = "an allocator can only be implemented with it; this one hands all to the system's and counts"
)]
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use common::{Bench, until};
use tidegate_proxy::{Limits, LogFormat, LogTarget};

/// Bytes that are allocated now.
static LIVE: AtomicI64 = AtomicI64::new(0);

struct Counting;

// SAFETY: every call goes to the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps GlobalAlloc's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps GlobalAlloc's contract.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_add(size as i64 - layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps GlobalAlloc's contract.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Connections over which the mean is taken.
const CLIENTS: usize = 25;
/// Heads of 4 KiB that come in one go.
const PIPELINED: usize = 80;
const GIBIBYTE: u64 = 1 << 30;
const KIB: u64 = 1 << 10;
/// What an idle connection holds at most, once its buffers are given back.
const IDLE_MAX: u64 = 5 * KIB;

/// A node that answers at once, says nothing, or answers and never ends. It allocates no buffers.
struct Node(SocketAddr, Arc<(Mutex<usize>, Condvar)>);

impl Node {
    fn new(answer: impl Fn(&mut TcpStream) + Send + Sync + Copy + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new((Mutex::new(0), Condvar::new()));
        let seen = Arc::clone(&heads);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, seen) = (stream.unwrap(), Arc::clone(&seen));
                std::thread::spawn(move || {
                    while read_request(&mut stream) {
                        *seen.0.lock().unwrap() += 1;
                        seen.1.notify_all();
                        answer(&mut stream);
                    }
                });
            }
        });
        Self(address, heads)
    }

    fn heads(&self) -> usize {
        *self.1.0.lock().unwrap()
    }

    fn until_heads(&self, count: usize) {
        let (heads, changed) = &*self.1;
        let waited =
            changed.wait_timeout_while(heads.lock().unwrap(), common::PATIENCE, |it| *it < count);
        assert!(!waited.unwrap().1.timed_out(), "heads reach the node");
    }
}

/// Reads to the end of a head, and what of its body came along.
fn read_request(stream: &mut TcpStream) -> bool {
    let mut bytes = [0; 3 + 4096];
    loop {
        let Ok(read @ 1..) = stream.read(&mut bytes[3..]) else {
            return false;
        };
        if bytes[..3 + read].windows(4).any(|it| it == b"\r\n\r\n") {
            return true;
        }
        bytes.copy_within(read..3 + read, 0);
    }
}

fn read_head(stream: &mut TcpStream) -> bool {
    let mut last = [0; 4];
    let mut byte = [0];
    while last != *b"\r\n\r\n" {
        if !matches!(stream.read(&mut byte), Ok(1)) {
            return false;
        }
        last.rotate_left(1);
        last[3] = byte[0];
    }
    true
}

fn ok(stream: &mut TcpStream) {
    stream
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        .unwrap();
}

fn silence(stream: &mut TcpStream) {
    // Ends with the connection.
    let mut bytes = [0; 4096];
    while matches!(stream.read(&mut bytes), Ok(1..)) {}
}

/// Answers with a large head and more body than anybody buffers, and reads nothing.
fn flood(stream: &mut TcpStream) {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\nx-large: ";
    let value = [b'v'; 14 << 10];
    let sent = stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(&value))
        .and_then(|()| stream.write_all(b"\r\n\r\n"));
    let body = [b'x'; 16 << 10];
    if sent.is_ok() {
        while stream.write_all(&body).is_ok() {}
    }
}

/// A request whose head has so many bytes.
fn request(method: &str, more: &str, bytes: u64) -> Vec<u8> {
    let mut head = format!("{method} / HTTP/1.1\r\nhost: shop.example\r\n{more}");
    while (head.len() as u64) + 1100 < bytes {
        head += &format!("x-{}: {}\r\n", head.len(), "v".repeat(1000));
    }
    head += "\r\n";
    head.into_bytes()
}

fn read_answer(stream: &mut TcpStream) {
    assert!(read_head(stream));
    let mut body = [0; 2];
    stream.read_exact(&mut body).unwrap();
}

/// Writes without end until no more is taken.
fn write_all_that_goes(stream: &mut TcpStream) {
    stream.set_nonblocking(true).unwrap();
    let bytes = [b'x'; 16 << 10];
    loop {
        match stream.write(&bytes) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => panic!("{error}"),
        }
    }
}

/// What connections are at when it is counted what they hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HeldAt {
    /// They have sent all that they send for now.
    Sent,
    /// They have been idle until their buffers were given back.
    Idle,
    /// Their request is at the node and does not end.
    Stays,
}

/// Mean bytes that a connection holds once each has done this.
fn held(node: &Node, at: HeldAt, act: impl Fn(&mut TcpStream)) -> u64 {
    let stays = at == HeldAt::Stays;
    let bench = Bench::with(&[node.0], |config| {
        config.workers = 1;
        config.log.format = LogFormat::Combined;
        config.log.target = LogTarget::File("/dev/null".into());
        config.limits.pool_per_node = 0;
    });
    let heads = node.heads();
    // What the first request leaves behind is the worker's.
    let mut first = TcpStream::connect(bench.address).unwrap();
    act(&mut first);
    if stays {
        node.until_heads(heads + 1);
    }
    drop(first);
    until("the first has left", || bench.snapshot().connections == 0);
    until_quiet();
    let mut clients = Vec::with_capacity(CLIENTS);
    let before = LIVE.load(Ordering::Relaxed);
    for _ in 0..CLIENTS {
        let mut client = TcpStream::connect(bench.address).unwrap();
        act(&mut client);
        clients.push(client);
    }
    until("all are accepted", || {
        bench.snapshot().connections == CLIENTS as u64
    });
    if stays {
        node.until_heads(heads + 1 + CLIENTS);
        // Behind what they have sent comes what is not read.
        for _ in 0..2 {
            clients.iter_mut().for_each(write_all_that_goes);
            until_quiet();
        }
    }
    until_quiet();
    let held = || ((LIVE.load(Ordering::Relaxed) - before) / CLIENTS as i64) as u64;
    if at == HeldAt::Idle {
        until("buffers are given back", || held() < IDLE_MAX);
        let held = held();
        // They serve on.
        clients.iter_mut().for_each(act);
        return held;
    }
    held()
}

/// Nothing moves any more: what is held is what it was.
fn until_quiet() {
    let mut last = 0;
    let mut same = 0;
    until("memory settles", || {
        let now = LIVE.load(Ordering::Relaxed);
        same = if (now - last).abs() < KIB as i64 {
            same + 1
        } else {
            0
        };
        last = now;
        same > 200
    });
}

#[test]
fn what_a_connection_holds_is_bounded_and_given_back() {
    let limits = Limits::default();
    let head = limits.head_bytes as u64;
    let answering = Node::new(ok);
    let small = request("GET", "", 100);
    let large = request("GET", "", head - KIB);
    let medium = request("GET", "", 4 * KIB);
    let many = medium.repeat(PIPELINED);
    let part = &large[..large.len() - 4];
    let idle = |at, requests: &[u8], count: usize| {
        held(&answering, at, |client| {
            client.write_all(requests).unwrap();
            for _ in 0..count {
                read_answer(client);
            }
        })
    };
    let idle_small = idle(HeldAt::Sent, &small, 1);
    let idle_large = idle(HeldAt::Sent, &large, 1);
    let idle_pipelined = idle(HeldAt::Sent, &many, PIPELINED);
    let idle_long = idle(HeldAt::Idle, &large, 1);
    let silent_long = idle(HeldAt::Idle, &[], 0);
    let in_head = held(&answering, HeldAt::Sent, |client| {
        client.write_all(part).unwrap()
    });
    let silent = Node::new(silence);
    let in_flight = held(&silent, HeldAt::Stays, |client| {
        client.write_all(&large).unwrap()
    });
    let flooding = Node::new(flood);
    let upload = request("POST", "content-length: 1000000000\r\n", head - KIB);
    let both_ways = held(&flooding, HeldAt::Stays, |client| {
        client.write_all(&upload).unwrap()
    });
    let worst = [
        idle_small,
        idle_large,
        idle_pipelined,
        in_head,
        in_flight,
        both_ways,
    ];
    println!(
        "bytes a connection: idle after a small head {idle_small}, a large one {idle_large}, \
         pipelined ones {idle_pipelined}; a second later {idle_long}, silent from the start {silent_long}; in a head {in_head}; in flight with a large head \
         {in_flight}; stuck both ways {both_ways}"
    );
    // Memory of a request ends with it. hyper keeps its buffer, as large as the largest head, for a second.
    assert!(idle_small < 24 * KIB, "{idle_small}");
    assert!(idle_large < idle_small + 2 * head + 4 * KIB, "{idle_large}");
    assert!(
        idle_pipelined < idle_small + 2 * head + 4 * KIB,
        "{idle_pipelined}"
    );
    let worst = worst.into_iter().max().unwrap_or(0);
    let total = worst * limits.connections as u64;
    assert!(
        total < GIBIBYTE,
        "{worst} * {} = {total}",
        limits.connections
    );
}
