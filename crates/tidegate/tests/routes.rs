//! Routes of a site, as docs/routes.md has them: the example of that page is loaded, and every route of it is asked for.
#![expect(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod support;

use std::path::Path;

use support::mirror::Mirror;
use support::{FrontEnd, Response, folder, request, tidegate};

/// The example of the page, before this server.
fn example(folder: &Path, mirror: &Mirror) -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/routes.md");
    let page = std::fs::read_to_string(page).unwrap();
    let example = page.split("```toml\n").nth(1).unwrap();
    let example = example.split("```").next().unwrap();
    let listener = "[[listener]]\naddress = \"127.0.0.1:8080\"\n";
    assert!(example.contains(listener));
    std::fs::write(folder.join("maintenance.html"), "<p>Back soon.\n").unwrap();
    let example = example.replace(listener, "");
    example.replace("127.0.0.1:8081", &mirror.address.to_string())
}

struct Scene {
    mirror: Mirror,
    front_end: FrontEnd,
    file: std::path::PathBuf,
}

impl Scene {
    fn start(name: &str) -> Self {
        let folder = folder(name);
        let mirror = Mirror::start();
        let text = example(&folder, &mirror);
        Self {
            front_end: FrontEnd::start(&folder, &text),
            file: folder.join("tidegate.toml"),
            mirror,
        }
    }

    fn ask(&self, head: &str) -> Response {
        let (line, more) = head.split_once('\n').unwrap_or((head, ""));
        let host = match more.to_ascii_lowercase().contains("host:") {
            true => "",
            false => "Host: shop.example\r\n",
        };
        let more = more.replace('\n', "\r\n");
        let text = format!("{line} HTTP/1.1\r\n{host}{more}Connection: close\r\n\r\n");
        request(self.front_end.address, &text).unwrap()
    }
}

/// The value of a field of an answer's head.
fn field<'a>(answer: &'a Response, name: &str) -> Option<&'a str> {
    let lines = answer.head.lines();
    let mut fields = lines.filter_map(|line| line.split_once(": "));
    fields
        .find(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}

#[test]
fn redirects_and_answers_reach_no_node() {
    let scene = Scene::start("routes-answers");
    for (asked, status, location) in [
        (
            "GET /a?q=1\nHost: WWW.shop.example:80\n",
            308,
            Some("https://shop.example/a?q=1"),
        ),
        (
            "GET //evil.example\nHost: www.shop.example\n",
            308,
            Some("https://shop.example//evil.example"),
        ),
        ("GET /old/x/y", 301, Some("/archive/x/y")),
        ("GET /old", 301, Some("/archive")),
        ("GET /admin", 403, None),
        ("GET /x/../admin/users", 403, None),
        ("GET //admin", 403, None),
        ("GET /%61dmin/", 403, None),
        ("GET /x%2F..%2Fadmin", 403, None),
        ("POST /admin\nContent-Length: 0\n", 403, None),
        ("GET /api/v1/items", 410, None),
        ("GET /api/v0", 410, None),
        ("GET /checkout/pay", 503, None),
    ] {
        let answer = scene.ask(asked);
        assert_eq!(answer.status, status, "{asked}");
        assert_eq!(field(&answer, "location"), location, "{asked}");
        assert_eq!(field(&answer, "x-tidegate-reason"), None, "{asked}");
    }
    let page = scene.ask("GET /checkout");
    assert_eq!(page.body, "<p>Back soon.\n");
    assert_eq!(field(&page, "retry-after"), Some("600"));
    assert_eq!(
        field(&page, "content-type"),
        Some("text/html; charset=utf-8")
    );
    let head = scene.ask("HEAD /checkout");
    assert_eq!((head.status, &*head.body), (503, ""));
    assert_eq!(scene.mirror.requests(), 0);
    let status = scene.front_end.api("/api/status");
    assert_eq!(status["requests"]["completed"], 15);
    assert_eq!(status["requests"]["failed"], 0);
    assert_eq!(status["requests"]["in_flight"], 0);
}

#[test]
fn a_node_gets_the_path_and_the_head_of_the_route() {
    let scene = Scene::start("routes-forward");
    for (asked, line) in [
        ("GET /api/v2/items?id=7", "GET /service/items?id=7 HTTP/1.1"),
        ("GET /api/v2", "GET /service HTTP/1.1"),
        (
            "GET /api/v2/../v2/../../api/v2/x",
            "GET /service/x HTTP/1.1",
        ),
        (
            "GET /api/v2/%2e%2e/%2E%2e/api/v2/a%20b%3F",
            "GET /service/a%20b%3F HTTP/1.1",
        ),
        (
            "PUT /api/v2/items\nContent-Length: 0\n",
            "PUT /api/v2/items HTTP/1.1",
        ),
        (
            "GET /other/../x//y?a=%2f",
            "GET /other/../x//y?a=%2f HTTP/1.1",
        ),
    ] {
        let answer = scene.ask(asked);
        assert_eq!(answer.status, 200, "{asked}: {}", answer.head);
        assert_eq!(answer.body.lines().next(), Some(line), "{asked}");
    }
    let answer = scene.ask("GET /api/v2/x\nCookie: a=1\nX-Version: 9\nX-Version: 8\n");
    let got = answer.body.to_ascii_lowercase();
    assert_eq!(got.matches("x-version: 2\r\n").count(), 1, "{got}");
    assert!(
        !got.contains("x-version: 9") && !got.contains("cookie"),
        "{got}"
    );
    assert_eq!(field(&answer, "server"), None);
    assert_eq!(field(&answer, "cache-control"), Some("no-store"));
    let other = scene.ask("GET /else\nCookie: a=1\n");
    assert!(other.body.to_ascii_lowercase().contains("cookie: a=1"));
    assert_eq!(field(&other, "server"), Some("mirror"));
    let team = "X-Team: shop\n";
    for (asked, is_preview) in [
        (format!("GET /p?preview\n{team}"), true),
        (format!("GET /p?a&%70review=1\n{team}"), true),
        (format!("GET /p\n{team}"), false),
        ("GET /p?preview\nX-Team: other\n".to_owned(), false),
    ] {
        let answer = scene.ask(&asked);
        assert_eq!(answer.body.contains("x-preview: 1"), is_preview, "{asked}");
    }
}

