//! Listening sockets: which may share a port, and how one closes without losing a client.
//!
//! The workers of a process share each port (`SO_REUSEPORT`). The first socket of a port is bound without
//! that option, so the kernel refuses it while another process listens there; the option is set behind
//! that, for the other workers and for a successor that asks to share.
//!
//! A socket that closes takes along the connections in its queue, and those whose handshake is under
//! way. So a socket that is to close first takes no new handshakes ([`stop_new`]): their clients repeat
//! the first packet after a second, and then reach a successor, or none. What has begun ends.
//!
//! A socket that another process has as well does not close here: it takes no filter, which would be that
//! process's too, and whatever waits in its queue is accepted there.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use socket2::{Domain, Protocol, SockFilter, Socket, TcpKeepalive, Type};

/// Connections that the kernel holds until they are accepted; it may hold fewer.
pub const BACKLOG: i32 = 4096;
/// Between two tries to get a port that another process has.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// Probes of a silent connection before it is given up.
const PROBES: u32 = 6;

/// With which sockets a listening socket shares its port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PortSharing {
    /// With this process's own sockets only.
    #[default]
    Own,
    /// Also with other processes of the same user, for a restart without a gap.
    Others,
}

/// How listening sockets come by their ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// With which others they are shared.
    pub sharing: PortSharing,
    /// How long a port is asked for that another process has: it may be about to end.
    pub patience: Duration,
}

/// Sockets that listen at one address, whatever their worker.
#[derive(Debug)]
pub struct ListenerSockets {
    /// The address as it was configured, maybe with port 0.
    pub configured: SocketAddr,
    /// Where they listen.
    pub address: SocketAddr,
    /// One or more.
    pub sockets: Vec<OwnedFd>,
}

/// A socket that was made elsewhere and listens, as those that are made here.
pub(crate) fn adopt(socket: OwnedFd, keepalive: Duration) -> io::Result<Socket> {
    let socket = Socket::from(socket);
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&probes(keepalive))?;
    // A service manager's has another one.
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// The first socket of a port: listens, accepts without blocking, and its connections are probed when they
/// are silent for so long. May block for as long as its patience says.
pub fn listen_first(address: SocketAddr, ports: Ports, keepalive: Duration) -> io::Result<Socket> {
    let mut waited = Duration::ZERO;
    loop {
        match try_first(address, ports.sharing, keepalive) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && waited < ports.patience => {
                std::thread::sleep(ASK_AGAIN);
                waited += ASK_AGAIN;
            }
            tried => return tried,
        }
    }
}

fn try_first(address: SocketAddr, sharing: PortSharing, keepalive: Duration) -> io::Result<Socket> {
    let socket = bind_first(address, sharing, keepalive)?;
    socket.set_reuse_port(true)?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// Whether an address could be listened at by now. No client comes to it meanwhile: it does not listen.
pub(crate) fn try_bind(address: SocketAddr, sharing: PortSharing) -> io::Result<()> {
    bind_first(address, sharing, Duration::ZERO).map(drop)
}

fn bind_first(
    address: SocketAddr,
    sharing: PortSharing,
    keepalive: Duration,
) -> io::Result<Socket> {
    let socket = socket(address, keepalive)?;
    if sharing == PortSharing::Others {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// One more socket of a port that has a first one.
pub(crate) fn listen_again(address: SocketAddr, keepalive: Duration) -> io::Result<Socket> {
    let socket = socket(address, keepalive)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

fn socket(address: SocketAddr, keepalive: Duration) -> io::Result<Socket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    // Accepted sockets inherit both. Without the first small answers wait for acknowledgements.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&probes(keepalive))?;
    Ok(socket)
}

/// Probes after so long a silence, for as long again.
pub(crate) fn probes(after: Duration) -> TcpKeepalive {
    let second = Duration::from_secs(1);
    TcpKeepalive::new()
        .with_time(after.max(second))
        .with_interval((after / PROBES).max(second))
        .with_retries(PROBES)
}

/// From now on the kernel drops first packets of new connections; handshakes under way go on.
pub(crate) fn stop_new(socket: &Socket) -> io::Result<()> {
    // Classic BPF over the TCP header: load the byte of flags, keep SYN and ACK, and drop what has SYN alone.
    const LOAD_BYTE: u16 = 0x30;
    const AND: u16 = 0x54;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const FLAGS_AT: u32 = 13;
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    let drop_first_packets = [
        SockFilter::new(LOAD_BYTE, 0, 0, FLAGS_AT),
        SockFilter::new(AND, 0, 0, SYN | ACK),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, SYN),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ];
    socket.attach_filter(&drop_first_packets)
}

/// Whether it is this machine that cannot connect: then no node is to blame.
pub fn is_own_fault(error: &io::Error) -> bool {
    const OWN: [Errno; 5] = [
        Errno::NOMEM,
        Errno::NFILE,
        Errno::MFILE,
        Errno::ADDRNOTAVAIL,
        Errno::NOBUFS,
    ];
    Errno::from_io_error(error).is_some_and(|number| OWN.contains(&number))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpStream};

    use super::*;

    const KEEPALIVE: Duration = Duration::from_secs(30);

    fn address(socket: &Socket) -> SocketAddr {
        socket.local_addr().unwrap().as_socket().unwrap()
    }

    fn first(address: SocketAddr, sharing: PortSharing) -> io::Result<Socket> {
        let patience = Duration::ZERO;
        listen_first(address, Ports { sharing, patience }, KEEPALIVE)
    }

    #[test]
    fn a_port_is_shared_with_whom_one_asks_to() {
        let any = (Ipv4Addr::LOCALHOST, 0).into();
        let one = first(any, PortSharing::Own).unwrap();
        let taken = address(&one);
        let _ours = listen_again(taken, KEEPALIVE).unwrap();
        let refused = first(taken, PortSharing::Own).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AddrInUse);
        let _successor = first(taken, PortSharing::Others).unwrap();
        assert!(first(taken, PortSharing::Own).is_err());
    }

    #[test]
    fn a_port_that_is_given_up_is_waited_for() {
        let any = (Ipv4Addr::LOCALHOST, 0).into();
        let one = first(any, PortSharing::Own).unwrap();
        let taken = address(&one);
        let successor = std::thread::spawn(move || {
            let ports = Ports {
                sharing: PortSharing::Own,
                patience: Duration::from_secs(60),
            };
            listen_first(taken, ports, KEEPALIVE)
        });
        drop(one);
        assert!(successor.join().unwrap().is_ok());
    }

    #[test]
    fn accepted_sockets_have_the_options_of_their_listener() {
        let listener = first((Ipv4Addr::LOCALHOST, 0).into(), PortSharing::Own).unwrap();
        let _client = TcpStream::connect(address(&listener)).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(accepted.tcp_nodelay().unwrap());
        assert!(accepted.keepalive().unwrap());
        assert_eq!(accepted.tcp_keepalive_time().unwrap(), KEEPALIVE);
        assert_eq!(accepted.tcp_keepalive_interval().unwrap(), KEEPALIVE / 6);
    }

    #[test]
    fn a_socket_that_is_to_close_keeps_what_it_has_and_takes_nothing_new() {
        let listener = first((Ipv4Addr::LOCALHOST, 0).into(), PortSharing::Own).unwrap();
        let address = address(&listener);
        let _before = TcpStream::connect(address).unwrap();
        stop_new(&listener).unwrap();
        let late = TcpStream::connect_timeout(&address, Duration::from_millis(100));
        assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(listener.accept().is_ok());
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}
