//! A tree of paths that merges what differs too much: raw URLs in, a bounded number of leaves out.
//!
//! ```text
//! a node with more than K children is merged:
//!   kept by name: children with >= 2 % of the node's requests (and >= 20 of them), or
//!                 with >= 2 % of its time in progress (and >= 3 requests)
//!   all others become one child {*}, and their subtrees join there
//! later: a name hidden in {*} comes out once so much of either is sure to be its own (heavy.rs)
//! ```
//!
//! Levels: site, method, static files or pages, segments, and the names of the query. Input: one
//! [`Request`] and its [`Weight`]. Time counts beside requests because a rare page that costs
//! much has few requests: by requests alone it would vanish in `{*}`.
//!
//! A node never changes its name. When it merges it points to where its requests are from then
//! on; [`PathTree::resolve`] follows. Memory: at most [`TreeConfig::nodes_max`] nodes, and watched
//! names for [`HEAVY_MAX`] of them. When all nodes are taken, the lighter leaves give way to their
//! parents. Failure case: a site where every page is one segment and all weigh the same is one
//! class. Source: the design's study of folding (K = 16 covers most requests with 200 names).

use super::heavy::Heavy;
use super::selector::{Level, Selector};
use super::shape::Shape;
use super::{Request, Weight};

/// Requests that a child needs to keep its name for their number.
const REQUESTS_MIN: f64 = 20.0;
/// Requests that a child needs to keep its name for their time.
const REQUESTS_MIN_BY_TIME: f64 = 3.0;
/// Share of its parent that a child needs to keep its name.
const SHARE_MIN: f64 = 0.02;
/// Most sites that are kept apart.
pub(super) const SITES_MAX: usize = 256;
/// Merged nodes for which names in `{*}` are watched.
pub(super) const HEAVY_MAX: usize = 512;
/// Most nodes that a request can take: as many as its path has levels, and a `{*}` at each of them.
pub(super) const PATH_NODES: usize = 2 * (super::SEGMENTS_MAX + 5);
/// Least nodes that a tree may have: the levels above and some pages.
const NODES_MIN: usize = 64;

/// What a merged child is called.
const REST: &str = "{*}";
/// Sites beyond the limit, and methods that are not in use.
const OTHER: &str = "{other}";
/// Pages and static files of a method.
const PAGES: &str = "pages";
const STATICS: &str = "static";
/// Methods of the registry that matter; empty where a log has none.
const METHODS: &[&str] = &[
    "", "GET", "POST", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE", "PROPFIND",
    "REPORT", "PURGE", "QUERY",
];

/// How far a tree grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeConfig {
    /// Children of a node beyond which it is merged (K).
    pub children_max: usize,
    /// Nodes in all, some 250 bytes each.
    pub nodes_max: usize,
}

impl Default for TreeConfig {
    /// K = 16 is from the folding study; 32 names less of the requests among the first 200 classes.
    fn default() -> Self {
        Self {
            children_max: 16,
            nodes_max: 16_384,
        }
    }
}

/// Where a request's path ends in the tree. It outlives merges: see [`PathTree::resolve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leaf {
    index: u32,
    generation: u32,
}

/// The tree.
#[derive(Clone, Debug)]
pub struct PathTree {
    config: TreeConfig,
    nodes: Vec<Node>,
    free: Vec<u32>,
    heavy: usize,
    /// The end of a shape, built anew for each request.
    end: String,
}

#[derive(Clone, Debug)]
struct Node {
    generation: u32,
    state: TreeNodeState,
    /// How deep: 0 the root, 1 sites, 2 methods, 3 pages or static files, then segments.
    depth: u8,
    parent: u32,
    name: Box<str>,
    children: Vec<u32>,
    /// The child `{*}`, if the node is merged.
    rest: Option<u32>,
    /// Of requests that end here.
    here: Weight,
    /// Of those that end here or below.
    below: Weight,
    hidden: Option<Box<Heavy>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TreeNodeState {
    Used,
    /// Merged into that node.
    Merged(u32),
    Free,
}

const ROOT: u32 = 0;
/// Depth of a site.
const SITE: u8 = 1;
/// Depth of the first segment.
const FIRST_SEGMENT: u8 = 4;

impl PathTree {
    /// An empty tree.
    pub fn new(config: TreeConfig) -> Self {
        let config = TreeConfig {
            children_max: config.children_max.max(1),
            nodes_max: config.nodes_max.clamp(NODES_MIN, u32::MAX as usize),
        };
        Self {
            config,
            nodes: vec![Node::new("", ROOT, 0)],
            free: Vec::new(),
            heavy: 0,
            end: String::new(),
        }
    }

