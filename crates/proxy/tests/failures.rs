//! Nodes that refuse, break off, stand still or talk nonsense: what each side gets, what is tried
//! again, and that nothing is sent twice that must not be.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{Bench, Message, Node, Peer, ok, until};
use tidegate_core::director::Director;
use tidegate_core::topology::{AdminState, NodeId};
use tidegate_proxy::{Ending, Reason};

/// Time-outs that are waited for in these tests; what they end would never end by itself.
const SOON: Duration = Duration::from_millis(60);

fn outcome(answer: &Message) -> (u16, Option<&str>) {
    (answer.status(), answer.reason())
}

fn post(client: &mut Peer, body: &str) -> Message {
    let length = body.len();
    client.send(&format!(
        "POST / HTTP/1.1\r\nhost: shop.example\r\ncontent-length: {length}\r\n\r\n{body}"
    ));
    client.read_response(false)
}

/// A node that reads one request per connection and closes without a word.
fn silent(requests: &Arc<AtomicUsize>) -> Node {
    let requests = Arc::clone(requests);
    Node::start(move |peer| {
        if peer.read_message().is_some() {
            requests.fetch_add(1, Ordering::SeqCst);
        }
    })
}

#[test]
fn a_request_that_reached_nobody_goes_elsewhere() {
    let node = Node::answering(|request| ok(&format!("{}", request.body.len())));
    let bench = Bench::with(&[Node::nobody(), Node::nobody(), node.address], |config| {
        config.sites[0].retry.min_per_second = 1000.0;
    });
    let mut client = bench.client();
    for _ in 0..20 {
        assert_eq!(outcome(&client.get("/")), (200, None));
        assert_eq!(post(&mut client, "hello").text(), "5");
    }
    let seen = bench.settled();
    assert_eq!(seen.completed, 40);
    assert!(seen.retries > 0);
    assert_eq!(
        seen.nodes[0].failures + seen.nodes[1].failures,
        seen.retries
    );
}

#[test]
fn when_nobody_answers_the_last_reason_is_told() {
    let bench = Bench::new(&[Node::nobody(), Node::nobody()]);
    let answer = bench.client().get("/");
    assert_eq!(outcome(&answer), (502, Some("connect_failed")));
    let seen = bench.settled();
    assert_eq!((seen.ended_as(Ending::Failed), seen.retries), (1, 1));
}

#[test]
fn tries_are_limited() {
    let nobody: Vec<SocketAddr> = (0..5).map(|_| Node::nobody()).collect();
    let bench = Bench::with(&nobody, |config| config.limits.tries = 3);
    bench.client().get("/");
    let seen = bench.settled();
    assert_eq!(seen.nodes.iter().map(|node| node.tries).sum::<u64>(), 3);
}

#[test]
fn the_budget_limits_retries() {
    let bench = Bench::with(&[Node::nobody(), Node::nobody()], |config| {
        config.sites[0].retry.ratio = 0.5;
        config.sites[0].retry.min_per_second = 0.0;
    });
    let mut client = bench.client();
    for _ in 0..10 {
        assert_eq!(outcome(&client.get("/")), (502, Some("connect_failed")));
    }
    let seen = bench.settled();
    assert_eq!((seen.retries, seen.retries_denied), (5, 5));
    let site = &seen.sites[0];
    assert_eq!((site.retries, site.retries_denied), (5, 5));
}

#[test]
fn sites_and_nodes_that_are_not_there_are_named() {
    let node = Node::ok();
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    client.send("GET / HTTP/1.1\r\nhost: other.example\r\n\r\n");
    assert_eq!(
        outcome(&client.read_response(false)),
        (404, Some("no_site"))
    );
    let mut director = Director::new(common::cluster(&[node.address]), 1);
    director.handle_override(NodeId(0), AdminState::Drain);
    director.handle_tick(&bench.shared.table, common::clock());
    bench.shared.topology.store(director.topology());
    let answer = client.get("/");
    assert_eq!(outcome(&answer), (503, Some("no_node")));
    let seconds = answer.get("retry-after").unwrap().parse::<u32>().unwrap();
    assert!((1..=3).contains(&seconds), "{seconds}");
    director.handle_override(NodeId(0), AdminState::Ready);
    director.handle_tick(&bench.shared.table, common::clock());
    bench.shared.topology.store(director.topology());
    assert_eq!(outcome(&client.get("/")), (200, None));
    assert_eq!(bench.settled().ended_as(Ending::Rejected), 2);
}

