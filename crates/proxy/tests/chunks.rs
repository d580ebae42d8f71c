//! Chunked bodies, both ways: what is malformed is refused by name, what is small goes on as one.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use common::{Bench, Node, Peer, ok, until};
use tidegate_proxy::{Ending, Reason};

const HEAD: &str = "POST / HTTP/1.1\r\nhost: shop.example\r\ntransfer-encoding: chunked\r\n\r\n";

/// A node that answers nothing, and keeps what it is sent.
fn silent() -> (Node, Arc<Mutex<Vec<u8>>>) {
    let record = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&record);
    let node = Node::start(move |peer| {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = std::io::Read::read(&mut peer.reader, &mut buffer) {
            kept.lock().unwrap().extend_from_slice(&buffer[..read]);
        }
    });
    (node, record)
}

fn refused_bodies() -> Vec<(Vec<u8>, u16, &'static str)> {
    let malformed: &[&[u8]] = &[
        b"0\r\n\nGET /hidden HTTP/1.1\r\nhost: shop.example\r\n\r\n",
        b"0\n\r\n",
        b"5\nhello\r\n0\r\n\r\n",
        b"5\r\nhelloX\r\n0\r\n\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"5 \r\nhello\r\n0\r\n\r\n",
        b"x\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"5;a\nb\r\nhello\r\n0\r\n\r\n",
        b"5;\r\nhello\r\n0\r\n\r\n",
        b"0\r\nx: y\nz: y\r\n\r\n",
        b"0\r\nnot a field\r\n\r\n",
    ];
    let mut cases: Vec<_> = malformed
        .iter()
        .map(|body| (body.to_vec(), 400, "bad_chunk"))
        .collect();
    let extension = [b"5;a=", &[b'b'; 2000][..], b"\r\nhello\r\n0\r\n\r\n"].concat();
    let trailer = [b"0\r\nx: ", &[b'y'; 8000][..], b"\r\n\r\n"].concat();
    cases.push((b"0".repeat(100), 413, "body_too_large"));
    cases.push((b"f".repeat(17), 413, "body_too_large"));
    let huge: [&[u8]; 2] = [b"8000000000000000\r\nhello", b"ffffffffffffffff\r\nhello"];
    cases.extend(huge.map(|body| (body.to_vec(), 413, "body_too_large")));
    cases.push((extension, 413, "body_too_large"));
    cases.push((trailer, 431, "head_too_large"));
    cases
}

#[test]
fn malformed_chunks_are_refused_by_name() {
    let (node, record) = silent();
    let bench = Bench::new(&[node.address]);
    let cases = refused_bodies();
    for (body, status, reason) in &cases {
        // The body comes with the head, or once that has gone on.
        for apart in [false, true] {
            record.lock().unwrap().clear();
            let mut client = bench.client();
            if apart {
                client.send(HEAD);
                until("the head reaches the node", || {
                    record.lock().unwrap().ends_with(b"\r\n\r\n")
                });
                client.write(body).unwrap();
            } else {
                client.write(&[HEAD.as_bytes(), body].concat()).unwrap();
            }
            let answer = client.read_response(false);
            let what = body.escape_ascii();
            assert_eq!(
                (answer.status(), answer.reason()),
                (*status, Some(*reason)),
                "{what}"
            );
            assert!(client.is_closed(), "{what}");
        }
    }
    let seen = bench.settled();
    let refused = 2 * cases.len() as u64;
    assert_eq!(
        (seen.requests, seen.ended_as(Ending::Rejected)),
        (refused, refused)
    );
    assert_eq!(
        (seen.reason(Reason::ClientGone), seen.nodes[0].failures),
        (0, 0)
    );
}

#[test]
fn zeros_without_end_are_not_read_for_long() {
    let (node, _record) = silent();
    let bench = Bench::new(&[node.address]);
    let client = bench.client();
    let mut writer = client.stream().try_clone().unwrap();
    writer.write_all(HEAD.as_bytes()).unwrap();
    let zeros = [b'0'; 65_536];
    let mut written = 0;
    while written < 64 << 20 && writer.write_all(&zeros).is_ok() {
        written += zeros.len();
    }
    assert!(written < 64 << 20, "all of {written} bytes were read");
    assert_eq!(bench.settled().reason(Reason::BodyTooLarge), 1);
}

/// So many chunks of a byte each, and the end of the body.
fn crumbs(count: usize) -> Vec<u8> {
    [b"1\r\nx\r\n".repeat(count), b"0\r\n\r\n".to_vec()].concat()
}

/// Reads a chunked body, and counts its bytes and its chunks.
fn count_chunks(peer: &mut Peer) -> (usize, usize) {
    use std::io::{BufRead, Read};
    let (mut bytes, mut chunks) = (0, 0);
    loop {
        let mut line = String::new();
        peer.reader.read_line(&mut line).unwrap();
        let size = usize::from_str_radix(line.trim(), 16).unwrap();
        let mut rest = vec![0; size + 2];
        peer.reader.read_exact(&mut rest).unwrap();
        if size == 0 {
            return (bytes, chunks);
        }
        (bytes, chunks) = (bytes + size, chunks + 1);
    }
}

