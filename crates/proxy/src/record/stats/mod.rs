//! What the workers count. Each worker writes its own counters, plainly and without a lock;
//! reading adds them up.
//!
//! The books balance at every read: requests in = completed + failed + rejected + cancelled +
//! in flight. A request is counted in before any of its ends, and a reader reads ends before
//! ins, so the difference is never negative and is what is in flight.
//!
//! | counted | when |
//! |---|---|
//! | request in | its head was read, or could not be read or awaited |
//! | its end | once: with the last byte of the answer handed over, or at its failure |
//! | latency | from the head of the request to the end, of requests that their node answered whole |
//! | refusal | from the head of the request to the end, of rejected requests |
//! | tunnel | from the head of the request to the tunnel's end, however it ended |
//! | queueing | from the first wait for room at a node to its end, whether a node was found or not |
//! | latency of a node | from the try to the response head |
//! | load age | at the decision, if it rests on a record |
//! | lag | at each tick of the worker's clock: how late it was served |

mod counter;
mod error;
mod histogram;
mod snapshot;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_core::places::Places;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{NodeId, SiteId, Topology};

pub(crate) use counter::Counter;
pub use error::{LastError, NodeError};
pub use histogram::HistogramSnapshot;
pub(crate) use histogram::{Histogram, Sample};
pub use snapshot::{NodeSnapshot, SiteSnapshot, Snapshot};

use crate::record::hedged::Hedged;
use crate::record::log::{Recent, Ring};
use crate::record::mirrored::Mirrored;
use crate::record::reason::{Ending, Reason};
use crate::record::traced::TracedSecond;
use crate::tls::{Handshake, HandshakeFailure};

/// Status classes 1xx to 5xx.
pub const STATUS_CLASSES: usize = 5;
/// Status of a request that became a tunnel.
const SWITCHING_PROTOCOLS: u16 = 101;

fn status_class(status: u16) -> usize {
    usize::from(status / 100).clamp(1, STATUS_CLASSES) - 1
}

/// One site, as one worker saw it.
#[derive(Debug)]
pub(crate) struct SiteStats {
    pub(crate) requests: Counter,
    pub(crate) completed: Counter,
    pub(crate) reasons: [Counter; Reason::COUNT],
    pub(crate) status_classes: [Counter; STATUS_CLASSES],
    pub(crate) latency: Histogram,
    pub(crate) refusals: Histogram,
    pub(crate) tunnels: Histogram,
    pub(crate) queued: Counter,
    pub(crate) queueing: Histogram,
    pub(crate) retries: Counter,
    pub(crate) retries_denied: Counter,
    /// Requests of sessions that were let in a moment before.
    pub(crate) established: Counter,
}

impl Default for SiteStats {
    fn default() -> Self {
        Self {
            requests: Counter::default(),
            completed: Counter::default(),
            reasons: std::array::from_fn(|_| Counter::default()),
            status_classes: Default::default(),
            latency: Histogram::default(),
            refusals: Histogram::default(),
            tunnels: Histogram::default(),
            queued: Counter::default(),
            queueing: Histogram::default(),
            retries: Counter::default(),
            retries_denied: Counter::default(),
            established: Counter::default(),
        }
    }
}

impl SiteStats {
    fn on_end(&self, status: u16, reason: Option<Reason>, duration: Option<Duration>) {
        self.status_classes[status_class(status)].add(1);
        match duration {
            Some(Duration::Latency(sample)) => self.latency.add(sample),
            Some(Duration::Refusal(sample)) => self.refusals.add(sample),
            Some(Duration::Tunnel(sample)) => self.tunnels.add(sample),
            None => {}
        }
        match reason {
            None => self.completed.add(1),
            Some(reason) => self.reasons[reason.index()].add(1),
        }
    }
}

/// The duration of an ended request, by what it says something about.
#[derive(Clone, Copy)]
enum Duration {
    Latency(Sample),
    Refusal(Sample),
    Tunnel(Sample),
}

/// None for requests that failed or whose client left: how long that took is no speed of the site.
fn duration_of(status: u16, reason: Option<Reason>, micros: u64) -> Option<Duration> {
    let ending = reason.map_or(Ending::Completed, Reason::ending);
    let sample = Sample::of(micros);
    match (status == SWITCHING_PROTOCOLS, ending) {
        (true, _) => Some(Duration::Tunnel(sample)),
        (false, Ending::Completed) => Some(Duration::Latency(sample)),
        (false, Ending::Rejected) => Some(Duration::Refusal(sample)),
        (false, Ending::Failed | Ending::Cancelled) => None,
    }
}

/// How often a reason came about, as in [`Reason::ALL`].
#[derive(Debug)]
pub(crate) struct Reasons(pub(crate) [Counter; Reason::COUNT]);

