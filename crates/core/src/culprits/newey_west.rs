//! Least squares of few series, with standard errors that bear noise which lasts.
//!
//! ```text
//! s = (X'X)^-1 X'y
//! u_j(k) = e_k ((X'X)^-1 x_k)_j                      e = y - X s: how a bin moves slope j
//! V_jj = sum over k of u_j(k)^2 + 2 sum over l = 1..L of (1 - l / (L + 1)) sum over k of u_j(k) u_j(k-l)
//! t_j = s_j / sqrt(V_jj)
//! ```
//!
//! Inputs: series in time's order. Failure case: noise that lasts much longer than a second.
//! Source: NeweyWest-1987.

/// Lags, bins: a second.
pub(super) const LAGS: usize = 10;

/// How much of a series is in another one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slope {
    pub(super) value: f64,
    pub(super) t: f64,
}

/// A regression's result.
#[derive(Clone, Debug, Default)]
pub(super) struct Regression {
    /// For each series.
    pub(super) slopes: Vec<Slope>,
    /// What is left over.
    pub(super) residual: Vec<f32>,
}

/// Regresses `y` on all series at once. A series that others make up, or that is zero, has t = 0.
pub(super) fn regress(series: &[Vec<f32>], y: &[f32], lags: usize) -> Regression {
    let many = series.len();
    let places = 0..y.len();
    let values = places.flat_map(|k| series.iter().map(move |x| f64::from(x[k])));
    let values: Vec<_> = values.collect();
    let rows = (0..y.len()).map(|k| &values[k * many..(k + 1) * many]);
    let mut gram = vec![0.0; many * many];
    let mut xy = vec![0.0; many];
    for (row, y) in rows.clone().zip(y) {
        add_outer(&mut gram, row, row);
        let pairs = xy.iter_mut().zip(row);
        pairs.for_each(|(sum, x)| *sum += x * f64::from(*y));
    }
    let inverse = invert(&gram, many);
    let slopes = multiply(&inverse, &xy, many);
    let residual: Vec<f32> = rows
        .clone()
        .zip(y)
        .map(|(row, y)| {
            let fitted: f64 = row.iter().zip(&slopes).map(|(x, s)| x * s).sum();
            (f64::from(*y) - fitted) as f32
        })
        .collect();
    let slopes = (0..many).map(|j| {
        let weights = &inverse[j * many..(j + 1) * many];
        let influence: Vec<f64> = rows
            .clone()
            .zip(&residual)
            .map(|(row, e)| {
                let pull: f64 = row.iter().zip(weights).map(|(x, w)| x * w).sum();
                pull * f64::from(*e)
            })
            .collect();
        let variance = long_run_variance(&influence, lags);
        match variance > f64::MIN_POSITIVE {
            true => Slope {
                value: slopes[j],
                t: slopes[j] / variance.sqrt(),
            },
            false => Slope {
                value: slopes[j],
                t: 0.0,
            },
        }
    });
    let slopes = slopes.collect();
    Regression { slopes, residual }
}

/// Of the sum of a series: what it has in common with itself up to so many lags later.
fn long_run_variance(series: &[f64], lags: usize) -> f64 {
    let common = |lag: usize| -> f64 {
        let later = series.get(lag..).unwrap_or(&[]);
        later
            .iter()
            .zip(series)
            .map(|(now, before)| now * before)
            .sum()
    };
    let lagged = (1..=lags).map(|lag| 2.0 * (1.0 - lag as f64 / (lags + 1) as f64) * common(lag));
    common(0) + lagged.sum::<f64>()
}

fn add_outer(sum: &mut [f64], one: &[f64], other: &[f64]) {
    for (row, x) in sum.chunks_exact_mut(other.len().max(1)).zip(one) {
        let pairs = row.iter_mut().zip(other);
        pairs.for_each(|(sum, y)| *sum += x * y);
    }
}

fn multiply(matrix: &[f64], vector: &[f64], many: usize) -> Vec<f64> {
    let rows = matrix.chunks_exact(many.max(1));
    rows.map(|row| row.iter().zip(vector).map(|(x, y)| x * y).sum())
        .collect()
}

/// The inverse of a symmetric matrix by Gauss and Jordan; rows and columns that depend on those
/// before them are zero in it.
fn invert(matrix: &[f64], many: usize) -> Vec<f64> {
    let mut left = matrix.to_vec();
    let mut right = vec![0.0; many * many];
    (0..many).for_each(|j| right[j * many + j] = 1.0);
    let mut dependent = vec![false; many];
    for j in 0..many {
        let pivot = left[j * many + j];
        if pivot <= 1e-9 * matrix[j * many + j].max(f64::MIN_POSITIVE) {
            dependent[j] = true;
            continue;
        }
        for k in 0..many {
            left[j * many + k] /= pivot;
            right[j * many + k] /= pivot;
        }
        for i in (0..many).filter(|i| *i != j) {
            let factor = left[i * many + j];
            for k in 0..many {
                left[i * many + k] -= factor * left[j * many + k];
                right[i * many + k] -= factor * right[j * many + k];
            }
        }
    }
    for j in 0..many {
        for k in 0..many {
            if dependent[j] || dependent[k] {
                right[j * many + k] = 0.0;
            }
        }
    }
    right
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;

    fn noise(prng: &mut Prng) -> Vec<f32> {
        (0..400).map(|_| prng.unit() as f32 - 0.5).collect()
    }

    #[test]
    fn slopes_and_their_t() {
        let mut prng = Prng::new(3);
        let (one, two, three) = (noise(&mut prng), noise(&mut prng), noise(&mut prng));
        let y: Vec<f32> = (0..400).map(|k| 2.0 * one[k] + 0.5 * three[k]).collect();
        let found = regress(&[one, two], &y, LAGS);
        let Slope { value: slope, t } = found.slopes[0];
        // The error of the slope is sd of what is left over / (sd of the series x 20): 0.025.
        assert!(
            (slope - 2.0).abs() < 0.08 && (60.0..110.0).contains(&t),
            "{slope} {t}"
        );
        assert!(found.slopes[1].t.abs() < 3.0, "{:?}", found.slopes);
    }

    #[test]
    fn noise_that_lasts_makes_errors_greater() {
        let mut prng = Prng::new(4);
        let hold = |values: Vec<f32>| -> Vec<f32> { (0..400).map(|k| values[k / 8]).collect() };
        let x = hold(noise(&mut prng));
        let lasting = hold(noise(&mut prng));
        let brief = noise(&mut prng);
        let with = |noise: &[f32]| -> f64 {
            let y: Vec<f32> = x.iter().zip(noise).map(|(x, e)| x + e).collect();
            regress(std::slice::from_ref(&x), &y, LAGS).slopes[0].t
        };
        assert!(with(&brief) > 1.5 * with(&lasting));
    }

    #[test]
    fn a_series_twice_and_one_of_zeros_do_no_harm() {
        let mut prng = Prng::new(5);
        let one = noise(&mut prng);
        let found = regress(&[one.clone(), one.clone(), vec![0.0; 400]], &one, LAGS);
        assert!((found.slopes[0].value - 1.0).abs() < 1e-6);
        assert_eq!((found.slopes[1].t, found.slopes[2].t), (0.0, 0.0));
        assert!(regress(&[], &one, LAGS).slopes.is_empty());
    }
}
