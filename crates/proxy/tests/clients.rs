//! Clients that leave, stand still or are too many, and the end of the proxy itself: whatever
//! they do, the books balance and nothing stays in flight.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Bench, Gated, Node, PATIENCE, Peer, ask, ok, until};
use tidegate_core::prng::Prng;
use tidegate_proxy::{Ending, LogFormat, LogTarget, Reason};

const SOON: Duration = Duration::from_millis(60);
const GET: &str = "GET / HTTP/1.1\r\nhost: shop.example\r\n\r\n";

#[test]
fn thousands_of_cancelled_requests_leave_nothing_behind() {
    const CLIENTS: usize = 600;
    const ROUNDS: usize = 4;
    // Requests end in all states: waiting for a head, in the middle of a body, in an upload.
    let waiting = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&waiting);
    let node = Node::start(move |peer| {
        let Some(head) = peer.read_head() else { return };
        if head.start.contains("/body") {
            peer.send("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nabc");
        }
        counter.fetch_add(1, Ordering::SeqCst);
        peer.reader.read_to_end(&mut Vec::new()).ok();
    });
    let bench = Bench::with(&[node.address], |config| config.workers = 2);
    for round in 1..=ROUNDS {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let mut peer = bench.client();
                match client % 3 {
                    0 => peer.send(GET),
                    1 => peer.send("GET /body HTTP/1.1\r\nhost: shop.example\r\n\r\n"),
                    _ => peer.send(
                        "POST / HTTP/1.1\r\nhost: shop.example\r\ncontent-length: 9\r\n\r\nabc",
                    ),
                }
                peer
            })
            .collect();
        until("all requests reach the node", || {
            waiting.load(Ordering::SeqCst) == round * CLIENTS
        });
        assert_eq!(bench.in_flight(), CLIENTS as u64);
        assert_eq!(bench.snapshot().in_flight(), CLIENTS as u64);
        drop(clients);
        bench.settled();
    }
    let seen = bench.settled();
    let left = [Reason::ClientGone, Reason::BodyCut].map(|it| seen.reason(it));
    assert_eq!(left.iter().sum::<u64>(), (CLIENTS * ROUNDS) as u64);
    // Those that had sent part of a body.
    assert_eq!(left[1], (CLIENTS * ROUNDS / 3) as u64);
    until("all connections close", || {
        let seen = bench.snapshot();
        seen.connections == 0 && seen.nodes[0].connections == 0
    });
}

#[test]
fn a_head_that_does_not_end_is_answered_and_closed() {
    let bench = Bench::with(&[Node::nobody()], |config| {
        config.timeouts.client_head = SOON;
    });
    let mut client = bench.client();
    client.send("GET / HTTP/1.1\r\nhost: shop");
    let answer = client.read_response(false);
    assert_eq!(
        (answer.status(), answer.reason()),
        (408, Some("head_timeout"))
    );
    assert!(client.is_closed());
    assert_eq!(bench.settled().reason(Reason::HeadTimeout), 1);
}

#[test]
fn idle_clients_are_closed_without_a_word() {
    let node = Node::ok();
    let bench = Bench::with(&[node.address], |config| {
        config.timeouts.client_head = SOON;
        config.timeouts.client_idle = SOON;
    });
    // One that never says anything, one that has said something.
    assert!(bench.client().is_closed());
    let mut client = bench.client();
    assert_eq!(client.get("/").status(), 200);
    assert!(client.is_closed());
    assert_eq!(bench.settled().requests, 1);
}

#[test]
fn an_upload_that_stands_still_is_answered() {
    let node = Node::start(|peer| while peer.read_message().is_some() {});
    let bench = Bench::with(&[node.address], |config| config.timeouts.body_idle = SOON);
    let mut client = bench.client();
    client.send("POST / HTTP/1.1\r\nhost: shop.example\r\ncontent-length: 10\r\n\r\nabc");
    let answer = client.read_response(false);
    assert_eq!(
        (answer.status(), answer.reason()),
        (408, Some("body_timeout"))
    );
    assert!(client.is_closed());
    let seen = bench.settled();
    assert_eq!(
        (seen.reason(Reason::BodyTimeout), seen.nodes[0].failures),
        (1, 0)
    );
}

