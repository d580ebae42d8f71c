//! One emulated node: its processor, the requests that wait for it, and its records.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::load::Rung;
use tidegate_core::record::{LoadRecord, Sources};
use tidegate_core::time::{Timestamp, nanos};
use tidegate_remote::RegionMemory;
use tidegate_sim::processor::{Processor, TaskId};
use tokio::sync::{Semaphore, oneshot};

use super::neighbours::Taken;
use super::{EmulatedError, NodePlan};
use crate::NODE_MEMORY;
use crate::server::cache::Files;

/// What a sample of an agent inside the node costs there. Measured: 44 µs each millisecond.
const SAMPLE: Duration = Duration::from_micros(45);
/// What a node has; its antagonists and requests take from it.
const MEMORY: u64 = NODE_MEMORY;
const FILES_MAX: u32 = 16_384;

/// What waits for the end of a task.
#[derive(Debug)]
enum Waiting {
    /// A request: notified when it ended.
    Request(oneshot::Sender<Timestamp>),
    /// The sample of this agent.
    Sample(usize),
}

#[derive(Debug)]
struct Agent {
    interval: Duration,
    inside: bool,
    region: RegionMemory,
    due_at: Timestamp,
}

#[derive(Debug)]
pub(super) struct Node {
    cores: f64,
    processor: Processor,
    waiting: HashMap<TaskId, Waiting>,
    next_task: TaskId,
    agents: Vec<Agent>,
    files: Files,
    workers: Arc<Semaphore>,
    held: Taken,
    /// How long the node has stood still so far, and since when it does now.
    lag: Duration,
    stands_since: Option<Timestamp>,
}

impl Node {
    pub(super) fn new(
        plan: &NodePlan,
        regions: &[PathBuf],
        now: Timestamp,
    ) -> Result<Self, EmulatedError> {
        let agents = plan.agents.iter().zip(regions).map(|(plan, path)| {
            Ok(Agent {
                interval: plan.interval,
                inside: plan.inside,
                region: RegionMemory::create(path)?,
                due_at: now,
            })
        });
        let mut node = Self {
            cores: plan.cores,
            processor: Processor::new(plan.cores, 1.0, 1, now),
            waiting: HashMap::new(),
            next_task: 0,
            agents: agents.collect::<Result<_, EmulatedError>>()?,
            files: Files::new(plan.cache),
            workers: Arc::new(Semaphore::new(plan.workers)),
            held: Taken::default(),
            lag: Duration::ZERO,
            stands_since: None,
        };
        // A reader that comes at once finds a record.
        for agent in 0..node.agents.len() {
            node.publish(agent, Taken::default(), now);
        }
        Ok(node)
    }

    /// As new, for the next run.
    pub(super) fn empty(&mut self, generation: u64, now: Timestamp) {
        // What still waits sees the closed channel.
        self.waiting.clear();
        self.held = Taken::default();
        let now = self.time(now);
        self.processor = Processor::new(self.cores, 1.0, generation, now);
        for agent in &mut self.agents {
            agent.due_at = now + self.lag;
        }
    }

    /// The node's own time, which stands still when it does.
    fn time(&self, now: Timestamp) -> Timestamp {
        self.stands_since.unwrap_or(now) - self.lag
    }

