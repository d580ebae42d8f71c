//! Loads over RDMA by the processes themselves: agent, front-end, doctor. It takes a device at 127.0.0.1: that of the
//! emulated machine, which runs this as well (`cargo xtask rdma`).
//!
//! | the agent | what the front-end must say |
//! |---|---|
//! | runs | its load is known over RDMA |
//! | stands still, and the kernel makes the record | the same: no process of the node is asked |
//! | stands still, and it makes the record itself | the load is unknown, however well it can be READ |
//! | is killed | the load is unknown, and not over RDMA, with a reason |
//! | is there again | its load is known over RDMA |
//! | stands still, and its words are served | what another front-end has in flight at the node |
//!
//! Requests are answered at all times. A READ may take 50 ms, for which the emulated machine stands still at times: what is
//! looked at is waited for, and a connection that is lost meanwhile costs time alone.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::io::{BufReader, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;

use serde_json::Value;
use support::over_rdma::{configuration, doctor, is_read_over_rdma, new_records, node};
use support::server::{head, server, server_that};
use support::{Agent, FrontEnd, eventually, folder, master_key, node_key};
use tidegate_remote::rdma::RdmaDevice;

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const BY_KERNEL: &str = "rdma = true\nrungs = [\"kernel_record\"]\n";
const WITH_WORDS: &str = "rdma = true\nrdma_words = true\nrungs = [\"kernel_record\"]\n";
const BY_AGENT: &str = "rdma = true\nrungs = [\"agent\"]\n";
/// Records that are seen while the agent stands still.
const RECORDS: u64 = 20;
/// Requests that one front-end has in flight.
const HELD: usize = 3;

/// Whether this machine has a device; says so if not.
#[expect(clippy::print_stdout, reason = "how a test says that it could not run")]
fn has_device() -> bool {
    let device = RdmaDevice::open(Some(ADDRESS));
    device.map_err(|why| println!("SKIPPED: {why}")).is_ok()
}

/// A server, its agent, and a front-end before it.
struct Cluster {
    folder: PathBuf,
    agent: Agent,
    front_end: FrontEnd,
}

impl Cluster {
    /// `load`: what the front-end's file has in the node's `load` beside the address.
    fn start(name: &str, agent: &'static str, load: &str) -> Self {
        let folder = folder(name);
        let master = master_key(&folder);
        let agent = Agent::start_at(&node_key(&master, "n1"), support::free_address(), agent);
        let text = configuration(server("n1"), "", agent.address, &master, load);
        let front_end = FrontEnd::start(&folder, &text);
        Self {
            folder,
            agent,
            front_end,
        }
    }

    fn node(&self) -> Value {
        node(&self.front_end)
    }

    #[track_caller]
    fn is_read_over_rdma(&self) {
        is_read_over_rdma(&self.front_end);
    }

    /// Waits until its load is not known.
    #[track_caller]
    fn is_unknown(&self) {
        eventually("the load is unknown", || {
            let node = self.node();
            (node["rung"] == "none" && node["load"]["fresh"] == false).then_some(())
        });
    }

    #[track_caller]
    fn answers(&self) {
        let answer = self.front_end.get("shop.example", "/");
        assert_eq!((answer.status, answer.body.as_str()), (200, "n1"));
    }

    /// What happened to the node: each kind and text, the oldest first.
    fn events(&self) -> Vec<(String, String)> {
        let events = self.front_end.api("/api/events");
        let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
        let all = events["events"].as_array().unwrap().iter();
        all.filter(|event| event["node"] == "n1")
            .map(|event| (text(event, "kind"), text(event, "text")))
            .collect()
    }

    /// What the doctor finds about RDMA: each level and text.
    fn doctor(&self) -> Vec<(String, String)> {
        doctor(&self.folder)
    }
}

fn is_said(said: &[(String, String)], kind: &str, part: &str) -> bool {
    said.iter()
        .any(|(its, text)| its == kind && text.contains(part))
}

#[test]
fn a_node_that_serves_rdma_is_read_so_whether_that_is_asked_for_or_not() {
    if !has_device() {
        return;
    }
    for load in [", transport = \"rdma\"", ", transport = \"auto\"", ""] {
        let cluster = Cluster::start("rdma", BY_AGENT, load);
        cluster.is_read_over_rdma();
        cluster.answers();
        // A READ of its own, which a busy machine may be too slow for.
        eventually("the doctor reads over RDMA", || {
            let found = cluster.doctor();
            assert!(is_said(&found, "ok", "127.0.0.1"), "the device: {found:?}");
            is_said(&found, "ok", "the load of n1 is read over RDMA within").then_some(())
        });
    }
}

#[test]
fn a_node_that_serves_udp_alone_is_read_so_with_a_reason_where_rdma_is_asked_for() {
    if !has_device() {
        return;
    }
    let cluster = Cluster::start("rdma-refused", "", ", transport = \"rdma\"");
    let refusal = "the node serves nothing over RDMA";
    eventually("the node's refusal is shown", || {
        let node = cluster.node();
        let why = node["reads"]["no_rdma"].as_str()?.starts_with(refusal);
        let notes = node["trouble"]["notes"].to_string();
        let is_noted = notes.contains(&format!(
            "its load is not read over RDMA, as it is to be: {refusal}"
        ));
        (why && is_noted && node["rung"] != "rdma" && node["load"]["fresh"] == true).then_some(())
    });
    eventually("the doctor warns", || {
        is_said(&cluster.doctor(), "warn", refusal).then_some(())
    });
    cluster.answers();
}

