//! A front-end and an agent as processes: traffic, runtime overrides, loads, health, the end.
//!
//! Nothing here sleeps to be in time: each step waits for what it needs to see, and a step that
//! never comes ends the test by a deadline that no healthy machine reaches.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A step that takes longer will never come.
const DEADLINE: Duration = Duration::from_secs(60);

/// A process of the binary whose lines can be waited for.
struct Tidegate {
    child: Child,
    lines: Receiver<String>,
}

impl Tidegate {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let streams: [Box<dyn Read + Send>; 2] = [
            Box::new(child.stdout.take().unwrap()),
            Box::new(child.stderr.take().unwrap()),
        ];
        for stream in streams {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines() {
                    sender.send(line.unwrap()).unwrap_or_default();
                }
            });
        }
        Self { child, lines }
    }

    /// The next line that begins so; those before it are passed over.
    #[track_caller]
    fn line(&self, begin: &str) -> String {
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(DEADLINE) {
                Ok(line) if line.contains(begin) => return line,
                Ok(line) => seen.push(line),
                Err(error) => panic!("no line with {begin:?} ({error}) after {seen:#?}"),
            }
        }
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(sent.success());
    }

    fn wait(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Tidegate {
    fn drop(&mut self) {
        // It has ended already if the test went well.
        self.child.kill().unwrap_or_default();
        self.child.wait().unwrap();
    }
}

/// A server that answers every request with its name, until the test ends.
fn server(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            std::thread::spawn(move || answer(stream, name));
        }
    });
    address
}

fn answer(mut stream: TcpStream, name: &str) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
        }
        let length = name.len();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{name}");
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// Status and body of a request.
fn get(address: &str, host: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer[9..12].parse().unwrap();
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    (status, body.to_owned())
}

/// Runs a command that ends by itself.
fn tidegate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(arguments)
        .output()
        .unwrap()
}