    /// Stands still, or goes on.
    pub(super) fn stand(&mut self, still: bool, now: Timestamp) {
        match (still, self.stands_since) {
            (true, None) => self.stands_since = Some(now),
            (false, Some(since)) => {
                self.stands_since = None;
                self.lag += now.since(since);
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    pub(super) fn files(&mut self) -> &mut Files {
        &mut self.files
    }

    pub(super) fn workers(&self) -> Arc<Semaphore> {
        Arc::clone(&self.workers)
    }

    /// A request that wants CPU time arrives.
    pub(super) fn arrive(
        &mut self,
        demand: Duration,
        now: Timestamp,
    ) -> (TaskId, oneshot::Receiver<Timestamp>) {
        let (ended, end) = oneshot::channel();
        (self.add(demand, Waiting::Request(ended), now), end)
    }

    fn add(&mut self, demand: Duration, waiting: Waiting, now: Timestamp) -> TaskId {
        let task = self.next_task;
        self.next_task += 1;
        let now = self.time(now);
        self.processor.arrive(now, task, demand);
        self.waiting.insert(task, waiting);
        task
    }

    /// Nothing waits for the task any more.
    pub(super) fn cancel(&mut self, task: TaskId, now: Timestamp) {
        if self.waiting.remove(&task).is_some() {
            let now = self.time(now);
            self.processor.cancel(now, task);
        }
    }

    /// Requests hold this much.
    pub(super) fn hold(&mut self, memory: u64, files: u32) {
        self.held.memory = self.held.memory.saturating_add(memory);
        self.held.files = self.held.files.saturating_add(files);
    }

    pub(super) fn release(&mut self, memory: u64, files: u32) {
        self.held.memory = self.held.memory.saturating_sub(memory);
        self.held.files = self.held.files.saturating_sub(files);
    }

    /// When something happens here next; never, while it stands still.
    pub(super) fn next(&self) -> Option<Timestamp> {
        if self.stands_since.is_some() {
            return None;
        }
        let due = self.agents.iter().map(|agent| agent.due_at);
        let end = self.processor.next_completion().map(|end| end + self.lag);
        due.chain(end).min()
    }

    /// Does what is due. `taken` is what antagonists take now.
    pub(super) fn advance(&mut self, taken: Taken, now: Timestamp) {
        if self.stands_since.is_some() {
            return;
        }
        self.set_antagonists(taken.tasks, now);
        for index in 0..self.agents.len() {
            let agent = &mut self.agents[index];
            if agent.due_at > now {
                continue;
            }
            agent.due_at = (agent.due_at + agent.interval).max(now);
            if agent.inside {
                self.add(SAMPLE, Waiting::Sample(index), now);
            } else {
                self.publish(index, taken, now);
            }
        }
        self.settle(taken, now);
    }

    /// So many antagonist tasks from now on.
    pub(super) fn set_antagonists(&mut self, tasks: u32, now: Timestamp) {
        if self.processor.antagonists() != tasks {
            let now = self.time(now);
            self.processor.set_antagonists(now, tasks);
        }
    }

    /// Tells all tasks that have ended so.
    fn settle(&mut self, taken: Taken, now: Timestamp) {
        let local = self.time(now);
        self.processor.advance(local);
        while let Some(done) = self.processor.poll_completed() {
            match self.waiting.remove(&done.task) {
                Some(Waiting::Request(ended)) => {
                    // A request that was cancelled this moment does not listen any more.
                    ended.send(done.at + self.lag).ok();
                }
                Some(Waiting::Sample(agent)) => self.publish(agent, taken, now),
                None => {}
            }
        }
    }

    fn publish(&mut self, agent: usize, taken: Taken, now: Timestamp) {
        let local = self.time(now);
        let record = self.processor.record(local);
        let agent = &mut self.agents[agent];
        let memory = self.held.memory.saturating_add(taken.memory);
        let record = LoadRecord {
            rung: Rung::SharedMemory as u8,
            t_ns: now.nanos(),
            interval_ns: nanos(agent.interval),
            sources: record.sources.with(Sources::MEMORY).with(Sources::FILES),
            memory_total: MEMORY,
            memory_available: MEMORY.saturating_sub(memory),
            files_max: FILES_MAX.into(),
            files_open: self.held.files.saturating_add(taken.files).into(),
            ..record
        };
        agent.region.publish(&record, &[]);
    }

    /// How it stands; requests alone, without samples.
    pub(super) fn now(&mut self, now: Timestamp) -> super::NodeNow {
        let local = self.time(now);
        let record = self.processor.record(local);
        super::NodeNow {
            antagonists: self.processor.antagonists(),
            runnable: record.runnable,
            in_flight: record.in_flight,
            completions: record.completions,
            busy: Duration::from_nanos(record.busy_ns),
        }
    }
}
