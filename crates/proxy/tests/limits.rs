//! Limits that all workers keep together, and the number of header fields.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use common::{Bench, Gated, Node, ask, until};
use tidegate_proxy::Reason;

const UPGRADE: &str =
    "GET / HTTP/1.1\r\nhost: shop.example\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";

#[test]
fn the_limit_on_connections_is_exact_whichever_worker_they_come_to() {
    const LIMIT: usize = 20;
    let gated = Gated::new();
    let bench = Bench::with(&[gated.node.address], |config| {
        config.workers = 3;
        config.limits.connections = LIMIT;
    });
    let mut open = Vec::new();
    for count in 1..=LIMIT {
        let mut client = bench.client();
        ask(&mut client, "/");
        until("it is at the node", || bench.in_flight() == count as u64);
        open.push(client);
    }
    for _ in 0..LIMIT {
        let answer = bench.client().read_response(false);
        assert_eq!(answer.reason(), Some("too_many_connections"));
    }
    // One that leaves makes room for one.
    open.pop();
    until("the connection has ended", || {
        bench.snapshot().connections == LIMIT as u64 - 1
    });
    assert_eq!(bench.client().get("/now").status(), 200);
}

#[test]
fn each_connection_beyond_the_limit_gets_its_answer_however_few_may_linger() {
    for lingering in [0, 1, 4] {
        let gated = Gated::new();
        let bench = Bench::with(&[gated.node.address], |config| {
            config.limits.connections = 1;
            config.limits.lingering = lingering;
        });
        let mut first = bench.client();
        ask(&mut first, "/");
        until("it is at the node", || bench.in_flight() == 1);
        let mut refused: Vec<_> = (0..50).map(|_| bench.client()).collect();
        until("all are refused", || {
            bench.snapshot().refused[Reason::TooManyConnections as usize] == 50
        });
        for client in &mut refused {
            let answer = client.read_response(false);
            assert_eq!(answer.reason(), Some("too_many_connections"), "{lingering}");
            assert!(client.is_closed());
        }
        gated.open();
        assert_eq!(first.read_response(false).status(), 200);
        assert_eq!(bench.snapshot().accept_errors, 0);
    }
}

#[test]
fn tunnels_are_counted_before_a_node_allows_them() {
    // A node that thinks for a while before it agrees or refuses.
    let gated = Gated::new();
    let bench = Bench::with(&[gated.node.address], |config| {
        config.workers = 2;
        config.limits.tunnels = 1;
    });
    let mut first = bench.client();
    first.send(UPGRADE);
    until("the first is at the node", || bench.in_flight() == 1);
    let mut second = bench.client();
    second.send(UPGRADE);
    let answer = second.read_response(false);
    assert_eq!(
        (answer.status(), answer.reason()),
        (503, Some("too_many_tunnels"))
    );
    // The node declines: the place is free again.
    gated.open();
    assert_eq!(first.read_response(false).status(), 200);
    second.send(UPGRADE);
    until("the second is at the node", || bench.in_flight() == 1);
    gated.open();
    assert_eq!(second.read_response(false).status(), 200);
    assert_eq!(bench.settled().reason(Reason::TooManyTunnels), 1);
}

#[test]
fn as_many_header_fields_come_through_as_may_and_no_more() {
    for limit in [50, 100, 300] {
        let node = Node::answering(|request| {
            let fields = request.start.rsplit('/').nth(1).unwrap();
            let fields: usize = fields.split(' ').next().unwrap().parse().unwrap();
            let more: String = (1..fields).map(|it| format!("x-{it}: a\r\n")).collect();
            format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{more}\r\n").into_bytes()
        });
        let bench = Bench::with(&[node.address], |config| config.limits.fields = limit);
        let mut client = bench.client();
        let mut get = |path: usize, fields: usize| {
            let more: String = (1..fields).map(|it| format!("x-{it}: a\r\n")).collect();
            client.send(&format!(
                "GET /{path} HTTP/1.1\r\nhost: shop.example\r\n{more}\r\n"
            ));
            client.read_response(false)
        };
        assert_eq!(get(limit, 1).status(), 200, "{limit}");
        assert_eq!(get(1, limit).status(), 200, "{limit}");
        let answer = get(limit + 1, 1);
        assert_eq!(
            (answer.status(), answer.reason()),
            (502, Some("bad_response"))
        );
        let answer = get(1, limit + 1);
        assert_eq!(
            (answer.status(), answer.reason()),
            (431, Some("head_too_large"))
        );
    }
}

#[test]
fn a_connection_that_asks_in_vain_for_a_tunnel_holds_no_place() {
    let node = Node::start(|peer| {
        peer.read_head();
        // Not a word of a tunnel, and a body that does not end.
        peer.send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc");
        peer.read_head();
    });
    let bench = Bench::with(&[node.address], |config| config.limits.tunnels = 1);
    let clients = [(); 3].map(|()| {
        let mut client = bench.client();
        client.send(UPGRADE);
        assert_eq!(client.read_head().unwrap().status(), 200);
        client
    });
    let mut last = bench.client();
    ask(&mut last, "/");
    assert_eq!(last.read_head().unwrap().status(), 200);
    drop(clients);
}