#[test]
fn an_idempotent_request_without_an_answer_goes_elsewhere() {
    let requests = Arc::new(AtomicUsize::new(0));
    let node = silent(&requests);
    let good = Node::ok();
    let bench = Bench::with(&[node.address, good.address], |config| {
        config.sites[0].retry.min_per_second = 1000.0;
    });
    let mut client = bench.client();
    for _ in 0..20 {
        assert_eq!(outcome(&client.get("/")), (200, None));
    }
    let seen = bench.settled();
    assert!(requests.load(Ordering::SeqCst) > 0);
    assert_eq!(seen.retries, seen.nodes[0].failures);
}

#[test]
fn what_may_have_been_done_is_never_sent_twice() {
    for (method, body) in [
        ("POST", "hello"),
        ("POST", ""),
        ("PATCH", ""),
        ("PUT", "hello"),
    ] {
        let requests = Arc::new(AtomicUsize::new(0));
        let nodes = [silent(&requests), silent(&requests), silent(&requests)];
        let bench = Bench::new(&nodes.each_ref().map(|node| node.address));
        let mut client = bench.client();
        let length = body.len();
        client.send(&format!(
            "{method} / HTTP/1.1\r\nhost: shop.example\r\ncontent-length: {length}\r\n\r\n{body}"
        ));
        assert_eq!(outcome(&client.read_response(false)), (502, Some("reset")));
        assert_eq!(bench.settled().retries, 0);
        assert_eq!(requests.load(Ordering::SeqCst), 1, "{method} {body}");
    }
}

/// A node that answers the first request of a connection, reads the second, and closes.
fn forgetful(requests: &Arc<AtomicUsize>) -> Node {
    let requests = Arc::clone(requests);
    Node::start(move |peer| {
        for answers in [true, false] {
            if peer.read_message().is_some() {
                requests.fetch_add(1, Ordering::SeqCst);
                if answers {
                    peer.write(&ok("ok")).unwrap();
                }
            }
        }
    })
}

#[test]
fn a_kept_connection_that_breaks_is_no_failure_of_the_node() {
    let requests = Arc::new(AtomicUsize::new(0));
    let node = forgetful(&requests);
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    assert_eq!(outcome(&client.get("/")), (200, None));
    // Read by the node and lost with the connection: may be sent again, and is.
    assert_eq!(outcome(&client.get("/")), (200, None));
    let seen = bench.settled();
    assert_eq!((seen.stale, seen.retries), (1, 0));
    assert_eq!((seen.nodes[0].failures, node.connections()), (0, 2));
    assert_eq!(requests.load(Ordering::SeqCst), 3);
    // The same with a POST: may not.
    assert_eq!(outcome(&post(&mut client, "")), (502, Some("reset")));
    assert_eq!(requests.load(Ordering::SeqCst), 4);
}

#[test]
fn pairs_at_a_node_that_cuts_each_reused_connection_all_succeed_without_a_budget() {
    let requests = Arc::new(AtomicUsize::new(0));
    let node = forgetful(&requests);
    let bench = Bench::with(&[node.address], |config| {
        config.sites[0].retry.ratio = 0.0;
        config.sites[0].retry.min_per_second = 0.0;
    });
    let mut client = bench.client();
    for _ in 0..200 {
        assert_eq!(outcome(&client.get("/")), (200, None));
        assert_eq!(outcome(&client.get("/")), (200, None));
    }
    let seen = bench.settled();
    assert_eq!((seen.completed, seen.retries_denied), (400, 0));
    assert_eq!((seen.stale, seen.nodes[0].failures), (399, 0));
}

