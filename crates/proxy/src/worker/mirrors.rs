//! A worker's copies of requests: which are drawn, and how many are under way.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tidegate_core::prng::Prng;

/// Copies that are under way at a time.
const UNDER_WAY_MAX: usize = 64;

/// See the module.
pub(crate) struct Mirrors {
    prng: RefCell<Prng>,
    under_way: Rc<Cell<usize>>,
}

/// The place of a copy among those that are under way.
pub(crate) struct MirrorSeat(Rc<Cell<usize>>);

impl Mirrors {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            prng: RefCell::new(Prng::new(seed)),
            under_way: Rc::default(),
        }
    }

    /// Whether a request is among this share of all.
    pub(crate) fn draws(&self, share: f64) -> bool {
        self.prng.borrow_mut().unit() < share
    }

    /// A place for one more copy, if there is one.
    pub(crate) fn seat(&self) -> Option<MirrorSeat> {
        let under_way = self.under_way.get();
        (under_way < UNDER_WAY_MAX).then(|| {
            self.under_way.set(under_way + 1);
            MirrorSeat(Rc::clone(&self.under_way))
        })
    }
}

impl Drop for MirrorSeat {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_places_and_each_is_free_again() {
        let mirrors = Mirrors::new(1);
        let mut seats: Vec<_> = (0..UNDER_WAY_MAX).filter_map(|_| mirrors.seat()).collect();
        assert_eq!(seats.len(), UNDER_WAY_MAX);
        assert!(mirrors.seat().is_none());
        seats.pop();
        assert!(mirrors.seat().is_some());
    }

    #[test]
    fn as_many_are_drawn_as_the_share_says() {
        let mirrors = Mirrors::new(7);
        let drawn = |share| (0..10_000).filter(|_| mirrors.draws(share)).count();
        assert_eq!((drawn(0.0), drawn(1.0)), (0, 10_000));
        assert!((800..1200).contains(&drawn(0.1)));
    }
}
