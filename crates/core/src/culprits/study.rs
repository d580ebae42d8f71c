//! One window of one resource, through all steps.
//!
//! ```text
//! 1 clock  2 mask, high-pass  3 atoms  4 screen, fit  5 virtual time, fit again, twice
//! 6 cross-fit, arrivals  7 shift null  8 occupancy, slowdown, if the resource is full  ->  decision
//! ```
//!
//! Inputs: all that is known of classes and the resource. Failure case: each step tells its own.
//! Source: each step tells its own; their order and their weights were measured.

mod by_arrivals;
mod by_occupancy;
mod pace;

use std::collections::BTreeMap;

use self::by_arrivals::ByArrivals;
use self::pace::is_steady;
use super::ambiguous::groups;
use super::atoms::{ATOMS, BEHIND, MASS, PROGRESS};
use super::bins::{BIN_SECONDS, Bins, ClassSeries, Window};
use super::clock::best_shift;
use super::cross_fit::{CrossFit, cross_fit, unexplained};
use super::decision::{
    Evidence, FULL_MAX, LIFT_MIN, SHARE_MIN, WINDOW_MIN, is_culprit, is_suspected, matters,
    takes_its_cost,
};
use super::folds::Folds;
use super::high_pass::HighPass;
use super::lives::STEPS;
use super::newey_west::Slope;
use super::nnls::Normal;
use super::pearson::upper_tail;
use super::recent::{Life, Recent};
use super::screen::{Columns, Maker};
use super::series::dot;
use super::shift_null::{ShiftNull, shift_null};
use super::slowdown::{Room, WINDOWS_MIN};
use super::usage::Usage;
use super::virtual_time::{VirtualTime, add_binned_demand, add_demand};

/// Part of the gates from which a class is a candidate.
const CANDIDATE: f64 = 0.6;
/// Most groups of classes that are tested together.
const CANDIDATES_MAX: usize = 12;
/// Fits by virtual time.
const VIRTUAL_FITS: usize = 2;
/// A shift of the clocks must leave so much less unexplained, as a ratio.
const SHIFT_WORTH: f64 = 0.85;
/// Part of a window's time, 0 to 1, in which the resource is full, above which occupancy by lives decides.
pub(super) const FULL_TIME_SHARE: f64 = 0.7;
/// Standard deviations of what is not explained at which a class is seen.
const DETECTED: f64 = 5.0;
/// Demand over the capacity from which on requests slow each other.
const CROWDED: f64 = 1.1;
/// Bins that are of late: 10 s.
const OF_LATE: usize = 100;
/// An unfinished request is thought to take so many times its age.
const LIFE_OF_AGE: f64 = 1.3;

/// What is known.
#[derive(Debug)]
pub(super) struct Known<'a> {
    pub(super) bins: &'a Bins,
    pub(super) recent: &'a Recent,
    /// Class and when it was sent, of requests that have not ended.
    pub(super) unfinished: &'a [(usize, i64)],
    pub(super) usage: &'a Usage,
    /// Classes as they were when the resource last had room.
    pub(super) room: &'a BTreeMap<usize, Room>,
}

impl Known<'_> {
    /// How a class did while the resource had room, if that was long enough.
    fn room_of(&self, class: usize) -> Option<Room> {
        let room = self.room.get(&class).copied();
        room.filter(|room| room.windows >= WINDOWS_MIN)
    }
}

/// What was found of a class.
#[derive(Clone, Debug, Default)]
pub(super) struct ClassFinding {
    pub(super) class: usize,
    pub(super) evidence: Evidence,
    /// One-sided p of t.
    pub(super) p: f64,
    pub(super) curve: Vec<f32>,
    pub(super) named: bool,
    /// Whether this window alone named it, whatever else is known, and it takes what it costs.
    pub(super) alone: bool,
    /// The share for which it is worth a trial.
    pub(super) suspected: Option<f64>,
    /// The share that lives alone tell, whatever is known of it, if it is great.
    pub(super) presumed: Option<f64>,
    /// Classes that it cannot be separated from.
    pub(super) with: Vec<usize>,
    pub(super) by_occupancy: bool,
    /// Whether it is known to be innocent, whatever the fit says.
    pub(super) cleared: bool,
    /// Requests that came, per second.
    pub(super) rate: f64,
}

