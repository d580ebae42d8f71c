//! A cluster that changes while it serves: `tidegate reload`, SIGHUP, a watched file.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use support::client::ask_for_ever;
use support::scene::{Cluster, Scene, names};
use support::server::server;
use support::{FrontEnd, eventually, folder, tidegate};

#[test]
fn nodes_and_sites_come_go_move_and_change_their_address_without_a_failed_request() {
    let [a, b, c] = ["a", "b", "c"].map(server);
    let usual = Cluster::default()
        .site("shop", "shop.example")
        .site("blog", "blog.example")
        .node("n1", a, "shop")
        .node("n2", b, "blog");
    let scene = Scene::start("reload-traffic", &usual);
    let all = [
        usual.clone().node("n3", c, "shop"),
        usual.clone().node("n3", c, "blog"),
        usual.clone().node("n1", c, "shop"),
        usual.clone().node("n4", b, "shop").node("n2", a, "blog"),
        usual
            .clone()
            .site("wiki", "wiki.example")
            .node("n5", c, "wiki"),
        // The sites' names change, and with them all that they have.
        Cluster::default()
            .site("store", "shop.example")
            .site("diary", "blog.example")
            .node("n1", a, "store")
            .node("n2", b, "diary"),
        usual,
    ];
    let (enough, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let front_end = scene.front_end.address;
    std::thread::scope(|scope| {
        let clients: Vec<_> = ["shop.example", "blog.example"]
            .iter()
            .cycle()
            .take(4)
            .map(|host| scope.spawn(|| ask_for_ever(front_end, host, &enough, &asked)))
            .collect();
        for round in 0..12 {
            for cluster in &all {
                let before = asked.load(Ordering::Relaxed);
                scene.write(&cluster.text());
                scene.reload(&[]);
                eventually("requests go on", || {
                    let ended = clients
                        .iter()
                        .any(std::thread::ScopedJoinHandle::is_finished);
                    assert!(!ended, "round {round}: {}", scene.log());
                    (asked.load(Ordering::Relaxed) > before + 20).then_some(())
                });
            }
        }
        enough.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().unwrap();
        }
    });
    let metric = |start: &str| scene.front_end.metric(start);
    assert_eq!(
        metric("tidegate_reloads_total{result=\"done\"}"),
        Some(84.0)
    );
    assert_eq!(metric("tidegate_requests_in_flight"), Some(0.0));
    // The books of the front-end agree with the clients', and nothing went wrong inside.
    let requests = &scene.front_end.api("/api/status")["requests"];
    assert_eq!(requests["completed"], asked.load(Ordering::Relaxed));
    assert_eq!(requests["failed"], 0, "{requests}");
    assert_eq!(names(&scene.answers("shop.example", 4)), ["a"]);
    assert_eq!(names(&scene.answers("blog.example", 4)), ["b"]);
}

#[test]
fn a_file_with_an_error_changes_nothing_and_says_so() {
    let a = server("a");
    let cluster = Cluster::default().site("shop", "*").node("n1", a, "shop");
    let scene = Scene::start("reload-broken", &cluster);
    let metric = |start: &str| scene.front_end.metric(start);
    assert_eq!(metric("tidegate_reload_last_done"), Some(1.0));
    let wrong = cluster.clone().node("n2", a, "shpo");
    scene.write(&wrong.text());
    for words in [&["reload"][..], &["reload", "--dry-run"]] {
        let refused = scene.command(words);
        assert_eq!(refused.status.code(), Some(1));
        let why = String::from_utf8(refused.stderr).unwrap();
        for part in ["tidegate.toml", "shpo", "did you mean \"shop\"?"] {
            assert!(why.contains(part), "{part}: {why}");
        }
    }
    assert_eq!(
        metric("tidegate_reloads_total{result=\"failed\"}"),
        Some(1.0)
    );
    assert_eq!(metric("tidegate_reload_last_done"), Some(0.0));
    assert!(scene.log().contains("the configuration stays as it was: "));
    assert_eq!(names(&scene.answers("any", 3)), ["a"]);
    scene.write(&cluster.text());
    assert!(scene.reload(&[]).contains("in force: nothing has changed"));
    assert_eq!(metric("tidegate_reload_last_done"), Some(1.0));
}

