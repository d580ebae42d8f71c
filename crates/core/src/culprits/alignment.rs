//! How far the clocks of two recordings are apart, from what was recorded.
//!
//! ```text
//! x', y'  = x, y less their centred mean over 61 bins            trends and days go
//! r(s)    = correlation of x'(i) and y'(i + s)                   s: offset + -shift_max..shift_max
//! best    = argmax r(s)
//! certain   if (r(best) - median r) / (1.4826 MAD r) >= 6, r(best) >= 1.2 max r(s beyond +-5 of best)
//!           and r(best) >= 0.1
//! ```
//!
//! Inputs: the requests in progress and a resource's use, in bins of one length, a second or more;
//! for clocks within a second of each other see the clock step of the pipeline. Offsets are what a
//! missing time zone may come to. Failure case: a load that repeats itself within the range, and
//! one that hardly ever changes, fit everywhere, and nothing is certain. The shift also holds what
//! the resource truly lags behind.
//! Source: cross-correlation; the bounds are the pipeline's for its shift null, a bit tighter.

use crate::stats;

/// Bins of the centred mean that is taken away.
const TREND_BINS: usize = 61;
/// Bins around the best shift that belong to its peak.
const PEAK_BINS: i64 = 5;
/// How far the best must stand out of all shifts.
const Z_MIN: f64 = 6.0;
/// How far it must stand out of the second best.
const RATIO_MIN: f64 = 1.2;
/// Less says nothing however sure it is.
const R_MIN: f64 = 0.1;
/// Fewest bins that two series must share.
const SHARED_MIN: usize = 60;
/// Most bins that are compared; an hour of seconds is plenty, and work is bounded.
const COMPARED_MAX: usize = 7200;

/// A series in bins of one length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Binned {
    /// The number of the first bin, counted from the clock's zero.
    pub first: i64,
    /// A value for each bin; not a number where it is unknown.
    pub values: Vec<f64>,
}

/// How well two series fit, and where.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alignment {
    /// The second series is so many bins late: its clock is ahead by them.
    pub shift: i64,
    /// Correlation there.
    pub r: f64,
    /// Correlation without any shift.
    pub r_unshifted: f64,
    /// Whether the shift stands out; else it means nothing.
    pub certain: bool,
}

/// Looks for the shift at which `used` goes with `load`, around each of the offsets. None if
/// they share too little at every shift.
pub fn align(load: &Binned, used: &Binned, offsets: &[i64], shift_max: u32) -> Option<Alignment> {
    let load = without_trend(load);
    let used = without_trend(used);
    let range = i64::from(shift_max);
    let mut best: Option<(Alignment, f64)> = None;
    for offset in offsets {
        let shifts = offset - range..=offset + range;
        let found: Vec<(i64, f64)> = shifts
            .filter_map(|shift| Some((shift, correlation(&load, &used, shift)?)))
            .collect();
        let Some((alignment, z)) = judge(&found) else {
            continue;
        };
        let better = |(other, other_z): &(Alignment, f64)| {
            (alignment.certain, z) > (other.certain, *other_z)
        };
        if best.as_ref().is_none_or(better) {
            best = Some((alignment, z));
        }
    }
    let (alignment, _) = best?;
    Some(Alignment {
        r_unshifted: correlation(&load, &used, 0).unwrap_or(0.0),
        ..alignment
    })
}

/// The best of the shifts, and by how many deviations.
fn judge(found: &[(i64, f64)]) -> Option<(Alignment, f64)> {
    let best = found
        .iter()
        .max_by(|one, other| one.1.total_cmp(&other.1))?;
    let (shift, r) = *best;
    let others = found
        .iter()
        .filter(|(at, _)| (at - shift).abs() > PEAK_BINS);
    let mut others: Vec<f64> = others.map(|(_, r)| *r).collect();
    let middle = stats::quantile(&mut others, 0.5)?;
    let second = others.iter().copied().fold(0.0, f64::max);
    let mut deviations: Vec<f64> = others.iter().map(|r| (r - middle).abs()).collect();
    let deviation = 1.4826 * stats::quantile(&mut deviations, 0.5)?;
    let z = (r - middle) / deviation.max(1e-9);
    let alignment = Alignment {
        shift,
        r,
        r_unshifted: 0.0,
        certain: z >= Z_MIN && r >= RATIO_MIN * second && r >= R_MIN,
    };
    Some((alignment, z))
}

