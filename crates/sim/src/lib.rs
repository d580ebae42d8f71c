//! The core against modelled clusters, in virtual time.
//!
//! * [`processor`]: one emulated node's CPU, as a pure state machine. The simulator drives it
//!   in virtual time, the demo in real time.
//! * [`model`]: what is drawn at random: service demands, antagonists, arrivals.
//! * [`scenario`]: what a run consists of; [`chooser`]: who chooses the nodes in it.
//! * [`file`]: scenarios as TOML; [`matrix`]: the built-in ones, and policies compared over them.
//! * [`world`]: the discrete-event simulation: nodes, front-ends, the network between them.
//! * [`report`]: what a run measured.
//!
//! What it does not know: sockets, clocks, threads. A seed replays a run, byte for byte.

pub mod chooser;
mod fault;
pub mod file;
pub mod matrix;
pub mod model;
mod node_model;
pub mod processor;
pub mod report;
pub mod scenario;
pub mod world;
