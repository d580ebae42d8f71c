//! What a site wants of its nodes' health beside what requests show: a slow start, checks, soft limits. Plain data; the
//! director follows it, and a shell carries checks out.

use std::time::Duration;

use super::check::CheckConfig;
use super::soft_limits::SoftLimits;

/// How a site looks after its nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HealthConfig {
    /// How long a node that is new or back takes to get its full share; zero: it has that at once.
    pub slow_start: Duration,
    /// The same of one that has moved here from another site, if that is longer.
    pub warm_up: Duration,
    /// How its nodes are asked whether they are well, [`CHECKS_MAX`](super::CHECKS_MAX) ways at most, by
    /// [`CheckId`](super::CheckId). Without any only requests and probes show it.
    pub checks: Vec<CheckConfig>,
    /// Whether service checks that the nodes' own agents make take no node out.
    pub ignores_services: bool,
    /// From which used shares on a node gets no requests.
    pub soft_limits: SoftLimits,
}
