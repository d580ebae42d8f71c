//! The counters of all workers at one moment, as plain numbers.

use std::sync::atomic::Ordering;

use super::{
    Counter, HistogramSnapshot, LastError, NodeStats, STATUS_CLASSES, SiteStats, WorkerStats,
};
use crate::record::reason::{Ending, Reason};

/// One site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteSnapshot {
    /// Requests that were routed here.
    pub requests: u64,
    /// Requests that were answered whole by their node, tunnels among them.
    pub completed: u64,
    /// Requests that ended otherwise, as in [`Reason::ALL`].
    pub reasons: Vec<u64>,
    /// Their answers by status class, 1xx first.
    pub status_classes: [u64; STATUS_CLASSES],
    /// From the head of the request to the end, of requests that a node answered whole; no tunnels.
    pub latency: HistogramSnapshot,
    /// From the head of the request to the end, of rejected requests.
    pub refusals: HistogramSnapshot,
    /// From the head of the request to the end of the tunnel.
    pub tunnels: HistogramSnapshot,
    /// How long requests waited for room at a node, whether they got it or not.
    pub queueing: HistogramSnapshot,
    /// Requests that wait for room now.
    pub queued: u64,
    /// Requests tried again at a node.
    pub retries: u64,
    /// Retries that the budget refused.
    pub retries_denied: u64,
    /// Requests of sessions that were let in a moment before.
    pub established: u64,
}

/// One node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSnapshot {
    /// Requests sent here, retries among them.
    pub tries: u64,
    /// Tries without an answer, or with one that broke off.
    pub failures: u64,
    /// The same, as in [`Reason::ALL`].
    pub reasons: Vec<u64>,
    /// The last of them, or the last server error.
    pub last_error: Option<LastError>,
    /// Answers by status class, 1xx first.
    pub status_classes: [u64; STATUS_CLASSES],
    /// From the try to the response head.
    pub latency: HistogramSnapshot,
    /// Connections made.
    pub connects: u64,
    /// Connections open now, idle ones among them.
    pub connections: u64,
    /// Connections idle in the pool now.
    pub connections_idle: u64,
    /// Requests that found a connection in the pool.
    pub reuses: u64,
}

/// All counters, added up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Requests that came in.
    pub requests: u64,
    /// Requests that were answered whole by their node.
    pub completed: u64,
    /// Requests that ended otherwise, as in [`Reason::ALL`].
    pub reasons: Vec<u64>,
    /// By site.
    pub sites: Vec<SiteSnapshot>,
    /// By node.
    pub nodes: Vec<NodeSnapshot>,
    /// From the head of the request to the end, of requests that a node answered whole; no tunnels.
    pub latency: HistogramSnapshot,
    /// Age of the load record at the decision.
    pub load_age: HistogramSnapshot,
    /// Decisions without a load record.
    pub load_unknown: u64,
    /// Requests tried again at a node.
    pub retries: u64,
    /// Retries that the budget refused.
    pub retries_denied: u64,
    /// Retries in place of an answer, for its status; they are among `retries`.
    pub status_retries: u64,
    /// Requests that were drawn to be copied for another site, as in [`Mirrored::ALL`](crate::Mirrored).
    pub mirrored: Vec<u64>,
    /// Requests of routes with a hedge whose first node had not answered in time, as in [`Hedged::ALL`](crate::Hedged).
    pub hedged: Vec<u64>,
    /// Requests that came back unsent from a connection that the node had closed.
    pub stale: u64,
    /// Requests with a body that were sent again, because their node had not begun.
    pub replays: u64,
    /// Bytes of request bodies that are held now, to be sent again.
    pub held_bytes: u64,
    /// Bytes of request bodies.
    pub bytes_in: u64,
    /// Bytes of response bodies.
    pub bytes_out: u64,
    /// Client connections accepted.
    pub accepted: u64,
    /// Client connections open now.
    pub connections: u64,
    /// Client connections that waited for a request of their client, or for the rest of its head, and gave way to new ones because as
    /// many were open as may be.
    pub evicted: u64,
    /// Client connections refused before a byte was read, as in [`Reason::ALL`].
    pub refused: Vec<u64>,
    /// Failed accepts: mostly too many open files.
    pub accept_errors: u64,
    /// Times at which a worker stopped accepting because it did not keep up.
    pub accept_pauses: u64,
    /// Workers that accept nothing now.
    pub accept_paused: u64,
    /// Time that workers accepted nothing, microseconds.
    pub accept_paused_micros: u64,
    /// How late the workers' clocks were served.
    pub lag: HistogramSnapshot,
    /// Client connections of HTTP/2.
    pub http2_connections: u64,
    /// Those that were ended because their client asked for more than it may.
    pub http2_excesses: u64,
    /// Those that were ended because their client did not keep the protocol.
    pub http2_violations: u64,
    /// Tunnels opened.
    pub tunnels: u64,
    /// Tunnels open now.
    pub tunnels_open: u64,
    /// Handshakes of TLS that made a connection, as in [`Handshake::ALL`](crate::Handshake).
    pub handshakes: Vec<u64>,
    /// Handshakes that made none, as in [`HandshakeFailure::ALL`](crate::HandshakeFailure).
    pub handshake_failures: Vec<u64>,
    /// Workers that failed and were replaced.
    pub worker_failures: u64,
    /// Lines written to the access log.
    pub log_lines: u64,
    /// Lines that the access log was too slow for, or that its file refused.
    pub log_drops: u64,
    /// Requests of recorded traces that were not exported, as too many were in their second.
    pub traces_over_rate: u64,
    /// The same, as the exporter did not keep up.
    pub traces_over_queue: u64,
}