/// What was found in a window.
#[derive(Clone, Debug, Default)]
pub(super) struct Study {
    /// All classes with requests in the window.
    pub(super) seen: Vec<ClassFinding>,
    /// Mean use over the capacity.
    pub(super) utilization: f64,
    /// Part of the window in which the resource was full.
    pub(super) full: f64,
    /// Clock shift in parts of 20 ms.
    pub(super) shift: i64,
    /// Whether costs were fitted.
    pub(super) fitted: bool,
    /// Standard deviation of the use in a bin of the last seconds, without what is slow, seconds.
    pub(super) scatter: f64,
    pub(super) cores: f64,
}

/// The use of the resource in a window: busy seconds per bin, what counts of it, and what is left
/// without what is slow.
struct Used {
    raw: Vec<f32>,
    filter: HighPass,
    y: Vec<f32>,
}

impl Used {
    fn read(usage: &Usage, window: Window, cores: f64, shift: i64, crowded: &[bool]) -> Self {
        let raw = usage.read(window, shift);
        let filter = HighPass::new(&raw, cores, |bin| crowded[bin]);
        let (y, _) = filter.apply(&raw);
        Self { raw, filter, y }
    }
}

/// A fit of all screened classes.
struct Fit {
    parts: Vec<Normal>,
    coefficients: Vec<f64>,
}

impl Fit {
    fn of(columns: &Columns, y: &[f32], folds: &Folds, start: &[f64]) -> Self {
        let rows = folds.parts().iter().cloned();
        let parts: Vec<_> = rows
            .map(|rows| Normal::of(&columns.values, y, rows))
            .collect();
        Self::solve(parts, start)
    }

    /// The same of the same use, where only these columns have changed.
    fn again(&self, columns: &Columns, y: &[f32], folds: &Folds, changed: &[usize]) -> Self {
        let parts = self.parts.iter().zip(folds.parts());
        let parts = parts.map(|(part, rows)| part.again(&columns.values, y, rows.clone(), changed));
        Self::solve(parts.collect(), &self.coefficients)
    }

    fn solve(parts: Vec<Normal>, start: &[f64]) -> Self {
        let coefficients = Normal::sum(parts.iter()).solve(start);
        Self {
            parts,
            coefficients,
        }
    }

    /// What a class uses in bins that count, seconds.
    fn used(&self, columns: &Columns, class: usize) -> f64 {
        self.used_by_atoms(columns, class, ATOMS)
    }

    /// What it uses before its reply.
    fn used_in_life(&self, columns: &Columns, class: usize) -> f64 {
        self.used_by_atoms(columns, class, BEHIND)
    }

    /// By so many of its atoms.
    fn used_by_atoms(&self, columns: &Columns, class: usize, many: usize) -> f64 {
        let atoms = class * ATOMS..class * ATOMS + many;
        let pairs = self.coefficients[atoms.clone()]
            .iter()
            .zip(&columns.sums[atoms]);
        pairs.map(|(coefficient, sum)| coefficient * sum).sum()
    }
}

/// Studies a window. `now` is its end or a little later.
pub(super) struct Student<'a> {
    known: &'a Known<'a>,
    window: Window,
    now: i64,
    cores: f64,
    classes: Vec<(usize, ClassSeries)>,
    /// In which bins more may have been asked for than there was.
    crowded: Vec<bool>,
    filter: HighPass,
    folds: Folds,
    study: Study,
    /// Use in busy seconds of each bin, as it was and without what is slow.
    raw: Vec<f32>,
    y: Vec<f32>,
    /// Mean cost of a request, seconds.
    mean_cost: f64,
}

