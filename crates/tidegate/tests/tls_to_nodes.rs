//! TLS towards nodes: which of their certificates are believed, sessions, tunnels, time-outs, checks, reloads.

#![allow(clippy::unwrap_used, reason = "test code")]
#![allow(clippy::print_stdout, reason = "a test that cannot run says why")]

mod support;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use support::scene::Scene;
use support::tls::{Authority, Pair};
use support::tls_server::Server;
use support::{
    FrontEnd, Nginx, PATIENCE, Process, Response, eventually, folder, free_address, is_installed,
    nginx, request,
};
use tokio_rustls::rustls::version;

/// The name in the nodes' certificates.
const NAME: &str = "web.internal";

/// A site of these nodes, by the host `NAME.example`, with this rule.
fn site(name: &str, rule: &str, nodes: &[SocketAddr]) -> String {
    let mut text = format!(
        "[[site]]\nname = \"{name}\"\nhosts = [\"{name}.example\"]\npolicy = \"round_robin\"\nnode_tls = {{ {rule} }}\n"
    );
    for (number, address) in nodes.iter().enumerate() {
        text.push_str(&format!(
            "[[node]]\nname = \"{name}-{number}\"\naddress = \"{address}\"\nsite = \"{name}\"\n"
        ));
    }
    text
}

/// One worker has one pool.
const ONE_WORKER: &str = "[limits]\nworkers = 1\n";

fn scene(name: &str, configuration: &str) -> Scene {
    let folder = folder(name);
    let configuration = format!("{ONE_WORKER}{configuration}");
    let front_end = FrontEnd::start(&folder, &configuration);
    Scene { folder, front_end }
}

/// The folder of the certificates is not the front-end's, which begins empty.
fn certificates(name: &str) -> Option<Authority> {
    Authority::new(&folder(&format!("{name}-certificates")))
}

/// Certificates of this authority with the name are believed.
fn by(authority: &Authority) -> String {
    let file = authority.file();
    format!(
        "authorities = \"{}\", server_name = \"{NAME}\"",
        file.display()
    )
}

/// The pin of a certificate's key, as openssl makes it.
fn pin(pair: &Pair) -> String {
    let made = Command::new("sh")
        .arg("-c")
        .arg(
            "openssl x509 -in \"$0\" -noout -pubkey | openssl pkey -pubin -outform DER \
             | openssl dgst -sha256 -binary | openssl base64",
        )
        .arg(&pair.certificate)
        .output()
        .unwrap();
    let text = String::from_utf8(made.stdout).unwrap();
    format!("sha256/{}", text.trim())
}

#[track_caller]
fn served(answer: &Response, body: &str) {
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (200, body),
        "{answer:?}"
    );
}

#[track_caller]
fn refused(answer: &Response, reason: &str) {
    let field = format!("x-tidegate-reason: {reason}");
    let found = answer.head.lines().any(|line| line == field);
    assert!(found, "{reason}: {answer:?}");
}

fn unserved(scene: &Scene, reason: &str) -> f64 {
    let start =
        format!("tidegate_requests_unserved_total{{ending=\"failed\",reason=\"{reason}\"}}");
    scene.front_end.metric(&start).unwrap()
}

#[test]
fn nodes_are_asked_through_tls_on_connections_that_are_kept_and_sessions_are_resumed() {
    let Some(authority) = certificates("to-nodes") else {
        return;
    };
    let pair = authority.issue("node", &[NAME]);
    for (name, versions) in [
        ("to-nodes-1.3", [&version::TLS13]),
        ("to-nodes-1.2", [&version::TLS12]),
    ] {
        let node = Server::speaking(&versions, "a", &pair);
        let scene = scene(name, &site("shop", &by(&authority), &[node.address]));
        for _ in 0..5 {
            served(&scene.front_end.get("shop.example", "/"), "a");
        }
        assert_eq!((node.connections(), node.resumed()), (1, 0));
        let head = node.heads().pop().unwrap();
        // What nodes learn is how the client came.
        assert!(head.contains("x-forwarded-proto: http\r\n"), "{head}");
        assert!(head.contains("host: shop.example\r\n"), "{head}");
        served(&scene.front_end.get("shop.example", "/close"), "a");
        served(&scene.front_end.get("shop.example", "/"), "a");
        assert_eq!((node.connections(), node.resumed()), (2, 1));
        assert_eq!(scene.front_end.metric("tidegate_retries_total"), Some(0.0));
    }
}

