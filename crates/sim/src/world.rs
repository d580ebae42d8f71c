//! Discrete-event simulation of a cluster over the unchanged core.
//!
//! ```text
//!  arrival ──> Picker of front-end f ──delay──> Processor of node s ──delay──> answer at f
//!  record read by f each interval: sent, delay, made at the node, delay, History -> LoadTable
//!  Director of f: a tick each 1 ms
//! ```
//!
//! Front-ends share nothing but the nodes. Reads and ticks run in [`PHASES`] phases, so that
//! neither all nodes nor all front-ends move at once. Events of one instant run in the order
//! in which they were scheduled; so a seed replays a run.
//!
//! After every event: offered = completed + failed + rejected + in flight. At every tick the
//! pickers' own counts agree with it; at every dispatch the node is one that may have it. A
//! breach ends the run with a [`Violation`], which names the seed.
//!
//! Not modelled: bandwidth, loss, connection set-up, the front-ends' own CPU.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::director::Director;
use tidegate_core::load::{History, LoadTable, Progress, Reading};
use tidegate_core::picker::{Decision, Outcome, Picker, Ticket};
use tidegate_core::policy::PolicyConfig;
use tidegate_core::prng::Prng;
use tidegate_core::record::LoadRecord;
use tidegate_core::time::{Timestamp, nanos};
use tidegate_core::topology::{
    AdminState, ClusterSpec, Health, NodeId, NodeSpec, SiteId, SiteSpec,
};

use crate::chooser::Chooser;
use crate::model::Stream;
use crate::processor::Processor;
use crate::report::{Digest, Latencies, Report};
use crate::scenario::Scenario;

/// Groups in which reads and ticks are spread over their interval.
pub const PHASES: u32 = 8;
/// Interval of the director.
pub const TICK: Duration = Duration::from_millis(1);
/// Window of [`Report::herding`].
pub const HERDING_WINDOW: Duration = Duration::from_millis(100);
/// Share of the requests that warm up.
const WARM_UP: f64 = 0.1;
/// Tries of one request, the first included.
const TRIES_MAX: usize = 2;
/// Virtual time at the start: not the clock's zero, which means "never".
const START: Timestamp = Timestamp::from_millis(1000);
const SITE: SiteId = SiteId(0);

/// The run broke a rule that must hold at every step.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("seed {seed}, {at:?} after the start: {what}")]
pub struct Violation {
    /// The run's seed, which replays it.
    pub seed: u64,
    /// When, since the start.
    pub at: Duration,
    /// What broke.
    pub what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival,
    Delivered {
        request: u32,
    },
    NodeDue {
        node: u32,
        version: u32,
    },
    Answered {
        request: u32,
        served: bool,
    },
    Probed {
        front_end: u32,
        node: u32,
        answered: bool,
    },
    Antagonist {
        node: u32,
    },
    ReadSent {
        phase: u32,
    },
    ReadMade {
        phase: u32,
    },
    ReadReceived {
        phase: u32,
    },
    Tick {
        phase: u32,
    },
    Herding,
    Order {
        index: u32,
    },
    Died {
        index: u32,
    },
    Revived {
        index: u32,
    },
}

#[derive(Debug)]
struct NodeState {
    processor: Processor,
    prng: Prng,
    alive: bool,
    due: Option<Timestamp>,
    version: u32,
    /// Since when the operator's word bars it from new requests.
    barred: Option<Timestamp>,
    sent: u64,
    in_flight_ns: u64,
}

#[derive(Debug)]
struct FrontEnd {
    director: Director,
    table: Arc<LoadTable>,
    histories: Vec<History>,
    picker: Picker,
}

#[derive(Debug)]
struct Request {
    front_end: u32,
    arrived: Timestamp,
    demand: Duration,
    ticket: Option<Ticket>,
    tried: Vec<NodeId>,
}

#[derive(Debug, Default)]
struct Totals {
    offered: u64,
    completed: u64,
    failed: u64,
    rejected: u64,
    in_flight: u64,
}

