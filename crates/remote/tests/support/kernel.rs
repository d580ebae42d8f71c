//! A node whose kernel answers: programs in a namespace, and no process.

use std::net::{SocketAddr, UdpSocket};

use tidegate_remote::Region;
use tidegate_remote::kernel::{KernelOptions, KernelResponder};
use tidegate_remote::udp::UdpRegion;

use super::namespaces::{Hosts, Kept, PATIENT, PORT, node_address};
use super::{Words, key};

pub(crate) struct KernelNode {
    _programs: Kept<KernelResponder>,
    hosts: Hosts,
}

#[expect(clippy::print_stdout, reason = "how a test says that it could not run")]
fn skip(why: &str) {
    println!("SKIPPED: {why}");
}

impl KernelNode {
    /// A socket of the front-end's, connected to the node.
    pub(crate) fn socket(&self) -> UdpSocket {
        self.hosts.at_front(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect(node_address(false, PORT)).unwrap();
            socket
        })
    }
}

impl Words for KernelNode {
    fn begin() -> Option<Self> {
        let root = rustix::process::geteuid().is_root();
        if !root || !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
            skip("it takes root and a kernel that describes itself");
            return None;
        }
        let hosts = Hosts::new().map_err(|why| skip(&why)).ok()?;
        let options = KernelOptions::new(SocketAddr::from(([0, 0, 0, 0], PORT)), vec![key()]);
        let programs = hosts.keep_at_node(move || KernelResponder::attach(&options));
        Some(Self {
            _programs: programs.unwrap_or_else(|error| panic!("{error}")),
            hosts,
        })
    }

    fn initiator(&self) -> Box<dyn Region + Send> {
        let address = node_address(false, PORT);
        let connect = || UdpRegion::connect(address, key(), PATIENT).unwrap();
        Box::new(self.hosts.at_front(connect))
    }

    fn word(&self, word: u32) -> u64 {
        self.initiator().fetch_and_add(word, 0).unwrap()
    }
}
