//! What else than the cluster changes by a reload: limits, time-outs, what nodes learn about clients, the access
//! log.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use support::scene::{Cluster, Scene};
use support::server::{head, server};
use support::upgrade::upgrade;
use support::{FrontEnd, PATIENCE, eventually, folder, free_address, tidegate};

/// How long a connection is looked at that is to be closed.
const LOOK: Duration = Duration::from_secs(1);

/// A client that keeps its connection.
struct Client {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Self { stream, reader }
    }

    fn send(&mut self, target: &str) {
        let request = format!("GET {target} HTTP/1.1\r\nhost: any\r\n\r\n");
        self.stream.write_all(request.as_bytes()).unwrap();
    }

    /// The head of the answer, in lower case.
    fn answer(&mut self) -> String {
        let head = head(&mut self.reader).unwrap().to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|it| it.strip_prefix("content-length: "));
        let mut body = vec![0; length.unwrap().parse().unwrap()];
        self.reader.read_exact(&mut body).unwrap();
        head
    }

    fn ask(&mut self, target: &str) -> String {
        self.send(target);
        self.answer()
    }
}

/// A server that answers `/held` only when the test says so; it hands the heads of all requests out.
fn held_server() -> (SocketAddr, Receiver<String>, Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let ((heads, seen), (release, released)) = (channel(), channel());
    let released = Arc::new(Mutex::new(released));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (heads, released) = (heads.clone(), Arc::clone(&released));
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                while let Some(head) = head(&mut reader) {
                    let is_held = head.starts_with("GET /held ");
                    heads.send(head.to_ascii_lowercase()).unwrap();
                    if is_held {
                        released.lock().unwrap().recv().unwrap();
                    }
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx";
                    stream.write_all(answer).unwrap();
                }
            });
        }
    });
    (address, seen, release)
}

#[test]
fn a_request_sees_one_set_and_open_connections_the_new_one_from_their_next() {
    let (address, seen, release) = held_server();
    // One worker: what one connection sees, all others have seen.
    let one = "[limits]\nworkers = 1\n";
    let cluster = Cluster::default()
        .site("shop", "*")
        .node("n1", address, "shop")
        .more(one);
    let scene = Scene::start("reload-forwarded", &cluster);
    let mut held = Client::connect(scene.front_end.address);
    held.send("/held");
    assert!(!seen.recv().unwrap().contains("\r\nvia:"));
    let more = "[forwarded]\nvia = \"gate\"\nx_forwarded = false\nnode_header = true\n";
    scene.write(&cluster.more(&format!("{one}{more}")).text());
    let plan = scene.reload(&[]);
    assert!(
        plan.contains("~ [forwarded]: via = not set -> \"gate\""),
        "{plan}"
    );
    assert!(!plan.contains("needs a"), "{plan}");
    eventually("requests are served by the new settings", || {
        let answer = Client::connect(scene.front_end.address).ask("/");
        let head = seen.recv().unwrap();
        let is_new = head.contains("\r\nvia: 1.1 gate\r\n") && !head.contains("x-forwarded-for");
        (is_new && answer.contains("\r\nx-tidegate-node: n1\r\n")).then_some(())
    });
    release.send(()).unwrap();
    let answer = held.answer();
    assert!(!answer.contains("\r\nvia:"), "half of a reload: {answer}");
    assert!(!answer.contains("x-tidegate-node"), "{answer}");
    let answer = held.ask("/");
    assert!(answer.contains("\r\nvia: 1.1 gate\r\n"), "{answer}");
    assert!(answer.contains("\r\nx-tidegate-node: n1\r\n"), "{answer}");
}

