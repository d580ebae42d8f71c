//! Step 8: what fills a resource that is full all the time.
//!
//! ```text
//! W(t)      = 30 % quantile of the lives that ended around t and were longer than max(20 ms, p99 / 10)
//! left      = a request's life after the first W
//! use_c(t)  = capacity x left in progress_c(t) / sum of left in progress(t)       in full bins
//! cost_c    = use_c / mass of its requests, those that W takes whole among them
//! ```
//!
//! The use is constant then and tells nothing; lives do, since under processor sharing they go with
//! work. W is the wait for a slot of a pool, which all share; none where it is asked what there would be without one.
//!
//! Inputs: lives of all classes. Failure case: neither equal sharing nor a pool in order of arrival;
//! a class that is slow for another reason looks guilty, which is why the verdict says so.
//! Source: processor sharing; measured: recall six points lower without it.

use super::bins::{BIN_NS, BIN_SECONDS, Window};
use super::recent::Life;
use crate::stats::quantile;

/// Shortest life that may have waited, nanoseconds, and as a part of the 99th percentile.
const WAITED_MIN_NS: f64 = 20e6;
const WAITED_PART: f64 = 0.1;
const QUANTILE: f64 = 0.3;
/// Bins on each side that count as around: a second.
const AROUND: usize = 10;

/// What a class uses of a full resource.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Occupied {
    /// Part of the capacity.
    pub(super) share: f64,
    /// Seconds per request.
    pub(super) cost: f64,
    /// Whether it is known not to be what fills the resource.
    pub(super) cleared: bool,
}

/// What all requests waited for before they used the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommonWait {
    /// A slot of a pool.
    Pool,
    /// Nothing.
    Nothing,
}

impl CommonWait {
    /// Either.
    pub(super) const ALL: [Self; 2] = [Self::Pool, Self::Nothing];
}

/// For each class its finished lives, and its unfinished ones with the end that they are thought to have.
pub(super) fn occupancy(
    window: Window,
    classes: &[(Vec<Life>, Vec<Life>)],
    full: &[bool],
    capacity: f64,
    wait: CommonWait,
) -> Vec<Occupied> {
    let waits = match wait {
        CommonWait::Pool => waits(window, classes.iter().flat_map(|(finished, _)| finished)),
        CommonWait::Nothing => vec![0; window.bins],
    };
    let now = window.end_ns();
    let mut left = Vec::with_capacity(classes.len());
    for (finished, unfinished) in classes {
        let (mut progress, mut mass) = (vec![0.0; window.bins], vec![0.0; window.bins]);
        let lives = finished.iter().chain(unfinished);
        for (sent, ended) in lives {
            let begun = (sent + waits[place(window, (*ended).min(now - 1))]).min(*ended);
            let life = (ended - sent).max(1) as f64;
            spread(window, (*sent, *ended), life.recip(), &mut mass);
            spread(window, (begun, *ended), 1e-9, &mut progress);
        }
        left.push((progress, mass));
    }
    let mut sums = vec![0.0; window.bins];
    for (progress, _) in &left {
        let pairs = sums.iter_mut().zip(progress);
        pairs.for_each(|(sum, progress)| *sum += progress);
    }
    let bins = full.iter().filter(|full| **full).count().max(1) as f64;
    left.iter()
        .map(|(progress, mass)| {
            let (mut part, mut served) = (0.0, 0.0);
            for bin in (0..window.bins).filter(|bin| full[*bin] && sums[*bin] > 0.0) {
                part += progress[bin] / sums[bin];
                served += mass[bin];
            }
            let used = part * capacity * BIN_SECONDS;
            Occupied {
                share: part / bins,
                cost: if served > 0.0 { used / served } else { 0.0 },
                cleared: false,
            }
        })
        .collect()
}

/// The wait that all had in common, for each bin.
fn waits<'a>(window: Window, lives: impl Iterator<Item = &'a Life>) -> Vec<i64> {
    let mut ended: Vec<Vec<f64>> = vec![Vec::new(); window.bins];
    let mut all = Vec::new();
    for (sent, end) in lives.filter(|(_, end)| (window.start_ns()..window.end_ns()).contains(end)) {
        let life = (end - sent) as f64;
        all.push(life);
        ended[place(window, *end)].push(life);
    }
    let least = (WAITED_PART * quantile(&mut all, 0.99).unwrap_or(0.0)).max(WAITED_MIN_NS);
    (0..window.bins)
        .map(|bin| {
            let around = bin.saturating_sub(AROUND)..(bin + AROUND + 1).min(window.bins);
            let lives = around.flat_map(|bin| &ended[bin]).copied();
            let mut lives: Vec<_> = lives.filter(|life| *life > least).collect();
            quantile(&mut lives, QUANTILE).unwrap_or(0.0) as i64
        })
        .collect()
}

fn place(window: Window, at: i64) -> usize {
    let bin = (at - window.start_ns()).div_euclid(BIN_NS);
    bin.clamp(0, window.bins as i64 - 1) as usize
}

/// Adds so much per nanosecond to the bins that a life lies in.
fn spread(window: Window, (from, to): Life, per_ns: f64, bins: &mut [f64]) {
    let (start, end) = (window.start_ns(), window.end_ns());
    let (first, last) = (from.max(start), to.min(end));
    if first >= last {
        return;
    }
    let (from, to) = (place(window, first), place(window, last - 1));
    for (bin, sum) in bins.iter_mut().enumerate().take(to + 1).skip(from) {
        let edge = start + bin as i64 * BIN_NS;
        let part = (last.min(edge + BIN_NS) - first.max(edge)) as f64;
        *sum += part * per_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    #[test]
    fn capacity_goes_by_lives_after_the_common_wait() {
        let window = Window {
            first: 0,
            bins: 100,
        };
        // All wait 500 ms for a slot; then one class takes 10 ms, the other 490.
        let lives = |life: i64| {
            (0..80)
                .map(|k| (k * 100 * MS, (k * 100 + life) * MS))
                .collect()
        };
        let classes = [(lives(510), Vec::new()), (lives(990), Vec::new())];
        let found = occupancy(window, &classes, &[true; 100], 1.0, CommonWait::Pool);
        assert!(found[1].share > 0.8 && found[0].share < 0.05, "{found:?}");
        // Full for 10 s: 8.4 s of it after the first that waited, by 80 requests.
        assert!((found[1].cost - 0.105).abs() < 0.01, "{found:?}");
    }

    #[test]
    fn a_few_that_take_far_longer_do_not_hide_the_rest_where_there_is_no_pool() {
        let window = Window {
            first: 0,
            bins: 100,
        };
        let lives = |every: i64, life: i64| -> Vec<Life> {
            let many = 10_000 / every;
            let sent = (0..many).map(|k| k * every * MS);
            sent.map(|sent| (sent, sent + life * MS)).collect()
        };
        let classes = [(lives(100, 70), Vec::new()), (lives(1000, 900), Vec::new())];
        let found = |wait| occupancy(window, &classes, &[true; 100], 1.0, wait);
        let [pool, alone] = CommonWait::ALL.map(|wait| found(wait)[0].share);
        assert!(pool < 0.05, "{pool}");
        assert!((0.3..0.6).contains(&alone), "{alone}");
    }

    #[test]
    fn nothing_is_used_by_nobody() {
        let window = Window { first: 0, bins: 10 };
        let found = occupancy(
            window,
            &[(Vec::new(), Vec::new())],
            &[false; 10],
            1.0,
            CommonWait::Pool,
        );
        assert_eq!(found, [Occupied::default()]);
    }
}