/// See the module.
#[derive(Debug)]
pub struct World<'a> {
    scenario: &'a Scenario,
    now: Timestamp,
    events: BinaryHeap<Reverse<(Timestamp, u64, Event)>>,
    scheduled: u64,
    arrivals: Prng,
    nodes: Vec<NodeState>,
    front_ends: Vec<FrontEnd>,
    requests: Vec<Request>,
    /// Records on their way, by phase and node.
    records: Vec<Vec<Option<LoadRecord>>>,
    totals: Totals,
    latencies: Vec<u64>,
    load_ages: Vec<u64>,
    herding: Vec<f64>,
    digest: Digest,
}

/// Runs the scenario under the policy to its last answer.
pub fn run(scenario: &Scenario, chooser: impl Into<Chooser>) -> Result<Report, Violation> {
    let policy = match chooser.into() {
        Chooser::Policy(policy) => policy,
        Chooser::Oracle(_) => {
            return Err(Violation {
                seed: scenario.seed,
                at: Duration::ZERO,
                what: "the oracle is not modelled".into(),
            });
        }
    };
    let mut world = World::new(scenario, policy);
    while !world.ended() {
        world.step()?;
    }
    Ok(world.report())
}

impl<'a> World<'a> {
    /// The scenario before its first event.
    pub fn new(scenario: &'a Scenario, policy: PolicyConfig) -> Self {
        let seed = scenario.seed;
        let spec = cluster(scenario, policy);
        let count = scenario.nodes.len();
        let nodes = scenario.nodes.iter().enumerate().map(|(index, model)| {
            let prng = Stream::Antagonist(index as u32).prng(seed);
            NodeState {
                processor: Processor::new(model.cores, model.speed, 1, START),
                prng,
                alive: true,
                due: None,
                version: 0,
                barred: None,
                sent: 0,
                in_flight_ns: 0,
            }
        });
        let front_ends = (0..scenario.front_ends.count).map(|index| {
            let director = Director::new(spec.clone(), Stream::Director(index).prng(seed).bits());
            let table = Arc::new(LoadTable::new(count, 1));
            let chooser = Stream::Picker(index).prng(seed).bits();
            FrontEnd {
                picker: Picker::new(Arc::clone(&table), director.topology(), chooser),
                director,
                table,
                histories: (0..count).map(|_| History::default()).collect(),
            }
        });
        let mut world = Self {
            scenario,
            now: START,
            events: BinaryHeap::new(),
            scheduled: 0,
            arrivals: Stream::Requests(0).prng(seed),
            nodes: nodes.collect(),
            front_ends: front_ends.collect(),
            requests: Vec::with_capacity(scenario.requests as usize),
            records: vec![vec![None; count]; PHASES as usize],
            totals: Totals::default(),
            latencies: Vec::with_capacity(scenario.requests as usize),
            load_ages: Vec::with_capacity(scenario.requests as usize),
            herding: Vec::new(),
            digest: Digest::new(),
        };
        world.schedule_first();
        world
    }

    /// Whether the last request was answered.
    pub fn ended(&self) -> bool {
        self.totals.offered == u64::from(self.scenario.requests) && self.totals.in_flight == 0
    }

    /// Runs one event.
    pub fn step(&mut self) -> Result<(), Violation> {
        let Some(Reverse((at, _, event))) = self.events.pop() else {
            return Err(self.violation("nothing is scheduled and requests are in flight".into()));
        };
        self.now = at;
        match event {
            Event::Arrival => self.on_arrival()?,
            Event::Delivered { request } => self.on_delivered(request),
            Event::NodeDue { node, version } => {
                if self.nodes[node as usize].version == version {
                    self.nodes[node as usize].due = None;
                    self.settle(node);
                }
            }
            Event::Answered { request, served } => self.on_answered(request, served)?,
            Event::Probed {
                front_end,
                node,
                answered,
            } => {
                let director = &mut self.front_ends[front_end as usize].director;
                director.handle_probe(NodeId(node), answered, at);
            }
            Event::Antagonist { node } => self.on_antagonist(node),
            Event::ReadSent { phase } => self.on_read_sent(phase),
            Event::ReadMade { phase } => self.on_read_made(phase),
            Event::ReadReceived { phase } => self.on_read_received(phase),
            Event::Tick { phase } => self.on_tick(phase)?,
            Event::Herding => self.on_herding(),
            Event::Order { index } => self.on_order(index),
            Event::Died { index } => self.on_died(index),
            Event::Revived { index } => {
                let node = self.scenario.faults[index as usize].node;
                self.nodes[node.index()].alive = true;
            }
        }
        self.check_totals()
    }