impl Default for Reasons {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::default()))
    }
}

/// One node, as one worker saw it.
#[derive(Debug, Default)]
pub(crate) struct NodeStats {
    /// Which of the nodes that have its place.
    generation: AtomicU32,
    pub(crate) tries: Counter,
    pub(crate) failures: Counter,
    pub(crate) reasons: Reasons,
    /// See [`LastError`].
    pub(crate) last_error: AtomicU64,
    pub(crate) status_classes: [Counter; STATUS_CLASSES],
    pub(crate) latency: Histogram,
    pub(crate) connects: Counter,
    pub(crate) closes: Counter,
    pub(crate) parked: Counter,
    pub(crate) unparked: Counter,
    pub(crate) reuses: Counter,
}

impl NodeStats {
    /// Another node has the place from now on.
    fn begin(&self, generation: u32) {
        let Self {
            generation: word,
            tries,
            failures,
            reasons,
            last_error,
            status_classes,
            latency,
            connects,
            closes,
            parked,
            unparked,
            reuses,
        } = self;
        let counters = [tries, failures, connects, closes, parked, unparked, reuses];
        let counters = counters.into_iter().chain(&reasons.0).chain(status_classes);
        counters.for_each(Counter::clear);
        last_error.store(0, Ordering::Relaxed);
        latency.clear();
        word.store(generation, Ordering::Relaxed);
    }

    pub(crate) fn on_failure(&self, reason: Reason, at: Timestamp) {
        self.failures.add(1);
        self.reasons.0[reason.index()].add(1);
        self.note_error(NodeError::Reason(reason), at);
    }

    fn note_error(&self, what: NodeError, at: Timestamp) {
        let packed = LastError { what, at }.packed();
        self.last_error.store(packed, Ordering::Relaxed);
    }

    pub(crate) fn on_head(&self, status: u16, micros: u64, at: Timestamp) {
        if status >= 500 {
            self.note_error(NodeError::Status(status), at);
        }
        self.status_classes[status_class(status)].add(1);
        self.latency.record(micros);
    }
}

/// What one worker counts.
#[derive(Debug)]
pub(crate) struct WorkerStats {
    pub(crate) requests: Counter,
    pub(crate) completed: Counter,
    pub(crate) reasons: [Counter; Reason::COUNT],
    pub(crate) sites: Places<SiteStats>,
    pub(crate) nodes: Places<NodeStats>,
    pub(crate) latency: Histogram,
    pub(crate) load_age: Histogram,
    /// Decisions without a load record.
    pub(crate) load_unknown: Counter,
    pub(crate) retries: Counter,
    /// Retries that the budget refused.
    pub(crate) retries_denied: Counter,
    /// Retries in place of an answer, for its status.
    pub(crate) status_retries: Counter,
    /// Requests that were drawn to be copied for another site, as in [`Mirrored::ALL`].
    pub(crate) mirrored: [Counter; Mirrored::ALL.len()],
    /// Requests whose first node had not answered in time, as in [`Hedged::ALL`].
    pub(crate) hedged: [Counter; Hedged::ALL.len()],
    /// Requests that came back unsent from a stale connection.
    pub(crate) stale: Counter,
    /// Requests with a body that were sent again, because their node had not begun.
    pub(crate) replays: Counter,
    /// Bytes of request bodies that are held now, to be sent again.
    pub(crate) held_bytes: Counter,
    pub(crate) bytes_in: Counter,
    pub(crate) bytes_out: Counter,
    pub(crate) accepted: Counter,
    pub(crate) closed: Counter,
    /// Connections that gave way to new ones.
    pub(crate) evicted: Counter,
    pub(crate) refused: [Counter; Reason::COUNT],
    pub(crate) accept_errors: Counter,
    /// Times at which the worker stopped accepting, and began again.
    pub(crate) accept_pauses: Counter,
    pub(crate) accept_pauses_ended: Counter,
    pub(crate) accept_paused_micros: Counter,
    /// How late the clock was served.
    pub(crate) lag: Histogram,
    /// Connections of HTTP/2.
    pub(crate) http2_connections: Counter,
    /// Those that were ended because their client asked for more than it may.
    pub(crate) http2_excesses: Counter,
    /// Those that were ended because their client did not keep the protocol.
    pub(crate) http2_violations: Counter,
    pub(crate) tunnels: Counter,
    pub(crate) tunnels_closed: Counter,
    /// Handshakes of TLS by how they went, as in [`Handshake::ALL`].
    pub(crate) handshakes: [Counter; Handshake::ALL.len()],
    /// Those that made no connection, as in [`HandshakeFailure::ALL`].
    pub(crate) handshake_failures: [Counter; HandshakeFailure::COUNT],
    pub(crate) log_drops: Counter,
    /// Requests of recorded traces that are not exported, as too many were in their second.
    pub(crate) traces_over_rate: Counter,
    /// The same, as the exporter did not keep up.
    pub(crate) traces_over_queue: Counter,
    pub(crate) recent: Mutex<Ring>,
    /// Those that were refused or failed.
    pub(crate) wrong: Mutex<Ring>,
    /// Times at which it failed and was replaced.
    pub(crate) failures: Counter,
    /// The topology that it decides by; it keeps no connection to nodes that had left by then.
    followed: AtomicU64,
}

