//! Requests that are sent again: with their bodies, where a node of HTTP/2 says that it has not begun.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use support::http2::{Answer, Connection, get, post, run, send};
use support::http2_node::Http2Node;
use support::{FrontEnd, Process, eventually, folder, free_address, nginx};

/// A site of these nodes of HTTP/2, with more lines of its own.
fn text(nodes: &[SocketAddr], more: &str) -> String {
    let mut text = format!("[[site]]\nname = \"shop\"\nnode_protocol = \"h2\"\n{more}\n");
    for (index, node) in nodes.iter().enumerate() {
        text.push_str(&format!(
            "[[node]]\nname = \"n{index}\"\naddress = \"{node}\"\nsite = \"shop\"\n"
        ));
    }
    text
}

/// A real nginx that ends each connection of HTTP/2 behind 50 requests, and reads their bodies: they go on to a second server in it, which
/// answers with their length.
fn nginx_that_leaves(folder: &Path) -> (SocketAddr, Process) {
    let folder = folder.join("nginx");
    std::fs::create_dir_all(&folder).unwrap();
    let (address, behind) = (free_address(), free_address());
    let text = format!(
        "daemon off; master_process off; pid nginx.pid; error_log error.log;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; client_body_temp_path body; client_body_buffer_size 256k; keepalive_requests 50;\n\
         proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n\
         server {{ listen {address} http2; location / {{ proxy_pass http://{behind}; }} }}\n\
         server {{ listen {behind}; location / {{ return 200 $http_content_length; }} }} }}\n"
    );
    std::fs::write(folder.join("nginx.conf"), text).unwrap();
    let mut command = Command::new(nginx().unwrap());
    command.arg("-p").arg(&folder);
    let process = Process::start(command.args(["-c", "nginx.conf", "-e", "error.log"]));
    eventually("nginx listens", || TcpStream::connect(address).ok());
    (address, process)
}

/// Sends POSTs with bodies of these lengths at once; how they were answered.
async fn post_all(connection: &mut Connection, path: &str, lengths: &[usize]) -> Vec<Answer> {
    let mut answers = Vec::new();
    for length in lengths {
        let (answer, mut out) = connection.begin(post(path), false).await;
        let length = *length;
        answers.push(tokio::spawn(async move {
            send(&mut out, length).await;
            Answer::read(answer).await.unwrap()
        }));
    }
    let mut read = Vec::new();
    for answer in answers {
        read.push(answer.await.unwrap());
    }
    read
}

#[test]
fn a_server_that_ends_its_connections_costs_no_request() {
    if nginx().is_none() {
        return println!("SKIPPED: nginx is not installed");
    }
    let folder = folder("retries-nginx");
    let (address, _nginx) = nginx_that_leaves(&folder);
    let front_end = FrontEnd::start(&folder, &text(&[address], ""));
    let lengths = [0, 1, 3000, 20_000, 60_000].repeat(20);
    run(async {
        let mut connection = Connection::open(front_end.address).await;
        let mut failed = Vec::new();
        for _ in 0..12 {
            let answers = post_all(&mut connection, "/", &lengths).await;
            for (answer, length) in answers.iter().zip(&lengths) {
                // Without bytes there may be no length.
                let told = answer.text().parse().unwrap_or(0);
                if (answer.status, told) != (200, *length) {
                    failed.push((answer.status, told, *length));
                }
            }
        }
        assert!(failed.is_empty(), "{} of 1200: {failed:?}", failed.len());
    });
    assert!(front_end.metric("tidegate_replays_total").unwrap() > 0.0);
    assert_eq!(front_end.metric("tidegate_held_body_bytes"), Some(0.0));
    assert_eq!(front_end.metric("tidegate_requests_in_flight"), Some(0.0));
}

