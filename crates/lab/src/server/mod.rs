//! The test server: a known amount of work per request.
//!
//! ```text
//! GET /work?cpu=1500us&mem=64KiB&sleep=5ms&bytes=1024&fds=3&file=17     see `work`
//! GET /item/17    x-lab-work: cpu=1500us                               the same, at any path
//! GET /slow?times=3                                                    see `slowdown`
//! GET /health
//!
//!  connections ──> IO thread (hyper) ──queue, bounded──> workers: OS threads that burn CPU
//!                       ▲ 503 when full                        │
//!                       └──────────── answers ─────────────────┘
//! ```
//!
//! A worker stands for a process of a prefork server: it has one request at a time, so the
//! kernel's run queue of the node is as long as that server's would be. CPU time is burnt
//! until the worker's own CPU clock has advanced by it, so a request costs the same however
//! many others compete. [`tidegate_emulator`] has the same server with CPUs that are computed. What the IO thread costs comes on top, in the same control group.

mod calls;
mod real;
mod workers;

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use tidegate_core::units::parse_duration;

pub use calls::{CALL, CallsArgs, run_calls};
use tidegate_emulator::CachePlan;
pub use tidegate_emulator::{CACHE_HEADER, TOOK_HEADER, WORK_HEADER, Work, WorkError};

/// Options of the hidden `tidegate-lab serve`.
#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// Where it listens.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Requests that are worked on at once.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=512))]
    pub workers: u32,
    /// Requests that may wait; beyond, 503.
    #[arg(long, value_name = "N", default_value_t = 4096)]
    pub queue: usize,
    /// File descriptors that it may have open; as many as the system allows by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(32..))]
    pub files: Option<u64>,
    /// Files that the cache holds.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub cache_files: u32,
    /// CPU time of a request for a file in the cache.
    #[arg(long, value_name = "DURATION", default_value = "0us", value_parser = parse_duration)]
    pub cache_hit: Duration,
    /// CPU time of a request for a file that is not.
    #[arg(long, value_name = "DURATION", default_value = "0us", value_parser = parse_duration)]
    pub cache_miss: Duration,
}

impl ServeArgs {
    fn cache(&self) -> CachePlan {
        CachePlan {
            files: self.cache_files,
            hit: self.cache_hit,
            miss: self.cache_miss,
        }
    }
}

/// Why the server does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// Threads or the runtime.
    #[error("cannot start: {0}")]
    Start(#[from] std::io::Error),
}

/// Serves until the process is killed.
pub fn run(args: &ServeArgs) -> Result<(), ServeError> {
    real::run(args)
}
