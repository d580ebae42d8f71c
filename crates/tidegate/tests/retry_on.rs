//! Answers in place of which another node is asked, as docs/retries.md has it: its example, before servers whose answers their requests choose.
#![expect(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod support;

use std::io::{BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::{Condvar, Mutex};

use support::server::{head, server_that};
use support::{FrontEnd, Response, eventually, folder, request};

/// A server that answers `/busy-NAME` with 503, `/status-N` with that, and all others with 200; its name is the body.
fn server(name: &'static str) -> SocketAddr {
    server_that(Ipv4Addr::LOCALHOST.into(), move |stream| {
        serve(stream, name)
    })
}

fn serve(mut stream: TcpStream, name: &str) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let head = head(&mut reader)?;
        let line = head.lines().next()?;
        if head.contains("content-length: 4") {
            reader.read_exact(&mut [0; 4]).ok()?;
        }
        let status = match line.split_once("status-") {
            Some((_, rest)) => rest.split(' ').next()?,
            None if line.contains(&format!("busy-{name}")) => "503",
            None => "200",
        };
        let length = name.len();
        let answer = format!(
            "HTTP/1.1 {status} Said\r\nretry-after: 7\r\ncontent-length: {length}\r\n\r\n{name}"
        );
        stream.write_all(answer.as_bytes()).ok()?;
    }
}

/// The example of the page before these servers, which get requests in turn, with more in its site.
fn example(name: &str, budget: &str) -> FrontEnd {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/retries.md");
    let page = std::fs::read_to_string(page).unwrap();
    let example = page.split("```toml\n").nth(1).unwrap();
    let mut example = example.split("```").next().unwrap().to_owned();
    let budget = format!("retry_budget = {budget}\npolicy = \"round_robin\"\n");
    for (before, after) in [
        ("[[listener]]\naddress = \"127.0.0.1:8080\"\n", ""),
        (
            "retry_budget = { ratio = 0.1, min_per_second = 5 }\n",
            &budget,
        ),
        ("127.0.0.1:8081", &server("one").to_string()),
        ("127.0.0.1:8082", &server("two").to_string()),
    ] {
        assert!(example.contains(before), "{before}");
        example = example.replace(before, after);
    }
    FrontEnd::start_with(&folder(name), &example, "[limits]\nworkers = 1\n")
}

const ENOUGH: &str = "{ ratio = 1.0, min_per_second = 100 }";

fn ask(front_end: &FrontEnd, method: &str, target: &str, more: &str) -> Response {
    let text = format!("{method} {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{more}\r\n");
    let text = match more.is_empty() {
        true => text,
        false => format!("{text}body"),
    };
    request(front_end.address, &text).unwrap()
}

/// Answers to four requests, which come to each server in turn, and what all front-ends have counted for it.
fn asked(front_end: &FrontEnd, method: &str, target: &str, more: &str) -> (Vec<u16>, f64) {
    let retries = || front_end.metric("tidegate_retries_total").unwrap();
    let before = retries();
    let statuses = (0..4).map(|_| ask(front_end, method, target, more).status);
    let mut statuses: Vec<_> = statuses.collect();
    statuses.sort_unstable();
    (statuses, retries() - before)
}

#[test]
fn another_server_is_asked_in_place_of_these_answers() {
    let front_end = example("retry-on", ENOUGH);
    let (statuses, retries) = asked(&front_end, "GET", "/busy-one", "");
    assert_eq!(statuses, vec![200; 4]);
    // A retry is a turn of the other server as well.
    assert!(retries >= 2.0, "{retries}");
    let counted = |metric: &str| front_end.metric(metric).unwrap();
    assert_eq!(counted("tidegate_status_retries_total"), retries);
    // What was not passed on counts at its server, and its connection serves on.
    let of_one = "{site=\"shop\",node=\"n1\"";
    let seen = format!("tidegate_node_responses_total{of_one},code=\"5xx\"}}");
    assert_eq!(counted(&seen), retries);
    assert_eq!(
        counted(&format!("tidegate_node_connects_total{of_one}}}")),
        1.0
    );
    assert_eq!(counted("tidegate_requests_in_flight"), 0.0);
}

#[test]
fn the_last_answer_is_passed_on_as_it_is() {
    let front_end = example("retry-on-last", ENOUGH);
    assert_eq!(
        asked(&front_end, "GET", "/status-502", ""),
        (vec![502; 4], 4.0)
    );
    let answer = ask(&front_end, "GET", "/status-502", "");
    assert!(answer.head.contains("retry-after: 7"), "{}", answer.head);
    assert!(["one", "two"].contains(&&*answer.body));
    // Nothing of it is ours.
    assert!(!answer.head.contains("x-tidegate-reason"));
    let tries = |node: &str| {
        let metric = format!("tidegate_node_tries_total{{site=\"shop\",node=\"{node}\"}}");
        front_end.metric(&metric)
    };
    assert_eq!((tries("n1"), tries("n2")), (Some(5.0), Some(5.0)));
}

