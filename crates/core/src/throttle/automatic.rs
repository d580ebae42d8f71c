//! Which throttles to set, tighten, ease and release by itself: a pure function of verdicts,
//! resources and throttles.
//!
//! ```text
//! pressed   use of the resource >= 0.9 and latency > SLO
//! calm      use < 0.75 or latency < 0.8 SLO
//!
//! set       pressed, strong or confirmed culprit of it, fewer than `most` throttles:
//!             the one with the greatest share, at max(least, 0.7 * its requests in flight)
//! tighten   pressed, 5 s after its last change:  max(least, 0.7 * limit)
//! ease      calm, 5 s after its last change, somebody is held:  limit + max(1, 0.1 * limit)
//! release   calm, nobody held for 30 s; or nobody has accused it for 60 s
//!
//! try       pressed, nobody sure is left to set, no other trial undecided: the one with the greatest
//!             share, 10 % and more, of those that fill the resource as far as lives tell; as `set`
//! acquit    of a trial: still pressed, 5 s at the least, latency > 0.8 x what it was: release, not again soon
//! ```
//!
//! A resource that is full from the start tells nobody's name for sure, so it must be tried: with room again
//! the use tells who it was, and who makes no difference goes free.
//!
//! One new throttle per call, so that its effect is seen before the next. Down by a factor and up by
//! steps finds the limit at which the resource is just not the bottleneck, and comes back to it
//! faster than it leaves. A class is never held below `least`, so its requests complete; whoever is
//! not accused with confidence is never touched, but for one trial at a time, nor is anybody's own order.
//!
//! Inputs: culprits, resources, own throttles, a clock. What it does not know: how any of them is
//! found out, what an operator has ordered, and who was acquitted; the caller leaves such classes out.
//!
//! Failure case: a resource that others load too, beyond what all culprits take: they end at
//! `least`, and stay there. A class that is throttled takes less, so its verdict fades: that is
//! what the 60 s are for.
//!
//! Source: additive increase, multiplicative decrease (Chiu and Jain, 1989); the loop by hand of paper 004.

use std::time::Duration;

use crate::time::Timestamp;

/// The bounds of what it may do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AutoConfig {
    /// Most throttles of its own.
    pub most: usize,
    /// Least concurrency of a class.
    pub least: u32,
    /// The least that a verdict must be.
    pub confidence: Confidence,
    /// Whether those that only lives accuse are tried.
    pub trials: bool,
}

impl Default for AutoConfig {
    fn default() -> Self {
        Self {
            most: 3,
            least: 1,
            confidence: Confidence::Strong,
            trials: true,
        }
    }
}

/// How sure a verdict is, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// Another class would explain it as well.
    Ambiguous,
    /// From the shares of a saturated resource.
    FromOccupancy,
    /// It passes.
    Likely,
    /// It passes with much to spare.
    Strong,
    /// By experiment.
    Confirmed,
}

/// A class that loads a resource.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Culprit<'a> {
    /// Its name.
    pub class: &'a str,
    /// The resource's name.
    pub resource: &'a str,
    /// Its share of the resource's capacity.
    pub share: f64,
    /// How sure that is.
    pub confidence: Confidence,
    /// Its requests in flight, on average.
    pub in_flight: f64,
}

/// How a resource does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pressure<'a> {
    /// Its name.
    pub resource: &'a str,
    /// Used share of its capacity.
    pub usage: f64,
    /// Latency over SLO, of the site of those that use it where that is worst.
    pub latency: f64,
}

/// A throttle that was set here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing<'a> {
    /// Its class.
    pub class: &'a str,
    /// The resource that it is set for.
    pub resource: &'a str,
    /// Its concurrency.
    pub limit: u32,
    /// Since when it is that.
    pub changed_at: Timestamp,
    /// When the class was last accused.
    pub accused_at: Timestamp,
    /// When somebody was last held.
    pub held_at: Timestamp,
    /// Latency over SLO when it was set, as long as it is only a trial.
    pub trial: Option<f64>,
}

/// Why a throttle is not needed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyReleased {
    /// Nobody was held for a while.
    Idle,
    /// Nobody accuses the class.
    Cleared,
    /// It was a trial, and made no difference.
    Acquitted,
}

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step<'a> {
    /// Throttle the class for the resource.
    Set {
        /// The class.
        class: &'a str,
        /// The resource.
        resource: &'a str,
        /// Its concurrency.
        limit: u32,
        /// Latency over SLO as it is, if this is a trial.
        trial: Option<f64>,
    },
    /// Less for the class.
    Tighten {
        /// The class.
        class: &'a str,
        /// Its concurrency.
        limit: u32,
    },
    /// More for the class.
    Ease {
        /// The class.
        class: &'a str,
        /// Its concurrency.
        limit: u32,
    },
    /// No throttle for the class.
    Release {
        /// The class.
        class: &'a str,
        /// Why.
        why: WhyReleased,
    },
}

