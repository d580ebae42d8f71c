//! Requests that find no room: they wait, go on when there is some, or are refused in time.

mod common;

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use common::{Bench, Gated, Message, Node, ask, ok, until};
use tidegate_core::admission::{AdmissionConfig, AdmissionKind, Priority, Rank};
use tidegate_core::topology::{NodeId, SiteId};
use tidegate_proxy::{
    LogFormat, LogTarget, PriorityConfig, ProxyConfig, Reason, SessionConfig, SessionSource,
};

fn adaptive(slo: Duration, queue: u32) -> AdmissionConfig {
    AdmissionConfig {
        slo,
        queue,
        ..AdmissionConfig::new(AdmissionKind::Adaptive)
    }
}

/// A proxy that gives this node one request at a time; nothing moves the limit.
fn bench(gated: &Gated, config: AdmissionConfig) -> Bench {
    bench_with(gated, config, |_| ())
}

fn bench_with(
    gated: &Gated,
    admission: AdmissionConfig,
    change: impl FnOnce(&mut ProxyConfig),
) -> Bench {
    bench_at(gated.node.address, admission, change)
}

fn bench_at(
    node: SocketAddr,
    admission: AdmissionConfig,
    change: impl FnOnce(&mut ProxyConfig),
) -> Bench {
    let bench = Bench::admitting_with(&[node], admission, change);
    // The highest of several priorities finds room a little longer, and so do established sessions.
    let several = admission.priorities > 1;
    let high = |priority: Priority| priority.is_established() || several && priority.index() == 0;
    let longer = |rank: Rank| high(rank.priority());
    let limits = Rank::ALL.map(|rank| if longer(rank) { 1.15 } else { 1.0 });
    bench.shared.table.set_limits(NodeId(0), limits);
    bench
}

const LONG: Duration = Duration::from_secs(600);

#[test]
fn whoever_finds_no_room_goes_on_when_there_is_some() {
    let gated = Gated::new();
    let bench = bench(&gated, adaptive(LONG, 10));
    let mut clients: Vec<_> = (0..3).map(|_| bench.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        ask(client, "/");
        until("it is there", || {
            bench.snapshot().requests == number as u64 + 1
        });
    }
    until("two have found no room", || {
        bench.shared.table.found_no_room(SiteId(0)) == 2
    });
    assert_eq!(bench.in_flight(), 1, "the others wait here, not there");
    assert_eq!(bench.snapshot().sites[0].queued, 2);
    for client in &mut clients {
        gated.open();
        let answer = client.read_response(false);
        assert_eq!((answer.status(), answer.text()), (200, "served"));
    }
    assert_eq!(
        gated.node.connections(),
        1,
        "kept connections serve those too"
    );
    bench.settled();
}

#[test]
fn room_that_others_left_is_taken_when_it_is_told() {
    let gated = Gated::new();
    let bench = bench(&gated, adaptive(LONG, 10));
    let table = &bench.shared.table;
    table.set_limits(NodeId(0), [0.0; Rank::COUNT]);
    let mut client = bench.client();
    ask(&mut client, "/now");
    until("it waits", || table.found_no_room(SiteId(0)) == 1);
    table.set_limits(NodeId(0), [1.0; Rank::COUNT]);
    until("it was sent", || {
        bench.shared.room_freed.notify_waiters();
        table.own(NodeId(0)).dispatched == 1
    });
    assert_eq!(client.read_response(false).status(), 200);
    bench.settled();
}

/// A node that says yes to `/tunnel`, begins the answer to `/long` and ends it at the signal, does
/// not answer `/poll` before that, and everything else at once.
fn unhurried() -> (Node, Sender<()>) {
    let (go_on, gate) = channel();
    let gate: Arc<Mutex<Receiver<()>>> = Arc::new(Mutex::new(gate));
    let node = Node::start(move |peer| {
        let wait = || {
            let gate = gate.lock().unwrap_or_else(PoisonError::into_inner);
            gate.recv().ok();
        };
        while let Some(request) = peer.read_message() {
            let answer = ok("served");
            let sent = match request.start.split(' ').nth(1) {
                Some("/tunnel") => peer.write(
                    b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
                ),
                Some("/long") => {
                    let (begin, end) = answer.split_at(answer.len() - 3);
                    let begun = peer.write(begin);
                    wait();
                    begun.and_then(|()| peer.write(end))
                }
                Some("/poll") => {
                    wait();
                    peer.write(&answer)
                }
                _ => peer.write(&answer),
            };
            if sent.is_err() {
                break;
            }
        }
    });
    (node, go_on)
}

