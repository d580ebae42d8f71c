//! Emulated nodes and what it takes to load them, in one process: the ground of `tidegate demo` and of the lab's
//! loopback mode.
//!
//! ```text
//! GET /work?cpu=1500us&mem=64KiB&sleep=5ms&bytes=1024&fds=3&file=17     see `server::work`
//! GET /item/17    x-lab-work: cpu=1500us                               the same, at any path
//! GET /slow?times=3                                                    see `server::slowdown`
//! GET /health
//! ```
//!
//! `nodes` answers these with CPUs that are computed, and publishes load records as an agent does; the lab has a
//! server of its own that burns CPU, made of the same parts.
//!
//! What it does not know: front-ends, and how a node is chosen.

pub mod antagonist;
pub mod load;
pub mod nodes;
pub mod server;

pub use server::cache::CachePlan;
pub use server::http::{CACHE_HEADER, TOOK_HEADER, WORK_HEADER};
pub use server::work::{Work, WorkError};

/// Memory of a usual node, where the machine can limit it: enough for its server, and so little
/// that an antagonist of some hundred MiB is felt.
pub const NODE_MEMORY: u64 = 512 << 20;
