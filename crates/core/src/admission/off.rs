//! `off`: everything is let in. The baseline that every other mode is measured against.

use super::{Admission, AdmissionVerdict, Priority};
use crate::policy::View;
use crate::prng::Prng;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Off;

impl Admission for Off {
    fn on_request(&mut self, _: &View<'_>, _: Priority, _: &mut Prng) -> AdmissionVerdict {
        AdmissionVerdict::Admit
    }
}
