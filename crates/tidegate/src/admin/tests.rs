//! The API's answers, which clients get them, and the page in a browser.

mod attacks;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use serde::de::DeserializeOwned;
use serde_json::json;
use tidegate_core::load::{Counters, NodeLoad};
use tidegate_core::topology::NodeId;

use super::culprits::browser;
use super::plane::Plane;
use super::server::Desk;
use super::{Access, server};
use crate::driver::Driver;
use crate::models::{ApiError, HistoryModel, OVERRIDE_HEADER, Overridden, Status, Why};
use crate::output::Output;
use crate::testing;
use crate::token::Token;
use tidegate_proxy::Ports;

const TOKEN: &str = "0123456789abcdef";

struct Scene {
    plane: Arc<Plane>,
    runtime: tokio::runtime::Runtime,
    _driver: Driver,
}

impl Scene {
    fn new() -> Self {
        let (driver, plane) = testing::plane();
        Self {
            plane,
            runtime: testing::runtime(),
            _driver: driver,
        }
    }

    fn ask(&self, token: bool, request: &Request<Bytes>) -> (StatusCode, http::HeaderMap, Vec<u8>) {
        let token = token.then(|| Token::parse(TOKEN).unwrap());
        let access = Access {
            token,
            ..Access::default()
        };
        let plane = Arc::clone(&self.plane);
        let desk = Desk::new(move || Arc::clone(&plane), access, Output::QUIET);
        let (head, body) = request.clone().into_parts();
        let from = ([127, 0, 0, 1]).into();
        self.runtime.block_on(async {
            let answer = desk.answer(head, Full::new(body), from, None).await;
            let (head, body) = answer.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            (head.status, head.headers, body.to_vec())
        })
    }

