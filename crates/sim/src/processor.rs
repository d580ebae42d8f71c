//! One emulated node's CPU: processor sharing, exact to the nanosecond.
//!
//! ```text
//! n    = requests + antagonist tasks on the run queue
//! rate = speed * min(1, cores / n)          service that each task gets per ns
//! V(t) = integral of rate                   the same for every task: "virtual time"
//! a task that arrives at t with demand D ends when V = V(t) + D
//! ```
//!
//! So a heap by the end in virtual time is all the state that requests need: arrival and
//! completion cost O(log n), and the passing of time costs nothing per task.
//!
//! NodeCounters are those of a load record, kept as integrals at every change and never sampled.
//! `speed` shows in no counter: a slow CPU looks as busy as a fast one, as real ones do.
//!
//! A server that is crowded gets slower, if its model says so: see [`Overload`].
//!
//! Not modelled: memory, time slices (a real scheduler's quantum of some milliseconds blurs
//! what processor sharing makes smooth), migrations between cores. A request is one runnable
//! task, but while it waits for IO; for how long it waits is the caller's business.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use tidegate_core::record::{LoadRecord, Sources};
use tidegate_core::time::{Timestamp, nanos};

use crate::counters::{AtWork, NodeCounters, Scope};
pub use crate::kernel::TaskId;
use crate::kernel::{Kernel, RunQueue};

/// Virtual time closer to a task's end than this counts as reached: floating point's due.
const END_TOLERANCE_NS: f64 = 1e-3;

/// A request that has got all the CPU time that it wanted, or all that it wanted before IO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Which one.
    pub task: TaskId,
    /// When, rounded up to a whole nanosecond.
    pub at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Running {
    /// End in virtual time. Bits of a float that is never negative sort as the float does.
    end_bits: u64,
    /// Among equals the first to arrive ends first.
    order: u64,
    task: TaskId,
    /// Whether the request has got all it wanted then, or begins to wait for IO.
    last: bool,
}

impl Running {
    fn end(self) -> f64 {
        f64::from_bits(self.end_bits)
    }
}

/// What a crowd costs: the rate of all is divided by
/// `1 + per_task * (runnable - 2 cores)+`. Task switches, caches, memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overload {
    /// For each task on the run queue beyond two per CPU.
    pub per_task: f64,
}

/// See the module.
#[derive(Debug)]
pub struct Processor {
    counters: NodeCounters,
    speed: f64,
    overload: Overload,
    virtual_ns: f64,
    requests: BinaryHeap<Reverse<Running>>,
    /// Shares the CPU out instead, where a kernel is modelled.
    run_queue: Option<RunQueue>,
    arrived: u64,
    completed: VecDeque<Completion>,
}

impl Processor {
    /// An idle node of `cores` CPUs (fractions allowed, to a thousandth), each `speed` times
    /// as fast as the one that demands are measured on. `generation` goes into its records.
    pub fn new(cores: f64, speed: f64, generation: u64, now: Timestamp) -> Self {
        let cores_milli = ((cores * 1000.0).round() as u32).max(1);
        Self {
            counters: NodeCounters::new(cores_milli, generation, now),
            speed: speed.max(f64::MIN_POSITIVE),
            overload: Overload::default(),
            virtual_ns: 0.0,
            requests: BinaryHeap::new(),
            run_queue: None,
            arrived: 0,
            completed: VecDeque::new(),
        }
    }

    /// A crowd costs so much here.
    #[must_use]
    pub fn with_overload(mut self, overload: Overload) -> Self {
        self.overload = overload;
        self
    }

    /// Its CPU, which is one, is shared out by a kernel.
    #[must_use]
    pub fn with_kernel(mut self, kernel: Option<Kernel>) -> Self {
        let (cores, at) = (self.cores(), self.counters.at);
        self.run_queue = kernel.map(|it| RunQueue::new(it, cores, self.speed, at));
        self.count();
        self
    }

    /// So many requests are here that no worker has accepted.
    pub fn set_unaccepted(&mut self, now: Timestamp, requests: u32) {
        self.advance(now);
        self.counters.unaccepted = requests;
    }

    /// A request that wants `demand` of CPU time at speed 1 arrives.
    pub fn arrive(&mut self, now: Timestamp, task: TaskId, demand: Duration) {
        self.run(now, task, demand, true);
    }

