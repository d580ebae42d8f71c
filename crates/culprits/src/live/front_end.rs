//! What discovery is given by the front-end that it runs in.

use std::fmt::Debug;

use tidegate_core::culprits::RequestEvent;

/// What workers say of requests.
pub trait RequestEvents: Debug + Send {
    /// Takes what there is, of each worker in its order. True if events are missing: requests may seem to never end.
    fn drain(&mut self, take: &mut dyn FnMut(RequestEvent)) -> bool;
}
