//! Front-ends agree on moves by words in a real etcd: one is killed, and etcd ends and comes back.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use support::moving::{Home, Scene, all_serve, trouble, while_asked};
use support::{FrontEnd, Process, eventually, free_address};

/// Debian's.
const ETCD: &str = "/usr/bin/etcd";

/// A cluster of one, whose data outlives it.
struct Etcd {
    address: SocketAddr,
    peers: SocketAddr,
    data: PathBuf,
    process: Option<Process>,
}

impl Etcd {
    fn start(folder: &Path) -> Self {
        let mut etcd = Self {
            address: free_address(),
            peers: free_address(),
            data: folder.join("etcd"),
            process: None,
        };
        etcd.revive();
        etcd
    }

    fn revive(&mut self) {
        let own = format!("http://{}", self.address);
        let peers = format!("http://{}", self.peers);
        let mut command = Command::new(ETCD);
        command.arg("--data-dir").arg(&self.data);
        for (option, value) in [
            ("--listen-client-urls", &own),
            ("--advertise-client-urls", &own),
            ("--listen-peer-urls", &peers),
            ("--initial-advertise-peer-urls", &peers),
            ("--initial-cluster", &format!("default={peers}")),
        ] {
            command.args([option, value]);
        }
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(Process::start(command));
    }

    fn kill(&mut self) {
        self.process = None;
    }
}

impl Home for Etcd {
    fn lines(&self) -> String {
        format!("engine = \"etcd\"\nhome = \"http://{}\"\n", self.address)
    }
}

/// Load that goes from site to site, while a front-end is killed after its first move.
fn a_front_end_is_killed(scene: &Scene<Etcd>, all: &[&FrontEnd]) {
    scene.flow_to("shop");
    all_serve(all, "shop", 3);
    assert_eq!(scene.moves(), 2, "one move per event");
    scene.flow_to("blog");
    all_serve(all, "blog", 3);
    for _ in 0..3 {
        let mut victim = scene.front_end("victim", 1);
        let before = scene.moves();
        eventually("a move, and the front-end dies", || {
            scene.load("shop");
            (scene.moves() > before).then_some(())
        });
        victim.process.signal("KILL");
        victim.process.wait();
        scene.flow_to("shop");
        scene.flow_to("blog");
        all_serve(all, "blog", 3);
    }
}

/// Nodes stay, requests go on, and what etcd knew is there again.
fn etcd_ends_and_comes_back(scene: &mut Scene<Etcd>, all: &[&FrontEnd], asked: &AtomicUsize) {
    scene.home.kill();
    eventually("the front-ends say that it is silent", || {
        let silent = |it: &&FrontEnd| trouble(it).is_some_and(|it| it.contains("does not answer"));
        all.iter().all(silent).then_some(())
    });
    let (before, answered) = (scene.moves(), asked.load(Ordering::Relaxed));
    eventually("requests go on", || {
        scene.load("shop");
        (asked.load(Ordering::Relaxed) > answered + 200).then_some(())
    });
    assert_eq!(scene.moves(), before, "nothing moves without a home");
    scene.home.revive();
    scene.flow_to("shop");
    all_serve(all, "shop", 3);
    for front_end in all {
        eventually("nothing is wrong", || {
            trouble(front_end).is_none().then_some(())
        });
    }
}

#[test]
fn front_ends_agree_on_moves_by_etcd_whatever_becomes_of_one_and_of_it() {
    if !Path::new(ETCD).exists() {
        println!("SKIPPED: no {ETCD}");
        return;
    }
    let mut scene = Scene::with("moves-etcd", |folder, _| Etcd::start(folder));
    let (one, two) = (scene.front_end("one", 1), scene.front_end("two", 1));
    let nodes = Arc::clone(&scene.nodes);
    let all = [&one, &two];
    while_asked(&nodes, all, |asked| {
        a_front_end_is_killed(&scene, &all);
        etcd_ends_and_comes_back(&mut scene, &all, asked);
    });
}
