//! What a whole recording says of what uses a resource, from all evaluations of it.
//!
//! ```text
//! episode    evaluations in a row that tell a class, with holes of 10 s at most
//! accused    if an episode lasts for 30 s: the length of the window
//!            (of a recording below 67.5 s: for half of what comes after the first 7.5 s)
//! cost, share, z, rm    medians over the evaluations of its episodes
//! error      sqrt((2 / t)^2 + 0.2^2)
//! t          sum of t_k / sqrt(K)       over the K windows in them that have nothing in common
//! ```
//!
//! A class that cannot be separated from others in a tenth of the evaluations or more stays ambiguous: that it was
//! named alone in the rest is then as much chance as that the other was not.
//!
//! Evaluations that are 2.5 s apart share most of their windows, so two of them are no second
//! opinion. One event, a crowd or a coincidence, is named as long as any window holds it, which is the
//! length of a window and no longer. A class that is named for longer was seen in two windows that have
//! nothing in common. That does not depend on how long the recording is: a day has 288 times as
//! many windows as five minutes, but for a false accusation two in a row must be wrong in the same way.
//!
//! The error of a cost has a part that more data do not make smaller: 7 % was the median of what was
//! wrong where t was 20 to 50, so 20 % holds for nineteen of twenty.
//!
//! Inputs: verdicts in order of time. Failure case: a culprit that was there only once, for less than a
//! window, is not accused; two crowds in a row, with the same classes in front, can be.
//! Source: Stouffer-1949 for t; the rest was measured on simulated recordings.

use std::collections::BTreeMap;
use std::time::Duration;

use super::pearson::upper_tail;
use super::verdict::{Confidence, Verdict, Verdicts};
use super::{ClassId, Pearson, ResourceId, STRONG};
use crate::stats;
use crate::time::Timestamp;

/// The usual window: so long an episode must last.
const WINDOW: Duration = Duration::from_secs(30);
/// A recording is short if half of it is.
const SHORT: Duration = Duration::from_secs(20);
/// Time from the start of a recording to its first evaluation.
const FIRST_EVALUATION: Duration = Duration::from_millis(7500);
/// Holes in an episode.
const HOLE_MAX: Duration = Duration::from_secs(10);
/// If at least this part of a class's evaluations say so it is ambiguous.
const AMBIGUOUS: f64 = 0.1;
/// Half of the 95 % interval of costs that no amount of data makes smaller.
const SYSTEMATIC: f64 = 0.2;
/// Degrees of freedom of t: blocks of a window.
const FREEDOM: f64 = 300.0;

/// See the module.
#[derive(Debug)]
pub struct WholeRecording {
    /// So long an episode must last.
    least: Duration,
    /// Whether the recording is much too short for two windows: nothing is strong then.
    short: bool,
    by_occupancy: bool,
    /// When the last evaluation was whose window has nothing in common with the one before.
    apart: Option<Timestamp>,
    apart_at: Vec<Timestamp>,
    utilization: Vec<f32>,
    full: Vec<f32>,
    shifts: Vec<i64>,
    last: Option<(ResourceId, Timestamp)>,
    classes: BTreeMap<ClassId, OfClass>,
}

/// When a class was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedSpan {
    /// The first evaluation that named it.
    pub since: Timestamp,
    /// The last one.
    pub until: Timestamp,
    /// How many did.
    pub evaluations: u32,
}

/// What is left of a verdict.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    share: f64,
    cost: f64,
    t: f64,
    z: f64,
    rm: f64,
    high: f64,
    least: f64,
    bounded: bool,
}

/// What evaluations say of a class that is named.
#[derive(Clone, Debug, Default)]
struct Episode {
    span: Option<(Timestamp, Timestamp)>,
    looks: Vec<Look>,
    /// t of windows that have nothing in common.
    apart: Vec<f64>,
    ambiguous: u32,
    occupied: u32,
    with: BTreeMap<ClassId, u32>,
    /// The sum of so many curves.
    curve: (Vec<f32>, f32),
}

