//! Which throttles to set, tighten, ease and release by itself: a pure function of verdicts,
//! resources and throttles.
//!
//! ```text
//! held back  part of the others' requests that admission refused or let wait for a tenth of the SLO
//! slowed     others' latency over what it was while the resource had room
//! pressed    use >= 0.9 and latency > SLO;  or use >= 0.7 and held back >= 2 %;
//!            or use >= 0.85, latency > 0.1 SLO and slowed >= 2;  for a standing throttle also
//!            use >= 0.75 and slowed >= 1.3
//! calm       held back < 1 %, and use < 0.75, or latency < 0.8 SLO and slowed < 1.15
//!
//! crowded   use >= 0.7 and slowed >= 2, and of the culprit's own requests 10 % are held back
//!
//! set       pressed or crowded, strong or confirmed culprit of it, fewer than `most` throttles:
//!             the one with the greatest share, at max(least, 0.7 * its requests in flight), or at as many
//!             as the resource has CPUs left beside all others, if that is less
//! tighten   pressed, 5 s after its last change:  max(least, 0.7 * limit)
//! ease      calm, 5 s after its last change (twice as long for each ease that was taken back), requests are
//!           held, and use < 0.95 or the class was not accused for 60 s:  limit + max(1, 0.25 * limit)
//! take back pressed after an ease, and worse than before it: what it was before, at once
//! release   calm, none held for 30 s
//!
//! try       pressed, no sure one is left to set, no other trial undecided (`trials`): the one with the greatest
//!             share, 10 % and more, of those that are suspected or fill the resource as far as lives tell;
//!             while 10 % of the others are held back also of those that are named with less confidence than `set` takes;
//!             as `set`
//! acquit    of trials: still pressed, 5 s at the least without what was at the servers before, pain > 0.8 x what it was, none else to try: release, not
//!             again soon
//! no dearer of trials: others are well, and the class takes no longer at the servers than they do: release, not again soon
//! resort    while nothing that is known helps, for 15 s: acquitted classes are tried again, and others that are long in flight
//!             (`last_resort`)
//! let go    a trial that helped beside others, when others are well: one after the other (`trials`)
//! doubt     pressed, it is not accused and nothing has changed for 60 s: eased by as much again, and that
//!             is taken back if it makes things worse; released if none is held for 30 s
//! unknown   its resource has had no figures for 60 s: released, for nothing else would ever end it
//! harm      others suffer more than they were going to (`harm`): released, and left alone for a while
//! longest   15 minutes since it was set, the class was accused or an ease was taken back: released
//! ```
//!
//! Refusals and waits are pain like late answers: admission in front of a full resource keeps what it lets in
//! fast and the resource just not full, so latency and a use of 90 % alone would never show what it does to all
//! others. A good throttle removes the evidence: that a class is not accused says nothing while it is slowed,
//! so it is let go step by step, as long as no other suffers, and back at once.
//!
//! Where admission lets what has grown wait first, it is the culprit that is held back, and others are only
//! slower than with room: throttled its requests complete in their turn instead.
//!
//! Where classes are not to be held ([`AutoConfig::holds`]), a throttle says only that the class goes last where
//! admission lets requests wait: set as above where others are held back, released when they were not and less than 0.75
//! was in use for 30 s.
//!
//! A resource that is full from the start shows no culprit for sure, so classes must be tried: with room again
//! the use shows which it was, and a class that makes no difference goes free.
//!
//! One new throttle per call, so that its effect is seen before the next. Down by a factor and up by
//! steps finds the limit at which the resource is just not the bottleneck, and comes back to it
//! faster than it leaves. A class is never held below `least`, so its requests complete; a class that is
//! not accused with confidence is never touched, but for trials, nor is an operator's throttle.
//!
//! Inputs: culprits, resources, own throttles, a clock. What it does not know: how any of them is
//! found out, what an operator has ordered, and what was acquitted; the caller leaves such classes out.
//!
//! Failure case: a resource that others load too, beyond what all culprits take: they end at
//! `least`, and stay there for as long as letting them go makes it worse.
//!
//! Source: additive increase, multiplicative decrease (AIMD-1989); the loop by hand of Elephants-2005.

mod harm;
mod keeper;
mod last_resort;
mod trials;

