//! The picker: one per worker thread, decides on each request. No lock, no allocation, no
//! await.
//!
//! A picked request is a [`Ticket`]. The ticket counts the request as in flight from the pick
//! on, and counts it as ended when it is dropped, wherever that is: a cancelled request cannot
//! leak. The questions of counting are answered here, once:
//!
//! * A request is **in flight** from the pick to the end of the response body (or to its
//!   failure or cancellation): that is how long the node has it.
//! * It is **at work** while it may take the node's time: limits that follow from the node's load count
//!   those. A tunnel is not, nor a long answer on its way, nor a long poll: the shell says of each
//!   that it rests ([`Picker::rest`]) until it ends.
//! * Its **latency**, which policies learn from, ends with the response head: later bytes wait
//!   for the client, which is not the node's doing.
//! * Its **outcome** is known at the end of the body. A node that sends heads and breaks off would
//!   otherwise look like the fastest of all, and attract everything.
//! * An answer with a server error (5xx), or one that is malformed, is a failure to learn from,
//!   but an answer. It may be the request's doing; `director::outliers` finds out.
//!
//! A request that finds no room at any node may wait here, as a number that the shell gave it;
//! [`Picker::poll_waiting`] says what becomes of it. The shell asks after each request that ends, when
//! one begins to wait, when [`Picker::due`] says so, and when the director sees room that others left.

mod affinity;
mod extra;
mod groups;
mod heads;
mod order;
mod ramp;
mod retry;
mod site;
mod ticket;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use crate::admission::{AdmissionVerdict, Kind, Limits, Priority, Pushed, RejectReason};
use crate::load::{LoadTable, RestKind};
use crate::policy::{Probe, Sample, Term, View};
use crate::prng::Prng;
use crate::time::Timestamp;
use crate::topology::{NodeId, Share, SiteId, Topology};
pub use affinity::{Affinity, Stickiness, stable_hash};
pub use extra::Extra;
use groups::Groups;
pub use heads::Heads;
use heads::Member;
pub use retry::Retried;
use site::{Chosen, Passes, PickerSite, Waiter, Wanted};
use ticket::TicketTable;
pub use ticket::{Resting, Ticket};

/// What to do with a request.
#[derive(Debug)]
pub enum Decision {
    /// Send it to the ticket's node.
    Forward(Ticket),
    /// Refuse it.
    Reject(RejectReason),
    /// Keep it until [`Picker::poll_waiting`] names it.
    Wait,
}

/// The shell's number for a request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WaitId(pub u64);

/// A request that arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// Whose it is.
    pub site: SiteId,
    /// Its priority, and whether its session is established.
    pub priority: Priority,
    /// What it costs, as far as its head tells.
    pub kind: Kind,
    /// Whether a throttle that stands has let it on, as one of so many at a time.
    pub throttled: bool,
    /// Where its session wants it.
    pub affinity: Affinity,
    /// Its number, should it have to wait.
    pub id: WaitId,
}

impl Arrival {
    /// Of a site without priorities, by a shell that lets none wait.
    pub const fn at(site: SiteId) -> Self {
        Self {
            site,
            priority: Priority::HIGHEST,
            kind: Kind::ANY,
            throttled: false,
            affinity: Affinity::None,
            id: WaitId(0),
        }
    }
}

/// Why a request goes where it goes: what the access log tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Why {
    /// Nodes that were compared.
    pub compared: u32,
    /// The chosen node's score; NaN if the policy compares nothing.
    pub score: f32,
    /// Age of the load record that the choice rests on, if there was one.
    pub load_age: Option<Duration>,
    /// Own requests in flight at the node, this one included.
    pub in_flight: u32,
    /// Ejections were ignored: too many nodes are out.
    pub fail_open: bool,
    /// Whether it went to its session's node.
    pub sticky: Stickiness,
}