impl<'a> Student<'a> {
    /// Reads the window.
    pub(super) fn new(known: &'a Known<'a>, window: Window, now: i64) -> Self {
        let classes = with_unfinished(known, window, now);
        let cores = known.usage.cores();
        let crowded = vec![true; window.bins];
        let Used { raw, filter, y } = Used::read(known.usage, window, cores, 0, &crowded);
        let bins: Vec<_> = raw.iter().filter(|used| used.is_finite()).collect();
        let used: f64 = bins.iter().map(|used| f64::from(**used)).sum();
        let rate = used / (bins.len() as f64 * BIN_SECONDS).max(BIN_SECONDS);
        let requests = |series: &ClassSeries| sum(series.mass_in(window));
        let all: f64 = classes.iter().map(|(_, series)| requests(series)).sum();
        let seen = classes.iter().map(|(class, series)| {
            let mine = requests(series);
            let evidence = Evidence {
                requests: mine,
                mean_life: sum(series.progress_in(window)) / mine.max(1e-9),
                window: window.seconds(),
                ..Evidence::default()
            };
            ClassFinding {
                class: *class,
                evidence,
                p: 1.0,
                rate: sum(series.arrivals_in(window)) / window.seconds(),
                ..ClassFinding::default()
            }
        });
        let study = Study {
            seen: seen.collect(),
            utilization: rate / cores.max(f64::MIN_POSITIVE),
            full: filter.full(),
            shift: 0,
            fitted: false,
            scatter: 0.0,
            cores,
        };
        Self {
            mean_cost: rate * window.seconds() / all.max(1e-9),
            folds: Folds::new(window.bins),
            known,
            window,
            now,
            cores,
            classes,
            crowded,
            filter,
            study,
            raw,
            y,
        }
    }

    /// Classes with requests in the window, in the order of what is found.
    pub(super) fn classes(&self) -> impl Iterator<Item = usize> {
        self.study.seen.iter().map(|seen| seen.class)
    }

    /// How full the resource was, before anything else is worked out.
    pub(super) fn utilization(&self) -> f64 {
        self.study.utilization
    }

    /// Completions per second and use per second, of whole seconds; for Pearson.
    pub(super) fn seconds(&self, series: &[f32]) -> Vec<f64> {
        series
            .chunks_exact(10)
            .map(|bins| bins.iter().map(|x| f64::from(*x)).sum())
            .collect()
    }

    /// The use as it was, busy seconds per bin.
    pub(super) fn used(&self) -> &[f32] {
        &self.raw
    }

    /// All steps; what was found.
    pub(super) fn study(mut self) -> Study {
        if self.study.full > FULL_TIME_SHARE {
            self.by_occupancy();
        } else if dot(&self.y, &self.y) > 0.0 {
            self.by_regression();
            self.suspect();
        }
        self.study.scatter = self.scatter_of_late();
        self.note_bounds();
        self.study
    }

    /// Whether the window is short, or the resource has never had room: what lives tell is all there is then.
    fn is_little_known(&self) -> bool {
        let mut room = self.known.room.values();
        self.window.seconds() < WINDOW_MIN || !room.any(|it| it.windows >= WINDOWS_MIN)
    }

    /// What costs may be where the fit tells too little, and from which cost on a class would have been seen.
    fn note_bounds(&mut self) {
        let used = self.study.utilization * self.capacity();
        let noise = self.noise();
        let (capacity, full) = (self.capacity(), self.study.full);
        for (seen, (_, series)) in self.study.seen.iter_mut().zip(&self.classes) {
            let requests = seen.evidence.requests.max(1e-9);
            let life = seen.evidence.mean_life;
            let progress = series.progress_in(self.window);
            if full > FULL_MAX || seen.by_occupancy || is_steady(progress, life) {
                let known = self.known.room.get(&seen.class).map_or(0.0, |it| it.cost);
                seen.evidence.most = (used / requests).min(life * self.cores).max(known);
            }
            let bins = (life / BIN_SECONDS)
                .ceil()
                .clamp(1.0, self.window.bins as f64);
            let chance = DETECTED * noise * (bins / requests).sqrt();
            let gates = (SHARE_MIN * capacity / requests).max(LIFT_MIN * self.mean_cost);
            seen.evidence.least = gates.max(chance);
        }
    }

