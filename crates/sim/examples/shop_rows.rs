//! A shop whose database searches fill: what is refused and how long answers take, for work on
//! admission and culprits.
//!
//! `cargo run --profile fast -p tidegate-sim --example shop_rows [SEED [worn-out | queueing]]`
//!
//! `worn-out` is the site whose database is full from the start, with `automatic`; `queueing` is the same, with hundreds of
//! requests that wait at the web server for a worker.

#![expect(clippy::print_stdout, reason = "printing the table is what it is for")]

use tidegate_core::admission::{AdmissionConfig, AdmissionKind};
use tidegate_core::throttle::AutoConfig;
use tidegate_sim::shop::{ClassSummary, Shop, auction, queueing, run, worn_out};

fn main() {
    let seed = std::env::args().nth(1).and_then(|it| it.parse().ok());
    let seed = seed.unwrap_or(1);
    let adaptive = AdmissionConfig::new(AdmissionKind::Adaptive);
    let automatic = Some(AutoConfig::default());
    match std::env::args().nth(2).as_deref() {
        Some("worn-out") => return from_the_start(&worn_out(adaptive, automatic, seed)),
        Some("queueing") => return from_the_start(&queueing(390, adaptive, automatic, seed)),
        _ => {}
    }
    println!("                     static              other pages         searches");
    println!("s          ref%  p95ms  mean   ref%  p95ms   mean   ref%    r/s  p95ms");
    let spans = [
        (10, 60),
        (60, 70),
        (70, 80),
        (80, 120),
        (120, 180),
        (180, 240),
    ];
    for kind in [AdmissionKind::Adaptive, AdmissionKind::Off] {
        let last = AutoConfig {
            holds: false,
            ..AutoConfig::default()
        };
        for (automatic, by_itself) in [
            (None, ""),
            (Some(last), "first to wait"),
            (Some(AutoConfig::default()), "automatic"),
        ] {
            println!("{} {by_itself}", kind.label());
            let tally = run(&auction(AdmissionConfig::new(kind), automatic, seed));
            for (at, text) in &tally.said {
                println!("{at:>7.0}  {text}");
            }
            for (from, to) in spans {
                let over = |classes: &[usize]| tally.over(classes, f64::from(from), f64::from(to));
                let (fixed, pages, searches) = (over(&[0]), over(&[1, 2, 3]), over(&[4]));
                println!(
                    "{from:>3}-{to:<3}  {:>6.1} {:>6.1} {:>5.1}  {:>5.1} {:>6.1} {:>6.1}  {:>5.1} {:>6.1} {:>6.0}",
                    part(&fixed),
                    fixed.p95_ms,
                    fixed.mean_ms,
                    part(&pages),
                    pages.p95_ms,
                    pages.mean_ms,
                    part(&searches),
                    searches.answered as f64 / f64::from(to - from),
                    searches.p95_ms,
                );
            }
        }
    }
}

/// Percent of requests that were refused.
fn part(it: &ClassSummary) -> f64 {
    it.refused as f64 / (it.refused + it.answered).max(1) as f64 * 100.0
}

fn from_the_start(shop: &Shop) {
    const SECONDS: [u32; 10] = [0, 5, 10, 15, 20, 30, 40, 60, 90, 120];
    println!("           others                         searches");
    println!("s          number  refused  p95ms   mean    r/s   ref%");
    let tally = run(shop);
    for (at, text) in &tally.said {
        println!("{at:>7.0}  {text}");
    }
    for (from, to) in SECONDS.iter().zip(&SECONDS[1..]) {
        let over = |classes: &[usize]| tally.over(classes, f64::from(*from), f64::from(*to));
        let (others, searches) = (over(&[0, 1, 2, 3]), over(&[4, 5, 6]));
        println!(
            "{from:>3}-{to:<3}  {:>8} {:>8} {:>6.1} {:>6.1}  {:>5.1}  {:>5.1}",
            others.refused + others.answered,
            others.refused,
            others.p95_ms,
            others.mean_ms,
            searches.answered as f64 / f64::from(to - from),
            part(&searches),
        );
    }
}