/// How a dispatched request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The node answered without a server error.
    Success,
    /// The node answered with a server error, or with what is no answer.
    ServerError,
    /// The node was sent the request, and did not answer to the end: it closed, stood still, or
    /// broke off.
    Broken,
    /// There was no connection to the node.
    Unreachable,
}

/// A request whose answer goes on for so long after its head rests: it has the pace of its client.
pub const LONG_ANSWER: Duration = Duration::from_millis(100);

/// Requests at work at a node, the new one included, up to which it hardly waits for another one there: its time
/// is that of an unloaded server. Those of other front-ends count as far as they are known.
const UNHINDERED_MAX: u32 = 2;

/// See the module.
#[derive(Debug)]
pub struct Picker {
    table: TicketTable,
    topology: Arc<Topology>,
    /// Weights and capacities, by node.
    shares: Vec<Share>,
    /// Their names' numbers, by node.
    names: Vec<u64>,
    sites: Vec<PickerSite>,
    prng: Prng,
    groups: Groups,
    /// Candidates left in a retry, and sites in the order of their turns; kept so that nothing is
    /// allocated.
    left: Vec<NodeId>,
    turns: Vec<Turn>,
    /// What it shares with other pickers of the front-end, if there are others.
    member: Option<Member>,
    /// Sites at which another picker's request may have its turn.
    passing: Vec<SiteId>,
}

/// A site where requests wait: the priority whose turn it is there, and when the site's turn begins.
#[derive(Clone, Copy, Debug)]
struct Turn {
    priority: Priority,
    start: f64,
    site: SiteId,
}

/// In which books a request is kept.
#[derive(Clone, Copy, Debug)]
enum Books {
    /// Those of its kind.
    Kind(Kind),
    /// An account of its own if there is one left, or else those of its kind.
    Throttled(Kind),
    /// None: it has been there before.
    Retry,
}

impl From<Waiter> for Books {
    fn from(waiter: Waiter) -> Self {
        match waiter.throttled {
            true => Self::Throttled(waiter.kind),
            false => Self::Kind(waiter.kind),
        }
    }
}

fn view<'a>(
    table: &'a LoadTable,
    shares: &'a [Share],
    site: SiteId,
    candidates: &'a [NodeId],
    now: Timestamp,
) -> View<'a> {
    View {
        now,
        site,
        candidates,
        shares,
        table,
    }
}

/// Whether no node bears another request by its group and its agent, whatever room there is at the nodes.
fn is_bound(view: &View<'_>) -> bool {
    let mut nodes = view.candidates.iter();
    nodes.all(|node| !view.table.bears_another(*node))
}

/// Whether a group is full that one of the nodes is in.
fn is_group_full(view: &View<'_>) -> bool {
    let mut nodes = view.candidates.iter();
    nodes.any(|node| !view.table.has_group_room(*node))
}

impl Picker {
    /// A picker that draws its choices from `seed`.
    pub fn new(table: Arc<LoadTable>, topology: Arc<Topology>, seed: u64) -> Self {
        let mut picker = Self {
            left: Vec::with_capacity(table.nodes()),
            turns: Vec::with_capacity(topology.sites.len()),
            member: None,
            passing: Vec::new(),
            groups: Groups::new(&topology),
            table: Arc::new(table),
            topology: Arc::clone(&topology),
            shares: Vec::with_capacity(topology.nodes.len()),
            names: Vec::with_capacity(topology.nodes.len()),
            sites: Vec::with_capacity(topology.sites.len()),
            prng: Prng::new(seed),
        };
        picker.handle_topology(topology);
        picker
    }

    /// The picker of this number among those that share their heads: requests that wait have their turns in one order.
    pub fn among(mut self, heads: &Arc<Heads>, number: usize) -> Self {
        let mut member = Member::new(Arc::clone(heads), number);
        member.on_sites(self.sites.len());
        self.member = Some(member);
        self
    }

