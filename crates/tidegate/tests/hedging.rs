//! Second nodes of slow requests: the example of docs/hedging.md, either node that fails, the budget, and what has none.
#![expect(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod support;

use std::collections::BTreeMap;
use std::io::{BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Condvar, Mutex};

use support::http2::{Connection, run};
use support::http2_node::Http2Node;
use support::server::{head, server_that};
use support::{FrontEnd, eventually, folder, free_address};

/// What both nodes of a test do with requests: whichever of them has a path first is the first.
#[derive(Default)]
struct Nodes {
    seen: Mutex<SeenHeads>,
    changed: Condvar,
}

#[derive(Default)]
struct SeenHeads {
    /// Heads by path, with the name of the node that was asked.
    heads: BTreeMap<String, Vec<&'static str>>,
    /// Paths that the other side has closed the connection of, by the node.
    closed: Vec<(String, &'static str)>,
    /// Paths that go on.
    released: Vec<String>,
    /// This one answers nothing.
    still: Option<&'static str>,
}

impl Nodes {
    fn new() -> &'static Self {
        Box::leak(Box::default())
    }

    fn start(&'static self, name: &'static str) -> SocketAddr {
        server_that(Ipv4Addr::LOCALHOST.into(), move |stream| {
            self.serve(stream, name)
        })
    }

    /// Heads that have come for a path and below it.
    fn heads(&self, path: &str) -> usize {
        let state = self.seen.lock().unwrap();
        let below = state.heads.iter().filter(|(it, _)| it.starts_with(path));
        below.map(|(_, nodes)| nodes.len()).sum()
    }

    fn heads_at(&self, name: &str) -> usize {
        let state = self.seen.lock().unwrap();
        let asked = state.heads.iter().filter(|(path, _)| *path != PROBE);
        let nodes = asked.flat_map(|(_, nodes)| nodes);
        nodes.filter(|it| **it == name).count()
    }

    fn closed(&self) -> usize {
        let state = self.seen.lock().unwrap();
        state.closed.iter().filter(|it| it.0 != PROBE).count()
    }

    /// What waits at this path goes on.
    fn release(&self, path: &str) {
        self.seen.lock().unwrap().released.push(path.into());
        self.changed.notify_all();
    }

    fn until(&self, happened: impl Fn(&SeenHeads) -> bool) {
        let state = self.seen.lock().unwrap();
        drop(self.changed.wait_while(state, |it| !happened(it)).unwrap());
    }

    fn serve(&self, mut stream: TcpStream, name: &'static str) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        loop {
            let head = head(&mut reader)?;
            let path = head.split(' ').nth(1)?.to_owned();
            let mut state = self.seen.lock().unwrap();
            let nodes = state.heads.entry(path.clone()).or_default();
            nodes.push(name);
            let place = nodes.len();
            let still = state.still == Some(name);
            drop(state);
            self.changed.notify_all();
            let has_second = |it: &SeenHeads| it.heads[&path].len() > 1;
            let status = match (path.split('-').next()?, place) {
                (_, _) if still => return self.until_closed(stream, path, name),
                ("/still", _) | ("/stall", 1) | ("/fast", 2) => {
                    return self.until_closed(stream, path, name);
                }
                ("/fast", _) => {
                    self.until(has_second);
                    200
                }
                ("/bad", 2) => 500,
                ("/gone", 2) => return None,
                ("/bad" | "/gone", _) => {
                    self.until(|it| it.released.contains(&path));
                    200
                }
                ("/broken", 1) => {
                    self.until(has_second);
                    return None;
                }
                ("/busy", 1) => {
                    self.until(has_second);
                    503
                }
                ("/broken" | "/busy", _) => {
                    self.until(|it| it.released.contains(&path));
                    200
                }
                _ => 200,
            };
            let length = name.len();
            let answer =
                format!("HTTP/1.1 {status} Said\r\ncontent-length: {length}\r\n\r\n{name}");
            stream.write_all(answer.as_bytes()).ok()?;
        }
    }

    fn until_closed(&self, mut stream: TcpStream, path: String, name: &'static str) -> Option<()> {
        // An error is an end as well.
        stream.read_to_end(&mut Vec::new()).unwrap_or_default();
        self.seen.lock().unwrap().closed.push((path, name));
        None
    }
}

