//! `slbl`: random by what is free of CPU, memory and file descriptors, weighted.
//!
//! ```text
//! v_r      = w_r * c_r                                          for r of CPU, memory, file descriptors
//! load     = sum(v_r * used_r) / sum(v_r)                       used shares, 0 to 1
//! headroom = max(1 - load, 0.01)
//! size     = weight * sum(v_r) / sum(w_r)                       the node's weight, if all c_r are 1
//! chance   = size * headroom / sum of all of these
//! ```
//!
//! Inputs: each node's load record; what the node has of each resource, c_r, and its weight, both relative to the other nodes (the
//! paper's server configuration: CPU speed, memory, descriptors, as the administrator's first estimate); the weights w_r of
//! `parameters.weights`. A chance is thus what is free at the node of all resources, weighted. What a record lacks is left out of
//! its mean. A node without a fresh record has the mean headroom, so it gets its fair share; with no record anywhere the sizes
//! alone decide.
//!
//! Why chances and not the least load: the paper's records are up to seconds old, and every
//! request until the next one would go to the same node. Chances keep the paper's rule
//! (the more load, the fewer requests) at any age. The paper's soft limit on descriptors (§7) holds for
//! every policy: see `director::soft_limits`.
//!
//! Failure case: it answers to shares used and not to queues, so an overloaded node
//! (CPU at 1) differs from a busy one by little; memory that is used as a cache counts as
//! load. A pick looks at all nodes.
//! Source: SLBL-ARPN §5 (weights, table 1; the server configuration that is given), §4 (relative capacities).

use super::{Choice, Parameters, Policy, Term, View};
use crate::ids::NodeId;
use crate::load::NodeLoad;
use crate::prng::Prng;

/// What a full node still gets: some requests must show that it has room again.
const HEADROOM_MIN: f32 = 0.01;

/// See the module.
#[derive(Debug)]
pub(super) struct Slbl {
    weights: [f32; 3],
    /// Headroom by candidate, NaN if unknown; kept so that a pick allocates nothing.
    headrooms: Vec<f32>,
}

impl Slbl {
    pub(super) fn new(parameters: &Parameters) -> Self {
        Self {
            // `max` turns NaN into zero.
            weights: parameters.weights.map(|weight| weight.max(0.0)),
            headrooms: Vec::new(),
        }
    }

    /// The weights at a node of these capacities.
    fn weights_of(&self, capacity: [f32; 3]) -> [f32; 3] {
        std::array::from_fn(|resource| self.weights[resource] * capacity[resource])
    }

    /// The weighted mean of the used shares that are known; NaN if none is.
    fn load(&self, load: &NodeLoad, capacity: [f32; 3]) -> f32 {
        let shares = [load.utilization, load.memory, load.files];
        weighted_share(self.weights_of(capacity), shares)
    }

    /// What the node is beside others when all of it is free.
    fn size(&self, view: &View<'_>, node: NodeId) -> f32 {
        let all: f32 = self.weights.iter().sum();
        let own: f32 = self.weights_of(view.capacity(node)).iter().sum();
        match all > 0.0 {
            true => view.weight(node) * own / all,
            false => view.weight(node),
        }
    }

    /// What is free at the node; NaN if unknown.
    fn headroom(&self, view: &View<'_>, node: NodeId) -> f32 {
        let Some(load) = view.table.fresh(node, view.now) else {
            return f32::NAN;
        };
        let free = 1.0 - self.load(&load, view.capacity(node));
        if free.is_nan() {
            free
        } else {
            free.max(HEADROOM_MIN)
        }
    }
}

/// The weighted mean of used shares, those that are NaN left out; NaN if none is known.
pub fn weighted_share(weights: [f32; 3], shares: [f32; 3]) -> f32 {
    let (mut sum, mut all) = (0.0, 0.0);
    for (share, weight) in shares.into_iter().zip(weights) {
        if !share.is_nan() {
            sum += weight * share.clamp(0.0, 1.0);
            all += weight;
        }
    }
    // No weight on anything known: 0 / 0 is NaN, as it should be.
    sum / all
}

