//! Listeners that pass connections on as they are: bytes both ways, half-close, room and queue, nodes that are not there, TLS at either
//! side; and the example of docs/tcp.md.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use support::tls::Authority;
use support::{FrontEnd, PATIENCE, eventually, folder, free_address, tidegate};

/// A server that says its name, and then what it is sent, until the other side has ended; then it says `bye`.
fn echo(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                stream.write_all(name.as_bytes()).ok()?;
                std::io::copy(&mut stream.try_clone().unwrap(), &mut stream).ok()?;
                stream.write_all(b"bye").ok()?;
                stream.shutdown(Shutdown::Write).ok()
            });
        }
    });
    address
}

fn text(address: SocketAddr, nodes: &[SocketAddr], site: &str, listener: &str) -> String {
    let mut text = format!(
        "[[listener]]\naddress = \"{address}\"\ntcp_site = \"db\"\n{listener}\n\
         [[site]]\nname = \"db\"\nhosts = []\n{site}\n"
    );
    for (index, node) in nodes.iter().enumerate() {
        text.push_str(&format!(
            "[[node]]\nname = \"n{index}\"\naddress = \"{node}\"\nsite = \"db\"\n"
        ));
    }
    text
}

/// A connection that has read the name of its server, which has so many letters.
fn open(address: SocketAddr, letters: usize) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut name = vec![0; letters];
    stream.read_exact(&mut name).unwrap();
    (stream, String::from_utf8(name).unwrap())
}

#[test]
fn bytes_go_both_ways_and_a_half_close_goes_on() {
    let (folder, address) = (folder("tcp-bytes"), free_address());
    let more = "[log]\naccess = \"json\"\n";
    let text = [more, &text(address, &[echo("one")], "", "")].concat();
    let front_end = FrontEnd::start(&folder, &text);
    let (mut stream, name) = open(address, 3);
    assert_eq!(name, "one");
    assert_eq!(front_end.metric("tidegate_requests_in_flight"), Some(1.0));
    let sent = vec![7; 1 << 20];
    let mut writing = stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        writing.write_all(&sent).unwrap();
        writing.shutdown(Shutdown::Write).unwrap();
    });
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    writer.join().unwrap();
    assert_eq!(got.len(), (1 << 20) + 3);
    assert!(got.ends_with(b"bye"));
    eventually("it is over", || {
        (front_end.metric("tidegate_requests_in_flight")? == 0.0).then_some(())
    });
    let completed = "tidegate_requests_ended_total{ending=\"completed\"}";
    assert_eq!(front_end.metric(completed), Some(1.0));
    // HTTP to another listener finds no site.
    assert_eq!(front_end.get("db", "/").status, 404);
}

#[test]
fn connections_hold_room_and_wait_for_it() {
    let (folder, address) = (folder("tcp-room"), free_address());
    let site = "policy = \"least_request\"\nadmission = { mode = \"maxconn\", connections = 2 }\n";
    let nodes = [echo("one"), echo("two")];
    let front_end = FrontEnd::start(&folder, &text(address, &nodes, site, ""));
    let mut open_ones: Vec<_> = (0..4).map(|_| open(address, 3)).collect();
    let at = |name: &str| open_ones.iter().filter(|it| it.1 == name).count();
    assert_eq!((at("one"), at("two")), (2, 2));
    // One more waits; one that leaves while it waits is gone.
    let mut waiting = TcpStream::connect(address).unwrap();
    waiting.set_read_timeout(Some(PATIENCE)).unwrap();
    let leaving = TcpStream::connect(address).unwrap();
    eventually("two wait", || {
        (front_end.metric("tidegate_requests_in_flight")? == 6.0).then_some(())
    });
    drop(leaving);
    let gone = "tidegate_requests_unserved_total{ending=\"cancelled\",reason=\"client_gone\"}";
    eventually("one has left", || {
        (front_end.metric(gone)? == 1.0).then_some(())
    });
    let (ended, freed) = open_ones.pop().unwrap();
    drop(ended);
    let mut name = [0; 3];
    waiting.read_exact(&mut name).unwrap();
    assert_eq!(freed.as_bytes(), name);
}

