//! What one policy came to in one scenario, and which of two did better.
//!
//! Errors come first: a policy that answers fewer requests is worse, however fast it answers
//! the others. Where both answer as many, the lower p99 wins; a difference of up to 5 % is a
//! tie, since seeds differ by as much.
//!
//! ```text
//! missed = (failed + rejected) / offered
//! |missed - missed'| > 0.5 %  ->  fewer wins
//! p99 / p99' > 1.05           ->  the other wins
//! ```

use std::time::Duration;

use crate::report::Report;
use crate::scenario::Expect;

/// How far p99 may differ for a tie.
pub const BAND: f64 = 0.05;
/// How far the share of requests that were not answered may differ before it decides alone.
pub const MISSED_BAND: f64 = 0.005;

/// One policy in one scenario: means over the seeds, sums of counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Score {
    /// Runs that this is the mean of.
    pub runs: u32,
    /// Median latency, milliseconds.
    pub p50_ms: f64,
    /// 99th percentile, milliseconds.
    pub p99_ms: f64,
    /// The least and the greatest p99 of a run.
    pub p99_range_ms: (f64, f64),
    /// 99.9th percentile, milliseconds.
    pub p999_ms: f64,
    /// Mean latency, milliseconds.
    pub mean_ms: f64,
    /// Requests that arrived.
    pub offered: u64,
    /// Answered.
    pub completed: u64,
    /// Sent and not answered.
    pub failed: u64,
    /// Not sent.
    pub rejected: u64,
    /// Most over mean requests in flight of the nodes, in windows of 100 ms.
    pub herding: f64,
    /// Least share that a node got, relative to an even split.
    pub least_share: f64,
    /// Age of the records that decisions rested on, p99, milliseconds; none had one if zero.
    pub load_age_p99_ms: f64,
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

impl Score {
    /// Of these runs, one for each seed.
    pub fn of(reports: &[Report]) -> Self {
        let mean = |of: fn(&Report) -> f64| {
            reports.iter().map(of).sum::<f64>() / (reports.len() as f64).max(1.0)
        };
        let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum();
        let p99s = || reports.iter().map(|it| ms(it.latencies.quantile(0.99)));
        Self {
            runs: reports.len() as u32,
            p50_ms: mean(|it| ms(it.latencies.quantile(0.5))),
            p99_ms: mean(|it| ms(it.latencies.quantile(0.99))),
            p99_range_ms: (
                p99s().fold(f64::INFINITY, f64::min),
                p99s().fold(0.0, f64::max),
            ),
            p999_ms: mean(|it| ms(it.latencies.quantile(0.999))),
            mean_ms: mean(|it| ms(it.latencies.mean())),
            offered: sum(|it| it.offered),
            completed: sum(|it| it.completed),
            failed: sum(|it| it.failed),
            rejected: sum(|it| it.rejected),
            herding: mean(|it| it.herding),
            least_share: mean(|it| it.least_share),
            load_age_p99_ms: mean(|it| ms(it.load_ages.quantile(0.99))),
        }
    }

    /// Share of the requests that were not answered.
    pub fn missed(&self) -> f64 {
        (self.failed + self.rejected) as f64 / (self.offered as f64).max(1.0)
    }

    /// How this did against `other`.
    pub fn against(&self, other: &Self) -> PairVerdict {
        let missed = self.missed() - other.missed();
        let ratio = ratio(self.p99_ms, other.p99_ms);
        if missed.abs() > MISSED_BAND {
            let outcome = PairOutcome::of(missed > 0.0);
            return PairVerdict {
                outcome,
                by: By::Missed(missed),
            };
        }
        let outcome = if (1.0 - BAND..=1.0 + BAND).contains(&ratio) {
            PairOutcome::Tie
        } else {
            PairOutcome::of(ratio > 1.0)
        };
        PairVerdict {
            outcome,
            by: By::Ratio(ratio),
        }
    }
}

