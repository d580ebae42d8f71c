//! `off`: everything is let in. The baseline that every other mode is measured against.

use super::{Admission, AdmissionVerdict, Priority, WaitRules};
use crate::ids::NodeId;
use crate::policy::View;
use crate::prng::Prng;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Off;

impl Admission for Off {
    fn on_request(&mut self, _: &View<'_>, _: Priority, _: &mut Prng) -> AdmissionVerdict {
        AdmissionVerdict::Admit
    }

    fn has_room(&self, _: &View<'_>, _: NodeId, _: Priority) -> bool {
        true
    }

    fn looks_further(&self) -> bool {
        false
    }

    fn waits(&self) -> Option<WaitRules> {
        None
    }
}
