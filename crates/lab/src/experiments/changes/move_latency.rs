//! `move-latency`: how soon all front-ends go by a move once one of them has decided it, and how soon a burst is served by a node
//! that has come for it, by where the words of moves are.
//!
//! ```text
//! memory                 one front-end                   region, shared memory   three, home and nodes' words in /dev/shm
//! region, kernel         three, words over UDP, which the nodes' network interfaces answer; load is read so too
//! etcd                   three, home in an etcd of one member beside them, nodes' words in /dev/shm
//! ```
//!
//! 1. **Orders**: `POST /api/moves` each 50 ms, at the front-ends in turn, a random node that may go; light load; load moves nothing.
//! 2. **Bursts**: 32 clients in a closed loop over all front-ends, all at one of two sites, and after 1500 requests at the other;
//!    load moves nodes.
//!
//! * **visible**: from `decided_us` of the front-end that decides to the last `assigned_us` of all front-ends (`/api/moves`): from
//!   then on every request goes by it. * **own**: to that of the one that has decided.
//! * **served**: from a burst's begin to the first answer of a node that has come, by the clients' clock, the same host's. Nodes do
//!   not drain first (`drain = "none"`), so no time of a drain is in it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_core::stats::quantile_of_sorted;
use tidegate_remote::clock;

use crate::cluster::{AgentPlan, Cluster, LoadAt};
use crate::front::{self, FrontEnd, FrontError, FrontKind, TidegateArm};
use crate::results::Axis;

use super::super::judge::{at_least, at_most, median};
use super::super::measured::Measured;
use super::super::report::{ExperimentFindings, Sketch};
use super::super::{Experiment, ExperimentError, Lab, Scale, arms, drive};
use super::burst_clients::{AskedFile, BurstPlan, BurstResult, BurstRun};
use super::etcd::{self, Etcd};
use super::moves_seen::{MovesSeen, SeenMove, ms};
use super::orders::{BOUNDS, EACH, Orders, SITES, light_load, site_targets};
use super::{
    CLUSTER, Changed, ChangesExperiment, Figures, ROUNDS, SET_UP, WARM_UP, load_figures, moving,
    site,
};

/// See the module.
pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "move-latency",
    about: "from the decision to move a node until all front-ends go by it, and from a burst to the first answer of a node that has come, by where the words are",
    source: "Reconfiguration-2004 §3.1 and §4.2; design goals",
    needs: "namespaces (root); etcd for its arm",
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

const AGENTS: &[AgentPlan] = &[arms::beside_agent(), arms::klm_agent()];
const EVERY: Duration = Duration::from_millis(50);
/// Front-ends show moves this late at the most.
const SHOWN: Duration = Duration::from_millis(250);
/// Moves between two readings of the front-ends' lists, which hold 100.
const BATCH: usize = 40;
/// Between two readings of the lists during bursts.
const READ_EVERY: Duration = Duration::from_millis(500);
/// A front-end moves nothing by load in its first second.
const SETTLES: Duration = Duration::from_secs(2);
const CLIENTS: usize = 32;
const BURST: u64 = 1500;
/// Requests per second of all nodes of a burst's site, about: what is planned with.
const BURST_RATE: f64 = 1200.0;
const LIMIT: Duration = Duration::from_secs(120);

/// Where the words are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    /// In the only front-end.
    Memory,
    /// In the first node's region of the agent that is read.
    Region,
    /// In an etcd.
    Etcd,
}

/// An arm: its name, its home, the agent that is read, and what is wanted of `visible`, in ms.
struct Engine {
    name: &'static str,
    home: Home,
    agent: &'static str,
    wanted_ms: f64,
}

const ENGINES: [Engine; 4] = [
    Engine::of("memory", Home::Memory, arms::BESIDE, 5.0),
    Engine::of("region, shared memory", Home::Region, arms::BESIDE, 5.0),
    Engine::of("region, kernel", Home::Region, arms::KLM, 5.0),
    Engine::of("etcd", Home::Etcd, arms::BESIDE, 50.0),
];

impl Engine {
    const fn of(name: &'static str, home: Home, agent: &'static str, wanted_ms: f64) -> Self {
        Self {
            name,
            home,
            agent,
            wanted_ms,
        }
    }

    fn front_ends(&self) -> u32 {
        match self.home {
            Home::Memory => 1,
            Home::Region | Home::Etcd => 3,
        }
    }

