//! Requests of throttled classes that have an account of their own: a throttle bounds them, and no slot.
//!
//! Plain atomics as in the rest of the table. What it does not know: throttles, and why a request has one.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::ids::{NodeId, SiteId};
use crate::places::Places;

/// See the module.
#[derive(Debug)]
pub struct Accounts {
    nodes: Places<NodeAccounts>,
    sites: Places<SiteAccounts>,
}

#[derive(Debug, Default)]
struct NodeAccounts {
    in_flight: AtomicU64,
    /// Those that have ended so far.
    ended: AtomicU64,
    /// Most own requests at work, of all kinds, when one more of these comes.
    limit: AtomicU64,
}

#[derive(Debug, Default)]
struct SiteAccounts {
    in_flight: AtomicU64,
    most: AtomicU64,
}

impl Accounts {
    pub(super) fn new(nodes: usize, sites: usize) -> Self {
        Self {
            nodes: Places::new(nodes, NodeAccounts::default),
            sites: Places::new(sites, SiteAccounts::default),
        }
    }

    pub(super) fn reserve(&self, nodes: usize, sites: usize) {
        self.nodes.reserve(nodes);
        self.sites.reserve(sites);
    }

    /// Those in flight at a node.
    #[inline]
    pub fn in_flight(&self, node: NodeId) -> u64 {
        self.nodes[node.index()].in_flight.load(Ordering::Relaxed)
    }

    /// Those that have ended there so far.
    pub(crate) fn ended(&self, node: NodeId) -> u64 {
        self.nodes[node.index()].ended.load(Ordering::Relaxed)
    }

    /// A request that goes to a node has one from now on.
    pub(crate) fn begin(&self, site: SiteId, node: NodeId) {
        let site = &self.sites[site.index()];
        site.in_flight.fetch_add(1, Ordering::Relaxed);
        let node = &self.nodes[node.index()];
        node.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// It has none any more; it may have ended.
    pub(crate) fn end(&self, site: SiteId, node: NodeId, ended: bool) {
        let node = &self.nodes[node.index()];
        node.ended.fetch_add(ended.into(), Ordering::Relaxed);
        node.in_flight.fetch_sub(1, Ordering::Relaxed);
        let site = &self.sites[site.index()];
        site.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Publishes how many of a site's requests may have one.
    pub fn set_most(&self, site: SiteId, most: u64) {
        self.sites[site.index()].most.store(most, Ordering::Relaxed);
    }

    /// Whether one more of a site's requests may have one.
    #[inline]
    pub(crate) fn bears(&self, site: SiteId) -> bool {
        let site = &self.sites[site.index()];
        site.in_flight.load(Ordering::Relaxed) < site.most.load(Ordering::Relaxed)
    }

    /// Publishes how many own requests may be at work at a node when one that has an account comes, while others are
    /// held back for what is behind the servers.
    pub(crate) fn set_limit(&self, node: NodeId, limit: f64) {
        let limit = if limit.is_nan() { 0.0 } else { limit.max(0.0) };
        let word = &self.nodes[node.index()].limit;
        word.store(limit.ceil() as u64, Ordering::Relaxed);
    }

    /// How many that are.
    #[inline]
    pub(crate) fn limit(&self, node: NodeId) -> u64 {
        self.nodes[node.index()].limit.load(Ordering::Relaxed)
    }
}
