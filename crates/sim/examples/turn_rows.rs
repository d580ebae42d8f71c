//! What it costs to read a thousand nodes seldom, and what it brings to read them in turn and to compare those read last.
//!
//! `cargo run -p tidegate-sim --example turn_rows [ROW-PART [SEEDS]]`
//!
//! A table of Markdown: mean and p99 of the response times in ms, means over the seeds; the age of the chosen node's record in
//! ms, p50 and p99; nodes that a decision compared. 10 000 requests per second come in all, in two rows 86 000.

#![expect(clippy::print_stdout, reason = "printing the table is what it is for")]

use std::time::Duration;

use tidegate_core::policy::{PolicyConfig, PolicyKind};
use tidegate_sim::model::Antagonist;
use tidegate_sim::report::Report;
use tidegate_sim::scenario::{NodeModel, Scenario};
use tidegate_sim::world::run;

const FRONT_ENDS: [u32; 2] = [1, 16];
/// Some 4 s at 10 000 requests per second.
const REQUESTS: u32 = 40_000;
/// 15 % of a CPU read a thousand nodes each 55 ms, 5 % hardly each 100 ms; 50 nodes each 3 ms.
const INTERVALS_MS: [u64; 3] = [1, 55, 100];
const FEW_INTERVALS_MS: [u64; 2] = [1, 3];
/// As often as a director of a thousand nodes ticks where no request waits.
const TICK: Duration = Duration::from_millis(20);

/// What a row is like.
struct Row {
    name: &'static str,
    nodes: u32,
    cores: f64,
    load: f64,
    demand_ms: u64,
    neighbours: Option<Antagonist>,
}

/// Of a thousand nodes.
fn row(
    name: &'static str,
    (cores, load, demand_ms): (f64, f64, u64),
    neighbours: Option<Antagonist>,
) -> Row {
    Row {
        name,
        nodes: 1000,
        cores,
        load,
        demand_ms,
        neighbours,
    }
}

/// Beside neighbours that stay for 50 ms to 5 s.
fn beside(name: &'static str, like: (f64, f64, u64), tasks: u32) -> Row {
    row(name, like, Some(Antagonist::new(tasks, 0.25)))
}

/// The same with neighbours that stay for 20 to 200 ms.
fn briefly(row: Row) -> Row {
    let brief = |neighbours| Antagonist {
        shortest: Duration::from_millis(20),
        longest: Duration::from_millis(200),
        ..neighbours
    };
    Row {
        neighbours: row.neighbours.map(brief),
        ..row
    }
}

fn rows() -> Vec<Row> {
    let few = |row| Row { nodes: 50, ..row };
    let brief = "one CPU, 10 ms, neighbours for 20 to 200 ms";
    let many = "one CPU, 7 ms, load 0.8 and neighbours, 86 000/s";
    let few_alone = "50 nodes of four CPUs, 17 ms, load 0.85";
    let few_beside = "50 nodes of four CPUs, 15 ms, neighbours";
    vec![
        row("one CPU, 10 ms, load 0.1", (1.0, 0.1, 10), None),
        row("one CPU, 85 ms, load 0.85", (1.0, 0.85, 85), None),
        row("four CPUs, 340 ms, load 0.85", (4.0, 0.85, 340), None),
        beside(
            "one CPU, 10 ms, neighbours for seconds",
            (1.0, 0.133, 10),
            2,
        ),
        briefly(beside(brief, (1.0, 0.133, 10), 2)),
        beside("four CPUs, 10 ms, eight neighbours", (4.0, 0.0333, 10), 8),
        beside("one CPU, 60 ms, load 0.8 and neighbours", (1.0, 0.8, 60), 2),
        row("one CPU, 10 ms, load 0.85, 85 000/s", (1.0, 0.85, 10), None),
        beside(many, (1.0, 0.8, 7), 2),
        few(row(few_alone, (4.0, 0.85, 17), None)),
        few(beside(few_beside, (4.0, 1.0, 15), 8)),
    ]
}

fn scenario(row: &Row, front_ends: u32, interval_ms: u64, in_turn: bool) -> Scenario {
    let mut scenario = Scenario::new(row.nodes, front_ends, row.load)
        .requests(REQUESTS)
        .mean_demand(Duration::from_millis(row.demand_ms))
        .nodes(|node| *node = NodeModel::new(row.cores))
        .record_interval(Duration::from_millis(interval_ms));
    if let Some(neighbours) = row.neighbours {
        scenario = scenario.antagonists(neighbours);
    }
    scenario.warm_up = 0.3;
    scenario.front_ends.tick = TICK;
    scenario.front_ends.in_turn = in_turn;
    scenario
}

fn figures(report: &Report) -> [f64; 5] {
    let ms = |it: Duration| it.as_secs_f64() * 1e3;
    [
        ms(report.latencies.mean()),
        ms(report.latencies.quantile(0.99)),
        ms(report.load_ages.quantile(0.5)),
        ms(report.load_ages.quantile(0.99)),
        report.compared,
    ]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let part = arguments.next().unwrap_or_default();
    let seeds: u64 = arguments.next().map_or(Ok(2), |text| text.parse())?;
    println!("| | read each | drawn from | mean | p99 | age p50 | age p99 | compared |");
    println!("|---|---|---|---|---|---|---|---|");
    for row in rows() {
        for front_ends in FRONT_ENDS {
            let plural = if front_ends == 1 { "" } else { "s" };
            let name = format!("{}, {front_ends} front-end{plural}", row.name);
            if !name.contains(&part) {
                continue;
            }
            let intervals: &[u64] = match row.nodes {
                1000 => &INTERVALS_MS,
                _ => &FEW_INTERVALS_MS,
            };
            for interval in intervals {
                for (in_turn, drawn) in [(false, "all"), (true, "recent first")] {
                    if in_turn && *interval == 1 {
                        continue;
                    }
                    let scenario = scenario(&row, front_ends, *interval, in_turn);
                    let mut means = [0.0; 5];
                    for seed in 1..=seeds {
                        let policy = PolicyConfig::new(PolicyKind::Auto);
                        let report = run(&scenario.clone().seed(seed), policy)?;
                        let shares = figures(&report).map(|it| it / seeds as f64);
                        means
                            .iter_mut()
                            .zip(shares)
                            .for_each(|(sum, it)| *sum += it);
                    }
                    let [mean, p99, half, most, compared] = means;
                    println!(
                        "| {name} | {interval} ms | {drawn} | {mean:.2} | {p99:.1} | {half:.2} | {most:.2} | {compared:.1} |"
                    );
                }
            }
        }
    }
    Ok(())
}