/// Pearson's r of the bins that both have at this shift.
fn correlation(load: &Binned, used: &Binned, shift: i64) -> Option<f64> {
    let end = |bins: &Binned| bins.first + bins.values.len() as i64;
    let from = load.first.max(used.first - shift);
    let to = end(load).min(end(used) - shift);
    let part = |bins: &Binned, from: i64| {
        let from = usize::try_from(from - bins.first).unwrap_or(usize::MAX);
        from.min(bins.values.len())
    };
    let length = usize::try_from(to - from).ok()?.min(COMPARED_MAX);
    let load = &load.values[part(load, from)..];
    let used = &used.values[part(used, from + shift)..];
    let (mut n, mut x, mut y, mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
    for (a, b) in load.iter().zip(used).take(length) {
        if a.is_finite() && b.is_finite() {
            n += 1.0;
            x += a;
            y += b;
            xx += a * a;
            yy += b * b;
            xy += a * b;
        }
    }
    if n < SHARED_MIN as f64 {
        return None;
    }
    let scale = ((xx - x * x / n) * (yy - y * y / n)).sqrt();
    // A constant correlates with nothing.
    Some(if scale > 1e-9 {
        (xy - x * y / n) / scale
    } else {
        0.0
    })
}

fn without_trend(bins: &Binned) -> Binned {
    let half = TREND_BINS / 2;
    let values = &bins.values;
    // Sums of what is known up to each bin.
    let mut sums = vec![(0.0, 0.0)];
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values {
        if value.is_finite() {
            sum += value;
            count += 1.0;
        }
        sums.push((sum, count));
    }
    let level = |index: usize| {
        let (low, high) = (
            index.saturating_sub(half),
            (index + half + 1).min(values.len()),
        );
        let (sum, count) = (sums[high].0 - sums[low].0, sums[high].1 - sums[low].1);
        if count > 0.0 { sum / count } else { 0.0 }
    };
    let values = values.iter().enumerate();
    Binned {
        first: bins.first,
        values: values.map(|(index, value)| value - level(index)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;

    /// A load with noise and a slow swing, and the use that follows it by `late` bins.
    fn recorded(seed: u64, bins: usize, late: i64) -> (Binned, Binned) {
        let mut prng = Prng::new(seed);
        let swing = |index: usize| 20.0 * (index as f64 / 500.0).sin();
        let load: Vec<f64> = (0..bins)
            .map(|at| 30.0 + swing(at) + 6.0 * prng.unit())
            .collect();
        let used = load
            .iter()
            .map(|load| 0.4 + 0.01 * load + 0.02 * prng.unit());
        let (load, used) = (load.clone(), used.collect());
        let load = Binned {
            first: 1000,
            values: load,
        };
        (
            load,
            Binned {
                first: 1000 + late,
                values: used,
            },
        )
    }

    #[test]
    fn a_clock_that_is_off_is_found() {
        for (seed, late) in [(1, 0), (2, 1), (3, -7), (4, 123), (5, -300)] {
            let (load, used) = recorded(seed, 1200, late);
            let found = align(&load, &used, &[0], 300).unwrap();
            assert!(found.certain, "{late}: {found:?}");
            assert_eq!(found.shift, late);
            assert_eq!(late == 0, found.r == found.r_unshifted);
        }
    }

    #[test]
    fn a_missing_zone_is_found_among_the_offsets() {
        let (load, used) = recorded(6, 900, 7200 - 12);
        assert_eq!(align(&load, &used, &[0], 300), None);
        let offsets = [-3600, 0, 3600, 7200, 10_800];
        let found = align(&load, &used, &offsets, 300).unwrap();
        assert!(found.certain);
        assert_eq!(found.shift, 7200 - 12);
        assert_eq!(found.r_unshifted, 0.0, "they share nothing");
    }

    #[test]
    fn nothing_is_certain_of_what_does_not_belong_together() {
        for seed in 10..30 {
            let (load, _) = recorded(seed, 1000, 0);
            let (_, used) = recorded(seed + 100, 1000, 0);
            let found = align(&load, &used, &[0], 300).unwrap();
            assert!(!found.certain, "seed {seed}: {found:?}");
        }
    }

    #[test]
    fn what_repeats_itself_and_what_never_changes_is_not_certain() {
        let wave = |first| Binned {
            first,
            values: (0..1000)
                .map(|at| f64::from(u8::from(at % 60 < 3)))
                .collect(),
        };
        assert!(!align(&wave(0), &wave(17), &[0], 300).unwrap().certain);
        let flat = Binned {
            first: 0,
            values: vec![1.0; 1000],
        };
        assert!(!align(&wave(0), &flat, &[0], 300).unwrap().certain);
    }

    #[test]
    fn holes_and_short_series_are_borne() {
        let (load, mut used) = recorded(7, 1000, 20);
        used.values
            .iter_mut()
            .step_by(3)
            .for_each(|value| *value = f64::NAN);
        let found = align(&load, &used, &[0], 300).unwrap();
        assert!(found.certain);
        assert_eq!(found.shift, 20);
        let (load, used) = recorded(8, 59, 0);
        assert_eq!(align(&load, &used, &[0], 300), None);
        assert_eq!(
            align(&Binned::default(), &Binned::default(), &[0], 300),
            None
        );
        assert_eq!(align(&load, &used, &[], 300), None);
    }
}
