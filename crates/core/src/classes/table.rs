//! The classes of a running front-end: numbers that stay with their names.
//!
//! ```text
//! number 0             all other requests
//! 1 to patterns        the configuration's patterns, for ever
//! patterns + 1 to 356  leaves: named at sight while fewer than 200 are, later by weight
//! retired when merged away or no longer among the 240 heaviest; free again after 150 s
//! ```
//!
//! A number keeps its name while any window can hold a request of it (the longest is 120 s), so
//! a keeper of rings by number never mixes two classes. Input: requests with weights, and `now`
//! for each [`ClassTable::rank`]. Old weight halves every ten minutes. Memory is bounded by the
//! tree and by [`SLOTS`]. Failure case: when clients make classes rise and fall faster than
//! numbers rest, newcomers stay in "other" until one is free.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::pattern::PATTERNS_MAX;
use super::{Folder, Leaf, Pattern, Place, Request, TreeConfig, Weight};
use crate::time::Timestamp;

/// Leaves that are named; the rest is "other".
pub const NAMED_MAX: usize = 200;
/// Numbers that there can be: "other", patterns, leaves, and retired ones at rest.
pub const SLOTS: usize = 1 + PATTERNS_MAX + LEAF_SLOTS;
/// Numbers for leaves: the named ones and room to rest.
const LEAF_SLOTS: usize = 256;
/// A leaf below this rank loses its number. More than are named, so that two of nearly the same
/// weight do not take turns.
pub(super) const RANK_KEPT: usize = 240;
/// How long a retired number rests.
const REST: Duration = Duration::from_secs(150);
/// After this time old weight counts half, seconds.
const HALF_LIFE_SECONDS: f64 = 600.0;
/// Changes that were not asked for; one more drops the oldest.
const CHANGES_MAX: usize = 1024;

/// The number of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u16);

impl ClassId {
    /// All requests without a class of their own.
    pub const OTHER: Self = Self(0);

    /// As an index, below [`SLOTS`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What became of a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It has this name from now on.
    Named(ClassId, String),
    /// It gets no more requests, and another name some time later.
    Retired(ClassId),
}

/// Numbers, names and the folding behind them.
#[derive(Clone, Debug)]
pub struct ClassTable {
    folder: Folder,
    slots: Vec<Slot>,
    by_leaf: BTreeMap<Leaf, ClassId>,
    changes: VecDeque<Change>,
    ranked: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Slot {
    Free,
    /// "other", or a pattern.
    Fixed,
    Leaf(Leaf),
    Resting {
        since: Timestamp,
    },
}

impl ClassTable {
    /// With these patterns; nothing else has a name yet.
    pub fn new(patterns: Vec<Pattern>, tree: TreeConfig) -> Self {
        let folder = Folder::new(patterns, tree);
        let fixed = 1 + folder.patterns().len();
        let mut slots = vec![Slot::Fixed; fixed];
        slots.resize(fixed + LEAF_SLOTS, Slot::Free);
        Self {
            folder,
            slots,
            by_leaf: BTreeMap::new(),
            changes: VecDeque::new(),
            ranked: None,
        }
    }

    /// Counts a request and gives its class.
    pub fn add(&mut self, request: &Request<'_>, weight: Weight) -> ClassId {
        self.fold(request, weight).1
    }

    /// The same, and where it belongs: there the next ones that are alike are counted for less ([`add_to`](Self::add_to)).
    pub fn fold(&mut self, request: &Request<'_>, weight: Weight) -> (Place, ClassId) {
        let place = self.folder.add(request, weight);
        (place, self.class_of(place))
    }

    /// Counts a request, or more of it, that is like one which belonged there, and gives its class; none if it has to be
    /// [folded](Self::fold) itself, and then nothing was counted.
    pub fn add_to(&mut self, place: Place, weight: Weight) -> Option<ClassId> {
        let counted = self.folder.add_to(place, weight);
        counted.then(|| self.class_of(place))
    }

    fn class_of(&mut self, place: Place) -> ClassId {
        match place {
            Place::Pattern(index) => ClassId(1 + index),
            Place::Leaf(leaf) => match self.by_leaf.get(&leaf) {
                Some(class) => *class,
                None if self.by_leaf.len() < NAMED_MAX => self.take_slot(leaf, None),
                None => ClassId::OTHER,
            },
        }
    }

