//! When each node has something to do next: a tournament by time.
//!
//! A node's time changes with every request that comes or goes. In a heap of events each
//! change would leave a stale one behind; here it replaces the old one, in log2(nodes) steps.

use tidegate_core::time::Timestamp;

const NEVER: u64 = u64::MAX;

/// See the module. Leaves are nodes; above them each knows the earlier of its two children, the
/// first node among equals.
#[derive(Debug)]
pub(crate) struct Due {
    /// Time and node, the root at 1.
    tree: Vec<(u64, u32)>,
    leaves: usize,
}

impl Due {
    pub(crate) fn new(nodes: usize) -> Self {
        let leaves = nodes.next_power_of_two();
        let mut tree = vec![(NEVER, 0); 2 * leaves];
        for (node, leaf) in tree[leaves..].iter_mut().enumerate() {
            leaf.1 = node as u32;
        }
        Self { tree, leaves }
    }

    /// The earliest.
    pub(crate) fn first(&self) -> Option<(Timestamp, u32)> {
        let (at, node) = self.tree[1];
        (at != NEVER).then_some((Timestamp::from_nanos(at), node))
    }

    pub(crate) fn set(&mut self, node: u32, at: Option<Timestamp>) {
        let mut place = self.leaves + node as usize;
        let at = at.map_or(NEVER, Timestamp::nanos);
        if self.tree[place].0 == at {
            return;
        }
        self.tree[place].0 = at;
        while place > 1 {
            let (one, other) = (self.tree[place & !1], self.tree[place | 1]);
            place /= 2;
            let earlier = if other.0 < one.0 { other } else { one };
            if self.tree[place] == earlier {
                return;
            }
            self.tree[place] = earlier;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::prng::Prng;

    #[test]
    fn the_earliest_is_always_first() {
        let mut prng = Prng::new(3);
        for nodes in [1usize, 2, 5, 20] {
            let mut due = Due::new(nodes);
            let mut plain = vec![None; nodes];
            assert_eq!(due.first(), None);
            for _ in 0..2000 {
                let node = prng.below(nodes);
                let at = (prng.unit() < 0.8).then(|| Timestamp::from_nanos(prng.bits() % 50));
                plain[node] = at;
                due.set(node as u32, at);
                let times = plain.iter().enumerate();
                let first = times
                    .filter_map(|(node, at)| at.map(|at| (at, node as u32)))
                    .min();
                assert_eq!(due.first(), first);
            }
        }
    }
}
