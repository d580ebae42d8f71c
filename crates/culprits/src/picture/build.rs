//! From material to the report.
//!
//! ```text
//! part(class, t)   = cost x requests of the class, each spread over its life     never more than was used
//! lift             = cost / (use / requests)                                     over the verdicts' window
//! r, p             of completions per second against use, over what is shown
//! scatter          requests in progress and use, by step
//! ```
//!
//! Inputs: a [`Material`]. Failure case: parts are estimates, and what a class uses before or behind its
//! requests is drawn within them.

use std::collections::BTreeSet;

use tidegate_core::classes::ClassId;
use tidegate_core::culprits::{Confidence, Pearson, Verdict, Verdicts};

use super::lives::{Lives, heatmap, nanos, no_counts};
use super::report::{
    CLASSES_MAX, Cell, Class, Heatmap, NOTES_MAX, Pair, Part, RESOURCES_MAX, ROWS_MAX, Report,
    Resource, SCATTER_MAX, STEPS_MAX,
};
use super::steps::Steps;
use super::{Material, ResourceMaterial};
use crate::correlate::{intervals, pearson};
use crate::evidence::{Lived, mean_use};
use crate::resource::{Span, Unit, usual_length};
use crate::time::SECOND;

/// Shortest step of a series.
const STEP_MIN: i64 = SECOND / 10;
/// Shortest row of the heat map.
const ROW_MIN: i64 = SECOND / 2;
/// Classes with a cell of their own in the heat map, besides accused ones.
const CELLS_MAX: usize = 40;
/// Classes with a scatter, for each resource.
const SCATTERED_MAX: usize = 24;
/// A shift of the verdict's curve, milliseconds.
const SHIFT_MS: f64 = 100.0;

/// A resource, with what is worked out once for all classes.
struct Shown<'a> {
    material: &'a ResourceMaterial<'a>,
    steps: Steps,
    used: Vec<f64>,
    /// What completions are compared with.
    intervals: Vec<Span>,
    scattered: BTreeSet<ClassId>,
    /// Seconds of the resource per request, of an average request.
    mean_cost: f64,
}

