//! What is seen while the site is visited: the database's accounts, the report of culprits, what the front-end said
//! of throttles, and what came of elephants and of all others.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_remote::clock;

use crate::auction::{RESET, STATEMENTS, Statement, statements};
use crate::cluster::Cluster;
use crate::front;
use crate::load::visitors::{Visitor, class, is_elephant, walk};
use crate::load::{LoadResult, PageResult, Requests, decode};
use crate::results::Curve;

use super::super::ExperimentError;
use super::super::judge::middle;
use super::super::runner::{Run, RunHook};
use super::costs::{self, Costs};
use super::{DATABASE, DATABASE_PLACE};

/// Points of a distribution in the picture.
const SHOWN: u32 = 200;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    /// CPU time of the database's host while it was measured, and of the web server's.
    used: [Duration; 2],
    statements: Vec<Statement>,
    report: Option<Value>,
    /// What the front-end said, each with its time: which classes it throttled, eased and released.
    events: Vec<String>,
    estimates: Costs,
    correlated: Costs,
    truth: Costs,
    /// Share of requests that took longer, by time in seconds, of each arm's first round.
    pub(super) slower: BTreeMap<String, Curve>,
}

impl RunHook for Accounts {
    fn during(&mut self, cluster: &mut Cluster, run: &Run<'_>) -> Result<(), ExperimentError> {
        let start = clock::now();
        let database = &cluster.nodes()[DATABASE_PLACE];
        let used = |cluster: &Cluster| [0, 1].map(|node| cluster.cpu_time(node));
        clock::sleep_until(start + run.point.warm_up);
        let before = used(cluster);
        // A database that is worn out takes its time for this too.
        database.ask_database(RESET)?;
        clock::sleep_until(start + run.point.warm_up + run.point.length);
        let after = used(cluster);
        self.used = [0, 1].map(|node| after[node].saturating_sub(before[node]));
        let report = run.admin.map(|admin| front::report(cluster.front(), admin));
        self.report = report.and_then(Result::ok);
        let accused = |report: &Value| costs::accused(report, DATABASE);
        self.estimates = self.report.as_ref().map(accused).unwrap_or_default();
        let correlated = |report: &Value| costs::correlated(report, DATABASE);
        self.correlated = self.report.as_ref().map(correlated).unwrap_or_default();
        self.statements = statements(&database.ask_database(STATEMENTS)?);
        Ok(())
    }

    fn heard(&mut self, events: &str) {
        self.events = events.lines().map(str::to_owned).collect();
    }

    fn metrics(&mut self, run: &Run<'_>, result: &LoadResult) -> Vec<(String, f64)> {
        self.truth = costs::truth(result);
        let curve = slower(run, result);
        self.slower.entry(run.arm.name.clone()).or_insert(curve);
        let mut metrics = sorted_out(run, result);
        metrics.extend(sessions(run, result));
        let length = run.point.length.as_secs_f64();
        let [database, web] = self.used.map(|used| used.as_secs_f64() / length);
        metrics.push(("db_cpu".into(), database));
        metrics.push(("web_cpu".into(), web));
        let accounted: f64 = pages(result).map(|(_, page)| page.amount).sum();
        metrics.push((
            "db_accounted_pct".into(),
            accounted * 1e-9 / (database * length) * 100.0,
        ));
        let elephants = self.truth.iter().filter(|(class, _)| is_dear(class));
        metrics.extend(elephants.map(|(class, cost)| (format!("db_cost_of {class}"), *cost)));
        if self.report.is_some() {
            for (name, classes) in [("pearson", &self.correlated), ("verdicts", &self.estimates)] {
                let these = pages(result).filter(|(_, page)| {
                    class(&page.name).is_some_and(|class| classes.contains_key(&class))
                });
                let completed: u64 = these.map(|(_, page)| page.completed).sum();
                metrics.push((format!("correlated_by_{name}"), completed as f64));
            }
        }
        if let Some(error) = middle(costs::errors(&self.estimates, &self.truth)) {
            metrics.push(("cost_error_pct".into(), error));
        }
        metrics
    }

    fn raw(&mut self) -> Value {
        json!({
            "statements": self.statements,
            "costs_ms": self.truth,
            "estimates_ms": self.estimates,
            "pearson_r": self.correlated,
            "report": self.report,
            "events": self.events,
        })
    }
}

