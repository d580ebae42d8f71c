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
//! Counters are those of a load record, kept as integrals at every change and never sampled.
//! `speed` shows in no counter: a slow CPU looks as busy as a fast one, as real ones do.
//!
//! Not modelled: IO, memory, time slices (a real scheduler's quantum of some milliseconds
//! blurs what processor sharing makes smooth), migrations between cores. A request is one
//! runnable task from arrival to completion.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use tidegate_core::record::{LoadRecord, Sources};
use tidegate_core::time::{Timestamp, nanos};

/// Virtual time closer to a task's end than this counts as reached: floating point's due.
const END_TOLERANCE_NS: f64 = 1e-3;

/// The caller's number for a request.
pub type TaskId = u64;

/// A request that has got all the CPU time that it wanted.
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
}

impl Running {
    fn end(self) -> f64 {
        f64::from_bits(self.end_bits)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Processor {
    cores_milli: u32,
    speed: f64,
    generation: u64,
    now: Timestamp,
    virtual_ns: f64,
    requests: BinaryHeap<Reverse<Running>>,
    antagonists: u32,
    arrived: u64,
    completed: VecDeque<Completion>,
    completions: u64,
    /// CPU time used, thousandths of a nanosecond.
    busy_milli_ns: u128,
    runnable_ns: u64,
    in_flight_ns: u64,
    stalled_ns: u64,
}

impl Processor {
    /// An idle node of `cores` CPUs (fractions allowed, to a thousandth), each `speed` times
    /// as fast as the one that demands are measured on. `generation` goes into its records.
    pub fn new(cores: f64, speed: f64, generation: u64, now: Timestamp) -> Self {
        Self {
            cores_milli: ((cores * 1000.0).round() as u32).max(1),
            speed: speed.max(f64::MIN_POSITIVE),
            generation,
            now,
            virtual_ns: 0.0,
            requests: BinaryHeap::new(),
            antagonists: 0,
            arrived: 0,
            completed: VecDeque::new(),
            completions: 0,
            busy_milli_ns: 0,
            runnable_ns: 0,
            in_flight_ns: 0,
            stalled_ns: 0,
        }
    }

    /// A request that wants `demand` of CPU time at speed 1 arrives.
    pub fn arrive(&mut self, now: Timestamp, task: TaskId, demand: Duration) {
        self.advance(now);
        if self.requests.is_empty() {
            // Nobody holds an end in virtual time: start over, and lose no precision.
            self.virtual_ns = 0.0;
        }
        let end = self.virtual_ns + nanos(demand) as f64;
        self.requests.push(Reverse(Running {
            end_bits: end.to_bits(),
            order: self.arrived,
            task,
        }));
        self.arrived += 1;
    }

    /// So many antagonist tasks, which want all the CPU they can get, run from `now` on.
    pub fn set_antagonists(&mut self, now: Timestamp, tasks: u32) {
        self.advance(now);
        self.antagonists = tasks;
    }

    /// A request goes away unfinished. False if it is not here (any more). Linear in the
    /// requests in flight: cancelling is rare.
    pub fn cancel(&mut self, now: Timestamp, task: TaskId) -> bool {
        self.advance(now);
        let before = self.requests.len();
        self.requests
            .retain(|Reverse(running)| running.task != task);
        self.requests.len() < before
    }

    /// Lets time pass up to `now`; requests that end on the way wait in
    /// [`Processor::poll_completed`]. A time before the last one changes nothing.
    pub fn advance(&mut self, now: Timestamp) {
        while let Some(due) = self.next_completion() {
            if due > now {
                break;
            }
            self.run_until(due);
            self.end_due();
        }
        self.run_until(now);
    }

    /// A request that has ended, in order of its end.
    pub fn poll_completed(&mut self) -> Option<Completion> {
        self.completed.pop_front()
    }

    /// When the next request ends if nothing changes before.
    pub fn next_completion(&self) -> Option<Timestamp> {
        let Reverse(first) = self.requests.peek()?;
        let left = (first.end() - self.virtual_ns - END_TOLERANCE_NS).max(0.0);
        Some(self.now + Duration::from_nanos((left / self.rate()).ceil() as u64))
    }

    /// Tasks on the run queue, running ones included.
    pub fn runnable(&self) -> u32 {
        self.in_flight().saturating_add(self.antagonists)
    }

    /// Requests here.
    pub fn in_flight(&self) -> u32 {
        u32::try_from(self.requests.len()).unwrap_or(u32::MAX)
    }

    /// Antagonist tasks here.
    pub fn antagonists(&self) -> u32 {
        self.antagonists
    }

    /// CPUs.
    pub fn cores(&self) -> f64 {
        f64::from(self.cores_milli) * 1e-3
    }

    /// Speed of each CPU.
    pub fn speed(&self) -> f64 {
        self.speed
    }

    /// The load record of this instant. The publisher adds sequence, rung and interval.
    pub fn record(&mut self, now: Timestamp) -> LoadRecord {
        self.advance(now);
        LoadRecord {
            generation: self.generation,
            t_ns: self.now.nanos(),
            sources: Sources::BUSY_SWITCH
                .with(Sources::RUNNABLE)
                .with(Sources::RUNNABLE_INTEGRAL)
                .with(Sources::IN_FLIGHT)
                .with(Sources::COMPLETIONS),
            cores_milli: self.cores_milli,
            busy_ns: u64::try_from(self.busy_milli_ns / 1000).unwrap_or(u64::MAX),
            runnable: self.runnable(),
            runnable_ns: self.runnable_ns,
            psi_cpu_ns: self.stalled_ns,
            in_flight: self.in_flight(),
            in_flight_ns: self.in_flight_ns,
            completions: self.completions,
            ..LoadRecord::default()
        }
    }

    fn rate(&self) -> f64 {
        let tasks = f64::from(self.runnable()).max(1.0);
        self.speed * (self.cores() / tasks).min(1.0)
    }

    fn run_until(&mut self, until: Timestamp) {
        let elapsed = until.nanos().saturating_sub(self.now.nanos());
        if elapsed == 0 {
            return;
        }
        let runnable = self.runnable();
        let used_milli = (u64::from(runnable) * 1000).min(self.cores_milli.into());
        self.virtual_ns += self.rate() * elapsed as f64;
        self.busy_milli_ns += u128::from(used_milli) * u128::from(elapsed);
        self.runnable_ns += u64::from(runnable) * elapsed;
        self.in_flight_ns += u64::from(self.in_flight()) * elapsed;
        if u64::from(runnable) * 1000 > self.cores_milli.into() {
            self.stalled_ns += elapsed;
        }
        self.now = until;
    }

    fn end_due(&mut self) {
        while let Some(Reverse(first)) = self.requests.peek().copied() {
            if first.end() > self.virtual_ns + END_TOLERANCE_NS {
                break;
            }
            self.requests.pop();
            self.completions += 1;
            self.completed.push_back(Completion {
                task: first.task,
                at: self.now,
            });
        }
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