/// A server of plain HTTP, which understands nothing else.
fn plain() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut asked) = (stream.unwrap(), [0; 4096]);
            if stream.read(&mut asked).is_ok() {
                let answer = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
                stream.write_all(answer.as_bytes()).ok();
            }
        }
    });
    address
}

#[test]
fn a_node_whose_certificate_is_not_believed_is_asked_nothing_and_the_reason_is_said() {
    let Some(authority) = certificates("to-nodes-refused") else {
        return;
    };
    let other = folder("to-nodes-refused-other");
    let other = Authority::named(&other, "other").unwrap();
    let of = |pair: &Pair| Server::start("a", pair);
    let good = authority.issue("good", &[NAME]);
    let both = other.issue("both", &[NAME]);
    let pinned = |pair: &Pair| format!("{}, pins = [\"{}\"]", by(&authority), pin(pair));
    let cases = [
        (
            "name",
            of(&authority.issue("name", &["db.internal"])),
            by(&authority),
            "node_certificate_name",
        ),
        (
            "expired",
            of(&authority.issue_for("expired", &[NAME], -1)),
            by(&authority),
            "node_certificate_expired",
        ),
        (
            "unknown",
            of(&other.issue("unknown", &[NAME])),
            by(&authority),
            "node_certificate",
        ),
        (
            "pin",
            of(&good),
            pinned(&authority.issue("pin", &[NAME])),
            "node_pin",
        ),
        // A pin alone is not enough where there are authorities.
        ("both", of(&both), pinned(&both), "node_certificate"),
    ];
    let mut text: String = cases
        .iter()
        .map(|(name, node, rule, _)| site(name, rule, &[node.address]))
        .collect();
    text.push_str(&site("good", &pinned(&good), &[of(&good).address]));
    // It speaks plain HTTP.
    text.push_str(&site("plain", &by(&authority), &[plain()]));
    let scene = scene("to-nodes-refused", &text);
    for (name, node, _, reason) in &cases {
        let answer = scene.front_end.get(&format!("{name}.example"), "/");
        assert_eq!(answer.status, 502, "{name}: {answer:?}");
        refused(&answer, reason);
        assert_eq!(node.heads(), Vec::<String>::new(), "{name}");
        let why = scene.front_end.api(&format!("/api/why/{name}-0"));
        assert!(why.to_string().contains(reason), "{why}");
    }
    assert_eq!(unserved(&scene, "node_certificate"), 2.0);
    assert_eq!(unserved(&scene, "node_pin"), 1.0);
    let plain = scene.front_end.get("plain.example", "/");
    refused(&plain, "node_tls");
    served(&scene.front_end.get("good.example", "/"), "a");
}

#[test]
fn a_pin_alone_is_enough_and_neither_name_nor_dates_are_looked_at() {
    let Some(authority) = certificates("to-nodes-pin") else {
        return;
    };
    let pair = authority.issue_for("old", &["other.internal"], -1);
    let node = Server::start("a", &pair);
    let rule = format!("pins = [\"{}\"]", pin(&pair));
    let any = "dangerously_trust_any_certificate = true";
    let text = site("pin", &rule, &[node.address]) + &site("any", any, &[node.address]);
    let scene = scene("to-nodes-pin", &text);
    served(&scene.front_end.get("pin.example", "/"), "a");
    served(&scene.front_end.get("any.example", "/"), "a");
    let note = "site any believes any certificate of its nodes";
    assert!(scene.log().contains(note), "{}", scene.log());
}