/// Use from which a resource may be the bottleneck, and below which it is not.
const USAGE_PRESSED: f64 = 0.9;
const USAGE_CALM: f64 = 0.75;
/// Latency over SLO below which nobody suffers.
const LATENCY_CALM: f64 = 0.8;
/// What tightening leaves, and what easing adds.
const DECREASE: f64 = 0.7;
const INCREASE: f64 = 0.1;
/// How long a change is looked at before the next.
const SETTLE: Duration = Duration::from_secs(5);
/// How long nobody is held before a throttle ends.
const IDLE: Duration = Duration::from_secs(30);
/// How long nobody accuses a class before its throttle ends.
const CLEARED: Duration = Duration::from_secs(60);
/// Least share of a class that is tried.
const TRIAL_SHARE: f64 = 0.1;
/// Part of the latency that a trial must leave at the most.
const TRIAL_HELPS: f64 = 0.8;

impl Pressure<'_> {
    fn is_pressed(&self) -> bool {
        self.usage >= USAGE_PRESSED && self.latency > 1.0
    }

    fn is_calm(&self) -> bool {
        self.usage < USAGE_CALM || self.latency < LATENCY_CALM
    }
}

/// What to do now; to be asked once after each evaluation of the culprits.
pub fn steps<'a>(
    config: &AutoConfig,
    culprits: &[Culprit<'a>],
    pressures: &[Pressure<'a>],
    standing: &[Standing<'a>],
    now: Timestamp,
) -> Vec<Step<'a>> {
    let pressure = |resource: &str| pressures.iter().find(|it| it.resource == resource);
    let mut steps: Vec<_> = (standing.iter())
        .filter_map(|it| change(config, it, pressure(it.resource), now))
        .collect();
    let released = |step: &&Step<'_>| matches!(step, Step::Release { .. });
    let left = standing.len() - steps.iter().filter(released).count();
    if left < config.most {
        steps.extend(next(config, culprits, &pressure, standing));
    }
    steps
}

/// The class that is throttled next: the worst that is sure, or else one to try.
fn next<'a, 'p>(
    config: &AutoConfig,
    culprits: &[Culprit<'a>],
    pressure: &impl Fn(&str) -> Option<&'p Pressure<'p>>,
    standing: &[Standing<'a>],
) -> Option<Step<'a>> {
    let latency = |resource: &str| pressure(resource).map_or(0.0, |it| it.latency);
    let undecided = standing
        .iter()
        .any(|it| (it.trial).is_some_and(|before| !helps(before, latency(it.resource))));
    let may_try = config.trials && !undecided;
    let wanted = culprits.iter().filter_map(|culprit| {
        let sure = culprit.confidence >= config.confidence;
        let try_it = may_try
            && culprit.confidence == Confidence::FromOccupancy
            && culprit.share >= TRIAL_SHARE;
        let pressed = pressure(culprit.resource).is_some_and(Pressure::is_pressed);
        let free = !standing.iter().any(|it| it.class == culprit.class);
        (pressed && free && (sure || try_it)).then_some((sure, culprit))
    });
    let (sure, worst) = wanted.max_by(|one, other| {
        let by_share = one.1.share.total_cmp(&other.1.share);
        one.0.cmp(&other.0).then(by_share)
    })?;
    Some(Step::Set {
        class: worst.class,
        resource: worst.resource,
        limit: less(worst.in_flight, config.least),
        trial: (!sure).then(|| latency(worst.resource)),
    })
}

/// Whether a trial has made a difference.
fn helps(before: f64, latency: f64) -> bool {
    latency <= TRIAL_HELPS * before
}

/// What becomes of one throttle. A resource that nobody knows is neither pressed nor calm.
fn change<'a>(
    config: &AutoConfig,
    standing: &Standing<'a>,
    pressure: Option<&Pressure<'_>>,
    now: Timestamp,
) -> Option<Step<'a>> {
    let class = standing.class;
    let calm = pressure.is_some_and(Pressure::is_calm);
    if now.since(standing.accused_at) >= CLEARED {
        let why = WhyReleased::Cleared;
        return Some(Step::Release { class, why });
    }
    let quiet_since = standing.held_at.max(standing.changed_at);
    if calm && now.since(quiet_since) >= IDLE {
        let why = WhyReleased::Idle;
        return Some(Step::Release { class, why });
    }
    if now.since(standing.changed_at) < SETTLE {
        return None;
    }
    if pressure.is_some_and(Pressure::is_pressed) {
        let limit = less(standing.limit.into(), config.least);
        let latency = pressure.map_or(0.0, |it| it.latency);
        let in_vain = (standing.trial).is_some_and(|before| !helps(before, latency));
        let why = WhyReleased::Acquitted;
        return match limit < standing.limit {
            true => Some(Step::Tighten { class, limit }),
            false => in_vain.then_some(Step::Release { class, why }),
        };
    }
    let binds = standing.held_at > standing.changed_at;
    let more = (f64::from(standing.limit) * INCREASE).max(1.0) as u32;
    let limit = standing.limit.saturating_add(more);
    (calm && binds).then_some(Step::Ease { class, limit })
}

fn less(limit: f64, least: u32) -> u32 {
    ((limit * DECREASE) as u32).max(least).max(1)
}

#[cfg(test)]
mod tests;
