//! Which requests are worth their MAC.
//!
//! A datagram says where it comes from, and may lie. But a request names its initiator: 64 random bits that a front-end
//! draws for each node that it asks. An attacker that does not see its datagrams cannot name it, whatever address it
//! forges. So initiators that have lately proven that they have a key are examined. Of all others so many may turn out
//! to be forged: a flood uses that up, and until then new front-ends get in.
//!
//! ```text
//! initiator proven lately ───────── yes ─────────┐
//!        │ no                                    ├─> MAC ── right ─> answer ─> proven, the longer if by the clock of now
//!        └──> few of such were forged ── yes ────┘    └──── wrong ─> too many in its name: it is imitated
//! ```

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tidegate_core::time::Timestamp;

use super::rate::{Window, per_window};

/// Initiators that can be proven at the same time: a front-end has one for reads, and one for atomics of each node.
const SOURCES_MAX: usize = 1024;
/// Places in which one may stand.
const WAYS: usize = 4;
/// How long a proof lasts: a request by the node's clock of now was made by who sends it, or within a second of it.
const PROVEN_FOR: Duration = Duration::from_secs(10);
/// The same of any other request with a key, which may be an old one that somebody has recorded.
const SHOWN_FOR: Duration = Duration::from_secs(1);
/// Of what is looked at, this part may be forged in names that are not proven. A source with more than this in vain is
/// imitated.
const UNPROVEN_PARTS: u32 = 40;
/// For how long it is taken for imitated.
const IMITATED_FOR: Duration = Duration::from_secs(1);

/// An initiator that is proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Source {
    pub(in super::super) initiator: u64,
    /// Much comes in its name that was not made with a key, or not lately.
    pub(in super::super) imitated: bool,
}

/// An initiator that was proven, or an empty place.
#[derive(Clone, Copy, Debug, Default)]
struct Proven {
    initiator: u64,
    until: Timestamp,
    /// By a request by the node's clock of then.
    fresh: bool,
    vain: Window,
    imitated_until: Timestamp,
}

impl Proven {
    fn is(&self, initiator: u64, now: Timestamp) -> bool {
        self.initiator == initiator && now < self.until
    }

    fn gives_way(&self, fresh: bool, now: Timestamp) -> bool {
        now >= self.until || (fresh && !self.fresh)
    }
}

/// Decides which requests are examined.
pub(in super::super) struct Sources {
    hasher: RandomState,
    places: Box<[Proven]>,
    /// Forged ones in names that are not proven.
    forged: Window,
    limit: u32,
}

impl Sources {
    /// Limits that go with so many datagrams a second in all.
    pub(in super::super) fn new(per_second: u32) -> Self {
        Self {
            hasher: RandomState::new(),
            places: vec![Proven::default(); SOURCES_MAX].into(),
            forged: Window::default(),
            limit: (per_window(per_second) / UNPROVEN_PARTS).max(1),
        }
    }

    /// Whether a request in this name is worth its MAC.
    pub(in super::super) fn admits(&mut self, initiator: u64, now: Timestamp) -> bool {
        self.forged.has_room(self.limit, now) || self.proven(initiator, now).is_some()
    }

    /// A request in this name was made with a key, and by the node's clock of now or not. Where all its places are
    /// taken by others that are proven as well, it stays as it is.
    pub(in super::super) fn prove(&mut self, initiator: u64, fresh: bool, now: Timestamp) {
        let ways = self.ways(initiator);
        let place = ways
            .iter()
            .position(|it| it.is(initiator, now))
            .or_else(|| ways.iter().position(|it| it.gives_way(fresh, now)));
        let Some(place) = place else { return };
        let place = &mut ways[place];
        if !place.is(initiator, now) {
            *place = Proven {
                initiator,
                ..Proven::default()
            };
        }
        let lasts = if fresh { PROVEN_FOR } else { SHOWN_FOR };
        place.until = place.until.max(now + lasts);
        place.fresh |= fresh;
    }

    /// A request in this name was not made with a key.
    pub(in super::super) fn note_forged(&mut self, initiator: u64, now: Timestamp) {
        if !self.note_imitation(initiator, now) {
            self.forged.take(1, self.limit, now);
        }
    }

    /// A request in this name is in vain; whether it is one that is proven.
    pub(in super::super) fn note_imitation(&mut self, initiator: u64, now: Timestamp) -> bool {
        let limit = self.limit;
        let Some(proven) = self.proven(initiator, now) else {
            return false;
        };
        if !proven.vain.take(1, limit, now) {
            proven.imitated_until = now + IMITATED_FOR;
        }
        true
    }

    /// Those that are proven, first those that are for longer.
    pub(in super::super) fn list(&self, now: Timestamp) -> impl Iterator<Item = Source> {
        let those = move |fresh| {
            let proven = self.places.iter();
            proven.filter(move |it| now < it.until && it.fresh == fresh)
        };
        those(true).chain(those(false)).map(move |it| Source {
            initiator: it.initiator,
            imitated: now < it.imitated_until,
        })
    }