/// `openssl s_server` that asks for a certificate of this authority, and speaks one version.
fn s_server(authority: &Authority, pair: &Pair, version: &str) -> (Process, SocketAddr) {
    let address = free_address();
    let mut command = Command::new("openssl");
    command
        .args(["s_server", "-www", "-quiet", version, "-Verify", "1"])
        .args(["-verify_return_error", "-accept", &address.to_string()])
        .arg("-cert")
        .arg(&pair.certificate)
        .arg("-key")
        .arg(&pair.key)
        .arg("-CAfile")
        .arg(authority.file())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let process = Process::start(&mut command);
    eventually("openssl listens", || TcpStream::connect(address).ok());
    (process, address)
}

#[test]
fn nodes_that_ask_for_a_certificate_are_shown_one() {
    let Some(authority) = certificates("to-nodes-own") else {
        return;
    };
    let pair = authority.issue("node", &[NAME]);
    // Without names it is a client's.
    let own = authority.issue("front-end", &[]);
    let (_new, at_new) = s_server(&authority, &pair, "-tls1_3");
    let (_old, at_old) = s_server(&authority, &pair, "-tls1_2");
    let with = format!("{}, {}", by(&authority), own.keys());
    let text = [
        site("new", &with, &[at_new]),
        site("old", &with, &[at_old]),
        site("bare-new", &by(&authority), &[at_new]),
        site("bare-old", &by(&authority), &[at_old]),
    ];
    let scene = scene("to-nodes-own", &text.concat());
    for host in ["new.example", "old.example"] {
        let answer = scene.front_end.get(host, "/");
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.body.contains("s_server"), "{answer:?}");
    }
    refused(&scene.front_end.get("bare-old.example", "/"), "node_tls");
    // By TLS 1.3 the node says so behind the handshake, and its reset may overtake that.
    let answer = scene.front_end.get("bare-new.example", "/");
    assert_eq!(answer.status, 502, "{answer:?}");
    let reason = ["node_tls", "reset"].map(|it| format!("x-tidegate-reason: {it}"));
    assert!(
        reason.iter().any(|it| answer.head.contains(it)),
        "{answer:?}"
    );
}

#[test]
fn nginx_is_asked_through_tls_and_checked_through_it() {
    let Some(authority) = certificates("to-nodes-nginx") else {
        return;
    };
    if nginx().is_none() {
        println!("SKIPPED: nginx is not installed");
        return;
    }
    let pair = authority.issue("node", &[NAME]);
    let (certificate, key) = (pair.certificate.display(), pair.key.display());
    let server = format!(
        "ssl_certificate {certificate}; ssl_certificate_key {key};\n\
         location / {{ return 200 \"$ssl_server_name $scheme $http_x_forwarded_proto\"; }}"
    );
    let home = folder("to-nodes-nginx-home");
    let node = Nginx::start_with(&home, "n1", ["ssl", &server]);
    let check = "check = { path = \"/healthz\", interval = \"100ms\" }\n[[node]]";
    let text = site("shop", &by(&authority), &[node.address]).replace("[[node]]", check);
    let scene = scene("to-nodes-nginx", &text);
    for _ in 0..3 {
        let answer = scene.front_end.get("shop.example", "/");
        served(&answer, &format!("{NAME} https http"));
    }
    checked(&scene, "shop", |check| check["passed"].as_u64() > Some(1));
}

/// Waits until the only check of a site's first node is as wanted.
#[track_caller]
fn checked(scene: &Scene, site: &str, wanted: impl Fn(&Value) -> bool) {
    eventually(&format!("the check of {site}"), || {
        let status = scene.front_end.api("/api/status");
        let sites = status["sites"].as_array().unwrap();
        let found = sites.iter().find(|it| it["name"] == site).unwrap();
        wanted(&found["nodes"][0]["checks"][0]).then_some(())
    });
}

