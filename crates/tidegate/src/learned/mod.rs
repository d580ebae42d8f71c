//! What a front-end has learned of its nodes, for the process after it: handed over by an upgrade, or kept in the state
//! folder for a restart.
//!
//! ```text
//! director ── LearnedCluster ──────┐            ┌── channel of the upgrade ──┐
//! operators ── throttles, nodes ───┤ written.rs ┤                            ├──> Learned ──> the next director,
//! discovery ── costs, automatic ───┘            │                            │                discovery
//!                                               └── nodes.learned, each minute, at a drain ──┘
//! ```
//!
//! What operators have set goes with an upgrade, and not into the file: a restart begins as the configuration and the
//! files say in which operators' throttles and nodes are kept. What was learned and is too old or of another version is not
//! used, nor is a part that is not understood; that is said, and stops neither a start nor an upgrade.

mod automatic;
mod keeper;
mod written;

use std::time::Duration;

use tidegate_core::director::Director;
use tidegate_core::director::learned::{LearnedCluster, Recalled};
use tidegate_core::load::LoadTable;
use tidegate_core::throttle::{SetBy, ThrottleLimits};
use tidegate_culprits::live::{HandedOver, LearnedPolicy};
use tidegate_culprits::names::ClassNames;
use tidegate_proxy::Throttling;
use tidegate_remote::clock;

use crate::models::{AddedNode, MovedNodes};
use crate::output::Output;

pub(crate) use keeper::{Gatherer, Given, Keeper, Pending};

/// Most bytes of it: ten thousand nodes have less.
const BYTES_MAX: usize = 16 << 20;
/// What is older is not used.
const AGE_MAX: Duration = Duration::from_secs(300);
/// Event of all that is said of it.
const EVENT: &str = "learned";

/// What another process has learned.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Learned {
    /// How long ago.
    pub(crate) age: Duration,
    /// Nodes and sites; what operators want of nodes only from a process that is succeeded.
    pub(crate) cluster: LearnedCluster,
    /// Throttles that operators have set; likewise.
    pub(crate) throttles: Vec<OperatorThrottle>,
    /// Nodes that operators have added; none if nothing is said of them.
    pub(crate) added: Option<Vec<AddedNode>>,
    /// Nodes that serve another site than the configuration file says; likewise.
    pub(crate) moved: MovedNodes,
    /// What `automatic` has set and found out; likewise.
    pub(crate) policy: Option<LearnedPolicy>,
    /// What requests cost; likewise.
    pub(crate) costs: Option<Vec<u8>>,
    /// Why what was learned is not in here.
    refused: Option<LearnedError>,
    /// What else is not, in sentences.
    ignored: Vec<String>,
}

/// A throttle that an operator has set.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OperatorThrottle {
    /// The class, as the operator named it.
    pub(crate) class: String,
    /// What is done to it.
    pub(crate) limits: ThrottleLimits,
    /// What is left of its time; none: until it is released.
    pub(crate) left: Option<Duration>,
}

/// Why what a process has learned is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LearnedError {
    /// It is too long.
    #[error("it is larger than {BYTES_MAX} bytes")]
    Long,
    /// It is no such text, or it is cut off.
    #[error("it is damaged, or of another kind: {0}")]
    Damaged(String),
    /// It is another version's.
    #[error("it is of version {0}, and this program reads version {known}", known = written::VERSION)]
    Version(u32),
    /// It is too old.
    #[error("it is {0} s old, more than {most}", most = AGE_MAX.as_secs())]
    Old(u64),
    /// By its time it is not written yet.
    #[error("it is from {0} s ahead: the clock was set back")]
    Future(u64),
}

impl Learned {
    /// A director goes on from it, before anything else is asked of that; that is said.
    pub(crate) fn begin(&self, director: &mut Director, table: &LoadTable, output: Output) {
        let now = clock::now();
        let recalled = director.recall(&self.cluster, self.age, table, now);
        if !self.cluster.nodes.is_empty() {
            output.event(EVENT, &said(recalled, self.age));
        }
    }

    /// What discovery of culprits goes on from.
    pub(crate) fn for_discovery(&mut self) -> HandedOver {
        HandedOver {
            costs: self.costs.take(),
            automatic: self.policy.take(),
        }
    }

    /// Sets the throttles of operators again, and says which cannot be set.
    pub(crate) fn throttle(&self, throttling: &Throttling, names: &ClassNames, output: Output) {
        let now = clock::now();
        for it in &self.throttles {
            let until = it.left.map(|left| now + left.saturating_sub(self.age));
            let class = names.pattern(&it.class).map_err(|error| error.to_string());
            let set = class.and_then(|class| {
                let set = throttling.set(class, it.limits, SetBy::Operator, until, now);
                set.map_err(|error| error.to_string())
            });
            if let Err(why) = set {
                let text = format!("{}: not throttled any more: {why}", it.class);
                output.event("overrides", &text);
            }
        }
    }
}

/// What is said of what goes on.
fn said(recalled: Recalled, age: Duration) -> String {
    let Recalled { nodes, ejected } = recalled;
    let seconds = age.as_secs();
    let out = match ejected {
        0 => String::new(),
        _ => format!(
            "; {ejected} of them get no requests until they answer a probe, or their check passes"
        ),
    };
    format!("goes on with what was known of {nodes} nodes {seconds} s before{out}")
}
