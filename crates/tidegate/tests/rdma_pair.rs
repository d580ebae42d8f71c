//! Loads over RDMA from another machine, through a cable that is pulled. `cargo xtask rdma --pair` runs the two tests in two
//! emulated machines; by hand, on two hosts with cards, docs/rdma.md says how.
//!
//! | the node | what the front-end must say |
//! |---|---|
//! | runs | its load is known over RDMA; the doctor reads it so |
//! | its agent stands still | records come in all the same, and the agent has taken no CPU for them |
//! | its cable is pulled | its load is unknown, and not over RDMA |
//! | the cable is back | its load is known over RDMA |
//!
//! The front-end's machine gives the orders, a line each, and has a line in answer.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use support::over_rdma::{self, configuration, doctor, is_read_over_rdma, new_records};
use support::server::server_at;
use support::{Agent, FrontEnd, eventually, folder, master_key, node_key};
use tidegate_remote::clock;

/// The node's address; not set where there is no second machine.
const NODE: &str = "TIDEGATE_PAIR_NODE";
/// The interface that is shut at the node to pull the cable; not set: no cable is pulled.
const INTERFACE: &str = "TIDEGATE_PAIR_INTERFACE";
const ORDERS_PORT: u16 = 9900;
const AGENT_PORT: u16 = 9901;
/// How long the cable is out.
const OUT: Duration = Duration::from_secs(2);
/// Records that are seen while the agent stands still.
const RECORDS: u64 = 100;
/// Tries to see so many without losing the connection: the emulated machines stand still themselves at times.
const TRIES: u32 = 20;

/// The node's address; says so if there is none.
#[expect(clippy::print_stdout, reason = "how a test says that it could not run")]
fn node() -> Option<IpAddr> {
    let node = std::env::var(NODE).ok();
    if node.is_none() {
        println!("SKIPPED: no second machine: `cargo xtask rdma --pair` has two");
    }
    node.map(|it| it.parse().unwrap())
}

#[test]
fn a_node_for_the_other_machine() {
    let Some(own) = node() else { return };
    let orders = TcpListener::bind((own, ORDERS_PORT)).unwrap();
    let mut agent = None;
    for stream in orders.incoming() {
        let mut reader = BufReader::new(stream.unwrap());
        let mut order = String::new();
        reader.read_line(&mut order).unwrap();
        let said = match order
            .trim_end()
            .split_once(' ')
            .unwrap_or((order.trim_end(), ""))
        {
            ("start", key) => {
                agent = Some(start(own, key));
                server_at(own, "n1").to_string()
            }
            ("signal", name) => {
                agent.as_ref().unwrap().signal(name);
                String::new()
            }
            ("cpu", _) => {
                let used = clock::process_time(agent.as_ref().unwrap().id());
                used.unwrap().as_nanos().to_string()
            }
            ("pull" | "end", _) => String::new(),
            _ => panic!("no such order: {order}"),
        };
        writeln!(reader.get_mut(), "{said}").unwrap();
        // Until the other side has read that.
        reader.read_to_end(&mut Vec::new()).unwrap();
        match order.trim_end() {
            "pull" => pull(),
            "end" => return,
            _ => {}
        }
    }
}

fn start(own: IpAddr, key: &str) -> Agent {
    let file = folder("pair").join("n1.key");
    std::fs::write(&file, format!("{key}\n")).unwrap();
    assert!(
        Command::new("chmod")
            .arg("600")
            .arg(&file)
            .status()
            .unwrap()
            .success()
    );
    let kernel = "rdma = true\nrungs = [\"kernel_record\"]\n";
    Agent::start_at(&file, (own, AGENT_PORT).into(), kernel)
}

fn pull() {
    let interface = std::env::var(INTERFACE).unwrap();
    let set = |state| {
        Command::new("ip")
            .args(["link", "set", &interface, state])
            .status()
    };
    assert!(set("down").unwrap().success());
    std::thread::park_timeout(OUT);
    assert!(set("up").unwrap().success());
}

/// The other machine, which ends with this one's test.
struct Node {
    address: IpAddr,
}