fn status(admin: &str) -> serde_json::Value {
    let output = tidegate(&["status", "--admin", admin, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A folder of this test's own, with a master in `master.key`.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).unwrap();
    }
    std::fs::create_dir_all(&folder).unwrap();
    let master = folder.join("master.key");
    let made = tidegate(&["key", "new", master.to_str().unwrap()]);
    assert!(made.status.success(), "{made:?}");
    folder
}

/// The file with a node's key from the master in a folder.
fn node_key(folder: &Path, node: &str) -> String {
    let file = folder.join(format!("{node}.key"));
    let (file, master) = (file.to_str().unwrap(), folder.join("master.key"));
    let master = master.to_str().unwrap();
    let made = tidegate(&["key", "derive", "--master", master, node, "-o", file]);
    assert!(made.status.success(), "{made:?}");
    file.to_owned()
}

/// What stands after the last blank of a line.
fn last(line: &str) -> String {
    let word = line.rsplit(' ').next().unwrap();
    word.trim_start_matches("http://")
        .trim_end_matches('/')
        .into()
}

/// The word behind these, without its colon.
fn after(line: &str, words: &str) -> String {
    let (_, rest) = line.split_once(words).unwrap();
    rest.split(": ").next().unwrap().to_owned()
}

/// An agent, and a front-end before two servers of which one is read.
struct Scene {
    agent: Tidegate,
    run: Tidegate,
    web: String,
    admin: String,
    config: PathBuf,
}

impl Scene {
    fn new(name: &str) -> Self {
        let folder = folder(name);
        let (one, two) = (server("one"), server("two"));
        let key = node_key(&folder, "n1");
        let agent = Tidegate::start(&[
            "agent",
            "--listen=127.0.0.1:0",
            "--interval=5ms",
            "--no-realtime",
            "--key-file",
            &key,
        ]);
        let started = agent.line("agent on ");
        let reads = after(&started, "agent on ");
        let config = folder.join("config.toml");
        let text = format!(
            r#"
            [admin]
            address = "127.0.0.1:0"
            [load]
            key_file = "master.key"
            interval = "5ms"
            timeout = "50ms"
            realtime = false
            # One worker, so that round_robin is one round.
            [limits]
            workers = 1
            [[listener]]
            address = "127.0.0.1:0"
            [[site]]
            name = "shop"
            policy = "round_robin"
            [[node]]
            name = "n1"
            site = "shop"
            address = "{one}"
            load = {{ transport = "udp", address = "{reads}" }}
            [[node]]
            name = "n2"
            site = "shop"
            address = "{two}"
            load = {{ transport = "none" }}
            [[node]]
            name = "db"
            role = "resource"
            address = "127.0.0.1:9"
            load = {{ transport = "udp", address = "{reads}", key_name = "n1" }}
            "#
        );
        std::fs::write(&config, text).unwrap();
        let run = Tidegate::start(&["run", "-c", config.to_str().unwrap()]);
        let listening = run.line("listening on ");
        let time = listening.split(' ').next().unwrap();
        assert!(time.starts_with("20") && time.ends_with('Z'), "{listening}");
        Self {
            web: last(&listening),
            admin: last(&run.line("page, API and metrics at ")),
            agent,
            run,
            config,
        }
    }

    /// What answers so many requests: n1, n2.
    fn ask(&self, requests: u32) -> [u32; 2] {
        let mut seen = [0, 0];
        for _ in 0..requests {
            let (status, body) = get(&self.web, "shop.example", "/");
            assert_eq!(status, 200);
            seen[usize::from(body == "two")] += 1;
        }
        seen
    }

    fn order(&self, order: &str, node: &str) -> String {
        let done = tidegate(&[order, node, "--admin", &self.admin]);
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    }
}

#[test]
fn orders_change_who_gets_requests_and_readiness() {
    let scene = Scene::new("orders");
    scene.run.line("node n1: load is read by ");
    let seen = scene.ask(20);
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    assert_eq!(scene.order("drain", "n1"), "n1: drain\n");
    assert_eq!(scene.ask(20), [0, 20]);

    let seen = status(&scene.admin);
    let nodes = &seen["sites"][0]["nodes"];
    assert_eq!(nodes[0]["state"], "drain");
    assert_eq!(nodes[0]["load"]["fresh"], true);
    assert_eq!(nodes[1]["rung"], "none");
    let requests = &seen["requests"];
    assert_eq!(requests["received"], requests["completed"]);
    let why = tidegate(&["why", "n1", "--admin", &scene.admin]);
    let why = String::from_utf8(why.stdout).unwrap();
    assert!(why.contains("an operator drains it"), "{why}");
    assert!(why.contains("last requests"), "{why}");

    // None left: not ready, and refused by name.
    scene.order("maint", "n2");
    let admin = &scene.admin;
    assert_eq!(get(admin, admin, "/readyz").0, 503);
    assert_eq!(get(&scene.web, "shop.example", "/").0, 503);
    scene.order("ready", "n1");
    assert_eq!(get(admin, admin, "/readyz").0, 200);
    assert_eq!(scene.ask(5), [5, 0]);
    let metrics = get(admin, admin, "/metrics").1;
    assert!(metrics.contains("reason=\"no_node\"} 1\n"), "{metrics}");
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a test gives up on the real clock"
)]
fn a_resource_is_read_and_serves_nothing() {
    let scene = Scene::new("resource");
    let deadline = std::time::Instant::now() + DEADLINE;
    let resource = loop {
        let seen = status(&scene.admin)["resources"][0].clone();
        if seen["load"]["fresh"] == true {
            break seen;
        }
        assert!(std::time::Instant::now() < deadline, "{seen}");
    };
    assert_eq!(resource["name"], "db");
    assert_eq!(resource["address"], "127.0.0.1:9");
    assert_ne!(resource["rung"], "none");
    assert!(resource["reads"]["reads"].as_u64().unwrap() > 0);
    // Nothing listens where it is: whatever went there would fail.
    assert_eq!(scene.ask(10), [5, 5]);
    let drained = tidegate(&["drain", "db", "--admin", &scene.admin]);
    assert_eq!(drained.status.code(), Some(1), "{drained:?}");
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a test gives up on the real clock"
)]
fn a_resource_that_is_not_read_is_shown() {
    let scene = Scene::new("unread");
    let shown = |scene: &Scene| {
        let status = tidegate(&["status", "--admin", &scene.admin]);
        let culprits = tidegate(&["culprits", "--admin", &scene.admin]);
        let text = |it: Output| String::from_utf8(it.stdout).unwrap();
        (text(status), text(culprits))
    };
    let wait = |part: &str, note: bool, said: &str| {
        let deadline = std::time::Instant::now() + DEADLINE;
        loop {
            let (status, culprits) = shown(&scene);
            let has =
                culprits.contains("db (127.0.0.1:9) is not read, so whoever loads it is not known");
            if status.contains(part) && has == note && culprits.contains(said) {
                return;
            }
            assert!(std::time::Instant::now() < deadline, "{status}{culprits}");
        }
    };
    let early = "Not known yet: too little was seen of ";
    wait("resource db (127.0.0.1:9): read (", false, early);
    scene.agent.signal("-TERM");
    scene.agent.line("stopped after ");
    wait("resource db (127.0.0.1:9): not read: ", true, "");
}

