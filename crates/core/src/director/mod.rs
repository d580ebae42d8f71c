//! The director: the control plane's one state machine.
//!
//! Methods are of three kinds, to be called in this order: `handle_*` tells what happened,
//! `handle_tick` (when [`Director::pace`] says so) lets it think, `poll_*` gives what the shell must
//! do, until each returns nothing. Nothing here can fail.
//!
//! | in | out |
//! |---|---|
//! | loads and outcomes, through the [`LoadTable`] | [`Topology`] snapshots |
//! | answered and failed probes, checks, what agents say | probes to send, checks to make |
//! | changes of the cluster, runtime overrides | terms of nodes and sites, through the [`LoadTable`] |
//! | | events to log and count |

mod agent;
mod base_time;
mod check;
mod credit;
mod health;
mod learn;
pub mod learned;
mod members;
mod neighbours;
mod outliers;
mod pace;
mod services;
mod share;
mod slow_start;
mod soft_limits;
mod trend;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::admission::{AdmissionConfig, AdmissionKind, Control, Priority, Rank, Tick};
use crate::load::LoadTable;
use crate::prng::Prng;
use crate::time::Timestamp;
pub use crate::topology::Cause;
use crate::topology::routes::Routes;
use crate::topology::{
    AdminState, AgentState, CheckConfig, CheckFailure, CheckId, CheckResult, CheckSet, ClusterSpec,
    Crossing, GroupId, Health, Membership, Node, NodeId, Site, SiteId, Topology,
};
pub use check::CheckDue;
use check::NodeChecks;
pub use check::{CheckTurn, NodeCheck};
pub use health::probe_patience;
use health::{Change, NodeHealth, NodeSigns};
pub use learn::LearnedCosts;
use learn::SiteLearner;
use learned::Expected;
use members::{KnownSite, Leaver};
use outliers::Outliers;
use pace::SiteNeed;
use pace::SitePace;
pub use pace::{HEARTBEAT, Pace, TICK_MIN};
use services::NodeServices;
pub use slow_start::RAMP_SPEED_MAX;
use slow_start::{RampTurn, SiteRamps};
use soft_limits::NodeSoftLimits;
pub use soft_limits::SoftLimitWatch;

/// Ticks in the interval of a check, which is late by one of them at most.
const CHECK_TICKS: u32 = 4;
/// Time between two ticks while it is asked whether a node answers again.
const PROBING: Duration = Duration::from_millis(50);
/// Most events kept for a shell that does not poll; older ones are dropped and counted.
const EVENTS_MAX: usize = 1024;

/// Something worth a line in the log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A node failed, fell silent or answered worse than the others, and gets no requests until it
    /// answers a probe.
    Ejected(NodeId, Cause),
    /// An ejected node answered a probe.
    Returned(NodeId),
    /// This check of its site failed so often that a node gets no requests until it passes.
    CheckFailed(NodeId, CheckId, CheckFailure),
    /// It passes again.
    CheckPassed(NodeId, CheckId),
    /// These service checks of a node's own agent fail, so it gets no requests until all pass.
    ServicesFailed(NodeId, CheckSet),
    /// All pass again, or nothing is said of them any more.
    ServicesPassed(NodeId),
    /// A node is about to run out of a resource, and gets no requests until it has more of it.
    SoftLimitCrossed(NodeId, Crossing),
    /// The same, but it is used all the same: too many nodes are out.
    SoftLimitIgnored(NodeId, Crossing),
    /// It is over no limit any more.
    SoftLimitCleared(NodeId),
    /// A node that is new or back gets its share little by little.
    SlowStart(NodeId),
    /// It has its full share from now on.
    FullShare(NodeId),
    /// No node of a site is up, so ejected ones are used.
    FailOpen(SiteId),
    /// The ejections of a site are believed again.
    FailClosed(SiteId),
    /// The operator changed a node's state.
    Admin(NodeId, AdminState),
    /// A node's agent says that it is not well, or that it weighs nothing: it gets no requests until its agent takes that back.
    AgentDown(NodeId),
    /// It takes it back.
    AgentUp(NodeId),
    /// A node's agent changed the node's state.
    AgentState(NodeId, AdminState),
    /// A node that was taken out of the cluster has no requests any more.
    Left(NodeId),
}

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concerned {
    /// A node.
    Node(NodeId),
    /// A site.
    Site(SiteId),
}

