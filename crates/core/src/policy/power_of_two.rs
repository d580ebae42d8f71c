//! `power_of_two`: fewest own requests in flight, of two random nodes.
//!
//! Formula: two distinct candidates, uniformly; the one with fewer own requests in flight,
//! ties at random. Inputs: own requests in flight. Failure case: as least_request, and at high
//! load the best of two is not good: 52 of 59 scenarios of the policy study go to `auto`.
//! Source: Choices-2001.

use super::sample::{Draw, Least};
use super::{Choice, Parameters, Policy, Term, View};
use crate::ids::NodeId;
use crate::prng::Prng;

/// See the module.
#[derive(Debug)]
pub(super) struct PowerOfTwo;

impl PowerOfTwo {
    pub(super) fn new(_: &Parameters) -> Self {
        Self
    }
}

impl Policy for PowerOfTwo {
    fn pick(&mut self, view: &View<'_>, prng: &mut Prng) -> Choice {
        let draw = Draw::distinct(view.candidates.len(), 2, prng);
        let mut least = Least::new();
        for node in draw.of(view.candidates) {
            least.offer(view.table.in_flight(node) as f32, node, prng);
        }
        Choice::best(least, view)
    }

    fn explain(&self, view: &View<'_>, node: NodeId) -> Vec<Term> {
        let own = view.table.in_flight(node) as f64;
        vec![Term::new(
            "o",
            own,
            "own requests in flight; the least of two random nodes wins",
        )]
    }
}