/// A pipe would be waited for, and a device read without end, by each reload that is asked for.
#[test]
fn what_is_no_file_any_more_is_refused_and_holds_up_no_later_reload() {
    let cluster = Cluster::default();
    let cluster = cluster.site("shop", "*").node("n1", server("a"), "shop");
    let scene = Scene::start("reload-pipe", &cluster);
    let file = scene.file();
    let right = std::fs::read_to_string(&file).unwrap();
    let pipe = |path: &Path| {
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, path, kind, 0o600.into(), 0).unwrap();
    };
    let device = |path: &Path| std::os::unix::fs::symlink("/dev/zero", path).unwrap();
    let large = |path: &Path| std::fs::write(path, vec![b'\n'; 20 << 20]).unwrap();
    type Make<'a> = &'a dyn Fn(&Path);
    let ways: [(Make<'_>, &str); 3] = [
        (&pipe, "it is not a regular file"),
        (&device, "it is not a regular file"),
        (&large, "larger than"),
    ];
    for (make, why) in ways {
        std::fs::remove_file(&file).unwrap();
        make(&file);
        let refused = scene.command(&["reload"]);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(said.contains(why), "{said}");
    }
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, right).unwrap();
    assert!(scene.reload(&[]).contains("in force: nothing has changed"));
}

#[test]
fn a_dry_run_is_a_plan_and_what_needs_an_upgrade_is_named() {
    let [a, b] = ["a", "b"].map(server);
    let cluster = Cluster::default().site("shop", "*").node("n1", a, "shop");
    let scene = Scene::start("reload-dry-run", &cluster);
    let next = cluster
        .node("n2", b, "shop")
        .more("[limits]\nworkers = 3\nconnections = 99\n[cluster]\nfront_ends = 2\n");
    scene.write(&next.text());
    let plan = scene.reload(&["--dry-run"]);
    let lines = [
        &format!("+ node n2 \"{b}\""),
        "~ [cluster]: front_ends = 1 -> 2",
        "~ [limits]: connections = 7000 -> 99",
        "needs an upgrade (`tidegate upgrade`):\n~ [limits]: workers = \"auto\" -> 3",
        "nothing was done: a dry run",
    ];
    for line in lines {
        assert!(plan.contains(line), "{line}: {plan}");
    }
    assert_eq!(names(&scene.answers("any", 20)), ["a"]);
    scene.reload(&[]);
    assert_eq!(names(&scene.answers("any", 40)), ["a", "b"]);
    eventually("it counts two front-ends", || {
        (scene.front_end.api("/api/status")["front_ends"] == 2).then_some(())
    });
}

#[test]
fn what_operators_have_set_survives() {
    let [a, b, c] = ["a", "b", "c"].map(server);
    let throttles = "[[throttle]]\nclass = \"GET /slow\"\nconcurrency = 2\n\
                     [[throttle]]\nclass = \"GET /dear\"\nconcurrency = 3\n";
    let cluster = Cluster::default()
        .site("shop", "*")
        .node("n1", a, "shop")
        .node("n2", b, "shop");
    let scene = Scene::start("reload-overrides", &cluster.clone().more(throttles));
    assert!(scene.command(&["drain", "n1"]).status.success());
    let order = ["throttle", "GET /slow", "--concurrency", "7"];
    assert!(scene.command(&order).status.success());
    let changed = throttles.replace("= 2", "= 4").replace("= 3", "= 5");
    scene.write(&cluster.clone().node("n3", c, "shop").more(&changed).text());
    let plan = scene.reload(&[]);
    assert!(
        plan.contains("GET /slow: stays throttled as an operator has set it"),
        "{plan}"
    );
    let shown = |class: &str| {
        let status = scene.front_end.api("/api/status");
        let all = status["throttles"].as_array().unwrap().clone();
        let found = all.iter().find(|it| it["class"] == class);
        found.map(|it| it["limits"]["concurrency"].clone())
    };
    assert_eq!(shown("GET /slow").unwrap(), 7);
    assert_eq!(shown("GET /dear").unwrap(), 5);
    assert_eq!(
        names(&scene.answers("any", 40)),
        ["b", "c"],
        "n1 is drained yet"
    );
    // Without the table its class is free; what the operator set stays.
    scene.write(&cluster.text());
    scene.reload(&[]);
    assert_eq!(shown("GET /dear"), None);
    assert_eq!(shown("GET /slow").unwrap(), 7);
    assert_eq!(names(&scene.answers("any", 20)), ["b"]);
}

