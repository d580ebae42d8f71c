//! What is kept of a second, or of ten: of a site and of a node.
//!
//! Counts of ten seconds are sums. Its p99 is the largest of its seconds, and so at least the true one; its p50 is the mean
//! of theirs by their answers. Of a node's load and state the worst counts.

use tidegate_core::load::NodeLoad;
use tidegate_proxy::{Ending, Reason, SiteSnapshot};

use super::series::Sample;

/// Reasons that a sample names; the others are counted with the rest.
const REASONS: usize = 4;
/// No load is known.
const UNKNOWN: u8 = u8::MAX;
/// From here on CPUs are in use all the time.
const BUSY: u8 = 90;
/// From here on more tasks wait than run.
const CROWDED: u8 = 150;

/// A site.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SiteSample {
    /// Requests that ended.
    pub(super) ended: u32,
    /// Those of them that were rejected.
    pub(super) refused: u32,
    /// Those of them that failed.
    pub(super) failed: u32,
    /// Answers of its nodes with a server error.
    pub(super) answered_errors: u32,
    /// Requests that waited for room at the end.
    pub(super) queued: u32,
    /// Seconds; not a number without an answer.
    pub(super) p50: f32,
    /// Likewise.
    pub(super) p99: f32,
    /// Most frequent reasons of rejections and failures: one more than the index, 0 if there is none; and how often.
    pub(super) reasons: [(u8, u32); REASONS],
}

impl Default for SiteSample {
    fn default() -> Self {
        Self {
            ended: 0,
            refused: 0,
            failed: 0,
            answered_errors: 0,
            queued: 0,
            p50: f32::NAN,
            p99: f32::NAN,
            reasons: [(0, 0); REASONS],
        }
    }
}

/// Counters of a site at two moments, and those of its nodes that count for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted<'a> {
    /// Before.
    pub(crate) then: &'a SiteSnapshot,
    /// Now.
    pub(crate) now: &'a SiteSnapshot,
    /// Answers of its nodes with a server error, in between.
    pub(crate) answered_errors: u64,
}

impl SiteSample {
    /// What happened between two moments.
    pub(crate) fn between(counted: Counted<'_>) -> Self {
        let Counted {
            then,
            now,
            answered_errors,
        } = counted;
        let grown =
            |now: u64, then: u64| u32::try_from(now.saturating_sub(then)).unwrap_or(u32::MAX);
        let latency = now.latency.since(&then.latency);
        let quantile = |at| {
            latency
                .quantile_seconds(at)
                .map_or(f32::NAN, |it| it as f32)
        };
        let mut reasons: Vec<_> = (1..)
            .zip(Reason::ALL)
            .filter(|(_, reason)| matches!(reason.ending(), Ending::Failed | Ending::Rejected))
            .map(|(place, reason)| (place, grown(now.reason(*reason), then.reason(*reason))))
            .filter(|(_, count)| *count > 0)
            .collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        reasons.resize(REASONS, (0, 0));
        let mut sample = Self {
            ended: grown(now.ended(), then.ended()),
            refused: grown(
                now.ended_as(Ending::Rejected),
                then.ended_as(Ending::Rejected),
            ),
            failed: grown(now.ended_as(Ending::Failed), then.ended_as(Ending::Failed)),
            answered_errors: u32::try_from(answered_errors).unwrap_or(u32::MAX),
            queued: u32::try_from(now.queued).unwrap_or(u32::MAX),
            p50: quantile(0.5),
            p99: quantile(0.99),
            ..Self::default()
        };
        sample.reasons.copy_from_slice(&reasons);
        sample
    }

    /// Requests that ended.
    pub(crate) fn ended(&self) -> u32 {
        self.ended
    }

    /// One of so many requests, with rejections and failures by reason, and answers with a server error.
    #[cfg(test)]
    pub(crate) fn counted(ended: u32, reasons: &[(Reason, u32)], answered_errors: u32) -> Self {
        let mut sample = Self {
            ended,
            answered_errors,
            ..Self::default()
        };
        for (place, (reason, count)) in sample.reasons.iter_mut().zip(reasons) {
            let index = Reason::ALL.iter().position(|it| it == reason).unwrap();
            *place = (index as u8 + 1, *count);
        }
        sample
    }

    /// Why requests were rejected or failed, by label, as far as it is kept; answers of nodes as `5xx`.
    pub(crate) fn reasons(&self) -> impl Iterator<Item = (&'static str, u32)> {
        let answered = Some(("5xx", self.answered_errors));
        self.named_reasons()
            .chain(answered.filter(|(_, count)| *count > 0))
    }