    /// The metrics for those that accept this, in the form that their type promises.
    fn metrics(&self, accept: Option<&str>) -> String {
        let mut request = request(Method::GET, "/metrics");
        if let Some(accept) = accept {
            let accept = accept.parse().unwrap();
            request.headers_mut().insert("accept", accept);
        }
        let (status, headers, body) = self.ask(false, &request);
        assert_eq!(status, StatusCode::OK);
        let text = String::from_utf8(body).unwrap();
        let kind = match text.ends_with("# EOF\n") {
            true => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            false => "text/plain; version=0.0.4; charset=utf-8",
        };
        assert_eq!(headers["content-type"], kind);
        text
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> (StatusCode, T) {
        let (status, _, body) = self.ask(false, &request(Method::GET, path));
        (status, serde_json::from_slice(&body).unwrap())
    }
}

fn request(method: Method, path: &str) -> Request<Bytes> {
    let request = Request::builder().method(method).uri(path);
    request
        .header("host", "127.0.0.1:9900")
        .header(OVERRIDE_HEADER, "1")
        .body(Bytes::new())
        .unwrap()
}

#[test]
fn the_status_tells_fresh_stale_and_unknown_apart() {
    let scene = Scene::new();
    let (status, answer): (_, Status) = scene.get("/api/status");
    assert_eq!(status, StatusCode::OK);
    assert!(answer.ready && !answer.draining);
    let [shop, blog] = answer.sites.as_slice() else {
        panic!("two sites");
    };
    let (n1, n2, n3) = (&shop.nodes[0], &shop.nodes[1], &blog.nodes[0]);
    let fresh = n1.load.as_ref().unwrap();
    assert!(fresh.fresh);
    assert_eq!((fresh.runnable, fresh.files), (Some(3.0), None));
    assert_eq!((n1.rung.as_str(), n1.share), ("agent", None));
    assert!(!n2.load.as_ref().unwrap().fresh);
    assert_eq!(n2.rung, "none");
    assert_eq!(n3.load, None);
}

#[test]
fn why_gives_the_policys_terms_and_sentences() {
    let scene = Scene::new();
    let (_, why): (_, Why) = scene.get("/api/why/n1");
    let Why::Node(why) = why else {
        panic!("n1 is a node");
    };
    assert_eq!((why.site.as_str(), why.policy.as_str()), ("shop", "auto"));
    let queue = why.terms.iter().find(|term| term.name == "n").unwrap();
    assert_eq!(queue.value, Some(3.0));
    assert!(
        why.reasons
            .iter()
            .any(|reason| reason.contains("2.0 ms old")),
        "{:?}",
        why.reasons
    );
    let (_, why): (_, Why) = scene.get("/api/why/n3");
    let Why::Node(why) = why else {
        panic!("n3 is a node");
    };
    let age = why.terms.iter().find(|term| term.name == "age");
    assert!(age.is_none_or(|age| age.value.is_none() && age.what.contains("none was read yet")));
    let (_, why): (_, Why) = scene.get("/api/why/shop");
    let Why::Site(why) = why else {
        panic!("shop is a site");
    };
    assert_eq!(why.nodes.len(), 2);
    let (status, refusal): (_, ApiError) = scene.get("/api/why/nobody");
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(refusal.error.contains("nobody"));
}

#[test]
fn a_cpu_is_at_most_full_and_an_unknown_one_unknown() {
    let scene = Scene::new();
    let shown = |utilization| {
        let table = &scene.plane.shared.table;
        let load = NodeLoad {
            utilization,
            ..table.last(NodeId(0))
        };
        table.store(NodeId(0), &load);
        let (_, answer): (_, Status) = scene.get("/api/status");
        let cpu = answer.sites[0].nodes[0].load.as_ref().unwrap().cpu;
        let metrics = scene.metrics(None);
        let ratio = "tidegate_node_cpu_ratio{site=\"shop\",node=\"n1\"} ";
        let ratio = metrics.lines().find_map(|line| line.strip_prefix(ratio));
        (cpu, ratio.map(str::to_owned))
    };
    assert_eq!(shown(0.5), (Some(0.5), Some("0.5".into())));
    assert_eq!(shown(1.013), (Some(1.0), Some("1".into())));
    assert_eq!(shown(f32::NAN), (None, None));
}

#[test]
fn the_cpu_use_that_is_shown_is_of_seconds() {
    let scene = Scene::new();
    let table = &scene.plane.shared.table;
    let read = |ms: u64, busy_ms: u64| {
        let counters = Counters {
            at: testing::now() + Duration::from_millis(ms),
            generation: 1,
            cores: 2.0,
            busy_ns: Some(busy_ms * 1_000_000),
            fine: true,
            disk_ns: None,
            network: None,
            context_switches: None,
        };
        table.store_counters(NodeId(0), &counters);
    };
    let shown = || {
        let (_, status): (_, Status) = scene.get("/api/status");
        let load = status.sites[0].nodes[0].load.clone().unwrap();
        (load.recent_cpu, load.shown_cpu() == load.cpu)
    };
    assert_eq!(shown(), (None, true), "nothing was counted");
    read(0, 500);
    scene.plane.turn_window();
    scene.plane.turn_window();
    read(5000, 2500);
    assert_eq!(shown(), (Some(0.2), false));
    let (_, overview): (_, serde_json::Value) = scene.get("/api/overview");
    assert_eq!(overview["sites"][0]["nodes"][0][5], 0.2);
    let metrics = scene.metrics(None);
    let counter = "tidegate_node_cpu_seconds_total{site=\"shop\",node=\"n1\"} 2.5\n";
    assert!(metrics.contains(counter), "{metrics}");
    // A node that starts anew counts anew.
    read(6000, 100);
    assert_eq!(shown(), (None, true));
}

#[test]
fn overrides_are_carried_out_and_change_readiness() {
    let scene = Scene::new();
    for (node, order) in [("n1", "drain"), ("n2", "maint"), ("n3", "drain")] {
        let path = format!("/api/nodes/{node}/{order}");
        let (status, _, body) = scene.ask(false, &request(Method::POST, &path));
        assert_eq!(status, StatusCode::OK);
        let done: Overridden = serde_json::from_slice(&body).unwrap();
        assert_eq!((done.node.as_str(), done.state.as_str()), (node, order));
        let warned = done
            .warning
            .is_some_and(|it| it.contains("no node of site"));
        assert_eq!(warned, node != "n1", "n1 is not its site's last node");
    }
    let (status, _, _) = scene.ask(false, &request(Method::GET, "/readyz"));
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    let (status, _, _) = scene.ask(false, &request(Method::GET, "/livez"));
    assert_eq!(status, StatusCode::OK);
    let (status, _, _) = scene.ask(false, &request(Method::POST, "/api/nodes/n3/ready"));
    assert_eq!(status, StatusCode::OK);
    let (status, _, _) = scene.ask(false, &request(Method::GET, "/readyz"));
    assert_eq!(status, StatusCode::OK);
    let topology = scene.plane.shared.topology.load();
    assert!(
        topology
            .site(topology.node(NodeId(0)).site)
            .candidates
            .is_empty()
    );
}

fn post(scene: &Scene, path: &str, body: &serde_json::Value) -> (StatusCode, serde_json::Value) {
    let mut request = request(Method::POST, path);
    *request.body_mut() = body.to_string().into();
    let (status, _, body) = scene.ask(false, &request);
    (status, serde_json::from_slice(&body).unwrap())
}

#[test]
fn a_class_is_throttled_shown_and_released() {
    let scene = Scene::new();
    let limits = json!({ "concurrency": 2, "queue_seconds": 1.5 });
    let wanted = json!({ "class": "shop  GET /search/*", "limits": limits, "for_seconds": 600 });
    let (status, given) = post(&scene, "/api/throttle", &wanted);
    assert_eq!((status, &given["kept"]), (StatusCode::OK, &false.into()));
    let throttle = &given["throttle"];
    assert_eq!(throttle["class"], "shop GET /search/*");
    assert_eq!(
        (
            &throttle["limits"]["concurrency"],
            &throttle["seconds_left"]
        ),
        (&2.into(), &600.0.into())
    );
    let (_, listed): (_, serde_json::Value) = scene.get("/api/throttles");
    assert_eq!(listed["throttles"][0], *throttle);
    let (_, status): (_, Status) = scene.get("/api/status");
    assert_eq!(status.throttles.len(), 1);
    let (_, why): (_, serde_json::Value) = scene.get("/api/why/shop%20GET%20%2Fsearch%2F%2A");
    assert_eq!(
        (&why["kind"], &why["throttle"]),
        (&"class".into(), throttle)
    );
    let (_, why): (_, Why) = scene.get("/api/why/shop");
    let Why::Site(why) = why else {
        panic!("shop is a site");
    };
    let told = |reason: &String| reason.contains("throttled by an operator");
    assert!(why.reasons.iter().any(told), "{:?}", why.reasons);
    let metrics = scene.metrics(None);
    let waiting = "tidegate_throttle_waiting{class=\"shop GET /search/*\"} 0\n";
    assert!(metrics.contains(waiting));
    let wanted = json!({ "class": "shop GET /search/*" });
    assert_eq!(post(&scene, "/api/release", &wanted).0, StatusCode::OK);
    assert_eq!(
        post(&scene, "/api/release", &wanted).0,
        StatusCode::BAD_REQUEST
    );
}

#[test]
fn an_order_that_is_not_understood_changes_nothing() {
    let scene = Scene::new();
    let class = "GET /a";
    for wanted in [
        json!({}),
        json!({ "class": class }),
        json!({ "class": class, "limits": {} }),
        json!({ "class": class, "limits": { "concurency": 1 } }),
        json!({ "class": class, "limits": { "concurrency": -1 } }),
        json!({ "class": class, "limits": { "concurrency": 1, "queue_seconds": -1 } }),
        json!({ "class": class, "limits": { "concurrency": 1 }, "for_seconds": 0 }),
        json!({ "class": class, "limits": { "concurrency": 1 }, "for": 1 }),
        json!({ "class": "other GET /a", "limits": { "concurrency": 1 } }),
        json!({ "class": "nonsense", "limits": { "concurrency": 1 } }),
    ] {
        let (status, refusal) = post(&scene, "/api/throttle", &wanted);
        assert_eq!(status, StatusCode::BAD_REQUEST, "{wanted}");
        assert!(!refusal["error"].as_str().unwrap().is_empty());
    }
    let (_, listed): (_, serde_json::Value) = scene.get("/api/throttles");
    assert_eq!(listed["throttles"], json!([]));
    assert_eq!(
        scene.ask(false, &request(Method::GET, "/api/throttle")).0,
        StatusCode::METHOD_NOT_ALLOWED
    );
}

#[test]
fn what_is_not_there_or_not_allowed_is_said_in_json() {
    let scene = Scene::new();
    for (method, path, expected) in [
        (Method::GET, "/nothing", StatusCode::NOT_FOUND),
        (Method::GET, "/api", StatusCode::NOT_FOUND),
        (
            Method::POST,
            "/api/nodes/nobody/drain",
            StatusCode::NOT_FOUND,
        ),
        (Method::POST, "/api/nodes/n1/dance", StatusCode::NOT_FOUND),
        (
            Method::GET,
            "/api/nodes/n1/drain",
            StatusCode::METHOD_NOT_ALLOWED,
        ),
        (Method::POST, "/api/status", StatusCode::METHOD_NOT_ALLOWED),
        (
            Method::OPTIONS,
            "/api/status",
            StatusCode::METHOD_NOT_ALLOWED,
        ),
        (Method::GET, "/api/why/%00%0d%0a", StatusCode::NOT_FOUND),
        (
            Method::GET,
            "/api/history?site=nobody",
            StatusCode::NOT_FOUND,
        ),
        (
            Method::GET,
            "/api/requests?site=nobody",
            StatusCode::NOT_FOUND,
        ),
        (
            Method::GET,
            "/api/requests?node=nobody",
            StatusCode::NOT_FOUND,
        ),
    ] {
        let (status, headers, body) = scene.ask(false, &request(method.clone(), path));
        assert_eq!(status, expected, "{method} {path}");
        assert!(!headers.contains_key("access-control-allow-origin"));
        let refusal: ApiError = serde_json::from_slice(&body).unwrap();
        assert!(!refusal.error.is_empty());
    }
}

#[test]
fn a_page_elsewhere_can_neither_read_nor_override() {
    let scene = Scene::new();
    let ask = |method: Method, path: &str, host: &str| {
        let bare = Request::builder().method(method).uri(path);
        let bare = bare.header("host", host).body(Bytes::new()).unwrap();
        scene.ask(false, &bare).0
    };
    for host in [
        "127.0.0.1:9900",
        "localhost:9900",
        "[::1]:9900",
        "LOCALHOST",
    ] {
        assert_eq!(
            ask(Method::GET, "/api/status", host),
            StatusCode::OK,
            "{host}"
        );
    }
    for host in [
        "evil.example",
        "evil.example:9900",
        "localhost.evil.example",
        "",
        "127.0.0.1.evil",
    ] {
        assert_eq!(
            ask(Method::GET, "/api/status", host),
            StatusCode::FORBIDDEN,
            "{host}"
        );
    }
    let order = ask(Method::POST, "/api/nodes/n1/drain", "127.0.0.1:9900");
    assert_eq!(order, StatusCode::FORBIDDEN);
}

#[test]
fn with_a_token_only_its_bearer_is_answered() {
    let scene = Scene::new();
    let ask = |method: Method, path: &str, token: Option<&str>| {
        let bare = Request::builder().method(method).uri(path);
        let bare = bare.header("host", "admin.example:9900");
        let bare = match token {
            Some(token) => bare.header("authorization", format!("Bearer {token}")),
            None => bare,
        };
        scene.ask(true, &bare.body(Bytes::new()).unwrap()).0
    };
    for open in ["/", "/culprits", "/livez", "/readyz"] {
        assert_eq!(ask(Method::GET, open, None), StatusCode::OK);
    }
    for path in ["/api/status", "/metrics", "/api/why/n1", "/nothing"] {
        assert_eq!(ask(Method::GET, path, None), StatusCode::UNAUTHORIZED);
        assert_eq!(
            ask(Method::GET, path, Some("wrong")),
            StatusCode::UNAUTHORIZED
        );
    }
    assert_eq!(ask(Method::GET, "/api/status", Some(TOKEN)), StatusCode::OK);
    let order = "/api/nodes/n1/drain";
    assert_eq!(ask(Method::POST, order, None), StatusCode::UNAUTHORIZED);
    assert_eq!(ask(Method::POST, order, Some(TOKEN)), StatusCode::OK);
}

/// Names and labels are what dashboards and alerts rely on.
#[test]
fn metrics_are_as_expected() {
    let scene = Scene::new();
    let used = Counters {
        at: testing::now(),
        generation: 1,
        cores: 2.0,
        busy_ns: Some(2_500_000_000),
        fine: true,
        disk_ns: None,
        network: None,
        context_switches: None,
    };
    (scene.plane.shared.table).store_counters(NodeId(0), &used);
    let text = scene.metrics(Some("application/openmetrics-text; version=1.0.0"));
    let mut lines = Vec::new();
    for line in text.lines() {
        // Values that run while the test does.
        let runs = [
            "tidegate_director_",
            "tidegate_topology_version ",
            "process_",
        ];
        let stable = match line.rsplit_once(' ') {
            Some((name, _)) if runs.iter().any(|run| line.starts_with(run)) => format!("{name} N"),
            _ => line.replace(env!("CARGO_PKG_VERSION"), "VERSION"),
        };
        lines.push(stable);
    }
    let found = lines.join("\n") + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/metrics.txt");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "UPDATE_EXPECT=1 rewrites it. Found:\n{found}"
    );
}