#[test]
fn a_lost_agent_and_a_broken_file_do_not_stop_traffic() {
    let scene = Scene::new("lost");
    scene.run.line("node n1: load is read by ");
    std::fs::write(&scene.config, "[admn]").unwrap();
    scene.run.signal("-HUP");
    scene.run.line("unknown key `admn`");
    assert_eq!(scene.ask(2), [1, 1]);

    scene.agent.signal("-TERM");
    scene.agent.line("stopped after ");
    scene.run.line("node n1: load is not known any more");
    assert_eq!(scene.ask(2), [1, 1]);
    scene.run.signal("-TERM");
    scene.run.line("stopped: 0 requests finished, 0 cut off");
    assert_eq!(scene.run.wait(), Some(0));
    assert_eq!(scene.agent.wait(), Some(0));
}

#[test]
fn a_request_in_flight_is_finished_before_the_end() {
    let folder = folder("drain");
    // A node that answers when the test says so.
    let node = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = node.local_addr().unwrap();
    let config = folder.join("config.toml");
    let text = format!(
        r#"
        admin = {{ address = "127.0.0.1:0" }}
        listener = [{{ address = "127.0.0.1:0" }}]
        site = [{{ name = "shop" }}]
        node = [{{ name = "n1", site = "shop", address = "{address}" }}]
        "#
    );
    std::fs::write(&config, text).unwrap();
    let run = Tidegate::start(&["--json", "run", "-c", config.to_str().unwrap()]);
    let event = |name: &str| -> serde_json::Value {
        let line = run.line(&format!("\"event\":\"{name}\""));
        serde_json::from_str(&line).unwrap()
    };
    let web = last(event("listening")["message"].as_str().unwrap());
    let admin = last(event("admin")["message"].as_str().unwrap());
    let client = std::thread::spawn(move || get(&web, "shop.example", "/slow"));
    let (mut stream, _) = node.accept().unwrap();
    let mut head = [0; 1024];
    assert!(stream.read(&mut head).unwrap() > 0);

    run.signal("-TERM");
    event("draining");
    // A successor can have the admin address already.
    assert!(TcpStream::connect(&admin).is_err());
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlate";
    stream.write_all(answer).unwrap();
    assert_eq!(client.join().unwrap(), (200, "late".to_owned()));
    let stopped = event("stopped");
    assert_eq!(
        stopped["message"],
        "stopped: 1 requests finished, 0 cut off"
    );
    assert_eq!(run.wait(), Some(0));
}

