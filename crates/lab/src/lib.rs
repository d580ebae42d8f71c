//! A cluster in a box: emulated nodes on one machine, load, the peers, and the experiments that
//! every statement about Tidegate rests on.
//!
//! ```text
//!  experiments ──> cluster: nodes (namespace, CPU quota, server, agents, antagonists)
//!       │     └──> front: Tidegate or a peer, before these nodes
//!       │     └──> load: open or closed loop, from recorded or drawn arrivals
//!       └──> results: numbers with their ranges, plots, verdicts, beside the papers' figures
//! ```
//!
//! What it does not know: how a node is chosen. It runs the product as its users run it.

pub mod antagonist;
pub mod auction;
pub mod awake;
pub mod cluster;
pub mod experiments;
pub mod front;
pub mod gather;
pub mod load;
pub mod monitor;
pub mod progress;
pub mod rdma_points;
pub mod results;
pub mod server;
