//! Checks of one node, as its site wants them: when the next is due, and whether the node is out by them.
//!
//! ```text
//!            `fall` in a row failed, or the first one
//!   Passing ──────────────────────────────────────────> Failing        Failing: no candidate,
//!      ^                                                   │           as one that is ejected
//!      └───────────────────────────────────────────────────┘
//!            `rise` in a row passed, or the first one
//!
//! next = interval, shortened by up to a tenth by a seeded draw; the first of all within an interval
//! ```
//!
//! A node that nothing is known of passes where the front-end starts: one that is not well falls with its first
//! check. A node that joins a site which others serve waits for a check that it passes.
//!
//! Checks stand beside what requests show (`health`), and each speaks for itself: a node is a candidate when neither
//! has it out. So a passed check brings back no node that requests cannot reach, since a check may take another
//! port or an easier way than requests do: it has the node probed at once, by the way of requests, and the answer to that
//! brings it back. Nor does it shorten the wait of one that answers with errors. And a node whose check
//! fails stays out however well it answers: that is how an application leaves its load balancer.
//!
//! Ejection fails open here as well: see `health`. A node whose check fails counts as one that answers with errors.
//!
//! Failure case: a check that fails everywhere for a reason of its own (a wrong path) takes all nodes out, and the site fails open;
//! one that costs a node much is asked by each front-end.
//! Source: HAProxy's `rise` and `fall`; a new node's first check from Envoy.

use std::time::Duration;

use crate::prng::Prng;
use crate::time::Timestamp;
use crate::topology::{Cause, CheckConfig, Ejection, NodeId};

/// A check whose result never comes is made again so long after its time-out.
const CHECK_LOST: Duration = Duration::from_secs(30);
/// By which part an interval is shortened at most.
const JITTER: f64 = 0.1;

/// A check to make. Its number sets it apart from those of nodes that had the place or the address before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckDue {
    /// The node.
    pub node: NodeId,
    /// The check's own.
    pub number: u64,
}

/// What is remembered of one node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeCheck {
    /// It is out since then.
    failing: Option<Timestamp>,
    /// Results in a row that say otherwise than it stands.
    streak: u32,
    /// Whether there was a result under these settings.
    judged: bool,
    due: Option<Timestamp>,
    asked: Option<Asked>,
}

/// A check that is under way.
#[derive(Clone, Copy, Debug)]
struct Asked {
    number: u64,
    at: Timestamp,
}

/// How a check changed what a node is by its checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckTurn {
    Failed,
    Passed,
}

impl NodeCheck {
    /// Of a node that joins others, and is out until it has passed.
    pub(super) fn joining(now: Timestamp) -> Self {
        Self {
            failing: Some(now),
            due: Some(now),
            ..Self::default()
        }
    }

    /// How long it has failed, for the next process.
    pub(super) fn failing_for(&self, now: Timestamp) -> Option<Duration> {
        self.failing.map(|since| now.since(since))
    }

    /// It fails since then, and is checked at once.
    pub(super) fn recall(&mut self, since: Timestamp, now: Timestamp) {
        *self = Self {
            judged: true,
            ..Self::joining(now)
        };
        self.failing = Some(since);
    }

    /// The site is checked in another way, or not at all.
    pub(super) fn on_settings(&mut self, checked: bool) {
        *self = Self {
            failing: self.failing.filter(|_| checked),
            ..Self::default()
        };
    }

    /// Whether a check is due; it is then under way, by this number.
    pub(super) fn poll(
        &mut self,
        number: u64,
        config: &CheckConfig,
        now: Timestamp,
        prng: &mut Prng,
    ) -> bool {
        let first = || now + config.interval.mul_f64(prng.unit());
        let due = *self.due.get_or_insert_with(first);
        let due = match self.asked {
            Some(asked) => now.since(asked.at) >= config.timeout + CHECK_LOST,
            None => due <= now,
        };
        if due {
            self.asked = Some(Asked { number, at: now });
        }
        due
    }

    /// Whether the check of this number is under way.
    pub(super) fn awaits(&self, number: u64) -> bool {
        self.asked.is_some_and(|asked| asked.number == number)
    }

    /// A check has ended. How the node turned by it, if it did.
    pub(super) fn on_result(
        &mut self,
        passed: bool,
        config: &CheckConfig,
        now: Timestamp,
        prng: &mut Prng,
    ) -> Option<CheckTurn> {
        self.end(config, now, prng);
        let first = !std::mem::replace(&mut self.judged, true);
        if passed == self.failing.is_none() {
            self.streak = 0;
            return None;
        }
        self.streak += 1;
        let wanted = match (first, passed) {
            (true, _) => 1,
            (false, true) => config.rise,
            (false, false) => config.fall,
        };
        if self.streak < wanted {
            return None;
        }
        self.streak = 0;
        self.failing = (!passed).then_some(now);
        Some(if passed {
            CheckTurn::Passed
        } else {
            CheckTurn::Failed
        })
    }

    /// The check could not be made. It says nothing.
    pub(super) fn on_unsent(&mut self, config: &CheckConfig, now: Timestamp, prng: &mut Prng) {
        self.end(config, now, prng);
    }

