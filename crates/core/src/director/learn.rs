//! What `auto` needs to know of a site and its nodes, worked out once a tick for all pickers.
//!
//! ```text
//! C      = CPUs that the node is credited with       what it claims, as far as it is borne out (`credit`)
//! lambda = own arrival rate, EWMA over 100 ms        M = front-ends        N = candidates
//! K      = lambda * (M-1) * (record age + one-way)   unseen arrivals of the others, in all;
//!                                                    the mean age is P/2 + w1, so the window P/2 + 2 w1
//! Ks     = K * C / sum(C)                            the same for node s
//! g      = 1 + (M-1)/M / (1/Ks + 1/M)                arrival inflation: what one own dispatch says about all
//! r      = mean requests in flight per capacity * C  no record counts them: M * sum(own) / sum(C) * C
//! h      = 1 + (M-1)/M / (1/r + 1/M)                 in-flight inflation: what one own request in flight says about all
//! xbar   = sum(n) / sum(C)                           no record: M * sum(own) / sum(C)
//! mu     = mean ln y of the whole site over the last second, at the time of each response
//! rel    = clamp(exp(l), 1/4, 4)                     l = (P * mean(ln y - mu) + Q * (ln b - mean ln b)) / (P + Q + 1/0.04),
//!                                                    P = cnt / var, Q = (M-1)/M / variance(ln b); no b: Q = 0,
//!                                                    0 while |l| < 2.5 / sqrt(P + Q + 1/0.04); without b / sqrt(M) as well
//! ln b  >= median ln b + l0 - 3 / sqrt(P + 1/0.04) - 0.4    whatever it claims; l0 = mean(ln y - mu) * P / (P + 1/0.04)
//! factor = rel * (1 + 50 e^3) * relief               penalty = 1000 while e > 0.3; relief: see `neighbours`
//! prior_n = xbar * C * rel - h * r / M               prior_R = (counted ? r * rel : r) - h * r / M
//!           where load is reported (`load::reported`): n used - h * r / M, by the node's own reports (`reports`)
//! w      = exp(-(mean record age + one-way) / (2 Sbar))          Sbar = mean y over 10 s, and of four of 10 ms, * max(1, N / sum(C))
//! s      = min(1, 2 * (records / N) * w)
//! d      = clamp(round(2 N / (1 + s K)), 5, 8 s + 16 (1 - s))
//! ```
//!
//! y is a response's latency divided by the slowdown that was expected at its dispatch, the request's CPU time. Where nodes
//! have less than a CPU each a request takes longer also when it is alone, and records keep their worth for as much longer. Its
//! sums decay with 10 s. b is the base time that the node's own counters show of all front-ends'
//! requests (`base_time`); with one front-end it is what y has shown already. A node may claim
//! any b: one that makes it cheaper than own responses allow, by three standard deviations and ln 1.5,
//! counts as what they allow (invented completions of a microsecond drew 73 to 79 % of the requests to
//! one of three nodes that was five times slower). e is the share of
//! errors, an EWMA of 0.2 per response that decays with 5 s (0.15: a node that fails at once takes
//! a third more requests of 64 front-ends with it; 0.1 and 1 s: four times those of 0.15). g and h
//! are means of a gamma-Poisson posterior: an own request makes it likelier that others went the
//! same way, by less the fewer of them there can be.
//!
//! d grows as what front-ends know in common grows old: what remains is their own, differs from
//! one to the next, and makes no herd (records of 2 s and reports in responses, 64 front-ends:
//! p99 -5 % with up to 16 nodes compared instead of 5).
//!
//! Sums and means are over the candidates: a drained or ejected node, which has next to
//! nothing to do, would make an unknown candidate look idle. What a node does not know, or
//! claims against reason (no capacity, NaN), takes no part. A node that joins the site, or comes
//! back to it, starts with what happens from then on, and one that hardly gets requests
//! teaches little (`share`).
//!
//! The prior of `rel` (0.04: nodes usually differ by a fifth) is worth var/0.04 responses, about
//! 25 to 40; logarithms, because service times with a heavy tail drown arithmetic means.
//! Each response is compared with the site's mean of its own time. The slowdown is a model, and
//! what it leaves over changes with the load; against one mean of all times, a node that was
//! asked while the site was idle would look dear beside one that was asked while it was busy,
//! get nothing more, and keep its bad name (two nodes on one busy host: 0 and 100 %).
//!
//! A difference that may be chance is none: below one task per core nothing but `rel` tells
//! nodes apart, and a few unlucky responses would starve an equal node (0.00 of its fair share
//! at load 0.1 and one front-end, 0.67 or more with this rule). The node that such a chance
//! has cut off is asked again as soon as its samples have decayed. With M front-ends chances
//! average out, and each has fewer samples to prove a true difference, hence sqrt(M); p99 with
//! unequal nodes stayed within 1 %.
//! Failure case: without counters of requests in the records many front-ends learn slowly, each
//! from its own few responses (slow IO on a fifth of 20 nodes, 64 front-ends: p99 134 ms, with
//! them 101).

