//! The data plane: plain HTTP/1.1 between clients and nodes.
//!
//! ```text
//!  accept ── stage 0 ──> head checks ──> route ──> throttle ──> picker ──> pool / connect ──> response head
//!    │ refuse: 503          │ 400…           │ 404     │ 429        │ 503          │ retry │ 502, 504  │
//!    v                      v                v         v            v              v       v           v
//!  linger                 answer           answer    answer       answer         another node     body, log, books
//! ```
//!
//! Each worker is one thread: own sockets (`SO_REUSEPORT`), own runtime, own picker, own pool of
//! upstream connections, own counters. A client connection is one task, and whatever its request
//! needs, down to the upstream connection, is polled by that task: a request is never handed
//! from task to task. What a request holds — ticket, upstream connection, place in the books —
//! hangs on one guard, so a client that leaves takes it all along.
//!
//! What this crate does **not** know: TLS, HTTP/2, configuration files, and which node is best
//! (the core does). It answers `404` to hosts and paths of no site, `503` when there is no room
//! or what else the site is to say then, and names every refusal in `x-tidegate-reason`; see
//! [`Reason`].
//!
//! Not passed on: informational responses other than `101` and the `100` that a request asked
//! for, so `103 Early Hints` ends here; trailers that the `Trailer` header does not announce.

mod accept;
mod answers;
mod bell;
mod body;
mod chunks;
mod classify;
mod closing;
mod config;
mod cookie;
mod deliver;
mod departure;
mod dithering;
mod exchange;
mod forward;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod gate;
mod grpc;
mod head;
mod head_end;
mod inflow;
mod interim;
mod io;
mod linger;
mod log;
mod marking;
mod observed;
mod orca;
mod pacing;
mod place;
mod proxy;
mod reason;
mod refuse;
mod respond;
mod retry;
mod seats;
mod serve;
mod session;
mod site;
mod sockets;
mod stats;
mod throttling;
mod tunnel;
mod upstream;
mod waiting;
mod worker;

pub use config::{
    ForwardedConfig, Limits, ListenerConfig, LogConfig, LogFormat, LogTarget, Network,
    NetworkError, ProxyConfig, ProxyThread, Timeouts,
};
pub use dithering::{DitherCounters, DitherError, Dithering, Tosses};
pub use forward::is_own_fault;
pub use head::ends_unless_kept;
pub use log::Recent;
pub use observed::{Event, Observed, Words};
pub use proxy::{Drained, Proxy, ProxyError, Shared, WorkerFailure};
pub use reason::{Ending, Reason};
pub use site::{
    AnswerConfig, ClassConfig, CustomBody, LimitStatus, Quota, SessionConfig, SessionSource,
    SiteConfig,
};
pub use sockets::{PortSharing, Ports, listen_first};
pub use stats::{
    CLASSES, HistogramSnapshot, LastError, NodeError, NodeSnapshot, SiteSnapshot, Snapshot, Stats,
};
pub use throttling::Throttling;
pub use worker::TICK;