#[test]
fn limits_and_time_outs_change_while_it_serves() {
    let a = server("a");
    let cluster = Cluster::default().site("shop", "*").node("n1", a, "shop");
    let scene = Scene::start("reload-limits", &cluster);
    let connect = || Client::connect(scene.front_end.address);
    let long = format!("/{}", "x".repeat(3000));
    let mut kept = connect();
    assert!(kept.ask(&long).starts_with("http/1.1 200 "));
    let reload = |more: &str| {
        scene.write(&cluster.clone().more(more).text());
        scene.reload(&[])
    };
    let plan = reload("[limits]\nconnections = 1\n");
    assert!(
        plan.contains("~ [limits]: connections = 7000 -> 1\n"),
        "{plan}"
    );
    // The open one gives way to a new one once it has been idle for a second.
    let mut newer = eventually("a new client is let in", || {
        let mut client = connect();
        client
            .ask(&long)
            .starts_with("http/1.1 200 ")
            .then_some(client)
    });
    assert_eq!(kept.reader.read(&mut [0]).unwrap(), 0, "it is closed");
    let plan = reload("[limits]\nuri = \"1KiB\"\n[timeouts]\nclient_idle = \"50ms\"\n");
    for line in [
        "~ [limits]: uri = \"8KiB\" -> \"1KiB\"\n",
        "~ [timeouts]: client_idle = \"1m\" -> \"50ms\"\n",
    ] {
        assert!(plan.contains(line), "{line}: {plan}");
    }
    eventually("the next request of the open connection", || {
        newer.ask(&long).starts_with("http/1.1 414 ").then_some(())
    });
    eventually("an idle connection closes within its new time", || {
        let mut client = connect();
        client.ask("/");
        let look = client.stream.set_read_timeout(Some(LOOK));
        look.and_then(|()| client.reader.read(&mut [0])).ok()
    });
}

#[test]
fn the_access_log_goes_on_off_and_elsewhere() {
    let a = server("a");
    let cluster = Cluster::default().site("shop", "*").node("n1", a, "shop");
    let scene = Scene::start("reload-log", &cluster);
    let reload = |more: &str| {
        scene.write(&cluster.clone().more(more).text());
        scene.reload(&[])
    };
    let text = |name: &str| std::fs::read_to_string(scene.folder.join(name)).unwrap_or_default();
    let ask = |target: &str| Client::connect(scene.front_end.address).ask(target);
    let logs = |name: &str, line: &str| {
        eventually(line, || {
            ask("/logged");
            text(name).contains(line).then_some(())
        });
    };
    let json = "[log]\naccess = \"json\"\nfile = \"first.log\"\n";
    let plan = reload(json);
    let change = "~ [log]: access = \"off\" -> \"json\"\n";
    assert!(plan.contains(change), "{plan}");
    logs("first.log", "\"path\":\"/logged\"");
    let plan = reload("[log]\naccess = \"combined\"\nfile = \"second.log\"\n");
    assert!(!plan.contains("needs a"), "{plan}");
    logs("second.log", "\"GET /logged HTTP/1.1\" 200 ");
    // The signal means the log that is.
    std::fs::rename(
        scene.folder.join("second.log"),
        scene.folder.join("old.log"),
    )
    .unwrap();
    scene.front_end.process.signal("USR1");
    logs("second.log", "\"GET /logged HTTP/1.1\" 200 ");
    reload("[log]\naccess = \"off\"\n[forwarded]\nnode_header = true\n");
    let mut asked = 0;
    let silent = eventually("requests without a line", || {
        asked += 1;
        let target = format!("/silent-{asked}.");
        ask(&target).contains("x-tidegate-node").then_some(target)
    });
    let open = format!("/proc/{}/fd", scene.front_end.process.id());
    eventually("the log is closed", || {
        let open = std::fs::read_dir(&open).unwrap();
        let mut paths = open.filter_map(|it| std::fs::read_link(it.unwrap().path()).ok());
        let is_log = |path: PathBuf| path.ends_with("second.log");
        (!paths.any(is_log)).then_some(())
    });
    reload(json);
    logs("first.log", "\"path\":\"/logged\"");
    for name in ["first.log", "old.log", "second.log"] {
        assert!(!text(name).contains(&silent), "{name}: {silent}");
    }
}

