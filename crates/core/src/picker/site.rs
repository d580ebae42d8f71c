//! A site as one picker has it: its policy, its admission, its queue; and what lets a request in.

use std::collections::VecDeque;
use std::time::Duration;

use super::affinity::{self, Affinity, Counting, Stickiness};
use super::heads::{Deference, QueueHead};
use super::ramp::Ramps;
use super::{Arrival, WaitId};
use crate::admission::{
    Admission, AdmissionConfig, Kind, KindPlaces, LimitBy, Priority, WaitQueue, WaitRules,
};
use crate::load::LoadTable;
use crate::policy::{Choice, Policy, PolicyConfig, Signal, View, expected};
use crate::prng::Prng;
use crate::time::Timestamp;
use crate::topology::{NodeId, Site, SiteId, Topology};

/// A site that refuses is looked at again after this long.
const CLOSED: Duration = Duration::from_millis(1);

/// One that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) id: WaitId,
    pub(super) kind: Kind,
    pub(super) throttled: bool,
    pub(super) affinity: Affinity,
}

impl Waiter {
    pub(super) fn of(arrival: &Arrival) -> Self {
        Self {
            id: arrival.id,
            kind: arrival.kind,
            throttled: arrival.throttled,
            affinity: arrival.affinity,
        }
    }
}

/// What a request asks of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) priority: Priority,
    pub(super) passes: Passes,
    pub(super) affinity: Affinity,
    /// By node: its name's number.
    pub(super) names: &'a [u64],
}

/// The node that a request gets, and whether it is its session's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen {
    pub(super) choice: Choice,
    pub(super) sticky: Stickiness,
}

impl PartialEq for Waiter {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

/// What lets a request in beside its rank's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passes {
    /// Nothing.
    Never,
    /// It does not use what is full.
    Spared,
    /// Its kind has not surged, others have.
    Steady,
    /// A throttle bounds it, while others are held back for what is behind the servers.
    Throttled,
}

impl Passes {
    /// Whether a request need not wait for what others wait for.
    pub(super) fn beside(table: &LoadTable, site: SiteId, request: Waiter) -> Option<Self> {
        let bounded = request.throttled && table.accounts().bears(site);
        let by = table.limited_by(site);
        if bounded && matches!(by, Some(LimitBy::Downstream | LimitBy::ProbePhase)) {
            return Some(Self::Throttled);
        }
        let spared = table.kinds(site).is_spared(request.kind);
        spared.then_some(Self::Spared)
    }

    pub(super) fn among_surged(has_surged: bool, any_surged: bool) -> Self {
        match any_surged && !has_surged {
            true => Self::Steady,
            false => Self::Never,
        }
    }
}

