//! Sticky sessions: a request goes to its session's node, as far as the nodes' loads allow.
//!
//! ```text
//! r(s)    max(Rhat, nhat) of `policy::auto`: requests at node s, or tasks that want its CPUs, if these are more; by its
//!         record, by what came since, and by own requests in flight where there is none
//! w(s)    weight(s) where the policy goes by weights, else C(s), the node's CPUs to reckon with
//! most(s) = ceil(c (1 + sum r) w(s) / sum w)          sums over the site's candidates; c is the load bound, 1.25
//! fits(s) r(s) + 1 <= most(s), and room at s by the site's admission
//!
//! by a node (a cookie)   that node if it is a candidate and fits; else the policy's choice
//! by a key (hash)        home = the candidate with the least -ln(u(key, s)) / w(s), u uniform in (0, 1) by the key and
//!                        the node's name; home if it fits, else the next in that order that does, else the policy's
//! ```
//!
//! A node that is down, drained, ejected or on its way to another site is no candidate. Without a node of a key's none
//! but its own sessions move; a new one takes its part of each other's.
//!
//! Inputs: loads as `auto` sees them, weights, names of nodes. Positions of nodes in tables have no part, so that all
//! front-ends, and one after its restart, agree.
//!
//! Failure case: with hardly more requests than nodes the bound is one request or two, and sessions that send several
//! at once are spread, though no node is loaded. A key that names a large part of all requests (clients behind one
//! address) has its home and its next ones full, as it should. Each such request looks at all candidates.
//!
//! Source: Mirrokni-2018, with the true load of each node in place of the own requests; Rendezvous-1998, weighted as in
//! WeightedRendezvous-2005.

use crate::ids::NodeId;
use crate::policy::{Choice, View, expected};

/// Where a request's session wants it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Affinity {
    /// Nowhere: it is of no session.
    #[default]
    None,
    /// Of a session that has no node yet.
    New,
    /// To this node.
    Node {
        /// The one.
        node: NodeId,
        /// c, at least 1.
        bound: f32,
    },
    /// To the node that this key leads to.
    Key {
        /// Any number, the same for all requests of the session.
        key: u64,
        /// c, at least 1.
        bound: f32,
    },
}

/// Whether a request went to its session's node, and why not. The names are the labels in the log and the API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stickiness {
    /// It is of no session.
    #[default]
    None,
    /// Its session has its first node.
    New,
    /// It went there.
    Home,
    /// Its node takes no requests: it is down, drained, ejected, or of another site now.
    NodeOut,
    /// Its node has too many beside the others.
    Loaded,
    /// Its node has no room by the site's admission, or by its agent or group.
    NoRoom,
    /// It was tried again, elsewhere.
    Retried,
}

impl Stickiness {
    /// The same of a request that is tried again, at another node.
    pub const fn retried(self) -> Self {
        match self {
            Self::None => Self::None,
            Self::New
            | Self::Home
            | Self::NodeOut
            | Self::Loaded
            | Self::NoRoom
            | Self::Retried => Self::Retried,
        }
    }

    /// Its label; nothing for a request of no session.
    pub const fn label(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::New => Some("new"),
            Self::Home => Some("home"),
            Self::NodeOut => Some("node_out"),
            Self::Loaded => Some("loaded"),
            Self::NoRoom => Some("no_room"),
            Self::Retried => Some("retried"),
        }
    }
}

/// A stable number of some bytes: the same in every process, now and later. FNV-1a, mixed.
pub fn stable_hash(bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    mixed(hash)
}

/// Each bit of the result depends on each bit of the number (SplitMix64's last steps).
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// How far a node is from a key; the nearest is the key's home.
fn distance(key: u64, name: u64, weight: f64) -> f64 {
    let bits = mixed(key ^ name.rotate_left(32)) >> 11;
    let uniform = (bits as f64 + 0.5) / (1_u64 << 53) as f64;
    -uniform.ln() / weight
}

/// Most requests at a node of this weight, where so many are at all nodes together and one more comes.
fn most(bound: f64, requests: f64, weight: f64, weights: f64) -> f64 {
    // A whole number that comes out a hair above itself is that number.
    (bound * (1.0 + requests) * weight / weights - 1e-6).ceil()
}

/// What is counted of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counted {
    requests: f64,
    weight: f64,
}

/// What all candidates have together.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    requests: f64,
    weights: f64,
}

/// What a site counts its nodes by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counting<'a> {
    /// By node: its name's number.
    pub(super) names: &'a [u64],
    /// The policy goes by configured weights.
    pub(super) by_weight: bool,
}

