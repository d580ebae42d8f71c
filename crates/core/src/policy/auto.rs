//! `auto`, the default: least expected slowdown among a few random nodes.
//!
//! ```text
//! delta  = own dispatches since the record - own completions since        both by counters
//! W      = exp(-z), z = age / (2 * Sbar)                                  none, or not fresh: 0
//! nhat   = max(0, W * (n + g * delta) + (1 - W) * (prior_n + h * o))      run queue
//! Rhat   = max(0, W * (R + g * delta) + (1 - W) * (prior_R + h * o))      requests in flight
//!          + (h - 1) * o                                                  and apart from the others
//!          and h * o at least                                             whatever the record says
//! x      = max(1, (nhat + 1) / C)                                         expected slowdown
//! score  = (x + 0.5 * (Rhat + 1) / C) * factor + penalty                  least wins
//! d      = 5 to 16 distinct nodes drawn at random; ties at random
//! ```
//!
//! `factor` is the learned relative cost, less what a node's neighbours relieve it of (`director::neighbours`): a
//! request that goes to a crowd of others' tasks slows hardly any request.
//!
//! W is worked out as 1 / (1 + z + z^2/2 + z^3/6): the same for the young records that count,
//! nowhere more than 0.04 off, and a tenth of the cost.
//!
//! Inputs: per node the newest record's run queue n, requests in flight R and capacity C, own
//! requests in flight o, of which one at rest (a stream, a download, a long poll) counts as 1/16; from the director (`director::learn`) the arrival
//! inflation g, the in-flight inflation h, both priors, the learned
//! factor and the error penalty, d, and the mean service time Sbar. Every rung of the ladder
//! goes through this one formula: what a record lacks takes its prior, and with no record at
//! all it is least_request with a learned factor.
//!
//! Where nodes report their requests in flight with responses, the newest knowledge wins. Once
//! z is above a half, a report that is newer than the record takes its place: R as reported,
//! n = R + prior_n - prior_R, delta = own in flight now - own in flight then, and z by its own
//! age, at most 1 per second: neighbours that slow a node stay longer than a request. With
//! records of 2 s and 64 front-ends p99 goes from 131 to 116 ms, and to 111 with 16 nodes
//! compared.
//!
//! Failure case: records half a second old or older and no reports (p99 up to 50 % above the
//! oracle with 64 front-ends, as for every policy that sees no more); one front-end before a few
//! equal nodes, where least_request is already optimal. Under true overload no policy helps:
//! that is admission's business, and requests in flight alone give a p99 7 to 10 % lower.
//!
//! Where the budget allows to read nodes but seldom, those that were read last are compared first (`load::recent`): half of
//! d of them, and where a request would wait at the best of these, d of all beside them. Own requests in flight are known of all
//! nodes at once, so a small group that is full sends requests elsewhere. With fewer than half of d recent candidates it is as ever.
//!
//! Why own requests count once more in Rhat: fresh records tell all front-ends the same, so
//! all take the same node to be the best. Own requests in flight differ from one to the next,
//! and what one of them says about others' (h - 1; nothing with one front-end) spreads them:
//! p99 -11 % with bimodal demand and 8 front-ends, level elsewhere.
//! Tried and not taken: that term for all of R (unequal speeds +5 %), R at half the weight
//! (heavy antagonists +2 %), up to 12 nodes compared (level), a prior of `rel` learned from how
//! much nodes differ (level), a decay of W learned from how well one record foretells the next
//! (level: records too old for Sbar are past the freshness bound). Of reports: g of 1 (level), R
//! alone without a run queue made of it (+2 %), half a second or five as their worth (level),
//! 16 nodes from the mean worth of single records instead of that of the mean age (+3 %).
//!
//! Why 5 to 8 and not the best of all: front-ends that do not talk would all pick the same
//! node. Up to 16 where records are old: what is known then differs between front-ends. Why the
//! floor of 1 in x: below one task per core none waits, and the requests in flight, which
//! remember IO, decide. Why half of R: a tenth loses 2-3 % with antagonists, all of it slows the
//! escape from nodes with slow IO.
//! Source: the policy study's formula, reproduced in `tidegate-sim`; KLM-2005 for reading
//! run queues from the kernel.

