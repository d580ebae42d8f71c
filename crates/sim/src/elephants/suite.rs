//! Runs scenarios through the discovery and the baselines, and scores them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_core::culprits::{Verdict, Verdicts};

use super::baselines::{Baseline, named_by};
use super::label::{Label, Truth, truths};
use super::replay::{Evaluation, Replay};
use super::score::{Named, Score};
use super::{Family, Resource, Trace, run};

/// What a scenario came to.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// What the evaluation at the end names.
    pub at_end: Score,
    /// What the operator had been shown by then, within 30 s of the onset: two of three evaluations.
    pub flagged: Score,
    /// Plain statistics on the last 30 s.
    pub baselines: BTreeMap<Baseline, Score>,
    /// Errors, a line each.
    pub errors: Vec<String>,
}

impl Found {
    /// Adds another's.
    pub fn merge(&mut self, other: &Self) {
        self.at_end.merge(&other.at_end);
        self.flagged.merge(&other.flagged);
        for (baseline, score) in &other.baselines {
            self.baselines.entry(*baseline).or_default().merge(score);
        }
        self.errors.extend_from_slice(&other.errors);
    }
}

/// Runs and scores one scenario.
pub fn scenario(family: Family, seed: u64, with_baselines: bool) -> Found {
    let trace = run(family, seed);
    let mut found = discover(family, seed, &trace);
    if with_baselines {
        for resource in &trace.judged {
            let truths = truths(&trace, *resource, trace.length);
            for baseline in Baseline::ALL {
                let named = named_by(*baseline, &trace, *resource);
                let score = found.baselines.entry(*baseline).or_default();
                score.add(&truths, &named);
            }
        }
    }
    found
}

/// Does all jobs on some threads; results are in the order of the jobs, whichever thread did them.
pub fn on_threads<J: Sync, R: Send>(
    jobs: &[J],
    threads: usize,
    job: impl Fn(&J) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut mine = Vec::new();
        while let Some((place, it)) = {
            let place = next.fetch_add(1, Ordering::Relaxed);
            jobs.get(place).map(|it| (place, it))
        } {
            mine.push((place, job(it)));
        }
        mine
    };
    let mut all = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.filter_map(Result::ok).flatten().collect::<Vec<_>>()
    });
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, result)| result).collect()
}

/// What was named for one resource.
#[derive(Default)]
struct Flagged {
    named: Named,
    /// Since when, seconds after the start.
    since: BTreeMap<usize, f64>,
    /// Those that were innocent when they began to be named, as labels have it at that time: what was
    /// not is no false accusation, even if it is innocent at the end, when a crowd has gone.
    innocent: BTreeSet<usize>,
}

fn discover(family: Family, seed: u64, trace: &Trace) -> Found {
    let mut found = Found::default();
    let mut flagged = BTreeMap::new();
    let mut last = None;
    for turn in Replay::new(trace).filter(|turn| turn.at > trace.onset) {
        note_flagged(trace, &turn, &mut flagged);
        last = Some(turn);
    }
    let Some(last) = last else {
        return found;
    };
    for (resource, verdicts) in &last.verdicts {
        let truths = truths(trace, *resource, trace.length);
        let Flagged {
            named: mut ever,
            since,
            innocent,
        } = flagged.remove(resource).unwrap_or_default();
        ever.classes
            .retain(|class, _| truths[*class].label != Label::Innocent || innocent.contains(class));
        let named = Named::of(verdicts.named());
        found.at_end.add(&truths, &named);
        found.flagged.add(&truths, &ever);
        for (class, _) in truths
            .iter()
            .enumerate()
            .filter(|(_, it)| it.label == Label::Culprit)
        {
            let delay = since
                .get(&class)
                .map_or(f64::INFINITY, |at| at - trace.onset);
            found.flagged.delays.push(delay);
        }
        let name = format!(
            "{} {seed} {} (clock {:+.0} ms)",
            family.label(),
            resource.label(),
            1e3 * trace.skew()
        );
        note_errors(&name, &truths, &named, &ever, verdicts, &mut found.errors);
    }
    found
}

fn note_flagged(trace: &Trace, turn: &Evaluation, flagged: &mut BTreeMap<Resource, Flagged>) {
    for (resource, verdicts) in &turn.verdicts {
        let now = Named::of(verdicts.flagged()).classes;
        if now.is_empty() {
            continue;
        }
        let truths = truths(trace, *resource, turn.at);
        let flagged = flagged.entry(*resource).or_default();
        for (class, named) in now {
            let innocent = truths[class].label == Label::Innocent;
            flagged.since.entry(class).or_insert_with(|| {
                flagged.innocent.extend(innocent.then_some(class));
                turn.at
            });
            flagged.named.classes.insert(class, named);
        }
    }
}

fn note_errors(
    name: &str,
    truths: &[Truth],
    named: &Named,
    ever: &Named,
    verdicts: &Verdicts,
    errors: &mut Vec<String>,
) {
    for (class, truth) in truths.iter().enumerate() {
        let is_false = |named: &Named| {
            let with = named.classes.get(&class).map(|it| &it.with);
            with.is_some_and(|with| with.iter().all(|it| truths[*it].label == Label::Innocent))
        };
        let kinds = match truth.label {
            Label::Culprit => [
                (!named.classes.contains_key(&class), "missed"),
                (!ever.classes.contains_key(&class), "never flagged"),
            ],
            Label::Innocent => [
                (is_false(named), "false"),
                (is_false(ever), "flagged though innocent"),
            ],
            Label::Grey => continue,
        };
        let kinds: Vec<_> = kinds
            .iter()
            .filter(|(is, _)| *is)
            .map(|(_, kind)| *kind)
            .collect();
        if kinds.is_empty() {
            continue;
        }
        let seen = verdicts
            .classes
            .iter()
            .find(|it| usize::from(it.class.0) == class);
        errors.push(format!(
            "{name} class {class} {}: truth share {:.3} cost {:.4}; use {:.2} full {:.2} shift {} ms; {}",
            kinds.join(", "),
            truth.share,
            truth.cost_seconds,
            verdicts.utilization,
            verdicts.full,
            verdicts.clock_shift_ms,
            seen.map_or_else(String::new, evidence),
        ));
    }
}

fn evidence(it: &Verdict) -> String {
    format!(
        "share {:.3} cost {:.4} t {:.1} z {:.1} rm {:.2} n {:.0} {}",
        it.share,
        it.cost_seconds,
        it.t,
        it.z,
        it.shift_ratio,
        it.requests,
        it.culprit.map_or("-", |it| it.label()),
    )
}
