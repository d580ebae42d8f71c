//! Where the words of moves are, and how they are reached.
//!
//! ```text
//! memory   all words in this process
//! region   K, S, U in one region, A in each node's
//! etcd     K, S, U in etcd, A in each node's region
//! ```
//!
//! An engine is a [`Home`]; what front-ends do with words is the same with each. A home is asked on a thread of its own,
//! with region handles that nothing else uses: the reader's and those of admission are never held up. Failure case: a
//! home that does not answer holds up the looks at moves for as long as it is waited for, and nothing else.

mod etcd;
mod region;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::sync::mpsc::{SyncSender, sync_channel};

use tidegate_core::moves::atomics::{HomeWords, WordAtomic, WordPlace};
use tidegate_core::moves::memory::MemoryWords;
use tidegate_core::moves::steps::MoveReply;
use tidegate_core::moves::words::NodeNumber;
use tidegate_core::time::Timestamp;
use tidegate_remote::udp::UdpOptions;
use tokio::sync::oneshot;

use crate::config::{EtcdHomeConfig, MovesEngine};
use etcd::EtcdHome;
use region::RegionHome;
pub(super) use region::{NodeRegions, WAITS};

/// Reads the words that an etcd has, once.
///
/// # Errors
/// It did not answer, in words.
pub(crate) fn read_etcd(config: &EtcdHomeConfig) -> Result<(), String> {
    let home = EtcdHome::new(config).map_err(|error| error.to_string());
    home?.read(0).map(drop)
}

/// What is asked of the thread and not begun.
const JOBS_MAX: usize = 4;

/// What keeps K, S and U.
pub(super) trait Home: Send + Debug {
    /// K, and S and U of so many sites.
    ///
    /// # Errors
    /// It did not answer, in words.
    fn read(&mut self, sites: usize) -> Result<HomeWords, String>;

    /// Carries an atomic out on one of its words, once at most.
    fn atomic(&mut self, word: u32, atomic: WordAtomic) -> MoveReply;
}

/// The words of moves.
#[derive(Debug)]
pub(super) enum Words {
    /// In this process.
    Own(MemoryWords),
    /// At a home, and in the regions of nodes.
    Shared(Worker),
}

/// The words of a node that are for its agent, and by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AgentWords {
    /// B.
    pub(super) status: u64,
    /// L.
    pub(super) sites: u64,
}

/// All that a front-end shares with others.
#[derive(Debug)]
pub(super) struct Reached {
    /// K, S, U.
    pub(super) home: Box<dyn Home>,
    /// A.
    pub(super) nodes: NodeRegions,
}

type Job = Box<dyn FnOnce(&mut Reached) + Send>;

/// The thread that asks. It ends when this is dropped, and what it does is done.
#[derive(Debug)]
pub(super) struct Worker {
    jobs: SyncSender<Job>,
}

impl Reached {
    /// By an engine that shares words; none by one that does not.
    ///
    /// # Errors
    /// The system has no way to wait for answers.
    pub(super) fn by(
        engine: &MovesEngine,
        nodes: NodeRegions,
        options: UdpOptions,
    ) -> std::io::Result<Option<Self>> {
        let home: Box<dyn Home> = match engine {
            MovesEngine::Memory => return Ok(None),
            MovesEngine::Region(read) => Box::new(RegionHome::new(read, options)),
            MovesEngine::Etcd(config) => Box::new(EtcdHome::new(config)?),
        };
        Ok(Some(Self { home, nodes }))
    }

    fn atomic(&mut self, atomic: WordAtomic) -> MoveReply {
        match atomic.place() {
            WordPlace::Home(word) => self.home.atomic(word, atomic),
            WordPlace::Node(node) => self.nodes.atomic(node, atomic),
        }
    }
}

impl Worker {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has none.
    pub(super) fn spawn(reached: Reached) -> std::io::Result<Self> {
        let (jobs, asked) = sync_channel::<Job>(JOBS_MAX);
        let mut reached = reached;
        std::thread::Builder::new()
            .name("tidegate-moves".into())
            .spawn(move || {
                for job in asked {
                    job(&mut reached);
                }
            })?;
        Ok(Self { jobs })
    }

    /// Has the thread do something; none if it has ended.
    async fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Reached) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |reached| {
            // The asker may have gone.
            answer.send(job(reached)).ok();
        });
        self.jobs.try_send(job).ok()?;
        answered.await.ok()
    }
}

impl Words {
    /// K, and S and U of so many sites.
    ///
    /// # Errors
    /// The home did not answer, in words.
    pub(super) async fn home(&self, sites: usize, now: Timestamp) -> Result<HomeWords, String> {
        match self {
            Self::Own(words) => Ok(words.home(now)),
            Self::Shared(worker) => {
                let read = worker.ask(move |reached| reached.home.read(sites)).await;
                read.unwrap_or_else(|| Err("the thread that asks has ended".into()))
            }
        }
    }

    /// What a node's agent says; none if it does not answer, and of words in this process.
    pub(super) async fn agent(&self, node: NodeNumber) -> Option<AgentWords> {
        match self {
            Self::Own(_) => None,
            Self::Shared(worker) => {
                let read = worker.ask(move |reached| reached.nodes.agent(node)).await;
                read.flatten()
            }
        }
    }

    /// Has a node's word L say which sites numbers mean, if it holds what was read.
    pub(super) async fn set_site_list(&self, node: NodeNumber, read: u64, list: u64) {
        if let Self::Shared(worker) = self {
            // Whether it was done shows when it is read again.
            worker
                .ask(move |reached| reached.nodes.set_site_list(node, read, list))
                .await;
        }
    }

    /// Carries an atomic out, once at most.
    pub(super) async fn carry_out(&mut self, atomic: WordAtomic) -> MoveReply {
        match self {
            Self::Own(words) => words.atomic(atomic),
            Self::Shared(worker) => {
                let done = worker.ask(move |reached| reached.atomic(atomic)).await;
                done.unwrap_or(MoveReply::Lost)
            }
        }
    }
}
