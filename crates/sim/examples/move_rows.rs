//! What moves of nodes bring and cost in the simulator, as tables in Markdown.
//!
//! `cargo run --profile fast -p tidegate-sim --example move_rows [bursts | sweep | high | react | large | schedules]`

#![expect(clippy::print_stdout, reason = "printing the table is what it is for")]

use std::time::{Duration, Instant};

use tidegate_core::moves::evidence::History;
use tidegate_sim::moves::{Arm, Faults, Load, MovesReport, MovesScenario, Rule, run};

type Done = Result<(), Box<dyn std::error::Error>>;

const MS: Duration = Duration::from_millis(1);
const BURSTS: [u64; 6] = [512, 1024, 2048, 4096, 8192, 16_384];
const HIGH: [f64; 4] = [1.2, 1.5, 2.0, 3.0];
/// How long schedules with crashes are tried.
const SCHEDULES: Duration = Duration::from_secs(600);

fn main() -> Done {
    let part = std::env::args().nth(1).unwrap_or_default();
    match part.as_str() {
        "bursts" => bursts(),
        "sweep" => sweep(),
        "high" => high(),
        "react" => react(),
        "large" => large(),
        "schedules" => schedules(),
        _ => Err("bursts, sweep, high, react, large or schedules".into()),
    }
}

fn ours() -> Rule {
    Rule {
        moves_max: 1000,
        ..Rule::DEFAULT
    }
}

/// The bursts of Reconfiguration-2004: nodes of sites, and the most that one gets.
fn of_bursts(nodes: &[usize], most: usize, arm: Arm, requests: u64) -> MovesScenario {
    MovesScenario {
        nodes: nodes.to_vec(),
        cpus: 1,
        demand: MS,
        load: Load::Bursts {
            clients: 64,
            requests,
        },
        arm,
        bounds: (1, most),
        front_ends: 1,
        faults: None,
        length: Duration::from_secs(300),
        seed: 1,
    }
}

const CLUSTERS: [(&str, &[usize], usize); 2] =
    [("3:3:2", &[3, 3, 2], 6), ("2:2:2:2", &[2, 2, 2, 2], 5)];

