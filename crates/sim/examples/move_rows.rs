//! What moves of nodes bring and cost in the simulator, as tables in Markdown.
//!
//! `cargo run --profile fast -p tidegate-sim --example move_rows [bursts | sweep | high | react | full | home | large | schedules [FROM TO]]`

#![expect(clippy::print_stdout, reason = "printing the table is what it is for")]

use std::ops::Range;
use std::time::{Duration, Instant};

use tidegate_core::moves::evidence::History;
use tidegate_sim::moves::{Arm, Faults, Load, MovesError, MovesReport, MovesScenario, Rule, run};

type Done = Result<(), Box<dyn std::error::Error>>;

const MS: Duration = Duration::from_millis(1);
const BURSTS: [u64; 6] = [512, 1024, 2048, 4096, 8192, 16_384];
const HIGH: [f64; 4] = [1.2, 1.5, 2.0, 3.0];
/// How many schedules with crashes are tried, unless the command says which.
const SCHEDULES: u64 = 1_000_000;
/// How long each of them lasts. Sites give nothing in their first second, and nothing goes wrong any more in the last five
/// twelfths.
const SCHEDULE: Duration = Duration::from_millis(3600);

fn main() -> Done {
    let part = std::env::args().nth(1).unwrap_or_default();
    match part.as_str() {
        "bursts" => bursts(),
        "sweep" => sweep(),
        "high" => high(),
        "react" => react(),
        "full" => full(),
        "home" => home(),
        "large" => large(),
        "schedules" => schedules(seeds()?),
        _ => Err("bursts, sweep, high, react, full, home, large or schedules".into()),
    }
}

/// Seeds of schedules: those of the command, or all.
fn seeds() -> Result<Range<u64>, std::num::ParseIntError> {
    let mut bounds = std::env::args().skip(2).map(|it| it.parse());
    let from = bounds.next().unwrap_or(Ok(0))?;
    Ok(from..bounds.next().unwrap_or(Ok(SCHEDULES))?)
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

/// One site needs more than it has, and the other not much less, for hours: nodes that are lent stay lent.
fn full() -> Done {
    println!(
        "| nodes of each site | CPUs of a node | load | moves in two hours | mean response, rigid | ours |"
    );
    println!("|---|---|---|---|---|---|");
    for (each, cpus) in [(3, 1), (5, 2)] {
        for loads in [[1.1, 0.5], [1.1, 0.75], [1.25, 0.6]] {
            let steps = vec![(Duration::ZERO, loads.to_vec())];
            let moving = MovesScenario {
                length: Duration::from_secs(7200),
                bounds: (1, 2 * each - 1),
                ..open(&[each, each], cpus, steps, Rule::DEFAULT)
            };
            let report = run(&moving)?;
            let rigid = run(&MovesScenario {
                arm: Arm::Rigid,
                length: Duration::from_secs(60),
                ..moving
            })?;
            let means = [&rigid, &report].map(|it| [0, 1].map(|site| it.mean_response(site)));
            println!(
                "| {each} | {cpus} | {loads:?} | {} | {:.0?} after a minute | {:.0?} |",
                report.moves.len(),
                means[0],
                means[1]
            );
        }
    }
    Ok(())
}

/// A crowd at one site, and then the other's readers come back: how long their own nodes take to come home.
fn home() -> Done {
    println!(
        "| CPUs | first home, median | 99 % | last home, median | 99 % | mean response of its readers | moves |"
    );
    println!("|---|---|---|---|---|---|---|");
    let second = Duration::from_secs(1);
    for cpus in [1, 2, 8] {
        let steps = vec![
            (Duration::ZERO, vec![0.3, 0.25]),
            (4 * second, vec![1.35, 0.2]),
            (15 * second, vec![0.25, 0.8]),
        ];
        let (mut first, mut last) = (Vec::new(), Vec::new());
        let (mut moves, mut response) = (0, Duration::ZERO);
        for seed in 0..100 {
            let scenario = MovesScenario {
                length: 45 * second,
                bounds: (2, 8),
                seed,
                ..open(&[5, 5], cpus, steps.clone(), ours())
            };
            let report = run(&scenario)?;
            moves += report.moves.len();
            response += report.mean_response(1) / 100;
            first.extend(report.first_to(1, 15 * second));
            last.extend(report.last_to(1, 15 * second));
        }
        let cell = |times: &mut Vec<Duration>, part: usize| {
            times.sort_unstable();
            let at = times.get(times.len() * part / 100).copied();
            format!("{:.0} ms", at.unwrap_or_default().as_secs_f64() * 1e3)
        };
        println!(
            "| {cpus} | {} | {} | {} | {} | {:.0} ms | {:.1} |",
            cell(&mut first, 50),
            cell(&mut first, 99),
            cell(&mut last, 50),
            cell(&mut last, 99),
            response.as_secs_f64() * 1e3,
            f64::from(u32::try_from(moves)?) / 100.0
        );
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

/// What schedules came to.
#[derive(Default)]
struct SchedulesSeen {
    crashes: u64,
    helped: u64,
    moves: usize,
    late: (u64, u64),
}

/// Short runs with crashes and late operations, each of another seed, on all CPUs. A run panics where a node is lost, a floor or
/// ceiling is broken, or a request is; so does this, where a lock is not free in the end.
fn schedules(seeds: Range<u64>) -> Done {
    let threads = std::thread::available_parallelism()?.get() as u64;
    let tallies: Vec<_> = std::thread::scope(|scope| {
        let begin = |thread| {
            let own = (seeds.start + thread..seeds.end).step_by(threads as usize);
            scope.spawn(move || schedules_of(own))
        };
        let all: Vec<_> = (0..threads).map(begin).collect();
        all.into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect()
    });
    let mut all = SchedulesSeen::default();
    for tally in tallies {
        let tally = tally.map_err(|_| "a schedule went wrong: see above")??;
        all.crashes += tally.crashes;
        all.helped += tally.helped;
        all.moves += tally.moves;
        all.late.0 += tally.late.0;
        all.late.1 += tally.late.1;
    }
    if all.crashes == 0 || all.late.0 + all.late.1 == 0 {
        return Err("nothing went wrong, so nothing was tried".into());
    }
    println!(
        "schedules {seeds:?} of {SCHEDULE:?} with 3 front-ends: {} moves, {} crashes in the middle of one, {} locks helped, {} late operations done and {} refused; no node lost, no floor or ceiling broken, all locks free",
        all.moves, all.crashes, all.helped, all.late.0, all.late.1
    );
    Ok(())
}

fn schedules_of(seeds: impl Iterator<Item = u64>) -> Result<SchedulesSeen, MovesError> {
    let mut tally = SchedulesSeen::default();
    for seed in seeds {
        let report = run(&schedule(seed))?;
        assert!(report.locks_free, "seed {seed}");
        tally.crashes += report.crashes;
        tally.helped += report.helped;
        tally.moves += report.moves.len();
        tally.late.0 += report.late.0;
        tally.late.1 += report.late.1;
    }
    Ok(tally)
}

fn schedule(seed: u64) -> MovesScenario {
    MovesScenario {
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
            down: 50 * MS,
            late: 0.5,
            late_max: 400 * MS,
            until: SCHEDULE * 7 / 12,
        }),
        length: SCHEDULE,
        seed,
        ..of_bursts(&[], 5, Arm::Rigid, 1)
    }
}
