//! `off`: everything is let in. The baseline that every other mode is measured against.

use super::{Admission, Verdict};
use crate::policy::View;
use crate::time::Timestamp;

/// See the module.
#[derive(Debug)]
pub(super) struct Off;

impl Admission for Off {
    fn on_accept(&mut self, _: Timestamp) -> Verdict {
        Verdict::Admit
    }

    fn on_request(&mut self, _: &View<'_>) -> Verdict {
        Verdict::Admit
    }

    fn on_end(&mut self, _: Timestamp) {}
}
