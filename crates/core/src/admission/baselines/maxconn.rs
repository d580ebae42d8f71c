//! `maxconn`: so many own requests in flight at a server, and a queue in order before all of them:
//! what HAProxy's users set.
//!
//! ```text
//! room at a node   own in flight < connections
//! queue            one for the site; the highest priority first, within a priority in order
//! deadline         queue_timeout, or 0.4 SLO
//! ```
//!
//! Inputs: own requests in flight; `connections`, which is what this front-end may have of what a
//! server can use.
//!
//! Failure case: the number fits the requests that it was found with, and no others. Of many
//! front-ends none can have less than one (study: 64 of them deliver 3 %). With a deadline as long as
//! the SLO, as is usual, whatever waited is late (study: 0 %).
//!
//! Source: HAProxy's `maxconn` of a server, `timeout queue` and `set-priority-class`. There the
//! deadline is the one of connecting by default; 0.4 SLO is the best of the admission study.

use std::time::Duration;

use super::{
    Admission, AdmissionConfig, AdmissionVerdict, Connections, Limits, NodeId, Priority, Prng,
    View, WaitRules,
};

/// The deadline over the SLO, by default.
const DEADLINE: f64 = 0.4;

/// See the module.
#[derive(Debug)]
pub(crate) struct MaxConn {
    connections: Connections,
    deadline: Duration,
}

impl MaxConn {
    pub(crate) fn new(config: &AdmissionConfig) -> Self {
        let usual = config.slo.mul_f64(DEADLINE);
        Self {
            connections: Connections::of(config),
            deadline: config.queue_timeout.unwrap_or(usual),
        }
    }
}

impl Admission for MaxConn {
    fn on_request(&mut self, _: &View<'_>, _: Priority, _: &mut Prng) -> AdmissionVerdict {
        AdmissionVerdict::Admit
    }

    fn has_room(&self, view: &View<'_>, node: NodeId, _: Priority) -> bool {
        self.connections.has_room(view, node)
    }

    fn looks_further(&self) -> bool {
        true
    }

    fn waits(&self) -> Option<WaitRules> {
        Some(WaitRules {
            deadline: self.deadline,
            slo: None,
            standing: None,
        })
    }

    fn limits(&self) -> Limits {
        self.connections.limits()
    }
}
