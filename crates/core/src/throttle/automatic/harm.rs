//! Whether slowing a class makes it worse for all others, as where they wait for what it holds.
//!
//! ```text
//! going to   pain when it was set + its rise in a second then x seconds since
//! harm       for 15 s at half of what was in flight or less, and drained,  pain > 1.1 x what it was going to be,
//!            and no less of the resource is used:  use > 0.95 x what it was
//! over       pain <= 0.8 x what it was, or calm, for 15 s: it helps;  or 60 s after it was set
//! again      not for 5 minutes; twice as long after each time, up to 160 minutes
//! ```
//!
//! Behind a throttle that is right others suffer more for a while, too: requests that wait already end with ever longer
//! waits until the queue has drained. In a queue in order of arrival their waits go on to grow as they did for as long
//! as the oldest of them has waited, and no faster; so the trend of before is what they are compared with.
//!
//! Inputs: how others did before and do now. Failure case: a class that does harm while waits grow fast anyway is not
//! seen to; its throttle ends when it is doubted, or at its longest time. Other load that comes within the minute looks
//! like harm, and the class is left alone for five minutes. Others that do well for 15 s within that minute end the
//! watch, and harm that shows only then is not seen.
//!
//! Source: the fluid limit of a queue in order of arrival.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Others, Pressure, Standing, TRIAL_HELPS, WORSE};
use crate::time::Timestamp;

/// How long a class must be held to half of what it had in flight.
const HALVED: Duration = Duration::from_secs(15);
/// How long others must have done better before a throttle is not watched any more: that they do for a moment may be
/// what the class did for them before it was slowed.
const HELPED: Duration = Duration::from_secs(15);
/// How long after it was set a throttle is watched.
const WATCHED: Duration = Duration::from_secs(60);
/// Part of the use from which on no less is used.
const SAME_USE: f64 = 0.95;
/// How long a class is left alone that was slowed to others' harm, and how often that doubles.
const LEFT_ALONE: Duration = Duration::from_secs(300);
const DOUBLED_MAX: u32 = 5;
/// Of how many seconds the trend is.
const TREND: Duration = Duration::from_secs(10);

/// How others did when a throttle was set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Before {
    /// When that was.
    pub at: Timestamp,
    /// How much they suffered.
    pub pain: f64,
    /// By how much that grew in a second.
    pub rising: f64,
    /// Used share of the resource.
    pub usage: f64,
    /// Requests of the class in flight.
    pub in_flight: f64,
}

impl Before {
    pub(super) fn of(pressure: &Pressure<'_>, in_flight: f64, now: Timestamp) -> Self {
        Self {
            at: now,
            pain: pressure.pain(),
            rising: pressure.others.rising,
            usage: pressure.usage,
            in_flight,
        }
    }

    /// Whether so many at a time are half of what was in flight, or less.
    pub(super) fn is_halved(&self, limit: u32) -> bool {
        2.0 * f64::from(limit) <= self.in_flight
    }

    /// Whether others do better than they did.
    pub(super) fn is_helped(&self, pressure: &Pressure<'_>) -> bool {
        pressure.pain() <= TRIAL_HELPS * self.pain || pressure.is_calm()
    }

    /// Whether nothing has to be watched any more, where others have done better since then.
    pub(super) fn is_over(&self, well_since: Option<Timestamp>, now: Timestamp) -> bool {
        let helps = well_since.is_some_and(|since| now.since(since) >= HELPED);
        helps || now.since(self.at) > WATCHED
    }
}

/// Whether others suffer more for a throttle.
pub(super) fn is_harmful(standing: &Standing<'_>, pressure: &Pressure<'_>, now: Timestamp) -> bool {
    let Some(before) = standing.before else {
        return false;
    };
    let (Some(halved_at), Some(drained_at)) = (standing.halved_at, standing.drained_at) else {
        return false;
    };
    let going_to = before.pain + before.rising * now.seconds_since(before.at);
    now.since(halved_at.max(drained_at)) >= HALVED
        && pressure.pain() > WORSE * going_to
        && pressure.usage > SAME_USE * before.usage
}

/// The pain of the last seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Trend(VecDeque<(Timestamp, f64)>);

impl Trend {
    /// Adds how others do now; by how much that has grown in a second, zero if it has not.
    pub(super) fn add(&mut self, others: &Others, now: Timestamp) -> f64 {
        while (self.0.front()).is_some_and(|(at, _)| now.since(*at) > TREND) {
            self.0.pop_front();
        }
        let pain = others.pain();
        let first = self.0.front().copied();
        self.0.push_back((now, pain));
        let (at, before) = first.unwrap_or((now, pain));
        let seconds = now.seconds_since(at);
        match seconds > 0.0 {
            true => ((pain - before) / seconds).max(0.0),
            false => 0.0,
        }
    }
}

/// A class that was slowed to others' harm.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeftAlone {
    at: Timestamp,
    times: u32,
}

impl LeftAlone {
    /// Once more, after this.
    pub(super) fn after(before: Option<Self>, now: Timestamp) -> Self {
        Self {
            at: now,
            times: before.map_or(0, |it| it.times.saturating_add(1)),
        }
    }

