//! Front-ends tell each other which requests they have, through the binary itself.

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use support::scene::{Cluster, Scene};
use support::{FrontEnd, eventually, folder, free_address, request, tidegate};

/// A server that answers everything.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut head = [0; 4096];
                while stream.read(&mut head).is_ok_and(|read| read > 0) {
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                    if stream.write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[test]
fn what_one_front_end_serves_the_other_knows() {
    let configuration = |peers: &str| {
        format!(
            "[[site]]\nname = \"shop\"\n[[node]]\nname = \"n1\"\naddress = \"{}\"\nsite = \"shop\"\n\
             [culprits]\npeers = [{peers}]\n",
            server()
        )
    };
    let one = FrontEnd::start(&folder("peers-one"), &configuration(""));
    let peers = format!("\"{}\"", one.admin);
    let other = FrontEnd::start(&folder("peers-other"), &configuration(&peers));
    let mut sent = 0;
    eventually("the other knows three of them", || {
        sent += 1;
        assert_eq!(one.get("shop", &format!("/item/{sent}?page=2")).status, 200);
        let report = other.api("/api/culprits");
        let known = report["classes"].as_array().unwrap().iter();
        let mut items = known.filter(|class| class["name"] == "GET /item/{n}?page");
        let requests = items.next()?["requests"].as_u64()?;
        assert!(requests <= sent, "{requests} of {sent}");
        (requests >= 3).then_some(())
    });
    assert_eq!(other.metric("tidegate_requests_received_total"), Some(0.0));
    drop(one);
    eventually("it says whose requests are missing", || {
        let notes = other.api("/api/culprits")["notes"].to_string();
        notes.contains("What the front-end at").then_some(())
    });
}

#[test]
fn peers_come_and_go_by_a_reload() {
    let cluster = Cluster::default()
        .site("shop", "*")
        .node("n1", server(), "shop");
    let one = FrontEnd::start(&folder("peers-reload-one"), &cluster.text());
    let other = Scene::start("peers-reload-other", &cluster);
    let reload = |peers: &str| {
        let culprits = format!("[culprits]\npeers = [{peers}]\n");
        other.write(&cluster.clone().more(&culprits).text());
        let plan = other.reload(&[]);
        let line = "~ [culprits]: peers = ";
        assert!(plan.contains(line) && !plan.contains("needs a"), "{plan}");
    };
    let report = || other.front_end.api("/api/culprits");
    reload(&format!("\"{}\"", one.admin));
    let mut sent = 0;
    eventually("the other knows three of them", || {
        sent += 1;
        assert_eq!(one.get("shop", &format!("/item/{sent}")).status, 200);
        let report = report();
        let known = report["classes"].as_array().unwrap().iter();
        let mut items = known.filter(|class| class["name"] == "GET /item/{n}");
        (items.next()?["requests"].as_u64()? >= 3).then_some(())
    });
    let misses = |part: &str| report()["notes"].to_string().contains(part);
    let absent = free_address();
    reload(&format!("\"{absent}\""));
    eventually("what does not answer is named", || {
        misses(&format!("What the front-end at {absent}")).then_some(())
    });
    drop(one);
    reload("");
    eventually("none is missing any more", || {
        (!misses("What the front-end at")).then_some(())
    });
}

fn write_secret(file: &Path, secret: &str) {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(file).unwrap();
    file.write_all(secret.as_bytes()).unwrap();
}

/// One site with one node, and these other front-ends, known by this secret.
fn shop(peers: &str) -> String {
    format!(
        "[[site]]\nname = \"shop\"\n[[node]]\nname = \"n1\"\naddress = \"{}\"\nsite = \"shop\"\n\
         [culprits]\npeer_token_file = \"peers\"\npeers = [{peers}]\n",
        server()
    )
}

/// A front-end whose operators have a token of their own.
fn front_end(name: &str, token: &str, peer_token: &str, peers: &str) -> FrontEnd {
    let folder = folder(name);
    write_secret(&folder.join("token"), token);
    write_secret(&folder.join("peers"), peer_token);
    FrontEnd::start_with(&folder, &shop(peers), "token_file = \"token\"")
}

fn ask(front_end: &FrontEnd, token: &str, method: &str, path: &str) -> support::Response {
    let host = front_end.admin;
    let text = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\
         Connection: close\r\n\r\n"
    );
    request(host, &text).expect("the admin interface answers")
}

const ONE: &str = "token-of-front-end-one";
const OTHER: &str = "token-of-front-end-other";
const SHARED: &str = "secret-of-the-exchange";

