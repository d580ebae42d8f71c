//! The door of a report: connections of allowed networks come in, so many at once.

use std::sync::Arc;

use tidegate_remote::udp::Network;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::ACCEPT_PAUSE;

/// Connections at once: some balancers and scrapers, and some of each that wait.
const CONNECTIONS_MAX: usize = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct Door {
    listener: TcpListener,
    /// Empty: all.
    allow: Vec<Network>,
    seats: Arc<Semaphore>,
}

impl Door {
    pub(super) fn new(listener: TcpListener, allow: &[Network]) -> Self {
        Self {
            listener,
            allow: allow.to_vec(),
            seats: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        }
    }

    /// The next connection, and its seat until it ends. Others are closed: those of other networks, and those beyond the limit.
    pub(super) async fn next(&self) -> (TcpStream, OwnedSemaphorePermit) {
        loop {
            let Ok((stream, peer)) = self.listener.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let from = peer.ip();
            let allowed = self.allow.is_empty() || self.allow.iter().any(|it| it.contains(from));
            if let (true, Ok(seat)) = (allowed, Arc::clone(&self.seats).try_acquire_owned()) {
                return (stream, seat);
            }
        }
    }
}