use std::time::Duration;

use crate::culprits::Confidence;
use crate::time::Timestamp;
pub use harm::Before;
pub use keeper::{Automatic, Done, Heard, LearnedAutomatic, LearnedThrottle, Present, UsedPart};
use trials::LettingGo;
pub use trials::Passing;

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
    /// Whether classes are held to a number of requests; else they only go last where admission lets
    /// requests wait or refuses them.
    pub holds: bool,
    /// How long a throttle stands that nothing shows to be needed any more.
    pub longest: Duration,
}

impl Default for AutoConfig {
    fn default() -> Self {
        Self {
            most: 3,
            least: 1,
            confidence: Confidence::Strong,
            trials: true,
            holds: true,
            longest: Duration::from_secs(15 * 60),
        }
    }
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
    /// How sure that is; none: it is only suspected, one window's fit says so.
    pub confidence: Option<Confidence>,
    /// Whether it is not even suspected, only long in flight for what it is: tried when nothing else helps.
    pub presumed: bool,
    /// Its requests in flight, on average.
    pub in_flight: f64,
    /// Part of its own requests that admission refused, or let wait for long.
    pub held_back: f64,
}

impl Culprit<'_> {
    /// Whether too little is known for anything but a trial: there is nothing but lives to go by, or it is named with
    /// less confidence than it takes.
    fn is_worth_a_trial(&self, config: &AutoConfig) -> bool {
        self.confidence < Some(config.confidence)
    }

    /// Whether there is nothing but lives to go by.
    fn is_merely_suspected(&self) -> bool {
        matches!(self.confidence, None | Some(Confidence::FromOccupancy))
    }
}

/// How a resource does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pressure<'a> {
    /// Its name.
    pub resource: &'a str,
    /// Used share of its capacity.
    pub usage: f64,
    /// Its CPUs, or disks; zero if that is not known.
    pub capacity: f64,
    /// How the others do.
    pub others: Others,
}

/// How requests of all classes do that are neither accused nor throttled, those of the worst site.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Others {
    /// Latency over SLO, waiting included.
    pub latency: f64,
    /// The same over what it was while there was room; 1 if that is not known.
    pub slowed: f64,
    /// Part of them that was refused, or waited for long.
    pub held_back: f64,
    /// By how much their pain has grown in a second of late.
    pub rising: f64,
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
    /// Since when none of its requests is at the servers that was there before that, as far as is known.
    pub drained_at: Option<Timestamp>,
    /// When the class was last accused.
    pub accused_at: Timestamp,
    /// When a request was last held; of a class that is not held, when there was last no room.
    pub held_at: Timestamp,
    /// The pain when it was set, as long as it is only a trial.
    pub trial: Option<f64>,
    /// The last change, if that was an ease.
    pub eased: Option<Eased>,
    /// Eases that had to be taken back of late.
    pub relapses: u32,
    /// When its resource last had figures.
    pub known_at: Timestamp,
    /// When it last was seen to be needed: it was set, its class was accused, or an ease had to be taken back.
    pub needed_at: Timestamp,
    /// How others did when it was set, as long as nothing has become better.
    pub before: Option<Before>,
    /// Since when the class has been held to half of what was in flight then, or less.
    pub halved_at: Option<Timestamp>,
    /// How its requests go on.
    pub passing: Passing,
    /// What one of them takes at the servers over what one of the others does, if both are known.
    pub dearer: Option<f64>,
}

impl Standing<'_> {
    /// For how long it is what it is, without what the class had at the servers before.
    fn drained_for(&self, now: Timestamp) -> Duration {
        let since = self.drained_at.map(|at| at.max(self.changed_at));
        since.map_or(Duration::ZERO, |since| now.since(since))
    }
}

#[cfg(test)]
impl<'a> Standing<'a> {
    /// Of this class at the database, at so many for ten seconds; accused, held and needed a second ago.
    fn of(class: &'a str, limit: u32, now: Timestamp) -> Self {
        let a_second_ago = now - Duration::from_secs(1);
        Self {
            class,
            resource: "db",
            limit,
            changed_at: now - Duration::from_secs(10),
            drained_at: Some(now - Duration::from_secs(10)),
            accused_at: a_second_ago,
            held_at: a_second_ago,
            trial: None,
            eased: None,
            relapses: 0,
            known_at: a_second_ago,
            needed_at: a_second_ago,
            before: None,
            halved_at: None,
            passing: Passing::default(),
            dearer: None,
        }
    }
}

