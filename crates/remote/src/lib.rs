//! Remote memory: the three verbs over its transports, and the reader.
//!
//! A node publishes its load record in a [`RegionMemory`]; a front-end holds a [`Region`] on it
//! and needs three verbs: read, compare-and-swap, fetch-and-add. What carries them is the
//! transport's business, and one conformance suite (`tests/conformance.rs`) holds for all.
//!
//! ```text
//!  node                                              front-end
//!  Sampler ── publish ──> RegionMemory <── map ───── shm::ShmRegion    ┐
//!                              ▲                                       ├─ Region
//!                              ├── udp::Responder <── udp::UdpRegion   │
//!                              │         ▲                             │
//!                              │         └─────────── reader::Reader ──┼─> LoadTable
//!                              └── rdma::RdmaNode <── rdma::RdmaRegion ┘
//! ```
//!
//! This is the one crate of Tidegate with `unsafe`: mappings shared with other processes, the
//! batched socket calls that the standard library does not have, and the verbs of RDMA's library. It decides nothing: what
//! a record means is the business of `tidegate_core::load`.

pub mod allocator;
pub mod child;
pub mod clock;
pub mod inherited;
mod interface;
pub mod kernel;
mod memory;
pub mod privilege;
pub mod rdma;
pub mod reader;
pub mod realtime;
mod region;
pub mod shm;
pub mod udp;

pub use memory::{KernelWords, MODE_DEFAULT, RegionMemory, WORDS};
pub use region::{LATE_MAX, Read, Refusal, Region, RegionError};
