//! HTTP/2 towards nodes: requests that share connections, from clients of either version; trailers, cancellations, retries, checks, and real
//! servers with TLS and without.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use support::http2::{Answer, Connection, get, post, run, send, until};
use support::http2_node::Http2Node;
use support::scene::{Cluster, Scene};
use support::server::server;
use support::tls::Authority;
use support::{FrontEnd, Process, eventually, folder, free_address, nginx};

/// A site of these nodes, with more lines of its own.
fn text(nodes: &[SocketAddr], more: &str) -> String {
    let mut text = format!("[[site]]\nname = \"shop\"\nnode_protocol = \"h2\"\n{more}\n");
    for (index, node) in nodes.iter().enumerate() {
        text.push_str(&format!(
            "[[node]]\nname = \"n{index}\"\naddress = \"{node}\"\nsite = \"shop\"\n"
        ));
    }
    text
}

fn front_end(name: &str, nodes: &[SocketAddr], more: &str) -> FrontEnd {
    FrontEnd::start(&folder(name), &text(nodes, more))
}

#[test]
fn requests_share_connections_and_trailers_go_through() {
    let node = Http2Node::start("here");
    let front_end = front_end("http2-nodes-share", &[node.address], "");
    run(async {
        let mut connection = Connection::open(front_end.address).await;
        for _ in 0..50 {
            let answer = connection.get("/").await;
            assert_eq!((answer.status, answer.text()), (200, "here"));
            assert_eq!(answer.trailers.unwrap()["grpc-status"], "0");
        }
        assert_eq!(node.connections(), 1);
        let mut waiting = Vec::new();
        for _ in 0..100 {
            waiting.push(connection.begin(get("/"), true).await.0);
        }
        for answer in waiting {
            assert_eq!(Answer::read(answer).await.unwrap().text(), "here");
        }
        assert!(node.connections() <= 2, "{}", node.connections());
        assert_eq!(connection.get("/large").await.body.len(), 3 << 20);
        // A call of gRPC, as far as it matters here.
        let mut call = post("/head");
        for (name, value) in [("te", "trailers"), ("content-type", "application/grpc")] {
            call.headers_mut().insert(name, value.parse().unwrap());
        }
        let (answer, mut out) = connection.begin(call, false).await;
        send(&mut out, 100_000).await;
        let told = Answer::read(answer).await.unwrap();
        let text = told.text();
        assert!(
            text.starts_with("POST http://shop.example/head\n"),
            "{text}"
        );
        for part in ["\"te\": \"trailers\"", "\"x-forwarded-for\": \"127.0.0.1\""] {
            assert!(text.contains(part), "{part}: {text}");
        }
        for part in ["\"host\"", "connection", "transfer-encoding"] {
            assert!(!text.contains(part), "{part}: {text}");
        }
        for (length, bytes) in [(None, 1 << 20), (Some(5_u64), 5)] {
            let mut asked = post("/length");
            if let Some(length) = length {
                asked.headers_mut().insert("content-length", length.into());
            }
            let (answer, mut out) = connection.begin(asked, false).await;
            send(&mut out, bytes).await;
            assert_eq!(
                Answer::read(answer).await.unwrap().text(),
                bytes.to_string()
            );
        }
    });
    assert_eq!(front_end.metric("tidegate_requests_in_flight"), Some(0.0));
}

#[test]
fn clients_of_http_1_are_served_by_the_same_nodes() {
    let node = Http2Node::start("here");
    let front_end = front_end("http2-nodes-http1", &[node.address], "");
    for _ in 0..10 {
        let answer = front_end.get("shop.example", "/");
        assert_eq!((answer.status, &*answer.body), (200, "here"));
    }
    let head = front_end.get("shop.example", "/head").body;
    assert!(head.starts_with("GET http://shop.example/head\n"), "{head}");
    let large = front_end.get("shop.example", "/large");
    assert_eq!(large.body.len(), 3 << 20);
    let asked = "POST /length HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
                 3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n";
    let answer = support::request(front_end.address, asked).unwrap();
    assert_eq!((answer.status, &*answer.body), (200, "7"));
    let expecting = "POST /length HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\n\
                     Content-Length: 3\r\n\r\nabc";
    let answer = support::request(front_end.address, expecting).unwrap();
    assert!(
        answer.body.contains("200 OK") || answer.status == 200,
        "{answer:?}"
    );
    // One of each worker, at most.
    assert!(node.connections() <= 2, "{}", node.connections());
}