impl Event {
    /// What it is about.
    pub fn concerns(&self) -> Concerned {
        match *self {
            Self::FailOpen(site) | Self::FailClosed(site) => Concerned::Site(site),
            Self::Ejected(node, _)
            | Self::Returned(node)
            | Self::CheckFailed(node, ..)
            | Self::CheckPassed(node, _)
            | Self::ServicesFailed(node, _)
            | Self::ServicesPassed(node)
            | Self::SoftLimitCrossed(node, _)
            | Self::SoftLimitIgnored(node, _)
            | Self::SoftLimitCleared(node)
            | Self::SlowStart(node)
            | Self::FullShare(node)
            | Self::Admin(node, _)
            | Self::AgentDown(node)
            | Self::AgentUp(node)
            | Self::AgentState(node, _)
            | Self::Left(node) => Concerned::Node(node),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Director {
    /// By [`SiteId`].
    known: Vec<KnownSite>,
    front_ends_configured: u32,
    front_ends: u32,
    topology: Arc<Topology>,
    published: bool,
    changed: bool,
    health: Vec<NodeHealth>,
    checks: Vec<NodeChecks>,
    soft_limits: Vec<NodeSoftLimits>,
    /// When they were looked at last.
    soft_limits_seen: Timestamp,
    services: Vec<NodeServices>,
    /// The same of these.
    services_seen: Timestamp,
    /// The last check's.
    check_number: u64,
    /// By [`SiteId`].
    ramps: Vec<SiteRamps>,
    leaving: Vec<Leaver>,
    /// Nodes that have come from another site and have not served theirs yet.
    arriving: BTreeSet<NodeId>,
    /// Nodes of which something is known from before the start, by name, and that are not there yet.
    expected: BTreeMap<String, Expected>,
    /// The oldest topology that a worker may still decide by.
    followed: u64,
    probing: usize,
    sites: Vec<SiteLearner>,
    /// By [`SiteId`].
    paces: Vec<SitePace>,
    /// How often any site needs loads read, as of the last tick; none without requests.
    need: Option<Duration>,
    outliers: Vec<Outliers>,
    /// Of sites that admit by what their servers can use.
    controls: Vec<Option<Control>>,
    /// When it ticked last.
    ticked_at: Timestamp,
    events: VecDeque<Event>,
    events_dropped: u64,
    /// Of all nodes so far.
    ejections: u64,
    prng: Prng,
}

impl Director {
    /// A director of this cluster; all nodes are up and ready. Sites whose hosts and paths contradict get no
    /// requests: whatever reads a configuration refuses it before.
    pub fn new(spec: ClusterSpec, seed: u64) -> Self {
        let nodes = spec.nodes.iter().map(|node| Node {
            name: node.name.clone(),
            address: node.address,
            generation: 0,
            membership: Membership::default(),
            site: node.site,
            weight: node.weight,
            capacity: node.capacity,
            admin: AdminState::default(),
            agent: AgentState::default(),
            withheld: false,
            health: Health::default(),
            ejection: None,
            failing_checks: CheckSet::default(),
            failing_services: CheckSet::default(),
            soft_limit: None,
            ejections: 0,
        });
        let nodes = nodes.collect();
        let checks = |site: SiteId| NodeChecks::new(&spec.sites[site.index()].health.checks);
        let mut director = Self {
            front_ends: spec.front_ends.max(1),
            front_ends_configured: spec.front_ends,
            leaving: Vec::new(),
            arriving: BTreeSet::new(),
            expected: BTreeMap::new(),
            followed: 0,
            topology: Arc::new(Topology {
                version: 0,
                sites: Vec::new(),
                nodes,
                groups: spec.groups.as_slice().into(),
                routes: Routes::new(&spec.sites).unwrap_or_default().into(),
            }),
            published: false,
            changed: false,
            health: spec.nodes.iter().map(|_| NodeHealth::default()).collect(),
            checks: spec.nodes.iter().map(|node| checks(node.site)).collect(),
            soft_limits: (spec.nodes.iter().map(|_| NodeSoftLimits::default())).collect(),
            soft_limits_seen: Timestamp::ZERO,
            services: (spec.nodes.iter().map(|_| NodeServices::default())).collect(),
            services_seen: Timestamp::ZERO,
            check_number: 0,
            ramps: spec.sites.iter().map(|_| SiteRamps::default()).collect(),
            probing: 0,
            sites: spec.sites.iter().map(|_| SiteLearner::default()).collect(),
            paces: vec![SitePace::default(); spec.sites.len()],
            need: None,
            outliers: spec.sites.iter().map(|_| Outliers::default()).collect(),
            controls: spec
                .sites
                .iter()
                .map(|site| control(site.admission))
                .collect(),
            ticked_at: Timestamp::ZERO,
            events: VecDeque::new(),
            events_dropped: 0,
            ejections: 0,
            prng: Prng::new(seed),
            known: spec.sites.into_iter().map(KnownSite::new).collect(),
        };
        director.publish();
        director
    }

    /// The current snapshot.
    pub fn topology(&self) -> Arc<Topology> {
        Arc::clone(&self.topology)
    }

    /// The operator wants a node in this state.
    pub fn handle_override(&mut self, node: NodeId, admin: AdminState) {
        let nodes = &mut Arc::make_mut(&mut self.topology).nodes;
        if nodes[node.index()].admin != admin {
            nodes[node.index()].admin = admin;
            self.changed = true;
            self.event(Event::Admin(node, admin));
            if admin == AdminState::Ready {
                self.start_slowly(node);
            }
        }
    }

    /// So many front-ends are known to serve these nodes; each dispatch of ours speaks for as
    /// many of theirs.
    pub fn handle_front_ends(&mut self, front_ends: u32) {
        self.front_ends = front_ends.max(self.front_ends_configured).max(1);
    }

    /// Front-ends that serve these nodes, as far as is known; this one at least.
    pub fn front_ends(&self) -> u32 {
        self.front_ends
    }

    /// A probe was answered, with whatever status, or was not.
    pub fn handle_probe(&mut self, node: NodeId, answered: bool, now: Timestamp) {
        if !self.topology.is_member(node) {
            return;
        }
        match self.health[node.index()].on_probe(answered, now, &mut self.prng) {
            Some(Change::Returned) => self.set_health(node, Event::Returned(node), now),
            Some(Change::Ejected(cause)) => self.eject(node, cause, now),
            None => {}
        }
    }

    /// A probe that was asked for could not be sent.
    pub fn handle_unsent_probe(&mut self, node: NodeId, now: Timestamp) {
        self.health[node.index()].on_unsent(now, &mut self.prng);
    }

    /// A check has ended.
    pub fn handle_check(&mut self, due: CheckDue, result: CheckResult, now: Timestamp) {
        let Some(config) = self.check_of(due) else {
            return;
        };
        let CheckDue { node, check, .. } = due;
        let passed = result == CheckResult::Passed;
        let Some(awaited) = self.checks[node.index()].awaited(due) else {
            return;
        };
        let turn = awaited.on_result(passed, &config, now, &mut self.prng);
        if passed {
            // It may be reached again.
            self.health[node.index()].hurry(now);
        }
        match (turn, result) {
            (Some(CheckTurn::Failed), CheckResult::Failed(failure)) => {
                self.set_health(node, Event::CheckFailed(node, check, failure), now);
            }
            (Some(CheckTurn::Passed), _) => {
                self.set_health(node, Event::CheckPassed(node, check), now);
            }
            _ => {}
        }
    }

    /// A check that was asked for could not be made.
    pub fn handle_unsent_check(&mut self, due: CheckDue, now: Timestamp) {
        if let Some(config) = self.check_of(due)
            && let Some(awaited) = self.checks[due.node.index()].awaited(due)
        {
            awaited.on_unsent(&config, now, &mut self.prng);
        }
    }

    /// How a member is checked whose check this is.
    fn check_of(&self, due: CheckDue) -> Option<CheckConfig> {
        let site = self.topology.nodes.get(due.node.index())?.site;
        let checks = &self.known[site.index()].spec.health.checks;
        let check = checks.get(due.check.index()).cloned();
        check.filter(|_| self.topology.is_member(due.node))
    }

    /// Looks at the table: ejects, learns, and publishes terms and topology.
    pub fn handle_tick(&mut self, table: &LoadTable, now: Timestamp) {
        self.ticked_at = now;
        let mut probing = 0;
        for index in 0..self.health.len() {
            let node = NodeId(index as u32);
            if !self.topology.is_member(node) {
                continue;
            }
            if self.health[index].take_forgiving() {
                table.forgive(node);
            }
            let seen = seen(table, node);
            if let Some(cause) = self.health[index].on_look(seen, now, &mut self.prng) {
                self.eject(node, cause, now);
            }
            probing += usize::from(self.health[index].wants_probe());
        }
        self.probing = probing;
        for index in 0..self.outliers.len() {
            let site = &self.topology.sites[index];
            let outlier = self.outliers[index].on_tick(site, &self.topology, table, now);
            if let Some(node) = outlier {
                self.health[node.index()].on_outlier(now, &mut self.prng);
                self.eject(node, Cause::Errors, now);
                self.probing += 1;
            }
        }
        self.tick_services(table, now);
        self.tick_soft_limits(table, now);
        for (index, learner) in self.sites.iter_mut().enumerate() {
            let site = SiteId(index as u32);
            learner.on_tick(site, &self.topology, table, self.front_ends, now);
        }
        for (index, group) in self.topology.groups.iter().enumerate() {
            let share = group.limit / self.front_ends;
            table.set_group_limit(GroupId(index as u32), share.max(1).into());
        }
        for (index, control) in self.controls.iter_mut().enumerate() {
            let Some(control) = control else { continue };
            let site = SiteId(index as u32);
            let candidates = &self.topology.site(site).candidates;
            let tick = Tick {
                site,
                candidates,
                front_ends: self.front_ends,
                now,
            };
            control.on_tick(&tick, table, &mut self.prng);
        }
        self.tick_ramps(table, now);
        self.tick_paces(table, now);
        self.let_go(table);
        if self.changed {
            self.publish();
        }
    }

    /// How often to read loads, and when to tick next; no read is wanted sooner than this after another.
    pub fn pace(&self, shortest: Duration) -> Pace {
        let asks = (self.probing > 0).then_some(PROBING);
        let checks = self.known.iter().flat_map(|it| &it.spec.health.checks);
        let checks = checks.map(|it| it.interval / CHECK_TICKS).min();
        let pace = pace::pace(self.need.into_iter(), shortest);
        asks.into_iter().chain(checks).fold(pace, Pace::ticking)
    }

    fn tick_paces(&mut self, table: &LoadTable, now: Timestamp) {
        let lambda = self.sites.iter().map(SiteLearner::arrivals).sum();
        let needs = self.paces.iter_mut().enumerate().map(|(index, pace)| {
            let site = SiteId(index as u32);
            let arrivals = self.sites[index].arrivals();
            let waits = Priority::all().any(|it| table.waiting(site, it) > 0);
            let near = self.controls[index].as_ref().is_some_and(Control::is_near);
            let need = SiteNeed {
                service: 0.5 / f64::from(table.site_terms(site).decay),
                arrivals,
                is_full: waits || (near && arrivals > 0.0),
                no_room: table.found_no_room(site),
            };
            pace.need(&need, lambda, now)
        });
        self.need = needs.flatten().min();
    }

    /// Whether a request that waits at this front-end may find room, so that workers should look. Room
    /// that only established sessions have is seen when a request ends.
    pub fn has_room_for_waiting(&self, table: &LoadTable) -> bool {
        self.topology.sites.iter().enumerate().any(|(index, site)| {
            let waits = |priority: &Priority| table.waiting(SiteId(index as u32), *priority) > 0;
            let Some(priority) = Priority::all().find(waits) else {
                return false;
            };
            let has_room = |node: &NodeId| {
                let limit = table.limit(*node, Rank::of(priority));
                (table.in_slots(*node) as f32) < limit && table.bears_another(*node)
            };
            site.candidates.iter().any(has_room)
        })
    }

    /// A newer snapshot, if there is one.
    pub fn poll_topology(&mut self) -> Option<Arc<Topology>> {
        let fresh = !self.published;
        self.published = true;
        fresh.then(|| self.topology())
    }

    /// Nodes that a probe is under way to, or will be; as of the last tick.
    pub fn probing(&self) -> usize {
        self.probing
    }

    /// A node to probe now. The shell answers each with [`Director::handle_probe`].
    pub fn poll_probe(&mut self, now: Timestamp) -> Option<NodeId> {
        if self.probing == 0 {
            return None;
        }
        let nodes = self.topology.nodes.iter();
        let due = self
            .health
            .iter_mut()
            .zip(nodes)
            .position(|(health, node)| {
                node.membership == Membership::Member && health.poll_probe(now)
            });
        Some(NodeId(due? as u32))
    }

    /// A check to make now. The shell answers each with [`Director::handle_check`].
    pub fn poll_check(&mut self, now: Timestamp) -> Option<CheckDue> {
        let number = self.check_number + 1;
        let nodes = self.checks.iter_mut().zip(&self.topology.nodes);
        let due = nodes.enumerate().find_map(|(place, (checks, node))| {
            if node.membership != Membership::Member || node.is_in_maint() {
                return None;
            }
            let configs = &self.known[node.site.index()].spec.health.checks;
            let check = checks.poll(number, configs, now, &mut self.prng)?;
            Some((NodeId(place as u32), check))
        });
        let (node, check) = due?;
        self.check_number = number;
        Some(CheckDue {
            node,
            check,
            number,
        })
    }

    /// Something worth a line in the log.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// How often nodes were ejected so far, all together.
    pub fn ejections(&self) -> u64 {
        self.ejections
    }

    /// Events that were not polled in time.
    pub fn events_dropped(&self) -> u64 {
        self.events_dropped
    }

    fn eject(&mut self, node: NodeId, cause: Cause, now: Timestamp) {
        self.set_health(node, Event::Ejected(node, cause), now);
    }

    /// Works out anew whether a node is up. Where it is the first that is, the others are asked at once: alone it
    /// would have all of their requests.
    fn set_health(&mut self, id: NodeId, event: Event, now: Timestamp) {
        let before = self.topology.node(id).health;
        let failed_before = self.topology.node(id).fails_check();
        self.judge(id);
        // A second check that fails takes nothing out.
        let is_check = matches!(event, Event::CheckFailed(..) | Event::ServicesFailed(..));
        let is_second = is_check && failed_before;
        let ejections = u64::from(event.takes_out() && !is_second);
        self.ejections += ejections;
        let node = self.node_mut(id);
        let (health, site) = (node.health, node.site);
        node.ejections += ejections;
        self.changed = true;
        self.event(event);
        if before == health || health == Health::Ejected {
            return;
        }
        let site = self.topology.site(site);
        if site.fail_open {
            for other in &site.nodes {
                self.health[other.index()].hurry(now);
            }
        }
        self.start_slowly(id);
    }

    /// A node's health: neither requests and probes nor checks of either kind nor its agent nor its limits have it out.
    fn judge(&mut self, id: NodeId) {
        let checks = &self.checks[id.index()];
        let (by_check, failing) = (checks.ejection(), checks.failing());
        let services = &self.services[id.index()];
        let (by_service, failing_services) = (services.ejection(), services.failing());
        let limits = &self.soft_limits[id.index()];
        let (by_limit, crossing) = (limits.ejection(), limits.crossing());
        let ejection = self.health[id.index()].ejection();
        let by_agent = self.topology.node(id).agent.ejection();
        let ejection = ejection.or(by_check).or(by_service);
        let ejection = ejection.or(by_agent).or(by_limit);
        let node = self.node_mut(id);
        node.failing_checks = failing;
        node.failing_services = failing_services;
        node.soft_limit = crossing;
        node.health = ejection.map_or(Health::Up, |_| Health::Ejected);
        node.ejection = ejection;
    }

    /// A node is new or back: it has its share little by little, if its site wants that.
    fn start_slowly(&mut self, id: NodeId) {
        let node = self.topology.node(id);
        let site = node.site.index();
        let serves = node.is_ready() && node.health == Health::Up;
        if !serves {
            return;
        }
        let health = &self.known[site].spec.health;
        let length = match self.arriving.remove(&id) {
            true => health.slow_start.max(health.warm_up),
            false => health.slow_start,
        };
        if !length.is_zero() {
            self.ramps[site].begin(id, length);
            self.changed = true;
        }
    }

    fn tick_ramps(&mut self, table: &LoadTable, now: Timestamp) {
        for index in 0..self.ramps.len() {
            if self.ramps[index].is_empty() {
                self.ramps[index].pass(now);
                continue;
            }
            let nodes = self.topology.up(SiteId(index as u32));
            let KnownSite { spec, .. } = &self.known[index];
            let tick = slow_start::Tick {
                policy: spec.policy,
                nodes: &nodes,
                topology: &self.topology,
                table,
                now,
            };
            for turn in self.ramps[index].on_tick(&tick) {
                self.changed = true;
                self.event(match turn {
                    RampTurn::Began(node) => Event::SlowStart(node),
                    RampTurn::Full(node) => Event::FullShare(node),
                });
            }
            self.changed |= self.ramps[index].is_empty();
        }
    }

    fn event(&mut self, event: Event) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
            self.events_dropped += 1;
        }
        self.events.push_back(event);
    }

    fn publish(&mut self) {
        let before: Vec<bool> = self
            .topology
            .sites
            .iter()
            .map(|site| site.fail_open)
            .collect();
        let sites: Vec<_> = (0..self.known.len())
            .map(|site| self.site(SiteId(site as u32)))
            .collect();
        for (index, site) in sites.iter().enumerate() {
            let id = SiteId(index as u32);
            match (before.get(index).copied().unwrap_or(false), site.fail_open) {
                (false, true) => self.event(Event::FailOpen(id)),
                (true, false) => self.event(Event::FailClosed(id)),
                _ => {}
            }
        }
        let topology = Arc::make_mut(&mut self.topology);
        topology.version += 1;
        topology.sites = sites;
        self.changed = false;
        self.published = false;
    }

    fn site(&self, id: SiteId) -> Site {
        let KnownSite {
            spec,
            health,
            removed,
        } = &self.known[id.index()];
        let of = |wanted: &dyn Fn(&Node) -> bool| -> Vec<NodeId> {
            let nodes = self.topology.members();
            nodes
                .filter(|(_, node)| node.site == id && wanted(node))
                .map(|(id, _)| id)
                .collect()
        };
        let ready = of(&Node::is_ready);
        let is_up = |node: &&NodeId| self.topology.node(**node).health == Health::Up;
        let up: Vec<_> = ready.iter().filter(is_up).copied().collect();
        let fail_open = up.is_empty() && !ready.is_empty();
        let ramps = &self.ramps[id.index()];
        let ramping = up.iter().filter(|node| ramps.has(**node));
        Site {
            name: spec.name.clone(),
            policy: spec.policy,
            admission: spec.admission,
            nodes: of(&|_| true),
            ramping: ramping.copied().collect(),
            health: Arc::clone(health),
            candidates: if fail_open {
                self.last_resort(ready)
            } else {
                up
            },
            fail_open,
            removed: *removed,
        }
    }

    /// Of ready nodes none of which is up: those that answer, if only with errors, or else all.
    fn last_resort(&self, ready: Vec<NodeId>) -> Vec<NodeId> {
        let answers = |node: &&NodeId| {
            let ejection = self.topology.node(**node).ejection;
            ejection.is_none_or(|it| !matches!(it.cause, Cause::Failures | Cause::Silence))
        };
        let answering: Vec<_> = ready.iter().filter(answers).copied().collect();
        match answering.is_empty() {
            true => ready,
            false => answering,
        }
    }
}

impl Event {
    /// Whether it is that a node gets no requests any more.
    fn takes_out(self) -> bool {
        matches!(
            self,
            Self::Ejected(..)
                | Self::CheckFailed(..)
                | Self::ServicesFailed(..)
                | Self::SoftLimitCrossed(..)
                | Self::AgentDown(..)
        )
    }
}

fn control(config: AdmissionConfig) -> Option<Control> {
    (config.kind == AdmissionKind::Adaptive).then(|| Control::new(&config))
}

/// What has become of a node's requests, by the table.
fn seen(table: &LoadTable, node: NodeId) -> NodeSigns {
    let outcomes = table.outcomes(node);
    NodeSigns {
        streak: outcomes.streak,
        unreachable: outcomes.unreachable,
        answers: outcomes.successes + u64::from(outcomes.heads),
        in_flight: table.in_flight(node),
        latency: health::latency(&outcomes),
    }
}

#[cfg(test)]
mod check_tests;
#[cfg(test)]
mod moved_tests;
#[cfg(test)]
mod tests;
