//! What is tried when nothing that is known helps: a round of trials of whatever is in flight.
//!
//! ```text
//! stuck     for 15 s  10 % of the others are held back, use >= 0.7;  or  late, use >= 0.9
//! open      for 5 s then: classes are tried that were acquitted, and those that are only presumed, since they are long in
//!           flight for what they are; from the second round on also those that were left alone; never those that were
//!           found no dearer than others
//! again     20 s after the last round, 40, 80, 160 and 300 s; from the start once others were well for 60 s
//! ```
//!
//! In front of a full resource admission keeps what is in flight so even that no fit tells much, and what was seen while
//! it refused is no room. A trial that was judged among many others, or before the worst had come, says little, too. While
//! others are refused anyway a round costs less than waiting: what makes no difference goes free after five seconds.
//!
//! Inputs: how resources do, a clock. Failure case: a site with more of all than it bears has rounds in vain, each of some
//! seconds, at most each five minutes in the long run.
//!
//! Source: measured on an auction site whose searches fill its database from the start (`tidegate-sim`'s `queueing`).

use std::time::Duration;

use super::trials::MANY_HELD_BACK;
use super::{Pressure, USAGE_HELD, USAGE_LATE};
use crate::time::Timestamp;

/// For how long others suffer before a round.
const STUCK: Duration = Duration::from_secs(15);
/// For how long classes are added to it.
const OPEN: Duration = Duration::from_secs(5);
/// Between the first two rounds, how often that doubles, and the most.
const AGAIN: Duration = Duration::from_secs(20);
const DOUBLED_MAX: u32 = 4;
const AGAIN_MAX: Duration = Duration::from_secs(300);
/// For how long others are well before it begins anew.
const WELL: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct LastResort {
    /// Since when others suffer, and when they last did.
    since: Option<Timestamp>,
    suffered_at: Option<Timestamp>,
    /// When the last round began, and how many there were.
    begun_at: Option<Timestamp>,
    rounds: u32,
}

/// Which classes are tried beside those that are suspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    /// None.
    NoMore,
    /// Those that were acquitted, and those that are presumed.
    Acquitted,
    /// Also those that were slowed to others' harm.
    All,
}

impl LastResort {
    /// Looks at resources; which classes are tried now.
    pub(super) fn look(&mut self, pressures: &[Pressure<'_>], now: Timestamp) -> Tried {
        if !pressures.iter().any(is_severe) {
            self.since = None;
            if (self.suffered_at).is_some_and(|at| now.since(at) >= WELL) {
                *self = Self::default();
            }
            return self.open(now);
        }
        self.suffered_at = Some(now);
        let since = *self.since.get_or_insert(now);
        let due = (self.begun_at).is_none_or(|begun| now.since(begun) >= self.pause());
        if now.since(since) >= STUCK && due {
            self.begun_at = Some(now);
            self.rounds = self.rounds.saturating_add(1);
        }
        self.open(now)
    }

    fn open(&self, now: Timestamp) -> Tried {
        match self.begun_at {
            Some(begun) if now.since(begun) < OPEN => match self.rounds {
                0 | 1 => Tried::Acquitted,
                _ => Tried::All,
            },
            _ => Tried::NoMore,
        }
    }

    /// Between the begin of the last round and that of the next.
    fn pause(&self) -> Duration {
        let doubled = self.rounds.saturating_sub(1).min(DOUBLED_MAX);
        (AGAIN * (1 << doubled)).min(AGAIN_MAX)
    }
}

/// Whether many others are held back at a resource that would be full without that, or late at a full one.
fn is_severe(pressure: &Pressure<'_>) -> bool {
    let held_back = pressure.usage >= USAGE_HELD && pressure.others.held_back >= MANY_HELD_BACK;
    held_back || pressure.usage >= USAGE_LATE && pressure.others.latency > 1.0
}

#[cfg(test)]
mod tests {
    use super::super::Others;
    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_millis(1000 * (second + 1))
    }

    fn pressure(usage: f64, latency: f64, held_back: f64) -> Pressure<'static> {
        Pressure {
            resource: "db",
            usage,
            capacity: 0.0,
            others: Others {
                latency,
                slowed: 1.0,
                held_back,
                rising: 0.0,
            },
        }
    }

    /// The seconds at which classes are tried, looked at each second, with this at each.
    fn tried(until: u64, does: impl Fn(u64) -> Pressure<'static>) -> Vec<(u64, Tried)> {
        let mut last_resort = LastResort::default();
        let looks = (0..until).map(|second| {
            let tried = last_resort.look(&[does(second)], at(second));
            (second, tried)
        });
        looks.filter(|(_, it)| *it != Tried::NoMore).collect()
    }

    #[test]
    fn rounds_come_after_15_s_in_which_others_suffer_and_ever_less_often() {
        let severe = |_| pressure(0.7, 0.4, 0.1);
        let all = tried(1000, severe);
        let mut begins: Vec<u64> = Vec::new();
        for (second, _) in &all {
            if begins.last().is_none_or(|begin| second - begin >= 5) {
                begins.push(*second);
            }
        }
        assert_eq!(begins, [15, 35, 75, 155, 315, 615, 915]);
        assert_eq!(all.len(), 5 * begins.len());
        let of = |from| all.iter().find(|it| it.0 == from).map(|it| it.1);
        assert_eq!(of(15), Some(Tried::Acquitted));
        assert_eq!(of(35), Some(Tried::All));
    }

    #[test]
    fn others_suffer_where_many_are_held_back_or_late_at_a_full_resource() {
        for severe in [pressure(0.7, 0.0, 0.1), pressure(0.9, 1.1, 0.0)] {
            assert_eq!(tried(20, |_| severe).len(), 5, "{severe:?}");
        }
        for well in [
            pressure(0.69, 9.0, 0.9),
            pressure(0.89, 9.0, 0.09),
            pressure(1.0, 1.0, 0.09),
        ] {
            assert_eq!(tried(100, |_| well), [], "{well:?}");
        }
    }

    #[test]
    fn it_begins_anew_once_others_were_well_for_a_minute() {
        let severe = pressure(0.9, 0.4, 0.5);
        let but = |from: u64, to: u64| {
            move |second| match (from..to).contains(&second) {
                true => pressure(0.9, 0.4, 0.0),
                false => severe,
            }
        };
        // For a moment: not due before 15 s have passed again.
        let first = |all: Vec<(u64, Tried)>, from| all.into_iter().find(|it| it.0 >= from);
        assert_eq!(
            first(tried(60, but(10, 11)), 0),
            Some((26, Tried::Acquitted))
        );
        let later = first(tried(200, but(30, 60)), 60);
        assert_eq!(later, Some((75, Tried::All)));
        let anew = first(tried(200, but(30, 90)), 60);
        assert_eq!(anew, Some((105, Tried::Acquitted)));
    }
}