#[test]
fn the_kernels_record_is_read_while_the_agent_stands_still() {
    if !has_device() {
        return;
    }
    let cluster = Cluster::start("rdma-kernel", BY_KERNEL, ", transport = \"rdma\"");
    // A connection that is lost while the agent stands still cannot be made anew before it goes on.
    eventually("records come in while the agent stands still", || {
        cluster.is_read_over_rdma();
        cluster.agent.signal("STOP");
        let before = new_records(&cluster.node());
        let seen = eventually("records come in, or the connection is lost", || {
            let node = cluster.node();
            let is_lost = !node["reads"]["no_rdma"].is_null();
            let is_enough = new_records(&node) >= before + RECORDS && node["rung"] == "rdma";
            (is_lost || is_enough).then_some(is_enough && !is_lost)
        });
        cluster.answers();
        cluster.agent.signal("CONT");
        seen.then_some(())
    });
    cluster.is_read_over_rdma();
}

#[test]
fn a_record_that_its_agent_makes_is_unknown_while_the_agent_stands_still() {
    if !has_device() {
        return;
    }
    let cluster = Cluster::start("rdma-agent", BY_AGENT, ", transport = \"rdma\"");
    for _ in 0..2 {
        cluster.is_read_over_rdma();
        cluster.agent.signal("STOP");
        cluster.is_unknown();
        cluster.answers();
        cluster.agent.signal("CONT");
    }
    cluster.is_read_over_rdma();
}

#[test]
fn an_agent_that_was_killed_is_missed_and_the_next_one_is_read_over_rdma() {
    if !has_device() {
        return;
    }
    let mut cluster = Cluster::start("rdma-killed", BY_KERNEL, ", transport = \"rdma\"");
    cluster.is_read_over_rdma();
    cluster.agent.kill();
    cluster.is_unknown();
    cluster.answers();
    eventually("it is said why the node is not read over RDMA", || {
        let why = cluster.node()["reads"]["no_rdma"].is_string();
        let said = is_said(&cluster.events(), "rung", "load is not read over RDMA: ");
        (why && said).then_some(())
    });
    cluster.agent.revive();
    cluster.is_read_over_rdma();
    cluster.answers();
    eventually("it is said that the load is known by RDMA again", || {
        let said = cluster.events();
        let unknown = said.iter().rposition(|(kind, _)| kind == "load_unknown")?;
        let again = said[unknown..].iter();
        let mut again = again.map(|(_, text)| text.ends_with(": load is read by rdma"));
        again.any(|it| it).then_some(())
    });
}

#[test]
fn front_ends_share_a_nodes_slots_while_its_agent_stands_still() {
    if !has_device() {
        return;
    }
    let folders = ["rdma-slots-1", "rdma-slots-2"].map(folder);
    let master = master_key(&folders[0]);
    let key = node_key(&master, "n1");
    let agent = Agent::start_at(&key, support::free_address(), WITH_WORDS);
    let server = server_that(ADDRESS, hold);
    let site = "admission = { slo = \"60s\" }\n";
    let load = ", transport = \"rdma\"";
    let text = configuration(server, site, agent.address, &master, load);
    let [one, other] = folders.map(|folder| FrontEnd::start(&folder, &text));
    eventually("one front-end's requests are the other's view", || {
        for front_end in [&one, &other] {
            is_read_over_rdma(front_end);
            eventually("both know of each other", || {
                (front_end.api("/api/status")["front_ends"] == 2).then_some(())
            });
        }
        agent.signal("STOP");
        let requests = [(); HELD].map(|()| request(one.address));
        let held = sees(&one, &other, |slots| slots >= HELD as f64);
        drop(requests);
        let seen = held && sees(&one, &other, |slots| slots < HELD as f64);
        agent.signal("CONT");
        seen.then_some(())
    });
}

/// Whether the slots that all front-ends hold become so in the other one's eyes, before either loses its connection: it
/// cannot be made anew while the agent stands still.
fn sees(one: &FrontEnd, other: &FrontEnd, wanted: impl Fn(f64) -> bool) -> bool {
    eventually("the slots are seen, or a connection is lost", || {
        let slots = other.metric("tidegate_node_slots{");
        let is_lost = |it| !node(it)["reads"]["no_rdma"].is_null();
        let is_seen = slots.is_some_and(&wanted);
        (is_seen || is_lost(one) || is_lost(other)).then_some(is_seen)
    })
}

/// A request whose answer does not come.
fn request(at: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(at).unwrap();
    let text = "GET /hold HTTP/1.1\r\nHost: shop.example\r\n\r\n";
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

/// Answers what asks whether it is there, and nothing else.
fn hold(mut stream: TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    while head(&mut reader)?.starts_with("HEAD") {
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer.as_bytes()).ok()?;
    }
    reader.read_to_end(&mut Vec::new()).ok().map(drop)
}
