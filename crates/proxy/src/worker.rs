//! One worker: a thread with its own runtime, sockets, picker, pool and counters. Workers share
//! nothing that is written on a request's way, so they never wait for each other.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::{ArcSwap, Cache};
use http::HeaderMap;
use hyper::client::conn::http1::Builder as ClientBuilder;
use hyper::server::conn::http1::Builder as ServerBuilder;
use socket2::Socket;
use tidegate_core::admission::{AcceptGate, Class, Kind};
use tidegate_core::picker::{LONG_ANSWER, Picker};
use tidegate_core::prng::Prng;
use tidegate_core::route::Routes;
use tidegate_core::time::{Timestamp, nanos};
use tidegate_core::topology::{NodeId, SiteId, Topology};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use crate::accept::{Listener, accept};
use crate::answers::Answers;
use crate::classify::{ClassRules, SessionHash, SessionTables};
use crate::config::{FIELDS, Limits, LogFormat, ProxyConfig, Timeouts};
use crate::dithering::Dithering;
use crate::inflow::Scratch;
use crate::linger::Lingering;
use crate::log::{Line, Logger, Recent, Ring, Tail};
use crate::observed::Observer;
use crate::proxy::{Order, Shared};
use crate::reason::Reason;
use crate::retry::Budgets;
use crate::seats::{AllSeats, Seat};
use crate::session::Session;
use crate::stats::WorkerStats;
use crate::throttling::{self, Throttling};
use crate::upstream::{Pool, Upstream, Way};
use crate::waiting::{self, Waiters};

/// How often deadlines are looked at. Time-outs are kept to within one of these.
pub const TICK: Duration = Duration::from_millis(20);
const TICKS_PER_SECOND: u64 = 1000 / TICK.as_millis() as u64;
/// Ticks between two sweeps of the pool.
const SWEEP_TICKS: u64 = 50;
/// Ticks between two looks for requests that wait for nodes that answer nothing.
const RESCUE_TICKS: u64 = 5;
/// Ticks between two flushes of the access log.
const FLUSH_TICKS: u64 = 5;
/// So that coins are other numbers than the picker's: else who is held would go with who goes where.
const COINS: u64 = 0x636f_696e_735f_6f66;

/// Time-outs in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    pub(crate) client_head: u64,
    pub(crate) client_idle: u64,
    pub(crate) response_head: u64,
    pub(crate) body_idle: u64,
    pub(crate) request_body: Option<u64>,
    pub(crate) response_body: Option<u64>,
    /// Bytes of a body that buy a tick.
    pub(crate) body_bytes: u64,
    pub(crate) throttled_idle: u64,
    /// Bytes of a throttled request's bodies that buy a tick at its place.
    pub(crate) throttled_bytes: u64,
    pub(crate) tunnel_idle: u64,
    pub(crate) upstream_idle: u64,
    pub(crate) linger: u64,
    /// An answer that takes longer from its head on is a long one.
    pub(crate) long_answer: u64,
}

impl Ticks {
    fn new(timeouts: &Timeouts, limits: &Limits) -> Self {
        let ticks = |timeout| nanos(timeout).div_ceil(nanos(TICK));
        Self {
            client_head: ticks(timeouts.client_head),
            client_idle: ticks(timeouts.client_idle),
            response_head: ticks(timeouts.response_head),
            body_idle: ticks(timeouts.body_idle),
            request_body: timeouts.request_body.map(ticks),
            response_body: timeouts.response_body.map(ticks),
            body_bytes: limits.body_rate.div_ceil(TICKS_PER_SECOND),
            throttled_idle: ticks(timeouts.throttled_idle),
            throttled_bytes: limits.throttled_rate.div_ceil(TICKS_PER_SECOND),
            tunnel_idle: ticks(timeouts.tunnel_idle),
            upstream_idle: ticks(timeouts.upstream_idle),
            linger: ticks(timeouts.linger),
            long_answer: ticks(LONG_ANSWER),
        }
    }
}

struct TopologyOf(Arc<Shared>);

impl Deref for TopologyOf {
    type Target = ArcSwap<Topology>;
    fn deref(&self) -> &Self::Target {
        &self.0.topology
    }
}

struct RoutesOf(Arc<Shared>);

impl Deref for RoutesOf {
    type Target = ArcSwap<Routes>;
    fn deref(&self) -> &Self::Target {
        &self.0.routes
    }
}

