//! TLS towards clients: certificates by name, versions, sessions, clients' certificates, reloads, upgrades.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::scene::{Cluster, Scene};
use support::server::{head, server};
use support::tls::{Authority, Connection, Pair, end_sending};
use support::upgrade::upgrade;
use support::{eventually, free_address, is_installed, request};

/// A node that answers with the head that it was asked with.
fn mirror() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                while let Some(head) = head(&mut reader) {
                    let length = head.len();
                    let answer =
                        format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{head}");
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// A node that echoes the bodies of its requests.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                while let Some(head) = head(&mut reader) {
                    let length = head.lines().find_map(|line| {
                        let (name, value) = line.split_once(": ")?;
                        let is_length = name.eq_ignore_ascii_case("content-length");
                        is_length.then(|| value.parse::<usize>().unwrap())
                    });
                    let mut body = vec![0; length.unwrap_or(0)];
                    reader.read_exact(&mut body).unwrap();
                    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                    stream.write_all(head.as_bytes()).unwrap();
                    stream.write_all(&body).unwrap();
                }
            });
        }
    });
    address
}

/// A front-end with one more listener, whose TLS is as this table says.
struct Secure {
    scene: Scene,
    address: SocketAddr,
}

fn cluster(address: SocketAddr, tls: &str, node: SocketAddr, more: &str) -> Cluster {
    let listener = format!("{more}\n[[listener]]\naddress = \"{address}\"\ntls = {{ {tls} }}\n");
    Cluster::default()
        .site("shop", "*")
        .node("n1", node, "shop")
        .more(&listener)
}

impl Secure {
    fn start(name: &str, tls: &str, node: SocketAddr, more: &str) -> Self {
        let address = free_address();
        let scene = Scene::start(name, &cluster(address, tls, node, more));
        Self { scene, address }
    }

    fn metric(&self, start: &str) -> f64 {
        self.scene.front_end.metric(start).unwrap_or(-1.0)
    }

    #[track_caller]
    fn counts(&self, start: &str, wanted: f64) {
        eventually(start, || (self.metric(start) == wanted).then_some(()));
    }

    fn failed(&self, reason: &str, wanted: f64) {
        let name = format!("tidegate_tls_handshake_failures_total{{reason=\"{reason}\"}}");
        self.counts(&name, wanted);
    }

    /// What `openssl s_client` says of a connection on which it asks for `/`.
    fn s_client(&self, words: &[&str]) -> String {
        let to = self.address.to_string();
        let mut client = Command::new("openssl")
            .args(["s_client", "-connect", &to, "-ign_eof"])
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let asked = b"GET / HTTP/1.1\r\nhost: a.example\r\nconnection: close\r\n\r\n";
        // One that could not connect reads nothing.
        client.stdin.as_mut().unwrap().write_all(asked).ok();
        let done = client.wait_with_output().unwrap();
        let said = [done.stdout, done.stderr].concat();
        String::from_utf8_lossy(&said).into_owned()
    }
}

/// A folder of the test's certificates, which the front-end's own folder is not.
fn certificates(name: &str) -> Option<Authority> {
    Authority::new(&support::folder(&format!("{name}-certificates")))
}

/// The next answer on a connection, with a body of that length.
fn ask(connection: &mut Connection, host: &str) -> String {
    let text = format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n");
    connection.write_all(text.as_bytes()).unwrap();
    answer(connection)
}

/// Reads an answer whose body has a length: head and body.
fn answer(connection: &mut Connection) -> String {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\r\n\r\n") {
        assert_eq!(connection.read(&mut byte).unwrap(), 1, "cut: {text:?}");
        text.push(byte[0]);
    }
    let mut text = String::from_utf8(text).unwrap();
    let length = text.to_ascii_lowercase().lines().find_map(|line| {
        let value = line.strip_prefix("content-length: ")?;
        value.parse::<usize>().ok()
    });
    let mut body = vec![0; length.unwrap_or(0)];
    connection.read_exact(&mut body).unwrap();
    text.push_str(std::str::from_utf8(&body).unwrap());
    text
}

