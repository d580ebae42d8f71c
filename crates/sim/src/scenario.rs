//! What a run consists of: nodes, sites, front-ends, network, faults, and what is expected.
//! Plain data; what chooses is given to the run beside it, so that every policy meets the same
//! scenario.
//!
//! A node that leaves and comes back keeps its place in the tables here: places that others get are
//! the core's random histories' business.
//!
//! Not in the data because the core has none of it yet: moves of a node to another site (the
//! director's sites are fixed), and probes beside records. What policies call a probe is a read
//! of the load table, so Prequal's probes are as old as the records are; the one path of their
//! own is [`NodeModel::reports`].

use std::time::Duration;

use tidegate_core::admission::AdmissionConfig;
use tidegate_core::topology::{AdminState, NodeId, SoftLimits};

pub use crate::counters::{Invention, Scope};
pub use crate::fault::{Fault, FaultKind, Leave, NodeOverride};
pub use crate::file_table::FileTable;
pub use crate::kernel::Kernel;
use crate::model::{Antagonist, Arrivals, Demand};
pub use crate::node_model::{Answer, Cold, NodeModel, Records, Warming};

/// One hosted site: which clients ask for what.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteModel {
    /// Offered load as a share of the capacity that antagonists leave to the site's nodes on
    /// the average.
    pub load: f64,
    /// When requests come.
    pub arrivals: Arrivals,
    /// Shape of the CPU demands.
    pub demand: Demand,
    /// Mean CPU demand at speed 1.
    pub mean_demand: Duration,
    /// What a request waits for between the two halves of its CPU demand.
    pub io: Option<Io>,
    /// Those of its requests that are held open, if some are.
    pub held: Option<Held>,
    /// What front-ends let in.
    pub admission: AdmissionConfig,
    /// How long a node that is new or back takes to get its share.
    pub slow_start: Duration,
    /// From which used shares on a node gets no requests.
    pub soft_limits: SoftLimits,
    /// Requests of each priority, the highest first, as shares of all; empty: all of the lowest.
    pub priorities: Vec<f64>,
}

impl SiteModel {
    /// Exponential demands of 10 ms, Poisson arrivals, no IO.
    pub fn new(load: f64) -> Self {
        Self {
            load,
            arrivals: Arrivals::Poisson,
            demand: Demand::Exponential,
            mean_demand: Duration::from_millis(10),
            io: None,
            held: None,
            admission: AdmissionConfig::default(),
            slow_start: Duration::ZERO,
            soft_limits: SoftLimits::default(),
            priorities: Vec::new(),
        }
    }
}

/// Requests that stay for long and take no CPU meanwhile. Their latencies are not measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    /// Their share of all, 0 to 1.
    pub share: f64,
    /// For how long, on the average.
    pub lasts: Duration,
    /// Shape of that.
    pub shape: Demand,
    /// What they are.
    pub by: HeldBy,
    /// From when on they come, and until when, since the start; before and after it all are the others.
    pub from: Duration,
    /// See there.
    pub until: Duration,
    /// Whether they are of the same kind as the others: nothing in their path tells them apart.
    pub alike: bool,
}

impl Held {
    /// From the start on, each for so long, with a path of their own.
    pub fn new(share: f64, lasts: Duration, by: HeldBy) -> Self {
        Self {
            share,
            lasts,
            shape: Demand::Fixed,
            by,
            from: Duration::ZERO,
            until: Duration::MAX,
            alike: false,
        }
    }

    /// Of the same kind as the others.
    #[must_use]
    pub fn alike(self) -> Self {
        Self {
            alike: true,
            ..self
        }
    }
}

/// What keeps a request open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldBy {
    /// It becomes a tunnel as soon as it is answered, which takes so long.
    Tunnel(Duration),
    /// Its answer begins after so long and goes on at the pace of the client.
    Download(Duration),
    /// Its answer comes at the end: a long poll.
    Poll,
}

/// A wait that takes no CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Io {
    /// Its mean, on a node of [`NodeModel::io_slowness`] 1.
    pub mean: Duration,
    /// Its shape.
    pub shape: Demand,
}

/// The front-ends, which do not talk to each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FrontEnds {
    /// How many.
    pub count: u32,
    /// Each sees so many nodes of each site; none: all. Every node is seen by as many
    /// front-ends as any other, give or take one.
    pub subset: Option<u32>,
    /// Least time between two ticks of a director. A real one takes 0.1 us per node.
    pub tick: Duration,
    /// How long an answer is waited for; none: for ever.
    pub timeout: Option<Duration>,
    /// Whether they agree by words of the nodes' memory, where these have records.
    pub words: bool,
    /// Whether nodes that are read seldom are read in turn (`load::groups`), as where a budget does not allow more. All nodes
    /// are then read in one way.
    pub in_turn: bool,
}

