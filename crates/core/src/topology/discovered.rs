//! Which nodes a site has by one source of discovery: a file, a name in DNS, an API.
//!
//! Formula, for an answer A with the nodes `A`, of members `M`, at time t:
//!
//! * A node of `M` that `A` lacks, or has at another address, is *absent*. At most `max(1, floor(max_drop * N))` absent
//!   nodes are let go within `hold`, where N counts the members and those let go within it. The others go when
//!   `ABSENT_ANSWERS` answers in a row lacked them and the first of these is `hold` old.
//! * Each time that a node is let go its penalty p grows by 1, to 4 at the most, and p halves in 2 `hold`. Above
//!   `CUT` a node that comes back waits until p is `REUSE`. At most `max_drop` of `A` wait, and never all of them.
//!
//! * A node of which the source itself says that it ends goes at once, counts in neither, and is never the last one.
//!
//! Inputs: answers and failures of the source, in order, each with its time. An answer is hostile: nodes with a name,
//! address or weight that cannot be used are left out, an answer with too many nodes, or with none that can be used, is
//! a failure. A failure changes nothing, so once there is a node there always is one.
//!
//! Failure case: a source that lies steadily is believed after `hold`. One that adds nodes that do not serve is believed
//! at once: health checks and passive ejection take them out.
//!
//! Source: penalties and thresholds as for routes that flap, RFC 2439 §4; the share that may be lost at once as
//! `max_ejection_percent` of Envoy's outlier detection.

mod fit;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use crate::time::Timestamp;
pub use fit::{Unfit, can_serve};

/// Answers in a row that must lack a node before it is let go beyond `max_drop`.
const ABSENT_ANSWERS: u32 = 3;
/// A node with a penalty above this waits when it comes back: the second time within about a `hold`.
const CUT: f64 = 1.5;
/// Until its penalty is this.
const REUSE: f64 = 0.75;
/// Greatest penalty: no node waits longer than 2.4 half-lives.
const PENALTY_MAX: f64 = 4.0;
/// A penalty below this is forgotten.
const FORGOTTEN: f64 = 0.1;

/// A node as a source has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Announced {
    /// Its name.
    pub name: String,
    /// Where it serves HTTP.
    pub address: SocketAddr,
    /// Its share relative to others.
    pub weight: f32,
}

/// How far a source is believed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiscoveryLimits {
    /// Share of the nodes that may go at once.
    pub max_drop: f64,
    /// How long the others must be absent.
    pub hold: Duration,
    /// Most nodes.
    pub nodes_max: usize,
}

impl DiscoveryLimits {
    /// Share of the nodes that may go at once: one of three.
    pub const MAX_DROP: f64 = 0.34;
    /// How long the others must be absent.
    pub const HOLD: Duration = Duration::from_secs(30);
    /// Most nodes.
    pub const NODES_MAX: usize = 1000;
}

impl Default for DiscoveryLimits {
    fn default() -> Self {
        Self {
            max_drop: Self::MAX_DROP,
            hold: Self::HOLD,
            nodes_max: Self::NODES_MAX,
        }
    }
}

/// Why a node went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// The answer lacks it.
    Absent,
    /// Answers have lacked it for `hold`, and more than `max_drop` with it.
    AbsentForLong,
    /// The source says that it ends.
    Ends,
}

/// What an answer or a failure has changed, or would have.
#[derive(Clone, Debug, PartialEq)]
pub enum DiscoveryEvent {
    /// A node begins.
    Added(Announced),
    /// A node goes.
    Removed(String, Departure),
    /// A node is at another address.
    Moved(Announced, Departure),
    /// A node has another weight.
    Reweighted(Announced),
    /// This node of the answer cannot be used.
    Refused(String, Unfit),
    /// This node comes and goes too often, and waits.
    HeldBack(String),
    /// So many nodes stay that the answer lacks: too many to go at once.
    Kept(usize),
    /// So many nodes of the answer find no room.
    Full(usize),
    /// The source fails; the last good set stays.
    Failed(String),
    /// It answers again.
    Recovered,
}

#[derive(Clone, Debug)]
struct Member {
    node: Announced,
    absent: Option<Absent>,
}

/// Since when answers have lacked a member.
#[derive(Clone, Copy, Debug)]
struct Absent {
    since: Timestamp,
    answers: u32,
}

