//! One slot per node that readers, pickers and the director share without a lock.
//!
//! | line of the slot | written by | read by |
//! |---|---|---|
//! | load, under a sequence lock | the node's one reader | pickers, director, admin |
//! | own traffic and terms | pickers (counters), director (terms) | pickers, director |
//! | outcomes | pickers | director |
//!
//! All is plain atomics: nobody waits for anybody. A picker that meets a writer at work reads
//! again, and after [`READ_TRIES`] takes the node as unknown for this one decision.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use super::Rung;
use crate::time::{Timestamp, nanos};
use crate::topology::{NodeId, SiteId};

/// Tries of a read that meets a writer; a write takes some nanoseconds.
const READ_TRIES: usize = 4;
const LOAD_WORDS: usize = 9;
/// A record older than this is unknown, whatever its node's interval.
const FRESHNESS_MIN: Duration = Duration::from_millis(250);
/// Or older than this many publication intervals.
const FRESHNESS_INTERVALS: u32 = 4;
/// But never this: no node is asked that seldom, and an interval is only what a node claims.
const FRESHNESS_MAX: Duration = Duration::from_secs(60);
/// Fixed point of the logarithms in [`Outcomes`].
const LN_SCALE: f64 = 65_536.0;

/// A node's load as its reader last saw it. A number that is not known is NaN, never zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeLoad {
    /// When the record was made, on the front-end's clock.
    pub observed_at: Timestamp,
    /// CPUs that the node can use.
    pub capacity: f32,
    /// Run-queue length.
    pub runnable: f32,
    /// Used share of the capacity over the shortest window that the source bears.
    pub utilization: f32,
    /// The same over the 50 ms of paper 000.
    pub utilization_ulm: f32,
    /// Requests in flight at the node, those of all front-ends.
    pub in_flight: f32,
    /// Mean time that a request spends at the node, seconds.
    pub request_time: f32,
    /// Used share of the memory.
    pub memory: f32,
    /// Used share of the file descriptors.
    pub files: f32,
    /// CPUs with soft interrupts pending.
    pub softirqs: f32,
    /// One-way delay between node and front-end, seconds.
    pub one_way: f32,
    /// How it was read.
    pub rung: Rung,
    /// The node's publication interval; zero if the record is made at the read.
    pub interval: Duration,
    /// Own traffic that the record has seen: what came after is unseen.
    pub unseen_from: OwnTraffic,
}

impl NodeLoad {
    /// Nothing known.
    pub const UNKNOWN: Self = Self {
        observed_at: Timestamp::ZERO,
        capacity: f32::NAN,
        runnable: f32::NAN,
        utilization: f32::NAN,
        utilization_ulm: f32::NAN,
        in_flight: f32::NAN,
        request_time: f32::NAN,
        memory: f32::NAN,
        files: f32::NAN,
        softirqs: f32::NAN,
        one_way: 0.0,
        rung: Rung::None,
        interval: Duration::ZERO,
        unseen_from: OwnTraffic {
            dispatched: 0,
            completed: 0,
        },
    };

    /// The age beyond which this load is unknown.
    pub fn freshness(&self) -> Duration {
        let claimed = self.interval.saturating_mul(FRESHNESS_INTERVALS);
        claimed.clamp(FRESHNESS_MIN, FRESHNESS_MAX)
    }

    /// Whether there is a record and it is young enough to be believed at `now`.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        let known = self.observed_at != Timestamp::ZERO;
        known && now.since(self.observed_at) <= self.freshness()
    }

    fn words(&self) -> [u64; LOAD_WORDS] {
        // Interval in microseconds: 53 bits hold 285 years.
        let interval = nanos(self.interval) / 1000;
        [
            self.observed_at.nanos(),
            pair(self.capacity, self.runnable),
            pair(self.utilization, self.utilization_ulm),
            pair(self.in_flight, self.request_time),
            pair(self.memory, self.files),
            pair(self.softirqs, self.one_way),
            (interval << 8) | self.rung as u64,
            self.unseen_from.dispatched,
            self.unseen_from.completed,
        ]
    }

    fn from_words(words: [u64; LOAD_WORDS]) -> Self {
        let (capacity, runnable) = unpair(words[1]);
        let (utilization, utilization_ulm) = unpair(words[2]);
        let (in_flight, request_time) = unpair(words[3]);
        let (memory, files) = unpair(words[4]);
        let (softirqs, one_way) = unpair(words[5]);
        Self {
            observed_at: Timestamp::from_nanos(words[0]),
            capacity,
            runnable,
            utilization,
            utilization_ulm,
            in_flight,
            request_time,
            memory,
            files,
            softirqs,
            one_way,
            rung: Rung::from_number(words[6] as u8),
            interval: Duration::from_micros(words[6] >> 8),
            unseen_from: OwnTraffic {
                dispatched: words[7],
                completed: words[8],
            },
        }
    }
}

