//! What adaptive admission has learned of a site, for the next process.

use super::Control;
use crate::admission::server::Server;
use crate::ids::NodeId;
use crate::load::LoadTable;

/// Longest time that is believed, seconds, and most requests.
const SECONDS_MAX: f64 = 1e6;
const REQUESTS_MAX: f64 = 1e9;

/// Of one site.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LearnedAdmission {
    /// Requests that wait for no other: time of them in flight, how many have ended, and for how long they were seen,
    /// in seconds.
    pub alone: [f64; 3],
    /// Time in service while the site is not loaded, seconds; none if it was never seen so.
    pub unloaded: Option<f64>,
}

impl Control {
    /// What is known of the site.
    pub fn learned(&self) -> LearnedAdmission {
        LearnedAdmission {
            alone: self.inherent_latency.learned(),
            unloaded: self.downstream.unloaded_base(),
        }
    }

    /// Goes on from what was known before, as far as that makes sense.
    pub fn recall(&mut self, learned: &LearnedAdmission) {
        let is_known = |it: &f64| (0.0..REQUESTS_MAX).contains(it);
        if learned.alone.iter().all(is_known) {
            self.inherent_latency.recall(learned.alone);
        }
        let base = learned.unloaded;
        if let Some(base) = base.filter(|it| *it > 0.0 && *it < SECONDS_MAX) {
            self.downstream.recall(base);
        }
    }

    /// Most requests in flight at a server of all front-ends together; none if it has no limit.
    pub fn limit(&self, node: NodeId) -> Option<f64> {
        let mut servers = self.servers.iter();
        let limit = servers.find(|it| it.node == node)?.limit;
        limit.is_finite().then_some(limit)
    }

    /// A server's law goes on from that limit. Of servers that are no candidates nothing is known.
    pub fn recall_limit(&mut self, node: NodeId, limit: f64, table: &LoadTable) {
        if !(limit > 0.0 && limit < REQUESTS_MAX) {
            return;
        }
        let mut known = self.servers.iter().position(|it| it.node == node);
        if known.is_none() {
            self.servers.push(Server::new(node, table));
            known = self.servers.len().checked_sub(1);
        }
        if let Some(place) = known {
            self.servers[place].recall(limit);
        }
    }
}
