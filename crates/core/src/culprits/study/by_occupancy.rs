//! Step 8 in a study: what lives tell where the resource is full. See [`super::super::occupancy`] and
//! [`super::super::slowdown`].

use super::super::decision::{may_occupy, occupies};
use super::super::occupancy::{Occupied, occupancy};
use super::super::slowdown::{Slowed, by_slowdown};
use super::pace::is_paced;
use super::{Student, lives_of};

/// Seconds of data below which lives alone accuse none.
const OCCUPIED_WINDOW_MIN: f64 = 15.0;

impl Student<'_> {
    /// What each class uses by how much it is slowed; what it occupies, where too little is known.
    fn by_slowdown(&self, occupied: Vec<Occupied>) -> Vec<Occupied> {
        let classes = self.study.seen.iter().zip(occupied);
        let classes = classes.map(|(seen, occupied)| Slowed {
            room: self.known.room_of(seen.class),
            requests: seen.evidence.requests,
            life: seen.evidence.mean_life,
            occupied,
        });
        by_slowdown(&classes.collect::<Vec<_>>(), self.capacity())
    }

    /// A class that is slowed no more than all, and cost little before, is no culprit of a resource that is full now
    /// and then.
    pub(super) fn clear(&mut self) {
        let occupied = vec![Occupied::default(); self.study.seen.len()];
        let occupied = self.by_slowdown(occupied);
        for (seen, occupied) in self.study.seen.iter_mut().zip(occupied) {
            seen.cleared = occupied.cleared;
            seen.named &= !occupied.cleared;
            seen.suspected = seen.suspected.filter(|_| !occupied.cleared);
        }
    }

    /// What lives tell of each class in full bins; without those that are known to use little, or come at a set pace.
    pub(super) fn occupied(&self) -> Vec<Occupied> {
        let counts = self.raw.iter().zip(self.filter.counts());
        let full: Vec<_> = counts
            .map(|(used, counts)| used.is_finite() && !counts)
            .collect();
        let classes = self.classes.iter();
        let lives: Vec<_> = classes
            .map(|(class, _)| lives_of(self.known, self.window, *class, self.now))
            .collect();
        let mut occupied = self.by_slowdown(occupancy(self.window, &lives, &full, self.cores));
        for (occupied, (lives, _)) in occupied.iter_mut().zip(&lives) {
            occupied.cleared |= is_paced(lives);
        }
        occupied
    }

    pub(super) fn by_occupancy(&mut self) {
        let early = self.window.seconds() < OCCUPIED_WINDOW_MIN;
        let occupied = self.occupied();
        if self.is_little_known() {
            self.suspect(&occupied);
        }
        for (seen, occupied) in self.study.seen.iter_mut().zip(occupied) {
            if seen.named {
                continue;
            }
            let lift = occupied.cost / self.mean_cost.max(f64::MIN_POSITIVE);
            if !occupied.cleared && !early && occupies(occupied.share, lift) {
                seen.named = true;
                seen.by_occupancy = true;
                seen.with.clear();
            }
            if seen.by_occupancy || seen.evidence.t == 0.0 {
                seen.evidence.share = occupied.share;
                seen.evidence.cost = occupied.cost;
                seen.evidence.lift = lift;
            }
        }
    }

    /// Suspects those that lives tell of, where the resource was full for much of a window and little is known.
    pub(super) fn suspect(&mut self, occupied: &[Occupied]) {
        for (seen, occupied) in self.study.seen.iter_mut().zip(occupied) {
            let lift = occupied.cost / self.mean_cost.max(f64::MIN_POSITIVE);
            let share = occupied.share * self.study.full;
            if !occupied.cleared && may_occupy(share, lift) {
                seen.suspected = Some(seen.suspected.unwrap_or(0.0).max(share));
            }
        }
    }
}
