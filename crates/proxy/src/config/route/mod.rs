//! What a site does with some of its requests before its policy is asked. Plain values; `crate::route` follows them.

pub(crate) mod path;
pub(crate) mod template;

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode};

use super::site::CustomBody;
pub use path::{PathPattern, PathPatternError};
pub use template::{Template, TemplateError};

/// One route: which requests are its own, and what becomes of them.
#[derive(Clone, Debug)]
pub struct RouteConfig {
    /// Which requests; all conditions must hold.
    pub conditions: RouteConditions,
    /// What becomes of them.
    pub action: RouteAction,
    /// What changes in the heads that nodes get.
    pub request_headers: HeaderChanges,
    /// What changes in the heads that clients get: nodes' answers, and those of the route itself.
    pub response_headers: HeaderChanges,
    /// Time-outs of its own.
    pub timeouts: RouteTimeouts,
    /// In place of its site's [`retry_on`](super::site::SiteConfig::retry_on), where it is set.
    pub retry_on: Option<Vec<u16>>,
    /// Another site that gets copies of some of them; none: none does.
    pub mirror: Option<MirrorConfig>,
    /// When a second node is asked for one of them; none: never.
    pub hedge: Option<HedgeConfig>,
}

/// When a second node is asked for a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HedgeConfig {
    /// The first node has had it for so long, and no head of an answer has come.
    pub after: Duration,
    /// Second nodes per request, 0 to 1.
    pub most: f64,
}

/// Which requests another site gets copies of.
#[derive(Clone, Debug, PartialEq)]
pub struct MirrorConfig {
    /// The site's name.
    pub to: String,
    /// So many of them all, 0 to 1, at random.
    pub share: f64,
}

impl RouteConfig {
    /// Whether more than one node may have one of its requests, at a time.
    pub(crate) fn asks_more(&self) -> bool {
        self.mirror.is_some() || self.hedge.is_some()
    }

    /// The body of its answer.
    pub(crate) fn body(&self) -> Option<&CustomBody> {
        match &self.action {
            RouteAction::Answer { body, .. } => body.as_ref(),
            RouteAction::Forward { .. } | RouteAction::Redirect { .. } => None,
        }
    }
}

/// Which requests a route is for. Without any condition: all.
#[derive(Clone, Debug, Default)]
pub struct RouteConditions {
    /// One of these hosts, in lower case and without a port; none: any.
    pub hosts: Vec<String>,
    /// A path like this.
    pub path: Option<PathPattern>,
    /// One of these methods; none: any.
    pub methods: Vec<Method>,
    /// All of these fields.
    pub headers: Vec<(HeaderName, Wanted)>,
    /// All of these names in the query.
    pub query: Vec<(String, Wanted)>,
}

/// What a field or a name of the query must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Anything.
    Any,
    /// This value.
    Value(String),
}

/// What becomes of a route's requests.
#[derive(Clone, Debug)]
pub enum RouteAction {
    /// They go to a node, by another path if there is one.
    Forward {
        /// The path; none: as it is.
        rewrite: Option<Template>,
    },
    /// They are answered at once.
    Answer {
        /// With this status.
        status: StatusCode,
        /// And this body; none: none.
        body: Option<CustomBody>,
    },
    /// They are sent elsewhere.
    Redirect {
        /// With this status.
        status: StatusCode,
        /// There.
        to: Template,
    },
}

/// Time-outs in place of those that hold for all requests ([`Timeouts`](crate::Timeouts)), each where it is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteTimeouts {
    /// In place of `Timeouts::total`.
    pub total: Option<Duration>,
    /// The longest wait for room at a node, where the site's admission does not end it earlier: 503.
    pub queue: Option<Duration>,
    /// In place of `Timeouts::connect`.
    pub connect: Option<Duration>,
    /// In place of `Timeouts::response_head`.
    pub response_head: Option<Duration>,
    /// In place of `Timeouts::body_idle`.
    pub body_idle: Option<Duration>,
    /// In place of `Timeouts::request_body`.
    pub request_body: Option<Duration>,
    /// In place of `Timeouts::response_body`.
    pub response_body: Option<Duration>,
    /// In place of `Timeouts::tunnel_idle`.
    pub tunnel_idle: Option<Duration>,
}

impl RouteTimeouts {
    /// Whether none is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What changes in a head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderChanges {
    /// Fields that go.
    pub remove: Vec<HeaderName>,
    /// Fields that are set, in place of all of their names.
    pub set: Vec<(HeaderName, HeaderValue)>,
}
