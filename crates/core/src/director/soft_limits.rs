//! Soft limits: a node that is about to run out of a resource gets no requests until it has some again.
//!
//! ```text
//!          u >= limit,  or  u >= limit / 2 and u + slope * horizon >= 1
//!   below ─────────────────────────────────────────────────────────────> over
//!     ^                                                                   │
//!     └───────────────────────────────────────────────────────────────────┘
//!          u < limit - 0.05 and u + slope * horizon < limit, for `wait`
//!
//! u        used share of the capacity;  slope: see `trend`
//! horizon  2 (spacing + delay): at least two samples ahead
//! delay    100 ms, the age of a count of descriptors in a record, and a mean latency, a second at most: until a
//!          request that is sent now shows in a sample
//! wait     1 s, and 2 spacings at least; twice as long, a minute at most, each time that it was over less than a minute
//!          after it had come back
//! out      of the nodes over their limits, the worst: half of the site's ready nodes, rounded down, less those that are out
//!          for other reasons; at least one stays in
//! worst    largest u / limit; a node that is out counts 0.05 more
//! ```
//!
//! Inputs: each new record that is fresh when it is seen, of each resource that the site limits. A resource whose
//! capacity is not known has no limit. A node at its limit refuses nothing yet, so an answer shows nothing of it, whatever
//! the policy; and one without descriptors is the fastest to fail, so policies that look for short queues
//! send it more. Hence this stands beside requests and checks (`health`, `check`): each speaks for itself.
//!
//! Records that are not fresh change nothing: they are no evidence, neither against a node nor for it. After a minute without
//! one nothing is known, and the node is in again: what it cannot bear its requests show.
//!
//! Where more nodes are over their limits than may be out, load is what is wrong and not the nodes. The worst
//! stay out, and change places with others as those get worse.
//!
//! Failure case: a ramp from half of the limit to the end in less than three spacings is seen too late; refused
//! connections then take the node out. A step to more than half of a limit looks like a ramp between two slow reads: the
//! node is out for some seconds for nothing, which costs no request.
//! Source: SLBL-ARPN §7 (soft limit of open descriptors: 90 %); slope, hysteresis and the half of a site are ours.

use std::cmp::Ordering;
use std::time::Duration;

use super::trend::Trend;
use super::{Director, Event, health};
use crate::load::{LoadTable, NodeLoad};
use crate::time::Timestamp;
use crate::topology::{Cause, Crossing, Ejection, NodeId, NodeResource, SiteId, SoftLimits};

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How far below its limit a node comes back; and what keeps nodes from changing places all the time.
const HYSTERESIS: f32 = 0.05;
/// The part of a limit from which on a ramp counts.
const RAMP_FROM: f32 = 0.5;
/// How old a count of descriptors may be in a record that is new.
const COUNT_AGE: Duration = Duration::from_millis(100);
/// Longest mean latency that counts.
const LATENCY_MAX: Duration = Duration::from_secs(1);
/// How long a node is calm before it comes back.
const WAIT_FIRST: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(60);
const WAIT_SPACINGS: u32 = 2;
/// Over again so soon after it came back, a node waits longer.
const AGAIN_WITHIN: Duration = Duration::from_secs(60);
/// After so long, or so many spacings, without a record nothing is known.
const KNOWN_FOR: Duration = Duration::from_secs(60);
const KNOWN_SPACINGS: u32 = 4;

/// One resource of one node.
#[derive(Debug, Default)]
struct ResourceWatch {
    trend: Trend,
    over: Option<Over>,
    /// How long it was calm before it came back last, and when that was.
    returned: Option<(Duration, Timestamp)>,
}

/// A node over a limit.
#[derive(Clone, Copy, Debug)]
struct Over {
    crossing: Crossing,
    /// How long it must be calm.
    wait: Duration,
    calm_since: Option<Timestamp>,
}

impl ResourceWatch {
    /// Takes a sample in. `delay` is the time until a request that is sent now shows in one.
    fn on_sample(
        &mut self,
        resource: NodeResource,
        limit: f32,
        (at, used): (Timestamp, f32),
        delay: Duration,
    ) {
        if !self.trend.on_sample(at, used) {
            return;
        }
        let spacing = self.trend.spacing();
        let horizon = (spacing + delay) * 2;
        let Some(over) = &mut self.over else {
            let full_in = self.trend.full_in().filter(|it| *it <= horizon);
            let full_in = full_in.filter(|_| used < limit);
            if used >= limit || (full_in.is_some() && used >= limit * RAMP_FROM) {
                let crossing = Crossing {
                    resource,
                    used,
                    limit,
                    full_in,
                };
                self.over = Some(self.begin(crossing, at));
            }
            return;
        };
        if used >= limit - HYSTERESIS || self.trend.used_in(horizon) >= limit {
            over.calm_since = None;
            return;
        }
        let calm_for = at.since(*over.calm_since.get_or_insert(at));
        if calm_for >= over.wait.max(spacing * WAIT_SPACINGS) {
            self.returned = Some((over.wait, at));
            self.over = None;
        }
    }

