//! The labelled scenarios of culprit discovery, scored, beside plain statistics on the same data.
//!
//! ```text
//! cargo run --release -p tidegate-sim --example culprits_suite [FAMILY,..|all|quiet|start|new|late|dearer|flood|plateau|nobodys|experiment|cost]
//!     [--seeds A..B]   seeds of scenarios, or of hours for `quiet`, of first two minutes for `start` (0..4);
//!                      `start` is without and with what was learned before, `new` when an elephant comes with it
//!     [--json FILE]    writes the scores
//!     [--errors]       a line for each error
//!     [--threads N]    (2)
//! ```
//!
//! Seeds below 100 are for work on the discovery; figures that are published come from others.

#![expect(clippy::print_stdout, reason = "printing the tables is what it is for")]

use std::ops::Range;
use std::time::Instant;

use serde_json::{Value, json};
use tidegate_core::culprits::LearnedError;
use tidegate_core::culprits::delay_experiment::ExperimentOutcome;
use tidegate_sim::elephants::quiet::Late;
use tidegate_sim::elephants::suite::{Found, on_threads, scenario};
use tidegate_sim::elephants::{
    Family, Label, Replay, Score, delay_experiment, plateau, quiet, restart, run,
};

type Error = Box<dyn std::error::Error>;

/// What is asked for.
#[derive(Clone, Copy)]
enum What {
    Scenarios,
    Quiet,
    Start,
    New,
    Late,
    Dearer,
    Flood,
    Nobodys,
    Plateau,
    Experiment,
    Cost,
}

struct Options {
    families: Vec<Family>,
    what: What,
    seeds: Range<u64>,
    json: Option<String>,
    errors: bool,
    threads: usize,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, Error> {
        let mut options = Self {
            families: Family::ALL.to_vec(),
            what: What::Scenarios,
            seeds: 0..4,
            json: None,
            errors: false,
            threads: 2,
        };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--seeds" => {
                    let text = value()?;
                    let (from, to) = text.split_once("..").ok_or("seeds are FROM..TO")?;
                    options.seeds = from.parse()?..to.parse()?;
                }
                "--json" => options.json = Some(value()?),
                "--errors" => options.errors = true,
                "--threads" => options.threads = value()?.parse()?,
                "all" => {}
                "quiet" => options.what = What::Quiet,
                "start" => options.what = What::Start,
                "new" => options.what = What::New,
                "late" => options.what = What::Late,
                "dearer" => options.what = What::Dearer,
                "flood" => options.what = What::Flood,
                "plateau" => options.what = What::Plateau,
                "nobodys" => options.what = What::Nobodys,
                "cost" => options.what = What::Cost,
                "experiment" => options.what = What::Experiment,
                names => options.families = families(names)?,
            }
        }
        Ok(options)
    }
}

fn families(names: &str) -> Result<Vec<Family>, Error> {
    let find = |name| Family::parse(name).ok_or_else(|| format!("no family `{name}`"));
    Ok(names.split(',').map(find).collect::<Result<_, _>>()?)
}

fn main() -> Result<(), Error> {
    let options = Options::parse(std::env::args().skip(1))?;
    let result = match options.what {
        What::Scenarios => scenarios(&options),
        What::Quiet => quiet_sites(&options, |seed| Ok(quiet::run(seed, 3600.0)))?,
        What::Start => starts(&options)?,
        What::New => new_elephants(&options)?,
        What::Late => late_elephants(&options, |seed| quiet::late(seed, 300.0)),
        What::Dearer => late_elephants(&options, |seed| quiet::dearer(seed, 300.0)),
        What::Flood => late_elephants(&options, quiet::flood),
        What::Nobodys => nobodys(&options),
        What::Plateau => on_plateaus(&options),
        What::Experiment => delay_experiments(&options),
        What::Cost => cost(&options),
    };
    if let Some(file) = &options.json {
        std::fs::write(file, format!("{result:#}\n"))?;
    }
    Ok(())
}

