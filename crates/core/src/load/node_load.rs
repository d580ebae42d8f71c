//! What is known of one node's load, and how it lies in the table's words.

use std::time::Duration;

use super::rates::capacity;
use super::{Rates, Rung};
use crate::ids::CheckSet;
use crate::record::{LoadRecord, Sources};
use crate::time::{Timestamp, nanos};

/// A record older than this is unknown, whatever its node's interval.
const FRESHNESS_MIN: Duration = Duration::from_millis(250);
/// Or older than this many publication intervals.
const FRESHNESS_INTERVALS: u32 = 4;
/// But never this: no node is asked that seldom, and an interval is only what a node claims.
const FRESHNESS_MAX: Duration = Duration::from_secs(60);

/// Window of ULM in KLM-2005, whose update interval is 50 ms.
pub(super) const WINDOW_ULM: Duration = Duration::from_millis(50);
/// Shortest window that each way of counting CPU time can bear (facts: at 10 ms, every task
/// switch is exact to 2 %, scheduler accounting to 6 %; the tick needs 100 ms).
pub(super) const WINDOW_EXACT: Duration = Duration::from_millis(10);
pub(super) const WINDOW_TICK: Duration = Duration::from_millis(100);

/// What service checks on a node have shown, as its agent says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Services {
    /// Those that there are.
    pub checked: CheckSet,
    /// Those of them that fail.
    pub failing: CheckSet,
}

/// A node's load as its reader last saw it. A number that is not known is NaN, never zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeLoad {
    /// When the record was made, on the front-end's clock.
    pub observed_at: Timestamp,
    /// CPUs that the node can use.
    pub capacity: f32,
    /// Run-queue length.
    pub runnable: f32,
    /// Mean run-queue length over the shortest window that the source of CPU time bears.
    pub run_queue: f32,
    /// Mean length of the accept queues over the same window; zero if they are not looked at.
    pub accept_queue: f32,
    /// Used share of the capacity over that window.
    pub utilization: f32,
    /// The same over the 50 ms of KLM-2005.
    pub utilization_ulm: f32,
    /// Requests in flight at the node, those of all front-ends.
    pub in_flight: f32,
    /// Mean time that a request spends at the node, seconds.
    pub request_time: f32,
    /// The part of it in which a request did not wait for a CPU, seconds.
    pub base_time: f32,
    /// Requests completed per second.
    pub completions: f32,
    /// Used share of the memory.
    pub memory: f32,
    /// Used share of the file descriptors.
    pub files: f32,
    /// Bytes received and sent per second.
    pub network: f32,
    /// CPUs with soft interrupts pending.
    pub softirqs: f32,
    /// Service checks; none if the record says nothing of them.
    pub services: Option<Services>,
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
        run_queue: f32::NAN,
        accept_queue: 0.0,
        utilization: f32::NAN,
        utilization_ulm: f32::NAN,
        in_flight: f32::NAN,
        request_time: f32::NAN,
        base_time: f32::NAN,
        completions: f32::NAN,
        memory: f32::NAN,
        files: f32::NAN,
        network: f32::NAN,
        softirqs: f32::NAN,
        services: None,
        one_way: 0.0,
        rung: Rung::None,
        interval: Duration::ZERO,
        unseen_from: OwnTraffic {
            dispatched: 0,
            completed: 0,
        },
    };

    /// What a record tells by itself; `rates` gives what happened over a window up to it. When
    /// it was observed, how far away, and own traffic are the reader's to know: unknown here.
    pub fn of_record(record: &LoadRecord, rates: impl Fn(Duration) -> Option<Rates>) -> Self {
        let has = |source| record.sources.has(source);
        let spanned = |window| rates(window).filter(|rates: &Rates| rates.window * 2 >= window);
        let utilization =
            |window| spanned(window).map_or(f32::NAN, |rates| rates.utilization as f32);
        let exact = has(Sources::BUSY_SWITCH) || has(Sources::BUSY_ACCT);
        let fast = if exact { WINDOW_EXACT } else { WINDOW_TICK };
        let busy = record.sources.has_busy();
        let recent = spanned(fast);
        let mean = |source, of: fn(&Rates) -> f64| {
            let recent = recent.as_ref().filter(|_| has(source));
            recent.map_or(f32::NAN, |rates| of(rates) as f32)
        };
        let known = |known: bool, value: f32| if known { value } else { f32::NAN };
        let seconds = |time: Option<Duration>| time.map_or(f32::NAN, |time| time.as_secs_f32());
        // Without these it is not known how long requests waited for CPUs.
        let waits = busy && has(Sources::RUNNABLE_INTEGRAL) && has(Sources::IN_FLIGHT);
        let requests = has(Sources::COMPLETIONS)
            .then(|| rates(WINDOW_TICK))
            .flatten();
        Self {
            capacity: capacity(record),
            runnable: known(has(Sources::RUNNABLE), record.runnable as f32),
            run_queue: mean(Sources::RUNNABLE_INTEGRAL, |rates| rates.runnable),
            accept_queue: match has(Sources::ACCEPT_INTEGRAL) {
                true => mean(Sources::ACCEPT_INTEGRAL, |rates| rates.accept_queue),
                false => 0.0,
            },
            network: mean(Sources::NETWORK, |rates| rates.network_bytes),
            utilization: known(busy, utilization(fast)),
            utilization_ulm: known(busy, utilization(WINDOW_ULM.max(fast))),
            in_flight: known(has(Sources::IN_FLIGHT), record.in_flight as f32),
            request_time: seconds(requests.and_then(|rates| rates.request_time)),
            base_time: seconds(requests.filter(|_| waits).and_then(|rates| rates.base_time)),
            completions: requests.map_or(f32::NAN, |rates| rates.completions as f32),
            memory: known(has(Sources::MEMORY), used_memory(record)),
            files: known(
                has(Sources::FILES) || has(Sources::PROCESS_FILES),
                used_files(record),
            ),
            softirqs: known(has(Sources::SOFTIRQ), record.softirqs_pending as f32),
            services: has(Sources::SERVICES).then(|| services(record)),
            rung: Rung::from_number(record.rung),
            interval: Duration::from_nanos(record.interval_ns),
            ..Self::UNKNOWN
        }
    }

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

    /// The part that `auto` compares.
    pub fn brief(&self) -> LoadBrief {
        let known = self.observed_at != Timestamp::ZERO;
        let bound = self.observed_at + self.freshness() + Duration::from_nanos(1);
        LoadBrief {
            observed_at: self.observed_at,
            fresh_before: if known { bound } else { Timestamp::ZERO },
            runnable: self.runnable,
            in_flight: self.in_flight,
            unseen_from: self.unseen_from,
        }
    }
}

