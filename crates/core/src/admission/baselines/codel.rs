//! `codel`: so many own requests in flight at a server, and before all of them a queue that is soon
//! given up when it stands: adaptive LIFO with controlled delay.
//!
//! ```text
//! room at a node   own in flight < connections
//! deadline         100 ms; 5 ms while the queue has not been empty for 100 ms
//! order            in order; newest first while it has not been empty for 100 ms
//! ```
//!
//! Inputs: own requests in flight; `connections`, as for `maxconn`; a clock.
//!
//! Failure case: the number of connections, as for `maxconn`. Both times are constants: a burst of
//! more than 100 ms is refused even where answers are wanted within a minute, and an SLO of 50 ms is
//! lost before the queue counts as standing.
//!
//! Source: FailAtScale-2015, where each request gets its deadline when it
//! comes; here the deadline of the moment is that of all.

use std::time::Duration;

use super::{
    Admission, AdmissionConfig, AdmissionVerdict, Connections, Limits, NodeId, Priority, Prng,
    Standing, View, WaitRules,
};

const TARGET: Duration = Duration::from_millis(5);
const INTERVAL: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug)]
pub(crate) struct Codel {
    connections: Connections,
}

impl Codel {
    pub(crate) fn new(config: &AdmissionConfig) -> Self {
        Self {
            connections: Connections::of(config),
        }
    }
}

impl Admission for Codel {
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
            deadline: INTERVAL,
            slo: None,
            standing: Some(Standing {
                head: Duration::ZERO,
                after: INTERVAL,
                deadline: TARGET,
                bounded: false,
            }),
        })
    }

    fn limits(&self) -> Limits {
        self.connections.limits()
    }
}
