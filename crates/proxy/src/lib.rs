//! The data plane: HTTP/1.1 and HTTP/2 between clients and nodes, or bytes as they are, with TLS towards clients where a listener has it,
//! and towards nodes where a site has it.
//!
//! A request meets the folders in this order, and each of them once on its way in and once on its way out:
//!
//! ```text
//!  listen ───> request ─────────> gate ────────────> forward ──> upstream ──> node
//!  accept      head checks        throttle           tries       pool
//!  stage 0     site, route        delay experiment   retries     connection
//!    │         record             queue for room                     │
//!    v                                                               v
//!  linger <─── client <────────── response: head, body, tunnel; or a refusal
//! ```
//!
//! Each worker is one thread: own sockets (`SO_REUSEPORT`), own runtime, own picker, own pool of
//! upstream connections, own counters. A client connection of HTTP/1 is one task, and whatever its request
//! needs, down to the upstream connection, is polled by that task: a request is never handed
//! from task to task. Of HTTP/2 each stream is such a task, and each connection one that moves its frames. What a request holds — ticket, upstream connection, place in the books —
//! hangs on one guard, so a client that leaves takes it all along.
//!
//! What this crate does **not** know: configuration files, and which node is best
//! (the core does). It answers `404` to hosts and paths of no site, `503` when there is no room
//! or what else the site is to say then, and names every refusal in `x-tidegate-reason`; see
//! [`Reason`].
//!
//! Not passed on by HTTP/1: trailers that the `Trailer` header does not announce.

mod base;
mod config;
mod connection;
mod forward;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod gate;
mod head;
mod listen;
mod proxy;
mod record;
mod refusal;
mod request;
mod response;
mod route;
mod sockets;
mod stream;
mod tls;
mod upstream;
mod wire;
mod worker;

pub use base::{Sleep, TICK, WakeUp};
pub use config::listener::{ListenerAnswers, ListenerConfig, ListenerPlan, Protocols};
pub use config::log_fields::{LogField, LogFieldError, LogFields};
pub use config::requests::RequestConfig;
pub use config::route::{
    HeaderChanges, HedgeConfig, MirrorConfig, PathPattern, PathPatternError, RouteAction,
    RouteConditions, RouteConfig, RouteTimeouts, Template, TemplateError, Wanted,
};
pub use config::site::{
    AnswerConfig, CustomBody, LimitStatus, PriorityConfig, Quota, SessionConfig, SessionSource,
    SiteConfig,
};
pub use config::sticky::{StickyBy, StickyConfig, StickyCookie, StickySecret};
pub use config::{
    ForwardedConfig, Limits, LogConfig, LogFormat, LogTarget, Network, NetworkError, ProxyConfig,
    ProxyThread, SourceLimits, Timeouts, TraceConfig, TraceSampling,
};
pub use gate::delay::{
    Assignments, DelayExperimentCounters, DelayExperimentError, DelayExperiments,
};
pub use gate::throttle::Throttling;
pub use head::ends_unless_kept;
pub use proxy::{
    Drained, ListenerSetter, ListenersChanged, OpenedListeners, Proxy, ProxyError, WorkerFailure,
};
pub use record::hedged::Hedged;
pub use record::id::RequestId;
pub use record::log::{
    Entry, Journal, LogHealth, LogReopener, OpenedLog, Priority, Recent, check_log_file,
};
pub use record::mirrored::Mirrored;
pub use record::observed::Observed;
pub use record::reason::{Ending, Reason};
pub use record::stats::{
    HistogramSnapshot, LastError, NodeError, NodeSnapshot, STATUS_CLASSES, SiteSnapshot, Snapshot,
    Stats,
};
pub use record::traced::{TracedRequest, TracedTry};
pub use route::{is_framing, is_served};
pub use sockets::{BACKLOG, ListenerSockets, PortSharing, Ports, is_own_fault, listen_first};
pub use tls::{
    Authorities, Certificate, CertificateError, CertificateOrKeyError, Challenges,
    ClientCertificates, Handshake, HandshakeFailure, IssuedCertificate, KeyError, KeyPin, NodeTls,
    NodeTlsConfig, NodeTlsFailure, ServerTls, TlsConfig, TlsError, TlsVersion, is_ocsp_response,
    is_server_name,
};
pub use wire::proxy_header::ProxyVersion;
pub use wire::trace::{SpanId, TraceId};
pub use worker::{LoadReports, ReportCounts, ReportingNode, RequestSetter, Shared, SiteSetter};
