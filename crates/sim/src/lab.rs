//! The lab's closed loops as scenarios: what KLM-2005 §5.2 to 5.4 measure, on nodes that a kernel schedules.
//!
//! ```text
//! 8 nodes of a tenth of a CPU, 16 front-ends that do not know of each other, 24 clients that ask as fast as they
//! are answered; 5.4 ms of CPU time a request (log-normal, cv 0.85: files by popularity, some of them in a cache)
//! loaded-nodes    16 processes that play ping-pong on some of the nodes
//! ```
//!
//! Each [`Arm`] reads loads as the lab has it read them. Peers that count their own requests stand as
//! `least_request`. Source: `tidegate-lab run loaded-nodes`.

use std::time::Duration;

use tidegate_core::load::Rung;
use tidegate_core::policy::{LoadIndex, Parameters, PolicyConfig, PolicyKind};

use crate::kernel::Kernel;
use crate::model::{Arrivals, Demand};
use crate::node_model::{Answer, Records};
use crate::scenario::Scenario;

/// Nodes of the cluster.
pub const NODES: u32 = 8;
/// Clients of the closed loop.
pub const CLIENTS: u32 = 24;
/// Front-ends.
const FRONT_ENDS: u32 = 16;
/// Each node's share of a CPU.
const SHARE: f64 = 0.1;
/// Pairs on a loaded node.
const PAIRS: u32 = 8;
/// CPU time of a request.
const DEMAND: Duration = Duration::from_micros(5400);
const DEMAND_CV: f64 = 0.85;
/// How often the paper's schemes read.
const PAPER_INTERVAL: Duration = Duration::from_millis(50);

/// How often a front-end with few requests reads, by its own pace (`tidegate_core::director::Pace`).
const PACED_INTERVAL: Duration = Duration::from_millis(50);

/// A policy, and how it learns of loads in the lab.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arm {
    /// Its name in the lab's tables.
    pub name: &'static str,
    /// The policy.
    pub policy: PolicyConfig,
    records: Option<Records>,
}

impl Arm {
    fn blind(name: &'static str, kind: PolicyKind) -> Self {
        Self {
            name,
            policy: PolicyConfig::new(kind),
            records: None,
        }
    }

    fn scheme(name: &'static str, index: LoadIndex, records: Records) -> Self {
        let parameters = Parameters {
            index,
            ..Parameters::default()
        };
        Self {
            name,
            policy: PolicyConfig {
                kind: PolicyKind::KLeastLoaded,
                parameters,
            },
            records: Some(records),
        }
    }

    /// The same with so long between two reads, if it reads.
    #[must_use]
    pub fn read_each(self, interval: Duration) -> Self {
        let records = self.records;
        Self {
            records: records.map(|records| Records {
                interval,
                ..records
            }),
            ..self
        }
    }

    /// The arms of the paper, `auto`, and what the peers do.
    pub fn all() -> Vec<Self> {
        let kernel = Records {
            rung: Rung::XdpGeneric,
            interval: PAPER_INTERVAL,
            in_flight: false,
            ..Records::default()
        };
        let inside = Records {
            rung: Rung::Agent,
            published: PAPER_INTERVAL,
            answer: Answer::Process {
                slice: Kernel::default().slice,
            },
            ..kernel
        };
        let beside = Records {
            rung: Rung::AgentRealtime,
            interval: PACED_INTERVAL,
            published: Duration::from_millis(1),
            ..kernel
        };
        vec![
            Self::blind("random", PolicyKind::Random),
            Self::blind("round_robin", PolicyKind::RoundRobin),
            Self::scheme("ulm", LoadIndex::Ulm, inside),
            Self::scheme("klm", LoadIndex::Klm, kernel),
            Self::blind("least_request", PolicyKind::LeastRequest),
            Self {
                name: "auto",
                policy: PolicyConfig::new(PolicyKind::Auto),
                records: Some(beside),
            },
        ]
    }
}

/// `loaded-nodes` with neighbours on the first so many nodes, as this arm sees them.
pub fn loaded_nodes(loaded: u32, arm: &Arm) -> Scenario {
    let mut scenario = Scenario::new(NODES, FRONT_ENDS, 1.0)
        .requests(6000)
        .sites(|site| {
            site.arrivals = Arrivals::Closed {
                clients: CLIENTS,
                think: Duration::ZERO,
            };
            site.mean_demand = DEMAND;
            site.demand = Demand::LogNormal { cv: DEMAND_CV };
        })
        .nodes(|node| {
            node.cores = SHARE;
            node.kernel = Some(Kernel::default());
            node.records = arm.records;
        });
    for node in scenario.nodes.iter_mut().take(loaded as usize) {
        node.kernel = Some(Kernel {
            pairs: PAIRS,
            ..Kernel::default()
        });
    }
    scenario
}
