//! `move-faults`: ten thousand moves of nodes, by load and by order, while a front-end is killed, stopped and cut off.
//!
//! ```text
//! three front-ends     words over UDP, which the nodes' network interfaces answer; the home is the first node's region
//! clients              at two of them; the third, on a host of its own, has the faults of `front_end_faults.rs`
//! 1. load              32 clients in a closed loop, all at one of two sites, after 1500 requests at the other
//! 2. orders            each front-end is asked each 40 ms for a move of a random node; light load
//! ```
//!
//! All words are read beside the front-ends each 5 ms (`words_seen.rs`). Every 10 s orders and faults rest: within 10 s all
//! locks must be free, all nodes serve, and all front-ends have each node where its word has it.
//!
//! * **failed**: requests without a right answer, refusals included, of clients of both parts.
//! * **lost**: nodes that do not serve at rest. * **left**: locks that are taken at rest. * **elsewhere**: front-ends at rest that
//!   have a node at another site than its word, or say that something is wrong.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_core::prng::Prng;
use tidegate_core::time::Timestamp;
use tidegate_remote::clock;

use crate::cluster::{AgentPlan, Cluster, Place};
use crate::front::{self, FrontEnd, FrontKind, TidegateArm};

use super::super::judge::{at_least, at_most, rounds};
use super::super::measured::Measured;
use super::super::report::{ExperimentFindings, Sketch};
use super::super::{Experiment, ExperimentError, Lab, Scale, arms, drive};
use super::burst_clients::{AskedFile, BurstPlan, BurstResult, BurstRun};
use super::front_end_faults::{AdminAt, Victim};
use super::move_latency::region;
use super::orders::{BOUNDS, SITES, light_load, site_targets};
use super::shared_words::SharedWords;
use super::words_seen::WordsSeen;
use super::{
    CLUSTER, Changed, ChangesExperiment, Figures, ROUNDS, SET_UP, WARM_UP, load_figures, moving,
};

/// See the module.
pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "move-faults",
    about: "ten thousand moves of nodes while one of three front-ends is killed, stopped and cut off: lost requests, double moves, lost nodes, locks that stay",
    source: "design goals",
    needs: "namespaces (root)",
    estimate,
    run: |lab| CHANGES.carry_out(lab),
    plan: None,
};

const CHANGES: ChangesExperiment = ChangesExperiment {
    experiment: &EXPERIMENT,
    agents: AGENTS,
    arms: all,
    run: one,
    findings,
};

const AGENTS: &[AgentPlan] = &[arms::klm_agent()];
const ARM: &str = "region, kernel";
const FRONT_ENDS: u32 = 3;
/// Between two looks at all words, and two at rest.
const LOOK: Duration = Duration::from_millis(5);
const REST_LOOK: Duration = Duration::from_millis(20);
/// Between two orders at a front-end.
const EVERY: Duration = Duration::from_millis(40);
/// Of orders, until all rests.
const BATCH: Duration = Duration::from_secs(10);
/// Longest time until all is at rest.
const REST_MAX: Duration = Duration::from_secs(10);
/// Of a rest, about: what is planned with.
const REST: Duration = Duration::from_millis(500);
const CLIENTS: usize = 32;
const BURST: u64 = 1500;
/// Requests per second of all nodes of a burst's site, about: what is planned with.
const BURST_RATE: f64 = 1000.0;
const LIMIT: Duration = Duration::from_secs(300);
/// Of orders and faults.
const SEED: u64 = 1;

fn bursts(scale: Scale) -> u64 {
    scale.pick(4, 60)
}

/// Of orders.
fn length(scale: Scale) -> Duration {
    scale.pick(Duration::from_secs(10), Duration::from_secs(300))
}

/// Moves that all rounds have together.
fn moves(scale: Scale) -> f64 {
    scale.pick(200.0, 10_000.0)
}

fn all() -> Vec<Changed> {
    let mut changed = moving(ARM, "", BOUNDS);
    let moving = changed.moving_mut().cloned();
    let arm = TidegateArm::reading(ARM, arms::AUTO, arms::KLM, arms::FRESH);
    changed.arm.kind = FrontKind::Tidegate(TidegateArm {
        moving: moving.map(Box::new),
        ..arm
    });
    vec![changed]
}

fn estimate(scale: Scale) -> Duration {
    let by_load = Duration::from_secs_f64((bursts(scale) * BURST) as f64 / BURST_RATE);
    let rests = length(scale).div_duration_f64(BATCH).ceil() + 1.0;
    let run = SET_UP * FRONT_ENDS + by_load + WARM_UP + length(scale) + REST.mul_f64(rests);
    CLUSTER + run * ROUNDS
}

