//! What is known of one node's load, and how it lies in the table's words.

use std::time::Duration;

use super::Rung;
use crate::time::Timestamp;

/// A record older than this is unknown, whatever its node's interval.
const FRESHNESS_MIN: Duration = Duration::from_millis(250);
/// Or older than this many publication intervals.
const FRESHNESS_INTERVALS: u32 = 4;
/// But never this: no node is asked that seldom, and an interval is only what a node claims.
const FRESHNESS_MAX: Duration = Duration::from_secs(60);

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

    /// Requests in flight. Counters are read one after the other, so never below zero.
    pub const fn in_flight(self) -> u64 {
        self.dispatched.saturating_sub(self.completed)
    }
}
