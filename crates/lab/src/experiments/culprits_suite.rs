//! `culprits-suite`: what the discovery names on labelled scenarios, beside plain statistics on the
//! same data; how often it accuses a class where there is no elephant; the delay experiment; its cost.
//!
//! ```text
//! scenarios  33 families x seeds that nobody tuned on, 30 s of elephants each, in the simulator
//! named      by the evaluation at the end: precision_pct, recall_pct, cost_error_pct
//! flagged    two of three evaluations within 30 s of the onset: flagged_precision_pct, ..
//! quiet      hours without elephants: accusations in 24 h, their 95 % bound, and those after the first two
//!            minutes of a site (later)
//! experiment culprits and innocents that the experiment confirms within a budget
//! cost       10,000 requests/s of 200 classes, as live: time per request and per evaluation, on one thread
//! ```
//!
//! The only experiment that needs no cluster: labels take a world in which the truth is known.
//! Statistics of others are marked as peers; they are this project's own implementations.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_core::culprits::delay_experiment::ExperimentOutcome;
use tidegate_core::culprits::{ClassId, Discovery, EVERY, Limits, Request, ResourceId, UsagePoint};
use tidegate_core::prng::Prng;
use tidegate_core::time::Timestamp;
use tidegate_remote::clock;
use tidegate_sim::elephants::baselines::Baseline;
use tidegate_sim::elephants::suite::{Found, on_threads, scenario};
use tidegate_sim::elephants::{Family, Label, Score, delay_experiment, quiet};

use crate::results::{Axis, Machine, Report};

use super::judge::{Table, at_least, at_most, median};
use super::measured::labelled;
use super::paper::beside;
use super::report::{Sketch, arm_result};
use super::{Experiment, ExperimentError, Lab, Scale};

/// See the module.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "culprits-suite",
    about: "who is named for a resource's load on labelled scenarios, beside plain statistics",
    source: "Elephants-2005 §3; goals of the design",
    needs: "nothing: it runs the simulator",
    estimate,
    run,
    plan: None,
};

const OWN: &str = "tidegate";
/// Nothing was tuned on these.
const SEEDS: u64 = 1000;
/// Seeds of hours without elephants; those from 1000 and 2000 on were looked at while gates were chosen.
const HOURS_FROM: u64 = 3000;
/// Requests a second and classes of the cost's measurement.
const RATE: u64 = 10_000;
const CLASSES: u16 = 200;
/// When it begins, nanoseconds of the clock, and how long it takes: the long window is full before its end.
const COST_FROM: u64 = 10_000_000_000;
const COST_SECONDS: u64 = 180;
const LONG_WINDOW: Duration = Duration::from_secs(120);
/// Families in the picture.
const SHOWN: [Family; 11] = [
    Family::Steady,
    Family::Rare,
    Family::Session,
    Family::Flash,
    Family::Twin,
    Family::ManyEleph,
    Family::Saturated,
    Family::NearSat,
    Family::Messy,
    Family::Long,
    Family::Async,
];

/// Seeds of each family and hours without elephants.
fn amount(scale: Scale) -> (u64, u64) {
    scale.pick((1, 1), (8, 100))
}

fn estimate(scale: Scale) -> Duration {
    let (seeds, hours) = amount(scale);
    Duration::from_secs(10 + 3 * seeds + 8 * hours)
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let (seeds, hours) = amount(lab.scale);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut bench = Bench {
        table: Table::new(),
        raw: Vec::new(),
        threads,
    };
    let step = |text: &str, seconds| lab.progress.step(text, Duration::from_secs(seconds));
    step("scenarios", 2 * seeds);
    bench.scenarios(SEEDS..SEEDS + seeds);
    step("hours without elephants", 8 * hours);
    bench.quiet(hours);
    step("delay experiments", seeds);
    bench.delay_experiments(SEEDS..SEEDS + seeds);
    step("cost", 10);
    bench.cost();
    let names = std::iter::once(OWN).chain(Baseline::ALL.iter().map(|it| it.label()));
    let arms: Vec<_> = names
        .filter_map(|name| Some(arm_result(name, name != OWN, bench.table.get(name)?)))
        .collect();
    let plots = sketches().iter().map(|it| it.plot(&arms)).collect();
    Ok(Report {
        experiment: EXPERIMENT.name.into(),
        about: format!("{} ({}).", EXPERIMENT.about, EXPERIMENT.source),
        mode: "simulator".into(),
        quick: lab.scale == Scale::Quick,
        machine: Machine::this(),
        seconds: clock::now().since(started).as_secs_f64(),
        arms,
        paper: paper(&bench.table),
        verdicts: verdicts(&bench.table).into_iter().flatten().collect(),
        emulated: Vec::new(),
        notes: notes(seeds, hours),
        plots,
        raw: Value::Array(bench.raw),
    })
}

