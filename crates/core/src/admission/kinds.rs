//! Kinds of a site's requests, and which of them take longer than they do with room: what tells a dearer
//! mix from an overload, and which requests use what is full behind the servers.
//!
//! ```text
//! kind      what a request costs, as far as its head tells (`request::kind`); each has a place of its own, up
//!           to 63 (`request::kind_places`)
//! T         mean time to the answer's head: of the last 0.5 s
//! B         the same while no limit binds and the site is not crowded: of the last 10 s or 64 requests, whichever
//!           is longer; the first 16 of a kind also while it is crowded
//! crowded   in the first 10 s without a limit that binds, slowdown >= 1.15, and more than twice as many requests wait
//!           for an answer as did in that time, and 2 more
//! slowdown  sum of time that requests took / sum of B over the same requests, of kinds whose B is known
//! mix       mean of B over requests that ended of late: what one should take now
//! spared    kinds with T < 1.15 B, until T > 1.25 B, while the site is slowed by 1.3 or held back for what is
//!           behind it, or was ten seconds ago, and has been for 4 B, 50 ms at least: they do not use what is full
//! ```
//!
//! A mean over all requests grows when dear ones come in, which are slow by themselves; each kind's own time
//! does not. And where something behind the servers is full, a kind that waits for it takes longer, and one that
//! does not is no slower than ever: no matter what it is, a database, a lock or a service of others, and
//! whether anybody watches it.
//!
//! A limit that grows as fast as requests gather binds none of them, though there is no room: times of such moments would
//! teach that a full database is the usual thing, and the limit would grow for as long as that is learned. Later what
//! came with room weighs more than a moment of that.
//!
//! Inputs: per kind how many requests were answered and how long they took, as counters; whether limits bind.
//!
//! Failure case: pages that are one kind, or share the first place: these are as slow as their mix. A kind that has
//! never been seen with room is not known: then only the mean over all counts, as without kinds.
//!
//! Source: measured on an auction site whose dear searches set in (`tidegate-sim`'s `shop_rows`).

use super::ewma::weight;
use crate::request::{Answered, PLACES};

/// Time constant of a kind's time of late, seconds.
const KIND_SEEN_TAU_S: f64 = 0.5;
/// Time constant of its base, its time with room, seconds.
const KIND_BASE_TAU_S: f64 = 10.0;
/// Time constant of how many requests usually wait for an answer, seconds; so many times as many, and so many more, are
/// a crowd.
const CROWD_USUAL_TAU_S: f64 = 10.0;
const CROWD: f64 = 2.0;
const CROWD_MORE: f64 = 2.0;
/// Least requests that a base rests on.
const BASE_LEAST: f64 = 64.0;
/// Least requests of a kind from which its base is known, and its time of late.
const KNOWN: f64 = 16.0;
const SEEN: f64 = 2.0;
/// For how long others have been slowed before it says something that one is not: seconds, and times of its
/// base, since a slow one would show it only as it ends.
const LASTING: f64 = 0.05;
const LASTING_BASES: f64 = 4.0;
/// And for how long they are well before it does not, seconds.
const LINGERS: f64 = 10.0;
/// Part of the requests that must be of known kinds, to judge by them.
const MOST: f64 = 0.5;
/// A kind below the first is spared, until it is above the second.
const UNHURT: f64 = 1.15;
const HURT: f64 = 1.25;
/// The site is slowed from here.
const SLOWED: f64 = 1.3;
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    before: Answered,
    /// Of late: requests, and their time.
    many: f64,
    time: f64,
    /// The same with room.
    base_many: f64,
    base_time: f64,
}

impl Known {
    /// Takes in so many answers that came with room.
    fn learn(&mut self, many: f64, time: f64, kept: f64) {
        if self.base_many > BASE_LEAST {
            self.base_many *= kept;
            self.base_time *= kept;
        }
        self.base_many += many;
        self.base_time += time;
    }

    fn base(&self) -> Option<f64> {
        (self.base_many >= KNOWN).then(|| self.base_time / self.base_many)
    }
}

/// How a tick finds the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// No limit binds.
    Free,
    /// Some does.
    Bound,
    /// Requests are held back for what is behind the servers.
    Held,
    /// It is measured with less; what is answered now says nothing of how it usually is.
    ProbePhase,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Kinds {
    all: Box<[Known; PLACES]>,
    /// Kinds, by their places, that are as fast as with room, and those of them that would show it by now if they were not.
    unhurt: u64,
    spared: u64,
    /// For how long others have been slowed, seconds.
    hurting: f64,
    /// For how long they have not, seconds.
    well: f64,
    slowdown: Option<f64>,
    mix: Option<f64>,
    usual: UsualCrowd,
}

