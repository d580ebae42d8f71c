//! A front-end whose nodes are the pods of a service: beside an API server of our own under load, and beside a real one.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![allow(clippy::print_stdout, reason = "a test that cannot run says why")]

#[allow(dead_code, reason = "the tests of discovery use the rest")]
#[path = "../../discover/tests/api_server/mod.rs"]
mod api_server;
mod support;

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use api_server::{ADMIN, ApiServer};
use serde_json::{Value, json};
use support::server::{head, server};
use support::{FrontEnd, eventually, folder};

/// A pod of ours: its slice has no other.
fn slice(pod: &str, address: SocketAddr, terminating: bool, version: usize) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": pod,
            "resourceVersion": version.to_string(),
            "labels": {"kubernetes.io/service-name": "web"},
        },
        "addressType": "IPv4",
        "endpoints": [{
            "addresses": [address.ip().to_string()],
            "conditions": {"ready": !terminating, "serving": true, "terminating": terminating},
            "targetRef": {"kind": "Pod", "name": pod},
        }],
        "ports": [{"name": "http", "port": address.port(), "protocol": "TCP"}],
    })
}

/// An API server of our own: what has happened, and a call for those that wait for more.
#[derive(Default)]
struct Api {
    events: Mutex<Vec<Value>>,
    changed: Condvar,
}

impl Api {
    fn start() -> (Arc<Self>, SocketAddr) {
        let api = Arc::new(Self::default());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serving = Arc::clone(&api);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let api = Arc::clone(&serving);
                std::thread::spawn(move || api.serve(stream.unwrap()));
            }
        });
        (api, address)
    }

    /// A pod is so from now on.
    fn set(&self, pod: &str, address: SocketAddr, terminating: bool) {
        let mut events = self.events.lock().unwrap();
        let version = events.len() + 1;
        let object = slice(pod, address, terminating, version);
        events.push(json!({"type": "MODIFIED", "object": object}));
        self.changed.notify_all();
    }

    /// Answers one question; none once the client has left.
    fn serve(&self, mut stream: TcpStream) -> Option<()> {
        let head = head(&mut BufReader::new(stream.try_clone().ok()?))?;
        let Some((_, version)) = head.split_once("&resourceVersion=") else {
            // A list of nothing: the watch has it all.
            let list = json!({"metadata": {"resourceVersion": "0"}, "items": []}).to_string();
            let length = list.len();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{list}");
            return stream.write_all(answer.as_bytes()).ok();
        };
        let mut next: usize = version.split(' ').next()?.parse().ok()?;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").ok()?;
        let mut events = self.events.lock().unwrap();
        loop {
            for event in &events[next..] {
                stream.write_all(format!("{event}\n").as_bytes()).ok()?;
            }
            next = events.len();
            events = self.changed.wait(events).unwrap();
        }
    }
}

/// A front-end whose pods are those of this server.
fn front_end(folder: &Path, more: &str) -> FrontEnd {
    let token = folder.join("token");
    std::fs::write(&token, ADMIN).unwrap();
    let text = format!(
        "[[site]]\nname = \"shop\"\nhosts = [\"*\"]\n\
         [[discover]]\nname = \"pods\"\nsite = \"shop\"\n\
         kubernetes = {{ namespace = \"shop\", service = \"web\", token_file = \"token\", {more} }}\n"
    );
    FrontEnd::start(folder, &text)
}

fn nodes(front_end: &FrontEnd) -> Vec<String> {
    let status = front_end.api("/api/status");
    let nodes = status["sites"][0]["nodes"].as_array().unwrap();
    let name = |it: &Value| it["name"].as_str().unwrap().to_owned();
    let mut names: Vec<_> = nodes.iter().map(name).collect();
    names.sort();
    names
}

#[track_caller]
fn until(front_end: &FrontEnd, wanted: &[&str]) {
    eventually(&format!("the nodes are {wanted:?}"), || {
        (nodes(front_end) == wanted).then_some(())
    });
}

#[test]
fn pods_that_terminate_and_come_back_under_load_fail_no_request() {
    let servers = ["web-a", "web-b", "web-c"].map(|name| (name, server(name)));
    let (api, address) = Api::start();
    for (pod, address) in servers {
        api.set(pod, address, false);
    }
    let folder = folder("kubernetes-load");
    let front_end = front_end(&folder, &format!("server = \"http://{address}\""));
    until(&front_end, &["web-a", "web-b", "web-c"]);
    let (enough, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            while !enough.load(Ordering::Relaxed) {
                let answer = front_end.get("any", "/");
                assert_eq!(answer.status, 200, "{answer:?}");
                asked.fetch_add(1, Ordering::Relaxed);
            }
        });
        for (pod, address) in [servers, servers].concat() {
            let before = asked.load(Ordering::Relaxed);
            api.set(pod, address, true);
            let others = servers.map(|it| it.0).into_iter().filter(|it| *it != pod);
            until(&front_end, &others.collect::<Vec<_>>());
            eventually("requests go on", || {
                assert!(!client.is_finished());
                (asked.load(Ordering::Relaxed) > before + 20).then_some(())
            });
            api.set(pod, address, false);
            until(&front_end, &["web-a", "web-b", "web-c"]);
        }
        enough.store(true, Ordering::Relaxed);
        client.join().unwrap();
    });
    let requests = &front_end.api("/api/status")["requests"];
    assert_eq!(requests["failed"], 0, "{requests}");
    let log = std::fs::read_to_string(folder.join("front-end.log")).unwrap();
    assert!(
        log.contains("web-b is not in the answer any more, which the source says will end"),
        "{log}"
    );
}

#[test]
fn pods_of_a_real_api_server_are_nodes() {
    let Some(server) = ApiServer::start("kubernetes-front-end") else {
        return;
    };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    server.put("POST", "/api/v1/namespaces", &namespace.to_string());
    let slices = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";
    let put = |pod: &str, host: u8| {
        let mut slice = slice(pod, ([10, 1, 0, host], 8080).into(), false, 0);
        slice["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("resourceVersion");
        server.put("POST", slices, &slice.to_string());
    };
    put("web-a", 1);
    let ca_file = server.ca_file();
    let more = format!(
        "server = \"{}\", ca_file = \"{}\"",
        server.url(),
        ca_file.display()
    );
    let front_end = front_end(&folder("kubernetes-real"), &more);
    until(&front_end, &["web-a"]);
    put("web-b", 2);
    until(&front_end, &["web-a", "web-b"]);
    server.put("DELETE", &format!("{slices}/web-a"), "");
    until(&front_end, &["web-b"]);
}