    /// Counts a request and says where it belongs.
    pub fn add(&mut self, request: &Request<'_>, weight: Weight) -> Leaf {
        let shape = Shape::new(request.target);
        let mut end = std::mem::take(&mut self.end);
        let has_end = shape.end(&mut end);
        self.make_room();
        self.node_mut(ROOT).below.add(weight);
        let kind = if shape.is_static() { STATICS } else { PAGES };
        let levels = [request.site, method(request.method), kind];
        let segments = shape.segments().iter().map(|segment| &**segment);
        let names = levels.into_iter().chain(segments);
        let names = names.chain(has_end.then_some(end.as_str()));
        let mut at = ROOT;
        for name in names {
            let Some(child) = self.step(at, name, weight) else {
                break;
            };
            self.node_mut(child).below.add(weight);
            at = child;
        }
        self.node_mut(at).here.add(weight);
        self.end = end;
        self.leaf(at)
    }

    /// Counts one more request of a leaf, as [`add`](Self::add) would a request that was like one of its own. False if only the request
    /// itself says where it belongs by now: the leaf was merged or gave way, or names are watched on its way. Then nothing was counted.
    pub(super) fn add_to(&mut self, leaf: Leaf, weight: Weight) -> bool {
        if self.resolve(leaf) != Some(leaf) {
            return false;
        }
        let mut at = leaf.index;
        while at != ROOT {
            let parent = self.node(at).parent;
            if self.node(parent).rest == Some(at) {
                return false;
            }
            at = parent;
        }
        at = leaf.index;
        self.node_mut(at).here.add(weight);
        while at != ROOT {
            let node = self.node_mut(at);
            node.below.add(weight);
            at = node.parent;
        }
        self.node_mut(ROOT).below.add(weight);
        true
    }

    /// The leaf that stands for the requests of this one since merges; none if it gave way.
    pub fn resolve(&self, leaf: Leaf) -> Option<Leaf> {
        let node = self.nodes.get(leaf.index as usize)?;
        if node.generation != leaf.generation {
            return None;
        }
        self.follow(leaf.index).map(|index| self.leaf(index))
    }

    /// What a leaf is called, `shop GET /item/{n}?page`: the same as long as it resolves to
    /// itself, and `{other}` once it is gone.
    pub fn name(&self, leaf: Leaf) -> String {
        if self.resolve(leaf) != Some(leaf) {
            return OTHER.into();
        }
        let mut parts = Vec::new();
        let mut at = leaf.index;
        while at != ROOT && parts.len() < usize::from(u8::MAX) {
            let node = self.node(at);
            parts.push((node.depth, &*node.name));
            at = node.parent;
        }
        let mut name = String::new();
        for (depth, part) in parts.into_iter().rev() {
            match depth {
                1 | 2 if !part.is_empty() => {
                    name.push_str(part);
                    name.push(' ');
                }
                FIRST_SEGMENT.. => {
                    if !part.starts_with('?') || name.is_empty() || name.ends_with(' ') {
                        name.push('/');
                    }
                    name.push_str(part);
                }
                _ => {}
            }
        }
        if name.is_empty() || name.ends_with(' ') {
            name.push('/');
        }
        name
    }

    /// What a throttle of the requests of this leaf, and of no others, calls them: [`crate::throttle::ClassPattern`]
    /// reads it. None for what has no method, site or path of its own.
    pub fn class_pattern(&self, leaf: Leaf) -> Option<String> {
        if self.resolve(leaf) != Some(leaf) {
            return None;
        }
        let mut levels = Vec::new();
        let mut at = leaf.index;
        while self.node(at).depth >= FIRST_SEGMENT {
            levels.push(self.level(at));
            at = self.node(at).parent;
        }
        levels.reverse();
        let kind = self.node(at);
        let method = self.node(kind.parent);
        let site = self.node(method.parent);
        let is_static = &*kind.name == STATICS;
        if kind.depth + 1 != FIRST_SEGMENT || method.name.is_empty() || &*method.name == OTHER {
            return None;
        }
        let path = Selector::new(levels, is_static)?;
        match &*site.name {
            OTHER => None,
            "" => Some(format!("{} {path}", method.name)),
            site => Some(format!("{site} {} {path}", method.name)),
        }
    }

    /// The site of a leaf's requests; empty where sites are not kept apart.
    pub fn site(&self, leaf: Leaf) -> &str {
        let mut at = leaf.index;
        while self.node(at).depth > SITE {
            at = self.node(at).parent;
        }
        match self.node(at).depth {
            SITE => &self.node(at).name,
            _ => "",
        }
    }

