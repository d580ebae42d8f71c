//! Discrete-event simulation of a cluster over the unchanged core.
//!
//! ```text
//!  arrival ──> Picker of front-end f ──delay──> Processor of node s ──delay──> answer at f
//!                 ^        ^                     │ counters
//!                 │        └── Director of f     v
//!                 └── LoadTable of f <── reads of the past, made up for when f chooses
//! ```
//!
//! Front-ends share nothing but the nodes. Events of one instant run in the order in which they
//! were scheduled, completions at nodes first; so a seed replays a run.
//!
//! Not modelled: bandwidth, loss of requests, connection set-up, the front-ends' own CPU.

mod faults;
mod fronts;
mod measures;
mod nodes;
mod words;

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_core::admission::AdmissionKind;
use tidegate_core::load::WordReply;
use tidegate_core::policy::Signal;
use tidegate_core::prng::Prng;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::NodeId;

use crate::arrivals::ArrivalTimes;
pub use crate::checks::Violation;
use crate::chooser::Chooser;
use crate::due::Due;
use crate::fault::{Spell, spells};
use crate::front_end::{FrontEnd, subsets};
use crate::model::{Arrivals, Stream};
use crate::node::Node;
use crate::oracle::Oracle;
use crate::queue::{Event, Queue};
pub use crate::reads::PHASES;
use crate::reads::{Reads, WantedRates};
use crate::report::Report;
use crate::requests::{Requests, Wanted};
use crate::scenario::{Scenario, SiteModel};
use measures::Measures;

/// Virtual time at the start: not the clock's zero, which means "never".
const START: Timestamp = Timestamp::from_millis(1000);

/// What chooses, as it stands.
#[derive(Debug)]
enum Choosers {
    FrontEnds(Vec<FrontEnd>),
    Oracle(Oracle),
}

/// The generators of one site's requests.
#[derive(Debug)]
struct SiteArrivals {
    times: ArrivalTimes,
    prng: Prng,
}

/// See the module.
#[derive(Debug)]
struct World<'a> {
    scenario: &'a Scenario,
    now: Timestamp,
    queue: Queue,
    due: Due,
    network: Prng,
    arrivals: Vec<SiteArrivals>,
    nodes: Vec<Node>,
    choosers: Choosers,
    reads: Option<Reads>,
    requests: Requests,
    /// Those that wait at a front-end, by the number under which they do.
    waiting: BTreeMap<u64, Wanted>,
    arrivals_so_far: u64,
    spells: Vec<Spell>,
    measures: Measures,
}