    fn proven(&mut self, initiator: u64, now: Timestamp) -> Option<&mut Proven> {
        let mut ways = self.ways(initiator).iter_mut();
        ways.find(|it| it.is(initiator, now))
    }

    fn ways(&mut self, initiator: u64) -> &mut [Proven] {
        let sets = SOURCES_MAX / WAYS;
        let set = self.hasher.hash_one(initiator) as usize % sets;
        &mut self.places[set * WAYS..(set + 1) * WAYS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn listed(sources: &Sources, initiator: u64, now: Timestamp) -> Option<Source> {
        sources.list(now).find(|it| it.initiator == initiator)
    }

    /// Whether a forged request in this name is examined.
    fn examines(sources: &mut Sources, initiator: u64, now: Timestamp) -> bool {
        let examined = sources.admits(initiator, now);
        if examined {
            sources.note_forged(initiator, now);
        }
        examined
    }

    #[test]
    fn a_flood_of_invented_names_leaves_proven_sources_all_that_they_have() {
        let mut sources = Sources::new(200_000);
        sources.prove(7, true, at(1000));
        let mut examined = 0;
        for window in 0..100 {
            let now = at(1000 + 10 * window);
            for number in 0..2000 {
                examined += u32::from(examines(&mut sources, 1000 + number, now));
            }
            for _ in 0..10 {
                assert!(sources.admits(7, now));
            }
        }
        // 200 000 datagrams in a second, 50 of each window examined.
        assert_eq!(examined, 100 * 50);
    }

    #[test]
    fn any_number_of_new_front_ends_is_examined_while_few_are_forged() {
        let mut sources = Sources::new(200_000);
        let now = at(1000);
        for initiator in 0..5000 {
            assert!(sources.admits(initiator, now));
            sources.prove(initiator, false, now);
            sources.note_imitation(initiator, now);
        }
    }

    #[test]
    fn a_proof_ends_and_lasts_the_longer_by_the_clock_of_now() {
        let mut sources = Sources::new(200_000);
        let now = at(1000);
        sources.prove(1, true, now);
        sources.prove(2, false, now);
        // A recorded request shortens nothing.
        sources.prove(1, false, at(1001));
        while examines(&mut sources, 3, now) {}
        assert!(sources.admits(1, now) && sources.admits(2, now));
        assert!(listed(&sources, 1, now + SHOWN_FOR).is_some());
        assert_eq!(listed(&sources, 2, now + SHOWN_FOR), None);
        let later = now + PROVEN_FOR;
        assert_eq!(listed(&sources, 1, later), None);
        // Then it is one of all that are not proven.
        while examines(&mut sources, 3, later) {}
        assert!(!sources.admits(1, later) && !sources.admits(2, later));
    }

    #[test]
    fn proofs_by_the_clock_of_now_take_no_place_from_each_other_and_recorded_ones_from_nobody() {
        let mut sources = Sources::new(200_000);
        sources.prove(7, true, at(1000));
        for fresh in [false, true, false] {
            for number in 100..100_000 {
                sources.prove(number, fresh, at(1001));
            }
            let all = sources.list(at(1002)).count();
            assert!(all <= SOURCES_MAX, "{all}");
            assert!(listed(&sources, 7, at(1002)).is_some());
        }
        // What was recorded has given way.
        let fresh = sources.places.iter().filter(|it| it.fresh).count();
        assert_eq!(fresh, sources.list(at(1002)).count());
    }

    #[test]
    fn few_places_are_looked_at_for_a_name() {
        let mut sources = Sources::new(200_000);
        for initiator in 0..10_000 {
            assert_eq!(sources.ways(initiator).len(), WAYS);
        }
    }

    #[test]
    fn those_that_are_proven_for_longer_are_listed_first() {
        let mut sources = Sources::new(200_000);
        for initiator in 0..8 {
            sources.prove(initiator, initiator % 2 == 0, at(1000));
        }
        let listed: Vec<_> = sources.list(at(1001)).map(|it| it.initiator).collect();
        let even = listed.iter().take_while(|it| **it % 2 == 0).count();
        assert_eq!((even, listed.len()), (4, 8));
    }

    #[test]
    fn who_is_imitated_is_known_and_goes_on_being_examined() {
        let mut sources = Sources::new(200_000);
        for initiator in [1, 2] {
            sources.prove(initiator, true, at(1000));
        }
        for _ in 0..50 {
            sources.note_forged(1, at(1001));
            sources.note_forged(2, at(1001));
        }
        assert!(!listed(&sources, 1, at(1001)).unwrap().imitated);
        sources.note_forged(1, at(1001));
        assert!(listed(&sources, 1, at(1001)).unwrap().imitated);
        assert!(!listed(&sources, 2, at(1001)).unwrap().imitated);
        assert!((0..10_000).all(|_| sources.admits(1, at(1002))));
        assert!(!listed(&sources, 1, at(2001)).unwrap().imitated);
        // What nobody has proven is nobody's.
        sources.note_forged(3, at(1001));
        assert_eq!(listed(&sources, 3, at(1001)), None);
    }
}
