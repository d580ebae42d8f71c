//! How one node lies in the table: four cache lines of plain atomics.
//!
//! | line | written by | read by |
//! |---|---|---|
//! | load, what `auto` compares; nodes at rest | the node's one reader; shells, now and then | pickers, director, admin |
//! | own traffic and terms | pickers (counters), director (terms) | pickers, director |
//! | load, the rest | the node's one reader | other policies, director, admin |
//! | outcomes, reports in responses | pickers | director, `auto` where records are old |
//!
//! Both lines of the load are under one sequence lock. A comparison by `auto` touches the first
//! two lines, which lie side by side.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

use super::table::{LoadReport, RestKind, STREAK_MAX};
use super::{LoadBrief, NodeLoad, NodeTerms, OwnTraffic, Rung, Services};
use crate::ids::CheckSet;
use crate::request::Rank;
use crate::time::{Timestamp, nanos};

/// Tries of a read that meets a writer; a write takes some nanoseconds.
const READ_TRIES: usize = 4;

/// A float that threads share. Whole by itself, in no order with others.
#[derive(Debug, Default)]
struct AtomicF32(AtomicU32);

impl AtomicF32 {
    #[inline]
    fn load(&self) -> f32 {
        f32::from_bits(self.0.load(Ordering::Relaxed))
    }

    fn store(&self, value: f32) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }
}

/// The first two lines are a pair that one prefetch brings.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(super) struct Slot {
    brief: Brief,
    pub(super) own: Own,
    rest: Rest,
    pub(super) ended: OutcomeCounters,
}

#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Brief {
    /// Odd while the reader writes.
    sequence: AtomicU64,
    observed_at: AtomicU64,
    fresh_before: AtomicU64,
    dispatched: AtomicU64,
    completed: AtomicU64,
    runnable: AtomicF32,
    in_flight: AtomicF32,
    /// Of no record: here is room, and they change seldom.
    rests: Rests,
    /// Nothing `auto` compares, but the other line is full. See [`services_word`].
    services: AtomicU32,
}

/// Own requests in flight that take none of the node's time.
#[derive(Debug, Default)]
struct Rests {
    answered: AtomicU32,
    unanswered: AtomicU32,
    /// Whether those that are not answered are believed to rest.
    believed: AtomicU32,
}

#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Own {
    pub(super) dispatched: AtomicU64,
    pub(super) completed: AtomicU64,
    factor: AtomicF32,
    penalty: AtomicF32,
    arrival_inflation: AtomicF32,
    inflight_inflation: AtomicF32,
    prior_runnable: AtomicF32,
    prior_in_flight: AtomicF32,
    per_core: AtomicF32,
    /// Most own requests in flight, by rank, as whole numbers: a line has no room for more.
    limits: [AtomicU16; Rank::COUNT],
    /// Its group's number, from 1; 0: it is in none. And [`HAS_MOST`].
    pub(super) group: AtomicU32,
}

#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Rest {
    interval_ns: AtomicU64,
    rung: AtomicU32,
    capacity: AtomicF32,
    run_queue: AtomicF32,
    accept_queue: AtomicF32,
    network: AtomicF32,
    utilization: AtomicF32,
    utilization_ulm: AtomicF32,
    softirqs: AtomicF32,
    request_time: AtomicF32,
    base_time: AtomicF32,
    completions: AtomicF32,
    memory: AtomicF32,
    files: AtomicF32,
    one_way: AtomicF32,
}

#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct OutcomeCounters {
    pub(super) successes: AtomicU64,
    pub(super) failures: AtomicU64,
    /// Requests in a row without a whole answer, and in the upper half connections in a row
    /// that could not be made.
    pub(super) streaks: AtomicU32,
    /// Heads of answers, to see whether anything comes back.
    pub(super) heads: AtomicU32,
    pub(super) sum_ln: AtomicU64,
    pub(super) sum_ln_squared: AtomicU64,
    pub(super) sum_nanos: AtomicU64,
    reported_at: AtomicU64,
    /// Requests in flight as reported, and own ones among them as counted then.
    reported: AtomicU64,
}