    fn end(&mut self, config: &CheckConfig, now: Timestamp, prng: &mut Prng) {
        self.asked = None;
        self.due = Some(now + config.interval.mul_f64(1.0 - JITTER * prng.unit()));
    }

    /// Since when it is out, and until when it stays so at least.
    pub(super) fn ejection(&self) -> Option<Ejection> {
        self.failing.map(|since| Ejection {
            cause: Cause::Check,
            since,
            until: self.due.unwrap_or(since),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{BytesCheck, CheckRequest};

    fn config() -> CheckConfig {
        CheckConfig {
            request: CheckRequest::Tcp(BytesCheck::NOTHING),
            port: None,
            interval: Duration::from_secs(2),
            timeout: Duration::from_secs(1),
            rise: 2,
            fall: 3,
        }
    }

    struct Checked {
        check: NodeCheck,
        now: Timestamp,
        prng: Prng,
    }

    fn checked(check: NodeCheck) -> Checked {
        Checked {
            check,
            now: Timestamp::from_millis(1000),
            prng: Prng::new(3),
        }
    }

    impl Checked {
        /// Milliseconds until the next check, which ends so; and what it changed.
        fn next(&mut self, passed: bool) -> (u128, Option<CheckTurn>) {
            let begin = self.now;
            while !self.poll() {
                self.now = self.now + Duration::from_millis(1);
            }
            let waited = self.now.since(begin).as_millis();
            let turn = self.end(passed);
            (waited, turn)
        }

        fn poll(&mut self) -> bool {
            let number = self.now.nanos();
            self.check.poll(number, &config(), self.now, &mut self.prng)
        }

        fn end(&mut self, passed: bool) -> Option<CheckTurn> {
            let (now, prng) = (self.now, &mut self.prng);
            self.check.on_result(passed, &config(), now, prng)
        }

        fn turns(&mut self, results: &[bool]) -> Vec<Option<CheckTurn>> {
            results.iter().map(|passed| self.next(*passed).1).collect()
        }
    }

    #[test]
    fn so_many_in_a_row_turn_a_node() {
        let mut node = checked(NodeCheck::default());
        let (failed, passed) = (Some(CheckTurn::Failed), Some(CheckTurn::Passed));
        assert_eq!(node.turns(&[true]), [None]);
        let turns = node.turns(&[false, false, true, false, false, false, false]);
        assert_eq!(turns, [None, None, None, None, None, failed, None]);
        assert!(node.check.ejection().is_some());
        assert_eq!(
            node.turns(&[true, false, true, true]),
            [None, None, None, passed]
        );
        assert!(node.check.ejection().is_none());
    }

    #[test]
    fn the_first_result_is_believed() {
        let mut fresh = checked(NodeCheck::default());
        assert_eq!(fresh.turns(&[false]), [Some(CheckTurn::Failed)]);
        let mut joining = checked(NodeCheck::joining(Timestamp::from_millis(1000)));
        assert!(joining.check.ejection().is_some());
        assert_eq!(joining.next(true), (0, Some(CheckTurn::Passed)), "at once");
        // What was known under other settings stands until the first result.
        let mut known = checked(NodeCheck::joining(Timestamp::from_millis(1000)));
        known.check.on_settings(true);
        assert!(known.check.ejection().is_some());
        assert_eq!(known.turns(&[true]), [Some(CheckTurn::Passed)]);
        known.turns(&[false, false, false]);
        known.check.on_settings(false);
        assert!(known.check.ejection().is_none());
    }

    #[test]
    fn checks_come_at_their_interval_and_not_in_step() {
        let waits: Vec<_> = (0..20)
            .scan(checked(NodeCheck::default()), |node, _| {
                Some(node.next(true).0)
            })
            .collect();
        assert!(waits[0] <= 2000);
        assert!(waits[1..].iter().all(|it| (1800..=2000).contains(it)));
        let mut different = waits.clone();
        different.sort_unstable();
        different.dedup();
        assert!(different.len() > 10, "{waits:?}");
    }

    #[test]
    fn one_check_at_a_time_and_a_lost_one_is_asked_again() {
        let mut node = checked(NodeCheck::default());
        node.next(true);
        node.now = node.now + Duration::from_secs(2);
        assert!(node.poll());
        let first = node.now.nanos();
        assert!(node.check.awaits(first));
        node.now = node.now + Duration::from_secs(30);
        assert!(!node.poll());
        node.now = node.now + Duration::from_secs(1);
        assert!(node.poll());
        assert!(!node.check.awaits(first), "its answer comes too late");
        assert!(node.check.awaits(node.now.nanos()));
        node.end(false);
        assert!(!node.check.awaits(node.now.nanos()));
    }

    #[test]
    fn what_could_not_be_asked_says_nothing() {
        let mut node = checked(NodeCheck::default());
        node.next(true);
        node.turns(&[false, false]);
        for _ in 0..5 {
            node.now = node.now + Duration::from_secs(2);
            assert!(node.poll());
            node.check.on_unsent(&config(), node.now, &mut node.prng);
        }
        assert!(node.check.ejection().is_none());
        assert_eq!(node.turns(&[false]), [Some(CheckTurn::Failed)]);
    }
}
