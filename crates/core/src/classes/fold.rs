//! From a request to its place: a pattern of the configuration, or a leaf of the tree.

use super::pattern::PATTERNS_MAX;
use super::{Leaf, PathTree, Pattern, Request, TreeConfig, Weight};

/// Where a request belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The index of the pattern that fits.
    Pattern(u16),
    /// A leaf of the tree.
    Leaf(Leaf),
}

/// Patterns first, the tree for the rest.
#[derive(Clone, Debug)]
pub struct Folder {
    patterns: Vec<Pattern>,
    weights: Vec<Weight>,
    tree: PathTree,
}

impl Folder {
    /// With these patterns, of which the first [`PATTERNS_MAX`] count.
    pub fn new(mut patterns: Vec<Pattern>, tree: TreeConfig) -> Self {
        patterns.truncate(PATTERNS_MAX);
        Self {
            weights: vec![Weight::default(); patterns.len()],
            patterns,
            tree: PathTree::new(tree),
        }
    }

    /// Counts a request and says where it belongs.
    pub fn add(&mut self, request: &Request<'_>, weight: Weight) -> Place {
        match self.patterns.iter().position(|it| it.fits(request)) {
            Some(index) => {
                self.weights[index].add(weight);
                Place::Pattern(index as u16)
            }
            None => Place::Leaf(self.tree.add(request, weight)),
        }
    }

    /// Counts one more request of a place. False if it has to be [folded](Self::add) itself: then nothing was counted.
    pub(super) fn add_to(&mut self, place: Place, weight: Weight) -> bool {
        match place {
            Place::Pattern(index) => {
                let counted = self.weights.get_mut(usize::from(index));
                counted.map(|it| it.add(weight)).is_some()
            }
            Place::Leaf(leaf) => self.tree.add_to(leaf, weight),
        }
    }

    /// Where requests of that place belong by now; none if it gave way.
    pub fn resolve(&self, place: Place) -> Option<Place> {
        match place {
            Place::Pattern(_) => Some(place),
            Place::Leaf(leaf) => self.tree.resolve(leaf).map(Place::Leaf),
        }
    }

    /// What a place is called.
    pub fn name(&self, place: Place) -> String {
        match place {
            Place::Pattern(index) => self.patterns[usize::from(index)].name().into(),
            Place::Leaf(leaf) => self.tree.name(leaf),
        }
    }

    /// What a throttle of the requests of a place, and of no others, calls them.
    pub fn class_pattern(&self, place: Place) -> Option<String> {
        match place {
            Place::Pattern(_) => Some(self.name(place)),
            Place::Leaf(leaf) => self.tree.class_pattern(leaf),
        }
    }

    /// All patterns that had requests, and the heaviest leaves: `count` in all, heaviest first.
    pub fn heaviest(&self, count: usize) -> Vec<(Place, Weight)> {
        let used = |(index, weight): (usize, &Weight)| {
            (weight.requests > 0.0).then_some((Place::Pattern(index as u16), *weight))
        };
        let mut places: Vec<_> = self.weights.iter().enumerate().filter_map(used).collect();
        let leaves = self.tree.heaviest(count.saturating_sub(places.len()));
        places.extend(
            leaves
                .into_iter()
                .map(|(leaf, weight)| (Place::Leaf(leaf), weight)),
        );
        places.sort_by(|(_, one), (_, other)| {
            let seconds = other.seconds.total_cmp(&one.seconds);
            seconds.then(other.requests.total_cmp(&one.requests))
        });
        places
    }

    /// All that was counted.
    pub fn total(&self) -> Weight {
        let mut total = self.tree.total();
        for weight in &self.weights {
            total.add(*weight);
        }
        total
    }

    /// The patterns.
    pub(super) fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }

    /// The tree.
    pub(super) fn tree(&self) -> &PathTree {
        &self.tree
    }

    /// See [`PathTree::rename_site`].
    pub(super) fn rename_site(&mut self, from: &str, to: &str) -> bool {
        self.tree.rename_site(from, to)
    }

    /// Makes what was counted so far count less.
    pub(super) fn decay(&mut self, factor: f64) {
        self.tree.decay(factor);
        for weight in &mut self.weights {
            weight.scale(factor);
        }
    }
}