#[test]
fn each_name_has_its_certificate_and_the_first_is_for_all_others() {
    let Some(authority) = certificates("tls-names") else {
        return;
    };
    let first = authority.issue("first", &["a.example"]);
    let second = authority.issue("second", &["*.b.example", "b.example"]);
    let tls = format!("{}, certificates = [{{ {} }}]", first.keys(), second.keys());
    let secure = Secure::start("tls-names", &tls, server("a"), "");
    for (name, shown) in [
        ("a.example", "first"),
        ("B.example", "second"),
        ("www.b.example", "second"),
        ("x.www.b.example", "first"),
        ("other.example", "first"),
    ] {
        let said = secure.s_client(&["-servername", name]);
        let subject = format!("subject=O = \"Shop, Inc.\", CN = {shown}");
        assert!(said.contains(&subject), "{name}: {said}");
        assert!(said.contains("HTTP/1.1 200 OK"), "{name}: {said}");
    }
    let said = secure.s_client(&["-noservername"]);
    assert!(said.contains("CN = first"), "{said}");
}

#[test]
fn versions_are_as_configured_and_sessions_are_resumed() {
    let Some(authority) = certificates("tls-versions") else {
        return;
    };
    let pair = authority.issue("a", &["a.example"]);
    let secure = Secure::start("tls-versions", &pair.keys(), server("a"), "");
    for (option, version) in [("-tls1_2", "1.2"), ("-tls1_3", "1.3")] {
        let file = secure.scene.folder.join(format!("session-{version}"));
        let file = file.to_str().unwrap();
        let said = secure.s_client(&[option, "-sess_out", file]);
        let new = format!("New, TLSv{version}");
        assert!(said.contains(&new) && said.contains("200 OK"), "{said}");
        let said = secure.s_client(&[option, "-sess_in", file]);
        let reused = format!("Reused, TLSv{version}");
        assert!(said.contains(&reused) && said.contains("200 OK"), "{said}");
        for resumed in ["false", "true"] {
            let labels = format!("{{version=\"{version}\",resumed=\"{resumed}\"}}");
            secure.counts(&format!("tidegate_tls_handshakes_total{labels}"), 1.0);
        }
    }
    // By its identifier alone.
    let file = secure.scene.folder.join("session-id");
    let file = file.to_str().unwrap();
    secure.s_client(&["-tls1_2", "-no_ticket", "-sess_out", file]);
    let said = secure.s_client(&["-tls1_2", "-no_ticket", "-sess_in", file]);
    assert!(said.contains("Reused, TLSv1.2"), "{said}");

    let tls = format!("{}, minimum_version = \"1.3\"", pair.keys());
    let newer = Secure::start("tls-versions-13", &tls, server("a"), "");
    let said = newer.s_client(&["-tls1_2"]);
    assert!(!said.contains("200 OK"), "{said}");
    newer.failed("incompatible", 1.0);
    assert!(newer.s_client(&[]).contains("200 OK"));
}

#[test]
fn aes_128_goes_first_unless_a_client_puts_chacha20_first() {
    let Some(authority) = certificates("tls-suites") else {
        return;
    };
    let pair = authority.issue("a", &["a.example"]);
    let secure = Secure::start("tls-suites", &pair.keys(), server("a"), "");
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    let has_aes = cpu.split_whitespace().any(|word| word == "aes");
    let (aes_128, aes_256) = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384");
    let chacha = "TLS_CHACHA20_POLY1305_SHA256";
    let (old_128, old_256) = (
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
    );
    let old_chacha = "ECDHE-ECDSA-CHACHA20-POLY1305";
    for (listed, wanted) in [
        (&[aes_256, chacha, aes_128][..], aes_128),
        (&[chacha, aes_256, aes_128], chacha),
        (&[aes_256, chacha], aes_256),
        (&[old_256, old_chacha, old_128], old_128),
        (&[old_chacha, old_256, old_128], old_chacha),
        (&[old_256], old_256),
    ] {
        let options = match wanted.starts_with("TLS_") {
            true => ["-tls1_3", "-ciphersuites"],
            false => ["-tls1_2", "-cipher"],
        };
        let list = listed.join(":");
        let said = secure.s_client(&[options[0], options[1], &list]);
        let wanted = if has_aes { wanted } else { listed[0] };
        assert!(
            said.contains(&format!("Cipher is {wanted}")),
            "{list}: {said}"
        );
        assert!(said.contains("200 OK"), "{list}: {said}");
    }
}