    /// A request arrives that wants `demand` of CPU time before it waits for IO. It then stays
    /// here, off the run queue, until [`Processor::go_on`] or [`Processor::cancel_waiting`].
    pub fn arrive_for_io(&mut self, now: Timestamp, task: TaskId, demand: Duration) {
        self.run(now, task, demand, false);
    }

    /// The IO of a request has ended; it wants `demand` more.
    pub fn go_on(&mut self, now: Timestamp, task: TaskId, demand: Duration) {
        self.cancel_waiting(now);
        self.run(now, task, demand, true);
    }

    /// A request goes away while it waits for IO.
    pub fn cancel_waiting(&mut self, now: Timestamp) {
        self.advance(now);
        self.counters.waiting = self.counters.waiting.saturating_sub(1);
    }

    fn run(&mut self, now: Timestamp, task: TaskId, demand: Duration, last: bool) {
        self.advance(now);
        if let Some(queue) = &mut self.run_queue {
            queue.arrive(task, demand, last);
            self.count();
            return;
        }
        if self.requests.is_empty() {
            // No end in virtual time is held: start over, and lose no precision.
            self.virtual_ns = 0.0;
        }
        let end = self.virtual_ns + nanos(demand) as f64;
        self.requests.push(Reverse(Running {
            end_bits: end.to_bits(),
            order: self.arrived,
            task,
            last,
        }));
        self.arrived += 1;
        self.count();
    }

    /// So many antagonist tasks, which want all the CPU they can get, run from `now` on.
    pub fn set_antagonists(&mut self, now: Timestamp, tasks: u32) {
        self.advance(now);
        self.counters.antagonists = tasks;
    }

    /// The CPUs stand still from `now` on, or run again.
    pub fn set_stopped(&mut self, now: Timestamp, stopped: bool) {
        self.advance(now);
        self.counters.stopped = stopped;
    }

    /// The CPUs are so fast from `now` on.
    pub fn set_speed(&mut self, now: Timestamp, speed: f64) {
        self.advance(now);
        self.speed = speed.max(f64::MIN_POSITIVE);
    }

    /// A request goes away unfinished. False if it is not on the run queue (any more). Linear
    /// in the requests in flight: cancelling is rare.
    pub fn cancel(&mut self, now: Timestamp, task: TaskId) -> bool {
        self.advance(now);
        if let Some(queue) = &mut self.run_queue {
            let cancelled = queue.cancel(task);
            self.count();
            return cancelled;
        }
        let before = self.requests.len();
        self.requests
            .retain(|Reverse(running)| running.task != task);
        self.count();
        self.requests.len() < before
    }

    /// Lets time pass up to `now`; requests that end on the way wait in
    /// [`Processor::poll_completed`]. A time before the last one changes nothing.
    pub fn advance(&mut self, now: Timestamp) {
        if self.run_queue.is_some() {
            self.schedule(now);
            return;
        }
        while let Some(due) = self.next_completion() {
            if due > now {
                break;
            }
            self.run_until(due);
            self.end_due();
        }
        self.run_until(now);
    }

    /// A request that has ended or waits for IO now, in order.
    pub fn poll_completed(&mut self) -> Option<Completion> {
        self.completed.pop_front()
    }

    /// When the next request ends, or begins to wait, if nothing changes before; under a kernel not
    /// before that.
    pub fn next_completion(&self) -> Option<Timestamp> {
        if let Some(queue) = &self.run_queue {
            return queue.look_again();
        }
        let Reverse(first) = self.requests.peek()?;
        if self.counters.stopped {
            return None;
        }
        let left = (first.end() - self.virtual_ns - END_TOLERANCE_NS).max(0.0);
        Some(self.counters.at + Duration::from_nanos((left / self.rate()).ceil() as u64))
    }

    /// Tasks on the run queue, running ones included.
    pub fn runnable(&self) -> u32 {
        self.counters.runnable()
    }

    /// Requests here.
    pub fn in_flight(&self) -> u32 {
        self.counters.in_flight()
    }

    /// Requests on the run queue.
    pub(crate) fn running(&self) -> u32 {
        self.counters.running
    }

    /// Antagonist tasks here.
    pub fn antagonists(&self) -> u32 {
        self.counters.antagonists
    }

