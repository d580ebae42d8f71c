//! Step 6b in a study: what arrivals say of each candidate. See [`super::super::arrivals`].

use super::super::arrivals::{LONGER, by_arrivals, reaching_into};
use super::super::bins::ClassSeries;
use super::super::newey_west::{Slope, regress};
use super::super::recent::Life;
use super::super::screen::Columns;
use super::{Fit, Student, lives_of};

/// How many errors above what arrivals tell a class's use may lie.
const ARRIVALS_ERRORS: f64 = 2.0;
/// Error of a fit's cost that is not seen in it, as a part of the cost.
const FIT_ERROR: f64 = 1.0;
/// Part of the window that may be full before arrivals do not bound costs.
const CROWDED_MAX: f64 = 0.25;
/// From which t on work behind the reply counts.
const BEHIND_T: f64 = 2.0;
/// Lags for the errors of arrivals' slopes, bins: what work may take behind a reply, and more.
const ARRIVALS_LAGS: usize = 25;

/// What part of what the fit says of a class stands by its arrivals.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByArrivals {
    pub(super) at_most: f64,
    pub(super) likely: f64,
}

/// The most that a slope may be, of it and its t.
fn most(slope: Slope) -> f64 {
    let Slope { value, t } = slope;
    match t == 0.0 {
        true => 1.0,
        false => value + ARRIVALS_ERRORS * (value / t).abs(),
    }
}

/// The mean of the fit's word (a slope of one) and this slope, each weighed by its error.
fn likely(slope: Slope) -> f64 {
    let Slope { value, t } = slope;
    if t == 0.0 {
        return 1.0;
    }
    let weight = (FIT_ERROR * t / value).powi(2);
    (1.0 + weight * value) / (1.0 + weight)
}

impl Student<'_> {
    /// How much of what the fit says of each candidate stands by its arrivals.
    pub(super) fn by_arrivals(
        &self,
        columns: &Columns,
        fit: &Fit,
        requests: &[f64],
        candidates: &[Vec<usize>],
    ) -> Vec<ByArrivals> {
        if candidates.is_empty() {
            return Vec::new();
        }
        // Where much waits for the resource, work comes later than a life on the average says.
        let crowded = self.study.full > CROWDED_MAX;
        let told = LONGER.map(|longer| {
            let series = self.told_by_arrivals(columns, fit, requests, candidates, longer);
            let together = regress(&series, &self.y, ARRIVALS_LAGS).slopes;
            let alone = series.iter().map(|series| {
                let found = regress(std::slice::from_ref(series), &self.y, ARRIVALS_LAGS);
                found.slopes.first().copied().unwrap_or_default()
            });
            together.into_iter().zip(alone).collect::<Vec<_>>()
        });
        let [shorter, longer] = told;
        let pairs = shorter.into_iter().zip(longer);
        let better = pairs.map(|(one, other)| {
            if other.1.t > one.1.t.max(BEHIND_T) {
                other
            } else {
                one
            }
        });
        let bounds = better.map(|(together, alone)| ByArrivals {
            at_most: match crowded {
                true => 1.0,
                false => most(together).max(most(alone)),
            },
            likely: likely(together).max(likely(alone)),
        });
        bounds.collect()
    }

    /// What each candidate, and all others together, would use by their arrivals.
    fn told_by_arrivals(
        &self,
        columns: &Columns,
        fit: &Fit,
        requests: &[f64],
        candidates: &[Vec<usize>],
        longer: i64,
    ) -> Vec<Vec<f32>> {
        let mut series = vec![vec![0.0f32; self.window.bins]; candidates.len() + 1];
        for (place, class) in columns.classes.iter().enumerate() {
            let cost = fit.used(columns, place) / requests[place].max(1e-9);
            if cost <= 0.0 {
                continue;
            }
            let (finished, unfinished) = lives_of(self.known, self.window, *class, self.now);
            let arrivals = self.arrivals(*class, &unfinished);
            let expected = by_arrivals(&arrivals, self.window, &finished, longer, cost);
            let group = candidates.iter().position(|group| group.contains(&place));
            let sum = &mut series[group.unwrap_or(candidates.len())];
            sum.iter_mut().zip(&expected).for_each(|(sum, x)| *sum += x);
        }
        let flat = series.iter().map(|series| self.filter.apply(series).0);
        flat.collect()
    }

    /// A class's series in the window and what reaches into it.
    fn arrivals(&self, class: usize, unfinished: &[Life]) -> ClassSeries {
        let window = reaching_into(self.window);
        let mut series = self.known.bins.read(class, window);
        for (sent, ended) in unfinished {
            series.add_unfinished(window, *sent, self.now, ended - sent);
        }
        series
    }
}