#[test]
fn each_handshake_brings_a_ticket_for_the_next() {
    let Some(authority) = certificates("tls-tickets") else {
        return;
    };
    let pair = authority.issue("a", &["a.example"]);
    let secure = Secure::start("tls-tickets", &pair.keys(), server("a"), "");
    let files = ["first", "second"].map(|name| secure.scene.folder.join(name));
    let [first, second] = files.each_ref().map(|file| file.to_str().unwrap());
    for (words, begun) in [
        (&["-sess_out", first][..], "New, TLSv1.3"),
        (&["-sess_in", first, "-sess_out", second], "Reused, TLSv1.3"),
        (&["-sess_in", second], "Reused, TLSv1.3"),
    ] {
        let said = secure.s_client(words);
        assert!(said.contains(begun), "{words:?}: {said}");
        let tickets = said.matches("New Session Ticket arrived").count();
        assert_eq!(tickets, 1, "{words:?}: {said}");
    }
}

#[test]
fn what_is_said_of_the_client_is_what_was_seen() {
    let Some(authority) = certificates("tls-told") else {
        return;
    };
    let pair = authority.issue("a", &["a.example"]);
    let tls = format!("{}, hsts = \"24h\", other_hosts = \"refuse\"", pair.keys());
    let more = "[forwarded]\nforwarded = true\n";
    let secure = Secure::start("tls-told", &tls, mirror(), more);
    let client = authority.client();
    let mut connection = client.connect(secure.address, "a.example").unwrap();
    let told = ask(&mut connection, "a.example").to_ascii_lowercase();
    for expected in [
        "x-forwarded-proto: https\r\n",
        "forwarded: for=127.0.0.1;host=\"a.example\";proto=https\r\n",
        "strict-transport-security: max-age=86400\r\n",
    ] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
    let refused = ask(&mut connection, "b.example");
    assert!(refused.starts_with("HTTP/1.1 421 "), "{refused}");
    assert!(
        refused.contains("x-tidegate-reason: misdirected\r\n"),
        "{refused}"
    );
    assert!(refused.contains("strict-transport-security: "), "{refused}");
    // The same connection serves on.
    assert!(ask(&mut connection, "A.example:8443").starts_with("HTTP/1.1 200 "));
    let plain = secure.scene.front_end.get("a.example", "/");
    let (head, body) = (
        plain.head.to_ascii_lowercase(),
        plain.body.to_ascii_lowercase(),
    );
    assert!(!head.contains("strict-transport"), "{head}");
    assert!(body.contains("x-forwarded-proto: http\r\n"), "{body}");
}