    /// Goes over to a newer topology. Policies keep what they learned unless their site's
    /// configuration changed.
    pub fn handle_topology(&mut self, topology: Arc<Topology>) {
        self.shares.clear();
        self.shares.extend(topology.shares());
        self.names.clear();
        let names = topology.nodes.iter();
        (self.names).extend(names.map(|node| stable_hash(node.name.as_bytes())));
        self.forget_replaced(&topology);
        self.sites.truncate(topology.sites.len());
        for (index, site) in topology.sites.iter().enumerate() {
            match self.sites.get_mut(index) {
                Some(kept) => {
                    if kept.config != site.policy {
                        kept.config = site.policy;
                        kept.policy = site.policy.build();
                    }
                    let nodes = topology.nodes.len();
                    kept.policy.on_nodes(nodes, &site.candidates);
                    kept.ramps.on_site(site);
                    kept.set_admission(site.admission);
                }
                None => self.sites.push(PickerSite::new(&topology, site)),
            }
        }
        if self.topology.groups != topology.groups {
            self.groups = Groups::new(&topology);
        }
        if let Some(member) = &mut self.member {
            member.on_sites(self.sites.len());
        }
        self.topology = topology;
    }

    /// Policies forget the nodes whose places others have now.
    fn forget_replaced(&mut self, topology: &Topology) {
        for (index, node) in topology.nodes.iter().enumerate() {
            let before = self.topology.nodes.get(index);
            if before.is_some_and(|before| before.generation != node.generation) {
                for site in &mut self.sites {
                    site.policy.forget(NodeId(index as u32));
                }
            }
        }
    }

    /// The topology that decisions rest on.
    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// The load table that decisions rest on.
    pub fn table(&self) -> &Arc<LoadTable> {
        &self.table
    }

    /// The kind of a request to a site, which has a place from its first request on, if there is one.
    pub fn kind_of(&self, site: SiteId, method: &str, target: &str) -> Kind {
        match site.index() < self.sites.len() {
            true => self.table.kinds(site).kind_of(method, target),
            false => Kind::ANY,
        }
    }

    /// Stage 0: whether a connection that was just accepted may be read at all. It may while
    /// any of the sites that it could ask for would let something in.
    pub fn handle_accept(&mut self, now: Timestamp) -> AdmissionVerdict {
        let sites = (0..).map(SiteId).zip(&self.sites);
        let closed = (sites.into_iter()).all(|(id, site)| {
            let kinds = self.table.kinds(id);
            site.is_closed(now, kinds.any_surged()) && !kinds.spares_any()
        });
        match closed && !self.sites.is_empty() {
            true => AdmissionVerdict::Reject(RejectReason::Overload),
            false => AdmissionVerdict::Admit,
        }
    }

