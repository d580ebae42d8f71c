//! Which words a front-end follows at one look, where they say that nodes serve elsewhere than here.
//!
//! ```text
//! gives(site)    nodes that get its requests here and whose word takes them away: to another site, or on their way
//! keeps(site)    the others that get its requests here + those whose word brings them to it
//! followed       all at once, arrivals and departures together;
//!                but no departure of a site with keeps(site) = 0, for 100 ms from the first look that found it so
//! ```
//!
//! No move takes a site's last node, unless an operator forces it, so a site that words leave empty is one whose other
//! nodes' words have not been read yet: a front-end that was cut off reads one node after the other. For so short a time
//! the old nodes go on to get its requests, as they have while it was cut off.
//!
//! Inputs: each node's site here and its word, nodes that take no part, `now`. Failure case: an operator's `--force` empties
//! a site 100 ms later than its word says. Source: not in Reconfiguration-2004, whose nodes know one another's sites at once.

use std::collections::BTreeMap;
use std::time::Duration;

use super::words::{NodeNumber, SiteNumber};
use crate::time::Timestamp;

/// How long departures wait that would leave a site without a node: read again a hundred times by then.
pub const EMPTY_AFTER: Duration = Duration::from_millis(100);

/// What is known of a node that words speak of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowedNode {
    /// The node.
    pub node: NodeNumber,
    /// The site that it serves here.
    pub here: SiteNumber,
    /// Whether it gets requests here.
    pub gets_requests: bool,
    /// The site that it serves by its word; none on its way.
    pub serves: Option<SiteNumber>,
}

impl FollowedNode {
    /// Whether it goes on to get requests of the site where it is.
    fn stays(&self) -> bool {
        self.gets_requests && self.serves == Some(self.here)
    }

    fn comes_to(&self, site: SiteNumber) -> bool {
        self.serves == Some(site) && self.here != site
    }

    fn departs(&self) -> bool {
        self.gets_requests && self.serves != Some(self.here)
    }
}

/// Departures that wait.
#[derive(Clone, Debug, Default)]
pub struct Follower {
    since: BTreeMap<NodeNumber, Timestamp>,
}

impl Follower {
    /// The nodes whose departure waits at this look; all other words are followed at once. `others` says whether a site has
    /// nodes here that words do not speak of.
    pub fn look(
        &mut self,
        nodes: &[FollowedNode],
        others: impl Fn(SiteNumber) -> bool,
        now: Timestamp,
    ) -> Vec<NodeNumber> {
        let is_kept = |site| {
            let keeps = |it: &FollowedNode| it.comes_to(site) || (it.here == site && it.stays());
            others(site) || nodes.iter().any(keeps)
        };
        let departing = nodes.iter().filter(|it| it.departs());
        let emptying: Vec<_> = departing.filter(|it| !is_kept(it.here)).collect();
        self.since
            .retain(|node, _| emptying.iter().any(|it| it.node == *node));
        let waits = |it: &&FollowedNode| {
            let since = *self.since.entry(it.node).or_insert(now);
            now.since(since) < EMPTY_AFTER
        };
        let waiting = emptying.into_iter().filter(waits);
        waiting.map(|it| it.node).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOP: SiteNumber = SiteNumber(0);
    const BLOG: SiteNumber = SiteNumber(1);
    const FIRST: Timestamp = Timestamp::from_nanos(1_000_000_000);

    fn node(number: u16, here: SiteNumber, serves: Option<SiteNumber>) -> FollowedNode {
        FollowedNode {
            node: NodeNumber(number),
            here,
            gets_requests: true,
            serves,
        }
    }

    fn look(follower: &mut Follower, nodes: &[FollowedNode], after: Duration) -> Vec<u16> {
        let waiting = follower.look(nodes, |_| false, FIRST + after);
        waiting.into_iter().map(|it| it.0).collect()
    }

    #[test]
    fn the_last_node_leaves_once_another_one_comes() {
        let mut follower = Follower::default();
        let leaves = node(0, BLOG, Some(SHOP));
        let stays = node(1, SHOP, Some(SHOP));
        let at = Duration::from_millis;
        assert_eq!(look(&mut follower, &[leaves, stays], at(0)), [0]);
        let comes = node(1, SHOP, Some(BLOG));
        assert!(look(&mut follower, &[leaves, comes], at(1)).is_empty());
        // What waited is forgotten: the time begins anew.
        assert_eq!(look(&mut follower, &[leaves, stays], at(200)), [0]);
        assert_eq!(look(&mut follower, &[leaves, stays], at(299)), [0]);
        assert!(look(&mut follower, &[leaves, stays], at(300)).is_empty());
        assert!(look(&mut follower, &[leaves, stays], at(301)).is_empty());
    }

    #[test]
    fn all_departures_of_a_site_that_keeps_none_wait_and_no_others() {
        let mut follower = Follower::default();
        let nodes = [
            node(0, BLOG, Some(SHOP)),
            node(1, BLOG, None),
            node(2, SHOP, None),
            node(3, SHOP, Some(SHOP)),
        ];
        assert_eq!(look(&mut follower, &nodes, Duration::ZERO), [0, 1]);
        let others = |site| site == BLOG;
        assert!(follower.look(&nodes, others, FIRST).is_empty());
    }

    #[test]
    fn one_that_gets_no_requests_keeps_no_site_and_empties_none() {
        let mut follower = Follower::default();
        let withheld = FollowedNode {
            gets_requests: false,
            ..node(1, BLOG, Some(BLOG))
        };
        let leaves = node(0, BLOG, None);
        assert_eq!(
            look(&mut follower, &[leaves, withheld], Duration::ZERO),
            [0]
        );
        let gone = FollowedNode {
            gets_requests: false,
            ..leaves
        };
        assert!(look(&mut follower, &[gone, withheld], Duration::ZERO).is_empty());
    }
}