    /// Since this moment, after so many times before.
    pub(super) fn known(at: Timestamp, times: u32) -> Self {
        Self { at, times }
    }

    /// How long ago the last time was.
    pub(super) fn age(&self, now: Timestamp) -> Duration {
        now.since(self.at)
    }

    /// How often it happened before that.
    pub(super) fn times(&self) -> u32 {
        self.times
    }

    fn lasts(&self) -> Duration {
        LEFT_ALONE * (1 << self.times.min(DOUBLED_MAX))
    }

    /// Whether the class is not to be slowed now.
    pub(super) fn is_on(&self, now: Timestamp) -> bool {
        now.since(self.at) < self.lasts()
    }

    /// Whether it counts if it happens once more.
    pub(super) fn is_remembered(&self, now: Timestamp) -> bool {
        now.since(self.at) < self.lasts() * 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(100_000_000);

    fn ago(seconds: u64) -> Timestamp {
        NOW - Duration::from_secs(seconds)
    }

    fn pressure(usage: f64, latency: f64) -> Pressure<'static> {
        Pressure {
            resource: "db",
            usage,
            capacity: 0.0,
            others: Others {
                latency,
                slowed: 1.0,
                held_back: 0.0,
                rising: 0.0,
            },
        }
    }

    /// Of a class with ten in flight, set 20 s ago while others took so long, and longer each second.
    fn standing(pain: f64, rising: f64) -> Standing<'static> {
        Standing {
            before: Some(Before {
                at: ago(20),
                pain,
                rising,
                usage: 0.97,
                in_flight: 10.0,
            }),
            halved_at: Some(ago(15)),
            drained_at: Some(ago(15)),
            ..Standing::of("a", 5, NOW)
        }
    }

    #[test]
    fn others_that_suffer_more_than_they_were_going_to_are_harmed() {
        let steady = standing(1.5, 0.0);
        assert!(is_harmful(&steady, &pressure(0.95, 1.7), NOW));
        assert!(!is_harmful(&steady, &pressure(0.95, 1.6), NOW), "chance");
        assert!(!is_harmful(&steady, &pressure(0.9, 1.7), NOW), "less used");
        // A queue that drains: waits go on as they did, three times as long by now.
        let growing = standing(1.5, 0.15);
        assert!(!is_harmful(&growing, &pressure(1.0, 4.9), NOW));
        assert!(is_harmful(&growing, &pressure(1.0, 5.0), NOW));
    }

    #[test]
    fn a_class_must_be_held_to_half_for_a_while() {
        let worse = pressure(0.97, 3.0);
        for halved_at in [None, Some(ago(14))] {
            let standing = Standing {
                halved_at,
                ..standing(1.5, 0.0)
            };
            assert!(!is_harmful(&standing, &worse, NOW));
        }
        let before = standing(1.5, 0.0).before.unwrap();
        assert!(before.is_halved(5) && !before.is_halved(6));
        let helped = Standing {
            before: None,
            ..standing(1.5, 0.0)
        };
        assert!(!is_harmful(&helped, &worse, NOW));
    }

    #[test]
    fn what_helps_is_not_watched_any_more() {
        let before = standing(2.0, 0.0).before.unwrap();
        assert!(before.is_helped(&pressure(0.97, 1.6)));
        assert!(!before.is_helped(&pressure(0.97, 1.7)));
        assert!(before.is_helped(&pressure(0.6, 1.7)), "there is room");
        assert!(before.is_over(Some(ago(15)), NOW));
        assert!(!before.is_over(Some(ago(14)), NOW), "for a moment");
        let later = NOW + Duration::from_secs(41);
        assert!(!before.is_over(None, NOW) && before.is_over(None, later));
    }

    #[test]
    fn the_trend_is_that_of_ten_seconds_and_never_down() {
        let mut trend = Trend::default();
        let mut found = Vec::new();
        for second in 0..30 {
            let others = pressure(0.9, f64::from(second)).others;
            found.push(trend.add(&others, ago(100 - u64::from(second as u32))));
        }
        assert_eq!((found[0], found[1], found[29]), (0.0, 1.0, 1.0));
        assert!(trend.0.len() <= 11);
        assert_eq!(trend.add(&pressure(0.9, 1.0).others, ago(70)), 0.0);
    }

    #[test]
    fn a_class_is_left_alone_for_longer_each_time() {
        let once = LeftAlone::after(None, ago(299));
        assert!(once.is_on(NOW) && !LeftAlone::after(None, ago(300)).is_on(NOW));
        let twice = LeftAlone::after(Some(once), ago(599));
        assert!(twice.is_on(NOW) && !LeftAlone::after(Some(once), ago(600)).is_on(NOW));
        assert!(LeftAlone::after(None, ago(599)).is_remembered(NOW));
        assert!(!LeftAlone::after(None, ago(600)).is_remembered(NOW));
        let often = (0..100).fold(once, |it, _| LeftAlone::after(Some(it), ago(9_600)));
        assert!(!often.is_on(NOW) && often.is_remembered(NOW));
    }
}
