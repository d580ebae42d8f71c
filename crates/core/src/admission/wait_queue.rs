//! Where requests wait for room: bounded, by priority, with deadlines; first come first served in a
//! burst, newest first when it stands. How long and in which order is the mode's to say
//! ([`WaitRules`]); as `adaptive` has it:
//!
//! ```text
//! deadline   a request that has waited 0.6 SLO is refused, or sooner if no more than twice the time
//!            that others are at the servers is left of the SLO, but not before a tenth of it
//! standing   the head has been older than 0.2 SLO for max(SLO, 100 ms), until it is empty:
//!            newest first, deadline 0.15 SLO
//! order      the highest priority (0) first; within a priority established sessions first, and then as above
//! bound      what is set; while it stands, no more than can still be served: drain * deadline + 1
//! drain      requests per second that leave it for a server, while it stands and just before
//! full       the oldest of the lowest priority makes room for one that is not lower
//! ```
//!
//! Why: in a burst the oldest has waited longest and still makes it, so order is fair and none is
//! refused. When arrivals exceed what is served for good, a queue in order makes all wait
//! for nearly as long as they may, and every answer comes late; the newest first come at once,
//! and the others are refused early. A queue whose deadline is the SLO itself delivers nothing: what it
//! hands out has no time left to be served (study: 0 % against 100 %). One that stands and takes in
//! all has nearly all of them wait in vain, and each of those costs the front-end a request's
//! work; while it is full, stage 0 need not even read them.
//!
//! Inputs: arrivals, a clock, an SLO. What it does not know: nodes, limits.
//!
//! Failure case: an SLO below the service time; then nothing that waited is answered in time.
//!
//! Source: adaptive LIFO and CoDel as used for queues of requests (FailAtScale-2015); constants of the
//! admission study, re-examined in the simulator.

use std::collections::VecDeque;
use std::time::Duration;

use super::ewma::Ewma;
use super::{Priority, Rank};
use crate::time::Timestamp;

/// Longest wait in a burst, and while the queue stands, over the SLO.
const DEADLINE: f64 = 0.6;
const DEADLINE_STANDING: f64 = 0.15;
/// The head of a queue that stands is older than this, over the SLO.
const STANDING: f64 = 0.2;
/// What is left of the SLO for the servers, over the time that requests are there; and the shortest deadline.
const SOJOURNS: f64 = 2.0;
const DEADLINE_MIN: f64 = 0.1;
/// Shortest time after which it does.
const STANDING_MIN: Duration = Duration::from_millis(100);
/// Time constant of its drain, and how often that is taken, in seconds.
const DRAIN_TAU: f64 = 0.2;
const DRAIN_EACH: f64 = 0.05;

/// How long requests wait, and which goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitRules {
    /// One that has waited for so long is refused.
    pub deadline: Duration,
    /// Answers are wanted within this time, so that servers' time is left for.
    pub slo: Option<Duration>,
    /// What is different while the queue stands; nothing: it is first come first served for ever.
    pub standing: Option<Standing>,
}

/// When a queue stands, and what holds then. The newest go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its head is as old as this; zero: one waits, and it ends with the last one.
    pub head: Duration,
    /// And has been for so long.
    pub after: Duration,
    /// One that has waited for so long is refused.
    pub deadline: Duration,
    /// No more wait than can be served until then.
    pub bounded: bool,
}

impl WaitRules {
    /// Those of `adaptive`, for answers within `slo`.
    pub fn within(slo: Duration) -> Self {
        Self {
            deadline: slo.mul_f64(DEADLINE),
            slo: Some(slo),
            standing: Some(Standing {
                head: slo.mul_f64(STANDING),
                after: slo.max(STANDING_MIN),
                deadline: slo.mul_f64(DEADLINE_STANDING),
                bounded: true,
            }),
        }
    }
}

/// One that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting<T> {
    id: T,
    arrived: Timestamp,
}

/// See the module.
#[derive(Debug)]
pub struct WaitQueue<T> {
    /// By rank.
    lanes: [VecDeque<Waiting<T>>; Rank::COUNT],
    length: usize,
    most: usize,
    rules: WaitRules,
    /// How long a request is at the servers once it is let in.
    sojourn: Duration,
    /// Since when the head is old.
    old_since: Option<Timestamp>,
    standing: bool,
    drain: Drain,
}

/// How many leave for a server, per second.
#[derive(Debug)]
struct Drain {
    rate: Ewma,
    left: u32,
    since: Timestamp,
}