#[test]
fn what_cannot_start_says_why() {
    let folder = folder("start");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let config = folder.join("config.toml");
    let text = format!(
        r#"
        admin = {{ address = "{address}" }}
        listener = [{{ address = "127.0.0.1:0" }}]
        site = [{{ name = "shop" }}]
        node = [{{ name = "n1", site = "shop", address = "127.0.0.1:1" }}]
        "#
    );
    std::fs::write(&config, text).unwrap();
    let run = tidegate(&["run", "-c", config.to_str().unwrap()]);
    assert_eq!(run.status.code(), Some(1));
    let message = String::from_utf8(run.stderr).unwrap();
    let wanted = format!("error: cannot listen on the admin address {address}: ");
    assert!(message.contains(&wanted), "{message}");

    let agent = tidegate(&["run", "-c", "../../examples/agent.toml"]);
    assert_eq!(agent.status.code(), Some(2), "{agent:?}");
    let agent = tidegate(&["agent", "--key-file", "no-such-file"]);
    assert_eq!(agent.status.code(), Some(2), "{agent:?}");
    let agent = tidegate(&["agent", "-c", "../../examples/two-sites.toml"]);
    assert_eq!(agent.status.code(), Some(2), "{agent:?}");
}

/// Four nginx servers that answer with their name, each on an address of its own.
struct Nginx {
    children: Vec<Child>,
    addresses: Vec<SocketAddr>,
}

impl Nginx {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test gives up on the real clock"
    )]
    fn start(folder: &Path) -> Self {
        let mut nginx = Self {
            children: Vec::new(),
            addresses: Vec::new(),
        };
        for number in 11..=14 {
            let home = folder.join(format!("nginx{number}"));
            std::fs::create_dir_all(&home).unwrap();
            // A port that is free on that address.
            let free = TcpListener::bind(SocketAddr::from(([127, 0, 0, number], 0))).unwrap();
            let address = free.local_addr().unwrap();
            drop(free);
            let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                .map(|kind| format!("{kind}_temp_path {}/{kind};\n", home.display()))
                .concat();
            let config = format!(
                "daemon off; master_process off; pid {0}/pid; error_log {0}/error.log;\n\
                 events {{}}\n\
                 http {{ access_log off;\n{temporary}\
                 server {{ listen {address}; location / {{ return 200 \"n{number}\"; }} }} }}\n",
                home.display()
            );
            let file = home.join("nginx.conf");
            std::fs::write(&file, config).unwrap();
            let mut command = Command::new("nginx");
            command
                .arg("-c")
                .arg(&file)
                .arg("-e")
                .arg(home.join("error.log"));
            nginx
                .children
                .push(command.stderr(Stdio::null()).spawn().unwrap());
            nginx.addresses.push(address);
        }
        for address in &nginx.addresses {
            let deadline = std::time::Instant::now() + DEADLINE;
            while TcpStream::connect(address).is_err() {
                assert!(
                    std::time::Instant::now() < deadline,
                    "nginx does not listen"
                );
                std::thread::yield_now();
            }
        }
        nginx
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        for child in &mut self.children {
            child.kill().unwrap_or_default();
            child.wait().unwrap();
        }
    }
}

