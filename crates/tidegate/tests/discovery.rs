//! Nodes that come from a file and from DNS while the front-end serves.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![allow(clippy::print_stdout, reason = "a test that cannot run says why")]

mod support;

use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use support::client::ask_for_ever;
use support::name_server::NameServer;
use support::server::server;
use support::{FrontEnd, Process, eventually, folder, tidegate};

const SITE: &str = "[[site]]\nname = \"shop\"\n";

/// A front-end and the folder of its files.
struct Scene {
    folder: PathBuf,
    front_end: FrontEnd,
}

impl Scene {
    /// With these sources; `prepare` makes what they need.
    fn start(name: &str, text: &str, prepare: impl FnOnce(&Path)) -> Self {
        let folder = folder(name);
        prepare(&folder);
        let process = launch(&folder, text);
        Self {
            folder,
            front_end: process,
        }
    }

    /// What is asked of a front-end whose only source is the file `nodes.json`.
    fn of_file(name: &str, more: &str, nodes: &[SocketAddr]) -> Self {
        let text = format!(
            "{SITE}[[discover]]\nname = \"shop\"\nsite = \"shop\"\nfile = \"nodes.json\"\nrefresh = \"100ms\"\n{more}"
        );
        Self::start(name, &text, |folder| write_nodes(folder, nodes))
    }

    fn write(&self, nodes: &[SocketAddr]) {
        write_nodes(&self.folder, nodes);
    }

    /// Writes the configuration anew; listener and admin stay.
    fn configure(&self, text: &str) {
        let file = self.folder.join("tidegate.toml");
        let before = std::fs::read_to_string(&file).unwrap();
        let end = &before[before.rfind("\n[admin]").unwrap()..];
        std::fs::write(file, format!("{text}{end}")).unwrap();
    }

    fn command(&self, words: &[&str]) -> Output {
        let admin = self.front_end.admin.to_string();
        let mut command = tidegate();
        command.args(words).args(["--admin", &admin]);
        command.output().unwrap()
    }

    fn reload(&self) {
        let done = self.command(&["reload"]);
        let error = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{error}");
    }

    /// Addresses of the nodes of the site.
    fn nodes(&self) -> Vec<String> {
        let status = self.front_end.api("/api/status");
        let nodes = status["sites"][0]["nodes"].as_array().unwrap();
        let text = |it: &serde_json::Value| it["address"].as_str().unwrap().to_owned();
        let mut all: Vec<_> = nodes.iter().map(text).collect();
        all.sort();
        all
    }

    #[track_caller]
    fn until(&self, wanted: &[SocketAddr]) {
        let mut wanted: Vec<_> = wanted.iter().map(ToString::to_string).collect();
        wanted.sort();
        let mut last = Vec::new();
        let what = format!("the nodes are {wanted:?}");
        eventually(&what, || {
            last = self.nodes();
            (last == wanted).then_some(())
        });
    }

    fn source(&self) -> serde_json::Value {
        self.front_end.api("/api/status")["sources"][0].clone()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("front-end.log")).unwrap()
    }
}

/// Starts a front-end that need not be ready.
fn launch(folder: &Path, text: &str) -> FrontEnd {
    let (address, admin) = (support::free_address(), support::free_address());
    let file = folder.join("tidegate.toml");
    let text =
        format!("{text}\n[admin]\naddress = \"{admin}\"\n[[listener]]\naddress = \"{address}\"\n");
    std::fs::write(&file, text).unwrap();
    let log = std::fs::File::create(folder.join("front-end.log")).unwrap();
    let mut command = tidegate();
    command.args(["run", "-c"]).arg(&file);
    command.stdout(Stdio::null()).stderr(log);
    let process = Process::start(&mut command);
    eventually("it answers", || TcpStream::connect(admin).ok());
    eventually("it listens", || TcpStream::connect(address).ok());
    FrontEnd {
        address,
        admin,
        process,
    }
}

