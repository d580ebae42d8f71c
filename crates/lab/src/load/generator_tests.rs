//! The generator against servers of this process. What is asserted are counts that the server
//! forces, not speeds: the machine may be busy.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use super::*;
use crate::load::{Size, Stream};

type Answer = dyn Fn(&Asked, &mut TcpStream) -> io::Result<()> + Send + Sync;

/// What a server was asked.
struct Asked {
    path: String,
    head: Vec<String>,
}

/// A server with a thread per connection; `answer` gets the request and writes what it likes.
struct Server {
    address: SocketAddr,
    connections: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Server {
    fn start(
        answer: impl Fn(&Asked, &mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            stop: Arc::default(),
        };
        let (connections, stop) = (Arc::clone(&server.connections), Arc::clone(&server.stop));
        let answer: Arc<Answer> = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::Acquire) {
                    return;
                }
                connections.fetch_add(1, Ordering::AcqRel);
                let answer = Arc::clone(&answer);
                // A client that goes away ends its thread.
                std::thread::spawn(move || serve(stream?, &*answer));
            }
        });
        server
    }

    fn connections(&self) -> u64 {
        self.connections.load(Ordering::Acquire)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        TcpStream::connect(self.address).ok();
    }
}

fn serve(mut stream: TcpStream, answer: &Answer) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line == "\r\n" {
                break;
            }
            head.push(line);
        }
        let path = head[0].split(' ').nth(1).unwrap_or_default().to_owned();
        let asked = Asked { path, head };
        answer(&asked, &mut stream)?;
        if asked.head.iter().any(|line| line.contains("close")) {
            return Ok(());
        }
    }
}

fn ok(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nnode: n1\r\ncontent-length: 2\r\n\r\nok")
}

fn plan(target: SocketAddr, pacing: Pacing, requests: Requests) -> LoadPlan {
    LoadPlan {
        targets: vec![target],
        streams: vec![Stream {
            site: "shop.example".to_owned(),
            pacing,
            requests,
            header: None,
        }],
        warm_up: Duration::ZERO,
        length: Duration::from_millis(500),
        ..LoadPlan::default()
    }
}

fn single(path: &str) -> Requests {
    Requests::Single {
        path: path.to_owned(),
    }
}

fn paced(rate: f64) -> Pacing {
    let arrivals = Arrivals::Paced;
    Pacing::Open { rate, arrivals }
}