/// The example as it stands, but for ports that are free here.
#[test]
fn the_example_serves_two_sites_on_real_nginx() {
    if Command::new("nginx").arg("-v").output().is_err() {
        println!("SKIPPED: nginx is not installed");
        return;
    }
    let folder = folder("nginx");
    let mut nginx = Nginx::start(&folder);
    let mut agents = Vec::new();
    let mut text = std::fs::read_to_string("../../examples/two-sites.toml").unwrap();
    text = text.replace("127.0.0.1:9900", "127.0.0.1:0");
    text = text.replace("0.0.0.0:8080", "127.0.0.1:0");
    for (address, node) in nginx
        .addresses
        .iter()
        .zip(["shop1", "shop2", "blog1", "blog2"])
    {
        let key = node_key(&folder, node);
        let listen = format!("--listen={}:0", address.ip());
        let agent = Tidegate::start(&["agent", &listen, "--key-file", &key]);
        let started = agent.line("agent on ");
        let reads = after(&started, "agent on ");
        let old = format!("\"{}:8081\"", address.ip());
        // Read where this agent answers, if the example names no other place.
        let load =
            format!("\"{address}\"\nload = {{ transport = \"udp\", address = \"{reads}\" }}");
        text = text.replace(&old, &load);
        agents.push(agent);
    }
    text = text.replace(
        "load = { transport = \"udp\", address = \"127.0.0.14:9901\" }\n",
        "",
    );
    let config = folder.join("config.toml");
    std::fs::write(&config, text).unwrap();
    let run = Tidegate::start(&["run", "-c", config.to_str().unwrap()]);
    let web = last(&run.line("listening on "));
    let admin = last(&run.line("page, API and metrics at "));
    for _ in 0..4 {
        run.line(": load is read by ");
    }
    for _ in 0..20 {
        let shop = get(&web, "www.shop.example", "/x");
        assert!(
            shop.0 == 200 && ["n11", "n12"].contains(&shop.1.as_str()),
            "{shop:?}"
        );
        let blog = get(&web, "blog.example", "/");
        assert!(
            blog.0 == 200 && ["n13", "n14"].contains(&blog.1.as_str()),
            "{blog:?}"
        );
    }

    // A server that dies is not noticed by any that ask.
    nginx.children[0].kill().unwrap();
    nginx.children[0].wait().unwrap();
    for _ in 0..20 {
        assert_eq!(get(&web, "shop.example", "/"), (200, "n12".to_owned()));
    }
    let seen = status(&admin);
    let requests = &seen["requests"];
    assert_eq!(
        (&requests["received"], &requests["completed"]),
        (&60.into(), &60.into())
    );
    run.signal("-INT");
    assert_eq!(run.wait(), Some(0));
}

#[test]
fn a_front_end_in_one_line_needs_no_file() {
    let [a, b] = ["a", "b"].map(|name| server(name).to_string());
    let words = [
        "--listen",
        "127.0.0.1:0",
        "--to",
        &a,
        "--to",
        &b,
        "--admin",
        "127.0.0.1:0",
    ];
    let front_end = Tidegate::start(&[&["run"], &words[..]].concat());
    let address = last(&front_end.line("listening on "));
    let admin = last(&front_end.line("page, API and metrics at "));
    let (status_code, _) = get(&address, "whatever.example", "/");
    assert_eq!(status_code, 200);
    let status = status(&admin);
    let nodes = status["sites"][0]["nodes"].as_array().unwrap();
    let names = nodes.iter().map(|node| node["name"].as_str().unwrap());
    let expected = [&a, &b].map(|address| address.replace(':', "_"));
    assert!(names.eq(expected.iter().map(String::as_str)), "{status}");
    front_end.signal("-HUP");
    front_end.line("there is no file to read again");
    front_end.signal("-TERM");
    assert_eq!(front_end.wait(), Some(0));
    // The same words as a file.
    let config = tidegate(&[&["config"], &words[..]].concat());
    let text = String::from_utf8(config.stdout).unwrap();
    let file = folder("in-one-line").join("tidegate.toml");
    std::fs::write(&file, &text).unwrap();
    let check = tidegate(&["check", file.to_str().unwrap()]);
    assert!(check.status.success(), "{text}\n{check:?}");
    // A server that is none.
    let wrong = tidegate(&["run", "--listen", "127.0.0.1:0", "--to", "no-port"]);
    assert_eq!(wrong.status.code(), Some(2));
    let why = String::from_utf8(wrong.stderr).unwrap();
    assert!(
        why.contains("--to no-port") && why.contains("expected HOST:PORT"),
        "{why}"
    );
}
