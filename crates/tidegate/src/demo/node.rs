//! The emulated nodes: real HTTP servers whose CPU is virtual.
//!
//! ```text
//!  request ──> HTTP server ──arrive──> Processor of the node ──completed──> answer
//!  (one thread for all nodes)            │ (one thread for all processors)
//!                                        └── LoadRecord each 1 ms ──> RegionMemory
//! ```
//!
//! A request says in [`DEMAND_HEADER`] how much CPU time it wants. The processors know exactly
//! when each request ends; its answer says in [`TOOK_HEADER`] how long it was there, so that
//! whoever asked can tell the node's time from that of the machine which emulates it. Nothing
//! here burns CPU, so eight nodes of many CPUs fit on one.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tidegate_core::load::Rung;
use tidegate_core::record::LoadRecord;
use tidegate_core::time::{Timestamp, nanos};
use tidegate_remote::{RegionError, RegionMemory, clock};
use tidegate_sim::processor::{Processor, TaskId};
use tokio::sync::oneshot;

use super::cluster::{Cluster, Shift};

/// CPU time that a request wants, microseconds.
pub(super) const DEMAND_HEADER: &str = "x-demo-demand-us";
/// Time from arrival at the node to the request's end there, microseconds.
pub(super) const TOOK_HEADER: &str = "x-demo-took-us";
/// Time between two records of a node.
const INTERVAL: Duration = Duration::from_millis(1);
/// Most CPU time that is believed, and what a request without the header wants.
const DEMAND_MAX: Duration = Duration::from_secs(60);
const DEMAND_DEFAULT: Duration = Duration::from_millis(1);
/// Wait after a failed accept: mostly too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// How a node stands, for the live table.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeNow {
    pub(super) antagonists: u32,
    pub(super) runnable: u32,
    pub(super) in_flight: u32,
    pub(super) completions: u64,
}

#[derive(Debug)]
struct Node {
    cores: f64,
    processor: Processor,
    waiting: HashMap<TaskId, Waiting>,
    region: RegionMemory,
}

/// A request at a node: since when, and who waits for its end.
#[derive(Debug)]
struct Waiting {
    since: Timestamp,
    ended: oneshot::Sender<Duration>,
}