#[derive(Debug, Default)]
struct OfClass {
    requests: f64,
    /// In windows that have nothing in common.
    looks: Vec<Look>,
    now: Episode,
    /// All that lasted for long enough.
    accused: Option<Episode>,
}

impl WholeRecording {
    /// For a recording of this length, in the time of its verdicts. `by_occupancy` says whether what
    /// rests on lives alone is believed.
    pub fn new(length: Duration, by_occupancy: bool) -> Self {
        let half = length.saturating_sub(FIRST_EVALUATION) / 2;
        Self {
            least: WINDOW.min(half),
            short: half < SHORT,
            by_occupancy,
            apart: None,
            apart_at: Vec::new(),
            utilization: Vec::new(),
            full: Vec::new(),
            shifts: Vec::new(),
            last: None,
            classes: BTreeMap::new(),
        }
    }

    /// An evaluation.
    pub fn add(&mut self, verdicts: &Verdicts) {
        let at = verdicts.at;
        self.last = Some((verdicts.resource, at));
        let apart = self.apart.is_none_or(|before| at.since(before) >= WINDOW)
            && !verdicts.classes.is_empty()
            && verdicts
                .classes
                .iter()
                .any(|it| it.window >= WINDOW || self.short);
        if apart {
            self.apart = Some(at);
            self.apart_at.push(at);
            self.utilization.push(verdicts.utilization as f32);
            self.full.push(verdicts.full as f32);
            self.shifts.push(verdicts.clock_shift_ms);
        }
        for verdict in &verdicts.classes {
            let class = self.classes.entry(verdict.class).or_default();
            if apart {
                class.requests += verdict.requests;
                class.looks.push(Look::of(verdict));
            }
            let by_occupancy = matches!(verdict.culprit, Some(Confidence::FromOccupancy));
            if verdict.flagged && (self.by_occupancy || !by_occupancy) {
                class.tell(at, verdict, apart, self.least);
            }
        }
    }

    /// What all of them say together, and when accused classes were named.
    pub fn finish(mut self) -> (Verdicts, BTreeMap<ClassId, NamedSpan>) {
        let (resource, at) = self.last.unwrap_or((ResourceId(0), Timestamp::ZERO));
        let mut flagged = BTreeMap::new();
        let mut classes = Vec::new();
        let window = WINDOW * u32::try_from(self.apart_at.len()).unwrap_or(u32::MAX);
        for (class, mut seen) in std::mem::take(&mut self.classes) {
            seen.close(self.least);
            if let Some((since, until)) = seen.accused.as_ref().and_then(|it| it.span) {
                let many = seen.accused.as_ref().map_or(0, |it| it.looks.len());
                let evaluations = u32::try_from(many).unwrap_or(u32::MAX);
                flagged.insert(
                    class,
                    NamedSpan {
                        since,
                        until,
                        evaluations,
                    },
                );
            }
            classes.push(seen.verdict(class, window, self.short));
        }
        classes.sort_by(|one, other| {
            let order = other.share.total_cmp(&one.share);
            order.then(one.class.cmp(&other.class))
        });
        let mean = |values: &[f32]| {
            let sum: f64 = values.iter().map(|it| f64::from(*it)).sum();
            sum / (values.len() as f64).max(1.0)
        };
        self.shifts.sort_unstable();
        let verdicts = Verdicts {
            resource,
            at,
            utilization: mean(&self.utilization),
            full: mean(&self.full),
            clock_shift_ms: self.shifts.get(self.shifts.len() / 2).copied().unwrap_or(0),
            classes,
        };
        let mut all = [verdicts];
        Verdicts::adjust_together(&mut all);
        let [verdicts] = all;
        (verdicts, flagged)
    }
}

impl Look {
    fn of(verdict: &Verdict) -> Self {
        Self {
            share: verdict.share,
            cost: verdict.cost_seconds,
            t: verdict.t,
            z: verdict.z,
            rm: verdict.shift_ratio,
            high: verdict.cost_range[1],
            least: verdict.least_cost_seconds,
            bounded: verdict.bounded,
        }
    }

