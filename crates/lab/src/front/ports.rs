//! Ports for front-ends to listen on, which no connection of theirs takes meanwhile: between the
//! choice of a port and its use, a front-end that runs already may connect to a server, and the
//! kernel gives that connection any free port of `ip_local_port_range`.

use std::io;
use std::net::{IpAddr, TcpListener};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below what connections get: see `EPHEMERAL` of the cluster, and the kernel's default of 32768.
const PORTS: Range<u16> = 10_240..16_384;
/// Two processes with neighbouring numbers begin so many ports apart.
const APART: u32 = 64;

/// How many were tried.
static TRIED: AtomicU32 = AtomicU32::new(0);

/// Holds a port without a listener.
pub(super) fn free(ip: impl Into<IpAddr>) -> io::Result<TcpListener> {
    let ip = ip.into();
    let count = u32::from(PORTS.end - PORTS.start);
    let begin = std::process::id().wrapping_mul(APART);
    for _ in PORTS {
        let tried = TRIED.fetch_add(1, Ordering::Relaxed);
        let offset = begin.wrapping_add(tried) % count;
        match TcpListener::bind((ip, PORTS.start + offset as u16)) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            other => return other,
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn each_is_given_once() {
        let held: Vec<_> = (0..8).map(|_| free(Ipv4Addr::LOCALHOST).unwrap()).collect();
        let mut ports: Vec<_> = held
            .iter()
            .map(|it| it.local_addr().unwrap().port())
            .collect();
        assert!(ports.iter().all(|port| PORTS.contains(port)), "{ports:?}");
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 8);
    }
}