fn write_nodes(folder: &Path, nodes: &[SocketAddr]) {
    let entry = |it: &SocketAddr| format!("{{\"address\": \"{it}\"}}");
    let entries: Vec<_> = nodes.iter().map(entry).collect();
    write_text(folder, &format!("[{}]", entries.join(",")));
}

fn write_text(folder: &Path, text: &str) {
    let new = folder.join("nodes.new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, folder.join("nodes.json")).unwrap();
}

#[test]
fn nodes_of_a_file_come_and_go_under_load_without_a_failed_request() {
    let [a, b, c] = ["a", "b", "c"].map(server);
    let scene = Scene::of_file("discover-file", "hold = \"0s\"\n", &[a, b]);
    // Known before the first client came.
    assert_eq!(scene.front_end.get("any", "/").status, 200);
    let (enough, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let front_end = scene.front_end.address;
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| ask_for_ever(front_end, "a", &enough, &asked)))
            .collect();
        for _ in 0..5 {
            for nodes in [&[a, b, c][..], &[b, c], &[a, c], &[a, b]] {
                let before = asked.load(Ordering::Relaxed);
                scene.write(nodes);
                scene.until(nodes);
                eventually("requests go on", || {
                    let ended = clients
                        .iter()
                        .any(std::thread::ScopedJoinHandle::is_finished);
                    assert!(!ended, "{}", scene.log());
                    (asked.load(Ordering::Relaxed) > before + 20).then_some(())
                });
            }
        }
        enough.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().unwrap();
        }
    });
    let requests = &scene.front_end.api("/api/status")["requests"];
    assert_eq!(requests["completed"], asked.load(Ordering::Relaxed) + 1);
    assert_eq!(requests["failed"], 0, "{requests}");
    let log = scene.log();
    assert!(log.contains("source shop: node shop-127.0.0.1-"), "{log}");
}

#[test]
fn a_source_that_fails_lies_and_says_nothing_keeps_its_last_good_nodes() {
    let servers = ["a", "b", "c", "d", "e", "f"].map(server);
    let scene = Scene::of_file("discover-bad", "", &servers);
    scene.until(&servers);
    for text in [
        "",
        "[]",
        "[{\"address\": \"web:80\"}]",
        "{",
        "[{\"address\": \"0.0.0.0:0\"}]",
    ] {
        let before = scene.source()["failures"].as_u64();
        write_text(&scene.folder, text);
        eventually("it is noticed", || {
            let source = scene.source();
            (source["error"].is_string() && source["failures"].as_u64() > before).then_some(())
        });
        scene.until(&servers);
    }
    std::fs::remove_file(scene.folder.join("nodes.json")).unwrap();
    eventually("it is noticed", || {
        let error = scene.source()["error"].as_str().map(str::to_owned);
        error.filter(|it| it.contains("No such file"))
    });
    scene.until(&servers);
    // Five of six are not gone at once.
    scene.write(&servers[..1]);
    eventually("two are gone", || (scene.nodes().len() == 4).then_some(()));
    let log = scene.log();
    assert!(
        log.contains("source shop: 3 nodes that the answer lacks stay"),
        "{log}"
    );
    let failed = "tidegate_source_answers_total{source=\"shop\",result=\"failed\"}";
    assert!(scene.front_end.metric(failed).unwrap() >= 6.0);
}