/// See the module.
pub(crate) struct Worker {
    pub(crate) config: Arc<ProxyConfig>,
    pub(crate) ticks: Ticks,
    pub(crate) server: ServerBuilder,
    client: ClientBuilder,
    shared: Arc<Shared>,
    index: usize,
    topology: RefCell<Cache<TopologyOf, Arc<Topology>>>,
    routes: RefCell<Cache<RoutesOf, Arc<Routes>>>,
    pub(crate) picker: RefCell<Picker>,
    pub(crate) waiters: Waiters,
    pub(crate) throttles: throttling::Local,
    /// For the requests of a class that is tested.
    pub(crate) coins: RefCell<Prng>,
    pub(crate) pool: RefCell<Pool>,
    pub(crate) budgets: RefCell<Budgets>,
    classes: Box<[ClassRules]>,
    pub(crate) session_tables: Arc<SessionTables>,
    pub(crate) answers: Answers,
    pub(crate) scratch: Rc<Scratch>,
    pub(crate) seats: Arc<AllSeats>,
    pub(crate) draining: Cell<bool>,
    /// Why requests end that are cut off.
    pub(crate) cut_for: Cell<Reason>,
    pub(crate) lingering: RefCell<Lingering>,
    /// Refused connections that take their answer slowly, in tasks of their own.
    pub(crate) refused_slowly: Cell<usize>,
    gate: RefCell<AcceptGate>,
    /// Told when it accepts again.
    resumed: Notify,
    logger: RefCell<Logger>,
    /// Tells discovery of requests, if somebody listens.
    pub(crate) observer: Option<Rc<Observer>>,
    log_format: LogFormat,
    sessions: RefCell<Sessions>,
    /// Told when the last session has ended, and when the worker drains.
    changed: Notify,
    tick: Cell<u64>,
    /// The Unix time at the clock's zero, nanoseconds.
    unix_base: Cell<u64>,
}

/// The sessions, for the clock and the drain.
#[derive(Default)]
struct Sessions {
    slots: Vec<Option<Rc<Session>>>,
    free: Vec<usize>,
    count: usize,
}

/// A session's place among the others. Dropping it ends the session's books.
pub(crate) struct Registered {
    session: Rc<Session>,
    slot: usize,
    _seat: Seat,
}

impl Registered {
    pub(crate) fn new(session: &Rc<Session>, seat: Seat) -> Self {
        let worker = &session.worker;
        worker.stats().accepted.add(1);
        let mut sessions = worker.sessions.borrow_mut();
        sessions.count += 1;
        let slot = match sessions.free.pop() {
            Some(slot) => slot,
            None => {
                sessions.slots.push(None);
                sessions.slots.len() - 1
            }
        };
        sessions.slots[slot] = Some(Rc::clone(session));
        Self {
            session: Rc::clone(session),
            slot,
            _seat: seat,
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.session.close();
        let worker = &self.session.worker;
        worker.stats().closed.add(1);
        let mut sessions = worker.sessions.borrow_mut();
        sessions.count -= 1;
        sessions.free.push(self.slot);
        let left = sessions.count;
        let slot = sessions.slots[self.slot].take();
        drop(sessions);
        drop(slot);
        if left == 0 {
            worker.changed.notify_waiters();
        }
    }
}

impl Worker {
    pub(crate) fn new(
        config: Arc<ProxyConfig>,
        shared: Arc<Shared>,
        session_tables: Arc<SessionTables>,
        seats: Arc<AllSeats>,
        (index, observer): (usize, Option<Rc<Observer>>),
        logger: Logger,
    ) -> Rc<Self> {
        let seed = config.seed.wrapping_add(index as u64);
        let picker = Picker::new(Arc::clone(&shared.table), shared.topology.load_full(), seed);
        let limits = &config.limits;
        let head_bytes = limits.head_bytes.max(BUFFER_BYTES_MIN);
        let buffer_bytes = limits.buffer_bytes.max(head_bytes);
        let mut server = ServerBuilder::new();
        server
            .half_close(true)
            .header_read_timeout(None)
            .max_header_size(head_bytes)
            .max_buf_size(buffer_bytes);
        let mut client = ClientBuilder::new();
        client
            .max_header_size(head_bytes)
            .max_buf_size(buffer_bytes + HEAD_ROOM)
            // A request is mostly its head: one buffer is less work than a list of one.
            .writev(false);
        if limits.fields != FIELDS {
            server.max_headers(limits.fields);
            client.max_headers(limits.fields);
        }
        let now = (config.clock)();
        let worker = Self {
            ticks: Ticks::new(&config.timeouts, &config.limits),
            server,
            client,
            topology: RefCell::new(Cache::new(TopologyOf(Arc::clone(&shared)))),
            routes: RefCell::new(Cache::new(RoutesOf(Arc::clone(&shared)))),
            picker: RefCell::new(picker),
            waiters: Waiters::default(),
            throttles: throttling::Local::new(&shared),
            coins: RefCell::new(Prng::new(seed ^ COINS)),
            pool: RefCell::new(Pool::default()),
            budgets: RefCell::new(Budgets::new(&config, now)),
            classes: (config.sites.iter())
                .map(|site| ClassRules::new(&site.classes))
                .collect(),
            session_tables,
            // Other numbers than the picker's.
            answers: Answers::new(&config.sites, !seed),
            scratch: Rc::default(),
            seats,
            draining: Cell::new(false),
            cut_for: Cell::new(Reason::Drained),
            lingering: RefCell::default(),
            refused_slowly: Cell::new(0),
            gate: RefCell::default(),
            resumed: Notify::new(),
            log_format: logger.format(),
            observer,
            logger: RefCell::new(logger),
            sessions: RefCell::new(Sessions::default()),
            changed: Notify::new(),
            tick: Cell::new(0),
            unix_base: Cell::new(0),
            config,
            shared,
            index,
        };
        worker.keep_ring();
        worker.set_wall_clock();
        Rc::new(worker)
    }