#[test]
fn a_node_that_is_not_there_is_tried_elsewhere() {
    let (folder, address) = (folder("tcp-elsewhere"), free_address());
    let nodes = [free_address(), echo("two")];
    let site = "policy = \"round_robin\"\n";
    let front_end = FrontEnd::start(&folder, &text(address, &nodes, site, ""));
    for _ in 0..4 {
        assert_eq!(open(address, 3).1, "two");
    }
    assert!(front_end.metric("tidegate_retries_total").unwrap() >= 1.0);
    drop(front_end);
    let (folder, address) = (support::folder("tcp-nowhere"), free_address());
    let front_end = FrontEnd::start(&folder, &text(address, &[free_address()], "", ""));
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // Closed without a word; a reset is an end as well.
    assert_eq!(stream.read(&mut [0; 16]).unwrap_or(0), 0);
    let failed = "tidegate_requests_unserved_total{ending=\"failed\",reason=\"connect_failed\"}";
    eventually("it is counted", || {
        (front_end.metric(failed)? == 1.0).then_some(())
    });
}

#[test]
fn tls_ends_at_the_listener() {
    let Some(authority) = Authority::new(&folder("tcp-tls-keys")) else {
        return;
    };
    let keys = authority.issue("db", &["db.example"]).keys();
    let (folder, address) = (folder("tcp-tls"), free_address());
    let tls = format!("tls = {{ {keys} }}");
    let _front_end = FrontEnd::start(&folder, &text(address, &[echo("one")], "", &tls));
    let mut connection = authority.client().connect(address, "db.example").unwrap();
    let mut name = [0; 3];
    connection.read_exact(&mut name).unwrap();
    assert_eq!(&name, b"one");
    connection.write_all(b"again").unwrap();
    let mut again = [0; 5];
    connection.read_exact(&mut again).unwrap();
    assert_eq!(&again, b"again");
}

#[test]
fn check_says_what_is_wrong() {
    let folder = folder("tcp-check");
    let check = |text: &str| {
        let file = folder.join("checked.toml");
        std::fs::write(&file, text).unwrap();
        let output = tidegate().arg("check").arg(&file).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    };
    let address = free_address();
    let node = free_address();
    let good = text(address, &[node], "", "");
    assert!(check(&good).0);
    for (from, to, expected) in [
        (
            "tcp_site = \"db\"",
            "tcp_site = \"bd\"",
            "did you mean \"db\"?",
        ),
        ("tcp_site = \"db\"\n", "", "has no hosts"),
        (
            "tcp_site = \"db\"",
            "tcp_site = \"db\"\nredirect_to_https = true",
            "has no requests to redirect",
        ),
    ] {
        let (ok, said) = check(&good.replace(from, to));
        assert!(!ok && said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn the_example_of_the_documentation_runs() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tcp.md");
    let page = std::fs::read_to_string(page).unwrap();
    let example = page.split("```").nth(1).unwrap();
    let address = free_address();
    let text = example
        .trim_start_matches("toml")
        .replace("0.0.0.0:5432", &address.to_string())
        .replace("10.0.0.31:5432", &echo("one").to_string())
        .replace("10.0.0.32:5432", &echo("two").to_string());
    let _front_end = FrontEnd::start(&folder("tcp-example"), &text);
    let mut names = [open(address, 3), open(address, 3)].map(|it| it.1);
    names.sort();
    assert_eq!(names, ["one", "two"]);
}

#[test]
fn a_quiet_connection_says_nothing_of_its_node() {
    // A server that speaks first, and hangs up on whatever is no word of its own.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let node = listener.local_addr().unwrap();
    let (said, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let said = said.clone();
            std::thread::spawn(move || {
                stream.write_all(b"hello").ok()?;
                let mut first = [0; 64];
                let read = stream.read(&mut first).unwrap_or(0);
                // Nothing is a probe that has gone again.
                said.send(first[..read].to_vec()).ok()
            });
        }
    });
    let (folder, address) = (folder("tcp-quiet"), free_address());
    let front_end = FrontEnd::start(&folder, &text(address, &[node], "", ""));
    let (mut quiet, _) = open(address, 5);
    // The front-end asks the node whether it is there, since nothing ends at it: by a connection, on which it says nothing.
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), b"");
    eventually("the probe is answered", || {
        let status = front_end.api("/api/status").to_string();
        (!status.contains("ejected\":true")).then_some(())
    });
    assert_eq!(
        front_end.metric("tidegate_site_fail_open{site=\"db\"}"),
        Some(0.0)
    );
    quiet.write_all(b"still here").unwrap();
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), b"still here");
}
