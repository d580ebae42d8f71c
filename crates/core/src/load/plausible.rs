//! What a node can truly say of itself, so that nonsense goes no further than its record.
//!
//! ```text
//! one record:   CPUs, tasks, requests, memory within what a machine can have
//! two records:  clock advances <= (time passed here) * 9/8 + age of the earlier one + round trip + 50 ms
//!               counters grow  <= (advance + 1 s) * most per second
//! ```
//!
//! The bounds are those of Linux (8192 CPUs, 2^22 tasks, 52 bits of physical address) or lie far
//! above what is known of any machine: a record beyond them is a fault or a lie, never a large server.
//! Counters may fall; rates over them are unknown then, see [`Point::until`].
//!
//! Failure case: a lie within the bounds is believed. A refused record may be the truth, too (the
//! front-end's machine was asleep, or an earlier record was the lie), so `History` does not judge by its
//! last record for ever.

use std::fmt;
use std::time::Duration;

use super::history::Reading;
use super::rates::Point;
use crate::record::LoadRecord;
use crate::time::{Timestamp, nanos};

/// `NR_CPUS` is no larger on any architecture.
const CPUS_MAX: u32 = 8192;
/// `PID_MAX_LIMIT` of 64-bit Linux.
const TASKS_MAX: u32 = 1 << 22;
/// Connections and requests at once.
const REQUESTS_MAX: u32 = 1 << 24;
/// Physical addresses of x86-64 and arm64 have 52 bits.
const MEMORY_MAX: u64 = 1 << 52;
/// Completions per second.
const COMPLETIONS_MAX: u64 = 100_000_000;
/// Network bytes per second: eight terabits.
const NETWORK_MAX: u64 = 1_000_000_000_000;
/// CPU time per time and CPU: twice what can be, since time that is charged late comes at once.
const BUSY_MAX: u64 = 2;
/// Counters are brought up to date that late, at most.
const COUNTERS_LATE: Duration = Duration::from_secs(1);
/// A clock runs at most this part too fast against another.
const CLOCK_DRIFT: u32 = 8;
/// The rest: threads that wake late on both sides.
const CLOCK_SLACK: Duration = Duration::from_millis(50);
/// A record that has stood for longer counts as one that has stood so long.
const STANDING_MAX: Duration = Duration::from_secs(60);

/// Why a record is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implausible {
    /// Its clock has run ahead of the time that has passed here, or back.
    Clock,
    /// More CPUs than a machine has.
    Cpus,
    /// More tasks than a kernel runs.
    Tasks,
    /// More requests or connections at once than a machine holds.
    Requests,
    /// More memory than a machine has.
    Memory,
    /// Counters that grew faster than anything can.
    Rates,
}

impl fmt::Display for Implausible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clock => "its clock runs ahead of ours, or back",
            Self::Cpus => "more CPUs than a machine has",
            Self::Tasks => "more tasks than a kernel runs",
            Self::Requests => "more requests or connections than a machine holds",
            Self::Memory => "more memory than a machine has",
            Self::Rates => "counters that grow faster than anything can",
        })
    }
}

/// Whether a machine could say this, whatever it said before.
pub(super) fn check(record: &LoadRecord) -> Result<(), Implausible> {
    let within = |fits: bool, otherwise| if fits { Ok(()) } else { Err(otherwise) };
    within(record.cores_milli <= CPUS_MAX * 1000, Implausible::Cpus)?;
    within(record.softirqs_pending <= CPUS_MAX, Implausible::Cpus)?;
    let tasks = [record.runnable, record.uninterruptible, record.tasks];
    let most = tasks.into_iter().fold(0, u32::max);
    within(most <= TASKS_MAX, Implausible::Tasks)?;
    let requests = record.in_flight.max(record.accept_queue);
    within(requests <= REQUESTS_MAX, Implausible::Requests)?;
    let memory = record.memory_total.max(record.memory_available);
    within(memory <= MEMORY_MAX, Implausible::Memory)
}

/// A record as it came: what the next one is judged by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) point: Point,
    cores_milli: u32,
    received_at: Timestamp,
    /// How old it may have been when it came.
    age: Duration,
}

impl Seen {
    pub(super) fn of(reading: &Reading<'_>) -> Self {
        let record = reading.record;
        let standing = reading.node_now_ns.map_or(STANDING_MAX, |node_now| {
            Duration::from_nanos(node_now.saturating_sub(record.t_ns)).min(STANDING_MAX)
        });
        Self {
            point: Point::of(record),
            cores_milli: record.cores_milli,
            received_at: reading.received_at,
            age: standing + reading.received_at.since(reading.sent_at),
        }
    }

    /// Whether this may be a later record of the same life of the node as `earlier`.
    pub(super) fn follows(&self, earlier: &Self) -> Result<(), Implausible> {
        let passed = self.received_at.since(earlier.received_at);
        let allowed = passed + passed / CLOCK_DRIFT + earlier.age + CLOCK_SLACK;
        let advance_ns = match self.point.t_ns.checked_sub(earlier.point.t_ns) {
            Some(advance_ns) if advance_ns <= nanos(allowed) => advance_ns,
            _ => return Err(Implausible::Clock),
        };
        let cpus = match self.cores_milli.max(earlier.cores_milli) {
            0 => CPUS_MAX,
            milli => milli.div_ceil(1000),
        };
        let time_ns = u128::from(advance_ns) + COUNTERS_LATE.as_nanos();
        let (old, new) = (&earlier.point, &self.point);
        // By how much each grew, and the most per second of it.
        let second = 1_000_000_000;
        let grown = [
            (
                old.busy_ns,
                new.busy_ns,
                BUSY_MAX * u64::from(cpus) * second,
            ),
            (
                old.runnable_ns,
                new.runnable_ns,
                u64::from(TASKS_MAX) * second,
            ),
            (
                old.in_flight_ns,
                new.in_flight_ns,
                u64::from(REQUESTS_MAX) * second,
            ),
            (
                old.accept_queue_ns,
                new.accept_queue_ns,
                u64::from(REQUESTS_MAX) * second,
            ),
            (old.completions, new.completions, COMPLETIONS_MAX),
            (old.network_bytes, new.network_bytes, NETWORK_MAX),
        ];
        let possible = grown.iter().all(|(from, to, most)| {
            let grown = u128::from(to.saturating_sub(*from));
            grown * u128::from(second) <= time_ns * u128::from(*most)
        });
        if possible {
            Ok(())
        } else {
            Err(Implausible::Rates)
        }
    }
}