    fn keep_ring(&self) {
        let ring = Ring::new(self.config.log.recent);
        if let Ok(mut kept) = self.stats().recent.lock() {
            *kept = ring;
        }
    }

    pub(crate) fn stats(&self) -> &WorkerStats {
        self.shared.stats.worker(self.index)
    }

    // Time.

    pub(crate) fn now(&self) -> Timestamp {
        (self.config.clock)()
    }

    /// The present tick.
    pub(crate) fn tick(&self) -> u64 {
        self.tick.get()
    }

    /// The tick at which so many ticks have passed whole.
    pub(crate) fn due(&self, ticks: u64) -> u64 {
        self.tick.get().saturating_add(ticks).saturating_add(1)
    }

    /// Ticks after which a request of the site that has no answer is overdue.
    pub(crate) fn overdue(&self, site: SiteId) -> u64 {
        let after = self.picker.borrow().overdue_after(site);
        nanos(after).div_ceil(nanos(TICK))
    }

    /// The Unix time of a point in time, nanoseconds.
    pub(crate) fn unix_nanos(&self, at: Timestamp) -> u64 {
        self.unix_base.get().saturating_add(at.nanos())
    }

    /// The wall clock is set now and then; the log follows it.
    fn set_wall_clock(&self) {
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, nanos);
        self.unix_base.set(unix.saturating_sub(self.now().nanos()));
    }

    // What a request needs.

    /// Takes over a newer topology.
    pub(crate) fn refresh(&self) {
        let mut cache = self.topology.borrow_mut();
        let latest = cache.load();
        let mut picker = self.picker.borrow_mut();
        if !Arc::ptr_eq(latest, picker.topology()) {
            picker.handle_topology(Arc::clone(latest));
        }
    }

    /// The site that serves this host and path. Routes may be newer than the topology; a site
    /// that the topology does not know yet is none.
    pub(crate) fn site(&self, host: &str, path: &str) -> Option<SiteId> {
        let site = self.routes.borrow_mut().load().site(host, path)?;
        let known = self.picker.borrow().topology().sites.len();
        (site.index() < known).then_some(site)
    }

    /// What a request is, as far as its costs go.
    pub(crate) fn kind(&self, site: SiteId, method: &str, target: &str) -> Kind {
        self.picker.borrow().kind_of(site, method, target)
    }

    /// The priority of a request.
    pub(crate) fn class(&self, site: SiteId, path: &str, headers: &HeaderMap) -> Class {
        let classes = match self.picker.borrow().topology().sites.get(site.index()) {
            Some(site) => site.admission.classes,
            None => 1,
        };
        match self.classes.get(site.index()) {
            Some(rules) => rules.class(classes, path, headers),
            None => ClassRules::default().class(classes, path, headers),
        }
    }

