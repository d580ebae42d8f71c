//! HTTP/2 towards clients: streams as requests of their own, windows, resets, tunnels, drains; and how a version is chosen.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use h2::ext::Protocol;
use http::{Method, Request};

use support::http2::{Answer, Connection, get, head_of, post, run, send, until};
use support::mirror::Mirror;
use support::scene::{Cluster, Scene};
use support::server::{head, server};
use support::tls::Authority;
use support::{FrontEnd, eventually, folder, free_address, is_installed};

/// A node that answers by path, in the bytes given here, once it has the whole request; `None` for ever not.
fn node(answer: fn(&str, usize) -> Option<String>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                while let Some(head) = head(&mut reader) {
                    let length = body(&mut reader, &head.to_ascii_lowercase());
                    let path = head.split(' ').nth(1).unwrap();
                    match answer(path, length) {
                        Some(answer) if stream.write_all(answer.as_bytes()).is_ok() => {}
                        Some(_) => return,
                        // Until its other side has left.
                        None => return drop(reader.read_line(&mut String::new())),
                    }
                }
            });
        }
    });
    address
}

/// Reads a request's body; how long it is.
fn body(reader: &mut BufReader<TcpStream>, head: &str) -> usize {
    let line = |name| head.lines().find_map(|line| line.strip_prefix(name));
    if let Some(length) = line("content-length: ") {
        let mut body = vec![0; length.parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        return body.len();
    }
    let mut all = 0;
    while line("transfer-encoding: chunked").is_some() {
        let mut size = String::new();
        reader.read_line(&mut size).unwrap();
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        if size == 0 {
            let mut trailers = vec![];
            while !trailers.ends_with(b"\r\n\r\n") && trailers != b"\r\n" {
                reader.read_until(b'\n', &mut trailers).unwrap();
            }
            break;
        }
        reader.read_exact(&mut vec![0; size + 2]).unwrap();
        all += size;
    }
    all
}

fn ok(text: &str) -> Option<String> {
    let length = text.len();
    Some(format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{text}"
    ))
}

fn front_end(folder: &Path, node: SocketAddr, more: &str) -> FrontEnd {
    let text = Cluster::default()
        .site("shop", "*")
        .node("n1", node, "shop");
    FrontEnd::start(folder, &text.more(more).text())
}

#[test]
fn requests_of_one_connection_go_to_nodes_each_by_itself() {
    let folder = folder("http2-requests");
    let cluster = Cluster::default()
        .site("shop", "*")
        .node("n1", server("one"), "shop")
        .node("n2", server("two"), "shop");
    let front_end = FrontEnd::start(&folder, &cluster.text());
    let mut texts = run(async {
        let mut connection = Connection::open(front_end.address).await;
        let mut waiting = Vec::new();
        for _ in 0..100 {
            waiting.push(connection.begin(get("/"), true).await.0);
        }
        let mut texts = Vec::new();
        for answer in waiting {
            let answer = Answer::read(answer).await.unwrap();
            assert_eq!(answer.status, 200);
            assert!(answer.headers.contains_key("date"), "{answer:?}");
            texts.push(answer.text().to_owned());
        }
        texts
    });
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts, ["one", "two"]);
    for (metric, wanted) in [
        ("tidegate_http2_connections_total", 1.0),
        ("tidegate_client_connections_accepted_total", 1.0),
        ("tidegate_requests_received_total", 100.0),
        ("tidegate_client_connections ", 0.0),
    ] {
        eventually(metric, || {
            (front_end.metric(metric)? == wanted).then_some(())
        });
    }
}

#[test]
fn nodes_get_heads_of_http_1() {
    let folder = folder("http2-heads");
    let mirror = Mirror::start();
    let more = "[forwarded]\nvia = \"edge\"\n[log]\naccess = \"combined\"\n";
    let front_end = front_end(&folder, mirror.address, more);
    run(async {
        let mut connection = Connection::open(front_end.address).await;
        let mut asked = get("/a?b=c");
        for (name, value) in [
            ("cookie", "a=1"),
            ("cookie", "b=2"),
            ("te", "trailers"),
            ("x-forwarded-for", "192.0.2.1"),
        ] {
            asked.headers_mut().append(name, value.parse().unwrap());
        }
        let told = connection.ask(asked).await.text().to_ascii_lowercase();
        assert!(told.starts_with("get /a?b=c http/1.1\r\n"), "{told}");
        for line in [
            "host: shop.example",
            "cookie: a=1; b=2",
            "te: trailers",
            "x-forwarded-for: 127.0.0.1",
            "x-forwarded-host: shop.example",
            "via: 2.0 edge",
        ] {
            assert!(told.contains(&format!("\r\n{line}\r\n")), "{line}: {told}");
        }
        // A host beside the authority that is not the same.
        let mut other = get("/");
        let host = "other.example".parse().unwrap();
        other.headers_mut().insert("host", host);
        let refused = connection.ask(other).await;
        assert_eq!(
            (refused.status, refused.header("x-tidegate-reason")),
            (400, "bad_host")
        );
        // CONNECT, and OPTIONS for the whole server.
        let connect = Request::builder().method(Method::CONNECT);
        let connect = connect.uri("shop.example:443").body(()).unwrap();
        let refused = connection.ask(connect).await;
        assert_eq!(refused.header("x-tidegate-reason"), "method_refused");
        let told = connection.get("/again").await;
        assert_eq!(told.status, 200);
    });
}

