//! One CPU under a quota, as Linux shares it out: EEVDF among tasks, bandwidth of control groups.
//!
//! ```text
//! v        CPU time that a task has had, on a clock of its own; all weigh the same
//! V        mean v of what is awake
//! eligible v <= V; of those the earliest deadline runs; deadline = v + slice, renewed when v reaches it
//! sleeps   with lag = V - v, a slice at most; wakes with v = V - lag, or, if it was ahead, with the later of its old v and V
//! goes on  until it sleeps, or until a tick at which its slice is used up: ticks are 4 ms apart
//! quota    used CPU time is taken from it as tasks change and at ticks; at zero or below none of the
//!          group runs, until refills of cores * period each, never more than one saved up, make it positive
//! ```
//!
//! So a task that is alone overdraws by up to a tick and then stands still for as many periods, and one among
//! neighbours that sleep and wake is cut off to the point; a request that was just woken has up to a slice and a
//! tick before any neighbour has its turn, however many there are, and its thread pays for that with its next requests.
//!
//! **Neighbours** are pairs of processes that play ping-pong ([`Kernel::pairs`]): of each pair one end is awake, runs for a
//! burst, wakes the other and sleeps. On the run queue they count as one task a pair. (On a Linux 6.18 with 8 pairs there
//! were 8.5 tasks on it beside the requests: one end does not sleep at once when it has woken the other.)
//!
//! **Requests** are worked on by threads; the one that was idle for the shortest time gets the next.
//!
//! Departures from the kernel: one CPU, on which no other group competes; a burst has no spread, and what the network's soft
//! interrupts take is part of it; a thread that sleeps ahead of V is not counted in V; throttled tasks lose nothing on the way in
//! and out. Source: kernel/sched/fair.c of Linux 6.18; EEVDF-1995 for eligibility and deadlines.

use std::time::Duration;

use tidegate_core::time::{Timestamp, nanos};

/// The caller's number for a request.
pub type TaskId = u64;

/// CPU time closer to a burst's end than this counts as reached: floating point's due, ns.
const TOLERANCE_NS: f64 = 1e-2;
/// A look ahead is no shorter, ns: nothing between two looks is seen by readers of records.
const LOOK_NS: f64 = 50_000.0;

/// How a node's CPU is scheduled; its quota is [`crate::scenario::NodeModel::cores`], less than one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kernel {
    /// Between two refills of the quota.
    pub period: Duration,
    /// Between two ticks.
    pub tick: Duration,
    /// What a task may use before others that are eligible go first.
    pub slice: Duration,
    /// Neighbours: pairs that play ping-pong.
    pub pairs: u32,
    /// CPU time of one message, sent and received.
    pub burst: Duration,
}