/// Where a node is asked whether it answers at all.
const PROBE: &str = "/";
const ALWAYS: &str = "[[site.route]]\nhedge = { after = \"100ms\", most = 1.0 }\n";

/// A front-end of one worker before these nodes, with this in its site.
fn front_end(name: &str, nodes: &'static Nodes, site: &str) -> FrontEnd {
    let text = format!(
        "[[site]]\nname = \"shop\"\n{site}\n\
         [[node]]\nname = \"n1\"\naddress = \"{}\"\nsite = \"shop\"\n\
         [[node]]\nname = \"n2\"\naddress = \"{}\"\nsite = \"shop\"\n",
        nodes.start("one"),
        nodes.start("two")
    );
    FrontEnd::start_with(&folder(name), &text, "[limits]\nworkers = 1\n")
}

fn outcome(front_end: &FrontEnd, outcome: &str) -> f64 {
    let metric = format!("tidegate_hedged_total{{outcome=\"{outcome}\"}}");
    front_end.metric(&metric).unwrap()
}

fn until(front_end: &FrontEnd, name: &str, count: f64) {
    eventually(name, || (outcome(front_end, name) == count).then_some(()));
}

/// Nothing is left of requests, and no node is blamed for one.
fn assert_nothing_left(front_end: &FrontEnd) {
    for node in ["n1", "n2"] {
        let of = format!("{{site=\"shop\",node=\"{node}\"");
        eventually("its tickets are gone", || {
            let in_flight = front_end.metric(&format!("tidegate_node_in_flight{of}"))?;
            (in_flight == 0.0).then_some(())
        });
        let failures = front_end.metric(&format!("tidegate_node_failures_total{of}"));
        assert_eq!(failures.unwrap_or(0.0), 0.0, "{node}");
    }
}

#[test]
fn the_example_of_the_documentation_answers_though_a_node_stands_still() {
    let nodes = Nodes::new();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/hedging.md");
    let page = std::fs::read_to_string(page).unwrap();
    let example = page.split("```").nth(1).unwrap();
    let mut text = example.trim_start_matches("toml").to_owned();
    for (before, after) in [
        ("127.0.0.1:8080", free_address().to_string()),
        ("127.0.0.1:8081", nodes.start("one").to_string()),
        ("127.0.0.1:8082", nodes.start("two").to_string()),
        ("most = 0.05", "most = 1.0".into()),
        (
            "name = \"shop\"",
            "name = \"shop\"\npolicy = \"round_robin\"".into(),
        ),
    ] {
        assert!(text.contains(before), "{before}");
        text = text.replacen(before, &after, 1);
    }
    let log = folder("hedge-example").join("access.log");
    let log_table = format!(
        "[log]\naccess = \"json\"\nfile = \"{}\"\n",
        log.to_str().unwrap()
    );
    let front_end = FrontEnd::start_with(&folder("hedge-example"), &text, &log_table);
    nodes.seen.lock().unwrap().still = Some("one");
    for number in 0..20 {
        let answer = front_end.get("shop.example", &format!("/products/{number}"));
        assert_eq!((answer.status, &*answer.body), (200, "two"));
    }
    let still = nodes.heads_at("one");
    assert!(still > 0);
    until(&front_end, "won", still as f64);
    eventually("connections are closed", || {
        (nodes.closed() == still).then_some(())
    });
    assert_nothing_left(&front_end);
    // One request is one request.
    let received = front_end.metric("tidegate_requests_received_total");
    assert_eq!(received, Some(20.0));
    eventually("it is in the log", || {
        let log = std::fs::read_to_string(&log).ok()?;
        (log.matches("\"tries\":2,\"hedged\":\"won\"").count() == still).then_some(())
    });
}

#[test]
fn the_first_node_that_answers_after_all_is_the_one() {
    let nodes = Nodes::new();
    let front_end = front_end("hedge-lost", nodes, ALWAYS);
    let answer = front_end.get("a", "/fast");
    assert_eq!(answer.status, 200);
    assert_eq!(nodes.heads("/fast"), 2);
    until(&front_end, "lost", 1.0);
    eventually("the second one is cut off", || {
        (nodes.closed() == 1).then_some(())
    });
    let closed = nodes.seen.lock().unwrap().closed[0].1;
    assert_ne!(closed, answer.body);
    assert_nothing_left(&front_end);
}