/// `promtool` reads Prometheus text and finds fault with names.
#[test]
fn promtool_has_nothing_to_say_about_the_metrics() {
    let scene = Scene::new();
    let wanted = json!({ "class": "GET /a", "limits": { "concurrency": 1 } });
    post(&scene, "/api/throttle", &wanted);
    let metrics = scene.metrics(None);
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]);
    let pipes = promtool.stdin(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut promtool) = pipes.spawn() else {
        println!("SKIPPED: promtool is not installed");
        return;
    };
    let mut input = promtool.stdin.take().unwrap();
    input.write_all(metrics.as_bytes()).unwrap();
    drop(input);
    let said = promtool.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success() && text.is_empty(), "{text}");
}

#[test]
fn every_field_is_documented() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let scene = Scene::new();
    let mut names = Vec::new();
    let wanted = json!({ "class": "GET /a", "limits": { "concurrency": 1 } });
    let (_, given) = post(&scene, "/api/throttle", &wanted);
    fields(&given, &mut names);
    let why_class = "/api/why/GET%20%2Fa";
    for path in [
        "/api/status",
        "/api/overview",
        "/api/events",
        "/api/access",
        "/api/requests",
        "/api/why/n1",
        "/api/why/shop",
        why_class,
        "/api/throttles",
    ] {
        let (_, answer): (_, serde_json::Value) = scene.get(path);
        fields(&answer, &mut names);
    }
    for name in names {
        assert!(
            docs.contains(&format!("`{name}`")),
            "docs/api.md lacks `{name}`"
        );
    }
}