#[test]
fn a_body_that_is_not_read_and_a_request_behind_an_answer_are_in_order() {
    let scene = Scene::start("routes-bodies");
    let long = "x".repeat(200_000);
    let posted = format!(
        "POST /admin HTTP/1.1\r\nHost: shop.example\r\nContent-Length: {}\r\n\r\n{long}",
        long.len()
    );
    let answer = request(scene.front_end.address, &posted).unwrap();
    assert_eq!(answer.status, 403);
    let pipelined = "GET /admin HTTP/1.1\r\nHost: shop.example\r\n\r\n\
                     GET /old/a HTTP/1.1\r\nHost: shop.example\r\n\r\n\
                     GET /else HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n";
    let answers = request(scene.front_end.address, pipelined).unwrap();
    let all = format!("{}\r\n\r\n{}", answers.head, answers.body);
    let statuses: Vec<_> = all
        .lines()
        .filter_map(|line| line.strip_prefix("HTTP/1.1 "))
        .map(|line| &line[..3])
        .collect();
    assert_eq!(statuses, ["403", "301", "200"], "{all}");
    let tunnel = "GET /admin HTTP/1.1\r\nHost: shop.example\r\nConnection: upgrade, close\r\nUpgrade: websocket\r\n\r\n";
    assert_eq!(
        request(scene.front_end.address, tunnel).unwrap().status,
        403
    );
}

#[test]
fn routes_follow_a_reload() {
    let scene = Scene::start("routes-reload");
    assert_eq!(scene.ask("GET /admin").status, 403);
    let reload = |from: &str, to: &str| {
        let text = std::fs::read_to_string(&scene.file).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(&scene.file, text.replace(from, to)).unwrap();
        let admin = scene.front_end.admin.to_string();
        let output = tidegate()
            .args(["reload", "--admin", &admin])
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        String::from_utf8(said).unwrap()
    };
    let said = reload(
        "path = \"/admin/*\"\nstatus = 403",
        "path = \"/admin/*\"\nstatus = 404",
    );
    assert!(said.contains("in force"), "{said}");
    support::eventually("the route has another status", || {
        (scene.ask("GET /admin").status == 404).then_some(())
    });
    let page = scene.file.with_file_name("maintenance.html");
    std::fs::write(page, "<p>Tomorrow.\n").unwrap();
    let said = reload("status = 410", "status = 410");
    assert!(said.contains("site shop has other bodies"), "{said}");
    support::eventually("the route has another body", || {
        (scene.ask("GET /checkout").body == "<p>Tomorrow.\n").then_some(())
    });
    let said = reload("path = \"/admin/*\"", "path = \"admin/*\"");
    assert!(said.contains("a path begins with `/`"), "{said}");
    assert_eq!(scene.ask("GET /admin").status, 404);
}

#[test]
fn sites_and_throttles_take_every_spelling_of_a_path() {
    let folder = folder("routes-spellings");
    let text = format!(
        "[[site]]\nname = \"shop\"\n[[site]]\nname = \"admin\"\npaths = [\"/admin\"]\n\
         [[node]]\nname = \"n1\"\naddress = \"{}\"\nsite = \"shop\"\n\
         [[node]]\nname = \"n2\"\naddress = \"{}\"\nsite = \"admin\"\n\
         [[throttle]]\nclass = \"shop GET /search/*\"\nconcurrency = 2\n",
        support::server::server("shop"),
        support::server::server("admin")
    );
    let front_end = FrontEnd::start(&folder, &text);
    for path in [
        "/admin/x",
        "/%61dmin/x",
        "//admin/x",
        "/a/../admin",
        "/./admin",
    ] {
        assert_eq!(front_end.get("a.example", path).body, "admin", "{path}");
    }
    let searches = ["/search/a", "/sea%72ch/a", "//search/a?b", "/x/../search/a"];
    for path in searches {
        assert_eq!(front_end.get("a.example", path).body, "shop", "{path}");
    }
    let counted = front_end.metric("tidegate_throttle_requests_total{");
    assert_eq!(counted, Some(searches.len() as f64));
}
