//! What a site does with some of its requests before its policy is asked. Plain values; `crate::route` follows them.

pub(crate) mod path;
pub(crate) mod template;

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
}

impl RouteConfig {
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

/// What changes in a head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderChanges {
    /// Fields that go.
    pub remove: Vec<HeaderName>,
    /// Fields that are set, in place of all of their names.
    pub set: Vec<(HeaderName, HeaderValue)>,
}