#[test]
fn an_upgrade_on_a_connection_that_was_closed_is_asked_for_again() {
    let connections = AtomicUsize::new(0);
    let node = Node::start(move |peer| {
        let first = connections.fetch_add(1, Ordering::SeqCst) == 0;
        peer.read_message();
        if first {
            peer.write(&ok("ok")).unwrap();
            // The next one is read and lost.
            peer.read_message();
            return;
        }
        peer.send(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n",
        );
        let mut said = [0; 4];
        peer.reader.read_exact(&mut said).unwrap();
        peer.write(&said).unwrap();
    });
    let bench = Bench::with(&[node.address], |config| {
        config.sites[0].retry.ratio = 0.0;
        config.sites[0].retry.min_per_second = 0.0;
    });
    let mut client = bench.client();
    assert_eq!(outcome(&client.get("/")), (200, None));
    client.send(
        "GET /echo HTTP/1.1\r\nhost: shop.example\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n",
    );
    let head = client.read_head().unwrap();
    assert_eq!((head.status(), head.get("upgrade")), (101, Some("echo")));
    client.send("ping");
    let mut said = [0; 4];
    client.reader.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"ping");
}

#[test]
fn a_kept_connection_that_was_closed_costs_nobody_anything() {
    let closed = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&closed);
    let node = Node::start(move |peer| {
        let request = peer.read_message().unwrap();
        let body = ok(request.text());
        peer.write(&body).unwrap();
        peer.stream().shutdown(std::net::Shutdown::Both).unwrap();
        counter.fetch_add(1, Ordering::SeqCst);
    });
    let bench = Bench::with(&[node.address], |config| {
        // Not a single retry is needed.
        config.sites[0].retry.ratio = 0.0;
        config.sites[0].retry.min_per_second = 0.0;
    });
    let mut client = bench.client();
    for round in 1..=10 {
        assert_eq!(post(&mut client, "hello").text(), "hello");
        until("the node closes", || closed.load(Ordering::SeqCst) == round);
    }
    let seen = bench.settled();
    assert_eq!(
        (seen.completed, seen.retries, seen.nodes[0].failures),
        (10, 0, 0)
    );
}

#[test]
fn a_node_that_does_not_answer_is_not_waited_for() {
    let node = Node::start(|peer| while peer.read_message().is_some() {});
    let bench = Bench::with(&[node.address], |config| {
        config.timeouts.response_head = SOON;
    });
    let mut client = bench.client();
    for _ in 0..2 {
        assert_eq!(outcome(&client.get("/")), (504, Some("response_timeout")));
        assert_eq!(
            outcome(&post(&mut client, "hello")),
            (504, Some("response_timeout"))
        );
    }
    let seen = bench.settled();
    assert_eq!((seen.reason(Reason::ResponseTimeout), seen.retries), (4, 0));
    assert_eq!(seen.nodes[0].connections, 0);
}

#[test]
fn nonsense_is_not_passed_on() {
    let node = Node::answering(|request| {
        let answer = match request.start.split(' ').nth(1).unwrap() {
            "/length" => {
                "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabc".into()
            }
            "/sign" => "HTTP/1.1 200 OK\r\ncontent-length: +3\r\n\r\nabc".into(),
            "/fold" => "HTTP/1.1 200 OK\r\nx-a: b\r\n c\r\ncontent-length: 0\r\n\r\n".into(),
            "/gzip" => "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nabc".into(),
            "/status" => "HTTP/1.1 20 OK\r\n\r\n".into(),
            "/upgrade" => "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n".into(),
            "/large" => format!("HTTP/1.1 200 OK\r\nx-a: {}\r\n\r\n", "b".repeat(100_000)),
            "/many" => format!("HTTP/1.1 200 OK\r\n{}\r\n", "x-a: b\r\n".repeat(200)),
            "/control" => "HTTP/1.1 200 OK\r\nx-a: b\x01c\r\ncontent-length: 0\r\n\r\n".into(),
            "/version" => "HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n".into(),
            _ => "SSH-2.0-OpenSSH_9.2\r\n".to_owned(),
        };
        answer.into_bytes()
    });
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    let paths = [
        "/length", "/sign", "/fold", "/gzip", "/status", "/upgrade", "/large", "/many", "/control",
        "/version", "/ssh",
    ];
    for path in paths {
        assert_eq!(
            outcome(&client.get(path)),
            (502, Some("bad_response")),
            "{path}"
        );
    }
    let seen = bench.settled();
    assert_eq!(seen.nodes[0].failures, paths.len() as u64);
    assert_eq!(seen.nodes[0].connections, 0);
    let outcomes = bench.shared.table.outcomes(NodeId(0));
    assert_eq!(outcomes.failures, paths.len() as u64);
    assert_eq!((outcomes.streak, outcomes.unreachable), (0, 0));
}

