//! Which files are in the server's memory: least recently used, a map and a list by use.
//!
//! Both operations cost O(log n). The files themselves do not exist; what tells a hit from a
//! miss is the CPU time that it costs.

use std::collections::BTreeMap;
use std::time::Duration;

use super::http::Found;
use super::work::Work;

/// What `file=N` costs: see the crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachePlan {
    /// Files that the cache holds.
    pub files: u32,
    /// CPU time of a request for a file that is in it.
    pub hit: Duration,
    /// CPU time of a request for one that is not.
    pub miss: Duration,
}

impl Default for CachePlan {
    fn default() -> Self {
        Self {
            files: 0,
            hit: Duration::ZERO,
            miss: Duration::ZERO,
        }
    }
}

/// The files of a server: what is in the cache, and what a file costs.
#[derive(Debug)]
pub struct Files {
    plan: CachePlan,
    cache: Cache,
}

impl Files {
    /// None of them is in the cache yet.
    pub fn new(plan: CachePlan) -> Self {
        Self {
            plan,
            cache: Cache::new(plan.files as usize),
        }
    }

    /// Looks for the file of the request, if it names one, and adds what that costs.
    pub fn find(&mut self, work: &mut Work) -> Option<Found> {
        let (found, cost) = if self.cache.hit(work.file?) {
            (Found::Hit, self.plan.hit)
        } else {
            (Found::Miss, self.plan.miss)
        };
        work.cpu += cost;
        Some(found)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Cache {
    capacity: usize,
    uses: u64,
    used_at: BTreeMap<u64, u64>,
    by_use: BTreeMap<u64, u64>,
}

impl Cache {
    /// A cache of so many files, empty.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            uses: 0,
            used_at: BTreeMap::new(),
            by_use: BTreeMap::new(),
        }
    }

    /// The file is used: whether it was there. It is afterwards, if there is room at all.
    pub fn hit(&mut self, file: u64) -> bool {
        if self.capacity == 0 {
            return false;
        }
        self.uses += 1;
        let before = self.used_at.insert(file, self.uses);
        if let Some(before) = before {
            self.by_use.remove(&before);
        } else if self.used_at.len() > self.capacity
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.used_at.remove(&oldest);
        }
        self.by_use.insert(self.uses, file);
        before.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::prng::Prng;

    #[test]
    fn the_one_longest_unused_goes() {
        let mut cache = Cache::new(2);
        let hits: Vec<_> = [1, 2, 1, 3, 1, 2, 3].map(|file| cache.hit(file)).into();
        assert_eq!(hits, [false, false, true, false, true, false, false]);
    }

    #[test]
    fn a_file_costs_what_finding_it_costs() {
        let ms = Duration::from_millis;
        let mut files = Files::new(CachePlan {
            files: 1,
            hit: ms(1),
            miss: ms(5),
        });
        let mut work = Work::default();
        assert_eq!(files.find(&mut work), None);
        work.file = Some(7);
        assert_eq!(files.find(&mut work), Some(Found::Miss));
        assert_eq!(files.find(&mut work), Some(Found::Hit));
        assert_eq!(work.cpu, ms(6));
    }

    #[test]
    fn no_room_means_no_hit() {
        let mut cache = Cache::new(0);
        assert!(!cache.hit(1) && !cache.hit(1));
        assert!(cache.used_at.is_empty() && cache.by_use.is_empty());
    }

    /// Against the plainest implementation there is.
    #[test]
    fn it_agrees_with_a_list() {
        for seed in 0..20 {
            let mut prng = Prng::new(seed);
            let capacity = 1 + prng.below(20);
            let (mut cache, mut list) = (Cache::new(capacity), Vec::new());
            for _ in 0..2000 {
                let file = prng.below(40) as u64;
                let place = list.iter().position(|there| *there == file);
                if let Some(place) = place {
                    list.remove(place);
                }
                list.push(file);
                if list.len() > capacity {
                    list.remove(0);
                }
                assert_eq!(cache.hit(file), place.is_some(), "seed {seed}");
                assert_eq!(cache.by_use.len(), list.len());
            }
        }
    }
}