/// In [`Own::limits`]; and so is whatever would be more.
const NO_LIMIT: u16 = u16::MAX;

/// In [`Own::group`]: the node has a bound of its own.
pub(super) const HAS_MOST: u32 = 1 << 31;

/// Four lines, none of them split.
const _: () = assert!(size_of::<Slot>() == 4 * 64);

impl Slot {
    pub(super) fn unknown() -> Self {
        let slot = Self::default();
        slot.store(&NodeLoad::UNKNOWN);
        slot.own.set_terms(&NodeTerms::default());
        slot.own.set_limits([f32::INFINITY; Rank::COUNT]);
        slot
    }

    /// Another node has the place, of which nothing is known. What was counted stays.
    pub(super) fn clear(&self) {
        self.store(&NodeLoad::UNKNOWN);
        self.own.set_terms(&NodeTerms::default());
        self.own.group.store(0, Ordering::Relaxed);
        self.ended.streaks.store(0, Ordering::Relaxed);
        self.ended.reported_at.store(0, Ordering::Relaxed);
        self.believe_unanswered(false);
    }

    pub(super) fn store(&self, load: &NodeLoad) {
        let sequence = &self.brief.sequence;
        // Odd already: another writer is at work, as may be for a moment where a reload has a node read otherwise. The numbers
        // may be mixed then, until the next store.
        let writing = sequence.load(Ordering::Relaxed) | 1;
        sequence.store(writing, Ordering::Relaxed);
        fence(Ordering::Release);
        self.brief.store(&load.brief());
        let services = services_word(load.services);
        self.brief.services.store(services, Ordering::Relaxed);
        self.rest.store(load);
        sequence.store(writing.wrapping_add(1), Ordering::Release);
    }

    pub(super) fn load(&self) -> NodeLoad {
        let load = || {
            let services = self.brief.services.load(Ordering::Relaxed);
            NodeLoad {
                services: services_of(services),
                ..self.rest.load(&self.brief.load())
            }
        };
        let mut tries = (0..READ_TRIES).filter_map(|_| self.try_read(load));
        tries.next().unwrap_or(NodeLoad::UNKNOWN)
    }

    /// What `auto` compares, unless a writer is at work.
    #[inline]
    pub(super) fn try_brief(&self) -> Option<LoadBrief> {
        self.try_read(|| self.brief.load())
    }

    /// Own requests at work: in flight, but for those that rest.
    #[inline]
    pub(super) fn at_work(&self) -> u64 {
        self.own
            .traffic()
            .in_flight()
            .saturating_sub(self.resting())
    }

    /// Own requests that rest, as far as it is believed.
    #[inline]
    pub(super) fn resting(&self) -> u64 {
        let rests = &self.brief.rests;
        let answered = rests.answered.load(Ordering::Relaxed);
        let unanswered = match rests.believed.load(Ordering::Relaxed) {
            0 => 0,
            _ => rests.unanswered.load(Ordering::Relaxed),
        };
        u64::from(answered) + u64::from(unanswered)
    }

    /// The count of those that rest for this reason.
    pub(super) fn rests(&self, rest: RestKind) -> &AtomicU32 {
        match rest {
            RestKind::Answered => &self.brief.rests.answered,
            RestKind::Unanswered => &self.brief.rests.unanswered,
        }
    }

    pub(super) fn believe_unanswered(&self, believed: bool) {
        let word = &self.brief.rests.believed;
        word.store(believed.into(), Ordering::Relaxed);
    }

    pub(super) fn brief(&self) -> LoadBrief {
        let mut tries = (0..READ_TRIES).filter_map(|_| self.try_brief());
        tries.next().unwrap_or(LoadBrief::UNKNOWN)
    }