    /// What was measured so far.
    pub fn report(&self) -> Report {
        let windows = self.herding.len().max(1) as f64;
        Report {
            offered: self.totals.offered,
            completed: self.totals.completed,
            failed: self.totals.failed,
            rejected: self.totals.rejected,
            latencies: Latencies::of(self.latencies.clone()),
            load_ages: Latencies::of(self.load_ages.clone()),
            sent: self.nodes.iter().map(|node| node.sent).collect(),
            herding: self.herding.iter().sum::<f64>() / windows,
            lasted: self.now.since(START),
            events: self.scheduled,
            digest: self.digest.value(),
        }
    }

    fn schedule_first(&mut self) {
        let step = |interval: Duration, phase: u32| START + interval * phase / PHASES;
        for phase in 0..PHASES {
            self.schedule(step(TICK, phase), Event::Tick { phase });
            let read = step(self.read_interval(), phase);
            self.schedule(read, Event::ReadSent { phase });
        }
        for node in 0..self.nodes.len() as u32 {
            let Some(antagonist) = self.antagonist(node) else {
                continue;
            };
            // On from the start with the chance that it is on at any time.
            let prng = &mut self.nodes[node as usize].prng;
            let on = prng.unit() < antagonist.duty;
            let wait = if on {
                Duration::ZERO
            } else {
                antagonist.draw_off(prng)
            };
            self.schedule(START + wait, Event::Antagonist { node });
        }
        for (index, order) in self.scenario.orders.iter().enumerate() {
            self.schedule(
                START + order.at,
                Event::Order {
                    index: index as u32,
                },
            );
        }
        for (index, outage) in self.scenario.faults.iter().enumerate() {
            let index = index as u32;
            self.schedule(START + outage.from, Event::Died { index });
            self.schedule(START + outage.to, Event::Revived { index });
        }
        self.schedule(START + HERDING_WINDOW, Event::Herding);
        self.schedule_arrival();
    }