#[test]
fn a_second_node_that_fails_costs_nothing() {
    let nodes = Nodes::new();
    let front_end = front_end("hedge-failed", nodes, ALWAYS);
    for (place, path) in ["/bad", "/gone"].into_iter().enumerate() {
        std::thread::scope(|scope| {
            let answer = scope.spawn(|| front_end.get("a", path));
            until(&front_end, "failed", place as f64 + 1.0);
            nodes.release(path);
            let answer = answer.join().unwrap();
            assert_eq!(answer.status, 200);
            let first = nodes.seen.lock().unwrap().heads[path][0];
            assert_eq!(answer.body, first);
        });
        assert_eq!(nodes.heads(path), 2);
    }
    // What it has said counts at the one that said it.
    let answers = |node: &str| {
        let of = format!("{{site=\"shop\",node=\"{node}\",code=\"5xx\"}}");
        let metric = format!("tidegate_node_responses_total{of}");
        front_end.metric(&metric).unwrap_or(0.0)
    };
    assert_eq!(answers("n1") + answers("n2"), 1.0);
    assert_eq!(front_end.metric("tidegate_retries_total"), Some(0.0));
}

#[test]
fn a_first_node_that_fails_leaves_it_to_the_second() {
    let nodes = Nodes::new();
    let site =
        format!("retry_on = [503]\nretry_budget = {{ ratio = 0.0, min_per_second = 0 }}\n{ALWAYS}");
    let front_end = front_end("hedge-takes-over", nodes, &site);
    for (place, path) in ["/broken", "/busy"].into_iter().enumerate() {
        std::thread::scope(|scope| {
            let answer = scope.spawn(|| front_end.get("a", path));
            until(&front_end, "won", place as f64 + 1.0);
            nodes.release(path);
            let answer = answer.join().unwrap();
            assert_eq!(answer.status, 200);
            let second = nodes.seen.lock().unwrap().heads[path][1];
            assert_eq!(answer.body, second);
        });
        assert_eq!(nodes.heads(path), 2);
    }
    // Without a retry, for which there is no budget.
    assert_eq!(front_end.metric("tidegate_retries_total"), Some(0.0));
    assert_eq!(front_end.metric("tidegate_retries_denied_total"), Some(0.0));
}

