//! The core against modelled clusters, in virtual time.
//!
//! * [`scenario`]: what a run consists of; [`chooser`]: what chooses the nodes in it.
//! * [`model`]: what is drawn at random: service demands, antagonists, arrivals.
//! * [`world`]: the discrete-event simulation; [`checks`]: what must hold at every step of it.
//! * [`report`]: what a run measured.
//! * [`processor`]: one emulated node's CPU, as a pure state machine. The simulator drives it
//!   in virtual time, the demo in real time.
//! * [`elephants`]: labelled scenarios for the discovery of culprits, which has a model of its own.
//! * [`shop`]: a site of two tiers whose database fills up, with admission, discovery and `automatic` together.
//! * [`moves`]: sites that share a cluster while nodes move between them, with a model of its own.
//! * [`mod@file`]: scenarios as TOML; [`matrix`]: the built-in ones, and policies compared over them.
//!
//! Inside: `node` (a node's side, with `words`), `front_end` (the core as a shell would drive it), `reads` and
//! `reader` (load records, worked out when they are wanted), `oracle` (the bound), `queue` and
//! `due` (what happens next).
//!
//! What it does not know: sockets, clocks, threads. A seed replays a run, byte for byte.

mod arrivals;
pub mod checks;
pub mod chooser;
mod counters;
mod due;
pub mod elephants;
mod fault;
pub mod file;
mod file_table;
mod front_end;
mod kernel;
pub mod lab;
pub mod matrix;
pub mod model;
pub mod moves;
mod node;
mod node_model;
mod oracle;
mod own_log;
pub mod processor;
mod queue;
mod read_class;
mod reader;
mod reads;
pub mod report;
mod requests;
pub mod scenario;
pub mod shop;
mod words;
pub mod world;