#[test]
fn what_a_client_gives_up_ends_at_the_node() {
    let node = Http2Node::start("here");
    let front_end = front_end("http2-nodes-cancel", &[node.address], "");
    run(async {
        let mut connection = Connection::open(front_end.address).await;
        let (_answer, mut out) = connection.begin(get("/never"), true).await;
        until(|| node.requests() == 1).await;
        out.send_reset(h2::Reason::CANCEL);
        // The reset is written with what comes next.
        assert_eq!(connection.get("/").await.text(), "here");
        until(|| node.resets() == 1).await;
        assert_eq!(connection.get("/").await.text(), "here");
    });
    assert_eq!(node.connections(), 1, "the others go on");
    assert_eq!(front_end.metric("tidegate_requests_in_flight"), Some(0.0));
}

#[test]
fn what_a_node_has_not_begun_is_asked_elsewhere_and_nothing_else() {
    let [one, two] = ["one", "two"].map(Http2Node::start);
    let nodes = [one.address, two.address];
    let front_end = front_end("http2-nodes-retry", &nodes, "policy = \"round_robin\"\n");
    let asked = || one.requests() + two.requests();
    for (path, tries, status) in [
        // Refused by both.
        ("/refused", 2, 502),
        ("/gone", 2, 502),
        // The answer has failed: it may have been done.
        ("/reset", 1, 502),
        ("/", 1, 200),
    ] {
        let before = asked();
        let answer = front_end.get("shop.example", path);
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        let tried = asked() - before;
        assert!(
            tried >= tries && (tries > 1 || tried == 1),
            "{path}: {tried}"
        );
    }
    // A connection that ends with a goodbye is replaced, and the request is asked again.
    let answer = front_end.get("shop.example", "/goodbye");
    assert_eq!(answer.status, 502, "{answer:?}");
    for _ in 0..4 {
        assert_eq!(front_end.get("shop.example", "/").status, 200);
    }
}

#[test]
fn a_reload_changes_the_version_and_checks_follow() {
    let (old, new) = (server("old"), Http2Node::start("new"));
    let site = |node: SocketAddr, protocol: &str| {
        format!(
            "[[site]]\nname = \"shop\"\nnode_protocol = \"{protocol}\"\n\
             check = {{ kind = \"http\", interval = \"100ms\", fall = 1, rise = 1 }}\n\
             [[node]]\nname = \"n0\"\naddress = \"{node}\"\nsite = \"shop\"\n"
        )
    };
    let scene = Scene::start(
        "http2-nodes-reload",
        &Cluster::default().more(&site(old, "http/1.1")),
    );
    let passed = "tidegate_node_check_seconds_total{";
    assert_eq!(scene.front_end.get("a", "/").body, "old");
    eventually("it is checked", || {
        (scene.front_end.metric(passed)? > 0.0).then_some(())
    });
    scene.write(&site(new.address, "h2"));
    let said = scene.reload(&[]);
    assert!(said.contains("another version of HTTP"), "{said}");
    assert_eq!(scene.front_end.get("a", "/").body, "new");
    // Checks come by HTTP/2 as well: each is a request there, beside ours.
    eventually("it is checked by HTTP/2", || {
        (new.requests() > 3).then_some(())
    });
    assert_eq!(scene.front_end.get("a", "/").body, "new");
}

