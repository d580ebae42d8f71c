//! Reads of load records, worked out when they are asked for.
//!
//! ```text
//! front-end f and node s share phase (f + s) mod 8 of the read interval
//! in turn              groups of neighbours, each in a phase of its own; front-ends begin anywhere
//! read k of a phase    sent at first + k * interval, at the node one delay later, and back
//! record               of the node's counters when the read is there, or as published, or aged
//! ```
//!
//! When each front-end reads is fixed, and what a node counted at any moment of late stands in its log; so
//! nothing happens at a read. Just before a front-end chooses, it looks for the newest read of
//! each node that has come back by now. All front-ends of a phase find the same record, and it
//! is worked out once. This tells exactly what a reader that takes in every single read
//! would know (`tests` compare the two), with these exceptions:
//!
//! * Windows are formed from all records of a phase, those that this front-end lost included.
//! * With reads more often than each millisecond, windows start where a record was made, and a
//!   reader's history, which keeps one record a millisecond, may start a little earlier.
//! * Replies that overtake each other: only the newest counts.
//!
//! Chances (loss, jitter, the wait for a CPU) are drawn by the read's number, not in order, so
//! that it does not matter which asks first.

use std::time::Duration;

use tidegate_core::load::{NodeLoad, Point, Rates, expected_runnable, groups};
use tidegate_core::record::Sources;
use tidegate_core::time::{Timestamp, nanos};

use crate::node::Node;
use crate::node_model::Answer;
use crate::own_log::Polls;
use crate::read_class::Class;
use crate::scenario::Scenario;

/// Groups in which reads are spread over their interval.
pub const PHASES: u32 = 8;
/// The longest window that a load is made of.
const WINDOW_MAX: Duration = Duration::from_millis(100);
/// The longest window that a utilisation is made of.
const WINDOW_UTILIZATION: Duration = Duration::from_millis(50);

/// When one read was where.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Timing {
    pub(crate) sent_at: Timestamp,
    /// When the node answered.
    pub(crate) answered_at: Timestamp,
    pub(crate) received_at: Timestamp,
}

/// What a read gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadRead {
    pub(crate) timing: Timing,
    pub(crate) generation: u64,
    pub(crate) made_at: Timestamp,
    pub(crate) load: NodeLoad,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Reads {
    seed: u64,
    start: Timestamp,
    rates: WantedRates,
    pub(crate) classes: Vec<Class>,
    /// By node.
    class_of: Vec<Option<usize>>,
    quota_milli: Vec<u32>,
    /// Groups in which reads are spread over their interval.
    phases: u32,
    /// Whether these are nodes that lie side by side, one group after the other.
    pub(crate) in_turn: bool,
    /// The last read that was asked for, by node and phase.
    known: Vec<(i64, Option<LoadRead>)>,
}

/// Which rates are looked at: windows for the others are not looked for, and what they
/// would tell is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WantedRates {
    pub(crate) utilization: bool,
    pub(crate) request_times: bool,
}

impl WantedRates {
    /// Whether anybody needs a window of this length. Request times are taken over the longest
    /// one, and utilisation over shorter ones, for simulated nodes count CPU time exactly.
    fn has(self, window: Duration) -> bool {
        if window == WINDOW_MAX {
            self.request_times
        } else {
            self.utilization
        }
    }
}

enum Reach {
    /// The node was silent since then.
    Silent(Timestamp),
    Answered(Timing),
}

impl Reads {
    /// Reads as the scenario has them, with these rates.
    pub(crate) fn new(scenario: &Scenario, rates: WantedRates, start: Timestamp) -> Self {
        let mut classes: Vec<Class> = Vec::new();
        let mut class_of = Vec::with_capacity(scenario.nodes.len());
        for node in &scenario.nodes {
            class_of.push(node.records.map(|records| {
                let known = classes.iter().position(|class| class.records == records);
                known.unwrap_or_else(|| {
                    classes.push(Class::new(records, scenario));
                    classes.len() - 1
                })
            }));
        }
        let interval = classes
            .first()
            .map_or(Duration::ZERO, |class| class.records.interval);
        let wanted = scenario.front_ends.in_turn;
        let turns = groups(scenario.nodes.len(), interval).filter(|_| wanted);
        let phases = turns.map_or(PHASES, |groups| groups as u32);
        let claim = |claimed: Option<f64>| claimed.map_or(0, |cores| (cores * 1e3) as u32);
        Self {
            seed: scenario.seed,
            start,
            rates,
            classes,
            class_of,
            quota_milli: scenario
                .nodes
                .iter()
                .map(|node| claim(node.allocation))
                .collect(),
            phases,
            in_turn: turns.is_some(),
            known: vec![(-1, None); scenario.nodes.len() * phases as usize],
        }
    }

