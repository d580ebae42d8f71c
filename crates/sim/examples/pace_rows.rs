//! How old load records may be before it costs: p99 by the time between two reads.
//!
//! `cargo run --profile fast -p tidegate-sim --example pace_rows [ROW-PART [SEEDS]]`
//!
//! A table of Markdown: p99 of `auto` in ms, means over the seeds, over the time between two reads in parts of a request's mean time at
//! the servers (10 ms). `director::pace` reads once in an eighth of it; at 50 ms, its heartbeat, are front-ends with few requests.

#![expect(clippy::print_stdout, reason = "printing the table is what it is for")]

use std::time::Duration;

use tidegate_core::policy::{PolicyConfig, PolicyKind};
use tidegate_sim::file::ScenarioFile;
use tidegate_sim::scenario::{Records, Scenario};
use tidegate_sim::world::run;

/// What the nodes of a row are like.
const NODES: &[(&str, &str)] = &[
    ("equal nodes", "count = 20\ncores = 4.0"),
    (
        "speeds 0.5 to 1.6",
        "count = 20\ncores = 4.0\nspeed = [0.5, 1.6]",
    ),
    (
        "neighbours that come and go",
        "count = 20\ncores = 4.0\nantagonist = { tasks = 4, duty = 0.25 }",
    ),
    ("8 of one core", "count = 8\ncores = 1.0"),
];
const FRONT_ENDS: [u32; 3] = [1, 8, 64];
/// Time between two reads, ms.
const INTERVALS: [f64; 7] = [0.5, 1.0, 1.25, 2.5, 5.0, 10.0, 50.0];
const REQUESTS: u32 = 150_000;

fn scenario(front_ends: u32, nodes: &str) -> Result<Scenario, Box<dyn std::error::Error>> {
    let text = format!(
        "name = \"row\"\ndescription = \"row\"\nsource = \"new\"\nfamily = \"row\"\nhalf = \"report\"\nrequests = {REQUESTS}\n\
         [front_ends]\ncount = {front_ends}\n[[site]]\nload = 0.85\nmean_demand = \"10ms\"\n\
         demand = {{ shape = \"exponential\" }}\n[[nodes]]\n{nodes}\n"
    );
    let file = ScenarioFile::parse(&text).map_err(|error| format!("{error:?}"))?;
    Ok(file.scenario)
}

/// Its line of the table.
fn line(name: &str, row: &Scenario, seeds: u64) -> Result<String, Box<dyn std::error::Error>> {
    let mut line = format!("| {name} |");
    for interval in INTERVALS {
        let records = Records {
            interval: Duration::from_secs_f64(interval * 1e-3),
            ..Records::default()
        };
        let read = row.clone().nodes(|node| node.records = Some(records));
        let mut p99 = 0.0;
        for seed in 1..=seeds {
            let report = run(
                &read.clone().seed(seed),
                PolicyConfig::new(PolicyKind::Auto),
            )?;
            p99 += report.latencies.quantile(0.99).as_secs_f64() * 1e3;
        }
        line.push_str(&format!(" {:.1} |", p99 / seeds as f64));
    }
    Ok(line)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let part = arguments.next().unwrap_or_default();
    let seeds = arguments.next().map_or(Ok(2), |it| it.parse())?;
    println!(
        "| nodes, front-ends | {} |",
        INTERVALS.map(|it| format!("{it} ms")).join(" | ")
    );
    println!("|---|{}", "---|".repeat(INTERVALS.len()));
    for (nodes, text) in NODES {
        for front_ends in FRONT_ENDS {
            let name = format!("{nodes}, {front_ends}");
            if name.contains(&part) {
                println!("{}", line(&name, &scenario(front_ends, text)?, seeds)?);
            }
        }
    }
    Ok(())
}
