//! What `automatic` remembers from one look to the next: its own throttles, what was acquitted, and how
//! long others' requests take while the resource has room.
//!
//! ```text
//! Heard (culprits, resources, others) + throttles as they stand ──> steps ──> Done: limits, or a release
//! usual    latency of the others: down by half at each look; up by a sixtieth each second at the most, and only
//!          while no resource is used above 0.75 and none of its throttles stands
//! ```
//!
//! A class that an operator throttles or releases is the operator's from then on, until it is accused
//! anew. A class that was tried in vain is not tried again for five minutes, but for once beside a class that was not
//! tried with it; nor is one slowed that it did others harm to slow.
//!
//! Inputs: what was found, the throttles, a clock. Failure case: a site whose resources never have room tells
//! nothing of how fast it could be; then only the SLO and what admission holds back count.

mod learned;

use std::collections::BTreeMap;
use std::time::Duration;

pub use learned::{LearnedAutomatic, LearnedThrottle};

use super::harm::{Before, LeftAlone, Trend};
use super::last_resort::{LastResort, Tried};
use super::{
    AutoConfig, Culprit, Eased, Others, Passing, Pressure, Standing, Step, USAGE_CALM, WhyReleased,
    steps,
};
use crate::throttle::{SetBy, Throttle, ThrottleLimits};
use crate::time::Timestamp;

/// How long a class that was tried in vain is left alone.
const ACQUITTED_FOR: Duration = Duration::from_secs(300);
/// How long after a change at the most it is waited for that a class drains.
const DRAINED_AFTER: Duration = Duration::from_secs(60);
/// How fast the usual latency follows: down, a part at each look; up, the most by which it grows in a second.
/// A mean of the last seconds is late to say that a resource has filled up.
const USUAL_DOWN: f64 = 0.5;
const USUAL_UP: f64 = 1.0 / 60.0;

/// How a resource does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UsedPart<'a> {
    /// Its name.
    pub resource: &'a str,
    /// Used part of its capacity.
    pub usage: f64,
    /// Its CPUs, or disks; zero if that is not known.
    pub capacity: f64,
}

/// What a class has at the servers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Present<'a> {
    /// The class, by the name that its throttle has.
    pub class: &'a str,
    /// Its requests in flight, on average.
    pub in_flight: f64,
    /// What one of them takes there: the median of the last seconds; none if there were too few.
    pub took: Option<f64>,
}

/// What is heard at a look.
#[derive(Clone, Copy, Debug)]
pub struct Heard<'a> {
    /// What is accused, but for classes that an operator throttles; by the names that throttles have.
    pub culprits: &'a [Culprit<'a>],
    /// All resources that are watched.
    pub resources: &'a [UsedPart<'a>],
    /// Latency over SLO of all classes but those that are accused or throttled, waiting included, of the
    /// site where that is worst; none if there are too few.
    pub latency: Option<f64>,
    /// Part of them that was refused, or waited for long.
    pub held_back: f64,
    /// What one of them takes at the servers, seconds: the median of the last seconds; none if there were too few.
    pub took: Option<f64>,
    /// What classes have at the servers, also those that are not accused.
    pub present: &'a [Present<'a>],
}

/// Something that was done.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// The class, as throttles have it.
    pub class: String,
    /// Its limits from now on; none: it is released.
    pub limits: Option<ThrottleLimits>,
    /// In a word.
    pub what: &'static str,
    /// For people.
    pub text: String,
}

#[derive(Clone, Debug)]
struct Own {
    resource: String,
    limit: u32,
    changed_at: Timestamp,
    /// Since when what the class had at the servers before that has drained.
    drained_at: Option<Timestamp>,
    accused_at: Timestamp,
    held_at: Timestamp,
    /// Requests held and let on so far, and let on before the last change.
    held: u64,
    passed: u64,
    passed_before: u64,
    /// Requests in flight at the last look, if that was known.
    in_flight: Option<f64>,
    passing: Passing,
    dearer: Option<f64>,
    /// The pain when it was set, as long as it is a trial.
    trial: Option<f64>,
    eased: Option<Eased>,
    relapses: u32,
    known_at: Timestamp,
    needed_at: Timestamp,
    before: Option<Before>,
    /// Since when it helps.
    well_since: Option<Timestamp>,
    halved_at: Option<Timestamp>,
}