    fn begin(&self, crossing: Crossing, at: Timestamp) -> Over {
        let wait = match self.returned {
            Some((wait, returned_at)) if at.since(returned_at) < AGAIN_WITHIN => {
                (wait * 2).min(WAIT_MAX)
            }
            Some(_) | None => WAIT_FIRST,
        };
        Over {
            crossing,
            wait,
            calm_since: None,
        }
    }

    /// Nothing is known after so long without a sample.
    fn on_silence(&mut self, now: Timestamp) {
        let known_for = KNOWN_FOR.max(self.trend.spacing() * KNOWN_SPACINGS);
        let is_past = |(at, _)| now.since(at) > known_for;
        if self.trend.last().is_none_or(is_past) {
            self.over = None;
        }
    }

    /// How bad it is, if it is over: the last used share, of the limit.
    fn severity(&self) -> Option<f32> {
        let crossing = self.over?.crossing;
        let used = self.trend.last().map_or(crossing.used, |(_, used)| used);
        Some(used / crossing.limit)
    }
}

/// Which soft limits a node is over: the director has one of each node, and an agent of its own.
#[derive(Debug, Default)]
pub struct SoftLimitWatch {
    /// By [`NodeResource::ALL`].
    resources: [ResourceWatch; NodeResource::ALL.len()],
}

impl SoftLimitWatch {
    /// Takes the node's load in, if there is a newer one. `delay` is the time until a request that is sent to the node now
    /// shows in a load.
    pub fn on_load(
        &mut self,
        limits: &SoftLimits,
        load: Option<&NodeLoad>,
        delay: Duration,
        now: Timestamp,
    ) {
        for ((resource, _), watch) in NodeResource::ALL.into_iter().zip(&mut self.resources) {
            let Some(limit) = limits.of(resource) else {
                *watch = ResourceWatch::default();
                continue;
            };
            // A limit that is in force no more keeps nothing out.
            watch.over = watch.over.filter(|it| it.crossing.limit == limit);
            if let Some(sample) = load.and_then(|load| sample(resource, load)) {
                watch.on_sample(resource, limit, sample, delay);
            }
            watch.on_silence(now);
        }
    }

    /// How the node came over its limit, the worst one if there are several.
    pub fn crossing(&self) -> Option<Crossing> {
        let over = self.resources.iter().filter(|it| it.over.is_some());
        let worst = over.max_by(|one, other| compared(one.severity(), other.severity()));
        Some(worst?.over?.crossing)
    }

    fn severity(&self) -> Option<f32> {
        let all = self.resources.iter().filter_map(ResourceWatch::severity);
        all.reduce(f32::max)
    }
}

/// What is remembered of one node.
#[derive(Debug, Default)]
pub(super) struct NodeSoftLimits {
    /// When the last record was made that was seen.
    seen: Timestamp,
    watch: SoftLimitWatch,
    /// It is out since then.
    out: Option<Timestamp>,
}

impl NodeSoftLimits {
    /// Looks at the node's newest record, if it is a new one.
    fn on_look(&mut self, limits: &SoftLimits, table: &LoadTable, node: NodeId, now: Timestamp) {
        let observed_at = table.brief(node).observed_at;
        let load = (observed_at != self.seen).then(|| table.last(node));
        self.seen = observed_at;
        let load = load.filter(|load| load.is_fresh(now));
        let delay = load.map_or(Duration::ZERO, |_| delay(table, node));
        self.watch.on_load(limits, load.as_ref(), delay, now);
    }

    /// How it came over its limit.
    pub(super) fn crossing(&self) -> Option<Crossing> {
        self.watch.crossing()
    }

    fn severity(&self) -> Option<f32> {
        self.watch.severity()
    }

    /// Since when it is out by its limits.
    pub(super) fn ejection(&self) -> Option<Ejection> {
        self.out.map(|since| Ejection {
            cause: Cause::SoftLimit,
            since,
            until: since,
        })
    }
}

fn compared(one: Option<f32>, other: Option<f32>) -> Ordering {
    one.unwrap_or(0.0).total_cmp(&other.unwrap_or(0.0))
}

fn sample(resource: NodeResource, load: &NodeLoad) -> Option<(Timestamp, f32)> {
    Some((load.observed_at, resource.used(load)?))
}

