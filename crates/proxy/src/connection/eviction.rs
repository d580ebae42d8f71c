//! Which client connections give way to new ones, when as many are open as may be.
//!
//! | connection | gives way |
//! |---|---|
//! | has asked for nothing since it came, for [`IDLE_TICKS`] | first, the one that waits longest before others |
//! | waits for the next request of its client, for [`IDLE_TICKS`] | then, the same way |
//! | has sent a part of a head, for half of the time that a head has | last, the same way |
//! | has a request, streams or a tunnel, or ends already | never |
//!
//! What gives way does so as if its own time were over: an idle connection is closed (HTTP/2: by `GOAWAY`), a head is answered 408. Its
//! seat is the new connection's at once. So clients that hold connections open and send nothing keep no others out.
//!
//! To look for the oldest is to look at all; so each look keeps a [`RESERVE`] of them, and one that finds none counts for
//! [`FRUITLESS_TICKS`].
//!
//! Failure case: clients that came less than a second ago never give way. Where connections come that fast, new ones are refused as they
//! are without this. Each worker has its own to choose from: one without any refuses, though others may have some.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use super::Phase;

/// A second: a client that connects and then asks has done so by then.
const IDLE_TICKS: u64 = 50;
/// One in so many connections is kept for the next evictions.
const RESERVE: usize = 16;
/// The fewest that are.
const RESERVE_MIN: usize = 64;
/// A look that found none is not repeated for so long.
const FRUITLESS_TICKS: u64 = 10;

/// How a connection stands that may have to give way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) phase: Phase,
    /// It is waited for: its time runs, and all that it was sent is out.
    pub(crate) waited_for: bool,
    /// It has had a request.
    pub(crate) served: bool,
    /// The tick at which its phase began.
    pub(crate) since: u64,
    /// Ticks that its head may take.
    pub(crate) head: u64,
}

/// The place of a connection among those that give way: the least goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    class: Class,
    since: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Silent,
    Idle,
    Head,
}

/// The rank of a connection, if it may have to give way.
pub(crate) fn rank(standing: Standing, tick: u64) -> Option<Rank> {
    let Standing { served, since, .. } = standing;
    let (class, least) = match standing.phase {
        Phase::Idle if served => (Class::Idle, IDLE_TICKS),
        Phase::Idle => (Class::Silent, IDLE_TICKS),
        Phase::Head => (Class::Head, standing.head.div_ceil(2)),
        Phase::Busy | Phase::Body | Phase::Tunnel => return None,
    };
    let waits = standing.waited_for && tick.saturating_sub(since) >= least;
    waits.then_some(Rank { class, since })
}

/// Places of connections that give way next.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    next: RefCell<VecDeque<usize>>,
    /// Until then there are none.
    fruitless_until: Cell<u64>,
}

impl Reserve {
    /// The next connection that gives way. `rank_at` is the rank of the one at a place, which may have changed since it was kept;
    /// there are so many places.
    pub(crate) fn next(
        &self,
        tick: u64,
        places: usize,
        rank_at: impl Fn(usize) -> Option<Rank>,
    ) -> Option<usize> {
        let mut next = self.next.borrow_mut();
        let kept = std::iter::from_fn(|| next.pop_front()).find(|place| rank_at(*place).is_some());
        if kept.is_some() || tick < self.fruitless_until.get() {
            return kept;
        }
        let ranked = |place| rank_at(place).map(|rank| (rank, place));
        let mut all: Vec<_> = (0..places).filter_map(ranked).collect();
        let most = (places / RESERVE).max(RESERVE_MIN);
        if all.len() > most {
            all.select_nth_unstable(most);
            all.truncate(most);
        }
        all.sort_unstable();
        next.extend(all.into_iter().map(|(_, place)| place));
        if next.is_empty() {
            self.fruitless_until.set(tick + FRUITLESS_TICKS);
        }
        next.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1000;
    const HEAD: u64 = 500;

    fn waiting(phase: Phase, served: bool, ticks: u64) -> Standing {
        Standing {
            phase,
            waited_for: true,
            served,
            since: NOW - ticks,
            head: HEAD,
        }
    }

    #[test]
    fn the_silent_go_before_the_idle_and_those_before_slow_heads() {
        let order = [
            waiting(Phase::Idle, false, 60),
            waiting(Phase::Idle, false, 50),
            waiting(Phase::Idle, true, 900),
            waiting(Phase::Idle, true, 50),
            waiting(Phase::Head, false, 400),
            waiting(Phase::Head, true, 250),
        ];
        let ranks = order.map(|standing| rank(standing, NOW).unwrap());
        assert!(ranks.is_sorted(), "{ranks:?}");
    }

    #[test]
    fn requests_tunnels_and_the_young_never_give_way() {
        let stay = [
            waiting(Phase::Idle, false, 49),
            waiting(Phase::Idle, true, 49),
            waiting(Phase::Head, false, 249),
            waiting(Phase::Busy, true, 900),
            waiting(Phase::Body, true, 900),
            waiting(Phase::Tunnel, true, 900),
            Standing {
                waited_for: false,
                ..waiting(Phase::Idle, true, 900)
            },
        ];
        for standing in stay {
            assert_eq!(rank(standing, NOW), None, "{standing:?}");
        }
    }

    #[test]
    fn a_look_serves_many_evictions_in_order() {
        const PLACES: usize = 2000;
        let looks = Cell::new(0);
        let gone = RefCell::new(vec![false; PLACES]);
        let reserve = Reserve::default();
        // The later the place, the longer its connection waits.
        let rank_at = |place: usize| {
            looks.set(looks.get() + 1);
            let standing = waiting(Phase::Idle, false, 60 + place as u64 % 900);
            (!gone.borrow()[place])
                .then(|| rank(standing, NOW))
                .flatten()
        };
        let mut before = None;
        for _ in 0..PLACES {
            let place = reserve.next(NOW, PLACES, rank_at).unwrap();
            let since = rank_at(place).map(|rank| rank.since);
            assert!(since >= before, "{since:?} before {before:?}");
            before = since;
            gone.borrow_mut()[place] = true;
        }
        assert!(looks.get() < 20 * PLACES, "{}", looks.get());
        assert_eq!(reserve.next(NOW, PLACES, rank_at), None);
    }

    #[test]
    fn what_has_asked_meanwhile_stays_and_a_fruitless_look_counts_for_a_while() {
        let idle = RefCell::new(vec![true, true]);
        let looks = Cell::new(0);
        let reserve = Reserve::default();
        let rank_at = |place: usize| {
            looks.set(looks.get() + 1);
            let standing = waiting(Phase::Idle, false, 60 - place as u64);
            idle.borrow()[place].then(|| rank(standing, NOW)).flatten()
        };
        assert_eq!(reserve.next(NOW, 2, rank_at), Some(0));
        *idle.borrow_mut() = vec![false, false];
        assert_eq!(reserve.next(NOW, 2, rank_at), None);
        *idle.borrow_mut() = vec![true, true];
        let before = looks.get();
        assert_eq!(reserve.next(NOW + FRUITLESS_TICKS - 1, 2, rank_at), None);
        assert_eq!(looks.get(), before);
        assert_eq!(reserve.next(NOW + FRUITLESS_TICKS, 2, rank_at), Some(0));
    }
}
