//! Policies: which node gets the next request. One file each, one line in the table below;
//! the configuration name, the documentation row, the conformance suite and the comparisons
//! follow from that line.
//!
//! A policy sees the candidates of one site through a [`View`] and its own memory. It does not
//! know clocks, sockets, drained or ejected nodes (they are not among the candidates), retries,
//! or admission. It allocates nothing while it picks.

mod auto;
mod k_least_loaded;
mod least_request;
mod markdown;
mod peak_ewma;
mod per_node;
mod power_of_two;
mod prequal;
mod prequal_rif;
mod probe_pool;
mod random;
mod round_robin;
mod sample;
mod share;
mod slbl;
mod weighted_round_robin;

pub(crate) use auto::expected;
pub use auto::{Score as AutoScore, score as auto_score};
pub use markdown::markdown;
pub use share::{Capacity, Share};
pub use slbl::weighted_share;

use crate::ids::{NodeId, SiteId};
use crate::load::LoadTable;
use crate::prng::Prng;
use crate::time::Timestamp;

/// What a policy may look at.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Now, on the front-end's clock.
    pub now: Timestamp,
    /// The site that asks.
    pub site: SiteId,
    /// The nodes to choose from, in ascending order; never empty.
    pub candidates: &'a [NodeId],
    /// Weights and capacities, by [`NodeId`].
    pub shares: &'a [Share],
    /// Loads, own traffic and the director's terms.
    pub table: &'a LoadTable,
}

/// Least weight that policies reckon with: a node of weight zero gets next to nothing.
const WEIGHT_MIN: f32 = 1e-6;

impl View<'_> {
    /// Whether `node` is among the candidates.
    pub fn has(&self, node: NodeId) -> bool {
        self.candidates.binary_search(&node).is_ok()
    }

    /// The node's configured share, as a number that can be divided by.
    pub fn weight(&self, node: NodeId) -> f32 {
        let weight = self.shares[node.index()].weight;
        // `max` turns NaN into the least weight.
        weight.clamp(WEIGHT_MIN, 1.0 / WEIGHT_MIN).max(WEIGHT_MIN)
    }

    /// What the node has of CPU, memory and file descriptors, relative to others.
    pub fn capacity(&self, node: NodeId) -> [f32; 3] {
        let Capacity { cpu, memory, files } = self.shares[node.index()].capacity;
        // `max` turns NaN into the least.
        [cpu, memory, files].map(|it| it.max(WEIGHT_MIN))
    }
}

/// A policy's answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The node.
    pub node: NodeId,
    /// Nodes that were compared.
    pub compared: u32,
    /// What the node was compared by, lower is better; NaN if the policy compares nothing.
    pub score: f32,
    /// The slowdown that the request is expected to meet, at least 1; see `auto`.
    pub slowdown: f32,
}

impl Choice {
    /// The best of some, unless there was none to compare.
    fn best(least: sample::Least<NodeId>, view: &View<'_>) -> Self {
        match least.take() {
            Some((score, node, compared)) => Self {
                compared,
                score,
                ..Self::blind(node)
            },
            None => Self::blind(view.candidates[0]),
        }
    }

    /// A choice that compared nothing.
    pub(crate) fn blind(node: NodeId) -> Self {
        Self {
            node,
            compared: 1,
            score: f32::NAN,
            slowdown: 1.0,
        }
    }
}

/// One number that a decision rests on, for `tidegate why`.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// Its name in the policy's formula.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// What it means, with its unit.
    pub what: &'static str,
}

impl Term {
    pub(crate) fn new(name: &'static str, value: f64, what: &'static str) -> Self {
        Self { name, value, what }
    }
}

/// How a request ended, for policies that learn from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The node that had it.
    pub node: NodeId,
    /// Own requests in flight there when it was dispatched, itself included.
    pub in_flight: u32,
    /// Time from dispatch to the response head, or to the failure.
    pub latency: std::time::Duration,
    /// Whether the node answered without a server error.
    pub success: bool,
}

/// A server's own report of its load, as it comes in a response header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probe {
    /// The node that reports.
    pub node: NodeId,
    /// Requests in flight there.
    pub in_flight: f32,
    /// Its estimate of a request's latency, seconds; NaN if it gives none.
    pub latency: f32,
}

/// A way to pick a node.
pub trait Policy: std::fmt::Debug + Send {
    /// Picks one of the candidates.
    fn pick(&mut self, view: &View<'_>, prng: &mut Prng) -> Choice;

    /// The site has these candidates now, and every [`NodeId`] is less than `nodes`: a policy makes room
    /// here, so that it allocates nothing while it picks, and forgets nodes that have left.
    fn on_nodes(&mut self, _nodes: usize, _candidates: &[NodeId]) {}

    /// Another node has this place now: nothing that was learned of the one before holds.
    fn forget(&mut self, _node: NodeId) {}

    /// A request that this picker dispatched has ended.
    fn on_sample(&mut self, _sample: &Sample, _now: Timestamp) {}

    /// A server reported its load with a response.
    fn on_probe(&mut self, _probe: &Probe, _now: Timestamp) {}

    /// The terms by which this policy sees `node` now.
    fn explain(&self, _view: &View<'_>, _node: NodeId) -> Vec<Term> {
        Vec::new()
    }
}

/// Knobs of the policies that have some; a policy ignores those of the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// k_least_loaded: how many of the least loaded share the requests; 0: half of them.
    pub k: u32,
    /// k_least_loaded: what "loaded" means.
    pub index: LoadIndex,
    /// slbl: weights of CPU, memory and file descriptors; they add up to 1.
    pub weights: [f32; 3],
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            k: 0,
            index: LoadIndex::Klm,
            weights: [1.0 / 3.0; 3],
        }
    }
}

