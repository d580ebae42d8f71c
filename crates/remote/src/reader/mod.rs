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
//! | `budget` | how often reading can be afforded |
//! | `in_flight` | which reads are under way |
//! | `keys` | with which key a node is asked |
//! | `peers` | which addresses are asked, and which answer |
//! | `atomics` | what the director asks of nodes' words |
//! | `node` | one node: from an answer to the load table |
//! | `one_agent` | nodes that one read is for |
//! | `way` | over UDP or over RDMA |
//! | `links` | reads over RDMA |
//! | `connector` | the thread that connects nodes for that |
//! | `worker` | the thread: sockets, batches, waiting |
//! | `targets` | nodes that come and go |
//! | `status` | what it reports meanwhile |
//!
//! Where the budget allows to read many nodes but seldom, groups are small and the load table says which one was read last
//! (`tidegate_core::load::Recent`).
//!
//! A node that does not answer costs its requests and nothing else: its load gets older, and
//! old is unknown. After 64 reads in a row without a record it is read only every 16th time at the
//! shortest interval until it answers.

mod atomics;
mod budget;
mod connector;
mod front_ends;
mod in_flight;
mod keys;
mod links;
mod node;
mod one_agent;
mod peers;
mod schedule;
mod status;
mod targets;
#[cfg(test)]
mod tests;
mod way;
mod worker;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use tidegate_core::load::LoadTable;
use tidegate_core::places::Places;
use tidegate_core::time::nanos;
use tidegate_core::topology::NodeId;

use crate::privilege;
use crate::realtime::{self, RealtimeRefused};
use crate::region::RegionError;
use crate::udp::Key;
pub use status::{NodeReadStatus, OneSided, ReadFault, ReaderStats};
use status::{Shared, SharedStats};
use worker::Worker;

/// Most nodes of one reader.
pub const TARGETS_MAX: usize = 1 << 16;
/// Shortest interval.
pub const INTERVAL_MIN: Duration = Duration::from_micros(100);
/// Reads in a row without a record after which a node is read less often.
const FAULTS_MAX: u32 = 64;
/// Such a node is read once in so many rounds at the shortest interval.
const BACKOFF: u64 = 16;

/// How a node's region is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
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
        /// Whether its record is read by RDMA while node and host can do that.
        rdma: bool,
    },
}

impl Transport {
    fn wants_rdma(&self) -> bool {
        matches!(self, Self::Udp { rdma: true, .. })
    }
}

/// A node to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its place in the load table.
    pub node: NodeId,
    /// Which of the nodes that have its place: nothing that is known of one is taken for another one's.
    pub generation: u32,
    /// How it is reached.
    pub transport: Transport,
}

/// How to read.
#[derive(Clone, Copy, Debug)]
pub struct ReaderOptions {
    /// Every node is read once in this time, or less often where that is enough ([`ReaderHandle::set_pace`]).
    pub interval: Duration,
    /// CPU time that reading may take, in CPUs, or a tenth of what the process takes if that is more; none: as much as it does.
    pub budget: Option<f64>,
    /// An answer that takes longer is missed. At most 16 intervals.
    pub timeout: Duration,
    /// A READ by RDMA that takes longer has failed, and datagrams follow.
    pub one_sided_timeout: Duration,
    /// Whether to ask for real-time priority.
    pub realtime: bool,
}

/// Longest time for a card, which answers within microseconds and needs four tries to be sure that there is no answer.
pub const ONE_SIDED_TIMEOUT: Duration = Duration::from_millis(50);

impl Default for ReaderOptions {
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(1),
            budget: None,
            timeout: Duration::from_millis(5),
            one_sided_timeout: ONE_SIDED_TIMEOUT,
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
        if options.interval < INTERVAL_MIN {
            return Err(ReaderError::Interval(options.interval));
        }
        check(&targets, &table)?;
        let shared = Arc::new(ReaderState::new(table.nodes())?);
        let worker = Worker::new(targets, Arc::clone(&table), Arc::clone(&shared), &options)?;
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
            shared,
            table,
            realtime,
            thread: Some(thread),
        })
    }
}