/// The part of a [`NodeLoad`] that `auto` compares: one cache line of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadBrief {
    /// When the record was made, on the front-end's clock.
    pub observed_at: Timestamp,
    /// When it ceases to be fresh; zero if there is none.
    pub fresh_before: Timestamp,
    /// Run-queue length.
    pub runnable: f32,
    /// Requests in flight at the node, those of all front-ends.
    pub in_flight: f32,
    /// Own traffic that the record has seen: what came after is unseen.
    pub unseen_from: OwnTraffic,
}

impl LoadBrief {
    /// Nothing known.
    pub const UNKNOWN: Self = Self {
        observed_at: Timestamp::ZERO,
        fresh_before: Timestamp::ZERO,
        runnable: f32::NAN,
        in_flight: f32::NAN,
        unseen_from: OwnTraffic {
            dispatched: 0,
            completed: 0,
        },
    };

    /// Whether there is a record and it is young enough to be believed at `now`.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        now < self.fresh_before
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

    /// The counters at `when`, if they grew evenly between two moments at which they are known.
    pub fn between(from: (Timestamp, Self), to: (Timestamp, Self), when: Timestamp) -> Self {
        let between = nanos(to.0.since(from.0));
        let passed = nanos(when.since(from.0)).min(between);
        if between == 0 {
            return to.1;
        }
        let share = passed as f64 / between as f64;
        let part = |from: u64, to: u64| from + (to.saturating_sub(from) as f64 * share) as u64;
        Self {
            dispatched: part(from.1.dispatched, to.1.dispatched),
            completed: part(from.1.completed, to.1.completed),
        }
    }

    /// Requests in flight. Counters are read one after the other, so never below zero.
    pub const fn in_flight(self) -> u64 {
        self.dispatched.saturating_sub(self.completed)
    }
}

fn services(record: &LoadRecord) -> Services {
    let checked = CheckSet::from_bits(record.services_checked.into());
    Services {
        checked,
        failing: checked.without(CheckSet::from_bits(record.services)),
    }
}

fn used_memory(record: &LoadRecord) -> f32 {
    1.0 - share(record.memory_available, record.memory_total)
}

/// The fuller of the system's table and the watched process nearest to its limit: the limit
/// of the process is what servers run into (a system's own limit is hardly ever reached).
fn used_files(record: &LoadRecord) -> f32 {
    let system = share(record.files_open, record.files_max);
    let process = share(
        record.process_files_open.into(),
        record.process_files_max.into(),
    );
    // `max` takes the other one where one is NaN.
    system.max(process)
}

/// The part of the whole, at most 1; NaN without a whole, which was not measured.
fn share(part: u64, whole: u64) -> f32 {
    if whole == 0 {
        return f32::NAN;
    }
    (part as f64 / whole as f64).min(1.0) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_fails_that_is_checked_and_does_not_pass() {
        let said = LoadRecord {
            sources: Sources::SERVICES,
            services: 0b1001,
            services_checked: 0b11,
            ..LoadRecord::default()
        };
        let services = |record: &LoadRecord| NodeLoad::of_record(record, |_| None).services;
        let known = services(&said).unwrap();
        let places = |set: CheckSet| set.iter().map(|it| it.0).collect::<Vec<_>>();
        assert_eq!(places(known.checked), [0, 1]);
        assert_eq!(places(known.failing), [1]);
        // A writer from before the field says of none that there is one.
        let old = LoadRecord {
            services_checked: 0,
            ..said
        };
        assert!(services(&old).unwrap().failing.is_empty());
        let silent = LoadRecord {
            sources: Sources::NONE,
            ..said
        };
        assert_eq!(services(&silent), None);
    }

    #[test]
    fn the_fuller_of_system_and_process_is_the_share_of_files() {
        let full = LoadRecord {
            sources: Sources::FILES.with(Sources::PROCESS_FILES),
            files_open: 1000,
            files_max: 1_000_000,
            process_files_open: 900,
            process_files_max: 1000,
            ..LoadRecord::default()
        };
        assert_eq!(used_files(&full), 0.9);
        let limits_unknown = LoadRecord {
            files_max: 0,
            process_files_max: 0,
            ..full
        };
        assert!(used_files(&limits_unknown).is_nan(), "unknown, not empty");
    }
}
