//! Sockets as responders, handles and the reader want them.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use rustix::net::sockopt;

use crate::region::RegionError;

/// Bytes of a receive buffer that takes bursts of some thousand datagrams. Without privilege
/// the system gives what `net.core.rmem_max` allows.
const BUFFER_BYTES: usize = 4 << 20;

/// What `SO_MEMINFO` gives, and where in it the memory for options is (linux/sock_diag.h).
#[cfg(test)]
const SK_MEMINFO_VARS: usize = 9;
#[cfg(test)]
const SK_MEMINFO_OPTMEM: usize = 6;

/// A socket that waits for datagrams, each time no longer than `wait`.
pub(super) fn listen(address: SocketAddr, wait: Duration) -> Result<UdpSocket, RegionError> {
    let socket = UdpSocket::bind(address).map_err(RegionError::io("listen for requests"))?;
    enlarge(&socket);
    socket
        .set_read_timeout(Some(wait))
        .map_err(RegionError::io("limit the wait for requests"))?;
    if address.ip().is_unspecified() {
        // A node with several addresses must answer from the one that was asked, or firewalls
        // on the way drop the answer.
        let (level, name) = match address {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_PKTINFO),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
        };
        set(&socket, level, name, 1)?;
    }
    Ok(socket)
}

/// A socket on any port from which requests to nodes of one family leave.
pub(crate) fn for_requests(ipv4: bool) -> Result<UdpSocket, RegionError> {
    let any = if ipv4 {
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))
    } else {
        SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))
    };
    let socket = UdpSocket::bind(any).map_err(RegionError::io("open a socket for requests"))?;
    enlarge(&socket);
    if ipv4 {
        // Messages fit every path: with "don't fragment" the kernel need not number them, which
        // is a contended counter. Where that is refused, it costs its 200 ns.
        let never = libc::IP_PMTUDISC_DO;
        set(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, never).ok();
    }
    Ok(socket)
}

/// Makes both buffers as large as permitted: what does not fit is lost, and counts as a
/// time-out.
fn enlarge(socket: impl AsFd) {
    let forced = sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES);
    if forced.is_err() {
        // The system cuts the size to its limit; a refusal leaves the default.
        sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES).ok();
    }
    if sockopt::set_socket_send_buffer_size_force(&socket, BUFFER_BYTES).is_err() {
        sockopt::set_socket_send_buffer_size(&socket, BUFFER_BYTES).ok();
    }
}

/// Lets in only what this program lets in, in place of an earlier one.
///
/// # Errors
/// If the kernel refuses it, for example as it is too long.
pub(super) fn filter(socket: &UdpSocket, program: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the pointer is to a live sock_fprog, whose own is to as many steps as it says; the kernel only reads them,
    // and keeps a copy.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if set == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Lets everything in again.
pub(super) fn unfilter(socket: &UdpSocket) -> Result<(), RegionError> {
    set(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0)
}

/// The kernel's memory that a socket's options take, its filter among them.
#[cfg(test)]
pub(super) fn option_bytes(socket: &UdpSocket) -> io::Result<u32> {
    let mut memory = [0_u32; SK_MEMINFO_VARS];
    let mut length = size_of_val(&memory) as libc::socklen_t;
    // SAFETY: the pointers are to a live array, as long as it says, and to its length.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            memory.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if got == 0 {
        Ok(memory[SK_MEMINFO_OPTMEM])
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Sets an option of one int.
fn set(
    socket: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> Result<(), RegionError> {
    // SAFETY: the pointer is to a live int, and the length is that of an int.
    let set = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if set == 0 {
        Ok(())
    } else {
        let error = io::Error::last_os_error();
        Err(RegionError::io("set a socket option")(error))
    }
}
