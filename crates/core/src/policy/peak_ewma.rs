//! `peak_ewma`: least recent peak latency times own requests in flight, of two random nodes.
//!
//! ```text
//! at a response:  cost = y                        if y > cost: peaks count at once
//!                 cost = cost * w + y * (1 - w)   else; w = exp(-time since the last one / 10 s)
//! at a pick:      c    = mean + (cost - mean) * w
//!                 load = c * (o + 1)              least of two distinct random nodes wins
//! ```
//!
//! Inputs: y, latencies of own requests up to the response head; o, own requests in flight;
//! mean, the mean cost of the site's known nodes. A **new node** is charged the mean: at cost
//! zero every front-end storms it (p99 of 5.8 s in the policy study). For the same reason what is
//! known of a node fades towards the mean and not to zero. A **failure** is charged at least
//! five times the mean: a node that fails fast must not look fast. A node that comes back
//! (from ejection, drain or another site) is a new node.
//!
//! Failure case: one slow request in a heavy tail marks its node for seconds; every front-end
//! learns alone.
//! Source: Finagle's and linkerd's peak EWMA, which decay to zero and leave failures to
//! others.

use std::time::Duration;

use super::per_node::PerNode;
use super::sample::{Draw, Least};
use super::{Choice, Parameters, Policy, Sample, Term, View};
use crate::ids::NodeId;
use crate::prng::Prng;
use crate::time::Timestamp;

/// Decay of the cost, as Finagle's default.
const DECAY: Duration = Duration::from_secs(10);
/// A failure costs at least so many mean requests.
const FAILURE_COST: f64 = 5.0;
/// Shortest latency reckoned with, seconds.
const LATENCY_MIN: f64 = 1e-6;

/// See the module.
#[derive(Debug)]
pub(super) struct PeakEwma {
    nodes: PerNode<Cost>,
    /// Sum of the known costs, and how many are known.
    sum: f64,
    known: u32,
}

/// What is known of one node: seconds, and since when; zero seconds if nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    seconds: f64,
    at: Timestamp,
}

impl PeakEwma {
    pub(super) fn new(_: &Parameters) -> Self {
        Self {
            nodes: PerNode::new(),
            sum: 0.0,
            known: 0,
        }
    }

    fn mean(&self) -> f64 {
        if self.known > 0 {
            self.sum / f64::from(self.known)
        } else {
            LATENCY_MIN
        }
    }

    fn cost(&self, node: NodeId, now: Timestamp) -> f64 {
        let mean = self.mean();
        match self.nodes.get(node) {
            Some(cost) if cost.seconds > 0.0 => mean + (cost.seconds - mean) * decay(cost.at, now),
            _ => mean,
        }
    }

    fn load(&self, view: &View<'_>, node: NodeId) -> f64 {
        let pending = view.table.in_flight(node) as f64;
        self.cost(node, view.now) * (pending + 1.0)
    }
}

fn decay(since: Timestamp, now: Timestamp) -> f64 {
    (-now.seconds_since(since) / DECAY.as_secs_f64()).exp()
}

impl Policy for PeakEwma {
    fn pick(&mut self, view: &View<'_>, prng: &mut Prng) -> Choice {
        let draw = Draw::distinct(view.candidates.len(), 2, prng);
        let mut least = Least::new();
        for node in draw.of(view.candidates) {
            least.offer(self.load(view, node) as f32, node, prng);
        }
        Choice::best(least, view)
    }

    fn on_nodes(&mut self, nodes: usize, candidates: &[NodeId]) {
        self.nodes.reserve(nodes);
        // Adding up anew also ends the rounding of a long sum.
        (self.sum, self.known) = (0.0, 0);
        for index in 0..nodes {
            let node = NodeId(index as u32);
            let cost = self.nodes.of(node);
            if candidates.binary_search(&node).is_err() {
                *cost = Cost::default();
            }
            self.sum += cost.seconds;
            self.known += u32::from(cost.seconds > 0.0);
        }
    }

    fn forget(&mut self, node: NodeId) {
        self.nodes.forget(node);
    }

    fn on_sample(&mut self, sample: &Sample, now: Timestamp) {
        let mean = self.mean();
        let latency = sample.latency.as_secs_f64().max(LATENCY_MIN);
        let latency = if sample.success {
            latency
        } else {
            latency.max(mean * FAILURE_COST)
        };
        let cost = self.nodes.of(sample.node);
        let before = cost.seconds;
        cost.seconds = if latency > before {
            latency
        } else {
            let keep = decay(cost.at, now);
            before * keep + latency * (1.0 - keep)
        };
        cost.at = now;
        self.known += u32::from(before == 0.0);
        self.sum += cost.seconds - before;
    }

    fn explain(&self, view: &View<'_>, node: NodeId) -> Vec<Term> {
        vec![
            Term::new(
                "load",
                self.load(view, node),
                "c * (o + 1), seconds; the least of two random nodes wins",
            ),
            Term::new(
                "c",
                self.cost(node, view.now),
                "decayed peak latency, seconds",
            ),
            Term::new("mean", self.mean(), "mean cost of the known nodes, seconds"),
            Term::new(
                "o",
                view.table.in_flight(node) as f64,
                "own requests in flight",
            ),
        ]
    }
}