impl WorkerStats {
    fn new(sites: usize, nodes: usize) -> Self {
        Self {
            requests: Counter::default(),
            completed: Counter::default(),
            reasons: std::array::from_fn(|_| Counter::default()),
            sites: Places::new(sites, SiteStats::default),
            nodes: Places::new(nodes, NodeStats::default),
            latency: Histogram::default(),
            load_age: Histogram::default(),
            load_unknown: Counter::default(),
            retries: Counter::default(),
            retries_denied: Counter::default(),
            status_retries: Counter::default(),
            mirrored: Default::default(),
            hedged: Default::default(),
            stale: Counter::default(),
            replays: Counter::default(),
            held_bytes: Counter::default(),
            bytes_in: Counter::default(),
            bytes_out: Counter::default(),
            accepted: Counter::default(),
            closed: Counter::default(),
            evicted: Counter::default(),
            refused: std::array::from_fn(|_| Counter::default()),
            accept_errors: Counter::default(),
            accept_pauses: Counter::default(),
            accept_pauses_ended: Counter::default(),
            accept_paused_micros: Counter::default(),
            lag: Histogram::default(),
            http2_connections: Counter::default(),
            http2_excesses: Counter::default(),
            http2_violations: Counter::default(),
            tunnels: Counter::default(),
            tunnels_closed: Counter::default(),
            handshakes: Default::default(),
            handshake_failures: Default::default(),
            log_drops: Counter::default(),
            traces_over_rate: Counter::default(),
            traces_over_queue: Counter::default(),
            recent: Mutex::default(),
            wrong: Mutex::default(),
            failures: Counter::default(),
            followed: AtomicU64::new(0),
        }
    }

    /// The worker decides by this topology from now on: counters of places that another node has begin anew.
    pub(crate) fn on_topology(&self, topology: &Topology) {
        for (node, stats) in topology.nodes.iter().zip(self.nodes.iter()) {
            if stats.generation.load(Ordering::Relaxed) != node.generation {
                stats.begin(node.generation);
            }
        }
    }

    /// Nothing of the worker means a node any more that is gone by the topology of this version.
    pub(crate) fn follow(&self, version: u64) {
        self.followed.store(version, Ordering::Release);
    }

    /// The worker has failed; its successor begins with what it has left.
    pub(crate) fn on_failure(&self) {
        self.failures.add(1);
        let pauses = self.accept_pauses.get();
        let ended = self.accept_pauses_ended.get();
        self.accept_pauses_ended.add(pauses.saturating_sub(ended));
    }

    /// The site's counters. A site that there is no room for yet has none.
    pub(crate) fn site(&self, site: SiteId) -> Option<&SiteStats> {
        self.sites.get(site.index())
    }

    /// The node's counters. A node that there is no room for yet has none.
    pub(crate) fn node(&self, node: NodeId) -> Option<&NodeStats> {
        self.nodes.get(node.index())
    }

    /// The counters of one of the nodes that have had a place, while it has.
    pub(crate) fn node_of(&self, node: NodeId, generation: u32) -> Option<&NodeStats> {
        let stats = self.node(node)?;
        (stats.generation.load(Ordering::Relaxed) == generation).then_some(stats)
    }

    /// A request has ended: completed without a reason, else as the reason says.
    pub(crate) fn on_end(
        &self,
        site: Option<SiteId>,
        status: u16,
        reason: Option<Reason>,
        micros: u64,
    ) {
        let duration = duration_of(status, reason, micros);
        if let Some(site) = site.and_then(|site| self.site(site)) {
            site.on_end(status, reason, duration);
        }
        if let Some(Duration::Latency(sample)) = duration {
            self.latency.add(sample);
        }
        match reason {
            None => self.completed.add(1),
            Some(reason) => self.reasons[reason.index()].add(1),
        }
    }
}

/// The counters of all workers.
#[derive(Debug)]
pub struct Stats {
    workers: Box<[Arc<WorkerStats>]>,
    /// Lines that the access log's file has taken.
    pub(crate) log_written: AtomicU64,
    /// Lines that it has refused.
    pub(crate) log_lost: AtomicU64,
    /// Requests of the present second that are traced.
    pub(crate) traced_second: TracedSecond,
}

