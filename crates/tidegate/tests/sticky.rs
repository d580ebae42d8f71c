//! Sticky sessions, as docs/sticky.md has them: the example of that page, before servers that say their names.
#![expect(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod support;

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use support::server::{head, server};
use support::{FrontEnd, Response, eventually, folder, master_key, request, tidegate};

const SHOP: [&str; 3] = ["n1", "n2", "n3"];
const FILES: [&str; 2] = ["f1", "f2"];

/// The example of the page before these servers.
fn example(servers: &[(&str, SocketAddr)]) -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sticky.md");
    let page = std::fs::read_to_string(page).unwrap();
    let example = page.split("```toml\n").nth(1).unwrap();
    let example = example.split("```").next().unwrap();
    let listener = "[[listener]]\naddress = \"127.0.0.1:8080\"\n";
    assert!(example.contains(listener));
    let mut example = example.replace(listener, "");
    for (index, (name, address)) in servers.iter().enumerate() {
        let named = format!(
            "name = \"{name}\"\naddress = \"127.0.0.1:{}\"",
            8081 + index
        );
        assert!(example.contains(&named), "{named}");
        let here = format!("name = \"{name}\"\naddress = \"{address}\"");
        example = example.replace(&named, &here);
    }
    example
}

/// Servers that answer with their names.
fn servers() -> Vec<(&'static str, SocketAddr)> {
    let names = SHOP.into_iter().chain(FILES);
    names.map(|name| (name, server(name))).collect()
}

fn ask(front_end: &FrontEnd, host: &str, more: &str) -> Response {
    let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n");
    let answer = request(front_end.address, &text).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.head);
    answer
}

fn ask_shop(front_end: &FrontEnd, cookie: &str) -> Response {
    ask(
        front_end,
        "shop.example",
        &format!("Cookie: a=b; shop-node={cookie}\r\n"),
    )
}

/// The cookie that an answer sets: its value, and the rest.
fn cookie(answer: &Response) -> Option<(String, String)> {
    let mut lines = answer.head.lines();
    let set = lines.find_map(|line| line.strip_prefix("set-cookie: shop-node="))?;
    let (value, rest) = set.split_once("; ").unwrap();
    Some((value.to_owned(), rest.to_owned()))
}

/// A session that the front-end has just begun: its cookie's value, and the node that it is at.
fn begin(front_end: &FrontEnd) -> (String, String) {
    let answer = ask(front_end, "shop.example", "");
    let (value, rest) = cookie(&answer).expect("a session begins with a cookie");
    assert_eq!(rest, "Path=/; HttpOnly; SameSite=Lax");
    assert!(value.len() == 32 && value.bytes().all(|it| it.is_ascii_hexdigit()));
    (value, answer.body)
}

/// The newest word of `why` on a site's requests.
fn last_sticky(front_end: &FrontEnd, site: &str) -> serde_json::Value {
    let why = front_end.api(&format!("/api/why/{site}"));
    why["decisions"][0]["sticky"].clone()
}

