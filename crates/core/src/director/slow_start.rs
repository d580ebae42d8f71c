//! Slow start: a node that is new or back gets its share of the requests little by little, as its caches fill.
//!
//! ```text
//! T     = slow_start of the site                      zero: off
//!         of a node from another site: the longer of that and warm_up
//! p     = progress, 0 to 1                            dp = dt / T * speed
//! speed = 1 + 6 * (1.5 - cost), 1 to 4                1 without a fresh record, 4 where the others' CPUs are full
//! cost  = the greater of seen / usual of              run queues by records, own requests in flight
//!         seen, usual: decaying sums (2 s) of what the node has, and of f * w * what the steady nodes have per w
//! need  = (1 - 1.5 a) / (1 - a)                       a = the steady nodes' part of sum(w)
//! f     = max(0.1, p, need), 1 at most                the part of its fair share that it may have
//! share = f * w / sum(w)                              w = weight, CPUs, or 1: what the policy goes by
//! ```
//!
//! A picker gives the node no more than `share` of the site's requests (`picker::ramp`), whatever its policy: one
//! that looks for idle nodes would send a cold one all it has. A node that carries what it has at no more cost than
//! the others carry theirs is warm, and is let go up to four times as fast: CPU time shows in its run queue, and
//! time that it waits for IO in requests in flight, which this front-end counts itself. A node without a record may hide what its
//! requests cost, so time alone counts for it.
//!
//! A ramp sends others what one node does not get. So the steady nodes bear half more than their share at most,
//! `need`; where most of a site is new, it ramps little, and where no candidate is steady, not at all: at the
//! start of a site all are new. A picker gives a ramping node what finds no room elsewhere.
//!
//! Failure case: a node that is warm and has no record gives away half of its share for T. One that fills its
//! caches by requests alone, with few of them, is still cold after T.
//! Source: HAProxy `slowstart`, which grows the weight with time; Envoy `slow_start_config`, whose least
//! weight of a tenth this has.

use std::time::Duration;

use crate::load::{LoadTable, Ramp};
use crate::policy::{PolicyConfig, Signal};
use crate::time::Timestamp;
use crate::topology::{NodeId, Topology};

/// How much faster than time a node is let go while the others' CPUs are full.
pub const RAMP_SPEED_MAX: u32 = 4;
/// What a node gets at once, of its fair share.
const FACTOR_MIN: f64 = 0.1;
/// How much faster than time a warm node is let go.
const SPEED_MAX: f64 = RAMP_SPEED_MAX as f64;
/// Cost beyond which a node is not warm, and by how much less speeds it up by one.
const COST_MAX: f64 = 1.5;
const SPEED_PER_COST: f64 = 6.0;
/// What steady nodes may bear of their share.
const BORNE_MAX: f64 = 1.5;
const SUMS_SECONDS: f64 = 2.0;
/// Less than so many task seconds or request seconds say nothing.
const USUAL_MIN: f64 = 0.02;
/// Tasks per CPU beyond which the others' CPUs are full.
const FULL: f64 = 1.0;
const WEIGHT_MIN: f64 = 1e-6;

/// The ramps of one site.
#[derive(Debug, Default)]
pub(super) struct SiteRamps {
    ramps: Vec<NodeRamp>,
    ticked_at: Timestamp,
}

/// How far one node is.
#[derive(Clone, Copy, Debug)]
struct NodeRamp {
    node: NodeId,
    /// T.
    length: Duration,
    progress: f64,
    tasks: Compared,
    requests: Compared,
    /// Whether it was said that it begins.
    began: bool,
}

/// What becomes of a node at a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RampTurn {
    /// It ramps.
    Began(NodeId),
    /// It has its full share from now on.
    Full(NodeId),
}

/// What a node has, and what it would have if it were like the others.
#[derive(Clone, Copy, Debug, Default)]
struct Compared {
    seen: f64,
    usual: f64,
}

/// What a tick looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tick<'a> {
    /// How the site's nodes are picked.
    pub(super) policy: PolicyConfig,
    /// The site's nodes that are ready and up.
    pub(super) nodes: &'a [NodeId],
    pub(super) topology: &'a Topology,
    pub(super) table: &'a LoadTable,
    pub(super) now: Timestamp,
}