impl Snapshot {
    /// Requests that ended that way.
    pub fn ended_as(&self, ending: Ending) -> u64 {
        ended_as(ending, self.completed, &self.reasons)
    }

    /// Requests that ended.
    pub fn ended(&self) -> u64 {
        self.completed + self.reasons.iter().sum::<u64>()
    }

    /// Requests that have not ended.
    pub fn in_flight(&self) -> u64 {
        self.requests.saturating_sub(self.ended())
    }

    /// Requests that ended for that reason.
    pub fn reason(&self, reason: Reason) -> u64 {
        self.reasons.get(reason.index()).copied().unwrap_or(0)
    }

    /// Client connections refused for this reason before a byte was read.
    pub fn refused_unread(&self, reason: Reason) -> u64 {
        self.refused.get(reason.index()).copied().unwrap_or(0)
    }

    pub(super) fn add(&mut self, worker: &WorkerStats) {
        // Ends before begins, throughout: a difference is never negative.
        self.completed += worker.completed.get();
        self.reasons.resize(Reason::COUNT, 0);
        self.refused.resize(Reason::COUNT, 0);
        for (total, count) in self.reasons.iter_mut().zip(&worker.reasons) {
            *total += count.get();
        }
        for (total, count) in self.refused.iter_mut().zip(&worker.refused) {
            *total += count.get();
        }
        // The table may grow meanwhile: what has room here is added up.
        let (sites, nodes) = (worker.sites.count(), worker.nodes.count());
        self.sites
            .resize_with(sites.max(self.sites.len()), Default::default);
        self.nodes
            .resize_with(nodes.max(self.nodes.len()), Default::default);
        for (total, site) in self.sites.iter_mut().zip(worker.sites.iter()) {
            total.add(site);
        }
        for (total, node) in self.nodes.iter_mut().zip(worker.nodes.iter()) {
            total.add(node);
        }
        worker.latency.add_to(&mut self.latency);
        worker.load_age.add_to(&mut self.load_age);
        self.load_unknown += worker.load_unknown.get();
        self.retries += worker.retries.get();
        self.retries_denied += worker.retries_denied.get();
        self.status_retries += worker.status_retries.get();
        self.mirrored.resize(worker.mirrored.len(), 0);
        for (total, count) in self.mirrored.iter_mut().zip(&worker.mirrored) {
            *total += count.get();
        }
        self.hedged.resize(worker.hedged.len(), 0);
        for (total, count) in self.hedged.iter_mut().zip(&worker.hedged) {
            *total += count.get();
        }
        self.stale += worker.stale.get();
        self.replays += worker.replays.get();
        self.held_bytes += worker.held_bytes.get();
        self.bytes_in += worker.bytes_in.get();
        self.bytes_out += worker.bytes_out.get();
        let closed = worker.closed.get();
        let accepted = worker.accepted.get();
        self.accepted += accepted;
        self.connections += accepted.saturating_sub(closed);
        self.evicted += worker.evicted.get();
        self.accept_errors += worker.accept_errors.get();
        let ended = worker.accept_pauses_ended.get();
        let pauses = worker.accept_pauses.get();
        self.accept_pauses += pauses;
        self.accept_paused += pauses.saturating_sub(ended);
        self.accept_paused_micros += worker.accept_paused_micros.get();
        worker.lag.add_to(&mut self.lag);
        self.http2_connections += worker.http2_connections.get();
        self.http2_excesses += worker.http2_excesses.get();
        self.http2_violations += worker.http2_violations.get();
        let closed = worker.tunnels_closed.get();
        let opened = worker.tunnels.get();
        self.tunnels += opened;
        self.tunnels_open += opened.saturating_sub(closed);
        add_each(&mut self.handshakes, &worker.handshakes);
        add_each(&mut self.handshake_failures, &worker.handshake_failures);
        self.worker_failures += worker.failures.get();
        self.log_drops += worker.log_drops.get();
        self.traces_over_rate += worker.traces_over_rate.get();
        self.traces_over_queue += worker.traces_over_queue.get();
        self.requests += worker.requests.get();
    }
}