fn command(front_end: &FrontEnd, arguments: &[&str]) {
    let admin = front_end.admin.to_string();
    let mut command = tidegate();
    command.args(arguments).args(["--admin", &admin]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

#[test]
fn a_session_stays_at_its_node_until_that_takes_no_requests() {
    let front_end = FrontEnd::start(&folder("sticky-cookie"), &example(&servers()));
    let (value, node) = begin(&front_end);
    assert_eq!(last_sticky(&front_end, "shop"), "new");
    for _ in 0..20 {
        let answer = ask_shop(&front_end, &value);
        assert_eq!(answer.body, node);
        assert_eq!(cookie(&answer), None, "it has it already");
    }
    assert_eq!(last_sticky(&front_end, "shop"), "home");
    command(&front_end, &["drain", &node]);
    let (other_value, other) = eventually("the node gets nothing more", || {
        let answer = ask_shop(&front_end, &value);
        (answer.body != node).then(|| (cookie(&answer).unwrap().0, answer.body))
    });
    assert_eq!(last_sticky(&front_end, "shop"), "node_out");
    assert_ne!(other_value, value);
    command(&front_end, &["ready", &node]);
    eventually("the node is back", || {
        (ask_shop(&front_end, &value).body == node).then_some(())
    });
    assert_eq!(
        ask_shop(&front_end, &other_value).body,
        other,
        "it stays there"
    );
    // What means no node is as none.
    for value in ["", "0", "no node", &"0".repeat(32), &"+".repeat(32), &other] {
        let answer = ask_shop(&front_end, value);
        assert!(cookie(&answer).is_some(), "{value}");
        assert_eq!(last_sticky(&front_end, "shop"), "new", "{value}");
    }
}

#[test]
fn cookies_lead_to_their_nodes_after_a_restart_in_another_order_of_nodes() {
    let servers = servers();
    let folder = folder("sticky-restart");
    let key = master_key(&folder);
    let keyed = format!(
        "sticky = {{ cookie = \"shop-node\", key_file = \"{}\", max_age = \"1h\" }}",
        key.display()
    );
    let example = example(&servers);
    let example = example.replace("sticky = { cookie = \"shop-node\" }", &keyed);
    let front_end = FrontEnd::start(&folder, &example);
    let answer = ask(&front_end, "shop.example", "");
    let (value, rest) = cookie(&answer).unwrap();
    assert_eq!(rest, "Path=/; HttpOnly; SameSite=Lax; Max-Age=3600");
    drop(front_end);
    let mut nodes: Vec<_> = example.split("[[node]]").collect();
    let before = nodes.remove(0).to_owned();
    nodes.reverse();
    let reversed: String = nodes
        .iter()
        .map(|node| format!("[[node]]{node}\n"))
        .collect();
    let front_end = FrontEnd::start(&folder, &(before + &reversed));
    for _ in 0..10 {
        assert_eq!(ask_shop(&front_end, &value).body, answer.body);
    }
    drop(front_end);
    // By another key it means nothing.
    let key = support::master_key_in(&folder, "other.key");
    let other = example.replace("master.key", "other.key");
    assert!(key.ends_with("other.key") && other != example);
    let front_end = FrontEnd::start(&folder, &other);
    let answer = ask_shop(&front_end, &value);
    assert_ne!(cookie(&answer).unwrap().0, value);
}

#[test]
fn requests_of_a_field_go_where_it_leads() {
    let servers = servers();
    let folder = folder("sticky-hash");
    let front_end = FrontEnd::start(&folder, &example(&servers));
    let of = |front_end: &FrontEnd, user: usize| {
        let answer = ask(front_end, "files.example", &format!("X-User: u{user}\r\n"));
        assert!(!answer.head.contains("set-cookie"));
        answer.body
    };
    let homes: Vec<_> = (0..40).map(|user| of(&front_end, user)).collect();
    assert!(FILES.iter().all(|node| homes.iter().any(|it| it == node)));
    assert_eq!(last_sticky(&front_end, "files"), "home");
    drop(front_end);
    let front_end = FrontEnd::start(&folder, &example(&servers));
    for (user, home) in homes.iter().enumerate() {
        assert_eq!(of(&front_end, user), *home);
    }
    ask(&front_end, "files.example", "");
    let last = last_sticky(&front_end, "files");
    assert_eq!(last, serde_json::Value::Null, "a request of no session");
}

/// A server that passes each request on, with what lets its answer go.
fn held(requests: Sender<Sender<()>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(Mutex::new(requests));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, requests) = (stream.unwrap(), Arc::clone(&requests));
            std::thread::spawn(move || hold(stream, &requests));
        }
    });
    address
}

fn hold(mut stream: TcpStream, requests: &Mutex<Sender<Sender<()>>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        if head(&mut reader)?.contains("shop-node") {
            let (answer, answered) = channel();
            requests.lock().ok()?.send(answer).ok()?;
            answered.recv().ok()?;
        }
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhere";
        stream.write_all(answer).ok()?;
    }
}

fn start_held(folder: &Path) -> (FrontEnd, Receiver<Sender<()>>) {
    let (sender, requests) = channel();
    let names = SHOP.into_iter().chain(FILES);
    let servers: Vec<_> = names.map(|name| (name, held(sender.clone()))).collect();
    (FrontEnd::start(folder, &example(&servers)), requests)
}

#[test]
fn a_session_whose_node_has_more_than_its_share_goes_elsewhere() {
    let (front_end, requests) = start_held(&folder("sticky-loaded"));
    let (value, _) = {
        let answer = ask(&front_end, "shop.example", "");
        cookie(&answer).unwrap()
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| ask_shop(&front_end, &value));
        let first_held = requests.recv_timeout(support::PATIENCE).unwrap();
        // One of two requests is more than a third and a quarter.
        let second = scope.spawn(|| ask_shop(&front_end, &value));
        let second_held = requests.recv_timeout(support::PATIENCE).unwrap();
        second_held.send(()).unwrap();
        let answer = second.join().unwrap();
        let other = cookie(&answer).expect("it is at another node");
        assert_ne!(other.0, value);
        assert_eq!(last_sticky(&front_end, "shop"), "loaded");
        first_held.send(()).unwrap();
        assert_eq!(cookie(&first.join().unwrap()), None, "it is at home");
    });
}