#[test]
fn settings_of_a_site_change_at_once() {
    let a = server("a");
    let cluster = Cluster::default().site("shop", "shop.example");
    let site = |answers: &str| {
        let text = cluster.clone().node("n1", a, "shop").text();
        text.replace("[[node]]", &format!("{answers}\n[[node]]"))
    };
    let folder = folder("reload-settings");
    let open = site("admission = { mode = \"off\" }");
    let front_end = FrontEnd::start(&folder, &open);
    let scene = Scene { folder, front_end };
    assert_eq!(scene.front_end.get("shop.example", "/").status, 200);
    std::fs::write(scene.folder.join("sorry.txt"), "come back soon").unwrap();
    scene.write(&site(
        "admission = { mode = \"static\", connections = 0, status = 429, body = \"sorry.txt\" }",
    ));
    scene.reload(&[]);
    eventually("the site refuses in its own words", || {
        let answer = scene.front_end.get("shop.example", "/");
        (answer.status == 429 && answer.body == "come back soon").then_some(())
    });
    // A file that the configuration names has other contents.
    std::fs::write(scene.folder.join("sorry.txt"), "later").unwrap();
    let plan = scene.reload(&[]);
    assert!(
        plan.contains("site shop has other bodies of answers"),
        "{plan}"
    );
    eventually("the other words", || {
        (scene.front_end.get("shop.example", "/").body == "later").then_some(())
    });
    scene.write(&open);
    scene.reload(&[]);
    eventually("the site admits again", || {
        (scene.front_end.get("shop.example", "/").status == 200).then_some(())
    });
}

#[test]
fn a_signal_reloads_and_a_watched_file_does_so_by_itself() {
    let [a, b, c] = ["a", "b", "c"].map(server);
    let watched = "[process]\nreload = \"watch\"\n";
    let cluster = |address| {
        let cluster = Cluster::default().site("shop", "*");
        cluster.node("n1", address, "shop").more(watched)
    };
    let scene = Scene::start("reload-watch", &cluster(a));
    assert_eq!(names(&scene.answers("any", 3)), ["a"]);
    scene.write(&cluster(b).text());
    scene.front_end.process.signal("HUP");
    let serves = |name: &str| {
        eventually("the file is in force", || {
            (scene.front_end.get("any", "/").body == name).then_some(())
        });
    };
    serves("b");
    scene.write(&cluster(c).text());
    serves("c");
    scene.write("[broken");
    eventually("the error is in the log", || {
        let log = scene.log();
        log.contains("the configuration stays as it was: ")
            .then_some(())
    });
    serves("c");
    scene.write(&cluster(a).text());
    serves("a");
}

