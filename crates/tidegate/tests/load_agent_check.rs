//! Nodes whose agents the front-end asks as HAProxy does: an agent that says what a test wants said, and our own. Each word has
//! its effect, stands until the agent takes it back, and is shown with where it comes from.
#![expect(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use support::server::server;
use support::upgrade::upgrade;
use support::{
    FrontEnd, Process, eventually, folder, free_address, master_key, node_key, tidegate,
};

/// What the agent is sent.
const QUESTION: &str = "shop/n1 cpu\n";

/// An agent of a test's own.
struct Scripted {
    address: SocketAddr,
    /// What it answers from now on; nothing: it closes the connection.
    line: Arc<Mutex<String>>,
}

impl Scripted {
    fn start(line: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let scripted = Self {
            address: listener.local_addr().unwrap(),
            line: Arc::new(Mutex::new(line.into())),
        };
        let line = Arc::clone(&scripted.line);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut asked = [0; QUESTION.len()];
                if stream.read_exact(&mut asked).is_ok() && asked == *QUESTION.as_bytes() {
                    let line = line.lock().unwrap().clone();
                    // A front-end that ends with its test does not read it.
                    stream.write_all(line.as_bytes()).ok();
                }
            }
        });
        scripted
    }

    fn say(&self, line: &str) {
        *self.line.lock().unwrap() = line.into();
    }
}

fn asked(address: SocketAddr, send: &str) -> String {
    format!(
        "load = {{ transport = \"agent_check\", address = \"{address}\", send = {send:?}, period = \"100ms\" }}\n"
    )
}

/// A front-end before nodes, each with its server and what else is configured of it.
fn front_end(folder: &Path, nodes: &[(SocketAddr, String)]) -> FrontEnd {
    let mut text = String::from(
        "[limits]\nworkers = 1\n[[site]]\nname = \"shop\"\nhosts = [\"*\"]\npolicy = \"weighted_round_robin\"\n",
    );
    for (index, (server, load)) in nodes.iter().enumerate() {
        text.push_str(&format!(
            "[[node]]\nname = \"n{}\"\naddress = \"{server}\"\nsite = \"shop\"\n{load}",
            index + 1
        ));
    }
    FrontEnd::start(folder, &text)
}

fn node(front_end: &FrontEnd, index: usize) -> Value {
    front_end.api("/api/status")["sites"][0]["nodes"][index].clone()
}

/// The first node, once it is so.
fn first_once(front_end: &FrontEnd, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    eventually(what, || Some(node(front_end, 0)).filter(&is_so))
}

fn why(front_end: &FrontEnd) -> String {
    front_end.api("/api/why/n1").to_string()
}