#[test]
fn an_access_log_that_cannot_be_opened_changes_nothing() {
    let [a, b] = ["a", "b"].map(server);
    let cluster = |address| {
        Cluster::default()
            .site("shop", "*")
            .node("n1", address, "shop")
    };
    let scene = Scene::start("reload-log-refused", &cluster(a));
    let log = "[log]\naccess = \"json\"\nfile = \"absent/access.log\"\n";
    scene.write(&cluster(b).more(log).text());
    for words in [&["reload"][..], &["reload", "--dry-run"]] {
        let done = scene.command(words);
        let error = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(1), "{error}");
        for part in [
            "tidegate.toml:3:8",
            "the access log cannot be opened",
            "absent",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
    assert_eq!(scene.front_end.get("any", "/").body, "a");
}

/// What a plan says to need an upgrade does not need more than that.
#[test]
fn what_needs_an_upgrade_is_in_force_after_one() {
    let cluster = Cluster::default()
        .site("shop", "*")
        .node("n1", server("a"), "shop");
    let mut scene = Scene::start("reload-upgrade", &cluster);
    let admin = free_address();
    let more = "[limits]\nworkers = 2\n[load]\ntimeout = \"9ms\"\nrealtime = false\n\
                [culprits]\nenabled = false\n[reconfigure]\ndry_run = true\n\
                [state]\nkeep = false\n[process]\nreload = \"watch\"\n";
    let text = format!(
        "{}[admin]\naddress = \"{admin}\"\n[[listener]]\naddress = \"{}\"\n",
        cluster.more(more).text(),
        scene.front_end.address
    );
    std::fs::write(scene.file(), text).unwrap();
    let plan = scene.reload(&[]);
    let (_, waits) = plan
        .split_once("needs an upgrade (`tidegate upgrade`):\n")
        .unwrap();
    for key in [
        "[admin]: address",
        "[culprits]: enabled",
        "[limits]: workers",
        "[load]: realtime",
        "[load]: timeout",
        "[process]: reload",
        "[reconfigure]: dry_run",
        "[state]: keep",
    ] {
        assert!(waits.contains(&format!("~ {key} = ")), "{key}: {plan}");
    }
    assert!(!plan.contains("needs a restart"), "{plan}");
    let log = scene.log();
    assert!(
        log.contains("needs an upgrade (`tidegate upgrade`)"),
        "{log}"
    );
    let _successor = upgrade(&mut scene.front_end);
    scene.front_end.admin = admin;
    let plan = scene.reload(&["--dry-run"]);
    assert!(
        plan.contains("nothing would change") && !plan.contains("needs"),
        "{plan}"
    );
    assert_eq!(scene.front_end.get("any", "/").body, "a");
}

#[test]
fn what_a_node_has_of_each_resource_changes_by_a_reload() {
    let folder = folder("reload-capacity");
    let node = |name: &str, more: &str| {
        let address = server("ok");
        format!("[[node]]\nname = \"{name}\"\naddress = \"{address}\"\nsite = \"shop\"\n{more}")
    };
    let usual = "weight = 1.0\n";
    let weights = "{ cpu = 0.5, memory = 0.25, files = 0.25 }";
    let policy = format!("policy = {{ name = \"slbl\", weights = {weights} }}\n");
    let nodes = [node("n1", usual), node("n2", "")].concat();
    let text = format!("[[site]]\nname = \"shop\"\n{policy}{nodes}");
    let front_end = FrontEnd::start(&folder, &text);
    let size = |front_end: &FrontEnd, node: &str| {
        let why = front_end.api(&format!("/api/why/{node}"));
        let terms = why["terms"].as_array().unwrap().iter();
        let size = terms
            .filter(|it| it["name"] == "size")
            .map(|it| it["value"].as_f64());
        size.collect::<Vec<_>>()
    };
    assert_eq!(size(&front_end, "n1"), [Some(1.0)]);
    let file = folder.join("tidegate.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let more = "weight = 2.0\ncapacity = { cpu = 3.0, files = 0.5 }\n";
    std::fs::write(&file, text.replace(usual, more)).unwrap();
    let admin = front_end.admin.to_string();
    let done = tidegate().args(["reload", "--admin", &admin]).output();
    let done = done.unwrap();
    assert!(done.status.success(), "{done:?}");
    // 2 * (0.5 * 3 + 0.25 * 1 + 0.25 * 0.5)
    assert_eq!(size(&front_end, "n1"), [Some(3.75)]);
    assert_eq!(size(&front_end, "n2"), [Some(1.0)]);
}