    /// The phase in which the front-end reads the node.
    pub(crate) fn phase(&self, front_end: u32, node: usize) -> u32 {
        if !self.in_turn {
            return (front_end % PHASES + node as u32 % PHASES) % PHASES;
        }
        let begins = hash(u64::from(front_end)) % u64::from(self.phases);
        let group = node * self.phases as usize / self.class_of.len();
        (begins as u32 + group as u32) % self.phases
    }

    /// How far back a node's log must reach.
    pub(crate) fn look_back(&self) -> Duration {
        let window = match self.rates {
            WantedRates {
                request_times: true,
                ..
            } => WINDOW_MAX,
            WantedRates {
                utilization: true, ..
            } => WINDOW_UTILIZATION,
            _ => Duration::ZERO,
        };
        window
            + self
                .classes
                .iter()
                .map(Class::look_back)
                .max()
                .unwrap_or_default()
    }

    /// How the node is read, if it is.
    pub(crate) fn class(&self, node: usize) -> Option<usize> {
        self.class_of[node]
    }

    /// When reads of a phase are sent.
    pub(crate) fn polls(&self, class: usize, phase: u32) -> Polls {
        let interval_ns = self.classes[class].interval_ns;
        Polls {
            first_ns: self.start.nanos() + interval_ns * u64::from(phase) / u64::from(self.phases),
            interval_ns,
        }
    }

    /// The newest read of this phase that can have come back by now, -1 if none can.
    pub(crate) fn newest(&self, class: usize, phase: u32, now: Timestamp) -> i64 {
        let round_trip = 2 * self.classes[class].one_way_ns;
        let sent_by = now.nanos().saturating_sub(round_trip);
        self.polls(class, phase)
            .last(Timestamp::from_nanos(sent_by))
    }

    /// The last read after number `after`, up to the newest, that has come back to the front-end
    /// by now.
    pub(crate) fn find(
        &self,
        nodes: &[Node],
        (front_end, node): (u32, usize),
        (after, newest): (i64, i64),
        now: Timestamp,
    ) -> Option<i64> {
        let class_number = self.class_of[node]?;
        let class = &self.classes[class_number];
        if class.regular && nodes[node].never_silent() {
            return (newest > after).then_some(newest);
        }
        let phase = self.phase(front_end, node);
        let polls = self.polls(class_number, phase);
        let mut number = newest;
        while number > after {
            match self.reach(nodes, node, phase, number) {
                Reach::Silent(since) => {
                    let reached = since.nanos().saturating_sub(class.one_way_ns + 1);
                    number = polls.last(Timestamp::from_nanos(reached)).min(number - 1);
                }
                Reach::Answered(timing) => {
                    let lost = class.records.loss > 0.0
                        && self.chance(number, front_end, node, 1) < class.records.loss;
                    if timing.received_at <= now && !lost {
                        return Some(number);
                    }
                    number -= 1;
                }
            }
        }
        None
    }

    /// The read of the same phase that was the first to bring the record of this one.
    pub(crate) fn first_with(&self, node: usize, number: i64, read: &LoadRead) -> i64 {
        let class = match self.class_of[node] {
            Some(class) => &self.classes[class],
            None => return number,
        };
        let aged = read.timing.answered_at - Duration::from_nanos(class.age_ns);
        if !class.regular || class.published_ns == 0 {
            return number;
        }
        let stood = nanos(aged.since(read.made_at));
        (number - (stood / class.interval_ns) as i64).max(0)
    }

    /// When this read was where; nothing if the node was silent.
    pub(crate) fn timing(
        &self,
        nodes: &[Node],
        node: usize,
        phase: u32,
        number: i64,
    ) -> Option<Timing> {
        match self.reach(nodes, node, phase, number) {
            Reach::Silent(_) => None,
            Reach::Answered(timing) => Some(timing),
        }
    }

