//! Quantile, median and mean, one way for all crates.
//!
//! ```text
//! quantile p of n values in order   the one at place round(p (n - 1)), from 0: always one of the values
//! median                            the value in the middle, or half way between the two that are
//! ```
//!
//! Failure case: a tail of few values. With fewer than 1 / (1 - p) the quantile is the greatest.
//!
//! Source: the nearest order statistic to Hyndman and Fan's seventh definition.

/// The place of a quantile, 0 to 1, among so many values in order; none among none.
pub fn place_of(quantile: f64, many: usize) -> Option<usize> {
    let last = many.checked_sub(1)?;
    Some((last as f64 * quantile.clamp(0.0, 1.0)).round() as usize)
}

/// A quantile, 0 to 1, of values in ascending order; none of none.
pub fn quantile_of_sorted<T: Copy>(sorted: &[T], quantile: f64) -> Option<T> {
    sorted.get(place_of(quantile, sorted.len())?).copied()
}

/// A quantile, 0 to 1; none of none. Reorders the values.
pub fn quantile(values: &mut [f64], quantile: f64) -> Option<f64> {
    let place = place_of(quantile, values.len())?;
    let (_, found, _) = values.select_nth_unstable_by(place, f64::total_cmp);
    Some(*found)
}

/// A quantile, 0 to 1, of values with an order of their own; none of none. Reorders the values.
pub fn quantile_of_ordered<T: Ord + Copy>(values: &mut [T], quantile: f64) -> Option<T> {
    let place = place_of(quantile, values.len())?;
    let (_, found, _) = values.select_nth_unstable(place);
    Some(*found)
}

/// The median; none of none. Reorders the values.
pub fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    match values.len() % 2 {
        0 => Some(f64::midpoint(values[values.len() / 2 - 1], upper)),
        _ => Some(upper),
    }
}

/// The mean; none of none.
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let add = |(many, sum), value| (many + 1.0, sum + value);
    let (many, sum) = values.into_iter().fold((0.0, 0.0), add);
    (many > 0.0).then(|| sum / many)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_are_there() {
        let hundred: Vec<u32> = (0..=100).collect();
        for (part, is) in [
            (0.0, 0),
            (0.25, 25),
            (0.5, 50),
            (0.954, 95),
            (0.99, 99),
            (1.0, 100),
        ] {
            assert_eq!(quantile_of_sorted(&hundred, part), Some(is), "{part}");
            let mut down: Vec<f64> = hundred.iter().rev().map(|it| f64::from(*it)).collect();
            assert_eq!(quantile(&mut down, part), Some(f64::from(is)), "{part}");
        }
        assert_eq!(quantile(&mut [3.0, 1.0, 2.0], 0.5), Some(2.0));
        assert_eq!(
            quantile(&mut [1.0, 2.0], 0.99),
            Some(2.0),
            "few have no tail"
        );
        assert_eq!(quantile(&mut [4.0, 1.0, 3.0, 2.0], 0.5), Some(3.0));
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
    }

    #[test]
    fn quantiles_of_nothing_of_one_and_out_of_range() {
        assert_eq!((quantile(&mut [], 0.5), median(&mut [])), (None, None));
        assert_eq!(quantile_of_sorted::<u8>(&[], 1.0), None);
        assert_eq!(quantile_of_ordered::<u8>(&mut [], 1.0), None);
        for part in [-1.0, 0.0, 0.7, 1.0, 2.0, f64::NAN] {
            assert_eq!(quantile(&mut [7.0], part), Some(7.0), "{part}");
        }
    }

    #[test]
    fn a_quantile_is_the_same_in_any_order() {
        for part in [0.0, 0.25, 0.5, 0.9, 1.0] {
            let ordered = quantile_of_ordered(&mut [4, 1, 3, 2], part);
            assert_eq!(ordered, quantile_of_sorted(&[1, 2, 3, 4], part), "{part}");
        }
    }

    #[test]
    fn a_mean_of_nothing_is_none() {
        assert_eq!(mean([]), None);
        assert_eq!(mean([1.0, 2.0, 6.0]), Some(3.0));
    }
}
