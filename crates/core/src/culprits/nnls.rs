//! Step 4b: non-negative least squares.
//!
//! ```text
//! min |y - X b|^2, b >= 0        by coordinate descent on G = X'X and c = X'y:
//! b_j = max(0, b_j + (c - G b)_j / G_jj)      until nothing moves
//! ```
//!
//! A request cannot give back work, so coefficients are not negative; that is also all the
//! regularisation it takes. The atoms of a class are nearly collinear, which makes single
//! coefficients arbitrary; what is used of them is their sum over the class.
//!
//! Inputs: columns without what is slow. Failure case: eleven atoms that may only add fit noise too:
//! costs come out too great, which cross-fitting corrects.
//! Source: NNLS-1974; Descent-2005 for descent on the normal equations.

use super::series::{dot, dots};

/// Most rounds over all coefficients. The prediction stands long before the coefficients do.
const ROUNDS_MAX: usize = 60;
/// A round that moves no prediction by more than this part of the data's norm is the last.
const MOVED_MIN: f64 = 1e-4;
/// So much is added to each diagonal element, as a part of it: for columns that are equal.
const RIDGE: f64 = 1e-4;

/// Normal equations.
#[derive(Clone, Debug, Default)]
pub(super) struct Normal {
    gram: Vec<f64>,
    xy: Vec<f64>,
    yy: f64,
}

impl Normal {
    /// Of columns that lie one behind the other, each as long as `y`, in these rows.
    pub(super) fn of(columns: &[f32], y: &[f32], rows: std::ops::Range<usize>) -> Self {
        let slices: Vec<_> = columns
            .chunks_exact(y.len().max(1))
            .map(|it| &it[rows.clone()])
            .collect();
        let many = slices.len();
        let y = &y[rows];
        let mut normal = Self {
            gram: vec![0.0; many * many],
            xy: slices.iter().map(|column| dot(column, y)).collect(),
            yy: dot(y, y),
        };
        (0..many).for_each(|i| normal.multiply(i, &slices, 0..i + 1));
        normal
    }

    /// The same where only these columns have changed.
    pub(super) fn again(
        &self,
        columns: &[f32],
        y: &[f32],
        rows: std::ops::Range<usize>,
        changed: &[usize],
    ) -> Self {
        let slices: Vec<_> = columns
            .chunks_exact(y.len().max(1))
            .map(|it| &it[rows.clone()])
            .collect();
        let mut normal = self.clone();
        for i in changed {
            normal.xy[*i] = dot(slices[*i], &y[rows.clone()]);
            normal.multiply(*i, &slices, 0..slices.len());
        }
        normal
    }

    /// Writes the products of column `i` with these.
    fn multiply(&mut self, i: usize, slices: &[&[f32]], with: std::ops::Range<usize>) {
        let many = slices.len();
        let mut write = |j: usize, product: f64| {
            self.gram[i * many + j] = product;
            self.gram[j * many + i] = product;
        };
        let fours = slices[with.clone()].chunks_exact(4);
        let rest = with.end - fours.remainder().len();
        for (four, j) in fours.zip(with.clone().step_by(4)) {
            let [a, b, c, d] = four else { continue };
            let products = dots(slices[i], [a, b, c, d]);
            (j..)
                .zip(products)
                .for_each(|(j, product)| write(j, product));
        }
        (rest..with.end).for_each(|j| write(j, dot(slices[i], slices[j])));
    }

    /// Of the rows of all.
    pub(super) fn sum<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        let mut sum = Self::default();
        for one in all {
            sum.gram.resize(one.gram.len(), 0.0);
            sum.xy.resize(one.xy.len(), 0.0);
            let add = |sum: &mut [f64], one: &[f64]| {
                sum.iter_mut().zip(one).for_each(|(sum, x)| *sum += x);
            };
            add(&mut sum.gram, &one.gram);
            add(&mut sum.xy, &one.xy);
            sum.yy += one.yy;
        }
        sum
    }

    /// The coefficients, found from these on.
    pub(super) fn solve(&self, start: &[f64]) -> Vec<f64> {
        let many = self.xy.len();
        let mut found = start.to_vec();
        found.resize(many, 0.0);
        let mut slopes: Vec<f64> = (0..many).map(|j| self.slope(j, &found)).collect();
        for round in 0..ROUNDS_MAX {
            let mut moved = 0.0f64;
            for j in 0..many {
                // Most stay at zero: they are looked at in every fourth round.
                if found[j] == 0.0 && (slopes[j] <= 0.0 || round % 4 != 0) {
                    continue;
                }
                let row = &self.gram[j * many..(j + 1) * many];
                let own = row[j] * (1.0 + RIDGE);
                if own <= 1e-12 {
                    continue;
                }
                let ridge = RIDGE * row[j] * found[j];
                let next = (found[j] + (slopes[j] - ridge) / own).max(0.0);
                let step = next - found[j];
                if step == 0.0 {
                    continue;
                }
                found[j] = next;
                moved = moved.max(step * step * row[j]);
                let pairs = slopes.iter_mut().zip(row);
                pairs.for_each(|(slope, product)| *slope -= step * product);
            }
            if moved <= MOVED_MIN * MOVED_MIN * self.yy && round % 4 == 0 {
                break;
            }
        }
        found
    }

    fn slope(&self, j: usize, found: &[f64]) -> f64 {
        let row = &self.gram[j * found.len()..(j + 1) * found.len()];
        let fitted: f64 = row.iter().zip(found).map(|(product, b)| product * b).sum();
        self.xy[j] - fitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_positive_is_found_and_what_is_not_is_zero() {
        let one = [1.0f32, -1.0, 2.0, -2.0, 0.5, -0.5];
        let two = [1.0f32, 1.0, -1.0, -1.0, 0.0, 0.0];
        let three = [0.0f32, 0.0, 1.0, 1.0, -1.0, -1.0];
        let columns = [one, two, three].concat();
        let y: Vec<f32> = (0..6)
            .map(|k| 3.0 * one[k] + 0.5 * two[k] - three[k])
            .collect();
        let all = Normal::of(&columns, &y, 0..6);
        let found = all.solve(&[]);
        assert!((found[0] - 3.0).abs() < 0.01, "{found:?}");
        assert!(found[1] > 0.5 && found[2] == 0.0, "{found:?}");
        let parts = [0..2, 2..6].map(|rows| Normal::of(&columns, &y, rows));
        assert_eq!(Normal::sum(parts.iter()).gram, all.gram);
    }

    #[test]
    fn columns_of_nothing_get_nothing() {
        let found = Normal::of(&[0.0; 8], &[1.0, 2.0, 3.0, 4.0], 0..4).solve(&[]);
        assert_eq!(found, [0.0, 0.0]);
        assert!(Normal::of(&[], &[1.0], 0..1).solve(&[]).is_empty());
    }
}