#[test]
fn bodies_go_both_ways_whatever_is_known_of_their_length() {
    let folder = folder("http2-bodies");
    let echo = node(|path, length| match path {
        "/large" => ok(&"y".repeat(3 << 20)),
        _ => ok(&length.to_string()),
    });
    let front_end = front_end(&folder, echo, "");
    run(async {
        let mut connection = Connection::open(front_end.address).await;
        for (length, bytes) in [(None, 1 << 20), (Some(700_000), 700_000), (None, 0)] {
            let mut asked = post("/");
            if let Some(length) = length {
                asked.headers_mut().insert("content-length", length.into());
            }
            let (answer, mut out) = connection.begin(asked, false).await;
            send(&mut out, bytes).await;
            let answer = Answer::read(answer).await.unwrap();
            assert_eq!(answer.text(), bytes.to_string());
        }
        let large = connection.get("/large").await;
        assert_eq!(large.body.len(), 3 << 20);
        // More or less than it says: the stream is reset, and the node's connection is not used again.
        for bytes in [3, 5] {
            let mut asked = post("/");
            asked.headers_mut().insert("content-length", 4.into());
            let (answer, mut out) = connection.begin(asked, false).await;
            out.send_data(vec![b'x'; bytes].into(), true).unwrap();
            let error = Answer::read(answer).await.unwrap_err();
            assert!(error.is_reset(), "{error}");
        }
        assert_eq!(connection.get("/").await.text(), "0");
    });
}

#[test]
fn trailers_go_on_and_a_body_of_none_says_so_at_once() {
    let folder = folder("http2-trailers");
    let node = node(|path, _| match path {
        "/trailers" => Some(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n\
             3\r\nabc\r\n0\r\nx-sum: 7\r\n\r\n"
                .into(),
        ),
        _ => Some("HTTP/1.1 204 No Content\r\nkeep-alive: timeout=5\r\n\r\n".into()),
    });
    let front_end = front_end(&folder, node, "");
    run(async {
        let mut connection = Connection::open(front_end.address).await;
        let mut asked = get("/trailers");
        let te = "trailers".parse().unwrap();
        asked.headers_mut().insert("te", te);
        let answer = connection.ask(asked).await;
        assert_eq!(answer.text(), "abc");
        assert_eq!(answer.trailers.unwrap()["x-sum"], "7");
        let (answer, _) = connection.begin(get("/"), true).await;
        let (head, stream) = head_of(answer).await;
        assert_eq!(head.status(), 204);
        assert!(!head.headers().contains_key("keep-alive"), "{head:?}");
        assert!(stream.is_end_stream());
    });
}

#[test]
fn a_stream_that_is_reset_ends_its_request_alone() {
    let folder = folder("http2-reset");
    let node = node(|path, _| match path {
        "/never" => None,
        _ => ok("here"),
    });
    let front_end = front_end(&folder, node, "");
    let cancelled = "tidegate_requests_unserved_total{ending=\"cancelled\",reason=\"client_gone\"}";
    run(async {
        let mut connection = Connection::open(front_end.address).await;
        let (_answer, mut out) = connection.begin(get("/never"), true).await;
        assert_eq!(connection.get("/").await.text(), "here");
        assert_eq!(front_end.metric("tidegate_requests_in_flight"), Some(1.0));
        out.send_reset(h2::Reason::CANCEL);
        assert_eq!(connection.get("/").await.text(), "here");
        until(|| front_end.metric(cancelled) == Some(1.0)).await;
        // One that leaves with all of its streams.
        let (_answer, _out) = connection.begin(get("/never"), true).await;
        until(|| front_end.metric("tidegate_requests_in_flight") == Some(1.0)).await;
    });
    eventually("both are cancelled", || {
        (front_end.metric(cancelled)? == 2.0).then_some(())
    });
    assert_eq!(front_end.metric("tidegate_requests_in_flight"), Some(0.0));
}

