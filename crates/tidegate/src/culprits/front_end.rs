//! What discovery is given of this front-end.

use tidegate_core::culprits::RequestEvent;
use tidegate_culprits::live::front_end::RequestEvents;
use tidegate_proxy::Observed;

/// What the proxy's workers say of requests.
#[derive(Debug)]
pub(super) struct Events(pub(super) Observed);

impl RequestEvents for Events {
    fn drain(&mut self, take: &mut dyn FnMut(RequestEvent)) -> bool {
        self.0.drain(take)
    }
}