    /// Which classes are slowed.
    pub(crate) fn throttling(&self) -> &Throttling {
        &self.shared.throttles
    }

    /// The test of a class, if one runs.
    pub(crate) fn dithering(&self) -> &Dithering {
        &self.shared.dithering
    }

    /// Until there may be room that another worker left.
    pub(crate) async fn room(&self) {
        self.shared.room.notified().await;
    }

    /// Whether a request of the session was let in a moment ago; then it is counted as known.
    pub(crate) fn knows(&self, site: SiteId, session: SessionHash, now: Timestamp) -> bool {
        let known = self.session_tables.is_known(site, session, now);
        if known && let Some(site) = self.stats().site(site) {
            site.known.add(1);
        }
        known
    }

    /// Whether the site has candidates besides these.
    pub(crate) fn has_others(&self, site: SiteId, tried: &[NodeId]) -> bool {
        let picker = self.picker.borrow();
        let site = picker.topology().sites.get(site.index());
        site.is_some_and(|site| site.candidates.iter().any(|node| !tried.contains(node)))
    }

    /// Whether the site's nodes report their load in responses.
    pub(crate) fn reads_load_of(&self, site: SiteId) -> bool {
        let site = self.config.sites.get(site.index());
        site.is_some_and(|site| site.load_header)
    }

    /// Speaks HTTP on a new connection to a node.
    pub(crate) async fn upstream(
        &self,
        stream: TcpStream,
        way: Way,
    ) -> Result<Box<Upstream>, hyper::Error> {
        let stats = Arc::clone(&self.shared.stats);
        let scratch = Rc::clone(&self.scratch);
        Upstream::new(stream, way, (&self.client, scratch), stats, self.index).await
    }

    /// Keeps an upstream connection for the next request.
    pub(crate) fn park(&self, upstream: Box<Upstream>) {
        let most = self.config.limits.pool_per_node;
        self.pool.borrow_mut().put(upstream, self.tick.get(), most);
    }

    pub(crate) fn log_format(&self) -> LogFormat {
        self.log_format
    }

    pub(crate) fn log(&self, line: &Line, tail: &Tail<'_>) {
        self.logger.borrow_mut().end(line, tail);
    }

    pub(crate) fn remember(&self, recent: Recent) {
        // Only a reader of `why` ever holds this lock besides us, and only to copy.
        if let Ok(mut ring) = self.stats().recent.lock() {
            ring.push(recent);
        }
    }

    // Connections.

    /// Refused connections that are still open.
    pub(crate) fn refused_now(&self) -> usize {
        self.lingering.borrow().len() + self.refused_slowly.get()
    }

    /// Closes the refused connection that lingers longest. False if there is none.
    pub(crate) fn evict_lingering(&self) -> bool {
        let mut scratch = self.scratch.raw.borrow_mut();
        self.lingering.borrow_mut().evict(&mut scratch)
    }

    /// Waits until nothing new is to be accepted any more.
    pub(crate) async fn drains(&self) {
        while !self.draining.get() {
            self.changed.notified().await;
        }
    }

    /// Waits while the worker does not keep up with what it has.
    pub(crate) async fn accepts(&self) {
        while self.gate.borrow().is_paused() {
            self.resumed.notified().await;
        }
    }

    // The clock.

    async fn keep_time(self: Rc<Self>) {
        let start = Instant::now();
        let mut interval = tokio::time::interval(TICK);
        interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut swept_at = 0;
        let mut rescued_at = 0;
        let mut flushed_at = 0;
        let mut served_at = self.now();
        loop {
            let due = interval.tick().await;
            let now = self.now();
            self.watch_lag(due.elapsed(), now.since(served_at), now);
            served_at = now;
            let tick = nanos(start.elapsed()) / nanos(TICK);
            self.tick.set(tick);
            self.set_wall_clock();
            let mut room = false;
            for session in self.sessions.borrow().slots.iter().flatten() {
                room |= session.on_tick(tick);
            }
            if tick >= rescued_at + RESCUE_TICKS {
                rescued_at = tick;
                self.rescue();
            }
            if room {
                waiting::serve(&self);
            }
            let mut scratch = self.scratch.raw.borrow_mut();
            self.lingering.borrow_mut().on_tick(tick, &mut scratch);
            drop(scratch);
            if tick >= swept_at + SWEEP_TICKS {
                swept_at = tick;
                let oldest = tick.saturating_sub(self.ticks.upstream_idle);
                self.pool.borrow_mut().sweep(oldest);
            }
            if tick >= flushed_at + FLUSH_TICKS {
                flushed_at = tick;
                self.logger.borrow_mut().flush();
            }
        }
    }

