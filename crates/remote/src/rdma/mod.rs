//! Remote memory over RDMA, as KLM-2005 and the other papers read it: one-sided, by the card, past the node's
//! processes.
//!
//! ```text
//!  front-end                                              node
//!  RdmaRegion ── connect, over UDP, with the node's key ──> Responder ──> RdmaNode: a queue pair, keys of memory
//!      │                                                                        │ registered once
//!      └── READ, COMPARE_AND_SWAP, FETCH_AND_ADD ── cards ────────────> records (read only), words (atomics only)
//! ```
//!
//! | file | what |
//! |---|---|
//! | `abi` | structures of libibverbs |
//! | `library` | the library, loaded when asked for |
//! | [`device`](RdmaDevice) | a card by its address, opened |
//! | `fabric` | what a port is plugged into, and the way from there to a peer |
//! | `memory` | memory that a card may reach |
//! | `queue` | a queue pair and the wait for its completions |
//! | `link` | a front-end's end of a connection |
//! | [`exchange`] | what both sides say to be connected, and nothing but the bytes |
//! | [`node`](RdmaNode) | the node's side: registers two regions, keeps queue pairs |
//! | `maker` | makes the node's queue pairs, on a thread of its own |
//! | `table` | which queue pair goes when there are too many |
//! | `words` | the node's own way to words that its card serves |
//! | `mailbox` | one atomic at a time on that way |
//! | [`region`](RdmaRegion) | a front-end's handle to one node |
//!
//! **What is reachable.** Two regions of a node are registered and nothing else: the record area, for READ alone, and
//! the words, for atomics alone. A card refuses the rest, whatever a front-end asks for.
//!
//! **What lets a front-end connect.** The node's key: keys of memory and numbers of queue pairs travel over the
//! authenticated wire (`udp::wire`). They are not secret there, and RoCE itself authenticates nothing: a host that
//! sends raw frames on the same network may guess or overhear them. RDMA is for networks on which the nodes' own
//! traffic is trusted.
//!
//! **Words.** Atomics of a card need not be atomic beside those of a CPU. So where the words of a node are served over
//! RDMA, the node itself changes them by its card as well, whether an agent wants it or a datagram asks for it (`words`).

mod abi;
mod device;
pub mod exchange;
mod fabric;
mod library;
mod link;
mod mailbox;
mod maker;
mod memory;
mod node;
mod queue;
mod region;
mod table;
mod words;

pub use device::{RdmaDevice, RdmaDeviceFound, RdmaDeviceReport, RdmaPortReport};
pub(crate) use link::{Link, Standing};
pub use maker::RdmaRefusals;
pub use memory::RemoteMemory;
pub use node::{RdmaDemand, RdmaNode, RdmaNodeOptions};
pub use queue::Endpoint;
pub(crate) use queue::{Completion, Completions, QueueFailure};
pub use region::{RdmaOptions, RdmaRegion};
pub(crate) use table::RENEW_EVERY;
