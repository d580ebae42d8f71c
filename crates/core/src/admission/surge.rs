//! Which kinds of requests have surged since the site had room: what is new, comes more often, or takes
//! longer than all others do. Where room is short, these wait first.
//!
//! ```text
//! n       requests of a kind that wait for a node's answer
//! n0      the same while no limit binds, mean of 10 s
//! r       how much more of all other kinds that have not surged there is: sum of n over sum of n0, now or as
//!         a mean of 0.5 s, whichever is more; 1 at least
//! usual   2 n0 r
//! surged  while limits bind, what n was above usual adds up to more than all n (5 at least) times 50 ms, and
//!         one second times usual / n: what is new is found at once, what has doubled after a second
//! ends    after ten seconds in which no limit binds
//! steady  kinds that have not surged while others have: they go before these, and up to twice what n0 was,
//!         and 2 more, pass beside any limit
//! ```
//!
//! What is full behind the servers makes all that use it slower together, so r cancels that, whatever it is.
//! Growth of all kinds alike is no surge: then none waits first. No kind's time of service need be known,
//! so a surge is seen as soon as the requests are there, before the first of them is answered. What had room before
//! passes also in a probe phase, when what lies behind the servers is measured with less: else it would wait for as
//! long as the surge takes to drain.
//!
//! Inputs: per kind how many requests wait for an answer; whether limits bind.
//!
//! Failure case: two kinds that share the first place; a site whose limits bind from the start, of which no n0
//! is known; a kind that alone uses what becomes slow by itself counts as surged, though no more of it
//! comes than before (it is the one that waits for it).
//!
//! Source: measured on an auction site whose dear searches set in (`tidegate-sim`'s `shop_rows`).

use super::ewma::weight;
use super::kinds::Room;
use crate::request::PLACES;

/// Time constant of what is in flight of late, seconds.
const SURGE_SEEN_TAU_S: f64 = 0.5;
/// Time constant of what is usual, seconds.
const SURGE_USUAL_TAU_S: f64 = 10.0;
/// What is usual is known after so long, seconds.
const KNOWN: f64 = 2.0;
/// A kind grows too much that grows so many times as much as all others.
const SURGED: f64 = 2.0;
/// And has surged after what is all requests, or so many, for so long, seconds; and longer by the second, times
/// the part of its requests that is usual.
const LASTING: f64 = 0.05;
const LASTING_USUAL: f64 = 1.0;
const LEAST: f64 = 5.0;
/// All others are some if they had this part of what was there.
const OTHERS: f64 = 0.1;
/// Kinds that have not surged may have so many times what they had, and so many more.
const ALLOWED: f64 = 2.0;
const ALLOWED_MORE: f64 = 2.0;
/// A surge is over when there has been room for so long, seconds.
const LINGERS: f64 = 10.0;

/// Requests of a kind that wait for an answer.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    now: f64,
    mean: f64,
    base: f64,
    /// What was too much so far, request seconds.
    excess: f64,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Surges {
    all: Box<[Waiting; PLACES]>,
    /// For how long the base was seen, seconds, up to its time constant.
    known: f64,
    /// For how long no limit has bound, seconds.
    calm: f64,
    surged: u64,
}

impl Default for Surges {
    fn default() -> Self {
        Self {
            all: Box::new([Waiting::default(); PLACES]),
            known: 0.0,
            calm: 0.0,
            surged: 0,
        }
    }
}

impl Surges {
    /// Forgets what had these places, a bit each, before other kinds got them.
    pub(super) fn forget(&mut self, places: u64) {
        let all = self.all.iter_mut().enumerate();
        for (_, it) in all.filter(|(place, _)| is_in(*place, places)) {
            *it = Waiting::default();
        }
        self.surged &= !places;
    }

    /// The places of kinds that have surged, a bit each.
    pub(super) fn surged(&self) -> u64 {
        self.surged
    }