    /// Scatter of what is not explained, seconds in a bin: what is left beside the named ones, at the most all.
    fn noise(&self) -> f64 {
        let kept = self.filter.kept().max(1) as f64;
        (dot(&self.y, &self.y) / kept).sqrt()
    }

    /// Scatter of the use in the last bins that count, seconds in a bin.
    fn scatter_of_late(&self) -> f64 {
        let bins = self.y.iter().zip(self.filter.counts());
        let counted = bins.rev().filter(|(_, counts)| **counts).take(OF_LATE);
        let squares: Vec<_> = counted.map(|(y, _)| f64::from(*y).powi(2)).collect();
        (squares.iter().sum::<f64>() / squares.len().max(1) as f64).sqrt()
    }

    /// What was found, without looking for culprits.
    pub(super) fn leave(self) -> Study {
        self.study
    }

    /// Aligns the clocks, if that tells one half of the window more of the other.
    fn align(&mut self) -> Option<(Columns, Fit)> {
        let fitted = self.fit();
        let shift = fitted.as_ref().map_or(0, |(it, _)| self.find_shift(it));
        if shift == 0 {
            return fitted;
        }
        let left = |fitted: &Option<(Columns, Fit)>, y: &[f32]| {
            let told = fitted.as_ref().map(|(columns, fit)| {
                unexplained(columns, &fit.parts, &fit.coefficients, &self.folds, y)
            });
            told.unwrap_or(1.0)
        };
        let before = left(&fitted, &self.y);
        let mut used = Used::read(
            self.known.usage,
            self.window,
            self.cores,
            shift,
            &self.crowded,
        );
        std::mem::swap(&mut self.filter, &mut used.filter);
        std::mem::swap(&mut self.y, &mut used.y);
        let shifted = self.fit();
        if left(&shifted, &self.y) < SHIFT_WORTH * before {
            self.raw = used.raw;
            self.study.shift = shift;
            return shifted;
        }
        self.filter = used.filter;
        self.y = used.y;
        fitted
    }

    /// How far the clocks are apart, by the classes that were screened.
    fn find_shift(&self, columns: &Columns) -> i64 {
        let used = |shift| {
            let mut used = self.known.usage.read(self.window, shift);
            let unknown = used.iter_mut().filter(|used| !used.is_finite());
            unknown.for_each(|used| *used = 0.0);
            let (flat, _) = self.filter.apply(&used);
            self.folds.permuted(|bin| flat[bin]).collect()
        };
        let atoms: Vec<_> = columns.values.chunks_exact(self.folds.places()).collect();
        let classes = atoms.chunks_exact(ATOMS);
        let classes: Vec<_> = classes.map(|it| [it[PROGRESS], it[MASS]]).collect();
        best_shift(used, &classes)
    }

    /// Screens the classes and fits those that are left.
    fn fit(&self) -> Option<(Columns, Fit)> {
        let columns = self.screen();
        if columns.classes.is_empty() {
            return None;
        }
        let fit = Fit::of(&columns, &self.permuted(), &self.folds, &[]);
        Some((columns, fit))
    }

    fn screen(&self) -> Columns {
        let maker = Maker {
            window: self.window,
            filter: &self.filter,
            folds: &self.folds,
        };
        maker.screen(&self.classes, &self.y)
    }

    /// The use in the order of the folds.
    fn permuted(&self) -> Vec<f32> {
        self.folds.permuted(|bin| self.y[bin]).collect()
    }