impl Stats {
    /// Counters for `workers` workers, sites `0..sites` and nodes `0..nodes`. One set serves one
    /// running proxy at a time.
    pub fn new(workers: usize, sites: usize, nodes: usize) -> Self {
        let workers = (0..workers.max(1)).map(|_| Arc::new(WorkerStats::new(sites, nodes)));
        Self {
            workers: workers.collect(),
            log_written: AtomicU64::new(0),
            log_lost: AtomicU64::new(0),
            traced_second: TracedSecond::default(),
        }
    }

    /// Makes room for sites `0..sites` and nodes `0..nodes`, before any worker hears of them.
    pub fn reserve(&self, sites: usize, nodes: usize) {
        for worker in &self.workers {
            worker.sites.reserve(sites);
            worker.nodes.reserve(nodes);
        }
    }

    /// The version of the oldest topology that a worker may still decide by; 0 if one has not begun.
    pub fn followed(&self) -> u64 {
        let followed = self
            .workers
            .iter()
            .map(|it| it.followed.load(Ordering::Acquire));
        followed.min().unwrap_or_default()
    }

    /// How often the clock of each worker was served so far: a worker that hangs stands still here.
    pub fn ticks(&self) -> Vec<u64> {
        self.workers.iter().map(|it| it.lag.count()).collect()
    }

    /// How many workers these are for.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    pub(crate) fn worker(&self, worker: usize) -> &Arc<WorkerStats> {
        &self.workers[worker]
    }

    /// All counters, added up.
    pub fn snapshot(&self) -> Snapshot {
        let mut total = Snapshot::default();
        for worker in &self.workers {
            total.add(worker);
        }
        total.log_lines = self.log_written.load(Ordering::Relaxed);
        total.log_drops += self.log_lost.load(Ordering::Relaxed);
        total
    }

    /// The last requests of all workers, oldest first, and as many of those that were refused or failed.
    pub fn recent(&self) -> Vec<Recent> {
        let mut all = Vec::new();
        for worker in &self.workers {
            for ring in [&worker.recent, &worker.wrong] {
                let ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
                all.extend(ring.iter().copied());
            }
        }
        let mut seen = HashSet::new();
        all.retain(|recent| seen.insert(recent.id));
        all.sort_by_key(|recent| recent.at);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_books_balance_while_a_worker_writes() {
        let stats = Stats::new(1, 1, 1);
        let worker = stats.worker(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..100_000usize {
                    worker.requests.add(1);
                    let reason = Reason::ALL.get(round % 40).copied();
                    worker.on_end(Some(SiteId(0)), 200, reason, 0);
                }
            });
            for _ in 0..1000 {
                let seen = stats.snapshot();
                assert!(seen.ended() <= seen.requests);
                assert_eq!(seen.ended() + seen.in_flight(), seen.requests);
            }
        });
        let end = stats.snapshot();
        assert_eq!((end.requests, end.in_flight()), (100_000, 0));
        assert_eq!(end.sites[0].ended(), 100_000);
    }

    #[test]
    fn only_answers_of_nodes_count_as_latency() {
        let stats = Stats::new(1, 1, 1);
        let worker = stats.worker(0);
        let ends = [
            (200, None, 1),
            (503, None, 2),
            (101, None, 3_000_000),
            (101, Some(Reason::TunnelIdle), 3_000_000),
            (503, Some(Reason::QueueTimeout), 51_000),
            (504, Some(Reason::ResponseTimeout), 30_000_000),
            (499, Some(Reason::ClientGone), 9),
        ];
        for (status, reason, micros) in ends {
            worker.requests.add(1);
            worker.on_end(Some(SiteId(0)), status, reason, micros);
        }
        let seen = stats.snapshot();
        let site = &seen.sites[0];
        let counts = [&site.latency, &site.refusals, &site.tunnels].map(HistogramSnapshot::count);
        assert_eq!(counts, [2, 1, 2]);
        assert_eq!(seen.latency.count(), 2);
        assert!(site.latency.quantile_seconds(1.0).unwrap() < 1e-5);
        assert_eq!(site.reason(Reason::QueueTimeout), 1);
        assert_eq!(site.ended_as(Ending::Cancelled), 2);
        assert_eq!(seen.in_flight(), 0);
    }

    #[test]
    fn odd_statuses_have_a_class() {
        for (status, expected) in [(0, 0), (100, 0), (204, 1), (499, 3), (599, 4), (999, 4)] {
            assert_eq!(status_class(status), expected, "{status}");
        }
    }
}