mod recall;
mod reports;

use super::base_time::{self, BaseTime, Estimate};
use super::credit::{self, Claim, Served};
use super::neighbours::{self, Neighbours};
use super::share::{self, Share, Standing};
use crate::load::{LoadTable, NodeLoad, NodeTerms, Outcomes, OwnTraffic, SiteTerms};
use crate::time::Timestamp;
use crate::topology::{NodeId, Site, SiteId, Topology};

pub use recall::LearnedCosts;
use reports::{NodeReports, Reports};

const RATE_SECONDS: f64 = 0.1;
const SHARE_SECONDS: f64 = 1.0;
const SERVED_SECONDS: f64 = 2.0;
const LEARN_SECONDS: f64 = 10.0;
const LEVEL_SECONDS: f64 = 1.0;
const ERROR_SECONDS: f64 = 5.0;
const ERROR_STEP: f64 = 0.2;
const ERROR_COST: f64 = 50.0;
const ERROR_LIMIT: f64 = 0.3;
const PENALTY: f32 = 1000.0;
/// Variance of ln(rel) to expect before any response.
const REL_PRIOR: f64 = 0.04;
const REL_MAX: f64 = 4.0;
/// Standard deviations that prove a difference, for one front-end.
const REL_PROVEN: f64 = 2.5;
/// By how many standard deviations of what own responses say, and by what logarithm beside, a node may
/// claim to be cheaper: ln 1.5.
const CLAIMED_PROVEN: f64 = 3.0;
const CLAIMED_LN: f64 = 0.4;
const DRAWS_MIN: f64 = 5.0;
const DRAWS_MAX: f64 = 8.0;
/// Most nodes compared where front-ends know different things.
const DRAWS_OWN: f64 = 16.0;
/// Worth of a record before any response, seconds of mean service time.
const SERVICE_SECONDS: f64 = 0.01;
/// What it counts for beside responses: one of a few milliseconds would make all records worthless.
const SERVICE_SAMPLES: f64 = 4.0;
/// Least variance of ln y to reckon with: nothing is that regular.
const VARIANCE_MIN: f64 = 1e-6;
/// Decayed responses below this are none: what they showed is forgotten.
const COUNT_MIN: f64 = 1e-6;
/// Least capacity to reckon with, CPUs: a node of weight zero is small, not infinitely slow.
const CAPACITY_MIN: f64 = 0.01;

/// Memory of one site.
#[derive(Debug, Default)]
pub(super) struct SiteLearner {
    nodes: Vec<NodeLearner>,
    last_tick: Option<Timestamp>,
    arrivals: f64,
    level: Level,
    reports: Reports,
}

/// mu: the mean of the site's ln y over the last second.
#[derive(Debug, Default)]
struct Level {
    count: f64,
    sum_ln: f64,
}