/// The load indices of KLM-2005.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadIndex {
    /// CPU utilisation over the agent's interval.
    Ulm,
    /// CPU utilisation over the shortest window.
    Pklm,
    /// The same and pending soft interrupts.
    #[default]
    Klm,
}

impl LoadIndex {
    /// Every index with its configuration name.
    pub const ALL: &'static [(Self, &'static str)] =
        &[(Self::Ulm, "ulm"), (Self::Pklm, "pklm"), (Self::Klm, "klm")];
}

/// A policy with its knobs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PolicyConfig {
    /// Which policy.
    pub kind: PolicyKind,
    /// Its knobs.
    pub parameters: Parameters,
}

impl PolicyConfig {
    /// The policy with default knobs.
    pub fn new(kind: PolicyKind) -> Self {
        Self {
            kind,
            parameters: Parameters::default(),
        }
    }

    /// A fresh instance for one picker.
    pub fn build(&self) -> Box<dyn Policy> {
        self.kind.build(&self.parameters)
    }
}

/// What a policy looks at. What it does not say it looks at changes no choice of its: its caller
/// need not provide that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// Configured weights.
    Weight,
    /// The front-end's own requests in flight.
    InFlight,
    /// Latencies of own requests.
    Latency,
    /// What nodes tell of their load: records, or response headers.
    Load,
    /// Of that, the used share of the CPUs over a window.
    Utilization,
    /// Of that, how long requests took over a window.
    RequestTimes,
    /// The terms of nodes and sites, which the director works out from own traffic, latencies,
    /// loads and request times.
    Learned,
}

impl Signal {
    /// Its name in tables.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Weight => "weights",
            Self::InFlight => "own requests in flight",
            Self::Latency => "latencies",
            Self::Load => "load of the nodes",
            Self::Utilization => "CPU utilisation of the nodes",
            Self::RequestTimes => "request times of the nodes",
            Self::Learned => "learned terms",
        }
    }
}

macro_rules! policies {
    ($( $(#[$attribute:meta])* $kind:ident = $name:literal, $new:expr, [$($signal:ident)*], $what:literal; )*) => {
        /// The policies.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub enum PolicyKind { $( $(#[$attribute])* #[doc = $what] $kind, )* }

        impl PolicyKind {
            /// Every policy.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// Its name in configuration, command line, tables and metrics.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$kind => $name, )* }
            }

            /// What it does, in a line.
            pub const fn what(self) -> &'static str {
                match self { $( Self::$kind => $what, )* }
            }

            /// What it looks at; nothing if it is blind.
            pub const fn signals(self) -> &'static [Signal] {
                match self { $( Self::$kind => &[$(Signal::$signal),*], )* }
            }

            fn build(self, parameters: &Parameters) -> Box<dyn Policy> {
                match self { $( Self::$kind => Box::new(($new)(parameters)), )* }
            }
        }
    };
}

policies! {
    #[default]
    Auto = "auto", auto::Auto::new, [InFlight Latency Load RequestTimes Learned],
        "least expected slowdown among a few random nodes, by the freshest load there is";
    Random = "random", random::Random::new, [],
        "any node, uniformly";
    RoundRobin = "round_robin", round_robin::RoundRobin::new, [],
        "one node after the other";
    WeightedRoundRobin = "weighted_round_robin", weighted_round_robin::WeightedRoundRobin::new, [Weight],
        "one node after the other, each as often as its weight says, well mixed";
    LeastRequest = "least_request", least_request::LeastRequest::new, [Weight InFlight],
        "fewest own requests in flight per weight, of all nodes";
    PowerOfTwo = "power_of_two", power_of_two::PowerOfTwo::new, [InFlight],
        "fewest own requests in flight, of two random nodes";
    PeakEwma = "peak_ewma", peak_ewma::PeakEwma::new, [InFlight Latency],
        "least recent peak latency times own requests in flight, of two random nodes";
    Prequal = "prequal", prequal::Prequal::new, [InFlight Latency Load RequestTimes],
        "hot-cold lexicographic over a pool of probes: least latency among nodes without many requests";
    PrequalRif = "prequal_rif", prequal_rif::PrequalRif::new, [InFlight Load],
        "fewest requests in flight at the node, over a pool of probes";
    Slbl = "slbl", slbl::Slbl::new, [Weight Load Utilization],
        "random by what is free of CPU, memory and file descriptors, weighted, times the node's weight and capacities";
    KLeastLoaded = "k_least_loaded", k_least_loaded::KLeastLoaded::new, [Load Utilization],
        "any of the k nodes with the least CPU load (index ulm, pklm or klm)";
}

impl PolicyKind {
    /// The policy of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }
}