/// How many requests wait for an answer while no limit binds.
#[derive(Clone, Copy, Debug, Default)]
struct UsualCrowd {
    mean: f64,
    /// For how long it was seen, seconds, up to its time constant.
    known: f64,
}

impl UsualCrowd {
    /// Takes in a tick, as slowly as when all is known while there is a crowd.
    fn add(&mut self, dt: f64, waiting: f64, crowded: bool) {
        let over = match crowded {
            true => CROWD_USUAL_TAU_S,
            false => {
                self.known = (self.known + dt).min(CROWD_USUAL_TAU_S);
                self.known
            }
        };
        self.mean += (waiting - self.mean) * (dt / over).min(1.0);
    }

    /// Whether it was seen for so short that what came with room hardly weighs more than what comes now.
    fn is_new(&self) -> bool {
        self.known < CROWD_USUAL_TAU_S
    }

    fn is_exceeded(&self, waiting: f64) -> bool {
        waiting > CROWD * self.mean + CROWD_MORE
    }
}

impl Default for Kinds {
    fn default() -> Self {
        Self {
            all: Box::new([Known::default(); PLACES]),
            unhurt: 0,
            spared: 0,
            hurting: 0.0,
            well: f64::INFINITY,
            slowdown: None,
            mix: None,
            usual: UsualCrowd::default(),
        }
    }
}

impl Kinds {
    /// How many times longer than with room requests take, kind by kind; none if that is not known.
    pub(super) fn slowdown(&self) -> Option<f64> {
        self.slowdown
    }

    /// How long a request of the present mix takes with room, seconds, if that is known.
    pub(super) fn mix(&self) -> Option<f64> {
        self.mix
    }

    /// The kinds that are no slower than with room while others are, a bit each.
    pub(super) fn spared(&self) -> u64 {
        self.spared
    }

    /// Forgets what had these places, a bit each, before other kinds got them.
    pub(super) fn forget(&mut self, places: u64, answered: impl Fn(usize) -> Answered) {
        for (place, kind) in self.all.iter_mut().enumerate() {
            if places >> place & 1 == 1 {
                *kind = Known {
                    before: answered(place),
                    ..Known::default()
                };
            }
        }
        self.unhurt &= !places;
    }