#[test]
fn a_tunnel_that_carries_nothing_is_closed() {
    let node = Node::start(|peer| {
        peer.read_head();
        peer.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n");
        peer.reader.read_to_end(&mut Vec::new()).ok();
    });
    let bench = Bench::with(&[node.address], |config| config.timeouts.tunnel_idle = SOON);
    let mut client = bench.client();
    client
        .send("GET / HTTP/1.1\r\nhost: shop.example\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n");
    assert_eq!(client.read_head().unwrap().status(), 101);
    assert!(client.is_closed());
    assert_eq!(bench.settled().reason(Reason::TunnelIdle), 1);
}

/// What may lie in the buffers of sockets and proxy together; without backpressure all of the
/// body would.
const HELD_BYTES_MAX: u64 = 64 << 20;
const BODY_BYTES: u64 = 1 << 30;

#[test]
fn a_client_that_does_not_read_holds_the_node_back() {
    let written = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&written);
    let node = Node::start(move |peer| {
        peer.read_message();
        peer.send(&format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {BODY_BYTES}\r\n\r\n"
        ));
        counter.store(0, Ordering::SeqCst);
        let chunk = [b'x'; 65_536];
        while peer.write(&chunk).is_ok() {
            counter.fetch_add(chunk.len() as u64, Ordering::SeqCst);
        }
    });
    let bench = Bench::with(&[node.address], |config| config.timeouts.body_idle = SOON);
    // On a busy machine the node may be the one that stands still: then once more.
    until("it is the client that stands still", || {
        let ended = bench.snapshot().ended();
        let mut client = bench.client();
        client.send(GET);
        until("the request ends", || bench.snapshot().ended() > ended);
        let held = written.load(Ordering::SeqCst);
        assert!(held < HELD_BYTES_MAX, "{held}");
        bench.snapshot().reason(Reason::ClientStalled) > 0
    });
    bench.settled();
}

#[test]
fn a_node_that_does_not_read_holds_the_client_back() {
    let release = Arc::new(Mutex::new(()));
    let held = release.lock().unwrap();
    let waits = Arc::clone(&release);
    let node = Node::start(move |_| drop(waits.lock()));
    let bench = Bench::with(&[node.address], |config| config.timeouts.body_idle = SOON);
    let chunk = [b'x'; 65_536];
    // On a busy machine the client may be the one that stands still: then once more.
    until("it is the node that stands still", || {
        let mut client = bench.client();
        client.send(&format!(
            "POST / HTTP/1.1\r\nhost: shop.example\r\ncontent-length: {BODY_BYTES}\r\n\r\n"
        ));
        let mut written = 0;
        // The proxy gives up on the node, answers, and after a while on the client.
        while client.write(&chunk).is_ok() && written < BODY_BYTES {
            written += chunk.len() as u64;
        }
        assert!(written < HELD_BYTES_MAX, "{written}");
        bench.settled().reason(Reason::ResponseTimeout) > 0
    });
    drop(held);
}

#[test]
fn one_connection_too_many_is_refused_before_it_is_read() {
    let gated = Gated::new();
    let bench = Bench::with(&[gated.node.address], |config| {
        config.limits.connections = 1
    });
    let mut first = bench.client();
    ask(&mut first, "/");
    until("the first is at the node", || bench.in_flight() == 1);
    let mut second = bench.client();
    // It need not even ask.
    let answer = second.read_response(false);
    assert_eq!(
        (answer.status(), answer.reason()),
        (503, Some("too_many_connections"))
    );
    assert_eq!(answer.get("connection"), Some("close"));
    second.send(GET);
    assert!(second.is_closed());
    gated.open();
    assert_eq!(first.read_response(false).status(), 200);
    let seen = bench.settled();
    assert_eq!((seen.requests, seen.accepted), (1, 1));
    assert_eq!(seen.refused[Reason::TooManyConnections as usize], 1);
    drop(first);
    until("there is room again", || {
        let mut third = bench.client();
        ask(&mut third, "/now");
        third.read_response(false).status() == 200
    });
}

