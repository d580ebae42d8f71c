//! Trials: which classes fill a resource is found out by slowing those that may, several at a time, and by letting them go
//! again one by one.
//!
//! ```text
//! round     all trials of a resource.  in vain  pain > 0.8 x the worst from when the trial was set until it had drained
//! next      no trial is in vain, or each that is has had its time: at its least for 5 s; where 10 % of the others
//!           are held back, a second is enough
//! drained   no more than the limit are in flight, or twice as many and one that was let on since has ended (which
//!           alone decides where it is not known); or 60 s have passed. Before that what a trial does is not seen: its
//!           5 s, and what passes in a second, count from then on
//! acquit    all in vain, each has been at its least for 5 s, and there is none else to try: all of them; with no
//!           throttle left and another to try: the one with the least share, which makes room
//! let go    a trial that helped beside another throttle of the resource, while no class would be slowed for others: the
//!           one that was taken back least often, with the least share, at twice as many each 2 s, or when 20 have passed (twice as long after each time
//!           that was taken back);  spared when none of its requests has waited for 5 s
//! no dearer after a trial that helped, 5 s after it has drained: half of its requests take less than 1.5 x what half of
//!           the others take at the servers: it is one of too many, and goes free
//! kept      requests wait, and fewer than 1.6 times as many pass in a second
//!           as with half as many at a time
//! ```
//!
//! Where two classes fill a resource between them, slowing one makes room for the other and for none else: one after
//! the other each seems innocent. Slowed together they show at once that they are among the culprits, and let go one by one
//! they show which they are: in a full resource twice as many at a time take nearly twice as long, where another class
//! gets twice as much done. While others are refused each second counts; so a round grows by one a second then, and an
//! innocent class is slowed for some seconds instead.
//!
//! What a class has at the servers when it is slowed goes on to fill the resource. In a queue in order of arrival all others
//! wait behind it, so a trial that is judged before is in vain, whatever the class does.
//!
//! Inputs: throttles, shares, pressure, a clock. Failure case: more culprits than there are throttles; then a round may
//! be in vain. Servers that answer the latest first, where requests of before are left when one that came later has ended. Others that do better by chance within a round make innocents wait until they are let go. Where
//! most of the others take long for something that is not full, a dear class looks no dearer, and is slowed only once it is
//! named for sure.
//!
//! Source: adaptive group testing (Dorfman-1943); processor sharing.

use std::time::Duration;

use crate::time::Timestamp;

use super::{AutoConfig, Culprit, Eased, Pressure, SETTLE, Standing, Step, WhyReleased, less};
use super::{PATIENCE_MAX, TRIAL_HELPS};

/// Part of the others that is held back from which on a round grows each second.
pub(super) const MANY_HELD_BACK: f64 = 0.1;
/// How long a trial stands before the next one then.
const NEXT: Duration = Duration::from_secs(1);
/// How long each step is looked at while a class is let go.
const LET_GO: Duration = Duration::from_secs(2);

/// Requests that must have passed before and after a step to compare them, and how many times as many pass in a second of a
/// class that does not use what is full, at least, with twice as many at a time.
const PASSED_MIN: u64 = 20;
const GAIN: f64 = 1.6;
/// What one of a class takes at the servers over what one of the others does, below which it is no dearer.
const DEARER: f64 = 1.5;

/// How requests of a throttled class go on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Passing {
    /// Those that went on since the last change.
    pub since: u64,
    /// Those that went on in a second before it; none if there were too few, or none waited.
    pub before: Option<f64>,
    /// Whether some wait.
    pub waits: bool,
}

impl Passing {
    /// As it is from a change on that is made after so many seconds.
    pub(super) fn changed(self, seconds: f64) -> Self {
        let compares = self.waits && self.since >= PASSED_MIN;
        Self {
            since: 0,
            before: compares.then(|| self.since as f64 / seconds.max(1e-3)),
            waits: self.waits,
        }
    }

    /// Whether more at a time gain the class less than they would if it did not use what is full.
    fn gains_little(self, seconds: f64) -> bool {
        let rate = self.since as f64 / seconds.max(1e-3);
        self.waits && self.before.is_some_and(|before| rate < GAIN * before)
    }
}

/// What a trial that helped does while others are well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LettingGo {
    /// It is no such trial, or the only throttle of its resource.
    NotDue,
    /// Another one is let go before it.
    Waits,
    /// It is let go.
    Now,
}

/// Whether a trial has made no difference so far.
pub(super) fn is_in_vain(standing: &Standing<'_>, pain: f64) -> bool {
    (standing.trial).is_some_and(|before| pain > TRIAL_HELPS * before)
}