/// The network between front-ends and nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// One-way delay.
    pub delay: Duration,
    /// Mean of what is added to each message's delay, exponential.
    pub jitter: Duration,
}

/// What must come true of runs under `auto`, judged by their reports. What must hold at every
/// step, whatever chooses, is in `checks`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expect {
    /// No node gets less than this part of its fair share of its site's requests over
    /// [`Expect::SHARE_WINDOW`]: where nodes are equal and healthy.
    pub least_share: Option<f64>,
    /// Most over mean of the nodes' requests in flight, each a mean over 100 ms, averaged over
    /// the run, stays at or below this: where nodes are equal and records fresh.
    pub herding: Option<f64>,
    /// At most this share of the requests fails or is refused.
    pub failed: Option<f64>,
}

impl Expect {
    /// The window of [`Expect::least_share`]; a shorter run is one window.
    pub const SHARE_WINDOW: Duration = Duration::from_secs(10);
}

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Everything random follows from it.
    pub seed: u64,
    /// The nodes.
    pub nodes: Vec<NodeModel>,
    /// The sites.
    pub sites: Vec<SiteModel>,
    /// What forwards.
    pub front_ends: FrontEnds,
    /// What lies between.
    pub network: Network,
    /// Requests in all.
    pub requests: u32,
    /// Share of the requests, the first ones, that is not measured.
    pub warm_up: f64,
    /// What operators do.
    pub overrides: Vec<NodeOverride>,
    /// Nodes that go and come.
    pub leaves: Vec<Leave>,
    /// What breaks.
    pub faults: Vec<Fault>,
    /// What must come true under `auto`.
    pub expect: Expect,
    /// Whether answers in time are counted by windows.
    pub series: Option<Series>,
}

/// Answers within a time, counted in windows of this length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Series {
    /// Of a window.
    pub window: Duration,
    /// Within.
    pub slo: Duration,
}

