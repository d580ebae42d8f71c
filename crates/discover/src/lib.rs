//! Where nodes come from while a front-end runs: each source is asked again and again, and what it answers becomes the
//! nodes of a site by the rules of `tidegate_core::topology::discovered`.
//!
//! ```text
//! file       ┐
//! DNS        │
//! Kubernetes │
//! Consul     ┴─ Source ── answer | failure ──> WatchedSource (Discovered) ── nodes, events ──> Sink
//! ```
//!
//! Each question has a time-out and each answer a limit on its size; a source that fails is asked again after a time
//! that doubles, with jitter. Nothing that a source answers makes this crate panic. A source is one file and one line
//! in `sources.rs`.

mod backoff;
mod consul;
mod dns;
mod file;
mod http;
mod kubernetes;
mod name;
mod source;
mod sources;
mod watch;

pub use consul::ConsulConfig;
pub use dns::{DnsConfig, RecordKind};
pub use file::FileConfig;
pub use http::{Answer, ServerError, ServerUrl, Session};
pub use kubernetes::{KubernetesConfig, PortChoice};
pub use source::SourceError;
pub use sources::SourceKind;
pub use watch::{Asked, Naming, Sink, SourceConfig, WatchedSource};