/// Memory of one node: its counters at the last tick and the decayed sums since ever.
#[derive(Clone, Debug)]
struct NodeLearner {
    node: NodeId,
    seen: Outcomes,
    own: OwnTraffic,
    share: Share,
    taught: Responses,
    seconds: f64,
    served: Served,
    /// Its relative cost as of the last tick.
    rel: f64,
    /// Own requests that ended since the last tick.
    ended: u64,
    errors: f64,
    candidate: bool,
    base_time: BaseTime,
    /// ln b by the node's own counters, as of now.
    claimed_base: Option<Estimate>,
    report: Option<NodeReports>,
    neighbours: Neighbours,
}

/// Decayed sums over responses of ln y - mu and of its square.
#[derive(Clone, Debug, Default)]
struct Responses {
    count: f64,
    sum_ln: f64,
    sum_ln_squared: f64,
}

/// A tick's view of one node.
struct Known {
    load: Option<NodeLoad>,
    /// CPUs that it claims, if it claims any.
    claimed: Option<f64>,
    weight: f64,
    /// CPUs that it is credited with.
    capacity: f64,
    own: f64,
    candidate: bool,
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
    /// Own requests per second, of late.
    pub(super) fn arrivals(&self) -> f64 {
        self.arrivals
    }

    pub(super) fn on_tick(
        &mut self,
        id: SiteId,
        topology: &Topology,
        table: &LoadTable,
        front_ends: u32,
        now: Timestamp,
    ) {
        let site = topology.site(id);
        self.on_members(&site.nodes, table);
        let seconds = self.last_tick.map_or(0.0, |last| now.seconds_since(last));
        self.last_tick = Some(now);
        let keep = Keep::of(seconds);
        let mut known = known(site, topology, table, now);
        credited(&mut known, &self.nodes, front_ends);
        let totals = Totals::of(&known, now);
        let mut dispatched = 0;
        for (known, learner) in known.iter().zip(&mut self.nodes) {
            learner.on_candidate(known.candidate);
            dispatched += learner.on_traffic(table.own(learner.node), &keep);
            learner.base_time.on_tick(known.load.as_ref(), &keep);
            learner.claimed_base = learner.base_time.estimate();
            let by_own = f64::from(front_ends) * known.own;
            learner
                .neighbours
                .on_tick(known.load.as_ref(), by_own, seconds);
        }
        let recent = self.nodes.iter().filter(|node| node.candidate);
        let recent: f64 = recent.map(|node| node.share.recent()).sum();
        let fair = recent / totals.capacity.max(f64::MIN_POSITIVE);
        let ended: Vec<_> = self
            .nodes
            .iter()
            .map(|node| table.outcomes(node.node))
            .collect();
        let level = self.level.on_tick(&self.nodes, &ended, &keep);
        for ((learner, outcomes), known) in self.nodes.iter_mut().zip(ended).zip(&known) {
            let standing = match learner.candidate {
                true => learner.share.on_tick(&share::Tick {
                    fair: fair * known.capacity,
                    rel: learner.rel,
                    ended: learner.ended,
                    in_flight: learner.own.dispatched.saturating_sub(learner.own.completed),
                    seconds,
                }),
                false => Standing::Away,
            };
            learner.on_outcomes(outcomes, level, standing, &keep);
        }
        if seconds > 0.0 {
            let rate = dispatched as f64 / seconds;
            self.arrivals = self.arrivals * keep.rate + rate * (1.0 - keep.rate);
        }
        let learned = Learned::of(&self.nodes);
        let candidates = site.candidates.len() as f64;
        let decay = 0.5 / (learned.service * totals.slowdown_alone(candidates));
        let others = f64::from(front_ends) - 1.0;
        let unseen = self.arrivals * others * totals.unseen_window();
        let reliefs = reliefs(&known, &self.nodes, totals.worth(decay));
        self.reports.on_tick(seconds);
        for ((known, learner), relief) in known.iter().zip(&mut self.nodes).zip(reliefs) {
            learner.rel = learned.rel(learner, f64::from(front_ends));
            let expected = totals.expected(known, learner.rel, f64::from(front_ends));
            let runnable = self.reports.believed(&mut learner.report, known, expected);
            let terms = terms(known, &totals, learner, unseen, front_ends, runnable);
            table.set_terms(learner.node, &terms.relieved(relief));
            table.set_relief(learner.node, relief);
        }
        let shared = totals.shared(decay, candidates);
        let most = DRAWS_MAX + (DRAWS_OWN - DRAWS_MAX) * (1.0 - shared);
        let draws = (2.0 * candidates / (1.0 + unseen * shared)).round();
        table.set_site_terms(
            id,
            SiteTerms {
                draws: draws.clamp(DRAWS_MIN, most) as u32,
                decay: decay as f32,
            },
        );
    }

