//! Nodes that end the requests of their site before they serve another one: `[reconfigure] drain`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use support::client::ask_for_ever;
use support::server::head;
use support::upgrade::begin_upgrade;
use support::{FrontEnd, eventually, folder, tidegate};

/// Two sites, `shop` with node `s1` and `blog` with `b1` and `b2`.
const NODES: [(&str, &str); 3] = [("s1", "shop"), ("b1", "blog"), ("b2", "blog")];

/// What the servers of all nodes have in common.
#[derive(Default)]
struct Servers {
    /// Requests of clients so far, by node and host.
    asked: Mutex<BTreeMap<(&'static str, String), usize>>,
    /// Whether downloads go on.
    open: (Mutex<bool>, Condvar),
}

impl Servers {
    fn start(self: &Arc<Self>, name: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let own = Arc::clone(self);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (own, stream) = (Arc::clone(&own), stream.unwrap());
                std::thread::spawn(move || own.serve(stream, name));
            }
        });
        address
    }

    /// Until the client has left.
    fn serve(&self, mut stream: TcpStream, name: &'static str) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        loop {
            let head = head(&mut reader)?;
            let host = head.lines().find_map(|line| line.strip_prefix("host: "));
            let asked = (name, host?.to_owned());
            // Probes go to nodes whatever their site.
            if !head.contains("tidegate-probe") {
                *self.asked.lock().unwrap().entry(asked).or_default() += 1;
            }
            if head.contains("upgrade: x") {
                let answer =
                    "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
                stream.write_all(answer.as_bytes()).ok()?;
                std::io::copy(&mut reader, &mut stream).ok()?;
                return None;
            }
            let length = 2 * name.len();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{name}");
            stream.write_all(answer.as_bytes()).ok()?;
            if head.starts_with("GET /long ") {
                let open = self.open.0.lock().unwrap();
                drop(self.open.1.wait_while(open, |open| !*open).unwrap());
            }
            stream.write_all(name.as_bytes()).ok()?;
        }
    }

    fn open(&self) {
        *self.open.0.lock().unwrap() = true;
        self.open.1.notify_all();
    }

    fn asked(&self, node: &'static str, host: &str) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.get(&(node, host.to_owned())).copied().unwrap_or(0)
    }
}

struct Scene {
    servers: Arc<Servers>,
    folder: PathBuf,
    front_end: FrontEnd,
}

impl Scene {
    fn start(name: &str, drain: &str) -> Self {
        let servers = Arc::new(Servers::default());
        let mut text = format!("[reconfigure]\nenabled = true\ndrain = \"{drain}\"\n");
        for site in ["shop", "blog"] {
            text.push_str(&format!(
                "[[site]]\nname = \"{site}\"\nhosts = [\"{site}.example\"]\npolicy = \"round_robin\"\nnodes = {{ min = 1 }}\n"
            ));
        }
        for (node, site) in NODES {
            let address = servers.start(node);
            text.push_str(&format!(
                "[[node]]\nname = \"{node}\"\naddress = \"{address}\"\nsite = \"{site}\"\n"
            ));
        }
        let folder = folder(name);
        let front_end = FrontEnd::start(&folder, &text);
        Self {
            servers,
            folder,
            front_end,
        }
    }

    /// Whether it was done, and what was said.
    fn said(&self, words: &[&str]) -> (bool, String) {
        let admin = self.front_end.admin.to_string();
        let mut command = tidegate();
        command.args(words).args(["--admin", &admin]);
        let done = command.output().unwrap();
        let text = [done.stdout, done.stderr].concat();
        (done.status.success(), String::from_utf8(text).unwrap())
    }

    /// What `under_way` says of the one move that is.
    fn under_way(&self) -> Option<serde_json::Value> {
        let moves = self.front_end.api("/api/moves");
        moves["under_way"].as_array().unwrap().first().cloned()
    }

    fn serves(&self, site: &str, node: &str) -> bool {
        let host = format!("{site}.example");
        let whole = node.repeat(2);
        (0..20).any(|_| self.front_end.get(&host, "/").body == whole)
    }

    /// The node of `blog` that has the first request.
    fn busy(&self) -> &'static str {
        eventually("a node has it", || {
            let mut nodes = NODES.map(|it| it.0).into_iter();
            nodes.find(|node| self.servers.asked(node, "blog.example") > 0)
        })
    }
}

/// Says enough also if the test fails: its threads end.
struct Enough<'a>(&'a AtomicBool, &'a Servers);

impl Drop for Enough<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.open();
    }
}