fn closed(clients: u32) -> Pacing {
    let think = Duration::ZERO;
    Pacing::Closed { clients, think }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the server stalls in real time")]
fn a_stall_shows_in_the_latency_of_every_request_that_was_due_in_it() {
    const STALL: Duration = Duration::from_millis(400);
    const FIRST: u64 = 60;
    // From the request of this number on, nothing is answered for 400 ms. A generator that waits
    // for answers would see one slow request per connection; all that were due must be slow.
    let seen = AtomicU64::new(0);
    let end: Mutex<Option<Instant>> = Mutex::new(None);
    let server = Server::start(move |_, stream| {
        if seen.fetch_add(1, Ordering::AcqRel) >= FIRST {
            let now = Instant::now();
            let end = *end.lock().unwrap().get_or_insert(now + STALL);
            std::thread::sleep(end.saturating_duration_since(now));
        }
        ok(stream)
    });
    let mut plan = plan(server.address, paced(200.0), single("/"));
    plan.length = Duration::from_secs(1);
    plan.windows = Some(Duration::from_millis(100));
    let result = run(&plan).unwrap();
    let stream = &result.streams[0];
    assert_eq!(stream.completed, stream.offered, "{:?}", stream.errors);
    assert!((199..=200).contains(&stream.offered));
    // The stall begins when the first one in it arrives, thus not before it was due. The 60 that
    // are due within 300 ms after it are then due 100 ms before the stall's end, or more.
    let slow = stream.slower_than(95.0);
    assert!(slow >= 60, "only {slow} requests were slow");
    assert!(stream.max_ms >= 390.0, "{}", stream.max_ms);
    assert_eq!(stream.series.len(), 10);
}

#[test]
fn a_closed_loop_keeps_exactly_its_clients_in_flight() {
    const CLIENTS: u32 = 7;
    // Answers only when all clients wait at the same time, or none came for a while.
    let state = Arc::new((Mutex::new((0_u32, 0_u32, 0_u32)), Condvar::new()));
    let shared = Arc::clone(&state);
    let server = Server::start(move |_, stream| {
        let (counts, changed) = &*shared;
        let mut now = counts.lock().unwrap();
        now.0 += 1;
        now.1 = now.1.max(now.0);
        if now.0 == CLIENTS {
            now.0 = 0;
            now.2 += 1;
            changed.notify_all();
        } else {
            let round = now.2;
            let patience = Duration::from_secs(5);
            let same = |it: &mut (u32, u32, u32)| it.2 == round;
            now = changed.wait_timeout_while(now, patience, same).unwrap().0;
            if now.2 == round {
                now.0 -= 1; // the run is over
            }
        }
        drop(now);
        ok(stream)
    });
    let result = run(&plan(server.address, closed(CLIENTS), single("/"))).unwrap();
    let (_, most, rounds) = *state.0.lock().unwrap();
    assert_eq!(most, CLIENTS);
    assert!(rounds > 0, "never did all {CLIENTS} wait");
    let stream = &result.streams[0];
    assert!(stream.completed >= u64::from(rounds * CLIENTS));
    assert_eq!((stream.failed, stream.late), (0, 0));
    assert_eq!(server.connections(), u64::from(CLIENTS));
}

#[test]
fn failures_are_counted_by_kind() {
    let server = Server::start(|asked, stream| match asked.path.as_str() {
        "/500" => stream.write_all(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n"),
        "/503" => stream.write_all(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n"),
        "/close" => stream.shutdown(std::net::Shutdown::Both),
        "/half" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")?;
            stream.shutdown(std::net::Shutdown::Both)
        }
        "/garbage" => stream.write_all(b"220 smtp.example ready\r\n\r\n"),
        _ => Ok(()), // never
    });
    let failed = |path: &str| {
        let mut plan = plan(server.address, paced(40.0), single(path));
        plan.length = Duration::from_millis(250);
        if path == "/never" {
            plan.timeout = Duration::from_millis(300);
        }
        let stream = run(&plan).unwrap().streams.remove(0);
        let counted = stream.completed + stream.refused + stream.failed;
        assert_eq!(stream.offered, counted, "{path}");
        assert_eq!((stream.offered, stream.completed), (10, 0), "{path}");
        assert_eq!(stream.errors.values().sum::<u64>(), stream.failed);
        (
            stream.refused,
            stream.errors.into_keys().collect::<Vec<_>>(),
        )
    };
    assert_eq!(failed("/500"), (0, vec!["status 500".to_owned()]));
    assert_eq!(failed("/503"), (10, vec![]));
    assert_eq!(failed("/never"), (0, vec!["timed out".to_owned()]));
    assert_eq!(
        failed("/garbage"),
        (0, vec!["answer is not HTTP".to_owned()])
    );
    for path in ["/close", "/half"] {
        let (_, kinds) = failed(path);
        let short = |kind: &String| kind.contains("closed") || kind.contains("connection");
        assert!(kinds.iter().all(short), "{path}: {kinds:?}");
    }
}

#[test]
fn nobody_there_is_a_failure_of_the_connect() {
    // The port is held by a socket that does not listen.
    let holder = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    )
    .unwrap();
    rustix::net::bind(&holder, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = rustix::net::getsockname(&holder).unwrap();
    let address = SocketAddr::try_from(address).unwrap();
    let stream = run(&plan(address, closed(2), single("/"))).unwrap();
    let stream = &stream.streams[0];
    assert!(stream.failed > 0 && stream.completed == 0);
    assert_eq!(stream.errors.len(), 1);
    assert_eq!(stream.errors["connect: connection refused"], stream.failed);
    // They rest after a failure: at most one attempt in ten milliseconds and client.
    assert!(stream.failed <= 2 * 51, "{}", stream.failed);
}

#[test]
fn connections_are_kept_or_not_as_the_plan_says() {
    for per_request in [false, true] {
        let server = Server::start(|_, stream| ok(stream));
        let mut plan = plan(server.address, closed(1), single("/"));
        plan.length = Duration::from_millis(100);
        plan.connection_per_request = per_request;
        plan.count_by = Some("node".to_owned());
        let result = run(&plan).unwrap();
        let stream = &result.streams[0];
        assert!(stream.completed > 0);
        assert_eq!(stream.counts["n1"], stream.completed);
        let wanted = if per_request { stream.completed } else { 1 };
        assert_eq!(server.connections(), wanted);
    }
}

#[test]
fn streams_keep_their_sites_and_sources_apart() {
    let seen: Arc<Mutex<std::collections::BTreeMap<String, u64>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let server = Server::start(move |asked, stream| {
        let mut noted = noted.lock().unwrap();
        *noted.entry(asked.path.clone()).or_default() += 1;
        if asked.head.iter().any(|line| line == "x-class: 3\r\n") {
            *noted.entry("class 3".to_owned()).or_default() += 1;
        }
        drop(noted);
        ok(stream)
    });
    let mut plan = plan(server.address, paced(100.0), single("/a"));
    plan.streams[0].header = Some(("x-class".to_owned(), "3".to_owned()));
    plan.streams.push(Stream {
        site: "blog.example".to_owned(),
        pacing: paced(50.0),
        requests: Requests::world_cup("/w/{bytes}", Size::fixed(1.0)),
        header: None,
    });
    plan.warm_up = Duration::from_millis(200);
    plan.length = Duration::from_millis(300);
    let result = run(&plan).unwrap();
    let offered: Vec<_> = result.streams.iter().map(|it| it.offered).collect();
    assert_eq!(offered, [30, 15]);
    assert_eq!(result.total().completed, 45);
    assert_eq!(result.streams[1].site, "blog.example");
    let seen = seen.lock().unwrap();
    assert_eq!((seen["/a"], seen["class 3"]), (50, 50)); // warm-up included
    assert!(seen.len() > 10);
}

#[test]
fn a_plan_comes_in_and_a_result_goes_out_as_json() {
    let server = Server::start(|_, stream| ok(stream));
    let mut plan = plan(server.address, paced(100.0), single("/"));
    plan.length = Duration::from_millis(100);
    let input = serde_json::to_vec(&plan).unwrap();
    let mut output = Vec::new();
    crate::load::answer(input.as_slice(), &mut output).unwrap();
    let result: LoadResult = serde_json::from_slice(&output).unwrap();
    assert_eq!(result.streams[0].completed, 10);
    assert!(result.started_ns > 0);
    let refused = crate::load::answer(&b"{\"targets\": 5}"[..], Vec::new()).unwrap_err();
    assert!(refused.to_string().contains("the plan"), "{refused}");
}
