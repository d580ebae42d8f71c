//! What a front-end knows of one node: the records that it has read, and what it makes of them.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_core::load::Rates;
use tidegate_core::record::LoadRecord;

/// Records that are kept: as many as fit into several agents' intervals.
const KEPT: usize = 256;

/// What utilisation is taken between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// The last two records: the agent's own interval.
    Interval,
    /// The newest record and the one whose distance from it is nearest to this.
    Window(Duration),
}

/// The records of one agent, newest last, each once.
#[derive(Debug, Default)]
pub(super) struct Known {
    records: VecDeque<LoadRecord>,
}

impl Known {
    pub(super) fn note(&mut self, record: LoadRecord) {
        if self
            .records
            .back()
            .is_some_and(|last| last.t_ns == record.t_ns)
        {
            return;
        }
        self.records.push_back(record);
        if self.records.len() > KEPT {
            self.records.pop_front();
        }
    }

    /// The load that a front-end makes of them.
    pub(super) fn reported(&self, over: Over) -> Option<f64> {
        let newest = self.records.back()?;
        let mut older = self.records.iter().rev().skip(1);
        let before = match over {
            Over::Interval => older.next(),
            Over::Window(window) => older.min_by_key(|it| {
                Duration::from_nanos(newest.t_ns.saturating_sub(it.t_ns)).abs_diff(window)
            }),
        };
        Rates::between(before?, newest).map(|rates| rates.utilization)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(t_ms: u64, busy_ms: u64) -> LoadRecord {
        LoadRecord {
            generation: 1,
            t_ns: t_ms * 1_000_000,
            busy_ns: busy_ms * 1_000_000,
            ..LoadRecord::default()
        }
    }

    #[test]
    fn an_interval_is_between_the_last_two_and_a_window_nearly_as_long_as_asked_for() {
        let mut known = Known::default();
        assert_eq!(known.reported(Over::Interval), None);
        for (at, busy) in [(0, 0), (4, 0), (5, 0), (13, 8), (14, 8)] {
            known.note(record(at, busy));
            known.note(record(at, busy));
        }
        assert_eq!(known.records.len(), 5);
        let window = Over::Window(Duration::from_millis(10));
        // From 4 to 14: eight of ten. The same capacity divides all.
        let whole = known.reported(window).unwrap() / 0.8;
        assert!(whole > 0.0);
        assert_eq!(known.reported(Over::Interval), Some(0.0));
        known.note(record(15, 9));
        let interval = known.reported(Over::Interval).unwrap();
        assert!((interval / whole - 1.0).abs() < 1e-6, "{interval}");
    }
}