    /// Stage 1 and the choice: what to do with a request.
    pub fn handle_request(&mut self, arrival: &Arrival, now: Timestamp) -> Decision {
        let Arrival { site, priority, .. } = *arrival;
        let waiter = Waiter::of(arrival);
        let kind = waiter.kind;
        let candidates = &self.topology.site(site).candidates;
        if candidates.is_empty() {
            return Decision::Reject(RejectReason::NoNode);
        }
        let view = view(&self.table, &self.shares, site, candidates, now);
        let state = &mut self.sites[site.index()];
        state.ramps.on_request(&self.table);
        let verdict = state.admission.on_request(&view, priority, &mut self.prng);
        let contended = self.groups.is_contended(site);
        let kinds = self.table.kinds(site);
        let priority = state.among_surged(priority, kind, kinds);
        let passes = Passes::beside(&self.table, site, waiter)
            .unwrap_or_else(|| Passes::among_surged(kinds.has_surged(kind), kinds.any_surged()));
        // Waiting requests wait for what these do not use, or not more of.
        let passes_by = matches!(passes, Passes::Spared | Passes::Throttled);
        let behind = !passes_by
            && (self.member.as_ref()).is_some_and(|member| member.is_ahead_of(site, priority));
        let overtakes = contended || behind || !passes_by && state.waiting.is_ahead_of(priority);
        let wanted = Wanted {
            priority,
            passes,
            affinity: waiter.affinity,
            names: &self.names,
        };
        let chosen = if verdict == AdmissionVerdict::Admit && !overtakes {
            state.choose(&view, &wanted, &mut self.prng, &mut self.left)
        } else {
            None
        };
        if let Some(chosen) = chosen {
            return Decision::Forward(self.dispatch(site, waiter.into(), &chosen, now));
        }
        self.table.no_room(site);
        if state.admits.dry_run {
            let chosen = state.choose_beyond(&view, &wanted, &mut self.prng);
            return Decision::Forward(self.dispatch(site, waiter.into(), &chosen, now));
        }
        let bound = verdict == AdmissionVerdict::Admit && (contended || behind || is_bound(&view));
        if let AdmissionVerdict::Reject(reason) = verdict {
            state.on_refused(state.admission.refuses_all(), now);
            return Decision::Reject(reason);
        }
        if state.admission.waits().is_none() && !bound {
            state.on_refused(true, now);
            return Decision::Reject(RejectReason::Overload);
        }
        let pushed = state.waiting.push(priority, waiter, now);
        state.tell_waiting(&self.table, site);
        if bound && (contended || is_group_full(&view)) {
            self.groups.contend(site);
        }
        let decision = match pushed {
            Pushed::In => Decision::Wait,
            Pushed::InsteadOf(evicted) => {
                state.evicted.push_back(evicted.id);
                Decision::Wait
            }
            Pushed::Refused => {
                state.on_refused(priority == state.highest(kinds.any_surged()), now);
                Decision::Reject(RejectReason::QueueFull)
            }
        };
        self.publish(site);
        decision
    }

    /// What becomes of one that waits, if that is known: after too long a wait it is refused,
    /// of any priority, and then whose turn it is goes where there is room.
    pub fn poll_waiting(&mut self, now: Timestamp) -> Option<(WaitId, Decision)> {
        self.turns.clear();
        for index in 0..self.sites.len() {
            let site = SiteId(index as u32);
            let state = &mut self.sites[index];
            if let Some(id) = state.evicted.pop_front() {
                return Some((id, Decision::Reject(RejectReason::QueueFull)));
            }
            state.waiting.set_sojourn(self.table.sojourn(site));
            if let Some((priority, late)) = state.waiting.expire(now) {
                state.tell_waiting(&self.table, site);
                self.publish(site);
                let decision = self.give_up(site, priority, late, now);
                return Some((late.id, decision));
            }
            // It may have begun or ceased to stand.
            self.publish(site);
            let waiting = &self.sites[index].waiting;
            self.turns
                .extend(waiting.next_priority().map(|priority| Turn {
                    priority,
                    start: self.groups.start(site),
                    site,
                }));
        }
        if self.turns.is_empty() {
            self.groups.calm(|_| false);
            return None;
        }
        let sites = &self.sites;
        self.groups
            .calm(|site| !sites[site.index()].waiting.is_empty());
        self.turns.sort_unstable_by(|one, other| {
            let priorities = one.priority.cmp(&other.priority);
            priorities.then(one.start.total_cmp(&other.start))
        });
        (0..self.turns.len()).find_map(|index| self.take_turn(self.turns[index], now))
    }

    /// One has waited too long. It may have become known meanwhile that what it waits for is not what it uses, or
    /// is what others wait for.
    fn give_up(
        &mut self,
        site: SiteId,
        priority: Priority,
        late: Waiter,
        now: Timestamp,
    ) -> Decision {
        let candidates = &self.topology.site(site).candidates;
        let view = view(&self.table, &self.shares, site, candidates, now);
        let state = &mut self.sites[site.index()];
        let passes = Passes::beside(&self.table, site, late);
        let chosen = passes
            .filter(|_| !candidates.is_empty())
            .and_then(|passes| {
                let wanted = Wanted {
                    priority,
                    passes,
                    affinity: late.affinity,
                    names: &self.names,
                };
                state.choose(&view, &wanted, &mut self.prng, &mut self.left)
            });
        match chosen {
            Some(chosen) => Decision::Forward(self.dispatch(site, late.into(), &chosen, now)),
            None => {
                state.on_refused(false, now);
                Decision::Reject(RejectReason::QueueTimeout)
            }
        }
    }