    /// What `load` gives, unless a writer is at work.
    #[inline]
    fn try_read<T>(&self, load: impl Fn() -> T) -> Option<T> {
        let sequence = &self.brief.sequence;
        let before = sequence.load(Ordering::Acquire);
        let loaded = load();
        fence(Ordering::Acquire);
        let whole = before.is_multiple_of(2) && sequence.load(Ordering::Relaxed) == before;
        whole.then_some(loaded)
    }
}

/// Whether anything is said of service checks.
const SERVICES_KNOWN: u32 = 1 << 16;

/// Service checks as a word: the sets a byte each.
fn services_word(services: Option<Services>) -> u32 {
    let word = |it: Services| {
        SERVICES_KNOWN | u32::from(it.checked.bits()) << 8 | u32::from(it.failing.bits())
    };
    services.map_or(0, word)
}

fn services_of(word: u32) -> Option<Services> {
    (word & SERVICES_KNOWN != 0).then(|| Services {
        checked: CheckSet::from_bits((word >> 8).into()),
        failing: CheckSet::from_bits(word.into()),
    })
}

impl Brief {
    fn store(&self, load: &LoadBrief) {
        let put = |word: &AtomicU64, value: u64| word.store(value, Ordering::Relaxed);
        put(&self.observed_at, load.observed_at.nanos());
        put(&self.fresh_before, load.fresh_before.nanos());
        put(&self.dispatched, load.unseen_from.dispatched);
        put(&self.completed, load.unseen_from.completed);
        self.runnable.store(load.runnable);
        self.in_flight.store(load.in_flight);
    }

    #[inline]
    fn load(&self) -> LoadBrief {
        let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
        LoadBrief {
            observed_at: Timestamp::from_nanos(get(&self.observed_at)),
            fresh_before: Timestamp::from_nanos(get(&self.fresh_before)),
            runnable: self.runnable.load(),
            in_flight: self.in_flight.load(),
            unseen_from: OwnTraffic {
                dispatched: get(&self.dispatched),
                completed: get(&self.completed),
            },
        }
    }
}

impl Rest {
    fn store(&self, load: &NodeLoad) {
        self.interval_ns
            .store(nanos(load.interval), Ordering::Relaxed);
        self.rung.store(load.rung as u32, Ordering::Relaxed);
        self.capacity.store(load.capacity);
        self.run_queue.store(load.run_queue);
        self.accept_queue.store(load.accept_queue);
        self.network.store(load.network);
        self.utilization.store(load.utilization);
        self.utilization_ulm.store(load.utilization_ulm);
        self.softirqs.store(load.softirqs);
        self.request_time.store(load.request_time);
        self.base_time.store(load.base_time);
        self.completions.store(load.completions);
        self.memory.store(load.memory);
        self.files.store(load.files);
        self.one_way.store(load.one_way);
    }

    fn load(&self, brief: &LoadBrief) -> NodeLoad {
        NodeLoad {
            observed_at: brief.observed_at,
            capacity: self.capacity.load(),
            runnable: brief.runnable,
            run_queue: self.run_queue.load(),
            accept_queue: self.accept_queue.load(),
            network: self.network.load(),
            utilization: self.utilization.load(),
            utilization_ulm: self.utilization_ulm.load(),
            in_flight: brief.in_flight,
            request_time: self.request_time.load(),
            base_time: self.base_time.load(),
            completions: self.completions.load(),
            memory: self.memory.load(),
            files: self.files.load(),
            softirqs: self.softirqs.load(),
            services: None,
            one_way: self.one_way.load(),
            rung: Rung::from_number(self.rung.load(Ordering::Relaxed) as u8),
            interval: Duration::from_nanos(self.interval_ns.load(Ordering::Relaxed)),
            unseen_from: brief.unseen_from,
        }
    }
}

impl OutcomeCounters {
    /// Requests in a row without a whole answer, and connections in a row that could not be made.
    pub(super) fn streaks(&self) -> (u32, u32) {
        let streaks = self.streaks.load(Ordering::Relaxed);
        (streaks & STREAK_MAX, streaks >> 16)
    }

