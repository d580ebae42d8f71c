//! How far a load is believed that another program reports as the mean of a period.
//!
//! ```text
//! e       = xbar * rel * C                         what is expected at a node without its own report (`learn`)
//! dev     = (n - e) / C                            by how much its report differs, per CPU
//! m       = mean of dev over the node's reports, which fade with 30 s; k of them
//! v       = dev - m                                what is new in this report
//! P, S    = sums of v v' and of (v^2 + v'^2) / 2 over the reports of all candidates, v' of the report before; j pairs;
//!           all fade with 30 s
//! trust   = clamp(P / S, 0, 1) * j / (j + 20)
//! n used  = e + C * (m * k / (k + 4) + trust * v)
//! ```
//!
//! A period is long beside the time in which queues come and go: where nodes are alike, one that was busy in the last half second
//! is as likely as any other to be busy in the next, and all front-ends that follow the report go where few were, and overdo it. So
//! what lasts is believed, which is the mean, and what is new only as far as such news came true in the report after: P / S is
//! the best linear forecast. Neighbours that come and go for seconds have a trust of about one half. Where
//! front-ends overdo it the next report says the opposite, P is negative, and trust 0.
//!
//! Inputs: reported run queues, each report once. Failure case: a front-end that has just started believes no report for some
//! periods; a load that has changed for good is followed at once as far as trust goes, and for the rest in some 30 s. Source: the forecast is that
//! of an AR(1) process; the use of it here is ours. With n itself in place of n used, p99 with 64 front-ends was twice that of no load at
//! all (`docs/simulate.md`).

use super::{Known, measured};
use crate::load::NodeLoad;
use crate::time::Timestamp;

/// Time constant of all sums.
const FADE_SECONDS: f64 = 30.0;
/// What trust comes to counts for half after so many pairs of reports.
const PAIRS_HALF: f64 = 20.0;
/// A node's mean counts for half after so many reports.
const REPORTS_HALF: f64 = 4.0;

/// The reports of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeReports {
    at: Timestamp,
    /// Reports, fading, and the mean of what differs.
    count: f64,
    mean: f64,
    /// By how much the last one differs from that.
    news: f64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Reports {
    pairs: f64,
    products: f64,
    squares: f64,
}

impl Reports {
    /// Forgets a little.
    pub(super) fn on_tick(&mut self, seconds: f64) {
        let keep = (-seconds / FADE_SECONDS).exp();
        self.pairs *= keep;
        self.products *= keep;
        self.squares *= keep;
    }

    /// Tasks that are believed to run or wait at a node, of which so many are expected without its reports.
    pub(super) fn believed(
        &mut self,
        node: &mut Option<NodeReports>,
        known: &Known,
        expected: f64,
    ) -> f64 {
        let load = known.load.as_ref().filter(|it| it.rung.is_mean());
        let Some((load, n)) = load.and_then(|it| Some((it, measured(it.runnable)?))) else {
            return expected;
        };
        if known.candidate {
            self.on_load(node, load, (n - expected) / known.capacity);
        }
        expected + known.capacity * node.map_or(0.0, |it| self.deviation(&it))
    }

    /// A load that differs by so much, per CPU. Each report counts once.
    fn on_load(&mut self, node: &mut Option<NodeReports>, load: &NodeLoad, deviation: f64) {
        let at = load.observed_at;
        let Some(before) = node else {
            *node = Some(NodeReports {
                at,
                count: 1.0,
                mean: deviation,
                news: 0.0,
            });
            return;
        };
        if at.since(before.at) * 2 <= load.interval {
            return;
        }
        let keep = (-at.seconds_since(before.at) / FADE_SECONDS).exp();
        let count = before.count * keep + 1.0;
        let mean = before.mean + (deviation - before.mean) / count;
        let news = deviation - mean;
        self.pairs += 1.0;
        self.products += news * before.news;
        self.squares += f64::midpoint(news * news, before.news * before.news);
        *node = Some(NodeReports {
            at,
            count,
            mean,
            news,
        });
    }

    /// By how much a node is believed to differ, per CPU.
    fn deviation(&self, node: &NodeReports) -> f64 {
        node.mean * node.count / (node.count + REPORTS_HALF) + self.trust() * node.news
    }

    /// The part of news that is believed, 0 to 1.
    fn trust(&self) -> f64 {
        if self.squares <= 0.0 {
            return 0.0;
        }
        let comes_true = (self.products / self.squares).clamp(0.0, 1.0);
        comes_true * self.pairs / (self.pairs + PAIRS_HALF)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Reports of these deviations, one each half second; what is believed in the end.
    fn believed(deviations: impl IntoIterator<Item = f64>) -> f64 {
        let (mut reports, mut node) = (Reports::default(), None);
        for (half, deviation) in (2_u64..).zip(deviations) {
            let load = NodeLoad {
                observed_at: Timestamp::from_millis(500 * half),
                interval: Duration::from_millis(500),
                ..NodeLoad::UNKNOWN
            };
            for _ in 0..500 {
                reports.on_tick(0.001);
                reports.on_load(&mut node, &load, deviation);
            }
        }
        reports.deviation(&node.unwrap())
    }

    #[test]
    fn what_lasts_is_believed_after_some_reports() {
        assert!((believed([1.0]) - 0.2).abs() < 1e-9);
        let all = believed([1.0; 60]);
        assert!((0.9..1.0).contains(&all), "{all}");
    }

    #[test]
    fn what_turns_with_each_report_is_not_believed() {
        let all = believed([1.0, -1.0].repeat(60));
        assert!(all.abs() < 0.05, "{all}");
    }

    #[test]
    fn what_is_new_is_believed_as_far_as_news_came_true() {
        // Four seconds each: seven of eight reports say what the one before said.
        let lasting = [[1.0; 8], [-1.0; 8]].concat().repeat(10);
        let begun = lasting.into_iter().chain([1.0; 4]);
        let all = believed(begun);
        assert!((0.4..0.9).contains(&all), "{all}");
    }

    #[test]
    fn a_report_counts_once() {
        let (mut reports, mut node) = (Reports::default(), None);
        let load = |ms| NodeLoad {
            observed_at: Timestamp::from_millis(ms),
            interval: Duration::from_millis(500),
            ..NodeLoad::UNKNOWN
        };
        for ms in [1_000, 1_000, 1_250] {
            reports.on_load(&mut node, &load(ms), 1.0);
        }
        assert_eq!(reports.pairs, 0.0);
        reports.on_load(&mut node, &load(1_500), 1.0);
        assert_eq!(reports.pairs, 1.0);
    }
}
