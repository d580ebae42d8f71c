//! What the requests of one class did in the time that is shown.

use tidegate_core::stats::quantile_of_ordered;
use tidegate_core::time::Timestamp;

use super::report::Heatmap;
use super::steps::Steps;
use crate::evidence::{Lived, spread};
use crate::time::SECOND;

/// Bounds of durations in the heat map; one bucket more lies below, and one above.
pub(super) const EDGES_MS: [f64; 15] = [
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4,
];
/// A request without a duration did its work in so many nanoseconds.
const SHORT: i64 = SECOND / 1000;

/// Requests of one class.
#[derive(Debug, Default)]
pub(super) struct Lives<'a> {
    /// Those that ended within what is shown, by their end.
    pub(super) ended: Vec<&'a Lived>,
    /// When those were sent that have not ended.
    pub(super) unfinished: Vec<i64>,
}

/// Durations of a class, milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Durations {
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

/// Nanoseconds of the Unix epoch.
pub(super) fn nanos(at: Timestamp) -> i64 {
    i64::try_from(at.nanos()).unwrap_or(i64::MAX)
}

fn times(lived: &Lived) -> (i64, i64) {
    (nanos(lived.sent), nanos(lived.ended))
}

impl Lives<'_> {
    /// None if it is not known how long requests took.
    pub(super) fn durations(&self) -> Option<Durations> {
        let life = |lived: &&Lived| lived.ended.nanos_since(lived.sent);
        let mut lives: Vec<i64> = self.ended.iter().map(life).collect();
        let max = *lives.iter().max().filter(|max| **max > 0)?;
        let mut quantile =
            |part: f64| quantile_of_ordered(&mut lives, part).unwrap_or(0) as f64 / 1e6;
        Some(Durations {
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            max: max as f64 / 1e6,
        })
    }

    /// Mean number in progress by step; `until` is when unfinished ones were last seen.
    pub(super) fn in_progress(&self, steps: Steps, until: i64) -> Vec<f64> {
        let life = |from: i64, to: i64| (to - from) as f64 / SECOND as f64;
        self.spread(steps, until, life, life)
    }

    /// What they used by step, if each used so many seconds, evenly over its life. Of unfinished
    /// ones half is thought to be done.
    pub(super) fn used(&self, steps: Steps, until: i64, cost: f64) -> Vec<f64> {
        self.spread(steps, until, |_, _| cost, |_, _| cost / 2.0)
    }

    /// Amounts per second of requests that ended and of others, spread over their lives.
    fn spread(
        &self,
        steps: Steps,
        until: i64,
        of_ended: impl Fn(i64, i64) -> f64,
        of_others: impl Fn(i64, i64) -> f64,
    ) -> Vec<f64> {
        let mut bins = vec![0.0; steps.count];
        let place = (steps.start, steps.length);
        for lived in &self.ended {
            let (from, to) = times(lived);
            let life = (from.min(to - SHORT), to);
            spread(life, of_ended(from, to), place, &mut bins);
        }
        for sent in &self.unfinished {
            let to = until.max(sent + SHORT);
            spread((*sent, to), of_others(*sent, to), place, &mut bins);
        }
        bins.iter_mut().for_each(|bin| *bin /= steps.seconds());
        bins
    }

    /// Time in progress within a time, seconds.
    pub(super) fn seconds(&self, (from, to): (i64, i64)) -> f64 {
        let within = |sent: i64, ended: i64| (ended.min(to) - sent.max(from)).max(0);
        let ended = self.ended.iter().map(|lived| times(lived));
        let unfinished = self.unfinished.iter().map(|sent| (*sent, to));
        let all = ended
            .chain(unfinished)
            .map(|(sent, ended)| within(sent, ended));
        all.sum::<i64>() as f64 / SECOND as f64
    }

    /// Adds those that ended to counts by row and bucket.
    pub(super) fn count(&self, rows: Steps, counts: &mut [Vec<u64>]) {
        for lived in &self.ended {
            let (sent, ended) = times(lived);
            let millis = (ended - sent) as f64 / 1e6;
            let bucket = EDGES_MS.partition_point(|edge| *edge <= millis);
            if let Some(row) = rows.place(ended).and_then(|row| counts.get_mut(row)) {
                row[bucket] += 1;
            }
        }
    }
}

/// Counts without any request.
pub(super) fn no_counts(rows: Steps) -> Vec<Vec<u64>> {
    vec![vec![0; EDGES_MS.len() + 1]; rows.count]
}

/// A heat map without cells.
pub(super) fn heatmap(rows: Steps) -> Heatmap {
    Heatmap {
        t0: rows.t0(),
        step_seconds: rows.seconds(),
        edges_ms: EDGES_MS.to_vec(),
        cells: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::classes::ClassId;

    use super::*;

    fn lived(sent_ms: u64, ended_ms: u64) -> Lived {
        let at = Timestamp::from_millis;
        let class = ClassId(1);
        Lived {
            class,
            sent: at(sent_ms),
            ended: at(ended_ms),
        }
    }

    const STEPS: Steps = Steps {
        start: SECOND,
        length: SECOND,
        count: 3,
    };

    fn close(found: &[f64], expected: &[f64]) {
        let pairs = found.iter().zip(expected);
        let near = pairs.clone().all(|(one, other)| (one - other).abs() < 1e-9);
        assert!(near && found.len() == expected.len(), "{found:?}");
    }

    #[test]
    fn requests_lie_where_they_were() {
        let ended = [lived(500, 1500), lived(2000, 2100), lived(3000, 3000)];
        let lives = Lives {
            ended: ended.iter().collect(),
            unfinished: vec![3 * SECOND],
        };
        let until = 4 * SECOND;
        close(&lives.in_progress(STEPS, until), &[0.5, 0.1, 1.0]);
        // Half of the first one lies before what is shown; the third did its work before it was logged.
        close(&lives.used(STEPS, until, 0.2), &[0.1, 0.2 + 0.2, 0.1]);
        let shown = (SECOND, until);
        assert!((lives.seconds(shown) - 1.6).abs() < 1e-9);
        let mut counts = no_counts(STEPS);
        lives.count(STEPS, &mut counts);
        assert_eq!((counts[0][9], counts[1][7], counts[2][0]), (0, 1, 1));
        assert_eq!(counts[0][10], 1);
    }

    #[test]
    fn durations_are_those_of_ended_requests() {
        let ended: Vec<Lived> = (1..=101).map(|it| lived(1000, 1000 + it)).collect();
        let lives = Lives {
            ended: ended.iter().collect(),
            unfinished: Vec::new(),
        };
        let expected = Durations {
            p50: 51.0,
            p90: 91.0,
            p99: 100.0,
            max: 101.0,
        };
        assert_eq!(lives.durations(), Some(expected));
        let unknown = [lived(5, 5)];
        let unknown = Lives {
            ended: unknown.iter().collect(),
            unfinished: Vec::new(),
        };
        assert_eq!(unknown.durations(), None);
    }
}