#[test]
fn a_site_may_begin_without_nodes_and_a_source_that_is_gone_takes_its_nodes_with_it() {
    let [a, b] = ["a", "b"].map(server);
    let sources = format!(
        "{SITE}[[discover]]\nname = \"late\"\nsite = \"shop\"\nfile = \"nodes.json\"\nrefresh = \"100ms\"\n"
    );
    let scene = Scene::start("discover-late", &sources, |_| {});
    let answer = scene.front_end.get("any", "/");
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.head.contains("no_node"), "{answer:?}");
    scene.write(&[a]);
    scene.until(&[a]);
    assert_eq!(scene.front_end.get("any", "/").body, "a");
    // A node of the file has the name, and the source's is left out.
    let name = format!("late-127.0.0.1-{}", a.port());
    let node = |name: &str, address| {
        format!("[[node]]\nname = \"{name}\"\naddress = \"{address}\"\nsite = \"shop\"\n")
    };
    scene.configure(&format!("{sources}{}", node(&name, b)));
    scene.reload();
    scene.until(&[b]);
    let log = scene.log();
    let left_out = format!("node {name} of late: left out: a node of the configuration file has");
    assert!(log.contains(&left_out), "{log}");
    let named = scene.front_end.api("/api/status")["left_out"].take();
    let why = "a node of the configuration file has its name";
    let expected = serde_json::json!([{"what": format!("node {name} of late"), "why": why}]);
    assert_eq!(named, expected);
    scene.configure(&format!("{sources}{}", node("n1", b)));
    scene.reload();
    scene.until(&[a, b]);
    let named = scene.front_end.api("/api/status")["left_out"].take();
    assert_eq!(named, serde_json::json!([]));
    scene.configure(&format!("{SITE}{}", node("n1", b)));
    scene.reload();
    scene.until(&[b]);
    assert_eq!(
        scene.front_end.api("/api/status")["sources"],
        serde_json::json!([])
    );
    // What it said last is forgotten, too.
    std::fs::remove_file(scene.folder.join("nodes.json")).unwrap();
    scene.configure(&format!("{sources}{}", node("n1", b)));
    scene.reload();
    scene.until(&[b]);
}

#[test]
fn names_in_dns_are_followed_as_a_source_and_as_the_address_of_a_node() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let at = |host: u8| SocketAddr::from(([127, 0, 0, host], port));
    let dns_folder = folder("discover-dns-server");
    let hosts =
        "127.0.0.2 shop.test\n127.0.0.3 shop.test\n127.0.0.4 web.test\n127.0.0.5 web.test\n";
    let Some(dns) = NameServer::start(&dns_folder, hosts) else {
        return;
    };
    let text = format!(
        "{SITE}[dns]\nservers = [\"{}\"]\n\
         [[discover]]\nname = \"shop\"\nsite = \"shop\"\ndns = \"shop.test\"\nport = {port}\nhold = \"0s\"\n\
         [[node]]\nname = \"web\"\nsite = \"shop\"\naddress = \"web.test:{port}\"\n",
        dns.address
    );
    let scene = Scene::start("discover-dns", &text, |_| {});
    let web = || {
        let nodes = scene.nodes();
        let found = [at(4), at(5)].map(|it| nodes.contains(&it.to_string()));
        (nodes.len() == 3).then_some(found)
    };
    let first = eventually("three nodes", web);
    assert_eq!(first.iter().filter(|found| **found).count(), 1, "one node");
    let log = scene.log();
    assert!(
        log.contains("node web: its host name has 2 addresses"),
        "{log}"
    );
    dns.change("127.0.0.3 shop.test\n127.0.0.6 shop.test\n127.0.0.7 web.test\n");
    scene.until(&[at(3), at(6), at(7)]);
    // A server that is gone changes nothing.
    dns.process.signal("STOP");
    let status = || scene.front_end.api("/api/status")["sources"].clone();
    eventually("it is noticed", || {
        let sources = status();
        let all = sources.as_array().unwrap();
        all.iter().all(|it| it["error"].is_string()).then_some(())
    });
    scene.until(&[at(3), at(6), at(7)]);
    dns.process.signal("CONT");
}

/// What a command prints, and whether it succeeds.
fn said(done: &Output) -> (bool, String) {
    let text = [&done.stdout, &done.stderr].map(|it| String::from_utf8_lossy(it).into_owned());
    (done.status.success(), text.concat())
}

