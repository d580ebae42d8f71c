//! `weighted_round_robin`: one node after the other, each as often as its weight says, and
//! well mixed: with weights 3 and 1 it goes a a b a and not a a a b.
//!
//! ```text
//! each pick:  credit(s) += weight(s) for all candidates; the highest credit wins
//!             credit(winner) -= sum of the weights
//! other sum:  credits change as much as the sum of the weights did
//! ```
//!
//! Inputs: configured weights, nothing measured. Credits begin at a random part of the weight,
//! so that workers do not march in step. Failure case: as round_robin; weights that the
//! operator guessed stay wrong for ever. A pick looks at all nodes.
//! Source: SWRR-2012; SLBL-ARPN §4 for relative capacities.

use super::per_node::PerNode;
use super::{Choice, Parameters, Policy, View};
use crate::ids::NodeId;
use crate::prng::Prng;

/// See the module.
#[derive(Debug)]
pub(super) struct WeightedRoundRobin {
    credits: PerNode<f64>,
    /// Sum of the candidates' weights at the last pick; zero before the first.
    total: f64,
}

impl WeightedRoundRobin {
    pub(super) fn new(_: &Parameters) -> Self {
        Self {
            credits: PerNode::new(),
            total: 0.0,
        }
    }
}

impl Policy for WeightedRoundRobin {
    fn pick(&mut self, view: &View<'_>, prng: &mut Prng) -> Choice {
        let mut best = (f64::NEG_INFINITY, view.candidates[0]);
        let mut total = 0.0;
        for node in view.candidates {
            let weight = f64::from(view.weight(*node));
            let credit = self.credits.of(*node);
            if self.total == 0.0 {
                *credit = weight * prng.unit();
            }
            *credit += weight;
            total += weight;
            if *credit > best.0 {
                best = (*credit, *node);
            }
        }
        *self.credits.of(best.1) -= total;
        let scale = total / self.total;
        if scale != 1.0 && self.total > 0.0 {
            // What was saved up by great weights would outweigh small ones for a long time.
            for node in view.candidates {
                *self.credits.of(*node) *= scale;
            }
        }
        self.total = total;
        Choice::blind(best.1)
    }

    fn on_nodes(&mut self, nodes: usize, _: &[NodeId]) {
        self.credits.reserve(nodes);
    }

    fn forget(&mut self, node: NodeId) {
        self.credits.forget(node);
    }
}
