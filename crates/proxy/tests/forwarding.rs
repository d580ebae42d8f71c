//! Requests and responses on their way: framing, reuse, streaming, upgrades.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use common::{Bench, Message, Node, Peer, cluster, ok};

#[test]
fn an_answer_comes_through_and_connections_are_kept() {
    let node = Node::ok();
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    for _ in 0..10 {
        let answer = client.get("/a?b=c");
        assert_eq!((answer.status(), answer.text()), (200, "ok"));
        assert_eq!(answer.reason(), None);
        assert_eq!(answer.get("connection"), None);
    }
    let seen = bench.settled();
    assert_eq!((seen.requests, seen.completed), (10, 10));
    assert_eq!(node.connections(), 1);
    assert_eq!(seen.nodes[0].reuses, 9);
    assert_eq!(seen.bytes_out, 20);
    assert_eq!(seen.latency.count(), 10);
}

#[test]
fn requests_without_a_host_name_their_node_and_share_connections_as_others_do() {
    let node = Node::answering(|request| ok(request.get("host").unwrap()));
    let mut spec = cluster(&[node.address]);
    spec.sites[0].hosts = vec!["*".into()];
    let bench = Bench::of(spec, |config| config.workers = 1);
    for _ in 0..3 {
        let mut client = bench.client();
        client.send("GET / HTTP/1.0\r\n\r\n");
        let answer = client.read_response(false);
        assert_eq!(answer.text(), node.address.to_string());
    }
    let mut other = bench.client();
    assert_eq!(other.get("/").text(), "shop.example");
    assert_eq!(node.connections(), 1);
    assert_eq!(bench.settled().nodes[0].reuses, 3);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let node = Node::answering(|request| ok(request.start.split(' ').nth(1).unwrap()));
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    let requests: String = (0..50)
        .map(|number| format!("GET /{number} HTTP/1.1\r\nhost: shop.example\r\n\r\n"))
        .collect();
    client.send(&requests);
    for number in 0..50 {
        assert_eq!(client.read_response(false).text(), format!("/{number}"));
    }
    assert_eq!(bench.settled().completed, 50);
}

#[test]
fn a_large_body_streams_both_ways() {
    const BYTES: usize = 20 << 20;
    let node = Node::answering(|request| {
        let mut answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
            request.body.len()
        );
        answer.push_str(std::str::from_utf8(&request.body).unwrap());
        answer.into_bytes()
    });
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    let body = "0123456789abcdef".repeat(BYTES / 16);
    client.send(&format!(
        "POST /echo HTTP/1.1\r\nhost: shop.example\r\ncontent-length: {BYTES}\r\n\r\n"
    ));
    client.send(&body);
    let answer = client.read_response(false);
    assert_eq!(answer.body.len(), BYTES);
    assert!(answer.text() == body);
    let seen = bench.settled();
    assert_eq!(
        (seen.bytes_in, seen.bytes_out),
        (BYTES as u64, BYTES as u64)
    );
}

#[test]
fn chunks_and_trailers_pass_both_ways() {
    let node = Node::answering(|request| {
        assert_eq!(request.get("transfer-encoding"), Some("chunked"));
        assert_eq!(request.text(), "hello world");
        assert_eq!(request.trailers, [("x-sum".to_owned(), "7".to_owned())]);
        assert_eq!(request.get("te"), Some("trailers"));
        b"HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n\
          3\r\nfoo\r\n3\r\nbar\r\n0\r\nx-sum: 8\r\n\r\n"
            .to_vec()
    });
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    for _ in 0..3 {
        client.send(
            "POST / HTTP/1.1\r\nhost: shop.example\r\nte: trailers, deflate\r\ntrailer: x-sum\r\n\
             transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\nx-sum: 7\r\n\r\n",
        );
        let answer = client.read_response(false);
        assert_eq!(answer.text(), "foobar");
        assert_eq!(answer.trailers, [("x-sum".to_owned(), "8".to_owned())]);
    }
    assert_eq!(bench.settled().completed, 3);
    assert_eq!(node.connections(), 1);
}

