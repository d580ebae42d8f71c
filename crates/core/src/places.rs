//! A table that grows while threads read it: what lies in a place never moves, and a look-up takes no lock.
//!
//! ```text
//! 0 .. n            the places that it was made with, in one piece: a look-up costs what a slice costs
//! n + 64 (2^k - 1)  piece k, of 64 * 2^k places, made when the first of them is wanted
//! ```
//!
//! Failure case: it never shrinks. The director gives those again that nothing means any more.

use std::sync::OnceLock;

/// Places in the first piece that is added.
const FIRST: usize = 64;
/// Pieces that can be added: more places than a `u32` numbers.
const PIECES: usize = 26;

/// See the module.
#[derive(Debug)]
pub struct Places<T> {
    first: Box<[T]>,
    pieces: [OnceLock<Box<[T]>>; PIECES],
    make: fn() -> T,
}

impl<T> Places<T> {
    /// A table of so many places, each with what `make` makes, as all that are added later.
    pub fn new(places: usize, make: fn() -> T) -> Self {
        Self {
            first: (0..places).map(|_| make()).collect(),
            pieces: [const { OnceLock::new() }; PIECES],
            make,
        }
    }

    /// Makes sure that there are places `0..places`. Threads may look up others at the same time.
    pub fn reserve(&self, places: usize) {
        let mut room = self.first.len();
        for (index, piece) in self.pieces.iter().enumerate() {
            if room >= places {
                return;
            }
            let length = FIRST << index;
            piece.get_or_init(|| (0..length).map(|_| (self.make)()).collect());
            room += length;
        }
    }

    /// What lies in a place, if there is such a place.
    #[inline]
    pub fn get(&self, place: usize) -> Option<&T> {
        match self.first.get(place) {
            Some(found) => Some(found),
            None => self.added(place - self.first.len()),
        }
    }

    /// How many places there are.
    pub fn count(&self) -> usize {
        let pieces = self.pieces.iter().map_while(OnceLock::get);
        self.first.len() + pieces.map(|piece| piece.len()).sum::<usize>()
    }

    /// All of them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let pieces = self.pieces.iter().map_while(OnceLock::get);
        self.first
            .iter()
            .chain(pieces.flat_map(|piece| piece.iter()))
    }

    #[cold]
    #[inline(never)]
    fn wanted(&self, place: usize) -> &T {
        let found = self.added(place - self.first.len());
        found.unwrap_or_else(|| panic!("place {place} of {}", self.count()))
    }

    /// Of a place behind the first piece, counted from there.
    #[cold]
    #[inline(never)]
    fn added(&self, place: usize) -> Option<&T> {
        let number = place / FIRST + 1;
        let index = number.ilog2();
        let before = FIRST * ((1 << index) - 1);
        self.pieces.get(index as usize)?.get()?.get(place - before)
    }
}

impl<T> std::ops::Index<usize> for Places<T> {
    type Output = T;

    /// Panics where there is no such place, as a slice does.
    #[inline]
    fn index(&self, place: usize) -> &T {
        match place < self.first.len() {
            true => &self.first[place],
            false => self.wanted(place),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn every_place_is_another_one_and_stays_where_it_is() {
        for first in [0, 1, 5, 64] {
            let places = Places::new(first, AtomicUsize::default);
            assert_eq!(places.count(), first);
            let mut kept = Vec::new();
            for wanted in (0..1000).chain([10_000]) {
                places.reserve(wanted);
                assert!(places.count() >= wanted);
                while kept.len() < wanted {
                    let place = &places[kept.len()];
                    place.store(kept.len() + 1, Ordering::Relaxed);
                    kept.push(std::ptr::from_ref(place));
                }
            }
            let numbers = places.iter().map(|it| it.load(Ordering::Relaxed));
            assert!(numbers.take(10_000).eq(1..=10_000), "{first}");
            let stay =
                |(index, at): (usize, &*const AtomicUsize)| std::ptr::eq(&places[index], *at);
            assert!(kept.iter().enumerate().all(stay));
            assert!(places.get(places.count()).is_none());
            assert!(places.get(usize::MAX).is_none());
        }
    }

    #[test]
    fn places_are_added_while_others_are_looked_up() {
        let places = Places::new(1, AtomicUsize::default);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for wanted in 0..5000 {
                        places.reserve(wanted);
                        if let Some(last) = wanted.checked_sub(1) {
                            places[last].fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let mut counts = places.iter().map(|it| it.load(Ordering::Relaxed));
        assert!(counts.by_ref().take(4999).all(|count| count == 2));
        assert!(counts.all(|count| count == 0));
    }
}
