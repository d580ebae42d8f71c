//! `tidegate steer haproxy` beside a stock HAProxy: weights follow loads that the test publishes.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where something is missing"
)]

mod support;

use std::fs::File;
use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::Value;
use support::haproxy::{self, Haproxy};
use support::published::PublishedLoad;
use support::server::{head, server};
use support::{Process, ask, eventually, folder, free_address, is_installed, tidegate};
use tidegate_remote::RegionMemory;

/// What is set instead of 256 at least: what is within a sixteenth of it stays.
const MOST: u32 = 240;

/// The site of both nodes.
const SHOP: &str = "[[site]]\nname = \"shop\"\nhosts = [\"*\"]\n";
/// The same, with a check of its nodes.
const CHECKED: &str = "[[site]]\nname = \"shop\"\nhosts = [\"*\"]\n\
    [site.check]\nkind = \"tcp\"\ninterval = \"100ms\"\nrise = 1\nfall = 1\n";
/// Two sites, whose nodes end the requests of the one before they serve the other.
const MOVING: &str = "[reconfigure]\nenabled = true\ndrain = \"1h\"\n\
    [[site]]\nname = \"shop\"\nhosts = [\"shop.example\"]\nnodes = { min = 1 }\n\
    [[site]]\nname = \"blog\"\nhosts = [\"blog.example\"]\nnodes = { min = 1 }\n";

/// Two nodes, and the configuration that names them.
struct Scene {
    folder: PathBuf,
    admin: SocketAddr,
    listener: SocketAddr,
    addresses: [SocketAddr; 2],
    loads: [PublishedLoad; 2],
}

impl Scene {
    /// Nodes of one site, at which nothing listens.
    fn new(test: &str) -> Self {
        let addresses = [free_address(), free_address()];
        Self::of(test, SHOP, addresses, ["shop", "shop"])
    }

    /// Of these sites, with nodes at these addresses that serve these sites.
    fn of(test: &str, sites: &str, addresses: [SocketAddr; 2], serve: [&str; 2]) -> Self {
        let folder = folder(&format!("steer-{test}"));
        let process = std::process::id();
        let paths = [1, 2].map(|node| format!("/dev/shm/tidegate-steer-{test}-n{node}-{process}"));
        let start = |path: &String| {
            let memory = RegionMemory::create(Path::new(path)).unwrap();
            PublishedLoad::start_busy(Arc::new(memory))
        };
        let loads = [start(&paths[0]), start(&paths[1])];
        let (admin, listener) = (free_address(), free_address());
        let mut text = format!(
            "[load]\nrealtime = false\n[admin]\naddress = \"{admin}\"\n[[listener]]\naddress = \"{listener}\"\n{sites}"
        );
        for (index, path) in paths.iter().enumerate() {
            let (address, site) = (addresses[index], serve[index]);
            text.push_str(&format!(
                "[[node]]\nname = \"n{}\"\naddress = \"{address}\"\nsite = \"{site}\"\n\
                 load = {{ transport = \"shm\", path = \"{path}\" }}\n",
                index + 1
            ));
        }
        std::fs::write(folder.join("tidegate.toml"), text).unwrap();
        Self {
            folder,
            admin,
            listener,
            addresses,
            loads,
        }
    }

    /// A server's line for the configuration of HAProxy.
    fn server(&self, index: usize, name: &str, more: &str) -> String {
        format!("server {name} {} {more}", self.addresses[index])
    }

    /// With both nodes as servers, of these weights.
    fn haproxy(&self, weights: [u32; 2]) -> Haproxy {
        let line = |index: usize| {
            let weight = format!("weight {}", weights[index]);
            self.server(index, &format!("s{}", index + 1), &weight)
        };
        Haproxy::start(&self.folder, &[line(0), line(1)])
    }

    fn command(&self, haproxy: &Haproxy) -> Command {
        self.command_at(&haproxy.socket)
    }

    fn command_at(&self, socket: &Path) -> Command {
        let mut command = tidegate();
        command
            .args(["--json", "steer", "haproxy", "--interval", "100ms", "-c"])
            .arg(self.folder.join("tidegate.toml"))
            .arg("--socket")
            .arg(socket);
        command
    }

    fn steer(&self, haproxy: &Haproxy, more: &[&str]) -> Process {
        self.steer_at(&haproxy.socket, more)
    }

    fn steer_at(&self, socket: &Path, more: &[&str]) -> Process {
        let out = File::create(self.folder.join("steer.out")).unwrap();
        let log = File::create(self.folder.join("steer.log")).unwrap();
        let mut command = self.command_at(socket);
        Process::start(command.args(more).stdout(out).stderr(log))
    }