pub(super) struct Builder<'a> {
    material: &'a Material<'a>,
    lives: Vec<Lives<'a>>,
    shown: Vec<Shown<'a>>,
    /// Time in progress of each class, seconds.
    seconds: Vec<f64>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(material: &'a Material<'a>) -> Self {
        let lives = by_class(material);
        let ends = || {
            lives
                .iter()
                .filter_map(|it| Some((it.ended.first()?, it.ended.last()?)))
        };
        let first = ends().map(|(first, _)| nanos(first.ended)).min();
        let last = ends().map(|(_, last)| nanos(last.ended)).max();
        let ends = (first.unwrap_or(material.to), last.unwrap_or(material.from));
        let shown = material.resources.iter().take(RESOURCES_MAX);
        let shown = shown.map(|it| Shown::new(material, it, ends)).collect();
        let time = (material.from, material.to);
        Self {
            seconds: lives.iter().map(|it| it.seconds(time)).collect(),
            material,
            lives,
            shown,
        }
    }

    pub(super) fn report(&self) -> Report {
        let material = self.material;
        let order = self.order();
        let ended: usize = self.lives.iter().map(|it| it.ended.len()).sum();
        let mut notes = material.notes.clone();
        notes.extend(self.shown.iter().filter_map(Shown::clock));
        notes.truncate(NOTES_MAX);
        Report {
            mode: material.mode,
            from: unix_seconds(material.from),
            to: unix_seconds(material.to),
            requests: ended as u64,
            notes,
            resources: self.shown.iter().map(|it| self.resource(it)).collect(),
            classes: order.iter().map(|class| self.class(*class)).collect(),
            heatmap: (ended > 0).then(|| self.heatmap(&order)),
            past: Vec::new(),
        }
    }

    /// Classes that are shown: accused ones first, then those with the most time in progress.
    fn order(&self) -> Vec<ClassId> {
        let many = u16::try_from(self.lives.len()).unwrap_or(u16::MAX);
        let classes = (0..many).map(ClassId);
        let is_there = |class: &ClassId| {
            let lives = &self.lives[class.index()];
            let throttled = self.material.classes[class.index()].throttle.is_some();
            let there = !lives.ended.is_empty() || !lives.unfinished.is_empty();
            !self.name(*class).is_empty() && (there || throttled || self.share(*class).is_some())
        };
        let mut classes: Vec<_> = classes.filter(is_there).collect();
        let weight = |class: &ClassId| {
            let share = self.share(*class).unwrap_or(-1.0);
            let ended = self.lives[class.index()].ended.len();
            (share, self.seconds[class.index()], ended)
        };
        classes.sort_by(|one, other| {
            let (one, other) = (weight(one), weight(other));
            let by_share = other.0.total_cmp(&one.0);
            by_share
                .then(other.1.total_cmp(&one.1))
                .then(other.2.cmp(&one.2))
        });
        classes.truncate(CLASSES_MAX);
        classes
    }

    /// The greatest share of any resource for which the class is accused.
    fn share(&self, class: ClassId) -> Option<f64> {
        let accused = self.shown.iter().filter_map(|it| it.accused(class));
        accused.map(|it| it.share).max_by(f64::total_cmp)
    }

    fn name(&self, class: ClassId) -> &str {
        let known = self.material.classes.get(class.index());
        known.map_or("", |known| known.name.as_str())
    }

    fn resource(&self, shown: &Shown<'_>) -> Resource {
        let it = shown.material;
        let verdicts = it.verdicts;
        let window = verdicts.map(|it| window(it) * shown.material.time_scale);
        Resource {
            name: it.name.clone(),
            node: it.node.clone(),
            capacity: shown.capacity(),
            unit: unit(it).into(),
            step_seconds: shown.steps.seconds(),
            t0: shown.steps.t0(),
            used: shown.used.iter().map(|used| known(*used)).collect(),
            parts: self.parts(shown),
            verdict_seconds: window.filter(|seconds| *seconds > 0.0),
            basis: it.basis.map(|basis| basis.label().to_owned()),
            saturated_share: verdicts.map(|it| short(it.full)),
            evaluated_at: it.evaluated_at.map(unix_seconds),
        }
    }

    /// Estimated parts of accused classes, the greatest first.
    fn parts(&self, shown: &Shown<'_>) -> Vec<Part> {
        let verdicts = shown.material.verdicts.map_or(&[][..], |it| &it.classes);
        let accused = verdicts.iter().filter(|it| it.flagged);
        let accused = accused.filter(|it| self.lives.len() > it.class.index());
        let mut parts: Vec<(ClassId, Vec<f64>)> = accused
            .map(|it| {
                let cost = it.cost_seconds * shown.material.time_scale;
                let lives = &self.lives[it.class.index()];
                (
                    it.class,
                    lives.used(shown.steps, self.material.to, cost.max(0.0)),
                )
            })
            .collect();
        for (step, used) in shown.used.iter().enumerate() {
            let sum: f64 = parts.iter().map(|(_, part)| part[step]).sum();
            let fits = if sum > *used { used / sum } else { 1.0 };
            parts.iter_mut().for_each(|(_, part)| part[step] *= fits);
        }
        let part = |(class, used): (ClassId, Vec<f64>)| Part {
            class: self.name(class).to_owned(),
            used: used.into_iter().map(known).collect(),
        };
        parts.into_iter().map(part).collect()
    }

    fn class(&self, class: ClassId) -> Class {
        let lives = &self.lives[class.index()];
        let length = (self.material.to - self.material.from) as f64 / SECOND as f64;
        let per_second = (length > 0.0).then(|| lives.ended.len() as f64 / length);
        let durations = lives.durations();
        let known = durations.is_some() || !lives.unfinished.is_empty();
        let in_progress = known.then(|| self.seconds[class.index()] / length.max(1e-9));
        let ends: Vec<i64> = lives.ended.iter().map(|it| nanos(it.ended)).collect();
        let pairs = self.shown.iter();
        Class {
            name: self.name(class).to_owned(),
            pattern: self.material.classes[class.index()].pattern.clone(),
            requests: lives.ended.len() as u64,
            per_second: per_second.map(short),
            in_progress: in_progress.map(short),
            p50_ms: durations.map(|it| short(it.p50)),
            p90_ms: durations.map(|it| short(it.p90)),
            p99_ms: durations.map(|it| short(it.p99)),
            max_ms: durations.map(|it| short(it.max)),
            throttle: self.material.classes[class.index()].throttle.clone(),
            pairs: pairs.map(|shown| self.pair(shown, class, &ends)).collect(),
        }
    }

    fn pair(&self, shown: &Shown<'_>, class: ClassId, ends: &[i64]) -> Pair {
        let verdict = shown.verdict(class);
        let accused = shown.accused(class);
        let scale = shown.material.time_scale;
        let tested = verdict.filter(|it| it.t != 0.0);
        let priced = verdict.filter(|it| it.cost_seconds > 0.0);
        let Pearson { r, p } = pearson(ends, &shown.intervals).unwrap_or(Pearson {
            r: f64::NAN,
            p: f64::NAN,
        });
        let with = accused.map_or(&[][..], |it| &it.ambiguous_with);
        let curve = verdict.map_or(&[][..], |it| &it.shift_curve);
        let middle = (curve.len() / 2) as f64;
        let shift = |place: usize| (place as f64 - middle) * SHIFT_MS * scale;
        let named_at = shown
            .material
            .named_at
            .get(&class)
            .filter(|_| accused.is_some());
        Pair {
            resource: shown.material.name.clone(),
            share: verdict.and_then(|it| known(it.share)),
            cost_ms: priced.and_then(|it| known(it.cost_seconds * scale * 1e3)),
            cost_error: priced.and_then(|it| known(it.relative_error)),
            cost_low_ms: priced.and_then(|it| known(it.cost_range[0] * scale * 1e3)),
            cost_high_ms: priced.and_then(|it| known(it.cost_range[1] * scale * 1e3)),
            cost_bounded: priced.is_some_and(|it| it.bounded),
            least_cost_ms: verdict
                .filter(|it| it.least_cost_seconds > 0.0)
                .and_then(|it| known(it.least_cost_seconds * scale * 1e3)),
            lift: priced.and_then(|it| known(it.cost_seconds / shown.mean_cost)),
            t: tested.and_then(|it| known(it.t)),
            z: tested.and_then(|it| known(it.z)),
            rm: tested.and_then(|it| known(it.shift_ratio)),
            p: tested.and_then(|it| known(it.p)),
            p_adjusted: tested.and_then(|it| known(it.p_adjusted)),
            pearson_r: known(r),
            pearson_p: known(p),
            confidence: accused.map(word),
            doubtful: accused.is_some_and(|it| it.culprit == Some(Confidence::FromOccupancy)),
            ambiguous_with: with.iter().map(|it| self.name(*it).to_owned()).collect(),
            named_at: named_at.map(|at| unix_seconds(*at)),
            shift_ms: (0..curve.len()).map(|it| short(shift(it))).collect(),
            shift_r: curve.iter().map(|r| known(f64::from(*r))).collect(),
            scatter: self.scatter(shown, class),
        }
    }

    fn scatter(&self, shown: &Shown<'_>, class: ClassId) -> Vec<[f64; 2]> {
        if !shown.scattered.contains(&class) {
            return Vec::new();
        }
        let in_progress = self.lives[class.index()].in_progress(shown.steps, self.material.to);
        let pairs: Vec<_> = in_progress.into_iter().zip(&shown.used).collect();
        let together = pairs.len().div_ceil(SCATTER_MAX).max(1);
        let mean = |chunk: &[(f64, &f64)]| {
            let known = chunk.iter().filter(|(_, used)| used.is_finite());
            let many = known.clone().count() as f64;
            let sums = known.fold((0.0, 0.0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
            (many > 0.0).then(|| [short(sums.0 / many), short(sums.1 / many)])
        };
        pairs.chunks(together).filter_map(mean).collect()
    }

    fn heatmap(&self, order: &[ClassId]) -> Heatmap {
        let time = (self.material.from, self.material.to);
        let rows = Steps::of(time, ROWS_MAX, ROW_MIN);
        let mut map = heatmap(rows);
        let mut rest = no_counts(rows);
        for (place, class) in order.iter().enumerate() {
            let lives = &self.lives[class.index()];
            // What has no name is all the same with the rest.
            if (place < CELLS_MAX || self.share(*class).is_some()) && *class != ClassId::OTHER {
                let mut counts = no_counts(rows);
                lives.count(rows, &mut counts);
                let class = self.name(*class).to_owned();
                map.cells.push(Cell { class, counts });
            } else {
                lives.count(rows, &mut rest);
            }
        }
        let shown: BTreeSet<ClassId> = order.iter().copied().collect();
        for (class, lives) in self.lives.iter().enumerate() {
            if u16::try_from(class).is_ok_and(|class| !shown.contains(&ClassId(class))) {
                lives.count(rows, &mut rest);
            }
        }
        if rest.iter().flatten().any(|count| *count > 0) {
            let (class, counts) = ("other".to_owned(), rest);
            map.cells.push(Cell { class, counts });
        }
        map
    }
}

impl<'a> Shown<'a> {
    fn new(
        material: &Material<'_>,
        resource: &'a ResourceMaterial<'a>,
        (first_end, last_end): (i64, i64),
    ) -> Self {
        let (from, to) = (material.from, material.to);
        let least = usual_length(resource.spans).max(STEP_MIN);
        let steps = Steps::of((from, to), STEPS_MAX, least);
        let within = resource.spans.partition_point(|span| span.to <= from);
        let spans = &resource.spans[within..];
        let spans = &spans[..spans.partition_point(|span| span.from < to)];
        let used = mean_use(spans, steps.start, steps.length, steps.count);
        let mut shown = Self {
            intervals: intervals(spans, first_end, last_end),
            material: resource,
            steps,
            used,
            scattered: BTreeSet::new(),
            mean_cost: f64::NAN,
        };
        if let Some(verdicts) = resource.verdicts {
            shown.scattered = scattered(verdicts);
            let requests: f64 = verdicts.classes.iter().map(|it| it.requests).sum();
            let used = verdicts.utilization * shown.capacity() * window(verdicts);
            shown.mean_cost = used / requests;
        }
        shown
    }

    fn capacity(&self) -> f64 {
        match self.material.unit {
            Unit::Busy { capacity } => capacity,
            Unit::Rate => {
                let most = self.used.iter().copied().filter(|used| used.is_finite());
                most.fold(0.0, f64::max).max(f64::MIN_POSITIVE)
            }
        }
    }

    fn verdict(&self, class: ClassId) -> Option<&Verdict> {
        let verdicts = self.material.verdicts?;
        verdicts.classes.iter().find(|it| it.class == class)
    }

    fn accused(&self, class: ClassId) -> Option<&Verdict> {
        self.verdict(class).filter(|it| it.flagged)
    }

    /// What was found of its clock, for people.
    fn clock(&self) -> Option<String> {
        let verdicts = self.material.verdicts?;
        let ahead = verdicts.clock_shift_ms as f64 * self.material.time_scale;
        let way = if ahead > 0.0 { "ahead" } else { "behind" };
        let (name, by) = (&self.material.name, short(ahead.abs()));
        (ahead != 0.0).then(|| format!("The clock of {name} is {by} ms {way}; this is corrected."))
    }
}

/// Requests that are shown, by class; those that ended by their ends.
fn by_class<'a>(material: &Material<'a>) -> Vec<Lives<'a>> {
    let mut lives: Vec<Lives<'a>> = Vec::new();
    lives.resize_with(material.classes.len(), Lives::default);
    let shown = |lived: &&Lived| {
        let ended = nanos(lived.ended);
        ended >= material.from && ended <= material.to
    };
    for lived in material.requests.iter().filter(shown) {
        if let Some(lives) = lives.get_mut(lived.class.index()) {
            lives.ended.push(lived);
        }
    }
    for (class, sent) in material.unfinished {
        if let Some(lives) = lives.get_mut(class.index()) {
            lives.unfinished.push(nanos(*sent));
        }
    }
    for lives in &mut lives {
        lives.ended.sort_by_key(|lived| lived.ended);
    }
    lives
}