    /// A tick: its length, what was answered so far at each place, how many requests wait for an answer, how the site
    /// stands.
    pub(super) fn on_tick(
        &mut self,
        dt: f64,
        answered: impl Fn(usize) -> Answered,
        waiting: f64,
        room: Room,
    ) {
        let slowed = self.slowdown.is_some_and(|it| it >= UNHURT);
        let crowded = slowed && self.usual.is_new() && self.usual.is_exceeded(waiting);
        if room == Room::Free {
            self.usual.add(dt, waiting, crowded);
        }
        let kept = 1.0 - weight(dt, KIND_SEEN_TAU_S);
        let kept_base = 1.0 - weight(dt, KIND_BASE_TAU_S);
        let mut spared = 0;
        let (mut all, mut known, mut took, mut should) = (0.0, 0.0, 0.0, 0.0);
        for (place, kind) in self.all.iter_mut().enumerate() {
            let now = answered(place);
            let many = now.0.wrapping_sub(kind.before.0) as f64;
            let time = now.1.wrapping_sub(kind.before.1) as f64 * 1e-9;
            kind.before = now;
            if room == Room::ProbePhase {
                continue;
            }
            kind.many = kind.many * kept + many;
            kind.time = kind.time * kept + time;
            if room == Room::Free && (!crowded || kind.base_many < KNOWN) {
                kind.learn(many, time, kept_base);
            }
            all += kind.many;
            let bit = 1 << place;
            let base = kind.base().filter(|base| *base > 0.0);
            let slower = match base {
                Some(base) if kind.many >= SEEN => kind.time / kind.many / base,
                Some(_) | None => f64::INFINITY,
            };
            if slower < UNHURT {
                self.unhurt |= bit;
            } else if slower > HURT {
                self.unhurt &= !bit;
            }
            if let Some(base) = base {
                let told = self.hurting >= LASTING.max(LASTING_BASES * base);
                spared |= if told { self.unhurt & bit } else { 0 };
                known += kind.many;
                took += kind.time;
                should += kind.many * base;
            }
        }
        if room == Room::ProbePhase {
            return;
        }
        let judges = known >= SEEN && known >= MOST * all;
        self.slowdown = judges.then(|| took / should);
        self.mix = judges.then(|| should / known);
        self.spared = spared;
        let hurts = room == Room::Held || self.slowdown.is_some_and(|it| it >= SLOWED);
        self.well = if hurts { 0.0 } else { self.well + dt };
        self.hurting = if self.well < LINGERS {
            self.hurting + dt
        } else {
            0.0
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kinds whose requests are answered at these rates per second in these times, milliseconds.
    struct Site {
        kinds: Kinds,
        answered: [(f64, f64); PLACES],
        waiting: f64,
    }

    impl Site {
        fn new() -> Self {
            Self {
                kinds: Kinds::default(),
                answered: [(0.0, 0.0); PLACES],
                waiting: 1.0,
            }
        }

        fn run(&mut self, millis: u32, room: Room, kinds: &[(f64, f64)]) {
            for _ in 0..millis {
                for ((many, time), (rate, takes)) in self.answered.iter_mut().zip(kinds) {
                    *many += rate * 1e-3;
                    *time += rate * takes * 1e3;
                }
                let answered = |place: usize| {
                    let (many, time) = self.answered[place];
                    (many as u64, time as u64)
                };
                self.kinds.on_tick(1e-3, answered, self.waiting, room);
            }
        }
    }

    #[test]
    fn a_dearer_mix_is_no_slowdown() {
        let mut site = Site::new();
        site.run(20_000, Room::Free, &[(200.0, 2.0), (10.0, 80.0)]);
        // Five times as many of the dear ones.
        site.run(3000, Room::Bound, &[(200.0, 2.0), (50.0, 80.0)]);
        let slowdown = site.kinds.slowdown().unwrap();
        assert!((slowdown - 1.0).abs() < 0.05, "{slowdown}");
        let mix = site.kinds.mix().unwrap();
        assert!((mix / 0.0176 - 1.0).abs() < 0.05, "{mix}");
    }

    #[test]
    fn who_is_as_fast_as_ever_is_spared() {
        let mut site = Site::new();
        let calm = [(100.0, 1.0), (50.0, 10.0)];
        site.run(10_000, Room::Free, &calm);
        assert_eq!(site.kinds.spared(), 0, "nobody is slowed");
        site.run(2000, Room::Bound, &[(100.0, 1.0), (50.0, 30.0)]);
        assert_eq!(site.kinds.spared(), 1);
        assert!(site.kinds.slowdown().unwrap() > 2.0);
        // A probe phase says nothing; what comes after it does.
        site.run(500, Room::ProbePhase, &calm);
        assert_eq!(site.kinds.spared(), 1);
        site.run(3000, Room::Held, &calm);
        assert_eq!(site.kinds.spared(), 3);
        site.run(12_000, Room::Bound, &calm);
        assert_eq!(site.kinds.spared(), 0);
    }

    #[test]
    fn a_crowd_before_a_limit_that_grows_with_it_does_not_teach_that_it_is_usual() {
        let after = |calm| {
            let mut site = Site::new();
            site.run(calm, Room::Free, &[(40.0, 10.0)]);
            site.waiting = 20.0;
            site.run(3000, Room::Free, &[(40.0, 40.0)]);
            site.kinds.slowdown().unwrap()
        };
        let new = after(1000);
        assert!(new > 3.0, "{new}");
        // What has come with room for long weighs more than a moment; the base follows what lasts.
        let known = after(20_000);
        assert!((2.0..2.6).contains(&known), "{known}");
    }

    #[test]
    fn what_was_never_seen_with_room_is_not_known() {
        let mut site = Site::new();
        site.run(5000, Room::Bound, &[(100.0, 50.0)]);
        assert_eq!(site.kinds.slowdown(), None);
        assert_eq!((site.kinds.mix(), site.kinds.spared()), (None, 0));
        // One known kind among others that are not is no judge.
        site.run(5000, Room::Free, &[(0.0, 0.0), (20.0, 1.0)]);
        site.run(5000, Room::Bound, &[(100.0, 50.0), (20.0, 1.0)]);
        assert_eq!(site.kinds.slowdown(), None);
        site.run(500, Room::Held, &[(100.0, 50.0), (20.0, 1.0)]);
        assert_eq!(site.kinds.spared(), 2);
    }

    #[test]
    fn what_had_a_place_before_says_nothing_of_the_kind_that_has_it_now() {
        let mut site = Site::new();
        site.run(10_000, Room::Free, &[(100.0, 1.0), (100.0, 10.0)]);
        site.run(2000, Room::Bound, &[(100.0, 1.0), (100.0, 30.0)]);
        assert_eq!(site.kinds.spared(), 1);
        let answered = |place: usize| {
            let (many, time) = site.answered[place];
            (many as u64 + 1000, time as u64)
        };
        site.kinds.forget(1, answered);
        site.answered[0].0 += 1000.0;
        site.run(100, Room::Bound, &[(100.0, 1.0), (100.0, 30.0)]);
        assert_eq!(site.kinds.spared(), 0);
        let slowdown = site.kinds.slowdown().unwrap();
        assert!((slowdown - 3.0).abs() < 0.1, "of the other: {slowdown}");
    }
}
