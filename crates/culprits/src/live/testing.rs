//! What tests of several modules have in common.

use tidegate_core::culprits::ResourceId;
use tidegate_core::time::Timestamp;

/// The first resource.
pub(super) const CPU: ResourceId = ResourceId(0);

/// So long after a test's start, which is not the clock's zero.
pub(super) fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(100_000 + millis)
}
