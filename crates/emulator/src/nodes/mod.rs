//! Emulated nodes: the test server's URLs on 127.0.0.1, with CPUs that are computed, not used.
//!
//! ```text
//!  request ──> HTTP server ──arrive──> Processor of the node ──completed──> answer
//!  (one thread for all nodes)            │ (one thread for all processors)
//!                                        └── LoadRecord each interval ──> RegionMemory
//! ```
//!
//! The processors know exactly when each request ends, and its answer says in
//! [`TOOK_HEADER`](crate::TOOK_HEADER) how long it was there, so that a client can separate the node's time
//! from that of the machine which emulates it. Nothing here burns CPU, so eight nodes of many
//! CPUs fit on one. `tidegate demo` and the lab's loopback mode both run on it.
//!
//! What it does not have: time slices, throttling, interrupts, a network. An agent inside the
//! node is a task among the others: its record is as late as the node is busy.

mod http;
mod neighbours;
mod node;
mod state;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_core::time::Timestamp;
use tidegate_remote::{RegionError, clock};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::CachePlan;
use crate::antagonist::Antagonist;
use node::Node;
use state::Shared;

/// Most workers that a node may have.
pub const WORKERS_MAX: usize = tokio::sync::Semaphore::MAX_PERMITS;

/// One node to be emulated.
#[derive(Clone, Debug)]
pub struct NodePlan {
    /// Its name; its regions' files begin with it.
    pub name: String,
    /// CPUs; may be a part of one.
    pub cores: f64,
    /// Requests that it works on at once.
    pub workers: usize,
    /// Which files are cheap.
    pub cache: CachePlan,
    /// Its agents.
    pub agents: Vec<AgentPlan>,
}

/// One agent of such a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentPlan {
    /// Time between two records.
    pub interval: Duration,
    /// Whether it is one of the node's tasks.
    pub inside: bool,
}

/// How a node stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeNow {
    /// Antagonist tasks.
    pub antagonists: u32,
    /// Tasks on the run queue.
    pub runnable: u32,
    /// Requests.
    pub in_flight: u32,
    /// Requests that have ended.
    pub completions: u64,
    /// CPU time used.
    pub busy: Duration,
}

/// Why there are no nodes, or why one does not come back.
#[derive(Debug, thiserror::Error)]
pub enum EmulatedError {
    /// Sockets, files, threads.
    #[error("emulated nodes: {0}")]
    Io(#[from] io::Error),
    /// No load records.
    #[error("emulated nodes: cannot publish load records: {0}")]
    Region(#[from] RegionError),
}

/// See the module. Dropping it ends both threads and removes the regions.
#[derive(Debug)]
pub struct Machines {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    regions: Vec<Vec<PathBuf>>,
    doors: Vec<Option<tokio::task::JoinHandle<()>>>,
    servers: Handle,
    stop_servers: Option<oneshot::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Machines {
    /// Starts the nodes; their regions are files in the folder.
    pub fn start(plans: &[NodePlan], folder: &Path) -> Result<Self, EmulatedError> {
        let now = clock::now();
        let (mut nodes, mut regions) = (Vec::new(), Vec::new());
        for plan in plans {
            let file = |agent: usize| folder.join(format!("{}.{agent}", plan.name));
            let files: Vec<_> = (0..plan.agents.len()).map(file).collect();
            nodes.push(Node::new(plan, &files, now)?);
            regions.push(files);
        }
        let shared = Arc::new(Shared::new(nodes, now));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let mut machines = Self {
            shared: Arc::clone(&shared),
            addresses: Vec::new(),
            regions,
            doors: Vec::new(),
            servers: runtime.handle().clone(),
            stop_servers: Some(stop),
            threads: Vec::new(),
        };
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        machines
            .threads
            .push(thread("emulated-cpus").spawn(move || shared.run())?);
        machines
            .threads
            .push(thread("emulated-http").spawn(move || {
                // Closed or notified: both mean the end, and the runtime takes all tasks along.
                runtime.block_on(stopped).ok();
            })?);
        for node in 0..plans.len() {
            let any = (Ipv4Addr::LOCALHOST, 0).into();
            let (address, door) = machines.open(node, any)?;
            machines.addresses.push(address);
            machines.doors.push(Some(door));
        }
        Ok(machines)
    }

    /// Where the nodes serve.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where the nodes' agents publish.
    pub fn regions(&self) -> &[Vec<PathBuf>] {
        &self.regions
    }

    /// Empties all nodes, and lets these antagonists alone come and go from `start` on.
    pub fn begin(&self, antagonists: &[(usize, Antagonist)], start: Timestamp) {
        self.shared.begin(antagonists, start);
    }

    /// Lets an antagonist work on a node until the guard is dropped.
    pub fn antagonist(&self, node: usize, antagonist: &Antagonist) -> Neighbour {
        let number = self.shared.settle_in(node, antagonist);
        Neighbour {
            shared: Arc::clone(&self.shared),
            number,
        }
    }

    /// How the nodes stand.
    pub fn now(&self) -> Vec<NodeNow> {
        self.shared.now()
    }

    /// Ends a node: connections break, no socket listens, no record is published.
    pub fn kill(&mut self, node: usize) {
        if let Some(door) = self.doors[node].take() {
            door.abort();
            // Aborted is what it shall be; what counts is that the socket is closed then.
            self.servers.block_on(door).ok();
        }
        self.shared.stand(node, true);
    }

    /// Stands a node still: time does not pass there.
    pub fn stop(&mut self, node: usize) {
        self.shared.stand(node, true);
    }

    /// Lets time pass again.
    pub fn resume(&mut self, node: usize) {
        self.shared.stand(node, false);
    }

    /// Brings a killed node back where it was.
    pub fn revive(&mut self, node: usize) -> Result<(), EmulatedError> {
        if self.doors[node].is_none() {
            let (_, door) = self.open(node, self.addresses[node])?;
            self.doors[node] = Some(door);
        }
        self.shared.stand(node, false);
        Ok(())
    }

    /// Starts a node's HTTP server.
    fn open(
        &self,
        node: usize,
        address: SocketAddr,
    ) -> Result<(SocketAddr, tokio::task::JoinHandle<()>), EmulatedError> {
        let listener = crate::server::http::bind(address)?;
        let address = listener.local_addr()?;
        let listener = {
            let _inside = self.servers.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let serve = http::serve(listener, node, Arc::clone(&self.shared));
        Ok((address, self.servers.spawn(serve)))
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        self.shared.end();
        // A closed channel is as good a sign as a message.
        self.stop_servers.take();
        for thread in self.threads.drain(..) {
            // A panic was printed by the thread itself.
            thread.join().ok();
        }
        // The regions remove their files.
        self.shared.clear();
    }
}

/// An antagonist that is at work; it goes when this is dropped.
#[derive(Debug)]
pub struct Neighbour {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.shared.move_out(self.number);
    }
}
