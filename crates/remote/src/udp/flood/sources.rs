//! Which requests are worth their MAC.
//!
//! A datagram says where it comes from, and may lie. But a request names its initiator: 64 random bits that a front-end
//! draws for each node that it asks. An attacker that does not see its datagrams cannot name it, whatever address it
//! forges. So initiators that have lately proven that they have a key are examined. Of all others so many may turn out
//! to be forged: a flood uses that up, and until then new front-ends get in.
//!
//! An attacker that sees requests can send them again. A front-end numbers its requests by the node's clock, so what
//! carries no greater number than the latest is a copy, or was overtaken on its way, and counts as not proven.
//!
//! ```text
//! initiator proven lately,
//! and a later number of now ─────── yes ─────────┐
//!        │ no                                    ├─> MAC ── right ─> answer ─> proven, the longer if by the clock of now
//!        └──> few of such were in vain ── yes ───┘    └──── wrong ─> too many in its name: it is imitated
//! ```

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tidegate_core::time::Timestamp;

use super::rate::{Window, per_window};
use crate::udp::initiators::is_fresh;
use crate::udp::wire::Claim;

/// Initiators that can be proven at the same time: a front-end has one for reads, and one for atomics of each node.
const SOURCES_MAX: usize = 1024;
/// Entries in which one may stand.
const WAYS: usize = 4;
/// How long a proof lasts: a request by the node's clock of now was made by its sender, or within a second of it.
const PROVEN_FOR: Duration = Duration::from_secs(10);
/// The same of any other request with a key, which may be an old one that was recorded.
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

/// An initiator that was proven, or an empty entry.
#[derive(Clone, Copy, Debug, Default)]
struct Proven {
    initiator: u64,
    /// The greatest number of its requests.
    latest: u64,
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

    /// Whether this may be its next request.
    fn comes_next(&self, claim: Claim, now: Timestamp) -> bool {
        claim.sequence > self.latest && is_fresh(claim.sequence, now)
    }

    fn gives_way(&self, fresh: bool, now: Timestamp) -> bool {
        now >= self.until || (fresh && !self.fresh)
    }
}

/// Decides which requests are examined.
pub(in super::super) struct Sources {
    hasher: RandomState,
    entries: Box<[Proven]>,
    /// Forged ones in names that are not proven, and copies.
    vain: Window,
    limit: u32,
}

impl Sources {
    /// Limits that go with so many datagrams a second in all.
    pub(in super::super) fn new(per_second: u32) -> Self {
        Self {
            hasher: RandomState::new(),
            entries: vec![Proven::default(); SOURCES_MAX].into(),
            vain: Window::default(),
            limit: (per_window(per_second) / UNPROVEN_PARTS).max(1),
        }
    }

    /// Whether a request that says this of itself is worth its MAC.
    pub(in super::super) fn admits(&mut self, claim: Claim, now: Timestamp) -> bool {
        let has_room = self.vain.has_room(self.limit, now);
        let proven = self.proven(claim.initiator, now);
        if has_room || proven.is_some_and(|it| it.comes_next(claim, now)) {
            return true;
        }
        self.note_imitation(claim.initiator, now);
        false
    }

    /// A request was made with a key; whether it is new, by the node's clock of now. Where all entries of its initiator
    /// are taken by others that are proven as well, it stays as it is.
    pub(in super::super) fn prove(&mut self, claim: Claim, now: Timestamp) -> bool {
        let initiator = claim.initiator;
        let fresh = is_fresh(claim.sequence, now);
        let ways = self.ways(initiator);
        if let Some(known) = ways.iter_mut().find(|it| it.is(initiator, now)) {
            if !known.comes_next(claim, now) {
                self.note_imitation(initiator, now);
                self.vain.take(1, self.limit, now);
                return false;
            }
            known.latest = claim.sequence;
            known.until = now + PROVEN_FOR;
            known.fresh = true;
            return true;
        }
        if let Some(free) = ways.iter_mut().find(|it| it.gives_way(fresh, now)) {
            *free = Proven {
                initiator,
                // A number of another time is of no use to compare with.
                latest: if fresh { claim.sequence } else { 0 },
                until: now + if fresh { PROVEN_FOR } else { SHOWN_FOR },
                fresh,
                ..Proven::default()
            };
        }
        fresh
    }

