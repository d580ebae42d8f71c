//! Checks of one node, as its site wants them: when the next is due, and whether the node is out by them. A site has
//! several where its nodes need several services; each has its own interval and its own row of results, and a node is
//! out while any of them fails.
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
//! Source: HAProxy's `rise` and `fall`; a new node's first check from Envoy; several services from SLBL-ARPN §5, which
//! watches web, file and name services of a server.

use std::time::Duration;

use crate::prng::Prng;
use crate::time::Timestamp;
use crate::topology::{Cause, CheckConfig, CheckId, CheckSet, Ejection, NodeId};

/// A check whose result never comes is made again so long after its time-out.
const CHECK_LOST: Duration = Duration::from_secs(30);
/// By which part an interval is shortened at most.
const JITTER: f64 = 0.1;

/// A check to make. Its number sets it apart from those of nodes that had the place or the address before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckDue {
    /// The node.
    pub node: NodeId,
    /// Which of its site's checks.
    pub check: CheckId,
    /// The check's own.
    pub number: u64,
}

/// What is remembered of all checks of one node.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeChecks {
    /// By [`CheckId`].
    each: Vec<NodeCheck>,
}

impl NodeChecks {
    /// Of a node that has requests until a check says otherwise.
    pub(super) fn new(configs: &[CheckConfig]) -> Self {
        Self {
            each: vec![NodeCheck::default(); configs.len()],
        }
    }

    /// Of a node that joins others, and is out until it has passed all of them.
    pub(super) fn joining(configs: &[CheckConfig], now: Timestamp) -> Self {
        Self {
            each: vec![NodeCheck::joining(now); configs.len()],
        }
    }

    /// How long one has failed, for the next process.
    pub(super) fn failing_for(&self, now: Timestamp) -> Option<Duration> {
        self.failing_since().map(|since| now.since(since))
    }

    /// It fails since then. Which check did is not known any more: all are made at once, and each has to pass.
    pub(super) fn recall(&mut self, since: Timestamp, now: Timestamp) {
        for check in &mut self.each {
            check.recall(since, now);
        }
    }

    /// The site is checked in other ways. A check goes on as the one before of its label, or else of its place.
    pub(super) fn on_settings(&mut self, before: &[CheckConfig], after: &[CheckConfig]) {
        let is_new = |label: &str| before.iter().all(|it| it.label != label);
        let is_gone = |label: &str| after.iter().all(|it| it.label != label);
        let kept = after.iter().enumerate().map(|(place, config)| {
            let same = before.iter().position(|it| it.label == config.label);
            let at_place = before.get(place).filter(|it| is_gone(&it.label));
            let renamed = at_place.filter(|_| is_new(&config.label)).map(|_| place);
            let Some(place) = same.or(renamed) else {
                return NodeCheck::default();
            };
            let mut check = self.each.get(place).copied().unwrap_or_default();
            match before.get(place) == Some(config) {
                true => check.asked = None,
                false => check.on_settings(),
            }
            check
        });
        self.each = kept.collect();
    }

    /// A check that is due, and is then under way by this number.
    pub(super) fn poll(
        &mut self,
        number: u64,
        configs: &[CheckConfig],
        now: Timestamp,
        prng: &mut Prng,
    ) -> Option<CheckId> {
        let mut checks = self.each.iter_mut().zip(configs);
        let due = checks.position(|(check, config)| check.poll(number, config, now, prng));
        due.map(|place| CheckId(place as u8))
    }

    /// The check of this number, if it is under way.
    pub(super) fn awaited(&mut self, due: CheckDue) -> Option<&mut NodeCheck> {
        let check = self.each.get_mut(due.check.index());
        check.filter(|it| it.awaits(due.number))
    }

    /// Those that have it out.
    pub(super) fn failing(&self) -> CheckSet {
        let failing = (self.each.iter().enumerate()).filter(|(_, it)| it.failing.is_some());
        failing.fold(CheckSet::default(), |set, (place, _)| {
            set.with(CheckId(place as u8))
        })
    }

    fn failing_since(&self) -> Option<Timestamp> {
        self.each.iter().filter_map(|it| it.failing).min()
    }

    /// Since when it is out, and until when it stays so at least.
    pub(super) fn ejection(&self) -> Option<Ejection> {
        let since = self.failing_since()?;
        let failing = self.each.iter().filter(|it| it.failing.is_some());
        let until = failing.map(|it| it.due.unwrap_or(since)).max();
        Some(Ejection {
            cause: Cause::Check,
            since,
            until: until.unwrap_or(since),
        })
    }
}

/// What is remembered of one check of one node: the director has them of all nodes, and an agent of its own services.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeCheck {
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
pub enum CheckTurn {
    /// It fails from now on.
    Failed,
    /// It passes.
    Passed,
}

impl NodeCheck {
    /// Of a node that joins others, and is out until it has passed.
    fn joining(now: Timestamp) -> Self {
        Self {
            failing: Some(now),
            due: Some(now),
            ..Self::default()
        }
    }

