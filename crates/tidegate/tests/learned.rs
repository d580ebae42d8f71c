//! What a front-end has learned of its nodes outlives it: over an upgrade, and over a restart.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use support::server::head;
use support::upgrade::upgrade;
use support::{FrontEnd, eventually, folder, free_address, tidegate};

/// How long the slow server takes.
const SLOW: Duration = Duration::from_millis(60);
/// Requests, one after the other, whose servers are counted.
const ASKED: usize = 40;
/// Most that it has of them where it is known to be slow; its part would be a third. Not none: what own responses have shown
/// fades with 10 s (`director::learn`), so that a node that gets no requests is asked again 10 to 20 s after its last one,
/// and an upgrade on a busy machine is a part of that.
const FEW: usize = ASKED / 6;

/// Answers with its name, after a while.
fn server(name: &'static str, takes: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // What breaks a connection shows at the front-end.
            thread::spawn(move || serve(stream, name, takes));
        }
    });
    address
}

/// Until the front-end has left.
fn serve(mut stream: TcpStream, name: &str, takes: Duration) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        head(&mut reader)?;
        thread::sleep(takes);
        let length = name.len();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{name}");
        stream.write_all(answer.as_bytes()).ok()?;
    }
}

/// Two fast nodes, a slow one, and one that is not there.
struct Scene {
    folder: PathBuf,
    configuration: String,
}

impl Scene {
    fn new(name: &str) -> Self {
        let folder = folder(name);
        let state = folder.join("state");
        std::fs::create_dir(&state).unwrap();
        let mode = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(&state, mode).unwrap();
        let nodes = [
            ("fast1", server("fast1", Duration::from_millis(1))),
            ("fast2", server("fast2", Duration::from_millis(1))),
            ("slow", server("slow", SLOW)),
            ("gone", free_address()),
        ];
        let mut configuration =
            "[state]\ndirectory = \"state\"\n[[site]]\nname = \"shop\"\n".to_owned();
        for (name, address) in nodes {
            configuration.push_str(&format!(
                "[[node]]\nname = \"{name}\"\naddress = \"{address}\"\nsite = \"shop\"\n"
            ));
        }
        Self {
            folder,
            configuration,
        }
    }

    fn start(&self) -> FrontEnd {
        FrontEnd::start(&self.folder, &self.configuration)
    }

    /// One that has learned which nodes are slow and gone.
    fn taught(&self) -> FrontEnd {
        let front_end = self.start();
        eventually("the node that is not there is ejected", || {
            ask(&front_end, 10);
            (health(&front_end, "gone") == "ejected").then_some(())
        });
        eventually("the slow node has hardly a request", || {
            (ask(&front_end, ASKED) <= 2).then_some(())
        });
        front_end
    }

    fn kept(&self) -> PathBuf {
        self.folder.join("state/nodes.learned")
    }

    /// Waits until the log has it.
    #[track_caller]
    fn says(&self, part: &str) {
        eventually(part, || self.log().contains(part).then_some(()));
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("front-end.log")).unwrap()
    }
}

/// How many of so many requests the slow node answers.
fn ask(front_end: &FrontEnd, requests: usize) -> usize {
    let answers = (0..requests).map(|_| front_end.get("shop", "/"));
    let slow = answers.filter(|it| {
        assert_eq!(it.status, 200, "{}", it.head);
        it.body == "slow"
    });
    slow.count()
}

fn node(front_end: &FrontEnd, name: &str) -> serde_json::Value {
    let status = front_end.api("/api/status");
    let nodes = status["sites"][0]["nodes"].as_array().unwrap();
    nodes.iter().find(|it| it["name"] == name).unwrap().clone()
}

fn health(front_end: &FrontEnd, name: &str) -> String {
    node(front_end, name)["health"].as_str().unwrap().to_owned()
}

fn run(front_end: &FrontEnd, words: &[&str]) -> String {
    let admin = front_end.admin.to_string();
    let mut command = tidegate();
    let done = command
        .args(words)
        .args(["--admin", &admin])
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn an_upgrade_hands_over_which_nodes_are_slow_out_or_drained() {
    let scene = Scene::new("learned-upgrade");
    let mut front_end = scene.taught();
    let ago = |front_end: &FrontEnd| {
        let trouble = node(front_end, "gone")["trouble"].clone();
        trouble["ejected_seconds_ago"].as_f64().unwrap()
    };
    let before = ago(&front_end);
    run(&front_end, &["drain", "gone"]);
    run(
        &front_end,
        &["throttle", "GET /reports", "--concurrency", "3"],
    );
    let _successor = upgrade(&mut front_end);
    assert_eq!(health(&front_end, "gone"), "ejected");
    assert!(ago(&front_end) >= before, "it is out for as long as it was");
    assert_eq!(node(&front_end, "gone")["state"], "drain");
    let throttles = &front_end.api("/api/throttles")["throttles"];
    assert_eq!(throttles[0]["class"], "GET /reports");
    assert_eq!(throttles[0]["set_by"], "operator");
    let slow = ask(&front_end, ASKED);
    assert!(slow <= FEW, "{slow} of {ASKED}: {}", scene.log());
    let said = "goes on with what was known of 4 nodes 0 s before; 1 of them get no requests";
    scene.says(said);
}

#[test]
fn a_restart_goes_on_with_what_the_folder_has_and_begins_anew_without_it() {
    let scene = Scene::new("learned-restart");
    let end = |mut front_end: FrontEnd| {
        front_end.process.signal("TERM");
        assert_eq!(front_end.process.wait(), Some(0));
    };
    let front_end = scene.taught();
    run(&front_end, &["drain", "fast2"]);
    end(front_end);
    let mode = std::fs::metadata(scene.kept())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let kept = std::fs::read_to_string(scene.kept()).unwrap();
    let front_end = scene.start();
    assert_eq!(health(&front_end, "gone"), "ejected");
    assert_eq!(
        node(&front_end, "fast2")["state"],
        "ready",
        "a restart begins as configured"
    );
    let known = ask(&front_end, ASKED);
    scene.says("goes on with what was known of 4 nodes");
    end(front_end);
    // Without the file, with a damaged one, and with one that is too old, all is learned anew.
    let at = kept.find("\"at\":").unwrap() + 5;
    let rest = &kept[at + kept[at..].find(',').unwrap()..];
    let old = format!("{}1.0{rest}", &kept[..at]);
    let others = [
        (None, None),
        (Some("{\"version\":1"), Some("is not used: it is damaged")),
        (Some(&*old), Some(" s old, more than 300")),
        (Some("{\"version\":7}"), Some("it is of version 7")),
    ];
    for (text, said) in others {
        std::fs::remove_file(scene.kept()).unwrap();
        if let Some(text) = text {
            std::fs::write(scene.kept(), text).unwrap();
            let mode = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(scene.kept(), mode).unwrap();
        }
        let front_end = scene.start();
        assert_eq!(health(&front_end, "gone"), "up");
        let anew = ask(&front_end, ASKED);
        assert!(anew > known, "{anew} {known}");
        if let Some(said) = said {
            scene.says(said);
        }
        end(front_end);
    }
}