impl Scenario {
    /// `nodes` equal nodes of four CPUs behind `front_ends` front-ends, one site at `load`, mean
    /// demand 10 ms exponential, records each millisecond, network 100 us, 60 000 requests, the
    /// first tenth not measured: the policy study's base.
    pub fn new(nodes: u32, front_ends: u32, load: f64) -> Self {
        Self {
            seed: 1,
            nodes: (0..nodes).map(|_| NodeModel::new(4.0)).collect(),
            sites: vec![SiteModel::new(load)],
            front_ends: FrontEnds {
                count: front_ends,
                subset: None,
                tick: Duration::from_millis(1),
                words: true,
                in_turn: false,
                timeout: None,
            },
            network: Network {
                delay: Duration::from_micros(100),
                jitter: Duration::ZERO,
            },
            requests: 60_000,
            warm_up: 0.1,
            overrides: Vec::new(),
            leaves: Vec::new(),
            faults: Vec::new(),
            expect: Expect::default(),
            series: None,
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

    /// With this done to every site.
    #[must_use]
    pub fn sites(mut self, change: impl FnMut(&mut SiteModel)) -> Self {
        self.sites.iter_mut().for_each(change);
        self
    }

    /// With this done to every node.
    #[must_use]
    pub fn nodes(mut self, change: impl FnMut(&mut NodeModel)) -> Self {
        self.nodes.iter_mut().for_each(change);
        self
    }

    /// With this done to the records of every node that has them.
    #[must_use]
    pub fn records(mut self, change: impl FnMut(&mut Records)) -> Self {
        let records = self
            .nodes
            .iter_mut()
            .filter_map(|node| node.records.as_mut());
        records.for_each(change);
        self
    }

    /// With demands of this shape.
    #[must_use]
    pub fn demand(self, demand: Demand) -> Self {
        self.sites(|site| site.demand = demand)
    }

    /// With this mean demand.
    #[must_use]
    pub fn mean_demand(self, mean: Duration) -> Self {
        self.sites(|site| site.mean_demand = mean)
    }

    /// With records read this often.
    #[must_use]
    pub fn record_interval(self, interval: Duration) -> Self {
        self.records(|records| records.interval = interval)
    }

    /// With this antagonist on every node, each on its own times.
    #[must_use]
    pub fn antagonists(self, antagonist: Antagonist) -> Self {
        self.nodes(|node| node.antagonist = Some(antagonist))
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

    /// With `change` done to this share of the nodes, evenly spread among the others.
    #[must_use]
    pub fn some_nodes(mut self, share: f64, mut change: impl FnMut(&mut NodeModel)) -> Self {
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let upto = |count: usize| (count as f64 * share).floor();
            if upto(index + 1) > upto(index) {
                change(node);
            }
        }
        self
    }

    /// Without records on this share of the nodes, evenly spread among the others.
    #[must_use]
    pub fn missing(self, share: f64) -> Self {
        self.some_nodes(share, |node| node.records = None)
    }

    /// With a node that is out of service until `at` and then joins.
    #[must_use]
    pub fn joins(mut self, node: NodeId, at: Duration) -> Self {
        let change = |at, state| NodeOverride { at, node, state };
        self.overrides
            .push(change(Duration::ZERO, AdminState::Maint));
        self.overrides.push(change(at, AdminState::Ready));
        self
    }

    /// What a site's nodes can do together beside their antagonists, seconds of demand per
    /// second. Nodes out of service count as if they were in.
    pub fn capacity(&self, site: usize) -> f64 {
        let nodes = self.nodes.iter().filter(|node| node.site.index() == site);
        nodes.map(NodeModel::capacity).sum()
    }

    /// A site's mean requests per second.
    pub fn rate(&self, site: usize) -> f64 {
        let model = &self.sites[site];
        model.load * self.capacity(site) / model.mean_demand.as_secs_f64()
    }

    /// What makes it no scenario, if anything does.
    pub fn problem(&self) -> Option<String> {
        let known = |node: NodeId| node.index() < self.nodes.len();
        let unknown = |node: NodeId| Some(format!("there is no node {}", node.0));
        for change in &self.overrides {
            if !known(change.node) {
                return unknown(change.node);
            }
        }
        for leave in &self.leaves {
            if !known(leave.node) {
                return unknown(leave.node);
            }
            let overlaps = |other: &Leave| other.from < leave.to && leave.from < other.to;
            let same = |other: &&Leave| other.node == leave.node && *other != leave;
            if leave.to <= leave.from || self.leaves.iter().filter(same).any(overlaps) {
                return Some(format!("node {} leaves while it is gone", leave.node.0));
            }
        }
        for fault in &self.faults {
            if !known(fault.node) {
                return unknown(fault.node);
            }
            let same = |other: &&Fault| other.node == fault.node && *other != fault;
            let overlaps = |other: &Fault| other.from < fault.to && fault.from < other.to;
            if self.faults.iter().filter(same).any(overlaps) {
                return Some(format!("two faults of node {} overlap", fault.node.0));
            }
        }
        for (index, node) in self.nodes.iter().enumerate() {
            if node.site.index() >= self.sites.len() {
                return Some(format!(
                    "node {index} is of site {}, which there is not",
                    node.site.0
                ));
            }
            if !(node.cores > 0.0 && node.speed > 0.0) {
                return Some(format!("node {index} has no CPU"));
            }
        }
        let idle = |site: &usize| !(self.rate(*site) > 0.0 && self.rate(*site).is_finite());
        if let Some(site) = (0..self.sites.len()).find(idle) {
            return Some(format!(
                "nobody asks for site {site}, or it has no capacity"
            ));
        }
        if self.front_ends.count == 0 || self.sites.is_empty() || self.front_ends.subset == Some(0)
        {
            return Some("there must be a site, and a front-end that sees a node".into());
        }
        None
    }

    /// How long the requests take to arrive, on the average.
    pub fn length(&self) -> Duration {
        let rate: f64 = (0..self.sites.len()).map(|site| self.rate(site)).sum();
        Duration::try_from_secs_f64(f64::from(self.requests) / rate).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missing_share_is_spread_evenly() {
        let scenario = Scenario::new(20, 1, 0.5).missing(0.3);
        let missing: Vec<_> = (0..20)
            .filter(|index| scenario.nodes[*index].records.is_none())
            .collect();
        assert_eq!(missing, [3, 6, 9, 13, 16, 19]);
    }

    #[test]
    fn the_rate_follows_from_load_capacity_and_demand() {
        let scenario = Scenario::new(20, 1, 0.9);
        assert!((scenario.rate(0) - 7200.0).abs() < 1e-9);
        assert_eq!(scenario.requests(7200).length(), Duration::from_secs(1));
        let shared = Scenario::new(20, 1, 0.9).antagonists(Antagonist::new(8, 0.25));
        assert!((shared.rate(0) - 5400.0).abs() < 1e-9);
    }
}