fn scenarios(options: &Options) -> Value {
    let families = options.families.iter();
    let jobs: Vec<_> = families
        .flat_map(|family| options.seeds.clone().map(move |seed| (*family, seed)))
        .collect();
    let found = on_threads(&jobs, options.threads, |(family, seed)| {
        scenario(*family, *seed, true)
    });
    println!(
        "                     last evaluation            flagged within 30 s      flagged after, s"
    );
    println!("family               P     R false  cost        P     R false        50 %    90 %");
    let (mut all, mut rows) = (Found::default(), Vec::new());
    for family in &options.families {
        let mut mine = Found::default();
        let of = jobs.iter().zip(&found).filter(|((it, _), _)| it == family);
        of.for_each(|(_, found)| mine.merge(found));
        rows.push(row(family.label(), &mine));
        all.merge(&mine);
    }
    let total = row("all", &all);
    let end = &all.at_end;
    println!(
        "without an error: {} of {}; culprits named in a group: {} of {}",
        end.exact, end.runs, end.in_group, end.found
    );
    println!("\n                         P     R  false/run  cost");
    for (baseline, score) in &all.baselines {
        let wrong = f64::from(score.wrong) / f64::from(score.runs);
        println!(
            "{:<20} {:>5} {:>5} {wrong:>10.2} {:>5}",
            baseline.label(),
            show(score.precision()),
            show(score.recall()),
            show(score.cost_error()),
        );
    }
    if options.errors {
        all.errors.iter().for_each(|line| println!("{line}"));
    }
    let baselines = all.baselines.iter();
    let baselines: Vec<_> = baselines
        .map(|(it, score)| json!({"method": it.label(), "score": object(score)}))
        .collect();
    json!({
        "seeds": [options.seeds.start, options.seeds.end], "families": rows, "all": total,
        "baselines": baselines, "errors": all.errors,
    })
}

fn show(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.2}"))
}

fn row(name: &str, found: &Found) -> Value {
    let (end, flagged) = (&found.at_end, &found.flagged);
    println!(
        "{name:<16} {:>5} {:>5} {:>5} {:>5}    {:>5} {:>5} {:>5}       {:>5} {:>7}",
        show(end.precision()),
        show(end.recall()),
        end.wrong,
        show(end.cost_error()),
        show(flagged.precision()),
        show(flagged.recall()),
        flagged.wrong,
        show(flagged.delay(0.5)),
        show(flagged.delay(0.9)),
    );
    json!({"name": name, "last_evaluation": object(end), "flagged": object(flagged)})
}

fn object(score: &Score) -> Value {
    json!({
        "runs": score.runs, "found": score.found, "in_group": score.in_group, "missed": score.missed,
        "false": score.wrong, "precision": score.precision(), "recall": score.recall(),
        "cost_error": score.cost_error(), "flagged_after_p50": score.delay(0.5).filter(|it| it.is_finite()),
        "flagged_after_p90": score.delay(0.9).filter(|it| it.is_finite()),
    })
}

/// The first two minutes of sites, without and with what was learned before.
fn starts(options: &Options) -> Result<Value, Error> {
    println!("without what was learned before:");
    let without = quiet_sites(options, |seed| Ok(quiet::run(seed, 120.0)))?;
    println!("with it:");
    let with = quiet_sites(options, |seed| restart::run(seed, 120.0))?;
    Ok(json!({ "without": without, "with": with }))
}

/// Elephants that come half a minute after a restart, without and with what was learned before it.
fn new_elephants(options: &Options) -> Result<Value, Error> {
    let seeds: Vec<_> = options.seeds.clone().collect();
    let late = on_threads(&seeds, options.threads, |seed| restart::late(*seed, 30.0));
    let late = late.into_iter().collect::<Result<Vec<_>, _>>()?;
    let of = |place: usize| late.iter().map(|it| it[place]).collect::<Vec<_>>();
    println!("without what was learned before:");
    let without = late_table(options, &of(0));
    println!("with it:");
    let with = late_table(options, &of(1));
    Ok(json!({ "without": without, "with": with }))
}

