//! `adaptive`: a server takes what it can use, and what it cannot waits a little or is refused.
//! The picker's part: the limits are the director's, see [`super::control`].
//!
//! ```text
//! room at a node   own in flight < limit * (1 + 0.15 * classes below)
//! ```
//!
//! Classes are nested limits: when the lowest finds no room, the next higher still does. So the
//! lowest is refused first and no higher one because of it. The step is more than what comes in
//! between two looks at the limit.
//!
//! Source: the admission study, "Classes".

use std::time::Duration;

use super::{Admission, Class, Verdict, WaitRules};
use crate::policy::View;
use crate::prng::Prng;
use crate::topology::NodeId;

/// What a class has beyond the next lower one, as a part of the limit.
const STEP: f32 = 0.15;

/// See the module.
#[derive(Debug)]
pub(super) struct Adaptive {
    classes: u8,
    slo: Duration,
}

impl Adaptive {
    /// For a site with so many classes whose answers are wanted within `slo`.
    pub(super) fn new(classes: u8, slo: Duration) -> Self {
        Self { classes, slo }
    }
}

impl Admission for Adaptive {
    fn on_request(&mut self, _: &View<'_>, _: Class, _: &mut Prng) -> Verdict {
        Verdict::Admit
    }

    fn has_room(&self, view: &View<'_>, node: NodeId, class: Class) -> bool {
        let below = self.classes.saturating_sub(1).saturating_sub(class.0);
        let limit = view.table.limit(node) * (1.0 + STEP * f32::from(below));
        (view.table.in_flight(node) as f32) < limit
    }

    fn looks_further(&self) -> bool {
        true
    }

    fn waits(&self) -> Option<WaitRules> {
        Some(WaitRules::within(self.slo))
    }
}