/// A class that was tried and released.
#[derive(Clone, Copy, Debug)]
struct Acquitted {
    /// The last time.
    at: Timestamp,
    /// Whether it may be tried beside a class that was not tried with it.
    again: Again,
}

/// Whether a class is tried once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    /// Not before it is forgotten.
    No,
    /// Nor as a last resort: it was no dearer than others.
    NorAsALastResort,
    /// As soon as another class is tried.
    WithAnother,
    /// Now.
    Now,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Automatic {
    bounds: AutoConfig,
    /// By class.
    own: BTreeMap<String, Own>,
    /// Classes that were tried and released.
    acquitted: BTreeMap<String, Acquitted>,
    /// Classes that were slowed to others' harm.
    harmful: BTreeMap<String, LeftAlone>,
    trend: Trend,
    last_resort: LastResort,
    /// What the others take with room, over the SLO.
    usual: Option<f64>,
    looked_at: Option<Timestamp>,
}

impl Automatic {
    /// Within these bounds.
    pub fn new(bounds: AutoConfig) -> Self {
        Self {
            bounds,
            own: BTreeMap::new(),
            acquitted: BTreeMap::new(),
            harmful: BTreeMap::new(),
            trend: Trend::default(),
            last_resort: LastResort::default(),
            usual: None,
            looked_at: None,
        }
    }

    /// Goes by these bounds from now on, which are as those of before about whether classes are held: what stands has
    /// limits of that kind, and keeps its own until its next change.
    pub fn set_bounds(&mut self, bounds: AutoConfig) {
        self.bounds = bounds;
    }

    /// The SLO is another one: the same latency is so many times as much of it. What was seen over the former one is not
    /// compared with what comes; a trial has to better the worse of both.
    pub fn follow_slo(&mut self, times: f64) {
        self.usual = self.usual.map(|usual| usual * times);
        self.trend = Trend::default();
        for own in self.own.values_mut() {
            own.trial = own.trial.map(|pain| pain.max(pain * times));
            (own.eased, own.before, own.well_since) = (None, None, None);
        }
    }

    /// The classes that it throttles.
    pub fn classes(&self) -> impl Iterator<Item = &str> {
        self.own.keys().map(String::as_str)
    }

    /// Looks at what is heard and at the throttles as they stand; what is to be done. To be called about
    /// once a second.
    pub fn look(&mut self, heard: &Heard<'_>, throttles: &[Throttle], now: Timestamp) -> Vec<Done> {
        self.note(heard, throttles, now);
        let others = self.others(heard, now);
        let pressures: Vec<_> = (heard.resources.iter())
            .map(|it| Pressure {
                resource: it.resource,
                usage: it.usage,
                capacity: it.capacity,
                others,
            })
            .collect();
        let tried = self.last_resort.look(&pressures, now);
        let culprits: Vec<_> = (heard.culprits.iter().copied())
            .filter(|it| self.counts(it, tried, now))
            .collect();
        self.watch(&pressures, now);
        let own = self.own.clone();
        let own: Vec<_> = own.iter().map(|(class, own)| own.standing(class)).collect();
        let steps = steps(&self.bounds, &culprits, &pressures, &own, now);
        let done = steps.into_iter().map(|step| self.carry_out(step, now));
        done.collect()
    }

    /// A throttle could not be set.
    pub fn forget(&mut self, class: &str) {
        self.own.remove(class);
    }

    /// A class is called otherwise from now on, and has another throttle, which has counted nothing yet.
    pub fn rename(&mut self, from: &str, to: &str) {
        if let Some(own) = self.own.get_mut(from) {
            (own.held, own.passed, own.passed_before) = (0, 0, 0);
        }
        rename(&mut self.own, from, to);
        rename(&mut self.acquitted, from, to);
        rename(&mut self.harmful, from, to);
    }

    /// Releases the classes that are no more, or whose resource is not: by class and resource.
    pub fn leave(&mut self, is_gone: impl Fn(&str, &str) -> bool, now: Timestamp) -> Vec<Done> {
        let own = self.own.iter();
        let gone: Vec<_> = own
            .filter(|(class, own)| is_gone(class, &own.resource))
            .map(|(class, _)| class.clone())
            .collect();
        let gone = gone.into_iter();
        gone.map(|class| self.release(&class, WhyReleased::Gone, now))
            .collect()
    }