#[test]
fn a_body_is_sent_again_whole_with_its_trailers() {
    let node = Http2Node::start("here");
    let front_end = FrontEnd::start(&folder("retries-body"), &text(&[node.address], ""));
    run(async {
        let mut connection = Connection::open(front_end.address).await;
        connection.ask(get("/")).await;
        let (answer, mut out) = connection.begin(post("/refused-first"), false).await;
        for _ in 0..3 {
            out.send_data(vec![b'x'; 1000].into(), false).unwrap();
        }
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-sum", "3".parse().unwrap());
        out.send_trailers(trailers).unwrap();
        let answer = Answer::read(answer).await.unwrap();
        assert_eq!(answer.text(), "3000 {\"x-sum\": \"3\"}");
    });
    assert_eq!(node.requests(), 3);
    assert_eq!(front_end.metric("tidegate_replays_total"), Some(1.0));
    assert_eq!(front_end.metric("tidegate_held_body_bytes"), Some(0.0));
    assert_eq!(
        front_end.metric("tidegate_request_body_bytes_total"),
        Some(3000.0)
    );
}

#[test]
fn a_body_of_a_client_of_http_1_is_sent_again_as_well() {
    for (framing, body, told) in [
        ("Content-Length: 5", "abcde", "5 {}"),
        (
            "Transfer-Encoding: chunked",
            "3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n",
            "4 {}",
        ),
    ] {
        let node = Http2Node::start("here");
        // The first request's connection is the second's as well.
        let front_end = FrontEnd::start_with(
            &folder("retries-http1"),
            &text(&[node.address], ""),
            "[limits]\nworkers = 1\n",
        );
        assert_eq!(front_end.get("a", "/").status, 200);
        let asked = format!(
            "POST /refused-first HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{framing}\r\n\r\n{body}"
        );
        let answer = support::request(front_end.address, &asked).unwrap();
        assert_eq!((answer.status, &*answer.body), (200, told));
        assert_eq!(node.requests(), 3);
    }
}

#[test]
fn what_is_longer_than_is_held_is_sent_once() {
    let [one, two] = ["one", "two"].map(Http2Node::start);
    let nodes = [one.address, two.address];
    let front_end = FrontEnd::start_with(
        &folder("retries-long"),
        &text(&nodes, "policy = \"round_robin\"\n"),
        "[limits]\nreplay_body = \"1KiB\"\n",
    );
    let asked = || one.requests() + two.requests();
    for (length, is_known, tries) in [
        // Behind the length that its head says nothing is held from the beginning.
        (3000_usize, true, 1),
        (3000, false, 1),
        (1025, false, 1),
        (1024, false, 2),
        (1024, true, 2),
        (0, false, 2),
    ] {
        let before = asked();
        run(async {
            let mut connection = Connection::open(front_end.address).await;
            let mut request = post("/refused-late");
            if is_known {
                (request.headers_mut()).insert("content-length", length.into());
            }
            let (answer, mut out) = connection.begin(request, false).await;
            send(&mut out, length).await;
            let answer = Answer::read(answer).await.unwrap();
            assert_eq!(answer.status, 502, "{length}");
        });
        let tried = asked() - before;
        let is_again = tried >= 2;
        assert_eq!(is_again, tries == 2, "{length} {is_known}: {tried}");
    }
    assert_eq!(front_end.metric("tidegate_held_body_bytes"), Some(0.0));
}

#[test]
fn a_refused_stream_is_sent_again_within_the_budget_alone() {
    for (budget, status, requests, counted) in [
        ("{ ratio = 0.0, min_per_second = 0 }", 502, 2, (0.0, 1.0)),
        ("{ ratio = 0.0, min_per_second = 9 }", 200, 3, (1.0, 0.0)),
    ] {
        let node = Http2Node::start("here");
        // The first request's connection is the second's as well.
        let front_end = FrontEnd::start_with(
            &folder("retries-refused"),
            &text(&[node.address], &format!("retry_budget = {budget}")),
            "[limits]\nworkers = 1\n",
        );
        run(async {
            let mut connection = Connection::open(front_end.address).await;
            connection.ask(get("/")).await;
            let answer = connection.ask(get("/refused-first")).await;
            assert_eq!(answer.status, status, "{budget}");
        });
        assert_eq!(node.requests(), requests, "{budget}");
        let total = |name: &str| front_end.metric(&format!("tidegate_{name}_total")).unwrap();
        assert_eq!((total("retries"), total("retries_denied")), counted);
    }
}