    fn by_regression(&mut self) {
        let Some((mut columns, mut fit)) = self.align() else {
            return;
        };
        let mut requests = columns.requests();
        for _ in 0..VIRTUAL_FITS {
            if self.candidates(&columns, &fit, &requests).is_empty() {
                break;
            }
            let Some(again) = self.fit_by_virtual_time(&columns, &fit) else {
                return;
            };
            (columns, fit) = again;
            requests = columns.requests();
        }
        let candidates = self.candidates(&columns, &fit, &requests);
        let found = cross_fit(
            &columns,
            &fit.parts,
            &fit.coefficients,
            &candidates,
            &self.folds,
            &self.y,
        );
        self.note_shares(&columns, &fit, &requests);
        self.study.fitted = true;
        let arrivals = self.by_arrivals(&columns, &fit, &requests, &candidates);
        for ((place, group), arrivals) in candidates.iter().enumerate().zip(arrivals) {
            let used = self.used_by(group, &columns, &fit, &requests);
            let cost = used / self.most_requests(group, &columns);
            let classes: Vec<_> = group.iter().map(|it| columns.classes[*it]).collect();
            self.judge(place, &classes, [used, cost], &found, arrivals);
        }
        if self.study.full > FULL_MAX {
            self.clear();
        }
    }

    /// Use of a group in the whole window, seconds.
    fn used_by(&self, group: &[usize], columns: &Columns, fit: &Fit, requests: &[f64]) -> f64 {
        let each = group.iter().map(|class| {
            let counted = requests[*class].max(1e-9);
            fit.used(columns, *class) / counted * self.requests(columns.classes[*class])
        });
        each.sum()
    }

    /// Requests of a class in the whole window.
    fn requests(&self, class: usize) -> f64 {
        let seen = self.study.seen.iter().find(|seen| seen.class == class);
        seen.map_or(0.0, |seen| seen.evidence.requests)
    }

    fn capacity(&self) -> f64 {
        self.cores * self.window.seconds()
    }

    fn lift(&self, cost: f64) -> f64 {
        cost / self.mean_cost.max(f64::MIN_POSITIVE)
    }

    /// Groups whose share and cost come near the gates, the greatest use first.
    fn candidates(&self, columns: &Columns, fit: &Fit, requests: &[f64]) -> Vec<Vec<usize>> {
        let groups = groups(columns, self.folds.places()).into_iter();
        let mut candidates: Vec<_> = groups
            .filter_map(|group| {
                let used = self.used_by(&group, columns, fit, requests);
                let cost = used / self.most_requests(&group, columns);
                let near = matters(used / self.capacity(), self.lift(cost), CANDIDATE);
                near.then_some((used, group))
            })
            .collect();
        candidates.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
        candidates.truncate(CANDIDATES_MAX);
        candidates.into_iter().map(|(_, group)| group).collect()
    }

    fn most_requests(&self, group: &[usize], columns: &Columns) -> f64 {
        let each = group
            .iter()
            .map(|class| self.requests(columns.classes[*class]));
        each.fold(1e-9, f64::max)
    }

    /// Fits again by the clock that a fit implies: time in progress and mass are on that clock, and
    /// bins count in which no class slowed another.
    fn fit_by_virtual_time(&mut self, columns: &Columns, fit: &Fit) -> Option<(Columns, Fit)> {
        let demand = self.demand(columns, fit);
        let clock = VirtualTime::new(self.window, &demand, self.cores);
        let most = CROWDED * self.cores * STEPS as f64;
        let bins = demand.chunks_exact(STEPS);
        self.crowded = bins.map(|steps| steps.iter().sum::<f64>() > most).collect();
        let (usage, window) = (self.known.usage, self.window);
        let used = Used::read(usage, window, self.cores, self.study.shift, &self.crowded);
        let same = used.filter.counts() == self.filter.counts();
        let mut columns = if same {
            columns.clone()
        } else {
            (self.filter, self.y) = (used.filter, used.y);
            self.screen()
        };
        if columns.classes.is_empty() {
            return None;
        }
        let changed = self.stretch(&clock, &mut columns);
        let y = self.permuted();
        let fit = match same {
            true => fit.again(&columns, &y, &self.folds, &changed),
            false => Fit::of(&columns, &y, &self.folds, &[]),
        };
        Some((columns, fit))
    }