    /// Calls a site otherwise from now on, all below it included; false if none is called so, or another one has the name.
    pub fn rename_site(&mut self, from: &str, to: &str) -> bool {
        let (Some(site), None) = (self.child(ROOT, from), self.child(ROOT, to)) else {
            return false;
        };
        self.node_mut(site).name = to.into();
        true
    }

    fn level(&self, at: u32) -> Level {
        let node = self.node(at);
        let parent = self.node(node.parent);
        if parent.rest != Some(at) {
            return Level::Name(node.name.clone());
        }
        let named = parent.children.iter().filter(|child| **child != at);
        Level::Merged(named.map(|child| self.node(*child).name.clone()).collect())
    }

    /// Where a request would belong, were it counted now; none if it is like none before.
    pub fn find(&self, request: &Request<'_>) -> Option<Leaf> {
        let shape = Shape::new(request.target);
        let mut end = String::new();
        let has_end = shape.end(&mut end);
        let kind = if shape.is_static() { STATICS } else { PAGES };
        let levels = [request.site, method(request.method), kind];
        let segments = shape.segments().iter().map(|segment| &**segment);
        let names = levels.into_iter().chain(segments);
        let mut at = ROOT;
        for name in names.chain(has_end.then_some(end.as_str())) {
            at = self.child(at, name).or(self.node(at).rest)?;
        }
        Some(self.leaf(at))
    }

    /// Leaves with requests, each with its weight; in no order that means anything.
    pub fn leaves(&self) -> impl Iterator<Item = (Leaf, Weight)> {
        let indices = 0..self.nodes.len() as u32;
        let used = indices.filter(|index| self.node(*index).state == TreeNodeState::Used);
        let ended = used.filter(|index| self.node(*index).here.requests > 0.0);
        ended.map(|index| (self.leaf(index), self.node(index).here))
    }

    /// The heaviest leaves: by time in progress where any is known, else by requests.
    pub fn heaviest(&self, count: usize) -> Vec<(Leaf, Weight)> {
        let by_time = self.total().seconds > 0.0;
        let key = |weight: &Weight| {
            if by_time {
                (weight.seconds, weight.requests)
            } else {
                (weight.requests, 0.0)
            }
        };
        let mut leaves: Vec<_> = self.leaves().collect();
        leaves.sort_by(|(leaf, weight), (other_leaf, other)| {
            let (own, other) = (key(weight), key(other));
            let order = other.0.total_cmp(&own.0).then(other.1.total_cmp(&own.1));
            order.then(leaf.cmp(other_leaf))
        });
        leaves.truncate(count);
        leaves
    }

    /// All that was counted.
    pub fn total(&self) -> Weight {
        self.node(ROOT).below
    }

    /// Makes what was counted so far count less.
    pub fn decay(&mut self, factor: f64) {
        for node in &mut self.nodes {
            node.here.scale(factor);
            node.below.scale(factor);
            if let Some(hidden) = &mut node.hidden {
                hidden.decay(factor);
            }
        }
    }