#[test]
fn what_a_removed_node_serves_goes_on_and_is_shown() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let held = listener.local_addr().unwrap();
    let server_end = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        let answer =
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
        stream.write_all(answer).unwrap();
        let mut byte = [0];
        reader.read_exact(&mut byte).unwrap();
        stream.write_all(&byte).unwrap();
    });
    let a = server("a");
    let cluster = Cluster::default().site("shop", "*");
    let scene = Scene::start("reload-leaving", &cluster.clone().node("old", held, "shop"));
    let mut tunnel = TcpStream::connect(scene.front_end.address).unwrap();
    tunnel
        .write_all(b"GET / HTTP/1.1\r\nhost: any\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n")
        .unwrap();
    let mut head = [0; 12];
    tunnel.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 101");
    scene.write(&cluster.node("new", a, "shop").text());
    scene.reload(&[]);
    assert_eq!(names(&scene.answers("any", 5)), ["a"]);
    let leaving = || scene.front_end.api("/api/status")["leaving"].clone();
    assert_eq!(leaving()[0]["name"], "old");
    assert_eq!(leaving()[0]["in_flight"], 1);
    let shown = scene.command(&["status"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.contains(&format!("leaving: old ({held}), 1 requests in flight")),
        "{shown}"
    );
    tunnel.write_all(b"x").unwrap();
    let mut rest = Vec::new();
    tunnel.read_to_end(&mut rest).unwrap();
    assert!(rest.ends_with(b"x"), "{rest:?}");
    server_end.join().unwrap();
    drop(tunnel);
    eventually("it has left", || {
        leaving().as_array().unwrap().is_empty().then_some(())
    });
    assert!(
        scene
            .log()
            .contains("node old: has no requests any more, and is out of the cluster")
    );
}

/// A request that never ends does not hold a node for ever.
#[test]
fn what_a_removed_node_has_at_the_deadline_is_cut_off() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let held = listener.local_addr().unwrap();
    let server_end = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream);
        // A request that is never answered; then its end.
        let mut all = String::new();
        reader.read_to_string(&mut all).unwrap_or_default();
        all
    });
    let a = server("a");
    let cluster = Cluster::default()
        .site("shop", "*")
        .more("[timeouts]\ndrain = \"300ms\"\n");
    let before = cluster.clone().node("old", held, "shop");
    let scene = Scene::start("reload-deadline", &before);
    let mut client = TcpStream::connect(scene.front_end.address).unwrap();
    client
        .write_all(b"GET /held HTTP/1.1\r\nhost: any\r\n\r\n")
        .unwrap();
    eventually("the node has it", || {
        (scene.front_end.metric("tidegate_requests_in_flight")? == 1.0).then_some(())
    });
    scene.write(&cluster.node("new", a, "shop").text());
    scene.reload(&[]);
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap_or_default();
    assert!(server_end.join().unwrap().starts_with("GET /held "));
    eventually("it has left", || {
        let status = scene.front_end.api("/api/status");
        let left = status["leaving"].as_array().unwrap().is_empty();
        (left && status["requests"]["in_flight"] == 0).then_some(())
    });
    assert_eq!(names(&scene.answers("any", 3)), ["a"]);
}

#[test]
fn one_that_has_no_file_says_so() {
    let a = server("a").to_string();
    let [listen, admin] = [support::free_address(), support::free_address()];
    let mut command = tidegate();
    command
        .args(["run", "--listen", &listen.to_string(), "--to", &a])
        .args(["--admin", &admin.to_string()])
        .stderr(std::process::Stdio::null())
        .stdout(std::process::Stdio::null());
    let _process = support::Process::start(&mut command);
    let why = eventually("the front-end answers", || {
        let mut command = tidegate();
        command.args(["reload", "--admin", &admin.to_string()]);
        let why = String::from_utf8(command.output().unwrap().stderr).unwrap();
        why.contains("command line").then_some(why)
    });
    assert!(why.contains("there is no file to read again"), "{why}");
}

#[test]
fn reloads_wait_for_each_other() {
    let [a, b] = ["a", "b"].map(server);
    let cluster = |address| {
        Cluster::default()
            .site("shop", "*")
            .node("n1", address, "shop")
    };
    let scene = Arc::new(Scene::start("reload-many", &cluster(a)));
    scene.write(&cluster(b).text());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let scene = Arc::clone(&scene);
            scope.spawn(move || scene.reload(&[]));
        }
    });
    let done = scene
        .front_end
        .metric("tidegate_reloads_total{result=\"done\"}");
    assert_eq!(done, Some(8.0));
    assert_eq!(names(&scene.answers("any", 3)), ["b"]);
}