fn command(front_end: &FrontEnd, arguments: &[&str]) -> String {
    let admin = front_end.admin.to_string();
    let mut command = tidegate();
    let output = command.args(arguments).args(["--admin", &admin]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_nodes_share_follows_its_agent_and_every_view_says_so() {
    let folder = folder("load-agent-check-weight");
    let agent = Scripted::start("up 50%\r\n");
    let nodes = [
        (server("n1"), asked(agent.address, QUESTION)),
        (server("n2"), String::new()),
        (server("n3"), asked(free_address(), QUESTION)),
    ];
    let front_end = front_end(&folder, &nodes);
    let known = first_once(&front_end, "its weight", |it| it["agent"]["weight"] == 0.5);
    assert_eq!(known["rung"], "agent_check");
    assert_eq!(known["agent"]["weight_word"], "50%");
    assert_eq!(known["agent"]["health"], "up");
    assert_eq!(known["weight"], 1.0, "as configured");
    assert!(known["load"]["cpu"].is_null() && known["load"]["fresh"] == true);
    let bodies: Vec<_> = (0..50).map(|_| front_end.get("a", "/").body).collect();
    let of = |name: &str| bodies.iter().filter(|body| *body == name).count();
    // Of 0.5 + 1 + 1.
    assert!((9..=11).contains(&of("n1")), "{bodies:?}");
    assert!(
        (19..=21).contains(&of("n3")),
        "an agent that is gone: {bodies:?}"
    );
    let error = eventually("an agent that is gone is missed", || {
        let error = &node(&front_end, 2)["reads"]["last_error"];
        error.as_str().map(str::to_owned)
    });
    assert_eq!(error, "refused: nothing listens at the address");
    let why_first = why(&front_end);
    assert!(
        why_first.contains("it weighs 0.5 by its agent (`50%`, "),
        "{why_first}"
    );
    assert!(why_first.contains("by the configuration"), "{why_first}");
    agent.say("weight:3 purple up\n");
    let known = first_once(&front_end, "another", |it| it["agent"]["weight"] == 3.0);
    assert_eq!(known["agent"]["ignored_word"], "purple");
    let weight = front_end.metric("tidegate_node_agent_weight{site=\"shop\",node=\"n1\"}");
    assert_eq!(weight, Some(3.0));
    agent.say("0%\n");
    let out = first_once(&front_end, "no weight", |it| it["health"] == "ejected");
    assert_eq!(out["trouble"]["ejected_for"], "agent");
    assert!(why(&front_end).contains("its agent gives it no weight"));
}

#[test]
fn only_the_agent_takes_back_what_it_has_said() {
    let folder = folder("load-agent-check-state");
    let agent = Scripted::start("drain\n");
    let load = asked(agent.address, QUESTION);
    let nodes = [(server("n1"), load.clone()), (server("n2"), String::new())];
    let front_end = front_end(&folder, &nodes);
    let is_out = |it: &Value| it["candidate"] == false;
    let drained = first_once(&front_end, "it is drained", is_out);
    assert_eq!(drained["agent"]["state"], "drain");
    assert_eq!(drained["state"], "ready", "the operator's word");
    command(&front_end, &["drain", "n1"]);
    command(&front_end, &["ready", "n1"]);
    assert!(is_out(&node(&front_end, 0)), "the agent's word stands");
    let shown = command(&front_end, &["status"]);
    assert!(shown.contains("drain"), "{shown}");
    assert!(why(&front_end).contains("its own agent drains it"));
    assert_eq!(front_end.get("a", "/").body, "n2");
    agent.say("ready down #disk full, 3 % left\n");
    let down = first_once(&front_end, "it is down", |it| it["health"] == "ejected");
    assert_eq!(down["agent"]["health"], "down");
    assert_eq!(down["agent"]["reason"], "disk full, 3 % left");
    assert!(why(&front_end).contains("its agent says `down` (disk full, 3 % left)"));
    let out = front_end.metric("tidegate_node_agent_out{site=\"shop\",node=\"n1\"}");
    assert_eq!(out, Some(1.0));
    agent.say("");
    let silent = first_once(&front_end, "it says nothing", |it| {
        it["reads"]["last_error"].is_string()
    });
    assert_eq!(silent["health"], "ejected", "what it said stands");
    agent.say("up\n");
    first_once(&front_end, "it is up", |it| it["candidate"] == true);
    agent.say("maint\n");
    first_once(&front_end, "it is out of service", is_out);
    // An agent that is asked no more has no say.
    let file = folder.join("tidegate.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace(&load, "")).unwrap();
    command(&front_end, &["reload"]);
    let free = first_once(&front_end, "it is back", |it| it["candidate"] == true);
    assert_eq!(free["agent"], Value::Null);
}

#[test]
fn what_an_agent_has_said_outlives_an_upgrade_while_it_is_asked() {
    let folder = folder("load-agent-check-upgrade");
    let [silent, left, replaced, next] =
        ["drain\n", "down #for good\n", "drain\n", "100%\n"].map(Scripted::start);
    let loads = [&silent, &left, &replaced, &next];
    let [stays, goes, former, new] = loads.map(|agent| asked(agent.address, QUESTION));
    let nodes = [
        (server("n1"), stays),
        (server("n2"), goes.clone()),
        (server("n3"), String::new()),
        (server("n4"), former.clone()),
    ];
    let mut front_end = front_end(&folder, &nodes);
    first_once(&front_end, "it is drained", |it| it["candidate"] == false);
    eventually("the other is down", || {
        let [other, fourth] = [1, 3].map(|index| node(&front_end, index));
        (other["health"] == "ejected" && fourth["candidate"] == false).then_some(())
    });
    // An agent that says nothing takes nothing back.
    silent.say("");
    let file = folder.join("tidegate.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let text = text.replace(&goes, "").replace(&former, &new);
    std::fs::write(&file, text).unwrap();
    let _successor = upgrade(&mut front_end);
    let bodies: Vec<_> = (0..20).map(|_| front_end.get("a", "/").body).collect();
    assert!(!bodies.contains(&"n1".into()), "{bodies:?}");
    for free in ["n2", "n4"] {
        assert!(bodies.contains(&free.into()), "{bodies:?}");
    }
    assert_eq!(node(&front_end, 0)["agent"]["state"], "drain");
    assert_eq!(node(&front_end, 1)["agent"], Value::Null);
    silent.say("ready\n");
    first_once(&front_end, "it is ready", |it| it["candidate"] == true);
}

#[test]
fn a_node_has_no_more_requests_than_its_agent_allows() {
    let folder = folder("load-agent-check-maxconn");
    let agent = Scripted::start("maxconn:1\n");
    let nodes = [(server("n1"), asked(agent.address, QUESTION))];
    let front_end = front_end(&folder, &nodes);
    first_once(&front_end, "its bound", |it| it["agent"]["maxconn"] == 1);
    let mut tunnel = TcpStream::connect(front_end.address).unwrap();
    let ask = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    tunnel.write_all(ask.as_bytes()).unwrap();
    let mut head = [0; 12];
    tunnel.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 101");
    assert_eq!(front_end.get("a", "/").status, 503, "it has waited");
    assert!(why(&front_end).contains("may be in flight there by its agent (`maxconn:1`, "));
    drop(tunnel);
    eventually("the tunnel has ended", || {
        (front_end.get("a", "/").status == 200).then_some(())
    });
}

#[test]
fn our_own_agent_is_understood() {
    let folder = folder("load-agent-check-own");
    let key = node_key(&master_key(&folder), "n1");
    let address = free_address();
    let mut agent = tidegate();
    agent.arg("agent").arg("--key-file").arg(&key);
    agent.args(["--listen", &free_address().to_string()]);
    agent.args(["--agent-check", &address.to_string()]);
    let log = std::fs::File::create(folder.join("agent.log")).unwrap();
    let _agent = Process::start(agent.stdout(Stdio::null()).stderr(log));
    let load = asked(address, "weight, maxconn=200\n");
    let front_end = front_end(&folder, &[(server("n1"), load)]);
    let known = first_once(&front_end, "what it says", |it| {
        it["agent"]["weight"].is_f64()
    });
    let weight = known["agent"]["weight"].as_f64().unwrap();
    assert!((0.01..=1.0).contains(&weight), "{known}");
    let most = known["agent"]["maxconn"].as_f64().unwrap();
    assert!((most - 200.0 * weight).abs() <= 1.0, "{known}");
    assert_eq!(known["agent"]["ignored_words"], 0);
    assert_eq!(known["agent"]["health"], "up");
    assert_eq!(front_end.get("a", "/").status, 200);
}
