//! Interim responses (RFC 9110 §15.2): which go to the client, where, and how many.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::io::Read;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use common::{Bench, Message, Node, Peer, ask, ok};
use tidegate_core::topology::NodeId;
use tidegate_proxy::Reason;

const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\nconnection: x-hop\r\nx-hop: 1\r\n\r\n";
const PROCESSING: &str = "HTTP/1.1 102 Processing\r\n\r\n";

/// A node that sends this and then `ok`, to all.
fn before_ok(interims: &str) -> Node {
    let answer = [interims.as_bytes(), &ok("ok")].concat();
    Node::answering(move |_: &Message| answer.clone())
}

fn heads_until_final(client: &mut Peer) -> (Vec<Message>, Message) {
    let mut interims = Vec::new();
    loop {
        let head = client.read_head().unwrap();
        if head.status() >= 200 {
            return (interims, head);
        }
        interims.push(head);
    }
}

#[test]
fn hints_reach_the_client_before_the_answer_does() {
    let (seen, wait) = channel();
    let wait = Mutex::new(wait);
    let node = Node::start(move |peer| {
        while peer.read_message().is_some() {
            peer.send(HINTS);
            // Until the client has them.
            wait.lock().unwrap().recv().unwrap();
            peer.write(&ok("ok")).unwrap();
        }
    });
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    for round in 0..3 {
        match round {
            // A body is on its way before.
            1 => client
                .send("POST / HTTP/1.1\r\nhost: shop.example\r\ncontent-length: 5\r\n\r\nhello"),
            _ => ask(&mut client, "/"),
        }
        let hints = client.read_head().unwrap();
        assert_eq!(hints.start, "HTTP/1.1 103 Early Hints");
        assert_eq!(hints.get("link"), Some("</a.css>; rel=preload"));
        assert_eq!((hints.get("x-hop"), hints.get("connection")), (None, None));
        seen.send(()).unwrap();
        assert_eq!(client.read_response(false).text(), "ok");
    }
    assert_eq!(bench.settled().completed, 3);
}

#[test]
fn in_one_piece_they_stay_in_order_and_few_bytes_at_a_time_they_stay_whole() {
    let text = format!("{PROCESSING}HTTP/1.1 100 Continue\r\n\r\n{HINTS}");
    let nodes = [
        before_ok(&text),
        Node::start(move |peer| {
            while peer.read_message().is_some() {
                let answer = [text.as_bytes(), &ok("ok")].concat();
                for piece in answer.chunks(7) {
                    peer.write(piece).unwrap();
                }
            }
        }),
    ];
    for node in &nodes {
        let bench = Bench::new(&[node.address]);
        let mut client = bench.client();
        // Pipelined, so that the second one comes behind the first one's answer.
        ask(&mut client, "/");
        ask(&mut client, "/");
        for _ in 0..2 {
            let (interims, last) = heads_until_final(&mut client);
            let statuses: Vec<_> = interims.iter().map(Message::status).collect();
            assert_eq!(statuses, [102, 103], "100 is not for the client");
            assert_eq!(last.status(), 200);
            let mut body = [0; 2];
            client.reader.read_exact(&mut body).unwrap();
            assert_eq!(&body, b"ok");
        }
    }
}

#[test]
fn clients_of_http_1_0_get_none() {
    let node = before_ok(HINTS);
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    client.send("GET / HTTP/1.0\r\nhost: shop.example\r\n\r\n");
    assert_eq!(client.read_response(false).status(), 200);
}

#[test]
fn without_end_they_are_a_malformed_answer() {
    let (ended, wait) = channel();
    let ended = Mutex::new(ended);
    for head in [
        PROCESSING.to_owned(),
        "HTTP/1.1 100 Continue\r\n\r\n".into(),
    ] {
        let ended = ended.lock().unwrap().clone();
        let ended = Mutex::new(ended);
        let node = Node::start(move |peer| {
            peer.read_message();
            let many = head.repeat(1000);
            while peer.write(many.as_bytes()).is_ok() {}
            ended.lock().unwrap().send(()).unwrap();
        });
        let bench = Bench::new(&[node.address]);
        let mut client = bench.client();
        ask(&mut client, "/");
        let (interims, last) = heads_until_final(&mut client);
        assert!(interims.len() <= 100, "{}", interims.len());
        assert_eq!((last.status(), last.reason()), (502, Some("bad_response")));
        wait.recv().unwrap();
        // As with any other malformed answer, other nodes may do the same.
        bench.settled();
        let outcomes = bench.shared.table.outcomes(NodeId(0));
        assert_eq!((outcomes.failures, outcomes.streak), (1, 0));
    }
}

#[test]
fn their_bytes_are_limited() {
    let large = format!("HTTP/1.1 103 x\r\na: {}\r\n\r\n", "b".repeat(10_000));
    for (count, status) in [(6, 200), (7, 502)] {
        let node = before_ok(&large.repeat(count));
        let bench = Bench::new(&[node.address]);
        let mut client = bench.client();
        ask(&mut client, "/");
        let (_, last) = heads_until_final(&mut client);
        assert_eq!(last.status(), status, "{count} of 10 kB");
    }
}

#[test]
fn they_do_not_prolong_the_wait_for_an_answer() {
    let node = Node::start(|peer| {
        peer.read_message();
        while peer.write(PROCESSING.as_bytes()).is_ok() {
            std::thread::park_timeout(Duration::from_millis(5));
        }
    });
    let bench = Bench::with(&[node.address], |config| {
        config.timeouts.response_head = Duration::from_millis(60);
    });
    let mut client = bench.client();
    ask(&mut client, "/");
    let (_, last) = heads_until_final(&mut client);
    assert_eq!(
        (last.status(), last.reason()),
        (504, Some("response_timeout"))
    );
    assert_eq!(bench.settled().reason(Reason::ResponseTimeout), 1);
}

#[test]
fn a_client_that_reads_nothing_gets_what_is_whole() {
    // Answers that fill all buffers, and hints before each.
    let body = "x".repeat(1 << 20);
    let answer = [HINTS.as_bytes(), &ok(&body)].concat();
    let node = Node::answering(move |_: &Message| answer.clone());
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    for _ in 0..20 {
        ask(&mut client, "/");
    }
    for _ in 0..20 {
        let (interims, last) = heads_until_final(&mut client);
        assert!(interims.len() <= 1);
        assert_eq!(last.status(), 200);
        let mut read = vec![0; body.len()];
        client.reader.read_exact(&mut read).unwrap();
        assert!(read.iter().all(|byte| *byte == b'x'));
    }
}
