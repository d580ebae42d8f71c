//! One worker's data: all that its requests need. Workers share nothing that is written on a request's way, so they
//! never wait for each other.

pub(crate) mod leavers;
mod load_reports;
pub(crate) mod mirrors;
mod requests;
pub(crate) mod seats;
mod shared;
pub(crate) mod sites;
mod sticky;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use arc_swap::ArcSwap;
use hyper::client::conn::http1::Builder;
use tidegate_core::picker::Picker;
use tokio::sync::Notify;

use crate::base::{Cluster, WorkerBase};
use crate::config::requests::RequestConfig;
use crate::config::{FIELDS, Limits, ProxyConfig};
use crate::connection::ClientConnection;
use crate::gate::delay::Delays;
use crate::gate::queue::{Queue, SharedQueues};
use crate::gate::source::AllSources;
use crate::gate::throttle::Throttles;
use crate::record::WorkerRecord;
use crate::record::id::RequestIds;
use crate::record::log::Logger;
use crate::record::observed::Observer;
use crate::record::traced::TraceSink;
use crate::stream::Stream;
use crate::upstream::{Pool, Upstream, UpstreamKey, UpstreamParts};
use crate::wire::trace::TraceIds;
use leavers::Leavers;
pub use load_reports::{LoadReports, ReportCounts, ReportingNode};
use mirrors::Mirrors;
pub use requests::RequestSetter;
use seats::{AllSeats, Seats};
pub use shared::Shared;
pub use sites::SiteSetter;
pub(crate) use sites::{NodeOpening, NodeSpeech};
use sites::{SiteSettings, Sites};

/// Bytes that are read from a node beyond those of a buffer: a body that fills one comes in one read
/// with its head, and goes out in one write.
const HEAD_ROOM: usize = 2 << 10;

/// hyper's smallest buffer.
const BUFFER_BYTES_MIN: usize = 8 << 10;

/// See the module.
pub(crate) struct Worker {
    pub(crate) base: Rc<WorkerBase>,
    pub(crate) throttles: Rc<Throttles>,
    pub(crate) delays: Rc<Delays>,
    pub(crate) queue: Rc<Queue>,
    pub(crate) pool: RefCell<Pool>,
    pub(crate) sites: Sites,
    pub(crate) load_reports: Arc<LoadReports>,
    pub(crate) tunnels: Arc<Seats>,
    pub(crate) sources: Arc<AllSources>,
    pub(crate) leavers: Leavers,
    pub(crate) traces: TraceIds,
    pub(crate) mirrors: Mirrors,
    /// Makes connections to nodes.
    builder: RefCell<Builder>,
    /// What requests are to be served by.
    requests: Arc<ArcSwap<RequestConfig>>,
    /// The version of the topology that is followed.
    followed: Cell<u64>,
    /// Notified when there is something new to follow.
    pub(crate) news: Arc<Notify>,
}

/// What the workers of a data plane have in common, for each of them.
pub(crate) struct Parts {
    pub(crate) config: Arc<ProxyConfig>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) sites: Arc<ArcSwap<SiteSettings>>,
    pub(crate) requests: Arc<ArcSwap<RequestConfig>>,
    pub(crate) seats: Arc<AllSeats>,
    pub(crate) queues: Arc<SharedQueues>,
    /// The worker's number.
    pub(crate) index: usize,
    pub(crate) observer: Option<Rc<Observer>>,
    pub(crate) logger: Logger,
    pub(crate) traces: TraceSink,
}