#[test]
fn nodes_that_operators_add_are_kept_and_give_way_to_the_file() {
    let [a, b, c] = ["a", "b", "c"].map(server);
    let node =
        |name: &str| format!("[[node]]\nname = \"{name}\"\naddress = \"{a}\"\nsite = \"shop\"\n");
    let state = "[state]\ndirectory = \"state\"\n";
    let text = format!("{SITE}{state}{}", node("n1"));
    let scene = Scene::start("discover-added", &text, |folder| {
        let mut builder = std::fs::DirBuilder::new();
        builder.mode(0o700).create(folder.join("state")).unwrap();
    });
    let node_command = |words: &[&str]| said(&scene.command(&[&["node"], words].concat()));
    let (at_b, at_c) = (b.to_string(), c.to_string());
    assert_eq!(
        node_command(&["list"]),
        (true, "no node was added\n".into())
    );
    let (done, text) = node_command(&["add", "n2", &at_b]);
    assert!(done, "{text}");
    assert_eq!(text, format!("added: n2 at {b}, of site shop, weight 1\n"));
    scene.until(&[a, b]);
    let (_, text) = node_command(&["set", "n2", "--address", &at_c, "--weight", "2.5"]);
    assert_eq!(
        text,
        format!("changed: n2 at {c}, of site shop, weight 2.5\n")
    );
    scene.until(&[a, c]);
    // A new process has it again.
    let Scene { folder, front_end } = scene;
    drop(front_end);
    let text = format!("{SITE}{state}{}", node("n1"));
    let front_end = launch(&folder, &text);
    let scene = Scene { folder, front_end };
    scene.until(&[a, c]);
    // The file may have its name, and it comes back when that is over.
    scene.configure(&format!("{SITE}{state}{}", node("n2")));
    scene.reload();
    scene.until(&[a]);
    scene.configure(&text);
    scene.reload();
    scene.until(&[a, c]);
    let (_, text) = said(&scene.command(&["node", "remove", "n2"]));
    assert_eq!(
        text,
        format!("removed: n2 at {c}, of site shop, weight 2.5\n")
    );
    scene.until(&[a]);
    let kept = std::fs::read_to_string(scene.folder.join("state/nodes.json")).unwrap();
    assert_eq!(
        kept.split_whitespace().collect::<String>(),
        "{\"nodes\":[]}"
    );
}

#[test]
fn an_operator_cannot_have_a_node_that_is_none_or_anothers() {
    let [a, b] = ["a", "b"].map(server);
    let node = format!("[[node]]\nname = \"n1\"\naddress = \"{a}\"\nsite = \"shop\"\n");
    let scene = Scene::start("discover-refused", &format!("{SITE}{node}"), |_| {});
    let node_command = |words: &[&str]| said(&scene.command(&[&["node"], words].concat()));
    let at_b = b.to_string();
    assert!(node_command(&["add", "n2", &at_b]).0);
    for (words, why) in [
        (
            &["add", "n1", &at_b][..],
            "there is a node n1 of the configuration file",
        ),
        (&["add", "n2", &at_b], "there is a node n2 of operators"),
        (&["add", "n 3", &at_b], "a name has 1 to 64 letters"),
        (
            &["add", "n3", "10.0.0.1:0"],
            "no server can be at its address",
        ),
        (
            &["add", "n3", &at_b, "--site", "shpo"],
            "node n3: there is no site shpo",
        ),
        (
            &["add", "n3", &at_b, "--weight", "0"],
            "its weight is not from 0.001 to 1000",
        ),
        (
            &["set", "n1", "--weight", "2"],
            "node n1 is of the configuration file",
        ),
        (&["remove", "n1"], "node n1 is of the configuration file"),
        (&["remove", "n9"], "there is no node of this name"),
    ] {
        let (done, text) = node_command(words);
        assert!(!done && text.contains(why), "{words:?}: {text}");
    }
    scene.until(&[a, b]);
}