    fn arm(&self) -> Changed {
        let mut changed = moving(self.name, "", BOUNDS);
        let moving = changed.moving_mut().cloned();
        let arm = TidegateArm::reading(self.name, arms::AUTO, self.agent, arms::FRESH);
        changed.arm.kind = FrontKind::Tidegate(TidegateArm {
            moving: moving.map(Box::new),
            ..arm
        });
        changed.needs = (self.home == Home::Etcd).then_some(etcd::PROGRAM);
        changed
    }
}

fn orders(scale: Scale) -> usize {
    scale.pick(40, 200)
}

fn bursts(scale: Scale) -> u64 {
    scale.pick(4, 12)
}

fn all() -> Vec<Changed> {
    ENGINES.iter().map(Engine::arm).collect()
}

fn estimate(scale: Scale) -> Duration {
    let orders = WARM_UP + EVERY * orders(scale) as u32 + SHOWN * (orders(scale) / BATCH) as u32;
    let bursts = (bursts(scale) * BURST) as f64 / BURST_RATE;
    let arm = SET_UP * 2 + SETTLES + orders + Duration::from_secs_f64(bursts);
    CLUSTER + arm * ENGINES.len() as u32 * ROUNDS
}

/// Front-ends, and what keeps their words.
struct Scene<'a> {
    cluster: &'a Cluster,
    fronts: Vec<FrontEnd>,
    _etcd: Option<Etcd>,
}

impl<'a> Scene<'a> {
    /// Starts an arm with more lines of `[reconfigure]`.
    fn start(cluster: &'a Cluster, changed: &Changed, more: &str) -> Result<Self, ExperimentError> {
        let engine = ENGINES.iter().find(|it| it.name == changed.arm.name);
        let engine = engine.ok_or_else(|| ExperimentError::Unfit("no such arm".into()))?;
        let etcd = match engine.home {
            Home::Etcd => Some(Etcd::start(cluster)?),
            Home::Memory | Home::Region => None,
        };
        let home = match (&etcd, engine.home) {
            (Some(etcd), _) => format!("engine = \"etcd\"\nhome = \"{}\"\n", etcd.url()),
            (None, Home::Region) => {
                let home = region(cluster, engine.agent)?;
                format!("engine = \"region\"\nhome = \"{home}\"\n")
            }
            (None, Home::Memory | Home::Etcd) => String::new(),
        };
        let mut changed = changed.clone();
        if let Some(moving) = changed.moving_mut() {
            moving.keys = format!("{home}moves_max = 1000\n{more}");
        }
        let sites = site_targets();
        let (place, count) = (cluster.front(), engine.front_ends());
        let fronts = front::start_many(place, &changed.arm.kind, &sites, cluster, count)?;
        Ok(Self {
            cluster,
            fronts,
            _etcd: etcd,
        })
    }

    /// What the first front-end says of itself.
    fn status(&self) -> Result<Value, FrontError> {
        self.fronts[0].answer(self.cluster.front(), "/api/status")
    }

    /// Takes in what all front-ends say of moves.
    fn read(&self, seen: &mut MovesSeen) -> Result<(), FrontError> {
        for (number, front) in self.fronts.iter().enumerate() {
            seen.take(number, &front.answer(self.cluster.front(), "/api/moves")?);
        }
        Ok(())
    }

    /// An error if a front-end has ended.
    fn check(&mut self) -> Result<(), ExperimentError> {
        let ended = self.fronts.iter_mut().find_map(FrontEnd::ended);
        ended.map_or(Ok(()), |why| Err(ExperimentError::Unfit(why)))
    }
}

/// `home` of `[reconfigure]`: the first node's region of this agent.
pub(super) fn region(cluster: &Cluster, agent: &str) -> Result<String, ExperimentError> {
    let first = cluster.nodes().first();
    let mut agents = first.into_iter().flat_map(|node| &node.agents);
    let found = agents.find(|it| it.name == agent);
    let found = found.ok_or_else(|| ExperimentError::Unfit("no agent for a home".into()))?;
    Ok(match &found.load {
        LoadAt::Udp { address, .. } => format!("udp://{address}"),
        LoadAt::Shm { path } => path.display().to_string(),
    })
}

/// One run of an arm: orders, then bursts.
fn one(lab: &Lab, cluster: &Cluster, changed: &Changed) -> Result<Figures, ExperimentError> {
    let (mut table, orders) = ordered(lab, cluster, changed)?;
    let (more, bursts) = burst(lab, cluster, changed)?;
    table.extend(more);
    let raw = json!({ "orders": orders, "bursts": bursts });
    Ok(Figures::plain(table, raw))
}