/// A connection on which this was asked for.
fn asking(address: SocketAddr, path: &str, fields: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: blog.example\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

#[test]
fn a_move_waits_for_a_long_download_and_no_request_goes_to_the_old_site_meanwhile() {
    let scene = Scene::start("drain-download", "1h");
    let mut download = asking(scene.front_end.address, "/long", "connection: close\r\n");
    let node = scene.busy();
    let (enough, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let address = scene.front_end.address;
    std::thread::scope(|scope| {
        let _enough = Enough(&enough, &scene.servers);
        for host in ["blog.example", "shop.example", "blog.example"] {
            scope.spawn(|| ask_for_ever(address, host, &enough, &asked));
        }
        let moved = scope.spawn(|| scene.said(&["move", node, "shop"]));
        let shown = eventually("it drains", || {
            // Only the download is left, so what was sent before has ended.
            scene.under_way().filter(|it| it["in_flight"] == 1)
        });
        assert_eq!(
            (&shown["node"], &shown["state"]),
            (&node.into(), &"drains".into())
        );
        let before = scene.servers.asked(node, "blog.example");
        let (_, text) = scene.said(&["moves"]);
        let says = format!("under way: {node}: blog -> shop (operator), drains for");
        assert!(text.contains(&says), "{text}");
        let (_, text) = scene.said(&["why", node]);
        assert!(text.contains("it is on its way to shop"), "{text}");
        let (_, text) = scene.said(&["status"]);
        let says = format!("  {node}: it is on its way to shop\n");
        assert!(
            text.contains(" draining ") && text.contains(&says),
            "{text}"
        );
        // Some hundred requests later nothing has come there: neither of the old site nor of the new one.
        let then = asked.load(Ordering::Relaxed) + 500;
        eventually("requests go on", || {
            (asked.load(Ordering::Relaxed) > then).then_some(())
        });
        assert_eq!(scene.servers.asked(node, "blog.example"), before);
        assert_eq!(scene.servers.asked(node, "shop.example"), 0);
        assert!(!moved.is_finished());
        scene.servers.open();
        let (done, text) = moved.join().unwrap();
        assert!(done && text.contains("moved"), "{text}");
        assert!(scene.serves("shop", node));
        assert_eq!(scene.servers.asked(node, "blog.example"), before);
    });
    let mut answer = String::new();
    download.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with(&node.repeat(2)), "{answer}");
    assert!(scene.under_way().is_none());
}

#[test]
fn a_tunnel_that_outlives_the_drain_costs_the_move_and_is_not_cut() {
    let scene = Scene::start("drain-tunnel", "2s");
    let fields = "connection: upgrade\r\nupgrade: x\r\n";
    let mut tunnel = asking(scene.front_end.address, "/", fields);
    let mut reader = BufReader::new(tunnel.try_clone().unwrap());
    assert!(head(&mut reader).unwrap().contains("101"));
    let node = scene.busy();
    let (done, text) = scene.said(&["move", node, "shop"]);
    let why = "requests of blog were still under way after 2s: it stays there";
    assert!(!done && text.contains(why), "{text}");
    let (_, text) = scene.said(&["moves"]);
    let says = format!("{node}: blog -> shop (operator); not carried through: {why}");
    assert!(text.contains(&says), "{text}");
    let mut echo = |text: &str| {
        tunnel.write_all(text.as_bytes()).unwrap();
        let mut back = vec![0; text.len()];
        reader.read_exact(&mut back).unwrap();
        assert_eq!(back, text.as_bytes());
    };
    echo("still here");
    assert!(scene.serves("blog", node) && !scene.serves("shop", node));
    let metric = "tidegate_moves_total{cause=\"operator\",result=\"failed\"}";
    assert_eq!(scene.front_end.metric(metric), Some(1.0));
    // The sites are free for other moves.
    let other = NODES[1..].iter().map(|it| it.0).find(|it| *it != node);
    let (done, text) = scene.said(&["move", other.unwrap(), "shop"]);
    assert!(done, "{text}");
    echo("and here");
}

#[test]
fn nodes_drain_and_move_back_and_forth_without_a_failed_request() {
    let scene = Scene::start("drain-load", "1h");
    let (enough, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let address = scene.front_end.address;
    std::thread::scope(|scope| {
        let _enough = Enough(&enough, &scene.servers);
        for host in ["blog.example", "shop.example"] {
            scope.spawn(|| ask_for_ever(address, host, &enough, &asked));
        }
        for site in ["shop", "blog", "shop"] {
            let (done, text) = scene.said(&["move", "b1", site]);
            assert!(done, "{text}");
            assert!(scene.serves(site, "b1"));
        }
    });
    assert!(asked.load(Ordering::Relaxed) > 100);
    let log = std::fs::read_to_string(scene.folder.join("front-end.log")).unwrap();
    let drains = log.matches("drains node b1 from site").count();
    assert_eq!(drains, 3, "{log}");
}

#[test]
fn a_reload_or_an_upgrade_in_the_middle_of_a_drain_gives_the_node_back() {
    let scene = Scene::start("drain-reload", "1h");
    let _download = asking(scene.front_end.address, "/long", "");
    let node = scene.busy();
    std::thread::scope(|scope| {
        let moved = scope.spawn(|| scene.said(&["move", node, "shop"]));
        eventually("it drains", || scene.under_way());
        let file = scene.folder.join("tidegate.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace("min = 1", "min = 2")).unwrap();
        assert!(scene.said(&["reload"]).0);
        let (done, text) = moved.join().unwrap();
        assert!(
            !done && text.contains("the configuration has changed"),
            "{text}"
        );
    });
    assert!(scene.serves("blog", node));
    // The same with an upgrade. The new process knows nothing of the move.
    let text = std::fs::read_to_string(scene.folder.join("tidegate.toml")).unwrap();
    let text = text.replace("min = 2", "min = 1");
    std::fs::write(scene.folder.join("tidegate.toml"), text).unwrap();
    assert!(scene.said(&["reload"]).0);
    let _successor = std::thread::scope(|scope| {
        let moved = scope.spawn(|| scene.said(&["move", node, "shop"]));
        eventually("it drains again", || scene.under_way());
        let successor = begin_upgrade(&scene.front_end);
        let (done, text) = moved.join().unwrap();
        assert!(!done, "{text}");
        successor
    });
    assert!(scene.serves("blog", node));
    scene.servers.open();
}
