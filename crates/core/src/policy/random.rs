//! `random`: any node, uniformly.
//!
//! Formula: none. Inputs: none. Failure case: as for any blind policy, an unlucky run piles
//! requests on one node, and a slow node gets as many as a fast one.
//! Source: the "random" baseline of KLM-2005 §5.

use super::{Choice, Parameters, Policy, View};
use crate::prng::Prng;

/// See the module.
#[derive(Debug)]
pub(super) struct Random;

impl Random {
    pub(super) fn new(_: &Parameters) -> Self {
        Self
    }
}

impl Policy for Random {
    fn pick(&mut self, view: &View<'_>, prng: &mut Prng) -> Choice {
        Choice::blind(view.candidates[prng.below(view.candidates.len())])
    }
}
