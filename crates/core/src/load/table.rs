//! One slot per node that readers, pickers and the director share without a lock.
//!
//! All is plain atomics: no thread waits for another. A picker that meets a writer at work reads
//! again, and after a few tries takes the node as unknown for this one decision.

mod most;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::accounts::Accounts;
use super::counters::{CounterSlot, Counters};
use super::measured::{Measured, MeasuredSlot};
use super::slot::{HAS_MOST, Slot};
use super::words::{Agreed, FirstWord, WordBox, WordOp, WordReply, WordRequest};
use super::{Group, LimitBy, LoadBrief, NodeLoad, NodeTerms, OwnTraffic, Recent, SiteTerms};
use crate::ids::{GroupId, NodeId, SiteId};
use crate::places::Places;
use crate::request::{KindPlaces, Priority, Rank};
use crate::time::{Timestamp, nanos};

/// Fixed point of the logarithms in [`Outcomes`].
const LN_SCALE: f64 = 65_536.0;

/// Own requests to a site that found hardly another own one at their node, so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Firsts {
    pub(crate) sent: u64,
    pub(crate) ended: u64,
}

/// How own requests to one node ended, as counters: two readings give any window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcomes {
    /// Requests answered without a server error.
    pub successes: u64,
    /// Requests that failed: no connection, no answer, or a server error.
    pub failures: u64,
    /// Requests in a row that got no whole answer, up to 65 535.
    pub streak: u32,
    /// Connections in a row that could not be made, since anything came back; up to the same.
    pub unreachable: u32,
    /// Signs of life: heads of answers, in no order with the other counters. It wraps round.
    pub heads: u32,
    /// Sum of ln(y / 1 ns), with y = latency / slowdown expected at dispatch; successes only.
    pub sum_ln: f64,
    /// Sum of ln(latency / 1 ns): how long answers took, whatever was expected.
    pub sum_ln_latency: f64,
    /// Sum of the squares of `sum_ln`'s.
    pub sum_ln_squared: f64,
    /// Sum of y, seconds.
    pub sum_seconds: f64,
}

/// The longest streak that is distinct from longer ones.
pub(super) const STREAK_MAX: u32 = u16::MAX as u32;

/// All that `auto` compares a node by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// Of the newest record.
    pub load: LoadBrief,
    /// Own requests so far.
    pub own: OwnTraffic,
    /// Own requests in flight that rest.
    pub resting: u64,
    /// What the director has learned.
    pub terms: NodeTerms,
}

/// What a node reported of its load with a response.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadReport {
    /// When it came.
    pub at: Timestamp,
    /// Requests in flight at the node, without the one that was answered.
    pub in_flight: f32,
    /// Own requests in flight there when it came, without the one that was answered.
    pub own: u32,
}

/// Why a request that is in flight rests: it takes none of its node's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestKind {
    /// Its answer has begun and goes on for long, at the pace of its client; or it has become a tunnel.
    Answered,
    /// Its answer is long overdue: a long poll. Or the node hangs.
    Unanswered,
}

/// What a node that starts slowly may have; see `director::slow_start`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ramp {
    /// Of its fair share.
    pub factor: f32,
    /// Of its site's requests.
    pub share: f32,
}

/// The table: a slot per node, some words per site. It grows ([`LoadTable::reserve`]); what lies in it never moves.
#[derive(Debug)]
pub struct LoadTable {
    nodes: Places<Slot>,
    /// By node.
    words: Places<WordBox>,
    /// By node: its word 0, as reads tell it.
    first_words: Places<FirstWord>,
    word_changes: AtomicU64,
    counters: Places<CounterSlot>,
    /// By node: when the numbers of its load were measured, where that is not at once.
    measured: Places<MeasuredSlot>,
    sites: Places<SiteSlot>,
    /// By site.
    kinds: Places<KindPlaces>,
    /// By node: the most own requests in flight when one of a kind comes that is spared.
    spared: Places<AtomicU64>,
    /// The same when one comes whose kind has not surged while others have.
    steady: Places<AtomicU64>,
    /// By node: what it may have of its site's requests while it starts slowly.
    ramps: Places<AtomicU64>,
    /// By node: by how much its neighbours relieve it, less than 1, as the bits of a number; 0: they do not.
    reliefs: Places<AtomicU64>,
    /// Sum of the logarithms of the slowdowns with which answers were expected; the line of outcomes is full.
    stretches: Places<AtomicU64>,
    accounts: Accounts,
    groups: Places<GroupSlot>,
    /// By node: see [`most`].
    most: Places<AtomicU64>,
    recent: RecentSlot,
}