    /// Keeps one learner per node of the site, in the same order.
    fn on_members(&mut self, nodes: &[NodeId], table: &LoadTable) {
        if self.nodes.iter().map(|learner| &learner.node).eq(nodes) {
            return;
        }
        let first = self.last_tick.is_none();
        let members = nodes.iter().map(|node| {
            let kept = self
                .nodes
                .binary_search_by_key(node, |learner| learner.node);
            match kept {
                Ok(kept) => self.nodes[kept].clone(),
                Err(_) if first => {
                    NodeLearner::new(*node, Outcomes::default(), OwnTraffic::default())
                }
                // What it did for another site teaches nothing here.
                Err(_) => NodeLearner::new(*node, table.outcomes(*node), table.own(*node)),
            }
        });
        self.nodes = members.collect();
    }
}

/// The time between two ticks, and what the sums keep over it.
pub(super) struct Keep {
    seconds: f64,
    rate: f64,
    level: f64,
    pub(super) share: f64,
    served: f64,
    pub(super) learned: f64,
    errors: f64,
}

impl Keep {
    pub(super) fn of(seconds: f64) -> Self {
        Self {
            seconds,
            rate: (-seconds / RATE_SECONDS).exp(),
            level: (-seconds / LEVEL_SECONDS).exp(),
            share: (-seconds / SHARE_SECONDS).exp(),
            served: (-seconds / SERVED_SECONDS).exp(),
            learned: (-seconds / LEARN_SECONDS).exp(),
            errors: (-seconds / ERROR_SECONDS).exp(),
        }
    }
}

impl Level {
    /// Takes in what ended since the last tick; the level as of now.
    fn on_tick(&mut self, nodes: &[NodeLearner], ended: &[Outcomes], keep: &Keep) -> f64 {
        self.count *= keep.level;
        self.sum_ln *= keep.level;
        for (node, outcomes) in nodes.iter().zip(ended).filter(|(node, _)| node.candidate) {
            self.count += outcomes.successes.saturating_sub(node.seen.successes) as f64;
            self.sum_ln += grown(outcomes.sum_ln, node.seen.sum_ln);
        }
        if self.count < COUNT_MIN {
            return 0.0;
        }
        self.sum_ln / self.count
    }
}

/// By how much a sum has grown. One that wrapped round after years must not poison the learned.
fn grown(to: f64, from: f64) -> f64 {
    (to - from).max(0.0)
}

impl NodeLearner {
    fn new(node: NodeId, seen: Outcomes, own: OwnTraffic) -> Self {
        Self {
            node,
            seen,
            own,
            share: Share::default(),
            taught: Responses::default(),
            seconds: 0.0,
            served: Served::default(),
            rel: 1.0,
            ended: 0,
            errors: 0.0,
            candidate: true,
            base_time: BaseTime::default(),
            claimed_base: None,
            report: None,
            neighbours: Neighbours::default(),
        }
    }

    /// A node that comes back, by order or because it answered a probe, comes without a past: its
    /// errors are why it was away, and how long its requests took then says nothing of now.
    fn on_candidate(&mut self, candidate: bool) {
        if candidate && !self.candidate {
            *self = Self::new(self.node, self.seen, self.own);
        }
        self.candidate = candidate;
    }

