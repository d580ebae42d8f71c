//! What a node counts: lengths now, and their integrals since the node was started.
//!
//! Between two changes all lengths are constant, so a copy of the counters at the last change
//! tells those of every later moment up to the next one. That is how a record of the past is
//! made when it is asked for, instead of a thousand times a second.

use std::collections::VecDeque;

use tidegate_core::load::Point;
use tidegate_core::record::{LoadRecord, Sources};
use tidegate_core::time::Timestamp;

/// What a record covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// The whole node.
    #[default]
    Host,
    /// The requests' own cgroup: antagonists do not show.
    Requests,
    /// Nothing: the node claims to be idle, whatever it does, and more.
    Invented(Invention),
}

/// What a node claims that is always idle by its records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Invention {
    /// CPUs; none: those that it has.
    pub cores: Option<u32>,
    /// Whether it claims to complete a request each microsecond, each in a nanosecond.
    pub completions: bool,
}

impl Invention {
    fn completions_at(self, t_ns: u64) -> u64 {
        match self.completions {
            true => t_ns / 1000,
            false => 0,
        }
    }
}

/// What a CPU under a quota does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtWork {
    /// Nothing, or the quota is used up.
    No,
    /// It runs a request.
    Request,
    /// It runs a neighbour.
    Neighbour,
}

/// See the module. CPU time is in thousandths of a nanosecond: CPUs are in thousandths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeCounters {
    /// Changes when the node is started anew.
    pub(crate) generation: u64,
    /// When that was.
    pub(crate) since: Timestamp,
    /// As of when.
    pub(crate) at: Timestamp,
    pub(crate) cores_milli: u32,
    /// Requests on the run queue.
    pub(crate) running: u32,
    /// Requests that wait for IO.
    pub(crate) waiting: u32,
    /// Requests that no worker has accepted.
    pub(crate) unaccepted: u32,
    /// Antagonist tasks, all on the run queue.
    pub(crate) antagonists: u32,
    /// Whether the CPUs stand still.
    pub(crate) stopped: bool,
    /// What the one CPU does, where a kernel shares it out.
    pub(crate) at_work: Option<AtWork>,
    pub(crate) completions: u64,
    busy_milli_ns: u64,
    /// The requests' part of it.
    own_milli_ns: u64,
    runnable_ns: u64,
    running_ns: u64,
    pub(crate) in_flight_ns: u64,
    stalled_ns: u64,
    unaccepted_ns: u64,
}

impl NodeCounters {
    pub(crate) fn new(cores_milli: u32, generation: u64, now: Timestamp) -> Self {
        Self {
            generation,
            since: now,
            at: now,
            cores_milli,
            running: 0,
            waiting: 0,
            unaccepted: 0,
            antagonists: 0,
            stopped: false,
            at_work: None,
            completions: 0,
            busy_milli_ns: 0,
            own_milli_ns: 0,
            runnable_ns: 0,
            running_ns: 0,
            in_flight_ns: 0,
            stalled_ns: 0,
            unaccepted_ns: 0,
        }
    }

    /// Tasks on the run queue, running ones included.
    pub(crate) fn runnable(&self) -> u32 {
        self.running.saturating_add(self.antagonists)
    }

    /// Requests here.
    pub(crate) fn in_flight(&self) -> u32 {
        self.running
            .saturating_add(self.waiting)
            .saturating_add(self.unaccepted)
    }

    /// Time passes and nothing changes.
    pub(crate) fn pass(&mut self, until: Timestamp) {
        let elapsed = until.nanos().saturating_sub(self.at.nanos());
        if elapsed == 0 {
            return;
        }
        let used = self.used_milli() * elapsed;
        self.busy_milli_ns += used;
        self.own_milli_ns += self.own_part(used);
        self.runnable_ns += u64::from(self.runnable()) * elapsed;
        self.running_ns += u64::from(self.running) * elapsed;
        self.in_flight_ns += u64::from(self.in_flight()) * elapsed;
        self.stalled_ns += u64::from(self.stalls()) * elapsed;
        self.unaccepted_ns += u64::from(self.unaccepted) * elapsed;
        self.at = until;
    }

    /// The load record of a later moment, if nothing changes until then; but for what published
    /// it and how often.
    pub(crate) fn record_at(&self, at: Timestamp, scope: Scope, sources: Sources) -> LoadRecord {
        let point = self.point_at(at, scope);
        let idle = LoadRecord {
            generation: self.generation,
            t_ns: point.t_ns,
            sources,
            cores_milli: self.cores_milli,
            ..LoadRecord::default()
        };
        if let Scope::Invented(invention) = scope {
            return LoadRecord {
                cores_milli: invention
                    .cores
                    .map_or(self.cores_milli, |cores| cores * 1000),
                in_flight_ns: point.in_flight_ns,
                completions: point.completions,
                ..idle
            };
        }
        LoadRecord {
            busy_ns: point.busy_ns,
            runnable: match scope {
                Scope::Host => self.runnable(),
                Scope::Requests => self.running,
                Scope::Invented(_) => 0,
            },
            runnable_ns: point.runnable_ns,
            psi_cpu_ns: self.stalled_ns
                + u64::from(self.stalls()) * point.t_ns.saturating_sub(self.at.nanos()),
            accept_queue: self.unaccepted,
            accept_queue_ns: point.accept_queue_ns,
            in_flight: self.in_flight(),
            in_flight_ns: point.in_flight_ns,
            completions: point.completions,
            ..idle
        }
    }

