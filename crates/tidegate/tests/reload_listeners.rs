//! Listeners come and go by a reload.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use support::scene::{Cluster, Scene};
use support::server::{head, server};
use support::{PATIENCE, eventually, free_address, request, signal};

/// Writes the file anew, with these listeners.
fn write(scene: &Scene, cluster: &Cluster, listeners: &[SocketAddr]) {
    let mut text = cluster.text();
    text.push_str(&format!(
        "[admin]\naddress = \"{}\"\n",
        scene.front_end.admin
    ));
    for address in listeners {
        text.push_str(&format!("[[listener]]\naddress = \"{address}\"\n"));
    }
    let new = scene.folder.join("new.toml");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, scene.file()).unwrap();
}

fn listeners(scene: &Scene) -> Vec<SocketAddr> {
    let status = scene.front_end.api("/api/status");
    let listeners = status["listeners"].as_array().unwrap().iter();
    let parsed = listeners.map(|it| it.as_str().unwrap().parse().unwrap());
    parsed.collect()
}

/// The body of the answer that a new client gets there; none if it cannot connect.
fn get(address: SocketAddr) -> Option<String> {
    let asked = request(
        address,
        "GET / HTTP/1.1\r\nhost: any\r\nconnection: close\r\n\r\n",
    )?;
    assert_eq!(asked.status, 200, "{asked:?}");
    Some(asked.body)
}

/// A connection that stays, and has been answered on.
struct Kept {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Kept {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        let mut kept = Self { stream, reader };
        assert!(!kept.ask().contains("connection: close"));
        kept
    }

    /// The head of the next answer; its body has one byte.
    fn ask(&mut self) -> String {
        let request = b"GET / HTTP/1.1\r\nhost: any\r\n\r\n";
        self.stream.write_all(request).unwrap();
        let head = head(&mut self.reader).unwrap().to_ascii_lowercase();
        self.reader.read_exact(&mut [0]).unwrap();
        head
    }

    /// Whether the front-end closes it.
    fn ends(&mut self) -> bool {
        self.reader.read(&mut [0]).unwrap() == 0
    }
}

#[test]
fn listeners_come_and_go_and_an_address_in_use_changes_nothing() {
    let [a, b] = ["a", "b"].map(server);
    let cluster = |node| {
        Cluster::default()
            .site("shop", "*")
            .node("n1", node, "shop")
    };
    let scene = Scene::start("reload-listeners", &cluster(a));
    let (first, second) = (scene.front_end.address, free_address());
    let mut kept = Kept::connect(first);
    write(&scene, &cluster(a), &[first, second]);
    let plan = scene.reload(&[]);
    let line = format!("+ listener {second} \"{second}\"");
    assert!(plan.contains(&line) && !plan.contains("needs a"), "{plan}");
    assert_eq!(listeners(&scene), [first, second]);
    for address in [first, second] {
        assert_eq!(get(address).as_deref(), Some("a"));
    }
    write(&scene, &cluster(a), &[second]);
    let plan = scene.reload(&[]);
    assert!(plan.contains(&format!("- listener {first} ")), "{plan}");
    assert_eq!(listeners(&scene), [second]);
    eventually("the connection closes behind an answer", || {
        kept.ask().contains("connection: close").then_some(())
    });
    assert!(kept.ends());
    let taken = eventually("the address is free", || TcpListener::bind(first).ok());
    write(&scene, &cluster(b), &[second, first]);
    for words in [&["reload", "--dry-run"][..], &["reload"]] {
        let refused = scene.command(words);
        let error = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(1), "{error}");
        for part in [&format!("cannot listen on {first}"), "tidegate.toml:14:11"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert_eq!(listeners(&scene), [second]);
    }
    assert_eq!(get(second).as_deref(), Some("a"), "all or nothing");
    drop(taken);
    scene.reload(&["--dry-run"]);
    assert_eq!(listeners(&scene), [second], "a dry run opens none");
    scene.reload(&[]);
    assert_eq!(listeners(&scene), [second, first]);
    for address in [first, second] {
        assert_eq!(get(address).as_deref(), Some("b"));
    }
}