#[test]
fn checks_speak_tls_where_nodes_do_and_say_why_there_is_none() {
    let Some(authority) = certificates("to-nodes-checks") else {
        return;
    };
    let other = Authority::named(&folder("to-nodes-checks-other"), "other").unwrap();
    let node = Server::start("a", &authority.issue("node", &[NAME]));
    let unknown = Server::start("b", &other.issue("node", &[NAME]));
    let with = |name: &str, node: &Server, check: &str| {
        let check = format!("check = {{ interval = \"100ms\", fall = 2, {check} }}\n[[node]]");
        site(name, &by(&authority), &[node.address]).replacen("[[node]]", &check, 1)
    };
    let port = node.address.port();
    let text = [
        with("http", &node, "path = \"/well\", body = \"a\""),
        with(
            "tcp",
            &node,
            r#"kind = "tcp", send = "GET /tcp HTTP/1.1\r\n\r\n", expect = "200 OK""#,
        ),
        with(
            "port",
            &node,
            &format!("path = \"/port\", port = {port}, tls = true"),
        ),
        // In the clear there is nothing for it.
        with("clear", &node, "tls = false"),
        with("unknown", &unknown, "path = \"/unknown\""),
    ];
    let scene = scene("to-nodes-checks", &text.concat());
    for site in ["http", "tcp", "port"] {
        checked(&scene, site, |check| {
            check["failing"] == false && check["passed"].as_u64() > Some(1)
        });
    }
    checked(&scene, "clear", |check| check["failing"] == true);
    checked(&scene, "unknown", |check| {
        let why = "there was no TLS: its certificate is of no authority that is believed";
        check["failing"] == true && check["error"] == why
    });
    let metric = "tidegate_node_checks_total{site=\"unknown\",node=\"unknown-0\",check=\"http\",result=\"tls\"}";
    // The first check may have met a busy machine, and not the certificate.
    eventually("two checks found no TLS", || {
        (scene.front_end.metric(metric) >= Some(2.0)).then_some(())
    });
    assert_eq!(unknown.heads(), Vec::<String>::new());
    let heads = node.heads();
    for path in ["/well", "/tcp", "/port"] {
        assert!(heads.iter().any(|it| it.contains(path)), "{path}");
    }
}

/// Accepts and says nothing; ends with the test's process.
fn silent() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let kept: Vec<_> = listener.incoming().collect();
        drop(kept);
    });
    address
}

#[test]
fn a_handshake_that_stands_still_ends_with_the_time_to_connect_and_another_node_is_tried() {
    let Some(authority) = certificates("to-nodes-slow") else {
        return;
    };
    let node = Server::start("a", &authority.issue("node", &[NAME]));
    let text = [
        "[timeouts]\nconnect = \"500ms\"\n".to_owned(),
        site("both", &by(&authority), &[silent(), node.address]),
        site("alone", &by(&authority), &[silent()]),
    ];
    let scene = scene("to-nodes-slow", &text.concat());
    for _ in 0..2 {
        served(&scene.front_end.get("both.example", "/"), "a");
    }
    assert!(scene.front_end.metric("tidegate_retries_total") >= Some(1.0));
    let answer = scene.front_end.get("alone.example", "/");
    assert_eq!(answer.status, 504, "{answer:?}");
    refused(&answer, "connect_timeout");
}

