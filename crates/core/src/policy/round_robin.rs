//! `round_robin`: one node after the other.
//!
//! Formula: the candidate after the last one in order of node numbers; the first choice is
//! random, so that workers and front-ends do not march in step. Inputs: none. Failure case:
//! every node gets the same share, the slow and the overloaded ones too, and a request that
//! costs a hundred times more counts as one.
//! Source: the "round-robin" baseline of KLM-2005 §5 and SLBL-ARPN §4.

use super::{Choice, Parameters, Policy, View};
use crate::ids::NodeId;
use crate::prng::Prng;

/// See the module.
#[derive(Debug)]
pub(super) struct RoundRobin {
    last: Option<NodeId>,
}

impl RoundRobin {
    pub(super) fn new(_: &Parameters) -> Self {
        Self { last: None }
    }
}

impl Policy for RoundRobin {
    fn pick(&mut self, view: &View<'_>, prng: &mut Prng) -> Choice {
        let count = view.candidates.len();
        let next = match self.last {
            // By number and not by position: candidates come and go between two picks.
            Some(last) => view.candidates.partition_point(|node| *node <= last) % count,
            None => prng.below(count),
        };
        let node = view.candidates[next];
        self.last = Some(node);
        Choice::blind(node)
    }
}