impl Wanted<'_> {
    /// A choice that turns out to be the session's node is at home.
    fn chosen(&self, choice: Choice, sticky: Stickiness) -> Chosen {
        let is_home = matches!(self.affinity, Affinity::Node { node, .. } if node == choice.node);
        let sticky = if is_home { Stickiness::Home } else { sticky };
        Chosen { choice, sticky }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct PickerSite {
    pub(super) config: PolicyConfig,
    pub(super) policy: Box<dyn Policy>,
    pub(super) ramps: Ramps,
    pub(super) admits: AdmissionConfig,
    pub(super) admission: Box<dyn Admission>,
    pub(super) waiting: WaitQueue<Waiter>,
    /// Until then each request would be refused, whatever the priority.
    pub(super) closed_until: Timestamp,
    /// When a request was last refused here.
    pub(super) refused_at: Option<Timestamp>,
    /// Requests that a higher priority has sent away and that do not know it yet.
    pub(super) evicted: VecDeque<WaitId>,
    /// Requests that wait, by priority, as the table has them.
    pub(super) told: [u64; Priority::COUNT],
    /// The other picker's head that room was left to.
    pub(super) deference: Deference,
}

impl PickerSite {
    pub(super) fn new(topology: &Topology, site: &Site) -> Self {
        let mut policy = site.policy.build();
        policy.on_nodes(topology.nodes.len(), &site.candidates);
        let mut ramps = Ramps::default();
        ramps.on_site(site);
        let admits = site.admission;
        let admission = admits.build();
        let rules = wait_rules(admission.as_ref(), admits);
        Self {
            config: site.policy,
            policy,
            ramps,
            admits,
            admission,
            waiting: WaitQueue::new(admits.queue as usize, rules),
            closed_until: Timestamp::ZERO,
            refused_at: None,
            evicted: VecDeque::new(),
            told: [0; Priority::COUNT],
            deference: Deference::default(),
        }
    }

    /// A request was refused, and all others would be if it `closes` the site.
    pub(super) fn on_refused(&mut self, closes: bool, now: Timestamp) {
        self.refused_at = Some(now);
        if closes {
            self.closed_until = now + CLOSED;
        }
    }

    /// The policy's choice among all; a node that starts slowly gets no more than its share.
    pub(super) fn pick(&mut self, view: &View<'_>, prng: &mut Prng) -> Choice {
        self.ramps.pick(self.policy.as_mut(), view, prng)
    }

    /// A node with room for the request: its session's, if it has one that fits, or else any.
    pub(super) fn choose(
        &mut self,
        view: &View<'_>,
        wanted: &Wanted<'_>,
        prng: &mut Prng,
        left: &mut Vec<NodeId>,
    ) -> Option<Chosen> {
        let Wanted {
            priority, passes, ..
        } = *wanted;
        let has_room = |node| self.has_room(view, node, priority, passes);
        let (sticky, home) = self.at_home(view, wanted, has_room);
        let choice = match home {
            Some(choice) => choice,
            None => self.choose_any(view, priority, passes, prng, left)?,
        };
        Some(wanted.chosen(choice, sticky))
    }

    /// Any node for a request, whatever room there is.
    pub(super) fn choose_beyond(
        &mut self,
        view: &View<'_>,
        wanted: &Wanted<'_>,
        prng: &mut Prng,
    ) -> Chosen {
        let (sticky, home) = self.at_home(view, wanted, |_| true);
        let choice = home.unwrap_or_else(|| self.pick(view, prng));
        wanted.chosen(choice, sticky)
    }

    /// The same choice for a request of a session, unless its session's node fits.
    pub(super) fn stick(&self, view: &View<'_>, wanted: &Wanted<'_>, choice: Choice) -> Chosen {
        let Wanted {
            priority, passes, ..
        } = *wanted;
        let has_room = |node| self.has_room(view, node, priority, passes);
        let (sticky, home) = self.at_home(view, wanted, has_room);
        wanted.chosen(home.unwrap_or(choice), sticky)
    }

    /// The session's node, if there is one that fits; see [`affinity`].
    fn at_home(
        &self,
        view: &View<'_>,
        wanted: &Wanted<'_>,
        has_room: impl Fn(NodeId) -> bool,
    ) -> (Stickiness, Option<Choice>) {
        if wanted.affinity == Affinity::None {
            return (Stickiness::None, None);
        }
        let signals = self.config.kind.signals();
        let counting = Counting {
            names: wanted.names,
            by_weight: signals.contains(&Signal::Weight),
        };
        let (sticky, home) = affinity::choose(wanted.affinity, view, &counting, has_room);
        // What is learned from latencies is learned against what is expected.
        let learns = signals.contains(&Signal::Learned);
        let home = home.map(|choice| Choice {
            slowdown: match learns {
                true => expected(view, choice.node).slowdown,
                false => choice.slowdown,
            },
            ..choice
        });
        (sticky, home)
    }

    /// A node with room for the priority, or for one that passes beside it: the policy's choice among all, or else
    /// among those that have room, also if they start slowly. `left` is scratch.
    fn choose_any(
        &mut self,
        view: &View<'_>,
        priority: Priority,
        passes: Passes,
        prng: &mut Prng,
        left: &mut Vec<NodeId>,
    ) -> Option<Choice> {
        let choice = self.pick(view, prng);
        let has_room = self.admits(view, choice.node, priority, passes);
        if has_room && view.table.bears_another(choice.node) {
            return Some(choice);
        }
        if !has_room && !self.admission.looks_further() {
            return None;
        }
        left.clear();
        let nodes = view.candidates.iter();
        left.extend(nodes.filter(|node| self.has_room(view, **node, priority, passes)));
        if left.is_empty() {
            return None;
        }
        let view = View {
            candidates: left,
            ..*view
        };
        Some(self.policy.pick(&view, prng))
    }

    pub(super) fn has_room(
        &self,
        view: &View<'_>,
        node: NodeId,
        priority: Priority,
        passes: Passes,
    ) -> bool {
        self.admits(view, node, priority, passes) && view.table.bears_another(node)
    }

    /// Whether the node itself bears another one; one that does not use what is full behind it finds room
    /// for as long as the node has time, and one whose kind has not surged while it has no more than usual.
    pub(super) fn admits(
        &self,
        view: &View<'_>,
        node: NodeId,
        priority: Priority,
        passes: Passes,
    ) -> bool {
        let beside = match passes {
            Passes::Never => 0,
            Passes::Spared => view.table.spared_limit(node),
            Passes::Steady => view.table.steady_limit(node),
            // It needs room at the node itself, and takes no other's slot.
            Passes::Throttled => {
                return view.table.at_work(node) < view.table.accounts().limit(node);
            }
        };
        view.table.in_slots(node) < beside || self.admission.has_room(view, node, priority)
    }

    /// Whether any node has room for the request whose turn is next, of this priority.
    pub(super) fn has_any_room(&self, view: &View<'_>, priority: Priority) -> bool {
        let passes = self.passes_in_turn(view.table, view.site, priority);
        let mut nodes = view.candidates.iter();
        nodes.any(|node| self.has_room(view, *node, priority, passes))
    }

    /// What lets a request of this priority in whose turn it is.
    pub(super) fn passes_in_turn(
        &self,
        table: &LoadTable,
        site: SiteId,
        priority: Priority,
    ) -> Passes {
        let any_surged = table.kinds(site).any_surged();
        Passes::among_surged(!priority.is_established(), any_surged)
    }

    /// The next one of the queue, if that is in order.
    pub(super) fn head(&self) -> Option<QueueHead> {
        let (rank, arrived) = self.waiting.next_in_order()?;
        Some(QueueHead { rank, arrived })
    }

    /// When the queue is to be looked at again, whatever else happens.
    pub(super) fn due(&self) -> Option<Timestamp> {
        let due = self.waiting.due()?;
        Some(self.deference.due().map_or(due, |again| again.min(due)))
    }

    /// Tells the table how many wait: what the director asks slots for.
    pub(super) fn tell_waiting(&mut self, table: &LoadTable, site: SiteId) {
        for (priority, told) in Priority::all().zip(&mut self.told) {
            let waiting = self.waiting.waiting(priority) as u64;
            if waiting != *told {
                table.add_waiting(site, priority, waiting.wrapping_sub(*told));
                *told = waiting;
            }
        }
    }

    /// Whether stage 0 need not read what comes: it would be refused, or would only take the place of an
    /// equal.
    pub(super) fn is_closed(&self, now: Timestamp, any_surged: bool) -> bool {
        now < self.closed_until || self.waiting.is_closed_to(self.highest(any_surged))
    }

    /// The highest that may come.
    pub(super) fn highest(&self, any_surged: bool) -> Priority {
        Priority::HIGHEST.with_established(self.admits.sessions || any_surged)
    }

    /// The lowest that may come.
    pub(super) fn lowest(&self) -> Priority {
        Priority::new(self.admits.priorities.saturating_sub(1)).unwrap_or(Priority::HIGHEST)
    }

    /// The priority of a request while some kinds have surged: within a priority these are last, and what has not goes as
    /// established sessions do, unless the site tells sessions apart by itself.
    pub(super) fn among_surged(
        &self,
        priority: Priority,
        kind: Kind,
        kinds: &KindPlaces,
    ) -> Priority {
        if !kinds.any_surged() {
            return priority;
        }
        let known = priority.is_established() || !self.admits.sessions;
        priority.with_established(known && !kinds.has_surged(kind))
    }

    /// Another way of admitting; waiting requests go on waiting.
    pub(super) fn set_admission(&mut self, admits: AdmissionConfig) {
        if self.admits != admits {
            self.admits = admits;
            self.admission = admits.build();
            let rules = wait_rules(self.admission.as_ref(), admits);
            self.waiting.configure(admits.queue as usize, rules);
        }
    }
}

/// How waiting requests wait: of the site's mode, or of one before it that let them.
pub(super) fn wait_rules(admission: &dyn Admission, admits: AdmissionConfig) -> WaitRules {
    let rules = admission.waits();
    rules.unwrap_or_else(|| WaitRules::within(admits.slo))
}