impl Default for Kernel {
    /// Linux 6.18 with two CPUs and 250 ticks a second; a period of 10 ms; no neighbours.
    fn default() -> Self {
        Self {
            period: Duration::from_millis(10),
            tick: Duration::from_millis(4),
            slice: Duration::from_micros(2800),
            pairs: 0,
            burst: Duration::from_micros(25),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Request { task: TaskId, last: bool },
    Ping { pair: usize },
}

#[derive(Clone, Copy, Debug)]
struct Task {
    kind: Kind,
    had_ns: f64,
    deadline_ns: f64,
    /// CPU time until it sleeps.
    left_ns: f64,
    order: u64,
}

/// A task that sleeps.
#[derive(Clone, Copy, Debug)]
enum Asleep {
    /// It had so much less than V.
    Behind(f64),
    /// It had more, so much in all.
    Ahead(f64),
}

/// A request that has had what it wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestEnd {
    pub(crate) task: TaskId,
    /// Whether that was all, or it waits for IO now.
    pub(crate) last: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct RunQueue {
    model: Kernel,
    quota_ns: f64,
    speed: f64,
    now: Timestamp,
    awake: Vec<Task>,
    current: Option<usize>,
    /// The ends that sleep, by pair.
    ends: Vec<Asleep>,
    /// Threads without a request; the last one has been idle for the shortest time.
    idle: Vec<Asleep>,
    /// V as the last task fell asleep.
    last_mean_ns: f64,
    woken: u64,
    left_ns: f64,
    /// Used and not taken from the quota yet.
    used_ns: f64,
    refilled_at: Timestamp,
}

impl RunQueue {
    pub(crate) fn new(model: Kernel, cores: f64, speed: f64, now: Timestamp) -> Self {
        let quota_ns = cores * nanos(model.period) as f64;
        let mut queue = Self {
            model,
            quota_ns,
            speed,
            now,
            awake: Vec::new(),
            current: None,
            ends: vec![Asleep::Behind(0.0); model.pairs as usize],
            idle: Vec::new(),
            last_mean_ns: 0.0,
            woken: 0,
            left_ns: quota_ns,
            used_ns: 0.0,
            refilled_at: now,
        };
        let burst = nanos(model.burst) as f64;
        for pair in 0..queue.ends.len() {
            // Not all at the same point of their message.
            let part = (pair + 1) as f64 / f64::from(model.pairs);
            queue.wake(Kind::Ping { pair }, burst * part, Asleep::Behind(0.0));
        }
        queue.pick();
        queue
    }

    /// Requests that are awake.
    pub(crate) fn requests(&self) -> u32 {
        self.awake.len() as u32 - self.pairs()
    }

    /// Neighbours that are awake.
    pub(crate) fn pairs(&self) -> u32 {
        self.model.pairs
    }

    /// Whether a task runs, and if so whether it is a request.
    pub(crate) fn running(&self) -> Option<bool> {
        let current = self.awake[self.current?];
        Some(matches!(current.kind, Kind::Request { .. }))
    }

    /// A request wants this CPU time at speed 1, as of the time that it was advanced to.
    pub(crate) fn arrive(&mut self, task: TaskId, demand: Duration, last: bool) {
        self.charge();
        let wants = nanos(demand) as f64 / self.speed;
        let thread = self.idle.pop().unwrap_or(Asleep::Behind(0.0));
        self.wake(Kind::Request { task, last }, wants, thread);
        if self.current.is_none() {
            self.pick();
        }
    }

    /// A request goes away; whether it was awake.
    pub(crate) fn cancel(&mut self, cancelled: TaskId) -> bool {
        self.charge();
        let is = |it: &Task| matches!(it.kind, Kind::Request { task, .. } if task == cancelled);
        let Some(index) = self.awake.iter().position(is) else {
            return false;
        };
        self.put_to_sleep(index);
        if self.current.is_none() {
            self.pick();
        }
        true
    }

    /// No request ends before this, and little changes that a record shows.
    pub(crate) fn look_again(&self) -> Option<Timestamp> {
        let requests = self
            .awake
            .iter()
            .filter(|it| matches!(it.kind, Kind::Request { .. }));
        let first = requests.map(|it| it.left_ns).fold(f64::INFINITY, f64::min);
        let ahead = match self.current {
            None if self.awake.is_empty() => return None,
            None => return self.next_event(),
            Some(_) => first.min((self.left_ns - self.used_ns).max(LOOK_NS)),
        };
        Some(self.now + Duration::from_nanos(ahead.ceil() as u64))
    }

    /// Lets time pass up to the next event, no further than `until`: what ended, or that there was nothing more.
    pub(crate) fn step(&mut self, until: Timestamp) -> Option<Option<RequestEnd>> {
        let next = self.next_event().filter(|next| *next <= until);
        self.run_until(next.unwrap_or(until));
        next?;
        Some(self.on_event())
    }

    /// As of when it is.
    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    fn next_event(&self) -> Option<Timestamp> {
        let Some(current) = self.current else {
            if self.awake.is_empty() {
                return None;
            }
            let refills = (-self.left_ns / self.quota_ns).floor().max(0.0) + 1.0;
            return Some(self.refilled_at + self.model.period.mul_f64(refills));
        };
        let ends = self.now + Duration::from_nanos(self.awake[current].left_ns.ceil() as u64);
        let tick = nanos(self.model.tick);
        let ticks = Timestamp::from_nanos((self.now.nanos() / tick + 1) * tick);
        Some(ends.min(ticks))
    }

    fn run_until(&mut self, until: Timestamp) {
        let passed = until.nanos().saturating_sub(self.now.nanos()) as f64;
        self.now = self.now.max(until);
        if let Some(current) = self.current {
            let current = &mut self.awake[current];
            current.had_ns += passed;
            current.left_ns -= passed;
            self.used_ns += passed;
        }
    }

    fn on_event(&mut self) -> Option<RequestEnd> {
        self.charge();
        let Some(index) = self.current else {
            self.pick();
            return None;
        };
        let current = self.awake[index];
        let ended = current.left_ns <= TOLERANCE_NS;
        let mut done = None;
        if ended {
            done = self.sleep(index);
        } else if current.had_ns >= current.deadline_ns {
            let slice = nanos(self.model.slice) as f64;
            self.awake[index].deadline_ns = current.had_ns + slice;
        } else if self.left_ns > 0.0 {
            return None;
        }
        self.pick();
        done
    }

    /// The task has had what it wanted.
    fn sleep(&mut self, index: usize) -> Option<RequestEnd> {
        let kind = self.awake[index].kind;
        match kind {
            Kind::Request { task, last } => {
                self.put_to_sleep(index);
                Some(RequestEnd { task, last })
            }
            Kind::Ping { pair } => {
                let asleep = self.asleep(index);
                let other = std::mem::replace(&mut self.ends[pair], asleep);
                self.wake(kind, nanos(self.model.burst) as f64, other);
                self.remove(index);
                None
            }
        }
    }

    /// A request's thread sleeps until there is another one.
    fn put_to_sleep(&mut self, index: usize) {
        let asleep = self.asleep(index);
        self.idle.push(asleep);
        self.remove(index);
    }

    fn asleep(&self, index: usize) -> Asleep {
        let had_ns = self.awake[index].had_ns;
        let lag = self.mean() - had_ns;
        match lag >= 0.0 {
            true => Asleep::Behind(lag.min(nanos(self.model.slice) as f64)),
            false => Asleep::Ahead(had_ns),
        }
    }

    fn remove(&mut self, index: usize) {
        if self.awake.len() == 1 {
            self.last_mean_ns = self.awake[index].had_ns;
        }
        self.awake.swap_remove(index);
        let moved = self.awake.len();
        self.current = match self.current {
            Some(current) if current == index => None,
            Some(current) if current == moved => Some(index),
            other => other,
        };
    }

    fn wake(&mut self, kind: Kind, left_ns: f64, asleep: Asleep) {
        let mean = self.mean();
        let had_ns = match asleep {
            Asleep::Behind(lag) => mean - lag,
            Asleep::Ahead(had_ns) => had_ns.max(mean),
        };
        self.awake.push(Task {
            kind,
            had_ns,
            deadline_ns: had_ns + nanos(self.model.slice) as f64,
            left_ns,
            order: self.woken,
        });
        self.woken += 1;
    }

    /// V.
    fn mean(&self) -> f64 {
        if self.awake.is_empty() {
            return self.last_mean_ns;
        }
        let sum: f64 = self.awake.iter().map(|it| it.had_ns).sum();
        sum / self.awake.len() as f64
    }

    fn pick(&mut self) {
        self.current = None;
        if self.left_ns <= 0.0 {
            return;
        }
        let mean = self.mean() + TOLERANCE_NS;
        let eligible = self.awake.iter().enumerate();
        let eligible = eligible.filter(|(_, it)| it.had_ns <= mean);
        let first = |(_, a): &(usize, &Task), (_, b): &(usize, &Task)| {
            let by_deadline = a.deadline_ns.total_cmp(&b.deadline_ns);
            by_deadline.then(a.order.cmp(&b.order))
        };
        self.current = eligible.min_by(first).map(|(index, _)| index);
    }

    /// Takes what was used from the quota, refills included.
    fn charge(&mut self) {
        self.left_ns -= self.used_ns;
        self.used_ns = 0.0;
        let since = nanos(self.now.since(self.refilled_at));
        let refills = since / nanos(self.model.period);
        if refills > 0 {
            self.left_ns = (self.left_ns + refills as f64 * self.quota_ns).min(self.quota_ns);
            self.refilled_at = self.refilled_at + self.model.period * refills as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    /// A queue with so many pairs and this share of a CPU, at a tick.
    fn queue(pairs: u32, share: f64) -> RunQueue {
        let model = Kernel {
            pairs,
            ..Kernel::default()
        };
        RunQueue::new(model, share, 1.0, at(0))
    }

    /// When requests end up to this moment, microseconds.
    fn ended(queue: &mut RunQueue, until: Timestamp) -> Vec<(TaskId, u64)> {
        let mut all = Vec::new();
        while let Some(event) = queue.step(until) {
            let us = queue.now().nanos() / 1000;
            all.extend(event.map(|ended| (ended.task, us)));
        }
        all
    }

    /// 4 ms up to the first tick are paid for by refills at 10 to 30 ms; the one at 40 lets it run.
    #[test]
    fn a_task_alone_overdraws_by_a_tick_and_pays() {
        let mut queue = queue(0, 0.1);
        queue.arrive(1, 10 * MS, true);
        assert_eq!(ended(&mut queue, at(39)), []);
        assert_eq!(queue.running(), None);
        assert_eq!(ended(&mut queue, at(200)), [(1, 82_000)]);
    }

    #[test]
    fn a_request_that_was_just_woken_goes_before_its_neighbours_for_a_slice() {
        let mut queue = queue(8, 1.0);
        assert_eq!(ended(&mut queue, at(50)), []);
        queue.arrive(1, 2 * MS, true);
        let [(1, us)] = ended(&mut queue, at(60))[..] else {
            panic!("the request ends");
        };
        assert!((52_000..52_300).contains(&us), "{us}");
    }

    #[test]
    fn a_long_request_has_one_share_beside_each_pair() {
        let mut queue = queue(8, 1.0);
        queue.arrive(1, 100 * MS, true);
        let [(1, us)] = ended(&mut queue, at(2000))[..] else {
            panic!("the request ends");
        };
        assert!((850_000..950_000).contains(&us), "{us}");
    }

    #[test]
    fn no_more_is_used_than_the_quota_and_a_tick() {
        for (pairs, requests) in [(0, 3), (8, 0), (8, 5)] {
            let mut queue = queue(pairs, 0.1);
            for task in 0..requests {
                queue.arrive(task, 10_000 * MS, true);
            }
            let (mut used, mut before) = (0, at(0));
            while queue.now() < at(10_000) {
                let ran = queue.running().is_some();
                queue.step(at(10_000));
                used += u64::from(ran) * queue.now().since(before).as_nanos() as u64;
                before = queue.now();
            }
            let share = used as f64 / 10e9;
            assert!(
                (0.0995..=0.1005).contains(&share),
                "{pairs}, {requests}: {share}"
            );
        }
    }

    #[test]
    fn a_cancelled_request_leaves_the_others_be() {
        let mut queue = queue(0, 1.0);
        for task in 0..3 {
            queue.arrive(task, 2 * MS, true);
        }
        ended(&mut queue, at(1));
        assert!(queue.cancel(0));
        assert!(!queue.cancel(0));
        assert_eq!(queue.requests(), 2);
        assert_eq!(ended(&mut queue, at(20)), [(1, 3000), (2, 5000)]);
    }
}
