//! What discovery is given by the front-end that it runs in.

use std::fmt::Debug;
use std::time::Duration;

use tidegate_core::culprits::RequestEvent;
use tidegate_core::culprits::delay_experiment::Assignment;
use tidegate_core::throttle::{ClassPattern, SetBy, SetError, Throttle, ThrottleLimits};
use tidegate_core::time::Timestamp;

/// What workers say of requests.
pub trait RequestEvents: Debug + Send {
    /// Takes what there is, of each worker in its order. True if events are missing: requests may seem to never end.
    fn drain(&mut self, take: &mut dyn FnMut(RequestEvent)) -> bool;
}

/// The throttles of the front-end.
pub trait Throttles {
    /// All that stand.
    fn all(&self) -> Vec<Throttle>;

    /// Throttles a class from now on, or changes how it is throttled.
    ///
    /// # Errors
    /// The limits make no sense, or there are too many throttles; then nothing has changed.
    fn set(
        &self,
        pattern: ClassPattern,
        limits: ThrottleLimits,
        set_by: SetBy,
        now: Timestamp,
    ) -> Result<(), SetError>;

    /// Releases the class of this name; what its throttle has done, if there was one.
    fn release(&self, name: &str, now: Timestamp) -> Option<Throttle>;
}

/// The delay experiments of the front-end, one at a time.
pub trait DelayExperiments {
    /// From now on requests of the class are assigned, until the time is over or the result is dropped.
    ///
    /// # Errors
    /// Why the class cannot be tested.
    fn begin(
        &self,
        pattern: ClassPattern,
        delay: Duration,
        until: Timestamp,
    ) -> Result<Box<dyn Assignments>, String>;
}

/// A delay experiment that runs there. Dropping it ends it: delayed requests go on at once.
pub trait Assignments: Debug + Send {
    /// What was assigned since it was last asked, each worker's in order.
    fn take(&mut self) -> Vec<Assignment>;
}