/// The nodes that were read last. A line of its own: it changes with each group that is read.
#[derive(Debug, Default)]
#[repr(align(64))]
struct RecentSlot(AtomicU64);

/// What all nodes of a group have together.
#[derive(Debug, Default)]
#[repr(align(64))]
struct GroupSlot {
    /// Own requests.
    in_flight: AtomicU64,
    /// Most of them.
    limit: AtomicU64,
}

#[derive(Debug, Default)]
struct SiteSlot {
    terms: AtomicU64,
    /// Requests that found no room at any node so far.
    no_room: AtomicU64,
    /// What set its limits, as a place in [`LimitBy::ALL`], from 1; 0: nothing did.
    limited_by: AtomicU64,
    /// How long a request is at the servers once it is let in, ns.
    sojourn: AtomicU64,
    /// Own requests that went to a node with hardly another own one, and those of them that ended.
    first_sent: AtomicU64,
    first_ended: AtomicU64,
    /// Requests that wait at this front-end, by priority.
    waiting: [AtomicU64; Priority::COUNT],
}

impl SiteSlot {
    fn new() -> Self {
        let slot = Self::default();
        slot.set_terms(SiteTerms::default());
        slot
    }

    fn set_terms(&self, terms: SiteTerms) {
        let word = (u64::from(terms.draws) << 32) | u64::from(terms.decay.to_bits());
        self.terms.store(word, Ordering::Relaxed);
    }
}

impl LoadTable {
    /// A table for nodes `0..nodes` and sites `0..sites`, all unknown.
    pub fn new(nodes: usize, sites: usize) -> Self {
        Self {
            nodes: Places::new(nodes, Slot::unknown),
            words: Places::new(nodes, WordBox::default),
            first_words: Places::new(nodes, FirstWord::default),
            word_changes: AtomicU64::new(0),
            counters: Places::new(nodes, CounterSlot::default),
            measured: Places::new(nodes, MeasuredSlot::default),
            sites: Places::new(sites, SiteSlot::new),
            kinds: Places::new(sites, KindPlaces::default),
            spared: Places::new(nodes, AtomicU64::default),
            steady: Places::new(nodes, AtomicU64::default),
            ramps: Places::new(nodes, AtomicU64::default),
            reliefs: Places::new(nodes, AtomicU64::default),
            stretches: Places::new(nodes, AtomicU64::default),
            accounts: Accounts::new(nodes, sites),
            groups: Places::new(0, GroupSlot::default),
            most: Places::new(nodes, AtomicU64::default),
            recent: RecentSlot::default(),
        }
    }

    /// Makes room for nodes `0..nodes` and sites `0..sites`, before any thread hears of them.
    pub fn reserve(&self, nodes: usize, sites: usize) {
        self.nodes.reserve(nodes);
        self.words.reserve(nodes);
        self.first_words.reserve(nodes);
        self.counters.reserve(nodes);
        self.measured.reserve(nodes);
        self.spared.reserve(nodes);
        self.steady.reserve(nodes);
        self.ramps.reserve(nodes);
        self.reliefs.reserve(nodes);
        self.most.reserve(nodes);
        self.stretches.reserve(nodes);
        self.sites.reserve(sites);
        self.kinds.reserve(sites);
        self.accounts.reserve(nodes, sites);
    }

    /// Another node has this place now, of which nothing is known. Counters go on: what counts is how they grow.
    pub fn clear(&self, node: NodeId) {
        let slot = self.slot(node);
        slot.clear();
        self.counters[node.index()].clear();
        self.measured[node.index()].clear();
        self.words[node.index()].set_agreed(None);
        self.first_words[node.index()].clear();
        self.ramps[node.index()].store(0, Ordering::Relaxed);
        self.set_relief(node, 1.0);
        self.lift_limits(node);
    }

