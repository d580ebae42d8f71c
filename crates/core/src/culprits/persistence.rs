//! What the operator sees named: what two of the last three evaluations name.
//!
//! A single evaluation meets a coincidence now and then; the same one twice within three is rare.
//!
//! Inputs: what each evaluation names. Failure case: it costs one evaluation's time, 2.5 s.

use std::collections::BTreeMap;

use super::{ClassId, ResourceId};

/// Evaluations that are remembered, as bits.
const REMEMBERED: u8 = 0b111;
/// How many of them must agree.
const AGREE: u32 = 2;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Persistence {
    /// One bit for each of the last evaluations, the newest lowest. Classes without any are not kept.
    named: BTreeMap<(ResourceId, ClassId), u8>,
}

impl Persistence {
    /// An evaluation of this resource begins.
    pub(super) fn begin(&mut self, resource: ResourceId) {
        let of_resource = (resource, ClassId(0))..=(resource, ClassId(u16::MAX));
        for (_, bits) in self.named.range_mut(of_resource) {
            *bits = (*bits << 1) & REMEMBERED;
        }
        self.named.retain(|_, bits| *bits != 0);
    }

    /// It names this class.
    pub(super) fn name(&mut self, resource: ResourceId, class: ClassId) {
        *self.named.entry((resource, class)).or_default() |= 1;
    }

    /// No evaluation has named this class.
    pub(super) fn forget(&mut self, class: ClassId) {
        self.named.retain(|(_, of), _| *of != class);
    }

    /// No evaluation of this resource has named any.
    pub(super) fn forget_resource(&mut self, resource: ResourceId) {
        self.named.retain(|(of, _), _| *of != resource);
    }

    /// Whether the class is named.
    pub(super) fn is_flagged(&self, resource: ResourceId, class: ClassId) -> bool {
        let bits = self.named.get(&(resource, class));
        bits.is_some_and(|bits| bits.count_ones() >= AGREE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_of_three() {
        let mut persistence = Persistence::default();
        let (resource, class) = (ResourceId(1), ClassId(5));
        let mut step = |named: bool| {
            persistence.begin(resource);
            if named {
                persistence.name(resource, class);
            }
            persistence.is_flagged(resource, class)
        };
        let found = [true, false, true, false, false, true, true].map(&mut step);
        assert_eq!(found, [false, false, true, false, false, false, true]);
        assert_eq!([false; 3].map(&mut step), [true, false, false]);
        assert!(persistence.named.is_empty());
    }
}