/// Own requests to one node, as counters: in flight is their difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnTraffic {
    /// Requests sent to the node.
    pub dispatched: u64,
    /// Requests that ended, whichever way: answered, failed or cancelled.
    pub completed: u64,
}

impl OwnTraffic {
    /// Own requests in flight that came after `seen`, less those that ended after it; negative
    /// if more ended.
    pub const fn unseen_since(self, seen: Self) -> i64 {
        let dispatched = self.dispatched.wrapping_sub(seen.dispatched) as i64;
        let completed = self.completed.wrapping_sub(seen.completed) as i64;
        dispatched.wrapping_sub(completed)
    }

    /// Requests in flight. Counters are read one after the other, so never below zero.
    pub const fn in_flight(self) -> u64 {
        self.dispatched.saturating_sub(self.completed)
    }
}

/// How own requests to one node ended, as counters: two readings give any window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcomes {
    /// Requests answered without a server error.
    pub successes: u64,
    /// Requests that failed: no connection, no answer, or a server error.
    pub failures: u64,
    /// Failures of the connection or of its time-outs since the last answer of any kind.
    pub streak: u64,
    /// Sum of ln(y / 1 ns), with y = latency / slowdown expected at dispatch; successes only.
    pub sum_ln: f64,
    /// Sum of the squares of the same.
    pub sum_ln_squared: f64,
    /// Sum of y, seconds.
    pub sum_seconds: f64,
}

/// What the director works out for one node and every picker uses; see `policy::auto`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeTerms {
    /// `rel * (1 + 50 e^3)`: learned relative cost of a request here, errors included.
    pub factor: f32,
    /// Added to the score: large while most answers are errors.
    pub penalty: f32,
    /// What one own dispatch says about all front-ends' dispatches.
    pub g: f32,
    /// What one own request in flight says about all front-ends'.
    pub h: f32,
    /// Expected run queue without a record and without own requests.
    pub prior_runnable: f32,
    /// Expected requests in flight without a record and without own requests.
    pub prior_in_flight: f32,
    /// Capacity to assume where there is no record.
    pub capacity: f32,
}

impl Default for NodeTerms {
    fn default() -> Self {
        Self {
            factor: 1.0,
            penalty: 0.0,
            g: 1.0,
            h: 1.0,
            prior_runnable: 0.0,
            prior_in_flight: 0.0,
            capacity: 1.0,
        }
    }
}

/// What the director works out for a whole site.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SiteTerms {
    /// Nodes that a decision compares.
    pub draws: u32,
    /// How fast a record loses its worth: 1 / (2 * mean service time), per second.
    pub decay: f32,
}

impl Default for SiteTerms {
    fn default() -> Self {
        // Until a first response a record is taken to be worth 20 ms.
        Self {
            draws: 5,
            decay: 50.0,
        }
    }
}

#[derive(Debug)]
#[repr(align(64))]
struct Load {
    sequence: AtomicU64,
    words: [AtomicU64; LOAD_WORDS],
}

#[derive(Debug)]
#[repr(align(64))]
struct Own {
    dispatched: AtomicU64,
    completed: AtomicU64,
    terms: [AtomicU64; 4],
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Ended {
    successes: AtomicU64,
    failures: AtomicU64,
    streak: AtomicU64,
    sum_ln: AtomicU64,
    sum_ln_squared: AtomicU64,
    sum_nanos: AtomicU64,
}

#[derive(Debug)]
struct Slot {
    load: Load,
    own: Own,
    ended: Ended,
}

/// The table: a slot per node, some words per site.
#[derive(Debug)]
pub struct LoadTable {
    nodes: Box<[Slot]>,
    sites: Box<[AtomicU64]>,
}

impl LoadTable {
    /// A table for nodes `0..nodes` and sites `0..sites`, all unknown.
    pub fn new(nodes: usize, sites: usize) -> Self {
        let table = Self {
            nodes: (0..nodes).map(|_| Slot::unknown()).collect(),
            sites: (0..sites).map(|_| AtomicU64::new(0)).collect(),
        };
        for node in 0..nodes {
            table.set_terms(NodeId(node as u32), &NodeTerms::default());
        }
        for site in 0..sites {
            table.set_site_terms(SiteId(site as u32), SiteTerms::default());
        }
        table
    }

