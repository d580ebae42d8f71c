//! A small cluster in virtual time: processor-sharing servers behind front-ends that do not
//! talk to each other, each with the real director, table and picker.
//!
//! Time goes in steps of a millisecond. In each step every front-end takes a record of every
//! node (unless it is set not to), ticks, and dispatches what arrives; then the servers work.
//! Requests take 10 ms of CPU on average, exponentially distributed. It measures nothing:
//! comparisons of policies belong to the simulator crate.

mod cluster;

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::director::Director;
use tidegate_core::load::{LoadTable, NodeLoad};
use tidegate_core::picker::{Arrival, Decision, Outcome, Picker, Ticket};
use tidegate_core::policy::{PolicyConfig, Probe};
use tidegate_core::prng::Prng;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{ClusterSpec, NodeId};

pub(crate) use cluster::{SITE, cluster};

const STEP: Duration = Duration::from_millis(1);
/// CPUs of a node of weight 1.
pub(crate) const CORES: f32 = 4.0;
const DEMAND_SECONDS: f64 = 0.01;

/// One front-end.
pub(crate) struct Front {
    pub(crate) director: Director,
    pub(crate) table: Arc<LoadTable>,
    pub(crate) picker: Picker,
}

impl Front {
    pub(crate) fn new(spec: &ClusterSpec, seed: u64) -> Self {
        let director = Director::new(spec.clone(), seed);
        let table = Arc::new(LoadTable::new(spec.nodes.len(), spec.sites.len()));
        let picker = Picker::new(Arc::clone(&table), director.topology(), seed);
        Self {
            director,
            table,
            picker,
        }
    }

    pub(crate) fn tick(&mut self, now: Timestamp) {
        self.director.handle_tick(&self.table, now);
        if let Some(topology) = self.director.poll_topology() {
            self.picker.handle_topology(topology);
        }
    }

    pub(crate) fn forward(&mut self, now: Timestamp) -> Ticket {
        let decision = self.picker.handle_request(&Arrival::at(SITE), now);
        let Decision::Forward(ticket) = decision else {
            panic!("not sent: {decision:?}");
        };
        ticket
    }
}

/// What a front-end can read of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Records {
    /// A record each step.
    Fresh,
    /// One idle record at the start, and then none.
    Stale,
    /// None at all.
    Missing,
}

/// A server.
pub(crate) struct Server {
    pub(crate) cores: f32,
    pub(crate) records: Records,
    /// Tasks of others that never end.
    pub(crate) antagonists: u32,
    tasks: Vec<Task>,
}

struct Task {
    seconds_left: f64,
    front: usize,
    ticket: Ticket,
}

pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) fronts: Vec<Front>,
    pub(crate) servers: Vec<Server>,
    /// Dispatched requests by node.
    pub(crate) counts: Vec<u64>,
    /// Every choice in order.
    pub(crate) choices: Vec<u32>,
    /// Servers tell their requests in flight with each response.
    pub(crate) probes: bool,
    /// Choices that compared something.
    pub(crate) compared: u64,
    prng: Prng,
}

impl World {
    pub(crate) fn new(weights: &[f32], policy: PolicyConfig, fronts: u32, seed: u64) -> Self {
        Self::of(&cluster(weights, policy, fronts), seed)
    }

    /// Two front-ends whose site starts nodes slowly.
    pub(crate) fn started_slowly(
        weights: &[f32],
        policy: PolicyConfig,
        slow_start: Duration,
        seed: u64,
    ) -> Self {
        let mut spec = cluster(weights, policy, 2);
        spec.sites[0].health.slow_start = slow_start;
        Self::of(&spec, seed)
    }

    fn of(spec: &ClusterSpec, seed: u64) -> Self {
        let weights = spec.nodes.iter().map(|node| node.weight);
        let fronts = spec.front_ends;
        Self {
            now: Timestamp::from_millis(1000),
            fronts: (0..fronts)
                .map(|front| Front::new(spec, seed + u64::from(front)))
                .collect(),
            counts: vec![0; spec.nodes.len()],
            servers: weights
                .map(|weight| Server {
                    cores: CORES * weight,
                    records: Records::Fresh,
                    antagonists: 0,
                    tasks: Vec::new(),
                })
                .collect(),
            choices: Vec::new(),
            probes: false,
            compared: 0,
            prng: Prng::new(seed ^ 0x5eed),
        }
    }