impl Counting<'_> {
    fn of(&self, view: &View<'_>, node: NodeId) -> Counted {
        let score = expected(view, node);
        let weight = match self.by_weight {
            true => f64::from(view.weight(node)),
            false => 1.0 / f64::from(view.table.terms(node).per_core),
        };
        let requests = f64::from(score.in_flight.max(score.runnable));
        Counted {
            // `max` turns NaN into the least.
            requests: requests.clamp(0.0, 1e12).max(0.0),
            weight: weight.clamp(1e-9, 1e9).max(1e-9),
        }
    }

    fn totals(&self, view: &View<'_>) -> Totals {
        let mut totals = Totals::default();
        for node in view.candidates {
            let counted = self.of(view, *node);
            totals.requests += counted.requests;
            totals.weights += counted.weight;
        }
        totals
    }
}

/// The session's node if it fits, or why another one has the request and, of a key, which.
pub(super) fn choose(
    affinity: Affinity,
    view: &View<'_>,
    counting: &Counting<'_>,
    has_room: impl Fn(NodeId) -> bool,
) -> (Stickiness, Option<Choice>) {
    let (bound, node) = match affinity {
        Affinity::None => return (Stickiness::None, None),
        Affinity::New => return (Stickiness::New, None),
        Affinity::Node { node, .. } if !view.has(node) => return (Stickiness::NodeOut, None),
        Affinity::Node { node, bound } => (bound, Some(node)),
        Affinity::Key { bound, .. } => (bound, None),
    };
    let totals = counting.totals(view);
    let bound = f64::from(bound.max(1.0));
    let refused = |node: NodeId| {
        let counted = counting.of(view, node);
        let most = most(bound, totals.requests, counted.weight, totals.weights);
        match counted.requests + 1.0 <= most {
            false => Some(Stickiness::Loaded),
            true => (!has_room(node)).then_some(Stickiness::NoRoom),
        }
    };
    let chosen = |node| Choice {
        compared: view.candidates.len() as u32,
        ..Choice::blind(node)
    };
    if let Some(node) = node {
        return match refused(node) {
            None => (Stickiness::Home, Some(chosen(node))),
            Some(why) => (why, None),
        };
    }
    let Affinity::Key { key, .. } = affinity else {
        return (Stickiness::None, None);
    };
    let (mut home, mut nearest) = (None, None);
    for node in view.candidates {
        let name = counting.names.get(node.index()).copied().unwrap_or(0);
        let distance = distance(key, name, counting.of(view, *node).weight);
        let is_nearer = |it: &Option<(f64, NodeId)>| it.is_none_or(|it| distance < it.0);
        if is_nearer(&home) {
            home = Some((distance, *node));
        }
        if is_nearer(&nearest) && refused(*node).is_none() {
            nearest = Some((distance, *node));
        }
    }
    match (home, nearest) {
        (Some((_, home)), Some((_, node))) if home == node => {
            (Stickiness::Home, Some(chosen(node)))
        }
        (Some((_, home)), nearest) => {
            let why = refused(home).unwrap_or(Stickiness::Loaded);
            (why, nearest.map(|it| chosen(it.1)))
        }
        (None, _) => (Stickiness::NodeOut, None),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ids::SiteId;
    use crate::load::{LoadTable, NodeLoad};
    use crate::policy::{Capacity, Share};
    use crate::time::Timestamp;

    const NOW: Timestamp = Timestamp::from_millis(1000);
    const BOUND: f32 = 1.25;

    struct Site {
        table: LoadTable,
        candidates: Vec<NodeId>,
        shares: Vec<Share>,
        names: Vec<u64>,
    }

    impl Site {
        /// Nodes of equal weights that have so many requests, by their records.
        fn of(requests: &[f32]) -> Self {
            let table = LoadTable::new(requests.len(), 1);
            for (index, requests) in requests.iter().enumerate() {
                let load = NodeLoad {
                    observed_at: NOW,
                    interval: Duration::from_millis(1),
                    runnable: 0.0,
                    in_flight: *requests,
                    ..NodeLoad::UNKNOWN
                };
                table.store(NodeId(index as u32), &load);
            }
            let nodes = 0..requests.len() as u32;
            Self {
                table,
                candidates: nodes.clone().map(NodeId).collect(),
                shares: vec![
                    Share {
                        weight: 1.0,
                        capacity: Capacity::default(),
                    };
                    requests.len()
                ],
                names: nodes
                    .map(|it| stable_hash(format!("n{it}").as_bytes()))
                    .collect(),
            }
        }

        fn choose(&self, affinity: Affinity) -> (Stickiness, Option<u32>) {
            self.choose_with_room(affinity, |_| true)
        }

        fn choose_with_room(
            &self,
            affinity: Affinity,
            has_room: impl Fn(NodeId) -> bool,
        ) -> (Stickiness, Option<u32>) {
            let view = View {
                now: NOW,
                site: SiteId(0),
                candidates: &self.candidates,
                shares: &self.shares,
                table: &self.table,
            };
            let counting = Counting {
                names: &self.names,
                by_weight: true,
            };
            let (why, choice) = choose(affinity, &view, &counting, has_room);
            (why, choice.map(|it| it.node.0))
        }
    }

    fn node(node: u32) -> Affinity {
        Affinity::Node {
            node: NodeId(node),
            bound: BOUND,
        }
    }

    fn key(key: u64) -> Affinity {
        Affinity::Key {
            key: stable_hash(&key.to_le_bytes()),
            bound: BOUND,
        }
    }

    #[test]
    fn the_bound_is_the_part_of_a_node_of_all_requests_and_a_quarter_more() {
        for (requests, weight, weights, expected) in [
            (0.0, 1.0, 4.0, 1.0),
            (3.0, 1.0, 4.0, 2.0),
            (15.0, 1.0, 4.0, 5.0),
            (15.0, 2.0, 5.0, 8.0),
            (99.0, 1.0, 1.0, 125.0),
        ] {
            assert_eq!(most(1.25, requests, weight, weights), expected);
        }
    }

    #[test]
    fn a_session_stays_at_its_node_up_to_the_bound() {
        // 16 requests and the new one: 1.25 * 17 / 4 = 5.3.
        let mut site = Site::of(&[5.0, 4.0, 4.0, 3.0]);
        assert_eq!(site.choose(node(0)), (Stickiness::Home, Some(0)));
        site = Site::of(&[6.0, 4.0, 4.0, 2.0]);
        assert_eq!(site.choose(node(0)), (Stickiness::Loaded, None));
        assert_eq!(site.choose(node(3)), (Stickiness::Home, Some(3)));
        let at_three = |it: NodeId| it != NodeId(3);
        let no_room = site.choose_with_room(node(3), at_three);
        assert_eq!(no_room, (Stickiness::NoRoom, None));
        site.candidates.remove(3);
        assert_eq!(site.choose(node(3)), (Stickiness::NodeOut, None));
        assert_eq!(site.choose(Affinity::New), (Stickiness::New, None));
        assert_eq!(site.choose(Affinity::None), (Stickiness::None, None));
    }

    #[test]
    fn tasks_of_neighbours_load_a_node_as_requests_do() {
        let site = Site::of(&[1.0, 1.0]);
        assert_eq!(site.choose(node(0)), (Stickiness::Home, Some(0)));
        let busy = NodeLoad {
            observed_at: NOW,
            interval: Duration::from_millis(1),
            runnable: 20.0,
            in_flight: 1.0,
            ..NodeLoad::UNKNOWN
        };
        site.table.store(NodeId(0), &busy);
        assert_eq!(site.choose(node(0)), (Stickiness::Loaded, None));
    }

    #[test]
    fn keys_are_spread_by_weight_and_a_node_that_leaves_moves_its_own_alone() {
        let mut site = Site::of(&[0.0; 5]);
        site.shares[4].weight = 2.0;
        let homes = |site: &Site| -> Vec<u32> {
            let home = |it| site.choose(key(it)).1.unwrap();
            (0..6000).map(home).collect()
        };
        let before = homes(&site);
        for node in 0..5 {
            let count = before.iter().filter(|it| **it == node).count();
            let expected = if node == 4 { 2000 } else { 1000 };
            assert!(count.abs_diff(expected) < 120, "{node}: {count}");
        }
        site.candidates.remove(1);
        let after = homes(&site);
        for (before, after) in before.iter().zip(&after) {
            assert!(*before == 1 || before == after);
        }
    }

    #[test]
    fn a_key_whose_home_is_full_has_the_same_next_one_each_time() {
        let site = Site::of(&[0.0; 4]);
        let (_, home) = site.choose(key(7));
        let home = home.unwrap();
        let mut loads = [4.0; 4];
        loads[home as usize] = 9.0;
        let (why, next) = Site::of(&loads).choose(key(7));
        assert_eq!(why, Stickiness::Loaded);
        assert!(next.is_some_and(|it| it != home));
        assert_eq!(Site::of(&loads).choose(key(7)).1, next);
        let full = site.choose_with_room(key(7), |_| false);
        assert_eq!(full, (Stickiness::NoRoom, None));
        let elsewhere = site.choose_with_room(key(7), |it| it != NodeId(home));
        assert_eq!(elsewhere, (Stickiness::NoRoom, next));
    }

    #[test]
    fn whatever_the_loads_are_a_choice_comes_out() {
        for requests in [f32::NAN, f32::INFINITY, -1.0, 1e30] {
            let site = Site::of(&[requests, 1.0, 0.0]);
            for affinity in [node(0), node(1), key(1), key(2)] {
                let (why, choice) = site.choose(affinity);
                assert!(why != Stickiness::Home || choice.is_some(), "{why:?}");
            }
        }
    }

    #[test]
    fn hashes_stay_what_they_are() {
        // Other numbers would move the sessions of all clients with an upgrade.
        assert_eq!(stable_hash(b"n1"), 0xf8e4_6110_455c_6e53);
        assert_eq!(stable_hash(b""), 0xf52a_15e9_a9b5_e89b);
    }
}