/// How often a node has gone of late.
#[derive(Clone, Copy, Debug)]
struct Penalty {
    value: f64,
    at: Timestamp,
    waits: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Discovered {
    limits: DiscoveryLimits,
    members: BTreeMap<String, Member>,
    penalties: BTreeMap<String, Penalty>,
    /// When nodes were let go without having been absent for long.
    departures: VecDeque<Timestamp>,
    /// Why the last answer was none.
    failure: Option<String>,
    refused: BTreeSet<String>,
    held_back: BTreeSet<String>,
    kept: usize,
    crowded_out: usize,
}

impl Discovered {
    /// A source that has not answered yet.
    pub fn new(limits: DiscoveryLimits) -> Self {
        Self {
            limits,
            members: BTreeMap::new(),
            penalties: BTreeMap::new(),
            departures: VecDeque::new(),
            failure: None,
            refused: BTreeSet::new(),
            held_back: BTreeSet::new(),
            kept: 0,
            crowded_out: 0,
        }
    }

    /// The nodes as they are now, in the order of their names.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = &Announced> {
        self.members.values().map(|member| &member.node)
    }

    /// Why the last answer was none, or cannot be used.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// How many nodes of the last answer cannot be used.
    pub fn refused(&self) -> usize {
        self.refused.len()
    }

    /// The source has answered or failed. Each thing is said once, when it begins.
    pub fn observe(
        &mut self,
        now: Timestamp,
        answer: Result<Vec<Announced>, String>,
    ) -> Vec<DiscoveryEvent> {
        let mut events = Vec::new();
        match answer.and_then(|nodes| self.usable(nodes, &mut events)) {
            Ok(answer) => {
                if self.failure.take().is_some() {
                    events.push(DiscoveryEvent::Recovered);
                }
                self.follow(now, &answer, &mut events);
            }
            Err(reason) => {
                if self.failure.replace(reason.clone()).is_none() {
                    events.push(DiscoveryEvent::Failed(reason));
                }
            }
        }
        events
    }

    /// The source says that the nodes at these addresses end: they go, but for the last one.
    pub fn dismiss(&mut self, addresses: &[SocketAddr]) -> Vec<DiscoveryEvent> {
        let mut events = Vec::new();
        let addresses: BTreeSet<_> = addresses.iter().collect();
        let ending = self.members.values().map(|member| &member.node);
        let ending = ending.filter(|node| addresses.contains(&node.address));
        let ending: Vec<_> = ending.map(|node| node.name.clone()).collect();
        for name in ending {
            if self.members.len() > 1 {
                self.members.remove(&name);
                events.push(DiscoveryEvent::Removed(name, Departure::Ends));
            }
        }
        events
    }

    /// The nodes of an answer by name, without those that cannot be used.
    fn usable(
        &mut self,
        nodes: Vec<Announced>,
        events: &mut Vec<DiscoveryEvent>,
    ) -> Result<BTreeMap<String, Announced>, String> {
        let most = self.limits.nodes_max;
        if nodes.len() > most {
            return Err(format!("{} nodes, more than {most}", nodes.len()));
        }
        let (fit, refused) = fit::sort(nodes);
        let before = std::mem::take(&mut self.refused);
        for (name, why) in refused {
            if !before.contains(&name) {
                events.push(DiscoveryEvent::Refused(name.clone(), why));
            }
            self.refused.insert(name);
        }
        match fit.is_empty() {
            false => Ok(fit),
            true if self.refused.is_empty() => Err("no node in the answer".into()),
            true => Err("no node in the answer that can be used".into()),
        }
    }

    fn follow(
        &mut self,
        now: Timestamp,
        answer: &BTreeMap<String, Announced>,
        events: &mut Vec<DiscoveryEvent>,
    ) {
        self.compare(now, answer, events);
        self.let_go(now, answer, events);
        self.admit(now, answer, events);
        self.forget(now);
    }

    /// Marks members that are absent and takes over weights.
    fn compare(
        &mut self,
        now: Timestamp,
        answer: &BTreeMap<String, Announced>,
        events: &mut Vec<DiscoveryEvent>,
    ) {
        for (name, member) in &mut self.members {
            let found = answer.get(name);
            match found.filter(|it| it.address == member.node.address) {
                Some(node) => {
                    member.absent = None;
                    if node.weight != member.node.weight {
                        member.node.weight = node.weight;
                        events.push(DiscoveryEvent::Reweighted(node.clone()));
                    }
                }
                None => {
                    let first = Absent {
                        since: now,
                        answers: 0,
                    };
                    member.absent.get_or_insert(first).answers += 1;
                }
            }
        }
    }