    /// What this read gave; nothing if the node had no record then. Worked out once.
    pub(crate) fn read(
        &mut self,
        nodes: &[Node],
        node: usize,
        phase: u32,
        number: i64,
    ) -> Option<&LoadRead> {
        let place = node * self.phases as usize + phase as usize;
        if self.known[place].0 != number {
            self.known[place] = (number, self.work_out(nodes, node, phase, number));
        }
        self.known[place].1.as_ref()
    }

    fn work_out(&self, nodes: &[Node], node: usize, phase: u32, number: i64) -> Option<LoadRead> {
        let class = &self.classes[self.class_of[node]?];
        let Reach::Answered(timing) = self.reach(nodes, node, phase, number) else {
            return None;
        };
        let made_at = self.made_at(class, node, timing.answered_at)?;
        let log = nodes[node].log.as_ref()?;
        let counters = log.before(made_at)?;
        let mut record = counters.record_at(made_at, class.records.scope, class.sources);
        record.rung = class.records.rung as u8;
        record.interval_ns = class.published_ns;
        record.quota_milli = self.quota_milli[node];
        if let Some(files) = &nodes[node].files {
            let since = made_at.since(self.start);
            record.sources = record.sources.with(Sources::FILES);
            record.files_max = files.max.into();
            record.files_open = files.open(since, counters.in_flight()).into();
        }
        let newest = Point::of(&record);
        let one_way = timing.received_at.since(timing.sent_at) / 2;
        let standing = timing.answered_at.since(made_at);
        let read = |load| LoadRead {
            timing,
            generation: counters.generation,
            made_at,
            load: NodeLoad {
                observed_at: timing.received_at - one_way - standing,
                one_way: one_way.as_secs_f32(),
                ..load
            },
        };
        if class.records.rung.is_mean() {
            let over = class.mean_over();
            let start = made_at - over;
            let mut older = log.before(start)?.point_at(start, class.records.scope);
            older.capacity = newest.capacity;
            let load = reported(&older.until(&newest)?, newest.capacity, over);
            let rung = class.records.rung;
            return Some(read(NodeLoad { rung, ..load }));
        }
        let start = |window| {
            self.window_start(
                nodes,
                node,
                phase,
                (number, made_at, counters.since),
                window,
            )
        };
        let rates = |window| -> Option<Rates> {
            if !self.rates.has(window) {
                return None;
            }
            let start = start(window)?;
            let mut point = log.before(start)?.point_at(start, class.records.scope);
            point.capacity = newest.capacity;
            point.until(&newest)
        };
        Some(read(NodeLoad::of_record(&record, rates)))
    }

    /// The record that stands at the node at this moment was made then, if there is one.
    pub(crate) fn made_at(&self, class: &Class, node: usize, at: Timestamp) -> Option<Timestamp> {
        let at = at.nanos().checked_sub(class.age_ns)?;
        if class.published_ns == 0 {
            return (at >= self.start.nanos()).then_some(Timestamp::from_nanos(at));
        }
        // Nodes publish out of step.
        let offset = hash(node as u64) % class.published_ns;
        let first = self.start.nanos() + offset;
        let since = at.checked_sub(first)?;
        Some(Timestamp::from_nanos(at - since % class.published_ns))
    }

    /// Until when records made at or before this moment could be read, ns.
    fn stood_until(&self, class: &Class, node: usize, made: Timestamp) -> u64 {
        let published = match class.published_ns {
            0 => made.nanos(),
            published => {
                let aged = made + Duration::from_nanos(class.age_ns);
                let last = self.made_at(class, node, aged);
                last.map_or(made.nanos(), |last| last.nanos() + published - 1)
            }
        };
        published + class.age_ns
    }