    /// It fails since then, and is checked at once.
    fn recall(&mut self, since: Timestamp, now: Timestamp) {
        *self = Self {
            judged: true,
            ..Self::joining(now)
        };
        self.failing = Some(since);
    }

    /// It asks in another way from now on.
    fn on_settings(&mut self) {
        *self = Self {
            failing: self.failing,
            ..Self::default()
        };
    }

    /// Whether a check is due; it is then under way, by this number.
    fn poll(&mut self, number: u64, config: &CheckConfig, now: Timestamp, prng: &mut Prng) -> bool {
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
    fn awaits(&self, number: u64) -> bool {
        self.asked.is_some_and(|asked| asked.number == number)
    }

    /// A check has ended. How the node turned by it, if it did.
    pub fn on_result(
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
    pub fn on_unsent(&mut self, config: &CheckConfig, now: Timestamp, prng: &mut Prng) {
        self.end(config, now, prng);
    }

    /// When it is to be made again; nothing if it never was.
    pub fn due(&self) -> Option<Timestamp> {
        self.due
    }

    /// Whether it passes; nothing before its first result.
    pub fn passes(&self) -> Option<bool> {
        self.judged.then_some(self.failing.is_none())
    }

    fn end(&mut self, config: &CheckConfig, now: Timestamp, prng: &mut Prng) {
        self.asked = None;
        self.due = Some(now + config.interval.mul_f64(1.0 - JITTER * prng.unit()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{BytesCheck, CheckRequest};

    fn config() -> CheckConfig {
        CheckConfig {
            label: "tcp".into(),
            request: CheckRequest::Tcp(BytesCheck::NOTHING),
            port: None,
            tls: false,
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
        assert!(node.check.failing.is_some());
        assert_eq!(
            node.turns(&[true, false, true, true]),
            [None, None, None, passed]
        );
        assert!(node.check.failing.is_none());
    }

    #[test]
    fn the_first_result_is_believed() {
        let mut fresh = checked(NodeCheck::default());
        assert_eq!(fresh.turns(&[false]), [Some(CheckTurn::Failed)]);
        let mut joining = checked(NodeCheck::joining(Timestamp::from_millis(1000)));
        assert!(joining.check.failing.is_some());
        assert_eq!(joining.next(true), (0, Some(CheckTurn::Passed)), "at once");
        // What was known under other settings stands until the first result.
        let mut known = checked(NodeCheck::joining(Timestamp::from_millis(1000)));
        known.check.on_settings();
        assert!(known.check.failing.is_some());
        assert_eq!(known.turns(&[true]), [Some(CheckTurn::Passed)]);
    }

    #[test]
    fn checks_are_known_by_their_labels_when_settings_change() {
        let now = Timestamp::from_millis(1000);
        let labelled = |label: &str| CheckConfig {
            label: label.into(),
            ..config()
        };
        let slower = |config: CheckConfig| CheckConfig {
            timeout: Duration::from_secs(9),
            ..config
        };
        let before = ["a", "b", "c"].map(labelled);
        // Which of three checks fails, and which fail under other settings.
        let failing = |failing: usize, after: &[CheckConfig]| {
            let mut node = NodeChecks::new(&before);
            node.each[failing].recall(now, now);
            node.on_settings(&before, after);
            assert_eq!(node.each.len(), after.len());
            let fails = |place: &u8| node.failing().has(CheckId(*place));
            (0..3).filter(fails).collect::<Vec<_>>()
        };
        let [a, b, c] = before.clone();
        assert_eq!(failing(0, &[c.clone(), b.clone(), a.clone()]), [2]);
        assert_eq!(failing(1, &[a.clone(), slower(b.clone()), c.clone()]), [1]);
        // Renamed, and the place of one that has moved.
        assert_eq!(failing(1, &[a.clone(), labelled("d"), c]), [1]);
        assert_eq!(failing(1, &[b.clone(), labelled("d")]), [0]);
        // Gone.
        assert_eq!(failing(2, &[a, b]), []);
        assert_eq!(failing(0, &[]), []);
    }

    #[test]
    fn what_is_under_way_counts_no_more_when_settings_change() {
        let (now, mut prng) = (Timestamp::from_millis(9000), Prng::new(1));
        let configs = [config()];
        let mut node = NodeChecks::joining(&configs, now);
        let due = |number| CheckDue {
            node: NodeId(0),
            check: CheckId(0),
            number,
        };
        let check = node.poll(7, &configs, now, &mut prng);
        assert_eq!(check, Some(CheckId(0)));
        assert!(node.awaited(due(7)).is_some() && node.awaited(due(6)).is_none());
        node.on_settings(&configs, &configs);
        assert!(node.awaited(due(7)).is_none());
        let again = node.poll(8, &configs, now, &mut prng);
        assert_eq!(again, Some(CheckId(0)), "it is asked at once");
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
        assert!(node.check.failing.is_none());
        assert_eq!(node.turns(&[false]), [Some(CheckTurn::Failed)]);
    }
}
