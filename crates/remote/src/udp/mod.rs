//! Remote memory over UDP: a keyed request and its answer, one datagram each.
//!
//! | file | what |
//! |---|---|
//! | [`wire`] | the bytes, and nothing but the bytes |
//! | [`key`](Key) | the shared secret and its MAC |
//! | [`region`](UdpRegion) | a front-end's handle to one node |
//! | [`responder`](Responder) | the node's thread that answers |
//! | `initiators` | exactly-once for atomics, and how many front-ends read |
//! | `nonces` | random numbers that name requests |
//! | `batch`, `socket`, `address` | many datagrams per system call |
//!
//! What an attacker without the key gets: nothing, not even an answer. With a recorded request:
//! a read again, sent to whoever sent it, never longer than the request; an atomic never again
//! (see `initiators`). Records are authentic and fresh, but not secret.

pub(crate) mod address;
pub(crate) mod batch;
pub(crate) mod initiators;
mod key;
pub(crate) mod nonces;
mod region;
mod responder;
pub(crate) mod socket;
pub mod wire;

pub use address::{Network, NetworkError};
pub use key::{Key, KeyError};
pub use region::{UdpOptions, UdpRegion};
pub use responder::{BeforeRead, Responder, ResponderOptions, ResponderStats};