/// What thread and handle share.
#[derive(Debug)]
struct ReaderState {
    /// By node.
    nodes: Places<Shared>,
    stats: SharedStats,
    stop: AtomicBool,
    /// How often is enough, ns; zero: as often as is wanted.
    pace: AtomicU64,
    /// How often nodes are read now, ns.
    interval: AtomicU64,
    /// Ends the thread's sleep.
    bell: OwnedFd,
    /// What is to be read from now on, until the thread takes it over.
    wanted: Mutex<Option<Wanted>>,
    /// Whether there is something there.
    is_wanted: AtomicBool,
    /// The version of what is read.
    followed: AtomicU64,
}

/// Targets, how often they are read at the cost of what, and a version of the asker's.
#[derive(Debug)]
struct Wanted {
    targets: Vec<Target>,
    interval: Duration,
    budget: Option<f64>,
    version: u64,
}

impl ReaderState {
    fn new(nodes: usize) -> Result<Self, RegionError> {
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        Ok(Self {
            nodes: Places::new(nodes, Shared::default),
            stats: SharedStats::default(),
            stop: AtomicBool::new(false),
            pace: AtomicU64::new(0),
            interval: AtomicU64::new(0),
            bell: bell.map_err(RegionError::io("make what wakes the reader"))?,
            wanted: Mutex::new(None),
            is_wanted: AtomicBool::new(false),
            followed: AtomicU64::new(0),
        })
    }

    /// Ends the thread's sleep.
    fn ring(&self) {
        // A counter at its end rings as well.
        rustix::io::write(&self.bell, &1_u64.to_ne_bytes()).ok();
    }
}

/// A running reader; it ends when this is dropped.
#[derive(Debug)]
pub struct ReaderHandle {
    shared: Arc<ReaderState>,
    table: Arc<LoadTable>,
    realtime: Result<(), RealtimeRefused>,
    thread: Option<JoinHandle<()>>,
}

impl ReaderHandle {
    /// These nodes are read from now on, in place of those before, each once in this interval and within this budget; what is known of those
    /// that stay is kept. The thread takes it over within a slot, and then [follows](Self::followed) this version.
    ///
    /// # Errors
    /// As of [`Reader::spawn`]; then all stays as it is.
    pub fn set_targets(
        &self,
        targets: Vec<Target>,
        interval: Duration,
        budget: Option<f64>,
        version: u64,
    ) -> Result<(), ReaderError> {
        if interval < INTERVAL_MIN {
            return Err(ReaderError::Interval(interval));
        }
        check(&targets, &self.table)?;
        self.shared.nodes.reserve(self.table.nodes());
        let wanted = self.shared.wanted.lock();
        let mut wanted = wanted.unwrap_or_else(PoisonError::into_inner);
        *wanted = Some(Wanted {
            targets,
            interval,
            budget,
            version,
        });
        self.shared.is_wanted.store(true, Ordering::Release);
        self.shared.ring();
        Ok(())
    }

    /// Reading a node this often is enough from now on, though not more often than is wanted. A pace that is faster begins at once.
    pub fn set_pace(&self, interval: Duration) {
        let before = self.shared.pace.swap(nanos(interval), Ordering::Relaxed);
        if nanos(interval) < before {
            self.shared.ring();
        }
    }

    /// Time between two reads of a node, as of now.
    pub fn interval(&self) -> Duration {
        Duration::from_nanos(self.shared.interval.load(Ordering::Relaxed))
    }

    /// The version of the targets that are read: nothing is written any more for nodes that these lack.
    pub fn followed(&self) -> u64 {
        self.shared.followed.load(Ordering::Acquire)
    }

    /// How the reads of a node go, if it is one of the targets.
    pub fn status(&self, node: NodeId) -> Option<NodeReadStatus> {
        let shared = self.shared.nodes.get(node.index())?;
        shared.is_read().then(|| shared.status())
    }

    /// How a node's reads by RDMA stand, if it is to be read so.
    pub fn one_sided(&self, node: NodeId) -> Option<OneSided> {
        let shared = self.shared.nodes.get(node.index())?;
        shared.is_read().then(|| shared.one_sided())?
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
        self.shared.ring();
        if let Some(thread) = self.thread.take() {
            // A panic was printed by the thread itself; there is nothing to add.
            thread.join().ok();
        }
    }
}

fn check(targets: &[Target], table: &LoadTable) -> Result<(), ReaderError> {
    if targets.len() > TARGETS_MAX {
        return Err(ReaderError::Targets(targets.len()));
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