    /// How many nodes the table holds.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Publishes what the node's reader learned. One writer per node.
    pub fn store(&self, node: NodeId, load: &NodeLoad) {
        let slot = &self.slot(node).load;
        let sequence = slot.sequence.load(Ordering::Relaxed);
        slot.sequence
            .store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, value) in slot.words.iter().zip(load.words()) {
            word.store(value, Ordering::Relaxed);
        }
        slot.sequence
            .store(sequence.wrapping_add(2), Ordering::Release);
    }

    /// The last load read from the node, however old; unknown if there never was one.
    pub fn last(&self, node: NodeId) -> NodeLoad {
        let slot = &self.slot(node).load;
        for _ in 0..READ_TRIES {
            let before = slot.sequence.load(Ordering::Acquire);
            let mut words = [0; LOAD_WORDS];
            for (value, word) in words.iter_mut().zip(&slot.words) {
                *value = word.load(Ordering::Relaxed);
            }
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && slot.sequence.load(Ordering::Relaxed) == before {
                return NodeLoad::from_words(words);
            }
        }
        NodeLoad::UNKNOWN
    }

    /// The node's load if it is fresh at `now`; a stale one is unknown, never idle.
    pub fn fresh(&self, node: NodeId, now: Timestamp) -> Option<NodeLoad> {
        let load = self.last(node);
        load.is_fresh(now).then_some(load)
    }

    /// Own traffic to the node.
    pub fn own(&self, node: NodeId) -> OwnTraffic {
        let own = &self.slot(node).own;
        // Completed first: a request that ends in between is counted in flight, never negative.
        let completed = own.completed.load(Ordering::Acquire);
        OwnTraffic {
            dispatched: own.dispatched.load(Ordering::Acquire),
            completed,
        }
    }

    /// Own requests in flight at the node.
    pub fn in_flight(&self, node: NodeId) -> u64 {
        self.own(node).in_flight()
    }

    /// Counts a request on its way to the node.
    pub(crate) fn dispatch(&self, node: NodeId) {
        self.slot(node)
            .own
            .dispatched
            .fetch_add(1, Ordering::AcqRel);
    }

