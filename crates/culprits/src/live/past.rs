//! What classes used of a resource over the last 15 minutes, in steps of 10 s: the report itself shows a minute.
//!
//! ```text
//! used(step)         = utilization x capacity     of the last evaluation in the step: means over its window (30 s)
//! part(class, step)  = share x capacity           the same
//! ```
//!
//! Inputs: verdicts, by names of classes. Kept are [`CLASSES_MAX`] classes, those with the greatest part in any step, and
//! shown are [`SHOWN_MAX`] of them; a resource has 6 KiB and the names. A class's part is not known before it was among
//! them. Failure case: a class that gets another name counts as another one from then on, and a new process begins with
//! nothing.

use std::collections::BTreeMap;

use tidegate_core::culprits::Verdicts;
use tidegate_core::time::Timestamp;

use crate::picture::report::{PAST_STEPS_MAX, Part, Past};

/// Length of a step, seconds.
const STEP_SECONDS: u64 = 10;
/// Classes that are kept.
const CLASSES_MAX: usize = 16;
/// Classes that are shown.
const SHOWN_MAX: usize = 8;
/// The least share for which a class begins to be kept.
const SHARE_MIN: f64 = 0.005;

/// By the step's number; not a number where nothing is known.
type Ring = [f32; PAST_STEPS_MAX];

/// See the module.
#[derive(Debug)]
pub(super) struct PastUse {
    /// Number of the newest step.
    newest: u64,
    used: Ring,
    /// By name.
    parts: BTreeMap<String, Ring>,
}

impl Default for PastUse {
    fn default() -> Self {
        Self {
            newest: 0,
            used: [f32::NAN; PAST_STEPS_MAX],
            parts: BTreeMap::new(),
        }
    }
}

impl PastUse {
    /// Takes what an evaluation found of so much of the resource; `names` are those of classes by number.
    pub(super) fn record(&mut self, verdicts: &Verdicts, capacity: f64, names: &[String]) {
        let step = number(verdicts.at);
        if step < self.newest {
            return;
        }
        self.advance(step);
        let place = place(step);
        self.used[place] = (verdicts.utilization * capacity) as f32;
        for ring in self.parts.values_mut() {
            ring[place] = 0.0;
        }
        for verdict in &verdicts.classes {
            let name = names.get(verdict.class.index());
            let Some(name) = name.filter(|name| !name.is_empty()) else {
                continue;
            };
            if verdict.share >= SHARE_MIN && !self.parts.contains_key(name) {
                self.parts.insert(name.clone(), [f32::NAN; PAST_STEPS_MAX]);
            }
            if let Some(ring) = self.parts.get_mut(name) {
                ring[place] = (verdict.share * capacity) as f32;
            }
        }
        self.parts.retain(|_, ring| greatest(ring) > 0.0);
        while self.parts.len() > CLASSES_MAX {
            let least = self.by_weight().pop().map(|(name, _)| name.clone());
            least.map(|name| self.parts.remove(&name));
        }
    }

    /// Begins steps up to this one.
    fn advance(&mut self, step: u64) {
        let oldest = step.saturating_sub(PAST_STEPS_MAX as u64 - 1);
        for begun in (self.newest + 1).max(oldest)..=step {
            self.used[place(begun)] = f32::NAN;
            for ring in self.parts.values_mut() {
                ring[place(begun)] = f32::NAN;
            }
        }
        self.newest = step;
    }

    /// The greatest first.
    fn by_weight(&self) -> Vec<(&String, &Ring)> {
        let mut all: Vec<_> = self.parts.iter().collect();
        all.sort_by(|one, other| greatest(other.1).total_cmp(&greatest(one.1)));
        all
    }

    /// What is known of the resource of this name; none: nothing yet. `base` is the Unix time at the clock's zero.
    pub(super) fn show(&self, resource: &str, base: i64) -> Option<Past> {
        let oldest = (self.newest + 1).saturating_sub(PAST_STEPS_MAX as u64);
        let mut steps = oldest..=self.newest;
        let first = steps.find(|step| self.used[place(*step)].is_finite())?;
        let shown = |ring: &Ring| -> Vec<Option<f64>> {
            let values = (first..=self.newest).map(|step| ring[place(step)]);
            values.map(known).collect()
        };
        let begin = (first * STEP_SECONDS) as f64;
        let parts = self.by_weight().into_iter().take(SHOWN_MAX);
        Some(Past {
            resource: resource.to_owned(),
            step_seconds: STEP_SECONDS as f64,
            t0: (begin + base as f64 * 1e-9).round(),
            used: shown(&self.used),
            parts: parts
                .map(|(name, ring)| Part {
                    class: name.clone(),
                    used: shown(ring),
                })
                .collect(),
        })
    }
}

fn number(at: Timestamp) -> u64 {
    at.nanos() / (STEP_SECONDS * 1_000_000_000)
}