    /// The node has no limits any more.
    pub(crate) fn lift_limits(&self, node: NodeId) {
        self.set_limits(node, [f32::INFINITY; Rank::COUNT]);
        self.spared[node.index()].store(0, Ordering::Relaxed);
        self.steady[node.index()].store(0, Ordering::Relaxed);
        self.accounts.set_limit(node, 0.0);
    }

    /// How many nodes the table has room for.
    pub fn nodes(&self) -> usize {
        self.nodes.count()
    }

    /// Says which nodes were read last; none: all are read as often as is of use.
    pub fn set_recent(&self, recent: Option<Recent>) {
        self.recent.0.store(Recent::word(recent), Ordering::Relaxed);
    }

    /// The nodes that were read last, where not all are read as often as is of use.
    #[inline]
    pub fn recent(&self) -> Option<Recent> {
        Recent::of_word(self.recent.0.load(Ordering::Relaxed))
    }

    /// Publishes what the node's reader learned. One writer per node.
    pub fn store(&self, node: NodeId, load: &NodeLoad) {
        self.slot(node).store(load);
    }

    /// Publishes a load whose numbers were measured at moments of their own. One writer per node.
    pub fn store_reported(&self, node: NodeId, load: &NodeLoad, measured: &Measured) {
        self.store(node, load);
        self.measured[node.index()].store(load, measured);
    }

    /// When the numbers of a load of the node were measured.
    pub fn measured(&self, node: NodeId, load: &NodeLoad) -> Measured {
        let own = self.measured[node.index()].load(load);
        own.unwrap_or_else(|| Measured::at_once(load))
    }

    /// Publishes the counters that a load was made from. One writer per node.
    pub fn store_counters(&self, node: NodeId, counters: &Counters) {
        self.counters[node.index()].store(counters);
    }

    /// The counters as they were read last, however old; none if they never were.
    pub fn counters(&self, node: NodeId) -> Option<Counters> {
        self.counters[node.index()].load()
    }

    /// The last load read from the node, however old; unknown if there never was one.
    pub fn last(&self, node: NodeId) -> NodeLoad {
        self.slot(node).load()
    }

    /// What `auto` compares of the last load, however old; unknown if there never was one.
    pub fn brief(&self, node: NodeId) -> LoadBrief {
        self.slot(node).brief()
    }

    /// All that `auto` compares, at one look-up; nothing if the node's reader was at work.
    #[inline]
    pub fn try_compared(&self, node: NodeId) -> Option<Compared> {
        let slot = self.slot(node);
        let load = slot.try_brief()?;
        Some(Compared {
            load,
            own: slot.own.traffic(),
            resting: slot.resting(),
            terms: slot.own.terms(),
        })
    }

    /// The same, however often the reader is at work.
    pub fn compared(&self, node: NodeId) -> Compared {
        Compared {
            load: self.brief(node),
            own: self.own(node),
            resting: self.resting(node),
            terms: self.terms(node),
        }
    }

    /// The node's load if it is fresh at `now`; a stale one is unknown, never idle.
    pub fn fresh(&self, node: NodeId, now: Timestamp) -> Option<NodeLoad> {
        let load = self.last(node);
        load.is_fresh(now).then_some(load)
    }

    /// The same with groups. A node of several is in the last.
    pub fn grouped(self, groups: &[Group]) -> Self {
        self.set_groups(groups);
        self
    }

    /// Nodes are in these groups from now on, and in no others. Requests in flight count
    /// for the group that they were sent in, whatever their node's group is by then.
    pub fn set_groups(&self, groups: &[Group]) {
        self.groups.reserve(groups.len());
        for (index, group) in groups.iter().enumerate() {
            let limit = &self.groups[index].limit;
            limit.store(group.limit.into(), Ordering::Relaxed);
        }
        for (index, slot) in self.nodes.iter().enumerate() {
            let node = NodeId(index as u32);
            let of = groups.iter().rposition(|it| it.nodes.contains(&node));
            let number = of.map_or(0, |group| group as u32 + 1);
            slot.own.set_group(number);
        }
    }

