//! What operators see of a front-end and do with it: events, orders, requests by their ids, a history over a restart: real processes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};
use support::mirror::Mirror;
use support::tls;
use support::{Process, Response, eventually, folder, free_address, request, tidegate};

const FULL: &str = "full-token-0123456789";
const READ: &str = "read-token-0123456789";

fn private(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
}

/// A front-end with tokens, before two nodes of which the second one is not there.
struct Scene {
    folder: PathBuf,
    admin: SocketAddr,
    web: SocketAddr,
    process: Option<Process>,
}

impl Scene {
    fn new(name: &str, node: SocketAddr, more: &str) -> Self {
        let folder = folder(name);
        private(&folder.join("headers"), "X-Key: a secret\n");
        let (admin, web) = (free_address(), free_address());
        private(&folder.join("full"), FULL);
        private(&folder.join("read"), READ);
        let state = folder.join("state");
        std::fs::create_dir(&state).unwrap();
        std::fs::set_permissions(&state, PermissionsExt::from_mode(0o700)).unwrap();
        let text = format!(
            "admin = {{ address = \"{admin}\", token_file = \"full\", read_token_file = \"read\" }}\n\
             listener = [{{ address = \"{web}\" }}]\nstate = {{ directory = \"state\" }}\n\
             log = {{ access = \"json\", file = \"access.log\", id_header = true }}\n\
             site = [{{ name = \"shop\", hosts = [\"shop.example\"] }}]\n\
             node = [{{ name = \"n1\", address = \"{node}\", site = \"shop\" }}]\n{more}\n"
        );
        std::fs::write(folder.join("tidegate.toml"), text).unwrap();
        let mut scene = Self {
            folder,
            admin,
            web,
            process: None,
        };
        scene.start();
        scene
    }

    fn start(&mut self) {
        let mut command = tidegate();
        command.arg("run").arg(self.folder.join("tidegate.toml"));
        command.env_remove("STATE_DIRECTORY");
        self.process = Some(Process::start(
            command.stdout(Stdio::null()).stderr(Stdio::null()),
        ));
        let admin = self.admin;
        eventually("it is ready", || {
            let text =
                format!("GET /readyz HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
            request(admin, &text).filter(|it| it.status == 200)
        });
    }

    fn end(&mut self) {
        let mut process = self.process.take().unwrap();
        process.signal("TERM");
        assert_eq!(process.wait(), Some(0));
    }

    fn say(&self, token: &str, method: &str, path: &str, body: &str) -> Response {
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\ntidegate-operator: anna\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.admin,
            body.len()
        );
        request(self.admin, &text).unwrap()
    }

    fn get(&self, path: &str) -> Value {
        let answer = self.say(READ, "GET", path, "");
        assert_eq!(answer.status, 200, "{path}");
        serde_json::from_str(&answer.body).unwrap()
    }

    /// The events of this kind.
    fn events(&self, kind: &str) -> Vec<Value> {
        let all = self.get("/api/events");
        let all = all["events"].as_array().unwrap();
        all.iter()
            .filter(|it| it["kind"] == kind)
            .cloned()
            .collect()
    }

    fn ask(&self, path: &str) -> Response {
        let text =
            format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n");
        request(self.web, &text).unwrap()
    }
}

#[test]
fn a_token_that_looks_gives_no_orders_and_those_of_the_other_are_kept_with_their_operator() {
    let mirror = Mirror::start();
    let mut scene = Scene::new("operators-tokens", mirror.address, "");
    assert_eq!(
        scene.get("/api/access"),
        json!({ "may_act": false, "token": "read", "by": "anna (127.0.0.1)" })
    );
    let full = scene.say(FULL, "GET", "/api/access", "");
    assert!(
        full.body.contains("\"may_act\":true,\"token\":\"full\""),
        "{}",
        full.body
    );
    for (path, body) in [
        ("/api/nodes/n1/drain", ""),
        ("/api/nodes/n1/weight", "{\"weight\":2}"),
        (
            "/api/throttle",
            "{\"class\":\"GET /a\",\"limits\":{\"concurrency\":1}}",
        ),
        ("/api/reload", ""),
        ("/api/upgrade", ""),
    ] {
        assert_eq!(scene.say(READ, "POST", path, body).status, 403, "{path}");
    }
    assert_eq!(scene.say(READ, "DELETE", "/api/nodes/n1", "").status, 403);
    assert_eq!(
        scene.say(READ, "GET", "/api/culprits/requests", "").status,
        403
    );
    assert_eq!(
        scene
            .say("another-token-0123456789", "GET", "/api/status", "")
            .status,
        401
    );
    assert!(scene.events("ordered").is_empty());
    scene.end();
}

