//! Front-ends tell each other which requests they have, through the binary itself.

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;

use support::{FrontEnd, eventually, folder};

/// A server that answers everything.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut head = [0; 4096];
                while stream.read(&mut head).is_ok_and(|read| read > 0) {
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                    if stream.write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[test]
fn what_one_front_end_serves_the_other_knows() {
    let configuration = |peers: &str| {
        format!(
            "[[site]]\nname = \"shop\"\n[[node]]\nname = \"n1\"\naddress = \"{}\"\nsite = \"shop\"\n\
             [culprits]\npeers = [{peers}]\n",
            server()
        )
    };
    let one = FrontEnd::start(&folder("peers-one"), &configuration(""));
    let peers = format!("\"{}\"", one.admin);
    let other = FrontEnd::start(&folder("peers-other"), &configuration(&peers));
    let mut sent = 0;
    eventually("the other knows three of them", || {
        sent += 1;
        assert_eq!(one.get("shop", &format!("/item/{sent}?page=2")).status, 200);
        let report = other.api("/api/culprits");
        let known = report["classes"].as_array().unwrap().iter();
        let mut items = known.filter(|class| class["name"] == "GET /item/{n}?page");
        let requests = items.next()?["requests"].as_u64()?;
        assert!(requests <= sent, "{requests} of {sent}");
        (requests >= 3).then_some(())
    });
    assert_eq!(other.metric("tidegate_requests_received_total"), Some(0.0));
    drop(one);
    eventually("it says whose requests are missing", || {
        let notes = other.api("/api/culprits")["notes"].to_string();
        notes.contains("What the front-end at").then_some(())
    });
}