    /// The group that a node is in.
    #[inline]
    pub fn group_of(&self, node: NodeId) -> Option<GroupId> {
        let number = self.slot(node).own.group.load(Ordering::Relaxed) & !HAS_MOST;
        number.checked_sub(1).map(GroupId)
    }

    /// Own requests in flight at a group's nodes, and most of them.
    #[inline]
    pub fn group(&self, group: GroupId) -> (u64, u64) {
        let slot = &self.groups[group.index()];
        let in_flight = slot.in_flight.load(Ordering::Relaxed);
        (in_flight, slot.limit.load(Ordering::Relaxed))
    }

    /// Sets how many own requests a group's nodes may have together.
    pub fn set_group_limit(&self, group: GroupId, limit: u64) {
        let slot = &self.groups[group.index()];
        slot.limit.store(limit, Ordering::Relaxed);
    }

    /// Own traffic to the node.
    #[inline]
    pub fn own(&self, node: NodeId) -> OwnTraffic {
        self.slot(node).own.traffic()
    }

    /// Own requests in flight at the node.
    pub fn in_flight(&self, node: NodeId) -> u64 {
        self.own(node).in_flight()
    }

    /// Own requests at work at the node: in flight, but for those that rest.
    #[inline]
    pub fn at_work(&self, node: NodeId) -> u64 {
        self.slot(node).at_work()
    }

    /// Own requests at work at the node that need a slot: all but throttled ones with an account of their own.
    pub fn in_slots(&self, node: NodeId) -> u64 {
        let throttled = self.accounts.in_flight(node);
        self.at_work(node).saturating_sub(throttled)
    }

    /// Own requests that a throttle bounds, and no slot.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Own requests in flight that rest, as far as it is believed.
    #[inline]
    pub fn resting(&self, node: NodeId) -> u64 {
        self.slot(node).resting()
    }

    /// Own requests in flight that wait for an answer which is long overdue.
    pub(crate) fn unanswered(&self, node: NodeId) -> u64 {
        let unanswered = self.slot(node).rests(RestKind::Unanswered);
        unanswered.load(Ordering::Relaxed).into()
    }

    /// Whether own requests whose answer is overdue rest, as it seems, or keep the node busy.
    pub fn believe_unanswered(&self, node: NodeId, rest: bool) {
        self.slot(node).believe_unanswered(rest);
    }

