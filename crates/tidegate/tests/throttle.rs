//! Throttles through the binary itself: configured, set at run time, kept over a restart, released.

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Output;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;
use support::{FrontEnd, Response, eventually, folder, tidegate};

/// A server that answers `/slow/…` when it is asked to, and all else at once.
struct Server {
    address: SocketAddr,
    open: Sender<()>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (open, gate) = channel();
        let gate = Arc::new(Mutex::new(gate));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, gate) = (stream.unwrap(), Arc::clone(&gate));
                thread::spawn(move || serve(stream, &gate));
            }
        });
        Self { address, open }
    }
}

fn serve(mut stream: TcpStream, gate: &Mutex<Receiver<()>>) {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if stream.read(&mut byte).unwrap_or(0) == 0 {
                return;
            }
            head.push(byte[0]);
        }
        if head.starts_with(b"GET /slow/") {
            gate.lock().unwrap().recv().ok();
        }
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        if stream.write_all(answer).is_err() {
            return;
        }
    }
}

fn configuration(server: &Server, more: &str) -> String {
    format!(
        "[limits]\nworkers = 2\n\
         [[site]]\nname = \"shop\"\n\
         [[node]]\nname = \"n1\"\naddress = \"{}\"\nsite = \"shop\"\n\
         [log]\naccess = \"json\"\nfile = \"access.log\"\n{more}",
        server.address
    )
}

/// A command of the front-end's operator.
fn order(front_end: &FrontEnd, arguments: &[&str]) -> Output {
    let mut command = tidegate();
    command.args(arguments);
    command.args(["--admin", &front_end.admin.to_string()]);
    command.output().unwrap()
}

#[track_caller]
fn said(done: &Output) -> String {
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    String::from_utf8(done.stdout.clone()).unwrap()
}

fn throttles(front_end: &FrontEnd) -> Vec<Value> {
    let list = front_end.api("/api/throttles");
    list["throttles"].as_array().unwrap().clone()
}

fn waits(front_end: &FrontEnd, count: u64) {
    eventually("so many are held", || {
        let all = throttles(front_end);
        let waiting = all.first()?["waiting"].as_u64()?;
        (waiting == count).then_some(())
    });
}

/// Lines of the access log, once there are so many of the slow class.
fn logged(folder: &Path, count: usize) -> Vec<Value> {
    eventually("the log has them", || {
        let text = std::fs::read_to_string(folder.join("access.log")).ok()?;
        let lines = text.lines().filter(|line| line.contains("/slow/"));
        let lines: Vec<_> = lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        (lines.len() == count).then_some(lines)
    })
}

#[test]
fn who_is_held_completes_and_everybody_else_passes_by() {
    let server = Server::start();
    let folder = folder("throttle");
    let text = "[[throttle]]\nclass = \"GET /slow/*\"\nconcurrency = 1\n";
    let front_end = FrontEnd::start(&folder, &configuration(&server, text));
    thread::scope(|scope| {
        let get = |path: &'static str| {
            let front_end = &front_end;
            scope.spawn(move || -> Response { front_end.get("shop", path) })
        };
        let mut slow = vec![get("/slow/1")];
        for count in 1..4 {
            waits(&front_end, count - 1);
            eventually("one is at the server", || {
                let it = &throttles(&front_end)[0];
                (it["in_flight"] == 1).then_some(())
            });
            slow.push(get("/slow/2"));
            waits(&front_end, count);
        }
        for _ in 0..5 {
            assert_eq!(front_end.get("shop", "/fast").status, 200);
        }
        let held = "tidegate_throttle_waiting{class=\"GET /slow/*\"}";
        assert_eq!(front_end.metric(held), Some(3.0));
        let why = said(&order(&front_end, &["why", "GET /slow/*"]));
        assert!(why.contains("throttled by the configuration"), "{why}");
        assert!(why.contains("1 in flight"), "{why}");
        let listed = said(&order(&front_end, &["throttle"]));
        assert!(
            listed.contains("GET /slow/*") && listed.contains("config"),
            "{listed}"
        );
        let released = said(&order(&front_end, &["release", "GET /slow/*"]));
        assert!(
            released.starts_with("GET /slow/*: released; of 4 requests 3 were held"),
            "{released}"
        );
        for _ in 0..4 {
            server.open.send(()).unwrap();
        }
        for request in slow {
            assert_eq!(request.join().unwrap().status, 200);
        }
    });
    let lines = logged(&folder, 4);
    let held = lines
        .iter()
        .filter(|line| line["held_us"].as_u64() > Some(0));
    assert_eq!(held.count(), 3);
    assert!(
        lines.iter().all(|line| line["throttle"] == "GET /slow/*"),
        "{lines:?}"
    );
    assert!(throttles(&front_end).is_empty());
    let again = order(&front_end, &["release", "GET /slow/*"]);
    assert_eq!(again.status.code(), Some(1), "{again:?}");
}

