//! Bodies that move, but too slowly or for too long; and slow ones that are left alone.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Bench, Node, PATIENCE, Peer, until};
use tidegate_proxy::Reason;

const IDLE: Duration = Duration::from_millis(400);
const PAUSE: Duration = Duration::from_millis(20);
const POST: &str = "POST / HTTP/1.1\r\nhost: shop.example\r\ncontent-length: 1000000\r\n\r\n";

/// A client that sends a byte now and then, until it is answered or cut off.
fn trickle(client: &mut Peer) {
    let done = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&done);
    let mut sender = client.stream().try_clone().unwrap();
    std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) && std::io::Write::write_all(&mut sender, b"x").is_ok()
        {
            std::thread::park_timeout(PAUSE);
        }
    });
    client
        .reader
        .get_mut()
        .set_read_timeout(Some(PATIENCE))
        .unwrap();
    std::io::BufRead::fill_buf(&mut client.reader).unwrap();
    done.store(true, Ordering::Relaxed);
}

#[test]
fn an_upload_that_trickles_is_refused_though_it_never_stands_still() {
    let node = Node::start(|peer| while peer.read_message().is_some() {});
    let bench = Bench::with(&[node.address], |config| {
        config.timeouts.body_idle = IDLE;
        config.limits.body_rate = 100_000;
    });
    let mut client = bench.client();
    client.send(POST);
    trickle(&mut client);
    let answer = client.read_response(false);
    assert_eq!((answer.status(), answer.reason()), (408, Some("body_slow")));
    assert_eq!(bench.settled().reason(Reason::BodySlow), 1);
}

#[test]
fn an_upload_has_a_time_in_all() {
    let node = Node::start(|peer| while peer.read_message().is_some() {});
    let bench = Bench::with(&[node.address], |config| {
        config.timeouts.body_idle = PATIENCE;
        config.timeouts.request_body = Some(IDLE);
    });
    let mut client = bench.client();
    client.send(POST);
    trickle(&mut client);
    let answer = client.read_response(false);
    assert_eq!((answer.status(), answer.reason()), (408, Some("body_slow")));
}

/// A node that sends a byte now and then, for ever or until it has sent so many.
fn trickling(bytes: usize) -> Node {
    Node::start(move |peer| {
        peer.read_head();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n");
        if peer.write(head.as_bytes()).is_err() {
            return;
        }
        for _ in 0..bytes {
            if peer.write(b"x").is_err() {
                return;
            }
            std::thread::park_timeout(PAUSE);
        }
    })
}

#[test]
fn an_answer_that_the_node_gives_slowly_is_left_alone() {
    let node = trickling(100);
    let bench = Bench::with(&[node.address], |config| {
        config.timeouts.body_idle = IDLE;
        config.limits.body_rate = 100_000;
    });
    // Five times as long as it may stand still, and far below the rate.
    assert_eq!(bench.client().get("/").body, [b'x'; 100]);
    assert_eq!(bench.settled().completed, 1);
}

#[test]
fn an_answer_has_a_time_in_all() {
    let node = trickling(usize::MAX / 2);
    let bench = Bench::with(&[node.address], |config| {
        config.timeouts.response_body = Some(IDLE);
    });
    let mut client = bench.client();
    common::ask(&mut client, "/");
    let mut all = Vec::new();
    client.reader.read_to_end(&mut all).ok();
    assert_eq!(bench.settled().reason(Reason::AnswerSlow), 1);
}

#[test]
fn a_client_that_reads_too_slowly_is_cut_off() {
    // `until` fails if it is never counted as cut off.
    // More than all buffers between them hold.
    let node = Node::start(|peer| {
        peer.read_head();
        peer.send("HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n");
        while peer.write(&[b'x'; 1 << 16]).is_ok() {}
    });
    let bench = Bench::with(&[node.address], |config| {
        config.timeouts.body_idle = IDLE;
        config.limits.body_rate = 1 << 40;
    });
    let mut client = bench.client();
    common::ask(&mut client, "/");
    let mut some = vec![0; 1 << 13];
    until("it is cut off", || {
        // It reads all the time, more slowly than the node sends, and no client is as fast as the rate.
        drop(client.reader.get_mut().read(&mut some));
        bench.snapshot().reason(Reason::AnswerSlow) == 1
    });
}