    /// How many more requests of kinds that have not surged may come, beside any limit for what is behind
    /// the servers: they had room before.
    pub(super) fn room(&self) -> f64 {
        let (now, base) = self
            .steady()
            .fold((0.0, 0.0), |sum, it| (sum.0 + it.now, sum.1 + it.base));
        (ALLOWED * base + ALLOWED_MORE - now).max(0.0)
    }

    fn steady(&self) -> impl Iterator<Item = &Waiting> {
        let kinds = self.all.iter().enumerate();
        let steady = kinds.filter(|(place, _)| !is_in(*place, self.surged));
        steady.map(|it| it.1)
    }

    /// A tick: its length, how many requests of each place's kind wait for an answer, how the site stands.
    pub(super) fn on_tick(&mut self, dt: f64, waiting: impl Fn(usize) -> u64, room: Room) {
        for (place, it) in self.all.iter_mut().enumerate() {
            it.now = waiting(place) as f64;
        }
        if room == Room::ProbePhase {
            return;
        }
        let part = weight(dt, SURGE_SEEN_TAU_S);
        for it in self.all.iter_mut() {
            it.mean += (it.now - it.mean) * part;
        }
        if room != Room::Free {
            self.calm = 0.0;
            if self.known >= KNOWN {
                self.look(dt);
            }
            return;
        }
        self.calm += dt;
        if self.calm >= LINGERS {
            self.surged = 0;
        }
        self.known = (self.known + dt).min(SURGE_USUAL_TAU_S);
        let part = (dt / self.known).min(1.0);
        for (place, it) in self.all.iter_mut().enumerate() {
            it.excess = 0.0;
            if !is_in(place, self.surged) {
                it.base += (it.now - it.base) * part;
            }
        }
    }

    fn look(&mut self, dt: f64) {
        let mut all = Sum::default();
        self.all.iter().for_each(|it| all.add(it));
        let mut steady = Sum::default();
        self.steady().for_each(|it| steady.add(it));
        for (place, it) in self.all.iter_mut().enumerate() {
            let others = steady.base - it.base;
            if is_in(place, self.surged) || others <= OTHERS * all.base {
                continue;
            }
            let slower = f64::max(steady.now - it.now, steady.mean - it.mean) / others;
            let usual = SURGED * it.base * slower.max(1.0);
            it.excess = (it.excess + (it.now - usual) * dt).max(0.0);
            let lasting = LASTING + LASTING_USUAL * usual / it.now.max(usual);
            if it.excess > lasting * all.mean.max(LEAST) {
                self.surged |= 1 << place;
            }
        }
    }
}

const fn is_in(place: usize, places: u64) -> bool {
    places >> place & 1 == 1
}

/// Over kinds.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    now: f64,
    mean: f64,
    base: f64,
}