#[test]
fn interim_responses_go_on() {
    if !is_installed("curl") {
        return;
    }
    let folder = folder("http2-interim");
    let node = node(|_, length| {
        let hints = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n";
        Some(format!("{hints}{}", ok(&length.to_string())?))
    });
    let front_end = front_end(&folder, node, "");
    let url = format!("http://{}/", front_end.address);
    let said = curl(&[
        "--http2-prior-knowledge",
        "-i",
        "-d",
        "abc",
        "-H",
        "Expect: 100-continue",
        &url,
    ]);
    let lines: Vec<_> = said.lines().filter(|it| it.starts_with("HTTP/2")).collect();
    assert_eq!(
        lines,
        ["HTTP/2 100 ", "HTTP/2 103 ", "HTTP/2 200 "],
        "{said}"
    );
    assert!(said.contains("link: </a.css>"), "{said}");
    assert!(said.ends_with('3'), "{said}");
}

fn curl(words: &[&str]) -> String {
    let output = Command::new("curl").args(["-sS"]).args(words).output();
    let output = output.unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

#[test]
fn websockets_go_through_a_stream() {
    let folder = folder("http2-websocket");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let head = head(&mut reader).unwrap().to_ascii_lowercase();
            let asked = [
                "upgrade: websocket",
                "connection: upgrade",
                "sec-websocket-key: ",
            ];
            let answer = match asked.iter().all(|it| head.contains(it)) {
                true if head.starts_with("get /chat ") => {
                    "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                     upgrade: websocket\r\nsec-websocket-accept: x\r\n\r\nhello"
                }
                true => "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n",
                false => "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            };
            stream.write_all(answer.as_bytes()).unwrap();
            std::io::copy(&mut reader, &mut stream).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
        }
    });
    let front_end = front_end(&folder, address, "");
    run(async {
        let mut connection = Connection::open(front_end.address).await;
        eventually_there(&mut connection).await;
        let (answer, mut out) = connection.begin(websocket("/chat"), false).await;
        let (head, mut incoming) = head_of(answer).await;
        assert_eq!(head.status(), 200);
        assert!(!head.headers().contains_key("sec-websocket-accept"));
        out.send_data(Bytes::from_static(b" and back"), true)
            .unwrap();
        let mut got = Vec::new();
        while let Some(data) = incoming.data().await {
            got.extend_from_slice(&data.unwrap());
        }
        assert_eq!(got, b"hello and back");
        let (answer, _out) = connection.begin(websocket("/other"), false).await;
        assert_eq!(head_of(answer).await.0.status(), 403);
    });
    let tunnels = "tidegate_tunnels_opened_total";
    assert_eq!(front_end.metric(tunnels), Some(1.0));
}

/// Waits for the server's settings, which say that WebSockets may be asked for.
async fn eventually_there(connection: &mut Connection) {
    while !connection.takes_tunnels() {
        tokio::task::yield_now().await;
    }
}

fn websocket(path: &str) -> Request<()> {
    let mut asked = get(path);
    *asked.method_mut() = Method::CONNECT;
    let protocol = Protocol::from_static("websocket");
    asked.extensions_mut().insert(protocol);
    asked
}

#[test]
fn a_connection_of_a_listener_that_is_taken_out_ends_behind_its_streams() {
    let node = node(|path, _| match path {
        "/slow" => {
            // Until the listener is gone, which the test sees to.
            let gate = Path::new(env!("CARGO_TARGET_TMPDIR")).join("http2-drain/gate");
            eventually("the gate is open", || gate.exists().then_some(()));
            ok("late")
        }
        _ => ok("here"),
    });
    let address = free_address();
    let cluster = Cluster::default()
        .site("shop", "*")
        .node("n1", node, "shop");
    let listener = format!("[[listener]]\naddress = \"{address}\"\n");
    let scene = Scene::start("http2-drain", &cluster.clone().more(&listener));
    run(async {
        let mut connection = Connection::open(address).await;
        assert_eq!(connection.get("/").await.text(), "here");
        let (slow, _) = connection.begin(get("/slow"), true).await;
        until(|| scene.front_end.metric("tidegate_requests_in_flight") == Some(1.0)).await;
        scene.write(&cluster.text());
        scene.reload(&[]);
        // The next frame is answered with a GOAWAY; what was asked before is answered all the same.
        let (last, _) = connection.begin(get("/"), true).await;
        assert_eq!(Answer::read(last).await.unwrap().text(), "here");
        std::fs::write(scene.folder.join("gate"), "").unwrap();
        assert_eq!(Answer::read(slow).await.unwrap().text(), "late");
        connection.ended().await.unwrap();
    });
}

