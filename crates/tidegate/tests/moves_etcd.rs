//! Front-ends agree on moves by words in a real etcd: one is killed, and etcd ends and comes back.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use support::moving::{Home, Scene, all_serve, front_ends_are_killed, home_is_silent, while_asked};
use support::{Process, free_address};

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
}

impl Home for Etcd {
    fn lines(&self) -> String {
        format!("engine = \"etcd\"\nhome = \"http://{}\"\n", self.address)
    }

    fn kill(&mut self) {
        self.process = None;
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
        scene.flow_to("shop");
        all_serve(&all, "shop", 3);
        assert_eq!(scene.moves(), 2, "one move per event");
        scene.flow_to("blog");
        all_serve(&all, "blog", 3);
        front_ends_are_killed(&scene, &all, || ());
        home_is_silent(&mut scene, &all, asked);
    });
}
