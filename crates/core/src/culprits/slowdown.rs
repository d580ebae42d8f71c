//! Step 8b: what fills a resource that had room before.
//!
//! ```text
//! excess_c  = mean life now - mean life with room
//! s         = median of excess_c / cost_c           classes that are known, and use 1 % and more; of what they
//!             are thought to cost no more than their life with room
//! cost_c    = what it was with room;  excess_c / s where that is more than three times as much
//! rest      = capacity - use of all that are known
//! use_c     = of classes not known: their part of the rest by lives, but not more than life / (1 + s) each
//! cleared     known, not named with room, costs what it did, and uses less than twice as much
//! ```
//!
//! Lives alone divide all of a full resource between requests, also what no request asked for: a backup that fills
//! a database for a minute would be blamed on the class that takes longest. A class that was known with room needs no
//! dividing; all of them are slowed as far as they need the resource, and one that is slowed far more needs more
//! than it did. What is left when all that is known is counted is of no class, or of new ones.
//!
//! Where nothing tells how much all are slowed, a class that takes hardly longer than with room uses what it did then.
//!
//! Where a resource is full now and then only, the fit names; of it, too, a class that is cleared is innocent. A class that
//! comes often is slowed at every moment at which something else fills the resource, and looks as if it had.
//!
//! Inputs: costs and lives from the last windows with room, lives now, and what lives alone say. Failure case: a
//! class that waits for something else of late looks as if it cost more; nothing is known if there was never room,
//! and then a class that is slow in its own way looks guilty, unless all its requests take the same time.
//! Source: processor sharing, under which excess goes with work; measured on sites that a backup fills.

use super::occupancy::Occupied;
use crate::stats;

/// Part of the window that may be full while there is room.
pub(super) const ROOM: f64 = 0.3;
/// Weight of the last window with room, and how many make a class known: as long as a window is.
const LAST: f64 = 0.25;
pub(super) const WINDOWS_MIN: u32 = 12;
/// Classes and what each of them must use to tell how much all are slowed.
const TELL_MIN: usize = 3;
const TELL_SHARE: f64 = 0.01;
/// From how many times the known cost on, and from which part of the known life on, an excess tells another.
const CHANGED: f64 = 3.0;
const CHANGED_LIFE: f64 = 1.0;
/// By which part of its life with room a request that uses a full resource takes longer, at least.
const SAME_LIFE: f64 = 0.5;
/// Part of the windows with room in which a culprit was named, and from how many times its use on it is another.
const NAMED: f64 = 0.2;
const MORE: f64 = 2.0;
/// Ratio of one slowdown of all classes that is tried to the one before it.
const SLOWDOWN_RATIO: f64 = 1.25;
/// Slowdowns that are tried at the most.
const STEPS_MAX: u32 = 40;
/// Least slowdown that anything is divided by.
const SLOWED_MIN: f64 = 0.1;

/// A class while the resource had room.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Room {
    /// Seconds of the resource per request.
    pub(super) cost: f64,
    /// Mean life, seconds.
    pub(super) life: f64,
    /// Part of the capacity.
    pub(super) share: f64,
    /// In what part of the windows the fit named it, and it took what it cost.
    pub(super) named: f64,
    /// How many windows tell.
    pub(super) windows: u32,
}

impl Room {
    /// The mean of what was known and what was found last.
    pub(super) fn with(self, last: Self) -> Self {
        let mean = |known: f64, last: f64| known + LAST * (last - known);
        Self {
            cost: mean(self.cost, last.cost),
            life: mean(self.life, last.life),
            share: mean(self.share, last.share),
            named: mean(self.named, last.named),
            windows: self.windows.saturating_add(last.windows),
        }
    }
}

/// A class now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slowed {
    pub(super) room: Option<Room>,
    pub(super) requests: f64,
    /// Mean life, seconds.
    pub(super) life: f64,
    /// What lives alone say.
    pub(super) occupied: Occupied,
}

impl Slowed {
    /// What it uses if its requests cost so much.
    fn use_at(&self, cost: f64, capacity: f64) -> Occupied {
        Occupied {
            share: cost * self.requests / capacity,
            cost,
            cleared: false,
        }
    }
}

