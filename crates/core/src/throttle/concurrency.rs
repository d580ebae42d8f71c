//! At most N requests of a class at a time.
//!
//! ```text
//! room   in flight < N
//! ```
//!
//! A request is in flight from the moment it is let on to its last byte, its failure or its
//! cancellation: also while it waits for room at a server. N counts all workers of a front-end; a class
//! that names a site counts there, one that names none over all sites together.
//!
//! Inputs: requests let on and ended. Failure case: several front-ends, of which each has its N.
//!
//! Source: `maxconn` and the queue behind it in HAProxy, with a class in a server's place.

/// Requests in flight against their limit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Concurrency {
    in_flight: u64,
}

impl Concurrency {
    pub(super) fn in_flight(self) -> u64 {
        self.in_flight
    }

    pub(super) fn has_room(self, limit: Option<u32>) -> bool {
        limit.is_none_or(|limit| self.in_flight < u64::from(limit))
    }

    pub(super) fn begin(&mut self) {
        self.in_flight += 1;
    }

    /// A request has ended. One too many is none of ours.
    pub(super) fn end(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_below_the_limit_and_without_one() {
        let mut requests = Concurrency::default();
        assert!(requests.has_room(Some(1)) && !requests.has_room(Some(0)));
        requests.begin();
        assert!(!requests.has_room(Some(1)) && requests.has_room(None));
        requests.end();
        requests.end();
        assert_eq!(requests.in_flight(), 0);
    }
}