#[test]
fn a_tunnel_goes_through_tls_to_the_node() {
    let Some(authority) = certificates("to-nodes-tunnel") else {
        return;
    };
    let node = Server::start("a", &authority.issue("node", &[NAME]));
    let scene = scene(
        "to-nodes-tunnel",
        &site("shop", &by(&authority), &[node.address]),
    );
    let mut client = TcpStream::connect(scene.front_end.address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let asked = "GET / HTTP/1.1\r\nhost: shop.example\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
    client.write_all(asked.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{head:?}");
    // More than one record, and than one buffer.
    let sent: Vec<u8> = (0..100_000_u32).map(|it| it as u8).collect();
    let mut writer = client.try_clone().unwrap();
    let writing = std::thread::spawn({
        let sent = sent.clone();
        move || {
            writer.write_all(&sent).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        }
    });
    let mut echoed = Vec::new();
    client.read_to_end(&mut echoed).unwrap();
    writing.join().unwrap();
    assert!(echoed == sent, "{} bytes came back", echoed.len());
}

#[test]
fn a_body_that_ends_with_the_connection_needs_the_end_of_tls() {
    let Some(authority) = certificates("to-nodes-end") else {
        return;
    };
    let node = Server::start("a", &authority.issue("node", &[NAME]));
    let text = site("shop", &by(&authority), &[node.address]);
    let scene = scene("to-nodes-end", &text);
    served(&scene.front_end.get("shop.example", "/until-end"), "a");
    assert_eq!(unserved(&scene, "response_broken"), 0.0);
    let asked = "GET /cut HTTP/1.1\r\nhost: shop.example\r\nconnection: close\r\n\r\n";
    // However much of it has come, the last chunk has not.
    let cut = request(scene.front_end.address, asked);
    eventually("it is broken", || {
        (unserved(&scene, "response_broken") == 1.0).then_some(())
    });
    drop(cut);
}

#[test]
fn a_reload_reads_the_files_again_and_what_was_believed_before_serves_no_more() {
    let Some(authority) = certificates("to-nodes-reload") else {
        return;
    };
    let other = Authority::named(&folder("to-nodes-reload-other"), "other").unwrap();
    let node = Server::start("a", &authority.issue("node", &[NAME]));
    let believed = folder("to-nodes-reload-files").join("ca.pem");
    std::fs::copy(authority.file(), &believed).unwrap();
    let rule = format!(
        "authorities = \"{}\", server_name = \"{NAME}\"",
        believed.display()
    );
    let text = format!("{ONE_WORKER}{}", site("shop", &rule, &[node.address]));
    let scene = scene("to-nodes-reload", &text[ONE_WORKER.len()..]);
    let get = || scene.front_end.get("shop.example", "/");
    served(&get(), "a");
    // The same files: the connection goes on.
    scene.reload(&[]);
    served(&get(), "a");
    assert_eq!(node.connections(), 1);
    // A bad file changes nothing.
    std::fs::write(&believed, "no certificate").unwrap();
    let refused_by = scene.command(&["reload"]);
    let said = String::from_utf8(refused_by.stderr).unwrap();
    assert!(!refused_by.status.success(), "{said}");
    assert!(said.contains("there is no certificate in it"), "{said}");
    served(&get(), "a");
    assert_eq!(node.connections(), 1);
    // Another authority: no session and no connection of before serves.
    std::fs::copy(other.file(), &believed).unwrap();
    let said = scene.reload(&[]);
    assert!(said.contains("site shop believes other"), "{said}");
    eventually("the node is not believed", || {
        (get().status == 502).then_some(())
    });
    refused(&get(), "node_certificate");
    assert_eq!(node.connections(), 1);
    std::fs::copy(authority.file(), &believed).unwrap();
    scene.reload(&[]);
    eventually("the node is believed again", || {
        (get().status == 200).then_some(())
    });
    // And in the clear it is not to be had.
    let clear = text.replace(&format!("node_tls = {{ {rule} }}\n"), "");
    scene.write(&clear);
    scene.reload(&[]);
    eventually("nodes are asked in the clear", || {
        (get().status == 502).then_some(())
    });
}

/// What `tidegate check` says of a site with this rule.
fn check(folder: &Path, rule: &str, address: &str) -> (bool, String) {
    let nodes = [([127, 0, 0, 1], 4433).into()];
    let text = site("shop", rule, &nodes).replace("127.0.0.1:4433", address);
    let text = format!("[[listener]]\naddress = \"127.0.0.1:8080\"\n{text}");
    let file = folder.join("checked.toml");
    std::fs::write(&file, text).unwrap();
    let mut command = support::tidegate();
    let done = command.arg("check").arg(&file).output().unwrap();
    let said = [done.stdout, done.stderr].concat();
    (done.status.success(), String::from_utf8(said).unwrap())
}

#[test]
fn check_says_what_is_wrong_with_a_rule_and_where() {
    let Some(authority) = certificates("to-nodes-check") else {
        return;
    };
    let folder = folder("to-nodes-check");
    let [own, other] = ["own", "other"].map(|it| authority.issue(it, &[]));
    let believed = format!("authorities = \"{}\"", authority.file().display());
    let named = by(&authority);
    let (certificate, key) = (own.certificate.display(), other.key.display());
    let at = "10.0.0.11:443";
    let cases = [
        (
            String::new(),
            "nothing says which certificates of nodes are believed",
        ),
        (believed.clone(), "`server_name` is missing"),
        (
            format!("{believed}, server_name = \"web:443\""),
            "bad server name `web:443`",
        ),
        (
            "authorities = \"none.pem\", server_name = \"web\"".into(),
            "certificate file: No such file",
        ),
        (
            format!("authorities = \"{key}\", server_name = \"web\""),
            "certificate file: there is no certificate in it",
        ),
        (
            "pins = [\"sha256/YWJj\"]".into(),
            "a SHA-256 has 32 bytes, 44 letters of base64, not 3",
        ),
        ("pins = [\"abc\"]".into(), "bad pin `abc`"),
        (
            format!("{named}, certificate = \"{certificate}\""),
            "`key` is missing",
        ),
        (
            format!("{named}, key = \"{key}\""),
            "`certificate` is missing",
        ),
        (
            format!("{named}, certificate = \"{certificate}\", key = \"{key}\""),
            "key file: the private key in it is not that of the certificate",
        ),
        (
            format!("{named}, dangerously_trust_any_certificate = true"),
            "any certificate is trusted, and then not",
        ),
    ];
    for (rule, expected) in cases {
        let (ok, said) = check(&folder, &rule, at);
        assert!(!ok && said.contains(expected), "{expected}: {said}");
        assert!(said.contains("checked.toml:7:"), "{said}");
    }
    let (ok, said) = check(&folder, &format!("{named}, {}", own.keys()), at);
    assert!(ok, "{said}");
    // Nodes at one host name have it in their certificates.
    let (ok, said) = check(&folder, &believed, "web.internal:443");
    assert!(ok, "{said}");
    let (ok, said) = check(&folder, "dangerously_trust_any_certificate = true", at);
    assert!(ok && said.contains("believes any certificate"), "{said}");
}

#[test]
fn the_example_of_the_page_is_loaded_and_serves() {
    if !is_installed("openssl") {
        return;
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tls.md");
    let page = std::fs::read_to_string(page).unwrap();
    let section = &page[page.find("## Towards nodes").unwrap()..];
    let begin = section.find("```toml\n").unwrap() + "```toml\n".len();
    let length = section[begin..].find("```").unwrap();
    let example = &section[begin..begin + length];
    let authority = certificates("to-nodes-example").unwrap();
    let node = Server::start("a", &authority.issue("node", &["shop.internal"]));
    let own = authority.issue("front-end", &[]);
    let put = |text: String, from: &str, to: &PathBuf| {
        assert!(text.contains(from), "{from}: {text}");
        text.replace(from, &to.display().to_string())
    };
    let text = example.replace("10.0.0.11:443", &node.address.to_string());
    let text = text.replace("0.0.0.0:80", &free_address().to_string());
    let text = put(text, "/etc/tidegate/nodes-ca.pem", &authority.file());
    let text = put(text, "/etc/tidegate/front-end.pem", &own.certificate);
    let text = put(text, "/etc/tidegate/front-end.key", &own.key);
    let scene = scene("to-nodes-example", &text);
    served(&scene.front_end.get("shop.example", "/"), "a");
}