/// Nothing to nothing is level.
fn ratio(own: f64, other: f64) -> f64 {
    if own <= 0.0 && other <= 0.0 {
        1.0
    } else {
        own / other.max(f64::MIN_POSITIVE)
    }
}

/// Which did better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairOutcome {
    /// This one.
    Win,
    /// Neither, within the bands.
    Tie,
    /// The other.
    Loss,
}

impl PairOutcome {
    fn of(worse: bool) -> Self {
        if worse { Self::Loss } else { Self::Win }
    }
}

/// Which did better, and by what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairVerdict {
    /// Which.
    pub outcome: PairOutcome,
    /// By what.
    pub by: By,
}

/// What a verdict rests on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum By {
    /// Own p99 over the other's.
    Ratio(f64),
    /// Own share of missed requests less the other's.
    Missed(f64),
}

/// What a scenario expects of the default policy and did not come true, a sentence each.
pub fn unmet(expect: &Expect, score: &Score) -> Vec<String> {
    let most = [
        ("share of missed requests", expect.failed, score.missed()),
        ("max/mean requests in flight", expect.herding, score.herding),
    ];
    let least = [(
        "least share of a node",
        expect.least_share,
        score.least_share,
    )];
    let most = most.into_iter().filter_map(|(what, bound, found)| {
        let bound = bound.filter(|bound| found > *bound)?;
        Some(format!("{what} is {found:.3}, expected at most {bound}"))
    });
    let least = least.into_iter().filter_map(|(what, bound, found)| {
        let bound = bound.filter(|bound| found < *bound)?;
        Some(format!("{what} is {found:.3}, expected at least {bound}"))
    });
    most.chain(least).collect()
}

/// The geometric mean; nothing of nothing.
pub fn geomean(ratios: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0u32);
    for ratio in ratios {
        sum += ratio.max(f64::MIN_POSITIVE).ln();
        count += 1;
    }
    (count > 0).then(|| (sum / f64::from(count)).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(p99_ms: f64, failed: u64) -> Score {
        Score {
            p99_ms,
            failed,
            offered: 1000,
            ..Score::default()
        }
    }

    fn outcome(own: (f64, u64), other: (f64, u64)) -> PairOutcome {
        score(own.0, own.1)
            .against(&score(other.0, other.1))
            .outcome
    }

    #[test]
    fn five_per_cent_are_a_tie() {
        assert_eq!(outcome((105.0, 0), (100.0, 0)), PairOutcome::Tie);
        assert_eq!(outcome((95.0, 0), (100.0, 0)), PairOutcome::Tie);
        assert_eq!(outcome((106.0, 0), (100.0, 0)), PairOutcome::Loss);
        assert_eq!(outcome((94.0, 0), (100.0, 0)), PairOutcome::Win);
        assert_eq!(outcome((0.0, 0), (0.0, 0)), PairOutcome::Tie);
    }

    #[test]
    fn errors_come_first() {
        assert_eq!(outcome((10.0, 60), (100.0, 50)), PairOutcome::Loss);
        assert_eq!(outcome((100.0, 50), (10.0, 60)), PairOutcome::Win);
        // A few do not decide.
        assert_eq!(outcome((10.0, 55), (100.0, 50)), PairOutcome::Win);
    }

    #[test]
    fn what_is_not_reached_is_told() {
        let expect = Expect {
            failed: Some(0.01),
            least_share: Some(0.5),
            herding: None,
        };
        let good = Score {
            least_share: 0.6,
            herding: 9.0,
            ..score(1.0, 10)
        };
        assert_eq!(unmet(&expect, &good), Vec::<String>::new());
        let told = unmet(&expect, &score(1.0, 11));
        assert_eq!(
            told,
            [
                "share of missed requests is 0.011, expected at most 0.01",
                "least share of a node is 0.000, expected at least 0.5",
            ]
        );
    }

    #[test]
    fn a_geometric_mean_is_one() {
        let mean = geomean([0.5, 2.0]).unwrap();
        assert!((mean - 1.0).abs() < 1e-12);
        assert_eq!(geomean([]), None);
    }
}