    /// Runs with arrivals at this share of the cluster's capacity.
    pub(crate) fn run(&mut self, duration: Duration, load: f64) {
        let cores: f32 = self.servers.iter().map(|server| server.cores).sum();
        let per_step = load * f64::from(cores) / DEMAND_SECONDS * STEP.as_secs_f64();
        let end = self.now + duration;
        let mut next = self.prng.exponential(1.0 / per_step);
        while self.now < end {
            self.read();
            for front in &mut self.fronts {
                front.tick(self.now);
            }
            while next < 1.0 {
                self.arrive();
                next += self.prng.exponential(1.0 / per_step);
            }
            next -= 1.0;
            self.now = self.now + STEP;
            self.serve();
        }
    }

    /// The least and the greatest count relative to the mean.
    pub(crate) fn shares(&self) -> (f64, f64) {
        let least = self.counts.iter().min().copied().unwrap_or(0);
        let most = self.counts.iter().max().copied().unwrap_or(0);
        (least as f64 / self.mean(), most as f64 / self.mean())
    }

    /// The node's count relative to the mean.
    pub(crate) fn share(&self, node: usize) -> f64 {
        self.counts[node] as f64 / self.mean()
    }

    fn mean(&self) -> f64 {
        self.counts.iter().sum::<u64>() as f64 / self.counts.len() as f64
    }

    fn read(&mut self) {
        let first = self.choices.is_empty();
        for (index, server) in self.servers.iter().enumerate() {
            let node = NodeId(index as u32);
            for front in &self.fronts {
                let load = match server.records {
                    Records::Fresh => server.load(),
                    Records::Stale if first => NodeLoad {
                        runnable: 0.0,
                        utilization: 0.0,
                        in_flight: 0.0,
                        ..server.load()
                    },
                    Records::Stale | Records::Missing => continue,
                };
                let read = NodeLoad {
                    observed_at: self.now,
                    unseen_from: front.table.own(node),
                    ..load
                };
                front.table.store(node, &read);
            }
        }
    }

    fn arrive(&mut self) {
        let front = self.prng.below(self.fronts.len());
        let ticket = self.fronts[front].forward(self.now);
        self.counts[ticket.node.index()] += 1;
        self.choices.push(ticket.node.0);
        self.compared += u64::from(!ticket.why.score.is_nan());
        let seconds_left = self.prng.exponential(DEMAND_SECONDS);
        self.servers[ticket.node.index()].tasks.push(Task {
            seconds_left,
            front,
            ticket,
        });
    }

    fn serve(&mut self) {
        for (index, server) in self.servers.iter_mut().enumerate() {
            let busy = server.tasks.len() as f64 + f64::from(server.antagonists);
            let rate = (f64::from(server.cores) / busy).min(1.0);
            for task in &mut server.tasks {
                task.seconds_left -= rate * STEP.as_secs_f64();
            }
            let in_flight = server.tasks.len() as f32 + server.antagonists as f32;
            for done in server.tasks.extract_if(.., |task| task.seconds_left <= 0.0) {
                let picker = &mut self.fronts[done.front].picker;
                picker.handle_outcome(&done.ticket, Outcome::Success, self.now);
                if self.probes {
                    let probe = Probe {
                        node: NodeId(index as u32),
                        in_flight,
                        latency: f32::NAN,
                    };
                    picker.handle_probe(SITE, &probe, self.now);
                }
            }
        }
    }
}

impl Server {
    fn load(&self) -> NodeLoad {
        let runnable = self.tasks.len() as f32 + self.antagonists as f32;
        let utilization = (runnable / self.cores).min(1.0);
        NodeLoad {
            capacity: self.cores,
            runnable,
            utilization,
            utilization_ulm: utilization,
            in_flight: self.tasks.len() as f32,
            memory: 0.2,
            files: (self.tasks.len() as f32 / 1000.0).min(1.0),
            softirqs: 0.0,
            one_way: 0.0,
            ..NodeLoad::UNKNOWN
        }
    }
}
