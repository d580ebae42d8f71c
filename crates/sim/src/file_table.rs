//! File descriptors of a node: what its requests use, and what others take.
//!
//! ```text
//! used share at t = others(t) + requests there / max        others: straight lines between points
//! ```
//!
//! A node of whose descriptors all are used refuses the connection, as a listener does that cannot accept, and answers no
//! probe. What others take is a leak, a neighbour or a low limit: it does not end because requests stay away.

use std::time::Duration;

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct FileTable {
    /// How many it may have open.
    pub max: u32,
    /// The share that others take, at times since the start, in order; before the first and after the last it stays.
    pub taken: Vec<(Duration, f64)>,
}

impl FileTable {
    /// How many are open at a moment, with so many requests there: at most as many as there may be.
    pub(crate) fn open(&self, since: Duration, requests: u32) -> u32 {
        let taken = (self.taken_at(since) * f64::from(self.max)).round() as u32;
        taken.saturating_add(requests).min(self.max)
    }

    /// Whether another connection finds none.
    pub(crate) fn is_full(&self, since: Duration, requests: u32) -> bool {
        self.open(since, requests) >= self.max
    }

    fn taken_at(&self, since: Duration) -> f64 {
        let after = self.taken.partition_point(|(at, _)| *at <= since);
        let (before, next) = (after.checked_sub(1), self.taken.get(after));
        match (before.map(|it| self.taken[it]), next) {
            (None, None) => 0.0,
            (None, Some((_, share))) => *share,
            (Some((_, share)), None) => share,
            (Some((from, low)), Some((to, high))) => {
                let part = (since - from).as_secs_f64() / (*to - from).as_secs_f64();
                low + (high - low) * part
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_take_what_lies_between_the_points_and_requests_the_rest() {
        let at = Duration::from_secs;
        let table = FileTable {
            max: 100,
            taken: vec![(at(10), 0.2), (at(20), 0.8), (at(20), 0.1), (at(30), 1.0)],
        };
        let open: Vec<_> = [0, 10, 15, 20, 40].map(|it| table.open(at(it), 5)).into();
        assert_eq!(open, [25, 25, 55, 15, 100]);
        assert!(!table.is_full(at(15), 49) && table.is_full(at(15), 50));
        let none = FileTable {
            max: 10,
            taken: Vec::new(),
        };
        assert_eq!(none.open(at(1), 3), 3);
    }
}
