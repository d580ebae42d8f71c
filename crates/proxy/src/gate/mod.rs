//! What a request may have to pass before a node is asked for: the throttle of its class, an experiment that delays some of
//! a class, and the queue for room.

use http::Method;
use tidegate_core::topology::SiteId;

pub(crate) mod delay;
pub(crate) mod place;
pub(crate) mod queue;
pub(crate) mod source;
pub(crate) mod throttle;

/// What of a request says whether it is of a class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestTarget<'a> {
    pub(crate) site: SiteId,
    pub(crate) method: &'a Method,
    /// Path and query.
    pub(crate) target: &'a str,
}
