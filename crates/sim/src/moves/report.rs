//! What a run came to.

use std::time::Duration;

/// A node that has changed its site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeMoved {
    /// When.
    pub at: Duration,
    /// Which.
    pub node: usize,
    /// The site that it has left.
    pub from: usize,
    /// The site that it serves.
    pub to: usize,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MovesReport {
    /// Answers by site.
    pub completed: Vec<u64>,
    /// Requests that are there at the end, by site.
    pub in_flight: Vec<u64>,
    /// Sum over time of the requests that are there, by site: request seconds.
    pub waited: Vec<f64>,
    /// Requests that have come, by site.
    pub arrived: Vec<u64>,
    /// The moves, in order.
    pub moves: Vec<NodeMoved>,
    /// Front-ends that ended in the middle of a move.
    pub crashes: u64,
    /// Operations that were done although their front-end had ended, and that were refused as too old.
    pub late: (u64, u64),
    /// Locks that other front-ends have finished.
    pub helped: u64,
    /// Whether all locks are free at the end.
    pub locks_free: bool,
    /// Nodes by site at the end.
    pub nodes: Vec<usize>,
    /// Sum over time of the nodes that the site of the burst had, node seconds: bursts only.
    pub burst_nodes: f64,
    /// How long it lasted.
    pub length: Duration,
    /// Events.
    pub events: u64,
}

impl MovesReport {
    /// Answers per second of all sites.
    pub fn per_second(&self) -> f64 {
        self.completed.iter().sum::<u64>() as f64 / self.length.as_secs_f64()
    }

    /// Nodes that the site of the burst had, on the average.
    pub fn mean_burst_nodes(&self) -> f64 {
        self.burst_nodes / self.length.as_secs_f64()
    }

    /// How long a request of a site took, on the average: Little's law.
    pub fn mean_response(&self, site: usize) -> Duration {
        Duration::from_secs_f64(self.waited[site] / self.arrived[site].max(1) as f64)
    }

    /// When the last node came to a site, from a moment on.
    pub fn last_to(&self, site: usize, from: Duration) -> Option<Duration> {
        let mut came = self.moves.iter().rev().filter(|it| it.to == site);
        let last = came.next().filter(|it| it.at >= from);
        last.map(|it| it.at - from)
    }

    /// When the first node came to a site, from a moment on.
    pub fn first_to(&self, site: usize, from: Duration) -> Option<Duration> {
        let came = self.moves.iter().find(|it| it.to == site && it.at >= from);
        came.map(|it| it.at - from)
    }
}