    /// Dispatches since the last tick.
    fn on_traffic(&mut self, own: OwnTraffic, keep: &Keep) -> u64 {
        let dispatched = own.dispatched.saturating_sub(self.own.dispatched);
        self.ended = own.completed.saturating_sub(self.own.completed);
        self.own = own;
        self.share.on_dispatches(dispatched, keep);
        dispatched
    }

    fn on_outcomes(&mut self, outcomes: Outcomes, level: f64, standing: Standing, keep: &Keep) {
        let seen = &self.seen;
        let successes = outcomes.successes.saturating_sub(seen.successes) as f64;
        let failures = outcomes.failures.saturating_sub(seen.failures) as f64;
        self.served.on_tick(successes, keep.seconds, keep.served);
        self.taught.age(keep);
        self.seconds *= keep.learned;
        let ln = grown(outcomes.sum_ln, seen.sum_ln);
        let forgiven = match standing {
            Standing::Compared => Some(0.0),
            Standing::Apart => Some(share::forgiven(ln - successes * level, successes)),
            Standing::Away => None,
            Standing::BeginsAnew => {
                self.taught = Responses::default();
                self.seconds = 0.0;
                None
            }
        };
        if let Some(forgiven) = forgiven {
            let ln_squared = grown(outcomes.sum_ln_squared, seen.sum_ln_squared);
            self.taught.add(successes, ln, ln_squared, level + forgiven);
            self.seconds += grown(outcomes.sum_seconds, seen.sum_seconds);
        }
        self.errors *= keep.errors;
        let responses = successes + failures;
        if responses > 0.0 {
            // As many steps at once as there were responses since the last tick.
            let share = failures / responses;
            self.errors = share + (self.errors - share) * (1.0 - ERROR_STEP).powf(responses);
        }
        self.seen = outcomes;
    }
}

impl Responses {
    fn age(&mut self, keep: &Keep) {
        self.count *= keep.learned;
        self.sum_ln *= keep.learned;
        self.sum_ln_squared *= keep.learned;
    }

    /// Of ln y - `level`, by the sums of ln y and of its square.
    fn add(&mut self, count: f64, ln: f64, ln_squared: f64, level: f64) {
        let squared = ln_squared - 2.0 * level * ln + count * level * level;
        self.count += count;
        self.sum_ln += ln - count * level;
        self.sum_ln_squared += squared.max(0.0);
    }
}

/// What all nodes of a site taught together.
struct Learned {
    mean_ln: f64,
    variance_ln: f64,
    service: f64,
    /// Of ln b: the median that lies are measured by, and the mean of what is believed.
    base_median: f64,
    base_ln: f64,
}

impl Learned {
    fn of(nodes: &[NodeLearner]) -> Self {
        let sum = |part: fn(&NodeLearner) -> f64| nodes.iter().map(part).sum::<f64>();
        let count = sum(|node| node.taught.count);
        let claimed = nodes.iter().filter_map(|node| node.claimed_base);
        let mut learned = Self {
            mean_ln: 0.0,
            variance_ln: 1.0,
            service: SERVICE_SECONDS,
            base_median: base_time::median_ln(claimed),
            base_ln: 0.0,
        };
        if count >= COUNT_MIN {
            let mean_ln = sum(|node| node.taught.sum_ln) / count;
            let variance = sum(|node| node.taught.sum_ln_squared) / count - mean_ln * mean_ln;
            learned.mean_ln = mean_ln;
            learned.variance_ln = variance.max(0.0);
            let seconds = sum(|node| node.seconds) + SERVICE_SAMPLES * SERVICE_SECONDS;
            learned.service = (seconds / (count + SERVICE_SAMPLES)).max(1e-6);
        }
        let believed = nodes.iter().filter_map(|node| learned.believed(node));
        learned.base_ln = base_time::mean_ln(believed);
        learned
    }