#[test]
fn clients_show_certificates_that_nodes_learn_of_and_none_can_forge() {
    let Some(authority) = certificates("tls-clients") else {
        return;
    };
    let folder = support::folder("tls-clients-others");
    let people = Authority::named(&folder, "people").unwrap();
    let strangers = Authority::named(&folder, "strangers").unwrap();
    let (own, other) = (people.issue("ann", &[]), strangers.issue("eve", &[]));
    let pair = authority.issue("a", &["a.example"]);
    let asking = |required: bool| {
        let authorities = people.file();
        let authorities = authorities.display();
        let keys = pair.keys();
        format!(
            "{keys}, client_certificates = {{ authorities = \"{authorities}\", required = {required} }}"
        )
    };
    // Even a client whose claims are believed cannot claim this.
    let more = "[forwarded]\ntrusted = [\"127.0.0.1\"]\n";
    let secure = Secure::start("tls-clients", &asking(true), mirror(), more);
    let ann = authority.client().showing(&own);
    let forged = "GET / HTTP/1.1\r\nhost: a.example\r\nx-forwarded-client-cert: Hash=00\r\n\
                  x_forwarded_client_cert: Hash=00\r\nx-forwarded-for: 192.0.2.1\r\n\r\n";
    let mut connection = ann.connect(secure.address, "a.example").unwrap();
    connection.write_all(forged.as_bytes()).unwrap();
    let told = answer(&mut connection);
    let claims = told.to_ascii_lowercase().matches("client").count();
    assert_eq!(claims, 1, "{told}");
    assert!(
        told.contains(";Subject=\"CN=ann,O=Shop\\2C Inc.\"\r\n"),
        "{told}"
    );
    let hash = told
        .split("Hash=")
        .nth(1)
        .unwrap()
        .split(';')
        .next()
        .unwrap();
    assert_eq!(hash, fingerprint(&own), "{told}");
    for client in [authority.client(), authority.client().showing(&other)] {
        // In TLS 1.3 the client is done before the server has seen its certificate.
        let refused = client.get(secure.address, "a.example", "/");
        assert!(refused.is_err(), "{refused:?}");
    }
    secure.failed("client_certificate", 2.0);

    let optional = Secure::start("tls-clients-optional", &asking(false), mirror(), more);
    let mut connection = authority
        .client()
        .connect(optional.address, "a.example")
        .unwrap();
    connection.write_all(forged.as_bytes()).unwrap();
    let told = answer(&mut connection);
    assert!(!told.to_ascii_lowercase().contains("client"), "{told}");
    let refused = authority.client().showing(&other);
    assert!(refused.get(optional.address, "a.example", "/").is_err());

    // A session that is resumed goes on with the certificate that it began with.
    let file = optional.scene.folder.join("session");
    let (certificate, key) = (own.certificate.to_str().unwrap(), own.key.to_str().unwrap());
    let shown = ["-cert", certificate, "-key", key];
    let kept = ["-sess_out", file.to_str().unwrap()];
    let first = optional.s_client(&[shown, [kept[0], kept[1], "-quiet", "-tls1_3"]].concat());
    let resumed = optional.s_client(&["-sess_in", kept[1], "-tls1_3"]);
    assert!(resumed.contains("Reused"), "{resumed}");
    for said in [first, resumed] {
        assert!(
            said.contains(&format!("Hash={}", fingerprint(&own))),
            "{said}"
        );
    }
}

/// The SHA-256 of a certificate, as openssl has it.
fn fingerprint(pair: &Pair) -> String {
    let mut command = Command::new("openssl");
    command.args(["x509", "-noout", "-fingerprint", "-sha256", "-in"]);
    let said = command.arg(&pair.certificate).output().unwrap().stdout;
    let said = String::from_utf8(said).unwrap();
    let hex = said.trim().split('=').nth(1).unwrap();
    hex.replace(':', "").to_ascii_lowercase()
}

fn copy(from: &Pair, to: &Pair) {
    for (from, to) in [(&from.certificate, &to.certificate), (&from.key, &to.key)] {
        std::fs::copy(from, to).unwrap();
    }
}

#[test]
fn a_reload_shows_new_certificates_and_keeps_connections_and_a_bad_one_changes_nothing() {
    let Some(authority) = certificates("tls-reload") else {
        return;
    };
    let [old, new] = ["old", "new"].map(|file| authority.issue(file, &["a.example"]));
    let live = authority.issue("live", &["a.example"]);
    copy(&old, &live);
    let secure = Secure::start("tls-reload", &live.keys(), server("a"), "");
    let file = secure.scene.folder.join("session");
    let file = file.to_str().unwrap();
    assert!(secure.s_client(&["-sess_out", file]).contains("CN = old"));
    let client = authority.client();
    let mut kept = client.connect(secure.address, "a.example").unwrap();
    assert!(ask(&mut kept, "a.example").ends_with('a'));

    copy(&new, &live);
    let done = secure.scene.reload(&[]);
    let said = format!("new connections to {} are shown other", secure.address);
    assert!(done.contains(&said), "{done}");
    assert!(ask(&mut kept, "a.example").ends_with('a'));
    assert!(secure.s_client(&[]).contains("CN = new"));
    let resumed = secure.s_client(&["-sess_in", file]);
    assert!(resumed.contains("Reused"), "{resumed}");
    let again = secure.scene.reload(&[]);
    assert!(!again.contains("are shown other"), "{again}");

    for (broken, expected) in [
        (&live.certificate, "there is no certificate in it"),
        (&live.key, "there is no private key in it"),
    ] {
        std::fs::write(broken, "nothing").unwrap();
        let refused = secure.scene.command(&["reload"]);
        let error = String::from_utf8(refused.stderr).unwrap();
        assert!(
            !refused.status.success() && error.contains(expected),
            "{error}"
        );
        assert!(error.contains("tidegate.toml:"), "{error}");
        assert!(ask(&mut kept, "a.example").ends_with('a'));
        assert!(secure.s_client(&[]).contains("CN = new"));
        copy(&new, &live);
    }
    std::fs::copy(&old.key, &live.key).unwrap();
    let refused = secure.scene.command(&["reload"]);
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(error.contains("is not that of the certificate"), "{error}");
}