/// Runs the scenario to its last answer.
pub fn run(scenario: &Scenario, chooser: impl Into<Chooser>) -> Result<Report, Violation> {
    if let Some(problem) = scenario.problem() {
        return Err(Violation {
            seed: scenario.seed,
            at: Duration::ZERO,
            what: problem,
        });
    }
    let mut world = World::new(scenario, chooser.into());
    while !world.ended() {
        world.step()?;
    }
    world.finish()
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, chooser: Chooser) -> Self {
        let seed = scenario.seed;
        let looks_at = |signal| chooser.signals().contains(&signal);
        let admits = |site: &SiteModel| site.admission.kind != AdmissionKind::Off;
        let limits = scenario.sites.iter().any(admits);
        let rates = WantedRates {
            utilization: looks_at(Signal::Utilization) || limits,
            request_times: looks_at(Signal::RequestTimes),
        };
        let files = scenario.nodes.iter().any(|node| node.files.is_some());
        let reads =
            (looks_at(Signal::Load) || limits || files).then(|| Reads::new(scenario, rates, START));
        let look_back = reads.as_ref().map(Reads::look_back);
        let models = scenario.nodes.iter().zip(0..);
        let nodes: Vec<_> = models
            .map(|(model, number)| Node::new(model, number, seed, look_back, START))
            .collect();
        let sites = 0..scenario.sites.len() as u32;
        let arrivals = sites.map(|site| {
            let model = &scenario.sites[site as usize].arrivals;
            let rate = scenario.rate(site as usize);
            SiteArrivals {
                times: ArrivalTimes::new(model, rate, site, seed, START),
                prng: Stream::Requests(site).prng(seed),
            }
        });
        let choosers = match chooser {
            Chooser::Oracle(by) => Choosers::Oracle(Oracle::new(scenario, by, &nodes)),
            Chooser::Policy(policy) => {
                let hands = subsets(scenario).into_iter().zip(0..);
                let front_end = |(nodes, number)| {
                    FrontEnd::new(scenario, policy, number, nodes, reads.as_ref(), START)
                };
                Choosers::FrontEnds(hands.map(front_end).collect())
            }
        };
        let mut world = Self {
            scenario,
            now: START,
            queue: Queue::default(),
            due: Due::new(scenario.nodes.len()),
            network: Stream::Network.prng(seed),
            arrivals: arrivals.collect(),
            nodes,
            choosers,
            reads,
            requests: Requests::default(),
            waiting: BTreeMap::new(),
            arrivals_so_far: 0,
            spells: spells(&scenario.faults),
            measures: Measures::new(scenario),
        };
        world.schedule_first();
        world
    }

    fn schedule_first(&mut self) {
        for node in 0..self.nodes.len() as u32 {
            self.schedule_first_antagonist(node);
        }
        for (change, index) in self.scenario.overrides.iter().zip(0..) {
            let at = START + change.at;
            self.queue.schedule(at, Event::Override { index });
        }
        for (leave, index) in self.scenario.leaves.iter().zip(0..) {
            self.queue
                .schedule(START + leave.from, Event::Left { index });
            self.queue
                .schedule(START + leave.to, Event::Joined { index });
        }
        for (spell, index) in self.spells.iter().zip(0..) {
            self.queue
                .schedule(START + spell.from, Event::Broke { index });
            self.queue
                .schedule(START + spell.to, Event::Mended { index });
        }
        self.queue.schedule(START + measures::WINDOW, Event::Window);
        for site in 0..self.arrivals.len() as u32 {
            match self.scenario.sites[site as usize].arrivals {
                Arrivals::Closed { clients, .. } => {
                    for _ in 0..clients {
                        self.ask_again(site);
                    }
                }
                Arrivals::Poisson
                | Arrivals::Bursts { .. }
                | Arrivals::Step { .. }
                | Arrivals::Surge { .. } => self.schedule_arrival(site),
            }
        }
        self.wake_who_limits();
    }

    /// Whether the last request has ended.
    fn ended(&self) -> bool {
        let offered = self.measures.offered();
        let left = self.measures.in_flight() + self.measures.waiting();
        offered == u64::from(self.scenario.requests) && left == 0
    }

    /// Runs one event.
    fn step(&mut self) -> Result<(), Violation> {
        self.measures.events += 1;
        match (self.due.first(), self.queue.next()) {
            (Some((at, node)), next) if next.is_none_or(|next| at <= next) => {
                self.now = at;
                self.settle(node);
                return Ok(());
            }
            (_, Some(at)) => self.now = at,
            (_, None) => {
                let what = "nothing is scheduled and requests are in flight";
                return Err(self.violation(what.into()));
            }
        }
        let Some(event) = self.queue.pop() else {
            return Ok(());
        };
        match event {
            Event::Arrival { site } => self.on_arrival(site)?,
            Event::Delivered { request } => self.on_delivered(request),
            Event::IoDone { request, version } => self.on_io_done(request, version),
            Event::Answered { request } => self.on_answered(request)?,
            Event::Rests {
                request,
                version,
                answered,
            } => self.on_rests((request, version), answered)?,
            Event::TimedOut { request, version } => self.on_timed_out(request, version)?,
            Event::Cancelled { request, version } => self.on_cancelled(request, version),
            Event::Probed {
                front_end,
                node,
                answered,
            } => self.on_probed(front_end, node, answered),
            Event::WordAsked {
                front_end,
                node,
                ticket,
            } => self.on_word_asked(front_end, NodeId(node), ticket),
            Event::WordAnswered {
                front_end,
                node,
                ticket,
                held,
                node_now,
            } => {
                let reply = WordReply::Done { held, node_now };
                self.on_word_answered(front_end, (NodeId(node), ticket), reply);
            }
            Event::Antagonist { node } => self.on_antagonist(node),
            Event::Wake { front_end } => self.on_wake(front_end)?,
            Event::Window => self.on_window()?,
            Event::Override { index } => self.on_override(index),
            Event::Left { index } => self.on_left(index)?,
            Event::Joined { index } => self.on_joined(index)?,
            Event::Broke { index } => self.on_broke(index),
            Event::Mended { index } => self.on_mended(index),
        }
        self.check_totals()
    }

    /// A node has changed: the oracle knows at once.
    fn tell_oracle(&mut self, node: u32) {
        if let Choosers::Oracle(oracle) = &mut self.choosers {
            oracle.update(node, &self.nodes[node as usize]);
        }
    }

    /// When a message that is sent now arrives.
    fn after_delay(&mut self) -> Timestamp {
        let network = &self.scenario.network;
        let sent = self.now + network.delay;
        if network.jitter.is_zero() {
            return sent;
        }
        let jitter = self.network.exponential(network.jitter.as_secs_f64());
        sent + Duration::from_secs_f64(jitter)
    }

    fn violation(&self, what: String) -> Violation {
        Violation {
            seed: self.scenario.seed,
            at: self.now.since(START),
            what,
        }
    }
}