use std::ops::Range;

use super::sample::{DRAWS_MAX, Draw, least_of};
use super::{Choice, Parameters, Policy, Term, View};
use crate::ids::NodeId;
use crate::load::{Compared, LoadReport, Recent, SiteTerms};
use crate::prng::Prng;
use crate::time::Timestamp;

/// What a request at rest counts for: next to nothing, and yet nodes with fewer of them are preferred.
const REST_WEIGHT: f32 = 1.0 / 16.0;
/// Weight of the requests in flight beside the slowdown.
const IN_FLIGHT_WEIGHT: f32 = 0.5;
/// Nodes of a small site: one vector of four.
const COMPARED_SMALL: usize = 4;
/// Nodes that a decision compares where records are fresh: two vectors.
const COMPARED_FRESH: usize = 8;
/// Of the nodes that a decision compares, this part are recent ones where others may follow.
const RECENT_PART: u32 = 2;
/// Tasks beyond a node's CPUs with which a request is taken to wait there.
const WAITING: f32 = 0.5;
/// z beyond which a response may carry something newer than the record.
const OLD: f32 = 0.5;
/// What nodes report of themselves keeps its worth for so long at least, seconds.
const REPORT_SECONDS: f32 = 1.0;

/// See the module. What it knows of nodes is in the load table.
#[derive(Debug)]
pub(super) struct Auto {
    places: RecentPlaces,
}

impl Auto {
    pub(super) fn new(_: &Parameters) -> Self {
        Self {
            places: RecentPlaces::default(),
        }
    }
}

/// Where recent nodes are among the candidates, looked up once for as long as both are the same. Other candidates, as many, may
/// pass for them until the next group is read, in a millisecond: then some that are compared first are not recent.
#[derive(Debug, Default)]
struct RecentPlaces {
    recent: Option<Recent>,
    candidates: usize,
    places: Range<usize>,
}

impl RecentPlaces {
    fn among(&mut self, recent: Recent, candidates: &[NodeId]) -> Range<usize> {
        if self.recent != Some(recent) || self.candidates != candidates.len() {
            self.recent = Some(recent);
            self.candidates = candidates.len();
            self.places = recent.among(candidates);
        }
        self.places.clone()
    }
}

/// The terms of one node at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// What is compared.
    pub score: f32,
    /// x: the expected slowdown.
    pub slowdown: f32,
    /// W: what the record is still worth.
    pub worth: f32,
    /// g * delta: requests that the record has not seen, by own ones.
    pub unseen: f32,
    /// nhat: the expected run queue.
    pub runnable: f32,
    /// Rhat: the expected requests in flight.
    pub in_flight: f32,
}

macro_rules! inputs {
    ($($name:ident)*) => {
        /// What the formula is worked out from: one node's numbers, or those of all drawn nodes,
        /// each in an array of its own. The formula has no branch, so that a compiler works it
        /// out for four nodes at once.
        #[derive(Clone, Copy, Debug)]
        struct Inputs<T> { $($name: T),* }

        impl<const N: usize> Inputs<[f32; N]> {
            /// No node in any lane: infinitely bad.
            fn none() -> Self {
                let none = Self { $($name: [0.0; N]),* };
                Self { penalty: [f32::INFINITY; N], ..none }
            }

            #[inline]
            fn set(&mut self, index: usize, one: &Inputs<f32>) {
                $( self.$name[index] = one.$name; )*
            }

            #[inline]
            fn get(&self, index: usize) -> Inputs<f32> {
                Inputs { $($name: self.$name[index]),* }
            }
        }
    };
}

inputs!(z runnable in_flight unseen own apart prior_runnable prior_in_flight per_core factor penalty);