#[test]
fn nothing_is_asked_twice_that_may_have_been_done() {
    let front_end = example("retry-on-not", ENOUGH);
    for (method, target, more) in [
        ("POST", "/status-503", ""),
        ("POST", "/status-503", "content-length: 4\r\n"),
        ("PUT", "/status-503", "content-length: 4\r\n"),
        ("PATCH", "/status-503", ""),
        // No such status, and routes of their own.
        ("GET", "/status-500", ""),
        ("GET", "/status-404", ""),
        ("GET", "/reports/status-503", ""),
        ("GET", "/search?status-502", ""),
    ] {
        let (statuses, retries) = asked(&front_end, method, target, more);
        assert_eq!(retries, 0.0, "{method} {target}");
        let status = &target[target.len() - 3..];
        assert_eq!(statuses, vec![status.parse::<u16>().unwrap(); 4]);
    }
    for (method, target) in [
        ("GET", "/search?status-500"),
        ("HEAD", "/status-504"),
        ("DELETE", "/status-503"),
    ] {
        let (_, retries) = asked(&front_end, method, target, "");
        assert_eq!(retries, 4.0, "{method} {target}");
    }
}

#[test]
fn without_budget_the_first_answer_is_passed_on() {
    let front_end = example("retry-on-budget", "{ ratio = 0.0, min_per_second = 0 }");
    let (statuses, retries) = asked(&front_end, "GET", "/busy-one", "");
    assert_eq!((statuses, retries), (vec![200, 200, 503, 503], 0.0));
    let denied = front_end.metric("tidegate_retries_denied_total");
    assert_eq!(denied, Some(2.0));
}

/// Requests that a server has: so many, and whether they may go.
struct Held {
    now: Mutex<(usize, bool)>,
    changed: Condvar,
}

/// As many as each server may have.
const CONNECTIONS: usize = 2;

static HELD: Held = Held {
    now: Mutex::new((0, false)),
    changed: Condvar::new(),
};

impl Held {
    fn change(&self, by: impl FnOnce(&mut (usize, bool))) {
        by(&mut self.now.lock().unwrap());
        self.changed.notify_all();
    }

    /// Holds a request until it may go, or more are here than may be.
    fn hold(&self) {
        self.change(|(count, _)| *count += 1);
        let held = |(count, go): &mut (usize, bool)| !*go && *count <= CONNECTIONS;
        let now = self.now.lock().unwrap();
        drop(self.changed.wait_while(now, held).unwrap());
        self.change(|(count, _)| *count -= 1);
    }
}

fn serve_held(mut stream: TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    while head(&mut reader).is_some() {
        HELD.hold();
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nheld";
        stream.write_all(answer).ok()?;
    }
    None
}

#[test]
fn a_server_without_room_is_not_asked_in_place_of_an_answer() {
    let held = server_that(Ipv4Addr::LOCALHOST.into(), serve_held);
    let cluster = format!(
        "[[site]]\nname = \"shop\"\npolicy = \"round_robin\"\nretry_on = [503]\nretry_budget = {ENOUGH}\n\
         [site.admission]\nmode = \"maxconn\"\nconnections = {CONNECTIONS}\n\
         [[node]]\nname = \"n1\"\naddress = \"{}\"\nsite = \"shop\"\n\
         [[node]]\nname = \"n2\"\naddress = \"{held}\"\nsite = \"shop\"\n",
        server("one"),
    );
    let folder = folder("retry-on-room");
    let front_end = FrontEnd::start_with(&folder, &cluster, "[limits]\nworkers = 1\n");
    std::thread::scope(|threads| {
        let ask = || ask(&front_end, "GET", "/busy-one", "").status;
        let first: Vec<_> = (0..CONNECTIONS).map(|_| threads.spawn(ask)).collect();
        eventually("the server is full", || {
            (HELD.now.lock().unwrap().0 == CONNECTIONS).then_some(())
        });
        assert_eq!(Vec::from([(); 4].map(|()| ask())), vec![503; 4]);
        HELD.change(|(_, go)| *go = true);
        let first = first.into_iter().map(|it| it.join().unwrap());
        assert_eq!(first.collect::<Vec<_>>(), vec![200; CONNECTIONS]);
    });
    // The budget was not asked.
    let denied = front_end.metric("tidegate_retries_denied_total");
    assert_eq!(denied, Some(0.0));
}
