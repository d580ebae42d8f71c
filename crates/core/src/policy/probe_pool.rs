//! The pool of probes that both forms of Prequal choose from.
//!
//! ```text
//! size     = 16; fewer than 32 nodes: N/2, at least 4 (all nodes, if fewer)
//! lifetime = 1 s
//! each pick: up to 3 random distinct nodes are probed; a node's new probe replaces its old one
//! hot      = requests in flight above the Q quantile of the pool, interpolated
//! choice   = least latency among the cold; all hot: fewest requests in flight; ties: the other
//! use      : in flight of the chosen probe + 1; used up after
//! b_reuse  = max(1, (1 + 1) / ((1 - m/N) * r_probe - r_remove)), at most 16; m = pool size
//! removal  : one for three probes taken in, the oldest and the worst in turn
//!            (worst: of the hot ones the one with most in flight, else the highest latency)
//! fewer than 2 probes: a random node
//! ```
//!
//! A probe is a fresh load record in the table, read at the moment of the pick, or a report
//! that came with a response (`on_probe`). A record is as old as it is, so own traffic that it
//! has not seen is added, as a probe sent now would count it. Requests in flight are those
//! that the node counts; where it counts none, its **run queue** stands in, and where that is
//! missing as well, **own requests in flight**. A node without a fresh record is taken for an
//! average one of the pool, never for an idle one, while others answer. A node without a known
//! latency is taken for as fast as the fastest of the pool, so that requests in flight decide:
//! taken for an average one it would never be asked again.
//!
//! Where nodes report in response headers alone, about one probe comes in per request instead
//! of three. `r_probe` is then 1 and `r_remove` a third, or the pool would run dry; and a
//! quarter of the requests goes to random nodes, or those outside the pool would never be
//! heard of again and those inside would get everything.

use std::time::Duration;

use super::sample::Draw;
use super::{Probe, View};
use crate::ids::NodeId;
use crate::prng::Prng;
use crate::time::Timestamp;

/// Probes in a full pool.
const POOL_MAX: usize = 16;
/// Fewer than this many nodes: the pool holds half of them.
const POOL_HALF_BELOW: usize = 32;
/// But no fewer than this, as far as there are nodes: among two there is no hot and cold.
const POOL_SMALL: usize = 4;
/// Fewer probes than this are no choice: the node is drawn at random.
const POOL_MIN: usize = 2;
const LIFETIME: Duration = Duration::from_secs(1);
/// r_probe, where probes are reads of the load table.
const PROBES: usize = 3;
/// Probes taken in for one that is removed: r_remove is 1 at three probes a pick.
const PROBES_PER_REMOVAL: f32 = 3.0;
/// Part of the requests that go to random nodes where they are the only probes.
const EXPLORED: f64 = 0.25;
/// Most uses of one probe.
const REUSE_MAX: f32 = 16.0;

/// A probe that was answered.
#[derive(Clone, Copy, Debug)]
struct Entry {
    node: NodeId,
    at: Timestamp,
    in_flight: f32,
    /// NaN if not known.
    latency: f32,
    /// Uses left; a fraction is the chance of one more.
    uses: f32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct ProbePool {
    entries: Vec<Entry>,
    quantile: f32,
    /// Removals owed; grows by a third with each probe.
    removals: f32,
    remove_worst: bool,
    budget: f32,
}

/// What was chosen and by which number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pooled {
    pub(super) node: NodeId,
    pub(super) in_flight: f32,
    pub(super) compared: u32,
}

impl ProbePool {
    /// A pool where nodes above this quantile of requests in flight are hot.
    pub(super) fn new(quantile: f32) -> Self {
        Self {
            entries: Vec::with_capacity(POOL_MAX + 1),
            quantile,
            removals: 0.0,
            remove_worst: false,
            budget: 1.0,
        }
    }