fn fields(value: &serde_json::Value, names: &mut Vec<String>) {
    let members = value.as_object().into_iter().flatten();
    for (name, member) in members {
        names.push(name.clone());
        // The keys of these are counted things, not fields.
        if name != "responses" && name != "errors" && name != "rejected" {
            fields(member, names);
        }
    }
    let items = value.as_array().into_iter().flatten();
    items.for_each(|item| fields(item, names));
}

/// Waits until the first second of the past is known.
fn wait_for_history(address: std::net::SocketAddr) {
    let client = client(address);
    loop {
        let history: HistoryModel = client.get("/api/history?step=1&last=1").unwrap();
        if !history.sites.is_empty() {
            return;
        }
        std::thread::yield_now();
    }
}

fn client(address: std::net::SocketAddr) -> crate::client::Client {
    crate::client::Client {
        address,
        named_by: crate::client::NamedBy::Default,
        token: None,
        patience: crate::client::TIMEOUT,
    }
}

/// A server of the test cluster on a thread of its own, for as long as the test runs.
fn serve() -> (Driver, std::net::SocketAddr) {
    let (driver, plane) = testing::plane();
    let (told, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        testing::runtime().block_on(async move {
            let listener = server::bind(([127, 0, 0, 1], 0).into(), Ports::default()).unwrap();
            told.send(listener.local_addr().unwrap()).unwrap();
            server::serve(
                listener,
                move || Arc::clone(&plane),
                Access::default(),
                Output::QUIET,
                tokio::sync::mpsc::channel(1).0,
            )
            .await;
        });
    });
    (driver, address.recv().unwrap())
}

