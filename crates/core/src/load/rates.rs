//! Rates over the time between two records of one node.

use std::time::Duration;

use crate::record::LoadRecord;

/// What happened between two records, by the node's own clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Time between the two.
    pub window: Duration,
    /// Used share of the capacity, 0 to 1 (more if the scope burst past its quota).
    pub utilization: f64,
    /// Mean run-queue length, where the integral is kept.
    pub runnable: f64,
    /// Mean requests in flight, where the integral is kept.
    pub in_flight: f64,
    /// Mean time that a request spent at the node (Little's law), where requests completed.
    pub request_time: Option<Duration>,
    /// The part of it in which a request did not wait for a CPU: its own CPU time, and IO.
    pub base_time: Option<Duration>,
    /// Requests completed per second.
    pub completions: f64,
    /// Mean length of the accept queues, where the integral is kept.
    pub accept_queue: f64,
    /// Network bytes per second, both directions.
    pub network_bytes: f64,
}

impl Rates {
    /// The rates between two records, or nothing if they are of different generations, out of
    /// order, or a counter fell.
    pub fn between(older: &LoadRecord, newer: &LoadRecord) -> Option<Self> {
        if older.generation != newer.generation || newer.t_ns <= older.t_ns {
            return None;
        }
        Point::of(older).until(&Point::of(newer))
    }
}

/// What rates need of a record: one cache line, where the record has five. A reader keeps a
/// hundred of them per node, and with a thousand nodes none is in the cache when it is needed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Point {
    /// The node's clock.
    pub t_ns: u64,
    /// CPU time used.
    pub busy_ns: u64,
    /// Integral of the run-queue length.
    pub runnable_ns: u64,
    /// Integral of the requests in flight.
    pub in_flight_ns: u64,
    /// Requests completed.
    pub completions: u64,
    /// Integral of the accept-queue length.
    pub accept_queue_ns: u64,
    /// Bytes received and sent.
    pub network_bytes: u64,
    /// CPUs that the scope can use.
    pub capacity: f32,
}

impl Point {
    /// Of a record.
    pub fn of(record: &LoadRecord) -> Self {
        Self {
            t_ns: record.t_ns,
            busy_ns: record.busy_ns,
            runnable_ns: record.runnable_ns,
            in_flight_ns: record.in_flight_ns,
            completions: record.completions,
            accept_queue_ns: record.accept_queue_ns,
            network_bytes: record.received_bytes.saturating_add(record.sent_bytes),
            capacity: capacity(record),
        }
    }

    /// The rates from here to a later point of the same generation, or nothing if it is not
    /// later or a counter fell.
    #[inline]
    pub fn until(&self, newer: &Self) -> Option<Rates> {
        let window_ns = newer.t_ns.checked_sub(self.t_ns).filter(|ns| *ns > 0)?;
        let window = window_ns as f64;
        let grown = |from: u64, to: u64| to.checked_sub(from).map(|grown| grown as f64);
        let in_flight = grown(self.in_flight_ns, newer.in_flight_ns)?;
        let completed = grown(self.completions, newer.completions)?;
        let busy = grown(self.busy_ns, newer.busy_ns)?;
        let runnable = grown(self.runnable_ns, newer.runnable_ns)?;
        // A runnable task without a CPU waits for one. Requests wait as neighbours do, so
        // their part of it is their part of the run queue, of which IO leaves less.
        let waiting = (runnable - busy).max(0.0) * (in_flight / runnable.max(1.0)).min(1.0);
        let per_request = |nanos: f64| {
            (completed > 0.0).then(|| Duration::from_nanos((nanos / completed) as u64))
        };
        Some(Rates {
            window: Duration::from_nanos(window_ns),
            utilization: busy / window / f64::from(newer.capacity),
            runnable: runnable / window,
            in_flight: in_flight / window,
            request_time: per_request(in_flight),
            base_time: per_request((in_flight - waiting).max(0.0)),
            completions: completed / window * 1e9,
            accept_queue: grown(self.accept_queue_ns, newer.accept_queue_ns)? / window,
            network_bytes: grown(self.network_bytes, newer.network_bytes)? / window * 1e9,
        })
    }
}

/// CPUs that the scope can use: the smaller of its CPUs and its quota, one if unknown.
pub(super) fn capacity(record: &LoadRecord) -> f32 {
    let cores = if record.cores_milli == 0 {
        1000
    } else {
        record.cores_milli
    };
    let usable = match record.quota_milli {
        0 => cores,
        quota => cores.min(quota),
    };
    usable as f32 * 1e-3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64, busy_ms: u64) -> LoadRecord {
        LoadRecord {
            generation: 1,
            t_ns: ms * 1_000_000,
            busy_ns: busy_ms * 1_000_000,
            cores_milli: 2000,
            ..LoadRecord::default()
        }
    }

    #[test]
    fn any_two_records_give_the_rates_between() {
        let mut newer = at(60, 70);
        newer.completions = 10;
        newer.in_flight_ns = 200_000_000;
        let rates = Rates::between(&at(10, 20), &newer).unwrap();
        assert_eq!(rates.window, Duration::from_millis(50));
        assert_eq!(rates.utilization, 0.5);
        assert_eq!(rates.in_flight, 4.0);
        assert_eq!(rates.request_time, Some(Duration::from_millis(20)));
        assert_eq!(rates.completions, 200.0);
    }

    #[test]
    fn a_quota_below_the_cores_is_the_capacity() {
        let quota = LoadRecord {
            quota_milli: 500,
            ..at(60, 45)
        };
        assert_eq!(
            Rates::between(&at(10, 20), &quota).unwrap().utilization,
            1.0
        );
    }

    #[test]
    fn restarts_and_time_running_back_give_nothing() {
        let restarted = LoadRecord {
            generation: 2,
            ..at(60, 70)
        };
        assert_eq!(Rates::between(&at(10, 20), &restarted), None);
        assert_eq!(Rates::between(&at(60, 70), &at(10, 20)), None);
        assert_eq!(Rates::between(&at(10, 20), &at(60, 10)), None);
    }
}