    /// A request that says this of itself was not made with a key.
    pub(in super::super) fn note_forged(&mut self, claim: Claim, now: Timestamp) {
        let proven = self.proven(claim.initiator, now);
        let next = proven.is_some_and(|it| it.comes_next(claim, now));
        self.note_imitation(claim.initiator, now);
        if !next {
            self.vain.take(1, self.limit, now);
        }
    }

    /// A request in this name is in vain.
    fn note_imitation(&mut self, initiator: u64, now: Timestamp) {
        let limit = self.limit;
        if let Some(proven) = self.proven(initiator, now)
            && !proven.vain.take(1, limit, now)
        {
            proven.imitated_until = now + IMITATED_FOR;
        }
    }

    /// Those that are proven, first those that are for longer.
    pub(in super::super) fn list(&self, now: Timestamp) -> impl Iterator<Item = Source> {
        let those = move |fresh| {
            let proven = self.entries.iter();
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
        &mut self.entries[set * WAYS..(set + 1) * WAYS]
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

    /// A request in this name that carries the clock of then.
    fn claim(initiator: u64, clock: Timestamp) -> Claim {
        Claim {
            initiator,
            sequence: clock.nanos(),
        }
    }

    fn old(initiator: u64) -> Claim {
        Claim {
            initiator,
            sequence: 0,
        }
    }

    /// Whether a request is examined, which turns out to be forged.
    fn examines(sources: &mut Sources, claim: Claim, now: Timestamp) -> bool {
        let examined = sources.admits(claim, now);
        if examined {
            sources.note_forged(claim, now);
        }
        examined
    }

    fn use_up(sources: &mut Sources, now: Timestamp) {
        while examines(sources, claim(99, now), now) {}
    }

    #[test]
    fn a_flood_of_invented_names_leaves_proven_sources_all_that_they_have() {
        let mut sources = Sources::new(200_000);
        sources.prove(claim(7, at(1000)), at(1000));
        let mut examined = 0;
        for window in 0..100 {
            let now = at(1001 + 10 * window);
            for number in 0..2000 {
                examined += u32::from(examines(&mut sources, claim(1000 + number, now), now));
            }
            for _ in 0..10 {
                assert!(sources.admits(claim(7, now), now));
            }
        }
        // 200 000 datagrams in a second, 50 of each window examined.
        assert_eq!(examined, 100 * 50);
    }

    #[test]
    fn copies_of_requests_are_examined_like_those_in_invented_names() {
        let mut sources = Sources::new(200_000);
        let now = at(1000);
        assert!(sources.prove(claim(7, now), now));
        // Made with the key, and seen before.
        let mut copies = 0;
        while sources.admits(claim(7, now), at(1001)) {
            assert!(!sources.prove(claim(7, now), at(1001)));
            copies += 1;
        }
        assert_eq!(copies, 50);
        assert!(!sources.admits(claim(8, at(1001)), at(1001)));
        assert!(sources.admits(claim(7, at(1001)), at(1001)));
        // Nor is anything free that no clock of now can have made.
        for clock in [1, 2000] {
            assert!(!sources.admits(claim(7, at(clock)), at(1001)), "{clock}");
        }
        // One that was overtaken on its way changes nothing.
        assert!(sources.prove(claim(7, at(1003)), at(1005)));
        assert!(!sources.prove(claim(7, at(1002)), at(1005)));
        use_up(&mut sources, at(1005));
        assert!(!sources.admits(claim(7, at(1003)), at(1005)));
        assert!(sources.admits(claim(7, at(1004)), at(1005)));
    }

    #[test]
    fn what_is_forged_with_an_old_number_is_not_free_either() {
        let mut sources = Sources::new(200_000);
        let now = at(1000);
        sources.prove(claim(7, now), now);
        let examined = (0..1000).filter(|_| examines(&mut sources, claim(7, now), now));
        assert_eq!(examined.count(), 50);
        assert!(sources.admits(claim(7, at(1001)), now));
    }

    #[test]
    fn any_number_of_new_front_ends_is_examined_while_few_are_forged() {
        let mut sources = Sources::new(200_000);
        let now = at(1000);
        for initiator in 0..5000 {
            assert!(sources.admits(old(initiator), now));
            assert!(!sources.prove(old(initiator), now));
        }
    }

    #[test]
    fn a_proof_ends_and_lasts_the_longer_by_the_clock_of_now() {
        let mut sources = Sources::new(200_000);
        let now = at(1000);
        sources.prove(claim(1, now), now);
        sources.prove(old(2), now);
        // A recorded request shortens nothing.
        sources.prove(old(1), at(1001));
        let next = at(1002);
        use_up(&mut sources, next);
        assert!(sources.admits(claim(1, next), next) && sources.admits(claim(2, next), next));
        assert!(listed(&sources, 1, now + SHOWN_FOR).is_some());
        assert_eq!(listed(&sources, 2, now + SHOWN_FOR), None);
        let later = now + PROVEN_FOR;
        assert_eq!(listed(&sources, 1, later), None);
        // Then it is one of all that are not proven.
        use_up(&mut sources, later);
        assert!(!sources.admits(claim(1, later), later) && !sources.admits(claim(2, later), later));
    }

    #[test]
    fn a_recorded_number_of_the_future_stands_in_nobodys_way() {
        let mut sources = Sources::new(200_000);
        let now = at(1000);
        sources.prove(claim(7, at(500_000)), now);
        use_up(&mut sources, now);
        assert!(sources.admits(claim(7, now), now));
    }

    #[test]
    fn proofs_by_the_clock_of_now_take_no_place_from_each_other_and_recorded_ones_from_nobody() {
        let mut sources = Sources::new(200_000);
        sources.prove(claim(7, at(1000)), at(1000));
        for fresh in [false, true, false] {
            for number in 100..100_000 {
                let clock = if fresh { at(1001) } else { Timestamp::ZERO };
                sources.prove(claim(number, clock), at(1001));
            }
            let all = sources.list(at(1002)).count();
            assert!(all <= SOURCES_MAX, "{all}");
            assert!(listed(&sources, 7, at(1002)).is_some());
        }
        // What was recorded has given way.
        let fresh = sources.entries.iter().filter(|it| it.fresh).count();
        assert_eq!(fresh, sources.list(at(1002)).count());
    }

    #[test]
    fn few_entries_are_looked_at_for_a_name() {
        let mut sources = Sources::new(200_000);
        for initiator in 0..10_000 {
            assert_eq!(sources.ways(initiator).len(), WAYS);
        }
    }

    #[test]
    fn those_that_are_proven_for_longer_are_listed_first() {
        let mut sources = Sources::new(200_000);
        for initiator in 0..8 {
            let made = if initiator % 2 == 0 {
                at(1000)
            } else {
                Timestamp::ZERO
            };
            sources.prove(claim(initiator, made), at(1000));
        }
        let listed: Vec<_> = sources.list(at(1001)).map(|it| it.initiator).collect();
        let even = listed.iter().take_while(|it| **it % 2 == 0).count();
        assert_eq!((even, listed.len()), (4, 8));
    }

    #[test]
    fn who_is_imitated_is_known_and_goes_on_being_examined() {
        let mut sources = Sources::new(200_000);
        for initiator in [1, 2] {
            sources.prove(claim(initiator, at(1000)), at(1000));
        }
        let forged = |initiator| claim(initiator, at(1001));
        for _ in 0..50 {
            sources.note_forged(forged(1), at(1001));
            sources.note_forged(forged(2), at(1001));
        }
        assert!(!listed(&sources, 1, at(1001)).unwrap().imitated);
        sources.note_forged(forged(1), at(1001));
        assert!(listed(&sources, 1, at(1001)).unwrap().imitated);
        assert!(!listed(&sources, 2, at(1001)).unwrap().imitated);
        assert!((0..10_000).all(|_| sources.admits(forged(1), at(1002))));
        assert!(!listed(&sources, 1, at(2001)).unwrap().imitated);
        // What is not proven has no source.
        sources.note_forged(forged(3), at(1001));
        assert_eq!(listed(&sources, 3, at(1001)), None);
    }

    #[test]
    fn who_is_imitated_by_copies_that_nobody_examines_is_known_too() {
        let mut sources = Sources::new(200_000);
        let now = at(1000);
        sources.prove(claim(1, now), now);
        use_up(&mut sources, now);
        for _ in 0..51 {
            assert!(!sources.admits(claim(1, now), now));
        }
        assert!(listed(&sources, 1, now).unwrap().imitated);
    }
}
