//! What a request may have to pass before a node is asked for: the throttle of its class, a test that delays some of
//! a class, and the queue for room.

pub(crate) mod delay;
pub(crate) mod place;
pub(crate) mod queue;
pub(crate) mod throttle;
