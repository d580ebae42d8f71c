//! Headers of the PROXY protocol that name clients to nodes: connections that are passed on, requests, checks, TLS behind the
//! header; before stock servers of nginx and HAProxy, and before one of the test's own; and the example of docs/proxy-protocol.md.
#![expect(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod support;

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use support::scene::{Cluster, Scene};
use support::server::{head, server, server_that};
use support::tls::Authority;
use support::{
    FrontEnd, Nginx, PATIENCE, Process, eventually, folder, free_address, free_address_at,
    is_installed, nginx,
};

const LOCAL_4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const LOCAL_6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// Loopback of each family that this host has.
fn families() -> Vec<IpAddr> {
    let has_6 = std::net::TcpListener::bind((LOCAL_6, 0)).is_ok();
    let six = has_6.then_some(LOCAL_6);
    [LOCAL_4].into_iter().chain(six).collect()
}

fn client(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// What its header says in the words of version 1, whichever it is; `local` for a connection of the front-end's own.
fn header(reader: &mut impl BufRead) -> Option<String> {
    let mut first = [0; 1];
    reader.read_exact(&mut first).ok()?;
    if first == *b"P" {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.strip_prefix("ROXY ")?.strip_suffix("\r\n")?;
        return Some(match line {
            "UNKNOWN" => "local".into(),
            line => line.into(),
        });
    }
    let mut fixed = [0; 15];
    reader.read_exact(&mut fixed).ok()?;
    if fixed[..11] != *b"\n\r\n\0\r\nQUIT\n" {
        return None;
    }
    let mut rest = vec![0; usize::from(fixed[13]) * 256 + usize::from(fixed[14])];
    reader.read_exact(&mut rest).ok()?;
    let port = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
    let six = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&rest[at..at + 16]).unwrap());
    let four = |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&rest[at..at + 4]).unwrap());
    match (fixed[11], fixed[12], rest.len()) {
        (0x20, 0, 0) => Some("local".into()),
        (0x21, 0x11, 12) => Some(format!(
            "TCP4 {} {} {} {}",
            four(0),
            four(4),
            port(8),
            port(10)
        )),
        (0x21, 0x21, 36) => Some(format!(
            "TCP6 {} {} {} {}",
            six(0),
            six(16),
            port(32),
            port(34)
        )),
        _ => None,
    }
}

/// A header as it is to be, of a client's connection.
fn told(from: SocketAddr, to: SocketAddr) -> String {
    let family = if from.is_ipv4() { "TCP4" } else { "TCP6" };
    let (source, destination) = (from.ip(), to.ip());
    format!(
        "{family} {source} {destination} {} {}",
        from.port(),
        to.port()
    )
}

/// A server that answers each request with what its connection's header says and how many requests came before on it. What asks
/// for `/` of a checker or a probe is answered as any.
fn recorder(ip: IpAddr) -> SocketAddr {
    server_that(ip, |stream| {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let said = header(&mut reader)?;
        answer_all(stream, &mut reader, &said)
    })
}

fn answer_all(mut stream: TcpStream, reader: &mut impl BufRead, said: &str) -> Option<()> {
    for number in 0.. {
        head(reader)?;
        let body = format!("{said}, {number}");
        let length = body.len();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all(answer.as_bytes()).ok()?;
    }
    None
}

