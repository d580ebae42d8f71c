//! The standard matrix: every policy in every scenario, and what `auto` came to.

use std::fmt::Write;

use tidegate_core::policy::PolicyKind;
use tidegate_core::time::Timestamp;
use tidegate_culprits::table::{self, millis};
use tidegate_remote::clock;
use tidegate_sim::chooser::Chooser;
use tidegate_sim::file::{Half, ScenarioFile};
use tidegate_sim::matrix::comparison::{Comparison, Loss, Row};
use tidegate_sim::matrix::score::{BAND, By, MISSED_BAND, PairOutcome, Score, unmet};

use super::args::CompareArgs;
use super::models::{CompareModel, Speed};
use super::{Ran, best_oracle, choosers, cost, files, pool, run_seeds, threads};
use crate::failure::Failure;
use crate::output::Output;

/// The policy that all others are held against.
const JUDGED: PolicyKind = PolicyKind::Auto;

/// Widest line of the list of families.
const FAMILIES_WIDTH: usize = 98;

/// One chooser in one scenario.
#[derive(Debug)]
struct Job<'a> {
    file: &'a ScenarioFile,
    chooser: Chooser,
}

/// Runs what is asked for.
pub(super) fn run(args: &CompareArgs, output: Output) -> Result<(), Failure> {
    let files = wanted(args)?;
    let choosers = arms(args);
    let jobs: Vec<Job<'_>> = files
        .iter()
        .flat_map(|file| choosers.iter().map(move |chooser| (file, *chooser)))
        .map(|(file, chooser)| Job { file, chooser })
        .collect();
    let seeds = args.seeds.get();
    let threads = threads(args.threads);
    let mut progress = Progress::new(&jobs, output);
    let ran = pool::run_all(
        &jobs,
        threads,
        |job| cost(&job.file.scenario),
        |job| {
            let ran = run_seeds(&job.file.scenario, job.chooser, seeds);
            ran.map_err(|why| format!("scenario `{}`, {why}", job.file.name))
        },
        |job, _| progress.ended(job),
    );
    output.progress("");
    let ran = ran.map_err(Failure::Failed)?;
    let events = ran.iter().map(|ran| ran.events).sum();
    let speed = Speed::new(progress.seconds(), threads.min(jobs.len()), events);
    let comparison = comparison(&files, &choosers, &ran);
    let unmet = all_unmet(&files, &comparison);
    let text = text(&comparison, seeds, &unmet, speed);
    let model = CompareModel::new(&comparison, JUDGED, seeds, unmet, speed);
    Ok(output.result(&text, &model)?)
}

fn wanted(args: &CompareArgs) -> Result<Vec<ScenarioFile>, Failure> {
    let all = files::all()?;
    let fits = |name: &str, file: &ScenarioFile| {
        let has = |part: &String| {
            name.contains(part) || file.name.contains(part) || file.family.contains(part)
        };
        args.half.has(file.half) && args.only.iter().all(has)
    };
    let wanted: Vec<_> = all
        .into_iter()
        .filter(|(name, file)| fits(name, file))
        .map(|(_, mut file)| {
            if let Some(requests) = args.requests {
                file.scenario = file.shortened(requests.get());
            }
            file
        })
        .collect();
    if wanted.is_empty() {
        let parts = args.only.join("` and `");
        return Err(Failure::Usage(format!(
            "no scenario has `{parts}` in its name; see `tidegate simulate list`"
        )));
    }
    Ok(wanted)
}

/// The judged policy first, then the others, then the oracles.
fn arms(args: &CompareArgs) -> Vec<Chooser> {
    let wanted = |chooser: &Chooser| match chooser {
        Chooser::Policy(config) => {
            let kind = config.kind;
            kind == JUDGED || args.policy.is_empty() || args.policy.contains(&kind)
        }
        Chooser::Oracle(_) => true,
    };
    choosers(&[]).into_iter().filter(wanted).collect()
}

fn comparison(files: &[ScenarioFile], choosers: &[Chooser], ran: &[Ran]) -> Comparison {
    let policies = choosers.iter().filter_map(|chooser| match chooser {
        Chooser::Policy(config) => Some(config.kind),
        Chooser::Oracle(_) => None,
    });
    let policies: Vec<_> = policies.collect();
    let rows = files.iter().zip(ran.chunks(choosers.len()));
    let row = |(file, ran): (&ScenarioFile, &[Ran])| Row {
        name: file.name.clone(),
        family: file.family.clone(),
        half: file.half,
        scores: choosers
            .iter()
            .zip(ran)
            .filter(|(chooser, _)| matches!(chooser, Chooser::Policy(_)))
            .map(|(_, ran)| ran.score.clone())
            .collect(),
        oracle: best_oracle(choosers, ran),
    };
    Comparison {
        policies,
        rows: rows.map(row).collect(),
    }
}

fn all_unmet(files: &[ScenarioFile], comparison: &Comparison) -> Vec<String> {
    let mut all = Vec::new();
    for (index, file) in files.iter().enumerate() {
        let score = comparison.score(index, JUDGED);
        let unmet = score.map_or(Vec::new(), |score| unmet(&file.scenario.expect, score));
        all.extend(unmet.iter().map(|what| format!("{}: {what}", file.name)));
    }
    all
}

/// How far it is, in shares of what all jobs cost.
struct Progress {
    output: Output,
    started: Timestamp,
    whole: f64,
    done: f64,
    ended: usize,
    jobs: usize,
}