impl Inputs<f32> {
    /// `decay` is 1 / (2 * Sbar), per second.
    #[inline]
    fn of(compared: &Compared, decay: f32, now: Timestamp) -> Self {
        let Compared {
            load,
            own,
            resting,
            terms,
        } = compared;
        let age = now.nanos_since(load.observed_at) as f32;
        // However slow the requests are, a record past its bound is unknown.
        let fresh = load.is_fresh(now);
        let in_flight = own.in_flight() as i64 as f32 - *resting as f32 * (1.0 - REST_WEIGHT);
        Self {
            z: if fresh {
                age * (1e-9 * decay)
            } else {
                f32::INFINITY
            },
            runnable: load.runnable,
            in_flight: load.in_flight,
            unseen: terms.arrival_inflation * own.unseen_since(load.unseen_from) as f32,
            own: terms.inflight_inflation * in_flight,
            apart: (terms.inflight_inflation - 1.0) * in_flight,
            prior_runnable: terms.prior_runnable,
            prior_in_flight: terms.prior_in_flight,
            per_core: terms.per_core,
            factor: terms.factor,
            penalty: terms.penalty,
        }
    }

    /// The same by what the node reported with a response, where that is newer than its record.
    fn or_report(
        self,
        compared: &Compared,
        report: Option<LoadReport>,
        decay: f32,
        now: Timestamp,
    ) -> Self {
        let Compared {
            load, own, terms, ..
        } = compared;
        let fresh = self.z.is_finite();
        let newer = |report: &LoadReport| !fresh || report.at > load.observed_at;
        let Some(report) = report.filter(newer) else {
            return self;
        };
        let age = now.nanos_since(report.at) as f32 * 1e-9;
        let unseen = own.in_flight() as i64 - i64::from(report.own);
        Self {
            z: age * decay.min(1.0 / REPORT_SECONDS),
            in_flight: report.in_flight,
            // As many more or less than elsewhere run as are in flight.
            runnable: report.in_flight + (terms.prior_runnable - terms.prior_in_flight),
            unseen: terms.arrival_inflation * unseen as f32,
            ..self
        }
    }

    #[inline]
    fn score(&self) -> Score {
        let worth = worth(self.z);
        // prior + W * (measured - prior): the formula's two parts at once.
        let estimate = |measured: f32, prior: f32| {
            let prior = prior + self.own;
            let estimate = prior + worth * (measured + self.unseen - prior);
            // Nothing measured: NaN. A record that lacks a number leaves its prior.
            let estimate = if estimate.is_nan() { prior } else { estimate };
            estimate.max(0.0)
        };
        let runnable = estimate(self.runnable, self.prior_runnable);
        // A record that counts fewer than are in flight from here alone is late, or a lie.
        let in_flight = estimate(self.in_flight, self.prior_in_flight) + self.apart;
        let in_flight = in_flight.max(self.own);
        let slowdown = ((runnable + 1.0) * self.per_core).max(1.0);
        let load = slowdown + (in_flight + 1.0) * (IN_FLIGHT_WEIGHT * self.per_core);
        Score {
            score: load * self.factor + self.penalty,
            slowdown,
            worth,
            unseen: self.unseen,
            runnable,
            in_flight,
        }
    }
}

/// The formula.
pub fn score(compared: &Compared, decay: f32, now: Timestamp) -> Score {
    Inputs::of(compared, decay, now).score()
}

/// What is expected of one node now, by the newest that there is of it.
pub(crate) fn expected(view: &View<'_>, node: NodeId) -> Score {
    let decay = view.table.site_terms(view.site).decay;
    newest(view, node, &view.table.compared(node), decay).score()
}

/// e to the -z, for z of zero or more; see the module.
#[inline]
fn worth(z: f32) -> f32 {
    1.0 / ((1.0 + z) + (z * z) * (0.5 + z * (1.0 / 6.0)))
}