/// An ease that may have to be taken back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Eased {
    /// The concurrency before it.
    pub from: u32,
    /// The pain before it.
    pub pain: f64,
}

/// Why a throttle is not needed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyReleased {
    /// None was held for a while.
    Idle,
    /// The class is not accused, and none is held.
    Cleared,
    /// It was a trial, and made no difference.
    Acquitted,
    /// It was a trial, and others do as well without it.
    Spared,
    /// It was a trial, and its requests take no longer than others do.
    NoDearer,
    /// Its site or its resource is out of the cluster.
    Gone,
    /// Its resource has had no figures for a while.
    Unknown,
    /// Others suffer more for it.
    Harmful,
    /// Nothing has shown for long that it is needed.
    Expired,
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
        /// The pain as it is, if this is a trial.
        trial: Option<f64>,
        /// How others do.
        before: Before,
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
        /// What it was, should it have to be that again.
        before: Eased,
    },
    /// What it had before it was eased.
    TakeBack {
        /// The class.
        class: &'a str,
        /// Its concurrency.
        limit: u32,
    },
    /// What it had before it was let go, since it uses what is full.
    Keep {
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

/// Use from which a resource may be the bottleneck: where answers are late, where they come more slowly than
/// they did, and where admission holds requests back, which keeps it below; and below which it is not.
const USAGE_LATE: f64 = 0.9;
const USAGE_SLOWED: f64 = 0.85;
const USAGE_HELD: f64 = 0.7;
const USAGE_CALM: f64 = 0.75;
/// Use from which on more requests at a time bring no more answers a second, only longer waits.
const USAGE_FULL: f64 = 0.95;
/// Part of the others' requests that is held back from which on they suffer, and below which they do not.
const HELD_BACK: f64 = 0.02;
const HELD_BACK_CALM: f64 = 0.01;
/// Part of a culprit's own requests that is held back from which on it crowds others.
const CROWDED: f64 = 0.1;
/// How much longer others take than with room before a class is throttled, while it is, and where it may
/// be eased; and the latency over SLO below which the first does not count.
const SLOWED: f64 = 2.0;
const SLOWED_STILL: f64 = 1.3;
const SLOWED_CALM: f64 = 1.15;
const SLOWED_FROM: f64 = 0.1;
/// Latency over SLO below which none suffers.
const LATENCY_CALM: f64 = 0.8;
/// What tightening leaves, and what easing adds.
const DECREASE: f64 = 0.7;
const INCREASE: f64 = 0.25;
/// How long a change is looked at before the next.
const SETTLE: Duration = Duration::from_secs(5);
/// Most times that this doubles after eases that were taken back.
const PATIENCE_MAX: u32 = 5;
/// How long none is held before a throttle ends.
const IDLE: Duration = Duration::from_secs(30);
/// How long a class is not accused, and nothing helps, before it is doubted that it is the cause.
const DOUBTED: Duration = Duration::from_secs(60);
/// How long a throttle outlasts the figures of its resource.
const UNKNOWN: Duration = Duration::from_secs(60);
/// Least share of a class that is tried.
const TRIAL_SHARE: f64 = 0.1;
/// Part of the pain that a trial must leave at the most.
const TRIAL_HELPS: f64 = 0.8;
/// Pain over that before an ease from which on the ease did it.
const WORSE: f64 = 1.1;

impl Others {
    /// How much they suffer, in times of what they may.
    fn pain(&self) -> f64 {
        self.latency.max(self.held_back / HELD_BACK)
    }
}

impl Pressure<'_> {
    fn is_pressed(&self) -> bool {
        let Others {
            latency, slowed, ..
        } = self.others;
        let late = self.usage >= USAGE_LATE && latency > 1.0;
        let slow = self.usage >= USAGE_SLOWED && slowed >= SLOWED && latency > SLOWED_FROM;
        late || slow || self.holds_back()
    }

    /// Whether admission holds others back, in front of a resource that would be full without it.
    fn holds_back(&self) -> bool {
        self.usage >= USAGE_HELD && self.others.held_back >= HELD_BACK
    }

    /// Whether so many of them are held back that each second counts.
    fn holds_many_back(&self) -> bool {
        self.holds_back() && self.others.held_back >= trials::MANY_HELD_BACK
    }

    /// Whether admission holds the culprit back, and others are slower all the same.
    fn is_crowded(&self, by: &Culprit<'_>) -> bool {
        let slow = self.usage >= USAGE_HELD && self.others.slowed >= SLOWED;
        slow && by.held_back >= CROWDED
    }

    /// Whether there is room, and none held back.
    fn has_room(&self) -> bool {
        self.usage < USAGE_CALM && self.others.held_back < HELD_BACK_CALM
    }

    /// The same for a throttle that stands: others are to be as fast as with room.
    fn is_pressed_still(&self) -> bool {
        let slow = self.usage >= USAGE_CALM && self.others.slowed >= SLOWED_STILL;
        slow || self.is_pressed()
    }

    fn is_calm(&self) -> bool {
        let fast = self.others.latency < LATENCY_CALM && self.others.slowed < SLOWED_CALM;
        self.has_room() || fast && self.others.held_back < HELD_BACK_CALM
    }

    fn pain(&self) -> f64 {
        self.others.pain()
    }

    /// As many requests at a time as there are CPUs left beside all but this culprit.
    fn fits(&self, culprit: &Culprit<'_>) -> Option<f64> {
        let others = (self.usage - culprit.share).max(0.0);
        let left = self.capacity * (USAGE_CALM - others).max(0.0);
        (self.capacity > 0.0).then_some(left)
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
        .filter_map(|it| {
            let pressure = pressure(it.resource);
            let pain = pressure.map_or(0.0, Pressure::pain);
            let letting_go = trials::letting_go(it, standing, culprits, pain);
            change(config, it, pressure, letting_go, now)
        })
        .collect();
    let released = |step: &&Step<'_>| {
        let why = WhyReleased::Acquitted;
        matches!(step, Step::Release { why: it, .. } if *it != why)
    };
    let left = standing.len() - steps.iter().filter(released).count();
    let next = next(config, culprits, &pressure, standing, now);
    let no_room = left >= config.most;
    trials::judge_together(&mut steps, next.as_ref(), no_room, culprits, standing, now);
    steps.extend(next.filter(|_| !no_room));
    steps
}

