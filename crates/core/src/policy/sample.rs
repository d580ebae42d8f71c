//! Draws and comparisons that several policies share.

use std::ops::Range;

use crate::ids::NodeId;
use crate::prng::Prng;

/// Most nodes that a sampling policy compares.
pub(super) const DRAWS_MAX: usize = 16;

/// Some distinct candidates, uniformly: all of them if there are no more than `draws`.
#[derive(Debug)]
pub(super) struct Draw {
    picked: [u32; DRAWS_MAX],
    count: usize,
}

impl Draw {
    /// Draws up to `draws` (at most [`DRAWS_MAX`]) of `candidates` positions.
    pub(super) fn distinct(candidates: usize, draws: usize, prng: &mut Prng) -> Self {
        let count = draws.min(DRAWS_MAX).min(candidates);
        let mut picked = [0; DRAWS_MAX];
        if count == candidates {
            for (position, slot) in picked[..count].iter_mut().enumerate() {
                *slot = position as u32;
            }
            return Self { picked, count };
        }
        // Floyd's sampling: as many random numbers as draws, no retry. What was drawn before
        // is looked up only where its bit says that it may have been.
        let mut seen = 0u64;
        let mut bits = 0;
        for (done, last) in (candidates - count..candidates).enumerate() {
            // One word is good for two: what is left of it after the first is as random.
            if done % 2 == 0 {
                bits = prng.bits();
            }
            let product = u128::from(bits) * (last + 1) as u128;
            let drawn = (product >> 64) as u32;
            bits = product as u64;
            let maybe = seen & bit(drawn) != 0;
            let taken = maybe && picked[..done].contains(&drawn);
            let position = if taken { last as u32 } else { drawn };
            picked[done] = position;
            seen |= bit(position);
        }
        Self { picked, count }
    }

    /// The same of these positions.
    pub(super) fn within(positions: Range<usize>, draws: usize, prng: &mut Prng) -> Self {
        let mut draw = Self::distinct(positions.len(), draws, prng);
        for position in &mut draw.picked[..draw.count] {
            *position += positions.start as u32;
        }
        draw
    }

    /// How many were drawn.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The position of one of them among the candidates.
    pub(super) fn position(&self, index: usize) -> usize {
        self.picked[index] as usize
    }

    /// The drawn candidates.
    pub(super) fn of<'a>(&'a self, candidates: &'a [NodeId]) -> impl Iterator<Item = NodeId> + 'a {
        self.picked[..self.count]
            .iter()
            .map(|position| candidates[*position as usize])
    }
}

/// One bit for a position; others share it.
fn bit(position: u32) -> u64 {
    1 << (position % u64::BITS)
}

/// The position of the least of the first `count` scores, the others being infinite; among
/// equals each has the same chance. NaN never wins over a number. Nothing branches on a single
/// score: it would be guessed wrong three times a pick.
pub(super) fn least_of<const N: usize>(scores: &[f32; N], count: usize, prng: &mut Prng) -> usize {
    const { assert!(N <= 32, "one bit each") }
    let lesser = |one: f32, other: f32| if other < one { other } else { one };
    let mut least = [f32::INFINITY; 4];
    for four in scores.chunks_exact(4) {
        for lane in 0..4 {
            least[lane] = lesser(least[lane], four[lane]);
        }
    }
    let least = lesser(lesser(least[0], least[1]), lesser(least[2], least[3]));
    let mut equals = 0u32;
    for (position, score) in scores.iter().enumerate() {
        equals |= u32::from(*score == least) << position;
    }
    equals &= (1 << count) - 1;
    if !equals.is_power_of_two() && equals != 0 {
        for _ in 0..prng.below(equals.count_ones() as usize) {
            equals &= equals - 1;
        }
    }
    // No bit: all of them are NaN.
    (equals.trailing_zeros() as usize).min(count.saturating_sub(1))
}

/// Keeps the node with the least score; among equals each has the same chance.
#[derive(Debug)]
pub(super) struct Least<T> {
    best: Option<(f32, T)>,
    equals: usize,
    compared: u32,
}

impl<T> Least<T> {
    pub(super) fn new() -> Self {
        Self {
            best: None,
            equals: 0,
            compared: 0,
        }
    }

    /// Offers one. A NaN score never wins over a number.
    pub(super) fn offer(&mut self, score: f32, what: T, prng: &mut Prng) {
        self.compared += 1;
        let Some((best, _)) = &self.best else {
            self.best = Some((score, what));
            self.equals = 1;
            return;
        };
        if score < *best || best.is_nan() && !score.is_nan() {
            self.best = Some((score, what));
            self.equals = 1;
        } else if score == *best {
            self.equals += 1;
            if prng.below(self.equals) == 0 {
                self.best = Some((score, what));
            }
        }
    }

    /// The least score, what had it, and how many were compared.
    pub(super) fn take(self) -> Option<(f32, T, u32)> {
        self.best.map(|(score, what)| (score, what, self.compared))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_distinct_and_uniform() {
        let mut prng = Prng::new(3);
        let candidates: Vec<_> = (0..20).map(NodeId).collect();
        let mut counts = [0u32; 20];
        for _ in 0..20_000 {
            let mut drawn: Vec<_> = Draw::distinct(20, 5, &mut prng).of(&candidates).collect();
            drawn.sort_unstable();
            drawn.dedup();
            assert_eq!(drawn.len(), 5);
            for node in drawn {
                counts[node.index()] += 1;
            }
        }
        // 5000 expected each; 300 is more than four standard deviations.
        assert!(
            counts.iter().all(|count| count.abs_diff(5000) < 300),
            "{counts:?}"
        );
    }

    #[test]
    fn draws_within_some_positions_are_distinct_and_uniform() {
        let mut prng = Prng::new(5);
        let mut counts = [0u32; 20];
        for _ in 0..8000 {
            let draw = Draw::within(12..20, 4, &mut prng);
            assert_eq!(draw.count(), 4);
            for index in 0..4 {
                counts[draw.position(index)] += 1;
            }
        }
        // 4000 expected of each.
        let (beside, within) = counts.split_at(12);
        assert!(
            within.iter().all(|count| count.abs_diff(4000) < 250),
            "{counts:?}"
        );
        assert!(beside.iter().all(|count| *count == 0), "{counts:?}");
    }

    #[test]
    fn ties_are_broken_evenly_and_nan_loses() {
        let mut prng = Prng::new(4);
        let mut counts = [0u32; 3];
        for _ in 0..9000 {
            let mut least = Least::new();
            for (index, score) in [f32::NAN, 1.0, 1.0].into_iter().enumerate() {
                least.offer(score, index, &mut prng);
            }
            counts[least.take().unwrap().1] += 1;
            let mut scores = [f32::INFINITY; DRAWS_MAX];
            scores[..3].copy_from_slice(&[f32::NAN, 1.0, 1.0]);
            counts[least_of(&scores, 3, &mut prng)] += 1;
        }
        assert_eq!(counts[0], 0);
        assert!(counts[1].abs_diff(9000) < 400, "{counts:?}");
    }
}