    /// Probes some nodes, and chooses. `latency` gives a node's expected latency, NaN if unknown.
    pub(super) fn pick(
        &mut self,
        view: &View<'_>,
        prng: &mut Prng,
        latency: impl Fn(NodeId, f32) -> f32,
    ) -> Option<Pooled> {
        let nodes = view.candidates.len();
        self.entries
            .retain(|entry| view.now.since(entry.at) <= LIFETIME);
        let targets = Draw::distinct(nodes, PROBES, prng);
        let mut read = 0;
        for node in targets.of(view.candidates) {
            if let Some((in_flight, request_time)) = answer(view, node) {
                read += 1;
                let probe = Probe {
                    node,
                    in_flight,
                    latency: latency(node, request_time),
                };
                self.insert(&probe, view.now);
            }
        }
        if read > 0 {
            self.insert_silent(targets.of(view.candidates), view, latency);
        }
        let size = pool_size(nodes);
        self.budget = reuse_budget(size, nodes, if read > 0 { PROBES as f32 } else { 1.0 });
        while self.entries.len() > size {
            self.remove_oldest();
        }
        if read == 0 && prng.unit() < EXPLORED {
            return None;
        }
        let chosen = self.choose(view, prng)?;
        let pooled = self.take(chosen, prng);
        self.remove_owed();
        Some(pooled)
    }

    /// Takes a probe in; it replaces the node's last one.
    pub(super) fn insert(&mut self, probe: &Probe, now: Timestamp) {
        if !(probe.in_flight >= 0.0 && probe.in_flight.is_finite()) {
            return;
        }
        self.entries.retain(|entry| entry.node != probe.node);
        if self.entries.len() == POOL_MAX {
            self.remove_oldest();
        }
        self.entries.push(Entry {
            node: probe.node,
            at: now,
            in_flight: probe.in_flight,
            latency: probe.latency,
            uses: self.budget,
        });
        self.removals = (self.removals + 1.0 / PROBES_PER_REMOVAL).min(1.0);
    }

    /// What the node reported holds no more.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.entries.retain(|entry| entry.node != node);
    }

    /// Takes nodes in that answered nothing and of which no probe is left.
    fn insert_silent(
        &mut self,
        targets: impl Iterator<Item = NodeId>,
        view: &View<'_>,
        latency: impl Fn(NodeId, f32) -> f32,
    ) {
        let sum: f32 = self.entries.iter().map(|entry| entry.in_flight).sum();
        let mean = sum / self.entries.len() as f32;
        for node in targets {
            if self.entries.iter().all(|entry| entry.node != node) {
                let probe = Probe {
                    node,
                    in_flight: mean,
                    latency: latency(node, f32::NAN),
                };
                self.insert(&probe, view.now);
            }
        }
    }

    /// The node's probe: requests in flight, latency, and whether it is hot.
    pub(super) fn seen(&self, node: NodeId) -> Option<(f32, f32, bool)> {
        let entry = self.entries.iter().find(|entry| entry.node == node)?;
        let hot = entry.in_flight > self.limit();
        Some((entry.in_flight, entry.latency, hot))
    }

    /// The best probe's position. Probes of nodes that are no candidates (drained, ejected, or
    /// tried before in a retry) are dropped when they would win.
    fn choose(&mut self, view: &View<'_>, prng: &mut Prng) -> Option<usize> {
        while self.entries.len() >= POOL_MIN {
            let best = self.best(prng);
            if view.has(self.entries[best].node) {
                return Some(best);
            }
            self.entries.remove(best);
        }
        None
    }

    fn best(&self, prng: &mut Prng) -> usize {
        let limit = self.limit();
        let least = self.least_latency();
        // Cold before hot; then latency before requests in flight, or the other way round.
        let rank = |entry: &Entry| {
            let hot = entry.in_flight > limit;
            let latency = known_or(entry.latency, least);
            let (first, second) = if hot {
                (entry.in_flight, latency)
            } else {
                (latency, entry.in_flight)
            };
            (hot, first, second)
        };
        let mut best = 0;
        let mut equals = 1;
        for index in 1..self.entries.len() {
            let (one, other) = (rank(&self.entries[index]), rank(&self.entries[best]));
            if one < other {
                best = index;
                equals = 1;
            } else if one == other {
                equals += 1;
                if prng.below(equals) == 0 {
                    best = index;
                }
            }
        }
        best
    }

    /// Requests in flight above which a node is hot.
    fn limit(&self) -> f32 {
        let count = self.entries.len();
        let mut sorted = [0.0; POOL_MAX];
        for (slot, entry) in sorted.iter_mut().zip(&self.entries) {
            *slot = entry.in_flight;
        }
        let sorted = &mut sorted[..count];
        sorted.sort_unstable_by(f32::total_cmp);
        let Some(last) = count.checked_sub(1) else {
            return 0.0;
        };
        // Between ranks, or the busiest node of a small pool would never be hot.
        let rank = last as f32 * self.quantile;
        let below = (rank as usize).min(last);
        let above = (below + 1).min(last);
        sorted[below] + (sorted[above] - sorted[below]) * (rank - below as f32)
    }

    /// What a node without a known latency is taken to need. Zero if no node's is known, so
    /// that requests in flight decide.
    fn least_latency(&self) -> f32 {
        let known = self.entries.iter().map(|entry| entry.latency);
        let least = known.fold(f32::INFINITY, f32::min);
        if least.is_finite() { least } else { 0.0 }
    }

    fn take(&mut self, chosen: usize, prng: &mut Prng) -> Pooled {
        let compared = self.entries.len() as u32;
        let entry = &mut self.entries[chosen];
        let pooled = Pooled {
            node: entry.node,
            in_flight: entry.in_flight,
            compared,
        };
        entry.in_flight += 1.0;
        entry.uses -= 1.0;
        let again = entry.uses >= 1.0 || prng.unit() < f64::from(entry.uses);
        if !again {
            self.entries.remove(chosen);
        }
        pooled
    }

    fn remove_owed(&mut self) {
        if self.removals < 1.0 || self.entries.is_empty() {
            return;
        }
        self.removals = 0.0;
        self.remove_worst = !self.remove_worst;
        if !self.remove_worst {
            self.remove_oldest();
            return;
        }
        let limit = self.limit();
        let least = self.least_latency();
        let badness = |entry: &Entry| {
            let hot = entry.in_flight > limit;
            let latency = known_or(entry.latency, least);
            (hot, if hot { entry.in_flight } else { latency })
        };
        let mut worst = 0;
        for index in 1..self.entries.len() {
            if badness(&self.entries[index]) > badness(&self.entries[worst]) {
                worst = index;
            }
        }
        self.entries.remove(worst);
    }

    /// Probes are kept in the order in which they came.
    fn remove_oldest(&mut self) {
        if !self.entries.is_empty() {
            self.entries.remove(0);
        }
    }
}