#[test]
fn orders_are_kept_with_their_operator() {
    let mirror = Mirror::start();
    let mut scene = Scene::new("operators-orders", mirror.address, "");
    assert_eq!(
        scene.say(FULL, "POST", "/api/reload?dry_run", "").status,
        200
    );
    assert_eq!(
        scene.say(FULL, "POST", "/api/nodes/n1/drain", "").status,
        200
    );
    assert_eq!(
        scene
            .say(FULL, "POST", "/api/nodes/nothing/drain", "")
            .status,
        404
    );
    let ordered = scene.events("ordered");
    let [order] = ordered.as_slice() else {
        panic!("{ordered:?}");
    };
    assert_eq!(order["text"], "ordered by anna (127.0.0.1): drain n1");
    assert_eq!(
        (&order["node"], &order["site"]),
        (&json!("n1"), &json!("shop"))
    );
    assert_eq!(
        (&order["by"], &order["level"]),
        (&json!("anna (127.0.0.1)"), &json!("note"))
    );
    // The same in a terminal.
    let mut events = tidegate();
    events
        .arg("events")
        .args(["--admin", &scene.admin.to_string()]);
    let shown = events.env("TIDEGATE_TOKEN", READ).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.contains("ordered by anna (127.0.0.1): drain n1"),
        "{shown}"
    );
    scene.end();
}

#[test]
fn events_are_followed_as_they_come_over_a_restart() {
    let mirror = Mirror::start();
    let mut scene = Scene::new("operators-follow", mirror.address, "");
    let mut follow = tidegate();
    follow.args(["events", "--follow", "--json", "--admin"]);
    follow.arg(scene.admin.to_string());
    let mut following = Process::start(
        follow
            .env("TIDEGATE_TOKEN", READ)
            .stdout(Stdio::piped())
            .stderr(Stdio::null()),
    );
    // What was, and then what comes.
    following.wait_for_line("listening on");
    scene.say(FULL, "POST", "/api/nodes/n1/drain", "");
    following.wait_for_line("ordered by anna (127.0.0.1): drain n1");
    scene.end();
    scene.start();
    scene.say(FULL, "POST", "/api/nodes/n1/maint", "");
    following.wait_for_line("ordered by anna (127.0.0.1): maint n1");
    scene.end();
}

#[test]
fn a_weight_holds_until_it_is_taken_back() {
    let mirror = Mirror::start();
    let mut scene = Scene::new("operators-weight", mirror.address, "");
    let weigh = |body: &str| scene.say(FULL, "POST", "/api/nodes/n1/weight", body);
    let weight = || scene.get("/api/status")["sites"][0]["nodes"][0]["weight"].as_f64();
    let answer: Value = serde_json::from_str(&weigh("{\"weight\":2.5}").body).unwrap();
    assert_eq!(
        (&answer["node"]["weight"], &answer["kept"]),
        (&json!(2.5), &json!(false))
    );
    assert_eq!(weight(), Some(2.5));
    // A reload of the same file leaves it.
    assert_eq!(scene.say(FULL, "POST", "/api/reload", "").status, 200);
    assert_eq!(weight(), Some(2.5));
    for bad in [
        "{\"weight\":-1}",
        "{\"weight\":1e30}",
        "{}{",
        "{\"heavy\":1}",
        "{\"weight\":\"x\"}",
    ] {
        assert_eq!(weigh(bad).status, 400, "{bad}");
    }
    assert_eq!(
        scene
            .say(FULL, "POST", "/api/nodes/nothing/weight", "{\"weight\":2}")
            .status,
        400
    );
    assert_eq!(weight(), Some(2.5));
    assert_eq!(weigh("{\"weight\":null}").status, 200);
    assert_eq!(weight(), Some(1.0));
    // The owner's next word counts more, and stays when its node comes back.
    assert_eq!(weigh("{\"weight\":7}").status, 200);
    let note = scene.get("/api/status")["sites"][0]["nodes"][0]["trouble"]["notes"].to_string();
    assert!(note.contains("an operator has it weigh 7, not 1"), "{note}");
    let file = scene.folder.join("tidegate.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let heavier = text.replace("site = \"shop\" }]", "site = \"shop\", weight = 3 }]");
    for (text, weighs) in [(&heavier, 3.0), (&text, 1.0)] {
        std::fs::write(&file, text).unwrap();
        assert_eq!(scene.say(FULL, "POST", "/api/reload", "").status, 200);
        assert_eq!(weight(), Some(weighs));
    }
    scene.end();
}