/// A real nginx that speaks HTTP/2 there, with TLS if it is given keys.
fn nginx_http2(folder: &Path, address: SocketAddr, tls: &str) -> Process {
    let folder = folder.join("nginx");
    std::fs::create_dir_all(folder.join("www")).unwrap();
    std::fs::write(folder.join("www/index.html"), "nginx\n").unwrap();
    let ssl = if tls.is_empty() { "" } else { "ssl" };
    let text = format!(
        "daemon off; master_process off; pid nginx.pid; error_log error.log;\n\
         events {{ worker_connections 256; }}\n\
         http {{ log_format v '$server_protocol'; access_log access.log v; client_body_temp_path body;\n\
         proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n\
         server {{ listen {address} {ssl} http2; root www; {tls} }} }}\n"
    );
    std::fs::write(folder.join("nginx.conf"), text).unwrap();
    let mut command = Command::new(nginx().unwrap());
    command.arg("-p").arg(&folder);
    let process = Process::start(command.args(["-c", "nginx.conf", "-e", "error.log"]));
    eventually("nginx listens", || {
        std::net::TcpStream::connect(address).ok()
    });
    process
}

#[test]
fn a_real_server_is_asked_with_tls_and_without() {
    if nginx().is_none() {
        return println!("SKIPPED: nginx is not installed");
    }
    let plain = folder("http2-nodes-nginx");
    let address = free_address();
    let _nginx = nginx_http2(&plain, address, "");
    let front = FrontEnd::start(&plain, &text(&[address], ""));
    for _ in 0..5 {
        assert_eq!(front.get("shop.example", "/").body, "nginx\n");
    }
    let log = std::fs::read_to_string(plain.join("nginx/access.log")).unwrap();
    assert!(log.lines().all(|line| line == "HTTP/2.0"), "{log}");

    let Some(authority) = Authority::new(&folder("http2-nodes-nginx-keys")) else {
        return;
    };
    let pair = authority.issue("shop", &["shop.example"]);
    let (certificate, key) = (pair.certificate.display(), pair.key.display());
    let tls = format!("ssl_certificate {certificate}; ssl_certificate_key {key};");
    let secure = folder("http2-nodes-nginx-tls");
    let address = free_address();
    let _nginx = nginx_http2(&secure, address, &tls);
    let authorities = authority.file();
    let rule = format!(
        "node_tls = {{ authorities = \"{}\", server_name = \"shop.example\" }}\n",
        authorities.display()
    );
    let front = FrontEnd::start(&secure, &text(&[address], &rule));
    for _ in 0..5 {
        assert_eq!(front.get("shop.example", "/").body, "nginx\n");
    }
    let log = std::fs::read_to_string(secure.join("nginx/access.log")).unwrap();
    assert!(log.lines().all(|line| line == "HTTP/2.0"), "{log}");
}

#[test]
fn a_server_of_grpc_says_whether_it_serves() {
    let stops = Path::new(env!("CARGO_TARGET_TMPDIR")).join("grpc-one-stops");
    if stops.exists() {
        std::fs::remove_file(&stops).unwrap();
    }
    let nodes = ["grpc-one", "grpc-two"].map(Http2Node::start);
    let addresses = nodes.each_ref().map(|it| it.address);
    let check = "check = { kind = \"grpc\", interval = \"100ms\", fall = 1, rise = 1 }\npolicy = \"round_robin\"\n";
    let front_end = front_end("http2-nodes-grpc", &addresses, check);
    let answers = || [0, 1].map(|_| front_end.get("shop.example", "/").body);
    eventually("both serve", || {
        let mut names = answers();
        names.sort();
        (names == ["grpc-one", "grpc-two"]).then_some(())
    });
    std::fs::write(&stops, "").unwrap();
    eventually("one is out", || {
        (answers() == ["grpc-two", "grpc-two"]).then_some(())
    });
    std::fs::remove_file(&stops).unwrap();
    eventually("it is back", || {
        let mut names = answers();
        names.sort();
        (names == ["grpc-one", "grpc-two"]).then_some(())
    });
}