    /// Nodes in use, for a watch on the memory.
    pub fn nodes(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// The child of that name, made if need be; none if there is no room.
    fn step(&mut self, at: u32, name: &str, weight: Weight) -> Option<u32> {
        if let Some(child) = self.child(at, name) {
            return Some(child);
        }
        let node = self.node(at);
        match (node.depth, node.rest) {
            (0, _) if node.children.len() >= SITES_MAX && name != OTHER => {
                self.step(at, OTHER, weight)
            }
            (0..FIRST_SEGMENT_PARENT, _) => self.make(at, name),
            (_, Some(rest)) => Some(self.come_out(at, name, weight).unwrap_or(rest)),
            (_, None) => {
                let child = self.make(at, name)?;
                if self.node(at).children.len() > self.config.children_max {
                    self.merge(at);
                }
                self.follow(child)
            }
        }
    }

    /// Counts a name that is hidden in `{*}`; the child of its own that it gets, if it is due.
    fn come_out(&mut self, at: u32, name: &str, weight: Weight) -> Option<u32> {
        let all = self.node(at).below;
        let sure = self.node_mut(at).hidden.as_mut()?.add(name, weight);
        if !keeps_its_name(sure, all) || !self.has_place(at) {
            return None;
        }
        let child = self.make(at, name)?;
        if let Some(hidden) = &mut self.node_mut(at).hidden {
            hidden.forget(name);
        }
        Some(child)
    }

    /// Whether a merged node has room for one more name; a child that no longer deserves its own
    /// gives way.
    fn has_place(&mut self, at: u32) -> bool {
        let node = self.node(at);
        if node.children.len() <= self.config.children_max {
            return true;
        }
        let Some(rest) = node.rest else {
            return false;
        };
        let all = node.below;
        let light = |child: &u32| *child != rest && !keeps_its_name(self.node(*child).below, all);
        let Some(child) = node.children.iter().copied().find(light) else {
            return false;
        };
        self.join(child, rest);
        true
    }

    /// Merges the lighter children of a node.
    fn merge(&mut self, at: u32) {
        let all = self.node(at).below;
        let mut children = self.node(at).children.clone();
        children.sort_by(|one, other| {
            let share = |child: &u32| self.node(*child).below.share(all);
            share(other).total_cmp(&share(one))
        });
        // A client may have asked for just that name.
        let Some(rest) = self.child(at, REST).or_else(|| self.make(at, REST)) else {
            return;
        };
        if self.heavy < HEAVY_MAX && self.node(at).hidden.is_none() {
            self.heavy += 1;
            self.node_mut(at).hidden = Some(Box::default());
        }
        self.node_mut(at).rest = Some(rest);
        let kept_max = self.config.children_max.saturating_sub(1);
        let mut kept = 0;
        for child in children {
            let below = self.node(child).below;
            if child == rest {
                continue;
            }
            if kept < kept_max && keeps_its_name(below, all) {
                kept += 1;
                continue;
            }
            let name = self.node(child).name.clone();
            if let Some(hidden) = &mut self.node_mut(at).hidden {
                hidden.add(&name, below);
            }
            self.join(child, rest);
        }
    }

    /// Moves all of `from` to `into`, with what is below.
    fn join(&mut self, from: u32, into: u32) {
        let (here, below) = (self.node(from).here, self.node(from).below);
        self.node_mut(into).here.add(here);
        self.node_mut(into).below.add(below);
        for child in std::mem::take(&mut self.node_mut(from).children) {
            let name = self.node(child).name.clone();
            let known = self.child(into, &name).or(self.node(into).rest);
            // Without room it ends one level higher.
            match known.or_else(|| self.make(into, &name)) {
                Some(known) => self.join(child, known),
                None => self.end_at(child, into),
            }
        }
        self.leave(from, into);
        if self.node(into).rest.is_none()
            && self.node(into).children.len() > self.config.children_max
        {
            self.merge(into);
        }
    }

    /// Requests of `from` and below end at `into` from now on, where they were counted as being
    /// below already.
    fn end_at(&mut self, from: u32, into: u32) {
        let below = self.node(from).below;
        self.node_mut(into).here.add(below);
        for child in std::mem::take(&mut self.node_mut(from).children) {
            self.point(child, into);
        }
        self.leave(from, into);
    }

    /// Points a node and all below it to `into`.
    fn point(&mut self, from: u32, into: u32) {
        for child in std::mem::take(&mut self.node_mut(from).children) {
            self.point(child, into);
        }
        self.leave(from, into);
    }

    /// Takes a node without children out of the tree.
    fn leave(&mut self, from: u32, into: u32) {
        let parent = self.node(from).parent;
        let parent = self.node_mut(parent);
        parent.children.retain(|child| *child != from);
        if parent.rest == Some(from) {
            parent.rest = None;
        }
        let node = self.node_mut(from);
        node.state = TreeNodeState::Merged(into);
        node.here = Weight::default();
        node.below = Weight::default();
        node.rest = None;
        if node.hidden.take().is_some() {
            self.heavy -= 1;
        }
    }

    /// Makes room for a request's path, if there is none: [`PATH_NODES`], and a quarter of the tree where
    /// that is more. A merge on the way moves subtrees and may take it; the request ends a level higher
    /// then.
    fn make_room(&mut self) {
        let room = |tree: &Self| tree.free.len() + tree.config.nodes_max - tree.nodes.len();
        if room(self) >= PATH_NODES {
            return;
        }
        self.free_merged();
        // Each round takes out half of the leaves, so a quarter is free after a few.
        let wanted = (self.config.nodes_max / 4).max(PATH_NODES);
        while room(self) < wanted && self.nodes() > NODES_MIN / 2 {
            let before = self.nodes();
            self.drop_light_leaves();
            self.free_merged();
            if self.nodes() == before {
                break;
            }
        }
    }

    /// The lighter half of the outermost nodes give way to their parents, or to `{*}` beside them.
    fn drop_light_leaves(&mut self) {
        let outermost = |index: &u32| {
            let node = self.node(*index);
            node.state == TreeNodeState::Used && node.children.is_empty() && node.depth > 0
        };
        let mut leaves: Vec<_> = (0..self.nodes.len() as u32).filter(outermost).collect();
        let all = self.total();
        leaves.sort_by(|one, other| {
            let share = |index: &u32| self.node(*index).below.share(all);
            share(one).total_cmp(&share(other))
        });
        leaves.truncate(leaves.len().div_ceil(2));
        for leaf in leaves {
            let parent = self.node(leaf).parent;
            match self.node(parent).rest {
                Some(rest) if rest != leaf => self.join(leaf, rest),
                _ => self.end_at(leaf, parent),
            }
        }
    }

    /// Nodes that only pointed elsewhere are free again, and their leaves are unknown.
    fn free_merged(&mut self) {
        for index in 0..self.nodes.len() as u32 {
            let node = self.node_mut(index);
            if matches!(node.state, TreeNodeState::Merged(_)) {
                node.state = TreeNodeState::Free;
                node.generation = node.generation.wrapping_add(1);
                node.name = Box::default();
                self.free.push(index);
            }
        }
    }

    fn make(&mut self, parent: u32, name: &str) -> Option<u32> {
        let depth = self.node(parent).depth.saturating_add(1);
        let mut node = Node::new(name, parent, depth);
        let index = if let Some(index) = self.free.pop() {
            node.generation = self.node(index).generation;
            *self.node_mut(index) = node;
            index
        } else if self.nodes.len() < self.config.nodes_max {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        } else {
            return None;
        };
        self.node_mut(parent).children.push(index);
        Some(index)
    }

    fn child(&self, at: u32, name: &str) -> Option<u32> {
        let mut children = self.node(at).children.iter().copied();
        children.find(|child| &*self.node(*child).name == name)
    }

    fn follow(&self, mut index: u32) -> Option<u32> {
        loop {
            match self.node(index).state {
                TreeNodeState::Used => return Some(index),
                TreeNodeState::Merged(into) => index = into,
                TreeNodeState::Free => return None,
            }
        }
    }

    fn leaf(&self, index: u32) -> Leaf {
        let generation = self.node(index).generation;
        Leaf { index, generation }
    }

    fn node(&self, index: u32) -> &Node {
        &self.nodes[index as usize]
    }

    fn node_mut(&mut self, index: u32) -> &mut Node {
        &mut self.nodes[index as usize]
    }

    /// What must be true of every tree.
    #[cfg(test)]
    pub(super) fn check(&self) {
        assert!(self.nodes.len() <= self.config.nodes_max);
        let mut hidden = 0;
        for (index, node) in self.nodes.iter().enumerate() {
            hidden += usize::from(node.hidden.is_some());
            if node.state != TreeNodeState::Used {
                assert!(node.children.is_empty());
                continue;
            }
            let index = index as u32;
            assert!(index == ROOT || self.node(node.parent).children.contains(&index));
            let below: f64 = node
                .children
                .iter()
                .map(|it| self.node(*it).below.requests)
                .sum();
            let all = node.here.requests + below;
            let near = (all - node.below.requests).abs() <= 1e-6 * all.max(1.0);
            assert!(near, "{}: {all} {}", node.name, node.below.requests);
            let limit = match node.depth {
                0 => SITES_MAX + 1,
                1 => METHODS.len() + 1,
                _ => self.config.children_max + 2,
            };
            assert!(
                node.children.len() <= limit,
                "{}: {}",
                node.name,
                node.children.len()
            );
        }
        assert_eq!(hidden, self.heavy);
        assert!(hidden <= HEAVY_MAX);
    }
}

/// Levels above this one are never merged: they are few.
const FIRST_SEGMENT_PARENT: u8 = FIRST_SEGMENT - 1;

impl Node {
    fn new(name: &str, parent: u32, depth: u8) -> Self {
        Self {
            generation: 0,
            state: TreeNodeState::Used,
            depth,
            parent,
            name: name.into(),
            children: Vec::new(),
            rest: None,
            here: Weight::default(),
            below: Weight::default(),
            hidden: None,
        }
    }
}

fn keeps_its_name(own: Weight, all: Weight) -> bool {
    let by_requests = own.requests >= REQUESTS_MIN && own.requests >= SHARE_MIN * all.requests;
    let by_time = own.requests >= REQUESTS_MIN_BY_TIME
        && own.seconds > 0.0
        && own.seconds >= SHARE_MIN * all.seconds;
    by_requests || by_time
}

fn method(method: &str) -> &str {
    if METHODS.contains(&method) {
        method
    } else {
        OTHER
    }
}
