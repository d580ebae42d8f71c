//! What must hold at every step of a run: the requests of each site are conserved; the pickers' counts of requests in flight
//! are ours; a request goes to a node of its own site that the operator has not barred for
//! longer than a director may take to notice, and that the picker does not know to be ejected
//! (unless it fails open). A breach ends the run.
//!
//! What a scenario expects of a whole run is judged by its report: see `matrix`.

use std::time::Duration;

/// The run broke a rule.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("seed {seed}, {at:?} after the start: {what}")]
pub struct Violation {
    /// The run's seed, which replays it.
    pub seed: u64,
    /// When, since the start.
    pub at: Duration,
    /// What broke.
    pub what: String,
}

/// What became of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Came to a front-end.
    pub offered: u64,
    /// Answered.
    pub completed: u64,
    /// Sent and not answered, or answered with an error.
    pub failed: u64,
    /// Those of the failed that a node refused, because it had too many.
    pub refused: u64,
    /// Not sent.
    pub rejected: u64,
    /// Sent, and neither of these yet.
    pub in_flight: u64,
    /// Waiting at a front-end.
    pub waiting: u64,
}

impl Totals {
    /// Whether each request is counted once.
    pub fn are_conserved(&self) -> bool {
        let ended = self.completed + self.failed + self.rejected;
        self.offered == ended + self.in_flight + self.waiting
    }

    /// Both together.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        Self {
            offered: self.offered + other.offered,
            completed: self.completed + other.completed,
            failed: self.failed + other.failed,
            refused: self.refused + other.refused,
            rejected: self.rejected + other.rejected,
            in_flight: self.in_flight + other.in_flight,
            waiting: self.waiting + other.waiting,
        }
    }
}

/// The least part of its fair share that any node got, window by window.
#[derive(Debug)]
pub(crate) struct Shares {
    window: Duration,
    began: Duration,
    sent: Vec<u64>,
    /// The least of all windows so far.
    pub(crate) least: f64,
}

impl Shares {
    pub(crate) fn new(nodes: usize, window: Duration) -> Self {
        Self {
            window,
            began: Duration::ZERO,
            sent: vec![0; nodes],
            least: f64::INFINITY,
        }
    }

    pub(crate) fn count(&mut self, node: u32) {
        self.sent[node as usize] += 1;
    }

    /// Ends the window if it is long enough, or if nothing more comes. Nodes are given by site;
    /// those that a site cannot rely on take no part.
    pub(crate) fn end(&mut self, since_start: Duration, last: bool, sites: &[Vec<u32>]) {
        let over = since_start.saturating_sub(self.began) >= self.window;
        // A rest that is no window counts only where it is all there is.
        let all_there_is = last && self.least.is_infinite();
        if !over && !all_there_is {
            return;
        }
        for nodes in sites {
            let sent = |node: &u32| self.sent[*node as usize];
            let all: u64 = nodes.iter().map(sent).sum();
            let fair = all as f64 / nodes.len().max(1) as f64;
            if let (Some(least), true) = (nodes.iter().map(sent).min(), all > 0) {
                self.least = self.least.min(least as f64 / fair);
            }
        }
        self.began = since_start;
        self.sent.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_counted_twice_or_not_at_all_shows() {
        let mut totals = Totals {
            offered: 10,
            completed: 5,
            failed: 2,
            refused: 1,
            rejected: 1,
            in_flight: 2,
            waiting: 0,
        };
        assert!(totals.are_conserved());
        totals.completed += 1;
        assert!(!totals.are_conserved());
        assert_eq!(totals.with(&totals).offered, 20);
    }

    #[test]
    fn the_least_share_is_that_of_the_worst_window() {
        let at = Duration::from_secs;
        let mut shares = Shares::new(4, at(10));
        let sites = [vec![0, 1], vec![2, 3]];
        let send = |shares: &mut Shares, counts: [u64; 4]| {
            for (node, count) in counts.into_iter().enumerate() {
                (0..count).for_each(|_| shares.count(node as u32));
            }
        };
        send(&mut shares, [10, 10, 5, 5]);
        shares.end(at(5), false, &sites);
        assert_eq!(shares.least, f64::INFINITY, "no window yet");
        shares.end(at(10), false, &sites);
        assert_eq!(shares.least, 1.0);
        send(&mut shares, [10, 10, 15, 5]);
        shares.end(at(20), false, &sites);
        assert_eq!(shares.least, 0.5);
        send(&mut shares, [10, 0, 5, 5]);
        shares.end(at(21), true, &sites);
        assert_eq!(shares.least, 0.5, "a short rest proves nothing");
    }
}