#[test]
fn tls_comes_and_goes_with_a_reload() {
    let Some(authority) = certificates("tls-comes") else {
        return;
    };
    let pair = authority.issue("a", &["a.example"]);
    let node = server("a");
    let secure = Secure::start("tls-comes", &pair.keys(), node, "");
    let client = authority.client();
    let mut kept = client.connect(secure.address, "a.example").unwrap();
    let plain = format!("[[listener]]\naddress = \"{}\"\n", secure.address);
    let site = Cluster::default()
        .site("shop", "*")
        .node("n1", node, "shop");
    secure.scene.write(&site.clone().more(&plain).text());
    secure.scene.reload(&[]);
    let asked = "GET / HTTP/1.1\r\nhost: any\r\nconnection: close\r\n\r\n";
    assert_eq!(request(secure.address, asked).unwrap().body, "a");
    assert!(ask(&mut kept, "a.example").ends_with('a'));
    let redirecting = format!("{plain}redirect_to_https = true\nhttps_port = 8443\n");
    secure.scene.write(&site.more(&redirecting).text());
    secure.scene.reload(&[]);
    let sent = "POST /x?y=1 HTTP/1.1\r\nhost: a.example:80\r\nconnection: close\r\n\
                content-length: 1\r\n\r\nx";
    let answer = request(secure.address, sent).unwrap();
    let location = "location: https://a.example:8443/x?y=1";
    assert_eq!(answer.status, 308, "{answer:?}");
    assert!(answer.head.contains(location), "{answer:?}");
}

#[test]
fn connections_survive_an_upgrade_and_the_new_process_shakes_hands() {
    let Some(authority) = certificates("tls-upgrade") else {
        return;
    };
    let pair = authority.issue("a", &["a.example"]);
    let mut secure = Secure::start("tls-upgrade", &pair.keys(), server("a"), "");
    let client = authority.client();
    let get = |to| client.get(to, "a.example", "/").unwrap();
    assert!(get(secure.address).ends_with('a'));
    let _successor = upgrade(&mut secure.scene.front_end);
    assert!(get(secure.address).ends_with('a'));
    secure.counts(
        "tidegate_tls_handshakes_total{version=\"1.3\",resumed=\"false\"}",
        1.0,
    );
}

#[test]
fn large_bodies_go_both_ways() {
    let Some(authority) = certificates("tls-bodies") else {
        return;
    };
    if !is_installed("curl") {
        return;
    }
    let pair = authority.issue("a", &["a.example"]);
    let secure = Secure::start("tls-bodies", &pair.keys(), echo(), "");
    let body: Vec<u8> = (0..5_000_000_u32).map(|it| (it % 251) as u8).collect();
    let file = secure.scene.folder.join("body");
    std::fs::write(&file, &body).unwrap();
    let port = secure.address.port();
    for version in [&["--tls-max", "1.2"][..], &["--tlsv1.3"]] {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--http1.1"]).args(version);
        curl.arg("--cacert").arg(authority.file());
        curl.args(["--resolve", &format!("a.example:{port}:127.0.0.1")]);
        curl.arg("--data-binary")
            .arg(format!("@{}", file.display()));
        let done = curl
            .arg(format!("https://a.example:{port}/"))
            .output()
            .unwrap();
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
        assert!(done.stdout == body, "{version:?}: another body comes back");
    }
}

