//! Step 6: does what three quarters of the window taught tell the fourth?
//!
//! ```text
//! b_A, b_B, ..   fits of all but one part of the blocks each
//! p_c            what b_A says of c in the part that was left out of it
//! y = sum over candidates of s_c p_c + s_rest p_rest + e       with Newey and West's errors
//! cost x clip(s, 0, 1)
//! ```
//!
//! Eleven atoms that may only add always find something: in what taught them. In what did not,
//! noise has slope zero, and a cost that was found too great a slope below one.
//!
//! Inputs: the parts' normal equations, the fit of all together to start from.
//! Failure case: a heavy class that is there in blocks of one part only.
//! Source: cross-fitting as in CrossFit-2018; measured: the slope as a factor takes what
//! was accused of busy sites without heavy classes from dozens an hour to nothing. Four parts rather than
//! two: culprits are named 2.5 s earlier.

use super::atoms::ATOMS;
use super::folds::Folds;
use super::newey_west::{LAGS, Regression, regress};
use super::nnls::Normal;
use super::screen::Columns;
use super::series::dot;

/// What other parts taught of each candidate, in time's order, and how well it holds.
#[derive(Debug)]
pub(super) struct CrossFit {
    /// For each candidate.
    pub(super) predicted: Vec<Vec<f32>>,
    /// For each candidate, and for all other classes together as the last.
    pub(super) regression: Regression,
}

/// `candidates` are places in the columns' classes; `y` is in time's order.
pub(super) fn cross_fit(
    columns: &Columns,
    parts: &[Normal],
    start: &[f64],
    candidates: &[Vec<usize>],
    folds: &Folds,
    y: &[f32],
) -> CrossFit {
    let taught = teach(parts, start);
    let others = (0..columns.classes.len())
        .filter(|class| !candidates.iter().any(|classes| classes.contains(class)))
        .collect();
    let mut series: Vec<_> = candidates
        .iter()
        .chain([&others])
        .map(|classes| predict(columns, classes, &taught, folds))
        .collect();
    let regression = regress(&series, y, LAGS);
    series.pop();
    CrossFit {
        predicted: series,
        regression,
    }
}

/// Part of the use's variance that parts of the window do not tell of the one left out.
pub(super) fn unexplained(
    columns: &Columns,
    parts: &[Normal],
    start: &[f64],
    folds: &Folds,
    y: &[f32],
) -> f64 {
    let taught = teach(parts, start);
    let all: Vec<_> = (0..columns.classes.len()).collect();
    let predicted = predict(columns, &all, &taught, folds);
    let left: Vec<f32> = y.iter().zip(&predicted).map(|(y, p)| y - p).collect();
    dot(&left, &left) / dot(y, y).max(f64::MIN_POSITIVE)
}

/// For each part the coefficients that the others teach.
fn teach(parts: &[Normal], start: &[f64]) -> Vec<Vec<f64>> {
    (0..parts.len())
        .map(|out| {
            let others = parts.iter().enumerate().filter(|(part, _)| *part != out);
            Normal::sum(others.map(|(_, normal)| normal)).solve(start)
        })
        .collect()
}

/// What coefficients say of some classes; each part has its own.
fn predict(columns: &Columns, classes: &[usize], taught: &[Vec<f64>], folds: &Folds) -> Vec<f32> {
    let places = folds.places();
    let mut permuted = vec![0.0f32; places];
    for class in classes {
        for atom in class * ATOMS..(class + 1) * ATOMS {
            let column = &columns.values[atom * places..(atom + 1) * places];
            for (part, taught) in folds.parts().iter().zip(taught) {
                let coefficient = taught[atom] as f32;
                if coefficient > 0.0 {
                    let pairs = permuted[part.clone()].iter_mut().zip(&column[part.clone()]);
                    pairs.for_each(|(sum, x)| *sum += coefficient * x);
                }
            }
        }
    }
    folds.in_time(&permuted)
}

#[cfg(test)]
mod tests {
    use super::super::newey_west::Slope;
    use super::*;
    use crate::prng::Prng;

    #[test]
    fn noise_does_not_carry_over_and_work_does() {
        let (bins, folds) = (200, Folds::new(200));
        let places = folds.places();
        let mut prng = Prng::new(9);
        let mut values = Vec::new();
        for _ in 0..2 * ATOMS {
            let column: Vec<f32> = (0..bins).map(|_| prng.unit() as f32 - 0.5).collect();
            values.extend(folds.permuted(|bin| column[bin]));
        }
        let noise: Vec<f32> = (0..bins).map(|_| prng.unit() as f32 - 0.5).collect();
        let mut permuted: Vec<_> = folds.permuted(|bin| noise[bin]).collect();
        // The first class works by its second atom.
        let atom = &values[places..2 * places];
        let pairs = permuted.iter_mut().zip(atom);
        pairs.for_each(|(y, x)| *y += 2.0 * x);
        let columns = Columns {
            classes: vec![4, 9],
            values,
            sums: vec![1.0; 2 * ATOMS],
        };
        let rows = folds.parts().iter().cloned();
        let parts: Vec<_> = rows
            .map(|rows| Normal::of(&columns.values, &permuted, rows))
            .collect();
        let start = Normal::sum(parts.iter()).solve(&[]);
        let y = folds.in_time(&permuted);
        let found = cross_fit(&columns, &parts, &start, &[vec![0], vec![1]], &folds, &y);
        let Slope { value: slope, t } = found.regression.slopes[0];
        assert!(slope > 0.8 && t > 10.0, "{slope} {t}");
        assert!(
            found.regression.slopes[1].t < 3.0,
            "{:?}",
            found.regression.slopes
        );
        assert_eq!(found.predicted.len(), 2);
    }
}
