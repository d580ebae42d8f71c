//! Rows of the standard matrix on one thread: p99 and mean in ms and speed, to compare and to profile.
//!
//! `cargo run --profile fast -p tidegate-sim --example policy_rows [ROW-PART [SEEDS [POLICY,POLICY [FIRST-SEED]]]]`

#![expect(clippy::print_stdout, reason = "printing the table is what it is for")]

use std::time::Instant;

use tidegate_core::policy::{PolicyConfig, PolicyKind};
use tidegate_sim::chooser::{Chooser, OracleBy};
use tidegate_sim::file::ScenarioFile;
use tidegate_sim::matrix::built_in;
use tidegate_sim::world::run;

fn choosers(wanted: &str) -> Vec<Chooser> {
    let policies = PolicyKind::ALL.iter();
    let policies = policies.map(|kind| PolicyConfig::new(*kind).into());
    let oracles = [OracleBy::RunQueue, OracleBy::InFlight, OracleBy::Slowdown].map(Chooser::Oracle);
    let names: Vec<_> = wanted.split(',').collect();
    let all = policies.chain(oracles);
    all.filter(|chooser| wanted.is_empty() || names.contains(&chooser.name()))
        .collect()
}

#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let part = arguments.next().unwrap_or_default();
    let seeds: u64 = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let choosers = choosers(&arguments.next().unwrap_or_default());
    let first: u64 = arguments.next().map_or(Ok(1), |text| text.parse())?;
    for (name, text) in built_in::ALL {
        if !part.split(',').any(|part| name.contains(part)) {
            continue;
        }
        println!("{name}");
        let file = ScenarioFile::parse(text).map_err(|error| format!("{name}: {error:?}"))?;
        for chooser in &choosers {
            let started = Instant::now();
            let (mut p99, mut mean, mut events, mut last) = (0.0, 0.0, 0, String::new());
            for seed in first..first + seeds {
                let report = run(&file.scenario.clone().seed(seed), *chooser)?;
                p99 += report.latencies.quantile(0.99).as_secs_f64() * 1e3;
                mean += report.latencies.mean().as_secs_f64() * 1e3;
                events += report.events;
                last = report.to_string();
            }
            let seconds = started.elapsed().as_secs_f64();
            println!(
                "  {:<22} mean p99 {:7.1} ms   mean {:7.2} ms   {:.2} s a run, {:.2} M events/s; last: {last}",
                chooser.name(),
                p99 / seeds as f64,
                mean / seeds as f64,
                seconds / seeds as f64,
                events as f64 / seconds * 1e-6,
            );
        }
    }
    Ok(())
}