#[test]
fn connections_without_a_request_give_way_to_new_ones() {
    let gated = Gated::new();
    let bench = Bench::with(&[gated.node.address], |config| {
        config.workers = 1;
        config.limits.connections = 4;
    });
    let mut busy = bench.client();
    ask(&mut busy, "/");
    until("it is at the node", || bench.in_flight() == 1);
    let mut silent = bench.client();
    let mut idle = bench.client();
    ask(&mut idle, "/now");
    assert_eq!(idle.read_response(false).status(), 200);
    let mut slow = bench.client();
    slow.send("GET / HTTP/1.1\r\n");
    let mut held = Vec::new();
    // First what has asked for nothing, then what waits for its next request, then what has sent half a head.
    for (count, gives_way) in [&mut silent, &mut idle, &mut slow].into_iter().enumerate() {
        let mut next = bench.client();
        until("a new client is let in", || {
            ask(&mut next, "/now");
            let admitted = next.read_response(false).status() == 200;
            if !admitted {
                next = bench.client();
            }
            admitted
        });
        assert_eq!(bench.snapshot().evicted, count as u64 + 1);
        if count == 2 {
            let answer = gives_way.read_response(false);
            assert_eq!(
                (answer.status(), answer.reason()),
                (408, Some("head_timeout"))
            );
        }
        assert!(gives_way.is_closed(), "{count}");
        // Until it has a request of its own, it would be the next.
        ask(&mut next, "/");
        until("it is at the node", || {
            bench.in_flight() == count as u64 + 2
        });
        held.push(next);
    }
    let refused = bench.client().read_response(false);
    assert_eq!(refused.reason(), Some("too_many_connections"));
    held.push(busy);
    (0..held.len()).for_each(|_| gated.open());
    for client in &mut held {
        assert_eq!(client.read_response(false).status(), 200);
    }
    let seen = bench.settled();
    assert_eq!(seen.evicted, 3);
}

/// A request with a few bytes changed, lost or added.
fn noise(prng: &mut Prng) -> Vec<u8> {
    let mut bytes = b"POST /a?b HTTP/1.1\r\nhost: shop.example\r\nconnection: keep-alive, x\r\n\
                      transfer-encoding: chunked\r\nexpect: 100-continue\r\nupgrade: websocket\r\n\r\n\
                      3\r\nabc\r\n0\r\n\r\n"
        .to_vec();
    for _ in 0..=prng.below(8) {
        let at = prng.below(bytes.len().max(1));
        match prng.below(4) {
            _ if bytes.is_empty() => break,
            0 => bytes[at] = prng.bits() as u8,
            1 => drop(bytes.remove(at)),
            2 => bytes.insert(at, b"\r\n:, \x00\xff0"[prng.below(8)]),
            _ => bytes.truncate(at.max(1)),
        }
    }
    bytes
}

#[test]
fn noise_is_answered_or_closed_and_harms_nobody() {
    let node = Node::ok();
    let bench = Bench::new(&[node.address]);
    std::thread::scope(|scope| {
        for seed in 0..16 {
            let bench = &bench;
            scope.spawn(move || {
                let mut prng = Prng::new(seed);
                for round in 0..40 {
                    let bytes = noise(&mut prng);
                    let mut client = bench.client();
                    // The proxy may have closed in the middle of it, which is an answer too.
                    let sent = client.write(&bytes);
                    client.stream().shutdown(std::net::Shutdown::Write).ok();
                    let mut answer = Vec::new();
                    client.reader.read_to_end(&mut answer).ok();
                    let whole = answer.is_empty() || answer.starts_with(b"HTTP/1.");
                    assert!(whole, "round {round} of seed {seed}: {bytes:?} {sent:?}");
                }
            });
        }
    });
    assert_eq!(bench.client().get("/").status(), 200);
    bench.settled();
}