impl Node {
    fn order(&self, order: &str) -> String {
        let at = SocketAddr::from((self.address, ORDERS_PORT));
        let mut stream = eventually("the node takes orders", || {
            TcpStream::connect_timeout(&at, Duration::from_secs(5)).ok()
        });
        writeln!(stream, "{order}").unwrap();
        let mut said = String::new();
        BufReader::new(stream).read_line(&mut said).unwrap();
        assert!(
            said.ends_with('\n'),
            "the node does not carry `{order}` out: {said}"
        );
        said.trim_end().to_owned()
    }

    /// CPU that the agent has taken so far, ns.
    fn cpu_ns(&self) -> u64 {
        self.order("cpu").parse().unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A second panic would end the process without a word of the first.
        if !std::thread::panicking() {
            self.order("end");
        } else if let Ok(mut stream) = TcpStream::connect((self.address, ORDERS_PORT)) {
            let _sent = writeln!(stream, "end");
        }
    }
}

#[test]
fn loads_are_read_from_the_other_machine() {
    let Some(address) = node() else { return };
    let node = Node { address };
    let folder = folder("pair");
    let master = master_key(&folder);
    let key = std::fs::read_to_string(node_key(&master, "n1")).unwrap();
    let server = node.order(&format!("start {}", key.trim_end()));
    let (server, agent) = (server.parse().unwrap(), (address, AGENT_PORT).into());
    let load = ", transport = \"rdma\"";
    let text = configuration(server, "", agent, &master, load);
    let front_end = FrontEnd::start(&folder, &text);
    is_read_over_rdma(&front_end);
    let answer = front_end.get("shop.example", "/");
    assert_eq!((answer.status, answer.body.as_str()), (200, "n1"));
    eventually("the doctor reads over RDMA", || {
        let wanted = "the load of n1 is read over RDMA within";
        let found = doctor(&folder);
        let is_read = found.iter().any(|(_, text)| text.contains(wanted));
        is_read.then_some(())
    });

    let undisturbed = (0..TRIES).any(|_| {
        is_read_over_rdma(&front_end);
        comes_in_while_the_agent_stands_still(&front_end, &node)
    });
    assert!(
        undisturbed,
        "the connection was lost in each of {TRIES} tries"
    );
    println!("{RECORDS} records were READ while the agent stood still, without any of its CPU");

    let pulls = match std::env::var_os(INTERFACE) {
        Some(_) => 2,
        None => 0,
    };
    for _ in 0..pulls {
        is_read_over_rdma(&front_end);
        node.order("pull");
        eventually("the load is unknown, and not over RDMA", || {
            let node = over_rdma::node(&front_end);
            let lost = node["reads"]["no_rdma"].is_string();
            (node["rung"] == "none" && node["load"]["fresh"] == false && lost).then_some(())
        });
        is_read_over_rdma(&front_end);
    }
    let answer = front_end.get("shop.example", "/");
    assert_eq!((answer.status, answer.body.as_str()), (200, "n1"));
    println!(
        "the cable was pulled {pulls} times: the load was unknown, and known over RDMA once it was back"
    );
}

/// Whether records came in as long as the agent stood still. It must not have run.
fn comes_in_while_the_agent_stands_still(front_end: &FrontEnd, node: &Node) -> bool {
    node.order("signal STOP");
    // The signal reaches its threads when they run next.
    let used_ns = eventually("the agent stands still", || {
        let used_ns = node.cpu_ns();
        (node.cpu_ns() == used_ns).then_some(used_ns)
    });
    let before = new_records(&over_rdma::node(front_end));
    let seen = eventually("records come in, or the connection is lost", || {
        let node = over_rdma::node(front_end);
        let is_lost = !node["reads"]["no_rdma"].is_null() || node["rung"] != "rdma";
        let is_enough = new_records(&node) >= before + RECORDS;
        (is_lost || is_enough).then_some(!is_lost)
    });
    assert_eq!(node.cpu_ns(), used_ns, "the agent ran");
    node.order("signal CONT");
    seen
}