#[test]
fn a_tunnel_goes_through_and_each_side_may_end_first() {
    let Some(authority) = certificates("tls-tunnel") else {
        return;
    };
    let pair = authority.issue("a", &["a.example"]);
    let secure = Secure::start("tls-tunnel", &pair.keys(), server("a"), "");
    let client = authority.client();
    let mut connection = client.connect(secure.address, "a.example").unwrap();
    let asked =
        b"GET / HTTP/1.1\r\nhost: a.example\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nearly";
    connection.write_all(asked).unwrap();
    let mut head = String::new();
    let mut reader = BufReader::new(&mut connection);
    while !head.ends_with("\r\n\r\n") {
        reader.read_line(&mut head).unwrap();
    }
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let mut early = [0; 5];
    reader.read_exact(&mut early).unwrap();
    assert_eq!(&early, b"early");
    drop(reader);
    let sent: Vec<u8> = (0..200_000_u32).map(|it| (it % 251) as u8).collect();
    for part in sent.chunks(10_000) {
        connection.write_all(part).unwrap();
        let mut back = vec![0; part.len()];
        connection.read_exact(&mut back).unwrap();
        assert!(back == part);
    }
    end_sending(&mut connection);
    let mut rest = Vec::new();
    connection.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty(), "{rest:?}");
    secure.counts("tidegate_tunnels ", 0.0);
}