#[test]
fn a_drain_lets_requests_end_and_closes_connections_behind_their_next_answer() {
    let release = Arc::new(Mutex::new(()));
    let held = release.lock().unwrap();
    let reached = Arc::new(AtomicUsize::new(0));
    let (waits, counter) = (Arc::clone(&release), Arc::clone(&reached));
    let node = Node::answering(move |request| {
        if request.start.contains("/slow") {
            counter.fetch_add(1, Ordering::SeqCst);
            drop(waits.lock());
        }
        ok("ok")
    });
    let mut bench = Bench::new(&[node.address]);
    let mut idle = bench.client();
    assert_eq!(idle.get("/").status(), 200);
    let mut busy = bench.client();
    busy.send("GET /slow HTTP/1.1\r\nhost: shop.example\r\n\r\n");
    until("the request reaches the node", || {
        reached.load(Ordering::SeqCst) == 1
    });
    // Connected, and about to ask.
    let mut fresh = bench.client();
    let proxy = bench.proxy.take().unwrap();
    let drain = std::thread::spawn(move || proxy.drain(PATIENCE));
    let mut asked = 0;
    until("an answer says that the connection closes", || {
        asked += 1;
        let answer = fresh.get("/");
        assert_eq!(answer.text(), "ok");
        answer.get("connection") == Some("close")
    });
    assert!(fresh.is_closed());
    // An idle connection waits for its next request, even if that comes in pieces.
    idle.send("GET / HTTP/1.1\r\nho");
    idle.send("st: shop.example\r\n\r\n");
    let answer = idle.read_response(false);
    assert_eq!(
        (answer.text(), answer.get("connection")),
        ("ok", Some("close"))
    );
    assert!(idle.is_closed());
    drop(held);
    let answer = busy.read_response(false);
    assert_eq!(
        (answer.text(), answer.get("connection")),
        ("ok", Some("close"))
    );
    let drained = drain.join().unwrap();
    assert_eq!(drained.cut, 0);
    let seen = bench.settled();
    assert_eq!((seen.completed, seen.connections), (3 + asked, 0));
    assert!(std::net::TcpStream::connect(bench.address).is_err());
}

#[test]
fn what_is_idle_closes_when_a_drain_runs_out_of_time() {
    let node = Node::ok();
    let mut bench = Bench::new(&[node.address]);
    let mut idle = bench.client();
    assert_eq!(idle.get("/").status(), 200);
    let mut silent = bench.client();
    until("both are accepted", || bench.snapshot().connections == 2);
    let drained = bench.proxy.take().unwrap().drain(SOON);
    assert_eq!((drained.finished, drained.cut), (0, 0));
    assert!(idle.is_closed() && silent.is_closed());
    assert_eq!(bench.settled().requests, 1);
}

#[test]
fn a_drain_cuts_what_does_not_end() {
    let node = Node::start(|peer| {
        let head = peer.read_head().unwrap();
        if head.get("upgrade").is_some() {
            peer.send(
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
            );
        }
        peer.reader.read_to_end(&mut Vec::new()).ok();
    });
    let mut bench = Bench::new(&[node.address]);
    let mut tunnel = bench.client();
    tunnel
        .send("GET / HTTP/1.1\r\nhost: shop.example\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n");
    assert_eq!(tunnel.read_head().unwrap().status(), 101);
    let mut busy = bench.client();
    busy.send(GET);
    until("both are in flight", || bench.in_flight() == 2);
    let drained = bench.proxy.take().unwrap().drain(SOON);
    assert_eq!((drained.finished, drained.cut), (0, 2));
    assert!(busy.is_closed() && tunnel.is_closed());
    assert_eq!(bench.settled().reason(Reason::Drained), 2);
}