/// All nodes stand still: the budget bounds what they get more.
#[test]
fn so_many_have_a_second_node_and_no_more() {
    const PAID: usize = 1000;
    const STILL: usize = 100;
    let nodes = Nodes::new();
    let site = "admission = { mode = \"off\" }\n[[site.route]]\n\
                hedge = { after = \"5ms\", most = 0.05 }\ntimeouts = { total = \"3s\" }\n";
    let front_end = front_end("hedge-budget", nodes, site);
    let mut client = TcpStream::connect(front_end.address).unwrap();
    let mut reader = BufReader::new(client.try_clone().unwrap());
    for _ in 0..PAID {
        client
            .write_all(b"GET /paid HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        let head = head(&mut reader).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        reader.read_exact(&mut [0; 3]).unwrap();
    }
    // Some of these may have had one, where the machine is busy.
    let second_nodes = || ["won", "lost", "failed"].map(|it| outcome(&front_end, it));
    let second_nodes = || second_nodes().iter().sum::<f64>();
    let before = second_nodes();
    std::thread::scope(|scope| {
        let asked = (0..STILL).map(|number| {
            let front_end = &front_end;
            scope.spawn(move || front_end.get("a", &format!("/still-{number}")).status)
        });
        let asked: Vec<_> = asked.collect();
        for answer in asked {
            assert_eq!(answer.join().unwrap(), 504);
        }
    });
    // A share of these, and ten that were saved up.
    let asked = second_nodes() - before;
    assert!((5.0..=15.0).contains(&asked), "{asked}");
    let seen = nodes.heads("/still");
    assert!(seen > STILL && seen <= STILL + 15, "{seen}");
    let denied = outcome(&front_end, "no_budget");
    assert!(denied >= STILL as f64 - asked, "{denied}");
    assert_eq!(outcome(&front_end, "no_room"), 0.0);
}

/// Each node has as many as it may: requests wait, and no second node is asked for any.
#[test]
fn a_site_that_queues_has_no_second_nodes() {
    let nodes = Nodes::new();
    let site = format!(
        "admission = {{ mode = \"maxconn\", connections = 1, queue_timeout = \"60s\" }}\n{ALWAYS}"
    );
    let front_end = front_end("hedge-queue", nodes, &site);
    let ask = |number: usize| {
        let mut stream = TcpStream::connect(front_end.address).unwrap();
        let text = format!("GET /still-{number} HTTP/1.1\r\nHost: a\r\n\r\n");
        stream.write_all(text.as_bytes()).unwrap();
        stream
    };
    let clients: Vec<_> = (0..4).map(ask).collect();
    until(&front_end, "no_room", 2.0);
    assert_eq!(nodes.heads("/still"), 2);
    // The next two have their nodes once these have left, and no second one.
    drop(clients);
    eventually("all are over", || {
        let in_flight = front_end.metric("tidegate_requests_in_flight")?;
        (in_flight == 0.0).then_some(())
    });
    let asked = outcome(&front_end, "won") + outcome(&front_end, "lost");
    assert_eq!(asked + outcome(&front_end, "failed"), 0.0);
}

#[test]
fn what_may_do_something_or_is_bound_has_no_second_node() {
    let route = "[[site.route]]\nhedge = { after = \"1ms\", most = 1.0 }\ntimeouts = { total = \"200ms\" }\n";
    let plain = "[[site.route]]\ntimeouts = { total = \"200ms\" }\n";
    let by_address = format!("sticky = {{ hash = \"source\" }}\n{route}");
    for (name, site, method, more) in [
        ("plain", plain, "GET", "\r\n"),
        ("post", route, "POST", "content-length: 0\r\n\r\n"),
        ("put", route, "PUT", "\r\n"),
        ("delete", route, "DELETE", "\r\n"),
        ("body", route, "GET", "content-length: 4\r\n\r\nbody"),
        (
            "tunnel",
            route,
            "GET",
            "connection: upgrade\r\nupgrade: x\r\n\r\n",
        ),
        ("sticky", &by_address, "GET", "\r\n"),
    ] {
        let nodes = Nodes::new();
        let front_end = front_end(&format!("hedge-not-{name}"), nodes, site);
        let mut client = TcpStream::connect(front_end.address).unwrap();
        let text = format!("{method} /still HTTP/1.1\r\nHost: a\r\n{more}");
        client.write_all(text.as_bytes()).unwrap();
        let answer = head(&mut BufReader::new(client)).unwrap();
        assert!(answer.starts_with("HTTP/1.1 504 "), "{name}: {answer}");
        assert_eq!(nodes.heads("/still"), 1, "{name}");
        for outcome_name in ["won", "lost", "failed", "no_room", "no_budget"] {
            assert_eq!(outcome(&front_end, outcome_name), 0.0, "{name}");
        }
    }
}

/// Streams of HTTP/2 on both sides: the one that is not wanted any more is reset, and its connection serves on.
#[test]
fn a_stream_that_lost_is_reset() {
    let (one, two) = (Http2Node::start("one"), Http2Node::start("two"));
    let text = format!(
        "[[site]]\nname = \"shop\"\nnode_protocol = \"h2\"\npolicy = \"round_robin\"\n{ALWAYS}\
         [[node]]\nname = \"n1\"\naddress = \"{}\"\nsite = \"shop\"\n\
         [[node]]\nname = \"n2\"\naddress = \"{}\"\nsite = \"shop\"\n",
        one.address, two.address
    );
    let front_end = FrontEnd::start(&folder("hedge-http2"), &text);
    run(async {
        let mut connection = Connection::open(front_end.address).await;
        for _ in 0..10 {
            let answer = connection.get("/never-one").await;
            assert_eq!((answer.status, answer.text()), (200, "two"));
        }
    });
    let won = outcome(&front_end, "won");
    assert!(won > 0.0);
    eventually("its streams are reset", || {
        (one.resets() as f64 >= won).then_some(())
    });
    // Where the other one took its time, on a busy machine, it was the second.
    let asked = won + outcome(&front_end, "lost");
    assert!(one.resets() as f64 <= asked);
    assert!(one.connections() <= 2, "{}", one.connections());
    assert_nothing_left(&front_end);
}
