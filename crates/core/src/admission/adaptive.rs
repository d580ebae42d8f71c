//! `adaptive`: a server takes what it can use, and what it cannot waits a little or is refused.
//! The picker's part: the limits are the director's, see [`super::control`].
//!
//! ```text
//! room at a node   own in flight < limit * (1 + 0.15 * classes below)
//!                  a known session counts as half a class above its own
//! ```
//!
//! Classes are nested limits: when the lowest finds no room, the next higher still does. So the
//! lowest is refused first and no higher one because of it. The step is more than what comes in
//! between two looks at the limit.
//!
//! Source: facts/admission.md, "Classes".

use super::{Admission, Class, Verdict};
use crate::policy::View;
use crate::topology::NodeId;

/// What a class has beyond the next lower one, as a part of the limit.
const STEP: f32 = 0.15;

/// See the module.
#[derive(Debug)]
pub(super) struct Adaptive {
    classes: u8,
}

impl Adaptive {
    /// For a site with so many classes.
    pub(super) fn new(classes: u8) -> Self {
        Self { classes }
    }
}

impl Admission for Adaptive {
    fn on_request(&mut self, _: &View<'_>, _: Class) -> Verdict {
        Verdict::Admit
    }

    fn has_room(&self, view: &View<'_>, node: NodeId, class: Class) -> bool {
        let lowest = self.classes.saturating_sub(1);
        let below = f32::from(lowest.saturating_sub(class.number));
        let half = if class.known { 0.5 } else { 0.0 };
        let limit = view.table.limit(node) * (1.0 + STEP * (below + half));
        (view.table.in_flight(node) as f32) < limit
    }

    fn looks_further(&self) -> bool {
        true
    }

    fn queues(&self) -> bool {
        true
    }
}