    /// A front-end with the same file.
    fn front_end(&self) -> Process {
        let log = File::create(self.folder.join("front-end.log")).unwrap();
        let mut command = tidegate();
        command.arg("run").arg("-c");
        command.arg(self.folder.join("tidegate.toml"));
        let process = Process::start(command.stdout(Stdio::null()).stderr(log));
        eventually("the front-end is ready", || {
            (ask(self.admin, "/readyz")?.status == 200).then_some(())
        });
        process
    }

    /// Has it drain a node, or take it in again.
    fn order(&self, what: &str, node: &str) {
        let admin = self.admin.to_string();
        let ordered = tidegate().args([what, node, "--admin", &admin]).output();
        let ordered = ordered.unwrap();
        assert!(ordered.status.success(), "{ordered:?}");
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("steer.log")).unwrap()
    }

    fn await_event(&self, name: &str) {
        let part = format!("\"event\":\"{name}\"");
        eventually(name, || self.log().contains(&part).then_some(()));
    }

    /// What is said at the end.
    fn ended(&self, mut steer: Process) -> (Option<i32>, Value) {
        steer.signal("TERM");
        let code = steer.wait();
        let text = std::fs::read_to_string(self.folder.join("steer.out")).unwrap();
        (code, serde_json::from_str(&text).unwrap())
    }
}

#[test]
fn weights_follow_the_loads_and_are_put_back() {
    if !is_installed("haproxy") {
        return;
    }
    let scene = Scene::new("follow");
    let haproxy = scene.haproxy([100, 50]);
    scene.loads[1].set(3);
    let steer = scene.steer(&haproxy, &[]);
    eventually("the second one has little weight", || {
        (haproxy.weight("s1") >= MOST && haproxy.weight("s2") < 10).then_some(())
    });
    scene.loads[0].set(3);
    scene.loads[1].set(0);
    eventually("the first one has little weight", || {
        (haproxy.weight("s2") >= MOST && haproxy.weight("s1") < 20).then_some(())
    });
    let (code, report) = scene.ended(steer);
    assert_eq!(
        (code, &report["restored"]),
        (Some(0), &Value::from(2)),
        "{report}"
    );
    assert_eq!((haproxy.weight("s1"), haproxy.weight("s2")), (100, 50));
}

#[test]
fn what_an_operator_orders_stands() {
    if !is_installed("haproxy") {
        return;
    }
    let scene = Scene::new("operator");
    let haproxy = scene.haproxy([100, 100]);
    haproxy.say("set server b/s1 state drain");
    scene.loads[1].set(3);
    let steer = scene.steer(&haproxy, &[]);
    eventually("weights are set", || {
        (haproxy.weight("s2") < 10).then_some(())
    });
    assert_eq!(haproxy.stat("s1", "status"), "DRAIN");
    haproxy.say("set server b/s2 weight 77");
    scene.await_event("left_alone");
    scene.loads[1].set(0);
    scene.loads[0].set(3);
    let (code, report) = scene.ended(steer);
    assert_eq!(
        (code, &report["restored"]),
        (Some(0), &Value::from(1)),
        "{report}"
    );
    assert_eq!((haproxy.weight("s1"), haproxy.weight("s2")), (100, 77));
    assert_eq!(haproxy.stat("s1", "status"), "DRAIN");
    // What is not the configured weight from the start is an order as well.
    let steer = scene.steer(&haproxy, &[]);
    scene.await_event("left_alone");
    scene.ended(steer);
    let steer = scene.steer(&haproxy, &["--take-over"]);
    eventually("it is steered", || {
        (haproxy.weight("s2") >= MOST).then_some(())
    });
    scene.ended(steer);
    assert_eq!(haproxy.weight("s2"), 100);
}

#[test]
fn a_restarted_haproxy_is_steered_again() {
    if !is_installed("haproxy") {
        return;
    }
    let scene = Scene::new("restart");
    let mut haproxy = scene.haproxy([100, 100]);
    scene.loads[1].set(3);
    let steer = scene.steer(&haproxy, &[]);
    let steered = |haproxy: &Haproxy| (haproxy.weight("s2") < 10).then_some(());
    eventually("weights are set", || steered(&haproxy));
    haproxy.restart();
    eventually("weights are set again", || steered(&haproxy));
    scene.ended(steer);
    assert_eq!((haproxy.weight("s1"), haproxy.weight("s2")), (100, 100));
}

