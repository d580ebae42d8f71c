//! The two halves of a window for cross-fitting: blocks of 2.5 s in turn.
//!
//! Series are kept with one half behind the other, so that sums over a half run over one slice.
//! Blocks are longer than most requests, so that what one half is told of the other's noise is little.

/// Bins of a block.
const BLOCK: usize = 25;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Folds {
    /// Where in time each place lies.
    order: Vec<usize>,
    /// Places of the first half.
    split: usize,
}

impl Folds {
    /// For so many bins.
    pub(super) fn new(bins: usize) -> Self {
        let half = |rest: usize| (0..bins).filter(move |bin| (bin / BLOCK) % 2 == rest);
        let order: Vec<_> = half(0).chain(half(1)).collect();
        Self {
            split: half(0).count(),
            order,
        }
    }

    /// The places of each half.
    pub(super) fn halves(&self) -> [std::ops::Range<usize>; 2] {
        [0..self.split, self.split..self.order.len()]
    }

    /// Adds a series that is in time's order.
    pub(super) fn push_permuted(&self, series: &[f32], to: &mut Vec<f32>) {
        to.extend(self.order.iter().map(|bin| series[*bin]));
    }

    /// Back in time's order.
    pub(super) fn in_time(&self, permuted: &[f32]) -> Vec<f32> {
        let mut series = vec![0.0; permuted.len()];
        let pairs = self.order.iter().zip(permuted);
        pairs.for_each(|(bin, value)| series[*bin] = *value);
        series
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let folds = Folds::new(60);
        let series: Vec<f32> = (0..60u8).map(f32::from).collect();
        let mut permuted = Vec::new();
        folds.push_permuted(&series, &mut permuted);
        assert_eq!(permuted[25], 50.0);
        assert_eq!(folds.halves(), [0..35, 35..60]);
        assert_eq!(folds.in_time(&permuted), series);
    }
}
