//! What others limit requests by: baselines that are measured beside `adaptive`, and usable by
//! name. Each is as it was published, with its published constants; its file says what a proxy
//! had to do otherwise.
//!
//! | mode | limits | by | a request without room |
//! |---|---|---|---|
//! | `maxconn`, `codel` | each server | the operator | waits |
//! | `gradient2`, `vegas`, `envoy_adaptive_concurrency` | the site | latencies | is refused |
//! | `envoy_admission_control` | nothing: it refuses at random | failures | |
//! | `dagor` | nothing: it refuses by priority and chance | latencies | |
//!
//! None of them looks at a load record, and none knows that there are other front-ends. What they
//! learn is each picker's own; what is in flight is counted for the whole front-end.

mod codel;
mod dagor;
mod envoy_adaptive_concurrency;
mod envoy_admission_control;
mod gradient2;
mod latencies;
mod maxconn;
mod vegas;

pub(super) use codel::Codel;
pub(super) use dagor::Dagor;
pub(super) use envoy_adaptive_concurrency::EnvoyAdaptiveConcurrency;
pub(super) use envoy_admission_control::EnvoyAdmissionControl;
pub(super) use gradient2::Gradient2;
pub(super) use maxconn::MaxConn;
pub(super) use vegas::Vegas;

use super::{
    Admission, AdmissionConfig, AdmissionVerdict, Limits, Priority, RejectReason, Standing,
    WaitRules,
};
use crate::ids::NodeId;
use crate::policy::{Sample, View};
use crate::prng::Prng;
use crate::time::Timestamp;

/// Shortest latency reckoned with, seconds.
const LATENCY_MIN: f64 = 1e-6;

/// A sample's latency, seconds.
fn seconds(sample: &Sample) -> f64 {
    sample.latency.as_secs_f64().max(LATENCY_MIN)
}

/// Own requests in flight at all nodes of the site.
fn in_flight(view: &View<'_>) -> u64 {
    let nodes = view.candidates.iter();
    nodes.map(|node| view.table.in_flight(*node)).sum()
}

/// A request is refused unless it may come in.
fn admit_if(may: bool) -> AdmissionVerdict {
    match may {
        true => AdmissionVerdict::Admit,
        false => AdmissionVerdict::Reject(RejectReason::Overload),
    }
}

/// Own requests in flight when the last one was let in, that one included: latencies of so many tell nothing of a
/// limit of more than twice as many.
#[derive(Clone, Copy, Debug, Default)]
struct InFlightAtLast(u64);

impl InFlightAtLast {
    /// A request is refused unless fewer are in flight than the limit.
    fn admit_below(&mut self, limit: f64, view: &View<'_>) -> AdmissionVerdict {
        let in_flight = in_flight(view);
        let may = in_flight < limit as u64;
        if may {
            self.0 = in_flight + 1;
        }
        admit_if(may)
    }

    fn is_below_half_of(self, limit: f64) -> bool {
        (self.0 as f64) < limit / 2.0
    }
}

/// Limits of a site as a whole.
fn of_site(site: f64) -> Limits {
    Limits {
        site,
        ..Limits::NONE
    }
}

/// The operator's limit of own requests in flight at a server.
#[derive(Clone, Copy, Debug)]
struct Connections(u32);

impl Connections {
    /// Nothing is let in without one: the configuration asks for it.
    fn of(config: &AdmissionConfig) -> Self {
        Self(config.limits.connections.unwrap_or(0))
    }

    fn has_room(self, view: &View<'_>, node: NodeId) -> bool {
        view.table.in_flight(node) < u64::from(self.0)
    }

    fn limits(self) -> Limits {
        Limits {
            node: self.0.into(),
            ..Limits::NONE
        }
    }
}