#[test]
fn without_a_state_folder_an_added_node_is_said_to_end_with_the_process() {
    let [a, b] = ["a", "b"].map(server);
    let scene = Scene::of_file("discover-unkept", "", &[a]);
    let (done, text) = said(&scene.command(&["node", "add", "n2", &b.to_string()]));
    assert!(done, "{text}");
    assert!(
        text.contains("note: it is not kept over a restart: there is no state folder"),
        "{text}"
    );
    scene.until(&[a, b]);
    // A node of a source is its own.
    let name = format!("shop-127.0.0.1-{}", a.port());
    let (done, text) = said(&scene.command(&["node", "remove", &name]));
    assert!(
        !done && text.contains("is of shop, which changes it"),
        "{text}"
    );
    // Without the header a page elsewhere could ask for it.
    let request = format!(
        "DELETE /api/nodes/n2 HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n",
        scene.front_end.admin
    );
    let refused = support::request(scene.front_end.admin, &request).unwrap();
    assert_eq!(refused.status, 403, "{refused:?}");
}

#[test]
fn a_successor_has_the_nodes_before_its_first_client() {
    let [a, b] = ["a", "b"].map(server);
    let scene = Scene::of_file("discover-upgrade", "", &[a, b]);
    scene.until(&[a, b]);
    let (enough, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let address = scene.front_end.address;
    let bad = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut bad = Vec::new();
            while !enough.load(Ordering::Relaxed) {
                let text = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
                match support::request(address, text) {
                    Some(answer) if answer.status == 200 => {
                        asked.fetch_add(1, Ordering::Relaxed);
                    }
                    other => bad.push(other),
                }
            }
            bad
        });
        let (done, text) = said(&scene.command(&["upgrade"]));
        let before = asked.load(Ordering::Relaxed);
        eventually("the successor serves", || {
            (asked.load(Ordering::Relaxed) > before + 20).then_some(())
        });
        enough.store(true, Ordering::Relaxed);
        let bad = client.join().unwrap();
        assert!(done, "{text}");
        let process = text.split_whitespace().nth(1).unwrap().parse().unwrap();
        support::signal(process, "TERM");
        bad
    });
    assert!(bad.is_empty(), "{bad:?}");
}

#[test]
fn a_node_that_comes_and_goes_waits_and_says_so() {
    let [a, b, c] = ["a", "b", "c"].map(server);
    let scene = Scene::of_file("discover-flaps", "hold = \"5s\"\n", &[a, b, c]);
    scene.write(&[a, b]);
    scene.until(&[a, b]);
    scene.write(&[a, b, c]);
    scene.until(&[a, b, c]);
    scene.write(&[a, b]);
    scene.until(&[a, b]);
    scene.write(&[a, b, c]);
    let waits = format!("node shop-127.0.0.1-{} comes and goes too often", c.port());
    eventually("it waits", || scene.log().contains(&waits).then_some(()));
    scene.until(&[a, b]);
}

#[test]
fn the_load_of_discovered_nodes_is_read_with_the_key_of_their_source() {
    let a = server("a");
    let folder = folder("discover-loads");
    let master = support::master_key(&folder);
    let agent = support::Agent::start(&support::node_key(&master, "image"));
    let text = format!(
        "{SITE}[load]\ninterval = \"5ms\"\ntimeout = \"50ms\"\nrealtime = false\n\
         [[discover]]\nname = \"shop\"\nsite = \"shop\"\nfile = \"nodes.json\"\nrefresh = \"100ms\"\n\
         load = {{ port = {}, key_file = \"{}\", key_name = \"image\" }}\n",
        agent.address.port(),
        master.display()
    );
    // Nothing is read at first.
    let scene = Scene {
        front_end: launch(&folder, &text),
        folder,
    };
    scene.until(&[]);
    scene.write(&[a]);
    eventually("its load is read", || {
        let node = &scene.front_end.api("/api/status")["sites"][0]["nodes"][0];
        (node["load"]["fresh"] == true).then_some(())
    });
    let (_, text) = said(&scene.command(&["status"]));
    assert!(
        text.contains("nodes.json): 1 node of site shop; answered "),
        "{text}"
    );
}