fn add_each(totals: &mut Vec<u64>, counters: &[Counter]) {
    totals.resize(counters.len(), 0);
    for (total, count) in totals.iter_mut().zip(counters) {
        *total += count.get();
    }
}

/// Of all that ended, those that ended that way.
fn ended_as(ending: Ending, completed: u64, reasons: &[u64]) -> u64 {
    let of_reasons = || {
        let pairs = Reason::ALL.iter().zip(reasons);
        let those = pairs.filter(|(reason, _)| reason.ending() == ending);
        those.map(|(_, count)| count).sum()
    };
    match ending {
        Ending::Completed => completed,
        Ending::Failed | Ending::Rejected | Ending::Cancelled => of_reasons(),
    }
}

impl SiteSnapshot {
    /// Requests that have not ended.
    pub fn in_flight(&self) -> u64 {
        self.requests.saturating_sub(self.ended())
    }

    /// Requests that ended.
    pub fn ended(&self) -> u64 {
        self.completed + self.reasons.iter().sum::<u64>()
    }

    /// Requests that ended that way.
    pub fn ended_as(&self, ending: Ending) -> u64 {
        ended_as(ending, self.completed, &self.reasons)
    }

    /// Requests that ended for that reason.
    pub fn reason(&self, reason: Reason) -> u64 {
        self.reasons.get(reason.index()).copied().unwrap_or(0)
    }

    fn add(&mut self, site: &SiteStats) {
        self.completed += site.completed.get();
        self.reasons.resize(Reason::COUNT, 0);
        for (total, count) in self.reasons.iter_mut().zip(&site.reasons) {
            *total += count.get();
        }
        for (total, count) in self.status_classes.iter_mut().zip(&site.status_classes) {
            *total += count.get();
        }
        site.latency.add_to(&mut self.latency);
        site.refusals.add_to(&mut self.refusals);
        site.tunnels.add_to(&mut self.tunnels);
        let mut waited = HistogramSnapshot::default();
        site.queueing.add_to(&mut waited);
        self.queued += site.queued.get().saturating_sub(waited.count());
        self.queueing.merge(&waited);
        self.retries += site.retries.get();
        self.retries_denied += site.retries_denied.get();
        self.established += site.established.get();
        self.requests += site.requests.get();
    }
}

impl NodeSnapshot {
    fn add(&mut self, node: &NodeStats) {
        self.failures += node.failures.get();
        self.reasons.resize(Reason::COUNT, 0);
        for (total, count) in self.reasons.iter_mut().zip(&node.reasons.0) {
            *total += count.get();
        }
        let last = LastError::unpacked(node.last_error.load(Ordering::Relaxed));
        let both = [self.last_error, last].into_iter().flatten();
        self.last_error = both.max_by_key(|error| error.at);
        for (total, count) in self.status_classes.iter_mut().zip(&node.status_classes) {
            *total += count.get();
        }
        node.latency.add_to(&mut self.latency);
        let (unparked, parked) = (node.unparked.get(), node.parked.get());
        let (closes, connects) = (node.closes.get(), node.connects.get());
        self.connects += connects;
        self.connections += connects.saturating_sub(closes);
        self.connections_idle += parked.saturating_sub(unparked);
        self.reuses += node.reuses.get();
        self.tries += node.tries.get();
    }
}
