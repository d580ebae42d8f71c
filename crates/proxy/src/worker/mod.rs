//! One worker's data: all that its requests need. Workers share nothing that is written on a request's way, so they
//! never wait for each other.

mod budgets;
pub(crate) mod seats;
mod shared;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use http::HeaderMap;
use hyper::client::conn::http1::Builder;
use tidegate_core::admission::Priority;
use tidegate_core::picker::Picker;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::SiteId;
use tokio::net::TcpStream;

use crate::base::{Cluster, WorkerBase};
use crate::config::{FIELDS, Limits, ProxyConfig};
use crate::gate::delay::Delays;
use crate::gate::queue::Queue;
use crate::gate::throttle::Throttles;
use crate::head::classify::{PriorityRules, SessionHash, SessionTables};
use crate::record::WorkerRecord;
use crate::record::log::Logger;
use crate::record::observed::Observer;
use crate::refusal::Answers;
use crate::upstream::{Pool, Upstream, UpstreamKey, UpstreamParts};
use budgets::Budgets;
use seats::{AllSeats, Seats};
pub use shared::Shared;

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
    pub(crate) budgets: Budgets,
    pub(crate) session_tables: Arc<SessionTables>,
    pub(crate) answers: Answers,
    pub(crate) tunnels: Arc<Seats>,
    priorities: Box<[PriorityRules]>,
    /// Makes connections to nodes.
    builder: Builder,
    /// The version of the topology that is followed.
    followed: Cell<u64>,
}

/// What the workers of a data plane have in common, for each of them.
pub(crate) struct Parts {
    pub(crate) config: Arc<ProxyConfig>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) session_tables: Arc<SessionTables>,
    pub(crate) seats: Arc<AllSeats>,
    /// The worker's number.
    pub(crate) index: usize,
    pub(crate) observer: Option<Rc<Observer>>,
    pub(crate) logger: Logger,
}

impl Worker {
    pub(crate) fn new(parts: Parts) -> Rc<Self> {
        let Parts {
            config,
            shared,
            session_tables,
            seats,
            index,
            observer,
            logger,
        } = parts;
        let seed = config.seed.wrapping_add(index as u64);
        let picker = Picker::new(Arc::clone(&shared.table), shared.topology.load_full(), seed);
        let (topology, routes) = (Arc::clone(&shared.topology), Arc::clone(&shared.routes));
        let stats = shared.stats.worker(index);
        let cluster = Cluster::new(topology, routes, picker, Arc::clone(stats));
        let record = WorkerRecord::new(Arc::clone(stats), logger, &config.log, observer);
        let base = Rc::new(WorkerBase::new(Arc::clone(&config), cluster, record));
        Rc::new(Self {
            throttles: Throttles::new(Rc::clone(&base), Arc::clone(&shared.throttles)),
            delays: Delays::new(
                Rc::clone(&base),
                Arc::clone(&shared.delay_experiments),
                seed,
            ),
            queue: Queue::new(Rc::clone(&base), Arc::clone(&shared.room_freed)),
            pool: RefCell::new(Pool::default()),
            budgets: Budgets::new(Rc::clone(&base)),
            session_tables,
            // Other numbers than the picker's.
            answers: Answers::new(&config.sites, !seed),
            tunnels: Arc::clone(&seats.tunnels),
            priorities: (config.sites.iter())
                .map(|site| PriorityRules::new(&site.priorities))
                .collect(),
            builder: builder(&config.limits),
            followed: Cell::new(0),
            base,
        })
    }

    /// The priority of a request.
    pub(crate) fn priority(&self, site: SiteId, path: &str, headers: &HeaderMap) -> Priority {
        let picker = self.base.cluster.picker.borrow();
        let priorities = match picker.topology().sites.get(site.index()) {
            Some(site) => site.admission.priorities,
            None => 1,
        };
        drop(picker);
        match self.priorities.get(site.index()) {
            Some(rules) => rules.priority(priorities, path, headers),
            None => PriorityRules::default().priority(priorities, path, headers),
        }
    }

    /// Whether a request of the session was let in a moment ago; then it is counted as established.
    pub(crate) fn is_established(
        &self,
        site: SiteId,
        session: SessionHash,
        now: Timestamp,
    ) -> bool {
        let established = self.session_tables.is_established(site, session, now);
        if established && let Some(site) = self.base.stats().site(site) {
            site.established.add(1);
        }
        established
    }

    /// Speaks HTTP on a new connection to a node.
    pub(crate) async fn upstream(
        &self,
        stream: TcpStream,
        key: UpstreamKey,
    ) -> Result<Box<Upstream>, hyper::Error> {
        let parts = UpstreamParts {
            builder: &self.builder,
            scratch: Rc::clone(&self.base.scratch),
            stats: Arc::clone(self.base.stats()),
        };
        Upstream::new(stream, key, parts).await
    }

    /// Takes over the newest topology, and lets go of connections to nodes that have left or moved. Says so, when there is
    /// nothing left of them.
    pub(crate) fn follow(&self) {
        self.base.cluster.refresh();
        let picker = self.base.cluster.picker.borrow();
        let topology = picker.topology();
        if self.followed.replace(topology.version) != topology.version {
            self.pool.borrow_mut().keep(topology);
            self.base.stats().follow(topology.version);
        }
    }

    /// Keeps an upstream connection for the next request.
    pub(crate) fn park(&self, upstream: Box<Upstream>) {
        let most = self.base.config.limits.pool_per_node;
        let tick = self.base.tick();
        self.pool.borrow_mut().put(upstream, tick, most);
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
