//! Settings of one site, besides what the topology says. Plain values.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderName;
use tidegate_core::retry_budget::RetryConfig;

use super::route::RouteConfig;
use super::sticky::{StickyBy, StickyConfig, StickySecret};
use crate::tls::NodeTls;
use crate::wire::proxy_header::ProxyVersion;

/// One site.
#[derive(Clone, Debug, Default)]
pub struct SiteConfig {
    /// What becomes of some of its requests; the first that fits counts.
    pub routes: Arc<[RouteConfig]>,
    /// How refused requests are answered.
    pub answers: AnswerConfig,
    /// Which priority a request has.
    pub priorities: PriorityConfig,
    /// What names a user session; none: all requests count as those of new ones.
    pub sessions: Option<SessionConfig>,
    /// How many requests may be tried again, in all workers together.
    pub retry: RetryConfig,
    /// Statuses of answers in place of which another node is asked, while that may be done: 400 to 599.
    pub retry_on: Vec<u16>,
    /// What its sessions are known by that stick to their nodes; none: none do.
    pub sticky: Option<StickyConfig>,
    /// Its nodes report their load in the header `endpoint-load-metrics`. The header is read, and
    /// not passed on.
    pub load_header: bool,
    /// How TLS is spoken with its nodes; none: they are asked in the clear.
    pub node_tls: Option<Arc<NodeTls>>,
    /// Whether HTTP/2 is spoken with its nodes, from the first byte or as TLS agrees on it; else HTTP/1.1.
    pub node_http2: bool,
    /// The header of the PROXY protocol that connections to its nodes begin with; none: they begin with none.
    pub node_proxy_protocol: Option<ProxyVersion>,
    /// Connections are passed on to its nodes as they are: whether a node is there, a connection says.
    pub is_tcp: bool,
}

impl SiteConfig {
    /// The bodies of answers that are not nodes'.
    pub fn bodies(&self) -> impl Iterator<Item = &CustomBody> {
        let of_routes = self.routes.iter().filter_map(RouteConfig::body);
        self.answers.body.iter().chain(of_routes)
    }

    /// What the values of its sessions' cookies are made with.
    pub fn sticky_secrets(&self) -> &[StickySecret] {
        match self.sticky.as_ref().map(|sticky| &sticky.by) {
            Some(StickyBy::Cookie(cookie)) => &cookie.secrets,
            Some(StickyBy::Source | StickyBy::Header(_)) | None => &[],
        }
    }
}

/// How refused requests are answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerConfig {
    /// The status if a limit of the site's own was reached.
    pub limit_status: LimitStatus,
    /// After so many seconds a refused client may come again; each answer draws one of these.
    pub retry_after: RangeInclusive<u32>,
    /// What answers say of the limit, if it is one of requests.
    pub quota: Option<Quota>,
    /// The body of what admission refuses; none: the reason in words.
    pub body: Option<CustomBody>,
}

impl Default for AnswerConfig {
    fn default() -> Self {
        Self {
            limit_status: LimitStatus::default(),
            retry_after: 1..=3,
            quota: None,
            body: None,
        }
    }
}

/// Which side is to blame when a limit of the site's own is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitStatus {
    /// The site has no room: 503.
    #[default]
    ServiceUnavailable,
    /// The client asks too much: 429.
    TooManyRequests,
}

/// A limit on requests in flight, as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Its name: printable ASCII without quotes and backslashes.
    pub name: String,
    /// Requests in flight.
    pub requests: u64,
}

/// A body of the operator's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomBody {
    /// Its type.
    pub content_type: &'static str,
    /// Its bytes.
    pub bytes: Bytes,
}

impl CustomBody {
    /// Most bytes.
    pub const BYTES_MAX: usize = 64 << 10;
    /// Types by the file's extension.
    pub const TYPES: &'static [(&'static str, &'static str)] = &[
        ("html", "text/html; charset=utf-8"),
        ("json", "application/json"),
        ("txt", "text/plain; charset=utf-8"),
    ];
}

/// Which priority a request has: by its path, a header, a cookie, and else the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorityConfig {
    /// The header that tells it.
    pub header: Option<HeaderName>,
    /// The cookie that tells it.
    pub cookie: Option<String>,
    /// What header or cookie may say, and the priorities that this means. Empty: it is the number itself.
    pub values: Vec<(String, u8)>,
    /// Path prefixes that tell it, on segment boundaries; the longest counts.
    pub paths: Vec<(String, u8)>,
    /// If nothing tells it; none: the lowest.
    pub default: Option<u8>,
}

impl PriorityConfig {
    /// The header by default.
    pub const HEADER: HeaderName = HeaderName::from_static("x-tidegate-priority");
}

impl Default for PriorityConfig {
    fn default() -> Self {
        Self {
            header: Some(Self::HEADER),
            cookie: None,
            values: Vec::new(),
            paths: Vec::new(),
            default: None,
        }
    }
}

/// What names a user session, and how long one is established after a request of it was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// Where a session has its name.
    pub source: SessionSource,
    /// How long it is established.
    pub window: Duration,
}

/// Where a session has its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionSource {
    /// In this header.
    Header(HeaderName),
    /// In this cookie.
    Cookie(String),
}