impl Worker {
    pub(crate) fn new(parts: Parts) -> Rc<Self> {
        let Parts {
            config,
            shared,
            sites,
            requests,
            seats,
            queues,
            index,
            observer,
            logger,
            traces,
        } = parts;
        let seed = config.seed.wrapping_add(index as u64);
        let picker = Picker::new(Arc::clone(&shared.table), shared.topology.load_full(), seed)
            .among(&queues.heads, index);
        let topology = Arc::clone(&shared.topology);
        let stats = shared.stats.worker(index);
        let cluster = Cluster::new(topology, picker, Arc::clone(stats));
        let record = WorkerRecord::new(
            Arc::clone(stats),
            (logger, traces, RequestIds::new(index)),
            requests.load().recent,
            observer,
        );
        let base = Rc::new(WorkerBase::new(
            requests.load_full(),
            config.clock,
            cluster,
            record,
        ));
        Rc::new(Self {
            throttles: Throttles::new(Rc::clone(&base), Arc::clone(&shared.throttles)),
            delays: Delays::new(
                Rc::clone(&base),
                Arc::clone(&shared.delay_experiments),
                seed,
            ),
            queue: Queue::new(
                Rc::clone(&base),
                queues,
                index,
                Arc::clone(&shared.room_freed),
                Arc::clone(&shared.wake_up),
            ),
            pool: RefCell::new(Pool::default()),
            // Other numbers than the picker's.
            sites: Sites::new(Rc::clone(&base), sites, config.workers, !seed),
            load_reports: Arc::clone(&shared.load_reports),
            tunnels: Arc::clone(&seats.tunnels),
            sources: Arc::clone(&seats.sources),
            leavers: Leavers::default(),
            traces: TraceIds::default(),
            mirrors: Mirrors::new(seed.rotate_left(32)),
            builder: RefCell::new(builder(&base.settings.limits())),
            requests,
            followed: Cell::new(0),
            news: Arc::clone(&shared.news),
            base,
        })
    }

    /// Speaks HTTP on a new connection to a node.
    pub(crate) async fn upstream(
        &self,
        stream: Stream,
        key: UpstreamKey,
    ) -> Result<Upstream, hyper::Error> {
        let builder = self.builder.borrow().clone();
        let parts = UpstreamParts {
            http1: &builder,
            limits: self.base.settings.limits(),
            scratch: Rc::clone(&self.base.scratch),
            stats: Arc::clone(self.base.stats()),
        };
        let upstream = Upstream::new(stream, key, parts).await?;
        upstream.share(&mut self.pool.borrow_mut());
        Ok(upstream)
    }

    /// Takes over the newest topology and settings, and lets go of connections to nodes that have left or moved. Says so, when there is
    /// nothing left of them.
    pub(crate) fn follow(&self) {
        if self.base.settings.follow_published(&self.requests) {
            self.builder.replace(builder(&self.base.settings.limits()));
            self.base.record.keep_recent(self.base.settings.recent());
        }
        self.base.cluster.refresh();
        self.sites.follow();
        let picker = self.base.cluster.picker.borrow();
        let topology = picker.topology();
        if self.followed.replace(topology.version) != topology.version {
            self.pool.borrow_mut().keep(topology);
            self.leavers
                .follow(topology, self.base.due(self.base.settings.ticks().leaving));
            self.base.stats().follow(topology.version);
        }
    }

    /// Drops idle connections to nodes that are this client connection's own, which is over.
    pub(crate) fn end_introduction(&self, connection: &ClientConnection) {
        if let Some(introduction) = connection.known_introduction() {
            let mut pool = self.pool.borrow_mut();
            for node in introduction.take_nodes() {
                pool.forget(introduction.id, node);
            }
        }
    }

    /// Keeps an upstream connection for the next request, if its node may have one.
    pub(crate) fn park(&self, upstream: Upstream) {
        let most = self.base.settings.limits().pool_per_node;
        let tick = self.base.tick();
        let picker = self.base.cluster.picker.borrow();
        let mut pool = self.pool.borrow_mut();
        pool.put(upstream, picker.topology(), tick, most);
    }
}

/// The longest head, and the largest buffer, that hyper is to take.
pub(crate) fn head_and_buffer_bytes(limits: &Limits) -> (usize, usize) {
    let head_bytes = limits.head_bytes.max(BUFFER_BYTES_MIN);
    (head_bytes, limits.buffer_bytes.max(head_bytes))
}

fn builder(limits: &Limits) -> Builder {
    let (head_bytes, buffer_bytes) = head_and_buffer_bytes(limits);
    let mut builder = Builder::new();
    builder
        .max_header_size(head_bytes)
        .max_buf_size(buffer_bytes + HEAD_ROOM)
        // A request is mostly its head: one buffer is less work than a list of one.
        .writev(false);
    if limits.fields != FIELDS {
        builder.max_headers(limits.fields);
    }
    builder
}
