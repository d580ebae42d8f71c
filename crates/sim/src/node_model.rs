//! What a node of a scenario is like, and how its load can be read. Plain data.

use std::time::Duration;

use tidegate_core::load::Rung;
use tidegate_core::record::Sources;
use tidegate_core::topology::SiteId;

use crate::counters::Scope;
use crate::file_table::FileTable;
use crate::kernel::Kernel;
use crate::model::Antagonist;
use crate::processor::Overload;

/// One modelled node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeModel {
    /// The site that it serves.
    pub site: SiteId,
    /// CPUs, or the CPU quota: fractions are allowed.
    pub cores: f64,
    /// CPUs that its records claim, where the node may burst past what it was given.
    pub allocation: Option<f64>,
    /// Speed of each CPU, relative to the one that demands are measured on. No record shows it.
    pub speed: f64,
    /// Its weight in the configuration.
    pub weight: f32,
    /// What else runs there.
    pub antagonist: Option<Antagonist>,
    /// How its one CPU is shared out, where a kernel is modelled; none: evenly. Such a node has no antagonist,
    /// no host's mates and does not change its speed.
    pub kernel: Option<Kernel>,
    /// The host that it is on, if it shares its CPUs with the other nodes of the same number; a record of
    /// the whole node is then of the whole host. Such nodes have no antagonist.
    pub host: Option<u32>,
    /// Requests that can wait for IO at once; others queue, first come first served. None: all.
    pub io_channels: Option<u32>,
    /// An IO takes so many times what it takes elsewhere.
    pub io_slowness: f64,
    /// Requests in flight beyond which it refuses with a server error. None: no limit.
    pub limit: Option<u32>,
    /// Requests that it works on at once; others wait to be accepted, first come first served.
    /// None: all.
    pub workers: Option<u32>,
    /// Its file descriptors, which its records then show; none: it never runs out of them.
    pub files: Option<FileTable>,
    /// What a crowd costs.
    pub overload: Overload,
    /// What the first request after a pause costs.
    pub cold: Option<Cold>,
    /// What its requests cost until its caches are full; at the start of a run they are.
    pub warming: Option<Warming>,
    /// How its load is read; none: not at all.
    pub records: Option<Records>,
    /// Whether its answers carry requests in flight and latency in a header (ORCA), which is
    /// the probe path that policies have beside records.
    pub reports: bool,
}

impl NodeModel {
    /// A node of `cores` CPUs of speed 1 for site 0, alone, without IO limits, with records
    /// made at each read.
    pub fn new(cores: f64) -> Self {
        Self {
            site: SiteId(0),
            cores,
            allocation: None,
            speed: 1.0,
            weight: 1.0,
            antagonist: None,
            kernel: None,
            host: None,
            io_channels: None,
            io_slowness: 1.0,
            limit: None,
            workers: None,
            files: None,
            overload: Overload::default(),
            cold: None,
            warming: None,
            records: Some(Records::default()),
            reports: false,
        }
    }

    /// What it can do beside its antagonists on the average, seconds of demand per second.
    pub fn capacity(&self) -> f64 {
        let taken = self.antagonist.map_or(0.0, |antagonist| {
            antagonist.duty * f64::from(antagonist.tasks).min(self.cores)
        });
        (self.cores - taken) * self.speed
    }
}

/// A node that had nothing to do has cold caches and connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cold {
    /// It is cold after so long without a request.
    pub after: Duration,
    /// CPU time that the next request costs more.
    pub extra: Duration,
}

/// Caches of a node that starts, or comes back to its cluster, fill with its requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Warming {
    /// How many times the demand the first request costs.
    pub times: f64,
    /// After so many requests the rest of the way is a third of what it was.
    pub requests: f64,
}

impl Warming {
    /// What a request costs after so many, in times of its demand.
    pub fn cost(&self, served: f64) -> f64 {
        1.0 + (self.times - 1.0) * (-served / self.requests).exp()
    }
}

/// How a node's load is read: what tells the rungs apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Records {
    /// The rung that records name. It also says how CPU time was counted.
    pub rung: Rung,
    /// Each front-end reads this often.
    pub interval: Duration,
    /// The node renews its record this often; zero: it is made at each read.
    pub published: Duration,
    /// A record is this much older than it would have to be (a relay, a cache); it says so.
    pub age: Duration,
    /// One-way delay of reads, beside the network's.
    pub delay: Duration,
    /// Chance of a read to be lost, 0 to 1.
    pub loss: f64,
    /// Whether it counts requests in flight and completions.
    pub in_flight: bool,
    /// What it sees.
    pub scope: Scope,
    /// What answers.
    pub answer: Answer,
}

impl Default for Records {
    /// A kernel-level read each millisecond, of the whole node, never lost.
    fn default() -> Self {
        Self {
            rung: Rung::XdpNative,
            interval: Duration::from_millis(1),
            published: Duration::ZERO,
            age: Duration::ZERO,
            delay: Duration::ZERO,
            loss: 0.0,
            in_flight: true,
            scope: Scope::Host,
            answer: Answer::Kernel,
        }
    }
}

impl Records {
    /// Which fields of the record are measured.
    pub fn sources(&self) -> Sources {
        let busy = match self.rung {
            Rung::XdpNative | Rung::XdpGeneric | Rung::Tc | Rung::KernelRecord => {
                Sources::BUSY_SWITCH
            }
            Rung::AgentRealtime | Rung::Agent | Rung::SharedMemory | Rung::Rdma => {
                Sources::BUSY_ACCT
            }
            Rung::Snmp | Rung::Orca | Rung::AgentCheck | Rung::None => Sources::BUSY_TICK,
        };
        let run_queue = busy
            .with(Sources::RUNNABLE)
            .with(Sources::RUNNABLE_INTEGRAL);
        let run_queue = run_queue.with(Sources::ACCEPT_INTEGRAL);
        if self.in_flight {
            run_queue
                .with(Sources::IN_FLIGHT)
                .with(Sources::COMPLETIONS)
        } else {
            run_queue
        }
    }
}

/// What answers a read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Answer {
    /// The kernel or the network card: at once, however busy the node is.
    #[default]
    Kernel,
    /// A user process, which waits for a CPU first: exponential, on the average one time slice
    /// for each task ahead of it per CPU. The record is made when it runs.
    Process {
        /// The scheduler's time slice.
        slice: Duration,
    },
}