    /// The clock was served so late: it shows whether the worker keeps up.
    fn watch_lag(&self, lag: Duration, since: Duration, now: Timestamp) {
        let micros = |duration| nanos(duration) / 1000;
        let stats = self.stats();
        stats.lag.record(micros(lag));
        let mut gate = self.gate.borrow_mut();
        let before = gate.is_paused();
        gate.on_lag(lag, now);
        if before {
            stats.accept_paused_micros.add(micros(since));
        }
        match (before, gate.is_paused()) {
            (false, true) => stats.accept_pauses.add(1),
            (true, false) => {
                stats.accept_pauses_ended.add(1);
                self.resumed.notify_waiters();
            }
            (false, false) | (true, true) => {}
        }
    }

    // The end.

    pub(crate) fn for_each_session(&self, act: impl Fn(&Session)) {
        for session in self.sessions.borrow().slots.iter().flatten() {
            act(session);
        }
    }

    async fn idle(&self) {
        loop {
            let changed = self.changed.notified();
            if self.sessions.borrow().count == 0 {
                return;
            }
            changed.await;
        }
    }

    /// Listens on these, and leaves them as they are.
    fn listeners(&self, sockets: &Cell<Vec<Socket>>) -> Vec<Listener> {
        let kept = sockets.take();
        let listening = (kept.iter())
            .map(|socket| socket.try_clone().and_then(Listener::new))
            .filter_map(|made| match made {
                Ok(listener) => Some(listener),
                Err(_) => {
                    self.stats().accept_errors.add(1);
                    None
                }
            });
        let listening = listening.collect();
        sockets.set(kept);
        listening
    }

    /// Lets end what there is. Idle connections stay: each closes behind its next answer.
    async fn drain(&self, accepting: &mut JoinSet<()>, sockets: &Cell<Vec<Socket>>) {
        self.draining.set(true);
        self.changed.notify_waiters();
        // The listeners take in what is connected already.
        while accepting.join_next().await.is_some() {}
        drop(sockets.take());
        self.idle().await;
    }

    async fn cut(&self) {
        self.draining.set(true);
        self.changed.notify_waiters();
        self.for_each_session(|session| {
            session.cut.set(true);
            session.wake();
        });
        self.idle().await;
    }

    /// Runs until it is told to stop, or until one of its own tasks fails: without its clock, say, no
    /// time-out holds, so the worker ends, and its connections with it. Then its listening `sockets` stay
    /// open for its successor.
    pub(crate) async fn run(
        self: Rc<Self>,
        sockets: &Cell<Vec<Socket>>,
        mut orders: watch::Receiver<Order>,
    ) -> Result<(), Failed> {
        let mut accepting = JoinSet::new();
        for listener in self.listeners(sockets) {
            accepting.spawn_local(accept(Rc::clone(&self), listener));
        }
        let mut timers = JoinSet::new();
        timers.spawn_local(Rc::clone(&self).keep_time());
        timers.spawn_local(waiting::look(Rc::clone(&self)));
        timers.spawn_local(throttling::look(Rc::clone(&self)));
        let stopped = async {
            let order = tokio::select! {
                order = orders.wait_for(|order| *order != Order::Run) => order,
                failed = failure(&mut accepting) => return Err(failed),
            };
            if order.is_ok_and(|order| *order == Order::Drain) {
                tokio::select! {
                    () = self.drain(&mut accepting, sockets) => {}
                    _ = orders.wait_for(|order| *order == Order::Cut) => {}
                }
            }
            Ok(())
        };
        let ended = tokio::select! {
            ended = stopped => ended,
            failed = failure(&mut timers) => Err(failed),
        };
        if ended.is_err() {
            self.cut_for.set(Reason::WorkerFailed);
        }
        drop(accepting);
        self.cut().await;
        self.pool.borrow_mut().clear();
        self.logger.borrow_mut().flush();
        ended
    }
}

/// Why a worker failed, as its panic said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed(pub(crate) String);