impl Drain {
    fn new(now: Timestamp) -> Self {
        Self {
            rate: Ewma::new(DRAIN_TAU),
            left: 0,
            since: now,
        }
    }

    fn look(&mut self, now: Timestamp) {
        let passed = now.seconds_since(self.since);
        if passed >= DRAIN_EACH {
            self.rate.add(f64::from(self.left) / passed, passed);
            self.left = 0;
            self.since = now;
        }
    }
}

impl<T: Copy + PartialEq> WaitQueue<T> {
    /// An empty queue for at most so many.
    pub fn new(most: usize, rules: WaitRules) -> Self {
        Self {
            lanes: Default::default(),
            length: 0,
            most,
            rules,
            sojourn: Duration::ZERO,
            old_since: None,
            standing: false,
            drain: Drain::new(Timestamp::ZERO),
        }
    }

    /// Takes another length and other rules from now on; those that wait stay.
    pub fn configure(&mut self, most: usize, rules: WaitRules) {
        self.most = most;
        self.rules = rules;
        self.rest();
    }

    /// Requests are at the servers for so long.
    pub fn set_sojourn(&mut self, sojourn: Duration) {
        self.sojourn = sojourn;
    }

    /// How many of a priority wait.
    pub fn waiting(&self, priority: Priority) -> usize {
        let of = |known| &self.lanes[Rank::of(priority.with_established(known)).index()];
        of(true).len() + of(false).len()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether it serves the newest first.
    pub fn is_standing(&self) -> bool {
        self.standing
    }

    /// Whether a request of this priority or a higher one waits, which a newcomer may not overtake.
    pub fn is_ahead_of(&self, priority: Priority) -> bool {
        self.lanes[..=Rank::of(priority).index()]
            .iter()
            .any(|waiting| !waiting.is_empty())
    }

    /// Whether a newcomer of the lowest priority would be refused.
    pub fn is_full(&self) -> bool {
        self.length >= self.most()
    }

    /// Whether it is full of those that are not below this priority: such a newcomer has room at the cost of
    /// its equals at best.
    pub fn is_closed_to(&self, priority: Priority) -> bool {
        let below = &self.lanes[Rank::of(priority).index() + 1..];
        self.is_full() && !self.is_empty() && below.iter().all(VecDeque::is_empty)
    }

    /// How many may wait now.
    fn most(&self) -> usize {
        match self.rules.standing {
            Some(rule) if self.standing && rule.bounded => {
                let served = self.drain.rate.value() * rule.deadline.as_secs_f64();
                self.most.min(served.ceil() as usize + 1)
            }
            Some(_) | None => self.most,
        }
    }

    /// Whether a newcomer is taken in, and which had to leave for it.
    pub fn push(&mut self, priority: Priority, id: T, now: Timestamp) -> Pushed<T> {
        let mut evicted = None;
        if self.is_full() {
            let lowest = self.lanes.iter().rposition(|it| !it.is_empty());
            match lowest {
                Some(lowest) if lowest >= Rank::of(priority).index() => {
                    evicted = self.lanes[lowest].pop_front().map(|it| it.id);
                    self.one_less();
                }
                _ => return Pushed::Refused,
            }
        }
        let waiting = Waiting { id, arrived: now };
        self.lanes[Rank::of(priority).index()].push_back(waiting);
        self.length += 1;
        evicted.map_or(Pushed::In, Pushed::InsteadOf)
    }

    /// One that has waited too long, of any priority; to be called until there is none, before
    /// anybody is served: a queue of the dead would refuse the living.
    pub fn expire(&mut self, now: Timestamp) -> Option<(Priority, T)> {
        self.look(now);
        let deadline = self.deadline();
        let late = |it: &Waiting<T>| now.since(it.arrived) >= deadline;
        let mut lanes = Rank::ALL.into_iter().zip(&mut self.lanes);
        let (rank, waiting) = lanes.find(|(_, waiting)| waiting.front().is_some_and(late))?;
        let late = waiting.pop_front().map(|it| (rank.priority(), it.id));
        self.one_less();
        late
    }

    /// When time alone changes something, if it does: one has waited too long, or it begins to
    /// stand. To be asked after [`WaitQueue::expire`].
    pub fn due(&self) -> Option<Timestamp> {
        let heads = self.lanes.iter().filter_map(|it| it.front());
        let oldest = heads.map(|it| it.arrived).min()?;
        let late = oldest + self.deadline();
        let stands = match self.rules.standing {
            Some(rule) if !self.standing => match self.old_since {
                Some(since) => since + rule.after,
                None => oldest + rule.head,
            },
            Some(_) | None => late,
        };
        Some(late.min(stands))
    }

    /// Whose turn it is. Callers expire first.
    pub fn pop(&mut self, now: Timestamp) -> Option<(Priority, T)> {
        self.look(now);
        let newest_first = self.standing;
        let (rank, waiting) = Rank::ALL
            .into_iter()
            .zip(&mut self.lanes)
            .find(|(_, waiting)| !waiting.is_empty())?;
        let next = match newest_first {
            true => waiting.pop_back(),
            false => waiting.pop_front(),
        };
        self.drain.left += 1;
        self.one_less();
        next.map(|it| (rank.priority(), it.id))
    }

    /// The rank whose turn it is, and when its oldest arrived, which goes next; none while the newest do.
    pub fn next_in_order(&self) -> Option<(Rank, Timestamp)> {
        if self.standing {
            return None;
        }
        let mut lanes = Rank::ALL.into_iter().zip(&self.lanes);
        lanes.find_map(|(rank, waiting)| Some((rank, waiting.front()?.arrived)))
    }

    /// The priority whose turn it is.
    pub fn next_priority(&self) -> Option<Priority> {
        let first = Rank::ALL
            .into_iter()
            .zip(&self.lanes)
            .find(|it| !it.1.is_empty());
        first.map(|(rank, _)| rank.priority())
    }

    /// One goes away by itself; false if it does not wait.
    pub fn remove(&mut self, id: T) -> bool {
        for waiting in &mut self.lanes {
            if let Some(place) = waiting.iter().position(|it| it.id == id) {
                waiting.remove(place);
                self.one_less();
                return true;
            }
        }
        false
    }

    fn deadline(&self) -> Duration {
        let deadline = match self.rules.standing {
            Some(rule) if self.standing => rule.deadline,
            Some(_) | None => self.rules.deadline,
        };
        let Some(slo) = self.rules.slo else {
            return deadline;
        };
        let left = slo.saturating_sub(self.sojourn.mul_f64(SOJOURNS));
        deadline.min(left.max(slo.mul_f64(DEADLINE_MIN)))
    }

    /// One is gone.
    fn one_less(&mut self) {
        self.length -= 1;
        let somebody_waits = |rule: Standing| rule.head.is_zero();
        if self.length == 0 && self.rules.standing.is_some_and(somebody_waits) {
            self.rest();
        }
    }

    /// It stands no more.
    fn rest(&mut self) {
        self.standing = false;
        self.old_since = None;
    }

    /// Whether it stands. The head's age tells, not whether one waits: a short queue that
    /// moves is what a queue is for.
    fn look(&mut self, now: Timestamp) {
        let heads = self.lanes.iter().filter_map(|it| it.front());
        let Some(oldest) = heads.map(|it| it.arrived).min() else {
            self.rest();
            return;
        };
        self.drain.look(now);
        let (Some(rule), false) = (self.rules.standing, self.standing) else {
            return;
        };
        if now.since(oldest) < rule.head {
            self.old_since = None;
            return;
        }
        if self.old_since.is_none() {
            self.drain = Drain::new(now);
        }
        let since = *self.old_since.get_or_insert(now);
        self.standing = now.since(since) >= rule.after;
    }
}

/// What became of a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed<T> {
    /// It waits.
    In,
    /// It waits, and this one was sent away for it.
    InsteadOf(T),
    /// There is no room for its priority.
    Refused,
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLO: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1000 + ms)
    }

    fn priority(index: u8) -> Priority {
        Priority::new(index).unwrap()
    }

    fn queue(most: usize) -> WaitQueue<u32> {
        WaitQueue::new(most, WaitRules::within(SLO))
    }

    fn drain(queue: &mut WaitQueue<u32>, now: Timestamp) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop(now).map(|it| it.1)).collect()
    }

    fn late(queue: &mut WaitQueue<u32>, ms: u64) -> Option<u32> {
        queue.expire(at(ms)).map(|it| it.1)
    }

    #[test]
    fn higher_priorities_first_and_within_a_priority_in_order() {
        let mut queue = queue(10);
        for (id, of) in [(1, 2), (2, 0), (3, 1), (4, 0), (5, 2)] {
            assert_eq!(queue.push(priority(of), id, at(u64::from(id))), Pushed::In);
        }
        assert!(queue.is_ahead_of(priority(0)));
        assert_eq!(queue.next_priority(), Some(priority(0)));
        assert_eq!(drain(&mut queue, at(6)), [2, 4, 3, 1, 5]);
        assert!(queue.is_empty());
    }

    #[test]
    fn established_sessions_go_first_within_their_priority_and_leave_last() {
        let known = |of| priority(of).with_established(true);
        let mut queue = queue(4);
        for (id, of) in [
            (1, priority(0)),
            (2, priority(1)),
            (3, known(1)),
            (4, known(0)),
        ] {
            assert_eq!(queue.push(of, id, at(0)), Pushed::In);
        }
        assert!(!queue.is_closed_to(known(0)));
        assert_eq!(queue.next_priority(), Some(known(0)));
        assert_eq!(queue.push(known(1), 5, at(1)), Pushed::InsteadOf(2));
        assert_eq!(queue.push(priority(1), 6, at(1)), Pushed::Refused);
        assert_eq!(queue.pop(at(2)), Some((known(0), 4)));
        assert!(queue.is_ahead_of(priority(1)) && !queue.is_ahead_of(known(0)));
        assert_eq!(drain(&mut queue, at(2)), [1, 3, 5]);
    }

    #[test]
    fn a_queue_is_closed_when_only_the_highest_priority_waits_in_it() {
        let mut queue = queue(2);
        queue.push(priority(0), 1, at(0));
        queue.push(priority(1), 2, at(0));
        assert!(queue.is_full() && !queue.is_closed_to(priority(0)));
        assert_eq!(queue.push(priority(0), 3, at(1)), Pushed::InsteadOf(2));
        assert!(queue.is_closed_to(priority(0)));
        assert!(
            !queue.is_closed_to(priority(0).with_established(true)),
            "it goes before new sessions"
        );
        queue.pop(at(2));
        assert!(!queue.is_closed_to(priority(0)));
    }

    #[test]
    fn who_waits_too_long_is_told_whatever_his_priority() {
        let mut queue = queue(10);
        queue.push(priority(0), 1, at(0));
        queue.push(priority(3), 2, at(0));
        queue.push(priority(0), 3, at(30));
        assert_eq!(queue.expire(at(59)), None);
        assert_eq!(late(&mut queue, 60), Some(1));
        assert_eq!(late(&mut queue, 60), Some(2));
        assert_eq!(queue.expire(at(60)), None);
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn a_full_queue_takes_higher_priorities_at_the_cost_of_the_lowest() {
        let mut queue = queue(2);
        queue.push(priority(2), 1, at(0));
        queue.push(priority(1), 2, at(1));
        assert_eq!(queue.push(priority(3), 3, at(2)), Pushed::Refused);
        assert_eq!(queue.push(priority(0), 4, at(3)), Pushed::InsteadOf(1));
        assert_eq!(queue.push(priority(1), 5, at(4)), Pushed::InsteadOf(2));
        assert_eq!(drain(&mut queue, at(5)), [4, 5]);
    }

    #[test]
    fn a_queue_that_stands_serves_the_newest_until_it_is_empty() {
        let mut queue = queue(1000);
        let mut id = 0;
        // Two come each millisecond and one is served, from the front.
        let mut served = Vec::new();
        for ms in 0..400 {
            for _ in 0..2 {
                id += 1;
                queue.push(priority(0), id, at(ms));
            }
            while queue.expire(at(ms)).is_some() {}
            served.extend(queue.pop(at(ms)).map(|it| it.1));
        }
        assert!(queue.is_standing());
        assert_eq!(served.last(), Some(&id), "the newest is served");
        assert!(queue.len() <= 30, "{} wait 15 ms at most", queue.len());
        drain(&mut queue, at(400));
        queue.push(priority(0), 9999, at(401));
        assert_eq!(queue.expire(at(401)), None);
        assert!(!queue.is_standing(), "a new burst is served in order");
    }

    #[test]
    fn a_queue_that_stands_takes_in_no_more_than_can_be_served_in_time() {
        let mut queue = queue(1000);
        // Ten come each millisecond and one is served: 15 in the 15 ms that they may wait.
        for ms in 0..1000 {
            for id in 0..10 {
                queue.push(priority(1), ms as u32 * 10 + id, at(ms));
            }
            while queue.expire(at(ms)).is_some() {}
            queue.pop(at(ms));
            if !queue.is_standing() {
                assert!(ms < 200);
            } else if ms > 300 {
                assert!((14..=17).contains(&queue.len()), "{} at {ms}", queue.len());
            }
        }
        while queue.push(priority(1), 1, at(1000)) == Pushed::In {}
        assert!(queue.is_closed_to(priority(1)) && !queue.is_closed_to(priority(0)));
        let high = queue.push(priority(0), 2, at(1000));
        assert!(matches!(high, Pushed::InsteadOf(_)), "{high:?}");
    }

    #[test]
    fn a_queue_that_stands_takes_in_more_when_servers_are_faster() {
        let mut queue = queue(1000);
        let fill = |queue: &mut WaitQueue<u32>, from: u64, to: u64, served: u32| {
            for ms in from..to {
                (0..20).for_each(|_| {
                    queue.push(priority(0), 0, at(ms));
                });
                while queue.expire(at(ms)).is_some() {}
                (0..served).for_each(|_| {
                    queue.pop(at(ms));
                });
            }
            queue.most()
        };
        assert_eq!(fill(&mut queue, 0, 1000, 1), 16);
        assert!(fill(&mut queue, 1000, 3000, 4) >= 60);
    }

    #[test]
    fn a_short_queue_that_moves_does_not_stand() {
        let mut queue = queue(1000);
        for ms in 0..1000 {
            queue.push(priority(0), ms as u32, at(ms));
            assert_eq!(queue.expire(at(ms)), None);
            if ms >= 15 {
                assert_eq!(queue.pop(at(ms)).map(|it| it.1), Some(ms as u32 - 15));
            }
        }
        assert!(!queue.is_standing());
    }

    #[test]
    fn it_tells_when_to_look_again() {
        let mut queue = queue(10);
        assert_eq!(queue.due(), None);
        queue.push(priority(1), 1, at(0));
        queue.push(priority(0), 2, at(10));
        assert_eq!(queue.due(), Some(at(20)), "its head is old then");
        assert_eq!(queue.expire(at(20)), None);
        assert_eq!(queue.due(), Some(at(60)), "the first has waited too long");
        // One that looks only then sees all that happens in between.
        let mut times = Vec::new();
        for id in 0..4 {
            queue.push(priority(1), 10 + id, at(20 + u64::from(id)));
        }
        while let Some(due) = queue.due() {
            let told = queue.expire(due).map(|it| it.1);
            times.extend(told.map(|id| (id, due)));
        }
        assert_eq!(times[0], (1, at(60)));
        assert_eq!(times[1], (2, at(70)));
        assert_eq!(times[5], (13, at(83)));
        assert!(queue.is_empty());
    }

    #[test]
    fn without_a_rule_for_standing_it_stays_in_order_for_ever() {
        let rules = WaitRules {
            deadline: SLO,
            slo: None,
            standing: None,
        };
        let mut queue = WaitQueue::new(1000, rules);
        for ms in 0..1000 {
            queue.push(priority(0), ms as u32, at(ms));
            while queue.expire(at(ms)).is_some() {}
            if ms >= 99 {
                assert_eq!(queue.next_priority(), Some(priority(0)));
                assert_eq!(queue.pop(at(ms)).map(|it| it.1), Some(ms as u32 - 99));
            }
        }
        assert!(!queue.is_standing());
    }

    #[test]
    fn a_queue_that_stands_whenever_somebody_waits_does_so_until_it_is_empty() {
        let rules = WaitRules {
            deadline: Duration::from_millis(100),
            slo: None,
            standing: Some(Standing {
                head: Duration::ZERO,
                after: Duration::from_millis(100),
                deadline: Duration::from_millis(5),
                bounded: false,
            }),
        };
        let mut queue = WaitQueue::new(1000, rules);
        let mut ms = 0;
        // Its head is new each time, and yet one has always waited.
        while ms < 110 {
            queue.push(priority(0), ms as u32, at(ms));
            while queue.expire(at(ms)).is_some() {}
            if queue.len() > 3 {
                queue.pop(at(ms));
            }
            ms += 1;
        }
        assert!(queue.is_standing());
        queue.push(priority(0), 1000, at(ms));
        assert_eq!(queue.pop(at(ms)), Some((priority(0), 1000)), "the newest");
        assert_eq!(late(&mut queue, ms + 5), Some(ms as u32 - 3), "after 5 ms");
        while queue.expire(at(ms + 5)).is_some() {}
        assert!(queue.is_empty() && !queue.is_standing());
    }

    #[test]
    fn whoever_leaves_is_forgotten() {
        let mut queue = queue(10);
        queue.push(priority(1), 7, at(0));
        assert!(queue.remove(7));
        assert!(!queue.remove(7));
        assert_eq!(queue.pop(at(1)), None);
    }
}