    /// How the others do, and how they usually do.
    fn others(&mut self, heard: &Heard<'_>, now: Timestamp) -> Others {
        let before = self.looked_at.replace(now);
        let dt = before.map_or(0.0, |before| now.seconds_since(before));
        let Some(latency) = heard.latency else {
            return Others {
                latency: 0.0,
                slowed: 1.0,
                held_back: heard.held_back,
                rising: 0.0,
            };
        };
        let has_room = heard.resources.iter().all(|it| it.usage < USAGE_CALM);
        let usual = *self.usual.get_or_insert(latency);
        self.usual = Some(match latency < usual {
            true => usual + (latency - usual) * USUAL_DOWN,
            false if has_room && self.own.is_empty() => latency.min(usual * (1.0 + dt * USUAL_UP)),
            false => usual,
        });
        let mut others = Others {
            latency,
            slowed: self.usual.map_or(1.0, |usual| latency / usual.max(1e-6)),
            held_back: heard.held_back,
            rising: 0.0,
        };
        others.rising = self.trend.add(&others, now);
        others
    }

    /// Whether it did harm to slow a class not long ago.
    fn is_left_alone(&self, it: &Culprit<'_>, now: Timestamp) -> bool {
        (self.harmful.get(it.class)).is_some_and(|left| left.is_on(now))
    }

    /// Whether a class may be slowed, or is and is accused.
    fn counts(&self, it: &Culprit<'_>, tried: Tried, now: Timestamp) -> bool {
        let harmful = self.is_left_alone(it, now);
        match tried {
            _ if self.is_no_dearer(it) => false,
            Tried::NoMore => !it.presumed && !self.is_acquitted(it) && !harmful,
            Tried::Acquitted => !harmful,
            Tried::All => true,
        }
    }

