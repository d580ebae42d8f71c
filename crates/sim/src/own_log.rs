//! A front-end's own traffic to one node, at each of its changes.
//!
//! A reader notes own traffic whenever it sends a read. Between two changes all notes are the
//! same, so the changes tell every note that was, or would have been, taken.

use std::collections::VecDeque;

use tidegate_core::load::OwnTraffic;
use tidegate_core::time::Timestamp;

/// Notes that a reader keeps: `tidegate_core::load::History` does.
const POLLS_MAX: i64 = 128;

/// When the reads of one front-end are sent to one node: number 0 at `first`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Polls {
    pub(crate) first_ns: u64,
    pub(crate) interval_ns: u64,
}

impl Polls {
    /// When this one is sent.
    pub(crate) fn at(self, number: i64) -> Timestamp {
        Timestamp::from_nanos(self.first_ns + self.interval_ns * number.max(0) as u64)
    }

    /// The last one sent at or before this moment, -1 if none was.
    pub(crate) fn last(self, at: Timestamp) -> i64 {
        match at.nanos().checked_sub(self.first_ns) {
            Some(since) => (since / self.interval_ns) as i64,
            None => -1,
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct OwnLog {
    changes: VecDeque<(Timestamp, OwnTraffic)>,
}

impl OwnLog {
    /// Traffic has changed to this. What no note reaches back to is forgotten.
    pub(crate) fn push(&mut self, now: Timestamp, own: OwnTraffic, polls: Polls) {
        let kept = polls.interval_ns.saturating_mul(POLLS_MAX as u64 + 1);
        let horizon = Timestamp::from_nanos(now.nanos().saturating_sub(kept));
        while self.changes.get(1).is_some_and(|(at, _)| *at <= horizon) {
            self.changes.pop_front();
        }
        self.changes.push_back((now, own));
    }

    /// Traffic at this moment.
    pub(crate) fn at(&self, when: Timestamp) -> OwnTraffic {
        let mut changes = self.changes.iter().rev();
        let last = changes.find(|(at, _)| *at <= when);
        last.map_or(OwnTraffic::default(), |(_, own)| *own)
    }

    /// Traffic at `when` as the reader finds it from its notes, at `now`.
    pub(crate) fn noted_at(&self, when: Timestamp, now: Timestamp, polls: Polls) -> OwnTraffic {
        let newest = polls.last(now);
        if newest < 0 {
            return self.at(now);
        }
        let oldest = (newest - POLLS_MAX + 1).max(0);
        let last = polls.last(when).min(newest);
        if last < oldest {
            return self.at(polls.at(oldest));
        }
        let at = polls.at(last);
        if at == when {
            return self.at(at);
        }
        let until = if last < newest {
            polls.at(last + 1)
        } else {
            now
        };
        if until <= when {
            return self.at(until);
        }
        OwnTraffic::between((at, self.at(at)), (until, self.at(until)), when)
    }
}
