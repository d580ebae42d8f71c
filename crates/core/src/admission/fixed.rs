//! `static`: limits that the operator sets, as in Admission-2008.
//!
//! ```text
//! over     a server is over if any of its limits is reached: own connections, or CPU, memory,
//!          network bytes per second by a fresh record
//! any      refuse if any server is over (the rule of Admission-2008)
//! all      refuse if every server is over
//! chosen   refuse if the server that the policy chose is over
//! ```
//!
//! A server without a fresh record is judged by its connections alone: unknown is not over.
//!
//! Failure case: old records. At 50 ms `chosen` delivers nothing in overload (study): all front-ends
//! see room and fill it at once, then none. And `any` with many front-ends or unequal servers.
//!
//! Source: Admission-2008 §III; the rule `any` is its "if the load of any server exceeds".

use super::{
    Admission, AdmissionConfig, AdmissionVerdict, Limits, Priority, RejectReason, StaticLimits,
    StaticScope,
};
use crate::ids::NodeId;
use crate::policy::View;
use crate::prng::Prng;

/// See the module.
#[derive(Debug)]
pub(super) struct Fixed(StaticLimits);

impl Fixed {
    pub(super) fn new(config: &AdmissionConfig) -> Self {
        Self(config.limits)
    }

    fn is_over(&self, view: &View<'_>, node: NodeId) -> bool {
        let limits = &self.0;
        let reached = |value: f32, limit: Option<f32>| limit.is_some_and(|limit| value >= limit);
        if limits
            .connections
            .is_some_and(|most| view.table.in_flight(node) >= u64::from(most))
        {
            return true;
        }
        if limits.cpu.is_none() && limits.memory.is_none() && limits.network.is_none() {
            return false;
        }
        // NaN, which is unknown, reaches nothing.
        view.table.fresh(node, view.now).is_some_and(|load| {
            reached(load.utilization, limits.cpu)
                || reached(load.memory, limits.memory)
                || reached(load.network, limits.network)
        })
    }
}

impl Admission for Fixed {
    fn on_request(&mut self, view: &View<'_>, _: Priority, _: &mut Prng) -> AdmissionVerdict {
        let mut nodes = view.candidates.iter();
        let refused = match self.0.scope {
            StaticScope::Any => nodes.any(|node| self.is_over(view, *node)),
            StaticScope::All => nodes.all(|node| self.is_over(view, *node)),
            StaticScope::Chosen => false,
        };
        match refused {
            true => AdmissionVerdict::Reject(RejectReason::Overload),
            false => AdmissionVerdict::Admit,
        }
    }

    fn has_room(&self, view: &View<'_>, node: NodeId, _: Priority) -> bool {
        self.0.scope != StaticScope::Chosen || !self.is_over(view, node)
    }

    fn limits(&self) -> Limits {
        let node = match (self.0.scope, self.0.connections) {
            (StaticScope::Any | StaticScope::Chosen, Some(most)) => most.into(),
            (StaticScope::All, _) | (_, None) => f64::INFINITY,
        };
        Limits {
            node,
            ..Limits::NONE
        }
    }
}