    fn medians(looks: &[Self]) -> Self {
        let median = |of: fn(&Self) -> f64| {
            let mut values: Vec<f64> = looks.iter().map(of).collect();
            stats::quantile(&mut values, 0.5).unwrap_or(0.0)
        };
        Self {
            share: median(|it| it.share),
            cost: median(|it| it.cost),
            t: median(|it| it.t),
            z: median(|it| it.z),
            rm: median(|it| it.rm),
            high: median(|it| it.high),
            least: median(|it| it.least),
            bounded: 2 * looks.iter().filter(|it| it.bounded).count() > looks.len(),
        }
    }
}

impl Episode {
    fn lasts(&self) -> Duration {
        self.span
            .map_or(Duration::ZERO, |(from, to)| to.since(from))
    }

    fn add(&mut self, at: Timestamp, verdict: &Verdict, apart: bool) {
        self.span = Some((self.span.map_or(at, |(from, _)| from), at));
        self.looks.push(Look::of(verdict));
        if apart {
            self.apart.push(verdict.t);
        }
        match verdict.culprit {
            Some(Confidence::Ambiguous) => {
                self.ambiguous += 1;
                for other in &verdict.ambiguous_with {
                    *self.with.entry(*other).or_default() += 1;
                }
            }
            Some(Confidence::FromOccupancy) => self.occupied += 1,
            Some(Confidence::Confirmed | Confidence::Strong | Confidence::Likely) | None => {}
        }
        self.add_curve(&verdict.shift_curve, 1.0);
    }

    /// Curves of short windows are shorter; only the longest are kept.
    fn add_curve(&mut self, curve: &[f32], many: f32) {
        let (sum, count) = &mut self.curve;
        if curve.len() > sum.len() {
            *sum = vec![0.0; curve.len()];
            *count = 0.0;
        }
        if curve.len() == sum.len() {
            sum.iter_mut().zip(curve).for_each(|(sum, r)| *sum += r);
            *count += many;
        }
    }

    fn join(&mut self, other: Self) {
        self.span = match (self.span, other.span) {
            (Some((from, _)), Some((_, to))) => Some((from, to)),
            (one, None) | (None, one) => one,
        };
        self.looks.extend(other.looks);
        self.apart.extend(other.apart);
        self.ambiguous += other.ambiguous;
        self.occupied += other.occupied;
        for (class, many) in other.with {
            *self.with.entry(class).or_default() += many;
        }
        self.add_curve(&other.curve.0, other.curve.1);
    }

    /// How sure the recording is.
    fn confidence(&self, t: f64, rm: f64, short: bool) -> Confidence {
        let part = |count: u32| f64::from(count) / self.looks.len() as f64;
        if part(self.occupied) > 0.5 {
            return Confidence::FromOccupancy;
        }
        if part(self.ambiguous) >= AMBIGUOUS {
            return Confidence::Ambiguous;
        }
        match t >= STRONG.0 && rm >= STRONG.1 && !short {
            true => Confidence::Strong,
            false => Confidence::Likely,
        }
    }

    /// Classes that it could not be separated from in most of the evaluations that were ambiguous.
    fn often_with(&self) -> Vec<ClassId> {
        let often = (self.with.iter()).filter(|(_, many)| 2 * **many > self.ambiguous);
        often.map(|(class, _)| *class).collect()
    }
}

impl OfClass {
    fn tell(&mut self, at: Timestamp, verdict: &Verdict, apart: bool, least: Duration) {
        let last = self.now.span.map(|(_, to)| to);
        if last.is_some_and(|last| at.since(last) > HOLE_MAX) {
            self.close(least);
        }
        self.now.add(at, verdict, apart);
    }

    /// The episode is over.
    fn close(&mut self, least: Duration) {
        let over = std::mem::take(&mut self.now);
        if over.span.is_some() && over.lasts() >= least {
            match &mut self.accused {
                Some(accused) => accused.join(over),
                None => self.accused = Some(over),
            }
        }
    }

