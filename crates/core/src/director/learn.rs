//! What `auto` needs to know of a site and its nodes, worked out once a tick for all pickers.
//!
//! ```text
//! lambda = own arrival rate, EWMA over 100 ms        M = front-ends        N = candidates
//! K      = lambda * (M-1) * (record age + one-way)   unseen arrivals of the others, in all
//! Ks     = K * C / sum(C)                            the same for node s
//! g      = 1 + (M-1)/M / (1/Ks + 1/M)                what one own dispatch says about all
//! r      = mean requests in flight per capacity * C  no record counts them: M * sum(own) / sum(C) * C
//! h      = 1 + (M-1)/M / (1/r + 1/M)                 what one own request in flight says about all
//! xbar   = sum(n) / sum(C)                           no record: M * sum(own) / sum(C)
//! rel    = clamp(exp(sum(ln y - mu) / (cnt + var/0.04)), 1/4, 4)
//! factor = rel * (1 + 50 e^3)                        penalty = 1000 while e > 0.3
//! prior_n = xbar * C * rel - h * r / M               prior_R = (counted ? r * rel : r) - h * r / M
//! d      = clamp(round(2 N / (1 + K)), 5, 10)        Sbar = mean y over 10 s
//! ```
//!
//! y is a response's latency divided by the slowdown that was expected at its dispatch; its
//! sums decay with 10 s. e is the share of errors, an EWMA of 0.1 per response that decays
//! with 1 s. g and h are means of a gamma-Poisson posterior: an own request makes it likelier
//! that others went the same way, by less the fewer of them there can be.
//!
//! The prior of `rel` (0.04: nodes usually differ by a fifth) is worth var/0.04 samples, about
//! 25 to 40; logarithms, because service times with a heavy tail drown arithmetic means.
//! Failure case: many front-ends learn slowly, each from its own few responses.

use crate::load::{LoadTable, NodeLoad, NodeTerms, Outcomes, SiteTerms};
use crate::time::Timestamp;
use crate::topology::{SiteId, Topology};

const RATE_SECONDS: f64 = 0.1;
const LEARN_SECONDS: f64 = 10.0;
const ERROR_SECONDS: f64 = 1.0;
const ERROR_STEP: f64 = 0.1;
const ERROR_COST: f64 = 50.0;
const ERROR_LIMIT: f64 = 0.3;
const PENALTY: f32 = 1000.0;
/// Variance of ln(rel) to expect before any response.
const REL_PRIOR: f64 = 0.04;
const REL_MAX: f64 = 4.0;
const DRAWS_MIN: f64 = 5.0;
const DRAWS_MAX: f64 = 10.0;
/// Worth of a record before any response, seconds of mean service time.
const SERVICE_SECONDS: f64 = 0.01;

/// Memory of one site.
#[derive(Debug, Default)]
pub(super) struct SiteLearner {
    nodes: Vec<NodeLearner>,
    last_tick: Timestamp,
    dispatched: u64,
    arrivals: f64,
}

/// Memory of one node: its counters at the last tick and the decayed sums since ever.
#[derive(Clone, Debug, Default)]
struct NodeLearner {
    seen: Outcomes,
    count: f64,
    sum_ln: f64,
    sum_ln_squared: f64,
    seconds: f64,
    errors: f64,
}

/// A tick's view of one node.
struct Known {
    load: Option<NodeLoad>,
    capacity: f64,
    own: f64,
}

/// A tick's sums over the site.
#[derive(Default)]
struct Totals {
    capacity: f64,
    own: f64,
    runnable: f64,
    runnable_capacity: f64,
    in_flight: f64,
    in_flight_capacity: f64,
    unseen_seconds: f64,
    records: f64,
}

impl SiteLearner {
    pub(super) fn on_tick(
        &mut self,
        site: SiteId,
        topology: &Topology,
        table: &LoadTable,
        front_ends: u32,
        now: Timestamp,
    ) {
        let nodes = &topology.site(site).nodes;
        let candidates = topology.site(site).candidates.len();
        self.nodes.resize(nodes.len(), NodeLearner::default());
        let seconds = match self.last_tick {
            Timestamp::ZERO => 0.0,
            last => now.seconds_since(last),
        };
        self.last_tick = now;
        for (learner, node) in self.nodes.iter_mut().zip(nodes) {
            learner.on_outcomes(table.outcomes(*node), seconds);
        }
        let per_weight = capacity_per_weight(site, topology, table, now);
        let known: Vec<Known> = nodes
            .iter()
            .map(|node| {
                let load = table.fresh(*node, now);
                let assumed = f64::from(topology.node(*node).weight) * per_weight;
                let capacity = load.map_or(assumed, |load| f64::from(load.capacity));
                Known {
                    load,
                    capacity,
                    own: table.in_flight(*node) as f64,
                }
            })
            .collect();
        let totals = Totals::of(&known, now);
        let dispatched = nodes.iter().map(|node| table.own(*node).dispatched).sum();
        self.on_arrivals(dispatched, seconds);
        let others = f64::from(front_ends) - 1.0;
        let unseen = self.arrivals * others * totals.unseen_window();
        let learned = Learned::of(&self.nodes);
        for ((node, known), learner) in nodes.iter().zip(&known).zip(&self.nodes) {
            let terms = terms(known, &totals, &learned, learner, unseen, front_ends);
            table.set_terms(*node, &terms);
        }
        let draws = (2.0 * candidates as f64 / (1.0 + unseen)).round();
        table.set_site_terms(
            site,
            SiteTerms {
                draws: draws.clamp(DRAWS_MIN, DRAWS_MAX) as u32,
                decay: (0.5 / learned.service) as f32,
            },
        );
    }