    /// A request in flight rests from now on.
    pub(crate) fn begin_rest(&self, node: NodeId, rest: RestKind) {
        let count = self.slot(node).rests(rest);
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// It rests no more, or is about to end.
    pub(crate) fn end_rest(&self, node: NodeId, rest: RestKind) {
        let count = self.slot(node).rests(rest);
        count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a request on its way to the node, of this group; returns how many are in flight with it.
    pub(crate) fn dispatch(&self, node: NodeId, group: Option<GroupId>) -> u64 {
        let own = &self.slot(node).own;
        let completed = own.completed.load(Ordering::Acquire);
        let dispatched = own.dispatched.fetch_add(1, Ordering::AcqRel) + 1;
        if let Some(group) = group {
            let in_flight = &self.groups[group.index()].in_flight;
            in_flight.fetch_add(1, Ordering::Relaxed);
        }
        OwnTraffic {
            dispatched,
            completed,
        }
        .in_flight()
    }

    /// Counts a request as ended that was counted with this group.
    pub(crate) fn complete(&self, node: NodeId, group: Option<GroupId>) {
        self.slot(node).own.completed.fetch_add(1, Ordering::AcqRel);
        if let Some(group) = group {
            let in_flight = &self.groups[group.index()].in_flight;
            in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Counts an answer without a server error that took `latency` where a slowdown of
    /// `slowdown` was expected.
    pub(crate) fn succeeded(&self, node: NodeId, latency: Duration, slowdown: f32) {
        let ended = &self.slot(node).ended;
        let service = (latency.as_nanos() as f64 / f64::from(slowdown)).max(1.0);
        let ln = service.ln();
        ended.successes.fetch_add(1, Ordering::Relaxed);
        ended.streaks.store(0, Ordering::Relaxed);
        ended
            .sum_ln
            .fetch_add((ln * LN_SCALE) as u64, Ordering::Relaxed);
        ended
            .sum_ln_squared
            .fetch_add((ln * ln * LN_SCALE) as u64, Ordering::Relaxed);
        ended.sum_nanos.fetch_add(service as u64, Ordering::Relaxed);
        if slowdown > 1.0 {
            let stretch = (f64::from(slowdown).ln() * LN_SCALE) as u64;
            self.stretches[node.index()].fetch_add(stretch, Ordering::Relaxed);
        }
    }

    /// The head of an answer has come, and its body follows.
    pub(crate) fn began(&self, node: NodeId) {
        let ended = &self.slot(node).ended;
        ended.heads.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a failure; `answered` if the node did answer, with a server error.
    pub(crate) fn failed(&self, node: NodeId, answered: bool) {
        let ended = &self.slot(node).ended;
        ended.failures.fetch_add(1, Ordering::Relaxed);
        if answered {
            ended.streaks.store(0, Ordering::Relaxed);
            ended.heads.fetch_add(1, Ordering::Relaxed);
        } else {
            ended.lengthen(|streak, _| (streak + 1, 0));
        }
    }

    /// Counts a failure: there was no connection.
    pub(crate) fn unreachable(&self, node: NodeId) {
        let ended = &self.slot(node).ended;
        ended.failures.fetch_add(1, Ordering::Relaxed);
        ended.lengthen(|streak, unreachable| (streak + 1, unreachable + 1));
    }

    /// Streaks begin anew.
    pub(crate) fn forgive(&self, node: NodeId) {
        self.slot(node).ended.streaks.store(0, Ordering::Relaxed);
    }

    /// Takes in what the node reported with a response to a request that has not been completed yet.
    pub(crate) fn reported(&self, node: NodeId, in_flight: f32, now: Timestamp) {
        if !(in_flight >= 0.0 && in_flight.is_finite()) {
            return;
        }
        let slot = self.slot(node);
        let own = slot.own.traffic().in_flight().saturating_sub(1);
        slot.ended.set_report(&LoadReport {
            at: now,
            in_flight,
            own: u32::try_from(own).unwrap_or(u32::MAX),
        });
    }

    /// What the node reported last with a response, however long ago.
    #[inline]
    pub fn report(&self, node: NodeId) -> Option<LoadReport> {
        self.slot(node).ended.report()
    }

    /// How own requests to the node ended so far.
    pub fn outcomes(&self, node: NodeId) -> Outcomes {
        let ended = &self.slot(node).ended;
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let (streak, unreachable) = ended.streaks();
        let sum_ln = read(&ended.sum_ln) as f64 / LN_SCALE;
        let stretch = read(&self.stretches[node.index()]) as f64 / LN_SCALE;
        Outcomes {
            successes: read(&ended.successes),
            failures: read(&ended.failures),
            streak,
            unreachable,
            heads: ended.heads.load(Ordering::Relaxed),
            sum_ln,
            sum_ln_latency: sum_ln + stretch,
            sum_ln_squared: read(&ended.sum_ln_squared) as f64 / LN_SCALE,
            sum_seconds: read(&ended.sum_nanos) as f64 * 1e-9,
        }
    }

    /// Publishes the director's terms of a node.
    pub fn set_terms(&self, node: NodeId, terms: &NodeTerms) {
        self.slot(node).own.set_terms(terms);
    }

    /// The director's terms of a node.
    #[inline]
    pub fn terms(&self, node: NodeId) -> NodeTerms {
        self.slot(node).own.terms()
    }

    /// Publishes the part of [`NodeTerms::factor`] that the node's neighbours make: for those that look on.
    pub(crate) fn set_relief(&self, node: NodeId, relief: f32) {
        let bits = match relief < 1.0 {
            true => relief.to_bits(),
            false => 0,
        };
        self.reliefs[node.index()].store(bits.into(), Ordering::Relaxed);
    }

    /// The part of [`NodeTerms::factor`] that the node's neighbours make, above 0, at most 1.
    pub fn relief(&self, node: NodeId) -> f32 {
        match self.reliefs[node.index()].load(Ordering::Relaxed) as u32 {
            0 => 1.0,
            bits => f32::from_bits(bits),
        }
    }

    /// Publishes the director's terms of a site.
    pub fn set_site_terms(&self, site: SiteId, terms: SiteTerms) {
        self.sites[site.index()].set_terms(terms);
    }

    /// Publishes how many own requests may be in flight at a node when one of each rank comes.
    pub fn set_limits(&self, node: NodeId, limits: [f32; Rank::COUNT]) {
        self.slot(node).own.set_limits(limits);
    }

    /// How many own requests may be in flight at a node when one of this rank comes; infinite
    /// without a limit.
    #[inline]
    pub fn limit(&self, node: NodeId, rank: Rank) -> f32 {
        self.slot(node).own.limit(rank)
    }

    /// The kinds of a site's requests.
    #[inline]
    pub fn kinds(&self, site: SiteId) -> &KindPlaces {
        &self.kinds[site.index()]
    }

    /// Publishes how many own requests may be in flight at a node when one comes whose kind is spared.
    pub(crate) fn set_spared_limit(&self, node: NodeId, limit: f64) {
        let limit = if limit.is_nan() { 0.0 } else { limit.max(0.0) };
        self.spared[node.index()].store(limit.ceil() as u64, Ordering::Relaxed);
    }

    /// How many own requests may be in flight at a node when one comes whose kind is spared.
    #[inline]
    pub fn spared_limit(&self, node: NodeId) -> u64 {
        self.spared[node.index()].load(Ordering::Relaxed)
    }

    /// The same when one comes whose kind has not surged while others have.
    pub(crate) fn set_steady_limit(&self, node: NodeId, limit: f64) {
        self.steady[node.index()].store(limit.round() as u64, Ordering::Relaxed);
    }

    /// How many when one comes whose kind has not surged while others have.
    #[inline]
    pub(crate) fn steady_limit(&self, node: NodeId) -> u64 {
        self.steady[node.index()].load(Ordering::Relaxed)
    }

    /// Publishes what a node that starts slowly may have.
    pub(crate) fn set_ramp(&self, node: NodeId, ramp: Ramp) {
        let word = (u64::from(ramp.factor.to_bits()) << 32) | u64::from(ramp.share.to_bits());
        self.ramps[node.index()].store(word, Ordering::Relaxed);
    }

    /// What a node may have that starts slowly; of others it says nothing.
    #[inline]
    pub fn ramp(&self, node: NodeId) -> Ramp {
        let word = self.ramps[node.index()].load(Ordering::Relaxed);
        Ramp {
            factor: f32::from_bits((word >> 32) as u32),
            share: f32::from_bits(word as u32),
        }
    }

    /// Asks for an atomic on a node's shared word, when the last one was answered.
    pub fn ask_word(&self, node: NodeId, op: WordOp) -> u32 {
        self.words[node.index()].ask(op)
    }

    /// What is asked of a node's words and was not answered yet: for the node's reader.
    #[inline]
    pub fn asked_word(&self, node: NodeId) -> Option<WordRequest> {
        self.words[node.index()].asked()
    }

    /// The node's reader answers.
    pub fn answer_word(&self, node: NodeId, ticket: u32, reply: WordReply) {
        self.words[node.index()].answer(ticket, reply);
    }

    /// The answer to what was asked under this number, if it is here.
    pub fn answered_word(&self, node: NodeId, ticket: u32) -> Option<WordReply> {
        self.words[node.index()].answered(ticket)
    }

    /// A read that was sent at this moment found this in the node's word 0. One writer per node.
    #[inline]
    pub fn note_first_word(&self, node: NodeId, held: u64, sent_at: Timestamp) {
        if self.first_words[node.index()].note(held, sent_at) {
            self.word_changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often reads have found another word 0 than before, of all nodes.
    pub fn word_changes(&self) -> u64 {
        self.word_changes.load(Ordering::Relaxed)
    }

    /// What the node's word 0 held at some moment since this one; none before the first read.
    pub fn first_word(&self, node: NodeId) -> Option<(u64, Timestamp)> {
        self.first_words[node.index()].get()
    }

    /// Publishes what front-ends have agreed upon at a node, if anything.
    pub(crate) fn set_agreed(&self, node: NodeId, agreed: Option<Agreed>) {
        self.words[node.index()].set_agreed(agreed);
    }

    /// What front-ends have agreed upon at a node, if anything.
    pub fn agreed(&self, node: NodeId) -> Option<Agreed> {
        self.words[node.index()].agreed()
    }

    /// Publishes how long a request is at a site's servers once it is let in.
    pub(crate) fn set_sojourn(&self, site: SiteId, sojourn: Duration) {
        let word = &self.sites[site.index()].sojourn;
        word.store(nanos(sojourn), Ordering::Relaxed);
    }

    /// How long a request is at a site's servers once it is let in; zero if that is not known.
    pub(crate) fn sojourn(&self, site: SiteId) -> Duration {
        Duration::from_nanos(self.sites[site.index()].sojourn.load(Ordering::Relaxed))
    }

    /// Counts a request that goes to a node of the site with hardly another own one.
    pub(crate) fn add_first(&self, site: SiteId) {
        let site = &self.sites[site.index()];
        site.first_sent.fetch_add(1, Ordering::Relaxed);
    }

    /// Such a request has ended.
    pub(crate) fn first_ended(&self, site: SiteId) {
        let site = &self.sites[site.index()];
        site.first_ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Of those, so far.
    pub(crate) fn firsts(&self, site: SiteId) -> Firsts {
        let site = &self.sites[site.index()];
        let ended = site.first_ended.load(Ordering::Acquire);
        let sent = site.first_sent.load(Ordering::Relaxed);
        Firsts { sent, ended }
    }

    /// Counts requests of a priority that begin to wait at the front-end for room at the site;
    /// wrapping, for those that wait no more.
    pub(crate) fn add_waiting(&self, site: SiteId, priority: Priority, more: u64) {
        let waiting = &self.sites[site.index()].waiting[priority.index()];
        waiting.fetch_add(more, Ordering::Relaxed);
    }

    /// Requests of a priority that wait at the front-end for room at the site.
    pub fn waiting(&self, site: SiteId, priority: Priority) -> u64 {
        self.sites[site.index()].waiting[priority.index()].load(Ordering::Relaxed)
    }

    /// Publishes what set a site's limits.
    pub fn set_limited_by(&self, site: SiteId, by: LimitBy) {
        let place = LimitBy::ALL.iter().position(|it| it.0 == by);
        let number = place.map_or(0, |place| place as u64 + 1);
        let word = &self.sites[site.index()].limited_by;
        word.store(number, Ordering::Relaxed);
    }

    /// What set a site's limits; nothing if it has none.
    pub fn limited_by(&self, site: SiteId) -> Option<LimitBy> {
        let number = self.sites[site.index()].limited_by.load(Ordering::Relaxed);
        let place = usize::try_from(number).ok()?.checked_sub(1)?;
        LimitBy::ALL.get(place).map(|it| it.0)
    }

    /// Counts a request that found no room at any of the site's nodes.
    pub(crate) fn no_room(&self, site: SiteId) {
        self.sites[site.index()]
            .no_room
            .fetch_add(1, Ordering::Relaxed);
    }

    /// Requests that found no room at any of the site's nodes so far.
    pub fn found_no_room(&self, site: SiteId) -> u64 {
        self.sites[site.index()].no_room.load(Ordering::Relaxed)
    }

    /// The director's terms of a site.
    pub fn site_terms(&self, site: SiteId) -> SiteTerms {
        let word = self.sites[site.index()].terms.load(Ordering::Relaxed);
        SiteTerms {
            draws: (word >> 32) as u32,
            decay: f32::from_bits(word as u32),
        }
    }

    fn slot(&self, node: NodeId) -> &Slot {
        &self.nodes[node.index()]
    }
}

#[cfg(test)]
mod tests;
