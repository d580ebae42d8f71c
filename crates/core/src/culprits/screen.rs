//! Step 4a: which classes are worth fitting, and their columns.
//!
//! ```text
//! rank(c) = max over atoms of correlation(atom, use) x sqrt(bins)       > 2.5, the greatest 12
//! ```
//!
//! Inputs: bins of all classes, the use of the resource, both without what is slow.
//! Failure case: a class whose work hides wholly behind another's is left out, and with it nothing.
//! Source: measured; 20 instead of 12 classes find the same, and take twice as long.

use super::atoms::{ATOMS, MASS, Row, write_atoms};
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
    /// The classes worth fitting, best first, and their columns. `y` is in time's order.
    pub(super) fn screen(&self, classes: &[(usize, ClassSeries)], y: &[f32]) -> Columns {
        let scale = (self.filter.kept() as f64).sqrt();
        let used = dot(y, y);
        let (mut rows, mut flat) = (Vec::new(), Vec::new());
        let mut ranked = Vec::new();
        for (place, (_, series)) in classes.iter().enumerate() {
            write_atoms(series, self.window, &mut rows);
            let sums = self.filter.apply_to_rows(&rows, &mut flat);
            let best = best_correlation(&flat, y, used);
            if best * scale > RANK_MIN && sums[MASS] > 0.0 {
                ranked.push((best, place));
            }
        }
        // Of equals the class with the lower number: the sort is stable.
        ranked.sort_by(|one, other| other.0.total_cmp(&one.0));
        ranked.truncate(SCREENED_MAX);
        let mut columns = Columns {
            classes: Vec::with_capacity(ranked.len()),
            values: Vec::with_capacity(ranked.len() * ATOMS * self.folds.places()),
            sums: Vec::with_capacity(ranked.len() * ATOMS),
        };
        for (_, place) in ranked {
            let (class, series) = &classes[place];
            write_atoms(series, self.window, &mut rows);
            let sums = self.filter.apply_to_rows(&rows, &mut flat);
            let flat = &flat;
            columns.classes.push(*class);
            columns.sums.extend(&sums[..ATOMS]);
            let atoms = 0..ATOMS;
            let column = |atom| self.folds.permuted(move |bin: usize| flat[bin][atom]);
            columns.values.extend(atoms.flat_map(column));
        }
        columns
    }
}

/// The greatest correlation of an atom with the use, whose sum of squares is `used`.
fn best_correlation(rows: &[Row], y: &[f32], used: f64) -> f64 {
    let (mut products, mut squares) = (Row::default(), Row::default());
    for (row, y) in rows.iter().zip(y) {
        for (place, x) in row.iter().enumerate() {
            products[place] += x * y;
            squares[place] += x * x;
        }
    }
    let each = products.iter().zip(squares);
    let each = each.map(|(product, own)| normalized(f64::from(*product), f64::from(own), used));
    each.fold(0.0, f64::max)
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
        let (y, _) = filter.apply(&y);
        let series = (0..40).map(|class| (class, bins.read(class, window)));
        let columns = maker.screen(&series.collect::<Vec<_>>(), &y);
        assert_eq!(columns.classes[0], 7);
        assert!(columns.classes.len() <= SCREENED_MAX);
        assert_eq!(
            columns.values.len(),
            columns.classes.len() * ATOMS * folds.places()
        );
        assert!((columns.sums[MASS] - 60.0).abs() < 0.01);
    }
}