/// Whether each of the two servers is drained.
fn drained(haproxy: &Haproxy) -> [bool; 2] {
    ["s1", "s2"].map(|server| haproxy.stat(server, "status") == "DRAIN")
}

fn become_so(haproxy: &Haproxy, wanted: [bool; 2]) {
    eventually(&format!("drained: {wanted:?}"), || {
        (drained(haproxy) == wanted).then_some(())
    });
}

#[test]
fn servers_whose_nodes_a_front_end_has_out_are_drained_but_for_the_last() {
    if !is_installed("haproxy") {
        return;
    }
    let scene = Scene::new("drain");
    let mut haproxy = scene.haproxy([100, 100]);
    let front_end = scene.front_end();
    let steer = scene.steer(&haproxy, &["--drain"]);
    scene.order("drain", "n1");
    become_so(&haproxy, [true, false]);
    haproxy.restart();
    become_so(&haproxy, [true, false]);
    scene.order("drain", "n2");
    scene.await_event("not_drained");
    assert_eq!(drained(&haproxy), [true, false]);
    scene.order("ready", "n1");
    become_so(&haproxy, [false, true]);
    haproxy.say("set server b/s2 state ready");
    scene.await_event("left_alone");
    scene.order("ready", "n2");
    scene.order("drain", "n1");
    become_so(&haproxy, [true, false]);
    // What is gone has said its last word, which holds for a while.
    drop(front_end);
    scene.await_event("no_front_end");
    assert_eq!(drained(&haproxy), [true, false]);
    let (code, report) = scene.ended(steer);
    assert_eq!(code, Some(0), "{report}");
    assert_eq!(drained(&haproxy), [false, false]);
    assert_eq!((haproxy.weight("s1"), haproxy.weight("s2")), (100, 100));
}

#[test]
fn a_server_whose_node_fails_its_check_is_drained_until_it_passes() {
    if !is_installed("haproxy") {
        return;
    }
    let addresses = [free_address(), server("n2")];
    let scene = Scene::of("ejected", CHECKED, addresses, ["shop", "shop"]);
    let haproxy = scene.haproxy([100, 100]);
    let _front_end = scene.front_end();
    let steer = scene.steer(&haproxy, &["--drain"]);
    become_so(&haproxy, [true, false]);
    let said = scene.log();
    assert!(said.contains("b/s1: its node is ejected there"), "{said}");
    let listener = TcpListener::bind(scene.addresses[0]).unwrap();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    become_so(&haproxy, [false, false]);
    scene.ended(steer);
}

#[test]
fn a_server_whose_node_moves_is_drained_until_it_is_there() {
    if !is_installed("haproxy") {
        return;
    }
    let addresses = [server("n1"), server("n2")];
    let scene = Scene::of("moving", MOVING, addresses, ["shop", "blog"]);
    let haproxy = scene.haproxy([100, 100]);
    let _front_end = scene.front_end();
    let steer = scene.steer(&haproxy, &["--drain"]);
    // A tunnel of its site keeps it on its way.
    let mut tunnel = BufReader::new(TcpStream::connect(scene.listener).unwrap());
    let request =
        "GET / HTTP/1.1\r\nhost: blog.example\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
    tunnel.get_mut().write_all(request.as_bytes()).unwrap();
    assert!(head(&mut tunnel).unwrap().contains("101"));
    let admin = scene.admin.to_string();
    let mut command = tidegate();
    command.args(["move", "n2", "shop", "--force", "--admin", &admin]);
    let mut moved = Process::start(command.stdout(Stdio::null()));
    become_so(&haproxy, [false, true]);
    let said = scene.log();
    assert!(
        said.contains("b/s2: its node moves to another site"),
        "{said}"
    );
    drop(tunnel);
    assert_eq!(moved.wait(), Some(0));
    become_so(&haproxy, [false, false]);
    scene.ended(steer);
}

#[test]
fn of_one_backend_alone_servers_are_drained() {
    if !is_installed("haproxy") {
        return;
    }
    let scene = Scene::new("backend");
    let lines = [
        scene.server(0, "s1", ""),
        scene.server(1, "s2", ""),
        "backend other".into(),
        scene.server(0, "t1", ""),
        scene.server(1, "t2", ""),
    ];
    let haproxy = Haproxy::start(&scene.folder, &lines);
    let _front_end = scene.front_end();
    let steer = scene.steer(&haproxy, &["--drain", "--maxconn", "--backend", "b"]);
    scene.order("drain", "n1");
    become_so(&haproxy, [true, false]);
    let (_, report) = scene.ended(steer);
    assert_eq!(report["drained"], 1, "{report}");
    assert_eq!(haproxy.stat("t1", "status"), "no check");
    become_so(&haproxy, [false, false]);
}