fn place(step: u64) -> usize {
    (step % PAST_STEPS_MAX as u64) as usize
}

fn greatest(ring: &Ring) -> f32 {
    ring.iter().copied().fold(0.0, f32::max)
}

/// Three digits behind the point.
fn known(value: f32) -> Option<f64> {
    value
        .is_finite()
        .then(|| (f64::from(value) * 1e3).round() / 1e3)
}

#[cfg(test)]
mod tests {
    use tidegate_core::culprits::Confidence;

    use super::*;
    use crate::picture::sample::{verdict, verdicts};

    /// Unix nanoseconds at the clock's zero.
    const BASE: i64 = 1_000_000_000_000_000_000;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|it| format!("c{it}")).collect()
    }

    /// Verdicts of that second by share, of classes from number 0 on.
    fn shares(second: u64, shares: &[f64]) -> Verdicts {
        let classes = (0..).zip(shares);
        let strong = Some(Confidence::Strong);
        Verdicts {
            at: Timestamp::from_nanos(second * 1_000_000_000),
            utilization: 0.5,
            classes: classes
                .map(|(class, share)| verdict(class, *share, strong))
                .collect(),
            ..verdicts()
        }
    }

    #[test]
    fn a_step_has_what_its_last_evaluation_found() {
        let mut past = PastUse::default();
        assert_eq!(past.show("db cpu", BASE), None);
        past.record(&shares(100, &[0.1]), 4.0, &names(1));
        past.record(&shares(109, &[0.2, 0.01]), 4.0, &names(2));
        // A step without an evaluation, and one in which the first class was not seen.
        past.record(&shares(125, &[]), 4.0, &names(2));
        // One that is over.
        past.record(&shares(101, &[0.9]), 4.0, &names(1));
        let shown = past.show("db cpu", BASE).unwrap();
        assert_eq!((shown.t0, shown.step_seconds), (1_000_000_100.0, 10.0));
        assert_eq!(shown.used, [Some(2.0), None, Some(2.0)]);
        let parts: Vec<_> = shown
            .parts
            .iter()
            .map(|it| (&*it.class, &*it.used))
            .collect();
        let first = [Some(0.8), None, Some(0.0)];
        let second = [Some(0.04), None, Some(0.0)];
        assert_eq!(parts, [("c0", &first[..]), ("c1", &second[..])]);
    }

    #[test]
    fn fifteen_minutes_are_kept_and_what_was_before_is_gone() {
        let mut past = PastUse::default();
        for step in 0..200 {
            let one = if step < 100 { 0.5 } else { 0.0 };
            past.record(&shares(10 * step, &[one, 0.1]), 1.0, &names(2));
        }
        let shown = past.show("db cpu", 0).unwrap();
        assert_eq!((shown.t0, shown.used.len()), (1100.0, PAST_STEPS_MAX));
        let classes: Vec<_> = shown.parts.iter().map(|it| it.class.as_str()).collect();
        assert_eq!(classes, ["c1"]);
        // A pause of hours: nothing of before is shown as if it were of now.
        past.record(&shares(100_000, &[0.3]), 1.0, &names(1));
        let shown = past.show("db cpu", 0).unwrap();
        assert_eq!((shown.used.len(), shown.parts.len()), (1, 1));
        assert_eq!(shown.parts[0].used, [Some(0.3)]);
    }

    #[test]
    fn of_many_classes_those_that_used_most_at_any_time_are_kept() {
        let mut past = PastUse::default();
        let mut many: Vec<f64> = (1..=40).map(|it| f64::from(it) / 1000.0).collect();
        many[0] = 0.2;
        past.record(&shares(0, &many), 1.0, &names(40));
        many[0] = 0.0;
        many.push(0.1);
        past.record(&shares(10, &many), 1.0, &names(41));
        assert_eq!(past.parts.len(), CLASSES_MAX);
        let shown = past.show("db cpu", 0).unwrap();
        assert_eq!(shown.parts.len(), SHOWN_MAX);
        assert_eq!(shown.parts[0].class, "c0");
        assert_eq!(shown.parts[0].used, [Some(0.2), Some(0.0)]);
        // What a class used before it was kept is not known.
        assert_eq!(shown.parts[1].class, "c40");
        assert_eq!(shown.parts[1].used, [None, Some(0.1)]);
        assert!(size_of::<PastUse>() + CLASSES_MAX * size_of::<Ring>() < 6500);
    }

    #[test]
    fn a_class_without_a_name_or_with_hardly_a_share_is_not_kept() {
        let mut past = PastUse::default();
        let names = ["other".to_owned(), String::new()];
        past.record(&shares(0, &[0.004, 0.5, 0.5]), 1.0, &names);
        let shown = past.show("db cpu", 0).unwrap();
        assert_eq!(shown.parts, []);
    }
}