#[test]
fn every_request_is_logged_once_and_on_one_line() {
    let path = std::env::temp_dir().join(format!("tidegate-access-{}.log", std::process::id()));
    let node = Node::ok();
    let mut bench = Bench::with(&[node.address], |config| {
        config.log.format = LogFormat::Json;
        config.log.target = LogTarget::File(path.clone());
        config.log.recent = 3;
    });
    let mut client = bench.client();
    client.get("/first");
    client.send(
        "GET /%0a\"x HTTP/1.1\r\nhost: shop.example\r\nuser-agent: a\tb\"}\\ {\"c\":1\r\n\r\n",
    );
    client.read_response(false);
    client.send("GET /none HTTP/1.1\r\nhost: other.example\r\n\r\n");
    client.read_response(false);
    client.send("nonsense\r\n\r\n");
    client.read_response(false);
    until("all are in the books", || bench.snapshot().ended() == 4);
    // The last one is remembered a moment after it is counted.
    let last = || bench.shared.stats.recent().pop();
    until("the last is remembered", || {
        last().is_some_and(|it| it.path().is_empty())
    });
    let recent = bench.shared.stats.recent();
    let paths: Vec<_> = recent
        .iter()
        .map(|recent| recent.path().to_owned())
        .collect();
    assert_eq!(paths, ["/%0a\"x", "/none", ""]);
    assert_eq!(recent[1].reason, Some(Reason::NoSite));
    assert_eq!(recent[0].why.unwrap().in_flight, 1);
    drop(bench.proxy.take());
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 4);
    assert_eq!(
        (&lines[0]["path"], &lines[0]["node"]),
        (&"/first".into(), &"n0".into())
    );
    assert_eq!(
        (&lines[0]["status"], &lines[0]["bytes"]),
        (&200.into(), &2.into())
    );
    assert_eq!(lines[1]["user_agent"], "a\tb\"}\\ {\"c\":1");
    assert_eq!(lines[2]["reason"], "no_site");
    assert_eq!(lines[3]["reason"], "bad_request");
    assert_eq!(bench.snapshot().log_lines, 4);
}

#[test]
fn load_reports_are_read_where_the_site_wants_them() {
    let node = Node::answering(|_| {
        b"HTTP/1.1 200 OK\r\nendpoint-load-metrics: TEXT rif=3\r\ncontent-length: 0\r\n\r\n"
            .to_vec()
    });
    for (wanted, seen) in [(false, Some("TEXT rif=3")), (true, None)] {
        let bench = Bench::with(&[node.address], |config| {
            config.sites[0].load_header = wanted;
        });
        assert_eq!(bench.client().get("/").get("endpoint-load-metrics"), seen);
    }
}

#[test]
fn workers_share_a_port_and_add_up() {
    let node = Node::ok();
    let bench = Bench::with(&[node.address], |config| config.workers = 3);
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                let mut client = bench.client();
                for _ in 0..20 {
                    assert_eq!(client.get("/").status(), 200);
                }
            });
        }
    });
    let seen = bench.settled();
    assert_eq!((seen.requests, seen.completed), (240, 240));
    assert_eq!(seen.ended_as(Ending::Completed), 240);
}

#[test]
fn what_cannot_start_says_why() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let shared = Arc::clone(&Bench::new(&[]).shared);
    let mut config = common::config();
    config.listeners[0].address = taken.local_addr().unwrap();
    let error = tidegate_proxy::Proxy::start(config, Arc::clone(&shared)).unwrap_err();
    assert!(
        error.to_string().starts_with("cannot listen on 127.0.0.1:"),
        "{error}"
    );
    let mut config = common::config();
    config.workers = 2;
    let error = tidegate_proxy::Proxy::start(config, shared).unwrap_err();
    assert_eq!(error.to_string(), "counters for 1 workers do not do for 2");
}

#[test]
fn a_body_behind_a_refusal_does_not_hide_it() {
    let bench = Bench::with(&[Node::nobody()], |config| {
        config.limits.body_bytes = Some(1)
    });
    let mut client: Peer = bench.client();
    client.send("POST / HTTP/1.1\r\nhost: shop.example\r\ncontent-length: 300000\r\n\r\n");
    client.stream().write_all(&[b'x'; 300_000]).unwrap();
    let answer = client.read_response(false);
    assert_eq!(
        (answer.status(), answer.reason()),
        (413, Some("body_too_large"))
    );
    assert!(client.is_closed());
}