struct Bench {
    table: Table,
    raw: Vec<Value>,
    threads: usize,
}

impl Bench {
    fn put(&mut self, arm: &str, metric: &str, label: &str, value: Option<f64>) {
        if let Some(value) = value {
            let arm = self.table.entry(arm.into()).or_default();
            arm.entry(labelled(metric, label)).or_default().push(value);
        }
    }

    fn scenarios(&mut self, seeds: std::ops::Range<u64>) {
        let families = Family::ALL.iter();
        let jobs: Vec<_> = families
            .flat_map(|family| seeds.clone().map(move |seed| (*family, seed)))
            .collect();
        let found = on_threads(&jobs, self.threads, |(family, seed)| {
            scenario(*family, *seed, true)
        });
        let mut all = Found::default();
        for family in Family::ALL {
            let mut mine = Found::default();
            let of = jobs.iter().zip(&found).filter(|((it, _), _)| it == family);
            of.for_each(|(_, found)| mine.merge(found));
            self.found(&format!("family={}", family.label()), &mine);
            all.merge(&mine);
        }
        self.found("", &all);
    }

    /// What was found of a family, or of all.
    fn found(&mut self, label: &str, found: &Found) {
        let percent = |part: Option<f64>| part.map(|part| 100.0 * part);
        let baselines = found.baselines.iter();
        let scores = baselines.map(|(it, score)| (it.label(), score));
        for (arm, score) in scores.chain([(OWN, &found.at_end)]) {
            self.put(arm, "precision_pct", label, percent(score.precision()));
            self.put(arm, "recall_pct", label, percent(score.recall()));
            self.put(arm, "cost_error_pct", label, percent(score.cost_error()));
            let wrong = f64::from(score.wrong) / f64::from(score.runs.max(1));
            self.put(arm, "false_per_run", label, Some(wrong));
        }
        let flagged = &found.flagged;
        self.put(
            OWN,
            "flagged_precision_pct",
            label,
            percent(flagged.precision()),
        );
        self.put(OWN, "flagged_recall_pct", label, percent(flagged.recall()));
        for (metric, part) in [
            ("flagged_after_p50_seconds", 0.5),
            ("flagged_after_p90_seconds", 0.9),
        ] {
            let delay = flagged.delay(part).filter(|delay| delay.is_finite());
            self.put(OWN, metric, label, delay);
        }
        self.raw.push(json!({
            "scenarios": label, "named": counts(&found.at_end), "flagged": counts(flagged), "errors": found.errors,
            "baselines": found.baselines.iter().map(|(it, score)| (it.label(), counts(score))).collect::<BTreeMap<_, _>>(),
        }));
    }

    fn quiet(&mut self, hours: u64) {
        let seeds: Vec<_> = (HOURS_FROM..HOURS_FROM + hours).collect();
        let mut all = quiet::Quiet::default();
        for hour in on_threads(&seeds, self.threads, |seed| quiet::run(*seed, 3600.0)) {
            all.merge(hour);
        }
        self.put(OWN, "quiet_hours", "", Some(all.hours));
        self.put(OWN, "flagged_per_day", "quiet", Some(all.per_day()));
        self.put(
            OWN,
            "flagged_per_day_bound",
            "quiet",
            Some(all.per_day_bound()),
        );
        let later = Some(all.later_per_day());
        self.put(OWN, "flagged_per_day_later", "quiet", later);
        self.raw.push(json!({
            "quiet_hours": all.hours, "evaluations": all.evaluations, "named": all.named, "flagged": all.flagged,
            "at_start": all.at_start,
        }));
    }