    fn on_arrivals(&mut self, dispatched: u64, seconds: f64) {
        let arrived = dispatched.saturating_sub(self.dispatched) as f64;
        self.dispatched = dispatched;
        if seconds > 0.0 {
            let keep = (-seconds / RATE_SECONDS).exp();
            self.arrivals = self.arrivals * keep + arrived / seconds * (1.0 - keep);
        }
    }
}

impl NodeLearner {
    fn on_outcomes(&mut self, outcomes: Outcomes, seconds: f64) {
        let keep = (-seconds / LEARN_SECONDS).exp();
        let successes = outcomes.successes.saturating_sub(self.seen.successes) as f64;
        let failures = outcomes.failures.saturating_sub(self.seen.failures) as f64;
        self.count = self.count * keep + successes;
        self.sum_ln = self.sum_ln * keep + outcomes.sum_ln - self.seen.sum_ln;
        self.sum_ln_squared =
            self.sum_ln_squared * keep + outcomes.sum_ln_squared - self.seen.sum_ln_squared;
        self.seconds = self.seconds * keep + outcomes.sum_seconds - self.seen.sum_seconds;
        self.errors *= (-seconds / ERROR_SECONDS).exp();
        let responses = successes + failures;
        if responses > 0.0 {
            // As many steps at once as there were responses since the last tick.
            let share = failures / responses;
            self.errors = share + (self.errors - share) * (1.0 - ERROR_STEP).powf(responses);
        }
        self.seen = outcomes;
    }
}

/// What all nodes of a site taught together.
struct Learned {
    mean_ln: f64,
    variance_ln: f64,
    service: f64,
}

impl Learned {
    fn of(nodes: &[NodeLearner]) -> Self {
        let sum = |part: fn(&NodeLearner) -> f64| nodes.iter().map(part).sum::<f64>();
        let count = sum(|node| node.count);
        if count < 1.0 {
            return Self {
                mean_ln: 0.0,
                variance_ln: 1.0,
                service: SERVICE_SECONDS,
            };
        }
        let mean_ln = sum(|node| node.sum_ln) / count;
        let variance = sum(|node| node.sum_ln_squared) / count - mean_ln * mean_ln;
        Self {
            mean_ln,
            variance_ln: variance.max(0.0),
            service: (sum(|node| node.seconds) / count).max(1e-6),
        }
    }

    /// The relative cost of a request at this node.
    fn rel(&self, node: &NodeLearner) -> f64 {
        let prior = self.variance_ln / REL_PRIOR;
        if node.count + prior <= 0.0 {
            return 1.0;
        }
        let ln = (node.sum_ln - node.count * self.mean_ln) / (node.count + prior);
        ln.exp().clamp(1.0 / REL_MAX, REL_MAX)
    }
}

impl Totals {
    fn of(nodes: &[Known], now: Timestamp) -> Self {
        let mut totals = Self::default();
        for node in nodes {
            totals.capacity += node.capacity;
            totals.own += node.own;
            let Some(load) = &node.load else { continue };
            totals.records += 1.0;
            totals.unseen_seconds += now.seconds_since(load.observed_at) + f64::from(load.one_way);
            if !load.runnable.is_nan() {
                totals.runnable += f64::from(load.runnable);
                totals.runnable_capacity += node.capacity;
            }
            if !load.in_flight.is_nan() {
                totals.in_flight += f64::from(load.in_flight);
                totals.in_flight_capacity += node.capacity;
            }
        }
        totals
    }

    /// For how long arrivals of other front-ends stay unseen; zero without records, where
    /// nothing of theirs is ever seen and the priors speak.
    fn unseen_window(&self) -> f64 {
        if self.records > 0.0 {
            self.unseen_seconds / self.records
        } else {
            0.0
        }
    }

    fn own_per_capacity(&self, front_ends: f64) -> f64 {
        if self.capacity > 0.0 {
            front_ends * self.own / self.capacity
        } else {
            0.0
        }
    }
}

