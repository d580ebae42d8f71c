//! A change of load keys, step by step as docs/ha.md has it, and what each side says of wrong ones.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use support::{
    Agent, FrontEnd, eventually, folder, master_key, master_key_in, node_key, node_key_in,
};

/// A front-end with this master file before nodes that are read at these addresses.
fn front_end(folder: &Path, master: &str, nodes: &[(&str, SocketAddr)]) -> FrontEnd {
    let mut text = format!(
        "[load]\nkey_file = \"{master}\"\ninterval = \"5ms\"\ntimeout = \"50ms\"\nrealtime = false\n\
         [limits]\nworkers = 1\n[[site]]\nname = \"shop\"\n"
    );
    for (name, reads) in nodes {
        text.push_str(&format!(
            "[[node]]\nname = \"{name}\"\nsite = \"shop\"\naddress = \"127.0.0.1:9\"\n\
             load = {{ transport = \"udp\", address = \"{reads}\" }}\n"
        ));
    }
    FrontEnd::start(folder, &text)
}

/// Waits until the node at this place is read with this one of the front-end's keys.
#[track_caller]
fn read_with(front_end: &FrontEnd, node: usize, key: u64) {
    eventually("the node answers to that key", || {
        let status = front_end.api("/api/status");
        let node = &status["sites"][0]["nodes"][node];
        let read = node["load"]["fresh"] == true && node["reads"]["key"] == key;
        read.then_some(())
    });
}

fn said(log: &Path, text: &str) {
    eventually(text, || {
        std::fs::read_to_string(log)
            .unwrap()
            .contains(text)
            .then_some(())
    });
}

/// Only a front-end whose key is wrong for good is called so.
fn says_no_wrong_key(agent: &Agent) {
    let log = std::fs::read_to_string(agent.log()).unwrap();
    assert!(!log.contains("wrong key"), "{log}");
}

/// Loads are known at each step, whichever side changes first.
#[test]
fn keys_are_changed_step_by_step() {
    let folder = folder("key-rotation");
    let old = master_key(&folder);
    let mut agent = Agent::start(&node_key(&old, "n1"));
    let nodes = [("n1", agent.address)];
    read_with(&front_end(&folder, "master.key", &nodes), 0, 1);
    // 1: a new master before the old one.
    let new = master_key_in(&folder, "new.key");
    let lines = [&new, &old].map(|file| std::fs::read_to_string(file).unwrap());
    let both = folder.join("both.key");
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&both)
        .unwrap();
    std::io::Write::write_all(&mut file, lines.concat().as_bytes()).unwrap();
    let with_both = front_end(&folder, "both.key", &nodes);
    read_with(&with_both, 0, 2);
    // 2: both of its keys for the node.
    says_no_wrong_key(&agent);
    agent.restart_with(&node_key_in(&both, "n1", "n1-both.key"));
    read_with(&with_both, 0, 1);
    drop(with_both);
    // 3: the new master alone.
    let with_new = front_end(&folder, "new.key", &nodes);
    read_with(&with_new, 0, 1);
    // 4: the new key alone; the old ones are worth nothing now.
    says_no_wrong_key(&agent);
    agent.restart_with(&node_key_in(&new, "n1", "n1-new.key"));
    eventually("the new agent is read", || {
        let status = with_new.api("/api/status");
        let reads = &status["sites"][0]["nodes"][0]["reads"];
        (reads["restarts"] == 1 && reads["key"] == 1).then_some(())
    });
    drop(with_new);
    says_no_wrong_key(&agent);
    let _with_old = front_end(&folder, "master.key", &nodes);
    said(
        &agent.log(),
        "wrong key: a front-end asks with a key that is none of ours",
    );
    said(
        &folder.join("front-end.log"),
        "load is not known yet: no answer in time",
    );
}

#[test]
fn a_node_with_anothers_key_is_named_with_the_remedy() {
    let folder = folder("key-mix-up");
    let agent = Agent::start(&node_key(&master_key(&folder), "n2"));
    let nodes = [("n1", agent.address), ("n2", agent.address)];
    let front_end = front_end(&folder, "master.key", &nodes);
    read_with(&front_end, 1, 1);
    let text = "node n1: wrong key: the agent there has the key of node n2; give it the one that \
                `tidegate key derive` makes from our master for n1";
    said(&folder.join("front-end.log"), text);
    said(&agent.log(), "This agent has the key of node n2");
}