#[test]
fn a_connection_of_a_listener_that_is_gone_is_cut_off_at_the_deadline() {
    let a = server("a");
    let cluster = Cluster::default().site("shop", "*").node("n1", a, "shop");
    let cluster = cluster.more("[timeouts]\ndrain = \"200ms\"\nclient_idle = \"1h\"\n");
    let scene = Scene::start("reload-listeners-deadline", &cluster);
    let mut idle = Kept::connect(scene.front_end.address);
    let second = free_address();
    write(&scene, &cluster, &[second]);
    scene.reload(&[]);
    assert!(idle.ends());
    assert_eq!(get(second).as_deref(), Some("a"));
}

#[test]
fn clients_of_a_listener_that_stays_notice_nothing_and_an_upgrade_takes_what_there_is() {
    let a = server("a");
    let cluster = Cluster::default().site("shop", "*").node("n1", a, "shop");
    let mut scene = Scene::start("reload-listeners-load", &cluster);
    let (first, second) = (scene.front_end.address, free_address());
    let (enough, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            while !enough.load(Ordering::Relaxed) {
                assert_eq!(get(first).as_deref(), Some("a"));
                asked.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Whatever comes of the rest.
        let _stop = Stop(&enough);
        for round in 0..10 {
            let wanted = if round % 2 == 0 {
                &[first, second][..]
            } else {
                &[first]
            };
            write(&scene, &cluster, wanted);
            scene.reload(&[]);
            let before = asked.load(Ordering::Relaxed);
            eventually("clients go on", || {
                (client.is_finished() || asked.load(Ordering::Relaxed) > before + 5).then_some(())
            });
        }
        enough.store(true, Ordering::Relaxed);
        client.join().unwrap();
    });
    write(&scene, &cluster, &[second]);
    scene.reload(&[]);
    let upgraded = scene.command(&["upgrade"]);
    let said = String::from_utf8(upgraded.stdout).unwrap();
    let mut words = said.split(|it: char| !it.is_ascii_digit());
    let process: u32 = words.find_map(|word| word.parse().ok()).unwrap();
    let _successor = Successor(process);
    assert_eq!(scene.front_end.process.wait(), Some(0));
    assert_eq!(get(second).as_deref(), Some("a"));
    assert_eq!(listeners(&scene), [second]);
    assert!(TcpStream::connect(first).is_err(), "it was given up before");
}

/// Says enough when it is dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A process that has taken over; it ends with the test.
struct Successor(u32);

impl Drop for Successor {
    fn drop(&mut self) {
        if Path::new(&format!("/proc/{}", self.0)).exists() {
            signal(self.0, "KILL");
        }
    }
}

#[test]
fn an_address_that_overlaps_one_in_force_says_which() {
    let cluster = Cluster::default();
    let cluster = cluster.site("shop", "*").node("n1", server("a"), "shop");
    let scene = Scene::start("reload-overlap", &cluster);
    let (own, other) = (scene.front_end.address, free_address());
    let all = SocketAddr::from(([0, 0, 0, 0], own.port()));
    let refused = |part: &str| {
        for words in [&["reload", "--dry-run"][..], &["reload"]] {
            let refused = scene.command(words);
            let error = String::from_utf8(refused.stderr).unwrap();
            assert_eq!(refused.status.code(), Some(1), "{error}");
            assert!(error.contains(part), "{part}: {error}");
        }
        assert_eq!(listeners(&scene), [own]);
    };
    write(&scene, &cluster, &[all]);
    refused(&format!(
        "this front-end itself listens on {own}, which overlaps it"
    ));
    write(&scene, &cluster, &[own, all]);
    refused(&format!("the listeners {own} and {all} overlap"));
    // As the help says: one goes, then the other comes.
    write(&scene, &cluster, &[other]);
    scene.reload(&[]);
    write(&scene, &cluster, &[other, all]);
    eventually("the address is free", || TcpListener::bind(all).ok());
    scene.reload(&[]);
    assert_eq!(get(own).as_deref(), Some("a"));
}