/// What threads of a run share.
struct Run<'a> {
    cluster: &'a Cluster,
    /// Those without faults.
    steady: &'a [FrontEnd],
    /// Of the other one.
    admin: &'a AdminAt,
    seen: &'a Mutex<WordsSeen>,
    /// Names of nodes and sites by number.
    nodes: Vec<String>,
    sites: Vec<&'static str>,
}

/// What was asked of a front-end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Asked {
    orders: u64,
    /// Those that it did not carry out, by what it said.
    refused: BTreeMap<String, u64>,
}

/// What was found at rest.
#[derive(Clone, Debug, Default)]
struct AtRest {
    longest: Duration,
    left: u64,
    lost: u64,
    elsewhere: u64,
    /// What was wrong.
    said: Vec<String>,
}

/// What goes on beside ends with it, however it ends.
struct EndsWith<'a>(&'a AtomicBool);

impl Drop for EndsWith<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One run: load, then orders.
fn one(lab: &Lab, cluster: &Cluster, changed: &Changed) -> Result<Figures, ExperimentError> {
    let mut changed = changed.clone();
    let home = region(cluster, arms::KLM)?;
    if let Some(moving) = changed.moving_mut() {
        moving.keys = format!("engine = \"region\"\nhome = \"{home}\"\nmoves_max = 1000\n");
    }
    let (kind, sites) = (&changed.arm.kind, site_targets());
    let start = |_| front::start_one_of(cluster.front(), kind, &sites, cluster, FRONT_ENDS);
    let steady: Vec<_> = (1..FRONT_ENDS).map(start).collect::<Result<_, _>>()?;
    let admin = AdminAt::default();
    let mut victim = Victim::start(cluster, kind, FRONT_ENDS, SEED, &admin)?;
    let mut words = SharedWords::of(cluster, arms::KLM)?;
    let (seen, enough) = (Mutex::new(WordsSeen::new(BOUNDS)), AtomicBool::new(false));
    let run = Run {
        cluster,
        steady: &steady,
        admin: &admin,
        seen: &seen,
        nodes: words.nodes(),
        sites: words.sites().to_vec(),
    };
    let watched = SharedWords::of(cluster, arms::KLM)?;
    let (ends, mut rest) = (EndsWith(&enough), AtRest::default());
    let done = std::thread::scope(|scope| {
        let _ends = ends;
        scope.spawn(|| run.watch(watched, &enough));
        let by_load = run.by_load(lab.scale, &mut victim)?;
        rest.look(&run, &mut words, &victim)?;
        let by_order = run.by_order(lab.scale, &mut victim, |victim| {
            rest.look(&run, &mut words, victim)
        })?;
        Ok::<_, ExperimentError>((by_load, by_order))
    })?;
    let (by_load, (asked, total)) = done;
    let seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(figures(&seen, &rest, &asked, &victim, &by_load, total))
}