fn terms(
    known: &Known,
    totals: &Totals,
    learned: &Learned,
    learner: &NodeLearner,
    unseen: f64,
    front_ends: u32,
) -> NodeTerms {
    let m = f64::from(front_ends);
    let capacity = known.capacity;
    // The gamma-Poisson posterior; a mean of zero says nothing about others.
    let posterior = |mean: f64| 1.0 + (m - 1.0) / m / (1.0 / mean + 1.0 / m);
    let blind = totals.own_per_capacity(m);
    let counted = totals.in_flight_capacity > 0.0;
    let in_flight = if counted {
        totals.in_flight / totals.in_flight_capacity
    } else {
        blind
    };
    let runnable = if totals.runnable_capacity > 0.0 {
        totals.runnable / totals.runnable_capacity
    } else {
        blind
    };
    let r = in_flight * capacity;
    let h = posterior(r);
    let rel = learned.rel(learner);
    let e = learner.errors;
    let others = h * r / m;
    NodeTerms {
        factor: (rel * (1.0 + ERROR_COST * e * e * e)) as f32,
        penalty: if e > ERROR_LIMIT { PENALTY } else { 0.0 },
        g: posterior(unseen * capacity / totals.capacity.max(f64::MIN_POSITIVE)) as f32,
        h: h as f32,
        prior_runnable: (runnable * capacity * rel - others) as f32,
        prior_in_flight: (if counted { r * rel } else { r } - others) as f32,
        capacity: capacity as f32,
    }
}

/// The capacity of a node of weight 1 among those whose records tell theirs; 1 if none does.
fn capacity_per_weight(
    site: SiteId,
    topology: &Topology,
    table: &LoadTable,
    now: Timestamp,
) -> f64 {
    let (mut capacity, mut weight) = (0.0, 0.0);
    for node in &topology.site(site).nodes {
        if let Some(load) = table.fresh(*node, now) {
            capacity += f64::from(load.capacity);
            weight += f64::from(topology.node(*node).weight);
        }
    }
    if weight > 0.0 { capacity / weight } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::director::Director;
    use crate::policy::{PolicyConfig, PolicyKind};
    use crate::testing::cluster;
    use crate::topology::NodeId;

    const SITE: SiteId = SiteId(0);

    struct World {
        director: Director,
        table: LoadTable,
        now: Timestamp,
    }

    fn world(front_ends: u32) -> World {
        let mut director = Director::new(cluster(2, PolicyConfig::new(PolicyKind::Auto)), 1);
        director.handle_front_ends(front_ends);
        World {
            director,
            table: LoadTable::new(2, 1),
            now: Timestamp::from_millis(1),
        }
    }

    impl World {
        fn tick(&mut self) -> [NodeTerms; 2] {
            self.now = self.now + Duration::from_millis(1);
            self.director.handle_tick(&self.table, self.now);
            [self.table.terms(NodeId(0)), self.table.terms(NodeId(1))]
        }

        fn load(&self, node: u32, capacity: f32, runnable: f32) {
            let load = NodeLoad {
                observed_at: self.now,
                capacity,
                runnable,
                ..NodeLoad::UNKNOWN
            };
            self.table.store(NodeId(node), &load);
        }
    }

    #[test]
    fn alone_an_own_request_speaks_for_itself_only() {
        let mut world = world(1);
        let [first, _] = world.tick();
        assert_eq!((first.g, first.h), (1.0, 1.0));
    }

    #[test]
    fn among_many_an_own_request_speaks_for_others_but_not_for_more_than_there_can_be() {
        let mut world = world(64);
        for _ in 0..4 {
            world.table.dispatch(NodeId(0));
        }
        let [first, _] = world.tick();
        assert!(first.h > 1.5 && first.h < 64.0, "h = {}", first.h);
    }

    #[test]
    fn a_node_without_a_record_is_taken_for_an_average_one() {
        let mut world = world(1);
        world.load(0, 4.0, 8.0);
        let [_, second] = world.tick();
        assert_eq!(second.capacity, 4.0);
        assert_eq!(second.prior_runnable, 8.0);
    }

    #[test]
    fn the_slower_node_costs_more_after_enough_responses() {
        let mut world = world(1);
        for _ in 0..500 {
            world
                .table
                .succeeded(NodeId(0), Duration::from_millis(10), 1.0);
            world
                .table
                .succeeded(NodeId(1), Duration::from_millis(20), 1.0);
        }
        let [fast, slow] = world.tick();
        assert!(
            slow.factor / fast.factor > 1.8,
            "{} against {}",
            slow.factor,
            fast.factor
        );
    }

    #[test]
    fn a_few_responses_prove_little() {
        let mut world = world(1);
        world
            .table
            .succeeded(NodeId(0), Duration::from_millis(10), 1.0);
        world
            .table
            .succeeded(NodeId(1), Duration::from_millis(20), 1.0);
        let [fast, slow] = world.tick();
        assert!(
            slow.factor / fast.factor < 1.3,
            "{} against {}",
            slow.factor,
            fast.factor
        );
    }

    #[test]
    fn errors_cost_and_are_forgotten() {
        let mut world = world(1);
        for _ in 0..10 {
            world.table.failed(NodeId(0), true);
        }
        let [failing, _] = world.tick();
        assert!(failing.factor > 10.0 && failing.penalty > 0.0);
        for _ in 0..3000 {
            world.tick();
        }
        let [healed, _] = world.tick();
        assert!(healed.factor < 1.01 && healed.penalty == 0.0);
    }

    #[test]
    fn more_unseen_arrivals_mean_fewer_draws() {
        let mut world = world(64);
        world.load(0, 4.0, 1.0);
        world.tick();
        assert_eq!(world.table.site_terms(SITE).draws, 5);
    }
}