/// The body of the next answer on a connection that stays.
fn ask(stream: &mut TcpStream, host: &str) -> String {
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let head = head(&mut reader).unwrap().to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let length = head
        .lines()
        .find_map(|it| it.strip_prefix("content-length: "));
    let mut body = vec![0; length.unwrap().parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    String::from_utf8(body).unwrap()
}

/// A site of this version with one node, by a listener of HTTP at one address and one of connections at the other.
fn text(version: u32, node: SocketAddr, [http, tcp]: [SocketAddr; 2], more: &str) -> String {
    format!(
        "[[listener]]\naddress = \"{http}\"\n\
         [[listener]]\naddress = \"{tcp}\"\ntcp_site = \"shop\"\n\
         [[site]]\nname = \"shop\"\nnode_proxy_protocol = {version}\nadmission = {{ mode = \"off\" }}\n{more}\n\
         [[node]]\nname = \"n1\"\naddress = \"{node}\"\nsite = \"shop\"\n"
    )
}

#[test]
fn connections_say_both_of_their_ends() {
    for (index, ip) in families().into_iter().enumerate() {
        for version in [1, 2] {
            let folder = folder(&format!("to-nodes-ends-{index}-{version}"));
            let listeners = [free_address_at(ip), free_address_at(ip)];
            let _front_end = FrontEnd::start(&folder, &text(version, recorder(ip), listeners, ""));
            for address in listeners {
                let mut stream = client(address);
                let from = stream.local_addr().unwrap();
                for number in 0..3 {
                    let expected = format!("{}, {number}", told(from, address));
                    assert_eq!(ask(&mut stream, "a"), expected, "version {version}");
                }
            }
        }
    }
}

#[test]
fn a_connection_to_a_node_is_one_clients_alone_and_ends_with_it() {
    let listeners = [free_address(), free_address()];
    let text = text(2, recorder(LOCAL_4), listeners, "");
    let front_end = FrontEnd::start_with(&folder("to-nodes-own"), &text, "[limits]\nworkers = 1\n");
    let of_node = |what: &str| {
        let metric = format!("tidegate_node_{what}{{site=\"shop\",node=\"n1\"}}");
        front_end.metric(&metric).unwrap()
    };
    let mut clients = [(); 3].map(|()| client(listeners[0]));
    for number in 0..3 {
        for stream in &mut clients {
            let from = stream.local_addr().unwrap();
            let expected = format!("{}, {number}", told(from, listeners[0]));
            assert_eq!(ask(stream, "a"), expected);
        }
    }
    assert_eq!(of_node("connects_total"), 3.0);
    assert_eq!(of_node("connections_idle"), 3.0);
    drop(clients);
    eventually("they are closed with their clients", || {
        (of_node("connections_idle") == 0.0).then_some(())
    });
}

#[test]
fn what_a_balancer_says_is_passed_on() {
    let address = free_address();
    let node = recorder(LOCAL_4);
    let text = format!(
        "[[listener]]\naddress = \"{address}\"\nproxy_protocol = [\"127.0.0.0/8\"]\n\
         [[site]]\nname = \"shop\"\nnode_proxy_protocol = 2\n\
         [[node]]\nname = \"n1\"\naddress = \"{node}\"\nsite = \"shop\"\n"
    );
    let _front_end = FrontEnd::start(&folder("to-nodes-balancer"), &text);
    for line in [
        "TCP4 192.0.2.7 198.51.100.1 56324 443",
        "TCP6 2001:db8::7 2001:db8::1 56324 443",
    ] {
        let mut stream = client(address);
        stream
            .write_all(format!("PROXY {line}\r\n").as_bytes())
            .unwrap();
        assert_eq!(ask(&mut stream, "a"), format!("{line}, 0"));
    }
    // A balancer that names no client is the client.
    let mut stream = client(address);
    stream.write_all(b"PROXY UNKNOWN\r\n").unwrap();
    let from = stream.local_addr().unwrap();
    assert_eq!(ask(&mut stream, "a"), format!("{}, 0", told(from, address)));
}

/// A server that takes no header, and one that takes nothing else, behind the same site before and after a reload.
#[test]
fn a_reload_changes_it_for_new_connections() {
    let site = |node: SocketAddr, more: &str| {
        format!(
            "[[site]]\nname = \"shop\"\n{more}\n\
             [[node]]\nname = \"n0\"\naddress = \"{node}\"\nsite = \"shop\"\n"
        )
    };
    let plain = site(server("plain"), "");
    let scene = Scene::start("to-nodes-reload", &Cluster::default().more(&plain));
    let address = scene.front_end.address;
    let mut older = client(address);
    assert_eq!(ask(&mut older, "a"), "plain");
    scene.write(&site(recorder(LOCAL_4), "node_proxy_protocol = 1\n"));
    let said = scene.reload(&[]);
    assert!(said.contains("begin with a PROXY header"), "{said}");
    eventually("its header is sent", || {
        let answer = ask(&mut client(address), "a");
        answer
            .starts_with("TCP4 127.0.0.1 127.0.0.1 ")
            .then_some(())
    });
    let answer = ask(&mut older, "a");
    assert!(
        answer.starts_with("TCP4 127.0.0.1 0.0.0.0 0 0, "),
        "{answer}"
    );
    scene.write(&plain);
    scene.reload(&[]);
    assert_eq!(ask(&mut client(address), "a"), "plain");
}

#[test]
fn checks_and_probes_say_that_there_is_no_client() {
    for (version, check) in [
        (
            1,
            "{ kind = \"http\", body = \"local, 0\", interval = \"100ms\" }",
        ),
        (
            2,
            "{ kind = \"http\", body = \"local, 0\", interval = \"100ms\" }",
        ),
        (
            2,
            "{ kind = \"tcp\", send = \"GET / HTTP/1.1\\r\\n\\r\\n\", expect = \"local, 0\", interval = \"100ms\" }",
        ),
    ] {
        let listeners = [free_address(), free_address()];
        let check = format!("check = {check}\n");
        let text = text(version, recorder(LOCAL_4), listeners, &check);
        let name = format!("to-nodes-checks-{version}-{}", check.contains("tcp"));
        let front_end = FrontEnd::start(&folder(&name), &text);
        let passed = "tidegate_node_check_seconds_total{";
        eventually("it is checked", || {
            (front_end.metric(passed)? > 0.0).then_some(())
        });
        let healthy = "tidegate_node_checks_total{site=\"shop\",node=\"n1\",check=";
        let text = support::ask(front_end.admin, "/metrics").unwrap().body;
        let mut lines = text.lines().filter(|it| it.starts_with(healthy));
        assert!(
            lines.all(|it| it.contains("result=\"passed\"") || it.ends_with(" 0")),
            "{text}"
        );
    }
}

#[test]
fn a_stock_nginx_knows_its_clients() {
    if nginx().is_none() {
        return println!("SKIPPED: nginx is not installed");
    }
    let folder = folder("to-nodes-nginx");
    let says = "location / { return 200 \"$proxy_protocol_addr $proxy_protocol_port \
                $proxy_protocol_server_addr $proxy_protocol_server_port\"; }";
    let plain = Nginx::start_with(&folder, "plain", ["proxy_protocol", says]);
    let keys = Authority::new(&self::folder("to-nodes-nginx-keys"));
    let tls = keys.as_ref().map(|authority| {
        let pair = authority.issue("shop", &["shop.example"]);
        let (certificate, key) = (pair.certificate.display(), pair.key.display());
        let server = format!("ssl_certificate {certificate}; ssl_certificate_key {key}; {says}");
        let rule = format!(
            "node_tls = {{ authorities = \"{}\", server_name = \"shop.example\" }}\n",
            authority.file().display()
        );
        let nginx = Nginx::start_with(&folder, "tls", ["ssl proxy_protocol", &server]);
        (nginx, rule)
    });
    let plain = (plain, String::new());
    let check = "check = { kind = \"http\", interval = \"100ms\" }\n";
    for (index, (nginx, rule)) in [plain].into_iter().chain(tls).enumerate() {
        for version in [1, 2] {
            for ip in families() {
                let listeners = [free_address_at(ip), free_address_at(ip)];
                let more = format!("{rule}{check}");
                let text = text(version, nginx.address, listeners, &more);
                let name = format!("front-{index}-{version}-{}", ip.is_ipv4());
                let folder = folder.join(name);
                std::fs::create_dir_all(&folder).unwrap();
                let front_end = FrontEnd::start(&folder, &text);
                let mut stream = client(listeners[0]);
                let from = stream.local_addr().unwrap();
                let to = listeners[0].port();
                let expected = format!("{ip} {} {ip} {to}", from.port());
                assert_eq!(ask(&mut stream, "a"), expected);
                assert_eq!(ask(&mut stream, "a"), expected);
                let passed = "tidegate_node_checks_total{site=\"shop\",node=\"n1\",check=\"http\",result=\"passed\"";
                eventually("its check passes", || {
                    (front_end.metric(passed)? > 1.0).then_some(())
                });
            }
        }
    }
}

/// A stock HAProxy that awaits the header and says what it knows.
fn haproxy(folder: &Path) -> (Process, SocketAddr) {
    let address = free_address();
    let text = format!(
        "defaults\n  mode http\n  timeout connect 1s\n  timeout client 60s\n  timeout server 60s\n\
         frontend f\n  bind {address} accept-proxy\n  http-request return status 200 content-type text/plain \
         lf-string \"%[src] %[src_port] %[dst] %[dst_port]\"\n"
    );
    std::fs::write(folder.join("haproxy.cfg"), text).unwrap();
    let log = std::fs::File::create(folder.join("haproxy.log")).unwrap();
    let mut command = Command::new("haproxy");
    command.args(["-db", "-f"]).arg(folder.join("haproxy.cfg"));
    let process = Process::start(command.stdout(Stdio::null()).stderr(log));
    eventually("HAProxy listens", || TcpStream::connect(address).ok());
    (process, address)
}

#[test]
fn a_stock_haproxy_knows_its_clients() {
    if !is_installed("haproxy") {
        return;
    }
    let folder = folder("to-nodes-haproxy");
    let (_haproxy, node) = haproxy(&folder);
    for version in [1, 2] {
        for ip in families() {
            let listeners = [free_address_at(ip), free_address_at(ip)];
            let check = "check = { kind = \"http\", interval = \"100ms\" }\n";
            let text = text(version, node, listeners, check);
            let folder = folder.join(format!("front-{version}-{}", ip.is_ipv4()));
            std::fs::create_dir_all(&folder).unwrap();
            let front_end = FrontEnd::start(&folder, &text);
            for address in listeners {
                let mut stream = client(address);
                let from = stream.local_addr().unwrap();
                let expected = format!("{ip} {} {ip} {}", from.port(), address.port());
                assert_eq!(ask(&mut stream, "a"), expected);
                assert_eq!(ask(&mut stream, "a"), expected);
            }
            let passed = "tidegate_node_checks_total{site=\"shop\",node=\"n1\",check=\"http\",result=\"passed\"";
            eventually("its check passes", || {
                (front_end.metric(passed)? > 1.0).then_some(())
            });
        }
    }
}

#[test]
fn the_example_of_the_documentation_runs() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/proxy-protocol.md");
    let page = std::fs::read_to_string(page).unwrap();
    let example = page.split("```").nth(1).unwrap();
    let addresses = [free_address(), free_address()];
    let mut text = example.trim_start_matches("toml").to_owned();
    for (before, after) in [
        ("0.0.0.0:8080", addresses[0]),
        ("0.0.0.0:2525", addresses[1]),
        ("10.0.0.11:80", recorder(LOCAL_4)),
        ("10.0.0.31:25", recorder(LOCAL_4)),
    ] {
        assert!(text.contains(before), "{before}");
        text = text.replace(before, &after.to_string());
    }
    let _front_end = FrontEnd::start(&folder("to-nodes-example"), &text);
    for address in addresses {
        let mut stream = client(address);
        let from = stream.local_addr().unwrap();
        assert_eq!(ask(&mut stream, "a"), format!("{}, 0", told(from, address)));
    }
}
