//! What the nodes' words show of moves, look by look, and whether it is what moves may do.
//!
//! ```text
//! moves       steps of all generations
//! double      the same lock, site and sequence, has moved two nodes, or one twice
//! back        a generation that was greater before
//! floor       a site with fewer nodes that serve it than its least      ceiling   one that more than its most belong to
//! ```
//!
//! Inputs: all words at one moment. Failure case: of a node that moves twice between two looks the first of these moves counts by
//! its generation alone: what its lock moved beside it is not seen. Source: invariants A1, A3 and A4 of `docs/moves.md`.

use std::collections::BTreeMap;

use tidegate_core::moves::words::{Assignment, MoveCause};

/// A word has the low 12 bits of its lock's sequence, which come again after 2048 moves: older ones are another lock's.
const LOCK_MOVES_MAX: u64 = 1000;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WordsSeen {
    bounds: (usize, usize),
    before: Vec<Assignment>,
    /// The node, its generation and the number of the last move by each lock: site, sequence.
    by_lock: BTreeMap<(u8, u16), (usize, u32, u64)>,
    /// Looks.
    pub(super) looks: u64,
    /// See the module.
    pub(super) moves: u64,
    /// Of these, those for load, as far as words were seen.
    pub(super) by_load: u64,
    /// See the module; so are the others.
    pub(super) double: u64,
    pub(super) back: u64,
    pub(super) floors: u64,
    pub(super) ceilings: u64,
}

impl WordsSeen {
    /// Nothing seen; sites have so many nodes at least and at most.
    pub(super) fn new(bounds: (usize, usize)) -> Self {
        Self {
            bounds,
            ..Self::default()
        }
    }

    /// All words as they were last.
    pub(super) fn last(&self) -> &[Assignment] {
        &self.before
    }

    /// Takes in the words of all nodes, of so many sites.
    pub(super) fn take(&mut self, words: &[Assignment], sites: usize) {
        self.looks += 1;
        for site in 0..sites {
            let own = words.iter().filter(|it| it.site.index() == site);
            let (all, serving) = (own.clone().count(), own.filter(|it| it.is_serving()));
            self.floors += u64::from(serving.count() < self.bounds.0);
            self.ceilings += u64::from(all > self.bounds.1);
        }
        let before = std::mem::replace(&mut self.before, words.to_vec());
        for (node, (before, now)) in before.iter().zip(words).enumerate() {
            if before.generation == now.generation {
                continue;
            }
            if before.generation.is_after(now.generation) {
                self.back += 1;
                continue;
            }
            self.moves += u64::from(now.generation.get() - before.generation.get());
            self.note_lock(node, now);
        }
    }

    fn note_lock(&mut self, node: usize, now: &Assignment) {
        match now.cause {
            MoveCause::Load | MoveCause::Chain | MoveCause::HomeComing => self.by_load += 1,
            MoveCause::Operator => {}
            // These need no lock.
            MoveCause::Start | MoveCause::Revert => return,
        }
        let moved = (node, now.generation.get(), self.moves);
        let other = self.by_lock.insert((now.site.0, now.by), moved);
        let is_recent = |it: &(usize, u32, u64)| self.moves - it.2 < LOCK_MOVES_MAX;
        self.double += u64::from(other.is_some_and(|it| is_recent(&it)));
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::moves::words::{Count24, SiteNumber};

    use super::*;

    fn word(generation: u32, site: u8, by: u16) -> Assignment {
        Assignment {
            by,
            cause: MoveCause::Operator,
            ..Assignment::first(Count24::new(generation), SiteNumber(site), false)
        }
    }

    fn seen(words: &[[Assignment; 3]]) -> WordsSeen {
        let mut seen = WordsSeen::new((1, 2));
        for words in words {
            seen.take(words, 2);
        }
        seen
    }

    #[test]
    fn moves_are_steps_of_generations_and_a_lock_moves_one_node() {
        let begin = [word(1, 0, 0), word(1, 1, 0), word(1, 0, 0)];
        let one = [word(1, 0, 0), word(1, 1, 0), word(2, 1, 7)];
        // Two moves of the last one between two looks.
        let back = [word(1, 0, 0), word(1, 1, 0), word(4, 1, 9)];
        let sound = seen(&[begin, one, one, back]);
        assert_eq!((sound.looks, sound.moves, sound.double), (4, 3, 0));
        assert_eq!((sound.back, sound.floors, sound.ceilings), (0, 0, 0));
        // The lock that has moved the last node moves the first one as well, or the last one once more.
        let both = [word(2, 1, 7), word(1, 1, 0), word(2, 1, 7)];
        let double = seen(&[begin, one, both]);
        assert_eq!((double.double, double.floors, double.ceilings), (1, 1, 1));
        let again = [word(1, 0, 0), word(1, 1, 0), word(3, 1, 7)];
        assert_eq!(seen(&[begin, one, again]).double, 1);
    }

    #[test]
    fn a_generation_that_goes_back_is_no_move() {
        let later = [word(5, 0, 0), word(1, 1, 0), word(1, 0, 0)];
        let earlier = [word(4, 0, 0), word(1, 1, 0), word(1, 0, 0)];
        let seen = seen(&[later, earlier]);
        assert_eq!((seen.back, seen.moves), (1, 0));
    }
}