    fn delay_experiments(&mut self, seeds: std::ops::Range<u64>) {
        let families = delay_experiment::FAMILIES.iter();
        let jobs: Vec<_> = families
            .flat_map(|family| seeds.clone().map(move |seed| (*family, seed)))
            .collect();
        for budget in delay_experiment::BUDGETS {
            let tests = on_threads(&jobs, self.threads, |(family, seed)| {
                delay_experiment::run_all(*family, *seed, budget)
            });
            for (who, label) in [("culprit", Label::Culprit), ("innocent", Label::Innocent)] {
                let of = tests.iter().flatten().filter(|(it, _)| *it == label);
                let confirmed = of
                    .clone()
                    .filter(|(_, it)| matches!(it, ExperimentOutcome::Confirmed { .. }));
                let (confirmed, all) = (confirmed.count(), of.count());
                let part = (all > 0).then(|| 100.0 * confirmed as f64 / all as f64);
                let label = format!("class={who} budget={budget}s");
                self.put(OWN, "confirmed_pct", &label, part);
                self.raw
                    .push(json!({ "delay_experiment": label, "confirmed": confirmed, "of": all }));
            }
        }
    }

    /// Three minutes read and evaluated as they pass; what the last of them took.
    fn cost(&mut self) {
        let resource = ResourceId(0);
        let mut discovery = Discovery::new(Limits {
            classes: CLASSES,
            resources: 1,
        });
        let (requests, points) = crowd();
        let mut requests = requests.iter().peekable();
        let mut points = points.into_iter().peekable();
        let (mut given, mut telling) = (0u32, Duration::ZERO);
        let (mut evaluations, mut evaluating) = (0u32, Duration::ZERO);
        let begin = Timestamp::from_nanos(COST_FROM);
        for turn in 1..=(COST_SECONDS as f64 / EVERY.as_secs_f64()) as u32 {
            let passed = EVERY * turn;
            let now = begin + passed;
            let (began, mut many) = (clock::now(), 0);
            while let Some(point) = points.next_if(|point| point.at <= now) {
                discovery.on_usage(resource, point);
            }
            while let Some(request) = requests.next_if(|it| it.ended.is_some_and(|it| it <= now)) {
                discovery.on_request(request);
                many += 1;
            }
            let between = clock::now();
            let verdicts = discovery.evaluate(now, resource);
            let after = clock::now();
            std::hint::black_box(verdicts);
            // Before, the long window is not full.
            if passed > LONG_WINDOW {
                given += many;
                telling += between.since(began);
                evaluations += 1;
                evaluating += after.since(between);
            }
        }
        let each = telling.as_secs_f64() / f64::from(given);
        let evaluation = evaluating.as_secs_f64() / f64::from(evaluations);
        let core = each * RATE as f64 + evaluation / EVERY.as_secs_f64();
        self.put(OWN, "request_ns", "", Some(1e9 * each));
        self.put(OWN, "evaluation_ms", "", Some(1e3 * evaluation));
        self.put(OWN, "core_pct", "", Some(100.0 * core));
        self.raw.push(json!({
            "requests": given, "classes": CLASSES, "evaluations": evaluations, "core_pct": 100.0 * core,
        }));
    }
}

/// Every class does some work, one in twenty is dear, and what they use goes with it.
fn crowd() -> (Vec<Request>, Vec<UsagePoint>) {
    let start = COST_FROM;
    let mut prng = Prng::new(SEEDS);
    let mut used = vec![0u64; 100 * (COST_SECONDS as usize + 1)];
    let mut requests = Vec::new();
    for place in 0..RATE * COST_SECONDS {
        let class = prng.below(usize::from(CLASSES)) as u16;
        let sent = start + place * (1_000_000_000 / RATE);
        let work = if class.is_multiple_of(20) { 2e6 } else { 5e4 } * (0.5 + prng.unit());
        let ended = sent + (work + 2e7 * prng.unit()) as u64;
        let reading = ((ended - start) / 10_000_000) as usize;
        if let Some(used) = used.get_mut(reading) {
            *used += work as u64;
        }
        requests.push(Request {
            class: ClassId(class),
            sent: Timestamp::from_nanos(sent),
            ended: Some(Timestamp::from_nanos(ended)),
        });
    }
    let mut busy_ns = 0;
    let points = used.iter().enumerate().map(|(place, used)| {
        busy_ns += used;
        UsagePoint {
            at: Timestamp::from_nanos(start + (place as u64 + 1) * 10_000_000),
            busy_ns,
            cores: 4.0,
        }
    });
    (requests, points.collect())
}

