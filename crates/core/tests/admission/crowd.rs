//! A front-end to which anything happens, in an order that a seed draws; each of its decisions is
//! checked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::admission::{AdmissionConfig, AdmissionKind, Priority, Rank};
use tidegate_core::director::Director;
use tidegate_core::load::{LoadTable, NodeLoad};
use tidegate_core::picker::{Arrival, Decision, Outcome, Picker, Ticket, WaitId};
use tidegate_core::policy::{PolicyConfig, PolicyKind};
use tidegate_core::prng::Prng;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{AdminState, Capacity, ClusterSpec, NodeId, NodeSpec, SiteSpec};

use crate::{LIMIT_MAX, SITE, START, priority};

/// What a load may say of anything.
const ODD: [f32; 8] = [
    f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    -1.0,
    0.0,
    1e-40,
    1.0,
    f32::MAX,
];
/// See the module.
pub(crate) struct Crowd {
    pub(crate) now: Timestamp,
    pub(crate) picker: Picker,
    pub(crate) table: Arc<LoadTable>,
    /// What was decided: the node, or that it waits or was refused.
    pub(crate) decisions: Vec<u32>,
    /// Requests that had to wait.
    pub(crate) waited: u32,
    /// The first rule that was broken.
    pub(crate) wrong: String,
    config: AdmissionConfig,
    director: Director,
    prng: Prng,
    nodes: u32,
    tickets: Vec<Ticket>,
    /// Priorities of those that wait, by their numbers.
    waiting: BTreeMap<u64, Priority>,
    last: u64,
}

/// One site with nodes n0, n1, ….
pub(crate) fn cluster(nodes: u32, admission: AdmissionConfig) -> ClusterSpec {
    ClusterSpec {
        sites: vec![SiteSpec {
            name: "site".into(),
            hosts: vec!["*".into()],
            paths: Vec::new(),
            policy: PolicyConfig::new(PolicyKind::PowerOfTwo),
            admission,
            health: Default::default(),
        }],
        nodes: (0..nodes)
            .map(|node| NodeSpec {
                name: format!("n{node}"),
                address: ([127, 0, 0, 1], 8000).into(),
                site: SITE,
                weight: 1.0,
                capacity: Capacity::default(),
            })
            .collect(),
        groups: Vec::new(),
        front_ends: 1,
    }
}

impl Crowd {
    pub(crate) fn new(nodes: u32, config: AdmissionConfig, seed: u64) -> Self {
        let director = Director::new(cluster(nodes, config), seed);
        let table = Arc::new(LoadTable::new(nodes as usize, 1));
        Self {
            now: START,
            picker: Picker::new(Arc::clone(&table), director.topology(), seed),
            table,
            decisions: Vec::new(),
            waited: 0,
            wrong: String::new(),
            config,
            director,
            prng: Prng::new(seed ^ 0x5eed),
            nodes,
            tickets: Vec::new(),
            waiting: BTreeMap::new(),
            last: 0,
        }
    }

    /// So many events of any kind.
    pub(crate) fn happen(&mut self, events: u32) {
        for _ in 0..events {
            self.step_clock();
            match self.prng.below(16) {
                0 => self.read_odd(),
                1 if self.prng.below(20) == 0 => {
                    let node = self.any_node();
                    let (state, _) = AdminState::ALL[self.prng.below(3)];
                    self.override_node(node, state);
                }
                1 | 2 => self.tick(),
                3 => self.leave(),
                4 => drop(self.any_ticket()),
                5..=8 => self.end_one(),
                _ => {
                    let number = self.prng.below(self.config.priorities.into()) as u8;
                    self.arrive(priority(number));
                }
            }
            // The shell asks when it gets to it.
            if self.prng.below(2) == 0 {
                self.serve();
            }
        }
    }

    /// A little further, mostly; at times not at all, far, or back.
    fn step_clock(&mut self) {
        let step = Duration::from_micros(self.prng.below(2000) as u64);
        self.now = match self.prng.below(100) {
            0..30 => self.now,
            30 => self.now - step * 1000,
            31 => self.now + step * 50_000,
            _ => self.now + step,
        };
    }

    /// A request arrives; whether it came in at once.
    pub(crate) fn arrive(&mut self, priority: Priority) -> bool {
        let before = self.in_flight();
        let decision = self.ask(priority);
        self.check_limits();
        match decision {
            Decision::Forward(ticket) => {
                self.check_let_in(&before, ticket.node);
                if self.waiting.values().any(|other| *other <= priority) {
                    self.is_wrong(format!("{priority:?} came before one that waits"));
                }
                self.decisions.push(ticket.node.0);
                self.tickets.push(ticket);
                true
            }
            Decision::Wait => {
                self.decisions.push(u32::MAX);
                self.waited += 1;
                self.waiting.insert(self.last, priority);
                false
            }
            Decision::Reject(_) => {
                self.decisions.push(u32::MAX - 1);
                false
            }
        }
    }

    /// A request arrives, and it is the caller's business what becomes of it.
    pub(crate) fn ask(&mut self, priority: Priority) -> Decision {
        self.last += 1;
        let arrival = Arrival {
            priority,
            id: WaitId(self.last),
            ..Arrival::at(SITE)
        };
        self.picker.handle_request(&arrival, self.now)
    }

