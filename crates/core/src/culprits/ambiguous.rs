//! Classes that no observation can tell apart: they run together.
//!
//! ```text
//! a ~ b     correlation of time in progress > 0.9 and correlation of mass > 0.9, 5 requests each
//! ```
//!
//! A page and its long poll, a batch and what polls beside it: one is as good an explanation as the
//! other, whatever the number of samples. They are tested as one and named as one; the delay experiment
//! parts them.
//!
//! Inputs: columns. Failure case: classes that run together by chance in a short window.
//! Source: measured on pairs with the same start and end: precision 0.56 without, 1.0 with.

use super::atoms::{ATOMS, MASS, PROGRESS};
use super::screen::Columns;
use super::series::correlation;

/// How alike two classes must be in both. At 0.8 busy classes that a crowd wants together are alike.
const ALIKE: f64 = 0.9;
/// Requests below which two meet by chance.
const REQUESTS_MIN: f64 = 5.0;

/// The screened classes in groups of those that are alike, each in at most one; `bins` is the
/// length of a column.
pub(super) fn groups(columns: &Columns, bins: usize) -> Vec<Vec<usize>> {
    let column = |class: usize, atom: usize| {
        let from = (class * ATOMS + atom) * bins;
        &columns.values[from..from + bins]
    };
    let requests = columns.requests();
    let alike = |one: usize, other: usize| {
        if requests[one].min(requests[other]) < REQUESTS_MIN {
            return false;
        }
        let atoms = [PROGRESS, MASS].into_iter();
        let mut each = atoms.map(|atom| correlation(column(one, atom), column(other, atom)));
        each.all(|r| r > ALIKE)
    };
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for class in 0..columns.classes.len() {
        let of = groups
            .iter()
            .position(|group| group.iter().any(|other| alike(class, *other)));
        match of {
            Some(group) => groups[group].push(class),
            None => groups.push(vec![class]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;

    #[test]
    fn who_runs_together_is_one_group() {
        let bins = 100;
        let mut prng = Prng::new(1);
        let mut class = |like: Option<&[f32]>| -> Vec<f32> {
            let noise: Vec<f32> = (0..ATOMS * bins)
                .map(|_| prng.unit() as f32 - 0.5)
                .collect();
            match like {
                Some(like) => like.iter().zip(noise).map(|(x, e)| x + 0.3 * e).collect(),
                None => noise,
            }
        };
        let one = class(None);
        let (other, twin) = (class(None), class(Some(&one)));
        let columns = Columns {
            classes: vec![3, 5, 9],
            values: [one, other, twin].concat(),
            sums: vec![9.0; 3 * ATOMS],
        };
        assert_eq!(groups(&columns, bins), [vec![0, 2], vec![1]]);
    }
}
