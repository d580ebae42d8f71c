//! Policies: which node gets the next request. One file each, one line in the table below;
//! the configuration name, the documentation row, the conformance suite and the comparisons
//! follow from that line.
//!
//! A policy sees the candidates of one site through a [`View`] and its own memory. It does not
//! know clocks, sockets, drained or ejected nodes (they are not among the candidates), retries,
//! or admission. It allocates nothing while it picks.

mod auto;
mod random;
mod sample;

pub use auto::{Score as AutoScore, score as auto_score};

use crate::load::LoadTable;
use crate::prng::Prng;
use crate::time::Timestamp;
use crate::topology::{NodeId, SiteId, Topology};

/// What a policy may look at.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Now, on the front-end's clock.
    pub now: Timestamp,
    /// The site that asks.
    pub site: SiteId,
    /// The nodes to choose from; never empty.
    pub candidates: &'a [NodeId],
    /// Names, weights and states.
    pub topology: &'a Topology,
    /// Loads, own traffic and the director's terms.
    pub table: &'a LoadTable,
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

/// The load indices of paper 000.
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

macro_rules! policies {
    ($( $(#[$attribute:meta])* $kind:ident = $name:literal, $new:expr, $what:literal; )*) => {
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

            fn build(self, parameters: &Parameters) -> Box<dyn Policy> {
                match self { $( Self::$kind => Box::new(($new)(parameters)), )* }
            }
        }
    };
}

policies! {
    #[default]
    Auto = "auto", auto::Auto::new, "least expected slowdown among a few random nodes, by the freshest load there is";
    Random = "random", random::Random::new, "any node, uniformly";
}

impl PolicyKind {
    /// The policy of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }
}