#[test]
fn an_idle_connection_is_closed_and_one_that_waits_is_not() {
    let folder = folder("http2-idle");
    let more = "[timeouts]\nclient_idle = \"200ms\"\nclient_head = \"200ms\"\n";
    let front_end = front_end(&folder, server("a"), more);
    run(async {
        let mut connection = Connection::open(front_end.address).await;
        assert_eq!(connection.get("/").await.text(), "a");
        connection.ended().await.unwrap();
    });
    // One that never says its preface to its end.
    let mut stream = TcpStream::connect(front_end.address).unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM").unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).unwrap();
    // Its own settings may be out by then.
    assert!(!said.starts_with(b"HTTP/1.1"), "{said:?}");
}

/// A listener's protocols, whether it has TLS, how curl is to ask, and by what it gets which answer.
const VERSIONS: [(&str, bool, &str, &str); 10] = [
    ("\"h2\", \"http/1.1\"", true, "--http2", "2 200"),
    ("\"h2\", \"http/1.1\"", true, "--http1.1", "1.1 200"),
    ("\"http/1.1\", \"h2\"", true, "--http2", "1.1 200"),
    ("\"http/1.1\"", true, "--http2", "1.1 200"),
    ("\"h2\"", true, "--http2", "2 200"),
    (
        "\"h2\", \"http/1.1\"",
        false,
        "--http2-prior-knowledge",
        "2 200",
    ),
    ("\"h2\", \"http/1.1\"", false, "--http1.1", "1.1 200"),
    ("\"h2\"", false, "--http2-prior-knowledge", "2 200"),
    ("\"h2\"", false, "--http1.1", "0 000"),
    ("\"http/1.1\"", false, "--http2-prior-knowledge", "0 000"),
];

#[test]
fn versions_are_as_configured() {
    let Some(authority) = Authority::new(&folder("http2-versions-keys")) else {
        return;
    };
    if !is_installed("curl") {
        return;
    }
    let keys = authority.issue("shop", &["shop.example"]).keys();
    for (place, (protocols, is_secure, option, expected)) in VERSIONS.into_iter().enumerate() {
        let folder = folder(&format!("http2-versions-{place}"));
        let address = free_address();
        let (scheme, tls) = match is_secure {
            true => ("https", format!("tls = {{ {keys} }}")),
            false => ("http", String::new()),
        };
        let more =
            format!("[[listener]]\naddress = \"{address}\"\nprotocols = [{protocols}]\n{tls}\n");
        let _front_end = front_end(&folder, server("a"), &more);
        let format = "%{http_version} %{http_code}";
        let url = format!("{scheme}://{address}/");
        let quietly = ["-k", "-o", "/dev/null", "-m", "20", "-w", format];
        let said = curl(&[&quietly[..], &[option, &url]].concat());
        assert!(said.starts_with(expected), "{place}: {said}");
    }
}

#[test]
fn the_example_of_the_documentation_runs() {
    let Some(authority) = Authority::new(&folder("http2-example-keys")) else {
        return;
    };
    if !is_installed("curl") {
        return;
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/http2.md");
    let page = std::fs::read_to_string(page).unwrap();
    let example = page.split("```").nth(1).unwrap();
    let shop = authority.issue("shop", &["shop.example"]);
    let (secure, plain) = (free_address(), free_address());
    let (certificate, key) = (shop.certificate.display(), shop.key.display());
    let text = example
        .trim_start_matches("toml")
        .replace("0.0.0.0:443", &secure.to_string())
        .replace("127.0.0.1:8080", &plain.to_string())
        .replace("10.0.0.11:80", &server("a").to_string())
        .replace("/etc/tidegate/shop.pem", &certificate.to_string())
        .replace("/etc/tidegate/shop.key", &key.to_string());
    let _front_end = FrontEnd::start(&folder("http2-example"), &text);
    let version = ["-w", "%{http_version}", "-k", "--http2"];
    let said = curl(&[&version[..], &[&format!("https://{secure}/")]].concat());
    assert_eq!(said, "a2");
    let said = curl(&[&version[..], &[&format!("http://{plain}/")]].concat());
    assert_eq!(said, "a1.1");
}