type Part = (Vec<(&'static str, f64)>, Value);

/// Moves by orders.
fn ordered(lab: &Lab, cluster: &Cluster, changed: &Changed) -> Result<Part, ExperimentError> {
    let place = cluster.front();
    let sites = SITES
        .iter()
        .enumerate()
        .map(|(index, name)| site(name, index * EACH..(index + 1) * EACH, changed, cluster));
    let sites = sites.collect::<Result<Vec<_>, _>>()?;
    let mut orders = Orders::new(&sites);
    let mut scene = Scene::start(cluster, changed, "dry_run = true\n")?;
    // Words in regions are where the arm before has left them.
    orders.see(&scene.status()?);
    let targets = scene.fronts.iter().map(|it| it.address).collect();
    let count = self::orders(lab.scale);
    let length = EVERY * count as u32 + SHOWN * (count / BATCH) as u32;
    let load = drive::run_load(cluster, &light_load(targets, length, false))?;
    let mut due = clock::now() + WARM_UP;
    let (mut seen, mut took, mut refused) = (MovesSeen::default(), Vec::new(), Vec::new());
    for number in 0..count {
        clock::sleep_until(due);
        let begun = clock::now();
        let (node, to) = orders.next();
        let front = &scene.fronts[number % scene.fronts.len()];
        match front.move_node(place, &node, to) {
            Ok(()) => took.push(clock::now().since(begun).as_secs_f64() * 1e3),
            Err(why) => refused.push(why.to_string()),
        }
        due = (due + EVERY).max(begun);
        if (number + 1).is_multiple_of(BATCH) || number + 1 == count {
            due = clock::now() + SHOWN;
            clock::sleep_until(due);
            scene.read(&mut seen)?;
            orders.see(&scene.status()?);
        }
    }
    // Bursts begin with all nodes at home.
    for (node, home) in orders.away() {
        scene.fronts[0].move_node(place, &node, home)?;
    }
    let total = load.wait()?.total();
    scene.check()?;
    let mut table = load_figures(&total);
    table.retain(|(name, _)| *name == "failed");
    let (moves, fronts) = (seen.all().collect::<Vec<_>>(), scene.fronts.len());
    let own = sorted(moves.iter().filter_map(|it| it.own_ms()));
    let visible = sorted(moves.iter().filter_map(|it| it.visible_ms(fronts)));
    table.extend([
        ("orders", count as f64),
        ("refused", refused.len() as f64),
        ("unseen", took.len() as f64 - visible.len() as f64),
    ]);
    add_quantiles(&mut table, ["own_p50_ms", "own_p99_ms", "own_max_ms"], &own);
    let names = ["visible_p50_ms", "visible_p99_ms", "visible_max_ms"];
    add_quantiles(&mut table, names, &visible);
    let raw = json!({
        "own_ms": own, "visible_ms": visible, "answer_ms": sorted(took), "refused": refused,
    });
    Ok((table, raw))
}

/// Moves by load.
fn burst(lab: &Lab, cluster: &Cluster, changed: &Changed) -> Result<Part, ExperimentError> {
    let mut scene = Scene::start(cluster, changed, "")?;
    clock::sleep_until(clock::now() + SETTLES);
    let plan = BurstPlan {
        sites: SITES.into(),
        files: Arc::new([AskedFile::of(1024)]),
        burst: BURST,
        requests: BURST * bursts(lab.scale),
        clients: CLIENTS,
        limit: LIMIT,
    };
    let run = BurstRun::new(plan, scene.fronts.iter().map(|it| it.address).collect());
    let clients = cluster.clients();
    let mut seen = MovesSeen::default();
    let (result, read) = std::thread::scope(|scope| {
        let all = scope.spawn(|| clients.inside(|| run.run()));
        let mut read = Ok(());
        while run.site().is_some() && !all.is_finished() {
            clock::sleep_until(clock::now() + READ_EVERY);
            read = read.and_then(|()| scene.read(&mut seen));
        }
        let result = all.join();
        let result = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (result, read)
    });
    let result = result?;
    read?;
    clock::sleep_until(clock::now() + SHOWN);
    scene.read(&mut seen)?;
    scene.check()?;
    Ok(burst_figures(&result, &seen, scene.fronts.len()))
}

fn burst_figures(result: &BurstResult, seen: &MovesSeen, front_ends: usize) -> Part {
    let moves: Vec<_> = seen.all().filter(|it| it.is_by_load()).collect();
    let visible = sorted(moves.iter().filter_map(|it| it.visible_ms(front_ends)));
    let served = sorted(result.bursts.iter().filter_map(|it| it.to_serving_ms()));
    let decided = sorted(decisions(result, &moves));
    let mut table = vec![
        ("burst_failed", result.failed as f64),
        ("moves_by_load", moves.len() as f64),
    ];
    let names = ["decided_p50_ms", "decided_p99_ms", "decided_max_ms"];
    add_quantiles(&mut table, names, &decided);
    let names = [
        "by_load_visible_p50_ms",
        "by_load_visible_p99_ms",
        "by_load_visible_max_ms",
    ];
    add_quantiles(&mut table, names, &visible);
    let names = ["served_p50_ms", "served_p99_ms", "served_max_ms"];
    add_quantiles(&mut table, names, &served);
    let raw = json!({ "decided_ms": decided, "visible_ms": visible, "served_ms": served });
    (table, raw)
}

/// From each burst's begin to the first decision to bring its site a node, if there was one before the next burst.
fn decisions(result: &BurstResult, moves: &[&SeenMove]) -> Vec<f64> {
    let all = result.bursts.iter().enumerate();
    let first = all.filter_map(|(number, burst)| {
        let (site, begun) = (SITES[number % SITES.len()], burst.begun_us);
        let next = result.bursts.get(number + 1);
        let end = next.map_or(u64::MAX, |it| it.begun_us);
        let to_it = moves.iter().filter(|it| it.to == site);
        let decided = to_it.filter_map(|it| it.decided_us);
        let decided = decided.filter(|it| (begun..end).contains(it)).min()?;
        Some(ms(begun, decided))
    });
    first.collect()
}

fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// Median, 99th percentile and greatest, under these names; none without values.
fn add_quantiles(table: &mut Vec<(&'static str, f64)>, names: [&'static str; 3], sorted: &[f64]) {
    for (name, share) in names.into_iter().zip([0.5, 0.99, 1.0]) {
        if let Some(value) = quantile_of_sorted(sorted, share) {
            table.push((name, value));
        }
    }
}

fn findings(measured: &Measured, scale: Scale) -> ExperimentFindings {
    let table = &measured.table;
    let mut verdicts = Vec::new();
    for Engine {
        name, wanted_ms, ..
    } in &ENGINES
    {
        let own = |metric| median(table, name, metric);
        let goal = |what: &str| format!("{what}, {name}");
        verdicts.extend([
            at_most(
                goal("ms from decision to visible at all front-ends, p99"),
                own("visible_p99_ms"),
                *wanted_ms,
            ),
            at_most(
                goal("ms from a burst to the first answer of a node that has come, p99"),
                own("served_p99_ms"),
                100.0,
            ),
            at_most(goal("requests lost"), own("failed"), 0.0),
            at_most(goal("orders refused"), own("refused"), 0.0),
            at_most(goal("requests of bursts lost"), own("burst_failed"), 0.0),
            at_most(
                goal("moves that a front-end has not seen"),
                own("unseen"),
                0.0,
            ),
            at_least(
                goal("moves by load"),
                own("moves_by_load"),
                bursts(scale) as f64,
            ),
        ]);
    }
    let group = |name: &str, metric: &str| (name.to_owned(), metric.to_owned());
    ExperimentFindings {
        paper: BTreeMap::new(),
        verdicts,
        notes: vec![
            "All processes share two CPUs, the front-ends one of them: what they wait for each other is in these times.".into(),
            "A front-end reads nodes' words with their load, each 1 ms, and looks as soon as one has changed.".into(),
            "Quantiles are of each run's moves, and of its bursts, whose p99 is the greatest but one or the greatest.".into(),
        ],
        plots: vec![
            Sketch::Bars {
                title: "From decision to visible at all front-ends".into(),
                groups: vec![
                    group("by order, p50", "visible_p50_ms"),
                    group("by order, p99", "visible_p99_ms"),
                    group("by load, p50", "by_load_visible_p50_ms"),
                    group("by load, p99", "by_load_visible_p99_ms"),
                ],
                y: Axis::from_zero("ms"),
            },
            Sketch::Bars {
                title: "From a burst's begin".into(),
                groups: vec![
                    group("decided, p50", "decided_p50_ms"),
                    group("served, p50", "served_p50_ms"),
                    group("served, p99", "served_p99_ms"),
                ],
                y: Axis::from_zero("ms"),
            },
        ],
    }
}