    /// Ends the watch over throttles that help. A trial is to better the worst that came until its class had drained:
    /// refusals that only begin when it is set are not of its making.
    fn watch(&mut self, pressures: &[Pressure<'_>], now: Timestamp) {
        for own in self.own.values_mut() {
            let pressure = pressures.iter().find(|it| it.resource == own.resource);
            let Some(pressure) = pressure else { continue };
            if own.drained_at.is_none() {
                own.trial = own.trial.map(|pain| pain.max(pressure.pain()));
            }
            let Some(before) = own.before else { continue };
            let since = own.well_since.unwrap_or(now);
            own.well_since = before.is_helped(pressure).then_some(since);
            if before.is_over(own.well_since, now) {
                own.before = None;
            }
        }
    }

    /// Whether a class that was tried in vain not long ago is accused by what trials are for.
    fn is_acquitted(&self, it: &Culprit<'_>) -> bool {
        let acquitted = self.acquitted.get(it.class);
        it.is_worth_a_trial(&self.bounds) && acquitted.is_some_and(|it| it.again != Again::Now)
    }

    /// Whether it was found to be no dearer than others not long ago, where nothing sure accuses it.
    fn is_no_dearer(&self, it: &Culprit<'_>) -> bool {
        let acquitted = self.acquitted.get(it.class);
        it.is_worth_a_trial(&self.bounds)
            && acquitted.is_some_and(|it| it.again == Again::NorAsALastResort)
    }

    /// A class was tried and released.
    fn acquit(&mut self, class: &str, why: WhyReleased, now: Timestamp) {
        let first = !self.acquitted.contains_key(class);
        let again = if why == WhyReleased::NoDearer {
            Again::NorAsALastResort
        } else if why == WhyReleased::Acquitted && first {
            Again::WithAnother
        } else {
            Again::No
        };
        let acquitted = Acquitted { at: now, again };
        self.acquitted.insert(class.into(), acquitted);
    }

    /// A class is tried for the first time: those that made no difference without it may be culprits with it.
    fn try_again_beside(&mut self, class: &str) {
        if self.acquitted.contains_key(class) {
            return;
        }
        for acquitted in self.acquitted.values_mut() {
            if acquitted.again == Again::WithAnother {
                acquitted.again = Again::Now;
            }
        }
    }

    /// What became of own throttles since.
    fn note(&mut self, heard: &Heard<'_>, throttles: &[Throttle], now: Timestamp) {
        (self.acquitted).retain(|_, it| now.since(it.at) < ACQUITTED_FOR);
        (self.harmful).retain(|_, left| left.is_remembered(now));
        let (least, holds) = (self.bounds.confidence, self.bounds.holds);
        self.own.retain(|class, own| {
            let set = throttles.iter().find(|it| it.pattern.name() == class);
            // An operator has released it, or has the say over it now.
            let Some(set) = set.filter(|it| it.set_by == SetBy::Policy) else {
                return false;
            };
            let mut resources = heard.resources.iter();
            let used = resources.find(|it| it.resource == own.resource);
            if used.is_some() {
                own.known_at = now;
            }
            let full = !holds && used.is_none_or(|it| it.usage >= USAGE_CALM);
            if full || set.waiting > 0 || set.counters.held > own.held {
                own.held_at = now;
            }
            own.held = set.counters.held;
            own.passing.since += set.counters.passed.saturating_sub(own.passed);
            own.passing.waits = set.waiting > 0;
            own.passed = set.counters.passed;
            let accused = heard.culprits.iter().filter(|it| it.class == class);
            let present = heard.present.iter().filter(|it| it.class == class);
            let took = present.clone().find_map(|it| it.took).zip(heard.took);
            own.dearer = took.map(|(own, others)| own / others.max(1e-6));
            let present = present.map(|it| it.in_flight);
            let in_flight = present.chain(accused.clone().map(|it| it.in_flight));
            own.in_flight = in_flight.reduce(f64::max);
            own.note_drained(set.counters.ended, now);
            let confidence = accused.filter_map(|it| it.confidence).max();
            if confidence.is_some() {
                (own.accused_at, own.needed_at) = (now, now);
            }
            if confidence >= Some(least) {
                own.trial = None;
            }
            true
        });
    }

    fn carry_out(&mut self, step: Step<'_>, now: Timestamp) -> Done {
        match step {
            Step::Set {
                class,
                resource,
                limit,
                trial,
                before,
            } => {
                let own = Own::new(resource, limit, trial, before, now);
                self.own.insert(class.into(), own);
                if trial.is_some() {
                    self.try_again_beside(class);
                }
                let fills = match trial {
                    None => "it fills",
                    Some(_) => "on trial: it may be what fills",
                };
                let text = match self.bounds.holds {
                    true => format!("{class}: throttled to {limit} at a time, {fills} {resource}"),
                    false => format!("{class}: goes last where requests wait, {fills} {resource}"),
                };
                let limit = self.bounds.holds.then_some(limit);
                done(class, Some(limit), "throttled", text)
            }
            Step::Tighten { class, limit } => {
                self.change(class, limit, now, |own| own.eased = None);
                let text = format!("{class}: throttled to {limit} at a time, others still wait");
                done(class, Some(Some(limit)), "throttled", text)
            }
            Step::TakeBack { class, limit } => {
                self.change(class, limit, now, |own| {
                    own.eased = None;
                    own.relapses = own.relapses.saturating_add(1);
                    own.needed_at = now;
                });
                let text = format!("{class}: {limit} at a time again, with more others wait");
                done(class, Some(Some(limit)), "throttled", text)
            }
            Step::Keep { class, limit } => {
                self.change(class, limit, now, |own| {
                    own.eased = None;
                    own.relapses = own.relapses.saturating_add(1);
                    (own.accused_at, own.needed_at) = (now, now);
                    own.trial = None;
                });
                let text = format!("{class}: {limit} at a time again, with more each takes longer");
                done(class, Some(Some(limit)), "throttled", text)
            }
            Step::Ease {
                class,
                limit,
                before,
            } => {
                self.change(class, limit, now, |own| {
                    // The last one has held.
                    if own.eased.replace(before).is_some() {
                        own.relapses = own.relapses.saturating_sub(1);
                    }
                });
                let text = format!("{class}: {limit} at a time now, to see whether there is room");
                done(class, Some(Some(limit)), "eased", text)
            }
            Step::Release { class, why } => self.release(class, why, now),
        }
    }

    fn release(&mut self, class: &str, why: WhyReleased, now: Timestamp) -> Done {
        self.own.remove(class);
        if matches!(
            why,
            WhyReleased::Acquitted | WhyReleased::Spared | WhyReleased::NoDearer
        ) {
            self.acquit(class, why, now);
        }
        if why == WhyReleased::Harmful {
            let left = LeftAlone::after(self.harmful.get(class).copied(), now);
            self.harmful.insert(class.into(), left);
        }
        let why = match why {
            WhyReleased::Idle if !self.bounds.holds => "there is room again",
            WhyReleased::Idle => "it has held nobody for a while",
            WhyReleased::Cleared => "nobody accuses it any more, and it holds nobody",
            WhyReleased::Acquitted => "that made no difference",
            WhyReleased::Spared => "others do as well without it",
            WhyReleased::NoDearer => "its requests take no longer than others do",
            WhyReleased::Gone => "its site or its resource is out of the cluster",
            WhyReleased::Unknown => "its resource has no figures any more",
            WhyReleased::Harmful => "others wait longer for it",
            WhyReleased::Expired => "nothing has shown for long that it is needed",
        };
        let text = format!("{class}: not throttled any more, {why}");
        done(class, None, "released", text)
    }

    fn change(&mut self, class: &str, limit: u32, now: Timestamp, more: impl FnOnce(&mut Own)) {
        if let Some(own) = self.own.get_mut(class) {
            own.change(limit, now);
            let halved = own.before.is_some_and(|before| before.is_halved(limit));
            own.halved_at = halved.then(|| own.halved_at.unwrap_or(now));
            more(own);
        }
    }
}

impl Own {
    /// A throttle that is set now; on trial, with the pain as it is, or not.
    fn new(resource: &str, limit: u32, trial: Option<f64>, before: Before, now: Timestamp) -> Self {
        let in_flight = before.in_flight;
        Self {
            resource: resource.into(),
            limit,
            changed_at: now,
            drained_at: (in_flight <= f64::from(limit)).then_some(now),
            accused_at: now,
            held_at: now,
            held: 0,
            passed: 0,
            passed_before: 0,
            in_flight: Some(in_flight),
            passing: Passing::default(),
            dearer: None,
            trial,
            eased: None,
            relapses: 0,
            known_at: now,
            needed_at: now,
            before: Some(before),
            well_since: None,
            halved_at: before.is_halved(limit).then_some(now),
        }
    }

