//! The delay-free central oracle: all nodes, their true state now, and what is on its way.
//!
//! ```text
//! by run queue   least (n + 1) / C * factor     n = requests and antagonists on the run queue
//! by in flight   least (R + 1) / C * factor     R = requests in flight
//! factor         mean time that a request of the site takes there alone, over that elsewhere
//! ```
//!
//! Both count requests on their way to the node. Nodes that do not work, are barred or full are
//! left out while there are others. It knows nothing of the future: neither how much work a
//! request has left nor when an antagonist comes; so a policy may beat it by luck or by
//! spreading better, and the better one of the two is the bound to compare with.

use tidegate_core::prng::Prng;
use tidegate_core::topology::SiteId;

use crate::chooser::OracleBy;
use crate::model::Stream;
use crate::node::{Condition, Node};
use crate::node_model::NodeModel;
use crate::scenario::{Scenario, SiteModel};

/// See the module.
#[derive(Debug)]
pub(crate) struct Oracle {
    by: OracleBy,
    prng: Prng,
    /// Per site its nodes.
    sites: Vec<Vec<Seat>>,
}

#[derive(Clone, Copy, Debug)]
struct Seat {
    node: u32,
    /// factor / C.
    cost: f64,
    limit: u32,
}

impl Oracle {
    pub(crate) fn new(scenario: &Scenario, by: OracleBy) -> Self {
        let seats = |site: usize| {
            let nodes = scenario.nodes.iter().enumerate();
            nodes
                .filter(|(_, model)| model.site == SiteId(site as u32))
                .map(|(node, model)| Seat {
                    node: node as u32,
                    cost: factor(&scenario.sites[site], model) / model.cores,
                    limit: model.limit.unwrap_or(u32::MAX),
                })
                .collect()
        };
        Self {
            by,
            prng: Stream::Picker(0).prng(scenario.seed),
            sites: (0..scenario.sites.len()).map(seats).collect(),
        }
    }

    /// The node for a request to the site, if there is one; not this one.
    pub(crate) fn choose(&mut self, site: u32, tried: Option<u32>, nodes: &[Node]) -> Option<u32> {
        let mut best = None;
        let mut equals = 0;
        for seat in &self.sites[site as usize] {
            let node = &nodes[seat.node as usize];
            if node.barred.is_some() || tried == Some(seat.node) {
                continue;
            }
            let in_flight = node.processor.in_flight() + node.expected;
            let well = node.condition == Condition::Well && in_flight < seat.limit;
            let length = match self.by {
                OracleBy::RunQueue => node.processor.runnable() + node.expected,
                OracleBy::InFlight => in_flight,
            };
            let rank = (!well, f64::from(length + 1) * seat.cost);
            match best {
                Some((least, _)) if rank > least => {}
                Some((least, _)) if rank == least => {
                    equals += 1;
                    if self.prng.below(equals) == 0 {
                        best = Some((rank, seat.node));
                    }
                }
                _ => {
                    best = Some((rank, seat.node));
                    equals = 1;
                }
            }
        }
        best.map(|(_, node)| node)
    }
}

/// Mean time of a request of the site at the node alone, over that at a plain one.
fn factor(site: &SiteModel, node: &NodeModel) -> f64 {
    let cpu = site.mean_demand.as_secs_f64();
    let io = site.io.map_or(0.0, |io| io.mean.as_secs_f64());
    (cpu / node.speed + io * node.io_slowness) / (cpu + io).max(f64::MIN_POSITIVE)
}