#[test]
fn one_url_whose_answer_is_malformed_or_none_ejects_no_node() {
    let nodes = [0; 3].map(|_| {
        Node::start(|peer| {
            while let Some(request) = peer.read_message() {
                let answer = match request.start.split(' ').nth(1).unwrap() {
                    "/malformed" => b"HTTP/1.1 200 OK\r\nx-a: b\r\n c\r\n\r\n".to_vec(),
                    // Its handler crashes.
                    "/crash" => return,
                    _ => ok("ok"),
                };
                peer.write(&answer).unwrap();
            }
        })
    });
    let addresses = nodes.each_ref().map(|node| node.address);
    let bench = Bench::with(&addresses, |config| config.limits.tries = 1);
    let mut director = Director::new(common::cluster(&addresses), 1);
    let mut now = common::clock();
    for (path, reason) in [("/malformed", "bad_response"), ("/crash", "reset")] {
        for _ in 0..40 {
            let answer = bench.client().get(path);
            assert_eq!(outcome(&answer), (502, Some(reason)));
            bench.settled();
            now = now + Duration::from_millis(100);
            director.handle_tick(&bench.shared.table, now);
            while let Some(node) = director.poll_probe(now) {
                let mut peer = Peer::connect(addresses[node.index()]);
                director.handle_probe(node, peer.get("/").status() == 200, now);
            }
            assert_eq!(director.topology().sites[0].candidates.len(), 3, "{path}");
        }
    }
}

#[test]
fn a_length_beside_an_encoding_does_not_reach_the_client() {
    let node = Node::answering(|_| {
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
            .to_vec()
    });
    let bench = Bench::new(&[node.address]);
    let answer = bench.client().get("/");
    assert_eq!((answer.get("content-length"), answer.text()), (None, "abc"));
}