#[test]
fn the_example_of_the_documentation_runs() {
    let Some(authority) = certificates("tls-example") else {
        return;
    };
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tls.md");
    let page = std::fs::read_to_string(page).unwrap();
    let example = page
        .split("```toml\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let shop = authority.issue("shop", &["shop.example", "www.shop.example"]);
    let api = authority.issue("api", &["api.example"]);
    let (plain, secure) = (free_address(), free_address());
    let text = example
        .replace("0.0.0.0:80\"", &format!("{plain}\""))
        .replace("0.0.0.0:443\"", &format!("{secure}\""))
        .replace("10.0.0.11:80", &server("a").to_string())
        .replace(
            "/etc/tidegate/shop.pem",
            &shop.certificate.display().to_string(),
        )
        .replace("/etc/tidegate/shop.key", &shop.key.display().to_string())
        .replace(
            "/etc/tidegate/api.pem",
            &api.certificate.display().to_string(),
        )
        .replace("/etc/tidegate/api.key", &api.key.display().to_string());
    let folder = support::folder("tls-example");
    let _front_end = support::FrontEnd::start(&folder, &text);
    let client = authority.client();
    for name in ["shop.example", "www.shop.example", "api.example"] {
        let answer = client.get(secure, name, "/").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{name}: {answer}");
    }
    let asked = "GET / HTTP/1.1\r\nhost: shop.example\r\nconnection: close\r\n\r\n";
    let redirected = request(plain, asked).unwrap();
    assert_eq!(redirected.status, 308);
    assert!(
        redirected.head.contains("location: https://shop.example/"),
        "{redirected:?}"
    );
}

/// What `tidegate check` prints of a listener with this TLS, and whether it is content.
fn check(folder: &Path, tls: &str) -> (bool, String) {
    let text = cluster(free_address(), tls, free_address(), "").text();
    let file = folder.join("checked.toml");
    std::fs::write(&file, text).unwrap();
    let done = support::tidegate()
        .arg("check")
        .arg(&file)
        .output()
        .unwrap();
    let said = [done.stdout, done.stderr].concat();
    (done.status.success(), String::from_utf8(said).unwrap())
}

#[test]
fn check_notes_a_certificate_out_of_its_time() {
    let Some(authority) = certificates("tls-dates") else {
        return;
    };
    let folder = support::folder("tls-dates");
    for (days, expected) in [
        (2, "expires within seven days"),
        (-1, "has expired: clients refuse it"),
    ] {
        let pair = authority.issue_for("dated", &["a.example"], days);
        let (ok, said) = check(&folder, &pair.keys());
        assert!(ok && said.contains(expected), "{said}");
    }
}

/// A file of the folder with this text.
fn written(folder: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    path
}

/// A key with a passphrase.
fn locked(folder: &Path, key: &Path) -> PathBuf {
    let path = written(folder, "locked.key", "", 0o600);
    let mut lock = Command::new("openssl");
    lock.args(["pkey", "-aes-128-cbc", "-passout", "pass:secret", "-in"]);
    let lock = lock.arg(key).arg("-out").arg(&path).output().unwrap();
    assert!(lock.status.success(), "{lock:?}");
    path
}

/// What is wrong with the TLS of a listener, and what is said of it.
fn wrong(folder: &Path, good: &Pair, other: &Pair) -> Vec<(String, &'static str)> {
    let with = |key: PathBuf| {
        let certificate = good.certificate.clone();
        Pair { certificate, key }.keys()
    };
    let shown = |certificate: PathBuf| {
        let key = good.key.clone();
        Pair { certificate, key }.keys()
    };
    let none = || folder.join("none");
    let key = std::fs::read_to_string(&good.key).unwrap();
    let (begin, end) = (
        "-----BEGIN CERTIFICATE-----\nAAAA\n",
        "-----END CERTIFICATE-----\n",
    );
    let cut = written(folder, "cut.pem", begin, 0o644);
    let junk = written(folder, "junk.pem", &format!("{begin}{end}"), 0o644);
    let [own, before] = [good, other].map(|it| std::fs::read_to_string(&it.certificate).unwrap());
    let turned = written(folder, "turned.pem", &[before, own].concat(), 0o644);
    let (keys, no_authority) = (good.keys(), good.key.display());
    let clients = format!("{keys}, client_certificates = {{ authorities = \"{no_authority}\" }}");
    vec![
        (
            with(other.key.clone()),
            "key file: the private key in it is not that of the certificate",
        ),
        (
            with(locked(folder, &good.key)),
            "key file: the private key in it is encrypted",
        ),
        (with(good.certificate.clone()), "key file: "),
        (with(none()), "key file: No such file"),
        (
            with(written(folder, "none.key", "", 0o600)),
            "there is no private key in it",
        ),
        (
            with(written(folder, "open.key", &key, 0o644)),
            "others have access to it",
        ),
        (
            shown(good.key.clone()),
            "certificate file: there is no certificate in it",
        ),
        (shown(none()), "certificate file: No such file"),
        (shown(cut), "certificate file: it is no PEM"),
        (
            shown(turned),
            "certificate file: the key is that of certificate 2 in it: the server's own comes first",
        ),
        (
            shown(junk),
            "certificate file: a certificate in it cannot be read",
        ),
        (clients, "certificate file: there is no certificate in it"),
        (
            format!("{keys}, ocsp = \"none\""),
            "OCSP file: No such file",
        ),
    ]
}

#[test]
fn check_says_what_is_wrong_with_each_file_and_where_it_is_named() {
    let Some(authority) = certificates("tls-check") else {
        return;
    };
    let folder = support::folder("tls-check");
    let [good, other] = ["good", "other"].map(|file| authority.issue(file, &["a.example"]));
    for (tls, expected) in wrong(&folder, &good, &other) {
        let (ok, said) = check(&folder, &tls);
        assert!(!ok && said.contains(expected), "{expected}: {said}");
        assert!(said.contains("checked.toml:4:"), "{said}");
    }
}

#[test]
fn refusals_and_retries_go_through_tls() {
    let Some(authority) = certificates("tls-refusals") else {
        return;
    };
    let pair = authority.issue("a", &["a.example", "full.example"]);
    // The first node of the shop is not there; the full site lets nothing in.
    let more = format!(
        "[[site]]\nname = \"full\"\nhosts = [\"full.example\"]\npolicy = \"round_robin\"\n\
         admission = {{ mode = \"static\", connections = 0 }}\n\
         [[node]]\nname = \"n3\"\nsite = \"full\"\naddress = \"{}\"\n\
         [[node]]\nname = \"n2\"\nsite = \"shop\"\naddress = \"{}\"\n",
        server("c"),
        free_address()
    );
    let secure = Secure::start("tls-refusals", &pair.keys(), server("a"), &more);
    let client = authority.client();
    let mut connection = client.connect(secure.address, "a.example").unwrap();
    for _ in 0..20 {
        assert!(ask(&mut connection, "a.example").ends_with('a'));
    }
    assert!(secure.metric("tidegate_retries_total") >= 1.0);
    let refused = ask(&mut connection, "full.example");
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(
        refused.contains("x-tidegate-reason: overload\r\n"),
        "{refused}"
    );
    assert!(ask(&mut connection, "a.example").ends_with('a'));
}
