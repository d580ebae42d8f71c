//! The parts of a window for cross-fitting: blocks of 2.5 s, each in turn a block of another part.
//!
//! Series are kept with one part behind the other, so that sums over a part run over one slice; each
//! part is filled up with zeros to whole lanes of vector instructions.
//! Blocks are longer than most requests, so that one part learns little of the other's noise.

use std::ops::Range;

use super::series::LANES;

/// Bins of a block.
const BLOCK: usize = 25;
/// Parts. Of two, each would rest on only half of what is known.
const PARTS: usize = 4;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Folds {
    /// Where in time each place lies; none where a part is filled up.
    order: Vec<Option<usize>>,
    /// The places of each part.
    parts: Vec<Range<usize>>,
    bins: usize,
}

impl Folds {
    /// For so many bins.
    pub(super) fn new(bins: usize) -> Self {
        let mut order = Vec::with_capacity(bins);
        let parts = (0..PARTS).map(|part| {
            let from = order.len();
            order.extend(
                (0..bins)
                    .filter(|bin| (bin / BLOCK) % PARTS == part)
                    .map(Some),
            );
            order.resize(order.len().next_multiple_of(LANES), None);
            from..order.len()
        });
        Self {
            parts: parts.collect(),
            order,
            bins,
        }
    }

    /// The places of each part.
    pub(super) fn parts(&self) -> &[Range<usize>] {
        &self.parts
    }

    /// Places of a series: its bins, and what fills its parts up.
    pub(super) fn places(&self) -> usize {
        self.order.len()
    }

    /// A series of which `value` tells each bin.
    pub(super) fn permuted(&self, value: impl Fn(usize) -> f32) -> impl Iterator<Item = f32> {
        let order = self.order.iter();
        order.map(move |bin| bin.map_or(0.0, &value))
    }

    /// Back in time's order.
    pub(super) fn in_time(&self, permuted: &[f32]) -> Vec<f32> {
        let mut series = vec![0.0; self.bins];
        for (bin, value) in self.order.iter().zip(permuted) {
            if let Some(bin) = bin {
                series[*bin] = *value;
            }
        }
        series
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let folds = Folds::new(110);
        let series: Vec<f32> = (0..110u8).map(f32::from).collect();
        let permuted: Vec<_> = folds.permuted(|bin| series[bin]).collect();
        assert_eq!(permuted[25], 100.0);
        assert_eq!(folds.parts(), [0..40, 40..72, 72..104, 104..136]);
        assert_eq!(
            (permuted[34], permuted[35], permuted[40]),
            (109.0, 0.0, 25.0)
        );
        assert_eq!(folds.in_time(&permuted), series);
    }
}
