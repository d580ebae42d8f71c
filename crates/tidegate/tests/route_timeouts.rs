//! Time-outs of routes, as docs/routes.md has them: the example of that page, before a server that takes its time.
#![expect(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod support;

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use support::server::head;
use support::{FrontEnd, Response, eventually, folder};

/// What a server waits for before it answers.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    fn wait(&self) {
        let is_open = self.is_open.lock().unwrap();
        drop(self.opened.wait_while(is_open, |it| !*it).unwrap());
    }
}

/// A server that holds answers to `?hold` back until the gate is open, begins those to `?begin`, and gives all others at
/// once.
fn server() -> (SocketAddr, Arc<Gate>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let gate = Arc::new(Gate::default());
    let shared = Arc::clone(&gate);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, gate) = (stream.unwrap(), Arc::clone(&shared));
            std::thread::spawn(move || serve(stream, &gate));
        }
    });
    (address, gate)
}

fn serve(mut stream: TcpStream, gate: &Gate) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let head = head(&mut reader)?;
        let line = head.lines().next()?;
        let answer: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nanswered";
        let (begun, rest) = match line.contains("?begin") {
            true => answer.split_at(answer.len() - 4),
            false => answer.split_at(0),
        };
        stream.write_all(begun).ok()?;
        if line.contains("?hold") || line.contains("?begin") {
            gate.wait();
        }
        stream.write_all(rest).ok()?;
    }
}

/// The example of the page before this server, which gets one request at a time.
fn example(node: SocketAddr) -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/routes.md");
    let page = std::fs::read_to_string(page).unwrap();
    let example = page.split("```toml\n").nth(1).unwrap();
    let example = example.split("```").next().unwrap();
    let listener = "[[listener]]\naddress = \"127.0.0.1:8080\"\n";
    let hosts = "hosts = [\"shop.example\", \"www.shop.example\"]\n";
    assert!(example.contains(listener) && example.contains(hosts));
    let one = "admission = { mode = \"maxconn\", connections = 1, slo = \"10m\", queue_timeout = \"10m\" }\n";
    let example = example.replace(listener, "");
    let example = example.replace(hosts, &format!("{hosts}{one}"));
    example.replace("127.0.0.1:8081", &node.to_string())
}

fn start(name: &str, configuration: &str) -> Arc<FrontEnd> {
    let folder = folder(name);
    std::fs::write(folder.join("maintenance.html"), "<p>Back soon.\n").unwrap();
    Arc::new(FrontEnd::start(&folder, configuration))
}

fn ask(front_end: &FrontEnd, target: &str) -> Response {
    front_end.get("shop.example", target)
}

/// The same in a thread of its own, once the front-end has so many in flight.
fn begin(
    front_end: &Arc<FrontEnd>,
    target: &'static str,
    in_flight: usize,
) -> std::thread::JoinHandle<Response> {
    let asking = Arc::clone(front_end);
    let asked = std::thread::spawn(move || ask(&asking, target));
    eventually("it is in flight", || {
        let status = front_end.api("/api/status");
        (status["requests"]["in_flight"] == in_flight).then_some(())
    });
    asked
}

fn reason(answer: &Response) -> Option<&str> {
    let mut lines = answer.head.lines();
    lines.find_map(|line| line.strip_prefix("x-tidegate-reason: "))
}

#[test]
fn a_request_that_takes_longer_in_all_than_its_route_lets_it_ends() {
    let (node, gate) = server();
    let front_end = start("route-timeouts-total", &example(node));
    let late = ask(&front_end, "/suggest?hold");
    assert_eq!((late.status, reason(&late)), (504, Some("total_timeout")));
    let cut = ask(&front_end, "/suggest?begin");
    assert_eq!((cut.status, &*cut.body), (200, "answ"));
    let counted = "tidegate_requests_unserved_total{ending=\"failed\",reason=\"total_timeout\"}";
    assert_eq!(front_end.metric(counted), Some(2.0));
    let timely = ask(&front_end, "/suggest?now");
    assert_eq!((timely.status, &*timely.body), (200, "answered"));
    // Others have no such time.
    let other = begin(&front_end, "/other?hold", 1);
    gate.open();
    assert_eq!(other.join().unwrap().status, 200);
}

#[test]
fn a_route_bounds_the_wait_for_room() {
    let (node, gate) = server();
    let front_end = start("route-timeouts-queue", &example(node));
    let first = begin(&front_end, "/other?hold", 1);
    let waits = begin(&front_end, "/other", 2);
    let late = ask(&front_end, "/reports/1");
    assert_eq!((late.status, reason(&late)), (503, Some("queue_timeout")));
    // The time in all counts while a request waits for room.
    let late = ask(&front_end, "/suggest");
    assert_eq!((late.status, reason(&late)), (504, Some("total_timeout")));
    gate.open();
    for answered in [first, waits] {
        assert_eq!(answered.join().unwrap().status, 200);
    }
    let report = ask(&front_end, "/reports/1");
    assert_eq!(report.status, 200, "there is room at once");
}

#[test]
fn a_route_may_take_longer_than_others() {
    let (node, gate) = server();
    let configuration = format!("{}\n[timeouts]\ntotal = \"100ms\"\n", example(node));
    let front_end = start("route-timeouts-longer", &configuration);
    let late = ask(&front_end, "/other?hold");
    assert_eq!((late.status, reason(&late)), (504, Some("total_timeout")));
    let report = begin(&front_end, "/reports/1?hold", 1);
    let late = ask(&front_end, "/other");
    assert_eq!(
        (late.status, reason(&late)),
        (504, Some("total_timeout")),
        "it has waited for the report's end"
    );
    gate.open();
    let report = report.join().unwrap();
    assert_eq!((report.status, &*report.body), (200, "answered"));
}