fn known_or(latency: f32, least: f32) -> f32 {
    if latency.is_nan() { least } else { latency }
}

/// What the node answers: its requests in flight, and the mean time that one takes (NaN if it
/// does not count them). Nothing without a fresh record.
fn answer(view: &View<'_>, node: NodeId) -> Option<(f32, f32)> {
    let load = view.table.fresh(node, view.now)?;
    let own = view.table.own(node);
    let counted = if load.in_flight.is_nan() {
        load.runnable
    } else {
        load.in_flight
    };
    let in_flight = if counted.is_nan() {
        own.in_flight() as f32
    } else {
        (counted + own.unseen_since(load.unseen_from) as f32).max(0.0)
    };
    Some((in_flight, load.request_time))
}

fn pool_size(nodes: usize) -> usize {
    let wanted = if nodes < POOL_HALF_BELOW {
        nodes.min((nodes / 2).max(POOL_SMALL))
    } else {
        POOL_MAX
    };
    wanted.clamp(POOL_MIN, POOL_MAX)
}

/// b_reuse: as many uses as keep the pool full.
fn reuse_budget(size: usize, nodes: usize, probes: f32) -> f32 {
    let removals = probes / PROBES_PER_REMOVAL;
    let held = size as f32 / nodes.max(1) as f32;
    let surplus = (1.0 - held) * probes - removals;
    if surplus > 0.0 {
        (2.0 / surplus).clamp(1.0, REUSE_MAX)
    } else {
        REUSE_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(quantile: f32, probes: &[(u32, f32, f32)]) -> ProbePool {
        let mut pool = ProbePool::new(quantile);
        for (node, in_flight, latency) in probes {
            let probe = Probe {
                node: NodeId(*node),
                in_flight: *in_flight,
                latency: *latency,
            };
            pool.insert(&probe, Timestamp::from_millis(1));
        }
        pool
    }

    fn best(pool: &ProbePool) -> u32 {
        pool.entries[pool.best(&mut Prng::new(1))].node.0
    }

    #[test]
    fn the_least_latency_among_the_cold_wins() {
        let probes = [(0, 1.0, 0.3), (1, 2.0, 0.1), (2, 9.0, 0.01), (3, 3.0, 0.2)];
        assert_eq!(best(&pool(0.5, &probes)), 1, "node 2 is fast but hot");
        assert_eq!(best(&pool(1.0, &probes)), 2, "nobody is hot");
        assert_eq!(best(&pool(0.0, &probes)), 0, "all but the least are hot");
    }

    #[test]
    fn the_busiest_node_of_a_small_pool_is_hot_however_fast() {
        let probes = [(0, 1.0, 0.3), (1, 2.0, 0.1), (2, 9.0, 0.01)];
        assert_eq!(best(&pool(0.84, &probes)), 1);
        let equals = [(0, 2.0, 0.3), (1, 2.0, 0.1), (2, 2.0, 0.01)];
        assert_eq!(best(&pool(0.84, &equals)), 2, "nobody is busier");
    }

    #[test]
    fn with_an_unknown_latency_requests_in_flight_decide() {
        let probes = [(0, 1.0, 0.3), (1, 2.0, f32::NAN), (2, 1.0, 0.1)];
        assert_eq!(
            best(&pool(0.84, &probes)),
            2,
            "as fast, and fewer in flight"
        );
        let probes = [(0, 1.0, 0.3), (1, 0.0, f32::NAN), (2, 1.0, 0.1)];
        assert_eq!(best(&pool(0.84, &probes)), 1);
        let unknown = [(0, 3.0, f32::NAN), (1, 2.0, f32::NAN), (2, 3.0, f32::NAN)];
        assert_eq!(best(&pool(0.84, &unknown)), 1);
    }

    #[test]
    fn a_used_probe_counts_the_request_and_is_used_up() {
        let mut pool = pool(0.84, &[(0, 1.0, 0.1), (1, 1.0, 0.2)]);
        for entry in &mut pool.entries {
            entry.uses = 2.0;
        }
        let mut prng = Prng::new(1);
        assert_eq!(pool.take(0, &mut prng).in_flight, 1.0);
        assert_eq!(pool.seen(NodeId(0)).unwrap().0, 2.0);
        pool.take(0, &mut prng);
        assert!(pool.seen(NodeId(0)).is_none());
    }

    #[test]
    fn removal_takes_the_oldest_and_the_worst_in_turn() {
        let probes = [(0, 1.0, 0.1), (1, 1.0, 0.9), (2, 1.0, 0.2), (3, 1.0, 0.3)];
        let mut pool = pool(0.84, &probes);
        let nodes = |pool: &ProbePool| -> Vec<u32> {
            pool.entries.iter().map(|entry| entry.node.0).collect()
        };
        pool.removals = 1.0;
        pool.remove_owed();
        assert_eq!(nodes(&pool), [0, 2, 3]);
        pool.remove_owed();
        assert_eq!(
            nodes(&pool),
            [0, 2, 3],
            "nothing is owed before three probes"
        );
        pool.removals = 1.0;
        pool.remove_owed();
        assert_eq!(nodes(&pool), [2, 3]);
    }

    #[test]
    fn the_pool_has_a_size_and_a_budget_for_every_cluster() {
        assert_eq!(
            [1, 2, 8, 31, 32, 1000].map(pool_size),
            [2, 2, 4, 15, 16, 16]
        );
        // The published formula: 2 / ((1 - 16/1000) * 3 - 1).
        assert!((reuse_budget(16, 1000, 3.0) - 1.024_59).abs() < 1e-4);
        assert_eq!(reuse_budget(4, 8, 3.0), 4.0);
        assert_eq!(reuse_budget(2, 2, 3.0), 16.0, "no surplus");
        assert_eq!(reuse_budget(2, 0, 3.0), 16.0);
    }

    #[test]
    fn nonsense_is_no_probe() {
        let pool = pool(
            0.5,
            &[(0, f32::NAN, 0.1), (1, -1.0, 0.1), (2, f32::INFINITY, 0.1)],
        );
        assert!(pool.entries.is_empty());
    }
}