/// Classes that a scatter is worth its room for: accused ones, then the greatest.
fn scattered(verdicts: &Verdicts) -> BTreeSet<ClassId> {
    let mut all: Vec<&Verdict> = verdicts.classes.iter().collect();
    all.sort_by(|one, other| {
        let by_flag = other.flagged.cmp(&one.flagged);
        by_flag.then(other.share.total_cmp(&one.share))
    });
    all.iter().take(SCATTERED_MAX).map(|it| it.class).collect()
}

/// How sure it is. What was named by the two evaluations before and not by the last one is likely.
fn word(verdict: &Verdict) -> String {
    let sure = verdict.culprit.unwrap_or(Confidence::Likely);
    sure.label().to_owned()
}

/// Longest window of the verdicts, seconds.
fn window(verdicts: &Verdicts) -> f64 {
    let windows = verdicts.classes.iter().map(|it| it.window.as_secs_f64());
    windows.fold(0.0, f64::max)
}

fn unit(resource: &ResourceMaterial<'_>) -> &'static str {
    match resource.unit {
        Unit::Busy { .. } if resource.name.contains("cpu") => "cores",
        Unit::Busy { .. } => "busy",
        Unit::Rate => "per second",
    }
}

fn unix_seconds(nanos: i64) -> f64 {
    nanos as f64 / SECOND as f64
}

/// A number that is known, in four digits.
fn known(value: f64) -> Option<f64> {
    value.is_finite().then(|| short(value))
}

/// Four digits are enough for a picture.
fn short(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10_f64.powi(3 - value.abs().log10().floor() as i32);
    match scale.is_finite() && scale > 0.0 {
        true => (value * scale).round() / scale,
        false => value,
    }
}