/// What each class uses; what lives alone say if too little is known. `capacity` is that of the window, seconds.
pub(super) fn by_slowdown(classes: &[Slowed], capacity: f64) -> Vec<Occupied> {
    let Some(slowed) = slowdown(classes, capacity) else {
        return by_lives(classes, capacity);
    };
    let known = |slowed: f64| {
        move |it: &Slowed| {
            let room = it.room?;
            let excess = it.life - room.life;
            let by_excess = excess / slowed.max(SLOWED_MIN);
            let changed = by_excess > CHANGED * room.cost && excess > CHANGED_LIFE * room.life;
            let cost = if changed { by_excess } else { room.cost };
            let found = it.use_at(cost, capacity);
            Some(Occupied {
                cleared: !changed && room.named < NAMED && found.share < MORE * room.share,
                ..found
            })
        }
    };
    let sum = |slowed| -> f64 {
        let shares = classes.iter().filter_map(known(slowed));
        shares.map(|it| it.share).sum()
    };
    // Classes that show it may be slowed less than others are; all that is known cannot use more than there is.
    let mut slowed = slowed;
    let may_fit = sum(f64::INFINITY) <= 1.0;
    for _ in 0..STEPS_MAX {
        if !may_fit || sum(slowed) <= 1.0 {
            break;
        }
        slowed = SLOWDOWN_RATIO * slowed.max(SLOWED_MIN);
    }
    let (known, all_known) = (known(slowed), sum(slowed));
    let rest = (1.0 - all_known).max(0.0);
    let new = classes.iter().filter(|it| it.room.is_none());
    let by_lives: f64 = new.map(|it| it.occupied.share).sum();
    let divided = |it: &Slowed| {
        let part = rest * it.occupied.share / by_lives.max(f64::MIN_POSITIVE);
        let cost = part * capacity / it.requests.max(f64::MIN_POSITIVE);
        it.use_at(cost.min(it.life / (1.0 + slowed)), capacity)
    };
    let found = classes
        .iter()
        .map(|it| known(it).unwrap_or_else(|| divided(it)));
    found.collect()
}

/// What lives alone say, where nothing says how much all are slowed: but what takes hardly longer than with room
/// uses what it did then, however long that is, and the rest is divided between the others.
fn by_lives(classes: &[Slowed], capacity: f64) -> Vec<Occupied> {
    let same = |it: &Slowed| {
        let room = it
            .room
            .filter(|room| it.life < (1.0 + SAME_LIFE) * room.life)?;
        let found = it.use_at(room.cost, capacity);
        let cleared = room.named < NAMED;
        Some(Occupied { cleared, ..found })
    };
    let found = classes.iter().map(|it| same(it).unwrap_or(it.occupied));
    found.collect()
}

