//! The door of a report: connections of allowed networks come in, so many at once, and so many of one address: clients that
//! hold theirs open keep others out only if they come from many places.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_remote::udp::Network;
use tokio::net::{TcpListener, TcpStream};

use super::ACCEPT_PAUSE;

/// Connections at once: some balancers and scrapers, and some of each that wait.
const CONNECTIONS_MAX: usize = 64;
const CONNECTIONS_OF_ADDRESS_MAX: usize = 16;

/// See the module.
#[derive(Debug)]
pub(super) struct Door {
    listener: TcpListener,
    /// Empty: all.
    allow: Vec<Network>,
    seats: Arc<Mutex<Seats>>,
}

/// Connections that are open.
#[derive(Debug, Default)]
struct Seats {
    all: usize,
    by_address: BTreeMap<IpAddr, usize>,
}

impl Seats {
    fn take(&mut self, from: IpAddr) -> bool {
        let own = self.by_address.get(&from).copied().unwrap_or(0);
        if self.all >= CONNECTIONS_MAX || own >= CONNECTIONS_OF_ADDRESS_MAX {
            return false;
        }
        self.all += 1;
        self.by_address.insert(from, own + 1);
        true
    }

    fn leave(&mut self, from: IpAddr) {
        self.all -= 1;
        match self.by_address.get_mut(&from) {
            Some(own) if *own > 1 => *own -= 1,
            Some(_) | None => drop(self.by_address.remove(&from)),
        }
    }
}

/// A connection's seat, given back however it ends.
#[derive(Debug)]
pub(super) struct Seat {
    from: IpAddr,
    seats: Arc<Mutex<Seats>>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        lock(&self.seats).leave(self.from);
    }
}

fn lock(seats: &Mutex<Seats>) -> MutexGuard<'_, Seats> {
    seats.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Door {
    pub(super) fn new(listener: TcpListener, allow: &[Network]) -> Self {
        Self {
            listener,
            allow: allow.to_vec(),
            seats: Arc::default(),
        }
    }

    /// The next connection, and its seat until it ends. Others are closed: those of other networks, and those beyond the limits.
    pub(super) async fn next(&self) -> (TcpStream, Seat) {
        loop {
            let Ok((stream, peer)) = self.listener.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let from = peer.ip().to_canonical();
            let allowed = self.allow.is_empty() || self.allow.iter().any(|it| it.contains(from));
            if allowed && lock(&self.seats).take(from) {
                let seats = Arc::clone(&self.seats);
                return (stream, Seat { from, seats });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_keeps_no_other_out() {
        let address = |last| IpAddr::from([10, 0, 0, last]);
        let mut seats = Seats::default();
        let taken = (0..100).filter(|_| seats.take(address(1))).count();
        assert_eq!(taken, CONNECTIONS_OF_ADDRESS_MAX);
        for last in 2..=9 {
            let taken = (0..8).filter(|_| seats.take(address(last))).count();
            assert!(taken == 8 || seats.all == CONNECTIONS_MAX);
        }
        assert_eq!(seats.all, CONNECTIONS_MAX);
        assert!(!seats.take(address(99)));
        (0..taken).for_each(|_| seats.leave(address(1)));
        assert!(seats.take(address(99)) && !seats.by_address.contains_key(&address(1)));
    }
}