/// Sums over the nodes that do not ramp.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Steady {
    weight: f64,
    requests: f64,
    /// Of those with a fresh record.
    known_weight: f64,
    tasks: f64,
    cpus: f64,
}

impl SiteRamps {
    /// A node begins at the least, and takes so long.
    pub(super) fn begin(&mut self, node: NodeId, length: Duration) {
        self.end(node);
        self.ramps.push(NodeRamp {
            node,
            length,
            progress: 0.0,
            tasks: Compared::default(),
            requests: Compared::default(),
            began: false,
        });
    }

    /// How far a node is that ramps, for the next process.
    pub(super) fn progress(&self, node: NodeId) -> Option<f64> {
        let ramp = self.ramps.iter().find(|ramp| ramp.node == node);
        ramp.map(|ramp| ramp.progress)
    }

    /// A node goes on from there.
    pub(super) fn resume(&mut self, node: NodeId, length: Duration, progress: f64) {
        self.begin(node, length);
        if let Some(ramp) = self.ramps.last_mut() {
            (ramp.progress, ramp.began) = (progress, true);
        }
    }

    /// A node ramps no more.
    pub(super) fn end(&mut self, node: NodeId) {
        self.ramps.retain(|ramp| ramp.node != node);
    }

    /// Whether a node ramps.
    pub(super) fn has(&self, node: NodeId) -> bool {
        self.ramps.iter().any(|ramp| ramp.node == node)
    }

    /// Whether any does.
    pub(super) fn is_empty(&self) -> bool {
        self.ramps.is_empty()
    }

    /// Time passes while none ramps.
    pub(super) fn pass(&mut self, now: Timestamp) {
        self.ticked_at = now;
    }

    /// Lets time pass, and publishes shares.
    pub(super) fn on_tick(&mut self, tick: &Tick<'_>) -> Vec<RampTurn> {
        let seconds = match self.ticked_at {
            Timestamp::ZERO => 0.0,
            before => tick.now.seconds_since(before).max(0.0),
        };
        self.ticked_at = tick.now;
        // One that is out begins anew when it is back.
        self.ramps.retain(|ramp| tick.nodes.contains(&ramp.node));
        let mut steady = Steady::default();
        for node in tick.nodes.iter().filter(|node| !self.has(**node)) {
            steady.add(tick, *node);
        }
        let weights = tick.nodes.iter().map(|node| tick.weight(*node));
        let all: f64 = weights.sum();
        let need = need(steady.weight / all);
        let mut turns = Vec::new();
        let alone = steady.weight == 0.0;
        for ramp in &mut self.ramps {
            let weight = tick.weight(ramp.node);
            let due = factor(ramp.progress, need) * weight;
            let speed = ramp.speed(tick, &steady, due, seconds);
            let full_after = ramp.length.as_secs_f64().max(f64::MIN_POSITIVE);
            ramp.progress += seconds * speed / full_after;
            let factor = factor(ramp.progress, need);
            if alone {
                ramp.progress = 1.0;
            } else if !std::mem::replace(&mut ramp.began, true) {
                turns.push(RampTurn::Began(ramp.node));
            }
            if ramp.progress >= 1.0 && ramp.began {
                turns.push(RampTurn::Full(ramp.node));
            }
            let ramp_now = Ramp {
                factor: factor as f32,
                share: (factor * weight / all) as f32,
            };
            tick.table.set_ramp(ramp.node, ramp_now);
        }
        self.ramps.retain(|ramp| ramp.progress < 1.0);
        turns
    }
}

/// f: the part of its fair share that a node may have.
fn factor(progress: f64, need: f64) -> f64 {
    progress.max(need).clamp(FACTOR_MIN, 1.0)
}

/// The part below which the steady nodes, which have this part of all weights, would bear too much.
fn need(steady: f64) -> f64 {
    match steady < 1.0 {
        true => ((1.0 - BORNE_MAX * steady) / (1.0 - steady)).max(0.0),
        false => 0.0,
    }
}

/// How much faster than time a node of this cost is let go.
fn speed(cost: f64) -> f64 {
    (1.0 + SPEED_PER_COST * (COST_MAX - cost)).clamp(1.0, SPEED_MAX)
}

