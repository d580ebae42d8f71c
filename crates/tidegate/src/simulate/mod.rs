//! `tidegate simulate`: the policies in modelled clusters, in virtual time.
//!
//! One scenario under every policy, or the standard matrix and which did better in it. The
//! scenarios and what they come to are `tidegate_sim`'s; this module finds files, uses all
//! CPUs, shows how far it is, and writes tables and JSON.

mod args;
mod compare;
mod files;
mod models;
mod pool;
mod single;

use std::num::NonZeroUsize;
use std::thread;

use tidegate_core::policy::{PolicyConfig, PolicyKind};
use tidegate_sim::chooser::{Chooser, OracleBy};
use tidegate_sim::matrix::score::Score;
use tidegate_sim::scenario::Scenario;
use tidegate_sim::world;

use crate::failure::Failure;
use crate::output::Output;
use args::SimulateCommand;

pub(crate) use args::SimulateArgs;

/// The oracles: what bounds every policy is the best of them.
const ORACLES: [OracleBy; 3] = [OracleBy::RunQueue, OracleBy::InFlight, OracleBy::Slowdown];

/// Does what the arguments ask for.
pub(crate) fn run(args: &SimulateArgs, output: Output) -> Result<(), Failure> {
    match (&args.command, &args.scenario) {
        (Some(SimulateCommand::List), _) => files::list(output),
        (Some(SimulateCommand::Compare(args)), _) => compare::run(args, output),
        (None, Some(name)) => single::run(name, args, output),
        (None, None) => Err(Failure::Usage("name a scenario".into())),
    }
}

/// What one chooser came to in one scenario.
#[derive(Clone, Debug)]
struct Ran {
    score: Score,
    events: u64,
}

/// Runs a scenario with its seed and the following ones.
fn run_seeds(scenario: &Scenario, chooser: Chooser, seeds: u32) -> Result<Ran, String> {
    let mut events = 0;
    let mut reports = Vec::new();
    for seed in 0..u64::from(seeds) {
        let scenario = scenario.clone().seed(scenario.seed.wrapping_add(seed));
        let report = world::run(&scenario, chooser);
        let report = report.map_err(|broken| format!("{}: {broken}", chooser.name()))?;
        events += report.events;
        reports.push(report);
    }
    let score = Score::of(&reports);
    Ok(Ran { score, events })
}

/// Every policy that is asked for, and the oracles if all are.
fn choosers(policies: &[PolicyKind]) -> Vec<Chooser> {
    let chooser = |kind: &PolicyKind| Chooser::Policy(PolicyConfig::new(*kind));
    if policies.is_empty() {
        let all = PolicyKind::ALL.iter().map(chooser);
        all.chain(ORACLES.map(Chooser::Oracle)).collect()
    } else {
        policies.iter().map(chooser).collect()
    }
}

/// The best one of the oracles' results.
fn best_oracle(choosers: &[Chooser], ran: &[Ran]) -> Option<Score> {
    let oracles = choosers
        .iter()
        .zip(ran)
        .filter_map(|(chooser, ran)| match chooser {
            Chooser::Oracle(_) => Some(&ran.score),
            Chooser::Policy(_) => None,
        });
    let missed_then_p99 = |one: &&Score, other: &&Score| {
        let missed = one.missed().total_cmp(&other.missed());
        missed.then(one.p99_ms.total_cmp(&other.p99_ms))
    };
    oracles.min_by(missed_then_p99).cloned()
}

fn threads(wanted: Option<NonZeroUsize>) -> usize {
    let all = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    wanted.unwrap_or_else(all).get()
}

/// What a run takes, in no unit: requests, and what front-ends do with each node each tick.
fn cost(scenario: &Scenario) -> f64 {
    let pairs = f64::from(scenario.front_ends.count) * scenario.nodes.len() as f64;
    let ticks = scenario.length().as_secs_f64() / scenario.front_ends.tick.as_secs_f64();
    f64::from(scenario.requests) + COST_OF_PAIR * ticks * pairs
}

/// What a front-end's millisecond costs for each node, where a request costs one.
const COST_OF_PAIR: f64 = 0.02;