impl Policy for Slbl {
    fn pick(&mut self, view: &View<'_>, prng: &mut Prng) -> Choice {
        let mut headrooms = std::mem::take(&mut self.headrooms);
        headrooms.clear();
        let nodes = view.candidates.iter();
        headrooms.extend(nodes.map(|node| self.headroom(view, *node)));
        let size = |position: usize| self.size(view, view.candidates[position]);
        let chosen = draw(&mut headrooms, size, prng);
        let score = 1.0 - headrooms[chosen];
        self.headrooms = headrooms;
        Choice {
            compared: view.candidates.len() as u32,
            score,
            ..Choice::blind(view.candidates[chosen])
        }
    }

    fn on_nodes(&mut self, nodes: usize, _: &[NodeId]) {
        self.headrooms.clear();
        self.headrooms.reserve(nodes);
    }

    fn explain(&self, view: &View<'_>, node: NodeId) -> Vec<Term> {
        let load = view.table.fresh(node, view.now);
        let load = load.unwrap_or(NodeLoad::UNKNOWN);
        let term = |name, value: f32, what| Term::new(name, value.into(), what);
        vec![
            term(
                "headroom",
                self.headroom(view, node),
                "chance relative to others, times the size",
            ),
            term("size", self.size(view, node), "weight times capacities"),
            term(
                "load",
                self.load(&load, view.capacity(node)),
                "mean of the shares, weighted by weights and capacities",
            ),
            term("cpu", load.utilization, "used share of the CPU"),
            term("memory", load.memory, "used share of the memory"),
            term("files", load.files, "used share of the file descriptors"),
        ]
    }
}

