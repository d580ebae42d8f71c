//! What a load is worth that another program reports: used shares alone, as means of a period, against records and none at all.
//!
//! `cargo run --profile fast -p tidegate-sim --example reported_rows [ROW-PART [SEEDS]]`
//!
//! A table of Markdown: p99 in ms, means over the seeds. `auto` reads records each millisecond, then a used share each 500 ms as
//! the mean of those (what our MIB gives, or a device of one's own), then one that is counted anew each 5 s (a stock `snmpd`), then
//! nothing; the other policies go by nothing but their own requests.

#![expect(clippy::print_stdout, reason = "printing the table is what it is for")]

use std::time::Duration;

use tidegate_core::load::Rung;
use tidegate_core::policy::{PolicyConfig, PolicyKind};
use tidegate_sim::file::ScenarioFile;
use tidegate_sim::scenario::{Records, Scenario};
use tidegate_sim::world::run;

/// What the twenty nodes of a row are like.
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
    (
        "neighbours that stay at five",
        "count = 15\ncores = 4.0\n[[nodes]]\ncount = 5\ncores = 4.0\nantagonist = { tasks = 2, duty = 1.0 }",
    ),
];
const FRONT_ENDS: [u32; 3] = [1, 8, 64];
/// Some 40 s.
const REQUESTS: u32 = 270_000;

/// How nodes are read.
fn snmp(published: Duration) -> Option<Records> {
    Some(Records {
        rung: Rung::Snmp,
        interval: Duration::from_millis(500),
        published,
        ..Records::default()
    })
}

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
    let ways = [
        (PolicyKind::Auto, Some(Records::default())),
        (PolicyKind::Auto, snmp(Duration::ZERO)),
        (PolicyKind::Auto, snmp(Duration::from_secs(5))),
        (PolicyKind::Auto, None),
        (PolicyKind::LeastRequest, None),
        (PolicyKind::RoundRobin, None),
    ];
    let mut line = format!("| {name} |");
    for (policy, records) in ways {
        let read = row.clone().nodes(|node| node.records = records);
        let mut p99 = 0.0;
        for seed in 1..=seeds {
            let report = run(&read.clone().seed(seed), PolicyConfig::new(policy))?;
            p99 += report.latencies.quantile(0.99).as_secs_f64() * 1e3;
        }
        line.push_str(&format!(" {:.0} |", p99 / seeds as f64));
    }
    Ok(line)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let part = arguments.next().unwrap_or_default();
    let seeds: u64 = arguments.next().map_or(Ok(3), |text| text.parse())?;
    println!(
        "| | `auto`, 1 ms | `auto`, 500 ms | `auto`, 5 s | `auto`, none | `least_request` | `round_robin` |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (nodes, text) in NODES {
        for front_ends in FRONT_ENDS {
            let plural = if front_ends == 1 { "" } else { "s" };
            let name = format!("{nodes}, {front_ends} front-end{plural}");
            if name.contains(&part) {
                println!("{}", line(&name, &scenario(front_ends, text)?, seeds)?);
            }
        }
    }
    Ok(())
}