#[test]
fn the_command_lines_client_is_understood() {
    let (_driver, address) = serve();
    let client = client(address);
    let status: Status = client.get("/api/status").unwrap();
    assert_eq!(status.sites.len(), 2);
    let done: Overridden = client.post("/api/nodes/n2/drain").unwrap();
    assert_eq!(done.state, "drain");
    let refused = client.get::<Status>("/api/why/nobody").unwrap_err();
    assert_eq!(
        refused,
        "there is no site, node, throttled class or recent request `nobody`"
    );
}

#[test]
fn the_page_shows_a_row_for_each_node_in_a_browser() {
    if Command::new("chromium").arg("--version").output().is_err() {
        println!("SKIPPED: chromium is not installed");
        return;
    }
    let (_driver, address) = serve();
    wait_for_history(address);
    let profile = std::env::temp_dir().join(format!("tidegate-page-{}", std::process::id()));
    let output = Command::new("chromium")
        .args(browser::FLAGS)
        // The page's own timer runs on virtual time, which waits for the fetch.
        .args(["--virtual-time-budget=5000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("http://{address}/"))
        .output()
        .unwrap();
    std::fs::remove_dir_all(&profile).unwrap_or_default();
    let page = String::from_utf8_lossy(&output.stdout);
    for node in ["n1", "n2", "n3"] {
        assert!(
            page.contains(&format!("<tr data-node=\"{node}\"")),
            "{node} in:\n{page}"
        );
    }
    assert!(page.contains("2.0 ms") && page.contains("shop.example"));
    assert!(page.contains("id=\"notice\" role=\"alert\" hidden"));
    let worst = "<p id=\"worst\" class=\"good\">all is well: 2 sites, 3 nodes, no requests</p>";
    assert!(page.contains(worst), "{page}");
    // Whether a step of the past has ended by now depends on the clock.
    let waiting = [
        "waiting for room 0 none in 15 min",
        "waiting for room – none in 15 min",
    ];
    assert!(waiting.iter().any(|it| page.contains(it)), "{page}");
    assert!(page.contains("class=\"strip\""), "{page}");
    assert!(page.contains("No node moves between sites: [reconfigure] is off."));
}