#[derive(Debug)]
struct State {
    nodes: Vec<Node>,
    shifts: VecDeque<(Timestamp, usize, u32)>,
    next_task: TaskId,
    /// Processors of a run before this one count for nothing.
    generation: u64,
    /// When the thread means to wake up.
    wakes_at: Timestamp,
    stop: bool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

/// See the module. Dropping it ends both threads and removes the regions.
#[derive(Debug)]
pub(super) struct Machines {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    regions: Vec<PathBuf>,
    folder: PathBuf,
    processors: Option<JoinHandle<()>>,
    servers: Option<JoinHandle<()>>,
    stop_servers: Option<oneshot::Sender<()>>,
}

/// Why there are no nodes.
#[derive(Debug, thiserror::Error)]
pub(super) enum MachinesError {
    #[error("cannot start the emulated nodes: {0}")]
    Io(#[from] io::Error),
    #[error("cannot publish load records: {0}")]
    Region(#[from] RegionError),
}

impl Machines {
    /// Starts the nodes of the cluster.
    pub(super) fn start(cluster: &Cluster) -> Result<Self, MachinesError> {
        let folder = make_folder()?;
        let now = clock::now();
        let (mut nodes, mut regions) = (Vec::new(), Vec::new());
        let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
        for plan in &cluster.nodes {
            let path = folder.join(&plan.name);
            let cores = f64::from(plan.cores);
            nodes.push(Node {
                cores,
                processor: Processor::new(cores, 1.0, 1, now),
                waiting: HashMap::new(),
                region: RegionMemory::create(&path)?,
            });
            regions.push(path);
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            listener.set_nonblocking(true)?;
            addresses.push(listener.local_addr()?);
            listeners.push(listener);
        }
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                nodes,
                shifts: VecDeque::new(),
                next_task: 0,
                generation: 1,
                wakes_at: now,
                stop: false,
            }),
            wake: Condvar::new(),
        });
        let mut machines = Self {
            shared: Arc::clone(&shared),
            addresses,
            regions,
            folder,
            processors: None,
            servers: None,
            stop_servers: None,
        };
        let thread = std::thread::Builder::new().name("demo-cpus".into());
        machines.processors = Some(thread.spawn({
            let shared = Arc::clone(&shared);
            move || shared.run()
        })?);
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = std::thread::Builder::new().name("demo-nodes".into());
        machines.servers = Some(thread.spawn(move || {
            runtime.block_on(serve(listeners, shared, stopped));
        })?);
        machines.stop_servers = Some(stop);
        Ok(machines)
    }

    /// Where the nodes serve.
    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where the nodes publish their load.
    pub(super) fn regions(&self) -> &[PathBuf] {
        &self.regions
    }

    /// Empties all nodes, and lets antagonists come and go from `start` on.
    pub(super) fn begin(&self, shifts: &[Shift], start: Timestamp) {
        let mut state = self.shared.lock();
        let now = clock::now();
        state.generation += 1;
        let generation = state.generation;
        for node in &mut state.nodes {
            // Whoever still waits is told by the closed channel.
            node.waiting.clear();
            node.processor = Processor::new(node.cores, 1.0, generation, now);
        }
        let due = |shift: &Shift| (start + shift.at, shift.node, shift.tasks);
        state.shifts = shifts.iter().map(due).collect();
    }

    /// How the nodes stand.
    pub(super) fn now(&self) -> Vec<NodeNow> {
        let mut state = self.shared.lock();
        let now = clock::now();
        let look = |node: &mut Node| NodeNow {
            antagonists: node.processor.antagonists(),
            runnable: node.processor.runnable(),
            in_flight: node.processor.in_flight(),
            completions: node.processor.record(now).completions,
        };
        state.nodes.iter_mut().map(look).collect()
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.wake.notify_all();
        // A closed channel is as good a sign as a message.
        self.stop_servers.take();
        for thread in [self.processors.take(), self.servers.take()] {
            // A panic was printed by the thread itself.
            thread.map_or(Ok(()), JoinHandle::join).ok();
        }
        self.shared.lock().nodes.clear();
        // The regions have removed their files; what is left is an empty folder.
        std::fs::remove_dir(&self.folder).ok();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked has said so; numbers in a demo are no reason to hang.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The processors' thread.
    fn run(&self) {
        let mut publish_at = clock::now();
        let mut state = self.lock();
        while !state.stop {
            let now = clock::now();
            state.shift(now);
            state.settle(now);
            if now >= publish_at {
                state.publish(now);
                publish_at = (publish_at + INTERVAL).max(now);
            }
            let wakes_at = state.next().map_or(publish_at, |next| next.min(publish_at));
            state.wakes_at = wakes_at;
            let wait = wakes_at.since(clock::now());
            let woken = self.wake.wait_timeout(state, wait);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A request arrives at a node.
    fn arrive(
        self: &Arc<Self>,
        node: usize,
        demand: Duration,
    ) -> (Stay, oneshot::Receiver<Duration>) {
        let (ended, end) = oneshot::channel();
        let mut state = self.lock();
        let now = clock::now();
        let task = state.next_task;
        state.next_task += 1;
        let here = &mut state.nodes[node];
        here.processor.arrive(now, task, demand);
        here.waiting.insert(task, Waiting { since: now, ended });
        let sooner = here
            .processor
            .next_completion()
            .is_some_and(|due| due < state.wakes_at);
        drop(state);
        if sooner {
            self.wake.notify_one();
        }
        let shared = Arc::clone(self);
        (Stay { shared, node, task }, end)
    }
}

impl State {
    fn shift(&mut self, now: Timestamp) {
        while let Some((at, node, tasks)) = self.shifts.front().copied() {
            if at > now {
                return;
            }
            self.shifts.pop_front();
            self.nodes[node].processor.set_antagonists(now, tasks);
        }
    }

    /// Tells all requests that have ended so.
    fn settle(&mut self, now: Timestamp) {
        for node in &mut self.nodes {
            node.processor.advance(now);
            while let Some(done) = node.processor.poll_completed() {
                if let Some(waiting) = node.waiting.remove(&done.task) {
                    // A request that was cancelled this moment does not listen any more.
                    waiting.ended.send(done.at.since(waiting.since)).ok();
                }
            }
        }
    }

    fn publish(&mut self, now: Timestamp) {
        for node in &mut self.nodes {
            let record = LoadRecord {
                rung: Rung::SharedMemory as u8,
                interval_ns: nanos(INTERVAL),
                ..node.processor.record(now)
            };
            node.region.publish(&record, &[]);
        }
    }

    fn next(&self) -> Option<Timestamp> {
        let shift = self.shifts.front().map(|(at, ..)| *at);
        let ends = self
            .nodes
            .iter()
            .filter_map(|node| node.processor.next_completion());
        ends.chain(shift).min()
    }
}

/// A request's stay at a node; dropped before its end, it is cancelled.
#[derive(Debug)]
struct Stay {
    shared: Arc<Shared>,
    node: usize,
    task: TaskId,
}

impl Drop for Stay {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        // The demo's last act is to clear the nodes away.
        let Some(node) = state.nodes.get_mut(self.node) else {
            return;
        };
        if node.waiting.remove(&self.task).is_some() {
            node.processor.cancel(clock::now(), self.task);
        }
    }
}

/// All nodes' HTTP servers, until told to stop.
async fn serve(listeners: Vec<TcpListener>, shared: Arc<Shared>, stop: oneshot::Receiver<()>) {
    for (node, listener) in listeners.into_iter().enumerate() {
        let shared = Arc::clone(&shared);
        if let Ok(listener) = tokio::net::TcpListener::from_std(listener) {
            tokio::spawn(accept(listener, node, shared));
        }
    }
    // Closed or told: both mean the end, and the runtime takes all tasks along.
    stop.await.ok();
}

async fn accept(listener: tokio::net::TcpListener, node: usize, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        stream.set_nodelay(true).ok();
        let shared = Arc::clone(&shared);
        let service = service_fn(move |request: Request<Incoming>| {
            let shared = Arc::clone(&shared);
            async move { Ok::<_, Infallible>(answer(&request, node, &shared).await) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async move {
            // Who breaks off is no concern of the node's.
            connection.await.ok();
        });
    }
}

async fn answer(
    request: &Request<Incoming>,
    node: usize,
    shared: &Arc<Shared>,
) -> Response<Full<Bytes>> {
    let (stay, end) = shared.arrive(node, demand(request.headers()));
    let took = end.await;
    drop(stay);
    let mut response = Response::new(Full::new(Bytes::from_static(b"done\n")));
    match took {
        Ok(took) => {
            let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            response.headers_mut().insert(TOOK_HEADER, micros.into());
        }
        // The run is over and the node was emptied.
        Err(_) => *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE,
    }
    response
}

fn demand(headers: &http::HeaderMap) -> Duration {
    let header = headers
        .get(DEMAND_HEADER)
        .and_then(|value| value.to_str().ok());
    let micros = header.and_then(|text| text.parse().ok());
    micros
        .map_or(DEMAND_DEFAULT, Duration::from_micros)
        .min(DEMAND_MAX)
}

/// A folder of our own for the regions, in memory where there is such a place.
fn make_folder() -> io::Result<PathBuf> {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() {
        memory.to_path_buf()
    } else {
        std::env::temp_dir()
    };
    // A demo that was killed leaves its folder, and numbers of processes come again.
    let now = clock::now().nanos();
    let folder = parent.join(format!("tidegate-demo-{}-{now:x}", std::process::id()));
    std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
        .create(&folder)?;
    Ok(folder)
}