#[test]
fn answers_without_a_body_have_none() {
    let node = Node::start(|peer| {
        while let Some(request) = peer.read_message() {
            let answer = match request.start.split(' ').nth(1).unwrap() {
                "/head" => "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n",
                "/204" => "HTTP/1.1 204 No Content\r\n\r\n",
                "/304" => "HTTP/1.1 304 Not Modified\r\netag: \"a\"\r\n\r\n",
                _ => "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            };
            peer.send(answer);
        }
    });
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    let cases = [
        ("HEAD", "/head", 200, Some("1000")),
        ("GET", "/204", 204, None),
        ("GET", "/304", 304, None),
        ("GET", "/empty", 200, Some("0")),
        ("HEAD", "/head", 200, Some("1000")),
    ];
    for (method, path, status, length) in cases {
        client.send(&format!(
            "{method} {path} HTTP/1.1\r\nhost: shop.example\r\n\r\n"
        ));
        let answer = client.read_response(true);
        assert_eq!(answer.status(), status, "{path}");
        assert_eq!(answer.get("content-length"), length, "{path}");
        assert_eq!(answer.get("transfer-encoding"), None, "{path}");
    }
    assert_eq!(bench.settled().completed, 5);
    assert_eq!(node.connections(), 1);
}

#[test]
fn an_answer_that_ends_with_its_connection_is_framed_anew() {
    let node = Node::start(|peer| {
        peer.read_message();
        peer.send("HTTP/1.0 200 OK\r\n\r\nuntil the end");
    });
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    for _ in 0..2 {
        let answer = client.get("/");
        assert_eq!(answer.text(), "until the end");
        assert_eq!(answer.get("transfer-encoding"), Some("chunked"));
    }
    assert_eq!(bench.settled().completed, 2);
}

#[test]
fn http_1_0_clients_get_what_they_understand() {
    let node = Node::answering(|_| {
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nfoo\r\n0\r\n\r\n".to_vec()
    });
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    client.send("GET / HTTP/1.0\r\nhost: shop.example\r\n\r\n");
    let head = client.read_head().unwrap();
    assert_eq!(head.start, "HTTP/1.0 200 OK");
    assert_eq!(head.get("transfer-encoding"), None);
    let mut body = String::new();
    std::io::Read::read_to_string(&mut client.reader, &mut body).unwrap();
    assert_eq!(body, "foo");

    let node = Node::ok();
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    for _ in 0..2 {
        client.send("GET / HTTP/1.0\r\nhost: shop.example\r\nconnection: keep-alive\r\n\r\n");
        let answer = client.read_response(false);
        assert_eq!(answer.get("connection"), Some("keep-alive"));
        assert_eq!(answer.text(), "ok");
    }
}

/// All that comes on a connection.
fn all(client: &mut Peer) -> String {
    let mut text = String::new();
    std::io::Read::read_to_string(&mut client.reader, &mut text).unwrap();
    text
}

#[test]
fn no_answer_to_http_1_0_that_ends_with_its_connection_says_keep_alive() {
    let node = Node::answering(|_| {
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nfoo\r\n0\r\n\r\n".to_vec()
    });
    let bench = Bench::new(&[node.address]);
    for (method, connection, body) in [("GET", "", "foo"), ("TRACE", "close", "CONNECT or TRACE")] {
        let mut client = bench.client();
        client.send(&format!(
            "{method} / HTTP/1.0\r\nhost: shop.example\r\nconnection: keep-alive\r\n\r\n"
        ));
        let text = all(&mut client);
        let (head, rest) = text.split_once("\r\n\r\n").unwrap();
        let lines = head
            .lines()
            .filter_map(|line| line.strip_prefix("connection: "));
        assert_eq!(lines.collect::<String>(), connection, "{text}");
        assert_eq!(rest, body);
    }
}

#[test]
fn names_of_trailers_end_where_trailers_do() {
    let node = Node::answering(|_| {
        b"HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n\
          3\r\nfoo\r\n0\r\nx-sum: 8\r\n\r\n"
            .to_vec()
    });
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    for (fields, names, trailers) in [
        ("", None, 0),
        ("te: deflate\r\n", None, 0),
        ("te: trailers\r\n", Some("x-sum"), 1),
    ] {
        client.send(&format!(
            "GET / HTTP/1.1\r\nhost: shop.example\r\n{fields}\r\n"
        ));
        let answer = client.read_response(false);
        assert_eq!(answer.get("trailer"), names, "{fields}");
        assert_eq!((answer.text(), answer.trailers.len()), ("foo", trailers));
    }
    let mut old = bench.client();
    old.send("GET / HTTP/1.0\r\nhost: shop.example\r\nte: trailers\r\n\r\n");
    let text = all(&mut old);
    assert!(
        !text.contains("trailer") && text.ends_with("\r\n\r\nfoo"),
        "{text}"
    );
}

#[test]
fn a_node_may_switch_only_to_what_was_asked_for() {
    let node = Node::start(|peer| {
        while let Some(request) = peer.read_head() {
            // The path says what it switches to.
            let path = request.start.split(' ').nth(1).unwrap();
            let upgrade = match path.trim_start_matches('/') {
                "" => String::new(),
                protocols => format!("upgrade: {}\r\n", protocols.replace('+', ", ")),
            };
            peer.send(&format!(
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n{upgrade}\r\n"
            ));
        }
    });
    let bench = Bench::new(&[node.address]);
    for (switches_to, status) in [
        ("websocket", 101),
        ("WebSocket", 101),
        ("echo/2", 101),
        ("echo", 101),
        ("echo/2+websocket", 101),
        ("echo/3", 502),
        ("other", 502),
        ("websocket+other", 502),
        ("", 502),
    ] {
        let mut client = bench.client();
        client.send(&format!(
            "GET /{switches_to} HTTP/1.1\r\nhost: shop.example\r\nconnection: upgrade\r\n\
             upgrade: websocket\r\nupgrade: chat, echo/2\r\n\r\n"
        ));
        let answer = client.read_head().unwrap();
        assert_eq!(answer.status(), status, "{switches_to}");
        if status == 502 {
            assert_eq!(answer.reason(), Some("bad_response"));
        }
    }
    bench.settled();
}

#[test]
fn expect_continue_asks_the_node_first() {
    let node = Node::start(|peer| {
        while let Some(head) = peer.read_head() {
            assert_eq!(head.get("expect"), Some("100-continue"));
            if head.start.contains("/refuse") {
                peer.send("HTTP/1.1 417 Expectation Failed\r\ncontent-length: 2\r\n\r\nno");
                return;
            }
            peer.send("HTTP/1.1 100 Continue\r\n\r\n");
            let mut body = [0; 5];
            std::io::Read::read_exact(&mut peer.reader, &mut body).unwrap();
            peer.write(&ok(std::str::from_utf8(&body).unwrap()))
                .unwrap();
        }
    });
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    client.send(
        "POST /take HTTP/1.1\r\nhost: shop.example\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n",
    );
    assert_eq!(client.read_head().unwrap().status(), 100);
    client.send("hello");
    assert_eq!(client.read_response(false).text(), "hello");

    client.send(
        "POST /refuse HTTP/1.1\r\nhost: shop.example\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n",
    );
    let answer = client.read_response(false);
    assert_eq!((answer.status(), answer.text()), (417, "no"));
    bench.settled();
}

fn websocket(client: &mut Peer) -> Message {
    client.send(
        "GET /chat HTTP/1.1\r\nhost: shop.example\r\nconnection: keep-alive, Upgrade\r\n\
         upgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\nearly",
    );
    client.read_head().unwrap()
}

fn echo() -> Node {
    Node::start(|peer| {
        let head = peer.read_head().unwrap();
        assert_eq!(head.get("upgrade"), Some("websocket"));
        assert_eq!(head.get("connection"), Some("upgrade"));
        peer.send(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\nhi!",
        );
        let mut buffer = [0; 1024];
        loop {
            match std::io::Read::read(&mut peer.reader, &mut buffer) {
                Ok(0) => break,
                Ok(read) => peer.write(&buffer[..read]).unwrap(),
                Err(_) => return,
            }
        }
        // The client is done; this side is not.
        peer.send("bye");
    })
}

#[test]
fn a_tunnel_carries_both_ways_and_closes_by_halves() {
    let node = echo();
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    let head = websocket(&mut client);
    assert_eq!(head.status(), 101);
    assert_eq!(head.get("upgrade"), Some("websocket"));
    assert_eq!(head.get("connection"), Some("upgrade"));
    let mut early = [0; 8];
    std::io::Read::read_exact(&mut client.reader, &mut early).unwrap();
    assert_eq!(&early, b"hi!early");
    for word in ["one", "two"] {
        client.send(word);
        let mut back = [0; 3];
        std::io::Read::read_exact(&mut client.reader, &mut back).unwrap();
        assert_eq!(&back, word.as_bytes());
    }
    assert_eq!((bench.in_flight(), bench.snapshot().tunnels_open), (1, 1));
    client.shut();
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut client.reader, &mut rest).unwrap();
    assert_eq!(rest, "bye");
    let seen = bench.settled();
    assert_eq!((seen.completed, seen.tunnels, seen.tunnels_open), (1, 1, 0));
    assert_eq!((seen.bytes_in, seen.bytes_out), (11, 3 + 11 + 3));
    let durations = [
        &seen.sites[0].tunnels,
        &seen.sites[0].latency,
        &seen.latency,
    ];
    assert_eq!(
        durations.map(|it| it.count()),
        [1, 0, 0],
        "a tunnel is no answer"
    );
    assert_eq!(seen.sites[0].status_classes[0], 1);
}

#[test]
fn an_upgrade_that_the_node_declines_is_an_ordinary_answer() {
    let node = Node::ok();
    let bench = Bench::new(&[node.address]);
    let mut client = bench.client();
    client.send(
        "GET /chat HTTP/1.1\r\nhost: shop.example\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    );
    assert_eq!(client.read_response(false).text(), "ok");
    assert_eq!(client.get("/").text(), "ok");
    assert_eq!(bench.settled().completed, 2);
}

#[test]
fn tunnels_are_limited() {
    let node = echo();
    let bench = Bench::with(&[node.address], |config| config.limits.tunnels = 1);
    let mut first = bench.client();
    assert_eq!(websocket(&mut first).status(), 101);
    let mut byte = [0];
    std::io::Read::read_exact(&mut first.reader, &mut byte).unwrap();
    let refused = websocket(&mut bench.client());
    assert_eq!(
        (refused.status(), refused.reason()),
        (503, Some("too_many_tunnels"))
    );
}

#[test]
fn the_node_may_be_named_for_debugging() {
    let node = Node::ok();
    let bench = Bench::with(&[node.address], |config| config.node_header = true);
    assert_eq!(bench.client().get("/").get("x-tidegate-node"), Some("n0"));
}
