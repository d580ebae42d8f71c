//! Copies of requests for another site: the example of docs/mirroring.md, what is copied and what is not, and a site that answers nothing.
#![expect(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod support;

use std::io::{BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Mutex;

use support::server::{head, server, server_that};
use support::{FrontEnd, eventually, folder, free_address, request};

/// A server that notes each head, and answers so many bytes.
fn noting(seen: &'static Mutex<Vec<String>>, bytes: usize) -> SocketAddr {
    server_that(Ipv4Addr::LOCALHOST.into(), move |mut stream| {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        loop {
            let head = head(&mut reader)?;
            seen.lock().unwrap().push(head.to_ascii_lowercase());
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n");
            stream.write_all(answer.as_bytes()).ok()?;
            stream.write_all(&vec![b'x'; bytes]).ok()?;
        }
    })
}

/// A server that answers nothing.
fn silent() -> SocketAddr {
    server_that(Ipv4Addr::LOCALHOST.into(), |mut stream| {
        stream.read_to_end(&mut Vec::new()).ok()?;
        None
    })
}

/// A front-end of one worker that copies each request of its site for a site with this node and more in its table.
fn front_end(name: &str, to: SocketAddr, more: &str) -> FrontEnd {
    let text = format!(
        "[[site]]\nname = \"shop\"\n[[site.route]]\nmirror = {{ to = \"next\", share = 1.0 }}\n\
         [[site]]\nname = \"next\"\nhosts = []\n{more}\n\
         [[node]]\nname = \"n1\"\naddress = \"{}\"\nsite = \"shop\"\n\
         [[node]]\nname = \"x1\"\naddress = \"{to}\"\nsite = \"next\"\n",
        server("real")
    );
    FrontEnd::start_with(&folder(name), &text, "[limits]\nworkers = 1\n")
}

fn outcomes(front_end: &FrontEnd, outcome: &str) -> f64 {
    let metric = format!("tidegate_mirrored_total{{outcome=\"{outcome}\"}}");
    front_end.metric(&metric).unwrap()
}

fn until(front_end: &FrontEnd, outcome: &str, count: f64) {
    eventually(outcome, || {
        (outcomes(front_end, outcome) == count).then_some(())
    });
}

/// Nothing of it is seen at the first site.
fn assert_unseen(front_end: &FrontEnd) {
    assert_eq!(front_end.get("a", "/").body, "real");
    let failures = "tidegate_node_failures_total{site=\"shop\"";
    assert_eq!(front_end.metric(failures).unwrap_or(0.0), 0.0);
}

#[test]
fn the_example_of_the_documentation_copies_requests() {
    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mirroring.md");
    let page = std::fs::read_to_string(page).unwrap();
    let example = page.split("```").nth(1).unwrap();
    let mut text = example.trim_start_matches("toml").to_owned();
    for (before, after) in [
        ("127.0.0.1:8080", free_address().to_string()),
        ("127.0.0.1:8081", server("real").to_string()),
        ("127.0.0.1:8082", noting(&SEEN, 100).to_string()),
        ("share = 0.01", "share = 1.0".into()),
    ] {
        assert!(text.contains(before), "{before}");
        text = text.replace(before, &after);
    }
    let front_end = FrontEnd::start(&folder("mirror-example"), &text);
    for number in 0..20 {
        let answer = front_end.get("shop.example", &format!("/a?{number}"));
        assert_eq!((answer.status, &*answer.body), (200, "real"));
    }
    until(&front_end, "answered", 20.0);
    let seen = SEEN.lock().unwrap();
    assert_eq!(seen.len(), 20);
    for number in 0..20 {
        let line = format!("get /a?{number} http/1.1\r\n");
        assert!(seen.iter().any(|it| it.starts_with(&line)), "{line}");
    }
    for field in [
        "host: shop.example\r\n",
        "x-tidegate-mirror: shop\r\n",
        "x-forwarded-for: 127.0.0.1\r\n",
    ] {
        assert!(
            seen.iter().all(|it| it.contains(field)),
            "{field}: {seen:?}"
        );
    }
    // Copies are no requests of clients.
    let received = "tidegate_requests_received_total";
    assert_eq!(front_end.metric(received), Some(20.0));
    let answers = "tidegate_node_responses_total{site=\"next\",node=\"x1\",code=\"2xx\"}";
    assert_eq!(front_end.metric(answers), Some(20.0));
}

#[test]
fn what_may_do_something_has_a_body_or_is_a_copy_is_not_copied() {
    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let front_end = front_end("mirror-not", noting(&SEEN, 1), "");
    for (method, more, outcome) in [
        ("POST", "content-length: 0\r\n", "unsafe"),
        ("DELETE", "", "unsafe"),
        ("PUT", "content-length: 4\r\n\r\nbody", "body"),
        ("GET", "content-length: 4\r\n\r\nbody", "body"),
        ("GET", "upgrade: x\r\nconnection: upgrade\r\n", "body"),
        ("GET", "x-tidegate-mirror: other\r\n", "copy"),
    ] {
        let before = outcomes(&front_end, outcome);
        let end = if more.contains("\r\n\r\n") {
            ""
        } else {
            "\r\n"
        };
        let close = if more.contains("upgrade") {
            ""
        } else {
            "connection: close\r\n"
        };
        let text = format!("{method} / HTTP/1.1\r\nHost: a\r\n{close}{more}{end}");
        if more.contains("upgrade") {
            let mut stream = std::net::TcpStream::connect(front_end.address).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
            let mut first = [0; 12];
            stream.read_exact(&mut first).unwrap();
            assert_eq!(&first, b"HTTP/1.1 101");
        } else {
            request(front_end.address, &text).unwrap();
        }
        assert_eq!(
            outcomes(&front_end, outcome),
            before + 1.0,
            "{method} {more}"
        );
    }
    assert_eq!(front_end.get("a", "/").body, "real");
    until(&front_end, "answered", 1.0);
    assert_eq!(SEEN.lock().unwrap().len(), 1);
}

#[test]
fn a_site_that_answers_nothing_delays_nobody_and_so_many_copies_wait_for_it() {
    let front_end = front_end(
        "mirror-silent",
        silent(),
        "admission = { mode = \"off\" }\n",
    );
    for _ in 0..70 {
        assert_unseen(&front_end);
    }
    assert_eq!(outcomes(&front_end, "too_many"), 6.0);
    let waiting = "tidegate_node_in_flight{site=\"next\",node=\"x1\"}";
    assert_eq!(front_end.metric(waiting), Some(64.0));
    assert_eq!(front_end.metric("tidegate_requests_in_flight"), Some(0.0));
}

#[test]
fn a_site_without_room_gets_no_copy() {
    let admission = "admission = { mode = \"maxconn\", connections = 1 }\n";
    let front_end = front_end("mirror-full", silent(), admission);
    for _ in 0..5 {
        assert_unseen(&front_end);
    }
    assert_eq!(outcomes(&front_end, "no_room"), 4.0);
    assert_eq!(outcomes(&front_end, "too_many"), 0.0);
}

#[test]
fn a_site_that_is_not_there_fails_alone() {
    let front_end = front_end("mirror-gone", free_address(), "");
    for _ in 0..5 {
        assert_unseen(&front_end);
    }
    eventually("copies have failed", || {
        (outcomes(&front_end, "failed") >= 1.0).then_some(())
    });
    assert_unseen(&front_end);
}

#[test]
fn a_long_answer_is_cut() {
    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let front_end = front_end("mirror-long", noting(&SEEN, 8 << 20), "");
    assert_unseen(&front_end);
    until(&front_end, "cut", 1.0);
    let waiting = "tidegate_node_in_flight{site=\"next\",node=\"x1\"}";
    eventually("it has ended", || {
        (front_end.metric(waiting)? == 0.0).then_some(())
    });
}
