//! How many connections the servers of this machine have on their port: whether a node is drained.
//!
//! Asked for over netlink by port and state, so that the kernel gives no others. It walks its whole table for that (2 ms for
//! that of an idle machine with 24 GB), so this is for nodes on their way between sites, not for each sample. Failure case: servers in
//! another network namespace are not seen; an agent stands in that of its servers.

use rustix::fd::OwnedFd;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use crate::parse::diag::{self, Answer, Family};

/// The kernel's datagrams are that large at most.
const BUFFER_BYTES: usize = 32 * 1024;
/// Most datagrams of one answer: more than a million connections.
const DATAGRAMS_MAX: usize = 8192;

/// See the module.
#[derive(Debug)]
pub struct ServiceConnections {
    port: u16,
    buffer: Vec<u8>,
}

impl ServiceConnections {
    /// Those of this port.
    pub fn new(port: u16) -> Self {
        Self {
            port,
            buffer: vec![0; BUFFER_BYTES],
        }
    }

    /// How many there are; none if the kernel does not say.
    pub fn count(&mut self) -> Option<u32> {
        let v4 = self.ask(Family::V4)?;
        // A kernel without IPv6 refuses; IPv4 is then all there is.
        let v6 = self.ask(Family::V6).unwrap_or(0);
        Some(u32::try_from(v4.saturating_add(v6)).unwrap_or(u32::MAX))
    }

    /// A socket of its own each time: what is left of a broken answer is not taken for the next one.
    fn ask(&mut self, family: Family) -> Option<u64> {
        let socket: OwnedFd = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        )
        .ok()?;
        let request = diag::request_connections(family, self.port);
        send(&socket, &request, SendFlags::empty()).ok()?;
        let mut connections = 0u64;
        for _ in 0..DATAGRAMS_MAX {
            let (length, whole) = recv(&socket, &mut self.buffer[..], RecvFlags::DONTWAIT).ok()?;
            if whole > length {
                return None;
            }
            match diag::connections(self.buffer.get(..length)?, self.port) {
                Answer::More(more) => connections = connections.saturating_add(more),
                Answer::Done(more) => return Some(connections.saturating_add(more)),
                Answer::Refused => return None,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use tidegate_remote::clock;

    use super::*;

    #[test]
    fn connections_of_the_port_are_counted_also_where_no_server_has_accepted_them() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut connections = ServiceConnections::new(address.port());
        if connections.count().is_none() {
            println!("SKIPPED: the kernel refuses NETLINK_SOCK_DIAG");
            return;
        }
        assert_eq!(connections.count(), Some(0));
        let clients = [(); 3].map(|()| TcpStream::connect(address).unwrap());
        assert_eq!(connections.count(), Some(3));
        let accepted = clients.each_ref().map(|_| listener.accept().unwrap().0);
        assert_eq!(connections.count(), Some(3));
        // The client sends no more, and the server may still answer.
        clients[0].shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(connections.count(), Some(3));
        // Both ends are closed, the server's first: it keeps the connection no more.
        drop(accepted);
        drop(clients);
        let deadline = clock::now() + Duration::from_secs(30);
        while connections.count() != Some(0) {
            assert!(clock::now() < deadline, "{:?}", connections.count());
        }
    }
}
