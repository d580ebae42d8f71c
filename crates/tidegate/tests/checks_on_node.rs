//! Service checks on the node, with a real agent and real front-ends: what the agent finds is in its load record, and a node
//! whose service is down gets no requests, whatever its web server answers.

#![allow(clippy::unwrap_used, reason = "test code")]
#![allow(dead_code, reason = "not every test file needs all of `support`")]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use support::name_server::NameServer;
use support::{
    FrontEnd, Process, ask, eventually, folder, free_address, master_key, node_key, tidegate,
};

/// A web server that answers each connection with its name.
fn web_server(name: &'static str) -> SocketAddr {
    serve(move |asked| {
        let length = name.len();
        let end = asked.windows(4).any(|it| it == b"\r\n\r\n");
        let answer = format!(
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{name}"
        );
        end.then(|| answer.into_bytes())
    })
}

/// A server that answers each connection once, when this knows the answer to what came so far. Ends with the test's process.
fn serve(answer: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut asked, mut piece) = (stream.unwrap(), Vec::new(), [0; 1024]);
            while let Ok(count @ 1..) = stream.read(&mut piece) {
                asked.extend_from_slice(&piece[..count]);
                if let Some(answer) = answer(&asked) {
                    stream.write_all(&answer).ok();
                    break;
                }
            }
        }
    });
    address
}

/// The agent of `n1`, which checks services.
struct Agent {
    folder: PathBuf,
    listen: SocketAddr,
    metrics: SocketAddr,
    agent_check: SocketAddr,
    process: Process,
}

/// How often an agent of these tests asks.
const OFTEN: &str = "interval = \"100ms\"\nfall = 2";

impl Agent {
    fn start(folder: &Path, checks: &str) -> Self {
        let key = node_key(&master_key(folder), "n1");
        let (listen, metrics, agent_check) = (free_address(), free_address(), free_address());
        let text = format!(
            "[agent]\nlisten = \"{listen}\"\nkey_file = \"{}\"\ninterval = \"20ms\"\nrealtime = false\nrungs = [\"agent\"]\n\
             [agent.metrics]\nlisten = \"{metrics}\"\n\
             [agent.agent_check]\nlisten = \"{agent_check}\"\nat_limit = \"down\"\n{checks}\n",
            key.display(),
        );
        std::fs::write(folder.join("agent.toml"), text).unwrap();
        Self {
            folder: folder.to_owned(),
            listen,
            metrics,
            agent_check,
            process: Self::run(folder),
        }
    }

    fn run(folder: &Path) -> Process {
        let mut command = tidegate();
        command.arg("agent").arg(folder.join("agent.toml"));
        let log = folder.join("agent.log");
        let log = std::fs::File::options().append(true).create(true).open(log);
        Process::start(command.stdout(Stdio::null()).stderr(log.unwrap()))
    }

    fn kill(&mut self) {
        self.process.signal("KILL");
        self.process.wait();
    }

    fn revive(&mut self) {
        self.process = Self::run(&self.folder);
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("agent.log")).unwrap()
    }

    /// Its answer to an agent check.
    fn answer(&self) -> String {
        let mut answer = String::new();
        let mut stream = TcpStream::connect(self.agent_check).unwrap();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn says(&self, metric: &str) -> bool {
        let body = ask(self.metrics, "/metrics").unwrap().body;
        body.lines().any(|line| line == metric)
    }

    /// A front-end whose site has `n1`, which this agent is beside; and more of the file.
    fn front_end(&self, name: &str, more: &str) -> FrontEnd {
        let folder = self.folder.join(name);
        std::fs::create_dir(&folder).unwrap();
        let master = self.folder.join("master.key");
        let text = format!(
            "[load]\nkey_file = \"{}\"\n\
             [[node]]\nname = \"n1\"\naddress = \"{}\"\nsite = \"shop\"\nload = {{ address = \"{}\" }}\n\
             [[site]]\nname = \"shop\"\nhosts = [\"shop.example\"]\npolicy = \"round_robin\"\n{more}\n",
            master.display(),
            web_server("one"),
            self.listen,
        );
        FrontEnd::start(&folder, &text)
    }
}

/// Another node of the site, without an agent.
fn second_node() -> String {
    let address = web_server("two");
    format!(
        "[[node]]\nname = \"n2\"\naddress = \"{address}\"\nsite = \"shop\"\nload = {{ transport = \"none\" }}"
    )
}

/// Waits until n1 is as wanted.
#[track_caller]
fn wait(front_end: &FrontEnd, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    eventually(what, || {
        let status = front_end.api("/api/status");
        let nodes = status["sites"][0]["nodes"].as_array().unwrap().clone();
        let n1 = nodes.into_iter().find(|it| it["name"] == "n1").unwrap();
        wanted(&n1).then_some(n1)
    })
}

fn is_well(node: &Value) -> bool {
    node["services"]["failing"] == json!([]) && node["candidate"] == true
}