    /// What all ask for in each step of 10 ms, in cores.
    fn demand(&self, columns: &Columns, fit: &Fit) -> Vec<f64> {
        let mut demand = vec![0.0; self.window.bins * STEPS];
        let mut explained = 0.0;
        let counted = self.filter.kept() as f64 / self.window.bins as f64;
        for (place, class) in columns.classes.iter().enumerate() {
            explained += fit.used(columns, place).max(0.0) / counted.max(1e-9);
            let rate =
                fit.used_in_life(columns, place) / columns.sums[place * ATOMS + PROGRESS].max(1e-9);
            if rate <= 0.0 {
                continue;
            }
            match self.lives(*class) {
                Some(lives) => add_demand(&mut demand, self.window, &lives, rate),
                None => {
                    let series = self.classes.iter().find(|(it, _)| it == class);
                    let progress = series.map(|(_, series)| series.progress_in(self.window));
                    add_binned_demand(&mut demand, progress.unwrap_or(&[]), rate);
                }
            }
        }
        let utilization = self.study.utilization * self.cores;
        let rest = (utilization - explained / self.window.seconds()).max(0.0);
        demand.iter_mut().for_each(|sum| *sum += rest);
        demand
    }

    /// All lives of a class that reach into the window; none if some are forgotten.
    fn lives(&self, class: usize) -> Option<Vec<Life>> {
        let covered = self.known.recent.covers(class, self.window.start_ns());
        covered.then(|| {
            let (mut lives, unfinished) = lives_of(self.known, self.window, class, self.now);
            lives.extend(unfinished);
            lives
        })
    }

    /// Puts the columns of time in progress and mass on this clock; which columns these are.
    fn stretch(&self, clock: &VirtualTime, columns: &mut Columns) -> Vec<usize> {
        let places = self.folds.places();
        let mut changed = Vec::new();
        for place in 0..columns.classes.len() {
            let Some(lives) = self.lives(columns.classes[place]) else {
                continue;
            };
            let stretched = clock.stretch(&lives).into_iter().zip([PROGRESS, MASS]);
            for (column, atom) in stretched {
                let at = place * ATOMS + atom;
                let (column, sum) = self.filter.apply(&column);
                columns.sums[at] = sum;
                let values = &mut columns.values[at * places..(at + 1) * places];
                let permuted = values
                    .iter_mut()
                    .zip(self.folds.permuted(|bin| column[bin]));
                permuted.for_each(|(value, x)| *value = x);
                changed.push(at);
            }
        }
        changed
    }

    /// Share and cost of all that were screened, for a closer look.
    fn note_shares(&mut self, columns: &Columns, fit: &Fit, requests: &[f64]) {
        for (place, class) in columns.classes.iter().enumerate() {
            let used = self.used_by(&[place], columns, fit, requests);
            let cost = used / self.requests(*class).max(1e-9);
            let (share, lift) = (used / self.capacity(), self.lift(cost));
            if let Some(seen) = self.study.seen.iter_mut().find(|seen| seen.class == *class) {
                seen.evidence.share = share;
                seen.evidence.cost = cost;
                seen.evidence.lift = lift;
            }
        }
    }

