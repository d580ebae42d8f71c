//! `prequal`: the hot-cold lexicographic rule over a pool of probes, as published.
//!
//! Formula: `probe_pool`, with Q = 0.84. The latency of a node is the median of up to 8 own
//! responses of the last second, those whose requests in flight at dispatch were nearest to
//! now's; without any, the mean time that the node's record tells. Inputs: requests in flight
//! at the node (see `probe_pool` for what stands in), own requests in flight, latencies.
//!
//! Failure case: latency comes first among the cold, and at few requests in flight its noise
//! beats the signal; at Q = 0.84 most nodes are cold, and front-ends herd on the same fast
//! one. `prequal_rif` halves its p99 in the policy study. An old bad median starves a node, which is
//! why samples live for one second only.
//! Source: Prequal-2024. The paper does not fully specify the latency estimate, and measures it at the server.

use std::time::Duration;

use super::per_node::PerNode;
use super::probe_pool::ProbePool;
use super::{Choice, Parameters, Policy, Probe, Sample, Term, View};
use crate::ids::NodeId;
use crate::prng::Prng;
use crate::stats::quantile_of_sorted;
use crate::time::Timestamp;

/// Q_RIF of the paper, 2^-0.25.
const QUANTILE: f32 = 0.84;
/// Responses remembered per node.
const SAMPLES_KEPT: usize = 16;
/// Responses that the median is taken of.
const SAMPLES_USED: usize = 8;
const SAMPLE_LIFETIME: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(super) struct Prequal {
    pool: ProbePool,
    latencies: PerNode<Latencies>,
}

/// The last responses of one node.
#[derive(Debug, Default)]
struct Latencies {
    ring: [Response; SAMPLES_KEPT],
    next: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Response {
    at: Timestamp,
    in_flight: u32,
    seconds: f32,
}

impl Prequal {
    pub(super) fn new(_: &Parameters) -> Self {
        Self {
            pool: ProbePool::new(QUANTILE),
            latencies: PerNode::new(),
        }
    }
}

impl Latencies {
    fn push(&mut self, response: Response) {
        self.ring[self.next] = response;
        self.next = (self.next + 1) % SAMPLES_KEPT;
    }

    /// The median of the young responses nearest to this many requests in flight.
    fn median(&self, in_flight: u32, now: Timestamp) -> Option<f32> {
        let mut near = [(0, 0.0); SAMPLES_KEPT];
        let mut count = 0;
        for response in &self.ring {
            let young = response.at != Timestamp::ZERO && now.since(response.at) <= SAMPLE_LIFETIME;
            if young {
                near[count] = (response.in_flight.abs_diff(in_flight), response.seconds);
                count += 1;
            }
        }
        let near = &mut near[..count];
        near.sort_unstable_by_key(|(distance, _)| *distance);
        let used = &mut near[..count.min(SAMPLES_USED)];
        used.sort_unstable_by(|(_, one), (_, other)| one.total_cmp(other));
        quantile_of_sorted(used, 0.5).map(|(_, seconds)| seconds)
    }
}

impl Policy for Prequal {
    fn pick(&mut self, view: &View<'_>, prng: &mut Prng) -> Choice {
        let latencies = &self.latencies;
        let latency = |node, request_time| {
            let own = u32::try_from(view.table.in_flight(node)).unwrap_or(u32::MAX);
            let known = latencies.get(node);
            known
                .and_then(|known| known.median(own.saturating_add(1), view.now))
                .unwrap_or(request_time)
        };
        match self.pool.pick(view, prng, latency) {
            Some(pooled) => Choice {
                compared: pooled.compared,
                score: pooled.in_flight,
                ..Choice::blind(pooled.node)
            },
            None => Choice::blind(view.candidates[prng.below(view.candidates.len())]),
        }
    }

    fn on_nodes(&mut self, nodes: usize, _: &[NodeId]) {
        self.latencies.reserve(nodes);
    }

    fn forget(&mut self, node: NodeId) {
        self.latencies.forget(node);
        self.pool.forget(node);
    }

    fn on_sample(&mut self, sample: &Sample, now: Timestamp) {
        if sample.success {
            self.latencies.of(sample.node).push(Response {
                at: now,
                in_flight: sample.in_flight,
                seconds: sample.latency.as_secs_f32(),
            });
        }
    }

    fn on_probe(&mut self, probe: &Probe, now: Timestamp) {
        self.pool.insert(probe, now);
    }

    fn explain(&self, _: &View<'_>, node: NodeId) -> Vec<Term> {
        explain(&self.pool, node)
    }
}

/// The terms of both forms.
pub(super) fn explain(pool: &ProbePool, node: NodeId) -> Vec<Term> {
    let Some((in_flight, latency, hot)) = pool.seen(node) else {
        return Vec::new();
    };
    vec![
        Term::new("RIF", in_flight.into(), "requests in flight in its probe"),
        Term::new("latency", latency.into(), "latency of its probe, seconds"),
        Term::new("hot", f64::from(u8::from(hot)), "1: chosen only if all are"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_of_young_responses_at_a_similar_load() {
        let mut latencies = Latencies::default();
        let now = Timestamp::from_millis(5000);
        assert_eq!(latencies.median(1, now), None);
        for (at_ms, in_flight, seconds) in [(3000, 1, 9.0), (4500, 20, 2.0), (4600, 1, 0.1)] {
            latencies.push(Response {
                at: Timestamp::from_millis(at_ms),
                in_flight,
                seconds,
            });
        }
        assert_eq!(latencies.median(1, now), Some(2.0), "one is too old");
        for _ in 0..8 {
            latencies.push(Response {
                at: now,
                in_flight: 2,
                seconds: 0.2,
            });
        }
        assert_eq!(latencies.median(2, now), Some(0.2));
    }
}