    /// What own responses say of a node's cost, as a logarithm, and how sure that is.
    fn own(&self, node: &NodeLearner) -> Estimate {
        let taught = &node.taught;
        if taught.count < COUNT_MIN {
            return Estimate {
                ln: 0.0,
                variance: f64::INFINITY,
            };
        }
        Estimate {
            ln: taught.sum_ln / taught.count - self.mean_ln,
            variance: self.variance_ln.max(VARIANCE_MIN) / taught.count,
        }
    }

    /// ln b, no less than own responses allow.
    fn believed(&self, node: &NodeLearner) -> Option<Estimate> {
        let claimed = node.claimed_base?;
        let own = self.own(node);
        let precision = 1.0 / own.variance + 1.0 / REL_PRIOR;
        let least =
            own.ln / own.variance / precision - CLAIMED_PROVEN / precision.sqrt() - CLAIMED_LN;
        Some(Estimate {
            ln: claimed.ln.max(self.base_median + least),
            ..claimed
        })
    }

    /// The relative cost of a request at this node.
    fn rel(&self, node: &NodeLearner, front_ends: f64) -> f64 {
        if node.taught.count < COUNT_MIN {
            return 1.0;
        }
        let own = self.own(node);
        let base = self.believed(node);
        let others = (front_ends - 1.0) / front_ends;
        let (claimed, sureness) = base.map_or((0.0, 0.0), |base| {
            let sureness = others / base.variance;
            ((base.ln - self.base_ln) * sureness, sureness)
        });
        let precision = 1.0 / own.variance + sureness + 1.0 / REL_PRIOR;
        let ln = (own.ln / own.variance + claimed) / precision;
        let chances = if base.is_some() { 1.0 } else { front_ends };
        if ln * ln * precision * chances < REL_PROVEN * REL_PROVEN {
            return 1.0;
        }
        ln.exp().clamp(1.0 / REL_MAX, REL_MAX)
    }
}