impl Tick<'_> {
    /// w: what the policy shares requests by.
    fn weight(&self, node: NodeId) -> f64 {
        let signals = self.policy.kind.signals();
        let weight = if signals.contains(&Signal::Weight) {
            f64::from(self.topology.node(node).effective_weight())
        } else if signals.contains(&Signal::Learned) {
            1.0 / f64::from(self.table.terms(node).per_core)
        } else {
            1.0
        };
        // `max` turns NaN into the least.
        weight.clamp(WEIGHT_MIN, 1.0 / WEIGHT_MIN).max(WEIGHT_MIN)
    }
}

impl Steady {
    fn add(&mut self, tick: &Tick<'_>, node: NodeId) {
        let weight = tick.weight(node);
        self.weight += weight;
        self.requests += tick.table.at_work(node) as f64;
        let Some(load) = tick.table.fresh(node, tick.now) else {
            return;
        };
        if let (Some(tasks), Some(cpus)) = (known(load.runnable), known(load.capacity)) {
            self.known_weight += weight;
            self.tasks += tasks;
            self.cpus += cpus;
        }
    }

    /// Whether the CPUs of those with a record are full.
    fn is_full(&self) -> bool {
        self.cpus > 0.0 && self.tasks > FULL * self.cpus
    }
}

impl NodeRamp {
    /// How fast it is let go, where so much weight is what it gets its requests by.
    fn speed(&mut self, tick: &Tick<'_>, steady: &Steady, due: f64, seconds: f64) -> f64 {
        let load = tick.table.fresh(self.node, tick.now);
        let tasks = load.as_ref().and_then(|load| known(load.runnable));
        let requests = tick.table.at_work(self.node) as f64;
        let usual = due * steady.requests / steady.weight.max(WEIGHT_MIN);
        self.requests.add(requests, usual, seconds);
        if let Some(tasks) = tasks.filter(|_| steady.known_weight > 0.0) {
            let usual = due * steady.tasks / steady.known_weight;
            self.tasks.add(tasks, usual, seconds);
        }
        if steady.is_full() {
            return SPEED_MAX;
        }
        let costs = [self.tasks.cost(), self.requests.cost()];
        let cost = costs.into_iter().flatten().reduce(f64::max);
        cost.filter(|_| tasks.is_some()).map_or(1.0, speed)
    }
}

impl Compared {
    fn add(&mut self, seen: f64, usual: f64, seconds: f64) {
        let keep = (-seconds / SUMS_SECONDS).exp();
        self.seen = self.seen * keep + seen * seconds;
        self.usual = self.usual * keep + usual * seconds;
    }

    fn cost(&self) -> Option<f64> {
        (self.usual >= USUAL_MIN).then(|| self.seen / self.usual)
    }
}