#[test]
fn a_server_is_held_to_the_connections_that_it_can_use() {
    if !is_installed("haproxy") {
        return;
    }
    let scene = Scene::new("maxconn");
    let haproxy = Haproxy::start(&scene.folder, &[scene.server(0, "s1", "maxconn 100")]);
    // A server of one CPU that takes all and answers nothing, as if all of it computed.
    let _server = TcpListener::bind(scene.addresses[0]).unwrap();
    let client = || {
        let mut client = TcpStream::connect(haproxy.address).unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n";
        client.write_all(request).unwrap();
        client
    };
    let _clients: Vec<_> = (0..30).map(|_| client()).collect();
    scene.loads[0].set(30);
    let limit = || haproxy.stat("s1", "slim").parse::<u32>().unwrap();
    let steer = scene.steer(&haproxy, &["--maxconn", "--dry-run"]);
    scene.await_event("would_limit");
    let (code, report) = scene.ended(steer);
    assert_eq!((code, limit()), (Some(0), 100), "{report}");
    let steer = scene.steer(&haproxy, &["--maxconn"]);
    eventually("it is held to a few", || (limit() < 10).then_some(()));
    let (code, report) = scene.ended(steer);
    assert_eq!((code, limit()), (Some(0), 100), "{report}");
    // An operator's stands.
    let steer = scene.steer(&haproxy, &["--maxconn"]);
    eventually("it is held again", || (limit() < 10).then_some(()));
    haproxy.say("set maxconn server b/s1 50");
    scene.await_event("left_alone");
    let (code, report) = scene.ended(steer);
    assert_eq!((code, limit()), (Some(0), 50), "{report}");
}

#[test]
fn a_haproxy_that_comes_later_is_waited_for() {
    if !is_installed("haproxy") {
        return;
    }
    let scene = Scene::new("later");
    scene.loads[1].set(3);
    let socket = haproxy::socket(&scene.folder);
    let steer = scene.steer_at(&socket, &[]);
    scene.await_event("no_answer");
    let haproxy = scene.haproxy([100, 100]);
    eventually("weights are set", || {
        (haproxy.weight("s2") < 10).then_some(())
    });
    let said = scene.log();
    assert_eq!(said.matches("no_answer").count(), 1, "{said}");
    scene.ended(steer);
    assert_eq!((haproxy.weight("s1"), haproxy.weight("s2")), (100, 100));
    drop(haproxy);
    // One that never comes is waited for until the end is asked for.
    let steer = scene.steer_at(Path::new("/no/such.sock"), &[]);
    scene.await_event("no_answer");
    let said = scene.log();
    assert!(said.contains("/no/such.sock"), "{said}");
    let (code, report) = scene.ended(steer);
    assert_eq!(
        (code, &report["turns"]),
        (Some(0), &Value::from(0)),
        "{report}"
    );
}

#[test]
fn a_dry_run_sets_nothing() {
    if !is_installed("haproxy") {
        return;
    }
    let scene = Scene::new("dry");
    let haproxy = scene.haproxy([100, 100]);
    scene.loads[1].set(3);
    let _front_end = scene.front_end();
    scene.order("drain", "n1");
    haproxy.say("set server b/s2 weight 77");
    // What is to be taken over is not put back either.
    let steer = scene.steer(&haproxy, &["--drain", "--take-over", "--dry-run"]);
    scene.await_event("would_set");
    scene.await_event("would_drain");
    let said = scene.log();
    assert!(said.contains("would drain b/s1"), "{said}");
    let (code, report) = scene.ended(steer);
    let counts = ["set", "drained", "restored"].map(|name| report[name].as_u64());
    assert_eq!((code, counts), (Some(0), [Some(0); 3]), "{report}");
    assert_eq!((haproxy.weight("s1"), haproxy.weight("s2")), (100, 77));
    assert_eq!(drained(&haproxy), [false, false]);
}

#[test]
fn what_is_wrong_from_the_start_is_said() {
    if !is_installed("haproxy") {
        return;
    }
    let scene = Scene::new("wrong");
    let other = free_address();
    let haproxy = Haproxy::start(&scene.folder, &[format!("server other {other}")]);
    let failed = |command: &mut Command| {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let said = failed(&mut scene.command(&haproxy));
    assert!(said.contains(&format!("HAProxy has: {other}")), "{said}");
    let said = failed(scene.command(&haproxy).args(["--backend", "none"]));
    assert!(said.contains("none"), "{said}");
}