    fn schedule(&mut self, at: Timestamp, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse((at, self.scheduled, event)));
    }

    fn schedule_arrival(&mut self) {
        if self.totals.offered < u64::from(self.scenario.requests) {
            let gap = self.arrivals.exponential(1.0 / self.scenario.rate(0));
            self.schedule(self.now + Duration::from_secs_f64(gap), Event::Arrival);
        }
    }

    fn warm(&self, request: u32) -> bool {
        f64::from(request) >= f64::from(self.scenario.requests) * WARM_UP
    }

    fn on_arrival(&mut self) -> Result<(), Violation> {
        let scenario = self.scenario;
        let front_end = self.arrivals.below(scenario.front_ends.count as usize) as u32;
        let mean = scenario.sites[0].mean_demand.as_secs_f64();
        let demand =
            Duration::from_secs_f64(scenario.sites[0].demand.draw(mean, &mut self.arrivals));
        let request = self.requests.len() as u32;
        self.requests.push(Request {
            front_end,
            arrived: self.now,
            demand,
            ticket: None,
            tried: Vec::new(),
        });
        self.totals.offered += 1;
        self.schedule_arrival();
        let picker = &mut self.front_ends[front_end as usize].picker;
        match picker.handle_request(SITE, self.now) {
            Decision::Forward(ticket) => {
                self.totals.in_flight += 1;
                self.send(request, ticket)
            }
            Decision::Reject(_) => {
                self.totals.rejected += 1;
                Ok(())
            }
        }
    }

    fn send(&mut self, request: u32, ticket: Ticket) -> Result<(), Violation> {
        let node = ticket.node;
        self.check_dispatch(request, &ticket)?;
        if self.warm(request) {
            self.nodes[node.index()].sent += 1;
            self.load_ages.extend(ticket.why.load_age.map(nanos));
        }
        self.digest.add(self.now.nanos());
        self.digest.add(node.0.into());
        self.requests[request as usize].ticket = Some(ticket);
        self.schedule(
            self.now + self.scenario.network.delay,
            Event::Delivered { request },
        );
        Ok(())
    }

    fn on_delivered(&mut self, request: u32) {
        let state = &self.requests[request as usize];
        let Some(ticket) = &state.ticket else { return };
        let node = ticket.node;
        let here = &mut self.nodes[node.index()];
        if here.alive {
            here.processor
                .arrive(self.now, request.into(), state.demand);
            self.settle(node.0);
        } else {
            self.answer(request, false);
        }
    }

    fn answer(&mut self, request: u32, served: bool) {
        let at = self.now + self.scenario.network.delay;
        self.schedule(at, Event::Answered { request, served });
    }

    /// Sends answers of what has ended at the node, and comes back when more will have.
    fn settle(&mut self, node: u32) {
        let now = self.now;
        self.nodes[node as usize].processor.advance(now);
        self.answer_completed(node);
        let here = &mut self.nodes[node as usize];
        let due = here.processor.next_completion();
        if due != here.due {
            here.due = due;
            here.version = here.version.wrapping_add(1);
            let version = here.version;
            if let Some(due) = due {
                self.schedule(due, Event::NodeDue { node, version });
            }
        }
    }

    fn answer_completed(&mut self, node: u32) {
        while let Some(done) = self.nodes[node as usize].processor.poll_completed() {
            self.answer(done.task as u32, true);
        }
    }

    fn on_answered(&mut self, request: u32, served: bool) -> Result<(), Violation> {
        let now = self.now;
        let warm = self.warm(request);
        let state = &mut self.requests[request as usize];
        let Some(ticket) = state.ticket.take() else {
            return Err(self.violation(format!("request {request} was answered twice")));
        };
        let picker = &mut self.front_ends[state.front_end as usize].picker;
        let outcome = if served {
            Outcome::Success
        } else {
            Outcome::TransportFailure
        };
        picker.handle_outcome(&ticket, outcome, now);
        state.tried.push(ticket.node);
        drop(ticket);
        self.digest.add(now.nanos());
        if !served
            && state.tried.len() < TRIES_MAX
            && let Decision::Forward(ticket) = picker.handle_retry(SITE, &state.tried, now)
        {
            return self.send(request, ticket);
        }
        picker.handle_end(SITE, now);
        self.totals.in_flight -= 1;
        if served {
            self.totals.completed += 1;
            if warm {
                self.latencies.push(nanos(now.since(state.arrived)));
            }
        } else {
            self.totals.failed += 1;
        }
        Ok(())
    }

    fn read_interval(&self) -> Duration {
        let mut records = self.scenario.nodes.iter().filter_map(|node| node.records);
        records.next().unwrap_or_default().interval
    }

    fn antagonist(&self, node: u32) -> Option<crate::model::Antagonist> {
        self.scenario.nodes[node as usize].antagonist
    }

    fn on_antagonist(&mut self, node: u32) {
        let Some(antagonist) = self.antagonist(node) else {
            return;
        };
        let here = &mut self.nodes[node as usize];
        let stretch = if here.processor.antagonists() == 0 {
            here.processor.set_antagonists(self.now, antagonist.tasks);
            antagonist.draw_on(&mut here.prng)
        } else {
            here.processor.set_antagonists(self.now, 0);
            antagonist.draw_off(&mut here.prng)
        };
        self.settle(node);
        self.schedule(self.now + stretch, Event::Antagonist { node });
    }

    fn on_read_sent(&mut self, phase: u32) {
        let now = self.now;
        for (front_end, node) in self.pairs(phase) {
            let state = &mut self.front_ends[front_end];
            let own = state.table.own(NodeId(node as u32));
            state.histories[node].note_poll(now, own);
        }
        self.schedule(now + self.scenario.network.delay, Event::ReadMade { phase });
        let next = now + self.read_interval();
        self.schedule(next, Event::ReadSent { phase });
    }

    fn on_read_made(&mut self, phase: u32) {
        for node in 0..self.nodes.len() {
            let wanted = (phase + PHASES - node as u32 % PHASES) % PHASES;
            let here = &mut self.nodes[node];
            let answers = here.alive && self.scenario.nodes[node].records.is_some();
            let read = answers && wanted < self.scenario.front_ends.count;
            self.records[phase as usize][node] = read.then(|| here.processor.record(self.now));
            self.answer_completed(node as u32);
        }
        let at = self.now + self.scenario.network.delay;
        self.schedule(at, Event::ReadReceived { phase });
    }

    fn on_read_received(&mut self, phase: u32) {
        for (front_end, node) in self.pairs(phase) {
            let Some(record) = &self.records[phase as usize][node] else {
                continue;
            };
            let state = &mut self.front_ends[front_end];
            let id = NodeId(node as u32);
            let reading = Reading {
                record,
                sent_at: self.now - self.scenario.network.delay * 2,
                received_at: self.now,
                node_now_ns: Some(record.t_ns),
            };
            match state.histories[node].accept(&reading, state.table.own(id)) {
                Progress::Advanced(load) => state.table.store(id, &load),
                Progress::Unchanged => {}
            }
        }
    }

    /// Front-ends and nodes whose reads run in this phase.
    fn pairs(&self, phase: u32) -> impl Iterator<Item = (usize, usize)> + use<> {
        let nodes = self.nodes.len();
        (0..self.front_ends.len()).flat_map(move |front_end| {
            let first = (phase + PHASES - front_end as u32 % PHASES) % PHASES;
            let nodes = (first as usize..nodes).step_by(PHASES as usize);
            nodes.map(move |node| (front_end, node))
        })
    }

    fn on_tick(&mut self, phase: u32) -> Result<(), Violation> {
        let now = self.now;
        let round_trip = self.scenario.network.delay * 2;
        for index in (phase as usize..self.front_ends.len()).step_by(PHASES as usize) {
            let front_end = &mut self.front_ends[index];
            front_end.director.handle_tick(&front_end.table, now);
            if let Some(topology) = front_end.director.poll_topology() {
                front_end.picker.handle_topology(topology);
            }
            let mut probed = Vec::new();
            while let Some(node) = front_end.director.poll_probe(now) {
                probed.push(node);
            }
            while front_end.director.poll_event().is_some() {}
            for node in probed {
                let probed = Event::Probed {
                    front_end: index as u32,
                    node: node.0,
                    answered: self.nodes[node.index()].alive,
                };
                self.schedule(now + round_trip, probed);
            }
        }
        self.schedule(now + TICK, Event::Tick { phase });
        self.check_own_traffic()
    }

    fn on_herding(&mut self) {
        let (mut sum, mut most) = (0.0, 0.0f64);
        for node in 0..self.nodes.len() {
            let here = &mut self.nodes[node];
            let integral = here.processor.record(self.now).in_flight_ns;
            let grown = (integral - here.in_flight_ns) as f64;
            here.in_flight_ns = integral;
            sum += grown;
            most = most.max(grown);
            self.answer_completed(node as u32);
        }
        let measured = self.warm(self.totals.offered as u32)
            && self.totals.offered < u64::from(self.scenario.requests);
        if measured && sum > 0.0 {
            self.herding.push(most / (sum / self.nodes.len() as f64));
        }
        self.schedule(self.now + HERDING_WINDOW, Event::Herding);
    }

    fn on_order(&mut self, index: u32) {
        let order = self.scenario.orders[index as usize];
        for front_end in &mut self.front_ends {
            front_end.director.handle_order(order.node, order.state);
        }
        self.nodes[order.node.index()].barred = match order.state {
            AdminState::Ready => None,
            AdminState::Drain | AdminState::Maint => Some(self.now),
        };
    }

    fn on_died(&mut self, index: u32) {
        let node = self.scenario.faults[index as usize].node;
        let model = &self.scenario.nodes[node.index()];
        self.settle(node.0);
        let here = &mut self.nodes[node.index()];
        here.alive = false;
        here.due = None;
        here.version = here.version.wrapping_add(1);
        here.in_flight_ns = 0;
        let antagonists = here.processor.antagonists();
        // Another generation: whoever revives it starts its counters anew.
        let generation = u64::from(index) + 2;
        here.processor = Processor::new(model.cores, model.speed, generation, self.now);
        here.processor.set_antagonists(self.now, antagonists);
        let lost: Vec<u32> = (0..self.requests.len() as u32)
            .filter(|request| self.delivered_to(*request, node))
            .collect();
        for request in lost {
            self.answer(request, false);
        }
    }

    /// Whether the request has reached the node and no answer is under way.
    fn delivered_to(&self, request: u32, node: NodeId) -> bool {
        let state = &self.requests[request as usize];
        let at_node = state.ticket.as_ref().is_some_and(|t| t.node == node);
        at_node
            && !self.events.iter().any(|Reverse((_, _, event))| {
                matches!(event,
                    Event::Delivered { request: other } | Event::Answered { request: other, .. }
                    if *other == request)
            })
    }

    fn violation(&self, what: String) -> Violation {
        Violation {
            seed: self.scenario.seed,
            at: self.now.since(START),
            what,
        }
    }

    fn check_totals(&self) -> Result<(), Violation> {
        let totals = &self.totals;
        let ended = totals.completed + totals.failed + totals.rejected;
        if totals.offered == ended + totals.in_flight {
            return Ok(());
        }
        Err(self.violation(format!("requests are not conserved: {totals:?}")))
    }

    fn check_own_traffic(&self) -> Result<(), Violation> {
        let own = |front_end: &FrontEnd| -> u64 {
            let nodes = 0..self.nodes.len() as u32;
            nodes.map(|n| front_end.table.in_flight(NodeId(n))).sum()
        };
        let counted: u64 = self.front_ends.iter().map(own).sum();
        if counted == self.totals.in_flight {
            return Ok(());
        }
        Err(self.violation(format!(
            "pickers count {counted} requests in flight, there are {}",
            self.totals.in_flight
        )))
    }

    /// No drained node is given anything once each director has ticked, no ejected one ever.
    fn check_dispatch(&self, request: u32, ticket: &Ticket) -> Result<(), Violation> {
        let front_end = self.requests[request as usize].front_end;
        let topology = self.front_ends[front_end as usize].picker.topology();
        let barred = self.nodes[ticket.node.index()].barred;
        if barred.is_some_and(|since| self.now > since + TICK) {
            return Err(self.violation(format!("{:?} is drained and was picked", ticket.node)));
        }
        let ejected = topology.node(ticket.node).health == Health::Ejected;
        if ejected && !ticket.why.fail_open {
            return Err(self.violation(format!("{:?} is ejected and was picked", ticket.node)));
        }
        Ok(())
    }
}

fn cluster(scenario: &Scenario, policy: PolicyConfig) -> ClusterSpec {
    let node = |index: usize| NodeSpec {
        name: format!("n{index}"),
        address: ([127, 0, 0, 1], 8000).into(),
        site: SITE,
        weight: 1.0,
    };
    ClusterSpec {
        sites: vec![SiteSpec {
            name: "site".into(),
            hosts: vec!["*".into()],
            paths: Vec::new(),
            policy,
        }],
        nodes: (0..scenario.nodes.len()).map(node).collect(),
        front_ends: scenario.front_ends.count,
    }
}