    /// Where a window up to the record of a read starts: at the youngest record of the same
    /// generation that is old enough, or the oldest one that a reader keeps.
    fn window_start(
        &self,
        nodes: &[Node],
        node: usize,
        phase: u32,
        (number, made_at, since): (i64, Timestamp, Timestamp),
        window: Duration,
    ) -> Option<Timestamp> {
        let class = &self.classes[self.class_of[node]?];
        let wanted = made_at - window;
        if class.regular && class.published_ns == 0 && nodes[node].never_silent() {
            let ago = nanos(window).div_ceil(class.interval_ns);
            let start = made_at - Duration::from_nanos(ago * class.interval_ns);
            if ago as i64 <= number && start >= since {
                return Some(start);
            }
        }
        let made = |number: i64| match self.reach(nodes, node, phase, number) {
            Reach::Silent(_) => None,
            Reach::Answered(timing) => self
                .made_at(class, node, timing.answered_at)
                .filter(|made| *made >= since),
        };
        // The last read that can have brought a record that is old enough.
        let polls = self.polls(self.class_of[node]?, phase);
        let stood = self.stood_until(class, node, wanted);
        let reached = Timestamp::from_nanos(stood.saturating_sub(class.one_way_ns));
        let mut start = polls.last(reached).min(number - 1);
        while start >= 0 {
            match made(start) {
                Some(made) if made <= wanted => return Some(made),
                _ => start -= 1,
            }
            if polls.at(start) < since {
                break;
            }
        }
        let born = nanos(since.since(self.start)) / class.interval_ns;
        let first = (born as i64 - 1).max(0);
        (first..number).find_map(made)
    }

    fn reach(&self, nodes: &[Node], node: usize, phase: u32, number: i64) -> Reach {
        let Some(class_number) = self.class_of[node] else {
            return Reach::Silent(Timestamp::ZERO);
        };
        let class = &self.classes[class_number];
        let sent_at = self.polls(class_number, phase).at(number);
        if class.regular && nodes[node].never_silent() {
            let one_way = Duration::from_nanos(class.one_way_ns);
            let answered_at = sent_at + one_way;
            return Reach::Answered(Timing {
                sent_at,
                answered_at,
                received_at: answered_at + one_way,
            });
        }
        let delayed = |salt| {
            let jitter = match class.jitter_ns {
                0 => 0,
                mean => exponential(mean, self.chance(number, phase, node, salt)),
            };
            Duration::from_nanos(class.one_way_ns + jitter)
        };
        let reached_at = sent_at + delayed(2);
        if let Some(since) = nodes[node].silent_since(reached_at) {
            return Reach::Silent(since);
        }
        let wait = self.wait(class, &nodes[node], reached_at, || {
            self.chance(number, phase, node, 3)
        });
        let answered_at = reached_at + wait;
        if !wait.is_zero()
            && let Some(since) = nodes[node].silent_since(answered_at)
        {
            return Reach::Silent(since);
        }
        Reach::Answered(Timing {
            sent_at,
            answered_at,
            received_at: answered_at + delayed(4),
        })
    }

    /// How long what answers waits for a CPU.
    fn wait(
        &self,
        class: &Class,
        node: &Node,
        at: Timestamp,
        chance: impl Fn() -> f64,
    ) -> Duration {
        let Answer::Process { slice } = class.records.answer else {
            return Duration::ZERO;
        };
        let counters = node.log.as_ref().and_then(|log| log.before(at));
        let Some(counters) = counters else {
            return Duration::ZERO;
        };
        let cores = f64::from(counters.cores_milli) * 1e-3;
        let ahead = (f64::from(counters.runnable()) + 1.0 - cores).max(0.0) / cores;
        let mean = nanos(slice) as f64 * ahead;
        Duration::from_nanos(exponential(mean as u64, chance()))
    }

    /// A number in [0, 1) that belongs to one read.
    fn chance(&self, number: i64, member: u32, node: usize, salt: u64) -> f64 {
        let read = hash(self.seed ^ hash(number as u64 ^ (salt << 56)));
        let bits = hash(read ^ (u64::from(member) << 32) ^ node as u64);
        (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

/// What a program tells that knows a used share alone, in whole percents: as `load::reported` takes it.
fn reported(rates: &Rates, capacity: f32, over: Duration) -> NodeLoad {
    let used = (100.0 * rates.utilization.clamp(0.0, 1.0)).round() as f32 / 100.0;
    NodeLoad {
        interval: over,
        capacity,
        runnable: expected_runnable(used, capacity),
        utilization: used,
        utilization_ulm: used,
        ..NodeLoad::UNKNOWN
    }
}

fn exponential(mean: u64, chance: f64) -> u64 {
    (-(mean as f64) * (1.0 - chance).ln()) as u64
}

/// Any 64 bits from any others, evenly (the finaliser of SplitMix64).
fn hash(word: u64) -> u64 {
    let mut bits = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