    /// CPUs.
    pub fn cores(&self) -> f64 {
        f64::from(self.counters.cores_milli) * 1e-3
    }

    /// Speed of each CPU.
    pub fn speed(&self) -> f64 {
        self.speed
    }

    /// The load record of this instant. The publisher adds sequence, rung and interval.
    pub fn record(&mut self, now: Timestamp) -> LoadRecord {
        self.advance(now);
        let sources = Sources::BUSY_SWITCH
            .with(Sources::RUNNABLE)
            .with(Sources::RUNNABLE_INTEGRAL)
            .with(Sources::IN_FLIGHT)
            .with(Sources::COMPLETIONS);
        self.counters.record_at(now, Scope::Host, sources)
    }

    pub(crate) fn counters(&self) -> &NodeCounters {
        &self.counters
    }

    /// Lets time pass under a kernel.
    fn schedule(&mut self, now: Timestamp) {
        while let Some(queue) = &mut self.run_queue {
            let event = queue.step(now);
            let at = queue.now();
            self.counters.pass(at);
            let Some(ended) = event else { break };
            if let Some(ended) = ended {
                if ended.last {
                    self.counters.completions += 1;
                } else {
                    self.counters.waiting += 1;
                }
                let task = ended.task;
                self.completed.push_back(Completion { task, at });
            }
            self.count();
        }
    }

    fn count(&mut self) {
        if let Some(queue) = &self.run_queue {
            self.counters.running = queue.requests();
            self.counters.antagonists = queue.pairs();
            self.counters.at_work = Some(match queue.running() {
                None => AtWork::No,
                Some(true) => AtWork::Request,
                Some(false) => AtWork::Neighbour,
            });
            return;
        }
        self.counters.running = u32::try_from(self.requests.len()).unwrap_or(u32::MAX);
    }

    fn rate(&self) -> f64 {
        let tasks = f64::from(self.runnable()).max(1.0);
        let crowd = (tasks - 2.0 * self.cores()).max(0.0);
        let cost = 1.0 + self.overload.per_task * crowd;
        self.speed * (self.cores() / tasks).min(1.0) / cost
    }

    fn run_until(&mut self, until: Timestamp) {
        let elapsed = until.nanos().saturating_sub(self.counters.at.nanos());
        if elapsed > 0 && !self.counters.stopped {
            self.virtual_ns += self.rate() * elapsed as f64;
        }
        self.counters.pass(until);
    }

