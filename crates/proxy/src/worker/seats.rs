//! Limits that all workers keep together, exactly: a seat is taken before what it is for is let in, and
//! is free again when it is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::config::Limits;
use crate::gate::source::AllSources;

/// So many seats.
#[derive(Debug)]
pub(crate) struct Seats {
    taken: AtomicUsize,
    most: AtomicUsize,
}

/// All that workers share out.
#[derive(Debug)]
pub(crate) struct AllSeats {
    pub(crate) connections: Arc<Seats>,
    pub(crate) tunnels: Arc<Seats>,
    pub(crate) sources: Arc<AllSources>,
}

impl AllSeats {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            connections: Seats::new(limits.connections),
            tunnels: Seats::new(limits.tunnels),
            sources: Arc::new(AllSources::new()),
        }
    }

    /// These limits hold from now on.
    pub(crate) fn set(&self, limits: &Limits) {
        self.connections.set(limits.connections);
        self.tunnels.set(limits.tunnels);
    }
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Seat(Arc<Seats>);

impl Seats {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            taken: AtomicUsize::new(0),
            most: AtomicUsize::new(most),
        })
    }

    /// So many from now on. What is taken stays.
    pub(crate) fn set(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// A seat, if one is free.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Seat> {
        let most = self.most.load(Ordering::Relaxed);
        let next = |taken: usize| (taken < most).then_some(taken + 1);
        // The count alone matters: nothing else is handed over with a seat.
        let taken = self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        taken.ok().map(|_| Seat(Arc::clone(self)))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_are_given_out_once_whoever_asks() {
        const SEATS: usize = 1000;
        let seats = Seats::new(SEATS);
        let takers: Vec<_> = (0..4)
            .map(|_| {
                let seats = Arc::clone(&seats);
                std::thread::spawn(move || {
                    let taken = (0..SEATS).filter_map(|_| seats.take());
                    taken.collect::<Vec<_>>()
                })
            })
            .collect();
        let mut taken: Vec<_> = (takers.into_iter())
            .flat_map(|taker| taker.join().unwrap())
            .collect();
        assert_eq!(taken.len(), SEATS);
        assert!(seats.take().is_none());
        taken.pop();
        assert!(seats.take().is_some());
        seats.set(SEATS - 2);
        taken.pop();
        assert!(seats.take().is_none(), "as many are taken as there are now");
        taken.pop();
        assert!(seats.take().is_some());
    }
}
