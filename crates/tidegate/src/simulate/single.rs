//! One scenario under every policy.

use std::fmt::Write;

use tidegate_core::policy::PolicyKind;
use tidegate_culprits::table::{self, millis};
use tidegate_remote::clock;
use tidegate_sim::chooser::Chooser;
use tidegate_sim::file::ScenarioFile;
use tidegate_sim::matrix::score::{Score, unmet};

use super::args::SimulateArgs;
use super::models::{ScoreModel, SingleModel, Speed};
use super::{Ran, best_oracle, choosers, cost, files, pool, run_seeds, threads};
use crate::failure::Failure;
use crate::output::Output;

/// Runs it.
pub(super) fn run(name: &str, args: &SimulateArgs, output: Output) -> Result<(), Failure> {
    let mut file = files::load(name)?;
    if let Some(requests) = args.requests {
        file.scenario = file.shortened(requests.get());
    }
    if let Some(seed) = args.seed {
        file.scenario.seed = seed;
    }
    let choosers = choosers(&args.policy);
    let threads = threads(args.threads);
    let started = clock::now();
    let mut ended = 0;
    let ran = pool::run_all(
        &choosers,
        threads,
        |_| cost(&file.scenario),
        |chooser| run_seeds(&file.scenario, *chooser, 1),
        |_, _| {
            ended += 1;
            output.progress(&format!("{ended} of {} policies", choosers.len()));
        },
    );
    output.progress("");
    let ran = ran.map_err(Failure::Failed)?;
    let events: u64 = ran.iter().map(|ran| ran.events).sum();
    let seconds = clock::now().since(started).as_secs_f64();
    let speed = Speed::new(seconds, threads.min(choosers.len()), events);
    let found = Found {
        oracle: best_oracle(&choosers, &ran),
        rows: rows(&choosers, &ran),
        file: &file,
        speed,
    };
    let unmet = found.unmet();
    output.result(&found.text(&unmet), &found.model(&unmet))?;
    if unmet.is_empty() {
        Ok(())
    } else {
        Err(Failure::Failed(format!(
            "not as expected: {}",
            unmet.join("; ")
        )))
    }
}

fn rows<'a>(choosers: &[Chooser], ran: &'a [Ran]) -> Vec<(PolicyKind, &'a Score)> {
    let rows = choosers.iter().zip(ran);
    let rows = rows.filter_map(|(chooser, ran)| match chooser {
        Chooser::Policy(config) => Some((config.kind, &ran.score)),
        Chooser::Oracle(_) => None,
    });
    rows.collect()
}

struct Found<'a> {
    file: &'a ScenarioFile,
    rows: Vec<(PolicyKind, &'a Score)>,
    oracle: Option<Score>,
    speed: Speed,
}

impl Found<'_> {
    /// What the scenario expects of the default policy and did not come true.
    fn unmet(&self) -> Vec<String> {
        let auto = self.rows.iter().find(|(kind, _)| *kind == PolicyKind::Auto);
        auto.map_or(Vec::new(), |(_, score)| {
            unmet(&self.file.scenario.expect, score)
        })
    }

    fn model(&self, unmet: &[String]) -> SingleModel {
        let policy = |(kind, score): &(PolicyKind, &Score)| ScoreModel::new(kind.name(), score);
        SingleModel {
            scenario: self.file.name.clone(),
            seed: self.file.scenario.seed,
            requests: self.file.scenario.requests,
            policies: self.rows.iter().map(policy).collect(),
            oracle: self.oracle.as_ref().map(|it| ScoreModel::new("oracle", it)),
            unmet: unmet.to_vec(),
            speed: self.speed,
        }
    }

    fn text(&self, unmet: &[String]) -> String {
        let scenario = &self.file.scenario;
        let mut out = format!(
            "{} · {} nodes, {} front-ends, {} requests, seed {}\n{}\n\n",
            self.file.name,
            scenario.nodes.len(),
            scenario.front_ends.count,
            scenario.requests,
            scenario.seed,
            self.file.description,
        );
        let header = [
            "policy",
            "p50 ms",
            "p99 ms",
            "p99.9 ms",
            "mean ms",
            "completed",
            "failed",
            "rejected",
            "herding",
            "least share",
            "load age p99 ms",
        ];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        rows.extend(self.oracle.iter().map(|score| row("oracle", score)));
        rows.extend(
            self.rows
                .iter()
                .map(|(kind, score)| row(kind.name(), score)),
        );
        out.push_str(&table::numbers(&rows));
        if scenario.expect != Default::default() && unmet.is_empty() {
            out.push_str("\nauto: as expected\n");
        }
        // Writing to a string cannot fail.
        writeln!(out, "\n{}", self.speed.text()).ok();
        out
    }
}

fn row(name: &str, score: &Score) -> Vec<String> {
    let age = match score.load_age_p99_ms {
        age if age > 0.0 => millis(age),
        _ => "-".into(),
    };
    vec![
        name.into(),
        millis(score.p50_ms),
        millis(score.p99_ms),
        millis(score.p999_ms),
        millis(score.mean_ms),
        score.completed.to_string(),
        score.failed.to_string(),
        score.rejected.to_string(),
        format!("{:.2}", score.herding),
        format!("{:.2}", score.least_share),
        age,
    ]
}
