//! Request bodies that the client holds back, that an answer overtakes, and that an upgrade overtakes.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use common::{Bench, Node, PATIENCE, Peer, ok, until};
use tidegate_proxy::Reason;

const EXPECTING: &str =
    "POST / HTTP/1.1\r\nhost: shop.example\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n";

/// The final answer, behind any interim one.
fn final_text(client: &mut Peer) -> String {
    loop {
        let head = client.read_head().expect("an answer");
        if head.status() != 100 {
            let length = head.get("content-length").unwrap().parse().unwrap();
            let mut body = vec![0; length];
            client.reader.read_exact(&mut body).unwrap();
            return String::from_utf8(body).unwrap();
        }
    }
}

/// A node that never asks for a body, and counts heads.
fn old() -> (Node, Arc<AtomicUsize>) {
    let heads = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&heads);
    let node = Node::start(move |peer| {
        while peer.read_head().is_some() {
            counter.fetch_add(1, Ordering::SeqCst);
            let mut body = [0; 5];
            if peer.reader.read_exact(&mut body).is_err() {
                break;
            }
            peer.write(&ok(std::str::from_utf8(&body).unwrap()))
                .unwrap();
        }
    });
    (node, heads)
}

#[test]
fn a_body_that_is_here_is_not_held_back() {
    let (node, heads) = old();
    let bench = Bench::with(&[node.address], |config| {
        config.timeouts.expect_continue = 2 * PATIENCE;
    });
    let mut client = bench.client();
    // With the head, and then once the node has the head.
    client.send(&format!("{EXPECTING}hello"));
    assert_eq!(final_text(&mut client), "hello");
    client.send(EXPECTING);
    until("the head is at the node", || {
        heads.load(Ordering::SeqCst) == 2
    });
    client.send("there");
    assert_eq!(final_text(&mut client), "there");
    assert_eq!(bench.settled().completed, 2);
}

#[test]
fn a_client_that_leaves_with_its_body_held_back_has_left() {
    let (node, heads) = old();
    let bench = Bench::with(&[node.address], |config| {
        config.timeouts.expect_continue = 2 * PATIENCE;
    });
    let mut client = bench.client();
    client.send(EXPECTING);
    until("the head is at the node", || {
        heads.load(Ordering::SeqCst) == 1
    });
    drop(client);
    assert_eq!(bench.settled().reason(Reason::BodyCut), 1);
}

#[test]
fn an_answer_that_overtakes_the_body_can_be_read() {
    let node = Node::start(|peer| {
        peer.read_head();
        peer.send("HTTP/1.1 413 Content Too Large\r\ncontent-length: 5\r\n\r\nlarge");
        peer.reader.read_to_end(&mut Vec::new()).ok();
    });
    let bench = Bench::with(&[node.address], |config| config.timeouts.linger = PATIENCE);
    for framing in ["content-length: 10000000", "transfer-encoding: chunked"] {
        let before = bench.snapshot().completed;
        let mut client = bench.client();
        client.send(&format!(
            "POST / HTTP/1.1\r\nhost: shop.example\r\n{framing}\r\n\r\n7a120\r\n"
        ));
        until("the answer is out", || bench.snapshot().completed > before);
        for _ in 0..8 {
            // A connection that was cut breaks here.
            client.stream().write_all(&[b'x'; 62_500]).unwrap();
        }
        let answer = client.read_response(false);
        assert_eq!((answer.status(), answer.text()), (413, "large"));
        assert_eq!(answer.get("connection"), Some("close"));
        let mut rest = Vec::new();
        assert_eq!(client.reader.read_to_end(&mut rest).unwrap(), 0);
    }
}

/// A node that answers so once it has a head, and closes at once, whatever comes behind that: its kernel resets the connection.
fn resetting(answer: &'static str) -> Node {
    Node::start(move |peer| {
        peer.read_head();
        peer.send(answer);
    })
}

/// Uploads of a long body, the most of which does not come, each on a connection of its own; calls `check` with the answers' client.
fn upload(bench: &Bench, times: usize, mut check: impl FnMut(&mut Peer)) {
    for _ in 0..times {
        let mut client = bench.client();
        client.send("POST / HTTP/1.1\r\nhost: shop.example\r\ncontent-length: 100000000\r\n\r\n");
        for _ in 0..16 {
            // It may be cut once the answer is there.
            if client.stream().write_all(&[b'x'; 62_500]).is_err() {
                break;
            }
        }
        check(&mut client);
    }
}

#[test]
fn a_whole_answer_of_a_node_that_resets_the_connection_is_passed_on() {
    let node = resetting("HTTP/1.1 413 Content Too Large\r\ncontent-length: 5\r\n\r\nlarge");
    let bench = Bench::with(&[node.address], |config| config.timeouts.linger = PATIENCE);
    upload(&bench, 100, |client| {
        let answer = client.read_response(false);
        assert_eq!((answer.status(), answer.text()), (413, "large"));
        assert_eq!(answer.get("connection"), Some("close"));
    });
    let counted = bench.settled();
    assert_eq!((counted.completed, counted.reason(Reason::Reset)), (100, 0));
}

#[test]
fn a_node_that_resets_the_connection_without_an_answer_has_failed() {
    let node = resetting("");
    let bench = Bench::with(&[node.address], |config| config.timeouts.linger = PATIENCE);
    upload(&bench, 20, |client| {
        assert_eq!(client.read_response(false).status(), 502);
    });
    assert_eq!(bench.settled().reason(Reason::Reset), 20);
}

