//! Step 4a: which classes are worth fitting, and their columns.
//!
//! ```text
//! rank(c) = max over atoms of correlation(atom, use) x sqrt(bins)       > 2.5, the greatest 12
//! ```
//!
//! Inputs: bins of all classes, the use of the resource, both without what is slow.
//! Failure case: a class whose work hides wholly behind another's is left out, and with it nothing.
//! Source: measured; 20 instead of 12 classes find the same, and take twice as long.

use super::atoms::{ATOMS, MASS, write_atoms};
use super::bins::{ClassSeries, Window};
use super::folds::Folds;
use super::high_pass::HighPass;
use super::series::{dot, normalized};

/// Most classes that are fitted.
pub(super) const SCREENED_MAX: usize = 12;
/// Least rank. Of noise the greatest of eleven correlated atoms is about 1.5.
const RANK_MIN: f64 = 2.5;

/// The columns of the classes that were screened.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    /// The classes.
    pub(super) classes: Vec<usize>,
    /// Atoms without what is slow, one behind the other, in the order of the folds.
    pub(super) values: Vec<f32>,
    /// What each atom sums up to in bins that count: seconds for time in progress, else requests.
    pub(super) sums: Vec<f64>,
}

impl Columns {
    /// Requests of each class in bins that count.
    pub(super) fn requests(&self) -> Vec<f64> {
        let sums = self.sums.chunks_exact(ATOMS);
        sums.map(|sums| sums[MASS]).collect()
    }
}

/// What turns a class's bins into columns.
#[derive(Debug)]
pub(super) struct Maker<'a> {
    pub(super) window: Window,
    pub(super) filter: &'a HighPass,
    pub(super) folds: &'a Folds,
}

impl Maker<'_> {
    /// The atoms of one class without what is slow, in time's order, and their sums.
    fn atoms(
        &self,
        series: &ClassSeries,
        room: &mut Vec<[f64; ATOMS]>,
    ) -> (Vec<f32>, [f64; ATOMS]) {
        let mut columns = vec![0.0; ATOMS * self.window.bins];
        write_atoms(series, self.window, &mut columns);
        let sums = self.filter.apply(&mut columns, room);
        (columns, sums)
    }

    /// The classes worth fitting, best first, and their columns. `y` is in time's order.
    pub(super) fn screen<'b>(
        &self,
        classes: impl Iterator<Item = (usize, &'b ClassSeries)>,
        y: &[f32],
    ) -> Columns {
        let scale = (self.filter.kept() as f64).sqrt();
        let used = dot(y, y);
        let (mut ranked, mut room) = (Vec::new(), Vec::new());
        for (class, series) in classes {
            let (atoms, sums) = self.atoms(series, &mut room);
            let each = atoms.chunks_exact(self.window.bins);
            let each = each.map(|atom| normalized(dot(atom, y), dot(atom, atom), used));
            let best = each.fold(0.0, f64::max);
            if best * scale > RANK_MIN && sums[MASS] > 0.0 {
                ranked.push((best, class, atoms, sums));
                if ranked.len() > 2 * SCREENED_MAX {
                    keep_best(&mut ranked);
                }
            }
        }
        keep_best(&mut ranked);
        let mut columns = Columns {
            classes: Vec::new(),
            values: Vec::new(),
            sums: Vec::new(),
        };
        for (_, class, atoms, sums) in ranked {
            columns.classes.push(class);
            columns.sums.extend(sums);
            let each = atoms.chunks_exact(self.window.bins);
            each.for_each(|atom| self.folds.push_permuted(atom, &mut columns.values));
        }
        columns
    }
}

type Ranked = (f64, usize, Vec<f32>, [f64; ATOMS]);

/// The best, in order; of equals the class with the lower number.
fn keep_best(ranked: &mut Vec<Ranked>) {
    ranked.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
    ranked.truncate(SCREENED_MAX);
}

#[cfg(test)]
mod tests {
    use super::super::bins::Bins;
    use super::*;
    use crate::prng::Prng;
    use crate::time::Timestamp;

    #[test]
    fn who_goes_with_the_use_is_kept() {
        let (mut bins, mut prng) = (Bins::new(40), Prng::new(1));
        let window = Window {
            first: 0,
            bins: 300,
        };
        let mut y = vec![0.01f32; 300];
        for class in 0..40 {
            for _ in 0..60 {
                let bin = prng.below(290);
                let sent = Timestamp::from_millis(bin as u64 * 100 + 10);
                bins.add(class, sent, Timestamp::from_millis(bin as u64 * 100 + 60));
                if class == 7 {
                    y[bin] += 0.02;
                }
            }
        }
        let (filter, folds) = (HighPass::new(&y, 1.0, |_| true), Folds::new(300));
        let maker = Maker {
            window,
            filter: &filter,
            folds: &folds,
        };
        filter.apply::<1>(&mut y, &mut Vec::new());
        let series: Vec<_> = (0..40).map(|class| bins.read(class, window)).collect();
        let columns = maker.screen(series.iter().enumerate(), &y);
        assert_eq!(columns.classes[0], 7);
        assert!(columns.classes.len() <= SCREENED_MAX);
        assert_eq!(
            columns.values.len(),
            columns.classes.len() * ATOMS * folds.places()
        );
        assert!((columns.sums[MASS] - 60.0).abs() < 0.01);
    }
}