    /// What rates need of that record.
    pub(crate) fn point_at(&self, at: Timestamp, scope: Scope) -> Point {
        let elapsed = at.nanos().saturating_sub(self.at.nanos());
        let idle = Point {
            t_ns: at.nanos().max(self.at.nanos()),
            capacity: self.cores_milli as f32 * 1e-3,
            ..Point::default()
        };
        let (busy_milli_ns, runnable_ns) = match scope {
            Scope::Invented(invention) => {
                let completions = invention.completions_at(idle.t_ns);
                return Point {
                    in_flight_ns: completions,
                    completions,
                    ..idle
                };
            }
            Scope::Host => (
                self.busy_milli_ns + self.used_milli() * elapsed,
                self.runnable_ns + u64::from(self.runnable()) * elapsed,
            ),
            Scope::Requests => (
                self.own_milli_ns + self.own_part(self.used_milli() * elapsed),
                self.running_ns + u64::from(self.running) * elapsed,
            ),
        };
        Point {
            busy_ns: busy_milli_ns / 1000,
            runnable_ns,
            in_flight_ns: self.in_flight_ns + u64::from(self.in_flight()) * elapsed,
            completions: self.completions,
            accept_queue_ns: self.unaccepted_ns + u64::from(self.unaccepted) * elapsed,
            ..idle
        }
    }

    /// CPUs at work, in thousandths.
    fn used_milli(&self) -> u64 {
        if self.stopped {
            return 0;
        }
        match self.at_work {
            None => {}
            Some(AtWork::No) => return 0,
            Some(AtWork::Request | AtWork::Neighbour) => return 1000,
        }
        (u64::from(self.runnable()) * 1000).min(self.cores_milli.into())
    }

    /// The requests' part of the CPU time that all tasks used.
    fn own_part(&self, used: u64) -> u64 {
        if self.antagonists == 0 || self.at_work == Some(AtWork::Request) {
            return used;
        }
        if self.at_work.is_some() {
            return 0;
        }
        used / u64::from(self.runnable()) * u64::from(self.running)
    }

    /// Whether some task waits for a CPU.
    fn stalls(&self) -> bool {
        let wanted = u64::from(self.runnable()) * 1000;
        wanted > self.cores_milli.into() || self.stopped && wanted > 0
    }
}

/// A node's counters at each of its changes, as far back as anybody asks. Times lie apart, for
/// they are searched.
#[derive(Debug, Default)]
pub(crate) struct CounterLog {
    times: VecDeque<Timestamp>,
    changes: VecDeque<NodeCounters>,
}

impl CounterLog {
    /// The counters have changed to these. Moments before the horizon will not be asked for.
    pub(crate) fn push(&mut self, counters: &NodeCounters, horizon: Timestamp) {
        if self.times.back() == Some(&counters.at) {
            self.times.pop_back();
            self.changes.pop_back();
        }
        while self.times.get(1).is_some_and(|next| *next <= horizon) {
            self.times.pop_front();
            self.changes.pop_front();
        }
        self.times.push_back(counters.at);
        self.changes.push_back(*counters);
    }

    /// The counters at the last change up to that moment; none if it was forgotten.
    pub(crate) fn before(&self, at: Timestamp) -> Option<&NodeCounters> {
        let after = match self.times.back() {
            Some(last) if *last <= at => self.times.len(),
            _ => self.times.partition_point(|change| *change <= at),
        };
        self.changes.get(after.checked_sub(1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn the_requests_scope_sees_no_antagonist() {
        let mut counters = NodeCounters::new(1000, 1, at(0));
        counters.running = 1;
        counters.waiting = 2;
        counters.antagonists = 3;
        counters.pass(at(40));
        let sources = Sources::RUNNABLE;
        let host = counters.record_at(at(40), Scope::Host, sources);
        let own = counters.record_at(at(40), Scope::Requests, sources);
        assert_eq!((host.runnable, own.runnable), (4, 1));
        assert_eq!((host.busy_ns, own.busy_ns), (40_000_000, 10_000_000));
        assert_eq!(host.runnable_ns, 4 * 40_000_000);
        assert_eq!(own.runnable_ns, 40_000_000);
        assert_eq!((host.in_flight, own.in_flight), (3, 3));
    }

    #[test]
    fn the_log_tells_any_moment_that_it_keeps() {
        let mut counters = NodeCounters::new(2000, 1, at(0));
        let mut log = CounterLog::default();
        for ms in 0..100 {
            counters.pass(at(ms));
            counters.running = ms as u32 % 3;
            log.push(&counters, at(ms.saturating_sub(10)));
        }
        let half = Timestamp::from_nanos(95_500_000);
        let seen = log.before(half).unwrap();
        assert_eq!((seen.running, seen.at), (95 % 3, at(95)));
        let point = seen.point_at(half, Scope::Host);
        assert_eq!(point.in_flight_ns, counters.in_flight_ns - 4 * 1_000_000);
        assert!(log.before(at(89)).is_some());
        assert!(log.before(at(80)).is_none(), "forgotten");
        assert_eq!(log.before(at(200)).unwrap().running, 0);
    }
}