    /// Another limit. More at a time leave nothing to drain.
    fn change(&mut self, limit: u32, now: Timestamp) {
        let drained = self.drained_at.map(|at| now.seconds_since(at));
        self.passing = self.passing.changed(drained.unwrap_or_default());
        let stays = drained.is_some() && limit >= self.limit;
        (self.limit, self.changed_at) = (limit, now);
        self.passed_before = self.passed;
        let drained = stays || self.is_drained(0);
        self.drained_at = drained.then_some(now);
    }

    /// What the class had at the servers may have drained, where so many that its throttle let on have ended.
    fn note_drained(&mut self, ended: u64, now: Timestamp) {
        if self.drained_at.is_some() {
            return;
        }
        if self.is_drained(ended) {
            self.drained_at = Some(now);
            self.passing.since = 0;
        } else if now.since(self.changed_at) >= DRAINED_AFTER {
            self.drained_at = Some(self.changed_at);
        }
    }

    /// Whether none is at the servers any more that was there before the last change.
    fn is_drained(&self, ended: u64) -> bool {
        let one_has_ended = ended > self.passed_before;
        let limit = f64::from(self.limit);
        self.in_flight.map_or(one_has_ended, |many| {
            many <= limit || one_has_ended && many <= 2.0 * limit
        })
    }

    fn standing<'a>(&'a self, class: &'a str) -> Standing<'a> {
        Standing {
            class,
            resource: &self.resource,
            limit: self.limit,
            changed_at: self.changed_at,
            drained_at: self.drained_at,
            accused_at: self.accused_at,
            held_at: self.held_at,
            trial: self.trial,
            eased: self.eased,
            relapses: self.relapses,
            known_at: self.known_at,
            needed_at: self.needed_at,
            before: self.before,
            halved_at: self.halved_at,
            passing: self.passing,
            dearer: self.dearer,
        }
    }
}

fn rename<T>(all: &mut BTreeMap<String, T>, from: &str, to: &str) {
    if let Some(known) = all.remove(from) {
        all.insert(to.into(), known);
    }
}

/// Held to so many at a time, or to any number, or released. What admission holds back it is to
/// hold back of those first.
fn done(class: &str, limit: Option<Option<u32>>, what: &'static str, text: String) -> Done {
    let limits = |limit| ThrottleLimits {
        concurrency: limit,
        lowest_priority: true,
        ..ThrottleLimits::default()
    };
    Done {
        class: class.into(),
        limits: limit.map(limits),
        what,
        text,
    }
}