#[test]
fn an_answer_that_breaks_off_arrives_as_far_as_it_came_and_has_no_end() {
    const ROUNDS: u64 = 30;
    for head in ["content-length: 100", "transfer-encoding: chunked"] {
        let node = Node::start(move |peer| {
            peer.read_message();
            peer.send(&format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n3\r\nabc\r\n"));
        });
        let bench = Bench::new(&[node.address]);
        for _ in 0..ROUNDS {
            let mut client = bench.client();
            client.send("GET / HTTP/1.1\r\nhost: shop.example\r\n\r\n");
            let mut rest = Vec::new();
            client.reader.read_to_end(&mut rest).ok();
            // All that came before the break, and no end.
            let text = String::from_utf8_lossy(&rest);
            assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{head}: {text:?}");
            assert!(text.contains("abc"), "{head}: {text:?}");
            assert!(!text.ends_with("0\r\n\r\n"), "{head}: {text:?}");
        }
        let broken = bench.settled().reason(Reason::ResponseBroken);
        assert_eq!(broken, ROUNDS, "{head}");
    }
}

#[test]
fn what_an_answer_is_worth_is_known_at_its_end() {
    let node = Node::start(|peer| {
        let request = peer.read_message().unwrap();
        peer.send("HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nhalf");
        match request.start.contains("/break") {
            true => {}
            false => {
                // Until the client has left, or for the other half.
                peer.read_message();
            }
        }
    });
    let bench = Bench::new(&[node.address]);
    let outcomes = || bench.shared.table.outcomes(NodeId(0));
    let ask = |path: &str| {
        let mut client = bench.client();
        common::ask(&mut client, path);
        client
    };
    for count in 1..=3 {
        ask("/break").is_closed();
        bench.settled();
        let seen = outcomes();
        assert_eq!((seen.successes, seen.failures), (0, count));
        assert_eq!((seen.streak, seen.unreachable), (count as u32, 0));
        assert_eq!(seen.heads, count as u32, "it is alive");
    }
    // A client that leaves is not the node's doing.
    let mut client = ask("/hold");
    assert_eq!(client.read_head().unwrap().status(), 200);
    assert_eq!(outcomes().successes, 0, "not yet");
    drop(client);
    let seen = bench.settled();
    assert_eq!(seen.reason(Reason::ClientGone), 1);
    let after = outcomes();
    assert_eq!((after.successes, after.failures, after.streak), (1, 3, 0));
}

#[test]
fn an_answer_that_stands_still_is_cut() {
    let node = Node::start(|peer| {
        peer.read_message();
        peer.send("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc");
        peer.read_message();
    });
    let bench = Bench::with(&[node.address], |config| config.timeouts.body_idle = SOON);
    let mut client = bench.client();
    client.send("GET / HTTP/1.1\r\nhost: shop.example\r\n\r\n");
    assert_eq!(client.read_head().unwrap().status(), 200);
    let mut rest = Vec::new();
    client.reader.read_to_end(&mut rest).ok();
    assert_eq!(rest, b"abc");
    assert_eq!(bench.settled().reason(Reason::ResponseStalled), 1);
}

#[test]
fn a_client_that_leaves_a_node_standing_still_in_the_middle_of_its_answer_was_failed_by_it() {
    let lengths = [
        ("content-length: 100\r\n\r\nabc", Reason::LeftStalled),
        // A stream of events may rest.
        (
            "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
            Reason::ClientGone,
        ),
    ];
    for (rest, reason) in lengths {
        let node = Node::start(move |peer| {
            peer.read_message();
            peer.send(&format!("HTTP/1.1 200 OK\r\n{rest}"));
            peer.read_message();
        });
        let bench = Bench::new(&[node.address]);
        let mut client = bench.client();
        common::ask(&mut client, "/");
        assert_eq!(client.read_head().unwrap().status(), 200);
        // Longer than the two seconds for which a node may stand still.
        let patience = Some(Duration::from_millis(2500));
        client.stream().set_read_timeout(patience).unwrap();
        let waited = client.reader.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(waited.kind(), ErrorKind::WouldBlock, "{rest:?}");
        drop(client);
        let seen = bench.settled();
        assert_eq!(seen.reason(reason), 1, "{rest:?}");
        let failures = bench.shared.table.outcomes(NodeId(0)).failures;
        assert_eq!(
            failures,
            u64::from(reason == Reason::LeftStalled),
            "{rest:?}"
        );
    }
}

#[test]
fn an_early_answer_comes_through_while_the_body_is_still_being_sent() {
    let node = Node::start(|peer| {
        peer.read_head();
        peer.send("HTTP/1.1 413 Content Too Large\r\ncontent-length: 5\r\n\r\nlarge");
        let mut rest = Vec::new();
        peer.reader.read_to_end(&mut rest).ok();
    });
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    client.send("POST / HTTP/1.1\r\nhost: shop.example\r\ncontent-length: 1000000\r\n\r\nbegin");
    let answer = client.read_response(false);
    assert_eq!((answer.status(), answer.text()), (413, "large"));
    assert_eq!(bench.settled().completed, 1);
}

#[test]
fn an_answer_may_stream_while_the_body_is_still_being_sent() {
    // The client sends all before it reads anything; the answer is larger than all buffers.
    const BYTES: usize = 16 << 20;
    let node = Node::start(|peer| {
        peer.read_head();
        peer.send(&format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {BYTES}\r\n\r\n"
        ));
        let mut stream = peer.stream().try_clone().unwrap();
        let writer = std::thread::spawn(move || {
            std::io::Write::write_all(&mut stream, &vec![b'x'; BYTES - 1]).unwrap();
        });
        let mut body = vec![0; BYTES];
        peer.reader.read_exact(&mut body).unwrap();
        writer.join().unwrap();
        // An answer that ends before the request does would end the request.
        peer.send("x");
    });
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    client.send(&format!(
        "POST / HTTP/1.1\r\nhost: shop.example\r\ncontent-length: {BYTES}\r\n\r\n"
    ));
    client.write(&vec![b'y'; BYTES]).unwrap();
    assert_eq!(client.read_response(false).body.len(), BYTES);
    let seen = bench.settled();
    assert_eq!((seen.completed, seen.bytes_in), (1, BYTES as u64));
}