impl Sum {
    fn add(&mut self, it: &Waiting) {
        self.now += it.now;
        self.mean += it.mean;
        self.base += it.base;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(surges: &mut Surges, millis: u32, room: Room, kinds: &[u64]) -> u64 {
        for _ in 0..millis {
            let waiting = |place: usize| kinds.get(place).copied().unwrap_or_default();
            surges.on_tick(1e-3, waiting, room);
        }
        surges.surged()
    }

    /// A site that had room for five seconds, with so many requests of each kind.
    fn calm(kinds: &[u64]) -> Surges {
        let mut surges = Surges::default();
        assert_eq!(run(&mut surges, 5000, Room::Free, kinds), 0);
        surges
    }

    #[test]
    fn what_is_new_has_surged_as_soon_as_it_is_there() {
        let mut surges = calm(&[2, 1]);
        assert_eq!(run(&mut surges, 50, Room::Bound, &[2, 1, 5]), 0b100);
    }

    #[test]
    fn what_waits_longer_as_all_do_has_not() {
        let mut surges = calm(&[20, 10]);
        assert_eq!(run(&mut surges, 5000, Room::Bound, &[200, 90]), 0);
        assert_eq!(run(&mut surges, 5000, Room::Held, &[80, 50]), 0);
        // Nor what others, which have become fewer, leave as it was.
        assert_eq!(run(&mut surges, 5000, Room::Held, &[0, 10]), 0);
    }

    #[test]
    fn of_what_grows_it_is_what_grows_most() {
        let mut surges = calm(&[10, 5, 5]);
        assert_eq!(run(&mut surges, 300, Room::Bound, &[20, 60, 12]), 0);
        assert_eq!(run(&mut surges, 1500, Room::Bound, &[20, 60, 12]), 0b10);
        assert_eq!(run(&mut surges, 2000, Room::Bound, &[20, 60, 60]), 0b110);
    }

    #[test]
    fn what_all_others_have_grown_by_counts_at_once_and_for_a_while() {
        // A thousand times as much of all in one tick, of which the means know little yet.
        let mut burst = calm(&[20, 10]);
        assert_eq!(run(&mut burst, 5000, Room::Bound, &[20_000, 10_000]), 0);
        // The others are gone for a moment, while what waited beside them is still there.
        let mut ebb = calm(&[20, 10]);
        assert_eq!(run(&mut ebb, 5000, Room::Bound, &[200, 100]), 0);
        assert_eq!(run(&mut ebb, 700, Room::Bound, &[0, 100]), 0);
    }

    #[test]
    fn what_has_not_surged_has_room_for_twice_what_it_had_and_two_more() {
        let room = |surges: &Surges, is: f64| {
            let room = surges.room();
            assert!((room - is).abs() < 1e-6, "{room}, not {is}");
        };
        let mut surges = Surges::default();
        room(&surges, 2.0);
        // Six of the first kind on the mean.
        run(&mut surges, 2000, Room::Free, &[4, 3]);
        run(&mut surges, 2000, Room::Free, &[8, 3]);
        room(&surges, 2.0 * (6.0 + 3.0) + 2.0 - (8.0 + 3.0));
        run(&mut surges, 1, Room::Bound, &[12, 7]);
        room(&surges, 2.0 * (6.0 + 3.0) + 2.0 - (12.0 + 7.0));
        run(&mut surges, 1, Room::Bound, &[12, 9]);
        room(&surges, 0.0);
        // What has surged is not counted, nor has it ever had room.
        assert_eq!(run(&mut surges, 500, Room::Bound, &[6, 3, 40]), 0b100);
        room(&surges, 2.0 * (6.0 + 3.0) + 2.0 - (6.0 + 3.0));
    }

    #[test]
    fn without_anything_to_compare_with_nothing_has() {
        let mut cold = Surges::default();
        assert_eq!(run(&mut cold, 5000, Room::Bound, &[5, 50]), 0);
        let mut alone = calm(&[5]);
        assert_eq!(run(&mut alone, 5000, Room::Bound, &[50]), 0);
        let mut hardly = calm(&[100, 1]);
        assert_eq!(run(&mut hardly, 5000, Room::Bound, &[1000, 0]), 0);
    }

    #[test]
    fn a_surge_ends_after_ten_seconds_with_room_and_is_usual_from_then_on() {
        let mut surges = calm(&[4]);
        assert_eq!(run(&mut surges, 500, Room::Bound, &[4, 8]), 0b10);
        assert_eq!(run(&mut surges, 9000, Room::Free, &[4, 8]), 0b10);
        assert_eq!(run(&mut surges, 500, Room::ProbePhase, &[4, 8]), 0b10);
        assert_eq!(run(&mut surges, 1, Room::Bound, &[4, 8]), 0b10);
        assert_eq!(run(&mut surges, 11_000, Room::Free, &[4, 8]), 0);
        assert_eq!(run(&mut surges, 20_000, Room::Free, &[4, 8]), 0);
        assert_eq!(run(&mut surges, 500, Room::Bound, &[4, 8]), 0);
    }

    #[test]
    fn what_had_a_place_before_has_no_part_in_what_surges_there() {
        let mut surges = calm(&[4, 1, 20]);
        assert_eq!(run(&mut surges, 2000, Room::Bound, &[4, 9, 20]), 0b10);
        surges.forget(0b110);
        assert_eq!(surges.surged(), 0);
        assert_eq!(run(&mut surges, 500, Room::Bound, &[4, 0, 8]), 0b100);
    }
}