/// A number of a record, unless it is none.
fn known(value: f32) -> Option<f64> {
    (value.is_finite() && value >= 0.0).then(|| f64::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::NodeLoad;
    use crate::policy::PolicyKind;
    use crate::testing::cluster;

    const SECOND: u64 = 1000;
    const LENGTH: Duration = Duration::from_secs(10);

    struct World {
        topology: std::sync::Arc<Topology>,
        table: LoadTable,
        ramps: SiteRamps,
        nodes: Vec<NodeId>,
        millis: u64,
    }

    fn world(nodes: u32) -> World {
        let spec = cluster(nodes, PolicyConfig::new(PolicyKind::Random));
        World {
            topology: super::super::Director::new(spec, 1).topology(),
            table: LoadTable::new(nodes as usize, 1),
            ramps: SiteRamps::default(),
            nodes: (0..nodes).map(NodeId).collect(),
            millis: SECOND,
        }
    }

    impl World {
        fn tick(&mut self) -> Vec<RampTurn> {
            self.millis += 10;
            self.ramps.on_tick(&Tick {
                policy: PolicyConfig::new(PolicyKind::Random),
                nodes: &self.nodes,
                topology: &self.topology,
                table: &self.table,
                now: Timestamp::from_millis(self.millis),
            })
        }

        /// Each node has a fresh record with so many tasks.
        fn publish(&self, tasks: impl Fn(NodeId) -> f32) {
            for node in &self.nodes {
                let load = NodeLoad {
                    observed_at: Timestamp::from_millis(self.millis),
                    capacity: 4.0,
                    runnable: tasks(*node),
                    ..NodeLoad::UNKNOWN
                };
                self.table.store(*node, &load);
            }
        }

        fn factor(&self, node: u32) -> f32 {
            self.table.ramp(NodeId(node)).factor
        }

        /// Seconds until node 0 has its full share, with these tasks of it where others have two each.
        fn lasts(&mut self, tasks: impl Fn(f32) -> f32) -> f64 {
            self.ramps.begin(NodeId(0), LENGTH);
            let begin = self.millis;
            loop {
                let own = tasks(self.factor(0).clamp(0.1, 1.0));
                self.publish(|node| if node.0 == 0 { own } else { 2.0 });
                self.tick();
                if self.ramps.is_empty() {
                    return (self.millis - begin) as f64 / 1e3;
                }
            }
        }
    }

    #[test]
    fn without_a_record_time_alone_counts() {
        let mut world = world(10);
        world.tick();
        world.ramps.begin(NodeId(3), LENGTH);
        assert_eq!(world.tick(), [RampTurn::Began(NodeId(3))]);
        assert!((world.factor(3) - 0.1).abs() < 1e-6, "the least at once");
        assert!((world.table.ramp(NodeId(3)).share - 0.01).abs() < 1e-6);
        for _ in 0..499 {
            assert!(world.tick().is_empty());
        }
        assert!((world.factor(3) - 0.5).abs() < 1e-3, "{}", world.factor(3));
        let full = (0..600).find_map(|_| world.tick().first().copied());
        assert_eq!(full, Some(RampTurn::Full(NodeId(3))));
        assert!(world.ramps.is_empty());
    }

    #[test]
    fn a_node_that_is_warm_is_let_go_sooner_than_one_that_is_cold() {
        let warm = world(10).lasts(|factor| 2.0 * factor);
        let cold = world(10).lasts(|factor| 20.0 * factor);
        assert!((2.4..3.5).contains(&warm), "{warm}");
        assert!((9.9..10.1).contains(&cold), "{cold}");
    }

    #[test]
    fn where_the_others_are_full_a_node_is_let_go_sooner() {
        let mut world = world(10);
        world.ramps.begin(NodeId(0), LENGTH);
        let ticks = (0..1000).take_while(|_| {
            world.publish(|_| 8.0);
            world.tick();
            !world.ramps.is_empty()
        });
        let ticks = ticks.count();
        assert!((240..270).contains(&ticks), "{ticks}");
    }

    #[test]
    fn the_steady_nodes_bear_half_more_than_their_share_at_most() {
        assert_eq!(need(1.0), 0.0);
        assert_eq!(need(0.9), 0.0);
        assert!((need(0.5) - 0.5).abs() < 1e-9);
        assert!((need(0.1) - 0.85 / 0.9).abs() < 1e-9);
        assert_eq!(need(0.0), 1.0);
        for steady in [0.1, 0.3, 0.5, 0.7] {
            let others = 1.0 - factor(0.0, need(steady)) * (1.0 - steady);
            assert!(others / steady <= BORNE_MAX + 1e-9, "{steady}");
        }
    }

    #[test]
    fn each_node_takes_its_own_time() {
        let mut world = world(10);
        world.ramps.begin(NodeId(1), LENGTH);
        world.ramps.begin(NodeId(2), LENGTH / 5);
        for _ in 0..101 {
            world.tick();
        }
        assert!((world.factor(1) - 0.1).abs() < 2e-3, "{}", world.factor(1));
        assert!((world.factor(2) - 0.5).abs() < 1e-2, "{}", world.factor(2));
    }

    #[test]
    fn where_all_are_new_none_ramps() {
        let mut world = world(4);
        for node in 0..4 {
            world.ramps.begin(NodeId(node), LENGTH);
        }
        assert_eq!(world.tick(), [], "nor is it said of any");
        assert!(world.ramps.is_empty());
        // One of two has half of its share at once.
        let mut two = self::world(2);
        two.ramps.begin(NodeId(1), LENGTH);
        two.tick();
        assert!((two.factor(1) - 0.5).abs() < 1e-6);
    }

    #[test]
    fn one_that_is_out_again_ramps_no_more() {
        let mut world = world(3);
        world.ramps.begin(NodeId(1), LENGTH);
        world.nodes.remove(1);
        assert!(world.tick().is_empty());
        assert!(!world.ramps.has(NodeId(1)));
    }
}