    fn end_due(&mut self) {
        while let Some(Reverse(first)) = self.requests.peek().copied() {
            if first.end() > self.virtual_ns + END_TOLERANCE_NS {
                break;
            }
            self.requests.pop();
            if first.last {
                self.counters.completions += 1;
            } else {
                self.counters.waiting += 1;
            }
            self.completed.push_back(Completion {
                task: first.task,
                at: self.counters.at,
            });
        }
        self.count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::prng::Prng;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn ended(node: &mut Processor) -> Vec<(TaskId, u64)> {
        std::iter::from_fn(|| node.poll_completed())
            .map(|done| (done.task, done.at.nanos()))
            .collect()
    }

    #[test]
    fn tasks_beyond_the_cores_share_them() {
        let mut node = Processor::new(1.0, 1.0, 1, at(0));
        node.arrive(at(0), 1, 10 * MS);
        node.arrive(at(0), 2, 20 * MS);
        assert_eq!(node.next_completion(), Some(at(20)));
        node.advance(at(100));
        assert_eq!(ended(&mut node), [(1, 20_000_000), (2, 30_000_000)]);
    }

    #[test]
    fn one_task_never_gets_more_than_one_core_and_speed_scales_it() {
        let mut node = Processor::new(4.0, 2.0, 1, at(0));
        node.arrive(at(0), 1, 10 * MS);
        assert_eq!(node.next_completion(), Some(at(5)));
        let mut half = Processor::new(0.5, 1.0, 1, at(0));
        half.arrive(at(0), 1, 10 * MS);
        assert_eq!(half.next_completion(), Some(at(20)));
    }

    #[test]
    fn antagonists_take_their_share_and_show_in_the_run_queue_only() {
        let mut node = Processor::new(1.0, 1.0, 1, at(0));
        node.arrive(at(0), 1, 10 * MS);
        node.set_antagonists(at(5), 4);
        // 5 ms are left, at a fifth of the CPU.
        assert_eq!(node.next_completion(), Some(at(30)));
        let record = node.record(at(15));
        assert_eq!((record.runnable, record.in_flight), (5, 1));
        assert_eq!(record.runnable_ns, 5_000_000 + 5 * 10_000_000);
        assert_eq!(record.in_flight_ns, 15_000_000);
        assert_eq!(record.psi_cpu_ns, 10_000_000);
        assert_eq!(record.busy_ns, 15_000_000);
    }

    #[test]
    fn a_cancelled_request_leaves_its_share_to_the_others() {
        let mut node = Processor::new(1.0, 1.0, 1, at(0));
        node.arrive(at(0), 1, 10 * MS);
        node.arrive(at(0), 2, 10 * MS);
        assert!(node.cancel(at(10), 1));
        assert!(!node.cancel(at(10), 1));
        assert_eq!(node.next_completion(), Some(at(15)));
        node.advance(at(15));
        assert_eq!(ended(&mut node), [(2, 15_000_000)]);
        assert_eq!(node.record(at(15)).completions, 1);
    }

    #[test]
    fn time_does_not_run_backwards() {
        let mut node = Processor::new(1.0, 1.0, 1, at(10));
        node.arrive(at(20), 1, 10 * MS);
        node.advance(at(5));
        assert_eq!(node.next_completion(), Some(at(30)));
        assert_eq!(node.record(at(5)).t_ns, 20_000_000);
    }

    #[test]
    fn a_request_that_waits_for_io_is_in_flight_and_off_the_run_queue() {
        let mut node = Processor::new(1.0, 1.0, 1, at(0));
        node.arrive_for_io(at(0), 1, 5 * MS);
        node.advance(at(10));
        assert_eq!(ended(&mut node), [(1, 5_000_000)]);
        assert_eq!((node.runnable(), node.in_flight()), (0, 1));
        assert_eq!(node.record(at(10)).completions, 0);
        node.go_on(at(20), 1, 5 * MS);
        node.advance(at(30));
        assert_eq!(ended(&mut node), [(1, 25_000_000)]);
        let record = node.record(at(30));
        assert_eq!((record.completions, record.in_flight), (1, 0));
        assert_eq!(record.in_flight_ns, 25_000_000);
        assert_eq!(record.busy_ns, 10_000_000);
    }

    #[test]
    fn a_node_that_stands_still_goes_on_with_its_old_work() {
        let mut node = Processor::new(1.0, 1.0, 1, at(0));
        node.arrive(at(0), 1, 10 * MS);
        node.set_stopped(at(4), true);
        assert_eq!(node.next_completion(), None);
        node.set_stopped(at(50), false);
        assert_eq!(node.next_completion(), Some(at(56)));
        let record = node.record(at(56));
        assert_eq!(record.busy_ns, 10_000_000);
        assert_eq!(record.in_flight_ns, 56_000_000);
    }

    /// Work is conserved: CPU time used is CPU time demanded, however tasks came and went, and
    /// Little's law holds between the integrals and the stays.
    #[test]
    fn work_and_stays_are_conserved() {
        for seed in 0..20 {
            let mut prng = Prng::new(seed);
            let mut node = Processor::new(2.5, 1.0, 1, Timestamp::ZERO);
            let mut now = Timestamp::ZERO;
            let (mut demanded, mut arrivals) = (0u64, Vec::new());
            for task in 0..500 {
                now = now + Duration::from_nanos(prng.exponential(4e6) as u64);
                let demand = prng.exponential(8e6) as u64;
                demanded += demand;
                arrivals.push(now.nanos());
                node.arrive(now, task, Duration::from_nanos(demand));
            }
            let end = now + Duration::from_secs(60);
            let record = node.record(end);
            let stays: u64 = ended(&mut node)
                .iter()
                .map(|(task, at)| at - arrivals[*task as usize])
                .sum();
            assert_eq!(record.completions, 500, "seed {seed}");
            assert!(record.busy_ns.abs_diff(demanded) < 3000, "seed {seed}");
            assert_eq!(record.in_flight_ns, stays, "seed {seed}");
            assert_eq!(record.runnable_ns, stays, "seed {seed}");
        }
    }
}
