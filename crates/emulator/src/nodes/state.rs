//! All emulated nodes behind one lock, and the thread that lets their time pass.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::time::Timestamp;
use tidegate_remote::clock;
use tidegate_sim::processor::TaskId;
use tokio::sync::{Semaphore, oneshot};

use super::NodeNow;
use super::neighbours::{Resident, Taken};
use super::node::Node;
use crate::Work;
use crate::antagonist::Antagonist;
use crate::server::http::Found;

/// Longest sleep of the thread while nothing is due.
const SLEEP_MAX: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct EmulatedState {
    nodes: Vec<Node>,
    residents: Vec<Resident>,
    next_resident: u64,
    /// Processors of a run before this one count for nothing.
    generation: u64,
    /// When the thread means to wake up.
    wakes_at: Timestamp,
    stop: bool,
}

#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<EmulatedState>,
    wake: Condvar,
}

impl Shared {
    pub(super) fn new(nodes: Vec<Node>, now: Timestamp) -> Self {
        Self {
            state: Mutex::new(EmulatedState {
                nodes,
                residents: Vec::new(),
                next_resident: 0,
                generation: 1,
                wakes_at: now,
                stop: false,
            }),
            wake: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, EmulatedState> {
        // A thread that panicked has said so; emulated numbers are no reason to hang.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The processors' thread.
    pub(super) fn run(&self) {
        let mut state = self.lock();
        while !state.stop {
            let now = clock::now();
            state.advance(now);
            let latest = now + SLEEP_MAX;
            let wakes_at = state.next().map_or(latest, |next| next.min(latest));
            state.wakes_at = wakes_at;
            let wait = wakes_at.since(clock::now());
            let woken = self.wake.wait_timeout(state, wait);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The thread ends.
    pub(super) fn end(&self) {
        self.lock().stop = true;
        self.wake.notify_all();
    }

    /// The nodes go, and their regions with them.
    pub(super) fn clear(&self) {
        self.lock().nodes.clear();
    }

    pub(super) fn begin(&self, antagonists: &[(usize, Antagonist)], start: Timestamp) {
        let mut state = self.lock();
        let now = clock::now();
        state.generation += 1;
        let generation = state.generation;
        state.residents.clear();
        for (node, antagonist) in antagonists {
            state.add(*node, antagonist, start);
        }
        for node in &mut state.nodes {
            node.empty(generation, now);
        }
        drop(state);
        self.wake.notify_one();
    }

    pub(super) fn settle_in(&self, node: usize, antagonist: &Antagonist) -> u64 {
        let number = self.lock().add(node, antagonist, clock::now());
        self.wake.notify_one();
        number
    }

    pub(super) fn move_out(&self, number: u64) {
        let mut state = self.lock();
        state.residents.retain(|resident| resident.number != number);
        drop(state);
        self.wake.notify_one();
    }

    pub(super) fn now(&self) -> Vec<NodeNow> {
        let mut state = self.lock();
        let now = clock::now();
        state.nodes.iter_mut().map(|node| node.now(now)).collect()
    }

    /// A node stands still, or goes on.
    pub(super) fn stand(&self, node: usize, still: bool) {
        let mut state = self.lock();
        let now = clock::now();
        // What was due until now has happened.
        state.advance(now);
        if let Some(node) = state.nodes.get_mut(node) {
            node.stand(still, now);
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Adds what the request's file costs; its workers are waited for outside the lock.
    pub(super) fn prepare(&self, node: usize, work: &mut Work) -> (Option<Found>, Arc<Semaphore>) {
        let mut state = self.lock();
        match state.nodes.get_mut(node) {
            Some(node) => (node.files().find(work), node.workers()),
            // The last act is to clear the nodes away.
            None => (None, Arc::new(Semaphore::new(1))),
        }
    }

    /// Does something with a node, unless all are gone.
    fn with<T>(&self, node: usize, act: impl FnOnce(&mut Node, Timestamp) -> T) -> Option<T> {
        let mut state = self.lock();
        let now = clock::now();
        state.nodes.get_mut(node).map(|node| act(node, now))
    }
}

impl EmulatedState {
    fn add(&mut self, node: usize, antagonist: &Antagonist, start: Timestamp) -> u64 {
        let number = self.next_resident;
        self.next_resident += 1;
        let resident = Resident::new(number, node, antagonist, start);
        self.residents.push(resident);
        number
    }

    fn advance(&mut self, now: Timestamp) {
        for resident in &mut self.residents {
            // Late by as much as the thread was late: the spells go on as planned.
            resident.advance(now);
        }
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let here = self.residents.iter().filter(|it| it.node == index);
            let taken: Taken = here.map(Resident::takes).sum();
            node.advance(taken, now);
        }
    }

    fn next(&self) -> Option<Timestamp> {
        let comings = self.residents.iter().map(Resident::until);
        let events = self.nodes.iter().filter_map(Node::next);
        comings.chain(events).min()
    }
}

/// A request's stay at a node. Dropped before its end, it is cancelled.
#[derive(Debug)]
pub(super) struct Stay {
    shared: Arc<Shared>,
    node: usize,
    memory: u64,
    files: u32,
}

impl Stay {
    pub(super) fn begin(shared: &Arc<Shared>, node: usize, work: &Work) -> Self {
        shared.with(node, |node, _| node.hold(work.memory, work.fds));
        Self {
            shared: Arc::clone(shared),
            node,
            memory: work.memory,
            files: work.fds,
        }
    }

    /// Wants CPU time from now on.
    pub(super) fn arrive(&self, demand: Duration) -> (Task, oneshot::Receiver<Timestamp>) {
        let mut state = self.shared.lock();
        let now = clock::now();
        let wakes_at = state.wakes_at;
        let arrived = state.nodes.get_mut(self.node).map(|node| {
            let (task, end) = node.arrive(demand, now);
            (task, end, node.next().is_some_and(|due| due < wakes_at))
        });
        drop(state);
        let (task, end, sooner) = arrived.unwrap_or_else(|| (0, oneshot::channel().1, false));
        if sooner {
            self.shared.wake.notify_one();
        }
        let shared = Arc::clone(&self.shared);
        let node = self.node;
        (Task { shared, node, task }, end)
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        let (memory, files) = (self.memory, self.files);
        self.shared
            .with(self.node, |node, _| node.release(memory, files));
    }
}

/// A task on the run queue; dropped before its end, it is cancelled.
#[derive(Debug)]
pub(super) struct Task {
    shared: Arc<Shared>,
    node: usize,
    task: TaskId,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.shared
            .with(self.node, |node, now| node.cancel(self.task, now));
    }
}