#[test]
fn a_source_that_is_changed_keeps_its_nodes_and_takes_them_to_another_site() {
    let a = server("a");
    let source = |site: &str, file: &str| {
        format!(
            "[[site]]\nname = \"shop\"\nhosts = [\"shop.test\"]\n\
             [[site]]\nname = \"blog\"\nhosts = [\"blog.test\"]\n\
             [[discover]]\nname = \"one\"\nsite = \"{site}\"\nfile = \"{file}\"\nrefresh = \"100ms\"\n\
             [[discover]]\nname = \"three\"\nsite = \"shop\"\nfile = \"none.json\"\n\
             [[discover]]\nname = \"two\"\nsite = \"blog\"\nfile = \"none.json\"\n"
        )
    };
    let scene = Scene::start(
        "discover-changed",
        &source("shop", "nodes.json"),
        |folder| {
            write_nodes(folder, &[a]);
        },
    );
    assert_eq!(scene.front_end.get("shop.test", "/").body, "a");
    scene.configure(&source("shop", "gone.json"));
    scene.reload();
    eventually("the new file is asked for", || {
        scene.source()["error"].is_string().then_some(())
    });
    assert_eq!(scene.front_end.get("shop.test", "/").body, "a");
    scene.configure(&source("blog", "gone.json"));
    scene.reload();
    assert_eq!(scene.front_end.get("shop.test", "/").status, 503);
    assert_eq!(scene.front_end.get("blog.test", "/").body, "a");
}

#[test]
fn a_source_takes_the_place_of_nodes_of_the_file_without_a_failed_request() {
    let [a, b] = ["a", "b"].map(server);
    let node = format!("{SITE}[[node]]\nname = \"n1\"\naddress = \"{a}\"\nsite = \"shop\"\n");
    let source =
        format!("{SITE}[[discover]]\nname = \"new\"\nsite = \"shop\"\nfile = \"nodes.json\"\n");
    let scene = Scene::start("discover-replaces", &node, |folder| {
        write_nodes(folder, &[a, b]);
    });
    let (enough, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let front_end = scene.front_end.address;
    std::thread::scope(|scope| {
        let client = scope.spawn(|| ask_for_ever(front_end, "a", &enough, &asked));
        for (text, nodes) in [(&source, &[a, b][..]), (&node, &[a])]
            .iter()
            .cycle()
            .take(8)
        {
            scene.configure(text);
            scene.reload();
            scene.until(nodes);
            assert!(!client.is_finished(), "{}", scene.log());
        }
        enough.store(true, Ordering::Relaxed);
        client.join().unwrap();
    });
    let requests = &scene.front_end.api("/api/status")["requests"];
    assert_eq!(requests["failed"], 0, "{requests}");
}

#[test]
fn a_check_notes_what_does_not_answer_and_is_content() {
    let folder = folder("discover-check");
    let file = folder.join("tidegate.toml");
    let text = format!(
        "[[listener]]\naddress = \"127.0.0.1:8080\"\n{SITE}[dns]\nservers = [\"127.0.0.1:9\"]\n\
         [[discover]]\nname = \"one\"\nsite = \"shop\"\nfile = \"nodes.json\"\n\
         [[discover]]\nname = \"two\"\nsite = \"shop\"\ndns = \"shop.test\"\nport = 80\ntimeout = \"100ms\"\n\
         [[discover]]\nname = \"three\"\nsite = \"shop\"\nfile = \"three.json\"\n"
    );
    std::fs::write(&file, text).unwrap();
    let three =
        "[{\"address\": \"10.0.0.1:80\"}, {\"name\": \"a b\", \"address\": \"10.0.0.2:80\"}]";
    std::fs::write(folder.join("three.json"), three).unwrap();
    let checked = tidegate().arg("check").arg(&file).output().unwrap();
    let said = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.status.success(), "{said}");
    for part in [
        "ok, a front-end of 1 site and 0 nodes, and more from 3 sources",
        "note: source one (file ",
        "nodes.json) gives no nodes now: ",
        "No such file",
        "note: source two (dns shop.test, port 80) gives no nodes now: ",
        "three.json): node a?b cannot be used: a name has 1 to 64",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