/// Whether there is to be no other trial before more is known of this one.
pub(super) fn is_undecided(
    config: &AutoConfig,
    standing: &Standing<'_>,
    pressure: Option<&Pressure<'_>>,
    now: Timestamp,
) -> bool {
    let pain = pressure.map_or(0.0, Pressure::pain);
    let hurry = pressure.is_some_and(|it| it.others.held_back >= MANY_HELD_BACK);
    let had_its_time = match hurry {
        true => now.since(standing.changed_at) >= NEXT,
        false => is_at_its_least(config, standing, now),
    };
    is_in_vain(standing, pain) && !had_its_time
}

/// Whether a trial has helped others by nothing but that fewer were let in: whichever class were slowed, others would do
/// better. That can be seen only where none waits behind another.
pub(super) fn is_no_dearer(
    standing: &Standing<'_>,
    pressure: &Pressure<'_>,
    now: Timestamp,
) -> bool {
    let no_dearer = standing.dearer.is_some_and(|it| it < DEARER);
    let seen = !pressure.is_pressed() && standing.drained_for(now) >= SETTLE;
    standing.trial.is_some() && seen && no_dearer
}

/// Whether a class has been held as far as it may be for long enough to see what comes of it.
pub(super) fn is_at_its_least(
    config: &AutoConfig,
    standing: &Standing<'_>,
    now: Timestamp,
) -> bool {
    let least = less(standing.limit.into(), config.least) == standing.limit;
    least && standing.drained_for(now) >= SETTLE
}

/// Leaves of the acquittals those that are due: none while there is a class to try or a trial that is young; one,
/// where another class can be tried only in its place.
pub(super) fn judge_together<'a>(
    steps: &mut Vec<Step<'a>>,
    next: Option<&Step<'a>>,
    no_room: bool,
    culprits: &[Culprit<'a>],
    standing: &[Standing<'a>],
    now: Timestamp,
) {
    let mut trials = standing.iter().filter(|it| it.trial.is_some());
    let young = trials.any(|it| it.drained_for(now) < SETTLE);
    let another = matches!(next, Some(Step::Set { trial: Some(_), .. }));
    if !another && !young {
        return;
    }
    let is_due = |it: &&Standing<'_>| steps.iter().any(|step| is_acquittal(step, it.class));
    let least = match no_room && !young {
        true => by_share(standing.iter().filter(is_due), culprits),
        false => None,
    };
    let least = least.map(|it| it.class);
    steps.retain(|step| {
        let mut acquitted = standing.iter().filter(|it| is_acquittal(step, it.class));
        acquitted.all(|it| Some(it.class) == least)
    });
}

/// Whether a step ends the trial of a class that made no difference.
fn is_acquittal(step: &Step<'_>, class: &str) -> bool {
    let why = WhyReleased::Acquitted;
    *step == Step::Release { class, why }
}

/// The one with the least share.
fn by_share<'s, 'a: 's>(
    standing: impl Iterator<Item = &'s Standing<'a>>,
    culprits: &[Culprit<'a>],
) -> Option<&'s Standing<'a>> {
    let share = |it: &Standing<'_>| {
        let own = culprits.iter().filter(|culprit| culprit.class == it.class);
        own.map(|it| it.share).fold(0.0, f64::max)
    };
    standing.min_by(|one, other| {
        let order = share(one).total_cmp(&share(other));
        order.then(one.class.cmp(other.class))
    })
}