#[test]
fn a_request_is_found_by_the_id_of_its_answer_and_of_its_line() {
    let mirror = Mirror::start();
    let mut scene = Scene::new("operators-requests", mirror.address, "");
    let answer = scene.ask("/cart?item=1");
    let id = id_in(&answer);
    let found = scene.get(&format!("/api/requests?id={id}"));
    let request = &found["requests"][0];
    assert_eq!(
        (&request["id"], &request["path"]),
        (&json!(id), &json!("/cart"))
    );
    let sentence = request["sentence"].as_str().unwrap();
    assert!(
        sentence.starts_with("GET /cart of shop was answered 200 by n1 within"),
        "{sentence}"
    );
    // An answer that no node has given has one as well.
    let text = "GET /none HTTP/1.1\r\nHost: other.example\r\nConnection: close\r\n\r\n";
    let refused = request_of(&scene, text);
    let refused_id = id_in(&refused);
    assert_ne!(refused_id, id);
    let log = scene.folder.join("access.log");
    let lines = eventually("both lines are there", || {
        let text = std::fs::read_to_string(&log).ok()?;
        let lines: Vec<Value> = text
            .lines()
            .map(|it| serde_json::from_str(it).unwrap())
            .collect();
        (lines.len() == 2).then_some(lines)
    });
    // Workers write their own batches, in whatever order.
    let ids: Vec<_> = lines.iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert!(
        ids.contains(&&*id) && ids.contains(&&*refused_id),
        "{ids:?}"
    );
    let wrong = scene.get("/api/requests?wrong&last=5");
    let wrong = wrong["requests"].as_array().unwrap();
    assert_eq!((wrong.len(), &wrong[0]["reason"]), (1, &json!("no_site")));
    let of_site = scene.get("/api/requests?site=shop&node=n1");
    assert_eq!(of_site["requests"].as_array().unwrap().len(), 1);
    for unknown in ["site=nothing", "node=nothing", "id=0-1"] {
        let path = format!("/api/requests?{unknown}");
        assert_eq!(scene.say(READ, "GET", &path, "").status, 404, "{path}");
    }
    let mut why = tidegate();
    why.args(["why", &id, "--admin", &scene.admin.to_string()]);
    let shown = why.env("TIDEGATE_TOKEN", READ).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.contains("GET /cart of shop was answered 200 by n1 within"),
        "{shown}"
    );
    // Good ones do not push it out.
    (0..600).for_each(|_| drop(scene.ask("/more")));
    let wrong = scene.get("/api/requests?wrong");
    assert_eq!(wrong["requests"][0]["id"], json!(refused_id));
    scene.end();
}

/// By what a client knows its request.
fn id_in(answer: &Response) -> String {
    let mut lines = answer.head.lines();
    let id = lines.find_map(|line| line.strip_prefix("x-tidegate-request: "));
    id.unwrap().to_owned()
}

fn request_of(scene: &Scene, text: &str) -> Response {
    request(scene.web, text).unwrap()
}

#[test]
fn the_history_outlives_the_process() {
    let mirror = Mirror::start();
    let mut scene = Scene::new("operators-history", mirror.address, "");
    let counted = |scene: &Scene, step: u64| {
        let history = scene.get(&format!("/api/history?step={step}&last=90"));
        let rates = history["sites"][0]["requests_per_second"]
            .as_array()
            .cloned();
        let rates = rates.unwrap_or_default();
        rates.iter().filter_map(Value::as_f64).sum::<f64>() * step as f64
    };
    scene.ask("/one");
    scene.ask("/two");
    eventually("both requests are in a second that is over", || {
        (counted(&scene, 1).round() as u64 == 2).then_some(())
    });
    scene.end();
    let file = scene.folder.join("state/history.json");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    scene.start();
    eventually(
        "the next process shows them, once its step of ten seconds is over",
        || (counted(&scene, 10).round() as u64 == 2).then_some(()),
    );
    scene.end();
    // What is not understood is named, and harms nothing.
    std::fs::write(&file, "{").unwrap();
    scene.start();
    let said = eventually("it is named", || scene.events("history").pop());
    let text = said["text"].as_str().unwrap();
    assert!(
        text.contains("the history before this process is not shown: it is not understood"),
        "{text}"
    );
    scene.end();
}

