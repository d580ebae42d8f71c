//! The default admission before servers on a busy host that their agents tell of: requests that have
//! room come through, whatever others run there and however many connections rest.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;
use support::{Agent, FrontEnd, PATIENCE, eventually, folder, master_key, node_key};

const HOST: &str = "shop.example";
/// At once, and each of them one after the other. Every server has room for two, be it never so small or
/// busy: nothing of this depends on how fast the machine is.
const CLIENTS: usize = 2;
const REQUESTS: usize = 200;
/// Between two requests of a client, so that several seconds are seen.
const PACE: Duration = Duration::from_millis(10);

/// A server on a port of its own: pages at once, web sockets that send back what comes. It ends with the
/// process.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // What breaks a connection shows at the client.
            thread::spawn(move || serve(stream).ok());
        }
    });
    address
}

fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    loop {
        let head = read_head(&mut stream)?;
        if head.starts_with("GET /socket ") {
            let text = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
            stream.write_all(text.as_bytes())?;
            let mut back = stream.try_clone()?;
            std::io::copy(&mut stream, &mut back)?;
            return Ok(());
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
    }
}

fn read_head(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// Tasks that only compute, until this is dropped.
struct Hogs {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Hogs {
    fn start(count: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let hog = |_| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = (0..count).map(hog).collect();
        Self { stop, threads }
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

/// A front-end before so many servers on this host, an agent of the whole host beside each.
fn cluster(name: &str, servers: usize) -> (Vec<Agent>, FrontEnd) {
    let folder = folder(name);
    let master = master_key(&folder);
    let mut agents = Vec::new();
    let mut text = format!(
        "[load]\nkey_file = \"master.key\"\ninterval = \"10ms\"\nrealtime = false\n\
         [[site]]\nname = \"shop\"\nhosts = [\"{HOST}\"]\n"
    );
    for number in 1..=servers {
        let node = format!("n{number}");
        let agent = Agent::start(&node_key(&master, &node));
        text.push_str(&format!(
            "[[node]]\nname = \"{node}\"\naddress = \"{}\"\nsite = \"shop\"\n\
             load = {{ transport = \"udp\", address = \"{}\" }}\n",
            server(),
            agent.address
        ));
        agents.push(agent);
    }
    (agents, FrontEnd::start(&folder, &text))
}

fn open_socket(front_end: &FrontEnd) -> TcpStream {
    let mut stream = TcpStream::connect(front_end.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let text = format!(
        "GET /socket HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(text.as_bytes()).unwrap();
    let head = read_head(&mut stream).unwrap();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    stream
}

fn assert_open(mut stream: &TcpStream) {
    stream.write_all(b"ping").unwrap();
    let mut back = [0; 4];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"ping");
}

/// The nodes, as the front-end tells of them.
fn nodes(front_end: &FrontEnd) -> Vec<Value> {
    let status = front_end.api("/api/status");
    status["sites"][0]["nodes"].as_array().unwrap().clone()
}

/// Hogs on the host and sockets at rest at each server, then pages: all are let in, and no socket is closed.
fn check(name: &str, servers: usize) {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let (_agents, front_end) = cluster(name, servers);
    let _hogs = Hogs::start(cpus + 2);
    eventually("all records tell of the hogs", || {
        let busy = |node: &Value| {
            let runnable = node["load"]["runnable"].as_f64();
            node["load"]["fresh"] == true && runnable.is_some_and(|tasks| tasks > cpus as f64)
        };
        nodes(&front_end).iter().all(busy).then_some(())
    });
    // At each ten, and more than the least room that a server has: if they held it, none would be left.
    let resting = servers * usize::max(10, 2 * cpus);
    let sockets: Vec<_> = (0..resting).map(|_| open_socket(&front_end)).collect();
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                for _ in 0..REQUESTS {
                    let answer = front_end.get(HOST, "/");
                    assert_eq!(
                        (answer.status, answer.body.as_str()),
                        (200, "ok"),
                        "{}",
                        answer.head
                    );
                    thread::park_timeout(PACE);
                }
            });
        }
    });
    sockets.iter().for_each(assert_open);
    let in_flight = |node: &Value| node["in_flight"].as_u64().unwrap();
    eventually("only the sockets are in flight", || {
        let all: u64 = nodes(&front_end).iter().map(in_flight).sum();
        (all == resting as u64).then_some(())
    });
    let status = front_end.api("/api/status");
    let requests = &status["requests"];
    let rejected = requests["rejected"].as_object().unwrap();
    assert!(rejected.values().all(|count| *count == 0), "{requests}");
    assert_eq!(requests["completed"], CLIENTS * REQUESTS, "{requests}");
    let unread = status["connections_refused"].as_object().unwrap();
    assert!(unread.values().all(|count| *count == 0), "{unread:?}");
}

#[test]
fn hogs_and_idle_sockets_keep_no_request_away() {
    check("busy-host", 1);
}

#[test]
fn three_servers_on_one_busy_host_refuse_nothing() {
    check("busy-host-of-three", 3);
}