fn quiet_sites(
    options: &Options,
    run: impl Fn(u64) -> Result<quiet::Quiet, LearnedError> + Sync,
) -> Result<Value, Error> {
    let seeds: Vec<_> = options.seeds.clone().collect();
    let mut all = quiet::Quiet::default();
    for found in on_threads(&seeds, options.threads, |seed| run(*seed)) {
        all.merge(found?);
    }
    println!(
        "{:.1} hours, {} evaluations: {} named innocents, {} flagged, {} of them within two minutes of the start; {:.2} in 24 h, at most {:.2} (95 %)",
        all.hours,
        all.evaluations,
        all.named,
        all.flagged.len(),
        all.at_start,
        all.per_day(),
        all.per_day_bound(),
    );
    all.flagged.iter().for_each(|line| println!("{line}"));
    Ok(json!({
        "seeds": [options.seeds.start, options.seeds.end], "hours": all.hours, "evaluations": all.evaluations,
        "named": all.named, "flagged": all.flagged, "at_start": all.at_start, "per_day": all.per_day(),
        "per_day_bound": all.per_day_bound(),
    }))
}

/// Sites that are filled by what no request asked for, with a class that is merely slow.
fn nobodys(options: &Options) -> Value {
    let seeds: Vec<_> = options.seeds.clone().collect();
    let mut all = quiet::Nobodys::default();
    for one in on_threads(&seeds, options.threads, |seed| quiet::nobodys(*seed)) {
        all.merge(one);
    }
    println!(
        "{} sites: {} innocents flagged, {} of them merely slow; {} of {} elephants flagged",
        seeds.len(),
        all.flagged.len(),
        all.slow,
        all.found,
        all.elephants,
    );
    all.flagged.iter().for_each(|line| println!("{line}"));
    let missed = all.missed.iter();
    missed.for_each(|line| println!("{line}: not flagged"));
    json!({
        "seeds": [options.seeds.start, options.seeds.end], "flagged": all.flagged, "slow": all.slow,
        "elephants": all.elephants, "found": all.found,
    })
}

/// Databases that an elephant drives to a level below full.
fn on_plateaus(options: &Options) -> Value {
    let seeds: Vec<_> = options.seeds.clone().collect();
    let mut all = plateau::Plateau::default();
    for one in on_threads(&seeds, options.threads, |seed| plateau::run(*seed)) {
        all.merge(one);
    }
    let part = 100.0 * all.flagged as f64 / all.evaluations.max(1) as f64;
    println!(
        "{} sites: {} elephants flagged, then in {part:.1} % of {} evaluations; {} innocents flagged",
        all.sites,
        all.delays.len(),
        all.evaluations,
        all.wrong.len(),
    );
    all.wrong.iter().for_each(|line| println!("{line}"));
    json!({
        "seeds": [options.seeds.start, options.seeds.end], "flagged_after": all.delays, "evaluations": all.evaluations,
        "flagged": all.flagged, "wrong": all.wrong,
    })
}

/// How long it took to name elephants that came to sites that had run for a while, by share.
fn late_elephants(options: &Options, run: fn(u64) -> Option<Late>) -> Value {
    let seeds: Vec<_> = options.seeds.clone().collect();
    let late = on_threads(&seeds, options.threads, |seed| run(*seed));
    late_table(options, &late)
}