/// What a node is compared by: its record, or what it reported since.
#[inline]
fn newest(view: &View<'_>, node: NodeId, compared: &Compared, decay: f32) -> Inputs<f32> {
    let inputs = Inputs::of(compared, decay, view.now);
    if inputs.z <= OLD {
        return inputs;
    }
    inputs.or_report(compared, view.table.report(node), decay, view.now)
}

/// The same of a node whose reader was just at work.
#[cold]
fn newest_again(view: &View<'_>, node: NodeId, decay: f32) -> Inputs<f32> {
    newest(view, node, &view.table.compared(node), decay)
}

/// The best of the drawn nodes, with room for `N` of them.
#[inline]
fn best_of<const N: usize>(view: &View<'_>, draw: &Draw, decay: f32, prng: &mut Prng) -> Choice {
    let mut inputs = Inputs::<[f32; N]>::none();
    for (index, node) in draw.of(view.candidates).enumerate() {
        let one = match view.table.try_compared(node) {
            Some(compared) => newest(view, node, &compared, decay),
            None => newest_again(view, node, decay),
        };
        inputs.set(index, &one);
    }
    let mut scores = [0.0; N];
    let mut slowdowns = [0.0; N];
    for index in 0..N {
        let score = inputs.get(index).score();
        scores[index] = score.score;
        slowdowns[index] = score.slowdown;
    }
    let index = least_of(&scores, draw.count(), prng);
    Choice {
        node: view.candidates[draw.position(index)],
        compared: draw.count() as u32,
        score: scores[index],
        slowdown: slowdowns[index],
    }
}

/// The age of a record.
fn age_of(observed_at: Timestamp, now: Timestamp) -> Term {
    let age = now.seconds_since(observed_at) * 1e3;
    match observed_at == Timestamp::ZERO {
        true => Term::new("age", f64::NAN, "age of the record, ms: none was read yet"),
        false => Term::new("age", age, "age of the record, ms"),
    }
}

/// What the node reported with a response, and the age of that.
fn reported_terms(report: Option<LoadReport>, now: Timestamp) -> [Term; 2] {
    let in_flight = report.map_or(f32::NAN, |report| report.in_flight);
    let age = report.map_or(f64::NAN, |report| now.seconds_since(report.at) * 1e3);
    [
        Term::new(
            "reported",
            in_flight.into(),
            "requests in flight that the node reported with a response",
        ),
        Term::new("reported age", age, "age of that report, ms"),
    ]
}

/// The best of the drawn nodes.
#[inline]
fn best(view: &View<'_>, draw: &Draw, decay: f32, prng: &mut Prng) -> Choice {
    if draw.count() <= COMPARED_SMALL {
        best_of::<COMPARED_SMALL>(view, draw, decay, prng)
    } else if draw.count() <= COMPARED_FRESH {
        best_of::<COMPARED_FRESH>(view, draw, decay, prng)
    } else {
        best_of::<DRAWS_MAX>(view, draw, decay, prng)
    }
}

/// Whether a request would wait at the node: half a task more is expected there than it has CPUs, or than one.
fn waits(view: &View<'_>, choice: &Choice) -> bool {
    let per_core = view.table.terms(choice.node).per_core;
    choice.slowdown > per_core.max(1.0) + WAITING * per_core
}

/// A choice by recent nodes first; none where too few of the candidates are, or all.
fn among_recent(
    view: &View<'_>,
    places: Range<usize>,
    site: SiteTerms,
    prng: &mut Prng,
) -> Option<Choice> {
    let (all, draws) = (view.candidates.len(), site.draws as usize);
    let some = site.draws.div_ceil(RECENT_PART) as usize;
    if places.len() < some || places.len() >= all {
        return None;
    }
    let draw = Draw::within(places, some, prng);
    let recent = best(view, &draw, site.decay, prng);
    if !waits(view, &recent) {
        return Some(recent);
    }
    let draw = Draw::distinct(all, draws, prng);
    let other = best(view, &draw, site.decay, prng);
    let better = match other.score < recent.score {
        true => other,
        false => recent,
    };
    Some(Choice {
        compared: recent.compared + other.compared,
        ..better
    })
}