    /// What a class is called; none if the number has no name now.
    pub fn name(&self, class: ClassId) -> Option<String> {
        if class == ClassId::OTHER {
            return Some("other".into());
        }
        match self.slots.get(class.index())? {
            Slot::Fixed => Some(self.folder.name(Place::Pattern(class.0 - 1))),
            Slot::Leaf(leaf) => Some(self.folder.name(Place::Leaf(*leaf))),
            Slot::Free | Slot::Resting { .. } => None,
        }
    }

    /// What a throttle of the requests of a class, and of no others, calls it: [`crate::throttle::ClassPattern`]
    /// reads that. None for "other", and for what has no method or path of its own.
    pub fn class_pattern(&self, class: ClassId) -> Option<String> {
        if class == ClassId::OTHER {
            return None;
        }
        match self.slots.get(class.index())? {
            Slot::Fixed => self.folder.class_pattern(Place::Pattern(class.0 - 1)),
            Slot::Leaf(leaf) => self.folder.class_pattern(Place::Leaf(*leaf)),
            Slot::Free | Slot::Resting { .. } => None,
        }
    }

    /// The site of a class's requests; none for those of several sites, or of no class.
    pub fn site(&self, class: ClassId) -> Option<&str> {
        match self.slots.get(class.index())? {
            Slot::Leaf(leaf) => Some(self.folder.tree().site(*leaf)),
            Slot::Fixed | Slot::Free | Slot::Resting { .. } => None,
        }
    }

    /// Calls a site otherwise: classes keep their numbers, and what has a name of the site's has another one. False if no
    /// site is called so, or another one has the name.
    pub fn rename_site(&mut self, from: &str, to: &str) -> bool {
        self.folder.rename_site(from, to)
    }

    /// Gives names to those that weigh enough by now and takes them from those that do not. Meant
    /// for every ten seconds or so; sorts all leaves.
    pub fn rank(&mut self, now: Timestamp) {
        let since = self.ranked.replace(now).unwrap_or(now);
        let halves = now.seconds_since(since) / HALF_LIFE_SECONDS;
        self.folder.decay((-halves).exp2());
        let heaviest = self.folder.tree().heaviest(RANK_KEPT);
        let kept: BTreeMap<_, _> = heaviest.iter().copied().collect();
        self.retire(|leaf| !kept.contains_key(&leaf), now);
        for (leaf, _) in heaviest.into_iter().take(NAMED_MAX) {
            if !self.by_leaf.contains_key(&leaf) {
                self.take_slot(leaf, Some(now));
            }
        }
    }

    /// The next change, oldest first. A keeper of anything by number asks after each call of [`rank`](Self::rank), which
    /// alone gives numbers away anew, and before the next request is added.
    pub fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    fn retire(&mut self, goes: impl Fn(Leaf) -> bool, now: Timestamp) {
        for index in 0..self.slots.len() {
            if let Slot::Leaf(leaf) = self.slots[index]
                && goes(leaf)
            {
                self.by_leaf.remove(&leaf);
                self.slots[index] = Slot::Resting { since: now };
                self.tell(Change::Retired(ClassId(index as u16)));
            }
        }
    }

    /// A number for the leaf, if one is free; with a time one that has rested will do.
    fn take_slot(&mut self, leaf: Leaf, now: Option<Timestamp>) -> ClassId {
        let usable = |slot: &Slot| match (slot, now) {
            (Slot::Free, _) => true,
            (Slot::Resting { since }, Some(now)) => now.since(*since) >= REST,
            (Slot::Resting { .. }, None) | (Slot::Fixed | Slot::Leaf(_), _) => false,
        };
        let Some(index) = self.slots.iter().position(usable) else {
            return ClassId::OTHER;
        };
        let class = ClassId(index as u16);
        self.slots[index] = Slot::Leaf(leaf);
        self.by_leaf.insert(leaf, class);
        let name = self.folder.name(Place::Leaf(leaf));
        self.tell(Change::Named(class, name));
        class
    }

    fn tell(&mut self, change: Change) {
        if self.changes.len() >= CHANGES_MAX {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_that_are_not_asked_for_are_kept_up_to_a_number_and_then_the_oldest_goes() {
        for (told, oldest) in [(1024, 0), (1025, 1)] {
            let mut table = ClassTable::new(Vec::new(), TreeConfig::default());
            for number in 0..told {
                table.tell(Change::Retired(ClassId(number)));
            }
            assert_eq!(table.poll_change(), Some(Change::Retired(ClassId(oldest))));
            let rest = std::iter::from_fn(|| table.poll_change());
            assert_eq!(rest.count(), 1023);
        }
    }
}