/// What this throttle does if it is a trial that helped and others are well.
pub(super) fn letting_go(
    it: &Standing<'_>,
    standing: &[Standing<'_>],
    culprits: &[Culprit<'_>],
    pain: f64,
) -> LettingGo {
    let helped = |it: &Standing<'_>| it.trial.is_some() && !is_in_vain(it, pain);
    let beside = |other: &&Standing<'_>| other.resource == it.resource;
    if !helped(it) || standing.iter().filter(beside).count() < 2 {
        return LettingGo::NotDue;
    }
    let round = || standing.iter().filter(beside).filter(|it| helped(it));
    let begun = round().find(|it| it.eased.is_some());
    let least = round().map(|it| it.relapses).min();
    let next = round().filter(|it| Some(it.relapses) == least);
    match begun.or_else(|| by_share(next, culprits)) {
        Some(first) if first.class == it.class => LettingGo::Now,
        _ => LettingGo::Waits,
    }
}

/// The next step of a class that is let go.
pub(super) fn let_go<'a>(
    standing: &Standing<'a>,
    before: Eased,
    now: Timestamp,
) -> Option<Step<'a>> {
    let Standing { class, passing, .. } = *standing;
    let unchanged = standing.drained_for(now);
    if standing.held_at <= standing.changed_at {
        let why = WhyReleased::Spared;
        return (unchanged >= SETTLE).then_some(Step::Release { class, why });
    }
    let patience = LET_GO * (1 << standing.relapses.min(PATIENCE_MAX));
    let eased = standing.eased.filter(|_| passing.before.is_some());
    let compared = passing.since >= PASSED_MIN;
    if unchanged < patience || eased.is_some() && !compared && unchanged < SETTLE {
        return None;
    }
    match eased.filter(|_| compared && passing.gains_little(unchanged.as_secs_f64())) {
        Some(Eased { from: limit, .. }) => Some(Step::Keep { class, limit }),
        None => Some(Step::Ease {
            class,
            limit: standing.limit.saturating_mul(2),
            before,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Others, steps};
    use super::*;
    use crate::culprits::Confidence;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);
    const WELL: (f64, f64) = (0.5, 0.0);
    const REFUSED: (f64, f64) = (0.4, 0.3);

    fn ago(seconds: u64) -> Timestamp {
        NOW - Duration::from_secs(seconds)
    }

    fn suspect(class: &str, share: f64) -> Culprit<'_> {
        Culprit {
            class,
            resource: "db",
            share,
            confidence: None,
            presumed: false,
            in_flight: 10.0,
            held_back: 0.0,
        }
    }

    /// On trial at one at a time for so many seconds, set when 30 % of the others were held back.
    fn trial(class: &str, seconds: u64) -> Standing<'_> {
        Standing {
            changed_at: ago(seconds),
            trial: Some(15.0),
            ..Standing::of(class, 1, NOW)
        }
    }

    /// What is done while the database is full and others have such a latency and so many of them are held back.
    fn done<'a>(
        (latency, held_back): (f64, f64),
        culprits: &[Culprit<'a>],
        standing: &[Standing<'a>],
    ) -> Vec<Step<'a>> {
        let pressure = Pressure {
            resource: "db",
            usage: 0.97,
            capacity: 0.0,
            others: Others {
                latency,
                slowed: 1.0,
                held_back,
                rising: 0.0,
            },
        };
        steps(&AutoConfig::default(), culprits, &[pressure], standing, NOW)
    }

    fn tried<'a>(steps: &[Step<'a>]) -> Option<&'a str> {
        steps.iter().find_map(|step| {
            let Step::Set { class, trial, .. } = step else {
                return None;
            };
            trial.map(|_| *class)
        })
    }

    fn eased(class: &str, limit: u32, pain: f64) -> Step<'_> {
        Step::Ease {
            class,
            limit: limit * 2,
            before: Eased { from: limit, pain },
        }
    }

    fn released(class: &str, why: WhyReleased) -> Step<'_> {
        Step::Release { class, why }
    }

    #[test]
    fn a_round_grows_each_second_while_many_others_are_held_back() {
        let suspects = [suspect("a", 0.5), suspect("b", 0.3)];
        let next = |others, seconds| tried(&done(others, &suspects, &[trial("a", seconds)]));
        assert_eq!(next(REFUSED, 1), Some("b"));
        assert_eq!(next(REFUSED, 0), None);
        let few = (0.4, 0.099);
        let trials = |seconds| Standing {
            trial: Some(4.95),
            ..trial("a", seconds)
        };
        let next = |seconds| tried(&done(few, &suspects, &[trials(seconds)]));
        assert_eq!((next(4), next(5)), (None, Some("b")));
    }

    #[test]
    fn a_class_that_is_named_with_too_little_confidence_is_tried_while_many_others_are_held_back() {
        for confidence in [Confidence::Ambiguous, Confidence::Likely] {
            let named = Culprit {
                confidence: Some(confidence),
                ..suspect("a", 0.4)
            };
            let next = |others| tried(&done(others, &[named], &[])).is_some();
            assert!(next(REFUSED), "{confidence:?}");
            assert!(!next((0.4, 0.099)), "{confidence:?}");
            assert!(!next((1.5, 0.0)), "{confidence:?}: late, but let in");
        }
    }

    #[test]
    fn with_no_throttle_left_the_least_suspect_makes_room_for_another() {
        let suspects = ["a", "b", "c", "d"].map(|class| suspect(class, 0.2));
        let suspects = &mut suspects.clone();
        suspects[1].share = 0.15;
        let three = |seconds| ["a", "b", "c"].map(|class| trial(class, seconds));
        assert_eq!(done(REFUSED, suspects, &three(4)), []);
        let why = WhyReleased::Acquitted;
        assert_eq!(done(REFUSED, suspects, &three(5)), [released("b", why)]);
        // With none else to try all of them go.
        let all = done(REFUSED, &suspects[..3], &three(5));
        assert_eq!(all, ["a", "b", "c"].map(|class| released(class, why)));
    }

    #[test]
    fn after_a_round_that_helped_classes_are_let_go_one_by_one() {
        let suspects = [suspect("a", 0.5), suspect("b", 0.3)];
        let both = |seconds| ["a", "b"].map(|class| trial(class, seconds));
        assert_eq!(done(WELL, &suspects, &both(1)), []);
        let first = eased("b", 1, WELL.0);
        assert_eq!(done(WELL, &suspects, &both(2)), [first]);
        // The one that is let go goes on, whatever its share.
        let begun = Standing {
            limit: 2,
            eased: Some(Eased { from: 1, pain: 0.5 }),
            ..trial("a", 2)
        };
        let both = [begun, trial("b", 9)];
        assert_eq!(done(WELL, &suspects, &both), [eased("a", 2, WELL.0)]);
        // None of its requests has waited for long.
        let idle = |seconds| {
            let never = Standing {
                changed_at: ago(seconds),
                held_at: ago(60),
                ..begun
            };
            [never, trial("b", 9)]
        };
        assert_eq!(done(WELL, &suspects, &idle(4)), []);
        let spared = released("a", WhyReleased::Spared);
        assert_eq!(done(WELL, &suspects, &idle(5)), [spared]);
        // Taken back once, it comes last, and later.
        let relapsed = Standing {
            relapses: 1,
            ..trial("b", 9)
        };
        let both = [trial("a", 2), relapsed];
        assert_eq!(done(WELL, &suspects, &both), [eased("a", 1, WELL.0)]);
    }

    #[test]
    fn a_class_that_takes_no_longer_than_others_do_goes_free_although_its_trial_helped() {
        let free = [released("a", WhyReleased::NoDearer)];
        let slowed = |dearer, seconds| Standing {
            dearer,
            ..trial("a", seconds)
        };
        let after = |others, slowed| done(others, &[suspect("a", 0.5)], &[slowed]);
        assert_eq!(after(WELL, slowed(Some(1.49), 5)), free);
        for (others, slowed) in [
            (WELL, slowed(Some(1.5), 5)),
            (WELL, slowed(None, 5)),
            (WELL, slowed(Some(1.0), 4)),
            // Where others still wait all take as long.
            (REFUSED, slowed(Some(1.0), 4)),
            ((0.4, 0.05), slowed(Some(1.0), 5)),
        ] {
            assert_ne!(after(others, slowed), free, "{slowed:?}");
        }
        let sure = Standing {
            trial: None,
            ..slowed(Some(1.0), 5)
        };
        assert_ne!(after(WELL, sure), free, "it was named for sure");
    }

    #[test]
    fn a_class_that_gains_little_from_more_at_a_time_uses_what_is_full() {
        let passing = |since| Passing {
            since,
            before: Some(10.0),
            waits: true,
        };
        let let_go = |passing, seconds| {
            let begun = Standing {
                limit: 2,
                eased: Some(Eased { from: 1, pain: 0.5 }),
                passing,
                ..trial("a", seconds)
            };
            done(WELL, &[], &[begun, trial("b", 9)])
        };
        let (class, limit) = ("a", 1);
        assert_eq!(let_go(passing(31), 2), [Step::Keep { class, limit }]);
        assert_eq!(let_go(passing(32), 2), [eased("a", 2, WELL.0)]);
        // Too few to compare: some seconds more, and then without.
        assert_eq!(let_go(passing(19), 2), []);
        assert_eq!(let_go(passing(19), 5), [eased("a", 2, WELL.0)]);
        let demand = Passing {
            waits: false,
            ..passing(20)
        };
        assert_eq!(let_go(demand, 2), [eased("a", 2, WELL.0)]);
        let before = Passing {
            since: 20,
            before: None,
            waits: true,
        };
        assert_eq!(before.changed(2.0).before, Some(10.0));
        for few in [passing(19), demand] {
            assert_eq!(few.changed(2.0).before, None);
        }
    }

    #[test]
    fn the_only_throttle_of_a_resource_is_not_let_go_so_fast() {
        let alone = [trial("a", 4)];
        assert_eq!(done(WELL, &[], &alone), []);
        let elsewhere = Standing {
            resource: "disk",
            ..trial("b", 4)
        };
        assert_eq!(done(WELL, &[], &[trial("a", 4), elsewhere]), []);
        let sure = Standing {
            trial: None,
            ..trial("b", 4)
        };
        let beside = done(WELL, &[], &[trial("a", 4), sure]);
        assert_eq!(beside, [eased("a", 1, WELL.0)]);
    }

    #[test]
    fn a_class_that_is_let_go_is_taken_back_when_others_wait_for_it() {
        let begun = Standing {
            limit: 4,
            eased: Some(Eased { from: 2, pain: 0.5 }),
            ..trial("a", 1)
        };
        let back = Step::TakeBack {
            class: "a",
            limit: 2,
        };
        let others = [begun, trial("b", 2)];
        let worse = done((1.2, 0.0), &[], &others);
        assert!(worse.contains(&back), "{worse:?}");
    }
}