    fn verdict(&self, class: ClassId, window: Duration, short: bool) -> Verdict {
        let episode = self.accused.as_ref();
        let tested: Vec<Look> = self
            .looks
            .iter()
            .filter(|it| it.t != 0.0)
            .copied()
            .collect();
        let looks = episode.map_or(&tested, |it| &it.looks);
        let Look {
            share,
            cost,
            z,
            rm,
            t,
            high,
            least,
            bounded,
        } = match looks.is_empty() {
            true => Look::medians(&self.looks),
            false => Look::medians(looks),
        };
        let apart: Vec<f64> = match episode {
            Some(episode) if !episode.apart.is_empty() => episode.apart.clone(),
            Some(_) => vec![t],
            None => self.looks.iter().map(|it| it.t).collect(),
        };
        let t = apart.iter().sum::<f64>() / (apart.len() as f64).max(1.0).sqrt();
        let curve = episode.map(|it| {
            let (sum, many) = &it.curve;
            sum.iter().map(|r| r / many.max(1.0)).collect()
        });
        let error = match t > 0.0 {
            // `hypot` would be the one function that asks for glibc 2.35.
            true => (2.0 / t).mul_add(2.0 / t, SYSTEMATIC * SYSTEMATIC).sqrt(),
            false => f64::INFINITY,
        };
        let high = match (bounded, error.is_finite()) {
            (true, _) | (_, false) => high,
            (false, true) => cost * (1.0 + error),
        };
        let culprit = episode.map(|it| it.confidence(t, rm, short));
        Verdict {
            class,
            requests: self.requests,
            share,
            cost_seconds: cost,
            relative_error: error,
            cost_range: [cost * (1.0 - error).max(0.0), high],
            bounded,
            least_cost_seconds: least,
            t,
            z,
            shift_ratio: rm,
            p: if t == 0.0 {
                1.0
            } else {
                upper_tail(t, FREEDOM)
            },
            p_adjusted: 1.0,
            pearson: Pearson::UNKNOWN,
            shift_curve: curve.unwrap_or_default(),
            window,
            culprit,
            ambiguous_with: episode
                .filter(|_| culprit == Some(Confidence::Ambiguous))
                .map_or(Vec::new(), Episode::often_with),
            suspected: None,
            presumed: None,
            flagged: episode.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(class: u16, culprit: Option<Confidence>) -> Verdict {
        let ambiguous = culprit == Some(Confidence::Ambiguous);
        Verdict {
            class: ClassId(class),
            requests: 60.0,
            share: 0.2,
            cost_seconds: 0.1,
            relative_error: 0.4,
            cost_range: [0.06, 0.14],
            bounded: false,
            least_cost_seconds: 0.01,
            t: 5.0,
            z: 6.0,
            shift_ratio: 3.0,
            p: 1e-6,
            p_adjusted: 1e-5,
            pearson: Pearson::UNKNOWN,
            shift_curve: vec![0.0, 1.0, 0.0],
            window: WINDOW,
            suspected: None,
            presumed: None,
            flagged: culprit.is_some(),
            culprit,
            ambiguous_with: vec![ClassId(2); usize::from(ambiguous)],
        }
    }

    /// Evaluations every 2.5 s up to so many seconds, and what each says of class 1.
    fn whole(
        seconds: u64,
        of: impl Fn(f64) -> Option<Confidence>,
    ) -> (Verdicts, Option<NamedSpan>) {
        let mut whole = WholeRecording::new(Duration::from_secs(seconds), true);
        for place in 3..=seconds * 2 / 5 {
            let at = place as f64 * 2.5;
            whole.add(&Verdicts {
                resource: ResourceId(3),
                at: Timestamp::from_millis((at * 1e3) as u64),
                utilization: 0.5,
                full: 0.0,
                clock_shift_ms: 0,
                classes: vec![verdict(1, of(at)), verdict(2, None)],
            });
        }
        let (verdicts, mut flagged) = whole.finish();
        (verdicts, flagged.remove(&ClassId(1)))
    }

    fn of_class_1(verdicts: &Verdicts) -> &Verdict {
        let found = verdicts.classes.iter().find(|it| it.class == ClassId(1));
        found.unwrap_or_else(|| panic!("class 1 is missing"))
    }

    #[test]
    fn a_class_that_is_flagged_all_the_time_is_accused_and_t_grows_with_the_windows() {
        let (verdicts, flagged) = whole(300, |_| Some(Confidence::Likely));
        let flagged = flagged.unwrap();
        assert_eq!(flagged.evaluations, 118);
        assert_eq!(flagged.since, Timestamp::from_millis(7500));
        let found = of_class_1(&verdicts);
        // Ten windows.
        assert!((found.t - 5.0 * 10_f64.sqrt()).abs() < 1e-9, "{}", found.t);
        assert!((found.relative_error - (2.0 / found.t).hypot(0.2)).abs() < 1e-9);
        assert_eq!(found.culprit, Some(Confidence::Strong));
        assert_eq!(
            (found.share, found.cost_seconds, found.requests),
            (0.2, 0.1, 600.0)
        );
        assert_eq!(found.shift_curve, [0.0, 1.0, 0.0]);
        assert_eq!(verdicts.resource, ResourceId(3));
        assert_eq!(verdicts.flagged().count(), 1);
    }

    #[test]
    fn one_event_accuses_nobody_and_a_lasting_one_in_a_long_recording_does() {
        let flagged_for = |seconds: f64| {
            let within = move |at: f64| (100.0..=100.0 + seconds).contains(&at);
            let (verdicts, flagged) =
                whole(3600, move |at| within(at).then_some(Confidence::Likely));
            assert_eq!(of_class_1(&verdicts).flagged, flagged.is_some());
            flagged.is_some()
        };
        assert!(!flagged_for(27.5));
        assert!(flagged_for(30.0));
        // Two events that are hours apart are not one that lasts.
        let (verdicts, _) = whole(3600, |at| {
            let twice = (100.0..=125.0).contains(&at) || (3000.0..=3025.0).contains(&at);
            twice.then_some(Confidence::Likely)
        });
        assert_eq!(verdicts.flagged().count(), 0);
    }

    #[test]
    fn a_short_recording_accuses_by_half_and_is_never_strong() {
        let (verdicts, _) = whole(40, |_| Some(Confidence::Strong));
        assert_eq!(of_class_1(&verdicts).culprit, Some(Confidence::Likely));
        let (verdicts, _) = whole(40, |at| (at > 30.0).then_some(Confidence::Strong));
        assert!(!of_class_1(&verdicts).flagged);
    }

    #[test]
    fn classes_that_cannot_be_separated_now_and_then_stay_so() {
        let mixed = |at: f64| match (at / 2.5) as u64 % 3 {
            0 => Some(Confidence::Ambiguous),
            _ => Some(Confidence::Strong),
        };
        let (verdicts, _) = whole(300, mixed);
        let verdict = of_class_1(&verdicts);
        assert_eq!(verdict.culprit, Some(Confidence::Ambiguous));
        assert_eq!(verdict.ambiguous_with, [ClassId(2)]);
    }

    #[test]
    fn occupancy_is_believed_only_where_that_is_said() {
        let occupied = Some(Confidence::FromOccupancy);
        let (verdicts, _) = whole(300, |_| occupied);
        assert_eq!(of_class_1(&verdicts).culprit, occupied);
        let mut not_believed = WholeRecording::new(Duration::from_secs(300), false);
        for at in (0..300).step_by(2) {
            not_believed.add(&Verdicts {
                resource: ResourceId(0),
                at: Timestamp::from_millis(at * 1000),
                utilization: 1.0,
                full: 1.0,
                clock_shift_ms: 0,
                classes: vec![verdict(1, occupied)],
            });
        }
        let (verdicts, flagged) = not_believed.finish();
        assert!(flagged.is_empty() && verdicts.flagged().count() == 0);
        assert_eq!(verdicts.full, 1.0);
    }

    #[test]
    fn nothing_says_nothing() {
        let (verdicts, flagged) = WholeRecording::new(Duration::ZERO, true).finish();
        assert!(verdicts.classes.is_empty() && flagged.is_empty());
    }
}