/// The class that is throttled next: the worst that is sure, or else one to try.
fn next<'a, 'p>(
    config: &AutoConfig,
    culprits: &[Culprit<'a>],
    pressure: &impl Fn(&str) -> Option<&'p Pressure<'p>>,
    standing: &[Standing<'a>],
    now: Timestamp,
) -> Option<Step<'a>> {
    // Two classes that fill a resource between them must both be held before anything becomes better.
    let mut trials = standing.iter();
    let undecided = trials.any(|it| trials::is_undecided(config, it, pressure(it.resource), now));
    let may_try = config.trials && config.holds && !undecided;
    let wanted = culprits.iter().filter_map(|culprit| {
        let sure = culprit.confidence >= Some(config.confidence);
        let pressure = pressure(culprit.resource);
        let severe = pressure.is_some_and(|it| it.holds_many_back());
        let unsure = culprit.is_worth_a_trial(config) && (severe || culprit.is_merely_suspected());
        let try_it = may_try && unsure && culprit.share >= TRIAL_SHARE;
        let pressed = pressure.is_some_and(|it| match config.holds {
            true => it.is_pressed() || sure && it.is_crowded(culprit),
            false => it.holds_back(),
        });
        let free = !standing.iter().any(|it| it.class == culprit.class);
        (pressed && free && (sure || try_it)).then_some((sure, culprit))
    });
    let (sure, worst) = wanted.max_by(|one, other| {
        let by_share = one.1.share.total_cmp(&other.1.share);
        one.0.cmp(&other.0).then(by_share)
    })?;
    let limit = less(worst.in_flight, config.least);
    let pressure = pressure(worst.resource)?;
    let fits = pressure.fits(worst);
    let fits = fits.map_or(limit, |fits| fits as u32);
    Some(Step::Set {
        class: worst.class,
        resource: worst.resource,
        limit: limit.min(fits.max(config.least).max(1)),
        trial: (!sure).then(|| pressure.pain()),
        before: Before::of(pressure, worst.in_flight, now),
    })
}

/// What becomes of one throttle. A resource without figures is neither pressed nor calm.
fn change<'a>(
    config: &AutoConfig,
    standing: &Standing<'a>,
    pressure: Option<&Pressure<'_>>,
    letting_go: LettingGo,
    now: Timestamp,
) -> Option<Step<'a>> {
    let class = standing.class;
    let Some(pressure) = pressure else {
        let why = WhyReleased::Unknown;
        return (now.since(standing.known_at) >= UNKNOWN).then_some(Step::Release { class, why });
    };
    let unchanged = now.since(standing.changed_at);
    let pain = pressure.pain();
    let quiet = now.since(standing.held_at.max(standing.changed_at)) >= IDLE;
    if now.since(standing.needed_at) >= config.longest {
        let why = WhyReleased::Expired;
        return Some(Step::Release { class, why });
    }
    if !config.holds {
        let why = WhyReleased::Idle;
        return (quiet && pressure.has_room()).then_some(Step::Release { class, why });
    }
    let before = Eased {
        from: standing.limit,
        pain,
    };
    if trials::is_no_dearer(standing, pressure, now) {
        let why = WhyReleased::NoDearer;
        return Some(Step::Release { class, why });
    }
    let sorted_out = letting_go != LettingGo::NotDue && !pressure.is_pressed();
    if pressure.is_calm() && !sorted_out {
        return ease(standing, pressure, before, now);
    }
    if harm::is_harmful(standing, pressure, now) {
        let why = WhyReleased::Harmful;
        return Some(Step::Release { class, why });
    }
    let pressed = pressure.is_pressed_still();
    if let Some(eased) = standing
        .eased
        .filter(|it| pressed && pain > WORSE * it.pain)
    {
        let limit = eased.from;
        return Some(Step::TakeBack { class, limit });
    }
    if sorted_out && letting_go == LettingGo::Now {
        return trials::let_go(standing, before, now);
    }
    if !pressed {
        return None;
    }
    let unaccused = now.since(standing.accused_at) >= DOUBTED;
    if unaccused && quiet {
        let why = WhyReleased::Cleared;
        return Some(Step::Release { class, why });
    }
    if unchanged < SETTLE {
        return None;
    }
    let limit = less(standing.limit.into(), config.least);
    let had_its_time = trials::is_at_its_least(config, standing, now);
    if had_its_time && trials::is_in_vain(standing, pain) {
        let why = WhyReleased::Acquitted;
        return Some(Step::Release { class, why });
    }
    // An ease of one in doubt that did not make it worse: further on.
    let doubted = unaccused && (standing.eased.is_some() || unchanged >= DOUBTED);
    if doubted {
        let limit = standing.limit.saturating_mul(2);
        return Some(Step::Ease {
            class,
            limit,
            before,
        });
    }
    (limit < standing.limit).then_some(Step::Tighten { class, limit })
}

