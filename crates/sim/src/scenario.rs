//! What a run consists of: nodes, front-ends, demand, faults. Plain data; the policy is given
//! to the run beside it, so that every policy meets the same scenario.

use std::time::Duration;

use tidegate_core::topology::{AdminState, NodeId};

use crate::model::{Antagonist, Demand};

/// One emulated node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeModel {
    /// CPUs.
    pub cores: f64,
    /// Speed of each.
    pub speed: f64,
    /// Who else runs there.
    pub antagonist: Option<Antagonist>,
    /// Whether it publishes load records.
    pub records: bool,
}

impl NodeModel {
    /// A node of `cores` CPUs of speed 1, alone, with records.
    pub fn new(cores: f64) -> Self {
        Self {
            cores,
            speed: 1.0,
            antagonist: None,
            records: true,
        }
    }
}

/// The operator changes a node's state at every front-end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Order {
    /// When, since the start.
    pub at: Duration,
    /// Which node.
    pub node: NodeId,
    /// Its new state.
    pub state: AdminState,
}

/// A node is dead for a while: its requests fail, nothing answers, nothing is published.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outage {
    /// Which node.
    pub node: NodeId,
    /// Since when.
    pub from: Duration,
    /// Until when.
    pub to: Duration,
}

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Everything random follows from it.
    pub seed: u64,
    /// The nodes, all of one site.
    pub nodes: Vec<NodeModel>,
    /// Front-ends, which do not talk to each other.
    pub front_ends: u32,
    /// Offered load as a share of the capacity that antagonists leave on the average.
    pub load: f64,
    /// Shape of the demands.
    pub demand: Demand,
    /// Mean demand at speed 1.
    pub mean_demand: Duration,
    /// Requests in all; the first tenth warms up and is not measured.
    pub requests: u32,
    /// Each front-end reads each node's record this often.
    pub record_interval: Duration,
    /// One-way delay of the network.
    pub delay: Duration,
    /// What operators do.
    pub orders: Vec<Order>,
    /// What breaks.
    pub outages: Vec<Outage>,
}

impl Scenario {
    /// `nodes` equal nodes of four CPUs behind `front_ends` front-ends at `load`, mean demand
    /// 10 ms exponential, records each millisecond, network 100 us: the policy study's base.
    pub fn new(nodes: u32, front_ends: u32, load: f64) -> Self {
        Self {
            seed: 1,
            nodes: (0..nodes).map(|_| NodeModel::new(4.0)).collect(),
            front_ends,
            load,
            demand: Demand::Exponential,
            mean_demand: Duration::from_millis(10),
            requests: 60_000,
            record_interval: Duration::from_millis(1),
            delay: Duration::from_micros(100),
            orders: Vec::new(),
            outages: Vec::new(),
        }
    }

    /// With this seed.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// With so many requests.
    #[must_use]
    pub fn requests(mut self, requests: u32) -> Self {
        self.requests = requests;
        self
    }

    /// With demands of this shape.
    #[must_use]
    pub fn demand(mut self, demand: Demand) -> Self {
        self.demand = demand;
        self
    }

    /// With this mean demand.
    #[must_use]
    pub fn mean_demand(mut self, mean: Duration) -> Self {
        self.mean_demand = mean;
        self
    }

    /// With records read this often.
    #[must_use]
    pub fn record_interval(mut self, interval: Duration) -> Self {
        self.record_interval = interval;
        self
    }

    /// With this antagonist on every node, each on its own times.
    #[must_use]
    pub fn antagonists(mut self, antagonist: Antagonist) -> Self {
        for node in &mut self.nodes {
            node.antagonist = Some(antagonist);
        }
        self
    }

    /// With speeds evenly spread from `slowest` to `fastest`.
    #[must_use]
    pub fn speeds(mut self, slowest: f64, fastest: f64) -> Self {
        let last = self.nodes.len().saturating_sub(1).max(1) as f64;
        for (index, node) in self.nodes.iter_mut().enumerate() {
            node.speed = slowest + (fastest - slowest) * index as f64 / last;
        }
        self
    }

    /// Without records on this share of the nodes, evenly spread among the others.
    #[must_use]
    pub fn missing(mut self, share: f64) -> Self {
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let upto = |count: usize| (count as f64 * share).floor();
            node.records = upto(index + 1) <= upto(index);
        }
        self
    }

    /// What all nodes together can do beside their antagonists, seconds of demand per second.
    pub fn capacity(&self) -> f64 {
        let left = |node: &NodeModel| {
            let taken = node.antagonist.map_or(0.0, |antagonist| {
                antagonist.duty * f64::from(antagonist.tasks).min(node.cores)
            });
            (node.cores - taken) * node.speed
        };
        self.nodes.iter().map(left).sum()
    }

    /// Requests per second.
    pub fn rate(&self) -> f64 {
        self.load * self.capacity() / self.mean_demand.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missing_share_is_spread_evenly() {
        let scenario = Scenario::new(20, 1, 0.5).missing(0.3);
        let missing: Vec<_> = (0..20)
            .filter(|index| !scenario.nodes[*index].records)
            .collect();
        assert_eq!(missing, [3, 6, 9, 13, 16, 19]);
    }

    #[test]
    fn the_rate_follows_from_load_capacity_and_demand() {
        let scenario = Scenario::new(20, 1, 0.9);
        assert!((scenario.rate() - 7200.0).abs() < 1e-9);
        let shared = scenario.antagonists(Antagonist::new(8, 0.25));
        assert!((shared.rate() - 5400.0).abs() < 1e-9);
    }
}
