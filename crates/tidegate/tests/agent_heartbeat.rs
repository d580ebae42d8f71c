//! Heartbeats of agents: as datagrams, and to a stock Apache that balances by them, in a network namespace of its own.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where something is missing"
)]

mod support;

use std::collections::BTreeSet;
use std::fs::File;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use support::server::server_at;
use support::{
    PATIENCE, Process, ask, eventually, folder, free_address, master_key, node_key, tidegate,
};

const APACHE: &str = "/usr/sbin/apache2";

/// An agent whose heartbeats go there, from this address; the folder has a master.
fn agent(folder: &Path, name: &str, to: &str, from: &str) -> Process {
    let key = node_key(&folder.join("master.key"), name);
    let text = format!(
        "[agent]\nlisten = \"{}\"\nkey_file = \"{}\"\ninterval = \"20ms\"\nrealtime = false\nrungs = [\"agent\"]\n\
         [agent.heartbeat]\nto = [\"{to}\"]\nfrom = \"{from}\"\n",
        free_address(),
        key.display()
    );
    let file = folder.join(format!("{name}.toml"));
    std::fs::write(&file, text).unwrap();
    let mut command = tidegate();
    command.arg("agent").arg(&file);
    let log = File::create(folder.join(format!("{name}.log"))).unwrap();
    Process::start(command.stdout(Stdio::null()).stderr(log))
}

#[test]
fn a_heartbeat_says_what_is_ready_and_comes_from_the_nodes_address() {
    let folder = folder("heartbeat-datagram");
    master_key(&folder);
    let monitor = UdpSocket::bind("127.0.0.1:0").unwrap();
    monitor.set_read_timeout(Some(PATIENCE)).unwrap();
    let to = monitor.local_addr().unwrap().to_string();
    let _agent = agent(&folder, "n1", &to, "127.0.0.2");
    let mut beat = [0; 200];
    let (length, from) = monitor.recv_from(&mut beat).unwrap();
    let text = std::str::from_utf8(&beat[..length]).unwrap();
    let numbers = text.strip_prefix("v=1&ready=").unwrap();
    let (ready, busy) = numbers.split_once("&busy=").unwrap();
    let (ready, busy): (u32, u32) = (ready.parse().unwrap(), busy.parse().unwrap());
    assert!(ready >= 1 && ready + busy >= 1, "{text}");
    assert_eq!(from.ip().to_string(), "127.0.0.2");
}

/// A network of its own, with two addresses and multicast.
struct Namespace(String);

impl Namespace {
    fn new() -> Result<Self, String> {
        let name = format!("tidegate-heartbeat-{}", std::process::id());
        ip(&["netns", "add", &name])?;
        let namespace = Self(name);
        for command in [
            "link set lo up",
            "link set lo multicast on",
            "addr add 10.9.0.1/32 dev lo",
            "addr add 10.9.0.2/32 dev lo",
            "route add 239.0.0.0/8 dev lo",
        ] {
            let mut arguments = vec!["-n", &namespace.0];
            arguments.extend(command.split(' '));
            ip(&arguments)?;
        }
        Ok(namespace)
    }

    /// Does something there: threads and processes that it starts are there too.
    fn inside(&self, work: impl FnOnce() + Send) {
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let namespace = File::open(format!("/run/netns/{}", self.0)).unwrap();
                let network = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(namespace.as_fd(), network).unwrap();
                work();
            });
            worker.join().unwrap();
        });
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // One that is left behind has a name of this process.
        ip(&["netns", "del", &self.0]).ok();
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output();
    let output = output.map_err(|error| format!("ip: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Starts Apache as a balancer of these servers.
fn apache(folder: &Path, servers: [SocketAddr; 2], listen: SocketAddr) -> Process {
    let root = folder.join("apache");
    std::fs::create_dir_all(&root).unwrap();
    let names = [
        "mpm_event",
        "authz_core",
        "proxy",
        "proxy_http",
        "proxy_balancer",
        "slotmem_shm",
        "heartmonitor",
        "lbmethod_heartbeat",
    ];
    let modules = names
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"));
    let [one, other] = servers;
    let text = format!(
        "ServerRoot {root}\nDefaultRuntimeDir {root}\nServerName localhost\nPidFile apache.pid\nErrorLog error.log\n{}\
         Listen {listen}\nHeartbeatListen 239.0.0.1:27999\n\
         <Proxy balancer://shop>\nBalancerMember http://{one}\nBalancerMember http://{other}\n\
         ProxySet lbmethod=heartbeat\n</Proxy>\nProxyPass / balancer://shop/\n",
        modules.concat(),
        root = root.display(),
    );
    let file: PathBuf = root.join("apache.conf");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(APACHE);
    // As one process: no worker outlives it.
    command.args(["-X", "-d"]).arg(&root).arg("-f").arg(&file);
    Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

#[test]
fn a_stock_apache_sends_requests_to_the_servers_that_it_hears() {
    if !Path::new(APACHE).exists() {
        println!("SKIPPED: apache2 is not installed");
        return;
    }
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(why) => {
            println!("SKIPPED: {why}");
            return;
        }
    };
    let folder = folder("heartbeat-apache");
    master_key(&folder);
    namespace.inside(|| {
        let servers = [("10.9.0.1", "one"), ("10.9.0.2", "other")];
        let [one, other] = servers.map(|(ip, name)| server_at(ip.parse().unwrap(), name));
        let listen = free_address();
        let _apache = apache(&folder, [one, other], listen);
        // It has heard of none yet.
        let silent = eventually("Apache answers", || ask(listen, "/"));
        assert_eq!(silent.status, 503, "{}", silent.head);
        let _agents = servers.map(|(ip, name)| agent(&folder, name, "239.0.0.1:27999", ip));
        let mut seen = BTreeSet::new();
        eventually("both servers are asked", || {
            let answer = ask(listen, "/").filter(|it| it.status == 200)?;
            seen.insert(answer.body);
            (seen.len() == 2).then_some(())
        });
    });
}
