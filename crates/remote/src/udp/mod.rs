//! Remote memory over UDP: a keyed request and its answer, one datagram each.
//!
//! | file | what |
//! |---|---|
//! | [`wire`] | the bytes, and nothing but the bytes |
//! | [`key`](Key) | a node's key, and the MAC made with it |
//! | [`key_file`] | what stands in key files, and how a master gives nodes their keys |
//! | [`region`](UdpRegion) | a front-end's handle to one node |
//! | [`responder`](Responder) | the node's thread that answers |
//! | `initiators` | exactly-once for atomics, and how many front-ends read |
//! | `node_clock` | what a front-end knows of a node's clock |
//! | `nonces` | random numbers that name requests |
//! | `sequences` | how atomics are numbered, and what follows from their answers |
//! | `flood` | what a flood of datagrams may cost |
//! | `batch`, `socket`, `address` | many datagrams per system call |
//!
//! What an attacker without the node's key gets: nothing, not even an answer. With a recorded request:
//! a read again, sent to its sender, never longer than the request; an atomic never again
//! (see `initiators`). Records are authentic and fresh, but not secret. A node has its own key only: one
//! that is captured can answer for itself and for no other.

pub(crate) mod address;
pub(crate) mod batch;
mod flood;
pub(crate) mod initiators;
mod key;
pub mod key_file;
pub(crate) mod node_clock;
pub(crate) mod nonces;
mod region;
mod responder;
pub(crate) mod sequences;
pub(crate) mod socket;
pub mod wire;

pub use address::{Network, NetworkError};
pub use key::Key;
pub(crate) use region::{Granted, Offered};
pub use region::{UdpOptions, UdpRegion};
pub use responder::{
    BeforeRead, CarryOut, Connect, REALTIME_SHARE, Responder, ResponderOptions, ResponderStats,
};
