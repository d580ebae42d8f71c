//! Front-ends tell each other which requests they have, through the binary itself.

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;

use support::{FrontEnd, eventually, folder, request};

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

fn write_secret(file: &Path, secret: &str) {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(file).unwrap();
    file.write_all(secret.as_bytes()).unwrap();
}

/// One site with one node, and these other front-ends, known by this secret.
fn shop(peers: &str) -> String {
    format!(
        "[[site]]\nname = \"shop\"\n[[node]]\nname = \"n1\"\naddress = \"{}\"\nsite = \"shop\"\n\
         [culprits]\npeer_token_file = \"peers\"\npeers = [{peers}]\n",
        server()
    )
}

/// A front-end whose operators have a token of their own.
fn front_end(name: &str, token: &str, peer_token: &str, peers: &str) -> FrontEnd {
    let folder = folder(name);
    write_secret(&folder.join("token"), token);
    write_secret(&folder.join("peers"), peer_token);
    FrontEnd::start_with(&folder, &shop(peers), "token_file = \"token\"")
}

fn ask(front_end: &FrontEnd, token: &str, method: &str, path: &str) -> support::Response {
    let host = front_end.admin;
    let text = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\
         Connection: close\r\n\r\n"
    );
    request(host, &text).expect("the admin interface answers")
}

const ONE: &str = "token-of-front-end-one";
const OTHER: &str = "token-of-front-end-other";
const SHARED: &str = "secret-of-the-exchange";

#[test]
fn front_ends_with_a_secret_of_their_own_know_each_others_requests() {
    let one = front_end("peers-secret-one", ONE, SHARED, "");
    let peers = format!("\"{}\"", one.admin);
    let other = front_end("peers-secret-other", OTHER, SHARED, &peers);
    let stranger = front_end(
        "peers-secret-stranger",
        OTHER,
        "another-secret-of-it",
        &peers,
    );
    let report = |of: &FrontEnd| ask(of, OTHER, "GET", "/api/culprits").body;
    eventually("the other knows one's requests", || {
        one.get("shop", "/item/1?page=2");
        report(&other).contains("GET /item/{n}?page").then_some(())
    });
    eventually(
        "a front-end without the secret is refused, and says so",
        || {
            report(&stranger)
                .contains("What the front-end at")
                .then_some(())
        },
    );
    assert!(!report(&stranger).contains("/item/"));
    // The secret of the exchange is no token.
    for token in [SHARED, OTHER] {
        assert_eq!(ask(&one, token, "GET", "/api/status").status, 401);
        assert_eq!(ask(&one, token, "POST", "/api/nodes/n1/drain").status, 401);
    }
    assert_eq!(ask(&one, ONE, "GET", "/api/status").status, 200);
}

/// A listener in a peer's place, or on the way to it, hears no secret, and what it answers is not believed.
#[test]
fn a_false_peer_hears_no_secret_and_is_not_believed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, heard) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 4096];
            let read = stream.read(&mut head).unwrap();
            let lie = r#"{"next":1,"lost":0,"sites":["shop"],"words":[["GET","/lie"]],"ended":[[0,0,9000,5000]],"unfinished":[]}"#;
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{lie}",
                lie.len()
            );
            // The front-end may have ended by now, and so may the test.
            if stream.write_all(answer.as_bytes()).is_err()
                || sender.send(head[..read].to_vec()).is_err()
            {
                return;
            }
        }
    });
    for (name, peer_token) in [("peers-false-own", SHARED), ("peers-false-admin", ONE)] {
        let front_end = front_end(name, ONE, peer_token, &format!("\"{address}\""));
        for _ in 0..2 {
            let question = String::from_utf8(heard.recv().unwrap()).unwrap();
            assert!(
                question.contains("/api/culprits/requests?after=0"),
                "{question}"
            );
            assert!(
                !question.contains(ONE) && !question.contains(SHARED),
                "{question}"
            );
        }
        eventually("it says that the answer is not a peer's", || {
            let report = ask(&front_end, ONE, "GET", "/api/culprits").body;
            assert!(!report.contains("/lie"), "{report}");
            report.contains("does not prove").then_some(())
        });
    }
}