#[test]
fn front_ends_with_a_secret_of_their_own_know_each_others_requests() {
    let one = front_end("peers-secret-one", ONE, SHARED, "");
    let peers = format!("\"{}\"", one.admin);
    let other = front_end("peers-secret-other", OTHER, SHARED, &peers);
    let stranger = front_end(
        "peers-secret-stranger",
        OTHER,
        "another-secret-of-it",
        &peers,
    );
    let report = |of: &FrontEnd| ask(of, OTHER, "GET", "/api/culprits").body;
    eventually("the other knows one's requests", || {
        one.get("shop", "/item/1?page=2");
        report(&other).contains("GET /item/{n}?page").then_some(())
    });
    eventually(
        "a front-end without the secret is refused, and says so",
        || {
            report(&stranger)
                .contains("What the front-end at")
                .then_some(())
        },
    );
    assert!(!report(&stranger).contains("/item/"));
    // The secret of the exchange is no token.
    for token in [SHARED, OTHER] {
        assert_eq!(ask(&one, token, "GET", "/api/status").status, 401);
        assert_eq!(ask(&one, token, "POST", "/api/nodes/n1/drain").status, 401);
    }
    assert_eq!(ask(&one, ONE, "GET", "/api/status").status, 200);
}

/// A listener in a peer's place, or on the way to it, hears no secret, and what it answers is not believed.
#[test]
fn a_false_peer_hears_no_secret_and_is_not_believed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, heard) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 4096];
            let read = stream.read(&mut head).unwrap();
            let lie = r#"{"next":1,"lost":0,"sites":["shop"],"words":[["GET","/lie"]],"ended":[[0,0,9000,5000]],"unfinished":[]}"#;
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{lie}",
                lie.len()
            );
            // The front-end may have ended by now, and so may the test.
            if stream.write_all(answer.as_bytes()).is_err()
                || sender.send(head[..read].to_vec()).is_err()
            {
                return;
            }
        }
    });
    for (name, peer_token) in [("peers-false-own", SHARED), ("peers-false-admin", ONE)] {
        let front_end = front_end(name, ONE, peer_token, &format!("\"{address}\""));
        for _ in 0..2 {
            let question = String::from_utf8(heard.recv().unwrap()).unwrap();
            assert!(
                question.contains("/api/culprits/requests?after=0"),
                "{question}"
            );
            assert!(
                !question.contains(ONE) && !question.contains(SHARED),
                "{question}"
            );
        }
        eventually("it says that the answer is not a peer's", || {
            let report = ask(&front_end, ONE, "GET", "/api/culprits").body;
            assert!(!report.contains("/lie"), "{report}");
            report.contains("does not prove").then_some(())
        });
    }
}

/// A machine on the way to a peer that knows no secret, and leads what comes to it elsewhere.
#[derive(Clone, Debug)]
struct Relay {
    address: SocketAddr,
    to: Arc<Mutex<Option<SocketAddr>>>,
    led: Arc<AtomicU64>,
}

impl Relay {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Self {
            address: listener.local_addr().unwrap(),
            to: Arc::default(),
            led: Arc::default(),
        };
        let leads = relay.clone();
        thread::spawn(move || {
            for asks in listener.incoming() {
                let asks = asks.unwrap();
                let to = *leads.to.lock().unwrap();
                // What leads nowhere, or to a front-end that has ended, is closed.
                let Some(answers) = to.and_then(|to| TcpStream::connect(to).ok()) else {
                    continue;
                };
                leads.led.fetch_add(1, Ordering::Relaxed);
                copy(&asks, &answers);
                copy(&answers, &asks);
            }
        });
        relay
    }

    fn lead_to(&self, front_end: &FrontEnd) {
        *self.to.lock().unwrap() = Some(front_end.admin);
    }

    /// Waits until so many more questions were led on. The one that asks waits for each answer before it asks again.
    fn wait_for(&self, more: u64) {
        let before = self.led.load(Ordering::Relaxed);
        eventually("the peer is asked again", || {
            (self.led.load(Ordering::Relaxed) >= before + more).then_some(())
        });
    }
}

fn copy(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    thread::spawn(move || {
        // Either side may break off, which ends the other.
        std::io::copy(&mut from, &mut to).ok();
        to.shutdown(Shutdown::Write).ok();
    });
}

/// A front-end of these tests: where it logs, and how it is asked.
struct Asked {
    front_end: FrontEnd,
    folder: PathBuf,
}

impl Asked {
    fn start(name: &str, peers: &str) -> Self {
        Self {
            front_end: front_end(name, ONE, SHARED, peers),
            folder: Path::new(env!("CARGO_TARGET_TMPDIR")).join(name),
        }
    }

    fn report(&self) -> serde_json::Value {
        let answer = ask(&self.front_end, ONE, "GET", "/api/culprits");
        serde_json::from_str(&answer.body).unwrap()
    }

    fn notes(&self) -> String {
        self.report()["notes"].to_string()
    }

    /// How many requests of a class it knows, its own and its peers'.
    fn known(&self, class: &str) -> u64 {
        let report = self.report();
        let mut classes = report["classes"].as_array().unwrap().iter();
        let found = classes.find(|it| it["name"] == class);
        found.map_or(0, |it| it["requests"].as_u64().unwrap())
    }

