//! Checks and the slow start with a real front-end: nodes whose checks fail, hang, or answer with the wrong body,
//! go and come back, and where all of them fail the site is served all the same.

#![allow(clippy::unwrap_used, reason = "test code")]
#![allow(dead_code, reason = "not every test file needs all of `support`")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use serde_json::Value;
use support::{FrontEnd, eventually, folder};

const WELL: u8 = 0;
/// `/healthz` is answered 503, all else as ever.
const UNWELL: u8 = 1;
/// `/healthz` is not answered.
const HANGS: u8 = 2;
/// `/healthz` is answered 200, with another body.
const WRONG_BODY: u8 = 3;

/// A server that answers every request with its name, and `/healthz` as it is set.
struct Server {
    address: SocketAddr,
    state: Arc<AtomicU8>,
}

impl Server {
    fn start(name: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(AtomicU8::new(WELL));
        let shown = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, state) = (stream.unwrap(), Arc::clone(&shown));
                std::thread::spawn(move || answer(stream, name, &state));
            }
        });
        Self { address, state }
    }

    fn set(&self, state: u8) {
        self.state.store(state, Ordering::Relaxed);
    }
}

fn answer(mut stream: TcpStream, name: &str, state: &AtomicU8) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line == "\r\n" {
                break;
            }
            lines.push(line);
        }
        let checked = lines[0].starts_with("GET /healthz ");
        let (status, body) = match (checked, state.load(Ordering::Relaxed)) {
            (true, UNWELL) => ("503 Service Unavailable", "closed"),
            (true, WRONG_BODY) => ("200 OK", "starting"),
            (true, HANGS) => {
                // Until the other side goes away.
                reader.read_line(&mut String::new()).unwrap_or(0);
                return;
            }
            (true, _) => ("200 OK", "ready"),
            (false, _) => ("200 OK", name),
        };
        let length = body.len();
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

struct Scene {
    servers: [Server; 2],
    front_end: FrontEnd,
}

fn scene(name: &str, slow_start: &str) -> Scene {
    let servers = ["one", "two"].map(Server::start);
    let text = format!(
        "[[site]]\nname = \"shop\"\npolicy = \"round_robin\"\nslow_start = \"{slow_start}\"\n\
         [site.check]\npath = \"/healthz\"\nbody = \"ready\"\ninterval = \"100ms\"\ntimeout = \"300ms\"\n\
         [[node]]\nname = \"n1\"\naddress = \"{}\"\nsite = \"shop\"\n\
         [[node]]\nname = \"n2\"\naddress = \"{}\"\nsite = \"shop\"\n",
        servers[0].address, servers[1].address
    );
    let front_end = FrontEnd::start(&folder(name), &text);
    Scene { servers, front_end }
}

impl Scene {
    /// Waits until n1 is as wanted.
    #[track_caller]
    fn wait(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        eventually(what, || {
            let status = self.front_end.api("/api/status");
            let node = status["sites"][0]["nodes"][0].clone();
            wanted(&node).then_some(node)
        })
    }

    /// Names of the servers that answer requests.
    fn answers(&self) -> Vec<String> {
        let mut names: Vec<_> = (0..20)
            .map(|_| self.front_end.get("shop.example", "/").body)
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn reasons(&self, name: &str) -> String {
        self.front_end.api(&format!("/api/why/{name}"))["reasons"].to_string()
    }
}

fn is_out(node: &Value) -> bool {
    node["candidate"] == false
}

fn is_in(node: &Value) -> bool {
    node["candidate"] == true
}

#[test]
fn a_node_whose_check_fails_goes_and_comes_back_slowly() {
    let scene = scene("checks-503", "2s");
    scene.wait("checks pass", |node| {
        node["checks"][0]["passed"].as_u64() > Some(1)
    });
    assert_eq!(scene.answers(), ["one", "two"]);
    scene.servers[0].set(UNWELL);
    let node = scene.wait("it is out", is_out);
    assert_eq!(node["health"], "ejected");
    assert_eq!(node["trouble"]["ejected_for"], "check");
    assert_eq!(node["checks"][0]["failing"], true);
    assert_eq!(node["checks"][0]["error"], "the status was 503");
    assert!(
        node["checks"][0]["failed"]["status"].as_u64() >= Some(3),
        "{node}"
    );
    assert_eq!(scene.answers(), ["two"], "it would answer 200");
    let reasons = scene.reasons("n1");
    assert!(reasons.contains("because its check fails"), "{reasons}");
    assert!(reasons.contains("the status was 503"), "{reasons}");
    let failing = scene
        .front_end
        .metric("tidegate_node_check_failing{site=\"shop\",node=\"n1\",check=\"http\"}");
    assert_eq!(failing, Some(1.0));
    scene.servers[0].set(WELL);
    let node = scene.wait("it is back", is_in);
    let factor = node["slow_start"].as_f64().unwrap();
    assert!((0.1..1.0).contains(&factor), "{node}");
    assert!(scene.reasons("n1").contains("it starts slowly"));
    scene.wait("it has its full share", |node| node["slow_start"].is_null());
    assert_eq!(scene.answers(), ["one", "two"]);
}

#[test]
fn a_node_that_hangs_or_has_the_wrong_body_is_out() {
    let scene = scene("checks-hang", "0s");
    for (state, what) in [
        (HANGS, "no answer came in time"),
        (WRONG_BODY, "the body had not what is wanted"),
    ] {
        scene.servers[0].set(state);
        let node = scene.wait(what, is_out);
        assert_eq!(node["checks"][0]["error"], what);
        assert_eq!(scene.answers(), ["two"]);
        scene.servers[0].set(WELL);
        scene.wait("it is back", is_in);
    }
}

#[test]
fn where_all_checks_fail_the_site_is_served_and_says_so() {
    let scene = scene("checks-all", "0s");
    for server in &scene.servers {
        server.set(UNWELL);
    }
    eventually("it fails open", || {
        let status = scene.front_end.api("/api/status");
        (status["sites"][0]["fail_open"] == true).then_some(())
    });
    assert_eq!(scene.answers(), ["one", "two"]);
    let reasons = scene.reasons("shop");
    assert!(
        reasons.contains("no node is up, so ejected ones are used"),
        "{reasons}"
    );
    scene.servers[1].set(WELL);
    eventually("it is closed again", || {
        let status = scene.front_end.api("/api/status");
        (status["sites"][0]["fail_open"] == false).then_some(())
    });
    assert_eq!(scene.answers(), ["two"]);
}
