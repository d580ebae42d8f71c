//! `adaptive`: a server takes what it can use, and what it cannot waits a little or is refused.
//! The picker's part: the limits are the director's, see [`super::control`].
//!
//! ```text
//! room at a node   own in flight, but for throttled ones < the limit of the request's rank
//! ```
//!
//! Priorities are nested limits: when the lowest finds no room, the next higher still does. So the
//! lowest is refused first and no higher one because of it. The step is more than what comes in
//! between two looks at the limit.
//!
//! Source: the admission study, "Priorities".

use std::time::Duration;

use super::{Admission, AdmissionConfig, AdmissionVerdict, Priority, Rank, WaitRules};
use crate::ids::NodeId;
use crate::policy::View;
use crate::prng::Prng;

/// See the module.
#[derive(Debug)]
pub(super) struct Adaptive {
    slo: Duration,
}

impl Adaptive {
    pub(super) fn new(config: &AdmissionConfig) -> Self {
        Self { slo: config.slo }
    }
}

impl Admission for Adaptive {
    fn on_request(&mut self, _: &View<'_>, _: Priority, _: &mut Prng) -> AdmissionVerdict {
        AdmissionVerdict::Admit
    }

    fn has_room(&self, view: &View<'_>, node: NodeId, priority: Priority) -> bool {
        let limit = view.table.limit(node, Rank::of(priority));
        (view.table.in_slots(node) as f32) < limit
    }

    fn looks_further(&self) -> bool {
        true
    }

    fn waits(&self) -> Option<WaitRules> {
        Some(WaitRules::within(self.slo))
    }
}