impl Failed {
    pub(crate) fn of_panic(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self(text.unwrap_or("a panic without a text").to_owned())
    }
}

/// Waits until one of these tasks ends; none does unless it fails.
async fn failure(tasks: &mut JoinSet<()>) -> Failed {
    match tasks.join_next().await {
        Some(Err(error)) if error.is_panic() => Failed::of_panic(&*error.into_panic()),
        Some(_) | None => Failed("a task ended that has no end".to_owned()),
    }
}

/// Bytes that are read from a node beyond those of a buffer: a body that fills one comes in one read
/// with its head, and goes out in one write.
const HEAD_ROOM: usize = 2 << 10;

/// hyper's smallest buffer.
const BUFFER_BYTES_MIN: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use tidegate_core::admission::{AdmissionConfig, AdmissionKind, StaticLimits};
    use tidegate_core::director::Director;
    use tidegate_core::load::LoadTable;
    use tidegate_core::policy::PolicyConfig;
    use tidegate_core::topology::{ClusterSpec, NodeSpec, SiteSpec};
    use tokio::runtime::{Builder, LocalOptions};

    use super::*;
    use crate::stats::Stats;

    fn shared() -> Arc<Shared> {
        let spec = ClusterSpec {
            sites: vec![SiteSpec {
                name: "site".into(),
                hosts: vec!["*".into()],
                paths: Vec::new(),
                policy: PolicyConfig::default(),
                admission: AdmissionConfig {
                    limits: StaticLimits {
                        connections: Some(0),
                        ..StaticLimits::default()
                    },
                    ..AdmissionConfig::new(AdmissionKind::Static)
                },
            }],
            nodes: vec![NodeSpec {
                name: "n0".into(),
                address: ([127, 0, 0, 1], 1).into(),
                site: SiteId(0),
                weight: 1.0,
            }],
            groups: Vec::new(),
            front_ends: 1,
        };
        Arc::new(Shared {
            table: Arc::new(LoadTable::new(1, 1)),
            topology: ArcSwap::new(Director::new(spec.clone(), 1).topology()),
            routes: ArcSwap::from_pointee(Routes::new(&spec.sites).unwrap()),
            room: Notify::new(),
            throttles: Throttling::new(0),
            dithering: Arc::new(Dithering::new(0)),
            stats: Arc::new(Stats::new(1, 1, 1)),
        })
    }

    /// What two clients read that ask one after the other; time stands still.
    fn answers(shared: &Arc<Shared>) -> [String; 2] {
        let shared = Arc::clone(shared);
        let config = Arc::new(ProxyConfig::new(|| Timestamp::from_nanos(1)));
        let logger = Logger::new(LogFormat::Off, None, Arc::clone(&shared.stats), 0);
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build_local(LocalOptions::default())
            .unwrap();
        runtime.block_on(async move {
            let tables = SessionTables::new(&config.sites);
            let seats = Arc::new(AllSeats::new(&config.limits));
            let worker = Worker::new(config, shared, tables, seats, (0, None), logger);
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            let address = listener.local_addr().unwrap();
            let (orders, receiver) = watch::channel(Order::Run);
            let client = std::thread::spawn(move || {
                let ask = || {
                    let mut stream = std::net::TcpStream::connect(address).unwrap();
                    stream
                        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
                        .unwrap();
                    let mut answer = String::new();
                    stream.read_to_string(&mut answer).unwrap();
                    answer
                };
                let answers = [ask(), ask()];
                orders.send_replace(Order::Cut);
                answers
            });
            let sockets = Cell::new(vec![listener.into()]);
            worker.run(&sockets, receiver).await.unwrap();
            client.join().unwrap()
        })
    }

    #[test]
    fn admission_refuses_after_the_head_and_then_before_it() {
        let shared = shared();
        for answer in answers(&shared) {
            assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
            assert!(
                answer.contains("x-tidegate-reason: overload\r\n"),
                "{answer}"
            );
            assert!(answer.contains("\r\nretry-after: "), "{answer}");
        }
        let seen = shared.stats.snapshot();
        // A connection that is not read has brought no request.
        assert_eq!(seen.refused[Reason::Overload.index()], 1);
        assert_eq!(seen.reason(Reason::Overload), 1);
        assert_eq!(shared.table.own(NodeId(0)).dispatched, 0);
    }
}