/// What becomes of a throttle while others are well.
fn ease<'a>(
    standing: &Standing<'a>,
    pressure: &Pressure<'_>,
    before: Eased,
    now: Timestamp,
) -> Option<Step<'a>> {
    let class = standing.class;
    let (limit, unchanged) = (standing.limit, now.since(standing.changed_at));
    if now.since(standing.held_at.max(standing.changed_at)) >= IDLE {
        let why = WhyReleased::Idle;
        return Some(Step::Release { class, why });
    }
    let patience = SETTLE * (1 << standing.relapses.min(PATIENCE_MAX));
    let binds = standing.held_at > standing.changed_at;
    // A full resource has nothing left for a class that fills it.
    let fills = pressure.usage >= USAGE_FULL && now.since(standing.accused_at) < DOUBTED;
    let more = (f64::from(limit) * INCREASE).max(1.0) as u32;
    (binds && !fills && unchanged >= patience).then_some(Step::Ease {
        class,
        limit: limit.saturating_add(more),
        before,
    })
}

fn less(limit: f64, least: u32) -> u32 {
    ((limit * DECREASE) as u32).max(least).max(1)
}

#[cfg(test)]
mod bounds_tests;
#[cfg(test)]
mod drained_tests;
#[cfg(test)]
mod tests;
