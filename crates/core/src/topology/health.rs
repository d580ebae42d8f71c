//! What a site wants of its nodes' health beside what requests show: a slow start, checks, soft limits. Plain data; the
//! director follows it, and a shell carries checks out.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::soft_limits::SoftLimits;

/// How a site looks after its nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HealthConfig {
    /// How long a node that is new or back takes to get its full share; zero: it has that at once.
    pub slow_start: Duration,
    /// The same of one that has moved here from another site, if that is longer.
    pub warm_up: Duration,
    /// How its nodes are asked whether they are well; none: only requests and probes tell.
    pub check: Option<CheckConfig>,
    /// From which used shares on a node gets no requests.
    pub soft_limits: SoftLimits,
}

/// How nodes are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckConfig {
    /// What is asked.
    pub request: CheckRequest,
    /// Another port than that of requests.
    pub port: Option<u16>,
    /// Time between two checks of a node.
    pub interval: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Checks in a row that bring a node back.
    pub rise: u32,
    /// Checks in a row that take a node out.
    pub fall: u32,
}

/// What a check asks a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckRequest {
    /// Whether it accepts a connection.
    Tcp,
    /// What it answers.
    Http(HttpCheck),
}

/// A request whose answer says how a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpCheck {
    /// GET or HEAD.
    pub method: CheckMethod,
    /// Path and query.
    pub path: String,
    /// The host that is asked for; none: one of the site's.
    pub host: Option<String>,
    /// Statuses of a node that is well.
    pub statuses: Vec<RangeInclusive<u16>>,
    /// What must be in the body.
    pub body: Option<String>,
}

/// How a check asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckMethod {
    /// With a body in the answer.
    #[default]
    Get,
    /// Without one.
    Head,
}

impl CheckMethod {
    /// Every method with its name.
    pub const ALL: &'static [(Self, &'static str)] = &[(Self::Get, "GET"), (Self::Head, "HEAD")];

    /// Its name in a request.
    pub fn label(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
        }
    }
}

impl HttpCheck {
    /// Whether a node that answers so is well, as far as the status says.
    pub fn takes(&self, status: u16) -> bool {
        self.statuses.iter().any(|range| range.contains(&status))
    }
}

/// What became of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// The node is well.
    Passed,
    /// It is not.
    Failed(CheckFailure),
}

/// What is wrong with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckFailure {
    /// There was no connection.
    Connect,
    /// Nothing came in time.
    Timeout,
    /// The connection broke off.
    Broken,
    /// What came is no HTTP, or too long.
    Malformed,
    /// The status is none of those that are wanted.
    Status(u16),
    /// The body does not have what is wanted.
    Body,
}

impl CheckFailure {
    /// Its name in the API and the metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Broken => "broken",
            Self::Malformed => "malformed",
            Self::Status(_) => "status",
            Self::Body => "body",
        }
    }
}