/// A position, with chances as the sizes times the headrooms; unknown headrooms become the mean of the known, by size.
fn draw(headrooms: &mut [f32], size: impl Fn(usize) -> f32, prng: &mut Prng) -> usize {
    let all: f32 = (0..headrooms.len()).map(&size).sum();
    let known = headrooms.iter().enumerate();
    let known = known.filter(|(_, headroom)| !headroom.is_nan());
    let (sum, of_known) = known.fold((0.0, 0.0), |(sum, of_known), (position, headroom)| {
        let size = size(position);
        (sum + size * headroom, of_known + size)
    });
    let mean = if sum > 0.0 { sum / of_known } else { f32::NAN };
    if mean.is_nan() && (1..headrooms.len()).all(|it| size(it) == size(0)) {
        return prng.below(headrooms.len());
    }
    // Without a mean the capacities alone decide.
    let usual = if mean.is_nan() { 1.0 } else { mean };
    let mut left = (prng.unit() as f32) * usual * all;
    let mut chosen = 0;
    for (position, headroom) in headrooms.iter_mut().enumerate() {
        if headroom.is_nan() {
            *headroom = mean;
        }
        let free = if mean.is_nan() { 1.0 } else { *headroom };
        // Rounding may leave a crumb at the end; it falls to the last node with a chance.
        if free > 0.0 {
            chosen = position;
        }
        left -= size(position) * free;
        if left < 0.0 {
            break;
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::super::{Capacity, Share};
    use super::*;
    use crate::ids::SiteId;
    use crate::load::LoadTable;
    use crate::time::Timestamp;

    fn slbl(weights: [f32; 3]) -> Slbl {
        Slbl::new(&Parameters {
            weights,
            ..Parameters::default()
        })
    }

    fn load(utilization: f32, memory: f32, files: f32) -> NodeLoad {
        NodeLoad {
            utilization,
            memory,
            files,
            ..NodeLoad::UNKNOWN
        }
    }

    #[test]
    fn the_rows_of_the_papers_table() {
        let load = load(0.9, 0.3, 0.6);
        for (weights, wanted) in [
            ([1.0, 0.0, 0.0], 0.9),
            ([0.0, 1.0, 0.0], 0.3),
            ([0.0, 0.0, 1.0], 0.6),
            ([1.0 / 3.0; 3], 0.6),
            ([0.5, 0.0, 0.5], 0.75),
        ] {
            assert!((slbl(weights).load(&load, [1.0; 3]) - wanted).abs() < 1e-6);
        }
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let half = slbl([0.5, 0.25, 0.25]).load(&load(0.4, f32::NAN, 0.8), [1.0; 3]);
        assert!((half - (0.5 * 0.4 + 0.25 * 0.8) / 0.75).abs() < 1e-6);
        assert!(
            slbl([1.0, 0.0, 0.0])
                .load(&load(f32::NAN, 0.5, 0.5), [1.0; 3])
                .is_nan()
        );
        assert!(
            slbl([f32::NAN, -1.0, 0.0])
                .load(&load(0.5, 0.5, 0.5), [1.0; 3])
                .is_nan()
        );
    }

    #[test]
    fn chances_are_as_the_headrooms_and_the_unknown_gets_its_fair_share() {
        let mut prng = Prng::new(1);
        let mut counts = [0u32; 4];
        for _ in 0..10_000 {
            let mut headrooms = [0.6, 0.2, f32::NAN, 0.0];
            counts[draw(&mut headrooms, |_| 1.0, &mut prng)] += 1;
        }
        // Mean of the known 0.8 / 3, so of 1.0667 in all: 0.5625, 0.1875, 0.25, 0.
        for (count, wanted) in counts.iter().zip([5625, 1875, 2500, 0]) {
            assert!(count.abs_diff(wanted) < 200, "{counts:?}");
        }
        assert_eq!(counts[3], 0);
    }

    #[test]
    fn a_larger_node_has_as_much_more_of_the_chances() {
        let capacities = [1.0, 4.0, 2.0];
        let shares = |headrooms: [f32; 3]| {
            let (mut prng, mut counts) = (Prng::new(1), [0u32; 3]);
            for _ in 0..10_000 {
                let mut headrooms = headrooms;
                counts[draw(&mut headrooms, |it| capacities[it], &mut prng)] += 1;
            }
            counts
        };
        // 0.8, 0.8 and, with the mean of 1.6 / 5, 0.64 of 2.24 in all.
        for (headrooms, wanted) in [
            ([0.8, 0.2, f32::NAN], [3571, 3571, 2857]),
            ([0.5, 0.5, 0.5], [1429, 5714, 2857]),
            ([f32::NAN; 3], [1429, 5714, 2857]),
            ([0.0; 3], [1429, 5714, 2857]),
        ] {
            for (count, wanted) in shares(headrooms).iter().zip(wanted) {
                assert!(count.abs_diff(wanted) < 200, "{headrooms:?}");
            }
        }
    }

    #[test]
    fn a_chance_is_what_is_free_of_all_resources() {
        let policy = slbl([0.5, 0.25, 0.25]);
        let chance = |load: NodeLoad, capacity: [f32; 3]| {
            let topology = [Share {
                weight: 2.0,
                capacity: Capacity {
                    cpu: capacity[0],
                    memory: capacity[1],
                    files: capacity[2],
                },
            }];
            let table = LoadTable::new(1, 1);
            let view = View {
                now: Timestamp::ZERO,
                site: SiteId(0),
                candidates: &[NodeId(0)],
                shares: &topology,
                table: &table,
            };
            policy.size(&view, NodeId(0)) * (1.0 - policy.load(&load, capacity))
        };
        let load = load(0.9, 0.5, 0.2);
        for (capacity, wanted) in [
            ([1.0, 1.0, 1.0], 0.5 * 0.1 + 0.25 * 0.5 + 0.25 * 0.8),
            ([4.0, 1.0, 1.0], 0.5 * 4.0 * 0.1 + 0.25 * 0.5 + 0.25 * 0.8),
            (
                [1.0, 2.0, 0.5],
                0.5 * 0.1 + 0.25 * 2.0 * 0.5 + 0.25 * 0.5 * 0.8,
            ),
        ] {
            let chance = chance(load, capacity);
            assert!(
                (chance - 2.0 * wanted).abs() < 1e-5,
                "{capacity:?} {chance}"
            );
        }
    }

    #[test]
    fn nothing_known_or_nothing_free_is_an_even_draw() {
        let mut prng = Prng::new(1);
        for value in [f32::NAN, 0.0] {
            let mut counts = [0u32; 4];
            for _ in 0..4000 {
                counts[draw(&mut [value; 4], |_| 1.0, &mut prng)] += 1;
            }
            assert!(counts.iter().all(|count| count.abs_diff(1000) < 150));
        }
    }
}