/// The time until a request that is sent to the node now shows in a record.
fn delay(table: &LoadTable, node: NodeId) -> Duration {
    COUNT_AGE + health::latency(&table.outcomes(node)).min(LATENCY_MAX)
}

/// A node that could serve.
#[derive(Clone, Copy, Debug)]
struct Usable {
    node: NodeId,
    /// How bad it is, if it is over a limit.
    severity: Option<f32>,
    out: bool,
}

/// Which of a site's usable nodes are to be out, in ascending order; so many are ready, those included that are out for
/// other reasons.
fn outs(usable: &[Usable], ready: usize) -> Vec<NodeId> {
    let others = ready.saturating_sub(usable.len());
    let most = (ready / 2).saturating_sub(others);
    let rank = |it: &Usable| {
        let bonus = if it.out { HYSTERESIS } else { 0.0 };
        Some((it.severity? + bonus, it.node))
    };
    let mut over: Vec<_> = usable.iter().filter_map(rank).collect();
    over.sort_by(|one, other| other.0.total_cmp(&one.0));
    let most = most.min(usable.len().saturating_sub(1));
    let outs = over.into_iter().take(most).map(|(_, node)| node);
    let mut outs: Vec<_> = outs.collect();
    outs.sort_unstable();
    outs
}

impl Director {
    /// Looks at records, and takes out nodes that are about to run out of something.
    pub(super) fn tick_soft_limits(&mut self, table: &LoadTable, now: Timestamp) {
        // What else has changed may change how many may be out.
        if !self.changed && now.since(self.soft_limits_seen) < LOOK_EVERY {
            return;
        }
        self.soft_limits_seen = now;
        for index in 0..self.topology.sites.len() {
            let nodes = self.topology.sites[index].nodes.clone();
            for node in &nodes {
                self.look_at_limits(SiteId(index as u32), *node, table, now);
            }
            let outs = self.outs_by_limits(&nodes, table, now);
            for node in nodes {
                let out = outs.binary_search(&node).is_ok();
                self.set_out_by_limits(node, out, now);
            }
        }
    }

    fn look_at_limits(&mut self, site: SiteId, node: NodeId, table: &LoadTable, now: Timestamp) {
        let limits = self.known[site.index()].spec.health.soft_limits;
        self.soft_limits[node.index()].on_look(&limits, table, node, now);
    }

    fn outs_by_limits(&self, nodes: &[NodeId], table: &LoadTable, now: Timestamp) -> Vec<NodeId> {
        let ready = nodes.iter().filter(|it| self.is_ready_member(**it));
        let usable = ready.clone().filter(|it| self.has_no_other_trouble(**it));
        let usable = usable.map(|node| {
            let limits = &self.soft_limits[node.index()];
            let out = limits.out.is_some();
            // What was true a while ago takes no other node out.
            let counts = |_: &f32| out || table.last(*node).is_fresh(now);
            Usable {
                node: *node,
                severity: limits.severity().filter(counts),
                out,
            }
        });
        let usable: Vec<_> = usable.collect();
        outs(&usable, ready.count())
    }

    fn is_ready_member(&self, node: NodeId) -> bool {
        self.topology.is_member(node) && self.topology.node(node).is_ready()
    }

    /// Whether neither requests and probes nor checks of either kind nor its agent have it out.
    fn has_no_other_trouble(&self, node: NodeId) -> bool {
        let others = [
            self.health[node.index()].ejection(),
            self.checks[node.index()].ejection(),
            self.services[node.index()].ejection(),
            self.topology.node(node).agent.ejection(),
        ];
        others.iter().all(Option::is_none)
    }

    /// Puts a node out or in by its limits, and into the topology what it is over.
    fn set_out_by_limits(&mut self, id: NodeId, out: bool, now: Timestamp) {
        let crossing = self.soft_limits[id.index()].crossing();
        let is_usable = self.is_ready_member(id) && self.has_no_other_trouble(id);
        if crossing.is_some() && !is_usable {
            // It gets no requests anyway, and is judged when it could.
            return;
        }
        let was_over = self.topology.node(id).soft_limit.is_some();
        let limits = &mut self.soft_limits[id.index()];
        if (out, crossing.is_some()) == (limits.out.is_some(), was_over) {
            return;
        }
        limits.out = match out {
            true => limits.out.or(Some(now)),
            false => None,
        };
        let event = match crossing {
            None => Event::SoftLimitCleared(id),
            Some(crossing) if out => Event::SoftLimitCrossed(id, crossing),
            Some(crossing) => Event::SoftLimitIgnored(id, crossing),
        };
        self.set_health(id, event, now);
    }
}

#[cfg(test)]
mod tests;