    /// The same without answers of nodes.
    pub(super) fn named_reasons(&self) -> impl Iterator<Item = (&'static str, u32)> {
        self.reasons.into_iter().filter_map(|(place, count)| {
            let reason = Reason::ALL.get(usize::from(place).checked_sub(1)?)?;
            Some((reason.label(), count))
        })
    }

    /// Answers whose time was taken.
    fn weight(&self) -> f32 {
        let others = self.refused.saturating_add(self.failed);
        self.ended.saturating_sub(others) as f32
    }
}

impl Sample for SiteSample {
    fn absorb(&mut self, later: Self) {
        let (before, after) = (self.weight(), later.weight());
        self.p50 = match (self.p50.is_finite(), later.p50.is_finite()) {
            (true, true) if before + after > 0.0 => {
                (self.p50 * before + later.p50 * after) / (before + after)
            }
            (false, true) => later.p50,
            (true, _) | (false, false) => self.p50,
        };
        // Not a number loses against any.
        self.p99 = self.p99.max(later.p99);
        let add = |sum: &mut u32, more: u32| *sum = sum.saturating_add(more);
        add(&mut self.ended, later.ended);
        add(&mut self.refused, later.refused);
        add(&mut self.failed, later.failed);
        add(&mut self.answered_errors, later.answered_errors);
        self.queued = self.queued.max(later.queued);
        for (place, count) in later.reasons.into_iter().filter(|(place, _)| *place > 0) {
            let own = &mut self.reasons;
            let same = own.iter().position(|it| it.0 == place || it.0 == 0);
            match same {
                Some(same) => own[same] = (place, own[same].1.saturating_add(count)),
                // The rarest gives way to what is more frequent.
                None => {
                    if let Some(rarest) = own.iter_mut().min_by_key(|it| it.1)
                        && rarest.1 < count
                    {
                        *rarest = (place, count);
                    }
                }
            }
        }
    }
}

/// Whether a node gets requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// It does.
    #[default]
    In,
    /// It is on its way to another site.
    Moving,
    /// Its operator or its agent wants none.
    Drained,
    /// It is ejected.
    Out,
}

/// A node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeSample {
    /// Used part of its CPUs in percent; above 100 its tasks as a part of its CPUs.
    pub(super) load: u8,
    pub(super) place: Place,
}

impl Default for NodeSample {
    fn default() -> Self {
        Self {
            load: UNKNOWN,
            place: Place::In,
        }
    }
}

impl NodeSample {
    /// A node whose load is this one, or is not known, and whose CPUs were used so much in that time, where it is known.
    pub(crate) fn new(load: Option<&NodeLoad>, cpu: Option<f32>, place: Place) -> Self {
        Self {
            load: load.map_or(UNKNOWN, |load| percent(load, cpu)),
            place,
        }
    }

    /// `0` to `9` for each tenth of its CPUs that is used, `+` where nine are and one and a half tasks or more share a CPU, `.`
    /// where its load is not known; `x` while it is ejected, `d` while it is drained, `m` while it moves.
    pub(super) fn letter(self) -> char {
        match (self.place, self.load) {
            (Place::Out, _) => 'x',
            (Place::Drained, _) => 'd',
            (Place::Moving, _) => 'm',
            (Place::In, UNKNOWN) => '.',
            (Place::In, CROWDED..) => '+',
            (Place::In, load) => char::from(b'0' + (load / 10).min(9)),
        }
    }
}

impl NodeSample {
    /// The sample that such a letter may have come from; none: nothing was known.
    pub(super) fn of_letter(letter: char) -> Option<Self> {
        let (load, place) = match letter {
            'x' => (UNKNOWN, Place::Out),
            'd' => (UNKNOWN, Place::Drained),
            'm' => (UNKNOWN, Place::Moving),
            '.' => (UNKNOWN, Place::In),
            '+' => (CROWDED, Place::In),
            digit => (digit.to_digit(10)? as u8 * 10 + 5, Place::In),
        };
        Some(Self { load, place })
    }
}

impl Sample for NodeSample {
    fn absorb(&mut self, later: Self) {
        self.place = self.place.max(later.place);
        self.load = match (self.load, later.load) {
            (UNKNOWN, known) | (known, UNKNOWN) => known,
            (one, other) => one.max(other),
        };
    }
}

