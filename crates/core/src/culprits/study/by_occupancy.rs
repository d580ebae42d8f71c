//! Step 8 in a study: what lives tell where the resource is full. See [`super::super::occupancy`] and
//! [`super::super::slowdown`].

use super::super::decision::{may_occupy, occupies};
use super::super::occupancy::{CommonWait, Occupied, occupancy};
use super::super::slowdown::{Slowed, by_slowdown};
use super::pace::is_paced;
use super::{Student, lives_of};

/// Seconds of data below which lives alone accuse none.
const OCCUPIED_WINDOW_MIN: f64 = 15.0;
/// Part of a window's time, 0 to 1, in which the resource is full, above which they give suspects where little is known.
const SUSPECTED_FULL: f64 = 0.25;

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

    /// What lives alone tell of each class in full bins, whatever is known of it; without those that come at a set pace.
    fn by_lives(&self, wait: CommonWait) -> Vec<Occupied> {
        let counts = self.raw.iter().zip(self.filter.counts());
        let full: Vec<_> = counts
            .map(|(used, counts)| used.is_finite() && !counts)
            .collect();
        let classes = self.classes.iter();
        let lives: Vec<_> = classes
            .map(|(class, _)| lives_of(self.known, self.window, *class, self.now))
            .collect();
        let mut occupied = occupancy(self.window, &lives, &full, self.cores, wait);
        for (occupied, (lives, _)) in occupied.iter_mut().zip(&lives) {
            occupied.cleared = is_paced(lives);
        }
        occupied
    }

    /// The same without those that are known to use little.
    fn by_lives_and_room(&self, by_lives: &[Occupied]) -> Vec<Occupied> {
        let mut occupied = self.by_slowdown(by_lives.to_vec());
        for (occupied, by_lives) in occupied.iter_mut().zip(by_lives) {
            occupied.cleared |= by_lives.cleared;
        }
        occupied
    }

    pub(super) fn by_occupancy(&mut self) {
        let early = self.window.seconds() < OCCUPIED_WINDOW_MIN;
        let occupied = self.by_lives_and_room(&self.by_lives(CommonWait::Pool));
        self.suspect();
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

    /// Suspects those that lives tell of, where the resource was full for much of a window and little is known; and
    /// presumes it of them whatever is known, with a pool before the resource and without. Where there is a pool all
    /// take the same time without it, and none is dearer than others; where there is none, a few requests that take
    /// far longer than all others make the rest look as if they waited.
    pub(super) fn suspect(&mut self) {
        if self.study.full <= SUSPECTED_FULL {
            return;
        }
        let little = self.is_little_known();
        for wait in CommonWait::ALL {
            let by_lives = self.by_lives(wait);
            let told = self.by_lives_and_room(&by_lives);
            for ((seen, by_lives), told) in self.study.seen.iter_mut().zip(by_lives).zip(told) {
                let (full, mean_cost) = (self.study.full, self.mean_cost);
                let great = |it: Occupied| {
                    let lift = it.cost / mean_cost.max(f64::MIN_POSITIVE);
                    let share = it.share * full;
                    (!it.cleared && may_occupy(share, lift)).then_some(share)
                };
                raise(&mut seen.presumed, great(by_lives));
                if little && wait == CommonWait::Pool {
                    raise(&mut seen.suspected, great(told));
                }
            }
        }
    }
}

/// The greater share.
fn raise(share: &mut Option<f64>, to: Option<f64>) {
    *share = share.iter().copied().chain(to).reduce(f64::max);
}
