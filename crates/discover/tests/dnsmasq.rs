//! Names in DNS, served by a real `dnsmasq` whose answers change.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![expect(clippy::print_stdout, reason = "a test that cannot run says why")]

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use tidegate_core::time::Timestamp;
use tidegate_core::topology::discovered::DiscoveryLimits;
use tidegate_discover::{DnsConfig, Naming, RecordKind, SourceConfig, SourceKind, WatchedSource};

/// Ports of the servers: below those that the system gives to sockets that ask for any.
static NEXT_PORT: AtomicU16 = AtomicU16::new(20_053);

/// An address that no other process has: one of loopback's, by the number of this process.
fn own_address() -> SocketAddr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, 64 | high, middle, low);
    (host, NEXT_PORT.fetch_add(1, Ordering::Relaxed)).into()
}

struct Dnsmasq {
    process: Child,
    says: BufReader<ChildStderr>,
    hosts: PathBuf,
    address: SocketAddr,
}

impl Dnsmasq {
    /// None where it is not installed.
    fn start(test: &str, hosts: &str, more: &[&str]) -> Option<Self> {
        let programs = ["/usr/sbin/dnsmasq", "/usr/bin/dnsmasq"];
        let Some(program) = programs.into_iter().find(|it| Path::new(it).exists()) else {
            println!("SKIPPED: dnsmasq is not installed");
            return None;
        };
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}.hosts"));
        std::fs::write(&file, hosts).unwrap();
        let address = own_address();
        let mut process = Command::new(program)
            .args([
                "--keep-in-foreground",
                "--conf-file=/dev/null",
                "--pid-file=",
            ])
            .args([
                "--no-resolv",
                "--no-hosts",
                "--bind-interfaces",
                "--user=root",
            ])
            .args(["--local=/test/", "--local-ttl=1", "--log-facility=-"])
            .arg("--no-daemon")
            .arg(format!("--listen-address={}", address.ip()))
            .arg(format!("--port={}", address.port()))
            .arg(format!("--addn-hosts={}", file.display()))
            .args(more)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut server = Self {
            says: BufReader::new(process.stderr.take().unwrap()),
            process,
            hosts: file,
            address,
        };
        server.wait_until_read();
        Some(server)
    }

    /// Until it has read its hosts; it listens by then.
    fn wait_until_read(&mut self) {
        let read = format!("read {} - ", self.hosts.display());
        let mut said = String::new();
        while !said.contains(&read) {
            let bytes = self.says.read_line(&mut said).unwrap();
            assert_ne!(bytes, 0, "it has ended: {said}");
        }
    }

    /// Has it answer with these addresses.
    fn change(&mut self, hosts: &str) {
        std::fs::write(&self.hosts, hosts).unwrap();
        let id = self.process.id().to_string();
        let sent = Command::new("kill").args(["-s", "HUP", &id]).status();
        assert!(sent.unwrap().success());
        self.wait_until_read();
    }

    fn source(&self, name: &str, records: RecordKind) -> WatchedSource {
        let config = DnsConfig {
            name: name.into(),
            records,
            servers: vec![self.address],
            interval: Duration::from_secs(30),
            timeout: Duration::from_secs(1),
        };
        let config = SourceConfig {
            name: "shop".into(),
            kind: SourceKind::Dns(config),
            naming: Naming::Prefix("shop".into()),
            weight: 1.0,
            limits: DiscoveryLimits {
                hold: Duration::ZERO,
                ..DiscoveryLimits::default()
            },
        };
        WatchedSource::new(config, 1, || Timestamp::from_millis(1))
    }
}

impl Drop for Dnsmasq {
    fn drop(&mut self) {
        // It may have ended already.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// What it knows after one question.
async fn asked(source: &mut WatchedSource) -> Vec<String> {
    let asked = source.ask().await;
    assert_eq!(asked.answer.err(), None);
    nodes(source)
}

fn nodes(source: &WatchedSource) -> Vec<String> {
    let nodes = source.nodes().into_iter();
    nodes
        .map(|node| format!("{} {}", node.address, node.weight))
        .collect()
}

#[tokio::test]
async fn addresses_follow_what_the_server_answers() {
    let hosts = "10.0.0.1 shop.test\n10.0.0.2 shop.test\nfd00::1 shop.test\n";
    let Some(mut server) = Dnsmasq::start("addresses", hosts, &[]) else {
        return;
    };
    let mut source = server.source("shop.test", RecordKind::Address { port: 80 });
    let all = ["10.0.0.1:80 1", "10.0.0.2:80 1", "[fd00::1]:80 1"];
    assert_eq!(asked(&mut source).await, all);
    server.change("10.0.0.2 shop.test\nfd00::1 shop.test\n10.0.0.3 shop.test\n");
    let changed = ["10.0.0.2:80 1", "10.0.0.3:80 1", "[fd00::1]:80 1"];
    assert_eq!(asked(&mut source).await, changed);
    // A name that is gone keeps the nodes.
    server.change("");
    let why = source.ask().await.answer.unwrap_err();
    assert!(why.contains("shop.test has no address"), "{why}");
    assert_eq!(nodes(&source), changed);
}

#[tokio::test]
async fn services_have_ports_and_weights() {
    let hosts = "10.0.0.1 a.test\n10.0.0.2 b.test\n";
    let services = [
        "--srv-host=_http._tcp.shop.test,a.test,8001,1,50",
        "--srv-host=_http._tcp.shop.test,b.test,8002,1,200",
        "--srv-host=_http._tcp.shop.test,a.test,9,2,1",
    ];
    let Some(server) = Dnsmasq::start("services", hosts, &services) else {
        return;
    };
    let mut source = server.source("_http._tcp.shop.test", RecordKind::Service);
    let wanted = ["10.0.0.1:8001 0.5", "10.0.0.2:8002 2"];
    assert_eq!(asked(&mut source).await, wanted);
}