fn bursts() -> Done {
    let paper = Rule {
        moves_max: 1000,
        ..Rule::paper(100 * MS, 10 * MS)
    };
    let arms = [
        ("rigid", Arm::Rigid),
        ("over-provisioned", Arm::OverProvisioned),
        ("paper", Arm::Moves(paper)),
        ("ours", Arm::Moves(ours())),
    ];
    println!(
        "| sites | burst | {} | ours / rigid | ours / over |",
        arms.map(|it| it.0).join(" | ")
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (name, nodes, most) in CLUSTERS {
        for requests in BURSTS {
            let all = arms.map(|(_, arm)| run(&of_bursts(nodes, most, arm, requests)));
            let [rigid, over, paper, ours] = all;
            let (rigid, over, paper, ours) = (rigid?, over?, paper?, ours?);
            let show = |it: &MovesReport| {
                format!(
                    "{:.0} ({:.1} nodes, {} moves)",
                    it.per_second(),
                    it.mean_burst_nodes(),
                    it.moves.len()
                )
            };
            println!(
                "| {name} | {requests} | {:.0} | {:.0} | {} | {} | {:.2} | {:.2} |",
                rigid.per_second(),
                over.per_second(),
                show(&paper),
                show(&ours),
                ours.per_second() / rigid.per_second(),
                ours.per_second() / over.per_second()
            );
        }
    }
    Ok(())
}

fn sweep() -> Done {
    println!("| T | S | 512 | 2048 | 8192 | 16384 |");
    println!("|---|---|---|---|---|---|");
    let (_, nodes, most) = CLUSTERS[0];
    let times = [10, 20, 50, 100, 300, 1000].map(|ms| ms * MS);
    let histories = times.into_iter().map(History::Fixed).chain([History::Auto]);
    for history in histories {
        for sensitivity in [2, 10, 50].map(|ms| ms * MS) {
            let rule = Rule {
                history,
                sensitivity,
                ..ours()
            };
            let mut cells = Vec::new();
            for requests in [512, 2048, 8192, 16_384] {
                let rigid = run(&of_bursts(nodes, most, Arm::Rigid, requests))?.per_second();
                let own = run(&of_bursts(nodes, most, Arm::Moves(rule), requests))?;
                cells.push(format!(
                    "{:.2} ({})",
                    own.per_second() / rigid,
                    own.moves.len()
                ));
            }
            println!("| {history:?} | {sensitivity:?} | {} |", cells.join(" | "));
        }
    }
    Ok(())
}

/// Open load on two sites of five nodes.
fn open(nodes: &[usize], cpus: u32, steps: Vec<(Duration, Vec<f64>)>, rule: Rule) -> MovesScenario {
    MovesScenario {
        nodes: nodes.to_vec(),
        cpus,
        demand: 20 * MS,
        load: Load::Open(steps),
        arm: Arm::Moves(rule),
        bounds: (1, 1000),
        front_ends: 1,
        faults: None,
        length: Duration::from_secs(24 * 3600),
        seed: 1,
    }
}

/// Moves while nothing changes: two hours for each value of `high`, and a day with each of four seeds for the default.
fn high() -> Done {
    println!("| sites | CPUs of a node | high | seed | hours | 30 % | 60 % | 80 % |");
    println!("|---|---|---|---|---|---|---|---|");
    let default = Rule::DEFAULT.high;
    let rows = HIGH.map(|high| (high, 1, 2)).into_iter();
    for (high, seed, hours) in rows.chain((1..=4).map(|seed| (default, seed, 24))) {
        for (nodes, cpus) in [([3, 3], 1), ([5, 5], 2)] {
            let mut cells = Vec::new();
            for load in [0.3, 0.6, 0.8] {
                let steps = vec![(Duration::ZERO, vec![load; nodes.len()])];
                let rule = Rule {
                    high,
                    ..Rule::DEFAULT
                };
                let scenario = MovesScenario {
                    length: Duration::from_secs(hours * 3600),
                    seed,
                    ..open(&nodes, cpus, steps, rule)
                };
                cells.push(run(&scenario)?.moves.len().to_string());
            }
            println!(
                "| {nodes:?} | {cpus} | {high} | {seed} | {hours} | {} |",
                cells.join(" | ")
            );
        }
    }
    Ok(())
}

/// How long a site waits for its first node, and for all that it gets, when its load grows at once.
fn react() -> Done {
    println!("| CPUs | high | load | none came | first node, median | 99 % | moves |");
    println!("|---|---|---|---|---|---|---|");
    let second = Duration::from_secs(1);
    for cpus in [1, 2, 8] {
        for high in HIGH {
            for crowd in [1.1, 1.35, 2.0] {
                let steps = vec![
                    (Duration::ZERO, vec![0.3, 0.2]),
                    (10 * second, vec![crowd, 0.2]),
                ];
                let rule = Rule {
                    high,
                    ..Rule::DEFAULT
                };
                let (mut times, mut moves, mut none) = (Vec::new(), 0, 0);
                for seed in 0..200 {
                    let scenario = MovesScenario {
                        length: 30 * second,
                        bounds: (2, 8),
                        seed,
                        ..open(&[5, 5], cpus, steps.clone(), rule)
                    };
                    let report = run(&scenario)?;
                    moves += report.moves.len();
                    match report.first_to(0, 10 * second) {
                        Some(after) => times.push(after),
                        None => none += 1,
                    }
                }
                times.sort_unstable();
                let at = |part: usize| {
                    times
                        .get(times.len() * part / 100)
                        .copied()
                        .unwrap_or_default()
                };
                println!(
                    "| {cpus} | {high} | {crowd} | {none} | {:.0} ms | {:.0} ms | {:.1} |",
                    at(50).as_secs_f64() * 1e3,
                    at(99).as_secs_f64() * 1e3,
                    f64::from(u32::try_from(moves)?) / 200.0
                );
            }
        }
    }
    Ok(())
}

/// Many nodes and many sites, a tenth of which get a crowd.
#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn large() -> Done {
    println!(
        "| sites | nodes | first node, median | nodes that hot sites get | moves | looks of all front-ends, us each |"
    );
    println!("|---|---|---|---|---|---|");
    let second = Duration::from_secs(1);
    for (sites, each) in [(4, 5), (10, 10), (50, 4), (50, 20)] {
        let hot = (sites / 10).max(1);
        let crowd = |site| if site < hot { 1.5 } else { 0.2 };
        let steps = vec![
            (Duration::ZERO, vec![0.3; sites]),
            (5 * second, (0..sites).map(crowd).collect()),
        ];
        let scenario = MovesScenario {
            length: 35 * second,
            bounds: (1, 1000),
            front_ends: 3,
            ..open(&vec![each; sites], 2, steps, ours())
        };
        let begun = Instant::now();
        run(&MovesScenario {
            arm: Arm::Rigid,
            ..scenario.clone()
        })?;
        let without = begun.elapsed();
        let begun = Instant::now();
        let report = run(&scenario)?;
        let looks = begun.elapsed().saturating_sub(without).as_secs_f64() / (3.0 * 3500.0);
        let mut firsts: Vec<_> = (0..hot)
            .filter_map(|site| report.first_to(site, 5 * second))
            .collect();
        firsts.sort_unstable();
        let got: usize = report.nodes.iter().take(hot).sum();
        println!(
            "| {sites} | {} | {:?} | {} to {got} ({} of them in need) | {} | {:.0} |",
            sites * each,
            firsts.get(firsts.len() / 2),
            hot * each,
            hot,
            report.moves.len(),
            looks * 1e6
        );
    }
    Ok(())
}

/// As many schedules with crashes and late operations as fit in the time.
#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn schedules() -> Done {
    let begun = Instant::now();
    let (mut count, mut crashes, mut helped, mut moves) = (0_u64, 0, 0, 0_usize);
    let (mut done, mut refused) = (0, 0);
    while begun.elapsed() < SCHEDULES {
        let scenario = MovesScenario {
            nodes: vec![2, 2, 2, 2],
            demand: 5 * MS,
            load: Load::Bursts {
                clients: 16,
                requests: 60,
            },
            arm: Arm::Moves(Rule {
                history: History::Fixed(10 * MS),
                ..ours()
            }),
            bounds: (1, 5),
            front_ends: 3,
            faults: Some(Faults {
                crash: 0.1,
                down: 100 * MS,
                late: 0.5,
                late_max: 400 * MS,
            }),
            length: Duration::from_millis(2000),
            seed: count,
            ..of_bursts(&[], 5, Arm::Rigid, 1)
        };
        let report = run(&scenario)?;
        count += 1;
        crashes += report.crashes;
        helped += report.helped;
        moves += report.moves.len();
        done += report.late.0;
        refused += report.late.1;
    }
    println!(
        "{count} schedules of 2 s with 3 front-ends: {moves} moves, {crashes} crashes in the middle of one, {helped} locks helped, {done} late operations done and {refused} refused; no node lost, no floor or ceiling broken"
    );
    Ok(())
}