    /// Lets absent members go, those first that have been absent for longest.
    fn let_go(
        &mut self,
        now: Timestamp,
        answer: &BTreeMap<String, Announced>,
        events: &mut Vec<DiscoveryEvent>,
    ) {
        let hold = self.limits.hold;
        while (self.departures.front()).is_some_and(|at| now.since(*at) >= hold) {
            self.departures.pop_front();
        }
        let gone = self.departures.len();
        let most = share(self.limits.max_drop, self.members.len() + gone).max(1);
        let mut free = most.saturating_sub(gone);
        let absent = self.members.iter();
        let absent = absent.filter_map(|(name, it)| Some((it.absent?, name.clone())));
        let mut absent: Vec<_> = absent.collect();
        absent.sort_by(|one, other| (one.0.since, &one.1).cmp(&(other.0.since, &other.1)));
        let mut kept = 0;
        for (absent, name) in absent {
            let long = absent.answers >= ABSENT_ANSWERS && now.since(absent.since) >= hold;
            let why = match long {
                true => Departure::AbsentForLong,
                false if free > 0 => {
                    free -= 1;
                    self.departures.push_back(now);
                    Departure::Absent
                }
                false => {
                    kept += 1;
                    continue;
                }
            };
            self.penalise(&name, now);
            match answer.get(&name) {
                Some(node) => {
                    let member = Member {
                        node: node.clone(),
                        absent: None,
                    };
                    self.members.insert(name, member);
                    events.push(DiscoveryEvent::Moved(node.clone(), why));
                }
                None => {
                    self.members.remove(&name);
                    events.push(DiscoveryEvent::Removed(name, why));
                }
            }
        }
        if kept > self.kept {
            events.push(DiscoveryEvent::Kept(kept));
        }
        self.kept = kept;
    }

    /// Takes new nodes in, but for those that come and go too often and those that find no room.
    fn admit(
        &mut self,
        now: Timestamp,
        answer: &BTreeMap<String, Announced>,
        events: &mut Vec<DiscoveryEvent>,
    ) {
        let new = answer.keys();
        let new = new.filter(|name| !self.members.contains_key(*name));
        let mut new: Vec<_> = new.map(|name| (self.penalty(name, now), name)).collect();
        // The worst first: they are the ones that wait.
        new.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(other.1)));
        let most = share(self.limits.max_drop, answer.len()).min(answer.len() - 1);
        let before = std::mem::take(&mut self.held_back);
        let mut crowded_out = 0;
        for (penalty, name) in new {
            if self.waits(name, penalty) && self.held_back.len() < most {
                if !before.contains(name) {
                    events.push(DiscoveryEvent::HeldBack(name.clone()));
                }
                self.held_back.insert(name.clone());
            } else if self.members.len() >= self.limits.nodes_max {
                crowded_out += 1;
            } else {
                let node = answer[name].clone();
                events.push(DiscoveryEvent::Added(node.clone()));
                let member = Member { node, absent: None };
                self.members.insert(name.clone(), member);
            }
        }
        if crowded_out > self.crowded_out {
            events.push(DiscoveryEvent::Full(crowded_out));
        }
        self.crowded_out = crowded_out;
    }

    fn penalise(&mut self, name: &str, now: Timestamp) {
        let value = (self.penalty(name, now) + 1.0).min(PENALTY_MAX);
        let waits = value > CUT;
        let at = now;
        self.penalties
            .insert(name.into(), Penalty { value, at, waits });
    }

    fn penalty(&self, name: &str, now: Timestamp) -> f64 {
        let penalty = self.penalties.get(name);
        penalty.map_or(0.0, |it| it.value * self.decay(it.at, now))
    }

    fn decay(&self, at: Timestamp, now: Timestamp) -> f64 {
        let half_life = (2.0 * self.limits.hold.as_secs_f64()).max(0.001);
        0.5_f64.powf(now.seconds_since(at) / half_life)
    }

    fn waits(&mut self, name: &str, penalty: f64) -> bool {
        let Some(kept) = self.penalties.get_mut(name) else {
            return false;
        };
        kept.waits &= penalty > REUSE;
        kept.waits
    }

    /// Forgets penalties that mean nothing any more, and the least where there are too many.
    fn forget(&mut self, now: Timestamp) {
        let names: Vec<_> = self.penalties.keys().cloned().collect();
        let value = |name: String| (self.penalty(&name, now), name);
        let mut values: Vec<_> = names.into_iter().map(value).collect();
        values.sort_by(|one, other| other.0.total_cmp(&one.0));
        let most = self.limits.nodes_max.saturating_mul(2);
        for (place, (value, name)) in values.into_iter().enumerate() {
            if place >= most || value < FORGOTTEN {
                self.penalties.remove(&name);
            }
        }
    }
}

/// A share of a number, rounded down.
fn share(share: f64, of: usize) -> usize {
    // A share just below a whole number by its binary form is meant to be that number.
    (share * of as f64 + 1e-9) as usize
}