/// With room for one request at the node, and one there that rests, this many are served beside it.
fn are_served_beside(bench: &Bench) {
    let table = &bench.shared.table;
    let mut client = bench.client();
    for _ in 0..5 {
        assert_eq!(client.get("/").status(), 200);
    }
    until("those have ended", || table.in_flight(NodeId(0)) == 1);
    assert_eq!((table.at_work(NodeId(0)), table.resting(NodeId(0))), (0, 1));
}

fn settled_without_rest(bench: &Bench) {
    bench.settled();
    let table = &bench.shared.table;
    assert_eq!((table.at_work(NodeId(0)), table.resting(NodeId(0))), (0, 0));
}

#[test]
fn a_tunnel_holds_no_room() {
    let (node, _go_on) = unhurried();
    let bench = bench_at(node.address, adaptive(LONG, 10), |_| ());
    let mut client = bench.client();
    client.send(
        "GET /tunnel HTTP/1.1\r\nhost: shop.example\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
    );
    assert_eq!(client.read_head().unwrap().status(), 101);
    are_served_beside(&bench);
    drop(client);
    settled_without_rest(&bench);
}

#[test]
fn an_answer_that_goes_on_for_long_holds_no_room() {
    let (node, go_on) = unhurried();
    let bench = bench_at(node.address, adaptive(LONG, 10), |_| ());
    let mut client = bench.client();
    ask(&mut client, "/long");
    are_served_beside(&bench);
    go_on.send(()).unwrap();
    assert_eq!(client.read_response(false).text(), "served");
    settled_without_rest(&bench);
}

#[test]
fn whoever_waits_gets_the_room_of_what_begins_to_rest() {
    let (node, go_on) = unhurried();
    let bench = bench_at(node.address, adaptive(LONG, 10), |_| ());
    let (mut client, mut other) = (bench.client(), bench.client());
    ask(&mut client, "/long");
    until("it is at the node", || bench.in_flight() == 1);
    assert_eq!(other.get("/").status(), 200);
    go_on.send(()).unwrap();
    assert_eq!(client.read_response(false).text(), "served");
    settled_without_rest(&bench);
}

#[test]
fn an_answer_that_is_long_overdue_holds_no_room_where_others_are_answered() {
    let (node, go_on) = unhurried();
    let bench = bench_at(
        node.address,
        adaptive(Duration::from_millis(50), 10),
        |_| (),
    );
    let table = &bench.shared.table;
    let mut client = bench.client();
    ask(&mut client, "/poll");
    until("it is at the node", || bench.in_flight() == 1);
    // The director has seen that others are answered.
    table.believe_unanswered(NodeId(0), true);
    until("it rests", || table.resting(NodeId(0)) == 1);
    are_served_beside(&bench);
    table.believe_unanswered(NodeId(0), false);
    assert_eq!((table.at_work(NodeId(0)), table.resting(NodeId(0))), (1, 0));
    go_on.send(()).unwrap();
    assert_eq!(client.read_response(false).status(), 200);
    settled_without_rest(&bench);
}

#[test]
fn whoever_waits_too_long_or_finds_the_queue_full_is_told() {
    let gated = Gated::new();
    let bench = bench(&gated, adaptive(Duration::from_millis(500), 1));
    let mut clients: Vec<_> = (0..3).map(|_| bench.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        ask(client, "/");
        until("it is there", || {
            bench.snapshot().requests == number as u64 + 1
        });
    }
    // The oldest of the lowest priority makes room for the newest.
    let refused: Vec<_> = clients[1..]
        .iter_mut()
        .map(|client| client.read_response(false))
        .collect();
    let told = |answer: &Message| {
        assert_eq!(answer.status(), 503);
        assert!(answer.get("retry-after").is_some());
        answer.reason().map(str::to_owned)
    };
    assert_eq!(told(&refused[0]).as_deref(), Some("queue_full"));
    assert_eq!(told(&refused[1]).as_deref(), Some("queue_timeout"));
    gated.open();
    assert_eq!(clients[0].read_response(false).status(), 200);
    let site = &bench.settled().sites[0];
    let counts = [&site.latency, &site.refusals, &site.queueing].map(|it| it.count());
    assert_eq!(counts, [1, 2, 2], "a refusal is no latency of the site");
    assert_eq!(site.reason(Reason::QueueTimeout), 1);
    assert_eq!(site.queued, 0);
}

