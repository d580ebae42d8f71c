//! The door of a report: connections of allowed networks come in, so many at once. One that has asked for nothing gives way to a
//! new one, then one that has its answer (`seats.rs`): clients that hold theirs open keep no other out.
//!
//! Failure case: streams are answered for as long as they are open, so those of one address may keep its next one out.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_remote::udp::Network;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::ACCEPT_PAUSE;
use crate::seats::{SeatId, Seats};

/// See the module.
#[derive(Debug)]
pub(super) struct Door {
    listener: TcpListener,
    /// Empty: all.
    allow: Vec<Network>,
    seats: SharedSeats,
}

/// Connections that are open, and what has each end.
type SharedSeats = Arc<Mutex<Seats<Arc<Notify>>>>;

/// A connection's seat, given back however it ends.
#[derive(Debug)]
pub(super) struct Seat {
    id: SeatId,
    ends: Arc<Notify>,
    seats: SharedSeats,
}

impl Seat {
    /// What was asked for is answered from now on: it gives way to no other.
    pub(super) fn begin(&self) {
        lock(&self.seats).begin(self.id);
    }

    /// The answer is there.
    pub(super) fn end(&self) {
        lock(&self.seats).end(self.id);
    }

    /// Waits until a new connection has its seat.
    pub(super) async fn lost(&self) {
        self.ends.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        lock(&self.seats).leave(self.id);
    }
}

/// What a thread that panicked left behind is still a list of seats.
fn lock(seats: &Mutex<Seats<Arc<Notify>>>) -> MutexGuard<'_, Seats<Arc<Notify>>> {
    seats.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Door {
    pub(super) fn new(listener: TcpListener, allow: &[Network]) -> Self {
        Self {
            listener,
            allow: allow.to_vec(),
            seats: Arc::new(Mutex::new(Seats::new())),
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
            let seat = allowed.then(|| self.seat(from)).flatten();
            if let Some(seat) = seat {
                return (stream, seat);
            }
        }
    }

    /// A seat, perhaps that of another connection; none if all are answered.
    fn seat(&self, from: IpAddr) -> Option<Seat> {
        let mut seats = lock(&self.seats);
        if let Some(closed) = seats.make_room(from).ok()? {
            closed.notify_one();
        }
        let ends = Arc::new(Notify::new());
        let id = seats.take(from, |_| Arc::clone(&ends));
        Some(Seat {
            id,
            ends,
            seats: Arc::clone(&self.seats),
        })
    }
}
