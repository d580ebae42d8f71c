//! An agent that is killed cannot take its programs away. The next one must not share the node with
//! them: front-ends would count in two sets of words.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "../../remote/tests/support/namespaces.rs"]
#[expect(dead_code, reason = "its other users use the rest")]
mod namespaces;

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use namespaces::{Hosts, PATIENT, PORT, node_address};
use tidegate_core::record::AGGREGATE_LINES;
use tidegate_remote::Region as _;
use tidegate_remote::udp::key_file::NodeKey;
use tidegate_remote::udp::{Key, UdpRegion};

#[expect(clippy::print_stdout, reason = "how a test says that it could not run")]
fn skip(why: &str) {
    println!("SKIPPED: {why}");
}

/// An agent at the node, as a process.
struct Agent(Child);

impl Agent {
    fn start(hosts: &Hosts, key_file: &std::path::Path, rung: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["agent", "--listen", &format!("0.0.0.0:{PORT}")]);
        command.args(["--rung", rung, "--key-file"]).arg(key_file);
        command.stdout(Stdio::piped());
        let mut agent = Self(hosts.at_node(|| command.spawn().unwrap()));
        let mut lines = BufReader::new(agent.0.stdout.take().unwrap()).lines();
        let started = lines.find(|line| line.as_ref().unwrap().contains("agent on "));
        let started = started.unwrap().unwrap();
        assert!(started.contains(&format!("rung {rung}")), "{started}");
        // Only this thread reads what it says later.
        std::thread::spawn(move || lines.for_each(drop));
        agent
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// The epoch that a front-end on another host sees and the one of the node's own host, and a word
/// as both count it.
fn seen(hosts: &Hosts, key: &Key) -> [(u32, u64); 2] {
    let local = SocketAddr::from(([127, 0, 0, 1], PORT));
    let connect = |to| UdpRegion::connect(to, key.clone(), PATIENT).unwrap();
    let there = hosts.at_front(|| connect(node_address(false, PORT)));
    let here = hosts.at_node(|| connect(local));
    [there, here].map(|mut way| {
        let epoch = way.read(AGGREGATE_LINES).unwrap().epoch.unwrap();
        (epoch, way.fetch_and_add(7, 1).unwrap())
    })
}

/// Filters at the node's interface.
fn filters(hosts: &Hosts) -> String {
    let show = ["netns", "exec", hosts.node(), "tc", "filter", "show"];
    let shown = hosts.ip(&[&show[..], &["dev", "node0", "ingress"]].concat());
    String::from_utf8_lossy(&shown.unwrap().stdout).into_owned()
}

#[test]
fn after_an_agent_was_killed_the_next_one_is_alone_with_its_words() {
    if !rustix::process::geteuid().is_root()
        || !std::path::Path::new("/sys/kernel/btf/vmlinux").exists()
    {
        return skip("it takes root and a kernel that describes itself");
    }
    let hosts = match Hosts::new() {
        Ok(hosts) => hosts,
        Err(why) => return skip(&why),
    };
    let up = hosts.ip(&["-n", hosts.node(), "link", "set", "lo", "up"]);
    if let Err(why) = up {
        return skip(&why);
    }
    let key = NodeKey::random("n1").unwrap();
    let folder = std::env::temp_dir().join(format!("tidegate-killed-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let key_file = folder.join("node.key");
    std::fs::write(&key_file, key.to_line()).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&key_file, mode).unwrap();
    for rung in ["xdp_generic", "tc", "tc", "xdp_generic"] {
        let first = Agent::start(&hosts, &key_file, rung);
        if rung != "tc" {
            assert_eq!(filters(&hosts), "", "of the agent before");
        }
        let before = seen(&hosts, &key.key);
        assert_eq!(before, [(before[0].0, 0), (before[0].0, 1)], "{rung}");
        drop(first);
        let _second = Agent::start(&hosts, &key_file, rung);
        let after = seen(&hosts, &key.key);
        assert_eq!(after, [(after[0].0, 0), (after[0].0, 1)], "{rung}");
        assert_ne!(after[0].0, before[0].0, "{rung}");
    }
    // One that asks the kernel for nothing takes a filter away as well.
    for rung in ["kernel_record", "agent"] {
        drop(Agent::start(&hosts, &key_file, "tc"));
        assert_ne!(filters(&hosts), "", "{rung}");
        let _next = Agent::start(&hosts, &key_file, rung);
        assert_eq!(filters(&hosts), "", "{rung}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
