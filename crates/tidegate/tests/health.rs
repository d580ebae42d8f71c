//! Nodes that are dead or hang, through the binary itself: where requests go, and what every view says.

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use support::{FrontEnd, Nginx, eventually, folder, nginx, tidegate};

/// A server that answers `ok` to everything, as long as the test runs.
fn well() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
    address
}

fn answer(mut stream: TcpStream) -> Option<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
        if head.ends_with(b"\r\n\r\n") {
            head.clear();
            let text = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            stream.write_all(text.as_bytes()).ok()?;
        }
    }
}

fn front_end(name: &str, nodes: &[SocketAddr], more: &str) -> FrontEnd {
    let mut text = format!(
        "[limits]\nworkers = 1\n{more}\n[[site]]\nname = \"shop\"\nhosts = [\"shop.example\"]\n"
    );
    for (number, address) in (1..).zip(nodes) {
        text.push_str(&format!(
            "[[node]]\nname = \"n{number}\"\naddress = \"{address}\"\nsite = \"shop\"\n"
        ));
    }
    FrontEnd::start(&folder(name), &text)
}

#[test]
fn a_dead_node_is_out_after_one_request_and_every_view_says_why() {
    let dead = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = dead.local_addr().unwrap();
    drop(dead);
    let front_end = front_end("health-dead", &[address, well(), well()], "");
    let node = || front_end.api("/api/status")["sites"][0]["nodes"][0].clone();
    assert_eq!(node()["health"], "up", "nothing is known yet");
    eventually("it gets a request", || {
        assert_eq!(front_end.get("shop.example", "/").status, 200);
        (node()["trouble"]["errors"]["connect_failed"] != 0
            && node()["trouble"]["error"] == "connect_failed")
            .then_some(())
    });
    // Without another request.
    let node = eventually("it is ejected", || {
        Some(node()).filter(|node| node["health"] == "ejected")
    });
    let trouble = &node["trouble"];
    assert_eq!(trouble["errors"]["connect_failed"], 1, "{trouble}");
    assert_eq!(trouble["ejections"], 1);
    assert_eq!(trouble["ejected_for"], "failures");
    assert!(trouble["error_seconds_ago"].as_f64().unwrap() < 60.0);
    let labels = "{site=\"shop\",node=\"n1\"";
    let metric = |name: &str| front_end.metric(&format!("{name}{labels}"));
    assert_eq!(metric("tidegate_node_ejections_total"), Some(1.0));
    assert_eq!(metric("tidegate_node_errors_total"), Some(1.0));
    assert!(metric("tidegate_node_last_error_age_seconds").is_some());
    let admin = front_end.admin.to_string();
    for arguments in [["status"].as_slice(), &["why", "n1"]] {
        let mut command = tidegate();
        command.args(arguments).args(["--admin", &admin]);
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        for wanted in [
            "ejected",
            "because requests to it failed and it answered nothing",
            "answers a probe",
            "connect_failed",
        ] {
            assert!(
                said.contains(wanted),
                "{arguments:?} lacks {wanted:?}:\n{said}"
            );
        }
    }
    // It is started again, and nothing is wrong with it but what was.
    let _alive = TcpListener::bind(address).map(|listener| {
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || answer(stream));
            }
        })
    });
    let back = eventually("it returns", || {
        let node = front_end.api("/api/status")["sites"][0]["nodes"][0].clone();
        Some(node).filter(|node| node["health"] == "up")
    });
    assert_eq!(back["trouble"]["in_a_row"], 0);
    assert_eq!(back["trouble"]["ejected_for"], serde_json::Value::Null);
    assert_eq!(
        back["trouble"]["notes"].as_array().unwrap().len(),
        1,
        "{back}"
    );
}

#[test]
fn with_two_of_three_nodes_hanging_requests_go_to_the_third() {
    // Their kernels accept connections, and nothing reads.
    let hanging = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [one, other] = hanging.each_ref().map(|it| it.local_addr().unwrap());
    let front_end = front_end("health-hang", &[one, other, well()], "");
    let candidates = || front_end.api("/api/status")["sites"][0]["candidates"].clone();
    // Requests that meet a hanging node are answered by another one as soon as the node is ejected.
    eventually("both are out", || {
        assert_eq!(front_end.get("shop.example", "/").status, 200);
        (candidates() == 1).then_some(())
    });
    for _ in 0..40 {
        assert_eq!(front_end.get("shop.example", "/").status, 200);
    }
    let status = front_end.api("/api/status");
    assert_eq!(status["sites"][0]["fail_open"], false);
    assert_eq!(status["sites"][0]["nodes"][0]["health"], "ejected");
}

#[test]
fn real_servers_that_are_stopped_get_nothing_while_one_answers_and_come_back() {
    if nginx().is_none() {
        println!("SKIPPED: nginx is not installed");
        return;
    }
    let folder = folder("health-stopped");
    let servers = ["n1", "n2", "n3"].map(|name| Nginx::start(&folder, name));
    let addresses = servers.each_ref().map(|server| server.address);
    let front_end = front_end("health-stopped-front", &addresses, "");
    let ask = || assert_eq!(front_end.get("shop.example", "/").status, 200);
    let candidates = || front_end.api("/api/status")["sites"][0]["candidates"].clone();
    ask();
    servers[..2].iter().for_each(Nginx::stop);
    eventually("both are out", || {
        ask();
        (candidates() == 1).then_some(())
    });
    for _ in 0..40 {
        assert_eq!(front_end.get("shop.example", "/").body, "n3\n");
    }
    servers[..2].iter().for_each(Nginx::resume);
    eventually("they are back", || {
        ask();
        (candidates() == 3).then_some(())
    });
}
