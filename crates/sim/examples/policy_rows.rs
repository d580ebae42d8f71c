//! Rows of the policy study, replayed over the core: p99 in ms for every policy.
//!
//! `cargo run --profile fast -p tidegate-sim --example policy_rows [ROW-PART [SEEDS]]`

#![expect(clippy::print_stdout, reason = "printing the table is what it is for")]

use std::time::{Duration, Instant};

use tidegate_core::policy::{PolicyConfig, PolicyKind};
use tidegate_sim::chooser::{Chooser, OracleBy};
use tidegate_sim::model::{Antagonist, Demand};
use tidegate_sim::scenario::Scenario;
use tidegate_sim::world::run;

const LN2: Demand = Demand::LogNormal { cv: 2.0 };

fn rows() -> Vec<(&'static str, Scenario)> {
    let ant = |scenario: Scenario| scenario.demand(LN2).antagonists(Antagonist::new(4, 0.25));
    let at = |ms| Duration::from_millis(ms);
    vec![
        (
            "dist det m64 .9",
            Scenario::new(20, 64, 0.9).demand(Demand::Fixed),
        ),
        ("dist exp m64 .9", Scenario::new(20, 64, 0.9)),
        ("dist ln2 m8 .9", Scenario::new(20, 8, 0.9).demand(LN2)),
        (
            "dist bimodal m8 .9",
            Scenario::new(20, 8, 0.9).demand(Demand::Bimodal {
                share: 0.005,
                ratio: 100.0,
            }),
        ),
        ("fe m1 n20 .9 ln2 ant", ant(Scenario::new(20, 1, 0.9))),
        ("fe m8 n20 .9 ln2 ant", ant(Scenario::new(20, 8, 0.9))),
        ("load 0.9 n20 m64 ln2 ant", ant(Scenario::new(20, 64, 0.9))),
        (
            "speed m8 .9 exp",
            Scenario::new(20, 8, 0.9).speeds(0.5, 1.6),
        ),
        (
            "short1ms n20 m64 .9",
            Scenario::new(20, 64, 0.9).mean_demand(at(1)),
        ),
        ("size n100 m8 .9 exp", Scenario::new(100, 8, 0.9)),
        (
            "age 50ms m8 .85 ln2 ant",
            ant(Scenario::new(20, 8, 0.85)).record_interval(at(50)),
        ),
        (
            "missing 30% m8 .85 ant",
            ant(Scenario::new(20, 8, 0.85)).missing(0.3),
        ),
        (
            "missing all m8 .85 ant",
            ant(Scenario::new(20, 8, 0.85)).missing(1.0),
        ),
    ]
}

fn choosers() -> Vec<Chooser> {
    let policies = PolicyKind::ALL
        .iter()
        .map(|kind| PolicyConfig::new(*kind).into());
    let oracles = [OracleBy::RunQueue, OracleBy::InFlight].map(Chooser::Oracle);
    policies.chain(oracles).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let wanted = arguments.next().unwrap_or_default();
    let seeds: u64 = arguments.next().map_or(Ok(1), |text| text.parse())?;
    for (name, scenario) in rows() {
        if !name.contains(&wanted) {
            continue;
        }
        println!("{name}");
        for chooser in choosers() {
            let started = Instant::now();
            let mut line = String::new();
            let (mut sum, mut events) = (0.0, 0);
            for seed in 1..=seeds {
                let report = run(&scenario.clone().seed(seed), chooser)?;
                sum += report.latencies.quantile(0.99).as_secs_f64() * 1e3;
                events += report.events;
                line = format!("{line}\n      seed {seed}: {report}");
            }
            let seconds = started.elapsed().as_secs_f64();
            println!(
                "  {:<22} mean p99 {:7.1} ms   ({:.2} s a run, {:.2} M events/s){line}",
                chooser.name(),
                sum / seeds as f64,
                seconds / seeds as f64,
                events as f64 / seconds * 1e-6,
            );
        }
    }
    Ok(())
}