    /// What becomes of those that wait.
    pub(crate) fn serve(&mut self) {
        loop {
            let before = self.in_flight();
            let Some((id, decision)) = self.picker.poll_waiting(self.now) else {
                return;
            };
            let Some(priority) = self.waiting.remove(&id.0) else {
                self.is_wrong(format!("{id:?} did not wait"));
                return;
            };
            match decision {
                Decision::Forward(ticket) => {
                    self.check_let_in(&before, ticket.node);
                    if self.waiting.values().any(|other| *other < priority) {
                        self.is_wrong(format!("{priority:?} went before a higher priority"));
                    }
                    self.decisions.push(ticket.node.0);
                    self.tickets.push(ticket);
                }
                Decision::Reject(_) => self.decisions.push(u32::MAX - 2),
                Decision::Wait => self.is_wrong(format!("{id:?} waits on and was told of")),
            }
        }
    }

    pub(crate) fn tick(&mut self) {
        self.director.handle_tick(&self.table, self.now);
        if let Some(topology) = self.director.poll_topology() {
            self.picker.handle_topology(topology);
        }
        while let Some(node) = self.director.poll_probe(self.now) {
            self.director.handle_probe(node, true, self.now);
        }
    }

    pub(crate) fn override_node(&mut self, node: NodeId, state: AdminState) {
        self.director.handle_override(node, state);
    }

    /// Every node tells that it has nothing to do.
    pub(crate) fn read_idle(&self) {
        for node in 0..self.nodes {
            let load = NodeLoad {
                observed_at: self.now,
                capacity: 4.0,
                run_queue: 0.0,
                accept_queue: 0.0,
                utilization: 0.0,
                in_flight: 0.0,
                ..NodeLoad::UNKNOWN
            };
            self.table.store(NodeId(node), &load);
        }
    }

    /// Every request that is in flight ends.
    pub(crate) fn end_all(&mut self) {
        while !self.tickets.is_empty() {
            self.end_one();
        }
    }

    fn read_odd(&mut self) {
        let node = self.any_node();
        let mut odd = || ODD[self.prng.below(8)];
        let load = NodeLoad {
            observed_at: self.now,
            capacity: odd(),
            runnable: odd(),
            run_queue: odd(),
            accept_queue: odd(),
            utilization: odd(),
            memory: odd(),
            network: odd(),
            in_flight: odd(),
            request_time: odd(),
            completions: odd(),
            ..NodeLoad::UNKNOWN
        };
        self.table.store(node, &load);
    }

    fn any_node(&mut self) -> NodeId {
        NodeId(self.prng.below(self.nodes as usize) as u32)
    }

    fn any_ticket(&mut self) -> Option<Ticket> {
        if self.tickets.is_empty() {
            return None;
        }
        let place = self.prng.below(self.tickets.len());
        Some(self.tickets.swap_remove(place))
    }

    fn end_one(&mut self) {
        let outcome = [
            Outcome::Success,
            Outcome::Success,
            Outcome::ServerError,
            Outcome::Broken,
        ][self.prng.below(4)];
        if let Some(ticket) = self.any_ticket() {
            self.picker.handle_outcome(&ticket, outcome, self.now);
        }
    }

    /// One that waits goes away by itself.
    fn leave(&mut self) {
        let place = self.prng.below(self.waiting.len().max(1));
        if let Some(id) = self.waiting.keys().nth(place).copied() {
            self.waiting.remove(&id);
            self.picker.handle_left(SITE, WaitId(id));
        }
    }

    fn in_flight(&self) -> Vec<u64> {
        let nodes = 0..self.nodes;
        nodes
            .map(|node| self.table.in_flight(NodeId(node)))
            .collect()
    }

    /// One more has come in where so many were.
    fn check_let_in(&mut self, before: &[u64], node: NodeId) {
        let limits = self.picker.limits(SITE);
        let here = before[node.index()] as f64;
        let topology = Arc::clone(self.picker.topology());
        let candidates = &topology.site(SITE).candidates;
        let all: u64 = candidates.iter().map(|node| before[node.index()]).sum();
        let published = match self.config.kind {
            AdmissionKind::Adaptive => {
                let limit = f64::from(self.table.limit(node, Rank::of(Priority::HIGHEST)));
                // Kinds that do not use what is full behind the servers have a limit of their own.
                match self.table.kinds(SITE).spares_any() {
                    true => limit.max(self.table.spared_limit(node) as f64),
                    false => limit,
                }
            }
            AdmissionKind::Off
            | AdmissionKind::Static
            | AdmissionKind::MaxConn
            | AdmissionKind::Codel
            | AdmissionKind::Gradient2
            | AdmissionKind::Vegas
            | AdmissionKind::EnvoyAdaptiveConcurrency
            | AdmissionKind::EnvoyAdmissionControl
            | AdmissionKind::Dagor => f64::INFINITY,
        };
        if here >= limits.node.min(published) || all as f64 >= limits.site {
            self.is_wrong(format!(
                "{node:?} got one more with {here} of {published} in flight, {all} at all: {limits:?}"
            ));
        }
        if !candidates.contains(&node) {
            self.is_wrong(format!("{node:?} is no candidate"));
        }
    }

    fn check_limits(&mut self) {
        let limits = self.picker.limits(SITE);
        for limit in [limits.node, limits.site] {
            if !((1.0..=LIMIT_MAX).contains(&limit) || limit == f64::INFINITY) {
                self.is_wrong(format!("a limit of {limit}"));
            }
        }
    }

    fn is_wrong(&mut self, what: String) {
        if self.wrong.is_empty() {
            let at = self.decisions.len();
            self.wrong = format!("decision {at}: {what}");
        }
    }
}
