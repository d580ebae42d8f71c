//! `k_least_loaded`: any of the k nodes with the least CPU load, uniformly.
//!
//! ```text
//! index ulm   load = CPU utilisation over 50 ms, as KLM-2005's user-level agent tells it
//! index pklm  load = CPU utilisation over the shortest window that its source bears
//! index klm   load = the same + CPUs with soft interrupts pending / C     pending work is load to come
//! k = parameters.k, or half of the nodes (rounded up); ties at the border at random
//! ```
//!
//! Inputs: each node's load record. Only fresh records count: a node without one is never
//! idle, it ranks as some known one, drawn anew each time, and so gets its fair share. (The
//! mean would not do: utilisations are skewed, and most nodes of a busy cluster are above
//! their mean.) With none known, any node. An interrupt count that a record lacks adds nothing.
//!
//! Failure case: all front-ends pour into the same k nodes until the next record. At 50 ms
//! (ulm) and a small k it is worse than random, at 1 ms good, at 2 s five times worse than
//! random: hence the age limit of the load table, which no parameter lifts. A pick looks at
//! all nodes.
//! Source: KLM-2005 §4-5 (ULM, pKLM, KLM; "the k least loaded servers").

use std::cmp::Ordering;

use super::{Choice, LoadIndex, Parameters, Policy, Term, View};
use crate::ids::NodeId;
use crate::load::NodeLoad;
use crate::prng::Prng;

/// See the module.
#[derive(Debug)]
pub(super) struct KLeastLoaded {
    k: usize,
    index: LoadIndex,
    /// Kept so that a pick allocates nothing.
    ranks: Vec<Rank>,
}

/// One node in the order of load; equals in the order of a lot.
#[derive(Clone, Copy, Debug)]
struct Rank {
    load: f32,
    lot: u64,
    node: NodeId,
}

impl KLeastLoaded {
    pub(super) fn new(parameters: &Parameters) -> Self {
        Self {
            k: parameters.k as usize,
            index: parameters.index,
            ranks: Vec::new(),
        }
    }

    /// The load by the index; NaN if unknown.
    fn load(&self, load: &NodeLoad) -> f32 {
        match self.index {
            LoadIndex::Ulm => load.utilization_ulm,
            LoadIndex::Pklm => load.utilization,
            LoadIndex::Klm => {
                let pending = load.softirqs / load.capacity;
                load.utilization + if pending.is_nan() { 0.0 } else { pending }
            }
        }
    }

    fn load_of(&self, view: &View<'_>, node: NodeId) -> f32 {
        let load = view.table.fresh(node, view.now);
        load.map_or(f32::NAN, |load| self.load(&load))
    }
}

impl Policy for KLeastLoaded {
    fn pick(&mut self, view: &View<'_>, prng: &mut Prng) -> Choice {
        let lots = prng.bits();
        let mut ranks = std::mem::take(&mut self.ranks);
        ranks.clear();
        ranks.extend(view.candidates.iter().map(|node| Rank {
            load: self.load_of(view, *node),
            lot: lot(lots, *node),
            node: *node,
        }));
        let k = match self.k {
            0 => ranks.len().div_ceil(2),
            k => k.min(ranks.len()),
        };
        fill_unknown(&mut ranks, prng);
        let (_, border, _) = ranks.select_nth_unstable_by(k - 1, order);
        let border = *border;
        let chosen = match prng.below(k) {
            last if last == k - 1 => border,
            other => ranks[other],
        };
        self.ranks = ranks;
        Choice {
            compared: view.candidates.len() as u32,
            score: chosen.load,
            ..Choice::blind(chosen.node)
        }
    }

    fn on_nodes(&mut self, nodes: usize, _: &[NodeId]) {
        self.ranks.clear();
        self.ranks.reserve(nodes);
    }

    fn explain(&self, view: &View<'_>, node: NodeId) -> Vec<Term> {
        let load = view.table.last(node);
        let term = |name, value: f32, what| Term::new(name, value.into(), what);
        vec![
            term(
                "load",
                self.load_of(view, node),
                "load by the chosen index, unknown if the record is not fresh",
            ),
            term("pklm", load.utilization, "CPU utilisation, shortest window"),
            term("ulm", load.utilization_ulm, "CPU utilisation over 50 ms"),
            term(
                "softirqs",
                load.softirqs,
                "CPUs with soft interrupts pending",
            ),
        ]
    }
}

/// A number that orders equals at random: splitmix64 of one draw per pick and the node.
fn lot(draw: u64, node: NodeId) -> u64 {
    let mixed = draw.wrapping_add(u64::from(node.0).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 27)
}

fn order(one: &Rank, other: &Rank) -> Ordering {
    let loads = one.load.total_cmp(&other.load);
    loads.then(one.lot.cmp(&other.lot))
}

/// Each unknown node takes the load of a known one; with none known, all take the same.
/// Leaves the ranks with the known ones first.
fn fill_unknown(ranks: &mut [Rank], prng: &mut Prng) {
    let mut known = 0;
    for index in 0..ranks.len() {
        if !ranks[index].load.is_nan() {
            ranks.swap(known, index);
            known += 1;
        }
    }
    let (known, unknown) = ranks.split_at_mut(known);
    for rank in unknown {
        rank.load = match known.len() {
            0 => 0.0,
            count => known[prng.below(count)].load,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_index_reads_its_own_numbers() {
        let load = NodeLoad {
            capacity: 4.0,
            utilization: 0.5,
            utilization_ulm: 0.2,
            softirqs: 1.0,
            ..NodeLoad::UNKNOWN
        };
        for (index, wanted) in [
            (LoadIndex::Ulm, 0.2),
            (LoadIndex::Pklm, 0.5),
            (LoadIndex::Klm, 0.75),
        ] {
            let policy = KLeastLoaded::new(&Parameters {
                index,
                ..Parameters::default()
            });
            assert_eq!(policy.load(&load), wanted);
            assert!(policy.load(&NodeLoad::UNKNOWN).is_nan());
        }
    }

    #[test]
    fn the_unknown_rank_as_some_known_one() {
        let rank = |load, node| Rank {
            load,
            lot: 0,
            node: NodeId(node),
        };
        let mut prng = Prng::new(7);
        let mut low = 0u32;
        for _ in 0..1000 {
            let mut ranks = [
                rank(f32::NAN, 0),
                rank(0.2, 1),
                rank(f32::NAN, 2),
                rank(0.8, 3),
            ];
            fill_unknown(&mut ranks, &mut prng);
            for rank in &ranks {
                match rank.node.0 {
                    1 => assert_eq!(rank.load, 0.2),
                    3 => assert_eq!(rank.load, 0.8),
                    _ => low += u32::from(rank.load == 0.2),
                }
            }
        }
        assert!(low.abs_diff(1000) < 100, "{low} of 2000 took the lower one");
        let mut ranks = [rank(f32::NAN, 0), rank(f32::NAN, 1)];
        fill_unknown(&mut ranks, &mut prng);
        assert_eq!(ranks[0].load, ranks[1].load);
    }

    #[test]
    fn equals_have_equal_chances() {
        let mut prng = Prng::new(6);
        let mut counts = [0u32; 8];
        for _ in 0..8000 {
            let lots = prng.bits();
            let first = (0..8).min_by_key(|node| lot(lots, NodeId(*node)));
            counts[first.unwrap() as usize] += 1;
        }
        assert!(
            counts.iter().all(|count| count.abs_diff(1000) < 150),
            "{counts:?}"
        );
    }
}
