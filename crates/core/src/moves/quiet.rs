//! Since when this front-end has had no request at a node: what drained means where no agent counts connections.
//!
//! ```text
//! quiet at a look   none in flight, and none was sent since the look before
//! quiet_since       the first of the looks in a row at which it was
//! ```
//!
//! Inputs: own traffic by the load table. A tunnel, a long poll and an answer that a slow client reads are in flight. Failure
//! case: a request that came and ended before the first look is not known, so the first look is never quiet.
//! Source: not in Reconfiguration-2004, whose nodes need no drain.

use crate::time::Timestamp;

/// See the module. One for each node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet {
    dispatched: Option<u64>,
    since: Option<Timestamp>,
}

impl Quiet {
    /// Takes in what a look shows: requests sent there so far, and those of them that are in flight.
    pub fn on_look(&mut self, dispatched: u64, in_flight: u64, now: Timestamp) {
        let is_quiet = in_flight == 0 && self.dispatched == Some(dispatched);
        self.dispatched = Some(dispatched);
        self.since = match is_quiet {
            true => self.since.or(Some(now)),
            false => None,
        };
    }

    /// Since when it is quiet, if it is.
    pub fn since(&self) -> Option<Timestamp> {
        self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_is_without_requests_from_one_look_to_the_next() {
        let mut quiet = Quiet::default();
        let mut look = |millis: u64, dispatched: u64, completed: u64| {
            let now = Timestamp::from_millis(millis);
            quiet.on_look(dispatched, dispatched - completed, now);
            quiet.since().map(|it| it.nanos() / 1_000_000)
        };
        assert_eq!(look(10, 7, 7), None, "what was before is not known");
        assert_eq!(look(20, 7, 7), Some(20));
        assert_eq!(look(30, 7, 7), Some(20));
        // One in flight.
        assert_eq!(look(40, 8, 7), None);
        assert_eq!(look(50, 8, 7), None);
        assert_eq!(look(60, 8, 8), Some(60));
        // One that came and ended between two looks.
        assert_eq!(look(70, 9, 9), None);
        assert_eq!(look(80, 9, 9), Some(80));
    }
}
