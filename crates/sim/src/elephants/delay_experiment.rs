//! The delay experiment on simulated sites: requests of one class are delayed at random, and the
//! resource answers as it does.
//!
//! Unlike the scenarios, which are recorded once, each experiment is a run of its own: delaying a request
//! changes what comes after it.

use tidegate_core::culprits::delay_experiment::{DelayExperiment, ExperimentOutcome};
use tidegate_core::time::Timestamp;

use super::label::{Label, truths};
use super::trace::{Resource, Trace};
use super::world::{self, ClassExperiment};
use super::{Family, run};

/// Families on which experiments are made.
pub const FAMILIES: &[Family] = &[
    Family::Steady,
    Family::Rare,
    Family::LowTraffic,
    Family::Session,
    Family::Ajax,
    Family::Lag,
    Family::NearSat,
    Family::NoisyBg,
    Family::Bursty,
    Family::Async,
    Family::SyncCron,
    Family::Twin,
];
/// Seconds of one experiment.
pub const BUDGETS: [f64; 3] = [10.0, 20.0, 40.0];

/// Seconds before an experiment begins.
const BEFORE: f64 = 30.0;
/// Innocents that get an experiment beside the culprits of a scenario: those with the most use.
const INNOCENTS: usize = 2;

/// Experiments on the culprits of a scenario and some innocents on its database for so many seconds each.
pub fn run_all(family: Family, seed: u64, budget: f64) -> Vec<(Label, ExperimentOutcome)> {
    let trace = run(family, seed);
    let truths = truths(&trace, Resource::Database, trace.length);
    let mean = truths.iter().map(|it| it.cost_seconds).fold(0.0, f64::max);
    let of = |label: Label| {
        let mut classes: Vec<_> = (0..truths.len())
            .filter(|class| truths[*class].label == label)
            .collect();
        classes.sort_by(|one, other| truths[*other].share.total_cmp(&truths[*one].share));
        classes
    };
    let innocents = of(Label::Innocent).into_iter().take(INNOCENTS);
    let classes = of(Label::Culprit).into_iter().chain(innocents);
    classes
        .map(|class| {
            let truth = &truths[class];
            // An accused class is thought to be dear.
            let thought = match truth.label {
                Label::Culprit | Label::Grey => truth.cost_seconds,
                Label::Innocent => mean,
            };
            (truth.label, one(family, seed, class, thought, budget))
        })
        .collect()
}

fn one(family: Family, seed: u64, class: usize, cost: f64, budget: f64) -> ExperimentOutcome {
    let mut site = family.site(seed);
    let from = site.onset + BEFORE;
    site.seconds = from + budget + 2.0;
    let id = Trace::class(class);
    let start = Timestamp::from_nanos(world::nanos(from));
    let experiment = ClassExperiment {
        class: id.0,
        from,
        to: from + budget,
        experiment: DelayExperiment::new(id, cost, seed, start),
    };
    let (trace, mut experiment) = world::run_with(&site, seed, experiment);
    let points = &trace.usage[Resource::Database.index()];
    let busy = |at: Timestamp| -> Option<f64> {
        let place = points.partition_point(|point| point.at < at);
        let (before, after) = (points.get(place.checked_sub(1)?)?, points.get(place)?);
        let length = (after.at.nanos() - before.at.nanos()) as f64;
        let part = (at.nanos() - before.at.nanos()) as f64 / length;
        Some((before.busy_ns as f64 + part * (after.busy_ns - before.busy_ns) as f64) * 1e-9)
    };
    let used = |from: Timestamp, to: Timestamp| Some(busy(to)? - busy(from)?);
    experiment.settle(start + std::time::Duration::from_secs_f64(budget), used)
}
