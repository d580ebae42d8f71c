//! The fields of JSON lines that an operator has chosen: real processes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::mirror::Mirror;
use support::{FrontEnd, eventually, folder, free_address, http2, request, tidegate};

/// A front-end whose log is a file.
struct Scene {
    folder: PathBuf,
    front_end: FrontEnd,
}

/// The same table with another list of fields, and the log in a file.
fn with_fields(fields: &str, folder: &Path, node: std::net::SocketAddr) -> String {
    format!(
        "[log]\naccess = \"json\"\nfile = \"{}\"\n{fields}\n[forwarded]\nnode_header = true\n\
         [[site]]\nname = \"shop\"\nhosts = [\"shop.example\"]\n\
         [[node]]\nname = \"n1\"\naddress = \"{node}\"\nsite = \"shop\"\n",
        folder.join("access.log").display()
    )
}

impl Scene {
    /// The lines, once there are so many.
    fn lines(&self, count: usize) -> Vec<String> {
        eventually("the lines are there", || {
            let text = std::fs::read_to_string(self.folder.join("access.log")).ok()?;
            let lines: Vec<_> = text.lines().map(str::to_owned).collect();
            (lines.len() >= count).then_some(lines)
        })
    }

    fn ask(&self, host: &str, fields: &str) -> support::Response {
        let text = format!(
            "GET /cart?item=1 HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n"
        );
        request(self.front_end.address, &text).unwrap()
    }
}

fn object(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

#[test]
fn a_line_has_what_is_chosen_of_request_and_answer_and_a_reload_changes_it() {
    let folder = folder("log-fields");
    let mirror = Mirror::start();
    let chosen = "fields = [\"status\", { by = \"response.header.server\", node = \"response.header.x-tidegate-node\" }, \
                  { \"why\" = \"response.header.x-tidegate-reason\" }, \"path\", { cookie = \"request.header.cookie\" }, \
                  { agent = \"request.header.user-agent\" }]";
    let text = with_fields(chosen, &folder, mirror.address);
    let mut scene = Scene {
        front_end: FrontEnd::start(&folder, &text),
        folder,
    };
    scene.ask(
        "shop.example",
        "Cookie: a=\"b\\c\"\r\nUser-Agent: x\r\nAccept: y\r\n",
    );
    let first = "{\"status\":200,\"by\":\"mirror\",\"node\":\"n1\",\"path\":\"/cart?item=1\",\
                 \"cookie\":\"a=\\\"b\\\\c\\\"\",\"agent\":\"x\"}";
    assert_eq!(scene.lines(1)[0], first);
    scene.ask("other.example", "");
    assert_eq!(
        scene.lines(2)[1],
        "{\"status\":404,\"why\":\"no_site\",\"path\":\"/cart?item=1\"}"
    );
    // The same of a stream of HTTP/2.
    let front_end = scene.front_end.address;
    http2::run(async {
        let mut connection = http2::Connection::open(front_end).await;
        assert_eq!(connection.get("/two").await.status, 200);
    });
    assert_eq!(object(&scene.lines(3)[2])["path"], "/two");
    // Other fields, from the next request on.
    let file = scene.folder.join("tidegate.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(
        &file,
        text.replace(chosen, "fields = [{ code = \"status\" }]"),
    )
    .unwrap();
    let mut reload = tidegate();
    reload.args(["reload", "-c"]).arg(&file);
    let reloaded = reload.output().unwrap();
    assert!(reloaded.status.success(), "{reloaded:?}");
    eventually("a line has other fields", || {
        let before = scene.lines(3).len();
        scene.ask("shop.example", "");
        (scene.lines(before + 1)[before] == "{\"code\":200}").then_some(())
    });
    scene.front_end.process.signal("TERM");
    assert_eq!(scene.front_end.process.wait(), Some(0));
}

/// What the example says is what a log store gets.
#[test]
fn the_example_logs_by_the_names_of_a_store() {
    let folder = folder("log-fields-example");
    let mirror = Mirror::start();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/log-fields.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let text = text
        .replace("127.0.0.1:8081", &mirror.address.to_string())
        .replace("0.0.0.0:8080", &free_address().to_string())
        .replace(
            "access = \"json\"",
            "access = \"json\"\nfile = \"access.log\"",
        );
    let scene = Scene {
        front_end: FrontEnd::start(&folder, &text),
        folder,
    };
    scene.ask("any", "User-Agent: curl/8\r\n");
    let line = object(&scene.lines(1)[0]);
    let wanted = [
        ("client.address", json!("127.0.0.1")),
        ("http.request.method", json!("GET")),
        ("url.original", json!("/cart?item=1")),
        ("http.response.status_code", json!(200)),
        ("user_agent.original", json!("curl/8")),
        ("site", json!("shop")),
        ("node", json!("shop1")),
    ];
    for (name, value) in wanted {
        assert_eq!(line[name], value, "{line}");
    }
    assert!(
        line["@timestamp"].is_string() && line["duration_us"].is_u64(),
        "{line}"
    );
    assert_eq!(line.get("http.response.mime_type"), None);
}

#[test]
fn check_notes_a_field_that_lets_its_bearer_in() {
    let folder = folder("log-fields-notes");
    let (address, node) = (free_address(), "127.0.0.1:1".parse().unwrap());
    let listener = format!("[[listener]]\naddress = \"{address}\"\n");
    let said = |text: &str| {
        let file = folder.join("check.toml");
        std::fs::write(&file, format!("{text}\n{listener}")).unwrap();
        let checked = tidegate().arg("check").arg(&file).output().unwrap();
        assert!(checked.status.success(), "{checked:?}");
        String::from_utf8(checked.stdout).unwrap()
    };
    let of = |fields: &str| said(&with_fields(fields, &folder, node));
    let secret = of("fields = [{ who = \"request.header.Authorization\" }]");
    assert!(
        secret.contains("`request.header.Authorization` writes what lets its bearer in"),
        "{secret}"
    );
    let plain = of("fields = [\"path\", \"request.header.accept\"]");
    assert!(!plain.contains("[log]"), "{plain}");
    let off = with_fields("fields = [\"path\"]", &folder, node).replace("access = \"json\"", "");
    let off = said(&off);
    assert!(
        off.contains("`fields` are chosen, and nothing is logged"),
        "{off}"
    );
}
