//! `prequal_rif`: fewest requests in flight at the node, over Prequal's pool of probes.
//!
//! Formula: `probe_pool` with Q = 0.6 and no latencies, so requests in flight decide among
//! the cold too. Inputs: requests in flight at the node (see `probe_pool` for what stands in)
//! and own traffic since. Failure case: requests in flight say nothing of an antagonist that
//! has just come, and a node that fails fast has few of them; with 64 front-ends and
//! antagonists its p99 is 23 % above `auto`'s.
//! Source: the RIF-only control of Prequal-2024 §5 with the defaults of its open
//! implementations; the strongest baseline in the policy study.

use super::prequal::explain;
use super::probe_pool::ProbePool;
use super::{Choice, Parameters, Policy, Probe, Term, View};
use crate::ids::NodeId;
use crate::prng::Prng;
use crate::time::Timestamp;

const QUANTILE: f32 = 0.6;

/// See the module.
#[derive(Debug)]
pub(super) struct PrequalRif {
    pool: ProbePool,
}

impl PrequalRif {
    pub(super) fn new(_: &Parameters) -> Self {
        Self {
            pool: ProbePool::new(QUANTILE),
        }
    }
}

impl Policy for PrequalRif {
    fn pick(&mut self, view: &View<'_>, prng: &mut Prng) -> Choice {
        match self.pool.pick(view, prng, |_, _| f32::NAN) {
            Some(pooled) => Choice {
                compared: pooled.compared,
                score: pooled.in_flight,
                ..Choice::blind(pooled.node)
            },
            None => Choice::blind(view.candidates[prng.below(view.candidates.len())]),
        }
    }

    fn forget(&mut self, node: NodeId) {
        self.pool.forget(node);
    }

    fn on_probe(&mut self, probe: &Probe, now: Timestamp) {
        let in_flight_only = Probe {
            latency: f32::NAN,
            ..*probe
        };
        self.pool.insert(&in_flight_only, now);
    }

    fn explain(&self, _: &View<'_>, node: NodeId) -> Vec<Term> {
        explain(&self.pool, node)
    }
}