fn counts(score: &Score) -> Value {
    json!({
        "runs": score.runs, "exact": score.exact, "found": score.found, "in_group": score.in_group,
        "missed": score.missed, "false": score.wrong,
    })
}

fn verdicts(table: &Table) -> Vec<Option<crate::results::GoalVerdict>> {
    let of = |metric: &str| median(table, OWN, metric);
    vec![
        at_least(
            "precision of what is flagged within 30 s, %".into(),
            of("flagged_precision_pct"),
            95.0,
        ),
        at_least(
            "recall of what is flagged within 30 s, %".into(),
            of("flagged_recall_pct"),
            95.0,
        ),
        at_most(
            "median error of the cost per request, %".into(),
            of("cost_error_pct"),
            10.0,
        ),
        at_most(
            "false accusations in 24 h without elephants".into(),
            of("flagged_per_day[quiet]"),
            1.0,
        ),
        at_most(
            "the same, upper end of the 95 % interval".into(),
            of("flagged_per_day_bound[quiet]"),
            1.0,
        ),
        at_most(
            "of a core, for one resource at 10,000 requests/s, %".into(),
            of("core_pct"),
            0.5,
        ),
    ]
}

fn paper(table: &Table) -> BTreeMap<String, Value> {
    let rounded = |arm: &str, metric: &str| median(table, arm, metric).map(f64::round);
    let of = |arm: &str| {
        json!({
            "precision_pct": rounded(arm, "precision_pct"),
            "recall_pct": rounded(arm, "recall_pct"),
        })
    };
    let row = beside(
        json!(
            "Pearson's r and p of each URL's completions per second with the database's CPU, one case by eye"
        ),
        "Elephants-2005 §3",
        of(OWN),
        of(Baseline::Pearson.label()),
    );
    BTreeMap::from([("what names elephants".to_owned(), row)])
}

fn notes(seeds: u64, hours: u64) -> Vec<String> {
    vec![
        format!(
            "Scenarios: {} families, seeds {SEEDS} to {}; gates were chosen on seeds below 100. Hours without elephants: {hours}, seeds {HOURS_FROM} on.",
            Family::ALL.len(),
            SEEDS + seeds - 1
        ),
        "A culprit uses 5 % of the capacity or more and costs 2.5 times the mean request or more; innocent is who uses less than 2 % or costs \
         less than 1.5 times the mean. What lies between is not scored."
            .into(),
        "Peers are other statistics on the same requests and counters, in this project's own implementation.".into(),
        format!(
            "Cost: {RATE} requests/s of {CLASSES} classes on one thread. Memory: 57 kB for each class in use, 26 kB for each resource."
        ),
    ]
}

fn sketches() -> Vec<Sketch> {
    let by_family = |metric: &str| -> Vec<(String, String)> {
        let group = |family: &Family| {
            let label = family.label();
            (
                label.to_owned(),
                labelled(metric, &format!("family={label}")),
            )
        };
        SHOWN.iter().map(group).collect()
    };
    let all = ["precision_pct", "recall_pct", "cost_error_pct"];
    vec![
        Sketch::Bars {
            title: "All families".into(),
            groups: all.map(|it| (it.to_owned(), it.to_owned())).into(),
            y: Axis::from_zero("%"),
        },
        Sketch::Bars {
            title: "Culprits named, by family".into(),
            groups: by_family("recall_pct"),
            y: Axis::from_zero("%"),
        },
    ]
}