#[test]
fn the_log_has_the_wait_of_requests_that_were_refused_while_they_waited() {
    let path = std::env::temp_dir().join(format!("tidegate-queued-{}.log", std::process::id()));
    let gated = Gated::new();
    let admission = adaptive(Duration::from_millis(500), 1);
    let mut bench = bench_with(&gated, admission, |config| {
        config.log.format = LogFormat::Json;
        config.log.target = LogTarget::File(path.clone());
    });
    let mut clients: Vec<_> = (0..3).map(|_| bench.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        ask(client, "/");
        until("it is there", || {
            bench.snapshot().requests == number as u64 + 1
        });
    }
    for client in &mut clients[1..] {
        assert_eq!(client.read_response(false).status(), 503);
    }
    let mut stranger = bench.client();
    stranger.send("GET / HTTP/1.1\r\nhost: other.example\r\n\r\n");
    assert_eq!(stranger.read_response(false).reason(), Some("no_site"));
    gated.open();
    assert_eq!(clients[0].read_response(false).status(), 200);
    bench.settled();
    drop(bench.proxy.take());
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let lines: Vec<serde_json::Value> = (text.lines())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let line_of = |reason| lines.iter().find(|line| line["reason"] == reason).unwrap();
    for reason in ["queue_full", "queue_timeout"] {
        let line = line_of(reason);
        assert!(line["queue_us"].as_u64().unwrap() > 0, "{line}");
        assert_eq!(line["queue_us"], line["duration_us"], "{line}");
    }
    assert_eq!(line_of("no_site")["queue_us"], 0, "it waited for no node");
}

#[test]
fn whoever_leaves_while_he_waits_takes_nobodys_turn() {
    let gated = Gated::new();
    let bench = bench(&gated, adaptive(LONG, 10));
    let mut first = bench.client();
    ask(&mut first, "/");
    until("it is at the node", || bench.in_flight() == 1);
    let mut leaves = bench.client();
    ask(&mut leaves, "/");
    until("it waits", || {
        bench.shared.table.found_no_room(SiteId(0)) == 1
    });
    let mut last = bench.client();
    ask(&mut last, "/now");
    until("it waits too", || {
        bench.shared.table.found_no_room(SiteId(0)) == 2
    });
    drop(leaves);
    gated.open();
    assert_eq!(first.read_response(false).status(), 200);
    // Should the one that left still be sent on, the gate lets it through.
    gated.open();
    assert_eq!(last.read_response(false).status(), 200);
    bench.settled();
}

/// With one request at the node and one of the lowest priority that waits, this one goes at once.
fn goes_first(bench: &Bench, gated: &Gated, request: &str) {
    let mut first = bench.client();
    ask(&mut first, "/");
    until("it is at the node", || bench.in_flight() == 1);
    let waited = bench.shared.table.found_no_room(SiteId(0));
    let mut low = bench.client();
    ask(&mut low, "/");
    until("it waits", || {
        bench.shared.table.found_no_room(SiteId(0)) == waited + 1
    });
    let mut high = bench.client();
    high.send(request);
    assert_eq!(
        high.read_response(false).status(),
        200,
        "room above the limit: {request}"
    );
    for client in [&mut first, &mut low] {
        gated.open();
        assert_eq!(client.read_response(false).status(), 200);
    }
    bench.settled();
}

#[test]
fn priorities_are_told_by_a_header_a_cookie_or_the_path() {
    let gated = Gated::new();
    let config = AdmissionConfig {
        priorities: 2,
        ..adaptive(LONG, 10)
    };
    let bench = bench_with(&gated, config, |config| {
        config.sites[0].priorities = PriorityConfig {
            cookie: Some("plan".into()),
            values: vec![("gold".into(), 0)],
            paths: vec![("/now/checkout".into(), 0)],
            ..PriorityConfig::default()
        };
    });
    for request in [
        "GET /now HTTP/1.1\r\nhost: shop.example\r\nx-tidegate-priority: gold\r\n\r\n",
        "GET /now HTTP/1.1\r\nhost: shop.example\r\ncookie: a=b; plan=gold\r\n\r\n",
        "GET /now/checkout/1 HTTP/1.1\r\nhost: shop.example\r\n\r\n",
    ] {
        goes_first(&bench, &gated, request);
    }
}

#[test]
fn whoever_was_let_in_goes_first() {
    let gated = Gated::new();
    let bench = bench_with(&gated, adaptive(LONG, 10), |config| {
        config.sites[0].sessions = Some(SessionConfig {
            source: SessionSource::Cookie("sid".into()),
            window: LONG,
        });
    });
    let known = "GET /now HTTP/1.1\r\nhost: shop.example\r\ncookie: sid=alice\r\n\r\n";
    let mut client = bench.client();
    client.send(known);
    assert_eq!(client.read_response(false).status(), 200);
    assert_eq!(
        bench.settled().sites[0].established,
        0,
        "not before it was let in"
    );
    goes_first(&bench, &gated, known);
    assert_eq!(bench.snapshot().sites[0].established, 1);
}