impl Run<'_> {
    fn addresses(&self) -> Vec<SocketAddr> {
        self.steady.iter().map(|it| it.address).collect()
    }

    /// Looks at the words until it is enough.
    fn watch(&self, mut words: SharedWords, enough: &AtomicBool) {
        while !enough.load(Ordering::Relaxed) {
            if let Some(now) = words.assignments() {
                let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.take(&now, self.sites.len());
            }
            clock::sleep_until(clock::now() + LOOK);
        }
    }

    fn last(&self) -> Vec<usize> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.last().iter().map(|it| it.site.index()).collect()
    }

    /// Bursts, with faults.
    fn by_load(
        &self,
        scale: Scale,
        victim: &mut Victim<'_>,
    ) -> Result<BurstResult, ExperimentError> {
        let plan = BurstPlan {
            sites: SITES.into(),
            files: Arc::new([AskedFile::of(1024)]),
            burst: BURST,
            requests: BURST * bursts(scale),
            clients: CLIENTS,
            limit: LIMIT,
        };
        let bursts = BurstRun::new(plan, self.addresses());
        let clients = self.cluster.clients();
        let (result, suffered) = std::thread::scope(|scope| {
            let all = scope.spawn(|| clients.inside(|| bursts.run()));
            let suffered = victim.suffer(self.admin, || all.is_finished());
            let result = all.join();
            let result = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (result, suffered)
        });
        suffered?;
        Ok(result?)
    }

    /// Orders, with faults; `rest` looks at what is left each time that all rests.
    fn by_order(
        &self,
        scale: Scale,
        victim: &mut Victim<'_>,
        mut rest: impl FnMut(&Victim<'_>) -> Result<(), ExperimentError>,
    ) -> Result<(Asked, crate::load::StreamResult), ExperimentError> {
        let load = |per_request| {
            let plan = light_load(self.addresses(), length(scale), per_request);
            drive::run_load(self.cluster, &plan)
        };
        let loads = [load(false)?, load(true)?];
        clock::sleep_until(clock::now() + WARM_UP);
        let (end, mut asked, mut seed) = (clock::now() + length(scale), Asked::default(), SEED);
        while clock::now() < end {
            let until = end.min(clock::now() + BATCH);
            seed += u64::from(FRONT_ENDS);
            asked.add(self.batch(victim, seed, until)?);
            rest(victim)?;
        }
        let mut streams = Vec::new();
        for load in loads {
            streams.extend(load.wait()?.streams);
        }
        let all = crate::load::LoadResult {
            streams,
            ..crate::load::LoadResult::default()
        };
        Ok((asked, all.total()))
    }

    fn batch(
        &self,
        victim: &mut Victim<'_>,
        seed: u64,
        until: Timestamp,
    ) -> Result<Asked, ExperimentError> {
        let place = victim.host.place().clone();
        std::thread::scope(|scope| {
            let steady = self.steady.iter().zip(seed..).map(|(front, seed)| {
                scope.spawn(move || self.ask(self.cluster.front(), || front.admin, seed, until))
            });
            let mut askers: Vec<_> = steady.collect();
            let seed = seed + self.steady.len() as u64;
            askers.push(scope.spawn(move || self.ask(&place, || self.admin.get(), seed, until)));
            let suffered = victim.suffer(self.admin, || clock::now() >= until);
            let mut all = Asked::default();
            for asker in askers {
                let asked = asker.join();
                all.add(asked.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
            }
            suffered.map(|()| all)
        })
    }

    /// Orders random moves of a front-end, which may be dead, until the time is over.
    fn ask(
        &self,
        place: &Place,
        admin: impl Fn() -> Option<SocketAddr>,
        seed: u64,
        until: Timestamp,
    ) -> Result<Asked, ExperimentError> {
        let (mut prng, mut asked, mut due) = (Prng::new(seed), Asked::default(), clock::now());
        while due < until {
            clock::sleep_until(due);
            let begun = clock::now();
            due = begun + EVERY;
            let at = self.last();
            let Some(admin) = admin().filter(|_| !at.is_empty()) else {
                continue;
            };
            let node = prng.below(at.len());
            // There are two.
            let site = self.sites[1 - at[node].min(1)];
            let done = front::move_node(place, admin, &self.nodes[node], site)?;
            asked.note(done);
            due = due.max(clock::now());
        }
        Ok(asked)
    }
}

impl Asked {
    fn note(&mut self, done: Result<(), String>) {
        self.orders += 1;
        if let Err(why) = done {
            // Numbers of nodes and ports would make each of them another one.
            let why = why.replace(|it: char| it.is_ascii_digit(), "#");
            *self.refused.entry(why).or_default() += 1;
        }
    }

    fn add(&mut self, other: Self) {
        self.orders += other.orders;
        for (why, count) in other.refused {
            *self.refused.entry(why).or_default() += count;
        }
    }
}

impl AtRest {
    /// Waits until all is at rest, and counts what does not come to it.
    fn look(
        &mut self,
        run: &Run<'_>,
        words: &mut SharedWords,
        victim: &Victim<'_>,
    ) -> Result<(), ExperimentError> {
        let begun = clock::now();
        loop {
            let [left, lost, elsewhere] = state(run, words, victim)?;
            let waited = clock::now().since(begun);
            let is_at_rest = left + lost + elsewhere == 0;
            if is_at_rest || waited > REST_MAX {
                self.longest = self.longest.max(waited);
                self.left += left;
                self.lost += lost;
                self.elsewhere += elsewhere;
                if !is_at_rest {
                    self.said.push(format!(
                        "{left} locks left, {lost} nodes lost, {elsewhere} front-ends elsewhere: {:?}",
                        words.assignments()
                    ));
                }
                return Ok(());
            }
            clock::sleep_until(clock::now() + REST_LOOK);
        }
    }
}

/// Locks that are taken, nodes that do not serve, front-ends that have nodes elsewhere.
fn state(
    run: &Run<'_>,
    words: &mut SharedWords,
    victim: &Victim<'_>,
) -> Result<[u64; 3], ExperimentError> {
    let left = words.taken_locks().unwrap_or(run.sites.len());
    let assignments = words.assignments().unwrap_or_default();
    let serving = assignments.iter().filter(|it| it.is_serving()).count();
    let expected: BTreeMap<&str, &str> = run
        .nodes
        .iter()
        .zip(&assignments)
        .map(|(node, word)| (node.as_str(), run.sites[word.site.index()]))
        .collect();
    let front = run.cluster.front();
    let steady = run.steady.iter().map(|it| (it, front));
    let other = victim.front.iter().map(|it| (it, victim.host.place()));
    let mut elsewhere = 0;
    for (front, place) in steady.chain(other) {
        let (status, moves) = (
            front.answer(place, "/api/status")?,
            front.answer(place, "/api/moves")?,
        );
        let is_alike = places(&status) == expected && moves["trouble"].is_null();
        elsewhere += u64::from(!is_alike);
    }
    Ok([left as u64, (run.nodes.len() - serving) as u64, elsewhere])
}

/// The site of each node by what `GET /api/status` says.
fn places(status: &Value) -> BTreeMap<&str, &str> {
    let sites = status["sites"].as_array().into_iter().flatten();
    let nodes = sites.flat_map(|site| {
        let name = site["name"].as_str().unwrap_or_default();
        let nodes = site["nodes"].as_array().into_iter().flatten();
        nodes.filter_map(move |node| Some((node["name"].as_str()?, name)))
    });
    nodes.collect()
}

fn figures(
    seen: &WordsSeen,
    rest: &AtRest,
    asked: &Asked,
    victim: &Victim<'_>,
    by_load: &BurstResult,
    total: crate::load::StreamResult,
) -> Figures {
    let mut table = load_figures(&total);
    table.retain(|(name, _)| ["requests", "failed"].contains(name));
    let (faults, refused) = (victim.counts, asked.refused.values().sum::<u64>());
    table.extend([
        ("moves", seen.moves as f64),
        ("moves_by_load", seen.by_load as f64),
        ("looks", seen.looks as f64),
        ("orders", asked.orders as f64),
        ("orders_refused", refused as f64),
        ("killed", faults.killed as f64),
        ("stopped", faults.stopped as f64),
        ("cut_off", faults.cut_off as f64),
        ("burst_requests", (by_load.answered + by_load.failed) as f64),
        ("burst_failed", by_load.failed as f64),
        ("double_moves", seen.double as f64),
        ("generations_back", seen.back as f64),
        ("floors_broken", seen.floors as f64),
        ("ceilings_broken", seen.ceilings as f64),
        ("locks_left", rest.left as f64),
        ("nodes_lost", rest.lost as f64),
        ("elsewhere", rest.elsewhere as f64),
        ("rest_max_ms", rest.longest.as_secs_f64() * 1e3),
    ]);
    let raw = json!({
        "errors": total.errors, "refused": asked.refused, "not_at_rest": rest.said,
    });
    Figures::plain(table, raw)
}

fn findings(measured: &Measured, scale: Scale) -> ExperimentFindings {
    // All rounds together: what happens once is not to be lost in a median.
    let all = |metric| {
        let values = rounds(&measured.table, ARM, metric);
        (!values.is_empty()).then(|| values.iter().sum::<f64>())
    };
    let none = |what: &str, metric| at_most(format!("{what}, all rounds"), all(metric), 0.0);
    let some =
        |what: &str, metric, least| at_least(format!("{what}, all rounds"), all(metric), least);
    let faults = scale.pick(1.0, 50.0);
    ExperimentFindings {
        paper: BTreeMap::new(),
        verdicts: vec![
            some("moves", "moves", moves(scale)),
            some("moves by load", "moves_by_load", scale.pick(4.0, 400.0)),
            some("times killed", "killed", faults),
            some("times stopped", "stopped", faults),
            some("times cut off", "cut_off", faults),
            none("requests lost beside orders", "failed"),
            none("requests lost in bursts", "burst_failed"),
            none("double moves", "double_moves"),
            none("generations that went back", "generations_back"),
            none("looks below a floor", "floors_broken"),
            none("looks above a ceiling", "ceilings_broken"),
            none("locks left at rest", "locks_left"),
            none("nodes lost at rest", "nodes_lost"),
            none("front-ends with nodes elsewhere at rest", "elsewhere"),
        ],
        notes: vec![
            "Clients are at two front-ends; the third one, which has the faults, decides moves like them.".into(),
            "Orders are refused where a site has its least or most, where another front-end was first, and by one that is cut off.".into(),
            format!("Words are looked at each {LOOK:?} and at least; all is looked at when orders and faults have rested each {BATCH:?}."),
        ],
        plots: vec![
            Sketch::bar("Moves in a round", "moves", "moves"),
            Sketch::bar("Longest time to rest", "rest_max_ms", "ms"),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_count_alike_whatever_numbers_they_have() {
        let mut asked = Asked::default();
        asked.note(Ok(()));
        asked.note(Err("shop-n1: another front-end".into()));
        let mut all = asked.clone();
        all.add(asked);
        assert_eq!(all.orders, 4);
        assert_eq!(
            all.refused,
            [("shop-n#: another front-end".to_owned(), 2)].into()
        );
    }

    #[test]
    fn nodes_are_where_a_front_end_says() {
        let status = json!({ "sites": [
            { "name": "shop", "nodes": [{ "name": "a" }, { "name": "b" }] },
            { "name": "blog", "nodes": [] },
        ]});
        let expected = [("a", "shop"), ("b", "shop")];
        assert_eq!(places(&status), expected.into());
    }
}