impl Progress {
    fn new(jobs: &[Job<'_>], output: Output) -> Self {
        Self {
            output,
            started: clock::now(),
            whole: jobs.iter().map(|job| cost(&job.file.scenario)).sum(),
            done: 0.0,
            ended: 0,
            jobs: jobs.len(),
        }
    }

    fn seconds(&self) -> f64 {
        clock::now().since(self.started).as_secs_f64()
    }

    fn ended(&mut self, job: &Job<'_>) {
        self.ended += 1;
        self.done += cost(&job.file.scenario);
        let share = (self.done / self.whole).min(1.0);
        let left = self.seconds() * (1.0 - share) / share.max(1e-9);
        self.output.progress(&format!(
            "{} of {} runs, {:.0} %, about {left:.0} s left",
            self.ended,
            self.jobs,
            share * 100.0,
        ));
    }
}

fn text(comparison: &Comparison, seeds: u32, unmet: &[String], speed: Speed) -> String {
    let mut out = format!(
        "p99 in ms, {} scenarios, {seeds} {} each; e5% are missed requests, ! is better than {}\n\n",
        comparison.rows.len(),
        if seeds == 1 { "seed" } else { "seeds" },
        JUDGED.name(),
    );
    out.push_str(&big_table(comparison));
    out.push_str(&tallies(comparison));
    out.push_str(&families(comparison));
    out.push_str(&losses(comparison));
    for what in unmet {
        out.push_str(&format!("\nnot as expected: {what}"));
    }
    out.push_str(&format!("\n{}\n", speed.text()));
    out
}

/// One row for each scenario: the oracle, the judged policy, the others.
fn big_table(comparison: &Comparison) -> String {
    let others = || comparison.policies.iter().filter(|kind| **kind != JUDGED);
    let mut names = vec!["scenario", "half", "oracle", JUDGED.name()];
    names.extend(others().map(|kind| kind.name()));
    let mut rows = table::header(&names);
    for (index, row) in comparison.rows.iter().enumerate() {
        let own = comparison.score(index, JUDGED);
        let mut cells = vec![row.name.clone(), row.half.label().into()];
        cells.push(row.oracle.as_ref().map_or("-".into(), cell));
        cells.push(own.map_or("-".into(), cell));
        for kind in others() {
            let score = comparison.score(index, *kind);
            cells.push(score.map_or("-".into(), |score| {
                let better = own.is_some_and(|own| own.against(score).outcome == PairOutcome::Loss);
                format!("{}{}", if better { "!" } else { "" }, cell(score))
            }));
        }
        rows.push(cells);
    }
    table::blocks(&rows, 4, Output::columns())
}

fn cell(score: &Score) -> String {
    let missed = score.missed();
    if missed > MISSED_BAND {
        format!("{}e{:.0}%", millis(score.p99_ms), missed * 100.0)
    } else {
        millis(score.p99_ms)
    }
}

fn tallies(comparison: &Comparison) -> String {
    let percent = |ratio: Option<f64>| match ratio {
        Some(ratio) => format!("{:+.1} %", (ratio - 1.0) * 100.0),
        None => "-".into(),
    };
    let header = [
        &format!("{} against", JUDGED.name()),
        "wins",
        "ties",
        "losses",
        "p99",
        "tune",
        "report",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let halves = [Half::Tune, Half::Report].map(|half| comparison.of_half(half));
    let by_half = halves.each_ref().map(|half| half.tallies(JUDGED));
    for (index, tally) in comparison.tallies(JUDGED).iter().enumerate() {
        let mut row = vec![
            tally.against.name().into(),
            tally.wins.to_string(),
            tally.ties.to_string(),
            tally.losses.to_string(),
            percent(tally.p99_ratio),
        ];
        row.extend(by_half.iter().map(|half| {
            half.get(index).map_or("-".into(), |it| {
                format!("{}/{}/{}", it.wins, it.ties, it.losses)
            })
        }));
        rows.push(row);
    }
    let oracle = comparison.oracle_ratio(JUDGED);
    let [tune, report] = halves
        .each_ref()
        .map(|half| percent(half.oracle_ratio(JUDGED)));
    let mut out = format!("\n{}", table::numbers(&rows));
    // Writing to a string cannot fail.
    writeln!(
        out,
        "\nErrors first, then p99 with a band of {:.0} %. p99 to the oracle: {} \
         (geometric mean; half tune {tune}, half report {report}).",
        BAND * 100.0,
        percent(oracle),
    )
    .ok();
    out
}

fn families(comparison: &Comparison) -> String {
    let families = comparison.families(JUDGED);
    let by_family = families.iter().filter_map(|(name, ratio)| {
        let ratio = (*ratio)?;
        Some(format!("{name} {:+.0} %", (ratio - 1.0) * 100.0))
    });
    let mut lines = vec!["By family:".to_owned()];
    for part in by_family {
        let line = lines.last().map_or(0, String::len);
        if line + part.len() > FAMILIES_WIDTH {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            line.push_str(&format!(" {part};"));
        }
    }
    format!("{}\n", lines.join("\n").trim_end_matches(';'))
}

fn losses(comparison: &Comparison) -> String {
    let losses = comparison.losses(JUDGED);
    if losses.is_empty() {
        return format!("\nNo loss of {} in any scenario.\n", JUDGED.name());
    }
    let header = ["loss in", "half", "to", "by", "oracle"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(losses.iter().map(loss));
    format!("\n{}", table::numbers(&rows))
}

fn loss(loss: &Loss) -> Vec<String> {
    let by = match loss.by {
        By::Ratio(ratio) => format!("p99 {:+.0} %", (ratio - 1.0) * 100.0),
        By::Missed(missed) => format!("missed {:+.1} points", missed * 100.0),
    };
    let to_oracle = loss.to_oracle.map_or("-".into(), |ratio| {
        format!("{:+.0} %", (ratio - 1.0) * 100.0)
    });
    vec![
        loss.scenario.clone(),
        loss.half.label().into(),
        loss.to.name().into(),
        by,
        to_oracle,
    ]
}