    /// Changes both streaks at once. Neither grows beyond what its half holds.
    pub(super) fn lengthen(&self, by: impl Fn(u32, u32) -> (u32, u32)) {
        let longer = |streaks: u32| {
            let (streak, unreachable) = by(streaks & STREAK_MAX, streaks >> 16);
            Some(streak.min(STREAK_MAX) | (unreachable.min(STREAK_MAX) << 16))
        };
        // It always gives a value, so it always succeeds.
        let order = Ordering::Relaxed;
        self.streaks.fetch_update(order, order, longer).ok();
    }

    /// Two words, each whole by itself: where two reports come at once, what is read may be the
    /// time of one and the numbers of the other, which are as new.
    pub(super) fn set_report(&self, report: &LoadReport) {
        let numbers = (u64::from(report.in_flight.to_bits()) << 32) | u64::from(report.own);
        self.reported.store(numbers, Ordering::Relaxed);
        self.reported_at.store(report.at.nanos(), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn report(&self) -> Option<LoadReport> {
        let at = Timestamp::from_nanos(self.reported_at.load(Ordering::Relaxed));
        let numbers = self.reported.load(Ordering::Relaxed);
        (at != Timestamp::ZERO).then(|| LoadReport {
            at,
            in_flight: f32::from_bits((numbers >> 32) as u32),
            own: numbers as u32,
        })
    }
}

impl Own {
    #[inline]
    pub(super) fn traffic(&self) -> OwnTraffic {
        // Completed first: a request that ends in between is counted in flight, never negative.
        let completed = self.completed.load(Ordering::Acquire);
        OwnTraffic {
            dispatched: self.dispatched.load(Ordering::Acquire),
            completed,
        }
    }

    /// Each number is whole by itself; a picker may see those of two ticks, which differ by a
    /// millisecond's worth of learning.
    pub(super) fn set_terms(&self, terms: &NodeTerms) {
        self.factor.store(terms.factor);
        self.penalty.store(terms.penalty);
        self.arrival_inflation.store(terms.arrival_inflation);
        self.inflight_inflation.store(terms.inflight_inflation);
        self.prior_runnable.store(terms.prior_runnable);
        self.prior_in_flight.store(terms.prior_in_flight);
        self.per_core.store(terms.per_core);
    }

    /// Its group's number; the node's own bound stays.
    pub(super) fn set_group(&self, number: u32) {
        let has_most = self.group.load(Ordering::Relaxed) & HAS_MOST;
        self.group.store(number | has_most, Ordering::Relaxed);
    }

    pub(super) fn set_limits(&self, limits: [f32; Rank::COUNT]) {
        for (word, limit) in self.limits.iter().zip(limits) {
            word.store(limit.ceil() as u16, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn limit(&self, rank: Rank) -> f32 {
        match self.limits[rank.index()].load(Ordering::Relaxed) {
            NO_LIMIT => f32::INFINITY,
            limit => f32::from(limit),
        }
    }

    #[inline]
    pub(super) fn terms(&self) -> NodeTerms {
        NodeTerms {
            factor: self.factor.load(),
            penalty: self.penalty.load(),
            arrival_inflation: self.arrival_inflation.load(),
            inflight_inflation: self.inflight_inflation.load(),
            prior_runnable: self.prior_runnable.load(),
            prior_in_flight: self.prior_in_flight.load(),
            per_core: self.per_core.load(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_read_again_after_two_writers_have_met() {
        let slot = Slot::unknown();
        let load = NodeLoad {
            utilization: 0.5,
            ..NodeLoad::UNKNOWN
        };
        slot.store(&load);
        // The other one has begun.
        let sequence = &slot.brief.sequence;
        sequence.store(sequence.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        assert!(slot.try_brief().is_none());
        slot.store(&load);
        assert_eq!(slot.load().utilization, 0.5);
    }
}