const CRUMBS: usize = 50_000;

#[test]
fn small_chunks_go_on_as_large_ones() {
    let reached = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&reached);
    let node = Node::start(move |peer| {
        while peer.read_head().is_some() {
            let (bytes, chunks) = count_chunks(peer);
            assert_eq!(bytes, CRUMBS);
            counter.store(chunks, Ordering::SeqCst);
            peer.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
            peer.write(&crumbs(CRUMBS)).unwrap();
        }
    });
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    for _ in 0..2 {
        client.send(HEAD);
        client.write(&crumbs(CRUMBS)).unwrap();
        assert_eq!(client.read_head().unwrap().status(), 200);
        let (bytes, chunks) = count_chunks(&mut client);
        assert_eq!(bytes, CRUMBS);
        assert!(chunks < CRUMBS / 10, "{chunks} chunks of the answer");
        let chunks = reached.load(Ordering::SeqCst);
        assert!(chunks < CRUMBS / 10, "{chunks} chunks of the request");
    }
    let seen = bench.settled();
    assert_eq!((seen.completed, seen.bytes_in), (2, 2 * CRUMBS as u64));
    assert_eq!(node.connections(), 1);
}

#[test]
fn an_answer_that_begins_with_a_bad_chunk_is_none() {
    let bodies = [
        "nonsense\r\n",
        "5\r\nhelloX",
        "5\r\nhello\r\n0\r\n\nx",
        "0\n\n",
        "ffffffffffffffff\r\nhello",
    ];
    let node = Node::answering(move |request| {
        let number: usize = request.start[5..6].parse().unwrap();
        let body = bodies[number];
        format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{body}").into_bytes()
    });
    let bench = Bench::new(&[node.address]);
    for (number, body) in bodies.iter().enumerate() {
        let answer = bench.client().get(&format!("/{number}"));
        assert_eq!(
            (answer.status(), answer.reason()),
            (502, Some("bad_response")),
            "{body:?}"
        );
    }
    assert_eq!(bench.settled().reason(Reason::BadResponse), 5);
}

#[test]
fn what_follows_a_chunked_answer_is_no_answer() {
    let node = Node::answering(|_| {
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n\
          HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwrong"
            .to_vec()
    });
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    for _ in 0..5 {
        assert_eq!(client.get("/").text(), "ok");
    }
    assert_eq!(bench.settled().completed, 5);
    assert_eq!(node.connections(), 5);
}

#[test]
fn a_length_reaches_the_client_once_or_not_at_all() {
    let cases = [
        ("GET", "5, 5", Some("5")),
        ("GET", "5,5 , 5", Some("5")),
        ("GET", "5\r\ncontent-length: 5, 5", Some("5")),
        ("HEAD", "5, 5", Some("5")),
        ("GET", "05", Some("5")),
        ("HEAD", "9223372036854775807", Some("9223372036854775807")),
        ("HEAD", "9223372036854775808", None),
        ("GET", "5, 6", None),
        ("HEAD", "5, 6", None),
        ("HEAD", "5, ", None),
        ("HEAD", "5\r\ncontent-length: 6", None),
        ("HEAD", "+5", None),
    ];
    for (method, length, expected) in cases {
        let node = Node::start(move |peer| {
            while let Some(request) = peer.read_message() {
                let body = if request.start.starts_with("HEAD") {
                    ""
                } else {
                    "hello"
                };
                peer.send(&format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}"
                ));
            }
        });
        let bench = Bench::new(&[node.address]);
        let mut client = bench.client();
        client.send(&format!(
            "{method} / HTTP/1.1\r\nhost: shop.example\r\n\r\n"
        ));
        let answer = client.read_response(method == "HEAD");
        match expected {
            Some(length) => assert_eq!(answer.all("content-length"), [length], "{length}"),
            None => assert_eq!(
                (answer.status(), answer.reason()),
                (502, Some("bad_response")),
                "{method} {length}"
            ),
        }
    }
}

#[test]
fn chunks_may_come_in_any_pieces() {
    let node = Node::answering(|request| ok(request.text()));
    let bench = Bench::new(&[node.address]);
    let body = b"3;a=b\r\none\r\n00003\r\ntwo\r\nB\r\nthree, four\r\n0\r\n\r\n";
    let mut client = bench.client();
    for at in 1..body.len() {
        let mut request = HEAD.as_bytes().to_vec();
        request.extend_from_slice(&body[..at]);
        client.write(&request).unwrap();
        // No wait could make it sure that both parts come apart; most do.
        std::thread::yield_now();
        client.write(&body[at..]).unwrap();
        assert_eq!(client.read_response(false).text(), "onetwothree, four");
    }
    assert_eq!(bench.settled().completed, body.len() as u64 - 1);
}
