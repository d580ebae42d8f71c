//! Connections that a balancer passes on with the PROXY protocol: nodes learn of the client that its header names, and what comes
//! from elsewhere or begins otherwise is refused. The balancer is a stock HAProxy, or the test itself.
#![expect(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod support;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use support::haproxy::Haproxy;
use support::mirror::Mirror;
use support::tls::Authority;
use support::{FrontEnd, PATIENCE, eventually, folder, free_address, is_installed, tidegate};

const ASKED: &str = "GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n";

/// A front-end with a listener for balancers in these networks.
struct Behind {
    front_end: FrontEnd,
    address: SocketAddr,
}

impl Behind {
    fn start(folder: &Path, mirror: &Mirror, networks: &str, more: &str) -> Self {
        let address = free_address();
        let text = format!(
            "{more}[[listener]]\naddress = \"{address}\"\nproxy_protocol = {networks}\n\
             [[site]]\nname = \"shop\"\n[[node]]\nname = \"n1\"\naddress = \"{}\"\nsite = \"shop\"\n\
             load = {{ transport = \"none\" }}\n",
            mirror.address
        );
        let front_end = FrontEnd::start(folder, &text);
        Self { front_end, address }
    }

    /// Connections that were refused for their header.
    fn refused(&self) -> Option<f64> {
        let refused =
            "tidegate_requests_unserved_total{ending=\"rejected\",reason=\"proxy_protocol\"}";
        self.front_end.metric(refused)
    }
}