/// All pages, each with whether it is an elephant.
fn pages(result: &LoadResult) -> impl Iterator<Item = (bool, &PageResult)> {
    let pages = result.streams.iter().flat_map(|stream| &stream.pages);
    pages.map(|page| (class(&page.name).is_some_and(|class| is_dear(&class)), page))
}

/// Whether a class is an elephant.
fn is_dear(class: &str) -> bool {
    class
        .split_once(' ')
        .is_some_and(|(_, path)| is_elephant(path))
}

/// Elephants and all others, each for themselves.
fn sorted_out(run: &Run<'_>, result: &LoadResult) -> Vec<(String, f64)> {
    let total = result.total();
    let mut metrics = vec![
        ("requests_completed".into(), total.completed as f64),
        ("longest_ms".into(), total.max_ms),
    ];
    for (which, name) in [(true, "elephants"), (false, "others")] {
        let these = || {
            pages(result)
                .filter(move |(dear, _)| *dear == which)
                .map(|it| it.1)
        };
        let sum = |of: fn(&PageResult) -> u64| these().map(of).sum::<u64>() as f64;
        let completed = sum(|page| page.completed);
        let weighted = these().map(|page| page.mean_ms * page.completed as f64);
        let longest = these().map(|page| page.max_ms).fold(0.0, f64::max);
        let rate = completed / run.point.length.as_secs_f64();
        metrics.extend([
            (format!("{name}_completed"), completed),
            (format!("{name}_rps"), rate),
            (format!("{name}_refused"), sum(|page| page.refused)),
            (format!("{name}_failed"), sum(|page| page.failed)),
            (
                format!("{name}_mean_ms"),
                weighted.sum::<f64>() / completed.max(1.0),
            ),
            (format!("{name}_longest_ms"), longest),
        ]);
        let p95 = p95_ms(these());
        metrics.extend(p95.map(|ms| (format!("{name}_p95_ms"), ms)));
    }
    metrics
}

/// The time that 95 of 100 requests of these pages took at most; none without a request.
fn p95_ms<'a>(pages: impl Iterator<Item = &'a PageResult>) -> Option<f64> {
    let mut pages = pages.filter_map(|page| decode(&page.histogram));
    let mut all = pages.next()?;
    for page in pages {
        all.add(page).expect("all pages are counted alike");
    }
    (!all.is_empty()).then(|| all.value_at_quantile(0.95) as f64 * 1e-3)
}

/// Mean session times: of all, and of each kind of visitors.
fn sessions(run: &Run<'_>, result: &LoadResult) -> Vec<(String, f64)> {
    let seconds = run.point.length.as_secs_f64();
    let mut all = (0.0, 0);
    let mut metrics = Vec::new();
    for (stream, plan) in result.streams.iter().zip(&run.point.streams) {
        let Some(sessions) = stream.sessions else {
            continue;
        };
        all = (
            all.0 + f64::from(plan.pacing.clients()) * seconds,
            all.1 + sessions.ended,
        );
        if let (Some(name), Some(mean)) = (kind(&plan.requests), sessions.mean_s) {
            metrics.push((format!("session_s:{name}"), mean));
        }
    }
    metrics.push((
        "session_s".into(),
        all.0 / f64::from(u32::try_from(all.1).unwrap_or(u32::MAX).max(1)),
    ));
    metrics
}

/// Whose table that is.
fn kind(requests: &Requests) -> Option<&'static str> {
    let Requests::Walk(table) = requests else {
        return None;
    };
    let mut kinds = Visitor::ALL.into_iter();
    kinds.find(|it| walk(*it) == *table).map(Visitor::label)
}

/// Which share of requests took longer than so many seconds.
fn slower(run: &Run<'_>, result: &LoadResult) -> Curve {
    let latencies = decode(&result.total().histogram);
    let points = latencies.map(|latencies| {
        let all = latencies.len().max(1) as f64;
        let point = |step: u32| {
            // From 1 ms on, by equal factors.
            let seconds = 1e-3 * 10f64.powf(f64::from(step) * 5.5 / f64::from(SHOWN));
            let within = latencies.count_between(0, (seconds * 1e6) as u64);
            (seconds, 1.0 - within as f64 / all)
        };
        let points = (0..SHOWN).map(point);
        points.filter(|(_, share)| *share > 0.0).collect()
    });
    Curve {
        name: run.arm.name.clone(),
        peer: run.arm.peer(),
        points: points.unwrap_or_default(),
    }
}
