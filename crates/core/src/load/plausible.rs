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
pub(super) struct LastRecord {
    pub(super) point: Point,
    cores_milli: u32,
    received_at: Timestamp,
    /// How old it may have been when it came.
    age: Duration,
}

impl LastRecord {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_believed_up_to_each_bound_and_no_further() {
        type Say = fn(&mut LoadRecord, u64);
        // `NR_CPUS`, `PID_MAX_LIMIT`, four pebibytes.
        let (cpus, tasks, memory) = (8192, 4_194_304, 4_503_599_627_370_496);
        let requests = 16_777_216;
        let cases: [(Say, u64, Implausible); 9] = [
            (
                |it, to| it.cores_milli = to as u32,
                1000 * cpus,
                Implausible::Cpus,
            ),
            (
                |it, to| it.softirqs_pending = to as u32,
                cpus,
                Implausible::Cpus,
            ),
            (|it, to| it.runnable = to as u32, tasks, Implausible::Tasks),
            (
                |it, to| it.uninterruptible = to as u32,
                tasks,
                Implausible::Tasks,
            ),
            (|it, to| it.tasks = to as u32, tasks, Implausible::Tasks),
            (
                |it, to| it.in_flight = to as u32,
                requests,
                Implausible::Requests,
            ),
            (
                |it, to| it.accept_queue = to as u32,
                requests,
                Implausible::Requests,
            ),
            (|it, to| it.memory_total = to, memory, Implausible::Memory),
            (
                |it, to| it.memory_available = to,
                memory,
                Implausible::Memory,
            ),
        ];
        for (number, (say, most, why)) in cases.into_iter().enumerate() {
            let mut record = LoadRecord::default();
            say(&mut record, most);
            assert_eq!(check(&record), Ok(()), "case {number}");
            say(&mut record, most + 1);
            assert_eq!(check(&record), Err(why), "case {number}");
        }
    }

    /// A record of a node with one CPU at this time of its clock, received at that of ours, ms.
    fn seen(
        record: LoadRecord,
        t_ns: u64,
        received_ms: u64,
        node_now_ns: Option<u64>,
    ) -> LastRecord {
        let record = LoadRecord {
            t_ns,
            cores_milli: 1000,
            ..record
        };
        LastRecord::of(&Reading {
            record: &record,
            sent_at: Timestamp::from_millis(received_ms - 2),
            received_at: Timestamp::from_millis(received_ms),
            node_now_ns,
        })
    }

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_clock_advances_by_what_may_have_passed_and_no_further() {
        // How long the earlier record had stood when it came, as the node says, and as it counts.
        let minute = 60 * SECOND;
        for (stood, counts) in [
            (Some(0), 0),
            (Some(7 * SECOND), 7 * SECOND),
            (Some(minute), minute),
            (Some(minute + 1), minute),
            (None, minute),
        ] {
            let begun = 100 * SECOND;
            let node_now_ns = stood.map(|stood| begun + stood);
            let earlier = seen(LoadRecord::default(), begun, 1000, node_now_ns);
            let follows = |t_ns| seen(LoadRecord::default(), t_ns, 1800, None).follows(&earlier);
            // 800 ms and an eighth of them, its age, 2 ms on the way, and 50 ms.
            let most = begun + 900_000_000 + counts + 2_000_000 + 50_000_000;
            assert_eq!(follows(begun), Ok(()));
            assert_eq!(follows(most), Ok(()), "{stood:?}");
            assert_eq!(follows(most + 1), Err(Implausible::Clock), "{stood:?}");
            assert_eq!(follows(begun - 1), Err(Implausible::Clock));
        }
    }

    #[test]
    fn counters_grow_by_what_can_be_done_and_no_further() {
        type Say = fn(&mut LoadRecord, u64);
        let cases: [(Say, u64); 7] = [
            (|it, by| it.busy_ns += by, BUSY_MAX * SECOND),
            (|it, by| it.runnable_ns += by, u64::from(TASKS_MAX) * SECOND),
            (
                |it, by| it.in_flight_ns += by,
                u64::from(REQUESTS_MAX) * SECOND,
            ),
            (
                |it, by| it.accept_queue_ns += by,
                u64::from(REQUESTS_MAX) * SECOND,
            ),
            (|it, by| it.completions += by, COMPLETIONS_MAX),
            (|it, by| it.received_bytes += by, NETWORK_MAX),
            (|it, by| it.sent_bytes += by, NETWORK_MAX),
        ];
        for (number, (say, most)) in cases.into_iter().enumerate() {
            let follows = |by: u64| {
                let mut record = LoadRecord::default();
                say(&mut record, 5);
                let earlier = seen(record, 100 * SECOND, 1000, None);
                say(&mut record, by);
                seen(record, 101 * SECOND, 2000, None).follows(&earlier)
            };
            // In the second that has passed and the one that counters may be late.
            assert_eq!(follows(2 * most), Ok(()), "case {number}");
            let more = follows(2 * most + 1);
            assert_eq!(more, Err(Implausible::Rates), "case {number}");
        }
    }

    #[test]
    fn cpu_time_grows_by_as_many_cpus_as_are_known() {
        for (cores_milli, cpus) in [(0, CPUS_MAX), (1, 1), (1000, 1), (1001, 2), (8000, 8)] {
            let of = |cores_milli, busy_ns, seconds: u64| {
                LastRecord::of(&Reading {
                    record: &LoadRecord {
                        t_ns: seconds * SECOND,
                        cores_milli,
                        busy_ns,
                        ..LoadRecord::default()
                    },
                    sent_at: Timestamp::from_millis(1000 * seconds),
                    received_at: Timestamp::from_millis(1000 * seconds),
                    node_now_ns: None,
                })
            };
            let most = 2 * BUSY_MAX * u64::from(cpus) * SECOND;
            // Whichever of the two records says more of them.
            for (before, after) in [(0, cores_milli), (cores_milli, 0)] {
                let follows = |busy_ns| of(after, busy_ns, 11).follows(&of(before, 0, 10));
                assert_eq!(follows(most), Ok(()), "{cores_milli}");
                let more = follows(most + 1);
                assert_eq!(more, Err(Implausible::Rates), "{cores_milli}");
            }
        }
    }
}