    /// `used` and `cost` are what the fit says of them all in the window, seconds.
    fn judge(
        &mut self,
        place: usize,
        classes: &[usize],
        [used, cost]: [f64; 2],
        found: &CrossFit,
        arrivals: ByArrivals,
    ) {
        let Some(Slope { value: slope, t }) = found.regression.slopes.get(place).copied() else {
            return;
        };
        let predicted = &found.predicted[place];
        let left: Vec<f32> = found
            .regression
            .residual
            .iter()
            .zip(predicted)
            .map(|(e, p)| e + slope as f32 * p)
            .collect();
        let ShiftNull { z, rm, curve } = shift_null(&left, predicted);
        let holds = slope.min(arrivals.at_most).clamp(0.0, 1.0);
        let (used, cost) = (used * holds, cost * holds);
        let whole = self.study.utilization * self.capacity();
        let freedom = (self.filter.kept() as f64 - 2.0).max(1.0);
        for class in classes.iter().copied() {
            let with = classes.iter().copied();
            let with = with.filter(|other| *other != class).collect();
            let (capacity, lift) = (self.capacity(), self.lift(cost));
            let Some(seen) = self.study.seen.iter_mut().find(|seen| seen.class == class) else {
                continue;
            };
            let evidence = Evidence {
                share: used / capacity,
                lift,
                of_use: used / whole.max(1e-9),
                t,
                z,
                rm,
                slope,
                full: self.study.full,
                arrivals: (arrivals.likely / arrivals.at_most.min(1.0)).clamp(0.0, 1.0),
                cost: used / seen.evidence.requests.max(1e-9),
                ..seen.evidence
            };
            let named = is_culprit(&evidence);
            *seen = ClassFinding {
                evidence,
                p: upper_tail(t, freedom),
                curve: curve.clone(),
                named,
                alone: named && takes_its_cost(&evidence),
                suspected: is_suspected(&evidence).then_some(evidence.share),
                presumed: None,
                with,
                by_occupancy: false,
                cleared: false,
                class,
                rate: seen.rate,
            };
        }
    }
}

fn sum(series: &[f32]) -> f64 {
    series.iter().map(|x| f64::from(*x)).sum()
}

/// The classes that have requests in the window, with those that have not ended.
fn with_unfinished(known: &Known<'_>, window: Window, now: i64) -> Vec<(usize, ClassSeries)> {
    let mut classes: Vec<usize> = known.bins.classes().collect();
    classes.extend(known.unfinished.iter().map(|(class, _)| *class));
    classes.sort_unstable();
    classes.dedup();
    let mut all: Vec<_> = classes
        .into_iter()
        .map(|class| (class, known.bins.read(class, window)))
        .collect();
    for (class, sent) in known.unfinished {
        if let Ok(place) = all.binary_search_by_key(class, |(class, _)| *class) {
            let life = expected_life(known, *class, *sent, now);
            all[place].1.add_unfinished(window, *sent, now, life);
        }
    }
    all.retain(|(_, series)| series.mass_in(window).iter().any(|mass| *mass > 0.0));
    all
}

/// How long an unfinished request is thought to take, nanoseconds.
fn expected_life(known: &Known<'_>, class: usize, sent: i64, now: i64) -> i64 {
    let age = (LIFE_OF_AGE * (now - sent).max(0) as f64) as i64;
    age.max(known.recent.median_life(class))
}

/// Lives of a class that reach into the window: finished ones, and unfinished ones with the end
/// that they are thought to have.
fn lives_of(known: &Known<'_>, window: Window, class: usize, now: i64) -> (Vec<Life>, Vec<Life>) {
    let finished = known.recent.lives(class);
    let finished = finished
        .filter(|(_, ended)| *ended > window.start_ns())
        .collect();
    let median = known.recent.median_life(class);
    let unfinished = known.unfinished.iter().filter(|(it, _)| *it == class);
    let unfinished = unfinished.map(|(_, sent)| {
        let age = (LIFE_OF_AGE * (now - sent).max(0) as f64) as i64;
        (*sent, *sent + age.max(median))
    });
    (finished, unfinished.collect())
}