/// Names of the servers that answer requests.
fn answers(front_end: &FrontEnd) -> Vec<String> {
    let mut names: Vec<_> = (0..20)
        .map(|_| front_end.get("shop.example", "/").body)
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Checks of a store, which answers as it is loading or not, and of a program.
fn store_and_program() -> (String, Arc<AtomicBool>) {
    let loading = Arc::new(AtomicBool::new(false));
    let is_loading = Arc::clone(&loading);
    let store = serve(move |asked| {
        let answer = match is_loading.load(Ordering::Relaxed) {
            true => "-LOADING the data\r\n",
            false => "+PONG\r\n",
        };
        (asked == b"PING\r\n").then(|| answer.into())
    });
    let checks = format!(
        "[[agent.check]]\nkind = \"tcp\"\nlabel = \"store\"\nport = {}\n\
         send = \"PING\\r\\n\"\nexpect = \"+PONG\"\n{OFTEN}\n\
         [[agent.check]]\nkind = \"exec\"\n\
         command = [\"/bin/sh\", \"-c\", \"[ $TIDEGATE_NODE$TIDEGATE_SITE = n1 ]\"]\n{OFTEN}\n",
        store.port(),
    );
    (checks, loading)
}

#[test]
fn a_node_is_out_while_its_agent_says_that_a_service_fails() {
    let (checks, loading) = store_and_program();
    let mut agent = Agent::start(&folder("checks-on-node"), &checks);
    let front_end = agent.front_end("front-end", &second_node());
    let node = wait(&front_end, "all is well", is_well);
    assert_eq!(node["services"]["checked"], json!([1, 2]));
    assert_eq!(answers(&front_end), ["one", "two"]);
    assert!(agent.answer().starts_with("up"));
    loading.store(true, Ordering::Relaxed);
    let node = wait(&front_end, "it is out", |node| node["candidate"] == false);
    assert_eq!(node["services"]["failing"], json!([1]));
    assert_eq!(node["services"]["out"], true);
    assert_eq!(node["trouble"]["ejected_for"], "check");
    assert_eq!(answers(&front_end), ["two"]);
    let why = front_end.api("/api/why/n1")["reasons"].to_string();
    for part in [
        "because service check 1 of its agent fails",
        "it returns when its load record says that all pass",
    ] {
        assert!(why.contains(part), "{why}");
    }
    let metric = "tidegate_node_service_failing{site=\"shop\",node=\"n1\",check=\"1\"}";
    assert_eq!(front_end.metric(metric), Some(1.0));
    assert!(agent.says("tidegate_agent_service_failing{check=\"store\",place=\"1\"} 1"));
    assert!(agent.says("tidegate_agent_service_failing{check=\"exec\",place=\"2\"} 0"));
    // Bits of the record: two checks, of which the second passes.
    assert!(agent.says("tidegate_agent_services_checked 3"));
    // The newest sample of its own may be older than the record that was read.
    eventually("it says so of itself", || {
        agent.says("tidegate_agent_services 2").then_some(())
    });
    let log = agent.log();
    let event = "service check `store` fails, the answer had not what is wanted";
    assert!(log.contains(event), "{log}");
    assert_eq!(agent.answer(), "down #service check store fails\n");
    // Without an agent nothing new is said, and the node stays out.
    agent.kill();
    let is_old = |node: &Value| node["load"]["fresh"] == false;
    let node = wait(&front_end, "the record is old", is_old);
    assert_eq!(node["candidate"], false);
    loading.store(false, Ordering::Relaxed);
    agent.revive();
    wait(&front_end, "it is back", is_well);
    assert_eq!(answers(&front_end), ["one", "two"]);
}

#[test]
fn a_site_may_ignore_them_and_one_without_another_node_fails_open() {
    let program =
        "[[agent.check]]\nkind = \"exec\"\ncommand = [\"/bin/sleep\", \"600\"]\ntimeout = \"50ms\"";
    let (checks, _loading) = store_and_program();
    let checks = format!("{program}\n{OFTEN}\n{checks}");
    let agent = Agent::start(&folder("checks-on-node-each"), &checks);
    let alone = agent.front_end("alone", "");
    let ignores = format!("service_checks = false\n{}", second_node());
    let ignores = agent.front_end("ignores", &ignores);
    // What hangs fails, and holds the other checks up no longer than that.
    let fails = |node: &Value| node["services"]["failing"] == json!([1]);
    let node = wait(&alone, "the program fails", fails);
    assert_eq!(node["services"]["checked"], json!([1, 2, 3]));
    let is_out = |node: &Value| node["services"]["out"] == true;
    wait(&alone, "it is out, and used", |node| {
        is_out(node) && node["candidate"] == true
    });
    assert_eq!(alone.api("/api/status")["sites"][0]["fail_open"], true);
    assert_eq!(answers(&alone), ["one"]);
    let node = wait(&ignores, "the other front-end hears of it", fails);
    assert!(!is_out(&node), "{node}");
    assert_eq!(node["candidate"], true);
    assert_eq!(answers(&ignores), ["one", "two"]);
    let log = agent.log();
    assert!(log.contains("service check `exec` fails"), "{log}");
}

#[test]
fn a_name_server_that_ends_takes_its_node_out() {
    let folder = folder("checks-on-node-dns");
    let Some(mut server) = NameServer::start(&folder, "127.0.0.2 web.test\n") else {
        return;
    };
    let checks = format!(
        "[[agent.check]]\nkind = \"dns\"\nname = \"web.test\"\nanswer = \"127.0.0.2\"\naddress = \"{}\"\nport = {}\n{OFTEN}\n",
        server.address.ip(),
        server.address.port(),
    );
    let agent = Agent::start(&folder, &checks);
    let front_end = agent.front_end("front-end", &second_node());
    wait(&front_end, "the name is known", is_well);
    server.process.end("TERM");
    wait(&front_end, "it is out", |node| node["candidate"] == false);
    assert_eq!(answers(&front_end), ["two"]);
    let log = agent.log();
    let event = "service check `dns` fails, nothing listens at the port";
    assert!(log.contains(event), "{log}");
}