impl Policy for Auto {
    fn pick(&mut self, view: &View<'_>, prng: &mut Prng) -> Choice {
        let site = view.table.site_terms(view.site);
        if let Some(recent) = view.table.recent() {
            let places = self.places.among(recent, view.candidates);
            if let Some(choice) = among_recent(view, places, site, prng) {
                return choice;
            }
        }
        let draw = Draw::distinct(view.candidates.len(), site.draws as usize, prng);
        best(view, &draw, site.decay, prng)
    }

    fn on_nodes(&mut self, _nodes: usize, _candidates: &[NodeId]) {
        self.places = RecentPlaces::default();
    }

    fn explain(&self, view: &View<'_>, node: NodeId) -> Vec<Term> {
        let decay = view.table.site_terms(view.site).decay;
        let compared = view.table.compared(node);
        let [reported, reported_age] = reported_terms(view.table.report(node), view.now);
        let score = newest(view, node, &compared, decay).score();
        let Compared {
            load,
            own,
            resting,
            terms,
        } = compared;
        let term = |name, value: f32, what| Term {
            name,
            value: value.into(),
            what,
        };
        vec![
            term("score", score.score, "what is compared; least wins"),
            term("x", score.slowdown, "expected slowdown, at least 1"),
            term("nhat", score.runnable, "expected run queue, tasks"),
            term("Rhat", score.in_flight, "expected requests in flight"),
            term("C", 1.0 / terms.per_core, "capacity, CPUs"),
            term("n", load.runnable, "run queue in the record, tasks"),
            term("R", load.in_flight, "requests in flight in the record"),
            age_of(load.observed_at, view.now),
            reported,
            reported_age,
            term("W", score.worth, "worth of the newer of the two, 0 to 1"),
            term(
                "unseen arrivals",
                score.unseen,
                "requests that the record has not seen, by own ones",
            ),
            term("o", own.in_flight() as f32, "own requests in flight"),
            term(
                "rest",
                resting as f32,
                "of these at rest: each counts as a sixteenth",
            ),
            term(
                "arrival inflation",
                terms.arrival_inflation,
                "what one unseen own dispatch says about all front-ends",
            ),
            term(
                "in-flight inflation",
                terms.inflight_inflation,
                "what one own request in flight says about all front-ends",
            ),
            term(
                "factor",
                terms.factor,
                "learned relative cost, errors included, times the relief",
            ),
            term(
                "relief",
                view.table.relief(node),
                "what a crowd counts for here, beside a node without neighbours",
            ),
            term(
                "penalty",
                terms.penalty,
                "added while most answers are errors",
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SiteId;
    use crate::load::{LoadTable, NodeLoad, NodeTerms, OwnTraffic};
    use crate::policy::Share;

    const NOW: Timestamp = Timestamp::from_millis(1000);
    const DECAY: f32 = 50.0;

    fn load(runnable: f32) -> NodeLoad {
        NodeLoad {
            observed_at: NOW,
            capacity: 4.0,
            runnable,
            ..NodeLoad::UNKNOWN
        }
    }

    fn own(dispatched: u64) -> OwnTraffic {
        OwnTraffic {
            dispatched,
            completed: 0,
        }
    }

    fn compared(load: &NodeLoad, own: OwnTraffic, terms: &NodeTerms) -> Compared {
        Compared {
            load: load.brief(),
            own,
            resting: 0,
            terms: *terms,
        }
    }

    fn check(load: &NodeLoad, own: OwnTraffic, terms: &NodeTerms) -> Score {
        score(&compared(load, own, terms), DECAY, NOW)
    }

    #[test]
    fn requests_at_rest_count_for_next_to_nothing_where_there_is_no_record() {
        let terms = NodeTerms::default();
        let rests = |resting| {
            let compared = Compared {
                resting,
                ..compared(&NodeLoad::UNKNOWN, own(40), &terms)
            };
            score(&compared, DECAY, NOW)
        };
        let (streams, three) = (rests(40), check(&NodeLoad::UNKNOWN, own(3), &terms));
        assert!(streams.score < three.score, "{streams:?} {three:?}");
        assert!(streams.score > check(&NodeLoad::UNKNOWN, own(2), &terms).score);
        assert!(rests(20).score > three.score);
    }

    #[test]
    fn below_one_task_a_core_nobody_waits() {
        let terms = NodeTerms {
            per_core: 0.25,
            ..NodeTerms::default()
        };
        assert_eq!(check(&load(0.0), own(0), &terms).slowdown, 1.0);
        assert_eq!(check(&load(3.0), own(0), &terms).slowdown, 1.0);
        assert_eq!(check(&load(7.0), own(0), &terms).slowdown, 2.0);
    }

    #[test]
    fn own_requests_since_the_record_count_until_the_record_has_seen_them() {
        let terms = NodeTerms {
            arrival_inflation: 1.5,
            ..NodeTerms::default()
        };
        assert_eq!(check(&load(4.0), own(2), &terms).runnable, 7.0);
        let seen = NodeLoad {
            unseen_from: own(2),
            ..load(4.0)
        };
        assert_eq!(check(&seen, own(2), &terms).runnable, 4.0);
    }

    #[test]
    fn an_old_record_falls_to_the_prior_and_never_to_idle() {
        let terms = NodeTerms {
            prior_runnable: 6.0,
            ..NodeTerms::default()
        };
        let old = NodeLoad {
            observed_at: Timestamp::ZERO,
            ..load(0.0)
        };
        assert!((check(&old, own(0), &terms).runnable - 6.0).abs() < 1e-3);
        assert!((check(&NodeLoad::UNKNOWN, own(0), &terms).runnable - 6.0).abs() < 1e-3);
    }

    #[test]
    fn own_requests_in_flight_count_whatever_the_record_says() {
        let idle = NodeLoad {
            in_flight: 0.0,
            unseen_from: own(8),
            ..load(0.0)
        };
        let terms = NodeTerms {
            inflight_inflation: 1.5,
            ..NodeTerms::default()
        };
        assert_eq!(check(&idle, own(8), &terms).in_flight, 12.0);
        let honest = NodeLoad {
            in_flight: 20.0,
            ..idle
        };
        assert_eq!(check(&honest, own(8), &terms).in_flight, 24.0);
    }

    #[test]
    fn a_report_newer_than_an_old_record_takes_its_place() {
        let terms = NodeTerms {
            prior_runnable: 7.0,
            prior_in_flight: 6.0,
            ..NodeTerms::default()
        };
        let report = LoadReport {
            at: NOW,
            in_flight: 9.0,
            own: 1,
        };
        let seen = |load: &NodeLoad, report| {
            let compared = compared(load, own(2), &terms);
            let inputs = Inputs::of(&compared, DECAY, NOW);
            inputs.or_report(&compared, report, DECAY, NOW).score()
        };
        let stale = NodeLoad {
            observed_at: Timestamp::from_millis(500),
            ..load(0.0)
        };
        let score = seen(&stale, Some(report));
        assert_eq!((score.in_flight, score.runnable), (10.0, 11.0));
        let older = LoadReport {
            at: Timestamp::from_millis(900),
            ..report
        };
        let score = seen(&load(3.0), Some(older));
        assert_eq!(score, seen(&load(3.0), None));
    }

    #[test]
    fn a_stale_record_is_unknown_however_slow_the_requests_are() {
        let terms = NodeTerms {
            prior_runnable: 6.0,
            ..NodeTerms::default()
        };
        let stale = NodeLoad {
            observed_at: Timestamp::from_millis(500),
            ..load(0.0)
        };
        // Requests of a minute: 500 ms would hardly count.
        let decay = 1.0 / 120.0;
        let score = score(&compared(&stale, own(0), &terms), decay, NOW);
        assert_eq!((score.worth, score.runnable), (0.0, 6.0));
    }

    #[test]
    fn without_records_it_is_least_request() {
        let terms = NodeTerms::default();
        let few = check(&NodeLoad::UNKNOWN, own(1), &terms).score;
        let many = check(&NodeLoad::UNKNOWN, own(5), &terms).score;
        assert!(few < many);
    }

    #[test]
    fn a_records_worth_is_nearly_exponential() {
        let off = |z: f32| (worth(z) - (-z).exp()).abs();
        assert!((0..=25).all(|step| off(step as f32 * 0.01) < 2e-4));
        assert!((0..=2000).all(|step| off(step as f32 * 0.01) < 0.04));
        assert_eq!((worth(0.0), worth(f32::INFINITY)), (1.0, 0.0));
    }

    #[test]
    fn a_sinkhole_is_no_bargain() {
        let failing = NodeTerms {
            factor: 1.0 + 50.0,
            penalty: 1000.0,
            ..NodeTerms::default()
        };
        let idle_but_failing = check(&load(0.0), own(0), &failing).score;
        let busy = check(&load(100.0), own(10), &NodeTerms::default()).score;
        assert!(busy < idle_but_failing);
    }

    /// Nodes that are idle by records of now, with own requests at some: which are picked, and how many a pick compares at most.
    fn picks(recent: Option<Recent>, candidates: &[NodeId], busy: &[u32]) -> (Vec<u32>, u32) {
        let table = LoadTable::new(100, 1);
        for node in (0..100).map(NodeId) {
            table.store(node, &load(0.0));
        }
        for node in busy {
            for _ in 0..4 {
                table.dispatch(NodeId(*node), None);
            }
        }
        table.set_recent(recent);
        let shares = [Share::default(); 100];
        let view = View {
            now: NOW,
            site: SiteId(0),
            candidates,
            shares: &shares,
            table: &table,
        };
        let mut policy = Auto::new(&Parameters::default());
        let mut prng = Prng::new(1);
        let choices: Vec<_> = (0..2000).map(|_| policy.pick(&view, &mut prng)).collect();
        let mut nodes: Vec<_> = choices.iter().map(|choice| choice.node.0).collect();
        nodes.sort_unstable();
        nodes.dedup();
        (
            nodes,
            choices
                .iter()
                .map(|choice| choice.compared)
                .max()
                .unwrap_or(0),
        )
    }

    #[test]
    fn recent_nodes_are_compared_first_and_others_where_a_request_would_wait() {
        let all: Vec<_> = (0..100).map(NodeId).collect();
        let recent = Some(Recent::new(NodeId(40), NodeId(49)));
        let within: Vec<u32> = (40..50).collect();
        assert_eq!(picks(recent, &all, &[]), (within.clone(), 3));
        // A full group sends requests elsewhere.
        let (nodes, compared) = picks(recent, &all, &within);
        assert_eq!(compared, 8);
        assert!(nodes.len() == 90 && within.iter().all(|node| !nodes.contains(node)));
        // What is out, or has no room, is no candidate.
        let out: Vec<_> = (0..100).filter(|node| node % 2 == 0).map(NodeId).collect();
        assert_eq!(picks(recent, &out, &[]).0, [40, 42, 44, 46, 48]);
    }

    #[test]
    fn with_few_recent_candidates_all_are_drawn_from() {
        let all: Vec<_> = (0..100).map(NodeId).collect();
        for recent in [
            None,
            Some(Recent::new(NodeId(40), NodeId(41))),
            Some(Recent::new(NodeId(0), NodeId(99))),
        ] {
            let (nodes, compared) = picks(recent, &all, &[]);
            assert_eq!((nodes.len(), compared), (100, 5), "{recent:?}");
        }
    }
}