/// What comes back for these bytes, until the connection ends.
fn said(front_end: &Behind, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(front_end.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut text = Vec::new();
    // One that is refused may be reset behind its answer.
    stream.read_to_end(&mut text).ok();
    String::from_utf8_lossy(&text).into_owned()
}

/// A header of version 2 that names 192.0.2.7.
fn binary() -> Vec<u8> {
    let addresses = [192, 0, 2, 7, 198, 51, 100, 1, 220, 4, 1, 187];
    let fields = [1, 0, 2, b'h', b'2'];
    let fixed = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x11";
    [&fixed[..], &addresses, &fields].concat()
}

#[test]
fn nodes_learn_of_the_client_that_the_header_names() {
    let folder = folder("proxy-protocol");
    let mirror = Mirror::start();
    let front_end = Behind::start(&folder, &mirror, "[\"127.0.0.0/8\"]", "");
    let asked = ASKED.as_bytes();
    let header = |line: &str| [line.as_bytes(), b"\r\n", asked].concat();
    for (bytes, client) in [
        (
            header("PROXY TCP4 192.0.2.7 198.51.100.1 56324 443"),
            "192.0.2.7",
        ),
        (
            header("PROXY TCP6 2001:db8::7 2001:db8::1 56324 443"),
            "2001:db8::7",
        ),
        (header("PROXY UNKNOWN"), "127.0.0.1"),
        ([&binary()[..], asked].concat(), "192.0.2.7"),
        (
            [b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0", asked].concat(),
            "127.0.0.1",
        ),
    ] {
        let answer = said(&front_end, &bytes).to_ascii_lowercase();
        assert!(answer.starts_with("http/1.1 200"), "{answer}");
        let wanted = format!("x-forwarded-for: {client}\r\n");
        assert!(answer.contains(&wanted), "no {wanted:?} in {answer}");
    }
    // A client's own claim is no address, and a header behind the first one is no header.
    let forged = ASKED.replace("\r\nConn", "\r\nX-Forwarded-For: 10.9.9.9\r\nConn");
    let twice = [&binary()[..], forged.as_bytes()].concat();
    assert!(!said(&front_end, &twice).contains("10.9.9.9"));
    let again = [&binary()[..], &binary(), asked].concat();
    assert!(said(&front_end, &again).starts_with("HTTP/1.1 400"));
    assert_eq!(mirror.requests(), 6);
}

#[test]
fn what_begins_otherwise_is_refused_and_counted() {
    let folder = folder("proxy-protocol-refused");
    let mirror = Mirror::start();
    let front_end = Behind::start(&folder, &mirror, "[\"127.0.0.0/8\", \"10.0.0.0/8\"]", "");
    let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(200));
    for bytes in [
        ASKED.as_bytes(),
        b"PROXY TCP4 192.0.2.7\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 99999\r\n",
        long.as_bytes(),
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x02..",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff....",
    ] {
        let answer = said(&front_end, bytes);
        assert!(
            answer.contains("x-tidegate-reason: proxy_protocol"),
            "{answer}"
        );
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
    // Those that leave in the middle of it are no requests.
    for cut in [&b""[..], b"PROX", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x11.."] {
        let mut stream = TcpStream::connect(front_end.address).unwrap();
        stream.write_all(cut).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
    }
    assert_eq!(front_end.refused(), Some(6.0));
    assert_eq!(mirror.requests(), 0);
    let open = eventually("all of them are closed", || {
        let open = front_end.front_end.metric("tidegate_client_connections")?;
        (open == 0.0).then_some(open)
    });
    assert_eq!(open, 0.0);
}

#[test]
fn a_header_from_elsewhere_is_believed_by_nobody() {
    let folder = folder("proxy-protocol-elsewhere");
    let mirror = Mirror::start();
    let front_end = Behind::start(&folder, &mirror, "[\"10.0.0.0/8\"]", "");
    let answer = said(&front_end, &[&binary()[..], ASKED.as_bytes()].concat());
    assert!(
        answer.contains("x-tidegate-reason: proxy_protocol"),
        "{answer}"
    );
    assert_eq!(mirror.requests(), 0);
}

#[test]
fn balancers_of_a_listener_come_and_go_with_a_reload() {
    let folder = folder("proxy-protocol-reload");
    let mirror = Mirror::start();
    let front_end = Behind::start(&folder, &mirror, "[]", "");
    assert!(said(&front_end, ASKED.as_bytes()).starts_with("HTTP/1.1 200"));
    let file = folder.join("tidegate.toml");
    let reload = |from: &str, to: &str| {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(&file, text.replace(from, to)).unwrap();
        let admin = front_end.front_end.admin.to_string();
        let output = tidegate()
            .args(["reload", "--admin", &admin])
            .output()
            .unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let wrong = reload("proxy_protocol = []", "proxy_protocol = [\"127.0.0.0/33\"]");
    assert!(wrong.contains("127.0.0.0/33"), "{wrong}");
    assert!(said(&front_end, ASKED.as_bytes()).starts_with("HTTP/1.1 200"));
    reload("127.0.0.0/33", "127.0.0.0/8");
    let introduced = [&binary()[..], ASKED.as_bytes()].concat();
    eventually("headers are read", || {
        let answer = said(&front_end, &introduced);
        answer.contains("192.0.2.7").then_some(())
    });
    assert!(said(&front_end, ASKED.as_bytes()).contains("proxy_protocol"));
}

#[test]
fn a_slow_header_ends_at_the_time_for_a_head() {
    let folder = folder("proxy-protocol-slow");
    let mirror = Mirror::start();
    let timeouts = "[timeouts]\nclient_head = \"200ms\"\n";
    let front_end = Behind::start(&folder, &mirror, "[\"127.0.0.1/32\"]", timeouts);
    assert_eq!(said(&front_end, b"PROXY TCP4 "), "", "it is cut");
    let late = said(&front_end, &[&binary()[..], b"GET / HTTP/1.1\r\n"].concat());
    assert!(late.starts_with("HTTP/1.1 408"), "{late}");
}

#[test]
fn a_stock_haproxy_passes_its_clients_on() {
    if !is_installed("haproxy") || !is_installed("curl") {
        println!("SKIPPED: haproxy or curl is not installed");
        return;
    }
    let mirror = Mirror::start();
    let authority = Authority::new(&folder("proxy-protocol-tls"));
    let tls = authority.map(|it| {
        format!(
            "\ntls = {{ {} }}",
            it.issue("shop", &["shop.example"]).keys()
        )
    });
    let with_tls = tls.map(|tls| ("send-proxy-v2 ssl verify none", tls));
    let plain = ["send-proxy", "send-proxy-v2"].map(|kind| (kind, String::new()));
    for (kind, tls) in plain.into_iter().chain(with_tls) {
        let folder = folder(&format!("proxy-protocol-{}", kind.replace(' ', "-")));
        let listener = format!("[\"127.0.0.1/32\"]{tls}");
        let front_end = Behind::start(&folder, &mirror, &listener, "");
        // Its checks have a header, too.
        let server = format!(
            "server s1 {} {kind} check inter 1s fall 100",
            front_end.address
        );
        let haproxy = Haproxy::start(&folder, &[server]);
        eventually("its check passes", || {
            ["L4OK", "L6OK"]
                .contains(&&*haproxy.stat("s1", "check_status"))
                .then_some(())
        });
        let url = format!("http://{}/", haproxy.address);
        let output = Command::new("curl")
            .args(["-s", "--interface", "127.0.0.7", &url])
            .output()
            .unwrap();
        let head = String::from_utf8(output.stdout)
            .unwrap()
            .to_ascii_lowercase();
        assert!(
            head.contains("x-forwarded-for: 127.0.0.7\r\n"),
            "{kind}: {head}"
        );
        assert_eq!(front_end.refused(), Some(0.0), "{kind}");
    }
}
