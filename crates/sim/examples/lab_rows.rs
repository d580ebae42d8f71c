//! The lab's closed loops under every arm: requests/s, mean and p99 in ms.
//!
//! `cargo run --profile fast -p tidegate-sim --example lab_rows [SEEDS [ARM,ARM]]`

#![expect(clippy::print_stdout, reason = "printing the table is what it is for")]

use tidegate_sim::lab::{Arm, CLIENTS, NODES, loaded_nodes};
use tidegate_sim::world::run;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let seeds: u64 = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let wanted = arguments.next().unwrap_or_default();
    let names: Vec<_> = wanted.split(',').collect();
    for loaded in (0..=NODES).step_by(2) {
        println!("loaded-nodes, {loaded} of {NODES}");
        for arm in Arm::all() {
            if !wanted.is_empty() && !names.contains(&arm.name) {
                continue;
            }
            let (mut mean, mut median, mut p99) = (0.0, 0.0, 0.0);
            for seed in 1..=seeds {
                let report = run(&loaded_nodes(loaded, &arm).seed(seed), arm.policy)?;
                mean += report.latencies.mean().as_secs_f64() / seeds as f64;
                median += report.latencies.quantile(0.5).as_secs_f64() / seeds as f64;
                p99 += report.latencies.quantile(0.99).as_secs_f64() / seeds as f64;
            }
            println!(
                "  {:<14} {:6.1} requests/s, mean {:6.1}, p50 {:6.1}, p99 {:7.1} ms",
                arm.name,
                f64::from(CLIENTS) / mean,
                mean * 1e3,
                median * 1e3,
                p99 * 1e3,
            );
        }
    }
    Ok(())
}