fn late_table(options: &Options, late: &[Option<Late>]) -> Value {
    if options.errors {
        for (seed, late) in options.seeds.clone().zip(late) {
            let Some(Late { share, delay }) = late else {
                continue;
            };
            let share = 100.0 * share;
            match delay {
                Some(delay) => {
                    println!("seed {seed}: {share:.0} % of the capacity, flagged after {delay} s")
                }
                None => println!("seed {seed}: {share:.0} % of the capacity, not flagged"),
            }
        }
    }
    println!("share of capacity   elephants   flagged after, s: 50 %    90 %   not within 180 s");
    let mut rows = Vec::new();
    for (from, to) in [(0.05, 0.08), (0.08, 0.12), (0.12, 0.2), (0.2, 1.0)] {
        let of = late.iter().flatten();
        let of = of.filter(|it| (from..to).contains(&it.share));
        let mut delays: Vec<_> = of.map(|it| it.delay.unwrap_or(f64::INFINITY)).collect();
        delays.sort_by(f64::total_cmp);
        let part = |part: f64| delays.get((delays.len() as f64 * part) as usize).copied();
        let missed = delays.iter().filter(|it| it.is_infinite()).count();
        println!(
            "{:>5.0} to {:>3.0} %      {:>9}   {:>19} {:>7} {missed:>18}",
            100.0 * from,
            100.0 * to,
            delays.len(),
            show(part(0.5)),
            show(part(0.9)),
        );
        let finite = |it: Option<f64>| it.filter(|it| it.is_finite());
        rows.push(json!({
            "share": [from, to], "elephants": delays.len(), "missed": missed,
            "flagged_after_p50": finite(part(0.5)), "flagged_after_p90": finite(part(0.9)),
        }));
    }
    json!({"seeds": [options.seeds.start, options.seeds.end], "late": rows})
}

fn delay_experiments(options: &Options) -> Value {
    let jobs: Vec<_> = delay_experiment::FAMILIES
        .iter()
        .flat_map(|family| options.seeds.clone().map(move |seed| (*family, seed)))
        .collect();
    println!("budget   culprits confirmed    innocents confirmed");
    let mut rows = Vec::new();
    for budget in delay_experiment::BUDGETS {
        let tests = on_threads(&jobs, options.threads, |(family, seed)| {
            delay_experiment::run_all(*family, *seed, budget)
        });
        let count = |label: Label| {
            let of = tests.iter().flatten().filter(|(it, _)| *it == label);
            let confirmed = of
                .clone()
                .filter(|(_, it)| matches!(it, ExperimentOutcome::Confirmed { .. }));
            (confirmed.count(), of.count())
        };
        let (culprits, innocents) = (count(Label::Culprit), count(Label::Innocent));
        println!(
            "{budget:>4} s   {:>5} of {:>5}        {:>5} of {:>5}",
            culprits.0, culprits.1, innocents.0, innocents.1,
        );
        rows.push(json!({"budget_seconds": budget, "culprits": culprits, "innocents": innocents}));
    }
    json!({"seeds": [options.seeds.start, options.seeds.end], "delay_experiment": rows})
}

/// Time that discovery takes of one core: 2.5 s of requests taken in and one resource evaluated, on one thread.
#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn cost(options: &Options) -> Value {
    println!("family          requests/s  classes   ms per turn   worst   of a core");
    let mut rows = Vec::new();
    for family in [
        Family::Steady,
        Family::HighTraffic,
        Family::ManyClasses,
        Family::NearSat,
        Family::OnsetRate,
    ] {
        let (mut spent, mut worst, mut turns) = (0.0, 0.0f64, 0u32);
        let (mut requests, mut classes, mut length) = (0, 0, 0.0);
        for seed in options.seeds.clone() {
            let trace = run(family, seed);
            requests += trace.requests.len();
            classes = classes.max(trace.classes);
            length += trace.length;
            let mut replay = Replay::new(&trace);
            loop {
                let began = Instant::now();
                if replay.next().is_none() {
                    break;
                }
                let took = began.elapsed().as_secs_f64();
                spent += took;
                worst = worst.max(took);
                turns += 1;
            }
        }
        let (mean, rate) = (1e3 * spent / f64::from(turns), requests as f64 / length);
        println!(
            "{:<15} {rate:>10.0} {classes:>8} {mean:>12.2} {:>8.2} {:>9.2} %",
            family.label(),
            1e3 * worst,
            mean / 25.0,
        );
        rows.push(json!({"family": family.label(), "ms_per_turn": mean, "worst_ms": 1e3 * worst}));
    }
    json!({ "cost": rows })
}