/// How full a node is. A task that runs for a moment fills a CPU for that moment, and more than a part of one: tasks count
/// where the CPUs were in use all the time, or where that is not known.
fn percent(load: &NodeLoad, cpu: Option<f32>) -> u8 {
    let used = cpu.unwrap_or(load.utilization).clamp(0.0, 1.0) * 100.0;
    let tasks = load.runnable / load.capacity.max(1.0) * 100.0;
    let is_idle = used < f32::from(BUSY);
    let full = match tasks > 100.0 && !is_idle {
        true => tasks.max(used),
        false => used,
    };
    match full.is_finite() {
        true => full.min(f32::from(UNKNOWN - 1)) as u8,
        false => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(ended: u32, p50: f32, reasons: &[(u8, u32)]) -> SiteSample {
        let mut sample = SiteSample {
            ended,
            p50,
            p99: p50 * 2.0,
            ..SiteSample::default()
        };
        sample.reasons[..reasons.len()].copy_from_slice(reasons);
        sample
    }

    #[test]
    fn a_sample_is_what_has_grown() {
        let mut then = SiteSnapshot {
            completed: 100,
            ..SiteSnapshot::default()
        };
        then.reasons.resize(Reason::COUNT, 1);
        let mut now = then.clone();
        now.completed += 10;
        now.queued = 3;
        let index = |reason| Reason::ALL.iter().position(|it| *it == reason).unwrap();
        now.reasons[index(Reason::Overload)] += 5;
        now.reasons[index(Reason::NoNode)] += 7;
        let counted = Counted {
            then: &then,
            now: &now,
            answered_errors: 2,
        };
        let sample = SiteSample::between(counted);
        assert_eq!((sample.ended, sample.refused, sample.failed), (22, 12, 0));
        assert_eq!(sample.queued, 3);
        assert!(sample.p99.is_nan(), "no time was taken");
        let reasons: Vec<_> = sample.reasons().collect();
        assert_eq!(reasons, [("no_node", 7), ("overload", 5), ("5xx", 2)]);
        // A place of counters that another site has by now begins anew.
        let swapped = Counted {
            then: &now,
            now: &then,
            answered_errors: 0,
        };
        assert_eq!(SiteSample::between(swapped).ended, 0);
    }

    #[test]
    fn samples_of_one_step_add_up() {
        let mut all = sample(10, 0.010, &[(1, 4), (2, 1), (3, 1), (4, 2)]);
        all.absorb(sample(30, 0.030, &[(2, 1), (9, 3)]));
        assert_eq!(all.ended, 40);
        assert!((all.p50 - 0.025).abs() < 1e-6, "{}", all.p50);
        assert!((all.p99 - 0.060).abs() < 1e-6, "{}", all.p99);
        // 3 was the rarest.
        assert_eq!(all.reasons, [(1, 4), (2, 2), (9, 3), (4, 2)]);
        all.absorb(SiteSample::default());
        assert!((all.p50 - 0.025).abs() < 1e-6, "nothing was added");
        let mut none = SiteSample::default();
        none.absorb(sample(1, 0.5, &[]));
        assert!((none.p99 - 1.0).abs() < 1e-6);
    }

    #[test]
    fn a_nodes_letter_says_how_full_it_is_or_why_it_gets_nothing() {
        let load = |utilization, runnable| NodeLoad {
            capacity: 2.0,
            utilization,
            runnable,
            ..NodeLoad::UNKNOWN
        };
        let letter = |load: &NodeLoad| NodeSample::new(Some(load), None, Place::In).letter();
        assert_eq!(letter(&load(0.0, 0.0)), '0');
        assert_eq!(letter(&load(0.55, 1.0)), '5');
        assert_eq!(letter(&load(1.2, 1.0)), '9');
        assert_eq!(letter(&load(1.0, 2.5)), '9');
        assert_eq!(letter(&load(1.0, 3.0)), '+');
        assert_eq!(letter(&load(1.0, 1e9)), '+');
        assert_eq!(letter(&NodeLoad::UNKNOWN), '.');
        let over = |cpu, load| NodeSample::new(Some(&load), Some(cpu), Place::In).letter();
        assert_eq!(over(0.45, load(1.0, 8.0)), '4', "full for a moment only");
        assert_eq!(over(0.97, load(0.0, 0.0)), '9');
        assert_eq!(over(0.97, load(0.0, 3.0)), '+');
        let part = |runnable| NodeLoad {
            capacity: 0.25,
            ..load(1.0, runnable)
        };
        assert_eq!(letter(&part(1.0)), '9', "one task is no queue");
        assert_eq!(letter(&part(2.0)), '+');
        let untold = load(f32::NAN, 3.0);
        assert_eq!(letter(&untold), '+', "of its CPUs nothing is known");
        let places = [
            (Place::Out, 'x'),
            (Place::Drained, 'd'),
            (Place::Moving, 'm'),
        ];
        for (place, expected) in places {
            assert_eq!(NodeSample::new(None, None, place).letter(), expected);
        }
        let mut worst = NodeSample::new(None, None, Place::In);
        worst.absorb(NodeSample::new(Some(&load(0.3, 0.0)), None, Place::In));
        assert_eq!(worst.letter(), '3');
        worst.absorb(NodeSample::new(None, None, Place::Out));
        assert_eq!(worst.letter(), 'x');
    }
}