/// Whether this answer says that its connection closes, and whether that serves another request.
fn says_and_serves(client: &mut Peer) -> (bool, bool) {
    let answer = client.read_response(false);
    let says = answer.get("connection") == Some("close");
    // A connection that has closed may take it, and answers nothing.
    (client.stream())
        .write_all(b"GET /next HTTP/1.1\r\nhost: shop.example\r\n\r\n")
        .ok();
    (
        says,
        client.read_head().is_some_and(|it| it.status() == 200),
    )
}

#[test]
fn an_answer_of_ours_before_the_whole_body_says_that_the_connection_closes() {
    let node = Node::start(|peer| {
        while peer.read_head().is_some() {
            peer.write(&ok("here")).unwrap();
        }
    });
    let bench = Bench::with(&[node.address], |config| {
        config.limits.body_bytes = Some(100);
        config.timeouts.linger = PATIENCE;
    });
    for (rest, closes) in [
        ("content-length: 101\r\n\r\n".to_owned(), true),
        (
            format!("content-length: 101\r\n\r\n{}", "x".repeat(100)),
            true,
        ),
        // All of it is here, and no reason to close.
        (
            format!("content-length: 101\r\n\r\n{}", "x".repeat(101)),
            false,
        ),
    ] {
        let mut client = bench.client();
        client.send(&format!("POST / HTTP/1.1\r\nhost: shop.example\r\n{rest}"));
        assert_eq!(
            says_and_serves(&mut client),
            (closes, !closes),
            "{}",
            rest.len()
        );
    }
}

#[test]
fn a_head_before_the_whole_body_says_that_the_connection_closes() {
    let (begun, ends) = mpsc::channel();
    let ends = std::sync::Mutex::new(ends);
    let node = Node::start(move |peer| {
        while let Some(head) = peer.read_head() {
            let mut body = vec![0; head.get("content-length").map_or(0, |_| 5)];
            peer.reader.read_exact(&mut body).unwrap();
            peer.send("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n");
            ends.lock().unwrap().recv().unwrap();
            peer.send("early");
        }
    });
    let bench = Bench::with(&[node.address], |config| config.timeouts.linger = PATIENCE);
    for (length, says) in [(5, None), (10_000_000, Some("close"))] {
        let mut client = bench.client();
        client.send(&format!(
            "POST / HTTP/1.1\r\nhost: shop.example\r\ncontent-length: {length}\r\n\r\nhello"
        ));
        let head = client.read_head().unwrap();
        assert_eq!((head.status(), head.get("connection")), (200, says));
        begun.send(()).unwrap();
        let mut body = [0; 5];
        client.reader.read_exact(&mut body).unwrap();
        assert_eq!(&body, b"early");
    }
}

const UPGRADING: &str = "POST / HTTP/1.1\r\nhost: shop.example\r\nconnection: upgrade\r\n\
                         upgrade: x\r\ncontent-length: 10\r\n\r\nhello";

/// A node that agrees to an upgrade before it has the request's body, and says so.
fn hasty() -> (Node, mpsc::Receiver<()>) {
    let (agreed, has_agreed) = mpsc::channel();
    let node = Node::start(move |peer| {
        peer.read_head();
        peer.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n");
        agreed.send(()).unwrap();
        let mut body = [0; 10];
        if peer.reader.read_exact(&mut body).is_err() {
            return;
        }
        assert_eq!(&body, b"helloworld");
        let mut word = [0; 3];
        peer.reader.read_exact(&mut word).unwrap();
        peer.write(&word).unwrap();
    });
    (node, has_agreed)
}

#[test]
fn an_upgrade_waits_for_the_body() {
    let (node, has_agreed) = hasty();
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    client.send(UPGRADING);
    has_agreed.recv().unwrap();
    client.send("world");
    assert_eq!(client.read_head().unwrap().status(), 101);
    client.send("hey");
    let mut back = [0; 3];
    client.reader.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"hey");
    drop(client);
    bench.settled();
}

#[test]
fn an_upgrade_does_not_wait_for_ever() {
    let (node, _has_agreed) = hasty();
    let bench = Bench::with(&[node.address], |config| {
        config.timeouts.body_idle = Duration::from_millis(60);
    });
    let mut client = bench.client();
    client.send(UPGRADING);
    let answer = client.read_response(false);
    assert_eq!(
        (answer.status(), answer.reason()),
        (408, Some("body_timeout"))
    );
    assert!(client.is_closed());
    assert_eq!(bench.settled().reason(Reason::BodyTimeout), 1);
}

#[test]
fn a_client_that_leaves_during_an_upgrade_has_left() {
    let (node, has_agreed) = hasty();
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    client.send(UPGRADING);
    has_agreed.recv().unwrap();
    drop(client);
    assert_eq!(bench.settled().reason(Reason::BodyCut), 1);
}

#[test]
fn a_body_that_the_client_ends_early_is_a_bad_request() {
    let node = Node::answering(|_| ok("never"));
    for framing in [
        "content-length: 10\r\n\r\nabc",
        "transfer-encoding: chunked\r\n\r\n5\r\nab",
    ] {
        let bench = Bench::with(&[node.address], |config| config.log.recent = 1);
        let mut client = bench.client();
        client.send(&format!(
            "POST / HTTP/1.1\r\nhost: shop.example\r\n{framing}"
        ));
        client.shut();
        let answer = client.read_response(false);
        assert_eq!(
            (answer.status(), answer.reason()),
            (400, Some("body_cut")),
            "{framing}"
        );
        assert!(client.is_closed(), "{framing}");
        let seen = bench.settled();
        assert_eq!(seen.reason(Reason::BodyCut), 1, "{framing}");
        assert_eq!(seen.nodes[0].failures, 0, "{framing}");
        let logged = bench.shared.stats.recent();
        assert_eq!(
            (logged[0].status, logged[0].reason),
            (400, Some(Reason::BodyCut)),
            "{framing}"
        );
    }
}