/// By how much all are slowed: one if a second of work takes a second more than with room.
fn slowdown(classes: &[Slowed], capacity: f64) -> Option<f64> {
    let known = classes
        .iter()
        .filter_map(|it| it.room.map(|room| (it, room)));
    let tell = known.filter(|(it, room)| it.use_at(room.cost, capacity).share >= TELL_SHARE);
    let mut slowed: Vec<_> = tell
        .map(|(it, room)| (it.life - room.life) / room.cost.min(room.life))
        .collect();
    let enough = slowed.len() >= TELL_MIN;
    stats::quantile(&mut slowed, 0.5)
        .filter(|_| enough)
        .map(|it| it.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten seconds of two cores.
    const CAPACITY: f64 = 20.0;

    /// 40 requests that lives alone say use a fourth.
    fn class(room: Option<Room>, life: f64) -> Slowed {
        Slowed {
            room,
            requests: 40.0,
            life,
            occupied: Occupied {
                share: 0.25,
                cost: 0.125,
                cleared: false,
            },
        }
    }

    fn known(cost: f64, life: f64, now: f64) -> Slowed {
        let room = Room {
            cost,
            life,
            share: 40.0 * cost / CAPACITY,
            named: 0.0,
            windows: WINDOWS_MIN,
        };
        class(Some(room), now)
    }

    fn near(found: &[Occupied], shares: &[f64]) {
        for (found, share) in found.iter().zip(shares) {
            assert!((found.share - share).abs() < 1e-9, "{found:?} {share}");
            assert!((found.cost - share * CAPACITY / 40.0).abs() < 1e-9);
        }
        assert_eq!(found.len(), shares.len());
    }

    #[test]
    fn what_is_nobodys_is_blamed_on_nobody() {
        // All take a second longer for each second of work: 0.02 + 0.05 + 0.1 of the capacity is theirs.
        let all = [
            known(0.01, 0.1, 0.11),
            known(0.025, 0.1, 0.125),
            known(0.05, 0.1, 0.15),
        ];
        let found = by_slowdown(&all, CAPACITY);
        near(&found, &[0.02, 0.05, 0.1]);
        assert!(found.iter().all(|it| it.cleared));
    }

    #[test]
    fn who_was_named_or_uses_much_more_is_not_cleared() {
        let mut all = [known(0.05, 0.1, 0.15); 4];
        let room = all.each_mut().map(|it| it.room.as_mut().unwrap());
        let [_, named, more, last] = room;
        named.named = 0.3;
        more.share = 0.04;
        *last = last.with(Room {
            named: 1.0,
            ..*last
        });
        let cleared = by_slowdown(&all, CAPACITY).into_iter().map(|it| it.cleared);
        assert_eq!(cleared.collect::<Vec<_>>(), [true, false, false, false]);
    }

    #[test]
    fn who_is_slowed_far_more_costs_more_than_it_did() {
        let all = [
            known(0.01, 0.1, 0.12),
            known(0.02, 0.1, 0.14),
            known(0.02, 0.1, 0.14),
            known(0.005, 0.1, 0.5),
        ];
        near(&by_slowdown(&all, CAPACITY), &[0.02, 0.04, 0.04, 0.4]);
    }

    #[test]
    fn who_is_new_has_what_is_left_as_far_as_its_life_allows() {
        let old = [known(0.05, 0.1, 0.15); 3];
        let long = [&old[..], &[class(None, 1.0)]].concat();
        near(&by_slowdown(&long, CAPACITY), &[0.1, 0.1, 0.1, 0.7]);
        let short = [&old[..], &[class(None, 0.1)]].concat();
        near(&by_slowdown(&short, CAPACITY), &[0.1, 0.1, 0.1, 0.1]);
    }

    #[test]
    fn who_is_thought_to_cost_more_than_it_takes_does_not_hide_how_slow_it_is() {
        // Two are thought to cost 0.5 s within 0.1 s; all take a second longer for each second of life.
        let all = [
            known(0.5, 0.1, 0.2),
            known(0.5, 0.1, 0.2),
            known(0.1, 0.1, 0.2),
            known(0.004, 0.1, 0.3),
        ];
        let found = by_slowdown(&all, CAPACITY);
        assert!((found[3].cost - 0.2).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn without_room_lives_decide() {
        let all = [class(None, 0.1), class(None, 0.2)];
        near(&by_slowdown(&all, CAPACITY), &[0.25, 0.25]);
        let few = [known(0.05, 0.1, 0.2), known(0.05, 0.1, 0.2)];
        near(&by_slowdown(&few, CAPACITY), &[0.25, 0.25]);
    }

    #[test]
    fn who_takes_as_long_as_ever_does_not_fill_the_resource() {
        // A download at a set pace is in progress for longest, and is as slow as it was; the page is not.
        let all = [known(0.0001, 10.0, 10.5), known(0.05, 0.1, 0.2)];
        let found = by_slowdown(&all, CAPACITY);
        near(&found, &[0.0002, 0.25]);
        assert!(found[0].cleared && !found[1].cleared);
    }

    #[test]
    fn all_that_is_known_uses_no_more_than_there_is() {
        // Those that tell are hardly slowed, those that need next to nothing are.
        let mut all = vec![known(0.02, 0.1, 0.102); 3];
        all.extend(vec![known(0.0001, 0.1, 0.3); 4]);
        let found = by_slowdown(&all, CAPACITY);
        let sum: f64 = found.iter().map(|it| it.share).sum();
        assert!(sum <= 1.0 && found[3].share > 0.1, "{sum} {found:?}");
    }
}