#[test]
fn a_class_may_be_called_by_the_name_that_the_operator_gave_it() {
    let server = Server::start();
    let folder = folder("throttle-named");
    let text = "[culprits]\nclasses = [\"cart=/cart/*\", \"login=POST /login\"]\n\
                [[throttle]]\nclass = \"login\"\nconcurrency = 9\n";
    let front_end = FrontEnd::start(&folder, &configuration(&server, text));
    let given = said(&order(
        &front_end,
        &["throttle", "cart", "--concurrency", "2"],
    ));
    assert!(given.starts_with("cart: "), "{given}");
    assert_eq!(front_end.get("shop", "/cart/7").status, 200);
    let all = throttles(&front_end);
    let of = |class: &str| all.iter().find(|it| it["class"] == class).unwrap();
    assert_eq!(of("cart")["arrived"], 1);
    assert_eq!(of("login")["set_by"], "config");
    let why = said(&order(&front_end, &["why", "cart"]));
    assert!(why.contains("throttled by an operator"), "{why}");
    said(&order(&front_end, &["release", "cart"]));
    assert_eq!(throttles(&front_end).len(), 1);
}

#[test]
fn orders_outlive_the_front_end() {
    let server = Server::start();
    let folder = folder("throttle-kept");
    let class = "shop GET /slow/{n}";
    let arguments = [
        "throttle",
        class,
        "--concurrency",
        "2",
        "--rate",
        "0.5",
        "--bandwidth",
        "64KiB",
        "--queue",
        "10s",
        "--priority",
        "--mark",
        "7",
        "--dscp",
        "8",
        "--so-priority",
        "1",
        "--for",
        "1h",
    ];
    let text = configuration(&server, "");
    let begin = || FrontEnd::start_with(&folder, &text, "overrides_file = \"overrides.json\"");
    let first = begin();
    let given = said(&order(&first, &arguments));
    let words = "2 in flight, 0.5 per second, 64KiB/s, 10s of waiting, lowest priority, mark 7, dscp 8, \
                 socket priority 1";
    assert_eq!(given, format!("{class}: {words}\n"));
    drop(first);
    let second = begin();
    let all = throttles(&second);
    assert_eq!(
        (&all[0]["class"], &all[0]["set_by"]),
        (&class.into(), &"operator".into())
    );
    assert_eq!(all[0]["limits"]["concurrency"], 2);
    let left = all[0]["seconds_left"].as_f64().unwrap();
    assert!((1.0..=3600.0).contains(&left), "{left}");
    said(&order(&second, &["release", class]));
    drop(second);
    let third = begin();
    assert!(throttles(&third).is_empty());
}

#[test]
fn what_makes_no_sense_is_told() {
    let server = Server::start();
    let front_end = FrontEnd::start(&folder("throttle-wrong"), &configuration(&server, ""));
    for (arguments, code, text) in [
        (&["throttle", "GET /a"][..], 2, "the throttle does nothing"),
        (
            &["throttle", "GET /a", "--concurrency", "0"],
            2,
            "concurrency must be from 1",
        ),
        (&["throttle", "GET /a", "--dscp", "64"], 2, "--dscp"),
        (&["throttle", "--rate", "1"], 2, "CLASS"),
        (
            &["throttle", "/a", "--rate", "1"],
            1,
            "a class is a method and a path",
        ),
        (
            &["throttle", "blog GET /a", "--rate", "1"],
            1,
            "no site is called `blog`",
        ),
        (&["release", "GET /a"], 1, "class `GET /a` is not throttled"),
        (
            &["why", "GET /a"],
            1,
            "no site, node, throttled class or recent request `GET /a`",
        ),
    ] {
        let done = order(&front_end, arguments);
        let found = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(code), "{arguments:?}: {found}");
        assert!(found.contains(text), "{arguments:?}: {found}");
    }
    assert!(throttles(&front_end).is_empty());
    assert!(said(&order(&front_end, &["throttle"])).contains("no class is throttled"));
}
