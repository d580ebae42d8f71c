//! Steps 2a and 2b: which bins count, and what is slower than ten seconds taken away.
//!
//! ```text
//! bin counts    its use is known, and <= 95 % of the capacity or no more was asked for than there is
//! x(k)          x(k) - mean of x over bins that count within 5 s of k;  0 where k does not count
//! ```
//!
//! A full resource says nothing of what fills it, unless no class slowed another: one request that takes
//! all of a core for a second fills it, and says so. Trend, flash crowds and caches that warm up make
//! everything correlate with everything; they are slower than the requests that are looked for.
//!
//! Inputs: a series. Failure case: a heavy class that comes once and stays for ten seconds is half gone.
//! Source: measured; without it Pearson's r accuses 15 to 20 innocent classes in a flash crowd.

use super::bins::BIN_SECONDS;

/// Bins on each side that a mean is taken of.
const HALF_WIDTH: usize = 50;
/// Used part of the resource, 0 to 1, above which a bin says nothing.
const BIN_FULL_SHARE: f64 = 0.95;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct HighPass {
    counts: Vec<bool>,
    /// For each bin: from where to where its mean goes, and one over how many count there.
    means: Vec<(usize, usize, f32)>,
    kept: usize,
    /// Bins in which the resource was full, and those whose use is known.
    full: usize,
    known: usize,
}

impl HighPass {
    /// For use `y` in busy seconds per bin, of which `cores` can be had; `crowded` says of a full bin
    /// whether more was asked for than there was.
    pub(super) fn new(y: &[f32], cores: f64, crowded: impl Fn(usize) -> bool) -> Self {
        let limit = (BIN_FULL_SHARE * cores * BIN_SECONDS) as f32;
        let bins = y.iter().enumerate();
        let counts: Vec<_> = bins
            .map(|(bin, used)| *used <= limit || (used.is_finite() && !crowded(bin)))
            .collect();
        let full = y.iter().filter(|used| **used > limit).count();
        let mut before = Vec::with_capacity(y.len() + 1);
        before.push(0u32);
        let mut sum = 0;
        for counts in &counts {
            sum += u32::from(*counts);
            before.push(sum);
        }
        let means = (0..y.len())
            .map(|bin| {
                let from = bin.saturating_sub(HALF_WIDTH);
                let to = (bin + HALF_WIDTH + 1).min(y.len());
                let many = (before[to] - before[from]).max(1);
                (from, to, (many as f32).recip())
            })
            .collect();
        Self {
            kept: sum as usize,
            counts,
            means,
            full,
            known: y.iter().filter(|used| used.is_finite()).count(),
        }
    }

    /// Whether each bin counts.
    pub(super) fn counts(&self) -> &[bool] {
        &self.counts
    }

    /// Bins that count.
    pub(super) fn kept(&self) -> usize {
        self.kept
    }

    /// Part of the known bins in which the resource was full.
    pub(super) fn full(&self) -> f64 {
        self.full as f64 / (self.known as f64).max(1.0)
    }

    /// A series without what is slow, and what it sums up to where it counts.
    pub(super) fn apply(&self, series: &[f32]) -> (Vec<f32>, f64) {
        let (rows, _) = series.as_chunks::<1>();
        let mut flat = Vec::with_capacity(rows.len());
        let [sum] = self.apply_to_rows(rows, &mut flat);
        (flat.into_flattened(), sum)
    }

    /// The same of many series at once, of which a row has a bin each: one vector instruction then
    /// works on several of them.
    pub(super) fn apply_to_rows<const N: usize>(
        &self,
        rows: &[[f32; N]],
        flat: &mut Vec<[f32; N]>,
    ) -> [f64; N] {
        let (mut first, mut end, mut near) = (0, 0, [0.0f32; N]);
        let mut sums = [0.0; N];
        flat.clear();
        for ((row, counts), (from, to, share)) in rows.iter().zip(&self.counts).zip(&self.means) {
            for bin in (end..*to).filter(|bin| self.counts[*bin]) {
                let pairs = near.iter_mut().zip(&rows[bin]);
                pairs.for_each(|(near, x)| *near += x);
            }
            for bin in (first..*from).filter(|bin| self.counts[*bin]) {
                let pairs = near.iter_mut().zip(&rows[bin]);
                pairs.for_each(|(near, x)| *near -= x);
            }
            (first, end) = (*from, *to);
            if *counts {
                let pairs = sums.iter_mut().zip(row);
                pairs.for_each(|(sum, x)| *sum += f64::from(*x));
                flat.push(std::array::from_fn(|place| {
                    row[place] - near[place] * share
                }));
            } else {
                flat.push([0.0; N]);
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ramp_goes_and_a_pulse_stays() {
        let filter = HighPass::new(&[0.01; 300], 1.0, |_| true);
        let mut series: Vec<f32> = (0..300u16).map(|k| f32::from(k) * 0.01).collect();
        series[150] += 1.0;
        let (series, _) = filter.apply(&series);
        assert!(series[100].abs() < 0.02, "{}", series[100]);
        assert!((series[150] - 0.99).abs() < 0.02, "{}", series[150]);
    }

    #[test]
    fn full_and_unknown_bins_do_not_count() {
        let mut used = vec![0.05f32; 100];
        used[10] = 0.1;
        used[20] = f32::NAN;
        let filter = HighPass::new(&used, 1.0, |_| true);
        assert_eq!(filter.kept(), 98);
        assert!((filter.full() - 1.0 / 99.0).abs() < 1e-9);
        let mut series = vec![1.0f32; 100];
        series[10] = 1e6;
        series[20] = f32::NAN;
        let (series, sum) = filter.apply(&series);
        assert_eq!(sum, 98.0);
        assert!(series.iter().all(|x| x.abs() < 1e-5), "{series:?}");
    }
}
