//! Sites that share a cluster while nodes move between them: the core's own front-ends over shared words, in virtual time.
//!
//! ```text
//! Load ──> site ──> its node with the least in flight per CPU ──> CPUs ──> answer
//!                        │ runnable tasks
//!                        └──> Movers, each S ──> words ──> which node is of which site
//! ```
//!
//! * [`scenario`]: what a run consists of. * [`report`]: what it came to. * `cluster`: nodes and requests. * `fronts`: front-ends, and
//!   what goes wrong with them. * `world`: what happens when.
//!
//! Demands are exponential and CPUs are shared, so what is left of a request's demand does not depend on what it has had: the next
//! answer comes from each busy CPU at the same rate. That makes a day of a cluster a matter of seconds, and is exact.
//! Source: Reconfiguration-2004, section 4: its bursts, its rigid and over-provisioned clusters.
//!
//! Known to be unlike real clusters: loads are read without delay, a node serves its new site at once and what it has of the old
//! one to the end, requests have no latencies of their own, and caches do not exist.

mod cluster;
mod fronts;
pub mod report;
pub mod scenario;
mod world;

pub use report::MovesReport;
pub use scenario::{Arm, Faults, Load, MovesError, MovesScenario, Rule};
pub use world::run;