    fn take_turn(&mut self, turn: Turn, now: Timestamp) -> Option<(WaitId, Decision)> {
        let Turn { priority, site, .. } = turn;
        if self.leaves_room(site, now) {
            return None;
        }
        let state = &mut self.sites[site.index()];
        let candidates = &self.topology.site(site).candidates;
        let view = view(&self.table, &self.shares, site, candidates, now);
        let mut wanted = Wanted {
            priority,
            passes: state.passes_in_turn(&self.table, site, priority),
            affinity: Affinity::None,
            names: &self.names,
        };
        let chosen = match candidates.is_empty() {
            true => None,
            false => Some(state.choose(&view, &wanted, &mut self.prng, &mut self.left)?),
        };
        let (_, waiter) = state.waiting.pop(now)?;
        // There is room, if not at its session's node.
        wanted.affinity = waiter.affinity;
        let chosen = chosen.map(|chosen| state.stick(&view, &wanted, chosen.choice));
        state.tell_waiting(&self.table, site);
        self.publish(site);
        let decision = match chosen {
            Some(chosen) => Decision::Forward(self.dispatch(site, waiter.into(), &chosen, now)),
            None => Decision::Reject(RejectReason::NoNode),
        };
        Some((waiter.id, decision))
    }

    /// When waiting requests are to be looked at again, if there are any, whatever else happens. To be
    /// asked when there is nothing to tell any more.
    pub fn due(&self) -> Option<Timestamp> {
        self.sites.iter().filter_map(PickerSite::due).min()
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.sites
            .iter()
            .map(|it| it.waiting.len() + it.evicted.len())
            .sum()
    }

    /// The numbers that a site's admission holds itself to here.
    pub fn limits(&self, site: SiteId) -> Limits {
        let site = self.sites.get(site.index());
        site.map_or(Limits::NONE, |it| it.admission.limits())
    }

    /// A request that waits goes away by itself.
    pub fn handle_left(&mut self, site: SiteId, id: WaitId) {
        if let Some(state) = self.sites.get_mut(site.index()) {
            state.waiting.remove(Waiter {
                id,
                kind: Kind::ANY,
                throttled: false,
                affinity: Affinity::None,
            });
            state.evicted.retain(|evicted| *evicted != id);
            state.tell_waiting(&self.table, site);
            self.publish(site);
        }
    }

    /// The terms by which the site's policy sees a node now.
    pub fn explain(&self, site: SiteId, node: NodeId, now: Timestamp) -> Vec<Term> {
        let candidates = &self.topology.site(site).candidates;
        let view = view(&self.table, &self.shares, site, candidates, now);
        self.sites[site.index()].policy.explain(&view, node)
    }

    /// The head of the answer has come, and a body follows. It is a sign of life, and ends the
    /// latency; what the answer is worth is known at its end.
    pub fn handle_head(&mut self, ticket: &mut Ticket, now: Timestamp) {
        ticket.began_at = Some(now);
        ticket.end_wait();
        ticket.end_account();
        self.table.began(ticket.node);
    }