    /// Lines of its log with this in it.
    fn lines(&self, part: &str) -> usize {
        let log = std::fs::read_to_string(self.folder.join("front-end.log")).unwrap();
        log.lines().filter(|line| line.contains(part)).count()
    }
}

const SENT: u64 = 5;

/// Requests that a front-end serves, of the class `GET /NAME/{n}`.
fn send(front_end: &FrontEnd, name: &str) {
    for number in 0..SENT {
        assert_eq!(
            front_end.get("shop", &format!("/{name}/{number}")).status,
            200
        );
    }
}

/// Waits until all of them are known, and then until all that may make more of them has been asked again.
fn known_once(asked: &Asked, relay: &Relay, class: &str) {
    eventually("all requests are known", || {
        (asked.known(class) >= SENT).then_some(())
    });
    relay.wait_for(4);
    assert_eq!(asked.known(class), SENT, "{class}");
}

#[test]
fn a_relay_that_leads_a_front_end_back_to_itself_is_named_and_counts_nothing_twice() {
    let relay = Relay::start();
    let peers = format!("\"{}\"", relay.address);
    let one = Asked::start("peers-itself", &peers);
    relay.lead_to(&one.front_end);
    relay.wait_for(3);
    send(&one.front_end, "item");
    known_once(&one, &relay, "GET /item/{n}");
    let why = format!("{} is this front-end itself", relay.address);
    eventually("the report names the cause", || {
        one.notes().contains(&why).then_some(())
    });
    relay.wait_for(4);
    eventually("so does an event", || (one.lines(&why) > 0).then_some(()));
    assert_eq!(one.lines(&why), 1);
    // The true peer, at last. What it serves is known, and each knows the other's.
    let other = Asked::start("peers-itself-other", "");
    relay.lead_to(&other.front_end);
    eventually("the peer is heard", || {
        (!one.notes().contains("What the front-end at")).then_some(())
    });
    send(&other.front_end, "other");
    known_once(&one, &relay, "GET /other/{n}");
    for front_end in [&one, &other] {
        assert_eq!(front_end.lines("refused a request"), 0);
    }
}

#[test]
fn without_a_token_too_a_front_end_knows_its_own_answer() {
    let relay = Relay::start();
    let configuration = format!(
        "[[site]]\nname = \"shop\"\n[[node]]\nname = \"n1\"\naddress = \"{}\"\nsite = \"shop\"\n\
         [culprits]\npeers = [\"{}\"]\n",
        server(),
        relay.address
    );
    let one = FrontEnd::start(&folder("peers-itself-open"), &configuration);
    relay.lead_to(&one);
    eventually("the report names the cause", || {
        let notes = one.api("/api/culprits")["notes"].to_string();
        notes.contains("is this front-end itself").then_some(())
    });
}

#[test]
fn one_peers_answer_does_not_pass_for_anothers() {
    let relay = Relay::start();
    let b = Asked::start("peers-same-b", "");
    let c = Asked::start("peers-same-c", "");
    let peers = format!("\"{}\", \"{}\"", relay.address, c.front_end.admin);
    let a = Asked::start("peers-same-a", &peers);
    relay.lead_to(&c.front_end);
    relay.wait_for(3);
    send(&c.front_end, "item");
    known_once(&a, &relay, "GET /item/{n}");
    // C was heard at its own address before, or at B's: the other one is refused.
    let why = "is the same front-end as";
    eventually("the report names the cause", || {
        a.notes().contains(why).then_some(())
    });
    eventually("so does an event", || (a.lines(why) > 0).then_some(()));
    relay.wait_for(4);
    assert_eq!(a.lines(why), 1);
    relay.lead_to(&b.front_end);
    eventually("both are heard", || {
        (!a.notes().contains("What the front-end at")).then_some(())
    });
    send(&b.front_end, "other");
    known_once(&a, &relay, "GET /other/{n}");
    // B is restarted: another process at the same address.
    drop(b);
    let again = Asked::start("peers-same-again", "");
    relay.lead_to(&again.front_end);
    relay.wait_for(3);
    send(&again.front_end, "again");
    known_once(&a, &relay, "GET /again/{n}");
    assert_eq!(a.known("GET /item/{n}"), SENT);
}

#[test]
fn ones_own_address_is_no_peer() {
    let folder = folder("peers-own-address");
    let (own, file) = (free_address(), folder.join("tidegate.toml"));
    write_secret(&folder.join("peers"), SHARED);
    let text = format!(
        "{}[admin]\naddress = \"{own}\"\n[[listener]]\naddress = \"{}\"\n",
        shop(&format!("\"{own}\"")),
        free_address()
    );
    std::fs::write(&file, text).unwrap();
    for command in ["check", "run"] {
        let refused = tidegate().arg(command).arg(&file).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{command}: {refused:?}");
        let said = String::from_utf8(refused.stderr).unwrap();
        let why = format!("peer {own} is this front-end's own admin address");
        assert!(said.contains(&why), "{command}: {said}");
    }
}
