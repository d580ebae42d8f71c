//! Names in DNS, served by a real `dnsmasq` whose answers change.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![expect(clippy::print_stdout, reason = "a test that cannot run says why")]

use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tidegate_core::time::Timestamp;
use tidegate_core::topology::discovered::DiscoveryLimits;
use tidegate_discover::{DnsConfig, Naming, RecordKind, SourceConfig, SourceKind, WatchedSource};

/// Questions until a server that was just started or changed must have answered as wanted.
const QUESTIONS_MAX: usize = 200;

struct Dnsmasq {
    process: Child,
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
        let free = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let process = Command::new(program)
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
            .args(["--listen-address=127.0.0.1", "--no-daemon"])
            .arg(format!("--port={}", address.port()))
            .arg(format!("--addn-hosts={}", file.display()))
            .args(more)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Some(Self {
            process,
            hosts: file,
            address,
        })
    }

    /// Has it answer with these addresses.
    fn change(&self, hosts: &str) {
        std::fs::write(&self.hosts, hosts).unwrap();
        let id = self.process.id().to_string();
        let sent = Command::new("kill").args(["-s", "HUP", &id]).status();
        assert!(sent.unwrap().success());
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

/// Asks until the nodes are these.
async fn until(source: &mut WatchedSource, wanted: &[&str]) {
    let mut last = Vec::new();
    for _ in 0..QUESTIONS_MAX {
        source.ask().await;
        let nodes = source.nodes().into_iter();
        last = nodes
            .map(|node| format!("{} {}", node.address, node.weight))
            .collect();
        if last == wanted {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    panic!("{last:?}, not {wanted:?}");
}

#[tokio::test]
async fn addresses_follow_what_the_server_answers() {
    let hosts = "10.0.0.1 shop.test\n10.0.0.2 shop.test\nfd00::1 shop.test\n";
    let Some(server) = Dnsmasq::start("addresses", hosts, &[]) else {
        return;
    };
    let mut source = server.source("shop.test", RecordKind::Address { port: 80 });
    let all = ["10.0.0.1:80 1", "10.0.0.2:80 1", "[fd00::1]:80 1"];
    until(&mut source, &all).await;
    server.change("10.0.0.2 shop.test\nfd00::1 shop.test\n10.0.0.3 shop.test\n");
    let changed = ["10.0.0.2:80 1", "10.0.0.3:80 1", "[fd00::1]:80 1"];
    until(&mut source, &changed).await;
    // A name that is gone keeps the nodes.
    server.change("");
    let mut asked = source.ask().await;
    for _ in 0..QUESTIONS_MAX {
        if asked.answer.is_err() {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(10));
        asked = source.ask().await;
    }
    let why = asked.answer.unwrap_err();
    assert!(why.contains("shop.test has no address"), "{why}");
    until(&mut source, &changed).await;
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
    until(&mut source, &["10.0.0.1:8001 0.5", "10.0.0.2:8002 2"]).await;
}