    /// The answer has ended, or will never come. The ticket itself ends when it is dropped.
    pub fn handle_outcome(&mut self, ticket: &Ticket, outcome: Outcome, now: Timestamp) {
        let began_at = ticket.began_at.unwrap_or(now);
        let latency = began_at.since(ticket.dispatched_at);
        ticket.end_wait();
        match outcome {
            Outcome::Success => {
                self.table.succeeded(ticket.node, latency, ticket.slowdown);
                if let Some(kind) = ticket.kind {
                    self.table.kinds(ticket.site).answered(kind, latency);
                }
            }
            Outcome::ServerError => self.table.failed(ticket.node, true),
            Outcome::Broken => self.table.failed(ticket.node, false),
            Outcome::Unreachable => self.table.unreachable(ticket.node),
        }
        let sample = Sample {
            node: ticket.node,
            in_flight: ticket.why.in_flight,
            latency,
            success: outcome == Outcome::Success,
        };
        if let Some(site) = self.sites.get_mut(ticket.site.index()) {
            site.policy.on_sample(&sample, now);
            site.admission.on_sample(&sample, now, &mut self.prng);
        }
    }

    /// A request of this site rests if it has no answer after so long, while others are answered.
    pub fn overdue_after(&self, site: SiteId) -> Duration {
        self.topology.site(site).admission.slo
    }

    /// A request that has a ticket for this node rests from now on, and holds no room there. One with an account of
    /// its own ([`Ticket::is_throttled`]) does not.
    pub fn rest(&self, node: NodeId, rest: RestKind) -> Resting {
        self.table.begin_rest(node, rest);
        Resting {
            node,
            rest,
            table: Arc::clone(&self.table),
        }
    }

    /// A server reported its load with a response to `site`.
    pub fn handle_probe(&mut self, site: SiteId, probe: &Probe, now: Timestamp) {
        self.table.reported(probe.node, probe.in_flight, now);
        if let Some(site) = self.sites.get_mut(site.index()) {
            site.policy.on_probe(probe, now);
        }
    }

    fn dispatch(&mut self, site: SiteId, books: Books, chosen: &Chosen, now: Timestamp) -> Ticket {
        let Chosen { choice, sticky } = chosen;
        let node = choice.node;
        let throttled = matches!(books, Books::Throttled(_)) && self.table.accounts().bears(site);
        if throttled {
            self.table.accounts().begin(site, node);
        }
        let kind = match books {
            Books::Kind(kind) => Some(kind),
            Books::Throttled(kind) => (!throttled).then_some(kind),
            Books::Retry => None,
        };
        let group = self.table.group_of(node);
        self.groups.dispatched(site, group);
        let load = self.table.brief(node);
        let in_flight = u32::try_from(self.table.dispatch(node, group)).unwrap_or(u32::MAX);
        let at_work = u64::from(in_flight).saturating_sub(self.table.resting(node));
        let alone = at_work <= UNHINDERED_MAX.into()
            && self
                .table
                .agreed(node)
                .is_none_or(|it| it.held <= UNHINDERED_MAX);
        let first = alone && !throttled;
        if first {
            self.table.add_first(site);
        }
        let kinds = self.table.kinds(site);
        let kind = kind.map(|kind| kinds.begin_wait(kind));
        Ticket {
            node,
            why: Why {
                compared: choice.compared,
                score: choice.score,
                load_age: load.is_fresh(now).then(|| now.since(load.observed_at)),
                in_flight,
                fail_open: self.topology.site(site).fail_open,
                sticky: *sticky,
            },
            site,
            group,
            kind,
            throttled: Cell::new(throttled),
            slowdown: choice.slowdown,
            unanswered: Cell::new(true),
            first: Cell::new(first),
            dispatched_at: now,
            began_at: None,
            table: Arc::clone(&self.table),
        }
    }
}

impl Drop for Picker {
    /// No request waits here any more.
    fn drop(&mut self) {
        for (index, state) in self.sites.iter().enumerate() {
            for (priority, told) in Priority::all().zip(state.told) {
                let site = SiteId(index as u32);
                self.table
                    .add_waiting(site, priority, 0_u64.wrapping_sub(told));
            }
        }
    }
}

#[cfg(test)]
mod agent_tests;
#[cfg(test)]
mod extra_tests;
#[cfg(test)]
mod groups_tests;
#[cfg(test)]
mod order_tests;
#[cfg(test)]
mod retry_tests;
#[cfg(test)]
mod tests;
