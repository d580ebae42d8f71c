//! One thread that reads the load records of all nodes and keeps the load table current.
//!
//! ```text
//!  slot 0: send group 0, take answers in ─┐ slot 1: send group 1, … ─┐ … one interval = all groups
//!                                         └ absolute deadlines       ┘
//! ```
//!
//! | file | what |
//! |---|---|
//! | `schedule` | groups and deadlines |
//! | `in_flight` | which reads are under way |
//! | `keys` | with which key a node is asked |
//! | `peers` | which addresses are asked, and which answer |
//! | `atomics` | what the director asks of nodes' words |
//! | `node` | one node: from an answer to the load table |
//! | `worker` | the thread: sockets, batches, waiting |
//! | `status` | what it tells meanwhile |
//!
//! A node that does not answer costs its requests and nothing else: its load gets older, and
//! old is unknown. After 64 reads in a row without a record it is read only every 16th round
//! until it answers.

mod atomics;
mod front_ends;
mod in_flight;
mod keys;
mod node;
mod peers;
mod schedule;
mod status;
#[cfg(test)]
mod tests;
mod worker;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_core::load::LoadTable;
use tidegate_core::topology::NodeId;

use crate::privilege;
use crate::realtime::{self, RealtimeRefused};
use crate::region::RegionError;
use crate::udp::Key;
pub use status::{NodeReadStatus, ReadFault, ReaderStats};
use status::{Shared, SharedStats};
use worker::Worker;

/// Most nodes of one reader.
pub const TARGETS_MAX: usize = 1 << 16;
/// Shortest interval.
pub const INTERVAL_MIN: Duration = Duration::from_micros(100);
/// Reads in a row without a record after which a node is read less often.
const FAULTS_MAX: u32 = 64;
/// Such a node is read once in so many rounds.
const BACKOFF: u64 = 16;

/// How a node's region is reached.
#[derive(Clone, Debug)]
pub enum Transport {
    /// Shared memory on this host.
    Shm {
        /// The region's file.
        path: PathBuf,
    },
    /// A responder over UDP.
    Udp {
        /// Where it listens.
        address: SocketAddr,
        /// The node's keys: the one to ask with, and those before it while keys change.
        keys: Vec<Key>,
    },
}

/// A node to be read.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its index in the load table.
    pub node: NodeId,
    /// How it is reached.
    pub transport: Transport,
}

/// How to read.
#[derive(Clone, Copy, Debug)]
pub struct ReaderOptions {
    /// Every node is read once in this time.
    pub interval: Duration,
    /// An answer that takes longer is missed. At most 16 intervals.
    pub timeout: Duration,
    /// Whether to ask for real-time priority.
    pub realtime: bool,
}

impl Default for ReaderOptions {
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(1),
            timeout: Duration::from_millis(5),
            realtime: true,
        }
    }
}

/// Why there is no reader.
#[derive(Debug, thiserror::Error)]
pub enum ReaderError {
    /// The load table has no index for it.
    #[error("node {0} is not in the load table, which has {1}")]
    Node(u32, usize),
    /// The load table takes one writer per node.
    #[error("node {0} is given twice")]
    Twice(u32),
    /// More than one thread is meant to read.
    #[error("{0} nodes; a reader takes {TARGETS_MAX}")]
    Targets(usize),
    /// No reader can read as often.
    #[error("interval of {0:?}; the shortest is {INTERVAL_MIN:?}")]
    Interval(Duration),
    /// The system refused a socket or a thread.
    #[error("{0}")]
    Region(#[from] RegionError),
}

/// What reads; see [`Reader::spawn`].
#[derive(Debug)]
pub struct Reader;

impl Reader {
    /// Starts the thread, which reads until its handle is dropped.
    pub fn spawn(
        targets: Vec<Target>,
        table: Arc<LoadTable>,
        options: ReaderOptions,
    ) -> Result<ReaderHandle, ReaderError> {
        check(&targets, &table, &options)?;
        let nodes: Vec<_> = targets.iter().map(|target| target.node).collect();
        let shared = Arc::new(ReaderState {
            nodes: targets.iter().map(|_| Shared::default()).collect(),
            stats: SharedStats::default(),
            stop: AtomicBool::new(false),
        });
        let worker = Worker::new(targets, table, Arc::clone(&shared), &options)?;
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let wants_realtime = options.realtime;
        let thread = std::thread::Builder::new()
            .name("tidegate-reader".to_owned())
            .spawn(move || {
                let set_up = realtime::ask_and_settle(wants_realtime, privilege::NONE);
                let failed = set_up.is_err();
                // The thread that spawned this one waits for it.
                tell.send(set_up).ok();
                if !failed {
                    worker.run();
                }
            })
            .map_err(RegionError::io("start the reader's thread"))?;
        let realtime = told.recv().unwrap_or(Ok(Err(RealtimeRefused::Unwanted)));
        let realtime = realtime.map_err(RegionError::io("give the reader's privileges away"))?;
        Ok(ReaderHandle {
            indices: indices(&nodes),
            shared,
            realtime,
            thread: Some(thread),
        })
    }
}

/// What thread and handle share.
#[derive(Debug)]
struct ReaderState {
    /// In the order of the targets.
    nodes: Box<[Shared]>,
    stats: SharedStats,
    stop: AtomicBool,
}

/// A running reader; it ends when this is dropped.
#[derive(Debug)]
pub struct ReaderHandle {
    /// By node, the index of its target.
    indices: Vec<Option<u32>>,
    shared: Arc<ReaderState>,
    realtime: Result<(), RealtimeRefused>,
    thread: Option<JoinHandle<()>>,
}

impl ReaderHandle {
    /// How the reads of a node go, if it is one of the targets.
    pub fn status(&self, node: NodeId) -> Option<NodeReadStatus> {
        let index = (*self.indices.get(node.index())?)?;
        Some(self.shared.nodes[index as usize].status())
    }

    /// Front-ends that read the same nodes, ourselves included, as most nodes counted them within
    /// the last seconds; at most 1024. Zero if no transport tells.
    pub fn readers(&self) -> u32 {
        self.shared.stats.readers.load(Ordering::Relaxed)
    }

    /// What was done so far; brought up to date ten times a second.
    pub fn stats(&self) -> ReaderStats {
        self.shared.stats.load()
    }

    /// Whether the thread is at real-time priority, or why not.
    pub fn realtime(&self) -> Result<(), &RealtimeRefused> {
        self.realtime.as_ref().copied()
    }
}

impl Drop for ReaderHandle {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic was printed by the thread itself; there is nothing to add.
            thread.join().ok();
        }
    }
}

fn check(
    targets: &[Target],
    table: &LoadTable,
    options: &ReaderOptions,
) -> Result<(), ReaderError> {
    if targets.len() > TARGETS_MAX {
        return Err(ReaderError::Targets(targets.len()));
    }
    if options.interval < INTERVAL_MIN {
        return Err(ReaderError::Interval(options.interval));
    }
    let mut seen = vec![false; table.nodes()];
    for target in targets {
        match seen.get_mut(target.node.index()) {
            None => return Err(ReaderError::Node(target.node.0, table.nodes())),
            Some(true) => return Err(ReaderError::Twice(target.node.0)),
            Some(free) => *free = true,
        }
    }
    Ok(())
}

/// By node, the index of its target.
fn indices(nodes: &[NodeId]) -> Vec<Option<u32>> {
    let length = nodes.iter().map(|node| node.index() + 1).max().unwrap_or(0);
    let mut indices = vec![None; length];
    for (index, node) in nodes.iter().enumerate() {
        indices[node.index()] = Some(index as u32);
    }
    indices
}
