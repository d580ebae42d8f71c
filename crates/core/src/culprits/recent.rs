//! When each of a class's last requests was sent and ended: what virtual time and occupancy are
//! worked out from, since bins cannot be stretched afterwards.
//!
//! Inputs: finished requests. 32 kB for each class in use.
//! Failure case: a class with more than 2000 requests in a window is known in part only; it keeps
//! the columns of its bins.

use std::collections::VecDeque;

use super::bins::signed;
use crate::stats;
use crate::time::Timestamp;

/// Requests kept per class.
const KEPT: usize = 2000;
/// Requests that a median is taken of.
const MEDIAN_OF: usize = 200;

/// From and to, nanoseconds since the clock's zero.
pub(super) type Life = (i64, i64);

/// See the module.
#[derive(Debug)]
pub(super) struct Recent {
    classes: Vec<VecDeque<Life>>,
}

impl Recent {
    /// For so many classes.
    pub(super) fn new(classes: usize) -> Self {
        Self {
            classes: vec![VecDeque::new(); classes],
        }
    }

    /// A request has ended.
    pub(super) fn add(&mut self, class: usize, sent: Timestamp, ended: Timestamp) {
        let Some(lives) = self.classes.get_mut(class) else {
            return;
        };
        if lives.len() == KEPT {
            lives.pop_front();
        }
        lives.push_back((signed(sent), signed(ended)));
    }

    /// The class has had no requests.
    pub(super) fn forget(&mut self, class: usize) {
        if let Some(lives) = self.classes.get_mut(class) {
            lives.clear();
        }
    }

    /// The last requests of a class, in the order in which they were given.
    pub(super) fn lives(&self, class: usize) -> impl Iterator<Item = Life> {
        self.classes.get(class).into_iter().flatten().copied()
    }

    /// Whether all requests of a class that ended since are still known.
    pub(super) fn covers(&self, class: usize, since: i64) -> bool {
        let lives = self.classes.get(class);
        let full = lives.filter(|lives| lives.len() == KEPT);
        full.and_then(VecDeque::front)
            .is_none_or(|(_, ended)| *ended <= since)
    }

    /// How long its last requests took, nanoseconds; zero before the first.
    pub(super) fn median_life(&self, class: usize) -> i64 {
        let lives = self.classes.get(class).into_iter().flatten().rev();
        let lives = lives.take(MEDIAN_OF);
        let mut lives: Vec<_> = lives.map(|(sent, ended)| (ended - sent) as f64).collect();
        stats::quantile(&mut lives, 0.5).unwrap_or(0.0) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_two_thousand_are_known() {
        let mut recent = Recent::new(1);
        for ms in 0..3000 {
            let sent = Timestamp::from_millis(ms);
            recent.add(0, sent, Timestamp::from_millis(ms + 1 + ms % 3));
            recent.add(7, sent, sent);
        }
        assert_eq!(recent.lives(0).count(), KEPT);
        assert_eq!(recent.median_life(0), 2_000_000);
        assert!(recent.covers(0, 1_500_000_000) && !recent.covers(0, 500_000_000));
        assert!(recent.covers(7, 0));
    }
}
