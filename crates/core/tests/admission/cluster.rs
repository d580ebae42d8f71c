//! Servers of four CPUs that share them among all requests, behind one front-end, in steps of a
//! millisecond. Requests take 10 ms of CPU; one without an answer within a second has failed.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::admission::{AdmissionConfig, Priority};
use tidegate_core::director::Director;
use tidegate_core::load::{LoadTable, NodeLoad};
use tidegate_core::picker::{Arrival, Decision, Outcome, Picker, Ticket, WaitId};
use tidegate_core::prng::Prng;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::NodeId;

use crate::{SITE, START, crowd, lowest};

const CPUS: f64 = 4.0;
const DEMAND_MS: f64 = 10.0;
const STEP: Duration = Duration::from_millis(1);
const TIMEOUT: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct Cluster {
    pub(crate) picker: Picker,
    /// Requests that were refused.
    pub(crate) refused: u32,
    /// Requests that were let in and not answered in time.
    pub(crate) late: u32,
    now: Timestamp,
    priority: Priority,
    director: Director,
    table: Arc<LoadTable>,
    prng: Prng,
    nodes: Vec<Vec<Running>>,
    last: u64,
    steps: u64,
}

struct Running {
    ticket: Ticket,
    since: Timestamp,
    millis_left: f64,
}

impl Cluster {
    pub(crate) fn new(nodes: u32, config: AdmissionConfig, seed: u64) -> Self {
        let director = Director::new(crowd::cluster(nodes, config), seed);
        let table = Arc::new(LoadTable::new(nodes as usize, 1));
        Self {
            picker: Picker::new(Arc::clone(&table), director.topology(), seed),
            refused: 0,
            late: 0,
            now: START,
            priority: lowest(&config),
            director,
            table,
            prng: Prng::new(seed ^ 0x5eed),
            nodes: (0..nodes).map(|_| Vec::new()).collect(),
            last: 0,
            steps: 0,
        }
    }

    /// Two requests each 20 ms.
    pub(crate) fn calm(&mut self, duration: Duration) {
        for _ in 0..duration.as_millis() {
            let arrivals = if self.steps.is_multiple_of(20) { 2 } else { 0 };
            self.step(arrivals);
        }
    }

    /// This share of what the servers can do.
    pub(crate) fn overload(&mut self, duration: Duration, load: f64) {
        let mean = load * CPUS * self.nodes.len() as f64 / DEMAND_MS;
        for _ in 0..duration.as_millis() {
            let fraction = self.prng.unit() < mean.fract();
            self.step(mean as u32 + u32::from(fraction));
        }
    }

    fn step(&mut self, arrivals: u32) {
        self.steps += 1;
        self.now = self.now + STEP;
        self.read();
        self.director.handle_tick(&self.table, self.now);
        if let Some(topology) = self.director.poll_topology() {
            self.picker.handle_topology(topology);
        }
        while let Some(node) = self.director.poll_probe(self.now) {
            self.director.handle_probe(node, true, self.now);
        }
        for _ in 0..arrivals {
            self.last += 1;
            let arrival = Arrival {
                priority: self.priority,
                id: WaitId(self.last),
                ..Arrival::at(SITE)
            };
            let decision = self.picker.handle_request(&arrival, self.now);
            self.take(decision);
        }
        self.work();
        while let Some((_, decision)) = self.picker.poll_waiting(self.now) {
            self.take(decision);
        }
    }

    fn take(&mut self, decision: Decision) {
        match decision {
            Decision::Forward(ticket) => self.nodes[ticket.node.index()].push(Running {
                ticket,
                since: self.now,
                millis_left: DEMAND_MS,
            }),
            Decision::Reject(_) => self.refused += 1,
            Decision::Wait => {}
        }
    }

    fn read(&self) {
        for (index, running) in self.nodes.iter().enumerate() {
            let node = NodeId(index as u32);
            let runnable = running.len() as f32;
            let load = NodeLoad {
                observed_at: self.now,
                interval: STEP,
                capacity: CPUS as f32,
                runnable,
                run_queue: runnable,
                accept_queue: 0.0,
                utilization: (runnable / CPUS as f32).min(1.0),
                in_flight: runnable,
                unseen_from: self.table.own(node),
                ..NodeLoad::UNKNOWN
            };
            self.table.store(node, &load);
        }
    }

    fn work(&mut self) {
        for running in &mut self.nodes {
            let rate = (CPUS / running.len() as f64).min(1.0);
            for request in running.iter_mut() {
                request.millis_left -= rate;
            }
            let (now, timeout) = (self.now, TIMEOUT);
            let over = |it: &mut Running| it.millis_left <= 0.0 || now.since(it.since) >= timeout;
            for request in running.extract_if(.., over) {
                let outcome = match request.millis_left <= 0.0 {
                    true => Outcome::Success,
                    false => Outcome::Broken,
                };
                self.late += u32::from(outcome != Outcome::Success);
                self.picker.handle_outcome(&request.ticket, outcome, now);
            }
        }
    }
}