/// A server that takes batches, and answers the first one with this.
fn hook(first: &'static str) -> (SocketAddr, Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (taken, batches) = channel();
    std::thread::spawn(move || {
        let mut answer = first;
        while let Ok((stream, _)) = listener.accept() {
            while let Some(batch) = read_batch(&stream) {
                if taken.send(batch).is_err() {
                    return;
                }
                let text = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n");
                (&stream).write_all(text.as_bytes()).unwrap();
                answer = "204 No Content";
            }
        }
    });
    (address, batches)
}

/// The head and the body of a POST.
fn read_batch(stream: &TcpStream) -> Option<(String, Value)> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let lower = head.to_lowercase();
    let length = lower.split("content-length: ").nth(1)?.lines().next()?;
    let mut body = vec![0; length.trim().parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    Some((head, serde_json::from_slice(&body).ok()?))
}

#[test]
fn events_are_sent_as_they_come_and_again_if_they_are_not_taken() {
    let (address, batches) = hook("503 Service Unavailable");
    let nowhere = free_address();
    let more = format!(
        "[events]\nwebhook = \"http://{address}\"\npath = \"/hooks/tidegate\"\nheaders_file = \"headers\"\nnotes = true\n"
    );
    let mut scene = Scene::new("operators-webhook", nowhere, &more);
    let order = scene.say(FULL, "POST", "/api/nodes/n1/maint", "");
    assert_eq!(order.status, 200);
    let mut first = None;
    let (_, again) = eventually(
        "the order arrives, and once more after it was not taken",
        || {
            let (head, batch) = batches.recv().unwrap();
            assert!(head.starts_with("POST /hooks/tidegate HTTP/1.1"), "{head}");
            assert!(head.contains("x-key: a secret"), "{head}");
            assert_eq!(batch["missed"], 0);
            let before = first.replace(batch.clone());
            (before.as_ref() == Some(&batch)).then_some((head, batch))
        },
    );
    let numbers: Vec<_> = again["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["number"].as_u64().unwrap())
        .collect();
    assert!(numbers.windows(2).all(|it| it[0] < it[1]), "{numbers:?}");
    let failed = eventually("it is said here as well", || {
        scene.events("webhook_failed").pop()
    });
    assert!(failed["text"].as_str().unwrap().contains("503"), "{failed}");
    // What happens at the end arrives as well.
    scene.end();
    let last = eventually("the last event arrives", || {
        let (_, batch) = batches.recv().unwrap();
        let events = batch["events"].as_array().unwrap();
        events
            .iter()
            .any(|it| it["kind"] == "stopped")
            .then_some(batch)
    });
    assert_eq!(last["front_end"], again["front_end"]);
}

#[test]
fn a_certificate_that_is_about_to_end_is_named_until_it_is_replaced() {
    let name = "operators-certificate";
    let Some(authority) = tls::Authority::new(&folder(&format!("{name}-authority"))) else {
        println!("SKIPPED: openssl is not installed");
        return;
    };
    let mirror = Mirror::start();
    let mut scene = Scene::new(name, mirror.address, "");
    let file = scene.folder.join("tidegate.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let listening = format!("listener = [{{ address = \"{}\" }}]", scene.web);
    let with = |pair: &tls::Pair| {
        let secure = format!(
            "{}, tls = {{ {} }} }}]",
            &listening[..listening.len() - 3],
            pair.keys()
        );
        std::fs::write(&file, text.replace(&listening, &secure)).unwrap();
        let reloaded = scene.say(FULL, "POST", "/api/reload", "");
        assert_eq!(reloaded.status, 200, "{}", reloaded.body);
        scene.get("/api/overview")["headline"]["text"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let soon = with(&authority.issue_for("soon", &["shop.example"], 2));
    assert!(
        soon.starts_with("the certificate for shop.example ends in 4"),
        "{soon}"
    );
    let event = eventually("it is an event", || {
        scene.events("certificate_ending").pop()
    });
    assert_eq!(event["level"], "warn");
    let later = with(&authority.issue_for("later", &["shop.example"], 30));
    assert!(later.starts_with("all is well"), "{later}");
    scene.end();
}