    /// Counts a request as ended.
    pub(crate) fn complete(&self, node: NodeId) {
        self.slot(node).own.completed.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts an answer without a server error that took `latency` where a slowdown of
    /// `slowdown` was expected.
    pub(crate) fn succeeded(&self, node: NodeId, latency: Duration, slowdown: f32) {
        let ended = &self.slot(node).ended;
        let service = (latency.as_nanos() as f64 / f64::from(slowdown)).max(1.0);
        let ln = service.ln();
        ended.successes.fetch_add(1, Ordering::Relaxed);
        ended.streak.store(0, Ordering::Relaxed);
        ended
            .sum_ln
            .fetch_add((ln * LN_SCALE) as u64, Ordering::Relaxed);
        ended
            .sum_ln_squared
            .fetch_add((ln * ln * LN_SCALE) as u64, Ordering::Relaxed);
        ended.sum_nanos.fetch_add(service as u64, Ordering::Relaxed);
    }

    /// Counts a failure; `answered` if the node did answer, with a server error.
    pub(crate) fn failed(&self, node: NodeId, answered: bool) {
        let ended = &self.slot(node).ended;
        ended.failures.fetch_add(1, Ordering::Relaxed);
        if answered {
            ended.streak.store(0, Ordering::Relaxed);
        } else {
            ended.streak.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How own requests to the node ended so far.
    pub fn outcomes(&self, node: NodeId) -> Outcomes {
        let ended = &self.slot(node).ended;
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        Outcomes {
            successes: read(&ended.successes),
            failures: read(&ended.failures),
            streak: read(&ended.streak),
            sum_ln: read(&ended.sum_ln) as f64 / LN_SCALE,
            sum_ln_squared: read(&ended.sum_ln_squared) as f64 / LN_SCALE,
            sum_seconds: read(&ended.sum_nanos) as f64 * 1e-9,
        }
    }

    /// Publishes the director's terms of a node. Each word is whole by itself; a picker may
    /// see words of two ticks, which differ by a millisecond's worth of learning.
    pub fn set_terms(&self, node: NodeId, terms: &NodeTerms) {
        let words = [
            pair(terms.factor, terms.penalty),
            pair(terms.g, terms.h),
            pair(terms.prior_runnable, terms.prior_in_flight),
            pair(terms.capacity, 0.0),
        ];
        for (word, value) in self.slot(node).own.terms.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// The director's terms of a node.
    pub fn terms(&self, node: NodeId) -> NodeTerms {
        let words = &self.slot(node).own.terms;
        let read = |index: usize| unpair(words[index].load(Ordering::Relaxed));
        let ((factor, penalty), (g, h), (prior_runnable, prior_in_flight), (capacity, _)) =
            (read(0), read(1), read(2), read(3));
        NodeTerms {
            factor,
            penalty,
            g,
            h,
            prior_runnable,
            prior_in_flight,
            capacity,
        }
    }

    /// Publishes the director's terms of a site.
    pub fn set_site_terms(&self, site: SiteId, terms: SiteTerms) {
        let word = (u64::from(terms.draws) << 32) | u64::from(terms.decay.to_bits());
        self.sites[site.index()].store(word, Ordering::Relaxed);
    }

    /// The director's terms of a site.
    pub fn site_terms(&self, site: SiteId) -> SiteTerms {
        let word = self.sites[site.index()].load(Ordering::Relaxed);
        SiteTerms {
            draws: (word >> 32) as u32,
            decay: f32::from_bits(word as u32),
        }
    }

    fn slot(&self, node: NodeId) -> &Slot {
        &self.nodes[node.index()]
    }
}

impl Slot {
    fn unknown() -> Self {
        Self {
            load: Load {
                sequence: AtomicU64::new(0),
                words: NodeLoad::UNKNOWN.words().map(AtomicU64::new),
            },
            own: Own {
                dispatched: AtomicU64::new(0),
                completed: AtomicU64::new(0),
                terms: Default::default(),
            },
            ended: Ended::default(),
        }
    }
}

fn pair(first: f32, second: f32) -> u64 {
    (u64::from(first.to_bits()) << 32) | u64::from(second.to_bits())
}

fn unpair(word: u64) -> (f32, f32) {
    (
        f32::from_bits((word >> 32) as u32),
        f32::from_bits(word as u32),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(0);

    fn load(value: f32) -> NodeLoad {
        NodeLoad {
            observed_at: Timestamp::from_millis(1000),
            capacity: value,
            runnable: value,
            utilization: value,
            utilization_ulm: value,
            in_flight: value,
            request_time: value,
            memory: value,
            files: value,
            softirqs: value,
            one_way: value,
            rung: Rung::Tc,
            interval: Duration::from_millis(1),
            unseen_from: OwnTraffic {
                dispatched: 7,
                completed: 5,
            },
        }
    }

    #[test]
    fn what_is_stored_is_read() {
        let table = LoadTable::new(1, 1);
        table.store(NODE, &load(0.5));
        assert_eq!(table.last(NODE), load(0.5));
    }

    #[test]
    fn never_read_and_stale_are_unknown() {
        let table = LoadTable::new(1, 1);
        assert_eq!(table.fresh(NODE, Timestamp::from_millis(1)), None);
        table.store(NODE, &load(0.0));
        assert!(table.fresh(NODE, Timestamp::from_millis(1250)).is_some());
        assert_eq!(table.fresh(NODE, Timestamp::from_millis(1251)), None);
        // A slow publisher is given four of its intervals.
        table.store(
            NODE,
            &NodeLoad {
                interval: Duration::from_secs(1),
                ..load(0.0)
            },
        );
        assert!(table.fresh(NODE, Timestamp::from_millis(5000)).is_some());
        // But not for as long as it likes.
        table.store(
            NODE,
            &NodeLoad {
                interval: Duration::MAX,
                ..load(0.0)
            },
        );
        assert_eq!(table.fresh(NODE, Timestamp::from_millis(62_000)), None);
    }

    #[test]
    fn a_reader_never_sees_half_of_a_write() {
        let table = LoadTable::new(1, 1);
        table.store(NODE, &load(0.0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..50_000u32 {
                    table.store(NODE, &load((round % 1000) as f32));
                }
            });
            for _ in 0..50_000 {
                let seen = table.last(NODE);
                if seen.observed_at != Timestamp::ZERO {
                    assert_eq!(seen, load(seen.capacity));
                }
            }
        });
    }

    #[test]
    fn terms_come_back() {
        let table = LoadTable::new(1, 1);
        let terms = NodeTerms {
            factor: 2.0,
            penalty: 1000.0,
            capacity: 4.0,
            ..NodeTerms::default()
        };
        table.set_terms(NODE, &terms);
        assert_eq!(table.terms(NODE), terms);
        let site = SiteTerms {
            draws: 10,
            decay: 12.5,
        };
        table.set_site_terms(SiteId(0), site);
        assert_eq!(table.site_terms(SiteId(0)), site);
    }
}