impl Totals {
    fn of(nodes: &[Known], now: Timestamp) -> Self {
        let mut totals = Self::default();
        for node in nodes.iter().filter(|node| node.candidate) {
            totals.capacity += node.capacity;
            totals.own += node.own;
            let Some(load) = &node.load else { continue };
            totals.records += 1.0;
            let one_way = measured(load.one_way).unwrap_or(0.0);
            totals.unseen_seconds += now.seconds_since(load.observed_at) + one_way;
            if let Some(runnable) = measured(load.runnable) {
                totals.runnable += runnable;
                totals.runnable_capacity += node.capacity;
            }
            if let Some(in_flight) = measured(load.in_flight) {
                totals.in_flight += in_flight;
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

    /// How much longer a request takes alone at a mean node than its CPU time: where a node has less than one CPU.
    fn slowdown_alone(&self, candidates: f64) -> f64 {
        match self.capacity > 0.0 {
            true => (candidates / self.capacity).max(1.0),
            false => 1.0,
        }
    }

    /// What their records are worth on average when the next request comes.
    fn worth(&self, decay: f64) -> f64 {
        (-self.unseen_window() * decay).exp()
    }

    /// How much of what the nodes are known by is the same for all front-ends: twice the worth
    /// of their records, for one that is worth half still decides.
    fn shared(&self, decay: f64, candidates: f64) -> f64 {
        let known = (self.records / candidates.max(1.0)).min(1.0);
        (2.0 * known * self.worth(decay)).min(1.0)
    }

    /// Tasks to expect at a node of this cost, as far as the others show it.
    fn expected(&self, known: &Known, rel: f64, front_ends: f64) -> f64 {
        let per_capacity = match self.runnable_capacity > 0.0 {
            true => self.runnable / self.runnable_capacity,
            false => self.own_per_capacity(front_ends),
        };
        per_capacity * known.capacity * rel
    }

    fn own_per_capacity(&self, front_ends: f64) -> f64 {
        if self.capacity > 0.0 {
            front_ends * self.own / self.capacity
        } else {
            0.0
        }
    }
}

/// How much less the crowd of each node counts for its neighbours.
fn reliefs(known: &[Known], learners: &[NodeLearner], worth: f64) -> Vec<f32> {
    let slowdown = |(known, learner): (&Known, &NodeLearner)| {
        let slowdown = learner.neighbours.slowdown(known.capacity);
        slowdown.filter(|_| known.candidate)
    };
    let slowdowns: Vec<_> = known.iter().zip(learners).map(slowdown).collect();
    let least = slowdowns.iter().flatten().copied();
    let least = least.fold(f64::INFINITY, f64::min);
    let relief = |slowdown| neighbours::relief(slowdown, least, worth) as f32;
    slowdowns.into_iter().map(relief).collect()
}

fn terms(
    known: &Known,
    totals: &Totals,
    learner: &NodeLearner,
    unseen: f64,
    front_ends: u32,
    runnable: f64,
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
    let r = in_flight * capacity;
    let inflation = posterior(r);
    let rel = learner.rel;
    let e = learner.errors;
    let others = inflation * r / m;
    NodeTerms {
        factor: (rel * (1.0 + ERROR_COST * e * e * e)) as f32,
        penalty: if e > ERROR_LIMIT { PENALTY } else { 0.0 },
        arrival_inflation: posterior(unseen * capacity / totals.capacity.max(f64::MIN_POSITIVE))
            as f32,
        inflight_inflation: inflation as f32,
        prior_runnable: (runnable - others) as f32,
        prior_in_flight: (if counted { r * rel } else { r } - others) as f32,
        per_core: (1.0 / capacity) as f32,
    }
}

/// A length or time that a record tells, unless it is none.
fn measured(value: f32) -> Option<f64> {
    (value.is_finite() && value >= 0.0).then(|| f64::from(value))
}

/// What is known of the site's nodes, in their order. A claim outlives its record.
fn known(site: &Site, topology: &Topology, table: &LoadTable, now: Timestamp) -> Vec<Known> {
    let known = |node: &NodeId| {
        let last = table.last(*node);
        Known {
            load: last.is_fresh(now).then_some(last),
            claimed: measured(last.capacity).filter(|capacity| *capacity > 0.0),
            weight: weight(topology, *node),
            capacity: 0.0,
            own: table.in_flight(*node) as f64,
            candidate: site.candidates.binary_search(node).is_ok(),
        }
    };
    site.nodes.iter().map(known).collect()
}

/// Credits each node with CPUs. One that claims none has as much per weight as the others.
fn credited(known: &mut [Known], learners: &[NodeLearner], front_ends: u32) {
    let sum = |part: fn(&NodeLearner) -> f64| learners.iter().map(part).sum::<f64>();
    let (count, seconds) = (sum(|node| node.taught.count), sum(|node| node.seconds));
    let claim = |(known, learner): (&Known, &NodeLearner)| {
        let others = count - learner.taught.count;
        let claimed = known.claimed?;
        Some(Claim {
            claimed,
            weight: known.weight,
            young: learner.served.is_young(),
            rate: f64::from(front_ends) * learner.served.rate(),
            service: if others < COUNT_MIN {
                0.0
            } else {
                (seconds - learner.seconds).max(0.0) / others
            },
        })
    };
    let claims: Vec<_> = known.iter().zip(learners).map(claim).collect();
    let usual = credit::per_weight(claims.iter().flatten());
    let (mut capacity, mut weights) = (0.0, 0.0);
    for (known, claim) in known.iter_mut().zip(&claims) {
        if let Some(claim) = claim {
            known.capacity = claim.credit(usual);
            capacity += known.capacity;
            weights += known.weight;
        }
    }
    let per_weight = if weights > 0.0 {
        capacity / weights
    } else {
        1.0
    };
    for known in known {
        if known.claimed.is_none() {
            known.capacity = known.weight * per_weight;
        }
        known.capacity = known.capacity.max(CAPACITY_MIN);
    }
}

/// A weight by configuration and agent, unless it is none.
fn weight(topology: &Topology, node: NodeId) -> f64 {
    measured(topology.node(node).effective_weight()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests;
