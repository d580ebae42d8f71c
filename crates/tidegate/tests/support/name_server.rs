//! A real name server of the tests' own: `dnsmasq`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Process;

/// A name server whose hosts change.
pub(crate) struct NameServer {
    pub(crate) process: Process,
    hosts: PathBuf,
    pub(crate) address: SocketAddr,
}

/// Below the ports that the system gives to sockets that ask for any.
const DNS_PORT: u16 = 20_063;

impl NameServer {
    /// One per test file, with the names of this hosts file; none where `dnsmasq` is not installed.
    #[expect(clippy::print_stdout, reason = "a test that cannot run says why")]
    pub(crate) fn start(folder: &Path, hosts: &str) -> Option<Self> {
        let programs = ["/usr/sbin/dnsmasq", "/usr/bin/dnsmasq"];
        let Some(program) = programs.into_iter().find(|it| Path::new(it).exists()) else {
            println!("SKIPPED: dnsmasq is not installed");
            return None;
        };
        let file = folder.join("hosts");
        std::fs::write(&file, hosts).unwrap();
        // An address that no other process has: one of loopback's, by the number of this process.
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        let address = SocketAddr::from(([127, 64 | high, middle, low], DNS_PORT));
        let mut command = Command::new(program);
        command
            .args([
                "--no-daemon",
                "--conf-file=/dev/null",
                "--no-resolv",
                "--no-hosts",
            ])
            .args(["--bind-interfaces", "--user=root", "--pid-file="])
            .args(["--local=/test/", "--local-ttl=1"])
            .arg(format!("--listen-address={}", address.ip()))
            .arg(format!("--port={}", address.port()))
            .arg(format!("--addn-hosts={}", file.display()))
            .stderr(Stdio::null());
        Some(Self {
            process: Process::start(&mut command),
            hosts: file,
            address,
        })
    }

    pub(crate) fn change(&self, hosts: &str) {
        std::fs::write(&self.hosts, hosts).unwrap();
        self.process.signal("HUP");
    }
}
